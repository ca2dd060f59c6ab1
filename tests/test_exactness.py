"""Exactness: K, I and M against sixty digits where naive forms lose theirs."""

import math

import numpy as np
import pytest
from reference import exact, loops, members
from scipy.stats import spearmanr

import demur

NAMES = tuple(loops.NAMES)


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """The largest one; an infinity in the wrong place, or a NaN, is infinitely wrong."""
    actual, expected = np.asarray(actual, dtype=np.float64), np.asarray(expected)
    assert actual.shape == expected.shape
    both = np.isinf(actual) & np.isinf(expected)
    if (np.isinf(actual) != np.isinf(expected)).any() or np.isnan(actual).any():
        return float("inf")
    return float(np.max(np.abs(actual[~both] / expected[~both] - 1.0), initial=0.0))


# --- near agreement -----------------------------------------------------------------------------

# Relative error that the contract allows for members that agree to so much: 1e-5 in float32 and
# JAX at 1e-2, 1e-4 at 1e-5. Logits of order 3 are held to 2e-7 in float32, so the values below
# are those of the float32 numbers themselves; the result has its own rounding of 6e-8.
ALLOWED = {1e-1: 1e-5, 1e-2: 1e-5, 1e-3: 1e-4, 1e-4: 1e-4, 1e-5: 1e-4, 1e-6: 1e-4, 1e-8: 1e-4, 1e-10: 1e-4}
SIZES = {"generic": (6, 5, 10), "kernel": (6, 40, 150), "two classes": (20, 900, 2)}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("difference", ALLOWED)
def test_members_that_nearly_agree(xp, difference, dtype, size) -> None:
    if xp.name == "jax" and dtype == "float64":
        pytest.skip("JAX without float64")
    if dtype == "float32" and difference < 1e-5:
        pytest.skip("float32 does not hold such differences between logits of order 3")
    logits = xp.array(members.agreeing(difference, *SIZES[size]), dtype)
    shown = logits[:, :5]  # mpmath is slow: five inputs, of as many as the kernel needs
    expected = exact.measures(logits=xp.numpy(shown))
    for name in NAMES:
        actual = demur.decompose(logits=logits, measure=name).epistemic
        found = relative_error(xp.numpy(actual)[:5], getattr(expected, name))
        assert found <= ALLOWED[difference], f"{name}: {found:.1e}"


@pytest.mark.parametrize("difference", ALLOWED)
@pytest.mark.parametrize("way", ["probs", "log_probs"])
def test_probabilities_that_nearly_agree(difference, way) -> None:
    logits = members.agreeing(difference, 6, 5, 10)
    values = loops.softmax(logits)
    if way == "probs":
        expected = exact.measures(probs=values)
    else:
        values = np.log(values)
        expected = exact.measures(logits=values)
    for name in NAMES:
        arguments = {"log_probs": values} if way == "log_probs" else {}
        positional = () if way == "log_probs" else (values,)
        actual = demur.decompose(*positional, measure=name, **arguments).epistemic
        # A probability is held to 1e-16 of itself, so u is to 1e-16 / difference: 1e-10 here.
        assert relative_error(actual, getattr(expected, name)) <= ALLOWED[difference]


def test_moments_of_members_that_nearly_agree() -> None:
    """Fed one by one, in two accumulators: the same exactness as in one piece."""
    for difference, allowed in ALLOWED.items():
        logits = members.agreeing(difference, 6, 5, 10)
        expected = exact.measures(logits=logits)
        left, right = demur.Moments(), demur.Moments()
        for index, member in enumerate(logits):
            (left if index < 3 else right).update(logits=member)
        left.merge(right)
        for name in NAMES:
            found = left.decompose(measure=name).epistemic
            assert relative_error(found, getattr(expected, name)) <= allowed


