"""The references against each other and against closed forms, before demur meets them."""

import itertools
import math

import numpy as np
import pytest

from reference import exact, loops, members


@pytest.mark.parametrize("weighted", [False, True])
def test_loops_and_mpmath_agree(weighted: bool) -> None:
    logits = members.ordinary(5, 6, 4)
    logits[:2, 1, 2] = -np.inf  # excluded by some
    logits[:, 2, 3] = -np.inf  # excluded by all
    weights = members.weights(5, 6) if weighted else None
    probs = loops.softmax(logits)
    by_mpmath = exact.measures(logits=logits, weights=weights)
    for name, measure in loops.NAMES.items():
        by_loops = loops.over_batch(loops.decompose_one, probs, weights, measure=measure)
        np.testing.assert_allclose(by_loops["epistemic"], getattr(by_mpmath, name), atol=1e-14)
    assert np.isinf(by_mpmath.pairwise[1]) and np.isfinite(by_mpmath.average[1])
    assert np.isfinite(by_mpmath.pairwise[2])


def test_loops_match_the_stated_entropies() -> None:
    p = [0.5, 0.25, 0.125, 0.125]
    norm = sum(value * value for value in p)
    stated = {
        "log": 1.75 * math.log(2.0),
        "brier": 1.0 - norm,
        "spherical": 1.0 - math.sqrt(norm),
        "zero_one": 0.5,
    }
    for rule, value in stated.items():
        assert loops.expected(p, loops.loss(rule, p)) == pytest.approx(value, rel=1e-15)


def test_closed_forms_of_the_dirichlet() -> None:
    assert exact.dirichlet([5, 5])["pairwise"] == 0.1
    uniform = exact.dirichlet([1, 1])
    assert uniform["total"] == 1.0 and uniform["entropy"] == 0.5
    assert uniform["average"] == pytest.approx(math.log(2.0) - 0.5, rel=1e-15)
    # A sample of a skewed one, within five standard errors of its batches.
    draws = np.random.default_rng(0).dirichlet([0.5, 2.0, 7.0], size=(400, 50))
    found = exact.measures(probs=draws[:200])
    for name in loops.NAMES:
        values = getattr(found, name)
        # 200 members: the bias, below 1 %, is inside the band of 50 batches.
        error = abs(values.mean() - exact.dirichlet([0.5, 2.0, 7.0])[name])
        assert error < 5 * values.std(ddof=1) / math.sqrt(50), name


def test_the_pairwise_correction_is_exactly_unbiased() -> None:
    """Over all 27 equally likely samples of 3 members from a population of 3."""
    population = loops.softmax(members.ordinary(3, 4)).tolist()
    samples = itertools.product(population, repeat=3)
    mean = np.mean([loops.unbiased_one(list(sample))["epistemic"] for sample in samples])
    assert mean == pytest.approx(loops.decompose_one(population)["epistemic"], rel=1e-13)


def test_equal_groups_give_the_usual_jackknife() -> None:
    p = loops.softmax(members.ordinary(6, 3)).tolist()
    left = [loops.decompose_one(p[:i] + p[i + 1 :])["epistemic"] for i in range(6)]
    usual = math.sqrt(5 / 6 * sum((value - np.mean(left)) ** 2 for value in left))
    assert loops.stderr_one(p)["epistemic"] == pytest.approx(usual, rel=1e-12)
