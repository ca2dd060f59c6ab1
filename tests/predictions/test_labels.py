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


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_saturated_sigmoids_exclude_nothing(dtype) -> None:
    """The logits' K is about 1.8e-8; a probability that rounding made 1 must not make it infinite."""
    logits = np.array([[17.5], [15.9]])
    p = (1 / (1 + np.exp(-logits))).astype(dtype)
    assert (p == 1).any()
    true = demur.decompose(demur.Bernoulli(logits=logits))
    for made in (demur.Bernoulli(p), demur.MultiLabel(p[..., None])):
        found = demur.decompose(made)
        assert 0 <= found.epistemic <= true.epistemic
        np.testing.assert_allclose(found.total, found.aleatoric + found.epistemic)


def test_the_least_k_of_a_saturated_probability_by_hand() -> None:
    p = np.array([[1.0], [0.9999999]], dtype=np.float32)
    near = np.array([[2.0**-24], [1 - float(p[1, 0])]])  # 1 may be as low as that below
    wanted = demur.decompose(demur.Bernoulli(near)).epistemic
    np.testing.assert_allclose(demur.decompose(demur.Bernoulli(p)).epistemic, wanted, rtol=1e-6)
    assert wanted < 1.8e-8
    for rounding in (None, "dtype", 2.0**-24):
        found = demur.decompose(demur.Bernoulli(p, rounding=rounding))
        also = demur.decompose(demur.Bernoulli(p), rounding=rounding)
        assert found.epistemic == also.epistemic and found.epistemic <= wanted * (1 + 1e-6)
    assert demur.decompose(demur.Bernoulli(p), rounding=0).epistemic == np.inf
    assert demur.decompose(demur.Bernoulli(p, rounding=0)).epistemic == np.inf


def test_only_saturated_numbers_are_rounded_by_default(xp) -> None:
    p = drawn(5, 6, 3)
    some = p.copy()
    some[0, 0, 0], some[1, 1, 2] = 1.0, 0.0
    for measure in ("pairwise", "average", "reverse"):
        exact = demur.decompose(demur.MultiLabel(xp.array(p)), measure=measure)
        found = demur.decompose(demur.MultiLabel(xp.array(some)), measure=measure)
        np.testing.assert_array_equal(xp.numpy(found.epistemic)[2:], xp.numpy(exact.epistemic)[2:])
        each = demur.decompose(demur.Bernoulli(xp.array(some)), measure=measure)
        assert np.isfinite(xp.numpy(each.epistemic)).all()
        capped = np.minimum(xp.numpy(each.epistemic).sum(-1), np.log(5)) if measure == "average" else None
        if measure != "reverse":
            xp.close(found.epistemic, xp.numpy(each.epistemic).sum(-1) if capped is None else capped)


def test_whole_numbers_and_weightless_ones_are_exact() -> None:
    whole = demur.Bernoulli(np.array([[1], [0]]))
    assert demur.decompose(whole).epistemic == np.inf
    assert demur.decompose(demur.Bernoulli(np.array([[True], [False]]))).epistemic == np.inf
    p = np.array([[0.3], [0.6], [1.0]])
    found = demur.decompose(demur.Bernoulli(p), weights=[1.0, 1.0, 0.0])
    assert found.epistemic == demur.decompose(demur.Bernoulli(p[:2])).epistemic


def test_where_saturated_numbers_count_as_exact() -> None:
    made = demur.Bernoulli(np.array([[0.3], [1.0], [0.6]]))
    with pytest.warns(demur.RoundingWarning, match="1 of 1 input"):
        assert demur.decompose(made, stderr=True).epistemic == np.inf
    with pytest.warns(demur.RoundingWarning):
        assert demur.decompose(made, measure=demur.Measure(made, "each")).epistemic == np.inf
    pairs = demur.decompose(made, unbiased=True).epistemic / demur.decompose(made).epistemic
    np.testing.assert_allclose(pairs, 3 / 2)


@pytest.mark.parametrize("weights", [None, [1.0, 3.0, 0.0, 2.0]])
def test_information_of_labels_is_at_most_the_entropy_of_the_weights(weights) -> None:
    p = np.random.default_rng(0).uniform(0.01, 0.99, size=(4, 50, 12))
    labels = demur.MultiLabel(p)
    shares = np.ones(4) / 4 if weights is None else np.array(weights) / 6
    most = -np.sum(shares[shares > 0] * np.log(shares[shares > 0]))
    k, i, m = (
        demur.decompose(labels, measure=name, weights=weights) for name in ("pairwise", "average", "reverse")
    )
    by_label = demur.decompose(demur.Bernoulli(p), measure="average", weights=weights).epistemic.sum(-1)
    assert (by_label > most).any() and (by_label < most).any()
    np.testing.assert_allclose(i.epistemic, np.minimum(by_label, most), rtol=1e-12)
    np.testing.assert_allclose(m.epistemic, k.epistemic - i.epistemic, rtol=1e-12)
    np.testing.assert_allclose(m.total, k.total, rtol=1e-12)
    terms = demur.attribute(labels, measure="average", weights=weights)
    np.testing.assert_allclose(terms.sum(-1), i.epistemic, rtol=1e-12)
    terms = demur.attribute(labels, measure="reverse", weights=weights)
    np.testing.assert_allclose(terms.sum(-1), m.epistemic, rtol=1e-12)


