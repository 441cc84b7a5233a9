"""Learning rate by step: linear warm-up, then half a cosine down to zero. Pure arithmetic."""

import math


def rate_at(step: int, *, total: int, warmup: float, peak: float) -> float:
    """Rate of step 0 .. total - 1. warmup: share of the steps; the first step after it runs at the peak.

    Cosine annealing without restarts: Loshchilov and Hutter, ICLR 2017, equation 5 with eta_min = 0.
    """
    rising = int(warmup * total)
    if step < rising:
        return peak * (step + 1) / (rising + 1)
    return peak * 0.5 * (1.0 + math.cos(math.pi * (step - rising) / max(1, total - rising)))
