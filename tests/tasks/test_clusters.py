"""Inputs that belong together: against loops over clusters, and intervals by simulation with a control."""

from functools import cache

import numpy as np
import pytest
from scipy.stats import norm, t

import demur
from demur.tasks import (
    accuracy_band,
    calibration,
    compare,
    compare_all,
    contest,
    detection,
    estimate_figure,
    misclassification,
    rank_correlation,
    regression,
    roc_band,
    selective,
    sparsification,
)
from demur.tasks.bands import _bound_mean_of_distances
from demur.tasks.clusters import check_clusters
from demur.tasks.levels import count_levels, false_positive_rate, false_positive_rate_influence

RUNS = 150
SHIFT = 1.5


def draw_clustered(rng, clusters, size, alike):
    """Standard normal numbers of which a share of the variance is common to their cluster; and the labels."""
    codes = np.repeat(np.arange(clusters), size)
    common = rng.normal(size=clusters)[codes]
    return np.sqrt(alike) * common + np.sqrt(1 - alike) * rng.normal(size=len(codes)), codes


def of_detection(rng, clusters, size, alike):
    """Out-of-distribution scores are shifted; figures with and without clusters, and those that are true."""
    known, a = draw_clustered(rng, clusters, size, alike)
    unknown, b = draw_clustered(rng, clusters, size, alike)
    unknown, b = unknown + SHIFT, b + 1000
    truth = {
        "auroc": norm.cdf(SHIFT / np.sqrt(2)),
        "aupr": precision_truth(),
        "fpr95": norm.sf(SHIFT + norm.ppf(0.05)),
    }
    for which, given in (("", (a, b)), (", ignored", None)):
        found = detection(known, unknown, interval="asymptotic", clusters=given)
        yield from ((name + which, getattr(found, name), value) for name, value in truth.items())
    noise = [rng.normal(size=len(each)) for each in (known, unknown)]
    noisy = known + noise[0], unknown + noise[1]
    differences = {
        "auroc": truth["auroc"] - norm.cdf(SHIFT / 2),
        "fpr95": truth["fpr95"] - norm.sf(SHIFT / np.sqrt(2) + norm.ppf(0.05)),
    }
    for figure, value in differences.items():
        found = compare((known, unknown), noisy, "detection", figure=figure, clusters=(a, b))
        yield f"difference of {figure}", found.difference, value


@cache
def precision_truth():
    """The average precision of as many of each kind."""
    at = np.linspace(-12, 14, 100_001)
    hits, alarms = norm.sf(at - SHIFT), norm.sf(at)
    with np.errstate(invalid="ignore"):
        return float(np.nansum(hits / (hits + alarms) * norm.pdf(at - SHIFT)) * (at[1] - at[0]))


def of_selective(rng, clusters, size, alike):
    """The error rate is s / 2 at the share s, and both scores and errors go together within clusters."""
    (x, codes), (luck, _) = (draw_clustered(rng, clusters, size, alike) for _ in range(2))
    scores = norm.cdf(x)
    correct = norm.cdf(luck) > scores / 2
    for which, given in (("", codes), (", ignored", None)):
        found = selective(scores, correct, interval="asymptotic", clusters=given)
        yield f"auc{which}", found.auc, 0.875
        yield f"accuracy at 0.6{which}", found.accuracy_at(0.6), 0.85
        yield f"coverage at 0.85{which}", found.coverage_at(0.85), 0.6
        yield f"excess{which}", found.excess, 0.75 * (1 + np.log(4 / 3)) - 0.875
        other = rank_correlation(x, 0.6 * x + 0.8 * luck, interval="asymptotic", clusters=given)
        yield f"rank correlation{which}", other, 6 / np.pi * np.arcsin(0.3)
    share = estimate_figure(lambda s, c: c.mean(), scores, correct, clusters=codes, resamples=200)
    yield "own figure", share, 0.75


