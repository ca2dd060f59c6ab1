"""Files of predictions are scored as arrays are, in tiles that keep to a budget."""

from __future__ import annotations

import numpy as np
import pytest
from reference.files import CLASSES, INPUTS, MEMBERS

import demur
from demur.scoring.score_files import plan_tiles, score_predictions
from demur.stores import StoreError, open_predictions


@pytest.fixture
def logits() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(MEMBERS, INPUTS, CLASSES)).astype(np.float32)


def whole(kind: str, values: np.ndarray, **options) -> dict[str, np.ndarray]:
    """Columns by `demur.decompose` on the whole array."""
    columns = {}
    for measure in ("pairwise", "average", "reverse"):
        prediction = demur.Categorical(**{kind: values})
        parts = demur.decompose(prediction, measure=measure, **options)
        for part in ("total", "aleatoric", "epistemic"):
            columns[f"{measure}_{part}"] = getattr(parts, part)
            if options.get("stderr"):
                columns[f"{measure}_{part}_stderr"] = getattr(parts.stderr, part)
    return columns


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("budget", [1, 3000, 64 << 20])
@pytest.mark.parametrize("options", [{}, {"stderr": True, "unbiased": True}, {"base": 2.0}])
def test_tiles_and_chunks_do_not_matter(tmp_path, axis, budget, options):
    logits = np.random.default_rng(3).normal(size=(20, 50, 6)) * 3
    np.save(tmp_path / "z.npy", np.moveaxis(logits, 0, axis))
    with open_predictions([tmp_path / "z.npy"], axis=axis) as predictions:
        scores = score_predictions(predictions, "logits", budget=budget, **options)
    expected = whole("logits", logits, **options)
    assert set(scores.columns) == {"input", "prediction", *expected}
    for name, values in expected.items():
        np.testing.assert_allclose(scores.columns[name], values, rtol=1e-9, atol=1e-14)
    soft = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_array_equal(scores.columns["prediction"], soft.mean(0).argmax(-1))
    np.testing.assert_array_equal(scores.columns["input"], np.arange(50))


@pytest.mark.parametrize("per_input", [False, True])
def test_weights_go_with_their_members_and_inputs(tmp_path, logits, per_input):
    weights = np.random.default_rng(4).random((MEMBERS, INPUTS) if per_input else MEMBERS)
    weights[:3] = 0  # whole chunks without any weight
    if per_input:
        weights[3, :5] = 0
    np.save(tmp_path / "z.npy", logits)
    with open_predictions([tmp_path / "z.npy"]) as predictions:
        for budget in (1, 1 << 20):
            scores = score_predictions(predictions, "logits", weights=weights, budget=budget)
            expected = whole("logits", logits, weights=weights)
            for name, values in expected.items():
                np.testing.assert_allclose(scores.columns[name], values, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e200, 2.0**1023])
@pytest.mark.parametrize("per_input", [False, True])
def test_weights_of_any_scale(tmp_path, logits, scale, per_input):
    weights = np.array([1.0, 0.0, 1.0, 1.0, 1.0])
    if per_input:
        weights = np.repeat(weights[:, None], INPUTS, axis=1)
    np.save(tmp_path / "z.npy", logits)
    with open_predictions([tmp_path / "z.npy"]) as predictions:
        expected = score_predictions(predictions, "logits", weights=weights)
        found = score_predictions(predictions, "logits", weights=weights * scale)
    for name, values in expected.columns.items():
        np.testing.assert_allclose(found.columns[name], values, rtol=1e-12)


