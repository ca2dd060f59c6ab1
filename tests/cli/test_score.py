"""`demur score`: what it prints and writes, how it fails, and that memory stays bounded."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import demur
from demur.cli import app, main
from demur.cli.printing import bad_input_exits, bad_output_exits
from demur.stores import read_columns

MEASURES = ("pairwise", "average", "reverse")
PARTS = ("total", "aleatoric", "epistemic")
COLUMNS = ["input", "prediction", *(f"{measure}_{part}" for measure in MEASURES for part in PARTS)]


@pytest.fixture(autouse=True)
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def logits() -> np.ndarray:
    values = np.random.default_rng(0).normal(size=(12, 40, 5)) * 2
    np.save("z.npy", values)
    return values


def run(*arguments: Any) -> str:
    """Stdout of a command that must succeed, and say nothing on stderr."""
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def run_json(*arguments: Any) -> dict[str, Any]:
    text = run(*arguments, "--json")
    assert text.count("\n") == 1
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def fails(*arguments: Any, words: tuple[str, ...] = ()) -> str:
    """The one line that a refused command prints, on stderr; it writes nothing else and nowhere."""
    before = sorted(Path().rglob("*"))
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("demur: ")
    assert result.stderr.count("\n") == 1
    assert sorted(Path().rglob("*")) == before
    for word in words:
        assert word in result.stderr
    return result.stderr


def command(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    whole = [sys.executable, "-m", "demur.cli", *(str(each) for each in arguments)]
    return subprocess.run(whole, capture_output=True, text=True, timeout=300, check=False, **options)


def expected(measure: str, part: str, **options: Any) -> np.ndarray:
    return np.asarray(getattr(demur.decompose(measure=measure, **options), part))


def column(scores: dict[str, Any], name: str) -> np.ndarray:
    return np.array(scores["scores"][name], float)  # "inf" becomes infinity


# What comes out


def test_scores_are_those_of_the_library(logits):
    found = run_json("score", "z.npy", "--logits")
    assert (found["inputs"], found["members"], found["classes"]) == (40, 12, 5)
    assert list(found["scores"]) == COLUMNS
    for measure in MEASURES:
        for part in PARTS:
            values = expected(measure, part, logits=logits)
            np.testing.assert_allclose(column(found, f"{measure}_{part}"), values, rtol=1e-9)
            assert found["summary"][measure][part]["mean"] == pytest.approx(values.mean())
            assert found["summary"][measure][part]["median"] == pytest.approx(np.median(values))
            assert found["summary"][measure][part]["max"] == pytest.approx(values.max())


def test_kinds_agree(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    np.save("l.npy", log_probs)
    np.save("p.npy", np.exp(log_probs))
    base = run_json("score", "z.npy", "--logits")
    for other in (run_json("score", "l.npy", "--log-probs"), run_json("score", "p.npy", "--probs")):
        for name in COLUMNS:
            np.testing.assert_allclose(column(other, name), column(base, name), rtol=1e-9)


def test_options(logits):
    found = run_json("score", "z.npy", "--logits", "--measure", "average", "--base", "2")
    assert found["unit"] == "bits"
    assert list(found["summary"]) == ["average"]
    values = expected("average", "epistemic", logits=logits, base=2)
    np.testing.assert_allclose(column(found, "average_epistemic"), values, rtol=1e-9)

    found = run_json("score", "z.npy", "--logits", "--measure", "reverse", "--rule", "brier")
    values = expected("reverse", "total", logits=logits, rule="brier")
    np.testing.assert_allclose(column(found, "reverse_total"), values, rtol=1e-9)
    assert found["unit"] == "brier loss"

    found = run_json("score", "z.npy", "--logits", "--unbiased", "--stderr")
    for measure in MEASURES:
        parts = demur.decompose(logits=logits, measure=measure, unbiased=True, stderr=True)
        name = f"{measure}_epistemic"
        np.testing.assert_allclose(column(found, name), parts.epistemic, rtol=1e-9)
        assert parts.stderr is not None
        np.testing.assert_allclose(column(found, f"{name}_stderr"), parts.stderr.epistemic, rtol=1e-9)


def test_standard_errors_of_many_members_go_over_64_groups():
    logits = np.random.default_rng(1).normal(size=(100, 3, 4))
    np.save("z.npy", logits)
    found = run_json("score", "z.npy", "--logits", "--stderr")
    parts = demur.decompose(logits=logits, stderr=True, groups=64)
    assert parts.stderr is not None
    np.testing.assert_allclose(column(found, "pairwise_epistemic_stderr"), parts.stderr.epistemic, rtol=1e-9)


@pytest.mark.parametrize("glob", [True, False])
def test_files_of_one_member_in_natural_order(logits, glob):
    weights = np.arange(1.0, 13.0)  # so that the order shows
    Path("w.json").write_text(json.dumps(weights.tolist()))
    names = [f"member_{index}.npy" for index in range(12)]
    for name, member in zip(names, logits, strict=True):
        np.save(name, member)
    files = ["member_*.npy"] if glob else names
    found = run_json("score", *files, "--logits", "--weights", "w.json")
    values = expected("pairwise", "epistemic", logits=logits, weights=weights)
    np.testing.assert_allclose(column(found, "pairwise_epistemic"), values, rtol=1e-9)


def test_axis_and_weights_of_each_input(logits):
    weights = np.random.default_rng(2).random((12, 40))
    np.save("y.npy", logits.swapaxes(0, 1))
    np.save("w.npy", weights)
    found = run_json("score", "y.npy", "--logits", "--axis", "1", "--weights", "w.npy")
    values = expected("pairwise", "epistemic", logits=logits, weights=weights)
    np.testing.assert_allclose(column(found, "pairwise_epistemic"), values, rtol=1e-9)


def test_summary_for_people(logits):
    text = run("score", "z.npy", "--logits")
    assert "40 inputs, 12 members, 5 classes" in text
    for word in (*MEASURES, *PARTS, "mean", "median", "max", "infinite", "nats"):
        assert word in text
    assert f"{expected('average', 'epistemic', logits=logits).mean():.4g}" in text


def test_top(logits):
    order = np.argsort(-expected("average", "epistemic", logits=logits))[:3]
    arguments = ("score", "z.npy", "--logits", "--top", 3, "--measure", "average")
    found = run_json(*arguments)
    assert [row["input"] for row in found["top"]] == order.tolist()
    assert found["top"][0]["average_epistemic"] == found["summary"]["average"]["epistemic"]["max"]
    text = run(*arguments, "--measure", "pairwise")
    assert "3 most uncertain inputs, by average_epistemic" in text
    assert [int(line.split()[0]) for line in text.splitlines()[-3:]] == order.tolist()


def test_infinity():
    np.save("p.npy", np.array([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]]))
    found = run_json("score", "p.npy", "--probs", "--top", "1", "--rounding", "0")
    assert found["scores"]["pairwise_epistemic"] == ["inf", 0.0] and found["rounding"] == 0
    assert found["summary"]["pairwise"]["epistemic"]["infinite"] == 1
    assert found["top"][0]["pairwise_epistemic"] == "inf"
    assert found["scores"]["average_epistemic"][0] == pytest.approx(np.log(2))
    text = run("score", "p.npy", "--probs", "--rounding", "0")
    assert "inf" in text and "lower bounds" not in text


def test_rounded_probabilities_are_noted_and_bounded():
    logits = np.random.default_rng(0).normal(size=(5, 60, 4)) * 6
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    for member, own in enumerate(p):
        np.savetxt(f"m{member}.csv", own, fmt="%.3f", delimiter=",", header="a,b,c,d", comments="")
    np.save("p.npy", p.astype(np.float16))
    zero = p.astype(np.float16) == 0
    infinite = int((zero.any(0) & ~zero.all(0)).any(-1).sum())
    assert infinite > 0
    result = CliRunner().invoke(app, ["score", "p.npy", "--probs"])
    assert result.exit_code == 0 and result.stderr.count("\n") == 1
    assert f"infinite for {infinite} of 60 inputs" in result.stderr and "--rounding dtype" in result.stderr
    result = CliRunner().invoke(app, ["score", "p.npy", "--probs", "--measure", "average"])
    assert result.exit_code == 0 and result.stderr == ""
    true = demur.decompose(logits=logits).epistemic
    for name, rounding in (("p.npy", "dtype"), ("m*.csv", "5e-4")):
        found = run_json("score", name, "--probs", "--rounding", rounding)
        k = np.array(found["scores"]["pairwise_epistemic"])
        assert (k <= true * 1.00001).all() and (k > 0).all() and np.isfinite(k).all()
        assert "Epistemic parts are lower bounds" in run("score", name, "--probs", "--rounding", rounding)


def test_rounding_that_is_none_is_one_line():
    np.save("p.npy", np.full((2, 3, 2), 0.5))
    for arguments, words in (
        (("--probs", "--rounding", "six"), "expected a half-width"),
        (("--probs", "--rounding", "2"), "rounding must be 0"),
        (("--logits", "--rounding", "1e-3"), "rounding goes with probabilities"),
        (("--probs", "--rounding", "1e-3", "--stderr"), "no standard error"),
    ):
        result = CliRunner().invoke(app, ["score", "p.npy", *arguments])
        assert result.exit_code == 2 and words in result.stderr and result.stderr.count("\n") == 1


def test_one_member_one_input():
    np.save("z.npy", np.zeros((1, 2)))
    result = CliRunner().invoke(app, ["score", "z.npy", "--logits", "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["scores"]["pairwise_epistemic"] == [0.0]


def test_aliases_of_measures_keep_the_names_of_columns(logits):
    for given, name in (("K", "pairwise"), ("bald", "average"), ("M", "reverse")):
        found = run_json("score", "z.npy", "--logits", "--measure", given)
        assert [each for each in found["scores"] if each.endswith("_epistemic")] == [f"{name}_epistemic"]
        np.testing.assert_allclose(
            found["scores"][f"{name}_epistemic"], expected(name, "epistemic", logits=logits), rtol=1e-9
        )


def test_a_wrong_number_of_threads_is_one_line(logits, monkeypatch):
    monkeypatch.setenv("DEMUR_THREADS", "x")
    fails("score", "z.npy", "--logits", words=("DEMUR_THREADS", "'x'"))


@pytest.mark.parametrize("kind", ["--logits", "--probs", "--log-probs"])
def test_one_class_is_no_prediction(kind):
    """A column of logits of yes would get zeros."""
    Path("z.csv").write_text("active\n0.5\n0.9\n")
    fails("score", "z.csv", kind, words=("z.csv: expected at least 2 classes, got 1", "say --binary"))
    np.save("z.npy", np.zeros((3, 4, 1)))
    fails("score", "z.npy", kind, words=("--binary", "--points"))
    np.save("z.npy", np.zeros(4))
    fails("score", "z.npy", kind, words=("shape (4,)", "--binary"))


def test_one_member_is_noted():
    np.save("z.npy", np.zeros((4, 3)))
    result = CliRunner().invoke(app, ["score", "z.npy", "--logits", "--out", "s.csv"])
    assert result.exit_code == 0 and Path("s.csv").exists()
    assert result.stderr.startswith("demur: one member of 4 inputs: ") and result.stderr.count("\n") == 1


def test_the_most_uncertain_inputs_of_one_member_are_those_of_the_largest_total():
    np.save("z.npy", np.array([[3.0, 0.0], [0.0, 0.0], [1.0, 0.0]]))
    result = CliRunner().invoke(app, ["score", "z.npy", "--logits", "--top", "2"])
    assert "The 2 most uncertain inputs, by pairwise_total" in result.stdout
    assert [row.split()[0] for row in result.stdout.splitlines()[-2:]] == ["1", "2"]


def test_a_complaint_speaks_of_options():
    np.save("z.npy", np.array([[[-1.0, 2.0]], [[0.5, 0.5]]]))
    fails("score", "z.npy", "--probs", words=("For logits pass --logits.",))


# Tables, tasks and numbers


def write_members(columns: list[str], values: np.ndarray, **beside: Any) -> None:
    """Write one CSV file per member, the columns of every second one in reverse."""
    for member, rows in enumerate(values):
        cells = {name: rows[:, k] for k, name in enumerate(columns)} | beside
        names = list(cells)[:: -1 if member % 2 else 1]
        lines = [names, *zip(*(np.asarray(cells[name]).astype(str) for name in names), strict=True)]
        Path(f"m{member}.csv").write_text("".join(",".join(line) + "\n" for line in lines))


def noted(*arguments: Any) -> tuple[str, str]:
    """Stdout and stderr of a command that must succeed."""
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def test_columns_in_another_order_are_the_same_members(logits):
    """These were scored in silence as if the columns of all members were in order."""
    names = ["ape", "bee", "cow", "dog", "elk"]
    write_members(names, logits)
    found = run_json("score", "m*.csv", "--logits")
    np.testing.assert_allclose(
        column(found, "pairwise_epistemic"), expected("pairwise", "epistemic", logits=logits), rtol=1e-9
    )
    named = np.array(names)[column(found, "prediction").astype(int)]
    assert found["scores"]["prediction_name"] == named.tolist()


def test_ids_and_labels_of_a_table_go_to_scores_and_top(logits):
    smiles = [f"C{row}" for row in range(40)]
    labels = np.arange(40) % 5
    names = ["ape", "bee", "cow", "dog", "elk"]
    write_members(names, logits, smiles=smiles, label=labels, mass=np.arange(40) / 4)
    arguments = ("score", "m*.csv", "--logits", "--keep", "mass")
    text = run(*arguments, "--top", 2, "--out", "s.csv")
    found = read_columns(Path("s.csv"))
    assert list(found)[:6] == ["input", "smiles", "label", "mass", "prediction", "prediction_name"]
    assert found["smiles"].tolist() == smiles and found["mass"].tolist() == (np.arange(40) / 4).tolist()
    first = int(np.argmax(found["pairwise_epistemic"]))
    assert f"C{first}" in text and found["prediction_name"][first] in text
    run("evaluate", "misclassification", "s.csv", "--resamples", 100)
    run(*arguments, "--id", "smiles", "--out", "id.csv")
    assert read_columns(Path("id.csv"))["id"].tolist() == smiles
    run("report", ".")
    assert f'"id":"C{first}"' in Path("report.html").read_text().replace(" ", "")
    fails(*arguments, "--id", "nothing", words=("expected a column nothing",))
    np.save("y.npy", labels)
    fails(*arguments, "--labels", "y.npy", words=("labels once", "--labels"))


def test_labels_that_are_names_of_classes(logits):
    names = ["ape", "bee", "cow", "dog", "elk"]
    write_members(names, logits)
    Path("y.csv").write_text("label\n" + "".join(f"{names[row % 5]}\n" for row in range(40)))
    run("score", "m*.csv", "--logits", "--labels", "y.csv", "--out", "s.csv")
    columns = read_columns(Path("s.csv"))
    right = columns["label"] == np.array(names)[columns["prediction"]]
    found = run_json("evaluate", "selective", "s.csv", "--score", "K", "--resamples", 100)
    order = np.argsort(columns["pairwise_epistemic"])
    area = np.mean(np.cumsum(right[order]) / np.arange(1, 41))
    assert found["auc"]["value"] == pytest.approx(area, abs=1e-12) and area > 0
    run("score", "m*.csv", "--logits", "--out", "bare.csv")
    same = run_json(
        "evaluate", "selective", "bare.csv", "--labels", "y.csv", "--score", "K", "--resamples", 100
    )
    assert same["auc"] == found["auc"]
    run("evaluate", "calibration", "m*.csv", "--logits", "--labels", "y.csv", "--resamples", 100)
    Path("Y.csv").write_text(Path("y.csv").read_text().upper().replace("LABEL", "label"))
    words = ("expected labels that are names of classes, got APE, BEE, COW, ...",)
    fails("evaluate", "selective", "bare.csv", "--labels", "Y.csv", words=words)
    words = ("expected one of ape, bee", "'APE'")
    fails("evaluate", "calibration", "m*.csv", "--logits", "--labels", "Y.csv", words=words)


def test_a_yes_for_each_task():
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(60, 3)) + rng.normal(size=(4, 60, 3))
    probs = 1 / (1 + np.exp(-z))
    tasks = ["toxic", "soluble", "stable"]
    write_members(tasks, probs, id=[f"x{row}" for row in range(60)])
    labels = (rng.random((60, 3)) < probs.mean(axis=0)).astype(float)
    labels[3, 1] = np.nan
    rows = ["id,stable,toxic,soluble"]
    rows += [f"x{row},{y[2]:g},{y[0]:g},{'' if np.isnan(y[1]) else y[1]}" for row, y in enumerate(labels)]
    Path("y.csv").write_text("\n".join(rows) + "\n")
    text = run("score", "m*.csv", "--probs", "--binary", "--labels", "y.csv", "--out", "s.csv", "--top", 1)
    assert "60 inputs, 3 tasks" in text and "task" in text
    columns = read_columns(Path("s.csv"))
    assert list(columns)[:5] == ["input", "task", "id", "label", "prediction"]
    np.testing.assert_array_equal(columns["label"], labels.ravel())
    values = expected("pairwise", "epistemic", logits=np.stack([0 * z, z], axis=-1)).ravel()
    np.testing.assert_allclose(columns["pairwise_epistemic"], values, rtol=1e-9)
    Path("one.csv").write_text("toxic,soluble,label\n0.1,0.2,1\n")
    fails("score", "one.csv", "--probs", "--binary", words=("a label for each task", "--labels"))
    assert "60 inputs, 3 tasks, 4 members\n" in run("score", "m*.csv", "--probs", "--binary")
    # Each task by itself, without the input whose label nobody knows.
    for labelled in ([], ["--labels", "y.csv"]):
        out, err = noted("evaluate", "selective", "s.csv", "--score", "K", *labelled, "--json")
        assert err == "demur: s.csv, task soluble: left out 1 row without a label\n"
        methods = json.loads(out)["methods"]
        assert list(methods) == tasks
        for k, task in enumerate(tasks):
            known = ~np.isnan(labels[:, k])
            order = np.argsort(values.reshape(60, 3)[known, k])
            right = (labels[:, k] == (probs.mean(axis=0)[:, k] > 0.5))[known][order]
            area = np.mean(np.cumsum(right) / np.arange(1, known.sum() + 1))
            assert methods[task]["pairwise_epistemic"]["auc"]["value"] == pytest.approx(area, abs=1e-12)
    one = run_json("evaluate", "selective", "s.csv", "--score", "K", "--task", "stable")
    assert one["auc"] == methods["stable"]["pairwise_epistemic"]["auc"]
    fails(
        "evaluate", "selective", "s.csv", "--task", "round", words=("tasks toxic, soluble, stable", "round")
    )
    out, _ = noted("evaluate", "ood", "--id", "s.csv", "--ood", "s.csv", "--score", "K", "--json")
    assert list(json.loads(out)["methods"]) == tasks
    # A threshold for each task.
    noted("evaluate", "defer", "fit", "s.csv", "--coverage", 0.5, "--out", "policy.json")
    noted("evaluate", "defer", "apply", "policy.json", "s.csv", "--out", "decisions.csv")
    decisions = read_columns(Path("decisions.csv"))
    kept = decisions["decision"] == "keep"
    assert len(kept) == 180 and all(25 <= kept[decisions["task"] == task].sum() <= 35 for task in tasks)
    Path("run").mkdir()
    Path("s.csv").rename("run/id.csv")
    run("report", "run")
    assert all(task in Path("run/report.html").read_text() for task in tasks)


def test_sets_of_labels():
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(60, 3)) + rng.normal(size=(4, 60, 3))
    write_members(["red", "round", "soft"], z)
    np.save("y.npy", (z.mean(axis=0) > 0).astype(int))
    run("score", "m*.csv", "--logits", "--multilabel", "--labels", "y.npy", "--out", "s.csv")
    columns = read_columns(Path("s.csv"))
    total = np.asarray(demur.decompose(demur.MultiLabel(logits=z)).total)
    np.testing.assert_allclose(columns["pairwise_total"], total, rtol=1e-9)
    assert set("|".join(columns["label"]).split("|")) <= {"red", "round", "soft", "none"}
    assert 0.5 < (columns["label"] == columns["prediction"]).mean() < 1
    run("evaluate", "selective", "s.csv", "--resamples", 100)
    np.save("y.npy", np.full((60, 3), np.nan))
    words = ("y.npy: expected 0 or 1 for each label, got nan at input 0, red", "--binary")
    fails("score", "m*.csv", "--logits", "--multilabel", "--labels", "y.npy", words=words)


@pytest.mark.parametrize("kind", ["npy", "csv"])
def test_a_label_that_all_members_lack_marks_its_input(kind):
    p = np.random.default_rng(0).uniform(size=(3, 6, 3))
    whole = np.asarray(demur.decompose(demur.MultiLabel(p)).epistemic)
    p[:, 2, 1] = np.nan
    if kind == "csv":
        write_members(["red", "round", "soft"], p)
        for path in Path().glob("m*.csv"):
            path.write_text(path.read_text().replace("nan", ""))
    np.save("m.npy", p)
    _, err = noted("score", f"m*.{kind}", "--probs", "--multilabel", "--out", "s.csv")
    assert err.startswith("demur: no prediction for 1 of 6 rows")
    columns = read_columns(Path("s.csv"))
    name = "round" if kind == "csv" else "label_1"
    assert columns["status"][2] == f"no prediction: NaN in all members for {name}"
    assert set(np.delete(columns["status"], 2)) == {"ok"} and np.isnan(columns["pairwise_epistemic"][2])
    np.testing.assert_allclose(np.delete(columns["pairwise_epistemic"], 2), np.delete(whole, 2), rtol=1e-9)
    p[1:, 2, 1] = 0.5
    np.save("part.npy", p)
    words = (
        "part.npy: member 0, input 2: expected a prediction by every member, got nan by 1 of 3",
        "weight 0",
    )
    said = fails("score", "part.npy", "--probs", "--multilabel", words=words)
    assert "[" not in said  # no second index, of another kind


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("options", [[], ["--binary"], ["--multilabel"]])
def test_a_number_beside_the_classes_is_kept_by_its_name(kind, options):
    pd = pytest.importorskip("pandas")
    for member, share in enumerate((0.2, 0.3)):
        frame = pd.DataFrame({"cat": [share, 0.6], "dog": [1 - share, 0.4], "age": [31.0, 22.0]})
        if kind == "csv":
            frame.to_csv(f"m{member}.csv", index=False)
        else:
            frame.to_parquet(f"m{member}.parquet")
    things = {"--binary": "tasks", "--multilabel": "labels"}.get("".join(options), "classes")
    words = (f"The columns cat, dog, age were taken for {things}", "--keep NAME")
    fails("score", f"m*.{kind}", "--probs", *options, words=words)
    run("score", f"m*.{kind}", "--probs", *options, "--keep", "age", "--out", "s.csv")
    assert set(read_columns(Path("s.csv"))["age"]) == {31.0, 22.0}


def test_labels_that_do_not_fit_say_how_the_file_was_read():
    np.save("p.npy", np.zeros((6, 30)))  # members and inputs, without an axis of tasks
    np.save("y.npy", np.zeros(30))
    words = ("expected labels of shape (6, 30)", "p.npy was read as one member of 6 inputs")
    fails("score", "p.npy", "--points", "--labels", "y.npy", words=words)


def test_numbers_with_a_variance_and_a_tolerance():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=50)
    mean = truth + rng.normal(size=(5, 50)) * np.linspace(0.01, 1, 50)
    np.savez("g.npz", mean=mean, variance=np.full((5, 50), 0.1))
    np.save("y.npy", truth)
    run("score", "g.npz", "--gaussian", "--labels", "y.npy", "--out", "s.csv")
    columns = read_columns(Path("s.csv"))
    np.testing.assert_allclose(columns["prediction"], mean.mean(axis=0), rtol=1e-12)
    values = np.asarray(demur.decompose(demur.Gaussian(mean, 0.1), measure="average").epistemic)
    np.testing.assert_allclose(columns["average_epistemic"], values, rtol=1e-9)
    words = ("expected classes in prediction, got numbers as", "--tolerance")
    fails("evaluate", "selective", "s.csv", words=words)
    fails("evaluate", "defer", "fit", "s.csv", "--accuracy", 0.9, "--out", "p.json", words=words)
    found = run_json("evaluate", "selective", "s.csv", "--score", "K", "--tolerance", 0.2, "--resamples", 100)
    right = np.abs(mean.mean(axis=0) - truth) <= 0.2
    order = np.argsort(columns["pairwise_epistemic"])
    assert found["auc"]["value"] == pytest.approx(np.mean(np.cumsum(right[order]) / np.arange(1, 51)))
    for kind in ("--logits", "--probs", "--log-probs"):
        fails("score", "g.npz", "--gaussian", kind, words=("--gaussian alone", kind))
        fails("score", "g.npz", "--points", kind, words=("--points alone", kind))
    fails("score", "g.npz", "--gaussian", "--points", words=("at most one", "--points and --gaussian"))


def test_numbers_without_a_variance():
    values = np.random.default_rng(0).normal(size=(5, 30, 2))
    np.save("y.npy", values)
    found = run_json("score", "y.npy", "--points")
    assert found["unit"] == "the unit of the numbers"
    scores = np.asarray(demur.decompose(getattr(demur, "Points")(values)).epistemic)  # noqa: B009
    np.testing.assert_allclose(found["scores"]["pairwise_epistemic"], scores.ravel(), rtol=1e-9)
    assert found["scores"]["task"][:3] == ["task_0", "task_1", "task_0"]


def test_images_pixel_by_pixel():
    z = np.random.default_rng(0).normal(size=(4, 2, 3, 5, 6))
    np.save("z.npy", z)
    np.save("y.npy", np.random.default_rng(1).integers(0, 3, size=(2, 5, 6)))
    run("score", "z.npy", "--logits", "--class-axis", 2, "--labels", "y.npy", "--out", "s.csv")
    columns = read_columns(Path("s.csv"))
    assert list(columns)[:5] == ["input", "row", "column", "label", "prediction"]
    values = expected("pairwise", "epistemic", logits=np.moveaxis(z, 2, -1))
    where = tuple(columns[name] for name in ("input", "row", "column"))
    np.testing.assert_allclose(columns["pairwise_epistemic"], values[where], rtol=1e-9)
    np.testing.assert_array_equal(columns["label"], np.load("y.npy")[where])
    first = run_json("evaluate", "selective", "s.csv", "--score", "K", "--resamples", 100)
    run("score", "z.npy", "--logits", "--class-axis", 2, "--out", "bare.csv")
    same = run_json(
        "evaluate", "selective", "bare.csv", "--labels", "y.npy", "--score", "K", "--resamples", 100
    )
    assert first["auc"] == same["auc"]
    fails("score", "z.npy", "--logits", "--class-axis", 0, words=("two axes", "(4, 2, 3, 5, 6)"))
    fails("score", "z.npy", "--logits", "--class-axis", 7, words=("--class-axis", "got 7"))


def test_inputs_without_a_prediction_are_marked_and_left_out(logits):
    whole = logits.copy()
    logits[:, 7] = np.nan
    np.save("gap.npy", logits)
    np.save("rest.npy", np.delete(whole, 7, axis=1))
    np.save("y.npy", np.arange(40) % 5)
    np.save("rest_y.npy", np.delete(np.arange(40) % 5, 7))
    out, err = noted("score", "gap.npy", "--logits", "--labels", "y.npy", "--out", "id.csv")
    assert out == "Wrote the scores of 40 inputs to id.csv\n"
    assert err.startswith("demur: no prediction for 1 of 40 rows") and err.count("\n") == 1
    columns = read_columns(Path("id.csv"))
    assert np.flatnonzero(columns["status"] != "ok").tolist() == [7]
    assert columns["status"][7] == "no prediction: NaN in all members" and columns["prediction"][7] == -1
    run("score", "rest.npy", "--logits", "--labels", "rest_y.npy", "--out", "rest.csv")
    for task in ("misclassification", "selective"):
        for labels in ([], ["--labels", "y.npy"]):
            out, err = noted("evaluate", task, "g=id.csv", "--json", *labels, "--resamples", 100)
            assert err == "demur: id.csv: left out 1 of 40 rows without a prediction\n"
            assert json.loads(out) == run_json("evaluate", task, "g=rest.csv", "--resamples", 100)
    noted("evaluate", "defer", "fit", "id.csv", "--coverage", 0.5, "--out", "policy.json")
    noted("evaluate", "defer", "apply", "policy.json", "id.csv", "--out", "decisions.csv")
    decisions = read_columns(Path("decisions.csv"))
    assert len(decisions["decision"]) == 40 and decisions["decision"][7] == "defer"
    out, err = noted("report", ".")
    assert err == "demur: id.csv: left out 1 input without a prediction\n"
    found = json.loads(noted("score", "gap.npy", "--logits", "--json", "--top", 40)[0])
    assert found["failed"] == 1 and len(found["top"]) == 39
    assert found["scores"]["pairwise_epistemic"][7] == "nan"
    words = ("gap.npy", "NaN in all members for 1 of 40, first at input 7")
    fails("evaluate", "calibration", "gap.npy", "--logits", "--labels", "y.npy", words=words)


# Files written


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz", "json"])
def test_out(logits, suffix):
    path = Path(f"scores.{suffix}")
    text = run("score", "z.npy", "--logits", "--out", path)
    assert str(path) in text
    if suffix == "npz":
        with np.load(path) as file:
            table: Any = dict(file)
    elif suffix == "json":
        table = json.loads(path.read_text())["scores"]
    else:
        pd = pytest.importorskip("pandas")
        table = pd.read_csv(path) if suffix == "csv" else pd.read_parquet(path)
    facts = [] if suffix == "json" else ["members"]
    assert list(table) == [*COLUMNS, *facts]
    assert all(set(table[name]) == {value} for name, value in zip(facts, (12, "nats"), strict=False))
    values = expected("pairwise", "epistemic", logits=logits)
    np.testing.assert_allclose(np.asarray(table["pairwise_epistemic"]), values, rtol=1e-9)
    assert sorted(path.name for path in Path().iterdir()) == sorted(["z.npy", path.name])


def test_out_with_json_has_the_scores_once(logits):
    found = run_json("score", "z.npy", "--logits", "--out", "scores.csv")
    assert found["out"] == "scores.csv"
    assert "scores" not in found
    assert found["summary"]["pairwise"]["total"]["infinite"] == 0


def test_same_run_same_bytes(logits):
    for name in ("a.csv", "b.csv"):
        run("score", "z.npy", "--logits", "--out", name)
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()


def test_force(logits):
    Path("scores.csv").write_text("precious")
    fails("score", "z.npy", "--logits", "--out", "scores.csv", words=("scores.csv", "--force"))
    assert Path("scores.csv").read_text() == "precious"
    np.save("bad.npy", np.full((2, 3, 4), np.nan))
    fails("score", "bad.npy", "--logits", "--out", "scores.csv", "--force", words=("bad.npy",))
    assert Path("scores.csv").read_text() == "precious"
    run("score", "z.npy", "--logits", "--out", "scores.csv", "--force")
    assert Path("scores.csv").read_text().startswith(",".join(COLUMNS))


def test_labels_are_written_beside_the_scores(logits):
    labels = np.arange(40) % 5
    np.save("labels.npy", labels)
    run("score", "z.npy", "--logits", "--labels", "labels.npy", "--out", "id.npz")
    with np.load("id.npz") as found:
        assert found.files[:3] == ["input", "label", "prediction"]
        np.testing.assert_array_equal(found["label"], labels)
    assert (
        run_json("score", "z.npy", "--logits", "--labels", "labels.npy")["scores"]["label"] == labels.tolist()
    )
    np.save("short.npy", labels[:7])
    words = ("expected 40, one for each input of z.npy, got 7",)
    fails("score", "z.npy", "--logits", "--labels", "short.npy", "--out", "s.csv", words=words)
    run("report", ".")  # has something to measure the scores against
    assert "Accuracy on in-distribution inputs: 15.0 %" in Path("report.html").read_text()


@pytest.mark.parametrize("suffix", [".csv", ".npz", ".parquet", ".json"])
@pytest.mark.parametrize("dtype", [bool, ">i8"])
def test_labels_of_any_type_can_be_evaluated(suffix, dtype):
    np.save("z.npy", np.random.default_rng(0).normal(size=(5, 40, 2)))
    labels = np.arange(40) % 2
    np.save("labels.npy", labels.astype(dtype))
    found = run_json("score", "z.npy", "--logits", "--labels", "labels.npy", "--top", 1)
    assert found["scores"]["label"] == labels.tolist()
    run("score", "z.npy", "--logits", "--labels", "labels.npy", "--out", f"scores{suffix}")
    np.testing.assert_array_equal(read_columns(Path(f"scores{suffix}"))["label"], labels)
    run("evaluate", "misclassification", f"scores{suffix}", "--resamples", 100)


@pytest.mark.parametrize("suffix", [".csv", ".npz", ".parquet"])
@pytest.mark.parametrize("kind", ["--logits", "--probs", "--log-probs"])
@pytest.mark.usefixtures("logits")
def test_scores_are_no_predictions(suffix, kind):
    run("score", "z.npy", "--logits", "--out", f"scores{suffix}")
    words = (f"scores{suffix}: expected predictions, one column per class, got scores, as pairwise_total",)
    fails("score", f"scores{suffix}", kind, words=words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("demo", "--out", "x", "--seed", "minus"), "Invalid value for '--seed': "),
        (("score",), "Missing argument 'FILE': see demur score --help"),
        (("evaluate", "defer", "fit", "--acuracy", "1"), ": see demur evaluate defer fit --help"),
    ],
)
def test_usage_is_told_in_one_short_line_with_its_own_help(arguments, words):
    said = fails(*arguments, words=(words, f"see demur {arguments[0]}"))
    assert len(said) < 120


def test_an_input_is_never_replaced(logits):
    np.savez("z.npz", logits)
    before = Path("z.npz").read_bytes()
    fails("score", "z.npz", "--logits", "--out", "z.npz", "--force", words=("z.npz", "read"))
    assert Path("z.npz").read_bytes() == before


@pytest.mark.parametrize(("option", "rows"), [("--labels", 40), ("--weights", 12)])
@pytest.mark.usefixtures("logits")
def test_labels_and_weights_are_never_replaced(option, rows):
    Path("beside.csv").write_text("label\n" + "1\n" * rows)
    arguments = ("score", "z.npy", "--logits", option, "beside.csv", "--out", "beside.csv", "--force")
    fails(*arguments, words=("beside.csv", "not read from"))
    assert Path("beside.csv").read_text().startswith("label\n1\n")


# Bad usage and bad input


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["score", "z.npy"], ("exactly one of --logits, --probs, --log-probs", "none")),
        (["score", "z.npy", "--logits", "--probs"], ("--logits and --probs",)),
        (["score", "--logits"], ("FILE",)),
        (["score", "z.npy", "--logits", "--nonsense"], ("--nonsense",)),
        (["score", "z.npy", "--logits", "--top", "0"], ("--top",)),
        (["score", "z.npy", "--logits", "--top", "many"], ("--top",)),
        (["score", "z.npy", "--logits", "--axis", "2"], ("axis", "2")),
        (["score", "z.npy", "--logits", "--measure", "pairwis"], ("pairwis", "pairwise")),
        (["score", "z.npy", "--logits", "--rule", "bier"], ("bier", "brier")),
        (["score", "z.npy", "--logits", "--base", "1"], ("base",)),
        (["score", "z.npy", "--logits", "--base", "-2"], ("base",)),
        (["score", "z.npy", "--logits", "--rule", "brier", "--base", "2"], ("base",)),
        (["score", "z.npy", "--probs"], ("z.npy", "member 0", "input 0", "probs")),
        (["score", "z.npy", "--log-probs"], ("z.npy", "log_probs")),
        (["score", "none.npy", "--logits"], ("none.npy", "No such file")),
        (["score", "*.pt", "--logits"], ("*.pt", "found none")),
        (["score", "z.npy", "--logits", "--weights", "none.txt"], ("none.txt",)),
        (["score", "z.npy", "--logits", "--weights", "three.txt"], ("three.txt", "12")),
        (["score", "z.npy", "--logits", "--weights", "zero.txt"], ("zero.txt", "zero")),
        (["score", "z.npy", "--logits", "--weights", "negative.txt"], ("negative.txt", "negative")),
        (["score", "z.npy", "--logits", "--weights", "nan.txt"], ("nan.txt", "finite")),
        (["score", "z.npy", "--logits", "--out", "scores.txt"], (".csv", "'.txt'")),
        (["score", "z.npy", "--logits", "--out", "no/scores.csv"], ("no/scores.csv", "create no first")),
        (["score", "one.npy", "--logits", "--stderr"], ("one.npy", "at least 2 members", "got 1")),
        (["score", "one.npy", "--logits", "--unbiased"], ("one.npy", "at least 2 members")),
        (["scor"], ("scor", "score")),
        ([], ("--help",)),
    ],
)
def test_refused(logits, arguments, words):
    np.save("one.npy", logits[0])
    Path("three.txt").write_text("1 2 3")
    Path("zero.txt").write_text("0 " * 12)
    Path("negative.txt").write_text("1 " * 11 + "-1")
    Path("nan.txt").write_text("1 " * 11 + "nan")
    fails(*arguments, words=words)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_bad_values_are_located(logits, value):
    logits[4, 17, 2] = value
    for index, member in enumerate(logits):
        np.save(f"m{index}.npy", member)
    fails("score", "m*.npy", "--logits", "--out", "s.csv", words=("m4.npy", "input 17"))


def test_files_that_do_not_fit(logits):
    np.save("y.npy", logits[:, :39])
    fails("score", "z.npy", "y.npy", "--logits", words=("y.npy", "40 inputs", "39 inputs", "z.npy"))


@pytest.mark.usefixtures("logits")
def test_a_flipped_bit_in_an_archive_is_no_other_score():
    np.savez("z.npz", np.load("z.npy"))
    damaged = bytearray(Path("z.npz").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    Path("z.npz").write_bytes(damaged)
    fails("score", "z.npz", "--logits", "--out", "scores.csv", words=("z.npz", "Bad CRC-32", "damaged"))


@pytest.mark.parametrize("name", ["z.npy", "z.npz", "z.safetensors", "z.pt", "z.csv", "z.parquet"])
def test_foreign_files(name):
    Path(name).write_bytes(b"\x89PNG\r\n\x1a\n and so on" * 20)
    fails("score", name, "--logits", "--out", "scores.csv", words=(name,))


def test_code_in_a_file_is_not_run():
    torch = pytest.importorskip("torch")

    class Malicious:
        def __reduce__(self):
            return (os.mkdir, ("it_ran",))

    torch.save(Malicious(), "z.pt")
    fails("score", "z.pt", "--logits", words=("z.pt", "could run code"))
    assert not Path("it_ran").exists()


# In a process of its own


def test_process(logits):
    done = command("score", "z.npy", "--logits", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["inputs"] == 40
    done = command("score", "z.npy", "--probs")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_version_and_help():
    assert run("--version").strip() == f"demur {demur.__version__}"
    assert "score" in run("--help")
    text = run("score", "--help")
    for option in ("--logits", "--axis", "--weights", "--measure", "--stderr", "--top", "--force"):
        assert option in text
    assert "64" in text


def test_help_loads_nothing_heavy():
    code = (
        "import sys; sys.argv = ['demur', '--help']\n"
        "from demur.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = ('torch', 'numba', 'jax', 'pandas', 'pyarrow', 'matplotlib', 'sklearn', 'scipy')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_a_broken_pipe_is_no_bad_input(logits):
    reader, writer = os.pipe()
    os.close(reader)
    whole = [sys.executable, "-m", "demur.cli", "score", "z.npy", "--logits", "--json"]
    done = subprocess.run(whole, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
    os.close(writer)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


ENDED = """
import os, signal, sys
from demur.cli import main
from demur.stores import column_files

