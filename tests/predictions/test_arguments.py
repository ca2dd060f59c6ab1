"""Predictions at the door: every bad input has its own error, and the edge cases that work."""

import math
import warnings

import numpy as np
import pytest
from reference import loops, members

import demur

LOGITS = members.ordinary(4, 3, 5)
PROBS = loops.softmax(LOGITS)

# Largest |sum - 1| that the contract lets pass, by dtype.
TOLERANCE = {"float64": 1e-6, "float32": 1e-4, "float16": 2e-2, "bfloat16": 2e-2}


def spoil(values: np.ndarray, value: float, where: tuple[int, ...] = (1, 2, 3)) -> np.ndarray:
    """A copy with one entry replaced."""
    copy = values.copy()
    copy[where] = value
    return copy


# --- which argument -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"logits": LOGITS, "log_probs": np.log(PROBS)},
    ],
    ids=["none", "both"],
)
def test_exactly_one_way_to_give_predictions(arguments) -> None:
    with pytest.raises(ValueError, match=r"probs.*logits.*log_probs"):
        demur.decompose(**arguments)
    with pytest.raises(ValueError, match=r"probs.*logits.*log_probs"):
        demur.Moments().update(**arguments)


def test_probs_and_logits_together() -> None:
    with pytest.raises(ValueError, match=r"probs.*logits"):
        demur.decompose(PROBS, logits=LOGITS)


@pytest.mark.parametrize("thing", ["a.npy", {"a": 1}, object(), 3.5j], ids=type)
def test_things_that_are_no_arrays(thing) -> None:
    if isinstance(thing, str | dict) or type(thing) is object:
        with pytest.raises(TypeError, match="array"):
            demur.decompose(thing)
        with pytest.raises(TypeError, match="array"):
            demur.decompose(logits=thing)
    else:
        with pytest.raises((TypeError, ValueError)):
            demur.decompose(thing)


@pytest.mark.parametrize("dtype", ["complex128", "U3", "O"])
def test_dtypes_that_are_no_numbers(dtype) -> None:
    with pytest.raises((TypeError, ValueError), match=r"dtype|complex|str|object|U3"):
        demur.decompose(PROBS.astype(dtype))


# --- values -------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["probs", "logits", "log_probs"])
def test_nan(xp, way) -> None:
    values = {"probs": PROBS, "logits": LOGITS, "log_probs": np.log(PROBS)}[way]
    bad = xp.array(spoil(values, np.nan))
    with pytest.raises(ValueError, match=rf"(?i){way}.*nan|nan.*{way}"):
        demur.decompose(bad) if way == "probs" else demur.decompose(**{way: bad})


def test_nan_above_the_size_of_the_kernel(xp) -> None:
    bad = xp.array(spoil(members.ordinary(8, 64, 100), np.nan, (5, 33, 77)))
    with pytest.raises(ValueError, match=r"(?i)logits.*nan|nan.*logits"):
        demur.decompose(logits=bad)


@pytest.mark.parametrize("shape", [(4, 3, 5), (8, 64, 100)], ids=["generic", "kernel"])
def test_infinite_logits(xp, shape) -> None:
    bad = xp.array(spoil(members.ordinary(*shape), np.inf))
    with pytest.raises(ValueError, match=r"logits.*inf|inf.*logits"):
        demur.decompose(logits=bad)


@pytest.mark.parametrize("shape", [(4, 3, 5), (8, 64, 100)], ids=["generic", "kernel"])
@pytest.mark.parametrize("way", ["logits", "log_probs"])
def test_all_classes_excluded(xp, way, shape) -> None:
    bad = members.ordinary(*shape)
    bad = bad if way == "logits" else np.log(loops.softmax(bad))
    bad[1, 2] = -np.inf
    with pytest.raises(ValueError, match=way):
        demur.decompose(**{way: xp.array(bad)})


@pytest.mark.parametrize("value", [-1e-3, -1e-9, -np.inf])
def test_negative_probabilities(xp, value) -> None:
    bad = xp.array(spoil(PROBS, value))
    with pytest.raises(ValueError, match=r"(?i)probs.*negative|negative.*prob|-inf|probs.*-"):
        demur.decompose(bad)


def test_negative_probabilities_that_sum_to_one() -> None:
    bad = PROBS.copy()
    bad[1, 2] = [1.25, -0.25, 0.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="negative"):
        demur.decompose(bad)


