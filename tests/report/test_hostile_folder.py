"""`demur report` on folders made to break it: pipes, devices, nested files, names that command a terminal."""

import os
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from demur.cli import app

ESCAPE = "\x1b[31mred\x07\u202e"
SHOWN = r"\x1b[31mred\x07\u202e"


FILES = ("ood-far.npz", "members-id.npy", "images/id.npy", "run.json", "report.html")


def report(*arguments):
    """Run the command in a process of its own, which does not wait for what never comes."""
    whole = [sys.executable, "-m", "demur.cli", "report", *map(str, arguments)]
    return subprocess.run(whole, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "pipe") for name in FILES[:3]),
        *((name, "device") for name in FILES[3:]),
        *(pytest.param(name, "device", marks=pytest.mark.slow) for name in FILES[:3]),
        *(pytest.param(name, "pipe", marks=pytest.mark.slow) for name in FILES[3:]),
    ],
)
def test_a_pipe_or_a_device_is_refused_and_not_waited_for(tmp_path, write_run, name, kind):
    folder = write_run(tmp_path, number=30, images=(3, 3), facts={"title": "T"})
    (folder / name).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to("/dev/zero")
    done = report(folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and f"{folder / name}: expected" in done.stderr
    assert "got" in done.stderr and "a pipe or a device: write it to a file first" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"title": ' * 100_000, "nested too deeply"),
        ('{"classes": ' + "[" * 100_000, "nested too deeply"),
        ('{"title": "a", "title": "b"}', "the key 'title' twice"),
        ("\udcff", "utf-8"),
    ],
)
def test_facts_that_are_refused(tmp_path, write_run, text, words):
    folder = write_run(tmp_path, number=30)
    (folder / "run.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    done = CliRunner().invoke(app, ["report", str(folder)])
    assert done.exit_code == 2 and done.stderr.count("\n") == 1
    assert f"{folder / 'run.json'}: expected a JSON object" in done.stderr and words in done.stderr


@pytest.mark.parametrize("values", [np.zeros((3, 0, 2)), np.array(None), np.zeros((3, 30, 2), complex)])
def test_members_that_are_no_numbers(tmp_path, write_run, values):
    folder = write_run(tmp_path, number=30)
    np.save(folder / "members-id.npy", values, allow_pickle=True)
    done = CliRunner().invoke(app, ["report", str(folder)])
    assert done.exit_code == 2 and done.stderr.count("\n") == 1
    assert "members-id.npy: expected log-probabilities of shape (members, 30, classes), got" in done.stderr


def test_names_reach_neither_the_terminal_nor_the_page_as_they_are(tmp_path, write_run):
    folder = write_run(tmp_path / f"run {ESCAPE}", methods=(f"one{ESCAPE}", "two"), number=30)
    done = CliRunner().invoke(app, ["report", str(folder)])
    assert done.exit_code == 0
    assert done.stdout == f"{tmp_path}/run {SHOWN}/report.html\n"
    page = (folder / "report.html").read_text("utf-8")
    assert "\u202e" not in page and "\x1b" not in page
    assert f"<h1>run {SHOWN}</h1>" in page
    (folder / "two" / "id.npz").unlink()
    done = CliRunner().invoke(app, ["report", str(folder)])
    assert done.exit_code == 2 and done.stderr.rstrip("\n").isprintable() and SHOWN in done.stderr
