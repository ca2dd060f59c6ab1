"""The loop for a few float32 members: against extended precision, and what it leaves to other loops."""

import numpy as np
import pytest

from demur.sequences import decompose
from demur.sequences.compiled_calls import summarise_few
from demur.sequences.step_figures import compute_few_figures


@pytest.fixture(autouse=True)
def always_compile(monkeypatch) -> None:
    monkeypatch.setenv("DEMUR_COMPILE", "always")


def make(members: int, classes: int, spread: float, moved: float, rows: int = 4) -> np.ndarray:
    """Members around common logits; all logits of each may have moved together."""
    rng = np.random.default_rng(classes + members)
    common = 4 * rng.normal(size=(1, rows, classes))
    own = spread * rng.normal(size=(members, rows, classes)) + moved * rng.normal(size=(members, rows, 1))
    return (common + own).astype(np.float32)


def compute(
    logits: np.ndarray, weights: np.ndarray | None = None, prior: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Mean entropy, K, I and M, and normalisers, in extended precision."""
    alike = np.ones(logits.shape[:2])
    shares, truths = (
        (alike if each is None else each).astype(np.longdouble)[..., None] for each in (weights, prior)
    )
    shares, truths = shares / shares.sum(axis=0), truths / truths.sum(axis=0)
    wide = logits.astype(np.longdouble)
    top = wide.max(axis=-1, keepdims=True)
    normal = top[..., 0] + np.log(np.exp(wide - top).sum(axis=-1))
    logs = wide - normal[..., None]
    probs = np.exp(logs)
    average = (shares * probs).sum(axis=0)
    entropy = -(shares * probs * logs).sum(axis=(0, -1))
    m = (truths * average * (np.log(average) - logs)).sum(axis=(0, -1))
    i = (shares * probs * (logs - np.log(average))).sum(axis=(0, -1))
    return np.stack([entropy, i + m, i, m]).astype(float), normal.astype(float)


@pytest.mark.parametrize("members", [2, 3, 4])
@pytest.mark.parametrize("classes", [64, 70, 3000])
@pytest.mark.parametrize("moved", [0.0, 3.0])
def test_figures_and_normalisers_are_exact(members, classes, moved) -> None:
    """From agreement to 1e-4 on: float32 logits differ by numbers that have no rounding of their own.

    Extended precision loses 1e-19 of terms of size 1 where K is 1e-8, of which float32 arithmetic knows 1e-6.
    """
    for spread in (1e-4, 1e-2, 1.0):
        logits = make(members, classes, spread, moved)
        rows = list(logits)
        found, normal = compute_few_figures(rows, np.arange(logits.shape[1]))
        expected, expected_normal = compute(logits)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        np.testing.assert_allclose(normal, expected_normal, atol=3e-6)


@pytest.mark.parametrize("members", [2, 3, 4])
@pytest.mark.parametrize("sharpness", [1.0, 10.0])
def test_weights_differ_by_row_and_by_role(members, sharpness) -> None:
    """As after a text that one member found far likelier than the others, whichever it is."""
    for spread in (1e-3, 0.1, 3.0):
        logits = make(members, 3000, spread, 1.0, rows=12)
        rng = np.random.default_rng(members)
        weights = np.exp(sharpness * rng.normal(size=(members, 12)))
        prior = rng.uniform(0.1, 1, size=(members, 12))
        found, normal = compute_few_figures(list(logits), np.arange(12), weights, prior)
        expected, expected_normal = compute(logits, weights, prior)
        np.testing.assert_allclose(
            found, expected, rtol=1e-5, atol=1e-18
        )  # as far as extended precision goes
        np.testing.assert_allclose(normal, expected_normal, atol=3e-6)


def test_a_member_without_weight_does_not_count() -> None:
    logits = make(3, 400, 0.5, 0.0)
    weights = np.array([[0.4], [0.0], [0.6]]).repeat(4, axis=1)
    found, _ = compute_few_figures(list(logits), np.arange(4), weights, weights)
    expected, _ = compute_few_figures(list(logits[[0, 2]]), np.arange(4), weights[[0, 2]], weights[[0, 2]])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_identical_members_are_exactly_zero_and_moved_ones_nearly() -> None:
    logits = make(1, 500, 0.0, 0.0).repeat(3, axis=0)
    found, _ = compute_few_figures(list(logits), np.arange(4))
    assert (found[1:] == 0).all() and (found[0] > 0).all()


def test_only_chosen_rows_count_wherever_members_lie() -> None:
    """Members in arrays of their own, with rows beside that hold what is no number."""
    logits = make(3, 400, 0.3, 1.0, rows=6)
    apart = [np.array(each) for each in logits]
    for each in apart:
        each[[1, 4]] = np.nan
    chosen = np.array([0, 2, 3, 5])
    found, normal = compute_few_figures(apart, chosen)
    expected, expected_normal = compute_few_figures(list(logits[:, chosen]), np.arange(4))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(normal, expected_normal)


def test_rows_that_are_not_for_float32_are_left_and_right() -> None:
    """An excluded class, logits far apart, and certain members beside one another."""
    logits = make(3, 400, 0.3, 0.0, rows=4)
    logits[0, 0, 7] = -np.inf
    logits[1, 1, 9] = 300.0
    logits[:, 2, 3] = 90.0
    _, _, left = summarise_few(list(logits), np.arange(4), *[np.ones((3, 4))] * 2)
    assert set(left) >= {0, 2} and 3 not in left
    whole = decompose(logits=logits[:, None].astype(np.float64)).tokens
    found, _ = compute_few_figures(list(logits), np.arange(4))
    np.testing.assert_allclose(found[1], whole.epistemic[0], rtol=1e-5)
    assert np.isinf(found[1, 0])


def test_a_number_that_is_none_is_an_error() -> None:
    logits = make(2, 40_000, 0.3, 0.0, rows=2)
    logits[1, 1, 5] = np.nan
    with pytest.raises(ValueError, match=r"(?i)nan"):
        decompose(logits=logits[:, None])