def end(file, *rest):
    file.write(b"half of it")
    file.flush()
    os.kill(os.getpid(), int(number))
    raise AssertionError("it went on")

number, column_files._write = sys.argv.pop(), end
signal.signal(int(number), signal.SIG_DFL)  # nohup ignores SIGHUP
sys.argv = ["demur", "score", "z.npy", "--logits", "--out", "s.csv"]
main()
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
@pytest.mark.usefixtures("logits")
def test_a_process_that_is_ended_leaves_nothing(name):
    number = getattr(signal, name, None) or pytest.skip(f"needs {name}")
    whole = [sys.executable, "-c", ENDED, str(int(number))]
    done = subprocess.run(whole, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (128 + number, "")
    assert [path.name for path in Path().iterdir()] == ["z.npy"]


@pytest.mark.usefixtures("logits")
def test_signals_are_left_as_they_were(monkeypatch):
    """What nohup ignores stays ignored, and afterwards all is as before."""
    number = getattr(signal, "SIGHUP", None) or pytest.skip("needs SIGHUP")
    seen = []
    monkeypatch.setattr("demur.cli.app", lambda **_: seen.append(signal.getsignal(number)))
    before = signal.getsignal(number)
    try:
        for action in (signal.SIG_IGN, signal.SIG_DFL):
            signal.signal(number, action)
            main()
            assert signal.getsignal(number) is action
    finally:
        signal.signal(number, before)
    assert seen[0] is signal.SIG_IGN and callable(seen[1])
    thread = threading.Thread(target=main)  # which may not ask for signals
    thread.start()
    thread.join()
    assert seen[2:] == [before]


@pytest.mark.parametrize(
    ("redirected", "arguments", "code", "said"),
    [
        ("2>&-", "--out s.csv", 0, "Wrote the scores of 40 inputs to s.csv"),
        pytest.param("2>&-", "--measure nonsense", 2, "", marks=pytest.mark.slow),
        (">&-", "--top 3", 0, ""),
        ("2>/dev/full", "--measure nonsense", 2, ""),
        (">/dev/full", "", 2, "demur: standard output: cannot be written: No space left on device"),
        pytest.param(
            ">/dev/full",
            "--json",
            2,
            "demur: standard output: cannot be written: No space left on device",
            marks=pytest.mark.slow,
        ),
    ],
)
@pytest.mark.usefixtures("logits")
def test_streams_that_are_closed_or_full(redirected, arguments, code, said):
    if "full" in redirected and not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    line = f'"{sys.executable}" -m demur.cli score z.npy --logits {arguments} {redirected}'
    # Unbuffered, what fails once is forgotten, and cannot fail again when Python ends.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    assert (done.returncode, (done.stdout + done.stderr).strip()) == (code, said)
    assert Path("s.csv").exists() == ("s.csv" in arguments)


def test_an_output_that_is_full_is_no_bad_input(monkeypatch, capsys):
    """Commands that print on their way, as the demo does, say it in one line too."""
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with open("/dev/full", "w") as full, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit, match="2"), bad_output_exits(), bad_input_exits():
            print("on the way", flush=True)
    said = "demur: standard output: cannot be written: No space left on device\n"
    assert capsys.readouterr().err == said