@pytest.mark.parametrize("values", [LOGITS, np.abs(LOGITS), 10 * LOGITS], ids=["any", "positive", "large"])
def test_logits_passed_as_probabilities_are_told_so(values) -> None:
    with pytest.raises(ValueError, match="logits"):
        demur.decompose(values)


@pytest.mark.parametrize("way", ["probs", "log_probs"])
@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_the_tolerance_of_each_dtype(way, dtype) -> None:
    torch = pytest.importorskip("torch")
    # One probability of 1 and one of +-excess: the rounding of the dtype at these numbers
    # (2^-9 for bfloat16 near 1) is far from the gap between 0.6 and 1.6 of the tolerance.
    for factor, accepted in ((0.5, True), (-0.5, True), (2.0, False), (-2.0, False)):
        rest = 1.0 + factor * TOLERANCE[dtype]
        values = torch.tensor([[[rest - 0.25, 0.25]], [[0.5, 0.5]]], dtype=torch.float64)
        values = values.log() if way == "log_probs" else values
        values = values.to(getattr(torch, dtype))
        arguments = {"log_probs": values} if way == "log_probs" else {}
        positional = () if way == "log_probs" else (values,)
        if accepted:
            held = values.double().exp() if way == "log_probs" else values.double()
            held = (held / held.sum(-1, keepdim=True)).numpy()
            found = demur.decompose(*positional, **arguments).epistemic
            expected = loops.over_batch(loops.decompose_one, held)["epistemic"]
            np.testing.assert_allclose(found, expected, rtol=1e-6)
        else:
            with pytest.raises(ValueError, match=rf"{way}.*sum"):
                demur.decompose(*positional, **arguments)


# --- ranks and axes -----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (5,)], ids=str)
@pytest.mark.parametrize("way", ["probs", "logits", "log_probs"])
def test_ranks(xp, way, shape) -> None:
    bad = xp.array(np.full(shape, 0.2 if way == "probs" else math.log(0.2)))
    with pytest.raises(ValueError, match=rf"{way}.*(dimension|shape|axes|rank|axis)"):
        demur.decompose(bad) if way == "probs" else demur.decompose(**{way: bad})


@pytest.mark.parametrize("shape", [(0, 3, 5), (4, 0, 5), (4, 3, 0)], ids=str)
def test_empty_axes(xp, shape) -> None:
    with pytest.raises(ValueError, match=rf"logits.*\({shape[0]}, {shape[1]}, {shape[2]}\)"):
        demur.decompose(logits=xp.array(np.zeros(shape)))


@pytest.mark.parametrize("axis", [3, -4, 2, -1, 17])
def test_axes_that_are_not_there_or_hold_the_classes(axis) -> None:
    with pytest.raises(ValueError, match="axis"):
        demur.decompose(logits=LOGITS, axis=axis)


@pytest.mark.parametrize("axis", [0.5, "members", None])
def test_axes_that_are_no_numbers(axis) -> None:
    with pytest.raises((TypeError, ValueError), match="axis"):
        demur.decompose(logits=LOGITS, axis=axis)


# --- weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1, 1, -1, 1], "negative|-1"),
        ([0, 0, 0, 0], "zero|positive"),
        ([1, 1, np.nan, 1], "nan"),
        ([1, 1, np.inf, 1], "inf"),
        ([1, 1, 1], r"\(3,\)"),
        ([1, 1, 1, 1, 1], r"\(5,\)"),
        (np.ones((4, 2)), r"\(4, 2\)"),
        (np.ones((3, 4)), r"\(3, 4\)"),
        (np.ones((4, 3, 5)), r"\(4, 3, 5\)"),
        (np.array([[1, 1, 0], [1, 1, 0], [1, 1, 0], [1, 1, 0]]), "zero|positive"),
    ],
    ids=[
        "negative",
        "zero",
        "nan",
        "inf",
        "short",
        "long",
        "inputs",
        "swapped",
        "3-d",
        "one-input",
    ],
)
def test_weights(xp, weights, words) -> None:
    bad = xp.array(np.asarray(weights, dtype=np.float64))
    with pytest.raises(ValueError, match=rf"(?is)weights.*({words})"):
        demur.decompose(logits=xp.array(LOGITS), weights=bad)
    if "zero" in words:
        return  # a chunk of a stream may hold nothing but members of weight zero
    with pytest.raises(ValueError, match="weights"):
        demur.Moments().update(logits=xp.array(LOGITS), weights=bad)


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_weight_of_one_member(weight) -> None:
    with pytest.raises(ValueError, match="weights"):
        demur.Moments().update(logits=LOGITS[0], weights=weight)


