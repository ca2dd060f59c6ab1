"""Trends and disentanglement: against loops, coverage by simulation, and entangled parts as a control."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import norm, spearmanr

import demur
from demur.tasks import disentanglement, trend

LEVELS = (0.0, 1.0, 3.0)


def loop_tau(runs: dict) -> float:
    """Kendall's tau of each input by a loop over pairs, averaged."""
    found = []
    for k in range(len(next(iter(runs.values())))):
        pairs = [np.sign(runs[b][k] - runs[a][k]) for a, b in combinations(sorted(runs), 2)]
        found.append(np.mean(pairs))
    return float(np.mean(found))


def draw_runs(rng, number: int, slope: float, clusters=None) -> dict:
    """Scores that move by `slope` per level, with noise that clusters may share."""
    runs = {}
    for level in LEVELS:
        noise = rng.normal(size=number)
        if clusters is not None:
            noise = np.sqrt(0.2) * noise + np.sqrt(0.8) * rng.normal(size=clusters.max() + 1)[clusters]
        runs[level] = slope * level + noise
    return runs


def true_tau(slope: float) -> float:
    return float(
        np.mean([2 * norm.cdf(slope * (b - a) / np.sqrt(2)) - 1 for a, b in combinations(LEVELS, 2)])
    )


def test_tau_is_what_a_loop_gives():
    rng = np.random.default_rng(0)
    runs = draw_runs(rng, 50, -0.3)
    found = trend(runs)
    assert found.tau.value == pytest.approx(loop_tau(runs))
    assert found.tau.low < found.tau.value < found.tau.high
    assert found.levels == LEVELS and found.means == tuple(pytest.approx(runs[k].mean()) for k in LEVELS)


def test_order_of_levels_ties_and_infinities():
    runs = {3: [1.0, np.inf, 2.0, np.inf], 1: [1.0, 1.0, 3.0, np.inf]}
    found = trend(runs)
    assert found.levels == (1.0, 3.0)
    assert found.tau.value == 0.0  # one tie, one rise, one fall, one tie of infinities
    assert found.ratio is None and found.means[1] == np.inf


def test_all_fall_is_a_trend_whose_interval_knows_how_few_inputs_there_are():
    few, many = (trend({1: np.ones(n), 2: np.zeros(n)}) for n in (3, 300))
    assert few.tau.value == many.tau.value == -1
    assert not few.falls and many.falls and many.tau.high < -0.97


def test_several_runs_of_a_level_are_compared_with_each_of_the_next():
    rng = np.random.default_rng(1)
    a, b, c = rng.normal(size=(3, 40))
    found = trend({0: [a, b], 1: c})
    assert found.tau.value == pytest.approx((loop_tau({0: a, 1: c}) + loop_tau({0: b, 1: c})) / 2)
    assert found.means[0] == pytest.approx((a.mean() + b.mean()) / 2)


def coverage(trials: int, slope: float, clustered: bool, told: bool) -> float:
    held, wanted = 0, true_tau(slope)
    clusters = np.repeat(np.arange(30), 10) if clustered else None
    for seed in range(trials):
        runs = draw_runs(np.random.default_rng(seed), 300 if clustered else 150, slope, clusters)
        tau = trend(runs, clusters=clusters if told else None).tau
        held += tau.low <= wanted <= tau.high
    return held / trials


@pytest.mark.parametrize(("slope", "clustered"), [(0.0, False), (-0.5, False), (-0.5, True)])
def test_intervals_hold_the_truth_as_often_as_they_say(slope, clustered):
    trials = 300
    error = np.sqrt(0.95 * 0.05 / trials)
    assert abs(coverage(trials, slope, clustered, clustered) - 0.95) < 4 * error
    if clustered:  # the check can fail: clusters that nobody mentions
        assert coverage(trials, slope, clustered, False) < 0.8


@pytest.mark.slow
@pytest.mark.parametrize(("slope", "clustered"), [(0.0, False), (-0.5, False), (-1.5, False), (-0.5, True)])
def test_coverage_in_more_trials(slope, clustered):
    trials = 4000
    found = coverage(trials, slope, clustered, clustered)
    print(f"slope {slope}, {'clusters' if clustered else 'inputs'}: {found:.4f}")
    assert abs(found - 0.95) < 0.01 + 4 * np.sqrt(0.95 * 0.05 / trials)


