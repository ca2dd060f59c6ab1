"""The matrix of divergences against loops, and how figures settle as members come."""

import math

import numpy as np
import pytest

import demur


def probabilities(members=4, inputs=3, classes=5, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(classes), (members, inputs))


def kl(p, q):
    """By its definition, with 0 log 0 = 0."""
    terms = [a * math.log(a / b) if b else math.inf for a, b in zip(p, q, strict=True) if a]
    return sum(terms)


@pytest.mark.parametrize("form", ["probs", "logits", "log_probs"])
def test_each_entry_is_the_loop_s(form):
    p = probabilities()
    given = {"probs": p, "logits": np.log(p) + 3, "log_probs": np.log(p)}[form]
    found = demur.divergences(given) if form == "probs" else demur.divergences(**{form: given})
    expected = [[[kl(p[i, n], p[j, n]) for n in range(3)] for j in range(4)] for i in range(4)]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


def test_the_mean_over_pairs_is_k():
    p = probabilities(6, 10, 4)
    np.testing.assert_allclose(demur.divergences(p).mean((0, 1)), demur.decompose(p).epistemic, rtol=1e-12)


def test_identical_members_are_exactly_0_and_exclusion_is_infinite():
    p = np.array([[0.3, 0.7, 0.0], [0.3, 0.7, 0.0], [0.2, 0.3, 0.5]])
    with pytest.warns(demur.RoundingWarning, match="1 of 1 input"):
        found = demur.divergences(p)
    assert (found[:2, :2] == 0).all() and np.diag(found).tolist() == [0, 0, 0]
    assert found[2, 0] == math.inf and math.isfinite(found[0, 2])


def test_base_axis_and_no_batch():
    p = probabilities()
    np.testing.assert_allclose(demur.divergences(p, base=2), demur.divergences(p) / math.log(2))
    np.testing.assert_allclose(demur.divergences(np.moveaxis(p, 0, 1), axis=1), demur.divergences(p))
    assert demur.divergences(p[:, 0]).shape == (4, 4)


def test_convergence_is_decompose_of_the_first_members():
    p = probabilities(20, 3, 4)
    found = demur.convergence(p)
    assert found.members[0] == 3 and found.members[-1] == 20 and (np.diff(found.members) > 0).all()
    for size, value, error in zip(*found, strict=True):
        expected = demur.decompose(p[:size], unbiased=True, stderr=True)
        np.testing.assert_array_equal(value, expected.epistemic)
        np.testing.assert_array_equal(error, expected.stderr.epistemic)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: demur.divergences(demur.Gaussian([0.0, 1.0], [1.0, 1.0])), "predictions of classes"),
        (lambda: demur.divergences(np.array([0.5, 0.5])), "members and classes"),
        (lambda: demur.convergence(probabilities(2)), "at least 3 members"),
        (lambda: demur.convergence(probabilities(5), members=[2, 5]), "from 3 to 5"),
        (lambda: demur.convergence(probabilities(5), members=[3, 6]), "from 3 to 5"),
        (lambda: demur.convergence(probabilities(5), members=[3.5]), "from 3 to 5"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
