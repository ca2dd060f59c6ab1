"""Yes or no: Bernoulli as two classes, several labels as their sum, and what that means for I."""

import itertools

import numpy as np
import pytest
from reference import loops

import demur

MEASURES = ("pairwise", "average", "reverse", "bma")


def drawn(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).uniform(0.02, 0.98, size=shape)


def two_classes(p):
    return np.stack([1 - p, p], axis=-1)


def test_bernoulli_is_two_classes(xp) -> None:
    p = drawn(5, 4)
    ways = (demur.Bernoulli(xp.array(p)), demur.Bernoulli(logits=xp.array(np.log(p / (1 - p)))))
    for measure, made in itertools.product(MEASURES, ways):
        wanted = demur.decompose(two_classes(p), measure=measure)
        found = demur.decompose(made, measure=measure)
        for part in loops.PARTS:
            xp.close(getattr(found, part), getattr(wanted, part))


def test_bernoulli_of_one_number_each_and_other_axes() -> None:
    p = drawn(4, 5)
    wanted = demur.decompose(demur.Bernoulli(p)).epistemic
    for axis in (1, -1):
        np.testing.assert_allclose(
            demur.decompose(demur.Bernoulli(p.T), axis=axis).epistemic, wanted, rtol=1e-14
        )
    assert demur.decompose(demur.Bernoulli([0.2, 0.4])).epistemic.shape == ()
    given = demur.Measure(demur.Bernoulli(p[0]), "each")
    a3 = demur.decompose(demur.Bernoulli(p), measure=given)
    classes = demur.decompose(two_classes(p), measure=demur.Measure(two_classes(p[0]), "each"))
    np.testing.assert_allclose(a3.epistemic, classes.epistemic, rtol=1e-12)
    assert demur.max_probability(demur.Bernoulli(p)).shape == (5,)
    with pytest.raises(ValueError, match="axis of Bernoulli"):
        demur.decompose(demur.Bernoulli(p), axis=2)


def test_certain_labels_are_exact() -> None:
    for made in (
        demur.Bernoulli(np.array([[0.0, 1.0, 1.0], [1.0, 1.0, 0.5]]), rounding=0),
        demur.Bernoulli(logits=np.array([[-np.inf, np.inf, np.inf], [np.inf, np.inf, 0.0]])),
    ):
        np.testing.assert_array_equal(demur.decompose(made).epistemic, [np.inf, 0.0, np.inf])
        np.testing.assert_allclose(
            demur.decompose(made, measure="average").epistemic,
            [np.log(2), 0.0, 0.21576155433883568],
            rtol=1e-12,
        )
    labels = demur.MultiLabel(logits=np.array([[[-np.inf, np.inf, 3.0]], [[-np.inf, np.inf, 1.0]]]))
    alone = demur.decompose(demur.Bernoulli(logits=np.array([[3.0], [1.0]])))
    np.testing.assert_allclose(demur.decompose(labels).epistemic, alone.epistemic, rtol=1e-12)
    apart = demur.MultiLabel(np.array([[[0.0, 0.5]], [[0.5, 0.5]]]), rounding=0)
    assert demur.decompose(apart).epistemic == np.inf
    assert 0 < demur.decompose(apart, measure="average").epistemic < np.log(2)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("xp", ["numpy", "torch"], indirect=True)
def test_labels_add(xp, measure, weights) -> None:
    p = drawn(5, 3, 4)
    own = np.random.default_rng(1).exponential(size=5) if weights else None
    found = demur.decompose(
        demur.MultiLabel(xp.array(p)), measure=measure, weights=None if own is None else xp.array(own)
    )
    each = loops.over_batch(
        loops.decompose_one, two_classes(p), own, measure=loops.NAMES.get(measure, ("bma", "bma"))
    )
    for part in loops.PARTS:
        xp.close(getattr(found, part), each[part].sum(axis=-1))


@pytest.mark.parametrize("sides", [("given", "each"), ("each", "given"), ("given", "bma"), ("bma", "given")])
def test_given_models_of_labels(sides) -> None:
    p, q = drawn(5, 3, 4), drawn(3, 4, seed=1)
    own = [demur.MultiLabel(q) if side == "given" else side for side in sides]
    pairs = [two_classes(q) if side == "given" else side for side in sides]
    found = demur.decompose(demur.MultiLabel(p), measure=demur.Measure(*own))
    each = loops.over_batch(loops.decompose_one, two_classes(p), measure=tuple(pairs))
    for part in loops.PARTS:
        np.testing.assert_allclose(getattr(found, part), each[part].sum(axis=-1), rtol=1e-9)


@pytest.mark.parametrize("measure", ["pairwise", "average", "reverse"])
def test_standard_errors_are_those_of_the_sum(measure) -> None:
    p = drawn(6, 2, 3)

    def of_all_labels(members, weights, **options):
        rows = [
            loops.decompose_one(
                [two_classes(np.array(m))[label].tolist() for m in members], weights, **options
            )
            for label in range(3)
        ]
        return {part: sum(row[part] for row in rows) for part in loops.PARTS}

    found = demur.decompose(demur.MultiLabel(p), measure=measure, stderr=True)
    for index in range(2):
        wanted = loops.stderr_one(p[:, index].tolist(), statistic=of_all_labels, measure=loops.NAMES[measure])
        for part in loops.PARTS:
            np.testing.assert_allclose(getattr(found.stderr, part)[index], wanted[part], rtol=1e-8)


def test_the_sum_of_labels_bounds_their_joint_information() -> None:
    """All labels together are a choice among 2**L classes: there K is the same, I at most the sum."""
    p = drawn(6, 5, 3)
    outcomes = np.array(list(itertools.product((0, 1), repeat=3)))
    joint = np.prod(np.where(outcomes, p[..., None, :], 1 - p[..., None, :]), axis=-1)
    labels, together = demur.MultiLabel(p), joint
    k, joint_k = demur.decompose(labels).epistemic, demur.decompose(together).epistemic
    np.testing.assert_allclose(k, joint_k, rtol=1e-12)
    i, joint_i = (demur.decompose(q, measure="average").epistemic for q in (labels, together))
    m, joint_m = (demur.decompose(q, measure="reverse").epistemic for q in (labels, together))
    assert (i > joint_i).all() and (m < joint_m).all()
    np.testing.assert_allclose(i + m, k, rtol=1e-12)


def test_attribution_to_labels() -> None:
    p = drawn(5, 2, 3)
    found = demur.attribute(demur.MultiLabel(p))
    np.testing.assert_allclose(found, demur.decompose(demur.Bernoulli(p)).epistemic, rtol=1e-12)
    assert found.shape == (2, 3)


def test_streams_of_labels_know_their_average() -> None:
    p = drawn(5, 2, 3)
    moments = demur.Moments().update(demur.MultiLabel(p[:2])).update(demur.MultiLabel(p[2:]))
    np.testing.assert_allclose(moments.mean, p.mean(axis=0), rtol=1e-13)
    for measure in MEASURES:
        wanted = demur.decompose(demur.MultiLabel(p), measure=measure)
        np.testing.assert_allclose(moments.decompose(measure).total, wanted.total, rtol=1e-12)
        np.testing.assert_allclose(
            moments.decompose(measure).epistemic, wanted.epistemic, rtol=1e-11, atol=1e-16
        )