@pytest.mark.parametrize("kind", ["probs", "log_probs"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_probabilities_of_every_precision(tmp_path, logits, kind, dtype):
    """What is as exact as its type is accepted, and its values are those of the type."""
    torch = pytest.importorskip("torch")
    exact = torch.from_numpy(logits).double().log_softmax(-1)
    tensor = (exact.exp() if kind == "probs" else exact).to(getattr(torch, dtype))
    torch.save(tensor, tmp_path / "z.pt")
    with open_predictions([tmp_path / "z.pt"]) as predictions:
        scores = score_predictions(predictions, kind)
    expected = whole(kind, tensor)
    for name, values in expected.items():
        np.testing.assert_allclose(scores.columns[name], values, rtol=1e-5, atol=1e-7)


def test_float32_probabilities_in_text(tmp_path, logits):
    """Text of float32 numbers sums to one as exactly as float32 does."""
    probs = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    for member, values in enumerate(probs):
        np.savetxt(tmp_path / f"m{member}.csv", values, delimiter=",", fmt="%.9g")
    with open_predictions([tmp_path / "*.csv"]) as predictions:
        scores = score_predictions(predictions, "probs")
    for name, values in whole("probs", probs).items():
        np.testing.assert_allclose(scores.columns[name], values, rtol=1e-4, atol=1e-7)


def test_infinity_and_top(tmp_path):
    probs = np.array([[[1, 0], [0.5, 0.5], [0.2, 0.8]], [[0, 1], [0.5, 0.5], [0.8, 0.2]]], float)
    np.save(tmp_path / "p.npy", probs)
    with open_predictions([tmp_path / "p.npy"]) as predictions:
        scores = score_predictions(predictions, "probs")
    np.testing.assert_array_equal(scores.top(2), [0, 2])
    np.testing.assert_array_equal(scores.top(9), [0, 2, 1])
    summary = scores.summary()
    assert summary["pairwise"]["epistemic"]["infinite"] == 1
    assert summary["pairwise"]["epistemic"]["max"] == "inf"
    assert summary["average"]["epistemic"]["infinite"] == 0
    assert summary["average"]["epistemic"]["max"] == pytest.approx(np.log(2))


def test_the_bad_value_is_located(tmp_path, logits):
    logits[3, 29, 1] = np.nan
    logits[3, 31, 1] = np.nan
    np.save(tmp_path / "a.npy", logits[:2])
    np.save(tmp_path / "b.npy", logits[2:])
    with open_predictions([tmp_path / "a.npy", tmp_path / "b.npy"]) as predictions:
        for budget in (1, 2000, 1 << 20):
            with pytest.raises(StoreError, match=r"b\.npy: member 1, input 29: .*nan"):
                score_predictions(predictions, "logits", budget=budget)


def test_a_plan_keeps_to_its_budget(tmp_path):
    class Sizes:
        members_together = False

        def __init__(self, members, inputs, classes, itemsize=4):
            self.members, self.inputs, self.classes = members, inputs, classes
            self.itemsize = itemsize

    for shape in [(1000, 1000, 2), (10, 10**6, 1000), (8, 64, 128_000), (10**5, 10, 1000)]:
        for groups in (1, 64):
            sizes = Sizes(*shape)
            tile, members = plan_tiles(sizes, groups=groups, budget=64 << 20)  # pyright: ignore
            assert 1 <= tile <= sizes.inputs
            assert 1 <= members <= sizes.members
            values = tile * members * sizes.classes * 4
            state = tile * sizes.classes * (80 * groups + 160)
            assert values <= 32 << 20
            assert state <= 32 << 20 or tile == 1


@pytest.mark.parametrize("weights", [None, [1.0, 0.0, 2.0, 1.0, 0.5]])
def test_rounded_probabilities_in_tiles(tmp_path, logits, weights):
    p = np.exp(3 * logits) / np.exp(3 * logits).sum(-1, keepdims=True)
    p = np.round(p.astype(np.float64), 2)
    own = None if weights is None else np.array(weights)
    np.save(tmp_path / "p.npy", p)
    with open_predictions([tmp_path / "p.npy"]) as predictions:
        for budget in (1, 1 << 20):
            scores = score_predictions(predictions, "probs", weights=own, budget=budget, rounding=0.005)
            for name, values in whole("probs", p, weights=own, rounding=0.005).items():
                np.testing.assert_allclose(scores.columns[name], values, rtol=1e-9, atol=1e-14)
            assert scores.count_infinite() == 0
            mean = np.average(p / p.sum(-1, keepdims=True), axis=0, weights=own)
            np.testing.assert_array_equal(scores.columns["prediction"], mean.argmax(-1))