def streamed(logits, *, parts: int, together: bool) -> demur.Moments:
    """Members in several accumulators, each fed at once or one by one, and merged."""
    moments = [demur.Moments() for _ in range(parts)]
    for own, of in zip(moments, np.array_split(logits, parts), strict=True):
        for given in [of] if together else of:
            own.update(logits=given)
    for other in moments[1:]:
        moments[0].merge(other)
    return moments[0]


def with_gradients(logits):
    torch = pytest.importorskip("torch")
    return torch.from_numpy(logits).requires_grad_()


WAYS = {
    "at once": lambda z, name: demur.decompose(logits=z, measure=name),
    "weighted": lambda z, name: demur.decompose(
        logits=z, measure=name, weights=members.weights(*z.shape[:2])
    ),
    "left out": lambda z, name: demur.decompose(logits=z, measure=name, stderr=True, groups=3),
    "one by one": lambda z, name: streamed(z, parts=1, together=False).decompose(measure=name),
    "merged": lambda z, name: streamed(z, parts=3, together=True).decompose(measure=name),
    "gradients": lambda z, name: demur.decompose(logits=with_gradients(z), measure=name),
}


# No loop takes gradients, compiled or not.
COMPILED_OR_NOT = [(way, numba) for way in WAYS for numba in (True, False) if way != "gradients" or not numba]
SHAPES = [(6, 5, 2), (6, 5, 10), (60, 600, 2), (20, 300, 10), (6, 60, 150)]
SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("shape", "way", "numba"),
    [
        # Gradients take the same steps at any size.
        pytest.param(shape, *own, marks=[SLOW] * (own[0] == "gradients" and math.prod(shape) > 100))
        for shape in SHAPES
        for own in COMPILED_OR_NOT
    ],
)
def test_members_that_agree_to_the_last_digits(way, shape, numba, monkeypatch) -> None:
    """Nothing is negative, and I and M are halves of K, which they are in the limit.

    What is third order in the differences, with 60 members below 1e-6 of the rest, may be left out.
    """
    monkeypatch.setenv("DEMUR_COMPILE", "always" if numba else "never")
    for difference in (1e-7, 1e-9, 1e-11, 1e-13, 1e-15, 3e-16):
        logits = members.agreeing(difference, *shape) / 3.0
        k, i, m = (WAYS[way](logits, name).epistemic for name in NAMES)
        k, i, m = (x.detach().numpy() if hasattr(x, "detach") else x for x in (k, i, m))
        assert (k >= 0).all() and (i >= 0).all() and (m >= 0).all()
        np.testing.assert_allclose(i, k / 2, rtol=2e-6)
        np.testing.assert_allclose(m, k / 2, rtol=2e-6)


@pytest.mark.parametrize("shape", [(6, 5, 3), (60, 600, 3), (6, 60, 150)])
def test_agreement_does_not_hide_a_member_that_excludes_a_class(shape) -> None:
    """All others agree to the last digits about it, so that I is the weight of the one times log 2 or so."""
    logits = members.agreeing(1e-15, *shape)
    logits[1, :, 1] = -np.inf
    weights = np.ones(shape[0])
    weights[1] = 1e-9
    expected = exact.measures(logits=logits[:, :3], weights=weights)
    for found in (
        demur.decompose(logits=logits, measure="average", weights=weights),
        demur.decompose(logits=logits, measure="average", weights=weights, stderr=True, groups=3),
        demur.Moments().update(logits=logits, weights=weights).decompose(measure="average"),
        demur.decompose(logits=with_gradients(logits), measure="average", weights=weights),
    ):
        information = np.asarray(getattr(found.epistemic, "detach", lambda: found.epistemic)())  # noqa: B023
        assert relative_error(information[:3], expected.average) < 1e-5


def test_the_checker_objects_to_the_closed_form_in_float32() -> None:
    """Control: the textbook difference of entropies, in float32, at differences of 1e-3."""
    logits = members.agreeing(1e-3, 6, 5, 10).astype(np.float32)
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    entropies = -(p * np.log(p)).sum(-1).mean(0)
    mean = p.mean(0)
    textbook = -(mean * np.log(mean)).sum(-1) - entropies
    assert p.dtype == np.float32
    assert relative_error(textbook, exact.measures(logits=logits).average) > 1e-2