# --- names, base, given models, groups ----------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("pairwize", "pairwise"),
        ("Pairwise", "pairwise"),
        ("averge", "average"),
        ("revers", "reverse"),
        ("c3", "C3"),
    ],
)
def test_unknown_measures_suggest_the_nearest(written, meant) -> None:
    with pytest.raises(ValueError, match=rf"measure.*{written}[\s\S]*{meant}"):
        demur.decompose(logits=LOGITS, measure=written)


@pytest.mark.parametrize(
    ("written", "meant"), [("logg", "log"), ("brierr", "brier"), ("zero-one", "zero_one")]
)
def test_unknown_rules_suggest_the_nearest(written, meant) -> None:
    with pytest.raises(ValueError, match=rf"rule.*{written}[\s\S]*{meant}"):
        demur.decompose(logits=LOGITS, rule=written)
    with pytest.raises(ValueError, match=rf"rule.*{written}[\s\S]*{meant}"):
        demur.Moments(rule=written)


def test_unknown_sides_suggest_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"predictor.*eech[\s\S]*each"):
        demur.decompose(logits=LOGITS, measure=demur.Measure(predictor="eech"))
    with pytest.raises(ValueError, match=r"truth.*bmaa[\s\S]*bma"):
        demur.decompose(logits=LOGITS, measure=demur.Measure(truth="bmaa"))


@pytest.mark.parametrize("bad", [3, None, ("each", "each")])
def test_things_that_are_no_measure(bad) -> None:
    with pytest.raises((TypeError, ValueError), match="measure"):
        demur.decompose(logits=LOGITS, measure=bad)


@pytest.mark.parametrize("base", [0, 1, 1.0, -2, math.nan, math.inf])
def test_a_base_that_is_no_base(base) -> None:
    with pytest.raises(ValueError, match="base"):
        demur.decompose(logits=LOGITS, base=base)


def test_a_base_that_is_no_number() -> None:
    with pytest.raises((TypeError, ValueError), match="base"):
        demur.decompose(logits=LOGITS, base="two")


@pytest.mark.parametrize("rule", [rule for rule in loops.RULES if rule != "log"])
def test_a_base_needs_the_log_loss(rule) -> None:
    with pytest.raises(ValueError, match=r"base.*log|log.*base"):
        demur.decompose(logits=LOGITS, rule=rule, base=2)


@pytest.mark.parametrize("shape", [(2, 5), (3, 4), (2, 4, 5), (2, 3, 3, 5), (5,)], ids=str)
@pytest.mark.parametrize("side", ["predictor", "truth"])
def test_a_mismatched_given_model(xp, side, shape) -> None:
    given = xp.array(loops.softmax(np.zeros(shape)))
    numbers = ", ".join(map(str, shape))
    # Both shapes are named: the given one and that of the inputs and classes, (3, 5).
    pattern = rf"(?=[\s\S]*{side})(?=[\s\S]*\({numbers},?\))(?=[\s\S]*3, 5\))"
    with pytest.raises(ValueError, match=pattern):
        demur.decompose(logits=xp.array(LOGITS), measure=demur.Measure(**{side: given}))


def test_a_given_model_is_checked_like_any_prediction(xp) -> None:
    for bad, words in ((LOGITS[0], "logits|negative|sum"), (spoil(PROBS, np.nan)[1], "(?i)nan")):
        given = xp.array(bad)
        with pytest.raises(ValueError, match=words):
            demur.decompose(logits=xp.array(LOGITS), measure=demur.Measure(truth=given))


def test_given_moments_of_other_inputs_or_another_rule() -> None:
    other = demur.Moments()
    other.update(logits=members.ordinary(4, 2, 5))
    with pytest.raises(ValueError, match="truth"):
        demur.decompose(logits=LOGITS, measure=demur.Measure(truth=other))
    brier = demur.Moments(rule="brier")
    brier.update(logits=LOGITS)
    with pytest.raises(ValueError, match="brier"):
        demur.decompose(logits=LOGITS, measure=demur.Measure(truth=brier))


@pytest.mark.parametrize("groups", [1, 0, -3])
def test_groups_that_are_none(groups) -> None:
    with pytest.raises(ValueError, match="groups"):
        demur.decompose(logits=LOGITS, stderr=True, groups=groups)
    with pytest.raises(ValueError, match="groups"):
        demur.Moments(groups=groups)


