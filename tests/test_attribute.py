"""attribute(): which classes the members disagree about."""

import itertools

import numpy as np
import pytest
from reference import exact, loops, members

import demur

NAMES = tuple(loops.NAMES)


def terms(p: np.ndarray, weights: np.ndarray, name: str, rule: str) -> np.ndarray:
    """The definitions, written out: (members, *batch, classes) to (*batch, classes)."""
    share = weights / weights.sum(0)
    share = share.reshape(share.shape + (1,) * (p.ndim - share.ndim))

    def mean(values: np.ndarray) -> np.ndarray:
        return (share * values).sum(0)

    if rule == "brier":
        # l = -2 p: the pairwise term is -Cov(p, l) = 2 Var(p); half of it each for I and M.
        variance = mean(p**2) - mean(p) ** 2
        return 2.0 * variance if name == "pairwise" else variance
    covariance = mean(p * np.log(p)) - mean(p) * mean(np.log(p))
    information = mean(p * np.log(p)) - mean(p) * np.log(mean(p))
    return {
        "pairwise": covariance,
        "average": information,
        "reverse": covariance - information,
    }[name]


@pytest.mark.parametrize("weighted", ["equal", "members", "inputs"])
@pytest.mark.parametrize("rule", ["log", "brier"])
@pytest.mark.parametrize("name", NAMES)
def test_the_definitions(xp, name, rule, weighted) -> None:
    logits = members.ordinary(5, 3, 4)
    weights = {
        "equal": np.ones(5),
        "members": members.weights(5),
        "inputs": members.weights(5, 3),
    }[weighted]
    actual = demur.attribute(
        logits=xp.array(logits),
        measure=name,
        rule=rule,
        weights=None if weighted == "equal" else xp.array(weights),
    )
    xp.close(actual, terms(loops.softmax(logits), weights, name, rule))


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("rule", ["log", "brier"])
@pytest.mark.parametrize("name", [*NAMES, "B2", "B3", "C2", "C3"])
def test_the_terms_sum_to_the_epistemic_part(xp, name, rule, unbiased) -> None:
    logits = xp.array(members.ordinary(5, 6, 4))
    weights = xp.array(members.weights(5))
    options = {"measure": name, "rule": rule, "weights": weights}
    if unbiased:
        options["unbiased"] = True
    by_class = xp.numpy(demur.attribute(logits=logits, **options))
    assert by_class.shape == (6, 4)
    xp.close(demur.decompose(logits=logits, **options).epistemic, by_class.sum(-1))


@pytest.mark.parametrize("shape", [(5, 40), (5, 6, 40), (5, 2, 3, 40), (8, 64, 100)], ids=str)
def test_shapes_axis_and_dtype(xp, shape) -> None:
    logits = members.ordinary(*shape)
    for dtype in ("float32", "float16"):
        actual = demur.attribute(logits=xp.array(logits, dtype))
        assert tuple(actual.shape) == shape[1:]
        assert xp.dtype_name(actual) == "float32"
        epistemic = xp.numpy(demur.decompose(logits=xp.array(logits, dtype)).epistemic)
        np.testing.assert_allclose(xp.numpy(actual).sum(-1), epistemic, rtol=1e-5)
    if len(shape) > 2:
        moved = np.moveaxis(logits, 0, 1)
        xp.close(
            demur.attribute(logits=xp.array(moved), axis=1),
            xp.numpy(demur.attribute(logits=xp.array(logits))),
        )


@pytest.mark.parametrize("name", NAMES)
def test_every_term_of_the_log_loss_is_at_least_zero(xp, name) -> None:
    """Covariance of p with an increasing function of p; Jensen's inequality, twice."""
    for difference in (1.0, 1e-3, 1e-6):
        logits = xp.array(members.agreeing(difference, 5, 50, 8))
        assert (xp.numpy(demur.attribute(logits=logits, measure=name)) >= 0).all()


@pytest.mark.parametrize("difference", [1e-2, 1e-5])
def test_near_agreement_by_class(difference) -> None:
    """Two classes at a time against mpmath: with two classes K splits as p and 1 - p."""
    logits = members.agreeing(difference, 4, 6, 2)
    expected = exact.measures(logits=logits)
    for name in NAMES:
        found = demur.attribute(logits=logits, measure=name).sum(-1)
        np.testing.assert_allclose(found, getattr(expected, name), rtol=1e-6)


def test_identical_members_have_nothing_to_attribute(xp) -> None:
    logits = xp.array(np.repeat(members.ordinary(1, 3, 4), 5, axis=0))
    for name, rule in itertools.product(NAMES, ("log", "brier")):
        actual = demur.attribute(logits=logits, measure=name, rule=rule)
        assert (xp.numpy(actual) == 0).all()


def test_excluded_classes_are_named(xp) -> None:
    logits = members.ordinary(4, 3, 5)
    logits[1, 0, 2] = -np.inf  # by one member: this class, and no other, is infinite
    logits[:, 1, 3] = -np.inf  # by all: zero
    held = xp.array(logits)
    for name in ("pairwise", "reverse"):
        found = xp.numpy(demur.attribute(logits=held, measure=name))
        assert np.isinf(found).nonzero() == (np.array([0]), np.array([2]))
        assert found[1, 3] == 0.0
    assert np.isfinite(xp.numpy(demur.attribute(logits=held, measure="average"))).all()


def test_base_and_zero_weights(xp) -> None:
    logits, weights = members.ordinary(4, 3, 5), np.array([1.0, 0.0, 2.0, 1.0])
    nats = xp.numpy(demur.attribute(logits=xp.array(logits), weights=xp.array(weights)))
    bits = demur.attribute(logits=xp.array(logits), weights=xp.array(weights), base=2)
    xp.close(bits, nats / np.log(2.0))
    kept = weights > 0
    without = demur.attribute(logits=xp.array(logits[kept]), weights=xp.array(weights[kept]))
    xp.close(without, nats)


@pytest.mark.parametrize("rule", ["spherical", "zero_one"])
def test_rules_without_such_a_reading(rule) -> None:
    with pytest.raises(ValueError, match=rule):
        demur.attribute(logits=members.ordinary(4, 3, 5), rule=rule)


def test_bad_input_is_stopped_at_the_same_door() -> None:
    with pytest.raises(ValueError, match="logits"):
        demur.attribute(members.ordinary(4, 3, 5))
    with pytest.raises(ValueError, match=r"probs.*logits.*log_probs"):
        demur.attribute()
    with pytest.raises(ValueError, match=r"measure.*pairwize[\s\S]*pairwise"):
        demur.attribute(logits=members.ordinary(4, 3, 5), measure="pairwize")