# --- saturation, exclusion, zeros ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "height"),
    [("float16", 6e4), ("float32", 1e2), ("float32", 1e4), ("float32", 1e38), ("float64", 1e300)],
)
def test_saturated_members_that_contradict_each_other(xp, dtype, height) -> None:
    """p underflows but log p does not: K = height, not infinity, and I = log 2."""
    if xp.name == "jax" and dtype == "float64":
        pytest.skip("JAX without float64")
    logits = xp.array([[[height, -height]], [[-height, height]]], dtype)
    expected = exact.measures(logits=xp.numpy(logits))
    assert np.isfinite(expected.pairwise).all()
    for name in NAMES:
        actual = xp.numpy(demur.decompose(logits=logits, measure=name).epistemic)
        assert relative_error(actual, getattr(expected, name)) < 1e-6, name


@pytest.mark.parametrize("fill", [-1e4, pytest.param(-1e9, marks=SLOW), float(np.finfo(np.float32).min)])
@pytest.mark.parametrize("member", [0, 3, slice(None)], ids=["first", "later", "all"])
@pytest.mark.parametrize("shape", [(5, 4, 6), (5, 80, 90)], ids=["generic", "kernel"])
def test_classes_masked_by_a_large_negative_number(xp, shape, member, fill) -> None:
    """What people write for -inf: a class that one member rules out and the others do not."""
    logits = members.ordinary(*shape, scale=0.5)
    logits[member, :, 2] = fill
    held = xp.array(logits, "float32")
    expected = exact.measures(logits=xp.numpy(held[:, :2]))
    for name in NAMES:
        actual = xp.numpy(demur.decompose(logits=held, measure=name).epistemic)[:2]
        # float32 results; JAX without float64 sums in float32 and is held to 1e-5.
        found = relative_error(actual, getattr(expected, name))
        assert found < (1e-5 if xp.single else 1e-6), f"{name}: {found:.1e}"


@pytest.mark.parametrize("shape", [(5, 30, 2), (5, 4000, 2), (5, 3000, 3), (5, 80, 100)])
@pytest.mark.parametrize("size", [1e3, *(pytest.param(each, marks=SLOW) for each in (1e4, 1e5, 1e6)), 1e10])
def test_nothing_is_negative_where_probabilities_are_next_to_nothing(size, shape) -> None:
    """Logits far below the top differ, of probabilities that no number is small enough for."""
    rng = np.random.default_rng(0)
    logits = -size * (1.0 + np.abs(rng.normal(size=(1, *shape[1:])))) + 1e-3 * size * rng.normal(size=shape)
    logits[..., 0] = 0.0
    for way in ("at once", "left out", "one by one", "gradients"):
        for name in NAMES:
            found = WAYS[way](logits, name).epistemic
            assert (found >= 0).all() and (found < np.inf).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_finite_logits_of_any_size_make_nothing_infinite(dtype) -> None:
    for inputs in (1, 20_000):
        logits = np.tile(np.array([[[1e10, 0.0]], [[0.0, 1e10]]], dtype), (1, inputs, 1))
        for found in (demur.decompose(logits=logits), demur.Moments().update(logits=logits).decompose()):
            np.testing.assert_allclose(found.epistemic, 5e9, rtol=1e-6)


@pytest.mark.parametrize("margin", [10.0, 20.0, 40.0, 80.0, 300.0, 700.0])
@pytest.mark.parametrize("shape", [(5, 4, 6), (5, 70, 100)], ids=["generic", "kernel"])
def test_saturated_members_that_agree(margin, shape) -> None:
    """1 - p is below the spacing of float64 near one from a margin of 37 on."""
    logits = members.ordinary(*shape, scale=0.5)
    logits[..., 0] += margin
    expected = exact.measures(logits=logits[:, :4])
    for name in NAMES:
        actual = demur.decompose(logits=logits, measure=name)
        assert (actual.epistemic > 0).all()
        assert relative_error(actual.epistemic[:4], getattr(expected, name)) < 1e-9, name
        entropy = expected.entropy + (expected.average if name == "reverse" else 0.0)
        assert relative_error(actual.aleatoric[:4], entropy) < 1e-9, name