def of_calibration(rng, clusters, size, alike):
    """Calibrated predictions whose errors go together."""
    (x, codes), (luck, _) = (draw_clustered(rng, clusters, size, alike) for _ in range(2))
    p = 0.5 + norm.cdf(x) / 2
    labels = (norm.cdf(luck) > p).astype(int)
    for which, given in (("", codes), (", ignored", None)):
        found = calibration(np.stack([p, 1 - p], axis=1), labels, bins=5, clusters=given, resamples=500)
        yield f"brier{which}", found.brier, 1 / 3  # 2 E[p (1 - p)] of p from 1/2 to 1
        yield f"ece{which}", found.ece, 0.0


SCALE = 0.8


def of_regression(rng, clusters, size, alike):
    """Predictions that are too sure, of standard normal outcomes that go together within clusters."""
    y, codes = draw_clustered(rng, clusters, size, alike)
    prediction = demur.Gaussian(np.zeros((1, len(y))), scale=np.full((1, len(y)), SCALE))
    truth = {
        "crps": np.sqrt(2 / np.pi * (1 + SCALE**2)) - SCALE / np.sqrt(np.pi),
        "nll": np.log(2 * np.pi * SCALE**2) / 2 + 1 / (2 * SCALE**2),
        "rmse": 1.0,
        "coverage": 1 - 2 * norm.cdf(SCALE * norm.ppf(0.05)),
        "calibration_error": calibration_truth(),
    }
    for which, given in (("", codes), (", ignored", None)):
        found = regression(prediction, y, clusters=given)
        yield from ((name + which, getattr(found, name), value) for name, value in truth.items())


@cache
def calibration_truth():
    """The area between the cdf of the PIT and the diagonal."""
    at = np.linspace(-12, 12, 100_001)
    return float(np.sum(np.abs(norm.cdf(SCALE * at) - norm.cdf(at)) * norm.pdf(at)) * (at[1] - at[0]))


def held(draw, clusters, size, alike, runs=RUNS):
    """Return by figure the share of draws whose interval holds the truth."""
    hits = {}
    for seed in range(runs):
        for name, found, truth in draw(np.random.default_rng(seed), clusters, size, alike):
            hits[name] = hits.get(name, 0) + (found.low <= truth <= found.high)
    return {name: count / runs for name, count in hits.items()}


