"""Paired differences: against loops, under no difference, and in families."""

import numpy as np
import pytest

from demur.tasks import compare, compare_all, detection, holm, selective


def pair(rng, number, noise):
    known, unknown = rng.normal(0, 1, number), rng.normal(1, 1, number)
    return (known, unknown), (known + rng.normal(0, noise, number), unknown + rng.normal(0, noise, number))


def test_delong_is_that_of_loops() -> None:
    a, b = pair(np.random.default_rng(0), 40, 1.0)
    a = tuple(x.round(1) for x in a)
    kernels = [(u[:, None] > k) + (u[:, None] == k) / 2 for k, u in (a, b)]
    d = kernels[0] - kernels[1]
    error = np.sqrt(d.mean(1).var(ddof=1) / 40 + d.mean(0).var(ddof=1) / 40)
    found = compare(a, b, "detection").difference
    assert found.value == pytest.approx(d.mean(), abs=1e-14)
    assert found.high - found.value == pytest.approx(1.959963984540054 * error, rel=1e-12)


@pytest.mark.parametrize("figure", ["auroc", "aupr", "fpr95"])
def test_the_difference_is_that_of_the_figures(figure) -> None:
    a, b = pair(np.random.default_rng(1), 60, 1.0)
    found = compare(a, b, "detection", figure=figure, resamples=200)
    expected = (
        getattr(detection(*a, resamples=100), figure).value
        - getattr(detection(*b, resamples=100), figure).value
    )
    assert found.difference.value == pytest.approx(expected, abs=1e-14)
    same = compare(a, a, "detection", figure=figure, resamples=200)
    assert (same.difference.value, same.difference.low, same.difference.high, same.p_value) == (0, 0, 0, 1)


def test_selective_difference() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.uniform(size=(2, 400)).round(2)
    correct = rng.uniform(size=400) > a / 2
    found = compare(a, b, "selective", correct=correct, resamples=300)
    expected = selective(a, correct, resamples=100).auc.value - selective(b, correct, resamples=100).auc.value
    assert found.difference.value == pytest.approx(expected, abs=1e-14)
    assert found.p_value < 0.02 and found.difference.low > 0


def test_perfect_against_perfectly_wrong() -> None:
    found = compare(([0.0] * 5, [1.0] * 5), ([1.0] * 5, [0.0] * 5), "detection")
    assert found.difference.value == 1 and found.difference.low < 1
    assert found.p_value == pytest.approx(2 * np.exp(-2.5))


def test_holm_of_a_family() -> None:
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.5]), [0.04, 0.09, 0.09, 0.5])
    a, b = pair(np.random.default_rng(3), 100, 2.0)
    found = compare_all({"a": a, "b": b, "same": a}, "detection")
    assert list(found) == [("a", "b"), ("a", "same"), ("b", "same")]
    assert found["a", "b"].adjusted == pytest.approx(3 * found["a", "b"].p_value)
    assert found["a", "same"].adjusted == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compare([1.0], [2.0], "ranking"), "task must be one of 'detection'"),
        (lambda: compare([1.0], [2.0], "selective"), "correct must be given for selective"),
        (
            lambda: compare([1.0], [2.0], "selective", correct=[1], figure="auroc"),
            "figure must be one of 'auc'",
        ),
        (lambda: compare([1.0], [2.0], "detection"), "a must be a pair for detection"),
        (lambda: compare(([1.0], [2.0]), ([1.0], [2.0, 3.0]), "detection"), "scores of the same inputs"),
        (lambda: compare([1.0], [2.0], "misclassification", correct=[1]), "Got one kind"),
        (lambda: compare_all({"a": [1.0]}, "selective", correct=[1]), "at least 2 names"),
    ],
)
def test_bad_input_is_told(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()
