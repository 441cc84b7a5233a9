"""Intervals and paired tests, against independent references and against their promised coverage."""

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import binom, binomtest, norm

from compress.measure import stats


@pytest.mark.parametrize(("k", "n"), [(0, 1), (0, 20), (20, 20), (7, 9), (863, 899), (1, 10_000)])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_the_interval_of_a_share_is_wilsons(k: int, n: int, confidence: float):
    reference = binomtest(k, n).proportion_ci(confidence_level=confidence, method="wilson")
    found = stats.wilson(k, n, confidence)
    assert (found.value, found.n) == (k / n, n)
    assert (found.low, found.high) == pytest.approx((reference.low, reference.high), abs=1e-12)


def score_of(delta: float, lost: int, won: int, n: int) -> float:
    """Tango's statistic from its definition: the restricted likelihood is maximised by search, not by formula."""

    def minus_log_likelihood(q: float) -> float:  # q: share of samples won; q + delta: share lost
        parts = [(won, q), (lost, q + delta), (n - lost - won, 1 - 2 * q - delta)]
        return -sum(count * np.log(max(share, 1e-300)) for count, share in parts if count)

    low, high = max(0.0, -delta), (1 - delta) / 2
    q = minimize_scalar(minus_log_likelihood, bounds=(low, high), method="bounded", options={"xatol": 1e-12}).x
    return (lost - won - n * delta) / np.sqrt(n * (2 * q + delta * (1 - delta)))


@pytest.mark.parametrize(
    ("lost", "won", "n"), [(0, 0, 50), (3, 1, 44), (1, 3, 44), (10, 0, 200), (30, 25, 1000), (0, 9, 90)]
)
def test_the_bound_of_a_paired_drop_is_where_the_score_reaches_the_quantile(lost: int, won: int, n: int):
    z = norm.ppf(0.95)
    estimate = (lost - won) / n
    high = brentq(lambda delta: score_of(delta, lost, won, n) + z, estimate + 1e-7, 1 - 1e-6)
    low = brentq(lambda delta: score_of(delta, lost, won, n) - z, -1 + 1e-6, estimate - 1e-7)
    assert stats.paired_share_drop_high(lost, won, n) == pytest.approx(high, abs=1e-5)
    assert stats.paired_share_drop_low(lost, won, n) == pytest.approx(low, abs=1e-5)


def test_with_no_discordant_pair_the_bound_is_the_closed_form():
    # lost = won = 0: the score equation becomes n d / (1 - d) = z^2.
    z2 = norm.ppf(0.95) ** 2
    assert stats.paired_share_drop_high(0, 0, 100) == pytest.approx(z2 / (100 + z2), abs=1e-9)


@pytest.mark.parametrize(
    ("n", "loses", "wins"), [(200, 0.02, 0.01), (500, 0.05, 0.05), (1000, 0.01, 0.0), (300, 0.1, 0.02)]
)
def test_the_bound_of_a_paired_drop_covers_the_truth(n: int, loses: float, wins: float):
    draws = np.random.default_rng(n).multinomial(n, [loses, wins, 1 - loses - wins], size=4000)
    counts, repeats = np.unique(draws[:, :2], axis=0, return_counts=True)
    highs = np.array([stats.paired_share_drop_high(lost, won, n) for lost, won in counts.tolist()])
    lows = np.array([stats.paired_share_drop_low(lost, won, n) for lost, won in counts.tolist()])
    truth = loses - wins
    # 95 % is promised; counts are discrete, and 4000 draws see a share to within 0.7 points.
    assert repeats[highs >= truth].sum() / 4000 >= 0.94
    # The other side only turns undecided into fail; with few discordant pairs the score bound is a little short there.
    assert repeats[lows <= truth].sum() / 4000 >= 0.92


