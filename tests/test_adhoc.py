"""Scores that people compare with: higher where the prediction is less certain."""

import math

import numpy as np
import pytest
from reference import loops, members

import demur

PER_INPUT = ("max_probability", "margin", "variation_ratio", "softmax_variance")


def by_definition(name: str, p: np.ndarray, weights: np.ndarray) -> float:
    """One input: members (members, classes) and weights (members,)."""
    share = [float(w) / math.fsum(weights) for w in weights]
    mean = [math.fsum(s * row[y] for s, row in zip(share, p, strict=True)) for y in range(p.shape[1])]
    top = sorted(mean, reverse=True)
    if name == "max_probability":
        return 1.0 - top[0]
    if name == "margin":
        return 1.0 - (top[0] - top[1])
    if name == "variation_ratio":
        votes = [0.0] * p.shape[1]
        for s, row in zip(share, p, strict=True):
            winners = np.flatnonzero(row == row.max())
            for y in winners:  # ties share equally
                votes[y] += s / len(winners)
        return 1.0 - max(votes)
    if name == "softmax_variance":
        squares = math.fsum(
            s * (row[y] - mean[y]) ** 2 for s, row in zip(share, p, strict=True) for y in range(p.shape[1])
        )
        return squares / p.shape[1]  # Smith and Gal: the average over classes
    raise AssertionError(name)


@pytest.mark.parametrize("weighted", ["equal", "members", "inputs"])
@pytest.mark.parametrize("name", PER_INPUT)
def test_the_definitions(xp, name, weighted) -> None:
    logits = members.ordinary(7, 6, 4)
    weights = {
        "equal": np.ones(7),
        "members": members.weights(7),
        "inputs": members.weights(7, 6),
    }[weighted]
    actual = getattr(demur, name)(
        logits=xp.array(logits), weights=None if weighted == "equal" else xp.array(weights)
    )
    own = weights if weights.ndim == 2 else np.repeat(weights[:, None], 6, axis=1)
    p = loops.softmax(logits)
    xp.close(actual, np.array([by_definition(name, p[:, i], own[:, i]) for i in range(6)]))


@pytest.mark.parametrize("name", PER_INPUT)
@pytest.mark.parametrize("shape", [(5, 4), (5, 1, 4), (5, 2, 3, 4), (8, 64, 100)], ids=str)
def test_conventions_are_those_of_decompose(xp, name, shape) -> None:
    score = getattr(demur, name)
    logits = members.ordinary(*shape)
    expected = xp.numpy(score(logits=xp.array(logits)))
    assert expected.shape == shape[1:-1]
    # The three ways to give predictions, the axis of the members, and their order.
    p = loops.softmax(logits)
    xp.close(score(xp.array(p)), expected)
    xp.close(score(log_probs=xp.array(np.log(p))), expected)
    xp.close(score(logits=xp.array(logits[::-1])), expected)
    if len(shape) > 2:
        xp.close(score(logits=xp.array(np.moveaxis(logits, 0, 1)), axis=1), expected)
    # Members of weight zero are not there.
    weights = np.ones(shape[0])
    weights[1] = 0.0
    kept = weights > 0
    xp.close(
        score(logits=xp.array(logits), weights=xp.array(weights)),
        xp.numpy(score(logits=xp.array(logits[kept]))),
    )
    for dtype in ("float16", "float32"):
        assert xp.dtype_name(score(logits=xp.array(logits, dtype))) == "float32"


@pytest.mark.parametrize("name", PER_INPUT)
def test_certain_and_unanimous_is_zero_and_otherwise_more(xp, name) -> None:
    certain = np.zeros((3, 1, 4))
    certain[..., 1] = 1.0
    score = getattr(demur, name)
    assert xp.numpy(score(xp.array(certain)))[0] == 0.0
    contradiction = np.zeros((4, 1, 4))
    contradiction[np.arange(4), 0, np.arange(4)] = 1.0
    most = {"max_probability": 0.75, "margin": 1.0, "variation_ratio": 0.75}
    # Variance of one Bernoulli(1/4) for each of four classes.
    xp.close(score(xp.array(contradiction)), np.array([most.get(name, 3.0 / 16.0)]))


def test_ties_of_votes_share_equally() -> None:
    p = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.25, 0.75]])
    # Votes: 1/3, 1/3, 1/3.
    np.testing.assert_allclose(demur.variation_ratio(p), 2.0 / 3.0, rtol=1e-14)