@pytest.mark.parametrize("shape", [(5, 6, 4), (5, 80, 90)], ids=["generic", "kernel"])
def test_excluded_classes(xp, shape) -> None:
    logits = members.ordinary(*shape)
    logits[0, 0, 1] = -np.inf  # by the first member
    logits[3, 1, 2] = -np.inf  # by a later one
    logits[:, 2, 3] = -np.inf  # by all: no disagreement
    logits[1:, 3, 0] = -np.inf  # by all but the first
    logits[:, 4, 1:] = -np.inf  # one class left: certain and unanimous
    held = xp.array(logits)
    expected = exact.measures(logits=xp.numpy(held)[:, :6])
    assert np.isinf(expected.pairwise).tolist() == [True, True, False, True, False, False]
    for name in NAMES:
        actual = demur.decompose(logits=held, measure=name)
        value = xp.numpy(actual.epistemic)[:6]
        assert value[4] == 0.0
        others = [0, 1, 2, 3, 5]
        assert relative_error(value[others], getattr(expected, name)[others]) < xp.rtol, name
        entropy = expected.entropy + (expected.average if name == "reverse" else 0.0)
        xp.close(actual.aleatoric[:6], entropy)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 5, 9), (7, 5, 9), (1, 2000, 17), (7, 300, 17), (7, 40, 500)])
def test_identical_members_that_exclude_classes(shape, dtype) -> None:
    """Exactly zero also here: an excluded class leaves no residue."""
    logits = np.repeat(members.ordinary(1, *shape[1:]), shape[0], axis=0).astype(dtype)
    logits[:, np.random.default_rng(0).random(shape[1:]) < 0.2] = -np.inf
    logits[..., 0] = 1.0
    moments = demur.Moments()
    moments.update(logits=logits)
    for name in NAMES:
        np.testing.assert_array_equal(demur.decompose(logits=logits, measure=name).epistemic, 0.0)
        np.testing.assert_array_equal(moments.decompose(measure=name).epistemic, 0.0)
        if shape[0] > 1:
            found = demur.decompose(logits=logits, measure=name, stderr=True, unbiased=True)
            np.testing.assert_array_equal(found.epistemic, 0.0)
            np.testing.assert_array_equal(found.stderr.epistemic, 0.0)


@pytest.mark.parametrize(
    "shape", [(17, 5, 9), (17, 1, 1003), (33, 1, 1000), (17, 40, 100), (17, 900, 5)], ids=str
)
@pytest.mark.parametrize("per_input", [False, True], ids=["members", "inputs"])
def test_exclusion_does_not_hang_on_the_rounding_of_weights(per_input, shape) -> None:
    """Sums of weights in another order differ in the last digit, and must not look like members."""
    logits = members.ordinary(*shape)
    logits[:, :, 2] = -np.inf  # excluded by all
    for seed in range(8):
        weights = members.weights(shape[0], *(shape[1:2] if per_input else ()), seed=seed)
        weights[5:9] = 0.0
        moments = demur.Moments(groups=4)
        for part in (slice(0, 3), slice(3, 4), slice(4, None)):
            moments.update(logits=logits[part], weights=weights[part])
        halves = [demur.Moments(groups=4), demur.Moments(groups=4)]
        for half, part in zip(halves, (slice(0, 7), slice(7, None)), strict=True):
            half.update(logits=logits[part], weights=weights[part])
        for found in (
            demur.decompose(logits=logits, weights=weights),
            demur.decompose(logits=logits, weights=weights, stderr=True, groups=4),
            demur.decompose(logits=logits, weights=weights, stderr=True),
            moments.decompose(stderr=True),
            halves[0].merge(halves[1]).decompose(stderr=True),
        ):
            assert np.isfinite(found.epistemic).all()
            assert found.stderr is None or np.isfinite(found.stderr.epistemic).all()


