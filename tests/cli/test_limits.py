"""`demur evaluate` of maps of pixels and of large files: limits, exact figures, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import demur
from demur.cli import app, limits


@pytest.fixture(autouse=True)
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve images with scores, labels and predicted classes, and as many unknown ones."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    hard = rng.gamma(2.0, size=(12, 1, 1))
    labels = rng.integers(0, 5, (12, 9, 8))
    wrong = rng.uniform(size=labels.shape) < np.minimum(0.5, hard / 6)
    files = {
        "scores": (hard + wrong + rng.gamma(1.0, size=wrong.shape)).astype(np.float32),
        "labels": labels,
        "predicted": (labels + wrong) % 5,
        "ood": (1 + hard + rng.gamma(1.0, size=wrong.shape)).astype(np.float32),
    }
    for name, values in files.items():
        np.save(f"{name}.npy", values)
        np.save(f"{name}-row.npy", values.reshape(-1))


def run(*arguments: Any) -> dict[str, dict[str, float]]:
    result = CliRunner().invoke(app, ["evaluate", *arguments, "--json"])
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return json.loads(result.stdout)


PIXELS = (
    "scores.npy",
    "--labels",
    "labels.npy",
    "--prediction",
    "predicted.npy",
    "--resamples",
    "100",
    "--limits",
)


@pytest.mark.parametrize("task", ["misclassification", "selective"])
def test_maps_are_evaluated_by_image(task) -> None:
    found, exact = run(task, *PIXELS), run(task, *PIXELS, "--exact")
    scores, correct = np.load("scores-row.npy"), np.load("labels-row.npy") == np.load("predicted-row.npy")
    expected = getattr(demur.tasks, task)(scores, correct, clusters=np.repeat(np.arange(12), 72))
    for name, figure in found.items():
        value = float(getattr(expected, name))
        assert exact[name]["lower"] == exact[name]["upper"] == pytest.approx(value, abs=1e-12)
        assert figure["low"] <= figure["lower"] <= value <= figure["upper"] <= figure["high"]


def test_large_files_are_counted_without_being_asked(monkeypatch) -> None:
    """One row of numbers has no images, and so no intervals."""
    files = ("ood", "--id", "scores-row.npy", "--ood", "ood-row.npy")
    assert "lower" not in run(*files, "--resamples", "100")["auroc"]
    monkeypatch.setattr(limits, "LARGE", 500)
    monkeypatch.setattr(limits, "_AT_ONCE", 100)
    found = run(*files)
    assert found == run(*files, "--limits") and "low" not in found["auroc"]
    scores = np.load("scores-row.npy"), np.load("ood-row.npy")
    assert run(*files, "--exact")["auroc"]["value"] == float(demur.tasks.detection(*scores).auroc)


def test_a_table_says_what_it_shows() -> None:
    files = ["--id", "scores.npy", "--ood", "ood.npy"]
    result = CliRunner().invoke(app, ["evaluate", "ood", *files, "--limits"])
    title = "Detection: 864 positives, 864 negatives; certain limits; intervals over draws of 24 clusters"
    assert result.stdout.splitlines()[0] == title
    result = CliRunner().invoke(app, ["evaluate", "ood", *files])  # maybe predictions of members
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("ood", "--id", "scores.npy", "--ood", "ood.npy", "--latex"), "got --latex"),
        (("ood", "--id", "scores.npy", "--ood", "ood.npy", "--splits", "3"), "got --splits"),
        (("ood", "--id", "scores.npy", "--ood", "ood-row.npy"), "expected two files of maps, or two of one"),
        (("ood", "--id", "scores.npy", "--ood", "ood.csv"), "--ood: expected one .npy file"),
        (("ood", "--id", "no.npy", "--ood", "ood.npy"), "no.npy: cannot be read"),
        (("misclassification", "scores.npy"), "--labels: expected one .npy file"),
        (("selective", "scores.npy", "--labels", "labels-row.npy", "--prediction", "predicted.npy"),
         "expected files of the same shape"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_limits_is_refused(arguments, words) -> None:
    result = CliRunner().invoke(app, ["evaluate", *arguments, "--limits"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1 and words in result.stderr


def test_a_score_that_is_no_number_is_told_with_its_place(monkeypatch) -> None:
    monkeypatch.setattr(limits, "_AT_ONCE", 100)
    scores = np.random.default_rng(0).random(300)
    np.save("id.npy", scores)
    scores[250] = np.nan
    np.save("ood.npy", scores)
    found = CliRunner().invoke(app, ["evaluate", "ood", "--id", "id.npy", "--ood", "ood.npy", "--limits"])
    assert found.exit_code == 2
    assert "ood.npy, from input 200 on: scores must be numbers" in found.stderr
    assert "first at input 50" in found.stderr
