"""A contract that every family keeps: the pairs it replaces, streams, weights, files, libraries, errors."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import families, loops
from reference.families import CASES, PARTS

import demur
from demur.families import FAMILIES

NAMES = tuple(FAMILIES)
every_family = pytest.mark.parametrize("name", NAMES)
# Where a library matters less than the case: compiling it anew for each would take minutes.
in_numpy_and_torch = pytest.mark.parametrize("xp", ["numpy", "torch"], indirect=True)


def drawn(name, *shape, seed=0):
    return CASES[name].draw(np.random.default_rng([seed, *shape]), *shape)


def made(name, parameters, to=np.asarray):
    return CASES[name].make(parameters, to)


def weighted(*shape, seed=0):
    return np.random.default_rng([seed, 7, *shape]).exponential(size=shape) + 0.1


def expected(name, parameters, weights=None):
    weights = np.ones(parameters.shape[:2]) if weights is None else weights
    weights = np.broadcast_to(weights.reshape(len(weights), -1), parameters.shape[:2])
    return families.over_inputs(lambda p, w: families.pairwise(name, p, w), parameters, weights)


def close(found, wanted, rtol=1e-9, atol=0.0):
    for part in PARTS:
        np.testing.assert_allclose(np.asarray(getattr(found, part)), wanted[part], rtol=rtol, atol=atol)


def test_the_registry_is_what_the_reference_knows():
    assert set(FAMILIES) == set(CASES)
    assert all(family.name == name for name, family in FAMILIES.items())


# --- the formula --------------------------------------------------------------------------------


@every_family
def test_the_double_loop_over_pairs(xp, name) -> None:
    parameters, own = drawn(name, 5, 3), weighted(5, 3)
    found = demur.decompose(made(name, parameters, xp.array), weights=xp.array(own))
    wanted = expected(name, parameters, own)
    for part in PARTS:
        xp.close(getattr(found, part), wanted[part])


@every_family
@pytest.mark.parametrize("own", [None, weighted(5)], ids=["equal", "members"])
def test_the_double_loop_with_other_weights(name, own) -> None:
    parameters = drawn(name, 5, 3)
    close(demur.decompose(made(name, parameters), weights=own), expected(name, parameters, own))


@every_family
@pytest.mark.parametrize("given_members", [1, 2])
@in_numpy_and_torch
def test_given_models(xp, name, given_members) -> None:
    parameters, weights = drawn(name, 4, 3), weighted(4)
    other, third = drawn(name, given_members, 3, seed=1), drawn(name, given_members, 3, seed=2)

    def side(array):
        return made(name, array[0] if given_members == 1 else array, xp.array)

    ones = np.ones(given_members)
    cells = {
        (side(other), "each"): (other, parameters, (ones, weights)),
        ("each", side(other)): (parameters, other, (weights, ones)),
        (side(other), side(third)): (other, third, (ones, ones)),
    }
    for sides, (left, right, own) in cells.items():
        found = demur.decompose(
            made(name, parameters, xp.array), measure=demur.Measure(*sides), weights=xp.array(weights)
        )
        rows = [families.parts(name, left[:, i].tolist(), right[:, i].tolist(), own) for i in range(3)]
        for part in PARTS:
            xp.close(getattr(found, part), np.array([row[part] for row in rows]))


@every_family
@in_numpy_and_torch
def test_identical_members_are_exactly_zero(xp, name) -> None:
    one = drawn(name, 1, 4)
    weights = weighted(6)
    for scale in (1.0, 1.7e-5):
        same = np.repeat(one * (scale if name != "multi-label" else 1.0), 6, axis=0)
        found = demur.decompose(made(name, same, xp.array), weights=xp.array(weights))
        np.testing.assert_array_equal(xp.numpy(found.epistemic), 0.0)
        moments = demur.Moments()
        for member, weight in zip(same, weights, strict=True):
            moments.update(made(name, member, xp.array), weights=float(weight))
        np.testing.assert_array_equal(xp.numpy(moments.decompose().epistemic), 0.0)


@every_family
@pytest.mark.parametrize("difference", [1e-2, 1e-5, 1e-7])
def test_members_that_nearly_agree(name, difference) -> None:
    rng = np.random.default_rng(3)
    one = drawn(name, 1, 3)
    parameters = one * (1 + difference * rng.normal(size=(5, *one.shape[1:])))
    if name == "full Gaussian":  # still symmetric
        d = 3
        matrix = parameters[..., d:].reshape((5, 3, d, d))
        parameters[..., d:] = ((matrix + matrix.swapaxes(-1, -2)) / 2).reshape((5, 3, d * d))
    wanted = expected(name, parameters)
    close(demur.decompose(made(name, parameters)), wanted, rtol=1e-8 if difference >= 1e-5 else 1e-6)
    first = made(name, parameters[0])
    a3 = demur.decompose(made(name, parameters), measure=demur.Measure(first, "each"))
    ones = (np.ones(1), np.ones(5))
    rows = [
        families.parts(name, parameters[:1, i].tolist(), parameters[:, i].tolist(), ones) for i in range(3)
    ]
    rtol = 1e-4 if difference >= 1e-5 else 1e-2
    np.testing.assert_allclose(a3.epistemic, [row["epistemic"] for row in rows], rtol=rtol)


@every_family
@pytest.mark.parametrize("groups", [None, 3])
def test_unbiased_and_standard_errors(name, groups) -> None:
    parameters, weights = drawn(name, 6, 2), weighted(6)
    own = np.broadcast_to(weights[:, None], (6, 2))
    for unbiased in (False, True):
        statistic = families.pairwise_unbiased if unbiased else families.pairwise
        one = functools.partial(statistic, name)
        found = demur.decompose(
            made(name, parameters), weights=weights, groups=groups, stderr=True, unbiased=unbiased
        )
        close(found, families.over_inputs(one, parameters, own))
        errors = families.over_inputs(
            lambda p, w, one=one: loops.stderr_one(p, w, groups=groups, statistic=one), parameters, own
        )
        close(found.stderr, errors, rtol=1e-8)


@every_family
@in_numpy_and_torch
def test_layouts_bases_and_types(xp, name) -> None:
    parameters = drawn(name, 4, 2, 3)
    flat = demur.decompose(made(name, parameters.reshape((4, 6, -1)), xp.array))
    whole = demur.decompose(made(name, parameters, xp.array))
    moved = demur.decompose(made(name, np.moveaxis(parameters, 0, 2), xp.array), axis=2)
    bits = demur.decompose(made(name, parameters, xp.array), base=2)
    for part in PARTS:
        reference = xp.numpy(getattr(whole, part))
        assert reference.shape == (2, 3)
        np.testing.assert_array_equal(reference.reshape(-1), xp.numpy(getattr(flat, part)))
        np.testing.assert_allclose(xp.numpy(getattr(moved, part)), reference, rtol=1e-6)
        np.testing.assert_allclose(xp.numpy(getattr(bits, part)) * np.log(2), reference, rtol=1e-6)
    single = demur.decompose(made(name, parameters, lambda a: xp.array(a, "float32")))
    assert xp.dtype_name(single.epistemic) == "float32"
    np.testing.assert_allclose(xp.numpy(single.epistemic), xp.numpy(whole.epistemic), rtol=1e-4)
    lone = demur.decompose(made(name, parameters[:, 0, 0], xp.array))
    assert xp.numpy(lone.total).shape == ()


@every_family
def test_gradients_pass(name) -> None:
    torch = pytest.importorskip("torch")
    parameters = torch.tensor(drawn(name, 3, 1), requires_grad=True)

    def value(p):
        if name == "full Gaussian":  # keep it symmetric while one entry moves
            d = 3
            matrix = p[..., d:].reshape((*p.shape[:-1], d, d))
            p = torch.cat([p[..., :d], ((matrix + matrix.mT) / 2).reshape(*p.shape[:-1], d * d)], -1)
        found = demur.decompose(CASES[name].make(p, lambda a: a))
        return found.epistemic.sum() + 0.5 * found.aleatoric.sum()

    assert torch.autograd.gradcheck(value, (parameters,), eps=1e-6, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[pytest.mark.slow] * (each in ("full Gaussian", "gamma"))) for each in CASES],
)
def test_jax_traces(name) -> None:
    jax = pytest.importorskip("jax")
    parameters = drawn(name, 3, 2)

    @jax.jit
    def value(p):
        return demur.decompose(CASES[name].make(p, lambda a: a)).epistemic

    with jax.enable_x64(True):
        np.testing.assert_allclose(
            value(jax.numpy.asarray(parameters)), expected(name, parameters)["epistemic"], rtol=1e-9
        )


# --- streams ------------------------------------------------------------------------------------


@every_family
@given(data=st.data())
@settings(max_examples=10)
def test_any_chunking_order_and_split_gives_the_one_pass_result(name, data) -> None:
    count = data.draw(st.integers(2, 7))
    parameters = drawn(name, count, 2, seed=data.draw(st.integers(0, 5)))
    weights = np.array(
        data.draw(st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.5]), min_size=count, max_size=count))
    )
    weights[data.draw(st.integers(0, count - 1))] = 1.0
    order = data.draw(st.permutations(range(count)))
    machines = [demur.Moments() for _ in range(data.draw(st.integers(1, 3)))]
    start = 0
    while start < count:
        stop = data.draw(st.integers(start + 1, count))
        machine = machines[data.draw(st.integers(0, len(machines) - 1))]
        chosen = list(order[start:stop])
        if len(chosen) == 1 and data.draw(st.booleans()):
            machine.update(made(name, parameters[chosen[0]]), weights=float(weights[chosen[0]]))
        else:
            machine.update(made(name, parameters[chosen]), weights=weights[chosen])
        start = stop
    whole = functools.reduce(lambda left, right: left.merge(right), machines)
    one_pass = demur.decompose(made(name, parameters), weights=weights)
    close(whole.decompose(), {part: getattr(one_pass, part) for part in PARTS}, rtol=1e-11)
    other = made(name, drawn(name, 1, 2, seed=9)[0])
    for sides in ((other, "each"), ("each", other)):
        measure = demur.Measure(*sides)
        wanted = demur.decompose(made(name, parameters), weights=weights, measure=measure)
        close(whole.decompose(measure), {p: getattr(wanted, p) for p in PARTS}, rtol=1e-10)
    assert whole.count == np.count_nonzero(weights)
    mean = np.einsum("m,m...->...", weights / weights.sum(), CASES[name].mean(parameters))
    np.testing.assert_allclose(whole.mean, mean, rtol=1e-11)


@every_family
def test_merge_is_associative_and_commutative_with_groups(name) -> None:
    parameters, weights = drawn(name, 7, 2), weighted(7)

    def machine(index):
        part = (slice(0, 2), slice(2, 4), slice(4, None))[index]
        return demur.Moments(groups=3).update(made(name, parameters[part]), weights=weights[part])

    left = machine(0).merge(machine(1)).merge(machine(2))
    for other in (
        machine(0).merge(machine(1).merge(machine(2))),
        machine(2).merge(machine(0)).merge(machine(1)),
        demur.Moments(groups=3).merge(left),
        machine(0).merge(demur.Moments(groups=3)).merge(machine(1)).merge(machine(2)),
    ):
        a = left.decompose(stderr=True, unbiased=True)
        b = other.decompose(stderr=True, unbiased=True)
        close(b, {p: getattr(a, p) for p in PARTS}, rtol=1e-10)
        close(b.stderr, {p: getattr(a.stderr, p) for p in PARTS}, rtol=1e-9)


@every_family
@in_numpy_and_torch
def test_zero_weights_are_no_operations_whatever_they_weigh_nothing_for(xp, name) -> None:
    parameters, weights = drawn(name, 5, 3), weighted(5, 3)
    weights[0, 0] = weights[2, 1] = weights[4, 2] = 0.0
    spoiled = parameters.copy()
    for member, place in ((0, 0), (2, 1), (4, 2)):
        spoiled[member, place] = np.nan
    wanted = expected(name, parameters, weights)
    found = demur.decompose(made(name, spoiled, xp.array), weights=xp.array(weights))
    moments = demur.Moments()
    for member, own in zip(spoiled, weights, strict=True):
        moments.update(made(name, member[None], xp.array), weights=xp.array(own[None]))
    for part in PARTS:
        xp.close(getattr(found, part), wanted[part])
        xp.close(getattr(moments.decompose(), part), wanted[part])
    before = xp.numpy(moments.decompose().total)
    moments.update(made(name, spoiled[0], xp.array), weights=0.0)
    np.testing.assert_array_equal(xp.numpy(moments.decompose().total), before)


@every_family
def test_an_input_that_a_chunk_has_no_weight_for(name) -> None:
    parameters, weights = drawn(name, 5, 3), weighted(5, 3)
    weights[:2, 0] = weights[2:, 1] = 0.0
    spoiled = parameters.copy()
    spoiled[:2, 0] = spoiled[2:, 1] = np.nan
    moments = demur.Moments().update(made(name, spoiled[:2]), weights=weights[:2])
    with pytest.raises(ValueError, match="positive weight for each input"):
        moments.decompose()
    moments.update(made(name, spoiled[2:]), weights=weights[2:])
    close(moments.decompose(), expected(name, parameters, weights))


@every_family
def test_save_and_load_go_on_as_if_nothing_had_happened(name, tmp_path) -> None:
    parameters = drawn(name, 6, 3)
    moments = demur.Moments(groups=2).update(made(name, parameters[:4]))
    moments.save(tmp_path / "state.npz")
    loaded = demur.Moments.load(tmp_path / "state.npz")
    assert loaded.rule is FAMILIES[name]
    for one in (moments, loaded):
        one.update(made(name, parameters[4:]))
    a, b = moments.decompose(stderr=True), loaded.decompose(stderr=True)
    for part in PARTS:
        np.testing.assert_array_equal(getattr(a, part), getattr(b, part))
        np.testing.assert_array_equal(getattr(a.stderr, part), getattr(b.stderr, part))
    given_moments = demur.decompose(made(name, parameters), measure=demur.Measure(loaded, "each"))
    np.testing.assert_allclose(given_moments.epistemic, moments.decompose().epistemic, rtol=1e-10)


# --- errors -------------------------------------------------------------------------------------


@every_family
def test_what_does_not_belong_together(name) -> None:
    prediction = made(name, drawn(name, 3, 2))
    moments = demur.Moments().update(prediction)
    other = NAMES[(NAMES.index(name) + 1) % len(NAMES)]
    with pytest.raises(ValueError, match=f"Expected {name} predictions"):
        moments.update(made(other, drawn(other, 3, 2)))
    with pytest.raises(ValueError, match=f"Expected {name} predictions"):
        moments.update(np.full((2, 2), 0.5))
    with pytest.raises(ValueError, match="Expected predictions of classes"):
        demur.Moments().update(np.full((2, 2), 0.5)).update(prediction)
    with pytest.raises(ValueError, match="same rule"):
        moments.merge(demur.Moments().update(np.full((2, 2), 0.5)))
    with pytest.raises(ValueError, match="same rule"):
        demur.Moments(rule="brier").merge(moments)
    with pytest.raises(ValueError, match=f"Expected {name} predictions"):
        demur.decompose(prediction, measure=demur.Measure(np.full((2, 2), 0.5), "each"))
    with pytest.raises(ValueError, match="same inputs"):
        demur.decompose(prediction, measure=demur.Measure(made(name, drawn(name, 3)), "each"))
    with pytest.raises(ValueError, match=r"\(2,.*\(3,"):
        moments.update(made(name, drawn(name, 3)))
    for rule in ("brier", "spherical", "zero_one"):
        with pytest.raises(ValueError, match="rule 'log' only"):
            demur.decompose(prediction, rule=rule)
        with pytest.raises(ValueError, match="rule 'log' only"):
            demur.Moments(rule=rule).update(prediction)
    with pytest.raises(ValueError, match="predictions of classes"):
        demur.margin(prediction)
    with pytest.raises(ValueError, match="axis"):
        demur.decompose(prediction, axis=7)
    with pytest.raises(ValueError, match="exactly one"):
        demur.decompose(prediction, logits=np.zeros((2, 2, 2)))
    assert moments.count == 3


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("Gaussian", "multi-label")])
@pytest.mark.parametrize("measure", ["average", "reverse", "bma"])
def test_the_average_of_other_families_is_an_error(name, measure) -> None:
    prediction = made(name, drawn(name, 3, 2))
    for attempt in (demur.decompose, lambda p, **kw: demur.Moments().update(p).decompose(**kw)):
        with pytest.raises(ValueError, match=f"average of {name}.*information_bounds"):
            attempt(prediction, measure=measure)
    with pytest.raises(ValueError, match="sum over classes"):
        demur.attribute(prediction)


@every_family
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@in_numpy_and_torch
def test_numbers_that_are_none(xp, name, bad) -> None:
    parameters = drawn(name, 3, 2)
    for place in range(parameters.shape[-1]):
        spoiled = parameters.copy()
        spoiled[1, 0, place] = bad
        with pytest.raises(ValueError, match=r"must.*Got (nan|inf|-inf).* at \[1, 0"):
            demur.decompose(made(name, spoiled, xp.array))


@pytest.mark.parametrize("bad", [0.0, -1.0])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x: demur.Gaussian(np.zeros((2, 3)), x), r"variance must be above 0\. Got"),
        (lambda x: demur.Gaussian(np.zeros((2, 3)), scale=x), r"scale must be above 0\. Got"),
        (lambda x: demur.MultivariateGaussian(np.zeros((2, 3)), x), r"variance must be above 0\. Got"),
        (lambda x: demur.Poisson(x), r"rate must be above 0\. Got"),
        (lambda x: demur.Exponential(x), r"rate must be above 0\. Got"),
        (lambda x: demur.Gamma(x, np.ones((2, 3))), r"shape must be above 0\. Got"),
        (lambda x: demur.Gamma(np.ones((2, 3)), x), r"rate must be above 0\. Got"),
    ],
)
def test_numbers_that_are_not_positive(make, words, bad) -> None:
    numbers = np.ones((2, 3))
    numbers[1, 2] = bad
    with pytest.raises(ValueError, match=words):
        demur.decompose(make(numbers))
    with pytest.raises(ValueError, match=words):
        demur.Moments().update(make(numbers))


def test_shapes_and_arguments_that_do_not_fit() -> None:
    mean = np.zeros((4, 3))
    cases = [
        (lambda: demur.Gaussian(mean, np.ones((4, 2))), r"shape of mean, \(4, 3\).*\(4, 2\)"),
        (lambda: demur.Gaussian(mean, scale=np.ones(3)), r"scale must have the shape of mean"),
        (lambda: demur.Gaussian(mean), r"exactly one of variance, scale. Got none"),
        (lambda: demur.Gaussian(mean, 1.0, scale=1.0), r"exactly one.*Got variance and scale"),
        (lambda: demur.Gamma(np.ones(3), np.ones(4)), r"rate must have the shape of shape"),
        (lambda: demur.MultivariateGaussian(mean, covariance=np.ones((4, 3))), r"one more axis, \(4, 3, 3\)"),
        (lambda: demur.MultivariateGaussian(1.0, 1.0), "Use Gaussian"),
        (lambda: demur.MultivariateGaussian(mean, np.ones((4, 2))), "shape of mean"),
        (lambda: demur.Bernoulli(), "exactly one of probs and logits. Got none"),
        (lambda: demur.MultiLabel(np.ones(3), logits=np.ones(3)), "Got both"),
        (lambda: demur.MultiLabel(0.5), "Use Bernoulli"),
        (lambda: demur.Bernoulli(np.array([0.5, 1.5])), r"from 0 to 1. Got 1.5 at \[1\]"),
        (lambda: demur.MultiLabel(np.array([[-0.5]])), r"from 0 to 1. Got -0.5"),
        (lambda: demur.decompose(demur.Gaussian(1.0, 1.0)), "must have members"),
        (lambda: demur.decompose(demur.Gaussian(mean, 1.0), axis=2), "axis"),
        (lambda: demur.decompose(demur.MultivariateGaussian(mean, 1.0), axis=1), "outcome's"),
        (lambda: demur.decompose(demur.Gaussian(np.zeros((0, 3)), 1.0)), "at least one member"),
        (lambda: demur.decompose(demur.Gaussian(mean, 1.0), weights=np.ones(3)), "weights must have shape"),
        (lambda: demur.Moments().update(demur.Gaussian(np.zeros((2, 3, 4)), 1.0)), r"Got shape \(2, 3, 4\)"),
        (lambda: demur.decompose(demur.Gaussian(np.array([[0.0], [1e200]]), 1.0)), "below 1e300"),
        (lambda: demur.decompose(demur.Gaussian(mean, scale=1e-200)), "scale must have a square.*1e-200"),
    ]  # fmt: skip
    for attempt, words in cases:
        with pytest.raises(ValueError, match=words), np.errstate(over="ignore", invalid="ignore"):
            attempt()
    with pytest.raises(TypeError, match="mean must hold real numbers"):
        demur.Gaussian(np.zeros(3, complex), 1.0)
    with pytest.raises(TypeError, match="Expected an array"):
        demur.Gaussian("text", 1.0)


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ([[1.0, 0.5], [0.4, 1.0]], "symmetric"),
        ([[1.0, 2.0], [2.0, 1.0]], "positive definite"),
        ([[1.0, 1.0], [1.0, 1.0]], "positive definite"),
        ([[1.0, 0.0], [0.0, 0.0]], "diagonal above 0"),
        ([[1.0, 0.0], [0.0, -1.0]], "diagonal above 0"),
        ([[1.0, np.nan], [np.nan, 1.0]], "covariance must be finite"),
    ],
)
def test_matrices_that_are_no_covariance(matrix, words) -> None:
    both = np.array([np.eye(2), matrix])[:, None]
    with pytest.raises(ValueError, match=words):
        demur.decompose(demur.MultivariateGaussian(np.zeros((2, 1, 2)), covariance=both))
    # A member without weight may hold anything.
    alone = demur.MultivariateGaussian(np.zeros((2, 1, 2)), covariance=both)
    assert demur.decompose(alone, weights=[1.0, 0.0]).epistemic == 0.0


def test_shapes_are_shown_as_they_were_given() -> None:
    assert repr(demur.Gaussian(np.zeros((4, 3)), 1.0)) == "Gaussian(shape=(4, 3), float64)"
    full = demur.MultivariateGaussian(np.zeros((4, 3)), covariance=np.broadcast_to(np.eye(3), (4, 3, 3)))
    assert repr(full) == "MultivariateGaussian(shape=(4, 3), float64)"
    assert repr(demur.MultiLabel(np.zeros((4, 3)))) == "MultiLabel(shape=(4, 3), float64)"
    assert repr(demur.Bernoulli(np.zeros((4, 3)))) == "Bernoulli(probs, shape=(4, 3), float64)"
    assert repr(demur.Poisson(np.ones(3, np.float32))) == "Poisson(shape=(3,), float32)"


def test_an_axis_of_length_one_is_shared() -> None:
    mean, variance = np.array([[0.0, 1.0, 2.0], [3.0, 5.0, 1.0]]), np.array([[1.0], [4.0]])
    whole = demur.decompose(demur.Gaussian(mean, np.broadcast_to(variance, mean.shape)))
    np.testing.assert_array_equal(demur.decompose(demur.Gaussian(mean, variance)).total, whole.total)
    for wrong in (np.ones(2), np.ones((2, 2)), np.ones((1, 2, 3))):
        with pytest.raises(ValueError, match=r"must have the shape of"):
            demur.Gaussian(mean, wrong)
