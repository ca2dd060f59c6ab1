"""The best of several scores, and what cannot be told from it."""

import numpy as np
import pytest

from demur.tasks import compare, leading


def scores(seed=0, noise=0.2):
    rng = np.random.default_rng(seed)
    known, unknown = rng.normal(0, 1, 300), rng.normal(1.5, 1, 300)
    own = [(known, unknown), (2 * known, 2 * unknown), (rng.normal(size=300), rng.normal(size=300))]
    other = tuple(x + noise * rng.normal(size=300) for x in (known, unknown))
    return dict(zip(["good", "same", "none", "near"], [*own, other], strict=True))


def test_the_best_its_ties_and_the_rest():
    given = scores()
    found = leading(given, "detection")
    assert found.best == "good" and set(found.ties) >= {"same"} and "none" not in found.ties
    assert set(found.comparisons) == {"same", "none", "near"}
    for name, comparison in found.comparisons.items():
        plain = compare(given["good"], given[name], "detection")
        assert comparison.difference == plain.difference
        assert comparison.adjusted == min(1.0, 6 * plain.p_value)
    assert found.comparisons["same"].adjusted == 1.0


def test_scores_that_all_know_nothing_rarely_have_a_winner():
    # At most 5 % of draws may name one loser by chance; of 200 draws 10, and 3 standard errors of 3.1.
    wrong = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        found = leading({k: (rng.normal(size=60), rng.normal(size=60)) for k in "abcde"}, "detection")
        wrong += len(found.ties) < 4
    assert wrong <= 19


def test_errors_and_a_single_score():
    right = np.random.default_rng(0).uniform(size=100) < 0.8
    found = leading({"only": np.arange(100.0)}, "misclassification", correct=right)
    assert (found.best, found.ties, found.comparisons) == ("only", (), {})
    with pytest.raises(ValueError, match="task must be"):
        leading({"a": [1.0]}, "selective")
    with pytest.raises(ValueError, match="at least one"):
        leading({}, "detection")