def test_exact_zeros_in_probabilities(xp) -> None:
    p = np.array(
        [
            [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]],
            [[0.25, 0.75, 0.0], [0.25, 0.5, 0.25], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]],
        ]
    )
    expected = exact.measures(probs=p)
    for name in NAMES:
        actual = demur.decompose(xp.array(p), measure=name, rounding=0)
        value = xp.numpy(actual.epistemic)
        assert value[2] == 0.0
        kept = [0, 1, 3]
        assert relative_error(value[kept], getattr(expected, name)[kept]) < xp.rtol
        logs = xp.array(np.log(p, where=p > 0, out=np.full(p.shape, -np.inf)))
        again = xp.numpy(demur.decompose(log_probs=logs, measure=name).epistemic)
        assert relative_error(again[kept], getattr(expected, name)[kept]) < xp.rtol


def test_probabilities_too_small_for_a_normal_number() -> None:
    p = np.array([[[1.0, 3e-310]], [[1.0, 1e-310]]])
    expected = exact.measures(probs=p)
    for name in NAMES:
        actual = demur.decompose(p, measure=name).epistemic
        # Subnormal numbers near 1e-310 are 5e-324 apart: twelve digits and more are left.
        assert relative_error(actual, getattr(expected, name)) < 1e-9, name


# --- many classes -------------------------------------------------------------------------------


@pytest.mark.parametrize("difference", [1.0, 1e-3])
@pytest.mark.parametrize("classes", [1000, pytest.param(128_000, marks=pytest.mark.slow)])
def test_many_classes(xp, classes, difference) -> None:
    if xp.single and difference < 1.0:
        difference = 1e-2  # what the contract promises of float32
    dtype = "float32" if xp.single else "float64"
    logits = members.agreeing(difference, 3, 1, classes)
    logits[:, :, ::7] = -np.inf
    held = xp.array(logits, dtype)
    expected = exact.measures(logits=xp.numpy(held))
    for name in NAMES:
        actual = xp.numpy(demur.decompose(logits=held, measure=name).epistemic)
        # A float32 sum over 128,000 classes: its rounding grows no faster than their root.
        allowed = 1e-5 if xp.single else 1e-9
        found = relative_error(actual, getattr(expected, name))
        assert found <= allowed, f"{name}: {found:.1e}"


