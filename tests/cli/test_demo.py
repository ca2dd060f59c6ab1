"""`demur demo`: the whole flow, from training to the report."""

from __future__ import annotations

import functools
import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from demur.cli import app
from demur.posteriors import DeepEnsemble
from demur.report.page import list_provenance
from demur.report.run_folder import read_run
from demur.stores import read_columns

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")

METHODS = ("deep-ensemble", "last-layers", "mc-dropout", "cyclical-sghmc")
SETS = ("id", "ood-unseen", "adversarial-pgd")


def run(*arguments: object):
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture(scope="module", params=["quick", pytest.param("whole", marks=pytest.mark.slow)])
def demo(request, tmp_path_factory) -> Iterator[tuple[Path, str]]:
    """The folder and what was said.

    Resampling takes a third of the time, and processes that train seconds to start: in every run, intervals
    are by formulas, and networks are trained here.
    """
    out = tmp_path_factory.mktemp("demo") / "run"
    with pytest.MonkeyPatch.context() as patched:
        if request.param == "quick":
            patched.setattr("demur.tasks.estimate.RESAMPLED_UP_TO", 0)
            fit = functools.partial(DeepEnsemble.fit, processes=0)
            patched.setattr(DeepEnsemble, "fit", staticmethod(fit))
        result = run("demo", "--out", out)
        assert result.exit_code == 0, result.output
        assert result.stderr == ""
        yield out, result.stdout


def test_scores_tell_what_they_should(demo):
    out, _ = demo
    for method in METHODS:
        known, strange, attacked = (read_columns(out / method / f"{which}.csv") for which in SETS)
        assert len(known["label"]) == len(attacked["label"]) == 1011
        assert set(strange["label"]) == {8, 9} and len(strange["label"]) == 354
        right = known["prediction"] == known["label"]
        assert right.mean() > 0.96
        assert (attacked["prediction"] == attacked["label"]).mean() < right.mean() - 0.1
        for measure in ("pairwise", "average", "reverse"):
            name = f"{measure}_epistemic"
            assert np.isfinite(known[name]).all()
            assert np.median(strange[name]) > 2 * np.median(known[name]), (method, name)


def test_tables_are_those_of_the_command_line(demo):
    out, text = demo
    for method in METHODS:
        files = [f"{out}/{method}/{which}.csv" for which in SETS]
        for other in files[1:]:
            found = run(
                "evaluate", "ood", "--id", files[0], "--ood", other, "--score", "pairwise_total", "--json"
            )
            assert f"{json.loads(found.stdout)['auroc']['value']:.3f}".lstrip("0") in text
        found = run("evaluate", "selective", files[0], "--score", "average_epistemic", "--json")
        assert f"{json.loads(found.stdout)['auc']['value']:.3f}".lstrip("0") in text
    assert r"\toprule" in (out / "tables.tex").read_text()
    assert "Epistemic, pairwise KL" in (out / "tables.md").read_text()


def test_headings_and_marks_are_explained(demo):
    out, text = demo
    head = text.split("Four ways to draw models")[1].splitlines()[1:3]
    assert [line.split() for line in head] == [
        ["accuracy", "on", "accuracy", "on"],
        ["method", "known", "digits", "attacked", "digits", "members"],
    ]
    lines = text.splitlines()
    (words,) = [line for line in lines if "I (mutual information: each against their average)" in line]
    assert "K (pairwise KL: each against each other)" in words and lines.index(words) < min(
        k for k, line in enumerate(lines) if "information I" in line
    )
    files = [read_columns(out / method / "id.csv") for method in METHODS]
    wrong = sorted(int((each["label"] != each["prediction"]).sum()) for each in files)
    assert f"because there are only {wrong[0]} to {wrong[-1]} mistakes: with so few," in text


def test_the_terminal_says_the_verdict_of_the_page(demo):
    out, text = demo
    page = (out / "report.html").read_text()
    told = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])["headline"]
    assert "\n".join(["Verdict", *told]) in text
    method = re.match(r"Use (\S+) with ", told[0])[1]
    assert method in METHODS and f"evaluate ood --id {out}/{method}/id.csv" in text
    lines = [f"  {each}: " for each in METHODS]  # as each is done
    assert [text.index(line) for line in lines] == sorted(text.index(line) for line in lines)


