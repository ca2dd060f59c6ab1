"""The metric for Lightning: against one decomposition of all inputs, over batches and over processes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import demur

torch = pytest.importorskip("torch")
torchmetrics = pytest.importorskip("torchmetrics")
from processes import run_processes  # noqa: E402

from demur.torchmetrics import FIGURES, Uncertainty  # noqa: E402


def draw() -> tuple[Any, Any]:
    """Logits of five members for 300 inputs, and labels that they are uncertain about."""
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(300, 4)) + rng.normal(size=(5, 300, 4))
    labels = (logits.mean(axis=0) + rng.gumbel(size=(300, 4))).argmax(axis=1)
    return torch.from_numpy(logits).float(), torch.from_numpy(labels)


def expected(measure: str = "pairwise", score: str = "epistemic", **options: Any) -> dict[str, float]:
    logits, labels = draw()
    parts = demur.decompose(logits=logits, measure=measure, **options)
    right = logits.softmax(-1).mean(0).argmax(-1) == labels
    found = {part: float(getattr(parts, part).double().mean()) for part in FIGURES[:3]}
    found["accuracy"] = float(right.double().mean())
    return found | {"error_auroc": float(demur.tasks.misclassification(getattr(parts, score), right).auroc)}


def compare(found: dict[str, Any], wanted: dict[str, float]) -> None:
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        np.testing.assert_allclose(float(found[name]), value, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("sizes", [[300], [1, 99, 200]])
@pytest.mark.parametrize("options", [{}, {"measure": "average", "score": "total"}, {"rule": "brier"}])
def test_batches_give_what_all_inputs_give(sizes, options) -> None:
    logits, labels = draw()
    metric = Uncertainty(**options)
    for own, target in zip(logits.split(sizes, dim=1), labels.split(sizes), strict=True):
        metric.update(own, target)
    compare(metric.compute(), expected(**options))
    metric.reset()
    metric.update(probs=logits.softmax(-1), target=labels)
    compare(metric.compute(), expected(**options))


def test_without_targets_there_are_the_parts_only() -> None:
    logits, labels = draw()
    metric = Uncertainty()
    metric.update(logits)
    compare(metric.compute(), {part: expected()[part] for part in FIGURES[:3]})
    metric.update(logits, labels)
    with pytest.raises(ValueError, match="Got 300 for 600 inputs"):
        metric.compute()


@pytest.mark.parametrize("figure", FIGURES)
def test_one_figure_is_a_scalar(figure) -> None:
    metric = Uncertainty(figure)
    metric.update(*draw())
    found = metric.compute()
    assert found.shape == () and float(found) == pytest.approx(expected()[figure], rel=1e-6)


def test_weights_of_members_count() -> None:
    logits, labels = draw()
    metric = Uncertainty()
    metric.update(logits, labels, weights=torch.tensor([0.0, 1.0, 0.0, 2.0, 0.0]))
    twice = logits[[1, 3, 3]]
    other = Uncertainty()
    other.update(twice, labels)
    compare(metric.compute(), {name: float(value) for name, value in other.compute().items()})


def test_all_right_has_no_error_to_find() -> None:
    metric = Uncertainty()
    metric.update(torch.eye(3).repeat(2, 1, 1) * 9, torch.arange(3))
    assert float(metric.compute()["accuracy"]) == 1 and torch.isnan(metric.compute()["error_auroc"])


def test_it_lives_in_a_collection_and_is_saved_with_it() -> None:
    both = {"k": Uncertainty("epistemic"), "auroc": Uncertainty("error_auroc")}
    metrics = torchmetrics.MetricCollection(both)
    metrics.update(*draw())
    assert float(metrics.compute()["auroc"]) == pytest.approx(expected()["error_auroc"], rel=1e-6)
    copy = metrics["k"].clone()
    assert float(copy.compute()) == float(metrics["k"].compute())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"figure": "auroc"}, "figure must be None or one of total, aleatoric"),
        ({"score": "all"}, "score must be one of total"),
        ({"measure": "pairwize"}, "Did you mean 'pairwise'"),
        ({"rule": "logg"}, "Did you mean 'log'"),
    ],
)
def test_wrong_names_are_errors_at_once(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        Uncertainty(**arguments)


def test_wrong_shapes_say_so() -> None:
    logits, labels = draw()
    with pytest.raises(ValueError, match=r"shape \(members, inputs, classes\)"):
        Uncertainty().update(logits.reshape(5, 30, 10, 4))
    with pytest.raises(ValueError, match=r"target must have shape \(300,\)"):
        Uncertainty().update(logits, labels[:5])
    metric = Uncertainty("error_auroc")
    metric.update(logits)
    with pytest.raises(ValueError, match="error_auroc takes targets"):
        metric.compute()


def measure_share(rank: int) -> dict[str, Any]:
    """Return the figures of all processes' inputs; the second process sees nothing at first."""
    logits, labels = draw()
    metric, late = Uncertainty(), Uncertainty()
    share = slice(0, 110) if rank == 0 else slice(110, 300)
    metric.update(logits[:, share], labels[share])
    if rank == 0:
        late.update(logits, labels)
    metric.compute()
    metric.sync()
    synced = len(torch.as_tensor(metric.pairwise_log_total))
    metric.unsync()
    mine = len(torch.cat(metric.pairwise_log_total))
    return {"all": metric.compute(), "late": late.compute(), "synced": synced, "mine": mine}


@pytest.mark.slow
def test_two_processes_give_the_result_of_one(tmp_path: Path) -> None:
    for rank, found in enumerate(run_processes(2, tmp_path, measure_share)):
        compare(found["all"], expected())
        compare(found["late"], expected())
        assert (found["synced"], found["mine"]) == (300, (110, 190)[rank])


def test_a_collection_keeps_measures_apart_that_agree_on_the_first_batch() -> None:
    logits, _ = draw()
    same = torch.zeros(5, 3, 4)
    collection = torchmetrics.MetricCollection({name: Uncertainty("total", measure=name) for name in "KI"})
    collection.update(same)
    collection.update(logits)
    whole = torch.cat([same, logits], dim=1)
    for name, found in collection.compute().items():
        wanted = demur.decompose(logits=whole, measure=name).total.double().mean()
        np.testing.assert_allclose(float(found), float(wanted), rtol=1e-6, err_msg=name)


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_without_inputs_there_is_nan() -> None:
    assert all(np.isnan(float(value)) for value in Uncertainty().compute().values())
