"""`demur evaluate`: scikit-learn's figures from files, the paper's table, decisions, and how it fails."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score, roc_curve
from typer.testing import CliRunner

import demur
from demur.cli import app
from demur.report.tables import PAPER
from demur.stores import read_columns, write_columns


@pytest.fixture(autouse=True)
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*arguments: Any) -> str:
    """Stdout of a command that must succeed, and say nothing on stderr; few resamples, to be quick."""
    quick = [] if arguments[0] == "defer" else ["--resamples", "200"]
    result = CliRunner().invoke(app, ["evaluate", *(str(each) for each in arguments), *quick])
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def run_json(*arguments: Any) -> dict[str, Any]:
    text = run(*arguments, "--json")
    assert text.count("\n") == 1
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def fails(*arguments: Any, words: str) -> None:
    """The command is refused: exit code 2, one line on stderr that has the words, nothing written."""
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    result = CliRunner().invoke(app, ["evaluate", *(str(each) for each in arguments)])
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert result.stderr.startswith("demur: ") and result.stderr.count("\n") == 1
    assert words in result.stderr
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before


def predictions(seed: int, sharpness: float, number: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return sharpness * rng.normal(size=(number, 5)) + rng.normal(size=(6, number, 5))


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Predictions and scores of known and unknown inputs, and labels of the known ones."""
    folder = tmp_path_factory.mktemp("made")
    known, unknown = predictions(0, 3, 120), predictions(1, 1, 80)
    rng = np.random.default_rng(2)
    average = np.mean(np.exp(known) / np.exp(known).sum(-1, keepdims=True), axis=0)
    np.save(folder / "labels.npy", np.array([rng.choice(5, p=p) for p in average]))
    for name, values in (("id", known), ("ood", unknown)):
        np.save(folder / f"{name}.npy", values)
        arguments = [str(folder / f"{name}.npy"), "--logits", "--out", str(folder / f"{name}.csv")]
        assert CliRunner().invoke(app, ["score", *arguments]).exit_code == 0
    return folder