def test_streams_of_labels_know_the_entropy_of_their_weights(tmp_path) -> None:
    p = np.random.default_rng(0).uniform(0.01, 0.99, size=(4, 5, 40))
    weights = np.array([1.0, 3.0, 0.0, 2.0])
    wanted = demur.decompose(demur.MultiLabel(p), measure="average", weights=weights).epistemic
    left = demur.Moments().update(demur.MultiLabel(p[:2]), weights=weights[:2])
    right = demur.Moments().update(demur.MultiLabel(p[2:]), weights=weights[2:])
    moments = left.merge(right)
    np.testing.assert_allclose(moments.decompose("average").epistemic, wanted, rtol=1e-12)
    moments.save(tmp_path / "labels.npz")
    loaded = demur.Moments.load(tmp_path / "labels.npz")
    np.testing.assert_array_equal(
        loaded.decompose("average").epistemic, moments.decompose("average").epistemic
    )
    one = demur.Moments().update(demur.MultiLabel(p[0]), weights=0.3)
    assert (one.decompose("average").epistemic == 0).all()


def test_the_unbiased_information_of_labels_has_no_cap() -> None:
    """It estimates that of infinitely many members, whose weights have no finite entropy."""
    p = np.random.default_rng(0).uniform(0.01, 0.99, size=(4, 5, 40))
    whole = demur.decompose(demur.MultiLabel(p), measure="average", unbiased=True).epistemic
    each = demur.decompose(demur.Bernoulli(p), measure="average", unbiased=True).epistemic
    np.testing.assert_allclose(whole, each.sum(-1), rtol=1e-11)
    capped = demur.decompose(demur.MultiLabel(p), measure="average", stderr=True)
    np.testing.assert_allclose(capped.epistemic, np.log(4))
    np.testing.assert_allclose(capped.stderr.epistemic, 0, atol=1e-14)


@pytest.mark.parametrize("weights", [None, [1.0, 0.5, 0.0, 2.0]])
def test_joint_information_is_that_of_all_outcomes(xp, weights) -> None:
    p = drawn(4, 3, 5)
    outcomes = np.array(list(itertools.product((0, 1), repeat=5)))
    joint = np.prod(np.where(outcomes, p[..., None, :], 1 - p[..., None, :]), axis=-1)
    own = None if weights is None else np.array(weights)
    wanted = loops.over_batch(loops.decompose_one, joint, own, measure=loops.NAMES["average"])
    found = demur.information(demur.MultiLabel(xp.array(p)), weights=weights)
    xp.close(found.value, wanted["epistemic"])
    assert (xp.numpy(found.error) == 0).all()


@pytest.mark.parametrize("excludes", [False, True])
def test_joint_information_by_sampling_is_unbiased(excludes) -> None:
    """200 estimates of 500 draws: their mean within 4 standard errors, their spread as they say."""
    p = drawn(5, 2, 6)
    if excludes:
        p[0, 0, 0], p[1, 0, 0], p[2, 1, 3] = 0.0, 1.0, 0.0
    labels, weights = demur.MultiLabel(p, rounding=0), [1.0, 2.0, 1.0, 0.0, 0.5]
    exact = demur.information(labels, weights=weights).value
    runs = [demur.information(labels, weights=weights, samples=500, seed=seed) for seed in range(200)]
    away = np.array([(run.value - exact) / run.error for run in runs])
    assert np.abs(away.mean(axis=0)).max() < 4 / np.sqrt(200)
    assert np.abs(away.std(axis=0) - 1).max() < 4 / np.sqrt(2 * 200)
    again = demur.information(labels, weights=weights, samples=500, seed=3)
    np.testing.assert_array_equal(again.value, runs[3].value)


def test_joint_information_of_many_labels() -> None:
    p = np.random.default_rng(0).uniform(0.2, 0.8, size=(4, 3, 13))
    found = demur.information(demur.MultiLabel(p))
    outcomes = np.array(list(itertools.product((0, 1), repeat=13)))
    joint = np.prod(np.where(outcomes, p[..., None, :], 1 - p[..., None, :]), axis=-1)
    exact = demur.decompose(joint, measure="average").epistemic
    assert (found.error > 0).all() and (np.abs(found.value - exact) < 4 * found.error).all()
    same = demur.information(demur.MultiLabel(np.repeat(p[:1], 3, axis=0)))
    assert (same.value == 0).all() and (same.error == 0).all()
    bits = demur.information(demur.MultiLabel(p), base=2)
    np.testing.assert_allclose(bits.value, found.value / np.log(2))
    with pytest.raises(ValueError, match="samples must be None or an integer"):
        demur.information(demur.MultiLabel(p), samples=1)
    with pytest.raises(ValueError, match=r"samples goes with demur\.MultiLabel"):
        demur.information(demur.Gaussian(p[..., 0], variance=1.0), samples=10)
