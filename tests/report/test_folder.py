"""`demur report` on folders: what is read, and one line for what is wrong with them."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from demur.cli import app
from demur.report.run_folder import read_run
from demur.stores import StoreError, read_columns, write_columns


def report(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_methods_sets_and_all_that_is_beside_them(tmp_path, write_run):
    facts = {"title": "T", "seed": 3, "command": "c", "versions": {"numpy": "2"}, "classes": ["a", "b"]}
    sets = ("id", "ood-b10", "ood-b9", "adversarial-pgd")
    folder = write_run(tmp_path, methods=("one", "two"), sets=sets, images=(6, 5, 3), facts=facts, number=20)
    (folder / "figures").mkdir()
    (folder / "labels.csv").write_text("a\n1\n")
    run = read_run(folder)
    assert [m.name for m in run.methods] == ["one", "two"]
    assert run.sets == ["id", "ood-b9", "ood-b10", "adversarial-pgd"]
    assert (run.title, run.seed, run.command, run.versions) == ("T", "3", "c", {"numpy": "2"})
    assert [run.name_of(k) for k in (0, 1, 2, -1, "x")] == ["a", "b", "2", "-1", "x"]
    assert set(run.images) == set(run.sets) and set(run.methods[1].members) == set(run.sets)
    correct = run.methods[0].sets["id"].correct
    columns = read_columns(folder / "one" / "id.npz")
    np.testing.assert_array_equal(correct, columns["label"] == columns["prediction"])


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
def test_every_format_of_scores(tmp_path, write_run, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    run = read_run(write_run(tmp_path, suffix=suffix, number=10, members=False))
    assert run.methods[0].name == "" and len(run.scores) == 9


def test_inputs_without_a_prediction_are_left_out(tmp_path, write_run):
    """With their pictures and members; the others keep their numbers as names."""
    folder = write_run(tmp_path, images=(6, 5), number=12)
    whole = read_run(folder)
    status = np.where(np.arange(12) == 4, "no prediction: NaN in all members", "ok")
    gone = np.where(np.arange(12) == 4, np.nan, 1.0)
    spoil(folder / "id.npz", status=status, pairwise_epistemic=gone)
    run = read_run(folder)
    (method,), kept = run.methods, np.delete(np.arange(12), 4)
    assert method.sets["id"].number == 11 and method.sets["id"].left_out == 1
    assert method.sets["id"].ids is not None and method.sets["id"].ids.tolist() == kept.astype(str).tolist()
    np.testing.assert_array_equal(run.images["id"], whole.images["id"][kept])
    np.testing.assert_array_equal(method.members["id"], whole.methods[0].members["id"][:, kept])


def test_each_task_is_a_method(tmp_path):
    """An input that one task has no prediction for is left out of all: they are of the same inputs."""
    tasks, scores = np.tile(["a", "b"], 4), np.arange(8.0)
    status = np.where(np.arange(8) == 3, "no prediction: NaN in all members", "ok")
    scores[3] = np.nan
    columns = {"input": np.repeat(np.arange(4), 2), "task": tasks, "smiles": np.repeat(list("wxyz"), 2)}
    columns |= {"label": np.array([0, 1] * 4), "prediction": np.zeros(8, int)}
    write_columns(tmp_path / "id.csv", columns | {"pairwise_epistemic": scores, "status": status})
    run = read_run(tmp_path)
    assert [method.name for method in run.methods] == ["a", "b"]
    for method, expected in zip(run.methods, ([0, 4, 6], [1, 5, 7]), strict=True):
        found = method.sets["id"]
        assert found.scores["pairwise_epistemic"].tolist() == expected
        assert found.ids is not None and found.ids.tolist() == ["w", "y", "z"]
        assert found.correct is not None and found.correct.all() == (method.name == "a")


def test_labels_by_name_are_compared_with_names(tmp_path):
    columns = {"label": np.array(["cat", "dog"]), "prediction": np.array([0, 0])}
    columns |= {"prediction_name": np.array(["cat", "cat"]), "pairwise_epistemic": np.array([0.1, 0.2])}
    write_columns(tmp_path / "id.csv", columns)
    correct = read_run(tmp_path).methods[0].sets["id"].correct
    assert correct is not None and correct.tolist() == [True, False]


def spoil(path, **changes):
    columns = read_columns(path)
    path.unlink()
    write_columns(path, {k: v for k, v in (columns | changes).items() if v is not None})


def missing(folder):
    return folder / "nowhere"


def a_file(folder):
    return folder / "id.npz"


def empty(folder):
    (folder / "empty").mkdir()
    return folder / "empty"


def two_formats(folder):
    write_columns(folder / "id.csv", read_columns(folder / "id.npz"))


def both_levels(folder):
    (folder / "method").mkdir()
    write_columns(folder / "method" / "id.csv", read_columns(folder / "id.npz"))


def damaged(folder):
    (folder / "id.npz").write_bytes(b"PK")


def nan(folder):
    spoil(folder / "id.npz", pairwise_total=np.append(np.nan, np.ones(11)))


def no_scores(folder):
    (folder / "id.npz").unlink()
    write_columns(folder / "id.npz", {"input": np.arange(12), "label": np.arange(12)})


def nothing_common(folder):
    (folder / "id.npz").unlink()
    write_columns(folder / "id.npz", {"mine": np.arange(12.0)})


def mixed_labels(folder):
    spoil(folder / "id.npz", label=np.array(["cat"] * 12))


def bad_json(folder):
    (folder / "run.json").write_text("{")


def odd_json(folder):
    (folder / "run.json").write_text('{"classes": "abc"}')


def list_json(folder):
    (folder / "run.json").write_text("[]")


def float_images(folder):
    (folder / "images").mkdir()
    np.save(folder / "images" / "id.npy", np.zeros((12, 4, 4)))


def few_images(folder):
    (folder / "images").mkdir()
    np.save(folder / "images" / "id.npy", np.zeros((11, 4, 4), np.uint8))


def damaged_images(folder):
    (folder / "images").mkdir()
    (folder / "images" / "id.npy").write_bytes(b"no")


def few_members(folder):
    np.save(folder / "members-id.npy", np.zeros((3, 11, 4)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (missing, "expected the folder of a run, got nothing"),
        (a_file, "expected the folder of a run, got a file"),
        (empty, "expected scores, as id.csv"),
        (two_formats, "expected one file of scores for a set"),
        (both_levels, "in it or in folders for each method, got both"),
        (damaged, "damaged or foreign"),
        (nan, "got NaN for 1 of 12 inputs, first at input 0"),
        (no_scores, "expected columns of scores"),
        (nothing_common, "expected a score that all files have"),
        (mixed_labels, "label and prediction both as numbers or both as names"),
        (bad_json, "expected a JSON object with title"),
        (odd_json, "expected a JSON object with title"),
        (list_json, "expected a JSON object with title"),
        (float_images, "expected uint8 images of shape (12,"),
        (few_images, "got uint8 of shape (11, 4, 4)"),
        (damaged_images, "expected uint8 images"),
        (few_members, "log-probabilities of shape (members, 12, classes)"),
    ],
)
def test_a_bad_folder_is_one_line_and_exit_2(tmp_path, write_run, change, message):
    folder = write_run(tmp_path, number=12, members=False)
    done = report(change(folder) or folder)
    assert done.exit_code == 2
    assert message in done.stderr and done.stderr.count("\n") == 1 and done.stderr.startswith("demur: ")
    assert not (folder / "report.html").exists()


def test_methods_must_have_scored_the_same(tmp_path, write_run):
    folder = write_run(tmp_path, methods=("a", "b"), number=12, members=False)
    (folder / "b" / "ood-far.npz").unlink()
    with pytest.raises(StoreError, match="same sets, got none of ood-far for b"):
        read_run(folder)
    write_run(folder, methods=("b",), sets=("ood-far",), number=11, members=False)
    with pytest.raises(StoreError, match="expected scores of 12 inputs"):
        read_run(folder)


def test_options(tmp_path, write_run):
    folder = write_run(tmp_path, number=60)
    out = tmp_path / "page.html"
    done = report(folder, "--out", out, "--accuracy", 0.5, "--confidence", 0.9, "--top", 3)
    assert (done.exit_code, done.stdout) == (0, f"{out}\n")
    text = out.read_text(encoding="utf-8").split('id="data">')[1].split("</script>")[0]
    data = json.loads(text)
    assert data["confidence"] == 0.9 and data["top"] == 3
    assert [p["target"] for p in data["results"][0][0]["slider"]["promises"]] == [0.5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--accuracy", "1.5"], "accuracy must be between 0 and 1"),
        (["--confidence", "95"], "confidence must be between 0 and 1"),
        (["--top", "0"], "Invalid value for '--top'"),
        (["--out", "page.txt"], "ends in .html"),
        (["--out", "nowhere/page.html"], "expected a directory to write to, found none"),
    ],
)
def test_bad_options_are_one_line(tmp_path, write_run, arguments, message):
    done = report(write_run(tmp_path, number=30), *arguments)
    assert done.exit_code == 2 and message in done.stderr and done.stderr.count("\n") == 1


def test_a_report_is_replaced_whole_and_nothing_else_is_left(tmp_path, write_run):
    folder = write_run(tmp_path, number=30)
    before = set(folder.iterdir())
    assert report(folder).exit_code == 0
    first = (folder / "report.html").read_bytes()
    assert report(folder).exit_code == 0
    assert (folder / "report.html").read_bytes() == first
    assert set(folder.iterdir()) == before | {folder / "report.html"}
    (folder / "report.html").write_text("<html>my own</html>")
    refused = report(folder)
    assert refused.exit_code == 2 and "expected a page that demur report wrote" in refused.stderr
    assert (folder / "report.html").read_text() == "<html>my own</html>"
    (folder / "report.html").unlink()
    (folder / "report.html").mkdir()
    assert "got a directory" in report(folder).stderr


def test_a_bad_cell_does_not_drop_its_column(tmp_path):
    (tmp_path / "id.csv").write_text("pairwise_epistemic,mine\n0.5,1.0\n?,2.0\n")
    with pytest.raises(
        StoreError, match=r"numbers in pairwise_epistemic, got the text '\?' at input 1, line 3"
    ):
        read_run(tmp_path)
