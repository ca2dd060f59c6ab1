"""Gradients through a measure, and tracing: torch autograd, jax.grad, jax.jit."""

import itertools

import numpy as np
import pytest
from reference import loops, members

import demur

OWN_CELLS = tuple(itertools.product(("each", "bma"), repeat=2))
SLOW = pytest.mark.slow
# JAX compiles every step anew for another shape, which takes seconds: gradients are of arrays of this one.
SHAPE = (3, 2, 4)
SMOOTH = tuple(rule for rule in loops.RULES if rule != "zero_one")


def numerical(function, values: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """Central differences of a scalar function of a NumPy array.

    Truncation is of order step^2 and rounding 1e-16 / step = 1e-10: 1e-7 is a safe tolerance.
    """
    gradient = np.zeros_like(values)
    for index in np.ndindex(values.shape):
        if not np.isfinite(values[index]):
            continue
        up, down = values.copy(), values.copy()
        up[index] += step
        down[index] -= step
        gradient[index] = (function(up) - function(down)) / (2 * step)
    return gradient


def summed_by_loops(part: str, cell, rule: str, weights=None):
    def function(logits: np.ndarray) -> float:
        parts = loops.over_batch(loops.decompose_one, loops.softmax(logits), weights, measure=cell, rule=rule)
        return float(parts[part].sum())

    return function


@pytest.mark.parametrize("part", loops.PARTS)
@pytest.mark.parametrize("rule", SMOOTH)
@pytest.mark.parametrize("cell", OWN_CELLS, ids="-".join)
def test_torch_gradients_match_finite_differences(cell, rule, part) -> None:
    torch = pytest.importorskip("torch")
    values = members.ordinary(3, 2, 4)
    logits = torch.tensor(values, requires_grad=True)
    result = getattr(demur.decompose(logits=logits, measure=demur.Measure(*cell), rule=rule), part)
    if part == "epistemic" and cell == ("bma", "bma"):
        assert (result == 0).all()  # constant: a gradient is not asked for
        return
    assert result.grad_fn is not None
    result.sum().backward()
    expected = numerical(summed_by_loops(part, cell, rule), values)
    np.testing.assert_allclose(logits.grad, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("way", ["probs", "log_probs"])
def test_torch_gradients_through_probabilities(way) -> None:
    """Along the simplex: through a softmax, since a probability cannot move alone."""
    torch = pytest.importorskip("torch")
    values = members.ordinary(3, 2, 4)
    leaf = torch.tensor(values, requires_grad=True)
    if way == "probs":
        result = demur.decompose(leaf.softmax(-1))
    else:
        result = demur.decompose(log_probs=leaf.log_softmax(-1))
    result.epistemic.sum().backward()
    expected = numerical(summed_by_loops("epistemic", ("each", "each"), "log"), values)
    np.testing.assert_allclose(leaf.grad, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", loops.NAMES)
def test_torch_gradients_where_nothing_can_be_divided(name) -> None:
    """Identical members, a class that all exclude, saturation: finite, never NaN."""
    torch = pytest.importorskip("torch")
    values = np.repeat(members.ordinary(1, 4, 5), 3, axis=0)
    values[:, 1, 2] = -np.inf
    values[:, 2, 0] = 500.0
    values[:, 3] += 1e-7 * np.random.default_rng(0).normal(size=(3, 5))
    logits = torch.tensor(values, requires_grad=True)
    demur.decompose(logits=logits, measure=name).epistemic.sum().backward()
    assert torch.isfinite(logits.grad).all()
    # Agreement is a minimum of every epistemic part.
    np.testing.assert_allclose(logits.grad[:, :3], 0.0, atol=1e-15)
    demur.decompose(logits=logits, measure=name).total.sum().backward()
    assert torch.isfinite(logits.grad).all()


def test_torch_gradients_with_weights_and_of_a_large_input() -> None:
    torch = pytest.importorskip("torch")
    values, weights = members.ordinary(4, 2, 3), members.weights(4)
    logits = torch.tensor(values, requires_grad=True)
    result = demur.decompose(logits=logits, weights=torch.tensor(weights))
    result.epistemic.sum().backward()
    expected = numerical(summed_by_loops("epistemic", ("each", "each"), "log", weights), values)
    np.testing.assert_allclose(logits.grad, expected, rtol=1e-6, atol=1e-8)

    large = torch.tensor(members.ordinary(8, 64, 100), requires_grad=True)
    demur.decompose(logits=large).epistemic.sum().backward()
    small = torch.tensor(members.ordinary(8, 64, 100)[:, :4], requires_grad=True)
    demur.decompose(logits=small).epistemic.sum().backward()
    np.testing.assert_allclose(large.grad[:, :4], small.grad, rtol=1e-9, atol=1e-14)


def test_without_requires_grad_there_is_no_graph() -> None:
    torch = pytest.importorskip("torch")
    logits = torch.tensor(members.ordinary(3, 2, 4))
    assert demur.decompose(logits=logits).epistemic.grad_fn is None
    leaf = logits.clone().requires_grad_()
    with torch.no_grad():
        assert demur.decompose(logits=leaf).epistemic.grad_fn is None


# Tracing takes seconds. PyTorch shows them all.
@pytest.mark.parametrize(
    ("cell", "rule"),
    [
        (("each", "each"), "log"),
        *(pytest.param(cell, "log", marks=SLOW) for cell in OWN_CELLS[1:]),
        *(pytest.param(("each", "each"), rule, marks=SLOW) for rule in SMOOTH[1:]),
    ],
)
def test_jax_gradients_match_finite_differences(cell, rule) -> None:
    jax = pytest.importorskip("jax")
    values = members.ordinary(*SHAPE)

    def total(logits):
        return demur.decompose(logits=logits, measure=demur.Measure(*cell), rule=rule).total.sum()

    expected = numerical(summed_by_loops("total", cell, rule), values)
    with jax.enable_x64(True):
        found = jax.grad(total)(jax.numpy.asarray(values))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
        again = jax.jit(jax.grad(total))(jax.numpy.asarray(values))
        np.testing.assert_allclose(again, found, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("rule", "shape", "double"),
    [
        ("log", (8, 64, 100), False),
        pytest.param("log", (8, 64, 100), True, marks=SLOW),
        *(pytest.param(rule, (4, 3, 5), True, marks=[SLOW] * (rule != "log")) for rule in loops.RULES),
        *(pytest.param(rule, (4, 3, 5), False, marks=SLOW) for rule in loops.RULES),
    ],
)
def test_jit_gives_the_concrete_values(rule, shape, double) -> None:
    jax = pytest.importorskip("jax")

    def everything(logits):
        found = [demur.decompose(logits=logits, measure=name, rule=rule) for name in loops.NAMES]
        return [getattr(one, part) for one in found for part in loops.PARTS]

    with jax.enable_x64(double):
        logits = jax.numpy.asarray(members.ordinary(*shape))
        for a, b in zip(jax.jit(everything)(logits), everything(logits), strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            # XLA may fuse and reorder: a few roundings of values of order one.
            rtol, atol = (1e-12, 1e-14) if double else (1e-5, 1e-6)
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((10, 60, 3), "logits"),
        ((300, 10, 10), "probs"),
        pytest.param((10, 60, 3), "probs", marks=SLOW),
        pytest.param((300, 10, 10), "logits", marks=SLOW),
        pytest.param((5, 20, 300), "logits", marks=SLOW),
        pytest.param((5, 20, 300), "probs", marks=SLOW),
    ],
)
def test_jit_in_float32_has_the_digits_of_what_comes(shape, kind) -> None:
    """Against float64 on the same numbers; probabilities below 1e-30 have no digits in float32."""
    jax = pytest.importorskip("jax")
    rng = np.random.default_rng(0)

    def everything(z):
        prediction = demur.predictions.Categorical(**{kind: z})
        return [demur.decompose(prediction, measure=m).to_dict() for m in ("pairwise", "average", "reverse")]

    compiled = jax.jit(everything)
    # Larger ones make probabilities below 1e-38, which XLA takes for 0.
    scales = (0.3, 5.0, 15.0) if kind == "logits" else (0.3, 1.0, 5.0)
    for scale, difference, moved in itertools.product(scales, (1e-5, 1e-2, 0.1, 3.0), (0.0, 100.0)):
        logits = scale * rng.normal(size=(1, *shape[1:])) + difference * rng.normal(size=shape)
        logits += moved * rng.normal(size=(shape[0], 1, 1))
        values = (logits if kind == "logits" else loops.softmax(logits)).astype(np.float32)
        for found, expected in zip(compiled(values), everything(values.astype(np.float64)), strict=True):
            for part, value in expected.items():
                error = np.abs(np.asarray(found[part]) / value - 1.0)[value > 1e-30]
                assert error.max() < 1e-5, (part, scale, difference, moved)


@pytest.mark.parametrize(
    "rule", ["log", "zero_one", *(pytest.param(each, marks=SLOW) for each in ("brier", "spherical"))]
)
@pytest.mark.parametrize("double", [False, pytest.param(True, marks=SLOW)])
def test_jit_of_identical_members_is_exactly_zero(double, rule) -> None:
    jax = pytest.importorskip("jax")
    with jax.enable_x64(double):
        logits = jax.numpy.asarray(np.repeat(members.ordinary(1, 5, 4), 3, axis=0))

        def everything(z, w):
            names = ("pairwise", "average", "reverse")
            return [demur.decompose(logits=z, weights=w, rule=rule, measure=m).epistemic for m in names]

        for found in jax.jit(everything)(logits, jax.numpy.asarray([1.0, 2.0, 0.5])):
            np.testing.assert_array_equal(found, 0.0)


def test_jit_keeps_exact_zeros_and_infinities() -> None:
    jax = pytest.importorskip("jax")
    logits = members.ordinary(4, 3, 5)
    logits[1:, 0, 2] = -np.inf
    logits[:, 1] = logits[:1, 1]
    for double in (False, True):
        with jax.enable_x64(double):
            function = jax.jit(lambda z: demur.decompose(logits=z).epistemic)
            found = np.asarray(function(jax.numpy.asarray(logits)))
        assert found[0] == np.inf and found[1] == 0.0 and np.isfinite(found[2])


@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
def test_jit_of_information_where_members_exclude_a_class(double) -> None:
    """It is finite, and float32 takes its small terms from a series, which these are not."""
    jax = pytest.importorskip("jax")
    logits = members.ordinary(4, 3, 5)
    logits[2, 0, 1] = logits[0, 1, 3] = logits[1:, 2, 0] = -np.inf
    expected = demur.decompose(logits=logits, measure="average")
    with jax.enable_x64(double):
        function = jax.jit(lambda z: demur.decompose(logits=z, measure="average").epistemic)
        found = np.asarray(function(jax.numpy.asarray(logits)))
    np.testing.assert_allclose(found, expected.epistemic, rtol=1e-10 if double else 1e-5)


@pytest.mark.slow
def test_jit_of_weights_probabilities_unbiased_and_stderr() -> None:
    jax = pytest.importorskip("jax")
    values, weights = members.ordinary(5, 3, 4), members.weights(5)

    def function(logits):
        p = jax.nn.softmax(logits, axis=-1)
        found = demur.decompose(p, weights=weights, unbiased=True, stderr=True)
        return found.epistemic, found.stderr.epistemic

    with jax.enable_x64(True):
        logits = jax.numpy.asarray(values)
        for a, b in zip(jax.jit(function)(logits), function(logits), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10)


def test_jit_of_traced_weights() -> None:
    jax = pytest.importorskip("jax")
    values, weights = members.ordinary(5, 3, 4), members.weights(5)
    with jax.enable_x64(True):
        function = jax.jit(lambda z, w: demur.decompose(logits=z, weights=w).epistemic)
        traced = function(jax.numpy.asarray(values), jax.numpy.asarray(weights))
    concrete = demur.decompose(logits=values, weights=weights).epistemic
    np.testing.assert_allclose(traced, concrete, rtol=1e-10)


@pytest.mark.parametrize("part", loops.PARTS)
@pytest.mark.parametrize("name", loops.NAMES)
@pytest.mark.parametrize("double", [False, pytest.param(True, marks=SLOW)], ids=["float32", "float64"])
@pytest.mark.parametrize(
    "lowest", [*(pytest.param(each, marks=SLOW) for each in (-50.0, -80.0, -400.0)), -np.inf]
)
@pytest.mark.parametrize("library", ["torch", pytest.param("jax", marks=SLOW)])
def test_gradients_of_confident_members_are_numbers(library, lowest, double, name, part) -> None:
    """A class next to nothing has a gradient next to 0; a square of its probability would underflow.

    Of two inputs: members that say so of the same class, and of different ones.
    """
    module = pytest.importorskip(library)
    logits = np.broadcast_to([0.0, lowest, -1.0, -3.0], SHAPE).copy()
    logits[1:, :, 2] = -2.0
    logits[1, 1] = logits[1, 1, ::-1]

    def summed(z):
        return getattr(demur.decompose(logits=z, measure=name), part).sum()

    if library == "jax":
        with module.enable_x64(double):
            found = module.grad(summed)(module.numpy.asarray(logits))
    else:
        own = module.from_numpy(logits if double else logits.astype(np.float32)).requires_grad_()
        summed(own).backward()
        found = own.grad.numpy()
    assert np.isfinite(found).all()


@pytest.mark.slow
def test_gradients_beside_a_given_model_that_has_none() -> None:
    torch = pytest.importorskip("torch")
    jax = pytest.importorskip("jax")
    logits = torch.from_numpy(members.ordinary(*SHAPE)).requires_grad_()
    given = loops.softmax(members.ordinary(*SHAPE[1:]))
    expected = demur.decompose(logits=logits.detach(), measure=demur.Measure(given, "each")).epistemic
    sums = demur.Moments().update(given)
    for side in (given, torch.from_numpy(given), sums):
        found = demur.decompose(logits=logits, measure=demur.Measure(side, "each")).epistemic
        np.testing.assert_allclose(found.detach(), expected, rtol=1e-12)
        found.sum().backward()
    measure = demur.Measure(given, "each")
    with jax.enable_x64(True):
        found = jax.grad(lambda z: demur.decompose(logits=z, measure=measure).epistemic.sum())(
            jax.numpy.asarray(logits.detach().numpy())
        )
    np.testing.assert_allclose(3 * np.asarray(found), logits.grad, rtol=1e-9, atol=1e-14)


GIVEN = [(library, cell) for library in ("torch", "jax") for cell in demur.measures.GIVEN]


@pytest.mark.parametrize(
    ("library", "cell"),
    [pytest.param(*own, marks=[SLOW] * (own[0] == "jax")) for own in GIVEN],
)
@pytest.mark.parametrize("from_sums", [False, True], ids=["array", "Moments"])
def test_gradients_of_a_given_model_alone(from_sums, library, cell) -> None:
    """The members have none; A1 needs another given model, so it is set beside itself."""
    logits, given = members.ordinary(*SHAPE), members.ordinary(*SHAPE[1:], seed=3)

    def value(z, softmax=loops.softmax):
        measure = demur.measures.cell(cell, softmax(z))
        if from_sums:
            return demur.Moments().update(logits=logits).decompose(measure).total.sum()
        return demur.decompose(logits=logits, measure=measure, weights=[1.0, 1.0, 1.0]).total.sum()

    expected = numerical(lambda z: float(value(z)), given)
    assert np.abs(expected).max() > 0.01
    if library == "torch":
        torch = pytest.importorskip("torch")
        held = torch.from_numpy(given).requires_grad_()
        value(held, lambda z: torch.softmax(z, -1)).backward()
        found = held.grad
    else:
        jax = pytest.importorskip("jax")
        with jax.enable_x64(True):
            found = jax.grad(lambda z: value(z, jax.nn.softmax))(jax.numpy.asarray(given))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-8)


def test_gradients_of_weights_alone() -> None:
    torch = pytest.importorskip("torch")
    logits, values = torch.from_numpy(members.ordinary(4, 3, 5)), torch.from_numpy(members.weights(4))
    weights = values.clone().requires_grad_()
    found = demur.decompose(logits=logits, weights=weights).epistemic
    np.testing.assert_allclose(
        found.detach(), demur.decompose(logits=logits, weights=values).epistemic, rtol=1e-12
    )
    found.sum().backward()
    expected = numerical(
        lambda w: float(demur.decompose(logits=logits, weights=torch.from_numpy(w)).epistemic.sum()),
        values.numpy(),
    )
    np.testing.assert_allclose(weights.grad, expected, rtol=1e-5, atol=1e-8)


def test_members_without_weight_have_no_gradient() -> None:
    torch = pytest.importorskip("torch")
    probs = torch.from_numpy(loops.softmax(members.ordinary(3, 2, 4)))
    probs[1] = float("nan")
    probs.requires_grad_()
    demur.decompose(probs, weights=[1.0, 0.0, 2.0]).epistemic.sum().backward()
    assert (probs.grad[1] == 0).all() and torch.isfinite(probs.grad).all()
