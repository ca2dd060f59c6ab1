"""Files of predictions are scored as arrays are, in tiles that keep to a budget."""

from __future__ import annotations

import numpy as np
import pytest
from reference.files import CLASSES, INPUTS, MEMBERS

import demur
from demur.scoring.file_tiles import plan_tiles
from demur.scoring.score_files import score_predictions
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


SLOW = pytest.mark.slow


@pytest.mark.parametrize("axis", [0, pytest.param(1, marks=SLOW)])
@pytest.mark.parametrize(
    ("budget", "options"),
    [
        *((each, {}) for each in (1, 3000, 64 << 20)),
        pytest.param(1, {"stderr": True, "unbiased": True}, marks=SLOW),
        *((each, {"stderr": True, "unbiased": True}) for each in (3000, 64 << 20)),
        (3000, {"base": 2.0}),
        *(pytest.param(each, {"base": 2.0}, marks=SLOW) for each in (1, 64 << 20)),
    ],
)
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


def check(scores, prediction, options=None, measures=("pairwise", "average", "reverse")) -> None:
    """Scores of files are those of `demur.decompose` on the whole array."""
    for measure in measures:
        parts = demur.decompose(prediction, measure=measure, **(options or {}))
        for part in ("total", "aleatoric", "epistemic"):
            expected = np.asarray(getattr(parts, part)).ravel()
            np.testing.assert_allclose(scores.columns[f"{measure}_{part}"], expected, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("kind", ["logits", "probs", "log_probs"])
@pytest.mark.parametrize("budget", [1, 3000, 64 << 20])
def test_yes_or_no_for_each_task(tmp_path, kind, budget):
    z = np.random.default_rng(0).normal(size=(5, 37, 3)) * 2
    values = {"logits": z, "probs": 1 / (1 + np.exp(-z)), "log_probs": -np.log1p(np.exp(-z))}[kind]
    np.save(tmp_path / "z.npy", values)
    weights = np.random.default_rng(1).random((5, 37))
    with open_predictions([tmp_path / "z.npy"], outcome="binary") as predictions:
        scores = score_predictions(predictions, kind, budget=budget, weights=weights)
    check(scores, demur.Bernoulli(logits=z), {"weights": np.repeat(weights[..., None], 3, axis=-1)})
    np.testing.assert_array_equal(scores.columns["input"], np.repeat(np.arange(37), 3))
    assert scores.columns["task"][:4].tolist() == ["task_0", "task_1", "task_2", "task_0"]
    average = np.average(1 / (1 + np.exp(-z)), axis=0, weights=np.repeat(weights[..., None], 3, axis=-1))
    np.testing.assert_array_equal(scores.columns["prediction"], (average > 0.5).ravel())
    assert scores.sizes == {"input": 37, "task": 3, "member": 5}


@pytest.mark.parametrize("kind", ["logits", "probs", "log_probs"])
def test_several_labels(tmp_path, kind):
    z = np.random.default_rng(0).normal(size=(5, 37, 3)) * 2
    values = {"logits": z, "probs": 1 / (1 + np.exp(-z)), "log_probs": -np.log1p(np.exp(-z))}[kind]
    np.save(tmp_path / "z.npy", values)
    with open_predictions([tmp_path / "z.npy"], outcome="multilabel") as predictions:
        scores = score_predictions(predictions, kind, budget=2000)
    check(scores, demur.MultiLabel(logits=z))
    present = (1 / (1 + np.exp(-z))).mean(axis=0) > 0.5
    expected = ["|".join(f"label_{k}" for k in np.flatnonzero(row)) or "none" for row in present]
    assert scores.columns["prediction"].tolist() == expected


@pytest.mark.parametrize("budget", [1, 3000, 64 << 20])
@pytest.mark.parametrize("options", [{}, {"stderr": True, "unbiased": True}])
def test_numbers_by_mean_and_variance(tmp_path, budget, options):
    rng = np.random.default_rng(0)
    mean, variance, weights = rng.normal(size=(5, 12)), rng.random((5, 12)) + 0.1, rng.random(5)
    np.savez(tmp_path / "g.npz", mean=mean, variance=variance)
    with open_predictions([tmp_path / "g.npz"], outcome="gaussian") as predictions:
        scores = score_predictions(predictions, None, budget=budget, weights=weights, **options)
    check(scores, demur.Gaussian(mean, variance), {"weights": weights, **options})
    np.testing.assert_allclose(scores.columns["prediction"], np.average(mean, axis=0, weights=weights))


@pytest.mark.parametrize("budget", [1, 64 << 20])
def test_numbers_without_a_variance(tmp_path, budget):
    values = np.random.default_rng(0).normal(size=(5, 12, 2))
    np.save(tmp_path / "y.npy", values)
    with open_predictions([tmp_path / "y.npy"], outcome="points") as predictions:
        scores = score_predictions(predictions, None, budget=budget)
    check(scores, getattr(demur, "Points")(values))  # noqa: B009
    np.testing.assert_allclose(scores.columns["prediction"], values.mean(axis=0).ravel())


def test_pixels(tmp_path, logits):
    z = np.random.default_rng(0).normal(size=(5, 2, 3, 4, 6))  # members, inputs, classes, rows, columns
    np.save(tmp_path / "z.npy", z)
    with open_predictions([tmp_path / "z.npy"], class_axis=2) as predictions:
        scores = score_predictions(predictions, "logits", budget=3000)
    check(scores, demur.Categorical(logits=np.moveaxis(z, 2, -1)))
    where = np.unravel_index(np.arange(48), (2, 4, 6))
    for name, expected in zip(("input", "row", "column"), where, strict=True):
        np.testing.assert_array_equal(scores.columns[name], expected)


@pytest.mark.parametrize("outcome", ["classes", "binary", "multilabel", "gaussian"])
@pytest.mark.parametrize("budget", [1, 64 << 20])
def test_inputs_without_a_prediction_stay(tmp_path, outcome, budget):
    """All other inputs are scored as if these were not there."""
    kind = None if outcome == "gaussian" else "probs"
    values = np.random.default_rng(0).dirichlet([2.0, 2.0], size=(5, 20))
    values[:, [3, 11]] = np.nan
    np.save(tmp_path / "with.npy", values)
    others = np.delete(np.arange(20), [3, 11])
    np.save(tmp_path / "without.npy", values[:, others])
    with open_predictions([tmp_path / "with.npy"], outcome=outcome) as predictions:
        scores = score_predictions(predictions, kind, budget=budget)
    with open_predictions([tmp_path / "without.npy"], outcome=outcome) as predictions:
        expected = score_predictions(predictions, kind, budget=budget)
    failed = np.isin(scores.columns["input"], [3, 11])
    np.testing.assert_array_equal(scores.failed, failed)
    assert set(scores.columns["status"][failed]) == {"no prediction: NaN in all members"}
    assert set(scores.columns["status"][~failed]) == {"ok"}
    for name, column in expected.columns.items():
        if name != "input":
            np.testing.assert_array_equal(scores.columns[name][~failed], column)
            gone = scores.columns[name][failed]
            assert name in ("task", "prediction") or np.isnan(gone).all()
    assert scores.summary() == expected.summary()
    assert not failed[scores.top(100)].any() and len(scores.top(100)) == (~failed).sum()
    assert "status" not in expected.columns


def test_a_prediction_that_only_some_members_lack(tmp_path, logits):
    logits[[1, 3], 29] = np.nan
    np.save(tmp_path / "z.npy", logits)
    weights = np.ones((MEMBERS, INPUTS))
    with open_predictions([tmp_path / "z.npy"]) as predictions:
        with pytest.raises(
            StoreError, match=r"z\.npy: member 1, input 29: .*nan by 2 of 5: .*weight 0 there"
        ):
            score_predictions(predictions, "logits")
        weights[[1, 3], 29] = 0
        scores = score_predictions(predictions, "logits", weights=weights)
        assert not scores.failed.any()
        expected = demur.decompose(logits=logits[[0, 2, 4], 29:30]).epistemic
        np.testing.assert_allclose(scores.columns["pairwise_epistemic"][29], expected[0], rtol=1e-5)
        logits[:, 7] = np.nan
        weights[:3, 7] = 0
    np.save(tmp_path / "z.npy", logits)
    with open_predictions([tmp_path / "z.npy"]) as predictions:
        assert np.flatnonzero(score_predictions(predictions, "logits", weights=weights).failed).tolist() == [
            7
        ]
    np.save(tmp_path / "z.npy", np.full((2, 3, 4), np.nan))
    with (
        open_predictions([tmp_path / "z.npy"]) as predictions,
        pytest.raises(StoreError, match="NaN in all members for every input"),
    ):
        score_predictions(predictions, "logits")


def test_a_bad_number_of_a_task_is_located(tmp_path):
    values = np.full((3, 8, 2), 0.5)
    values[1, 5, 1] = 1.5
    np.save(tmp_path / "p.npy", values)
    with open_predictions([tmp_path / "p.npy"], outcome="binary") as predictions:
        for budget in (1, 1 << 20):
            with pytest.raises(
                StoreError, match=r"p\.npy: member 1, input 5, task task_1: .*from 0 to 1.*1\.5"
            ):
                score_predictions(predictions, "probs", budget=budget)
    np.savez(tmp_path / "g.npz", mean=values[..., 0], variance=np.where(values[..., 1] > 1, -1.0, 1.0))
    with (
        open_predictions([tmp_path / "g.npz"], outcome="gaussian") as predictions,
        pytest.raises(StoreError, match=r"g\.npz: member 1, input 5: variance must be above 0. Got -1"),
    ):
        score_predictions(predictions, None)
    np.save(tmp_path / "p.npy", np.log(values))
    with (
        open_predictions([tmp_path / "p.npy"], outcome="binary") as predictions,
        pytest.raises(StoreError, match=r"task task_1: log_probs must not be above 0"),
    ):
        score_predictions(predictions, "log_probs")


def test_names_of_classes_are_written_where_they_are_names(tmp_path):
    for names, written in (("cat,dog", True), ("class_0,class_1", False), ("c1,c2", False), ("0,1", False)):
        (tmp_path / "z.csv").write_text(f"{names}\n0.1,0.9\n0.8,0.2\n")
        with open_predictions([tmp_path / "z.csv"]) as predictions:
            columns = score_predictions(predictions, "probs").columns
        assert columns["prediction"].tolist() == [1, 0]
        assert ("prediction_name" in columns) == written
        assert not written or columns["prediction_name"].tolist() == ["dog", "cat"]


def test_a_saturated_yes_is_a_rounded_one(tmp_path):
    """In text and in float32 alike, as for `demur.Bernoulli`; --rounding 0 says that it is exact."""
    probs = np.float32([[[1.0, 0.3]], [[0.9999999, 0.2]]])
    np.save(tmp_path / "p.npy", probs)
    for member, rows in enumerate(probs):
        np.savetxt(tmp_path / f"p{member}.csv", rows, delimiter=",", fmt="%.9g", header="a,b", comments="")
    for names in ([tmp_path / "p.npy"], [tmp_path / "p*.csv"]):
        with open_predictions(names, outcome="binary") as predictions:
            scores = score_predictions(predictions, "probs").columns
            exact = score_predictions(predictions, "probs", rounding=0).columns
        np.testing.assert_allclose(
            scores["pairwise_epistemic"], demur.decompose(demur.Bernoulli(probs)).epistemic.ravel(), rtol=0.02
        )
        assert np.isfinite(scores["pairwise_epistemic"]).all()
        assert exact["pairwise_epistemic"][0] == np.inf and scores["prediction"].tolist() == [1, 0]


def test_printed_decimals_need_not_sum_to_one(tmp_path):
    probs = np.array([[[0.333, 0.333, 0.333], [1.0, 0.0, 0.0]], [[0.2, 0.3, 0.5], [0.9, 0.1, 0.0]]])
    np.save(tmp_path / "p.npy", probs)
    with open_predictions([tmp_path / "p.npy"]) as predictions:
        with pytest.raises(StoreError, match="member 0, input 0: probs must sum to 1"):
            score_predictions(predictions, "probs")
        scores = score_predictions(predictions, "probs", rounding=5e-4).columns
        with pytest.raises(ValueError, match="rounding goes with probabilities"):
            score_predictions(predictions, "logits", rounding=5e-4)
    expected = demur.decompose(probs, rounding=5e-4).epistemic
    np.testing.assert_allclose(scores["pairwise_epistemic"], expected, rtol=1e-12)
    assert scores["prediction"].tolist() == [2, 0]


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
