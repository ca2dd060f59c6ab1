"""Semantic entropy against loops by its papers' formulas, closed forms and simulation."""

import math

import numpy as np
import pytest

import demur
from demur.sequences import semantic_entropy

RNG = np.random.default_rng(0)
CLUSTERS = RNG.integers(0, 4, (3, 6, 5))  # (members, draws, questions)
LOGS = -RNG.gamma(3, 2, CLUSTERS.shape)
LENGTHS = RNG.integers(1, 9, CLUSTERS.shape)


def entropy(shares: dict) -> float:
    return -math.fsum(p * math.log(p) for p in shares.values() if p > 0)


def loop(clusters, logs=None, weights=None) -> tuple[float, float]:
    """Total and aleatoric part of one question: clusters[member][draw]."""
    per_member = []
    for m, own in enumerate(clusters):
        likely = [1.0 if logs is None else math.exp(logs[m][d]) for d in range(len(own))]
        shares: dict = {}
        for cluster, weight in zip(own, likely, strict=True):
            shares[cluster] = shares.get(cluster, 0.0) + weight / math.fsum(likely)
        per_member.append(shares)
    weights = [1.0] * len(clusters) if weights is None else weights
    pooled: dict = {}
    for shares, w in zip(per_member, weights, strict=True):
        for cluster, p in shares.items():
            pooled[cluster] = pooled.get(cluster, 0.0) + w / sum(weights) * p
    mean = math.fsum(w * entropy(p) for w, p in zip(weights, per_member, strict=True)) / sum(weights)
    return entropy(pooled), mean


@pytest.mark.parametrize("form", ["discrete", "likelihood", "per token"])
@pytest.mark.parametrize("weights", [None, [0.2, 0.5, 0.3]])
def test_against_loops(form, weights) -> None:
    given = {} if form == "discrete" else {"log_likelihoods": LOGS}
    logs = None if form == "discrete" else LOGS
    if form == "per token":
        given["lengths"], logs = LENGTHS, LOGS / LENGTHS
    found = semantic_entropy(CLUSTERS, weights=weights, **given)
    for n in range(CLUSTERS.shape[-1]):
        total, mean = loop(CLUSTERS[..., n].tolist(), None if logs is None else logs[..., n], weights)
        assert found.total[n] == pytest.approx(total, rel=1e-12)
        assert found.aleatoric[n] == pytest.approx(mean, rel=1e-12)
        assert found.epistemic[n] == pytest.approx(total - mean, abs=1e-12)


def test_closed_forms() -> None:
    ten = np.arange(10)[None, :, None]  # all different
    assert float(semantic_entropy(ten).total[0]) == pytest.approx(math.log(10))
    assert float(semantic_entropy(ten // 10).total[0]) == 0
    assert float(semantic_entropy(ten, base=2).total[0]) == pytest.approx(math.log2(10))
    # 9 answers of probability p and one of 1 - 9 p are what they are, however often they were drawn.
    likely = np.log(np.where(ten == 0, 0.55, 0.05))
    wanted = -(0.55 * math.log(0.55) + 9 * 0.05 * math.log(0.05))
    assert float(semantic_entropy(ten, log_likelihoods=likely).total[0]) == pytest.approx(wanted)
    apart = semantic_entropy([["a", "a"], ["b", "b"]])
    assert (float(apart.aleatoric), float(apart.epistemic)) == (0, pytest.approx(math.log(2)))


def test_names_of_clusters_and_masked_answers_have_no_effect() -> None:
    found = semantic_entropy(CLUSTERS)
    named = semantic_entropy(np.array(list("wxyz"))[CLUSTERS])
    np.testing.assert_array_equal(named.total, found.total)
    more = np.concatenate([CLUSTERS, np.full((3, 2, 5), 99)], axis=1)
    mask = np.arange(8)[None, :, None] < np.full(more.shape, 6)
    np.testing.assert_array_equal(semantic_entropy(more, mask=mask).total, found.total)
    logs = np.concatenate([LOGS, np.full((3, 2, 5), np.nan)], axis=1)
    wanted = semantic_entropy(CLUSTERS, log_likelihoods=LOGS).epistemic
    np.testing.assert_allclose(semantic_entropy(more, log_likelihoods=logs, mask=mask).epistemic, wanted)


def test_the_bias_is_about_what_the_documentation_says() -> None:
    probs, draws = np.array([0.4, 0.3, 0.2, 0.1]), 50
    clusters = np.random.default_rng(1).choice(4, (1, draws, 4000), p=probs)
    found = semantic_entropy(clusters).total
    short = float(-(probs * np.log(probs)).sum()) - found.mean()
    error = found.std() / np.sqrt(len(found))
    assert abs(short - 3 / (2 * draws)) < 4 * error + 0.002  # the next term of the series is 0.0015 here
    assert short > 8 * error  # the control: it is biased


def test_it_is_what_decompose_says_of_the_shares() -> None:
    shares = np.stack([(c == CLUSTERS).mean(axis=1) for c in range(4)], axis=-1)
    wanted = demur.decompose(shares, measure="average")
    np.testing.assert_allclose(semantic_entropy(CLUSTERS).epistemic, wanted.epistemic, atol=1e-15)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"clusters": [1, 2, 3]}, r"clusters\[None\]"),
        ({"clusters": [[1, 2], [3]]}, "as many answers from every member"),
        ({"log_likelihoods": LOGS[:2]}, "of the shape of clusters"),
        ({"log_likelihoods": -LOGS}, r"at most 0.* at \[0, 0, 0\]"),
        ({"lengths": LENGTHS}, "go with log_likelihoods"),
        ({"log_likelihoods": LOGS, "lengths": 0 * LENGTHS}, "positive"),
        ({"mask": CLUSTERS > 5}, "an answer of each member"),
        ({"clusters": np.where(CLUSTERS[0, 0, 0] == CLUSTERS, np.nan, CLUSTERS)}, r"Got nan at \[0, 0, 0\]"),
        ({"clusters": [[["a"], [None]]]}, r"Got None at \[0, 1, 0\]"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments, message) -> None:
    with pytest.raises(ValueError, match=message) as found:
        semantic_entropy(**{"clusters": CLUSTERS, **arguments})
    assert "\n" not in str(found.value)


def test_answers_of_one_meaning_are_not_read_as_a_probability_of_yes() -> None:
    assert "Bernoulli" not in repr(semantic_entropy([[["a"], ["a"]]]))