@pytest.fixture
def files(made, tmp_path) -> np.ndarray:
    """The files, in a folder of this test's own; returns the labels."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return np.load("labels.npy")


def by_scikit_learn(scores: np.ndarray, positive: np.ndarray) -> dict[str, float]:
    fpr, tpr, _ = roc_curve(positive, scores, drop_intermediate=False)
    return {
        "auroc": roc_auc_score(positive, scores),
        "aupr": average_precision_score(positive, scores),
        "fpr95": fpr[np.argmax(tpr >= 0.95)],
    }


def values_of(found: dict[str, Any]) -> dict[str, float]:
    return {name: found[name]["value"] for name in ("auroc", "aupr", "fpr95")}


@pytest.mark.parametrize("suffix", ["csv", "npz", "json", "parquet"])
def test_detection_is_that_of_scikit_learn(files, suffix) -> None:
    for name in ("id", "ood"):
        write_columns(Path(f"{name}.{suffix}"), read_columns(Path(f"{name}.csv")), force=True)
    found = run_json("ood", "--id", f"id.{suffix}", "--ood", f"ood.{suffix}")
    both = [read_columns(Path(f"{name}.csv")) for name in ("id", "ood")]
    positive = np.repeat([0, 1], [120, 80])
    for name in PAPER:
        expected = by_scikit_learn(np.concatenate([each[name] for each in both]), positive)
        assert values_of(found["methods"]["id"][name]) == pytest.approx(expected, abs=1e-12)
    assert values_of(found) == values_of(found["methods"]["id"]["pairwise_epistemic"])
    for name in ("auroc", "aupr", "fpr95"):
        assert set(found[name]) == {"value", "low", "high"}
        assert found[name]["low"] <= found[name]["value"] <= found[name]["high"]


def test_misclassification_and_selective(files) -> None:
    columns = read_columns(Path("id.csv"))
    wrong = columns["prediction"] != files
    found = run_json("misclassification", "id.csv", "--labels", "labels.npy", "--score", "average_total")
    assert values_of(found) == pytest.approx(by_scikit_learn(columns["average_total"], wrong), abs=1e-12)
    assert "methods" not in found and found["score"] == "average_total"
    found = run_json("selective", "id.csv", "--labels", "labels.npy", "--score", "pairwise_total")
    order = np.argsort(columns["pairwise_total"])
    area = np.mean(np.cumsum(~wrong[order]) / np.arange(1, 121))
    assert found["auc"]["value"] == pytest.approx(area, abs=1e-12)
    assert found["aurc"]["value"] == pytest.approx(1 - area, abs=1e-12)
    assert found["auc"]["low"] < area < found["auc"]["high"]


def test_one_number_per_input_is_a_score(files) -> None:
    """A .npy, or a .csv of one column, with or without a name."""
    columns = [read_columns(Path(f"{name}.csv"))["pairwise_total"] for name in ("id", "ood")]
    for name, values in zip("ab", columns, strict=True):
        np.save(f"{name}.npy", values)
        np.savetxt(f"{name}.csv", values, fmt="%.17g")
    expected = run_json("ood", "--id", "id.csv", "--ood", "ood.csv", "--score", "pairwise_total")
    for suffix in ("npy", "csv"):
        found = run_json("ood", "--id", f"a.{suffix}", "--ood", f"b.{suffix}")
        assert found["score"] == "score" and found["auroc"] == expected["auroc"]
    np.save("a.npy", np.zeros((3, 4)))
    fails("ood", "--id", "a.npy", "--ood", "b.npy", words="a.npy: expected columns of one value per input")


def test_predictions_are_scored_on_the_way(files) -> None:
    direct = run_json("ood", "--id", "id.npy", "--ood", "ood.npy", "--logits")
    assert direct == run_json("ood", "--id", "id.csv", "--ood", "ood.csv")
    for member, values in enumerate(np.load("id.npy")):
        np.save(f"member_{member}.npy", values)
    globbed = run_json("ood", "--id", "id=member_*.npy", "--ood", "ood.npy", "--logits")
    assert values_of(globbed) == pytest.approx(values_of(direct), abs=1e-12)


def test_calibration(files) -> None:
    found = run_json("calibration", "id.npy", "--logits", "--labels", "labels.npy", "--bins", 5)
    z = np.load("id.npy")
    average = np.mean(np.exp(z) / np.exp(z).sum(-1, keepdims=True), axis=0)
    assert found["nll"]["value"] == pytest.approx(log_loss(files, average, labels=range(5)), abs=1e-12)
    expected = demur.tasks.calibration(average, files, bins=5)
    assert found["ece"]["value"] == pytest.approx(expected.ece.value, abs=1e-12)
    np.save("sure.npy", np.array([[1.0, 0.0], [0.5, 0.5]]))
    np.save("two.npy", np.array([1, 0]))
    assert run_json("calibration", "sure.npy", "--probs", "--labels", "two.npy", "--bins", 1)["nll"] == {
        "value": "inf",
        "low": 0.0,
        "high": "inf",
    }
    assert "NLL" in run("calibration", "id.npy", "--logits", "--labels", "labels.npy")


@pytest.mark.parametrize("how", ["column", "csv", "npz", "parquet", "named", "correct"])
def test_labels_come_in_many_ways(files, how) -> None:
    expected = run_json("misclassification", "id.csv", "--labels", "labels.npy")
    columns = read_columns(Path("id.csv"))
    more: list[str] = ["--labels", f"truth.{how}"]
    if how == "column":
        more = []
        columns["label"] = files
    elif how == "correct":
        more = []
        columns["correct"] = (columns["prediction"] == files).astype(int)
    elif how == "named":
        np.savez("truth.npz", a=files, b=files[::-1].copy())
        more = ["--labels", "truth.npz:a"]
    else:
        write_columns(Path(f"truth.{how}"), {"input": np.arange(120), "label": files})
    write_columns(Path("id.npz"), columns)
    assert run_json("misclassification", "id.npz", *more)["auroc"] == expected["auroc"]


def test_names_of_classes_are_compared_as_text(files) -> None:
    columns = read_columns(Path("id.csv"))
    classes = np.array(["ant", "bee", "cat", "dog", "eel"])
    columns["prediction"] = classes[columns["prediction"]]
    write_columns(Path("named.csv"), columns | {"label": classes[files]})
    found = run_json("misclassification", "named.csv")
    assert found["auroc"] == run_json("misclassification", "id.csv", "--labels", "labels.npy")["auroc"]


def test_infinite_scores_rank_first(files) -> None:
    write_columns(Path("a.json"), {"s": np.array([0.0, 1.0, np.inf])})
    write_columns(Path("b.json"), {"s": np.array([np.inf, np.inf])})
    assert run_json("ood", "--id", "a.json", "--ood", "b.json", "--score", "s")["auroc"]["value"] == 5 / 6


def test_tables_have_methods_in_rows_and_mark_the_best(files) -> None:
    np.save("other_id.npy", predictions(3, 3, 120))
    np.save("other_ood.npy", predictions(4, 1, 80))
    methods = ["--id", "DE=id.npy", "--ood", "DE=ood.npy"]
    methods += ["--id", "MC_D=other_id.npy", "--ood", "MC_D=other_ood.npy", "--logits"]
    rows = list(csv.DictReader(io.StringIO(run("ood", *methods, "--csv"))))
    assert [(r["method"], r["score"]) for r in rows] == [(m, s) for m in ("DE", "MC_D") for s in PAPER]
    full = run_json("ood", *methods)
    for row in rows:
        expected = full["methods"][row["method"]][row["score"]]["auroc"]
        assert [float(row[key]) for key in ("value", "low", "high")] == list(expected.values())
        assert row["figure"] == "auroc" and row["spread"] == ""
    for method in ("DE", "MC_D"):
        own = {r["score"]: r for r in rows if r["method"] == method}
        for part in ("total", "epistemic"):
            two = [own[f"{measure}_{part}"] for measure in ("average", "pairwise")]
            best = max(two, key=lambda row: float(row["value"]))
            assert [row["best"] for row in two] == [str(int(row is best)) for row in two]
            (test,) = (
                c
                for c in full["comparisons"]
                if c["method"] == method and c["scores"] == [row["score"] for row in two]
            )
            (other,) = (row for row in two if row is not best)
            assert other["tied"] == str(int(test["adjusted"] > 0.05))
        assert own["pairwise_aleatoric"]["best"] == "0"
    text = run("ood", *methods, "--splits", 3)
    assert "± ." in text and "mean ± spread over 3 splits" in text and "MC_D" in text
    assert "spread" in run_json("ood", *methods, "--splits", 3)["auroc"]
    latex = run("ood", *methods, "--latex", "--splits", 3)
    assert r"MC\_D & $" in latex and r"\boldsymbol{." in latex and r"_{\pm ." in latex
    assert run("ood", *methods, "--markdown").count("**") >= 8


def test_one_unknown_set_or_many_for_one_known(files) -> None:
    np.save("near.npy", predictions(5, 2, 60))
    text = run("ood", "--id", "id.npy", "--ood", "far=ood.npy", "--ood", "near.npy", "--logits", "--csv")
    assert {row["method"] for row in csv.DictReader(io.StringIO(text))} == {"far", "near"}


def test_one_score_shows_all_its_figures(files) -> None:
    text = run("ood", "--id", "id.csv", "--ood", "ood.csv", "--score", "reverse_epistemic")
    assert all(name in text for name in ("AUROC", "AUPR", "FPR95", "reverse_epistemic"))
    only = ("--score", "reverse_epistemic", "--figure", "aupr", "--csv")
    (row,) = csv.DictReader(io.StringIO(run("ood", "--id", "id.csv", "--ood", "ood.csv", *only)))
    assert (row["figure"], row["score"]) == ("aupr", "reverse_epistemic")


def test_defer_fits_and_applies(files) -> None:
    fitted = run(
        "defer", "fit", "id.csv", "--labels", "labels.npy", "--coverage", 0.5, "--out", "policy.json"
    )
    assert "accuracy of the kept is at least" in fitted and "Keeps 60 of the 120" in fitted
    policy = demur.Deferral.load("policy.json")
    assert policy.score == "pairwise_epistemic"
    text = run("defer", "apply", "policy.json", "ood.csv", "--out", "decisions.csv")
    decided, scores = read_columns(Path("decisions.csv")), read_columns(Path("ood.csv"))
    deferred = policy.defer(scores["pairwise_epistemic"])
    np.testing.assert_array_equal(decided["decision"] == "defer", deferred)
    assert list(decided) == ["input", "prediction", "pairwise_epistemic", "decision"]
    assert f"Keeps {(~deferred).sum()} of 80 inputs" in text
    found = run_json("defer", "apply", "policy.json", "id.npy", "--logits", "--labels", "labels.npy")
    assert found["kept"] == 60 and found["accuracy"]["low"] < found["accuracy"]["value"]


def test_a_method_is_named_by_its_folder(files) -> None:
    for method in ("de", "mcd"):
        Path(method).mkdir()
        shutil.copy("id.csv", Path(method, "id.csv"))
        shutil.copy("ood.csv", Path(method, "ood-far.csv"))
    assert run_json("ood", "--id", "mcd/id.csv", "--ood", "mcd/ood-far.csv")["method"] == "mcd"
    found = run_json("selective", "mcd/id.csv", "de/id.csv", "--labels", "labels.npy")
    assert list(found["methods"]) == ["mcd", "de"]


def test_a_policy_for_other_scores_is_noticed(files) -> None:
    for method in ("de", "mcd"):
        Path(method).mkdir()
        shutil.copy("id.csv", Path(method, "id.csv"))
        shutil.copy("ood.csv", Path(method, "ood-far.csv"))
    run("defer", "fit", "de/id.csv", "--labels", "labels.npy", "--coverage", 0.5, "--out", "policy.json")
    assert demur.Deferral.load("policy.json").method == "de"
    run("defer", "apply", "policy.json", "de/id.csv")
    run("defer", "apply", "policy.json", "de/ood-far.csv")
    run("defer", "apply", "policy.json", "ood.csv")  # of a method that nobody knows
    for other, words in (
        (["mcd/id.csv"], "fitted on de, these are of mcd"),
        (["mcd/ood-far.csv"], "fitted on de, these are of mcd"),
        (["de/id.csv", "--score", "I"], "fitted on pairwise_epistemic, these are average_epistemic"),
    ):
        result = CliRunner().invoke(app, ["evaluate", "defer", "apply", "policy.json", *other])
        assert result.exit_code == 0 and "Keeps" in result.stdout
        assert words in result.stderr and result.stderr.count("\n") == 1


def test_defer_with_several_targets(files) -> None:
    fit = ["defer", "fit", "id.csv", "--labels", "labels.npy"]
    one, fit = [*fit, "--coverage", 0.8], [*fit, "--coverage", 0.5, "--coverage", 0.8, "--cost", 0.3]
    text = run(*fit, "--out", "policies.json")
    policies = demur.Deferrals.load("policies.json")
    assert list(policies) == ["coverage=0.5", "coverage=0.8", "cost=0.3"]
    assert policies.promise() in text and "coverage=0.8: keeps " in text and "Wrote the 3 policies" in text
    assert {each.score for each in policies.values()} == {"pairwise_epistemic"}
    found = run_json(*fit, "--out", "policies.json", "--force")
    assert set(found["policies"]) == set(policies)
    assert found["policies"]["coverage=0.8"]["promise"] == policies["coverage=0.8"].promise()

    run(*one, "--out", "one.json")
    assert demur.Deferral.load("one.json") == policies["coverage=0.8"]
    chosen = run("defer", "apply", "policies.json", "ood.csv", "--target", "coverage=0.8")
    assert chosen == run("defer", "apply", "one.json", "ood.csv")
    assert chosen == run("defer", "apply", "one.json", "ood.csv", "--target", "coverage=0.8")
    fails("defer", "apply", "policies.json", "ood.csv", words="expected --target, one of coverage=0.5")
    fails("defer", "apply", "policies.json", "ood.csv", "--target", "best", words="Got 'best'")


def test_defer_by_groups(files) -> None:
    columns = read_columns(Path("id.csv")) | {"label": files}
    columns["hall"] = np.where(np.arange(120) % 2, "east", "west")
    write_columns(Path("halls.csv"), columns)
    goal = ["--score", "average_total", "--cost", 0.3, "--groups", "hall"]
    found = run_json("defer", "fit", "halls.csv", *goal, "--out", "policy.json")
    assert "Group east" in found["promise"] and "Group west" in found["promise"]
    assert "Group east" in run("defer", "apply", "policy.json", "halls.csv", "--groups", "hall")
    fails("defer", "apply", "policy.json", "halls.csv", words="groups must be given")


def test_nothing_is_written_over(files) -> None:
    fit = ["defer", "fit", "id.csv", "--labels", "labels.npy", "--coverage", 0.5, "--out", "policy.json"]
    run(*fit)
    fails(*fit, words="expected a new file, got one that exists")
    run(*fit, "--force")
    apply = ["defer", "apply", "policy.json", "ood.csv", "--out", "id.csv"]
    fails(*apply, words="expected a new file, got one that exists")


def test_what_is_read_is_never_replaced(files) -> None:
    fit = ["defer", "fit", "scores.json", "--labels", "truth.json", "--coverage", 0.5]
    write_columns(Path("scores.json"), read_columns(Path("id.csv")))
    write_columns(Path("truth.json"), {"label": files})
    run(*fit, "--out", "policy.json")
    for out in ("scores.json", "truth.json"):
        fails(*fit, "--force", "--out", out, words=f"{out}: expected a file that is not read from")
    apply = ["defer", "apply", "policy.json", "scores.json", "--labels", "truth.json", "--force"]
    for out in ("scores.json", "truth.json", "policy.json"):
        fails(*apply, "--out", out, words=f"{out}: expected a file that is not read from")


def test_half_a_policy_is_not_written(files, monkeypatch) -> None:
    def fail(descriptor):
        raise OSError(28, "No space left on device")

    Path("policy.json").write_text("precious")
    monkeypatch.setattr(os, "fsync", fail)
    fit = ["defer", "fit", "id.csv", "--labels", "labels.npy", "--coverage", 0.5, "--out", "policy.json"]
    fails(*fit, "--force", words="policy.json: cannot be written: No space left on device")


def test_a_policy_is_no_pipe(files) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("needs named pipes")
    os.mkfifo("policy.json")
    whole = [sys.executable, "-m", "demur.cli", "evaluate", "defer", "apply", "policy.json", "ood.csv"]
    done = subprocess.run(whole, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "policy.json: expected a file, got a pipe" in done.stderr


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("short", "column"),
    [
        ("K", "pairwise_epistemic"), ("i", "average_epistemic"), ("M", "reverse_epistemic"),
        ("aleatoric", "pairwise_aleatoric"), ("average total", "average_total"),
    ],
)  # fmt: skip
def test_words_of_the_report_are_names_of_scores(short, column):
    for ends, kind in (("csv", ()), ("npy", ("--logits",))):
        files = ("ood", "--id", f"id.{ends}", "--ood", f"ood.{ends}", *kind)
        assert run_json(*files, "--score", short) == run_json(*files, "--score", column)
    run(
        "defer", "fit", "id.csv", "--labels", "labels.npy", "--score", short, "--cost", 0.3, "--out", "p.json"
    )
    assert json.loads(Path("p.json").read_text())["score"] == column


def test_a_column_of_that_very_name_comes_first():
    write_columns(Path("a.json"), {"K": np.array([0.0, 1.0]), "pairwise_epistemic": np.array([1.0, 0.0])})
    write_columns(Path("b.json"), {"K": np.array([2.0, 3.0]), "pairwise_epistemic": np.array([-1.0, -1.0])})
    found = run_json("ood", "--id", "a.json", "--ood", "b.json", "--score", "K")
    assert found["score"] == "K" and found["auroc"]["value"] == 1


def test_a_cell_that_is_no_number_is_quoted_with_its_line():
    Path("a.csv").write_text("s\n0.5\n0.7\n0.9x\n")
    write_columns(Path("b.csv"), {"s": np.array([0.0, 1.0])})
    words = "a.csv: expected numbers in s, got the text '0.9x' at input 2, line 4"
    fails("ood", "--id", "a.csv", "--ood", "b.csv", "--score", "s", words=words)


OOD = ("ood", "--id", "id.csv", "--ood", "ood.csv")


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("arguments", "buffered"),
    [
        pytest.param(OOD, True, id="text, buffered"),
        pytest.param(OOD, False, id="text"),
        pytest.param((*OOD, "--json"), True, id="json, buffered"),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in [
                ((*OOD, "--json"), False),
                (("selective", "id.csv", "--labels", "labels.npy"), True),
                (("selective", "id.csv", "--labels", "labels.npy"), False),
                (("calibration", "id.npy", "--logits", "--labels", "labels.npy"), True),
                (("calibration", "id.npy", "--logits", "--labels", "labels.npy"), False),
            ]
        ),
    ],
)
def test_a_full_output_is_told_in_one_line(arguments, buffered):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    whole = [sys.executable, *([] if buffered else ["-u"]), "-m", "demur.cli", "evaluate", *arguments]
    whole += ["--resamples", "200"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            whole, stdout=full, stderr=subprocess.PIPE, text=True, timeout=300, check=False, env=environment
        )
    said = "demur: standard output: cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.usefixtures("files")
def test_an_equals_sign_in_a_path_is_no_name():
    Path("lr=0.1").mkdir()
    np.savez("lr=0.1/z.npz", **{"a=b": np.load("id.npy"), "c": np.load("ood.npy")})  # pyright: ignore
    for member, values in enumerate(np.load("id.npy")):
        np.save(f"lr=0.1/m{member}.npy", values)
    expected = run_json("misclassification", "id.npy", "--labels", "labels.npy", "--logits")
    for written in ("lr=0.1/z.npz:a=b", "lr=0.1/m*.npy", "DE=lr=0.1/m*.npy", "DE=lr=0.1/z.npz:a=b"):
        found = run_json("misclassification", written, "--labels", "labels.npy", "--logits")
        assert found["auroc"] == expected["auroc"]
        assert (found["method"] == "DE") == written.startswith("DE=")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("ood", "--id", "id.csv"), "Missing option '--ood': see demur evaluate ood --help"),
        (("ood", "--id", "none.csv", "--ood", "ood.csv"), "none.csv: cannot be read"),
        (("ood", "--id", "id.npy", "--ood", "ood.npy"), "for predictions say --logits"),
        ((*OOD, "--score", "spread"), "id.csv: expected a column spread, got input, prediction"),
        (
            (*OOD, "--score", "spread"),
            "short names are K for pairwise_epistemic, I for average_epistemic, M for reverse_epistemic, ",
        ),
        ((*OOD, "--seed", "minus"), "Invalid value for '--seed': "),
        (
            (*OOD, "--logits"),
            "id.csv: expected predictions, one column per class, got scores, as pairwise_",
        ),
        ((*OOD, "--figure", "auc"), "--figure: expected one of auroc, aupr, fpr95, got auc"),
        ((*OOD, "--json", "--csv"), "expected at most one form, got --json and --csv"),
        ((*OOD, "--confidence", "95"), "confidence must be between 0 and 1, as 0.95. Got 95. Write 0.95."),
        ((*OOD, "--interval", "wald"), "interval must be 'auto'"),
        ((*OOD, "--splits", "1"), "splits must be at least 2"),
        ((*OOD, "--id", "other=ood.csv"), "expected an --ood of the same name for each --id"),
        ((*OOD, "--ood", "ood.csv"), "expected a different name for each file"),
        ((*OOD, "--logits", "--probs"), "expected exactly one of --logits"),
        (("misclassification", "id.csv"), "give the true classes with --labels FILE or FILE:COLUMN"),
        (("misclassification", "id.csv", "--labels", "short.npy"), "expected 120, one for each input"),
        (
            ("misclassification", "id.csv", "--labels", "names.npy"),
            "in the labels, at input 0, and numbers in the predictions",
        ),
        (("misclassification", "id.csv", "--labels", "nan.npy"), "got NaN at input 3"),
        (("misclassification", "id.csv", "--labels", "shuffled.csv"), "in the same order, got another input"),
        (("misclassification", "id.csv", "--labels", "id.csv"), "expected a column named label"),
        (("misclassification", "id.csv", "--labels", "notes.md"), "expected labels in a file that ends in"),
        (("misclassification", "id.csv", "--labels", "all.npy"), "Got 120 that are all right"),
        (("selective", "id.csv", "--labels", "labels.npy", "--prediction", "deployed"), "column deployed"),
        (("calibration", "id.npy", "--labels", "labels.npy"), "expected exactly one of --logits"),
        (
            ("calibration", "id.npy", "./id.npy", "--labels", "labels.npy", "--logits"),
            "expected a different name for each file, as NAME=./id.npy, got id twice",
        ),
        (("calibration", "id.npy", "--labels", "short.npy", "--logits"), "labels must be integers of shape"),
        (("defer", "fit", "id.csv", "--labels", "labels.npy", "--out", "p.json"), "a target of accuracy"),
        (
            ("defer", "fit", "id.csv", "--labels", "labels.npy", "--accuracy", "0.9999", "--out", "p.json"),
            "No threshold can promise an accuracy of 0.9999",
        ),
        (
            ("defer", "fit", "id.csv", "--labels", "labels.npy", "--accuracy", "0.9", "--out", "p.csv"),
            "expected an output file that ends in .json",
        ),
        (("defer", "apply", "id.csv", "ood.csv"), "must be a policy written by Deferral.save"),
        (("defer", "apply", "none.json", "ood.csv"), "none.json"),
        (
            ("defer", "apply", "odd.json", "ood.csv"),
            "odd.json must be a policy written by Deferral.save, or several by Deferrals.save. Got something "
            "else: 1 for score",
        ),
    ],
)
def test_bad_input_is_told_in_one_line(files, arguments, words) -> None:
    np.save("short.npy", files[:100])
    np.save("names.npy", np.full(120, "cat"))
    demur.Deferral.fit(np.arange(9.0), np.arange(9) < 5, cost=0.3).save("odd.json")
    Path("odd.json").write_text(json.dumps(json.loads(Path("odd.json").read_text()) | {"score": 1}))
    np.save("nan.npy", np.where(np.arange(120) == 3, np.nan, files))
    np.save("all.npy", read_columns(Path("id.csv"))["prediction"])
    write_columns(Path("shuffled.csv"), {"input": np.arange(120)[::-1].copy(), "label": files})
    fails(*arguments, words=words)


def test_real_predictions_give_the_published_figures(data_kit) -> None:
    """Ten ImageNet models against textures: the kit's own AUROCs, and scikit-learn's to 1e-12."""
    held = np.load(data_kit / "imagenet_ensemble" / "ensemble10_logprobs.npz")
    for name in ("val", "dtd"):
        logs = -held[f"{name}_q"].astype(np.float32) / 16
        np.put_along_axis(
            logs, held[f"{name}_top5_index"].astype(np.int64), held[f"{name}_top5_logp"], axis=-1
        )
        np.save(f"{name}.npy", logs)  # not yet normalised: as logits
    np.save("labels.npy", held["val_label"])
    found = run_json("ood", "--id", "val.npy", "--ood", "dtd.npy", "--logits", "--interval", "asymptotic")
    published = {"average_total": 0.901, "pairwise_aleatoric": 0.889, "average_epistemic": 0.913}
    for score, auroc in published.items():
        assert found["methods"]["val"][score]["auroc"]["value"] == pytest.approx(auroc, abs=6e-4)
    known, unknown = (demur.decompose(logits=np.load(f"{name}.npy")).epistemic for name in ("val", "dtd"))
    expected = by_scikit_learn(np.append(known, unknown), np.repeat([0, 1], [2000, 480]))
    assert values_of(found) == pytest.approx(expected, abs=1e-12)
    errors = (
        "misclassification",
        "val.npy",
        "--labels",
        "labels.npy",
        "--logits",
        "--score",
        "average_total",
    )
    assert run_json(*errors)["auroc"]["value"] == pytest.approx(0.814, abs=6e-4)


def write_clustered(path, shift=0.0, seed=0):
    """Write scores of 30 images of 20 pixels, which go together within an image."""
    rng = np.random.default_rng(seed)
    image = np.repeat(np.arange(30), 20)
    values = shift + rng.normal(size=30)[image] + rng.normal(size=600)
    label = (rng.uniform(size=600) < 0.3).astype(int)
    columns = {"pairwise_epistemic": values + label, "prediction": np.zeros(600, int), "label": label}
    write_columns(path, columns | {"image": np.array([f"{path.stem}-{each}" for each in image])})


def test_clusters_make_intervals_over_whole_images(tmp_path):
    write_clustered(tmp_path / "id.csv")
    write_clustered(tmp_path / "ood.csv", 1.0, 1)
    found = {
        name: read_columns(tmp_path / f"{name}.csv") for name in ("id", "ood")
    }  # fmt: skip
    scores = [found[name]["pairwise_epistemic"] for name in found]
    images = tuple(found[name]["image"] for name in found)
    expected = demur.tasks.detection(*scores, clusters=images)
    given = ("ood", "--id", "id.csv", "--ood", "ood.csv")
    assert run_json(*given, "--clusters", "image")["auroc"] == expected.auroc.to_dict()
    alone = run_json(*given)["auroc"]
    assert expected.auroc.high - expected.auroc.low > 2 * (alone["high"] - alone["low"])
    assert "intervals over draws of whole clusters" in run(*given, "--clusters", "image")
    correct = found["id"]["label"] == 0
    for task, figure in (("misclassification", "auroc"), ("selective", "auc")):
        expected = getattr(demur.tasks, task)(scores[0], correct, clusters=images[0])
        shown = run_json(task, "id.csv", "--clusters", "image")
        assert shown[figure] == getattr(expected, figure).to_dict()
        if task == "misclassification":
            assert shown["within"] == expected.within.to_dict()


def test_clusters_of_the_file_of_labels(tmp_path):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3, 90, 4))
    np.save("id.npy", logits)
    labels, patient = rng.integers(0, 4, 90), np.arange(90) // 9
    write_columns(tmp_path / "labels.csv", {"label": labels, "patient": patient})
    given = ("id.npy", "--logits", "--labels", "labels.csv")
    p = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    expected = demur.tasks.calibration(p.mean(axis=0), labels, clusters=patient, resamples=200)
    shown = run_json("calibration", *given, "--clusters", "patient")["brier"]
    assert shown == pytest.approx(expected.brier.to_dict())
    text = run("misclassification", *given, "--clusters", "patient", "--score", "K")
    assert "over draws of whole clusters" in text


def test_a_column_of_clusters_that_is_not_there(tmp_path):
    write_clustered(tmp_path / "id.csv")
    result = CliRunner().invoke(app, ["evaluate", "misclassification", "id.csv", "--clusters", "patient"])
    assert result.exit_code == 2
    assert "id.csv: expected a column patient, got pairwise_epistemic" in result.stderr


def test_pooled_figures_of_unlike_images_say_so(tmp_path):
    rng = np.random.default_rng(0)
    image = np.repeat(np.arange(40), 50)
    bad = image % 2 == 1
    label = (rng.uniform(size=2000) < np.where(bad, 0.5, 0.05)).astype(int)
    scores = bad + rng.normal(0, 0.3, 2000)
    columns = {"pairwise_epistemic": scores, "average_epistemic": scores / 2, "label": label, "image": image}
    write_columns(tmp_path / "id.csv", columns | {"prediction": np.zeros(2000, int)})
    for more in ((), ("--score", "K")):
        text = " ".join(run("misclassification", "id.csv", "--clusters", "image", *more).split())
        assert "pools unlike clusters: between inputs of one cluster, AUROC is .504" in text
    columns["part"] = np.where(bad, "object", "background")
    write_columns(tmp_path / "parts.csv", columns | {"prediction": np.zeros(2000, int)})
    text = " ".join(run("misclassification", "parts.csv", "--strata", "part", "--score", "K").split())
    assert "parts: pools unlike strata: between inputs of one stratum, AUROC is .50" in text
    assert "pools unlike" not in run("misclassification", "id.csv")


def test_scores_of_ones_own_with_correct_as_text():
    """As pandas writes them; an empty cell is a truth that nobody knows."""
    rng = np.random.default_rng(0)
    scores = rng.uniform(size=300)
    right = rng.uniform(size=300) > scores / 2
    words = [str(each) for each in right]
    for name, cells in (("numbers", right.astype(int)), ("words", words), ("gaps", ["", *words[1:]])):
        rows = [f"{score},{cell}" for score, cell in zip(scores, cells, strict=True)]
        Path(f"{name}.csv").write_text("\n".join(["doubt,correct", *rows]))
    found = [
        run_json("misclassification", f"{name}.csv", "--score", "doubt") for name in ("numbers", "words")
    ]
    assert found[0]["auroc"] == found[1]["auroc"]
    arguments = ["evaluate", "misclassification", "gaps.csv", "--score", "doubt", "--resamples", "100"]
    assert "left out 1 row without a label" in CliRunner().invoke(app, arguments).stderr
    Path("labels.csv").write_text("doubt,correct\n0.1,3\n0.2,1\n")
    fails(
        "misclassification", "labels.csv", "--score", "doubt", words="nothing in correct, got '3' at input 0"
    )
    fails("misclassification", "words.csv", words="got doubt: choose one with --score\n")