@pytest.mark.parametrize(
    "draw",
    [of_detection, of_selective, of_calibration, pytest.param(of_regression, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize(
    ("clusters", "size", "alike", "runs"),
    [
        (20, 15, 0.5, RUNS),
        pytest.param(8, 50, 0.3, 1000, marks=pytest.mark.slow),
        pytest.param(20, 15, 0.5, 1000, marks=pytest.mark.slow),
        pytest.param(100, 20, 0.5, 1000, marks=pytest.mark.slow),
    ],
)
def test_intervals_hold_the_truth_where_inputs_go_together(draw, clusters, size, alike, runs):
    found = held(draw, clusters, size, alike, runs)
    print(clusters, size, alike, found)
    # 150 draws of coverage 0.95 have a standard error of 0.018: 0.88 is four of them below.
    lowest = 0.95 - 4 * np.sqrt(0.95 * 0.05 / runs)
    # Resamples, and Student's quantile with eight clusters, do not quite make up for how little few clusters
    # tell of their spread.
    short = {name: 0.9 if name == "own figure" or clusters <= 8 else lowest for name in found}
    assert all(share >= min(short[name], lowest) for name, share in found.items() if "ignored" not in name), (
        found
    )
    # The control: as if all inputs were independent, intervals are much too short.
    ignored = {name: share for name, share in found.items() if "ignored" in name}
    kinds = ("excess", "ece", "rank", "calibration")  # wider for other reasons, or where clusters matter less
    assert all(share < 0.85 for name, share in ignored.items() if not name.startswith(kinds)), found


def test_no_difference_is_found_where_there_is_none():
    """Equally good scores of clustered inputs are rarely told apart; without the clusters, often."""
    told = {"clusters": 0, "ignored": 0}
    for seed in range(200):
        rng = np.random.default_rng(seed)
        pairs, codes = [], None
        for _ in range(2):
            (known, a), (unknown, b) = (draw_clustered(rng, 15, 20, 0.5) for _ in range(2))
            pairs.append((known, unknown + 1))
            codes = a, b + 100
        told["clusters"] += compare(*pairs, "detection", clusters=codes).p_value <= 0.05
        told["ignored"] += compare(*pairs, "detection").p_value <= 0.05
    # 200 draws at 0.05: 10, with a standard error of 3.1.
    assert told["clusters"] <= 10 + 3 * 3.1 and told["ignored"] > 50


def test_the_variance_is_obuchowski_s_by_loops():
    """S10, S01 and S11 as the paper of 1997 writes them, with clusters that have both kinds of inputs."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 9, 120)
    correct = rng.uniform(size=120) < 0.6
    scores = np.round(rng.normal(~correct + 0.3 * codes), 1)
    x, y = scores[~correct], scores[correct]
    kernel = (x[:, None] > y) + (x[:, None] == y) / 2
    area = kernel.mean()
    of_x = np.array([np.sum((kernel.mean(1) - area)[codes[~correct] == g]) for g in range(9)])
    of_y = np.array([np.sum((kernel.mean(0) - area)[codes[correct] == g]) for g in range(9)])
    m, n = len(x), len(y)
    s10, s01 = 9 / (8 * m) * np.sum(of_x**2), 9 / (8 * n) * np.sum(of_y**2)
    s11 = 9 / 8 * np.sum(of_x * of_y)
    error = np.sqrt(s10 / m + s01 / n + 2 * s11 / (m * n))
    found = misclassification(scores, correct, clusters=codes).auroc
    assert found.value == pytest.approx(area) and found.method == "obuchowski"
    logit = np.log(area / (1 - area))
    width = np.log(found.high / (1 - found.high)) - logit
    # Welch's degrees of freedom of the two kinds, at most 8.
    a, b = s10 / m, s01 / n
    free = min(8, (a + b) ** 2 / (a**2 / 8 + b**2 / 8))
    assert width == pytest.approx(t.ppf(0.975, free) * error / (area * (1 - area)), rel=1e-9)


def test_clusters_of_one_input_are_independent_inputs():
    rng = np.random.default_rng(1)
    known, unknown = rng.normal(size=6000), rng.normal(1, 1, 5000)
    given = np.arange(6000), np.arange(6000, 11_000)
    alone, same = detection(known, unknown), detection(known, unknown, clusters=given)
    for name in ("auroc", "aupr", "fpr95"):
        a, b = getattr(alone, name), getattr(same, name)
        assert (b.value, b.low, b.high) == pytest.approx((a.value, a.low, a.high), abs=2e-3)
    assert same.clusters == 11_000 and same.within is None
    correct = rng.uniform(size=6000) > norm.cdf(known) / 2
    for call in (
        lambda c: selective(known, correct, clusters=c).auc,
        lambda c: selective(known, correct, clusters=c).excess,
        lambda c: selective(known, correct, clusters=c).accuracy_at(0.7),
        lambda c: selective(known, correct, clusters=c).coverage_at(0.85),
        lambda c: sparsification(known, rng.normal(size=6000) * 0 + known, clusters=c).ause,
        lambda c: rank_correlation(known, known**3 - known, clusters=c),
    ):
        a, b = call(None), call(np.arange(6000))
        assert (b.value, b.low, b.high) == pytest.approx((a.value, a.low, a.high), abs=3e-3)


def test_copies_of_inputs_tell_nothing_new():
    """Each input thirty times over, with its number as the cluster: as wide as one of each."""
    rng = np.random.default_rng(2)
    scores, correct = rng.uniform(size=200), rng.uniform(size=200) < 0.8
    many = np.repeat(scores, 30), np.repeat(correct, 30)
    clusters = np.repeat(np.arange(200), 30)
    for figure in (
        lambda s, c, k: selective(s, c, clusters=k).auc,
        lambda s, c, k: selective(s, c, clusters=k).accuracy_at(0.8),
        lambda s, c, k: misclassification(s, c, clusters=k).auroc,
        lambda s, c, k: misclassification(s, c, clusters=k).aupr,
        lambda s, c, k: rank_correlation(s, s + c, clusters=k),
        lambda s, c, k: sparsification(s, s - c, clusters=k).ause,
    ):
        one, thirty = figure(scores, correct, np.arange(200)), figure(*many, clusters)
        assert thirty.high - thirty.low == pytest.approx(one.high - one.low, rel=0.1)
        plain = figure(*many, None)
        assert plain.high - plain.low < 0.3 * (thirty.high - thirty.low)  # the control


@pytest.mark.parametrize("task", ["detection", "misclassification", "selective"])
def test_resampled_clusters_and_formulas_agree(task):
    rng = np.random.default_rng(3)
    (x, codes), (luck, _) = (draw_clustered(rng, 60, 20, 0.3) for _ in range(2))
    scores, correct = norm.cdf(x), norm.cdf(luck) > norm.cdf(x) / 2
    given = {"clusters": codes, "correct": correct}
    a, b = scores, scores + 0.3 * rng.normal(size=len(scores))
    if task == "detection":
        given = {"clusters": (codes[correct], codes[~correct])}
        a, b = ((each[correct], each[~correct]) for each in (a, b))
    for figure in ("auc", "excess") if task == "selective" else ("aupr", "fpr95"):
        both = [
            compare(a, b, task, figure=figure, interval=interval, resamples=400, **given).difference
            for interval in ("asymptotic", "bootstrap")
        ]
        assert both[0].value == both[1].value
        assert both[1].high - both[1].low == pytest.approx(both[0].high - both[0].low, rel=0.35)
    found = compare_all({"a": a, "b": b}, task, **given)[("a", "b")]
    again = contest(
        {"m": {"a": a, "b": b}}, task, clusters=given["clusters"], correct={"m": given.get("correct")}
    )
    assert next(iter(again.comparisons.values())).p_value == found.p_value


def test_bootstrap_of_single_figures():
    rng = np.random.default_rng(4)
    (x, codes), (luck, _) = (draw_clustered(rng, 40, 20, 0.3) for _ in range(2))
    scores, correct = norm.cdf(x), norm.cdf(luck) > norm.cdf(x) / 2
    for call in (
        lambda how: selective(scores, correct, clusters=codes, interval=how, resamples=400).auc,
        lambda how: selective(scores, correct, clusters=codes, interval=how, resamples=400).accuracy_at(0.6),
        lambda how: selective(scores, correct, clusters=codes, interval=how, resamples=400).coverage_at(0.85),
        lambda how: misclassification(scores, correct, clusters=codes, interval=how, resamples=400).aupr,
        lambda how: rank_correlation(x, x + luck, clusters=codes, interval=how),
        lambda how: sparsification(scores, x, clusters=codes, interval=how, resamples=400).ause,
    ):
        formula, drawn = call("auto"), call("bootstrap")
        assert formula.value == pytest.approx(drawn.value)
        assert drawn.high - drawn.low == pytest.approx(formula.high - formula.low, rel=0.4)


def test_pooled_figures_of_unlike_clusters_say_so():
    """Scores that tell images apart, and nothing within an image, find mistakes of bad images only."""
    rng = np.random.default_rng(5)
    codes = np.repeat(np.arange(40), 50)
    bad = (codes % 2).astype(bool)
    correct = rng.uniform(size=2000) > np.where(bad, 0.5, 0.05)
    scores = bad + rng.normal(0, 0.3, 2000)
    found = misclassification(scores, correct, clusters=codes)
    pairs = [
        np.mean(np.sign(scores[own & ~correct][:, None] - scores[own & correct]) / 2 + 0.5)
        for own in (codes == g for g in range(40))
        if (own & ~correct).any()
    ]
    assert found.pooled and found.auroc.low > 0.7 and found.within.low < 0.5 < found.within.high
    weights = [
        np.sum(~correct[own]) * np.sum(correct[own])
        for own in (codes == g for g in range(40))
        if (own & ~correct).any()
    ]
    assert found.within.value == pytest.approx(np.average(pairs, weights=weights))
    alike = misclassification(rng.normal(~correct), correct, clusters=codes)
    assert not alike.pooled
    assert "within" in found.to_dict() and "within" not in misclassification(scores, correct).to_dict()


@pytest.mark.parametrize("runs", [50, pytest.param(200, marks=pytest.mark.slow)])
def test_strata_show_what_a_score_tells_within_them(runs):
    """Background is easy and certain, objects are neither: pooled, the score seems to find mistakes."""
    hits = told = 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        kind = np.where(rng.uniform(size=600) < 0.7, "background", "object")
        correct = rng.uniform(size=600) > np.where(kind == "object", 0.4, 0.02)
        scores = rng.normal(2.0 * (kind == "object") + 0.5 * ~correct)
        found = misclassification(scores, correct, strata=kind)
        hits += found.within.low <= norm.cdf(0.5 / np.sqrt(2)) <= found.within.high
        told += found.pooled
    assert found.clusters is None and found.parts == "stratum"
    assert "Pools unlike strata: between inputs of one stratum" in repr(found)
    assert found.auroc == misclassification(scores, correct).auroc  # inputs are independent still
    assert hits / runs >= 0.95 - 4 * np.sqrt(0.95 * 0.05 / runs) and told > 0.95 * runs
    both = detection(scores[correct], scores[~correct], strata=(kind[correct], kind[~correct]))
    assert both.within.value == pytest.approx(found.within.value)
    with pytest.raises(ValueError, match="strata must be a pair for detection"):
        detection(scores, scores, strata=kind)
    with pytest.raises(ValueError, match="strata must be None for selective"):
        contest({"m": {"a": scores}}, "selective", correct={"m": correct}, strata=kind)


def test_influence_of_the_false_positive_rate_is_its_derivative():
    """Of a smooth score: more positives above the threshold, and more negatives."""
    rng = np.random.default_rng(6)
    scores = np.concatenate([rng.normal(0, 1, 40_000), rng.normal(1, 1, 40_000)])
    levels = count_levels(np.round(scores, 3), np.arange(80_000) >= 40_000)
    p, n = levels.positive, levels.negative
    of_positive, of_negative = false_positive_rate_influence(p, n)
    slope = norm.pdf(1 + norm.ppf(0.05)) / norm.pdf(norm.ppf(0.05))  # of the ROC curve there
    top, bottom = 10, len(p) - 10
    assert of_positive[bottom] - of_positive[top] == pytest.approx(slope / 40_000, rel=0.1)
    rate = false_positive_rate(p, n)
    assert (of_negative[top], of_negative[bottom]) == pytest.approx(((1 - rate) / 40_000, -rate / 40_000))


def test_few_clusters_prove_little():
    found = detection(np.zeros(500), np.ones(500), clusters=(np.arange(500) % 5, np.arange(500) % 5 + 5))
    assert found.auroc.value == 1 and found.auroc.low == pytest.approx(0.025 ** (1 / 5))
    assert found.aupr.low < 0.7 and found.fpr95.high == pytest.approx(1 - 0.025 ** (1 / 5))
    right = selective(np.arange(100.0), np.ones(100, bool), clusters=np.arange(100) % 4)
    assert right.auc.low == pytest.approx(0.025 ** (1 / 4))
    assert right.accuracy_at(1.0).low == pytest.approx(0.025 ** (1 / 4))
    one = detection(np.arange(50.0), np.arange(50.0) + 9, clusters=(np.zeros(50), np.arange(50) + 1))
    assert (one.auroc.low, one.auroc.high) == (0, 1)  # from one cluster nothing follows for others


def test_bands():
    rng = np.random.default_rng(7)
    scores, correct = rng.normal(size=300), rng.uniform(size=300) < 0.7
    codes = np.arange(300) // 10
    alone = roc_band(misclassification(scores, correct, clusters=np.arange(300)))
    together = roc_band(misclassification(scores, correct, clusters=codes))
    independent = roc_band(misclassification(scores, correct))
    inner = (independent.low > 0) & (independent.high < 1)
    for narrow, wide in ((independent, alone), (alone, together)):
        assert ((narrow.high - narrow.low)[inner] < (wide.high - wide.low)[inner]).all()
    found = selective(scores, correct, clusters=codes)
    band = accuracy_band(found, [150, 300])
    for place, share in enumerate((0.5, 1.0)):
        one = found.accuracy_at(share)
        assert (band.low[place], band.high[place]) == pytest.approx((one.low, one.high))


def draw_unequal(rng, clusters, alike):
    """Standard normal numbers in clusters of unequal size; and the labels."""
    codes = np.repeat(np.arange(clusters), np.ceil(rng.lognormal(3, 0.6, size=clusters)).astype(int))
    common = np.sqrt(alike) * rng.normal(size=clusters)[codes]
    return common + np.sqrt(1 - alike) * rng.normal(size=len(codes)), codes


def count_curves_held(runs, clusters, alike):
    """Return how often bands hold the whole true ROC curve, with clusters and as if there were none."""
    at = np.linspace(0.01, 0.99, 99)
    truth = norm.sf(norm.isf(at) - SHIFT)
    held = {"apart": 0, "mixed": 0, "apart, ignored": 0}
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        (known, a), (unknown, b) = (draw_unequal(rng, clusters, alike) for _ in range(2))
        wrong = rng.uniform(size=len(a)) < 0.3  # in the clusters of the right ones
        options = {"interval": "asymptotic"}
        results = {
            "apart": detection(known, unknown + SHIFT, clusters=(a, b + clusters), **options),
            "mixed": misclassification(known + SHIFT * wrong, ~wrong, clusters=a, **options),
            "apart, ignored": detection(known, unknown + SHIFT, **options),
        }
        for name, found in results.items():
            band = roc_band(found, at)
            held[name] += ((band.low <= truth) & (truth <= band.high)).all()
    return {name: count / runs for name, count in held.items()}


@pytest.mark.parametrize(
    ("clusters", "runs"),
    [
        (30, 60),
        pytest.param(8, 1000, marks=pytest.mark.slow),
        pytest.param(100, 1000, marks=pytest.mark.slow),
    ],
)
def test_the_roc_band_of_clusters_holds_the_whole_true_curve(clusters, runs):
    found = count_curves_held(runs, clusters, 0.9)
    print(clusters, found)
    assert min(found["apart"], found["mixed"]) >= 0.95 - 4 * np.sqrt(0.95 * 0.05 / runs), found
    assert found["apart, ignored"] < 0.85, found  # the control


def test_the_bound_of_a_mean_of_distances():
    """By the definition: the least t over all s of Markov's bound, with E(D - s)+ integrated."""
    level = 0.025
    s, step = np.linspace(0, 4, 40_001, retstep=True)
    beyond = np.cumsum((2 * np.exp(-2 * s**2))[::-1])[::-1] * step
    assert _bound_mean_of_distances(level) == pytest.approx(np.min(s + beyond / level), rel=1e-3)


def test_a_mean_of_clusters_is_student_s_without_skewness_and_moves_with_it():
    rng = np.random.default_rng(3)
    half = rng.normal(size=12)
    values = np.repeat(np.concatenate([half, -half]), 5)  # symmetric clusters
    clusters = check_clusters(np.repeat(np.arange(24), 5), 120)
    assert clusters is not None
    reach = t.ppf(0.975, 23) * np.concatenate([half, -half]).std(ddof=1) / np.sqrt(24)
    np.testing.assert_allclose(clusters.enclose_mean(values, 0.95), (-reach, reach), rtol=1e-6)
    low, high = clusters.enclose_mean(np.exp(values), 0.95)
    mean = np.exp(values).mean()
    assert high - mean > 1.2 * (mean - low)


@pytest.mark.parametrize(
    ("clusters", "message"),
    [
        ([1, 1, 1, 1], "at least 2 different labels.* Got 1 for all 4 inputs"),
        ([1, 2, 3], r"clusters must have shape \(4,\), one label per input.* Got \(3,\)"),
        ([1.0, 2.0, np.nan, 1.0], "Got none for 1 of 4 inputs, first at input 2"),
        (["a", "b", "", "a"], "Got none for 1 of 4 inputs, first at input 2"),
        (["a", None, "b", "a"], "Got none for 1 of 4 inputs, first at input 1"),
    ],
)
def test_bad_clusters_are_told(clusters, message):
    with pytest.raises(ValueError, match=message):
        selective([1.0, 2.0, 3.0, 4.0], [1, 0, 1, 1], clusters=clusters)


def test_other_bad_input():
    with pytest.raises(ValueError, match="clusters must be a pair for detection"):
        detection([1.0, 2.0], [2.0, 3.0], clusters=np.array([1, 2]))
    with pytest.raises(ValueError, match="splits and clusters cannot be given together"):
        detection([1.0, 2.0], [2.0, 3.0], clusters=([1, 2], [3, 4]), splits=2)
    with pytest.raises(ValueError, match="splits and clusters"):
        selective([1.0, 2.0], [1, 0], clusters=[1, 2], splits=2)


def test_labels_may_be_of_any_kind():
    expected = check_clusters(np.array([3, 3, 7, 1]), 4)
    for labels in (
        ["b", "b", "c", "a"],
        np.array([3.0, 3.0, 7.0, 1.0]),
        np.array(["b", "b", "c", "a"], object),
    ):
        found = check_clusters(labels, 4)
        assert found.number == 3 and np.array_equal(found.codes, expected.codes)
    pair = detection([1.0, 2.0, 0.0], [3.0, 2.5, 4.0], clusters=(["a", "a", "b"], ["c", "d", "a"]))
    assert pair.clusters == 4  # the same label in both is the same cluster


def test_promises_hold_with_clusters_and_not_without():
    """Targets that are promised but do not hold, over draws of clustered inputs: at most 1 in 20."""
    broken = {"one of each": 0, "ignored": 0}
    for seed in range(300):
        rng = np.random.default_rng(seed)
        codes = np.repeat(np.arange(150), 20)
        bad = (rng.uniform(size=150) < 0.1)[codes]  # all of a bad image is wrong: an accuracy of 0.9
        scores = rng.uniform(size=3000)
        for name, given in (("one of each", codes), ("ignored", None)):
            try:
                demur.Deferral.fit(scores, ~bad, accuracy=0.905, clusters=given, seed=seed)
            except demur.NoGuarantee:
                continue
            broken[name] += 1
    # 15 of 300 are allowed, with a standard error of 3.8.
    assert broken["one of each"] <= 15 + 3 * 3.8 and broken["ignored"] > 40


def test_a_policy_of_clusters_says_so_and_takes_one_of_each(tmp_path):
    rng = np.random.default_rng(8)
    codes = np.repeat(np.arange(400), 5)
    scores = rng.uniform(size=2000)
    correct = rng.uniform(size=2000) > scores / 4
    policy = demur.Deferral.fit(scores, correct, coverage=0.9, clusters=codes)
    assert policy.thresholds[""].number == 400 == policy.clusters
    assert "Fitted on one input of each of 400 clusters" in policy.promise()
    policy.save(tmp_path / "policy.json")
    assert demur.Deferral.load(tmp_path / "policy.json") == policy
    assert demur.Deferral.fit(scores, correct, coverage=0.9, clusters=codes) == policy
    assert demur.Deferral.fit(scores, correct, coverage=0.9, clusters=codes, seed=1) != policy
    grouped = demur.Deferral.fit(
        scores, correct, coverage=0.9, clusters=codes, groups=np.where(np.arange(2000) % 5 < 2, "a", "b")
    )
    assert {name: each.number for name, each in grouped.thresholds.items()} == {"a": 400, "b": 400}
    assert demur.Deferral.fit(scores, correct, cost=0.2, clusters=codes).thresholds[""].number == 2000
    plain, wide = (policy.report(scores, correct, clusters=given) for given in (None, codes))
    assert plain.kept == wide.kept and wide.accuracy.value == pytest.approx(plain.accuracy.value)


def test_report_of_clusters_is_wider():
    codes = np.repeat(np.arange(30), 20)
    correct = np.random.default_rng(9).uniform(size=30)[codes] < 0.8
    policy = demur.Deferral.fit(np.arange(600.0), np.ones(600), coverage=1.0)
    plain, wide = (policy.report(np.zeros(600), correct, clusters=given) for given in (None, codes))
    assert wide.accuracy.high - wide.accuracy.low > 3 * (plain.accuracy.high - plain.accuracy.low)