def test_more_losses_and_fewer_wins_raise_the_bound():
    by_lost = [stats.paired_share_drop_high(lost, 5, 100) for lost in range(40)]
    by_won = [stats.paired_share_drop_high(5, won, 100) for won in range(40)]
    by_n = [stats.paired_share_drop_high(n // 50, n // 100, n) for n in (100, 200, 400, 800)]
    assert (np.diff(by_lost) > 0).all()
    assert (np.diff(by_won) < 0).all()
    assert (np.diff(by_n) < 0).all()


@pytest.mark.parametrize(("lost", "won"), [(0, 0), (4, 1), (1, 4), (20, 20), (0, 100)])
def test_swapping_the_models_swaps_the_bounds(lost: int, won: int):
    assert stats.paired_share_drop_low(lost, won, 100) == -stats.paired_share_drop_high(won, lost, 100)
    assert (
        stats.paired_share_drop_low(lost, won, 100)
        <= (lost - won) / 100
        <= stats.paired_share_drop_high(lost, won, 100)
    )


def test_mcnemar_is_a_sign_test_on_the_discordant_pairs():
    assert stats.mcnemar_exact(0, 0) == 1.0
    assert stats.mcnemar_exact(5, 0) == pytest.approx(2 * 0.5**5)
    assert stats.mcnemar_exact(9, 3) == stats.mcnemar_exact(3, 9) == pytest.approx(2 * binom.cdf(3, 12, 0.5))


def test_a_bootstrap_interval_covers_the_mean():
    rng = np.random.default_rng(0)
    samples = rng.exponential(size=(200, 80))
    found = [stats.bootstrap(row, lambda rows: rows.mean(axis=-1), confidence=0.95, draws=500) for row in samples]
    covered = np.mean([interval.low <= 1.0 <= interval.high for interval in found])
    assert 0.88 <= covered <= 0.99  # 95 % less the known loss on skewed samples, within 200 repetitions


def test_a_bootstrap_is_the_same_twice_and_in_chunks(monkeypatch: pytest.MonkeyPatch):
    values = np.random.default_rng(1).normal(size=500)
    one, two = stats.mean_interval(values), stats.mean_interval(values)
    assert one == two
    assert stats.mean_interval(np.full(9, 2.5)) == stats.Interval(value=2.5, low=2.5, high=2.5, n=9)
    assert sum(stats._chunks(4000, 10**6)) == 4000
    assert max(stats._chunks(4000, 10**6)) * 10**6 <= 8_000_000


def test_the_ratio_of_medians_is_the_median_log_ratio():
    logs = np.log(2.0) + np.random.default_rng(2).normal(0, 0.05, 101)
    found = stats.ratio_of_medians(logs)
    assert found.value == pytest.approx(np.exp(np.median(logs)))
    assert found.low < found.value < found.high
    assert found.low <= 2.0 <= found.high
    inverse = stats.ratio_of_medians(-logs)
    assert (inverse.value, inverse.low) == pytest.approx((1 / found.value, 1 / found.high), rel=0.01)


@pytest.mark.parametrize(("q", "n"), [(50, 7), (50, 100), (95, 90), (95, 400), (99, 459), (99, 2000)])
def test_the_interval_of_a_percentile_covers_it(q: int, n: int):
    # Uniform samples: the true percentile is q/100, and order statistics decide coverage for every distribution.
    rows = np.random.default_rng(q + n).random((400, n))
    found = [stats.percentile(row, q) for row in rows]
    covered = np.mean([interval is not None and interval.low <= q / 100 <= interval.high for interval in found])
    assert covered >= 0.92


def test_the_ranks_of_a_percentile_are_the_narrowest_exact_ones():
    n, q = 1000, 95
    found = stats.percentile(np.arange(1.0, n + 1), q)
    assert found is not None
    low, high = int(found.low), int(found.high)  # values are ranks
    assert binom.cdf(high - 1, n, q / 100) - binom.cdf(low - 1, n, q / 100) >= 0.95
    assert binom.cdf(low - 1, n, q / 100) <= 0.025 < binom.cdf(low, n, q / 100)
    assert found.value == np.percentile(np.arange(1.0, n + 1), q)


@pytest.mark.parametrize(("q", "needed"), [(50, 7), (95, 90), (99, 459)])
def test_a_percentile_is_refused_below_its_floor(q: int, needed: int):
    assert stats.needed_samples(q) == needed
    assert stats.percentile(np.arange(float(needed - 1)), q) is None
    assert stats.percentile(np.arange(float(needed)), q) is not None
    assert (q / 100) ** needed <= 0.011


def test_noise_is_told_in_decibels():
    rng = np.random.default_rng(3)
    signal, noise = rng.normal(size=1000), rng.normal(size=1000) * 0.01
    direct = 10 * np.log10((signal**2).sum() / (noise**2).sum())
    assert stats.sqnr_db(signal, signal + noise) == pytest.approx(direct)
    assert stats.sqnr_db(signal, np.zeros(1000)) == pytest.approx(0.0)
    assert stats.sqnr_db(signal, signal) is None
    assert np.isfinite(stats.sqnr_db(np.zeros(3), np.ones(3)) or np.nan)