@pytest.mark.parametrize("name", loops.NAMES)
@pytest.mark.parametrize("option", ["unbiased", "stderr"])
def test_one_member_has_no_spread_to_estimate(option, name) -> None:
    with pytest.raises(ValueError, match=rf"{option}[\s\S]*member|member[\s\S]*{option}"):
        demur.decompose(logits=LOGITS[:1], measure=name, **{option: True})
    with pytest.raises(ValueError, match="member"):
        demur.decompose(logits=LOGITS, weights=[0, 3, 0, 0], measure=name, **{option: True})


# --- what works ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", loops.RULES)
@pytest.mark.parametrize("name", loops.NAMES)
@pytest.mark.parametrize("shape", [(1, 3, 5), (4, 1, 5), (4, 3, 1), (4, 5), (1, 1, 1), (1, 1)], ids=str)
def test_one_member_one_input_one_class_and_no_batch(xp, shape, name, rule) -> None:
    logits = members.ordinary(*shape)
    actual = demur.decompose(logits=xp.array(logits), measure=name, rule=rule)
    expected = loops.over_batch(
        loops.decompose_one, loops.softmax(logits), measure=loops.NAMES[name], rule=rule
    )
    for part in loops.PARTS:
        xp.close(getattr(actual, part), expected[part])
    if shape[0] == 1 or shape[-1] == 1:
        assert (xp.numpy(actual.epistemic) == 0.0).all()


def test_a_read_only_array_is_not_written_to() -> None:
    for shape in ((4, 3, 5), (8, 64, 100)):
        logits = members.ordinary(*shape)
        before = logits.copy()
        logits.flags.writeable = False
        demur.decompose(logits=logits)
        demur.Moments().update(logits=logits)
        np.testing.assert_array_equal(logits, before)


def test_no_warnings_from_zeros_and_infinities(xp) -> None:
    logits = LOGITS.copy()
    logits[0, 0, 0] = logits[:, 1, 1] = -np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in loops.NAMES:
            demur.decompose(logits=xp.array(logits), measure=name)
            demur.decompose(xp.array(loops.softmax(logits)), measure=name, rounding=0)
            demur.attribute(logits=xp.array(logits), measure=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_error_names_the_callers_own_place_in_a_large_array(dtype) -> None:
    logits = np.zeros((10, 500, 20), dtype)
    logits[3, 77, 5] = np.nan
    with pytest.raises(ValueError, match=r"Got nan at \[3, 77, 5\]"):
        demur.decompose(logits=logits)
    probs = np.full((10, 9000, 3), 1 / 3, dtype)
    probs[2, 8888] *= 1.5
    with pytest.raises(ValueError, match=r"Got 1.5 at \[2, 8888\]"):
        demur.decompose(probs)


def test_numbers_of_numpy_are_numbers() -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(3), size=(4, 2))
    given = demur.decompose(p, axis=np.int64(0), base=np.int64(2), stderr=True, groups=np.int64(2))
    expected = demur.decompose(p, axis=0, base=2, stderr=True, groups=2)
    np.testing.assert_array_equal(given.stderr.epistemic, expected.stderr.epistemic)
    assert demur.Moments(groups=np.int64(2)).groups == 2
    np.testing.assert_allclose(demur.decompose(p, base=np.float32(2)).total, expected.total, rtol=1e-12)


def test_a_rule_that_is_no_name() -> None:
    with pytest.raises(ValueError, match="rule must be one of"):
        demur.decompose(np.full((2, 1, 2), 0.5), rule=["log"])


@pytest.mark.parametrize("way", ["probs", "log_probs", "logits"])
def test_members_without_weight_may_hold_anything(way) -> None:
    """Also what would warn of itself."""
    p = np.random.default_rng(0).dirichlet(np.ones(3), size=(3, 2))
    values = p if way == "probs" else np.log(p)
    for nonsense in (-5.0, 1e300, np.nan, np.inf):
        given = values.copy()
        given[1] = nonsense
        options = {"weights": [1.0, 0.0, 1.0]}
        found = (
            demur.decompose(given, **options)
            if way == "probs"
            else demur.decompose(**{way: given}, **options)
        )
        np.testing.assert_allclose(found.epistemic, demur.decompose(p[[0, 2]]).epistemic, rtol=1e-12)