@pytest.mark.usefixtures("logits")
def test_warnings_of_libraries_are_not_for_users():
    torch = pytest.importorskip("torch")
    with zipfile.ZipFile("script.pt", "w") as archive:  # what PyTorch takes for a script, with a warning
        archive.writestr("archive/constants.pkl", b"\x80\x02].")
        archive.writestr("archive/data.pkl", b"\x80\x02].")
        archive.writestr("archive/version", "3\n")
    with pytest.warns(UserWarning, match="TorchScript"), contextlib.suppress(Exception):
        torch.load("script.pt", weights_only=True)
    done = command("score", "script.pt", "--logits")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "script.pt" in done.stderr
    code = (
        "import sys, warnings, demur.cli; sys.argv = ['demur', '--version']\n"
        "try: demur.cli.main()\n"
        "except SystemExit: pass\n"
        "warnings.warn_explicit('theirs', UserWarning, 'x.py', 1, module='torch.load')\n"
        "warnings.warn_explicit('ours', UserWarning, 'x.py', 1, module='demur.posteriors')"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    assert "ours" in said and "theirs" not in said


@pytest.mark.usefixtures("logits")
def test_letters_that_the_terminal_lacks():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = command("score", "z.npy", "--logits", "--out", "ö.csv", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("\\xf6.csv\n") and Path("ö.csv").exists()


@pytest.mark.parametrize("columns", ["20", "40", "59"])
def test_a_narrow_terminal_shows_whole_inputs(monkeypatch, capsys, columns):
    np.save("z.npy", np.random.default_rng(0).normal(size=(3, 20_000, 4)))
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("sys.argv", ["demur", "score", "z.npy", "--logits", "--top", "3"])
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(SystemExit, match="0"):
        main()
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines()[-3:]]
    order = np.argsort(-expected("pairwise", "epistemic", logits=np.load("z.npy")))[:3]
    assert shown == [str(index) for index in order]


def test_progress_on_a_terminal_only(logits):
    pty = pytest.importorskip("pty")
    leader, follower = pty.openpty()
    whole = [sys.executable, "-m", "demur.cli", "score", "z.npy", "--logits", "--json"]
    done = subprocess.run(
        whole, stdout=subprocess.PIPE, stderr=follower, text=True, timeout=300, check=True,
        env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(follower)
    assert json.loads(done.stdout)["inputs"] == 40  # stdout is clean even so
    assert "40/40" in os.read(leader, 65536).decode()
    os.close(leader)


@pytest.mark.parametrize("term", ["dumb", pytest.param("unknown", marks=pytest.mark.slow)])
def test_no_progress_on_a_terminal_that_cannot_show_it(logits, term):
    pty = pytest.importorskip("pty")
    leader, follower = pty.openpty()
    os.set_blocking(leader, False)
    whole = [sys.executable, "-m", "demur.cli", "score", "z.npy", "--logits", "--json"]
    subprocess.run(
        whole, stdout=subprocess.DEVNULL, stderr=follower, timeout=300, check=True,
        env={**os.environ, "TERM": term},
    )  # fmt: skip
    with pytest.raises(BlockingIOError):
        os.read(leader, 65536)
    os.close(follower)
    os.close(leader)


LIMITED = """
import re, sys
from pathlib import Path
from demur.cli import main
import numpy, demur, demur.stores

def peak():
    # Not getrusage: its figure begins with that of the process which started this one.
    return int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])

{warm}
before = peak()
sys.argv = ["demur", "score", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(peak() - before, file=sys.stderr)
"""


@pytest.mark.parametrize(
    "layout",
    [
        "members first",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("inputs first", "many files", "Fortran order")
        ),
    ],
)
def test_memory_is_bounded(layout):
    """A file of 200 MB is scored with 120 MB more than what the program itself takes."""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc")
    members, inputs, classes = 20, 25_000, 100
    rng = np.random.default_rng(0)
    axes = (inputs, members, classes) if layout == "inputs first" else (members, inputs, classes)
    if layout == "many files":
        for index in range(members):
            np.save(f"m{index}.npy", rng.random(axes[1:], np.float32))
        arguments = ["m*.npy"]
    elif layout == "Fortran order":  # a tile of few inputs has numbers on all pages
        members, inputs, classes = 2, 2500, 10_000
        np.save("z.npy", rng.random((classes, inputs, members), np.float32).T)
        arguments = ["z.npy"]
    else:
        array = np.lib.format.open_memmap("z.npy", "w+", np.float32, axes)
        for index in range(len(array)):
            array[index] = rng.random(axes[1:], np.float32)
        array.flush()
        arguments = ["z.npy", "--axis", str(axes.index(members))]
    # Compile, or load compiled, what scoring needs: that is memory of the program, not of the file.
    shape = (2, 13, classes) if layout == "Fortran order" else (16, 1000, classes)
    warm = f"logits = numpy.zeros({shape}, 'float32')\n"
    warm += "moments = demur.Moments().update(logits=logits).update(logits=logits)\n"
    warm += "from demur.scoring.score_table import DEFAULT_MEASURES\n"
    warm += "[moments.decompose(measure=name) for name in DEFAULT_MEASURES]"
    code = LIMITED.format(warm=warm)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments, "--logits", "--out", "scores.npz"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    with np.load("scores.npz") as scores:
        assert len(scores["input"]) == inputs
    for path in Path().glob("*.npy"):
        path.unlink()  # pytest would keep them
    kilobytes = int(done.stderr.split()[-1])
    assert kilobytes < 120_000


@pytest.mark.parametrize(("chosen", "expected"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_that_wait_leave_the_processor_to_others(monkeypatch, chosen, expected):
    """PyTorch reads the setting when it is loaded; who has set it is not overruled."""
    monkeypatch.setenv("OMP_WAIT_POLICY", chosen or "")
    if chosen is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setattr("sys.argv", ["demur", "--version"])
    with pytest.raises(SystemExit):
        main()
    assert os.environ["OMP_WAIT_POLICY"] == expected


def test_labels_of_one_task_may_stand_under_its_name():
    for k in range(2):
        Path(f"net_{k}.csv").write_text(f"tumour,benign\na,0.{k + 1}\nb,0.9\n")
    Path("measured.csv").write_text("tumour,benign\na,0\nb,1\n")
    found = run_json("score", "net_*.csv", "--probs", "--binary", "--labels", "measured.csv")
    assert found["scores"]["label"] == [0, 1] and found["scores"]["tumour"] == ["a", "b"]
