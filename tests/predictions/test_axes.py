"""Which axis is what: members and classes anywhere, and faults at the index that the user's array has."""

import itertools

import numpy as np
import pytest
from reference import loops, members

import demur

IMAGES = members.ordinary(5, 4, 3, 2, 6)  # members, inputs, classes, height, width
LAST = np.moveaxis(IMAGES, 2, -1)
FUNCTIONS = {
    "max_probability": demur.max_probability,
    "margin": demur.margin,
    "variation_ratio": demur.variation_ratio,
    "softmax_variance": demur.softmax_variance,
    "attribute": demur.attribute,
    "divergences": demur.divergences,
}


def spoil(values: np.ndarray, where: tuple[int, ...], value: float = np.nan) -> np.ndarray:
    """A copy with one entry replaced."""
    copy = values.copy()
    copy[where] = value
    return copy


def plain(array) -> np.ndarray:
    return np.asarray(array.detach() if hasattr(array, "detach") else array)


# --- where members and classes are --------------------------------------------------------------


def test_images_as_torch_has_them(xp) -> None:
    found = demur.decompose(logits=xp.array(IMAGES), class_axis=2)
    expected = loops.over_batch(loops.decompose_one, loops.softmax(LAST))
    for part in loops.PARTS:
        assert tuple(getattr(found, part).shape) == (4, 2, 6)
        xp.close(getattr(found, part), expected[part])


@pytest.mark.parametrize("size", [(4, 2, 3, 5), (9, 40, 30, 20)], ids=["generic", "kernel"])
def test_every_pair_of_axes(size) -> None:
    logits = members.ordinary(*size)  # members, two axes of inputs, classes
    weights = members.weights(*size[:-1])
    expected = demur.decompose(logits=logits, weights=weights)
    for axis, class_axis in itertools.permutations(range(4), 2):
        moved = np.moveaxis(logits, (0, -1), (axis, class_axis))
        for one, other in ((axis, class_axis), (axis - 4, class_axis - 4)):
            found = demur.decompose(logits=moved, weights=weights, axis=one, class_axis=other)
            np.testing.assert_allclose(found.epistemic, expected.epistemic, rtol=1e-12)
            assert found.epistemic.shape == size[1:-1]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_all_functions_take_the_same_axes(name, xp) -> None:
    expected = plain(FUNCTIONS[name](logits=xp.array(LAST)))
    moved = np.moveaxis(IMAGES, 0, 3)  # inputs, classes, height, members, width
    for options in ({"axis": 3}, {"member_axis": 3}, {"axis": 3, "member_axis": 3}):
        found = FUNCTIONS[name](logits=xp.array(moved), class_axis=1, **options)
        np.testing.assert_array_equal(plain(found), expected)


def test_label_variance_credal_and_convergence_take_the_same_axes() -> None:
    moved = np.moveaxis(IMAGES, 0, 3)
    axes = {"member_axis": 3, "class_axis": 1}
    np.testing.assert_array_equal(
        demur.label_variance(logits=moved, **axes).epistemic, demur.label_variance(logits=LAST).epistemic
    )
    for kind in ("hull", "intervals"):
        found, expected = demur.credal(logits=moved, set=kind, **axes), demur.credal(logits=LAST, set=kind)
        np.testing.assert_array_equal(found.upper, expected.upper)
    found, expected = demur.convergence(logits=moved, **axes), demur.convergence(logits=LAST)
    np.testing.assert_array_equal(found.value, expected.value)


def test_numbers_have_a_members_axis_of_two_names() -> None:
    gaussian = demur.Gaussian(IMAGES[:, :, 0, 0].T, 1.0)  # width, inputs, members
    expected = demur.Gaussian(np.moveaxis(IMAGES[:, :, 0, 0].T, 2, 0), 1.0)
    for function in (demur.variance, demur.information, demur.information_bounds):
        for found, wanted in zip(
            vars_of(function(gaussian, member_axis=2)), vars_of(function(expected)), strict=True
        ):
            np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(
        demur.decompose(gaussian, member_axis=-1).epistemic, demur.decompose(expected).epistemic
    )


