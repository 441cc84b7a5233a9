"""Random nets from every kind of structure that pruning meets: each pruned with the masked net's outputs, or refused.

    python benchmarks/random_nets.py [nets]

Prints how many groups were pruned, how many layers refused and why. Exits with 1 when a net breaks or differs.
"""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "prune"))
from random_nets import BLOCKS, RandomNet

from compress.data import SINGLE_INPUT
from compress.prune.checks import difference
from compress.prune.groups import find_groups, reads_of, structure_of

MOST_BLOCKS = 6
SHOWN = 40


def main(nets: int) -> int:
    drawn, pruned, wrong, reasons = np.random.default_rng(0), 0, [], Counter[str]()
    for number in range(nets):
        blocks = [str(name) for name in drawn.choice(sorted(BLOCKS), size=drawn.integers(1, MOST_BLOCKS + 1))]
        torch.manual_seed(number)
        net = RandomNet(blocks, flatten=bool(drawn.integers(2))).eval()
        feeds = {SINGLE_INPUT: drawn.standard_normal((2, 3, 6, 6)).astype(np.float32)}
        found = find_groups(net, feeds)
        removed = {one.name: range(0, len(one.units) - 1, 2) for one in found.groups}
        reason = difference(net, structure_of(net, found.groups, removed), reads_of(found.groups), feeds)
        wrong += [f"{blocks}: {reason}"] if reason else []
        pruned += len(found.groups)
        reasons.update(one.reason.rpartition(": ")[2][:SHOWN] for one in found.refused)
    print(f"{nets} nets, {pruned} groups pruned, {sum(reasons.values())} layers refused, {len(wrong)} nets wrong")
    for reason, count in reasons.most_common(12):
        print(f"{count:5d} {reason}")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