def test_softmax_variance_is_the_brier_mutual_information(xp) -> None:
    logits, weights = xp.array(members.ordinary(6, 5, 4)), xp.array(members.weights(6))
    average = demur.decompose(logits=logits, weights=weights, measure="average", rule="brier")
    expected = xp.numpy(average.epistemic) / 4
    xp.close(demur.softmax_variance(logits=logits, weights=weights), expected)


def test_softmax_variance_bounds_the_mutual_information() -> None:
    """Pinsker below, the tangent of the logarithm above."""
    p = loops.softmax(members.ordinary(6, 500, 4))
    information = demur.decompose(p, measure="average").epistemic
    variance = 4 * demur.softmax_variance(p)
    assert (variance <= information).all()
    assert (information <= (p.var(0) / p.mean(0)).sum(-1)).all()


@pytest.mark.parametrize("difference", [1e-2, 1e-4, 1e-6])
def test_softmax_variance_keeps_its_digits_near_agreement(difference) -> None:
    logits = members.agreeing(difference, 6, 5, 4)
    # Two passes in long double: the deviations themselves, squared.
    p = np.exp(logits.astype(np.longdouble))
    p /= p.sum(-1, keepdims=True)
    expected = ((p - p.mean(0)) ** 2).mean((0, -1)).astype(np.float64)
    np.testing.assert_allclose(demur.softmax_variance(logits=logits), expected, rtol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_label_variance_is_the_law_of_total_variance(xp, weighted) -> None:
    logits = members.ordinary(6, 3, 4)
    weights = members.weights(6) if weighted else np.ones(6)
    actual = demur.label_variance(logits=xp.array(logits), weights=xp.array(weights) if weighted else None)
    p = loops.softmax(logits)
    share = (weights / weights.sum())[:, None, None]
    mean = (share * p).sum(0)
    xp.close(actual.total, mean * (1 - mean))
    xp.close(actual.aleatoric, (share * p * (1 - p)).sum(0))
    xp.close(actual.epistemic, (share * (p - mean) ** 2).sum(0))
    brier = demur.decompose(
        logits=xp.array(logits),
        weights=xp.array(weights) if weighted else None,
        measure="average",
        rule="brier",
    )
    for part in loops.PARTS:
        xp.close(getattr(brier, part), xp.numpy(getattr(actual, part)).sum(-1))


@pytest.mark.parametrize("margin", [1.0, 40.0, 600.0, np.inf])
def test_label_variance_of_confident_members_is_not_lost_in_one(margin) -> None:
    """p (1 - p) is exp(-margin), not what rounding leaves of 1 - 1, also if members contradict each other."""
    logits = np.zeros((3, 4, 2))
    logits[0, :, 0] = logits[1:, :, 1] = -margin
    found = demur.label_variance(logits=logits).aleatoric
    odds = np.exp(-margin)
    np.testing.assert_allclose(found, np.full((4, 2), odds / (1 + odds) ** 2), rtol=1e-14)
    rng = np.random.default_rng(0)
    mixed = demur.label_variance(rng.dirichlet(np.full(3, 1e-3), size=(10, 500)))
    assert min(part.min() for part in mixed.to_dict().values()) >= 0


def test_identical_members_have_no_variance(xp) -> None:
    logits = xp.array(np.repeat(members.ordinary(1, 3, 4), 7, axis=0))
    assert (xp.numpy(demur.softmax_variance(logits=logits)) == 0).all()
    assert (xp.numpy(demur.label_variance(logits=logits).epistemic) == 0).all()


@pytest.mark.parametrize("name", [*PER_INPUT, "label_variance"])
def test_bad_input_is_stopped_at_the_same_door(name) -> None:
    score = getattr(demur, name)
    with pytest.raises(ValueError, match="logits"):
        score(members.ordinary(4, 3, 5))
    with pytest.raises(ValueError, match=r"probs.*logits.*log_probs"):
        score()
    with pytest.raises(ValueError, match="weights"):
        score(logits=members.ordinary(4, 3, 5), weights=np.ones(3))


@pytest.mark.parametrize("name", PER_INPUT)
def test_one_class_and_one_member(name) -> None:
    score = getattr(demur, name)
    assert score(np.ones((3, 2, 1))).shape == (2,)
    np.testing.assert_array_equal(score(np.ones((3, 2, 1))), np.zeros(2))
    assert np.isfinite(score(logits=members.ordinary(1, 2, 3))).all()
