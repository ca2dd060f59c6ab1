"""The compiled loops: float32 beside float64, two classes beside more, odd inputs among others."""

import numpy as np
import pytest
from reference import members

import demur
from demur import kernels
from demur.core.rules import resolve_rule
from demur.predictions import gather

LOG = resolve_rule("log")


def summarise(logits, weights=None):
    """Return entropy, K and I, and which inputs no loop takes."""
    return kernels.summarise(gather(demur.Categorical(logits=logits), weights, 0), LOG)


def agreeing(rng, shape, spread, scale, moved) -> np.ndarray:
    """Members around common logits, each with all of its logits moved, in float32."""
    common = scale * rng.normal(size=(1, *shape[1:]))
    own = spread * rng.normal(size=shape) + moved * rng.normal(size=(shape[0], 1, 1))
    return (common + own).astype(np.float32)


@pytest.mark.parametrize("moved", [0.0, 5.0])
@pytest.mark.parametrize("scale", [0.5, 3.0, 8.0])
@pytest.mark.parametrize("spread", [3.0, 0.5, 0.1, 1e-2, 1e-4])
@pytest.mark.parametrize("classes", [2, 10, 300])
def test_float32_loops_agree_with_float64(classes, spread, scale, moved) -> None:
    """The same numbers, once as float32 and once as float64, from near agreement to contradiction."""
    rng = np.random.default_rng(5)
    logits = agreeing(rng, (30, 36_000 // (30 * classes) + 70, classes), spread, scale, moved)
    for name in ("pairwise", "average", "reverse"):
        single = demur.decompose(logits=logits, measure=name)
        double = demur.decompose(logits=logits.astype(np.float64), measure=name)
        np.testing.assert_allclose(single.epistemic, double.epistemic, rtol=5e-6)
        np.testing.assert_allclose(single.aleatoric, double.aleatoric, rtol=5e-6)


@pytest.mark.parametrize("classes", [2, 10, 300])
def test_float32_loops_with_weights(classes) -> None:
    rng = np.random.default_rng(6)
    logits = agreeing(rng, (30, 400, classes), 0.3, 2.0, 1.0)
    for shape in ((30,), (30, 400)):
        weights = rng.exponential(size=shape) * 10.0 ** rng.integers(-3, 4, size=shape)
        weights[::7] = 0.0
        single = demur.decompose(logits=logits, weights=weights)
        double = demur.decompose(logits=logits.astype(np.float64), weights=weights)
        np.testing.assert_allclose(single.epistemic, double.epistemic, rtol=5e-6)
        np.testing.assert_allclose(single.aleatoric, double.aleatoric, rtol=5e-6)


LAYOUTS = {
    "members first": lambda z: z,
    "inputs first": lambda z: np.ascontiguousarray(z.transpose(1, 0, 2)).transpose(1, 0, 2),
    "classes first": lambda z: np.ascontiguousarray(z.transpose(2, 0, 1)).transpose(1, 2, 0),
    "every other": lambda z: np.repeat(np.repeat(z, 2, axis=0), 3, axis=1)[::2, ::3],
    "backwards": lambda z: np.ascontiguousarray(z[::-1, ::-1, ::-1])[::-1, ::-1, ::-1],
}


LAYOUTS_HERE = ["members first", *(pytest.param(each, marks=pytest.mark.slow) for each in list(LAYOUTS)[1:])]


@pytest.mark.parametrize("layout", LAYOUTS_HERE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [0.5, 5.0, 30.0, 100.0])
@pytest.mark.parametrize("spread", [30.0, 3.0, 0.3, 1e-2, 1e-4])
def test_two_classes_have_what_they_have_beside_one_that_all_exclude(spread, scale, dtype, layout) -> None:
    """The loop for two classes against that for few, which takes three, from agreement to contradiction."""
    rng = np.random.default_rng(9)
    for count in (1, 7, 8, 30):
        shape = (count, 17_000 // count + 9, 2)
        two = (scale * rng.normal(size=(1, *shape[1:])) + spread * rng.normal(size=shape)).astype(dtype)
        three = np.concatenate([two.astype(np.float64), np.full((*shape[:2], 1), -np.inf)], axis=2)
        weights = rng.exponential(size=shape[:2])
        weights[1::3, 5:] = 0.0
        for own in (None, weights[:, 0], weights):
            bad = two.copy()
            if own is weights:
                bad[weights == 0.0] = np.nan
            summary, expected = summarise(LAYOUTS[layout](bad), own)[0], summarise(three, own)[0]
            # The other loop rounds logits of 100 to 1e-14, which is 1e-10 of the smallest difference, and
            # exponentials of float32 logits to 1e-11, of which an entropy may be the thousandth part.
            np.testing.assert_allclose(summary, expected, rtol=1e-8)


def test_loops_hand_on_what_is_not_for_them(monkeypatch) -> None:
    """Control: ordinary members do not fall to the next loop; some, far apart or no numbers, do."""
    handed = {}
    run = kernels._run

    def watch(name, own, chosen, *given):
        left = run(name, own, chosen, *given)
        handed[name] = list(left)
        return left

    monkeypatch.setattr(kernels, "_run", watch)
    logits = agreeing(np.random.default_rng(10), (50, 400, 2), 1.0, 2.0, 0.0)
    summarise(logits)
    assert handed == {kernels._TWO: []}
    logits[7, 30, 1] += 200.0
    logits[:25, 40, 0], logits[25:, 40, 0] = 40.0, -40.0
    logits[3, 50, 1] = -np.inf
    logits[3, 60, 0] = np.nan
    assert list(summarise(logits)[1]) == [60]
    assert handed[kernels._TWO] == [30, 40, 50, 60]
    handed.clear()
    logits = agreeing(np.random.default_rng(10), (50, 100, 10), 2.0, 2.0, 0.0)
    logits[:, 20] = logits[0, 20]
    summarise(logits)
    assert handed == {kernels._F32_INPUTS: [20], kernels._F64_INPUTS: []}


@pytest.mark.parametrize("classes", [2, 10, 300])
def test_inputs_beyond_float32_lanes_are_right_among_others(classes) -> None:
    """Saturated, excluded, identical and contradicting members of single inputs take the other loop."""
    rng = np.random.default_rng(7)
    logits = agreeing(rng, (60 if classes == 2 else 20, 300, classes), 0.3, 2.0, 0.0)
    plain = demur.decompose(logits=logits)
    odd = logits.copy()
    odd[:, 10] = odd[0, 10]
    odd[3, 20] *= 100.0
    odd[5, 30, 1] = -np.inf
    odd[:10, 40, 0] += 30.0
    odd[10:, 40, 1] += 30.0
    found = demur.decompose(logits=odd)
    exact = demur.decompose(logits=odd.astype(np.float64))
    assert found.epistemic[10] == 0.0
    assert found.epistemic[30] == np.inf
    np.testing.assert_allclose(found.epistemic, exact.epistemic, rtol=5e-6)
    np.testing.assert_allclose(found.aleatoric, exact.aleatoric, rtol=5e-6)
    ordinary = np.delete(np.arange(300), [10, 20, 30, 40])
    # No input's bytes hang on its neighbours.
    np.testing.assert_array_equal(found.epistemic[ordinary], plain.epistemic[ordinary])


@pytest.mark.parametrize("classes", [10, 300])
def test_float32_lanes_are_used(classes) -> None:
    """Control: the loops agree to 1e-6 and not to the last digit, so two loops ran."""
    logits = agreeing(np.random.default_rng(8), (30, 300, classes), 2.0, 2.0, 0.0)
    single, double = summarise(logits)[0], summarise(logits.astype(np.float64))[0]
    assert (np.abs(single[1] / double[1] - 1) > 1e-12).mean() > 0.9


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [2, 3, 100])
def test_one_thread_and_many_give_the_same_bytes(classes, dtype, monkeypatch) -> None:
    logits = members.ordinary(20, 400_000 // (20 * classes) + 500, classes)
    logits = logits.astype(dtype)
    one_by_one = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("DEMUR_THREADS", threads)
        one_by_one.append(demur.decompose(logits=logits).epistemic)
    np.testing.assert_array_equal(one_by_one[0], one_by_one[1])
    np.testing.assert_array_equal(one_by_one[0], one_by_one[2])


def test_without_numba_the_values_are_the_same(monkeypatch) -> None:
    logits = members.ordinary(10, 100, 60)
    compiled = demur.decompose(logits=logits)
    monkeypatch.setenv("DEMUR_COMPILE", "never")
    plain = demur.decompose(logits=logits)
    np.testing.assert_allclose(plain.epistemic, compiled.epistemic, rtol=1e-12)
    np.testing.assert_allclose(plain.aleatoric, compiled.aleatoric, rtol=1e-12)


@pytest.mark.parametrize("spread", [1.0, 1e-3])
@pytest.mark.parametrize("shape", [(40, 1500, 2), (40, 600, 5), (40, 300, 10), (40, 20, 200)])
@pytest.mark.parametrize("weighted", [False, True])
def test_without_numba_float32_is_as_exact(shape, spread, weighted, monkeypatch) -> None:
    rng = np.random.default_rng(9)
    logits = agreeing(rng, shape, spread, 2.0, 1.0)
    weights = rng.exponential(size=shape[:2]) if weighted else None
    exact = demur.decompose(logits=logits.astype(np.float64), weights=weights)
    monkeypatch.setenv("DEMUR_COMPILE", "never")
    plain = demur.decompose(logits=logits, weights=weights)
    np.testing.assert_allclose(plain.epistemic, exact.epistemic, rtol=5e-6)
    np.testing.assert_allclose(plain.aleatoric, exact.aleatoric, rtol=5e-6)
    odd = logits.copy()
    odd[3, 5, 1] = np.nan
    with pytest.raises(ValueError, match=r"logits must be numbers. Got nan at \[3, 5, 1\]"):
        demur.decompose(logits=odd)
    odd[3, 5, 1] = -np.inf
    assert demur.decompose(logits=odd).epistemic[5] == np.inf


def hard_for_float32(case: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Return logits and weights for which float32 sums lose digits, without a sign of it in the figures."""
    rng = np.random.default_rng(4)
    if case == "two classes, a member of no weight far off":
        logits, weights = 2 * rng.normal(size=(16, 1100, 2)), np.ones((16, 1100))
        logits[0, :, 1], weights[0] = 1e6, 0.0
        return logits, weights
    if case == "two classes, the first members far off":
        logits = np.zeros((4000, 50, 2))
        logits[::2, :, 1], logits[1::2, :, 1] = 1.37 + 0.01 * np.arange(50), -0.93
        logits[:4, :, 1] += 1000.0
        return logits, None
    if case == "many classes, equal logits":
        logits = np.zeros((4, 2, 32000))
        for member in range(4):
            logits[member, :, member * 8000 : (member + 1) * 8000] = 1.7
        return logits, None
    if case == "a reference without digits":
        logits = np.full((30, 20, 1000), -101.0)
        logits[:, :, :4] = 1.5 * rng.normal(size=(30, 20, 4))
        logits[-1, :, 4:] += 78.0
        logits[-1, :, :4] -= 10.0
        return logits, None
    two = np.array([[0.26443559, 0.95187968, 3.20280337, -0.66244012],
                    [-0.33218578, 2.19035006, 3.82857299, 2.48317027]])  # fmt: skip
    return np.tile(two[:, None], (16, 300, 1)), None


@pytest.mark.parametrize(
    "case",
    [
        "two classes, a member of no weight far off",
        "two classes, the first members far off",
        "many classes, equal logits",
        "a reference without digits",
        "members that repeat",
    ],
)
def test_float32_arrays_do_not_keep_what_has_lost_digits(case, monkeypatch) -> None:
    logits, weights = hard_for_float32(case)
    logits = logits.astype(np.float32)
    for measure in ("pairwise", "average", "reverse"):
        exact = demur.decompose(logits=logits.astype(np.float64), weights=weights, measure=measure)
        with monkeypatch.context() as patch:
            patch.setenv("DEMUR_COMPILE", "never")
            found = demur.decompose(logits=logits, weights=weights, measure=measure)
        np.testing.assert_allclose(found.epistemic, exact.epistemic, rtol=1e-5)
        np.testing.assert_allclose(found.aleatoric, exact.aleatoric, rtol=1e-5)


@pytest.mark.parametrize("classes", [2, 10, 32, 100])
def test_the_order_of_inputs_does_not_change_their_bytes(classes) -> None:
    rng = np.random.default_rng(8)
    inputs = 200_000 // (50 * classes)
    spread = 10 ** rng.uniform(-2, 0.8, (inputs, 1))  # from agreement to contradiction, side by side
    common = rng.choice([0.5, 3.0, 8.0], (inputs, 1)) * rng.normal(size=(inputs, classes))
    logits = (common + spread * rng.normal(size=(50, inputs, classes))).astype(np.float32)
    order = np.argsort(spread[:, 0])  # neighbours that agree as much
    found, turned = demur.decompose(logits=logits), demur.decompose(logits=logits[:, order])
    np.testing.assert_array_equal(turned.epistemic, found.epistemic[order])
    np.testing.assert_array_equal(turned.aleatoric, found.aleatoric[order])


@pytest.mark.parametrize("inputs", [1, 63, 64, 65, 130])
@pytest.mark.parametrize("classes", [2, 3, 4, 5, 7, 8, 9, 16, 33, 64])
def test_lanes_without_input_and_overlapping_classes(inputs, classes) -> None:
    rng = np.random.default_rng(classes)
    count = -(-kernels.SMALLEST // (inputs * classes))
    logits = (2 * rng.normal(size=(count, inputs, classes))).astype(np.float32)
    exact = demur.decompose(logits=logits.astype(np.float64))
    for given in (logits, logits[:, ::-1], logits[..., ::-1], np.asfortranarray(logits)):
        found = demur.decompose(logits=given).epistemic
        found = found[::-1] if given.strides[1] < 0 else found
        np.testing.assert_allclose(found, exact.epistemic, rtol=5e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [5, 100])
def test_members_without_weight_add_nothing_whatever_they_hold(classes, dtype) -> None:
    """Also where they allow a class that all others exclude, or hold what is no number."""
    rng = np.random.default_rng(4)
    logits = rng.normal(0, 3, (9, 800, classes)).astype(dtype)
    logits[:, :300, 1] = -np.inf
    odd = logits.copy()
    odd[4, :300, 1] = 41.0
    odd[4, 300] = np.nan
    odd[4, 301, 2] = np.inf
    for weights in (np.ones(9), np.ones((9, 800)), rng.exponential(size=(9, 800))):
        weights = weights.copy()
        weights[4] = 0.0
        expected = demur.decompose(logits=np.delete(logits, 4, 0), weights=np.delete(weights, 4, 0))
        found = demur.decompose(logits=odd, weights=weights)
        tolerance = 1e-12 if dtype == np.float64 else 6e-6
        np.testing.assert_allclose(found.epistemic, expected.epistemic, rtol=tolerance)
        np.testing.assert_allclose(found.aleatoric, expected.aleatoric, rtol=tolerance)


@pytest.mark.parametrize("classes", [8, 64, 65, 1000])
def test_exponents_too_large_for_float32_are_noticed(classes, monkeypatch) -> None:
    """A class that nearly all members exclude, and one is sure of; all other classes tie."""
    monkeypatch.setattr(kernels, "SMALLEST", 1)
    cases = ((8, 60.0, None), (5, 31.0, None), (2, 60.0, [1, 1e-4]), (2, 28.0, [1, 1e-6]))
    for count, far, weights in cases:
        logits = np.zeros((count, 20, classes), np.float32)
        logits[..., 0] = -59.5
        logits[-1, :, 0] = far
        for measure in ("pairwise", "average"):
            single = demur.decompose(logits=logits, weights=weights, measure=measure)
            double = demur.decompose(logits=logits.astype(np.float64), weights=weights, measure=measure)
            np.testing.assert_allclose(single.epistemic, double.epistemic, rtol=6e-6)
            np.testing.assert_allclose(single.aleatoric, double.aleatoric, rtol=6e-6)


@pytest.mark.parametrize("moved", [30.0, 1e3, 2.5e4])
@pytest.mark.parametrize("gap", [16, 28, 32])
@pytest.mark.parametrize("classes", [3, 10, 70])
def test_certain_members_whose_logits_move_together(classes, gap, moved, monkeypatch) -> None:
    monkeypatch.setattr(kernels, "SMALLEST", 1)
    rng = np.random.default_rng(0)
    logits = -gap * (np.arange(classes) > 0.0) + 0.003 * rng.normal(size=(4, 40, classes))
    logits = (logits + moved * rng.normal(size=(4, 40, 1))).astype(np.float32)
    for measure in ("pairwise", "average"):
        single = demur.decompose(logits=logits, measure=measure).epistemic
        double = demur.decompose(logits=logits.astype(np.float64), measure=measure).epistemic
        np.testing.assert_allclose(single, double, rtol=6e-6)


@pytest.mark.parametrize("moved", [0.0, 4.0, 14.0])
@pytest.mark.parametrize("classes", [10, 64, 100])
def test_members_that_repeat_repeat_their_errors(classes, moved) -> None:
    """As a chain that stays has them: many members, and nothing averages out."""
    rng = np.random.default_rng(0)
    two = np.array([[[0.4]], [[0.8]]]) * rng.normal(size=(2, 64, classes))
    two[1] += moved
    logits = np.tile(two, (500, 1, 1))[rng.permutation(1000)].astype(np.float32)
    for measure in ("pairwise", "average"):
        single = demur.decompose(logits=logits, measure=measure)
        double = demur.decompose(logits=logits.astype(np.float64), measure=measure)
        np.testing.assert_allclose(single.epistemic, double.epistemic, rtol=1e-5)
        np.testing.assert_allclose(single.aleatoric, double.aleatoric, rtol=1e-5)


def random_case(rng) -> dict:
    """Return logits, or log-probabilities, and weights: any agreement, any layout, few and many classes."""
    classes = int(rng.choice([2, 3, 7, 8, 9, 15, 16, 17, 33, 63, 64, 65, 66, 80, 81, 129, 500]))
    members, inputs = int(rng.choice([1, 2, 3, 4, 5, 8, 9, 13, 33, 40])), int(rng.integers(1, 60))
    shape = (members, inputs, classes)
    spread = rng.choice([0, 1e-5, 1e-3, 0.05, 0.3, 1, 3, 10, 30]) * rng.choice([1, 0.01], (inputs, 1))
    logits = rng.choice([0, 0.5, 3, 8, 20]) * rng.normal(size=shape[1:]) + spread * rng.normal(size=shape)
    logits *= rng.choice([1, 1, 0.3, 3], (members, 1, 1))  # some cold, some hot
    logits += rng.choice([0, 1, 10, 100]) * rng.normal(size=(members, 1, 1))
    if rng.random() < 0.15:
        logits[..., 1:][rng.random((members, inputs, classes - 1)) < 0.02] = -np.inf
    weights = None
    if rng.random() < 0.4:
        weights = rng.exponential(size=shape[: rng.integers(1, 3)]) * 10.0 ** rng.integers(-3, 3)
        weights[1:][rng.random(weights[1:].shape) < 0.3] = 0.0
    if rng.random() < 0.2:
        name, given = "log_probs", logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    else:
        name, given = "logits", logits
    order = rng.permutation(3)
    laid_out = np.ascontiguousarray(given.astype(np.float32).transpose(order)).transpose(np.argsort(order))
    return {name: laid_out, "weights": weights}


@pytest.mark.parametrize("seed", range(4))
def test_float32_is_right_to_1e_5_whatever_comes(seed, monkeypatch) -> None:
    """Compare with float64 arithmetic on the same numbers; all go through the loops for large arrays."""
    monkeypatch.setattr(kernels, "SMALLEST", 1)
    rng = np.random.default_rng(seed)
    for _ in range(60):
        given = random_case(rng)
        exact = {name: None if v is None else v.astype(np.float64) for name, v in given.items()}
        pairs = [(demur.Moments().update(**each).decompose() for each in (given, exact))]
        for measure in ("pairwise", "average"):
            pairs.append(demur.decompose(measure=measure, **each) for each in (given, exact))
        for single, double in pairs:
            for part in ("total", "aleatoric", "epistemic"):
                found, expected = getattr(single, part), getattr(double, part)
                # Below 1e-35 a result that is float32 has fewer digits.
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-35)


def to_probabilities(logits) -> np.ndarray:
    """Return probabilities that sum to 1 as well as their type allows."""
    odds = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return (odds / odds.sum(axis=-1, keepdims=True)).astype(logits.dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [2, 3, 10, 100, 1000])
@pytest.mark.parametrize("spread", [3.0, 0.3, 1e-2])
def test_probabilities_are_taken_as_they_are(classes, spread, dtype) -> None:
    """Against float64 arithmetic on the same numbers, which rounding has changed by then."""
    rng = np.random.default_rng(11)
    logits = agreeing(rng, (9, 40_000 // (9 * classes) + 3, classes), spread, 2.0, 0.0)
    probs = to_probabilities(logits.astype(dtype))
    few = probs[:, :7].astype(np.float64)
    tolerance = 1e-9 if dtype == np.float64 else 1e-5
    for measure in ("pairwise", "average", "reverse"):
        exact = demur.decompose(few / few.sum(axis=-1, keepdims=True), measure=measure)
        for layout in LAYOUTS.values():
            found = demur.decompose(layout(probs), measure=measure)
            np.testing.assert_allclose(found.epistemic[:7], exact.epistemic, rtol=tolerance)
            np.testing.assert_allclose(found.aleatoric[:7], exact.aleatoric, rtol=tolerance)


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_probabilities_that_are_none_are_named(classes) -> None:
    rng = np.random.default_rng(12)
    probs = to_probabilities(rng.normal(size=(9, 40_000 // (9 * classes) + 3, classes)).astype(np.float32))
    for bad, words in ((np.nan, "must be numbers"), (-0.25, "must not be negative"), (0.9, "must sum to 1")):
        wrong = probs.copy()
        wrong[4, 17, 1] = bad
        with pytest.raises(ValueError, match=words):
            demur.decompose(wrong)
    zero = probs.copy()
    zero[4, 17, 0] += zero[4, 17, 1]
    zero[4, 17, 1] = 0.0
    found = demur.decompose(zero, rounding=0).epistemic
    assert found[17] == np.inf and np.isfinite(np.delete(found, 17)).all()
    zero[:, 17, 0] += zero[:, 17, 1]
    zero[:, 17, 1] = 0.0
    assert np.isfinite(demur.decompose(zero).epistemic).all()


@pytest.mark.parametrize("constant", [1e4, 1e6, 1e8])
@pytest.mark.parametrize("shape", [(8, 30, 10), (8, 600, 10), (8, 60, 100), (8, 30, 2), (8, 3000, 2)])
def test_constants_added_to_all_logits_of_a_member_change_nothing(shape, constant) -> None:
    """However large: logits are taken less their own highest. What float64 itself has lost is lost."""
    rng = np.random.default_rng(13)
    logits = np.round(2 * rng.normal(size=shape), 3)
    moved = logits + constant * np.arange(shape[0])[:, None, None]
    exact = moved - constant * np.arange(shape[0])[:, None, None]
    for measure in ("pairwise", "average"):
        found = demur.decompose(logits=moved, measure=measure).epistemic
        np.testing.assert_allclose(found, demur.decompose(logits=exact, measure=measure).epistemic, rtol=1e-9)


@pytest.mark.parametrize("given", ["logits", "probs"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rule", ["brier", "zero_one"])
@pytest.mark.parametrize("classes", [2, 3, 10, 40, 300])
def test_bounded_rules_have_what_small_arrays_have(classes, rule, weighted, given) -> None:
    """Fifty inputs alone are below the size from which the loop takes them."""
    rng = np.random.default_rng(14)
    logits = 3 * rng.normal(size=(9, 40_000 // (9 * classes) + 5, classes))
    logits[2, :, 1] = -np.inf
    logits[:, 4] = logits[0, 4]
    values = logits if given == "logits" else to_probabilities(logits)
    weights = rng.exponential(size=values.shape[:2]) if weighted else None
    if weighted:
        weights[5, ::3] = 0.0
    few = min(50, kernels.SMALLEST // (10 * classes))
    own = None if weights is None else weights[:, :few]
    for measure in ("pairwise", "average", "reverse"):
        found = decompose(given, values, rule=rule, weights=weights, measure=measure)
        exact = decompose(given, values[:, :few], rule=rule, weights=own, measure=measure)
        np.testing.assert_allclose(found.epistemic[:few], exact.epistemic, rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(found.aleatoric[:few], exact.aleatoric, rtol=1e-9, atol=1e-15)
        assert (found.epistemic >= 0).all() and found.epistemic[4] == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [2, 3, 10, 70])
def test_identical_probabilities_disagree_by_exactly_nothing(classes, dtype) -> None:
    """The reference's logarithms and those of members are the same ones."""
    p = np.random.default_rng(16).dirichlet(np.ones(classes), size=70_000 // classes // 9).astype(dtype)
    for weights in (None, np.arange(1.0, 10.0)):
        for measure in ("pairwise", "average", "reverse"):
            found = demur.decompose(np.repeat(p[None], 9, axis=0), measure=measure, weights=weights)
            assert not found.epistemic.any()


def decompose(given, values, **options) -> demur.Decomposition:
    """Decompose logits or probabilities."""
    return (
        demur.decompose(logits=values, **options) if given == "logits" else demur.decompose(values, **options)
    )


@pytest.mark.parametrize("compiled", ["always", "never"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rule", ["brier", "zero_one"])
def test_bounded_rules_of_certain_members_are_never_negative(monkeypatch, rule, dtype, compiled) -> None:
    monkeypatch.setenv("DEMUR_COMPILE", compiled)
    rng = np.random.default_rng(18)
    for classes in (1, 3, 70):
        p = np.zeros((9, 80_000 // 9 // classes, classes), dtype)
        p[..., 0] = 1.0
        for weights in (None, rng.uniform(0.01, 1, 9), rng.uniform(0.01, 1, p.shape[:2])):
            assert not demur.decompose(p, rule=rule, weights=weights).aleatoric.any()
        nearly = np.zeros(p.shape, dtype)
        nearly[..., 0] = 40 * rng.uniform(size=p.shape[:2])
        for weights in (None, rng.uniform(0.01, 1, 9)):
            assert (demur.decompose(logits=nearly, rule=rule, weights=weights).aleatoric >= 0).all()


@pytest.mark.parametrize("inputs", [5, 5000])
def test_brier_of_a_first_member_of_little_weight(monkeypatch, inputs) -> None:
    monkeypatch.setenv("DEMUR_COMPILE", "never")
    p = np.random.default_rng(19).dirichlet(np.ones(10), size=(2, inputs))[[0, *[1] * 7]].astype(np.float32)
    weights = np.r_[1e-6, np.ones(7)]
    found = demur.decompose(p, rule="brier", weights=weights, measure="average").epistemic
    away = np.square(p[0].astype(np.float64) - p[1]).sum(axis=-1)
    np.testing.assert_allclose(found, away * 7e-6 / (7 + 1e-6) ** 2, rtol=1e-4)


@pytest.mark.parametrize("rule", ["brier", "zero_one"])
def test_bounded_rules_name_what_is_no_prediction(rule) -> None:
    logits = np.random.default_rng(15).normal(size=(9, 500, 10))
    for bad, words in ((np.nan, "must be numbers"), (np.inf, "must be below infinity")):
        wrong = logits.copy()
        wrong[1, 7, 2] = bad
        with pytest.raises(ValueError, match=rf"{words}.*\[1, 7, 2\]"):
            demur.decompose(logits=wrong, rule=rule)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rule", ["brier", "zero_one"])
def test_bounded_rules_name_the_probability_that_is_none(rule, dtype) -> None:
    """Also the last of inputs that do not fill the lanes; where it has no weight it does not matter."""
    p = np.random.default_rng(15).dirichlet(np.ones(10), size=(9, 501)).astype(dtype)
    expected = demur.decompose(np.delete(p, 1, axis=0), rule=rule).epistemic
    layouts = (lambda x: x, np.asfortranarray, lambda x: np.moveaxis(np.moveaxis(x, 2, 1).copy(), 1, 2))
    for bad, words in ((np.nan, "must be numbers"), (-0.5, "must not be negative"), (3.0, "must sum to 1")):
        wrong = p.copy()
        wrong[1, 500, 2] = bad
        for layout in layouts:
            with pytest.raises(ValueError, match=rf"{words}.*\[1, 500"):
                demur.decompose(layout(wrong), rule=rule)
            weights = np.where(np.arange(9) == 1, 0.0, 2.0)
            found = demur.decompose(layout(wrong), rule=rule, weights=weights).epistemic
            np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("rule", ["brier", "zero_one"])
@pytest.mark.parametrize("classes", [2, 6, 7, 16, 37, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bounded_rules_of_probabilities_are_those_of_plain_functions(
    monkeypatch, rule, classes, dtype
) -> None:
    """Highest numbers in whole vectors and in the rest of a row, alone or tied; one member has no weight."""
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.full(classes, 0.3), size=(7, 40_000 // classes // 7 + 300)).astype(dtype)
    p[:, :9] = 0
    p[:, :3, 0] = p[:, 3:6, -1] = 1
    p[:, 6:9, 0] = p[:, 6:9, -1] = 0.5
    p[0, 9] = 1 / classes
    weights = np.array([1.0, 2.0, 0.0, 1.0, 0.5, 1.0, 3.0])
    for own in (None, weights):
        monkeypatch.setenv("DEMUR_COMPILE", "always")
        compiled = {m: demur.decompose(p, rule=rule, weights=own, measure=m) for m in ("pairwise", "reverse")}
        monkeypatch.setenv("DEMUR_COMPILE", "never")
        for measure, found in compiled.items():
            plain = demur.decompose(p.astype(float), rule=rule, weights=own, measure=measure)
            for part in ("total", "aleatoric", "epistemic"):
                np.testing.assert_allclose(getattr(found, part), getattr(plain, part), rtol=1e-7, atol=1e-7)
