"""`demur monitor`: from log files to alarms, as a cron job would call it."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import demur
from demur.cli import app
from demur.stores import write_columns


def call(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "160"})
    assert done.exit_code == code, (done.stdout, done.stderr, done.exception)
    return done.stdout + done.stderr


def write_log(path: Path, scores, correct, first: int, *, labels=True) -> None:
    ids = np.array([f"in-{k}" for k in range(first, first + len(scores))])
    columns = {"id": ids, "pairwise_epistemic": scores, "size": 100 + 10 * scores}
    if path.suffix == ".jsonl":
        rows = zip(ids, scores, 100 + 10 * scores, correct, strict=True)
        with path.open("w") as file:
            for name, score, size, right in rows:
                row = {"id": name, "pairwise_epistemic": score, "size": size}
                file.write(json.dumps(row | ({"correct": bool(right)} if labels else {})) + "\n")
        return
    write_columns(path, columns | ({"correct": correct.astype(int)} if labels else {}), force=True)


@pytest.fixture
def folder(tmp_path, policy_file, calibration_file):
    call(
        "monitor", "start", tmp_path / "watch", "--policy", policy_file, "--audit", 0.3,
        "--calibration", calibration_file, "--column", "size",
    )  # fmt: skip
    return tmp_path / "watch"


def draw(number, seed, harm=0.0):
    rng = np.random.default_rng(seed)
    scores = rng.uniform(size=number)
    return scores, rng.uniform(size=number) > scores**2 / 3 + harm


@pytest.fixture
def policy_file(tmp_path):
    demur.Deferral.fit(*draw(4000, 0), accuracy=0.95).save(tmp_path / "policy.json")
    return tmp_path / "policy.json"


@pytest.fixture
def calibration_file(tmp_path):
    write_log(tmp_path / "calibration.csv", *draw(4000, 0), 0)
    return tmp_path / "calibration.csv"


def test_calm_traffic_then_harm_from_all_formats(folder, tmp_path) -> None:
    for day, suffix in enumerate(("csv", "parquet", "jsonl")):
        write_log(tmp_path / f"{day}.{suffix}", *draw(600, day + 1), 600 * day)
        said = call("monitor", "observe", folder, tmp_path / f"{day}.{suffix}")
        assert "No alarm" in said and "Drift over" in said
    again = call("monitor", "observe", folder, tmp_path / "2.jsonl", "--json")
    found = json.loads(again)
    assert found["observed"] == 1800 and not found["alarm"] and found["recommend"]["action"] == "keep"
    assert set(found["drift"]) == {"pairwise_epistemic", "size"}
    write_log(tmp_path / "bad.csv", *draw(1500, 9, harm=0.15), 1800)
    said = call("monitor", "observe", folder, tmp_path / "bad.csv", code=3)
    assert "Alarm after" in said and ("Withdraw" in said or "Defer scores above" in said)
    assert json.loads(call("monitor", "status", folder, "--json", code=3))["alarm_at"] > 1800
    page = Path(call("monitor", "report", folder).strip()).read_text()
    assert "Alarm after" in page and page.count("<svg") == 3 and "{{" not in page


def test_one_policy_of_several_is_watched(tmp_path) -> None:
    path = tmp_path / "policies.json"
    demur.Deferrals.fit(*draw(4000, 0), accuracy=[0.9, 0.95]).save(path)
    said = call("monitor", "start", tmp_path / "watch", "--policy", path, code=2)
    assert "expected --target, one of accuracy=0.9, accuracy=0.95" in said
    call("monitor", "start", tmp_path / "watch", "--policy", path, "--target", "accuracy=0.95")
    (group,) = json.loads(call("monitor", "status", tmp_path / "watch", "--json"))["groups"].values()
    assert group["accuracy"] == pytest.approx(0.95)


def test_a_score_of_another_name_is_watched_for_drift_too(tmp_path, policy_file) -> None:
    for name, seed in (("calibration", 0), ("day", 1)):
        scores, correct = draw(300, seed)
        ids = np.array([f"{name} {k}" for k in range(300)])
        write_columns(tmp_path / f"{name}.csv", {"id": ids, "doubt": scores, "correct": correct.astype(int)})
    options = ["--policy", policy_file, "--calibration", tmp_path / "calibration.csv", "--score", "doubt"]
    call("monitor", "start", tmp_path / "watch", *options)
    said = call("monitor", "observe", tmp_path / "watch", tmp_path / "day.csv", "--score", "doubt", "--json")
    assert set(json.loads(said)["drift"]) == {"doubt"} and json.loads(said)["observed"] == 300


def test_labels_come_later_for_those_asked(folder, tmp_path) -> None:
    scores, correct = draw(500, 1)
    write_log(tmp_path / "day.csv", scores, correct, 0, labels=False)
    said = call("monitor", "observe", folder, tmp_path / "day.csv", "--to-audit", tmp_path / "ask.csv")
    with (tmp_path / "ask.csv").open() as file:
        asked = [row["id"] for row in csv.DictReader(file)]
    assert f"Wrote {len(asked)} ids" in said and 50 < len(asked) < 150
    assert json.loads(call("monitor", "status", folder, "--json"))["missing"] == len(asked)
    numbers = [int(each[3:]) for each in asked]
    answers = {
        "id": np.array([*asked, "in-9999"]),
        "correct": np.array([*correct[numbers], True]).astype(str),
    }
    write_columns(tmp_path / "answers.csv", answers)
    said = call("monitor", "observe", folder, tmp_path / "answers.csv", "--to-audit", tmp_path / "none.csv")
    assert "ignored 1 label" in said and (tmp_path / "none.csv").read_text() == "id\n"
    whole = demur.Monitor(demur.Deferral.load(tmp_path / "policy.json"), audit=0.3)
    whole.observe(scores, correct, ids=[f"in-{k}" for k in range(500)])
    found = json.loads(call("monitor", "status", folder, "--json"))
    assert found["missing"] == 0 and found["capital"] == pytest.approx(whole.status.capital)


def test_labels_and_predictions_with_empty_cells(folder, tmp_path) -> None:
    scores, correct = draw(300, 1)
    label = np.where(np.arange(300) % 3, np.where(correct, "cat", "dog"), "")
    columns = {"id": np.arange(300).astype(str), "pairwise_epistemic": scores, "size": scores}
    write_columns(tmp_path / "day.csv", columns | {"prediction": np.full(300, "cat"), "label": label})
    call("monitor", "observe", folder, tmp_path / "day.csv")
    found = json.loads(call("monitor", "status", folder, "--json"))
    assert 0 < found["missing"] < found["audited"]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_classes_beside_empty_cells_are_numbers(folder, tmp_path, suffix) -> None:
    """Pandas writes a column of classes some of which are not known as 2.0, and predictions as 2."""
    pandas = pytest.importorskip("pandas")
    scores, _ = draw(200, 1)
    prediction = np.arange(200) % 3
    table = pandas.DataFrame({"id": np.arange(200), "pairwise_epistemic": scores, "size": scores})
    table["prediction"], table["label"] = prediction, np.where(np.arange(200) % 4, prediction, np.nan)
    path = tmp_path / f"day.{suffix}"
    options = {"csv": {"index": False}, "parquet": {}, "jsonl": {"orient": "records", "lines": True}}
    getattr(table, f"to_{suffix.rstrip('l')}")(path, **options[suffix])
    found = json.loads(call("monitor", "observe", folder, path, "--json"))
    assert 0 < found["missing"] < found["audited"] and found["risk"]["value"] == 0


def test_a_parquet_log_has_empty_cells_and_columns_of_any_type(folder, tmp_path) -> None:
    pandas = pytest.importorskip("pandas")
    scores, correct = draw(200, 1)
    table = pandas.DataFrame({"id": np.arange(200), "pairwise_epistemic": scores, "size": scores})
    table["time"] = pandas.date_range("2026-01-01", periods=200)
    table["comment"] = np.where(np.arange(200) % 2, "good", None)
    table["features"] = [[1.0, 2.0]] * 200
    table["correct"] = np.where(np.arange(200) % 4, correct, None)
    table.to_parquet(tmp_path / "day.parquet")
    found = json.loads(call("monitor", "observe", folder, tmp_path / "day.parquet", "--json"))
    table[["id", "pairwise_epistemic", "size", "correct"]].to_csv(tmp_path / "day.csv", index=False)
    again = json.loads(call("monitor", "observe", folder, tmp_path / "day.csv", "--json"))
    assert again == found and 0 < found["missing"] < found["audited"] and found["observed"] == 200
    table["id"] = np.where(np.arange(200) == 3, np.nan, np.arange(200))
    table.to_parquet(tmp_path / "nameless.parquet")
    said = call("monitor", "observe", folder, tmp_path / "nameless.parquet", code=2)
    assert "ids must not be empty. Got '' at input 3" in said


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("pairwise_epistemic\n0.5\n", "expected a column id"),
        ("id,other\na,0.5\n", "expected a column pairwise_epistemic"),
        (
            "id,pairwise_epistemic,size,correct\na,0.5,1,maybe\n",
            "expected true or false, 1 or 0, or nothing in correct, got 'maybe' at input 0",
        ),
        ("id,pairwise_epistemic,size,correct\na,high,1,1\n", "expected numbers"),
    ],
)
def test_bad_logs_are_one_line_and_change_nothing(folder, tmp_path, content, message) -> None:
    (tmp_path / "log.csv").write_text(content)
    said = call("monitor", "observe", folder, tmp_path / "log.csv", code=2)
    assert message in said and said.count("\n") == 1
    assert json.loads(call("monitor", "status", folder, "--json"))["observed"] == 0


def test_a_log_that_is_still_being_written_is_read_up_to_its_last_line(folder, tmp_path) -> None:
    log = tmp_path / "log.jsonl"
    write_log(log, *draw(50, 1), 0)
    whole = log.read_bytes()
    log.write_bytes(whole[:-20])
    call("monitor", "observe", folder, log)
    assert json.loads(call("monitor", "status", folder, "--json"))["observed"] == 49
    log.write_bytes(b"nothing\n" + whole)
    assert "in line 1" in call("monitor", "observe", folder, log, code=2)


def test_folders_are_new_once_and_there_afterwards(folder, tmp_path, policy_file) -> None:
    assert "expected a new folder" in call("monitor", "start", folder, "--policy", policy_file, code=2)
    assert "must be the folder of a monitor" in call("monitor", "status", tmp_path / "none", code=2)
    said = call("monitor", "start", tmp_path / "b", "--policy", policy_file, "--column", "size", code=2)
    assert "--calibration" in said


@pytest.mark.slow
def test_a_year_of_traffic_in_a_cron_job(tmp_path, policy_file) -> None:
    """A log a week, its labels a week later; harm from week 30 on. Every fourth file is given twice."""
    folder, log, ask = tmp_path / "watch", tmp_path / "week.csv", tmp_path / "ask.csv"
    invoke("monitor", "start", folder, "--policy", policy_file, "--audit", 0.2)
    rng = np.random.default_rng(0)
    truth: dict[str, bool] = {}
    alarm, number, found = None, 1000, {}
    for week in range(52):
        if ask.exists():
            with ask.open() as file:
                asked = [row["id"] for row in csv.DictReader(file)]
            columns = {
                "id": np.array(asked),
                "correct": np.array([truth[each] for each in asked]).astype(int),
            }
            write_columns(tmp_path / "labels.csv", columns, force=True)
            found = json.loads(invoke("monitor", "observe", folder, tmp_path / "labels.csv", "--json"))
            if alarm is None and found["alarm"]:
                alarm = week
        scores = rng.uniform(size=number)
        correct = rng.uniform(size=number) > scores**2 / 3 + (0.15 if week >= 30 else 0)
        truth |= {f"in-{number * week + k}": bool(right) for k, right in enumerate(correct)}
        write_log(log, scores, correct, number * week, labels=False)
        for _ in range(1 + (week % 4 == 0)):
            found = json.loads(
                invoke("monitor", "observe", folder, log, "--to-audit", ask, "--force", "--json")
            )
    assert alarm is not None and 30 < alarm < 36
    assert found["observed"] == 52 * number and found["recommend"]["action"] == "withdraw"
    assert "Alarm after" in Path(invoke("monitor", "report", folder).strip()).read_text()


def invoke(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code in (0, 3), (done.output, done.exception)
    return done.stdout


def test_a_merged_folder_tells_its_alarm_without_advice(folder, tmp_path, policy_file) -> None:
    """Each server has advice of its own, which a merged monitor cannot give."""
    write_log(tmp_path / "bad.csv", *draw(1500, 9, harm=0.3), 0)
    call("monitor", "observe", folder, tmp_path / "bad.csv", code=3)
    other = demur.Monitor(demur.Deferral.load(policy_file), audit=0.3, seed=1)
    scores, correct = draw(500, 3)
    other.observe(scores, correct, ids=[f"other {k}" for k in range(500)])
    with demur.Monitor.open(folder) as monitor:
        monitor.merge(other)
    found = json.loads(call("monitor", "status", folder, "--json", code=3))
    assert found["observed"] == 2000 and found["recommend"] is None
    assert "Defer scores" not in call("monitor", "status", folder, code=3)
    assert "Alarm" in Path(call("monitor", "report", folder).strip()).read_text()


def test_edited_files_of_a_folder_are_one_line(folder, tmp_path) -> None:
    write_log(tmp_path / "day.csv", *draw(300, 1), 0)
    call("monitor", "observe", folder, tmp_path / "day.csv")
    for path in [folder / "monitor.json", *folder.glob("log-*.txt"), *folder.glob("drift-*.json")]:
        whole = path.read_bytes()
        path.write_bytes(whole.replace(b"0.", b"1.", 1))
        assert path.read_bytes() != whole
        for command in ("status", "report"):
            said = call("monitor", command, folder, code=2)
            assert path.name in said and "last good copy" in said and said.count("\n") == 1
        path.write_bytes(whole)
    call("monitor", "status", folder)
