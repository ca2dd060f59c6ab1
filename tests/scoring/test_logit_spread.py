"""The spread of logits: its average against all masks there are, and scores that lean on it."""

import itertools

import numpy as np
import pytest
from scipy.special import softmax

import demur
from demur.posteriors import LastLayer
from demur.scoring.adaptive import FIRST_MEMBERS, MORE_MEMBERS
from demur.scoring.logit_spread import LogitSpread, compute_dropout_spread

torch = pytest.importorskip("torch")
nn = torch.nn
RATE = 0.3


def layer_of(features: int = 7, classes: int = 4, scale: float = 1.0):
    torch.manual_seed(1)
    layer = nn.Linear(features, classes).double()
    with torch.no_grad():
        layer.weight.mul_(scale)
    return layer


def every_mask(features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return all masks, scaled, and their probabilities."""
    masks = np.array(list(itertools.product([0.0, 1.0], repeat=features)))
    kept = masks.sum(-1)
    return masks / (1 - RATE), (1 - RATE) ** kept * RATE ** (features - kept)


def spread_of(logits: np.ndarray, deployed: np.ndarray) -> float:
    """Return the variance over classes of the differences, of one member and one input, by a loop."""
    p, d = softmax(deployed), logits - deployed
    mean = sum(p[y] * d[y] for y in range(len(p)))
    return sum(p[y] * (d[y] - mean) ** 2 for y in range(len(p)))


def test_the_average_is_that_of_all_masks() -> None:
    layer = layer_of()
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(5, 7)))
    z = layer(x).detach().numpy()
    found = compute_dropout_spread(x, layer.weight, z, RATE)
    masks, shares = every_mask(7)
    for i in range(5):
        members = (masks * x[i].numpy()) @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
        expected = sum(s * spread_of(m, z[i]) for s, m in zip(shares, members, strict=True))
        np.testing.assert_allclose(found[i], expected, rtol=1e-12)
    assert (LastLayer(layer, dropout=RATE, samples=3).spread(x) == found).all()
    assert LastLayer(layer, [layer, layer]).spread(x) is None


def test_it_keeps_its_digits_where_one_class_has_all_the_probability() -> None:
    """At a margin of 60, p differs from 1 by less than float64 tells; the spread is of that order."""
    import mpmath

    layer, x = layer_of(), torch.full((1, 7), 0.5).double()
    z = np.array([[60.0, 0.0, -1.0, 3.0]])
    found = compute_dropout_spread(x, layer.weight, z, RATE)[0]
    with mpmath.workdps(60):
        p = [mpmath.exp(v) for v in z[0]]
        p = [each / sum(p) for each in p]
        w = layer.weight.detach().numpy()
        variance = mpmath.mpf(0)
        for f in range(7):
            mean = sum(p[y] * w[y, f] for y in range(4))
            variance += sum(p[y] * (w[y, f] - mean) ** 2 for y in range(4)) * mpmath.mpf(0.25)
        assert found == pytest.approx(float(variance * RATE / (1 - RATE)), rel=1e-12)
    member = z + np.array([[0.3, 0.1, -0.2, 0.5]])
    seen = LogitSpread(z, np.ones(1), 2)
    seen.update(member[None], 0, np.arange(1))
    with mpmath.workdps(60):
        d = [mpmath.mpf(float(v)) for v in (member - z)[0]]
        mean = sum(a * b for a, b in zip(p, d, strict=True))
        expected = float(sum(a * (b - mean) ** 2 for a, b in zip(p, d, strict=True)))
    assert seen.sums[0, 0] == pytest.approx(expected, rel=1e-12)


def test_factors_are_of_all_members_and_without_each_group() -> None:
    rng = np.random.default_rng(3)
    z, expected = rng.normal(size=(4, 3)), rng.uniform(1, 2, 4)
    members, groups = z + rng.normal(size=(7, 4, 3)), 3
    seen = LogitSpread(z, expected, groups)
    seen.update(members[:4], 0, np.arange(4))
    seen.update(members[4:, [1, 3]], 4, np.array([1, 3]))
    each = np.array([[spread_of(m[i], z[i]) for i in range(4)] for m in members])
    for rows, count in (([0, 2], 4), ([1, 3], 7)):
        whole, rest = seen.factors(np.array(rows))
        np.testing.assert_allclose(whole, expected[rows] / each[:count, rows].mean(0), rtol=1e-12)
        for g in range(groups):
            left = each[[k for k in range(count) if k % groups != g]][:, rows].mean(0)
            np.testing.assert_allclose(rest[g], expected[rows] / left, rtol=1e-12)


def test_what_does_not_spread_is_left_as_it_is() -> None:
    layer = layer_of(24, 10)
    x = torch.zeros(40, 24).double()
    x[1::2] = torch.from_numpy(np.random.default_rng(0).normal(size=(20, 24)))
    scores = demur.score(LastLayer(layer, dropout=0.2, samples=50), [x], tolerance=0.1, progress=False)
    k = scores["pairwise"].epistemic
    assert (k[::2] == 0).all() and (k[1::2] > 0).all() and np.isfinite(k).all()


def leaning(seed: int, x, **options):
    posterior = LastLayer(layer_of(24, 10, 3.0), dropout=0.2, samples=2000, seed=seed)
    return demur.score(posterior, [x], progress=False, tolerance=0.08, **options)


def inputs(count: int = 200):
    rng = np.random.default_rng(5)
    return torch.from_numpy(rng.normal(size=(count, 24)) * rng.gamma(2, 0.7, size=(count, 1)))


def test_a_score_is_that_of_its_members_times_the_factor() -> None:
    x, measures = inputs(), ("pairwise", "average", "reverse", "bma")
    scores = leaning(0, x, measures=measures)
    assert set(np.unique(scores.used)) <= set(range(FIRST_MEMBERS // 2, 2001, MORE_MEMBERS // 2))
    layer = layer_of(24, 10, 3.0)
    posterior = LastLayer(layer, dropout=0.2, samples=2000, seed=0)
    z, expected = layer(x).detach().numpy(), posterior.spread(x)
    for i in (0, 50, 199):
        count = int(scores.used[i])
        members = np.concatenate([c.numpy() for c, _ in posterior.predict(x, members=range(count))])[:, i]
        factor = expected[i] / np.mean([spread_of(m, z[i]) for m in members])
        plain = demur.decompose(logits=members[:, None], unbiased=True)
        own = scores["pairwise"]
        assert own.epistemic[i] == pytest.approx(float(plain.epistemic[0]) * factor, rel=1e-9)
        assert own.aleatoric[i] == pytest.approx(float(plain.aleatoric[0]), rel=1e-9)
    for name in measures:
        parts = scores[name]
        np.testing.assert_allclose(parts.total, parts.aleatoric + parts.epistemic, rtol=1e-9)
    assert (scores["bma"].epistemic == 0).all()
    k, i, m = (scores[name].epistemic for name in measures[:3])
    np.testing.assert_allclose(k, i + m, rtol=1e-9)


def test_it_is_nearer_to_the_truth_and_says_by_how_much() -> None:
    """Over 24 seeds: noise below that of as many plain members, bias below it, errors of the right size."""
    x = inputs()
    many = LastLayer(layer_of(24, 10, 3.0), dropout=0.2, samples=4000, seed=99)
    truth = demur.score(many, [x], measures=["pairwise"], progress=False)["pairwise"].epistemic
    runs = [leaning(seed, x, stderr=True, measures=["pairwise"]) for seed in range(24)]
    used = round(np.mean([run.used.mean() for run in runs]))
    plain = [
        demur.score(
            LastLayer(layer_of(24, 10, 3.0), dropout=0.2, samples=used, seed=seed), [x], unbiased=True,
            measures=["pairwise"], progress=False,
        )["pairwise"].epistemic
        for seed in range(24)
    ]  # fmt: skip
    found = np.array([run["pairwise"].epistemic for run in runs])
    errors = np.array([run["pairwise"].stderr.epistemic for run in runs])
    noise = np.median(found.std(0, ddof=1) / truth)
    assert noise < 0.7 * np.median(np.std(plain, axis=0, ddof=1) / truth)
    assert abs(np.median(found.mean(0) / truth - 1)) < 0.3 * noise
    assert 0.6 < np.median(np.sqrt((errors**2).mean(0)) / found.std(0, ddof=1)) < 1.4
