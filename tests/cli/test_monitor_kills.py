"""`demur monitor observe` killed anywhere and repeated: nothing is lost or counts twice, drift included."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import demur
from demur.cli import app, monitor_drift
from demur.monitoring import Monitor
from demur.stores import write_columns

LOGS, INPUTS = 3, 200


def write_log(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.uniform(size=INPUTS)
    correct = rng.uniform(size=INPUTS) > scores**2 / 3
    ids = np.array([f"{seed}-{k}" for k in range(INPUTS)])
    write_columns(path, {"id": ids, "pairwise_epistemic": scores, "correct": correct.astype(int)})


@pytest.fixture
def folder(tmp_path) -> Path:
    rng = np.random.default_rng(0)
    scores = rng.uniform(size=1000)
    policy = demur.Deferral.fit(scores, rng.uniform(size=1000) > scores**2 / 3, accuracy=0.9)
    policy.save(tmp_path / "policy.json")
    for seed in range(LOGS + 1):
        write_log(tmp_path / f"log{seed}.csv", seed)
    start(tmp_path / "watch")
    return tmp_path / "watch"


def start(folder: Path) -> None:
    say(
        "monitor", "start", folder, "--policy", folder.parent / "policy.json", "--audit", "0.3",
        "--calibration", folder.parent / "log0.csv",
    )  # fmt: skip


def list_words(folder: Path) -> list[str]:
    return ["monitor", "observe", str(folder), *(str(folder.parent / f"log{k + 1}.csv") for k in range(LOGS))]


def say(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def read_status(folder: Path) -> dict:
    return json.loads(say("monitor", "status", folder, "--json"))


@pytest.fixture
def whole(folder) -> dict:
    """What is known where nothing was killed."""
    other = folder.parent / "unharmed"
    shutil.copytree(folder, other)
    say(*list_words(other))
    return read_status(other)


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


@pytest.mark.parametrize("place", ["before drift is written", "before the monitor", "before old drift goes"])
@pytest.mark.parametrize("log", range(LOGS))
def test_a_kill_between_any_two_writes(folder, whole, monkeypatch, place, log) -> None:
    owner, name = {
        "before drift is written": (monitor_drift, "_name_file"),
        "before the monitor": (Monitor, "observe"),
        "before old drift goes": (Path, "unlink"),
    }[place]
    original, calls = getattr(owner, name), []

    def die(*args, **options):
        calls.append(args)
        if len(calls) > log:
            raise Killed
        return original(*args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, die)
        with pytest.raises(Killed):
            CliRunner().invoke(app, list_words(folder), catch_exceptions=False)
    between = read_status(folder)
    assert between["observed"] % INPUTS == 0
    for _ in range(2):  # the second time changes nothing
        say(*list_words(folder))
        assert read_status(folder) == whole
    assert [path.name for path in folder.glob("drift-*")] == [f"drift-{LOGS * INPUTS}.json"]


@pytest.mark.parametrize(("owner", "name"), [("demur.cli.monitor", "save_drift"), (Monitor, "open")])
def test_a_start_that_is_killed_can_be_repeated(folder, monkeypatch, owner, name) -> None:
    owner = sys.modules[owner] if isinstance(owner, str) else owner
    with monkeypatch.context() as patched:

        def die(*args, **options):
            raise Killed

        patched.setattr(owner, name, die)
        with pytest.raises(Killed):
            start(folder.parent / "again")
    start(folder.parent / "again")
    say(*list_words(folder.parent / "again"))
    assert "drift" in read_status(folder.parent / "again")


@pytest.mark.slow
def test_twenty_processes_that_are_killed(folder, whole) -> None:
    rng = np.random.default_rng(0)
    command, killed = [sys.executable, "-m", "demur.cli", *list_words(folder)], 0
    begin = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    whole_time = time.monotonic() - begin
    for _ in range(20):
        shutil.rmtree(folder)
        start(folder)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(whole_time * float(rng.uniform(0.3, 1.0)))
        os.kill(process.pid, signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        assert read_status(folder)["observed"] % INPUTS == 0
        subprocess.run(command, check=True, capture_output=True)
        assert read_status(folder) == whole
    assert killed > 0