def test_the_attack_is_explained_on_the_page(demo):
    out, _ = demo
    told = json.loads((out / "run.json").read_text())["sources"]
    assert set(told) == set(SETS)
    for words in (
        "projected gradient descent, 20 steps",
        "within 0.1 of",
        "the first network of the deep ensemble",
    ):
        assert words in told["adversarial-pgd"]
    lines = dict(list_provenance(read_run(out), "0"))
    assert lines["attacked digits"] == told["adversarial-pgd"] and "354 images" in lines["unseen digits"]
    pictures = [np.load(out / "images" / f"{which}.npy").astype(int) for which in ("id", "adversarial-pgd")]
    assert 0 < np.abs(pictures[0] - pictures[1]).max() <= 26  # 0.1 of 255, rounded


def test_what_is_written_is_named(demo):
    out, text = demo
    for name in ("report.html", "tables.md", "tables.tex", "figures"):
        assert (out / name).exists() and str(out / name) in text
    figures = {path.name for path in (out / "figures").iterdir()}
    assert {"densities.png", "k-against-i.pdf", "roc-unseen.png", "accuracy-kept.pdf"} <= figures
    page = (out / "report.html").read_text()
    assert "Handwritten digits: 0 to 7 learned, 8 and 9 unseen" in page and "unseen digits" in page
    facts = json.loads((out / "run.json").read_text())
    assert facts["seed"] == 0 and facts["classes"] == list("01234567") and "torch" in facts["versions"]
    assert set(facts["methods"]) == set(METHODS) and facts["training"].startswith(
        "432 images of the digits 0 to 7, of scikit-learn's"
    )
    assert "60 epochs of AdamW" in facts["training"]
    assert facts["command"].endswith(" demo --out run --seed 0 --force")  # works when it is repeated
    for method, number in zip(METHODS, (10, 10, 100, 60), strict=True):
        assert np.load(out / method / "members-id.npy").shape == (number, 1011, 8)
    again = run("report", out, "--out", out / "again.html")
    assert again.exit_code == 0, again.output
    (out / "again.html").unlink()


@pytest.mark.parametrize("method", METHODS)
def test_members_give_the_scores(demo, tmp_path, method):
    out, _ = demo
    result = run("score", out / method / "members-id.npy", "--log-probs", "--out", tmp_path / "s.csv")
    assert result.exit_code == 0, result.output
    found, kept = read_columns(tmp_path / "s.csv"), read_columns(out / method / "id.csv")
    np.testing.assert_allclose(found["pairwise_epistemic"], kept["pairwise_epistemic"], rtol=1e-4)


def test_a_directory_with_files_is_kept(demo, tmp_path):
    out, _ = demo
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    result = run("demo", "--out", out)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "--force" in result.stderr
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    (tmp_path / "file").write_text("x")
    result = run("demo", "--out", tmp_path / "file")
    assert result.exit_code == 2
    assert "expected a directory, got a file" in result.stderr


@pytest.mark.slow
def test_same_seed_same_bytes(demo, tmp_path):
    out, text = demo
    again = tmp_path / "run"
    result = run("demo", "--out", again)
    assert result.stdout.replace(str(again), str(out)) == text
    for path in [each for each in out.rglob("*") if each.is_file()]:
        assert path.read_bytes() == (again / path.relative_to(out)).read_bytes(), path.name
    other = run("demo", "--out", tmp_path / "other", "--seed", 1)
    assert other.stdout.splitlines()[5:] != text.splitlines()[5:]


@pytest.mark.parametrize("missing", ["sklearn", "torch"])
def test_a_missing_extra_is_named(tmp_path, monkeypatch, missing):
    plain = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else plain(name))
    result = run("demo", "--out", tmp_path / "demo")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "demur[report,torch]" in result.stderr and missing in result.stderr
    assert not (tmp_path / "demo").exists()
