"""The best of several scores, and what cannot be told from it."""

import numpy as np
import pytest

from demur.tasks import compare_all, contest


def scores(seed=0, noise=0.2):
    rng = np.random.default_rng(seed)
    known, unknown = rng.normal(0, 1, 300), rng.normal(1.5, 1, 300)
    own = [(known, unknown), (2 * known, 2 * unknown), (rng.normal(size=300), rng.normal(size=300))]
    other = tuple(x + noise * rng.normal(size=300) for x in (known, unknown))
    return dict(zip(["good", "same", "none", "near"], [*own, other], strict=True))


def marked(found, mark, figure="auroc"):
    """The scores of the only method that have a mark."""
    (standings,) = found.standings[figure].values()
    return {name for name, standing in standings.items() if getattr(standing, mark)}


def test_the_best_its_ties_and_the_rest():
    given = scores()
    found = contest({"": given}, "detection")
    assert found.best("auroc", "") == "good" and marked(found, "best") == {"good", "same"}
    assert "none" not in marked(found, "tied")
    expected = compare_all(given, "detection")
    assert {key[2:]: each for key, each in found.comparisons.items()} == expected
    assert found.difference("auroc", "", "good", "none") == expected["good", "none"]
    turned = found.difference("auroc", "", "none", "good")
    plain = expected["good", "none"]
    assert (turned.difference.low, turned.difference.value) == (
        -plain.difference.high,
        -plain.difference.value,
    )
    assert turned.adjusted == plain.adjusted
    assert found.difference("auroc", "", "good", "same").adjusted == 1.0


def test_ties_are_those_of_the_adjusted_p_values():
    for noise in (0.2, 0.4, 0.6):
        found = contest({"": scores(noise=noise)}, "detection")
        told = found.difference("auroc", "", "good", "near").adjusted <= 0.05
        assert ("near" in marked(found, "tied")) == (not told)


@pytest.mark.parametrize("runs", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_scores_that_all_know_nothing_rarely_have_a_winner(runs):
    # At most 5 % of draws may name one loser by chance; of 200 draws 10, and 3 standard errors of 3.1.
    wrong = 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        given = {k: (rng.normal(size=60), rng.normal(size=60)) for k in "abcde"}
        found = contest({"": given}, "detection", interval="asymptotic")
        wrong += len(marked(found, "tied")) + len(marked(found, "best")) < 5
    assert wrong <= runs * (0.05 + 3 * np.sqrt(0.05 * 0.95 / runs))


def test_other_groups_have_the_same_p_values():
    found = contest({"": scores(noise=0.4)}, "detection")
    parts = found.regroup([["good", "same"], ["none", "near"]])
    assert parts.comparisons == found.comparisons
    assert marked(parts, "best") == {"good", "same", "near"} and marked(parts, "tied") == set()
    assert marked(found.regroup([["good", "near"], ["none"]]), "tied") == marked(found, "tied")
    assert found.regroup([list(scores())]).standings == found.standings


def test_errors_and_a_single_score():
    right = np.random.default_rng(0).uniform(size=100) < 0.8
    found = contest({"m": {"only": np.arange(100.0)}}, "misclassification", correct={"m": right})
    assert found.best("auroc", "m") == "only" and found.comparisons == {}
    assert marked(found, "best") == marked(found, "tied") == set()
    with pytest.raises(ValueError, match="task must be"):
        contest({"m": {"a": [1.0]}}, "other")
    with pytest.raises(ValueError, match="at least one"):
        contest({}, "detection")