def test_the_interval_of_the_ratio_holds_the_truth():
    held, trials = 0, 300
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        base = rng.gamma(2.0, size=200)  # inputs differ a lot; each is compared with itself
        ratio = trend({1: base * rng.gamma(4.0, size=200), 2: 0.5 * base * rng.gamma(4.0, size=200)}).ratio
        assert ratio is not None
        held += ratio.low <= 0.5 <= ratio.high
    assert abs(held / trials - 0.95) < 4 * np.sqrt(0.95 * 0.05 / trials)


def draw_parts(rng, number: int = 2000):
    """Noise and rarity of inputs, and people's entropy, which follows the noise."""
    noise, rarity = rng.gamma(1.0, size=number), rng.gamma(1.0, size=number)
    return noise, rarity, noise + 0.2 * rng.normal(size=number)


def test_parts_that_measure_two_things_and_parts_that_measure_one():
    noise, rarity, people = draw_parts(np.random.default_rng(0))
    runs = {size: rarity * 100 / size for size in (100, 300)}
    levels = dict.fromkeys((0.0, 0.4), rarity)
    apart = disentanglement(noise, rarity, reference=people, sizes=runs, noise=levels)
    assert apart.parts.low < 0 < apart.parts.high
    assert apart.reference.low > 0.9 and abs(apart.epistemic_reference.value) < 0.1
    assert apart.failures == []
    total = noise + rarity  # the control: both parts are the same mixture, which label noise raises
    one = disentanglement(
        total, total**2, reference=people, sizes={100: total, 300: total},
        noise={0.0: total, 0.4: 1.4 * total},
    )  # fmt: skip
    assert one.parts.value == pytest.approx(1)
    assert one.epistemic_reference.value == pytest.approx(one.reference.value)
    assert len(one.failures) == 2 and "not ignorance" in repr(one)


def test_correlations_are_spearman_s():
    noise, rarity, people = draw_parts(np.random.default_rng(1), 300)
    found = disentanglement(noise, rarity + noise, reference=people)
    assert found.parts.value == pytest.approx(spearmanr(noise, rarity + noise)[0])
    assert found.reference.value == pytest.approx(spearmanr(noise, people)[0])
    assert found.epistemic_reference.value == pytest.approx(spearmanr(rarity + noise, people)[0])
    assert found.sizes is None and found.noise is None


def test_scores_are_taken_as_they_are():
    logits = np.random.default_rng(0).normal(size=(5, 60, 3))

    def score(scale):
        posterior = demur.posteriors.Samples(lambda x: scale * logits[:, x], kind="logits")
        return demur.score(posterior, [np.arange(60)], progress=False)

    runs = {1: score(2.0), 2: score(1.0), 3: [score(0.5), score(0.6)]}
    found = disentanglement(runs[1], sizes=runs, measure="average")
    u = runs[1]["average"]
    assert found.parts.value == pytest.approx(spearmanr(u.aleatoric, u.epistemic)[0])
    assert found.sizes.falls and found.number == 60
    with pytest.raises(ValueError, match="measure must be one that was scored"):
        disentanglement(runs[1], measure="A3")


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("epistemic must be given", lambda: disentanglement([1.0, 2.0])),
        ("epistemic must be of the same 2 inputs", lambda: disentanglement([1.0, 2.0], [1.0])),
        ("Got 0 for every input", lambda: disentanglement([0.0, 0.0], [1.0, 2.0])),
        ("reference must be numbers", lambda: disentanglement([0, 1.0], [1.0, 2], reference=[np.nan, 1])),
        ("at least two levels", lambda: trend({1: [1.0, 2.0]})),
        ("at least two levels", lambda: trend([[1.0, 2.0], [2.0, 3.0]])),
        ("levels must be numbers", lambda: trend({"few": [1.0, 2.0], "many": [1.0, 2.0]})),
        ("same inputs at every level, 2 of them. Got 3 at 5", lambda: trend({1: [1.0, 2], 5: [1.0, 2, 3]})),
        ("must have runs of the same inputs", lambda: trend({1: [[1.0, 2], [1.0]], 5: [1.0, 2]})),
        ("confidence must be between", lambda: trend({1: [1.0, 2], 5: [1.0, 2]}, confidence=95)),
    ],
)
def test_what_is_wrong_is_said_in_a_line(words, call):
    with pytest.raises(ValueError, match=words):
        call()