def test_128000_classes_in_closed_form() -> None:
    """Each of two members holds half of its mass on its own half of the classes, to a factor."""
    classes, factor = 128_000, 1.001
    logits = np.zeros((2, 1, classes), dtype=np.float64)
    logits[0, 0, : classes // 2] = logits[1, 0, classes // 2 :] = np.log(factor)
    pairs = exact.measures(logits=np.log([[[factor, 1.0]], [[1.0, factor]]]))
    for name in NAMES:
        actual = demur.decompose(logits=logits, measure=name).epistemic
        assert relative_error(actual, getattr(pairs, name)) < 1e-9, name


# --- confident ensembles ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float16", marks=SLOW), "bfloat16"])
@pytest.mark.parametrize(
    "inputs", [pytest.param(250, marks=SLOW, id="generic"), pytest.param(500, id="kernel")]
)
def test_confident_ensembles_keep_the_exact_ranking(xp, dtype, inputs) -> None:
    """10 members, 10 classes, margins of 8 to 24: 25,000 logits, and 50,000 for the kernel."""
    if xp.name == "numpy" and dtype == "bfloat16":
        pytest.skip("NumPy has no bfloat16 of its own")
    if xp.name == "jax-x64":
        pytest.skip("the same arrays as JAX without float64")
    logits = xp.array(members.confident(10, inputs, 10), dtype)
    expected = exact.measures(logits=xp.numpy(logits))
    for name in NAMES:
        parts = demur.decompose(logits=logits, measure=name)
        actual = xp.numpy(parts.epistemic)
        assert spearmanr(actual, getattr(expected, name)).statistic >= 0.9999, name
        if not xp.single:
            # Not only the ranking: the values, to a few roundings of float32.
            assert relative_error(actual, getattr(expected, name)) < 3e-6, name
            entropy = expected.entropy + (expected.average if name == "reverse" else 0.0)
            assert relative_error(xp.numpy(parts.aleatoric), entropy) < 3e-6, name


def test_confident_ensembles_defeat_the_closed_form_in_float32() -> None:
    """Control: what other libraries compute loses ranks on these very inputs."""
    logits = members.confident(10, 500, 10).astype(np.float32)
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    mean = p.mean(0)
    information = -(mean * np.log(mean)).sum(-1) + (p * np.log(p)).sum(-1).mean(0)
    assert spearmanr(information, exact.measures(logits=logits).average).statistic < 0.999


def auroc(negative: np.ndarray, positive: np.ndarray) -> float:
    """The chance that a positive scores above a negative; ties count half."""
    negative = np.sort(negative)
    below = np.searchsorted(negative, positive, side="left")
    upto = np.searchsorted(negative, positive, side="right")
    return float((below + upto).mean() / (2 * negative.size))


def test_last_layers_that_nearly_agree_separate_textures_from_imagenet(data_kit) -> None:
    """Ten last layers that differ by 1e-4 of the weights' scale; float32 logits."""
    kit = np.load(data_kit / "imagenet_features" / "efficientnet_lite0_features.npz")
    rng = np.random.default_rng(0)
    weight = kit["fc_weight"].astype(np.float32)
    layers = [
        weight + 1e-4 * weight.std() * rng.standard_normal(weight.shape, dtype=np.float32) for _ in range(10)
    ]
    scores: dict[str, list[np.ndarray]] = {name: [] for name in NAMES}
    # One validation image of each class, and all textures.
    for images in (kit["val"][::5], kit["dtd"]):
        features = images.astype(np.float32)
        logits = np.stack([features @ layer.T + kit["fc_bias"] for layer in layers])
        assert logits.dtype == np.float32
        for name in NAMES:
            scores[name].append(demur.decompose(logits=logits, measure=name).epistemic)
    for name, (val, dtd) in scores.items():
        assert auroc(val, dtd) > 0.84, name


# --- bounded rules ------------------------------------------------------------------------------


@pytest.mark.parametrize("raised", [0.0, 10.0, 30.0, 100.0])
@pytest.mark.parametrize("difference", [1e-5, 1e-3, 1.0])
@pytest.mark.parametrize("way", ["at once", "merged"])
def test_brier_score_of_members_that_are_nearly_certain(way, difference, raised) -> None:
    """The top class differs by as much as all others together: 1 - p has no digits of it."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(1, 300, 3)) + difference * rng.normal(size=(4, 300, 3))
    logits[..., 0] += raised
    odds = np.exp(logits[..., 1:] - logits[..., :1])
    others = odds / (1 + odds.sum(axis=-1, keepdims=True))
    # About one of them, so that members that agree keep their digits here, too: 1e-14 / difference.
    variance = [np.var(p - p[0], axis=0) for p in (others[..., 0], others[..., 1], others.sum(axis=-1))]
    expected = np.sum(variance, axis=0)
    if way == "merged":
        moments = demur.Moments(rule="brier").update(logits=logits[:2])
        moments.merge(demur.Moments(rule="brier").update(logits=logits[2:]))
        pairwise, average = (moments.decompose(name).epistemic for name in ("pairwise", "average"))
    else:
        pairwise, average = (
            demur.decompose(logits=logits, rule="brier", measure=name).epistemic
            for name in ("pairwise", "average")
        )
        np.testing.assert_allclose(3 * demur.softmax_variance(logits=logits), expected, rtol=1e-7)
    np.testing.assert_allclose(average, expected, rtol=1e-7)
    np.testing.assert_allclose(pairwise, 2 * expected, rtol=1e-7)
