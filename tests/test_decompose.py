"""decompose(): the values of every cell, and what is common to all of them."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from reference import exact, loops, members
from scipy.special import roots_jacobi, roots_legendre

import demur

NAMES = tuple(loops.NAMES)
OWN_CELLS = tuple(itertools.product(("each", "bma"), repeat=2))
ALL_CELLS = tuple(itertools.product(("given", "bma", "each"), repeat=2))


def check(xp, actual, expected, **tolerance) -> None:
    """All three parts of a Decomposition against a dict of the references."""
    for part in loops.PARTS:
        xp.close(getattr(actual, part), expected[part], **tolerance)


# --- every cell, every rule ---------------------------------------------------------------------


@pytest.mark.parametrize("weighted", ["equal", "members", "inputs"])
@pytest.mark.parametrize("rule", loops.RULES)
@pytest.mark.parametrize("cell", ALL_CELLS, ids="-".join)
def test_nine_cells_with_one_given_model(xp, cell, rule, weighted) -> None:
    logits = members.ordinary(4, 3, 5)
    weights = {"equal": None, "members": members.weights(4), "inputs": members.weights(4, 3)}[weighted]
    # Two different given models, so that the sides cannot be swapped unnoticed.
    given = loops.softmax(members.ordinary(2, 3, 5, seed=7))
    plain = tuple(given[i] if side == "given" else side for i, side in enumerate(cell))
    sides = tuple(side if isinstance(side, str) else xp.array(side) for side in plain)
    actual = demur.decompose(
        logits=xp.array(logits),
        measure=demur.Measure(*sides),
        rule=rule,
        weights=None if weights is None else xp.array(weights),
    )
    expected = loops.over_batch(loops.decompose_one, loops.softmax(logits), weights, measure=plain, rule=rule)
    check(xp, actual, expected)


@pytest.mark.parametrize("form", ["array", "categorical", "moments"])
@pytest.mark.parametrize("rule", loops.RULES)
@pytest.mark.parametrize("cell", [c for c in ALL_CELLS if "given" in c], ids="-".join)
def test_a_given_set_plays_each_over_its_own_members(xp, cell, rule, form) -> None:
    logits = members.ordinary(4, 3, 5)
    given_logits = [members.ordinary(3, 3, 5, seed=7), members.ordinary(2, 3, 5, seed=8)]

    def side(index: int, choice: str) -> object:
        if choice != "given":
            return choice
        values = given_logits[index]
        if form == "array":
            return xp.array(loops.softmax(values))
        if form == "categorical":
            return demur.Categorical(logits=xp.array(values))
        moments = demur.Moments(rule=rule)
        moments.update(logits=xp.array(values))
        return moments

    measure = demur.Measure(*(side(i, choice) for i, choice in enumerate(cell)))
    actual = demur.decompose(logits=xp.array(logits), measure=measure, rule=rule)
    plain = tuple(
        loops.softmax(given_logits[i]) if choice == "given" else choice for i, choice in enumerate(cell)
    )
    expected = loops.over_batch(loops.decompose_one, loops.softmax(logits), measure=plain, rule=rule)
    check(xp, actual, expected)


@pytest.mark.parametrize("names", [("log_probs",), ("probs",), ("categorical",)], ids=lambda n: n[0])
def test_the_three_ways_to_give_predictions_agree(xp, names) -> None:
    logits = members.ordinary(4, 3, 5)
    probs = loops.softmax(logits)
    expected = loops.over_batch(loops.decompose_one, probs)
    actual = {
        "log_probs": lambda: demur.decompose(log_probs=xp.array(np.log(probs))),
        "probs": lambda: demur.decompose(xp.array(probs)),
        "categorical": lambda: demur.decompose(demur.Categorical(logits=xp.array(logits))),
    }[names[0]]()
    check(xp, actual, expected)


def test_torch_distributions_are_predictions() -> None:
    torch = pytest.importorskip("torch")
    logits = members.ordinary(4, 3, 5)
    for form in ({"logits": torch.tensor(logits)}, {"probs": torch.tensor(loops.softmax(logits))}):
        actual = demur.decompose(torch.distributions.Categorical(**form))
        assert isinstance(actual.epistemic, torch.Tensor)
        expected = loops.over_batch(loops.decompose_one, loops.softmax(logits))
        np.testing.assert_allclose(actual.epistemic, expected["epistemic"], rtol=1e-9)


# --- closed forms -------------------------------------------------------------------------------


def test_beta_and_uniform_by_quadrature() -> None:
    """Members at the nodes of a Gauss rule, weighted: the integral over the distribution itself."""
    nodes, weights = roots_jacobi(400, 4.0, 4.0)  # Beta(5, 5) on [-1, 1]
    p = np.stack([(1 + nodes) / 2, (1 - nodes) / 2], axis=-1)
    # The integrands are analytic but for (1 - x)^5 log(1 - x): the error of 400 nodes is far
    # below the rounding of the weighted sum.
    exactly = exact.dirichlet([5, 5])
    for name in NAMES:
        value = demur.decompose(p, weights=weights, measure=name).epistemic
        np.testing.assert_allclose(value, exactly[name], rtol=1e-11)
    assert exactly["pairwise"] == 0.1

    nodes, weights = roots_legendre(2000)
    p = np.stack([(1 + nodes) / 2, (1 - nodes) / 2], axis=-1)
    uniform = demur.decompose(p, weights=weights)
    # log x at the end of the interval: the rule converges as 1 / nodes^2, here 1e-7.
    np.testing.assert_allclose(uniform.total, 1.0, rtol=1e-6)
    np.testing.assert_allclose(uniform.aleatoric, 0.5, rtol=1e-6)
    np.testing.assert_allclose(uniform.epistemic, 0.5, rtol=1e-6)
    information = demur.decompose(p, weights=weights, measure="average").epistemic
    np.testing.assert_allclose(information, math.log(2.0) - 0.5, rtol=1e-6)


def test_half_deltas(xp) -> None:
    p = xp.array([[0.0, 1.0], [1.0, 0.0]])
    pairwise = demur.decompose(p, rounding=0)
    assert xp.numpy(pairwise.epistemic) == np.inf and xp.numpy(pairwise.total) == np.inf
    assert xp.numpy(pairwise.aleatoric) == 0.0
    assert xp.numpy(demur.decompose(p, measure="reverse", rounding=0).epistemic) == np.inf
    average = demur.decompose(p, measure="average")
    xp.close(average.epistemic, math.log(2.0))
    xp.close(average.total, math.log(2.0))


@pytest.mark.parametrize("cell", OWN_CELLS, ids="-".join)
def test_zero_one_ties_share_equally(cell) -> None:
    # Dyadic, so that the tie in the average is exact in binary: (3, 3, 2) / 8.
    p = np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]])
    tied = np.array([[0.375, 0.375, 0.25], [0.125, 0.5, 0.375]])
    for probs in (p, tied):
        actual = demur.decompose(probs, measure=demur.Measure(*cell), rule="zero_one")
        expected = loops.decompose_one(probs.tolist(), measure=cell, rule="zero_one")
        for part in loops.PARTS:
            np.testing.assert_allclose(getattr(actual, part), expected[part], atol=1e-15)


# --- contracts over the registry ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("way", ["arrays", "log-probabilities", "stream"])
@pytest.mark.parametrize(("members", "inputs"), [(33, 1), (3, 4000)])
def test_zero_one_is_never_negative(members, inputs, way, dtype) -> None:
    """Whether members nearly agree or not, have ties or not; a single input is added up in another order."""
    rng = np.random.default_rng(6)
    for spread in (1e-4, 0.1, 1.0):
        logits = 2 * rng.normal(size=(1, inputs, 60)) + spread * rng.normal(size=(members, inputs, 60))
        logits[:, 1::2] = np.round(2 * logits[:, 1::2])  # with ties
        probs = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        for measure in ("pairwise", "average", "reverse"):
            if way == "arrays":
                found = demur.decompose(probs.astype(dtype), rule="zero_one", measure=measure)
            elif way == "stream":
                found = demur.Moments(rule="zero_one").update(probs.astype(dtype)).decompose(measure=measure)
            else:
                given = np.log(probs.astype(dtype))
                found = demur.decompose(log_probs=given, rule="zero_one", measure=measure)
            assert (found.epistemic >= 0).all(), (spread, measure)


@pytest.mark.parametrize("rule", loops.RULES)
@pytest.mark.parametrize("cell", OWN_CELLS, ids="-".join)
def test_what_holds_for_every_cell(xp, cell, rule) -> None:
    logits = members.ordinary(5, 6, 4)
    measure = demur.Measure(*cell)

    def run(values, **options):
        return demur.decompose(logits=xp.array(values), measure=measure, rule=rule, **options)

    actual = run(logits)
    parts = {part: xp.numpy(getattr(actual, part)) for part in loops.PARTS}
    # total = aleatoric + epistemic, to the rounding of that one sum.
    rounding = 4 * np.finfo(parts["total"].dtype).eps * np.abs(parts["total"]).max()
    np.testing.assert_allclose(parts["total"], parts["aleatoric"] + parts["epistemic"], rtol=0, atol=rounding)
    assert (parts["epistemic"] >= 0).all()
    # The order of the members, of the inputs and of the classes, and a shift of the logits.
    for changed in (logits[::-1], logits[:, :, ::-1], logits + 11.0):
        check(xp, run(changed), parts)
    # Integer weights are repeated members, and their scale has no meaning.
    counts = np.array([1, 2, 3, 1, 2])
    repeated = run(np.repeat(logits, counts, axis=0))
    parts = {part: xp.numpy(getattr(repeated, part)) for part in loops.PARTS}
    check(xp, run(logits, weights=xp.array(counts)), parts)
    check(xp, run(logits, weights=xp.array(counts / 9.0)), parts)


@pytest.mark.parametrize("rule", loops.RULES)
@pytest.mark.parametrize("cell", OWN_CELLS, ids="-".join)
@pytest.mark.parametrize("shape", [(7, 3, 5), (7, 80, 100)], ids=["generic", "kernel"])
def test_identical_members_disagree_by_exactly_nothing(xp, cell, rule, shape) -> None:
    logits = np.repeat(members.ordinary(1, *shape[1:]), shape[0], axis=0)
    for weights in (None, xp.array(members.weights(shape[0]))):
        actual = demur.decompose(
            logits=xp.array(logits), measure=demur.Measure(*cell), rule=rule, weights=weights
        )
        assert (xp.numpy(actual.epistemic) == 0.0).all()
    moments = demur.Moments(rule=rule)
    for member in logits:
        moments.update(logits=xp.array(member))
    found = moments.decompose(measure=demur.Measure(*cell))
    assert (xp.numpy(found.epistemic) == 0.0).all()


def test_zero_weight_members_have_no_effect(xp) -> None:
    logits = members.ordinary(6, 3, 4)
    logits[2] = members.ordinary(3, 4, seed=9) * 40  # would dominate every mean
    logits[4, :, 1] = -np.inf  # would make K infinite
    weights = members.weights(6)
    weights[[2, 4]] = 0.0
    kept = weights > 0
    for name, unbiased, stderr in itertools.product(NAMES, (False, True), (False, True)):
        options = {"measure": name, "unbiased": unbiased, "stderr": stderr}
        actual = demur.decompose(logits=xp.array(logits), weights=xp.array(weights), **options)
        without = demur.decompose(logits=xp.array(logits[kept]), weights=xp.array(weights[kept]), **options)
        for a, b in [(actual, without)] + [(actual.stderr, without.stderr)] * stderr:
            for part in loops.PARTS:
                xp.close(getattr(a, part), xp.numpy(getattr(b, part)))


@pytest.mark.parametrize("first", [0.0, 1.0], ids=["first-unweighted", "first-weighted"])
def test_weights_of_each_input_are_those_of_the_input_alone(xp, first) -> None:
    logits, weights = members.ordinary(5, 4, 3), members.weights(5, 4)
    weights[0, 1] = first
    weights[3, 2] = 0.0
    whole = demur.decompose(logits=xp.array(logits), weights=xp.array(weights))
    for i in range(4):
        alone = demur.decompose(logits=xp.array(logits[:, i]), weights=xp.array(weights[:, i]))
        xp.close(whole.epistemic[i], xp.numpy(alone.epistemic))


@pytest.mark.parametrize("name", NAMES)
def test_names_and_aliases(name) -> None:
    logits = members.ordinary(4, 3, 5)
    alias = {"pairwise": "C3", "average": "C2", "reverse": "B3"}[name]
    by_name = demur.decompose(logits=logits, measure=name)
    for other in (alias, demur.Measure(*loops.NAMES[name])):
        again = demur.decompose(logits=logits, measure=other)
        for part in loops.PARTS:
            np.testing.assert_array_equal(getattr(again, part), getattr(by_name, part))
    assert demur.Measure() == demur.Measure("each", "each")
    b2 = demur.decompose(logits=logits, measure="B2")
    np.testing.assert_array_equal(b2.epistemic, np.zeros(3))
    average = demur.decompose(logits=logits, measure="average")
    np.testing.assert_allclose(b2.total, average.total, rtol=1e-12)


def test_pairwise_is_average_plus_reverse(xp) -> None:
    logits = xp.array(members.ordinary(5, 50, 10))
    k, i, m = (xp.numpy(demur.decompose(logits=logits, measure=n).epistemic) for n in NAMES)
    np.testing.assert_allclose(k, i + m, rtol=1e-5 if xp.single else 1e-12)


# --- base, axis, batch, dtype -------------------------------------------------------------------


@pytest.mark.parametrize("base", [2, 2.0, 10, math.e])
def test_base_divides_every_part_by_its_logarithm(xp, base) -> None:
    logits = xp.array(members.ordinary(4, 3, 5))
    nats = demur.decompose(logits=logits, stderr=True)
    other = demur.decompose(logits=logits, base=base, stderr=True)
    for a, b in ((other, nats), (other.stderr, nats.stderr)):
        for part in loops.PARTS:
            xp.close(getattr(a, part), xp.numpy(getattr(b, part)) / math.log(base))


@pytest.mark.parametrize("axis", [0, 1, 2, -2, -3, -4])
def test_member_axis_anywhere(xp, axis) -> None:
    logits = members.ordinary(4, 3, 2, 5)
    expected = loops.over_batch(loops.decompose_one, loops.softmax(logits), members.weights(4))
    moved = np.moveaxis(logits, 0, axis)
    actual = demur.decompose(logits=xp.array(moved), axis=axis, weights=xp.array(members.weights(4)))
    check(xp, actual, expected)


@pytest.mark.parametrize("batch", [(), (1,), (6,), (2, 3), (2, 1, 3), (1, 1, 1, 1)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_any_batch_shape(xp, batch, name) -> None:
    logits = members.ordinary(4, *batch, 5)
    actual = demur.decompose(logits=xp.array(logits), measure=name, stderr=True)
    expected = loops.over_batch(loops.decompose_one, loops.softmax(logits), measure=loops.NAMES[name])
    check(xp, actual, expected)
    assert all(np.shape(getattr(actual.stderr, part)) == batch for part in loops.PARTS)


@pytest.mark.parametrize("size", [(4, 3, 5), (8, 64, 100)], ids=["generic", "kernel"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dtype_of_the_result_and_value_of_what_is_held(xp, dtype, size) -> None:
    if xp.name == "numpy" and dtype == "bfloat16":
        pytest.skip("NumPy has no bfloat16 of its own")
    if xp.name == "jax" and dtype == "float64":
        pytest.skip("JAX without float64")
    logits = xp.array(members.ordinary(*size), dtype)
    held = xp.numpy(logits).astype(np.float64)[:, :4]
    for name in NAMES:
        actual = demur.decompose(logits=logits, measure=name, stderr=True)
        expected = loops.over_batch(loops.decompose_one, loops.softmax(held), measure=loops.NAMES[name])
        out = "float64" if dtype == "float64" else "float32"
        for part in loops.PARTS:
            assert xp.dtype_name(getattr(actual, part)) == out
            assert xp.dtype_name(getattr(actual.stderr, part)) == out
        # float32 results: a few roundings of 6e-8; JAX without float64 is held to 1e-5.
        rtol = xp.rtol if dtype == "float64" or xp.single else 5e-7
        for part in loops.PARTS:
            assert tuple(getattr(actual, part).shape) == size[1:-1]
            xp.close(getattr(actual, part)[:4], expected[part], rtol=rtol)


@pytest.mark.parametrize("dtype", ["int64", "int32", "bool"])
def test_whole_numbers_are_probabilities_in_float64(dtype) -> None:
    p = np.array([[[1, 0], [1, 0]], [[1, 0], [0, 1]]]).astype(dtype)
    average = demur.decompose(p, measure="average")
    assert average.epistemic.dtype == np.float64
    np.testing.assert_allclose(average.epistemic, [0.0, math.log(2.0)], rtol=1e-15)
    np.testing.assert_array_equal(demur.decompose(p).epistemic, [0.0, np.inf])


# --- the result ---------------------------------------------------------------------------------


def test_decomposition_is_frozen_and_converts(xp) -> None:
    actual = demur.decompose(logits=xp.array(members.ordinary(4, 3, 5)))
    assert actual.stderr is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        actual.total = actual.aleatoric
    as_dict = actual.to_dict()
    frame = actual.to_pandas()
    assert len(frame) == 3
    for part in loops.PARTS:
        np.testing.assert_array_equal(np.asarray(as_dict[part]), xp.numpy(getattr(actual, part)))
        np.testing.assert_array_equal(frame[part].to_numpy(), xp.numpy(getattr(actual, part)))
    with_error = demur.decompose(logits=xp.array(members.ordinary(4, 3, 5)), stderr=True)
    assert isinstance(with_error.stderr, demur.Decomposition)
    assert with_error.stderr.stderr is None