def vars_of(result) -> list[np.ndarray]:
    return list(result.to_dict().values()) if isinstance(result, demur.Decomposition) else list(result)


def test_given_models_have_their_classes_where_the_members_have_them() -> None:
    probs, given = loops.softmax(LAST), loops.softmax(members.ordinary(2, 4, 2, 6, 3, seed=3))
    moved = np.moveaxis(probs, -1, 2)
    for own in (given[0], given):
        expected = demur.decompose(probs, measure=demur.Measure(own, "each")).epistemic
        measure = demur.Measure(np.moveaxis(own, -1, own.ndim - 3), "each")
        np.testing.assert_allclose(
            demur.decompose(moved, class_axis=2, measure=measure).epistemic, expected, rtol=1e-12
        )
    with pytest.raises(ValueError, match=r"predictor.*\(4, 3, 2, 6\).*Got \(4, 2, 6, 3\)"):
        demur.decompose(moved, class_axis=2, measure=demur.Measure(given[0], "each"))


def test_a_yes_or_no_model_beside_images_of_two_classes() -> None:
    probs = loops.softmax(members.ordinary(5, 4, 2, 6, 2))
    deployed = demur.Bernoulli(probs[0, ..., 1])
    expected = demur.decompose(probs, measure=demur.Measure(deployed, "each")).epistemic
    found = demur.decompose(np.moveaxis(probs, -1, 2), class_axis=2, measure=demur.Measure(deployed, "each"))
    np.testing.assert_allclose(found.epistemic, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_axis": 5}, r"class_axis must be an axis of logits, shape \(5, 4, 3, 2, 6\)\. Got 5"),
        ({"class_axis": "classes"}, "class_axis must be an axis"),
        ({"class_axis": None}, "class_axis must be an axis"),
        ({"class_axis": 0}, "two different axes. Got 0 and 0"),
        ({"axis": 2, "class_axis": -3}, "two different axes. Got 2 and -3"),
        ({"axis": 1, "member_axis": 2}, "axis and member_axis are two names.*Got 1 and 2"),
        ({"member_axis": 4}, "the members' axis; the last one"),
    ],
)
def test_axes_that_cannot_be(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        demur.decompose(logits=IMAGES, **options)
    with pytest.raises(ValueError, match=message):
        demur.max_probability(logits=IMAGES, **options)


@pytest.mark.parametrize(
    "prediction",
    [demur.Gaussian(IMAGES, 1.0), demur.Bernoulli(logits=IMAGES), demur.MultiLabel(logits=IMAGES)],
    ids=lambda each: type(each).__name__,
)
def test_other_predictions_have_no_classes_to_move(prediction) -> None:
    with pytest.raises(ValueError, match="class_axis goes with arrays of classes"):
        demur.decompose(prediction, class_axis=2)


def test_distributions_have_no_members_and_their_classes_last() -> None:
    dirichlet = demur.Dirichlet(np.ones((2, 3, 4)))
    with pytest.raises(ValueError, match=r"class_axis.*Dirichlet.*last"):
        demur.decompose(dirichlet, class_axis=1)
    with pytest.raises(ValueError, match="leave member_axis out"):
        demur.attribute(dirichlet, member_axis=1)
    assert demur.decompose(dirichlet, class_axis=2).total.shape == (2, 3)


# --- faults, where the user's array has them ----------------------------------------------------


@pytest.mark.parametrize("shape", [(4, 3, 2, 5), (9, 40, 30, 20)], ids=["generic", "kernel"])
def test_a_fault_is_at_its_own_index(xp, shape) -> None:
    logits = members.ordinary(*shape)
    for axis, class_axis in ((0, 3), (0, 1), (2, 0), (3, 1), (1, 3)):
        where = (2, 1, 1, 1)
        bad = xp.array(spoil(np.moveaxis(logits, (0, -1), (axis, class_axis)), where))
        with pytest.raises(ValueError, match=r"Got nan at \[2, 1, 1, 1\]\. Drop that input, or give"):
            demur.decompose(logits=bad, axis=axis, class_axis=class_axis)


def test_a_row_is_at_its_index_without_or_with_a_gap_for_the_classes() -> None:
    probs = loops.softmax(LAST)
    bad = probs.copy()
    bad[3, 2, 1, 4] *= 0.5
    with pytest.raises(ValueError, match=r"must sum to 1.*Got 0\.5 at \[3, 2, 1, 4\]\."):
        demur.decompose(bad)
    with pytest.raises(ValueError, match=r"must sum to 1.*Got 0\.5 at \[3, 2, :, 1, 4\]\."):
        demur.decompose(np.moveaxis(bad, -1, 2), class_axis=2)
    with pytest.raises(ValueError, match=r"must sum to 1.*Got 0\.5 at \[2, :, 1, 3, 4\]\."):
        demur.decompose(np.moveaxis(bad, (0, -1), (3, 1)), class_axis=1, axis=3)


@pytest.mark.parametrize("call", [demur.credal, demur.divergences, demur.margin, demur.attribute])
def test_faults_in_other_functions(call) -> None:
    with pytest.raises(ValueError, match=r"Got nan at \[2, 1, 2, 1, 5\]"):
        call(logits=spoil(IMAGES, (2, 1, 2, 1, 5)), class_axis=2)


@pytest.mark.parametrize("shape", [(7, 5), (3, 7, 5), (400, 100), (9, 400, 100)], ids=str)
def test_faults_in_a_stream(xp, shape) -> None:
    where = (2, 3) if len(shape) == 2 else (1, 2, 3)
    bad = xp.array(spoil(members.ordinary(*shape), where))
    with pytest.raises(ValueError, match=rf"Got nan at \[{', '.join(map(str, where))}\]"):
        demur.Moments().update(logits=bad)


def test_faults_of_given_models() -> None:
    probs = loops.softmax(LAST)
    places = {(3, 1, 5, 2): probs[0], (4, 3, 1, 5, 2): probs}
    for where, given in places.items():
        with pytest.raises(ValueError, match=rf"Got nan at \[{', '.join(map(str, where))}\]"):
            demur.decompose(probs, measure=demur.Measure(truth=spoil(given, where)))


def test_faults_of_other_predictions() -> None:
    number = spoil(np.full((3, 4, 2), 0.5), (1, 2, 1))
    for axis in (0, 1, 2):
        for prediction in (demur.Bernoulli(number), demur.Gaussian(number, 1.0), demur.Poisson(number)):
            with pytest.raises(ValueError, match=r"Got nan at \[1, 2, 1\]"):
                demur.decompose(prediction, axis=axis)
    for axis in (0, 1):
        for prediction in (demur.MultiLabel(number), demur.MultivariateGaussian(number, 1.0)):
            with pytest.raises(ValueError, match=r"Got nan at \[1, 2, 1\]"):
                demur.decompose(prediction, axis=axis)
    covariance = spoil(np.broadcast_to(np.eye(2), (3, 4, 2, 2)), (2, 3, 1, 0))
    with pytest.raises(ValueError, match=r"covariance must be finite\. Got nan at \[2, 3, 1, 0\]"):
        demur.decompose(demur.MultivariateGaussian(np.zeros((3, 4, 2)), covariance=covariance))


def test_the_advice_on_a_fault_works() -> None:
    bad = spoil(IMAGES, (2, 1, 2, 1, 5))
    weights = np.ones((5, 4, 2, 6))
    weights[2, 1, 1, 5] = 0
    found = demur.decompose(logits=bad, class_axis=2, weights=weights).epistemic
    assert np.isfinite(found).all()
    np.testing.assert_allclose(
        found[1, 1, 5], demur.decompose(logits=np.delete(LAST[:, 1, 1, 5], 2, axis=0)).epistemic, rtol=1e-12
    )
