"""Scores written block by block are those of one piece, also after a kill, in memory that stays bounded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import demur
from demur.cli import app
from demur.scoring import block_scores
from demur.stores import StoreError, open_predictions, read_columns, write_predictions

zarr = pytest.importorskip("zarr")
pytest.importorskip("pyarrow")
MEMBERS, INPUTS, CLASSES = 4, 53, 6


@pytest.fixture
def logits(tmp_path, monkeypatch) -> np.ndarray:
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).normal(size=(MEMBERS, INPUTS, CLASSES)).astype(np.float32) * 3
    np.save("z.npy", values)
    return values


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(block_scores, "COLUMN_BLOCK", 10)
    monkeypatch.setattr(block_scores.score_in_blocks, "__kwdefaults__", BLOCKS_OF_TEN)


BLOCKS_OF_TEN = {**(block_scores.score_in_blocks.__kwdefaults__ or {}), "block": 10}


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["score", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout + result.stderr


def fails(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["score", *map(str, arguments)])
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1
    return result.stderr


def assert_same(left: dict[str, np.ndarray], right: dict[str, np.ndarray], without: tuple[str, ...] = ()):
    assert [name for name in left if name not in without] == [name for name in right if name not in without]
    for name in left:
        if name not in without:
            np.testing.assert_array_equal(left[name], right[name])


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("suffix", ["zarr", "parquet"])
@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), marks=pytest.mark.slow),
        ("--measure", "pairwise", "--stderr", "--base", "2"),
        pytest.param(("--labels", "labels.npy", "--weights", "weights.npy"), id="labels and weights"),
    ],
)
def test_scores_by_blocks_are_the_scores(logits, suffix, options):
    np.save("labels.npy", np.arange(INPUTS) % CLASSES)
    np.save("weights.npy", np.random.default_rng(1).random((MEMBERS, INPUTS)))
    whole = run("z.npy", "--logits", *options, "--out", "whole.npz")
    by_blocks = run("z.npy", "--logits", *options, "--out", f"s.{suffix}")
    assert by_blocks == whole.replace("whole.npz", f"s.{suffix}")
    columns = read_columns(Path(f"s.{suffix}"))
    assert_same(read_columns(Path("whole.npz")), columns, without=("status",))
    assert list(Path().glob("*.partial")) == []


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("suffix", ["zarr", pytest.param("parquet", marks=pytest.mark.slow)])
def test_inputs_without_predictions_and_names(logits, suffix):
    logits = logits.astype(float)
    logits[:, 20:30] = np.nan  # a whole block of them
    logits[:, 41] = np.nan
    logits[0, 3, 0] = -np.inf
    write_predictions("z.zarr", [(logits, {"id": [f"x{k}" for k in range(INPUTS)]})], block=7)
    asked = ("z.zarr", "--logits", "--top", "12")
    whole = run(*asked, "--out", "whole.npz")
    assert "no prediction for 11 of 53 rows" in whole
    assert run(*asked, "--out", f"s.{suffix}").replace(f"s.{suffix}", "whole.npz") == whole
    assert_same(read_columns(Path("whole.npz")), read_columns(Path(f"s.{suffix}")))
    found = [demur.Scores.load(f"{name}") for name in ("whole.npz", f"s.{suffix}")]
    np.testing.assert_array_equal(found[0]["I"].epistemic, found[1]["I"].epistemic)
    assert found[0].ids is not None and found[1].ids is not None
    assert found[0].ids.tolist() == found[1].ids.tolist()


@pytest.mark.usefixtures("small_blocks")
def test_json_is_that_of_scores_in_memory(logits):
    import json

    texts = [run("z.npy", "--logits", "--json", "--top", "3", "--out", out) for out in ("a.npz", "b.zarr")]
    first, second = (json.loads(text) for text in texts)
    assert first.pop("out") == "a.npz" and second.pop("out") == "b.zarr"
    for row in second["top"]:
        assert row.pop("members") == MEMBERS  # a column of the file
    assert first == second


@pytest.mark.usefixtures("small_blocks")
def test_pixels_of_an_image_stay_together(logits):
    images = np.random.default_rng(2).normal(size=(3, 7, 4, 2, 3))
    np.save("images.npy", images)
    for out in ("whole.npz", "s.zarr", "s.parquet"):
        run("images.npy", "--logits", "--class-axis", "2", "--out", out)
    whole = read_columns(Path("whole.npz"))
    assert whole["input"].tolist() == np.repeat(np.arange(7), 6).tolist()
    for out in ("s.zarr", "s.parquet"):
        assert_same(whole, read_columns(Path(out)), without=("status",))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("suffix", ["zarr", "parquet"])
def test_an_error_in_a_late_block_names_the_input(logits, suffix):
    logits[2, 44] = np.nan
    np.save("z.npy", logits)
    assert "z.npy: input 44: expected a prediction by every member" in fails(
        "z.npy", "--logits", "--out", f"s.{suffix}"
    ).replace("member 2, ", "")


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("suffix", ["zarr", "parquet"])
def test_a_run_resumes_with_the_blocks_that_are_missing(logits, suffix, monkeypatch):
    run("z.npy", "--logits", "--out", f"whole.{suffix}")
    real, scored = block_scores.score_predictions, []

    def break_at_the_third(predictions, *arguments, **options):
        if len(scored) == 2:
            raise KeyboardInterrupt
        scored.append(predictions.first)
        return real(predictions, *arguments, **options)

    monkeypatch.setattr(block_scores, "score_predictions", break_at_the_third)
    with open_predictions(["z.npy"]) as predictions, pytest.raises(KeyboardInterrupt):
        block_scores.score_in_blocks(predictions, "logits", Path(f"s.{suffix}"))
    if suffix == "zarr":
        with pytest.raises(StoreError, match="expected a complete store, got one whose writing was interr"):
            read_columns(Path("s.zarr"))
    assert "with other settings" in fails("z.npy", "--logits", "--base", "2", "--out", f"s.{suffix}")
    scored.clear()
    monkeypatch.setattr(
        block_scores, "score_predictions", lambda p, *a, **o: scored.append(p.first) or real(p, *a, **o)
    )
    run("z.npy", "--logits", "--out", f"s.{suffix}")
    assert scored == [20, 30, 40, 50]
    assert_same(read_columns(Path(f"s.{suffix}")), read_columns(Path(f"whole.{suffix}")))
    if suffix == "parquet":
        assert Path("s.parquet").read_bytes() == Path("whole.parquet").read_bytes()
    assert "got one that exists" in fails("z.npy", "--logits", "--out", f"s.{suffix}")
    run("z.npy", "--logits", "--base", "2", "--out", f"s.{suffix}", "--force")
    assert demur.Scores.load(f"s.{suffix}").base == 2


@pytest.mark.usefixtures("small_blocks")
def test_a_changed_file_is_not_resumed(logits, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, open_predictions(["z.npy"]) as predictions:
        patch.setattr(block_scores.ScoreTable, "count_failed", interrupt)
        patch.setattr(block_scores, "add_facts", interrupt)
        with pytest.raises(KeyboardInterrupt):
            block_scores.score_in_blocks(predictions, "logits", Path("s.zarr"))
    np.save("z.npy", logits + 1)
    os.utime("z.npy", (1, 1))
    assert "with other settings: files changed" in fails("z.npy", "--logits", "--out", "s.zarr")


def is_complete(path: Path) -> bool:
    try:
        read_columns(path)
    except (ValueError, OSError):
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["zarr", "parquet"])
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_scores(logits, suffix):
    rng = np.random.default_rng(5)
    np.save("large.npy", rng.normal(size=(4, 40_000, 5)).astype(np.float32))
    code = (
        "import sys; from demur.scoring import block_scores as b; "
        "b.score_in_blocks.__kwdefaults__['block'] = 1000; b.COLUMN_BLOCK = 1000; "
        "from demur.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "score", "large.npy", "--logits", "--out"]
    subprocess.run([*command, f"whole.{suffix}"], check=True, capture_output=True)
    kills = 0
    while True:
        process = subprocess.Popen([*command, f"s.{suffix}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(0.4 + rng.exponential(0.8))
        if process.poll() is None and kills < 8:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
            if is_complete(Path(f"s.{suffix}")):  # killed between its last write and its end
                break
            continue
        assert process.wait() == 0, process.communicate()
        process.communicate()
        break
    assert kills > 0
    assert_same(read_columns(Path(f"s.{suffix}")), read_columns(Path(f"whole.{suffix}")))


MEASURE = """
import re, sys
from demur.cli import app
from typer.testing import CliRunner
found = CliRunner().invoke(app, sys.argv[1:])
assert found.exit_code == 0, found.output
# Not getrusage: its figure begins with that of the process which started this one.
print(int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1]) >> 10)
"""


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["zarr", "parquet"])
def test_memory_does_not_grow_with_the_store(logits, suffix):
    """Twice as many predictions, 1.2 GB, take hardly more: both are several blocks of scores."""
    peaks = []
    for name, number in (("small", 300_000), ("large", 600_000)):
        rng = np.random.default_rng(0)
        block = rng.normal(size=(10, 6_000, 50)).astype(np.float32)
        write_predictions(f"{name}.zarr", (block for _ in range(number // 6_000)))
        command = [sys.executable, "-c", MEASURE, "score", f"{name}.zarr", "--logits", "--out"]
        printed = subprocess.check_output([*command, f"{name}-scores.{suffix}"], text=True)
        peaks.append(int(printed))
    print("peak memory in MB:", peaks)
    assert peaks[1] < peaks[0] + 100 and peaks[1] < 600
