"""`demur demo`: the whole flow, from training to a figure."""

from __future__ import annotations

import builtins
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from demur.cli import app

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")


def run(*arguments: object):
    return CliRunner().invoke(app, ["demo", *(str(each) for each in arguments)])


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("demo") / "run"
    begin = time.perf_counter()
    result = run("--out", out)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert time.perf_counter() - begin < 60
    return out, result.stdout


def test_what_is_written(demo):
    out, _ = demo
    names = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    members = sorted(f"members/member_{index}.npy" for index in range(10))
    assert names == sorted(["demo.png", "labels.csv", *members, "scores.csv"])
    scores = np.genfromtxt(out / "scores.csv", delimiter=",", names=True)
    labels = np.genfromtxt(out / "labels.csv", delimiter=",", names=True)
    assert len(scores) == len(labels) == 932
    held_out = labels["held_out"] == 1
    assert set(labels["digit"][held_out]) == {8, 9}
    known = scores["prediction"][~held_out] == labels["digit"][~held_out]
    assert known.mean() > 0.95
    for measure in ("pairwise", "average", "reverse"):
        values = scores[f"{measure}_epistemic"]
        assert np.isfinite(values).all()
        assert values[held_out].mean() > 3 * values[~held_out].mean()


def test_what_is_printed(demo):
    out, text = demo
    from sklearn.metrics import roc_auc_score

    scores = np.genfromtxt(out / "scores.csv", delimiter=",", names=True)
    labels = np.genfromtxt(out / "labels.csv", delimiter=",", names=True)
    for measure in ("pairwise", "average", "reverse"):
        area = roc_auc_score(labels["held_out"], scores[f"{measure}_epistemic"])
        assert f"{area:.4f}" in text
    assert "Accuracy" in text
    assert str(np.argmax(scores["pairwise_epistemic"])) in text
    for name in ("members", "scores.csv", "labels.csv", "demo.png"):
        assert str(out / name) in text


def test_scores_are_those_of_demur_score(demo, tmp_path):
    out, _ = demo
    arguments = ["score", f"{out}/members/*.npy", "--log-probs", "--out", f"{tmp_path}/s.csv"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "s.csv").read_bytes() == (out / "scores.csv").read_bytes()


def test_figure_is_a_picture(demo):
    image = pytest.importorskip("matplotlib.image").imread(demo[0] / "demo.png")
    assert image.shape[0] > 600
    assert image.shape[1] > 1500
    assert image[..., :3].std() > 0.05


def test_a_directory_with_files_is_kept(demo, tmp_path):
    out, _ = demo
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    result = run("--out", out)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "--force" in result.stderr
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    (tmp_path / "file").write_text("x")
    result = run("--out", tmp_path / "file")
    assert result.exit_code == 2
    assert "expected a directory, got a file" in result.stderr


def test_same_seed_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr("demur.cli.digits.MEMBERS", 2)

    def content(*arguments: object) -> dict[str, bytes]:
        result = run("--out", tmp_path, "--force", *arguments)
        assert result.exit_code == 0, result.output
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        return {"stdout": result.stdout.encode(), **{f.name: f.read_bytes() for f in files}}

    first, other, again = content(), content("--seed", 1), content("--seed", 0)
    assert first == again
    assert all(first[name] != other[name] for name in first)


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    plain = builtins.__import__

    def without(name, *rest, **named):
        if name.split(".")[0] == "sklearn":
            raise ImportError("No module named 'sklearn'", name="sklearn")
        return plain(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    result = run("--out", tmp_path / "demo")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "demur[report]" in result.stderr
    assert not (tmp_path / "demo").exists()
