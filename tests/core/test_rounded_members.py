"""The least K, I and M that fit rounded probabilities: against an optimiser, and as bounds that hold."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from reference import rounded
from reference.loops import softmax

import demur

MEASURES = tuple(rounded.FIGURES)


def drawn(seed, members, classes, spread=2.0):
    return softmax(spread * np.random.default_rng(seed).normal(size=(members, classes)))


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("seed", range(6))
def test_many_classes_have_the_minimum_without_the_condition_on_sums(measure, seed) -> None:
    p, w = drawn(seed, 4, 3), np.random.default_rng(seed).dirichlet(np.ones(4))
    for r in (0.01, 0.1):
        found = float(demur.decompose(p, measure=measure, weights=w, rounding=r).epistemic)
        bounds = np.maximum(p - r, 0), np.minimum(p + r, 1)
        assert found == pytest.approx(
            rounded.least(measure, *bounds, w, sums_to_one=False), rel=1e-6, abs=1e-9
        )
        assert found <= rounded.least(measure, *bounds, w, sums_to_one=True) + 1e-9


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("seed", range(6))
def test_two_classes_have_the_minimum_of_members_that_sum_to_one(measure, seed) -> None:
    p, w = drawn(seed, 4, 2), np.random.default_rng(seed).dirichlet(np.ones(4))
    for r in (0.01, 0.1):
        found = float(demur.decompose(p, measure=measure, weights=w, rounding=r).epistemic)
        bounds = np.maximum(p - r, 0), np.minimum(p + r, 1)
        wanted = rounded.least(measure, *bounds, w, sums_to_one=True)
        assert found == pytest.approx(wanted, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("measure", MEASURES)
def test_two_members_by_hand(measure) -> None:
    """Two numbers come as near to each other as their bounds let them."""
    p, near = np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([[0.85, 0.15], [0.45, 0.55]])
    found = demur.decompose(p, measure=measure, rounding=0.05)
    wanted = demur.decompose(near, measure=measure)
    np.testing.assert_allclose(found.epistemic, wanted.epistemic, rtol=1e-12)
    exact = demur.decompose(p, measure=measure)
    np.testing.assert_allclose(found.aleatoric, exact.aleatoric, rtol=1e-12)
    np.testing.assert_allclose(found.total, found.aleatoric + found.epistemic, rtol=1e-15)


LOGITS = arrays(np.float64, (3, 2, 4), elements=st.floats(-40, 40))


@settings(max_examples=60)
@given(LOGITS, st.sampled_from([2, 4, 6]), st.sampled_from(MEASURES), st.booleans())
def test_never_above_what_was_rounded(logits, digits, measure, paired) -> None:
    logits = logits[..., :2] if paired else logits
    half = 0.5 * 10.0**-digits
    p = np.round(softmax(logits), digits)
    found = demur.decompose(p, measure=measure, rounding=half * (1 + 1e-9)).epistemic
    wanted = demur.decompose(logits=logits, measure=measure).epistemic
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert (found <= wanted * (1 + 1e-9) + 1e-15).all()


@settings(max_examples=30)
@given(LOGITS, st.sampled_from(["float16", "float32"]), st.booleans())
def test_the_width_of_a_type_covers_its_rounding(logits, dtype, paired) -> None:
    logits = logits[..., :2] if paired else logits
    p = softmax(logits).astype(dtype)
    found = demur.decompose(p, rounding="dtype").epistemic
    assert (found <= demur.decompose(logits=logits).epistemic * (1 + 1e-5) + 1e-9).all()
    assert np.isfinite(found).all()


@settings(max_examples=30)
@given(LOGITS, st.sampled_from(MEASURES))
def test_wider_bounds_fit_less_disagreement(logits, measure) -> None:
    p = softmax(logits)
    widths = (0, 1e-12, 1e-6, 1e-3, 0.1, 0.5)
    found = [demur.decompose(p, measure=measure, rounding=r).epistemic for r in widths]
    for narrow, wide in itertools.pairwise(found):
        assert (wide <= narrow * (1 + 1e-12)).all()
    np.testing.assert_array_equal(found[0], demur.decompose(p, measure=measure, rounding=0).epistemic)
    assert (found[-1] == 0).all()  # half of everything fits everybody


def test_k_is_at_least_i_and_m_together() -> None:
    p = np.random.default_rng(0).dirichlet(np.full(5, 0.2), size=(6, 200))
    for r in (1e-6, 1e-3, 0.05):
        k, i, m = (demur.decompose(p, measure=name, rounding=r).epistemic for name in MEASURES)
        assert (k >= i + m - 1e-13).all() and (i > 0).any()


def test_members_without_weight_have_no_effect() -> None:
    p = np.random.default_rng(0).dirichlet(np.full(4, 0.3), size=(5, 20))
    p[0, :, 0] = 0
    p /= p.sum(-1, keepdims=True)
    more = np.concatenate([p, np.full((2, 20, 4), np.nan)])
    weights = np.array([1.0, 2.0, 1.0, 0.5, 3.0])
    for measure in MEASURES:
        wanted = demur.decompose(p, measure=measure, weights=weights, rounding=1e-3).epistemic
        padded = np.append(weights, [0.0, 0.0])
        found = demur.decompose(more, measure=measure, weights=padded, rounding=1e-3).epistemic
        np.testing.assert_allclose(found, wanted, rtol=1e-13)
    by_input = np.broadcast_to(weights[:, None], (5, 20))
    np.testing.assert_allclose(
        demur.decompose(p, weights=by_input, rounding=1e-3).epistemic,
        demur.decompose(p, weights=weights, rounding=1e-3).epistemic,
    )


@pytest.mark.parametrize("classes", [2, 3])
def test_every_array_library(xp, classes) -> None:
    p = np.random.default_rng(0).dirichlet(np.full(classes, 0.5), size=(5, 6))
    p[0, 0], p[1, 1] = np.eye(classes)[0], np.eye(classes)[1]
    for measure in MEASURES:
        wanted = demur.decompose(p, measure=measure, rounding=1e-3)
        found = demur.decompose(xp.array(p), measure=measure, rounding=1e-3)
        xp.close(found.epistemic, wanted.epistemic)
        xp.close(found.total, wanted.total)
    xp.close(demur.attribute(xp.array(p), rounding=1e-3), demur.attribute(p, rounding=1e-3))


def test_under_jit_and_with_gradients() -> None:
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    p = np.array([[[0.6, 0.4, 0.0]], [[0.3, 0.3, 0.4]], [[0.2, 0.7, 0.1]]])
    with jax.enable_x64(True):
        compiled = jax.jit(lambda q: demur.decompose(q, rounding=0.01).epistemic)
        np.testing.assert_allclose(
            compiled(jax.numpy.asarray(p)), demur.decompose(p, rounding=0.01).epistemic
        )
        traced = jax.jit(lambda q: demur.decompose(q).epistemic)(jax.numpy.asarray(p))  # without a warning
        assert np.isinf(traced).all()
    tensor = torch.tensor(p, requires_grad=True)
    found = demur.decompose(tensor, rounding=0.01).epistemic
    (gradient,) = torch.autograd.grad(found.sum(), tensor)
    step = np.zeros_like(p)
    step[1, 0, 2] = 1e-6
    up, down = (demur.decompose(p + s, rounding=0.01).epistemic for s in (step, -step))
    assert float(gradient[1, 0, 2]) == pytest.approx(float((up - down)[0]) / 2e-6, rel=1e-4)


def test_class_by_class() -> None:
    p = np.random.default_rng(0).dirichlet(np.full(4, 0.3), size=(5, 20))
    p[0, 0] = [1, 0, 0, 0]
    for measure in MEASURES:
        for q in (p, np.stack([1 - p[..., 0], p[..., 0]], axis=-1)):
            terms = demur.attribute(q, measure=measure, rounding=1e-3)
            whole = demur.decompose(q, measure=measure, rounding=1e-3).epistemic
            np.testing.assert_allclose(terms.sum(-1), whole, rtol=1e-12)
            assert (terms >= -1e-15).all()


def test_without_bias_and_in_bits() -> None:
    p = np.random.default_rng(0).dirichlet(np.full(3, 0.3), size=(5, 20))
    plain = demur.decompose(p, rounding=1e-3).epistemic
    np.testing.assert_allclose(demur.decompose(p, rounding=1e-3, unbiased=True).epistemic, plain * 5 / 4)
    np.testing.assert_allclose(demur.decompose(p, rounding=1e-3, base=2).epistemic, plain / np.log(2))


def test_rows_that_rounding_keeps_from_summing_to_one_are_taken() -> None:
    p = np.full((2, 3, 7), np.round(1 / 7, 2))
    with pytest.raises(ValueError, match="must sum to 1 within 1e-06"):
        demur.decompose(p)
    assert (demur.decompose(p, rounding=0.005).epistemic == 0).all()
    with pytest.raises(ValueError, match=r"must sum to 1 within 0\.0007"):
        demur.decompose(p, rounding=1e-4)


P = np.full((2, 3, 2), 0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rounding": "float16"}, "rounding must be a half-width"),
        ({"rounding": True}, "rounding must be a half-width"),
        ({"rounding": -1e-3}, "rounding must be 0"),
        ({"rounding": float("nan")}, "rounding must be 0"),
        ({"rounding": 0.7}, "rounding must be 0"),
        ({"rounding": 1e-3, "stderr": True}, "a bound has no standard error"),
        ({"rounding": 1e-3, "unbiased": True, "measure": "average"}, "for measure='pairwise' only"),
        ({"rounding": 1e-3, "rule": "brier"}, "Got rule 'brier'"),
        ({"rounding": 1e-3, "measure": "bma"}, "Take measure='pairwise'"),
        ({"rounding": 1e-3, "measure": demur.Measure(P[0], "each")}, "Take measure='pairwise'"),
    ],
)
def test_what_has_no_least_value_is_an_error(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        demur.decompose(P, **arguments)


def test_only_probabilities_are_rounded() -> None:
    for arguments in ({"logits": P}, {"log_probs": np.log(P)}):
        with pytest.raises(ValueError, match="rounding goes with probabilities"):
            demur.decompose(**arguments, rounding=1e-3)
    with pytest.raises(ValueError, match="rounding goes with probabilities"):
        demur.decompose(demur.Gaussian(P[..., 0], variance=1.0), rounding=1e-3)
    with pytest.raises(ValueError, match="rounding goes with an array of members"):
        demur.decompose(demur.Dirichlet([1.0, 2.0]), rounding=1e-3)
    with pytest.raises(ValueError, match="rounding goes with probabilities"):
        demur.Bernoulli(logits=P[..., 0], rounding=1e-3)
