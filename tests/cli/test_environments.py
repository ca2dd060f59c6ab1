"""The commands work wherever they are run: without a terminal, with a strict umask, as another user."""

import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from demur.cli import app

NOBODY = 65534
"""A user who owns nothing."""

AS_NOBODY = f"""
import contextlib, io, os, sys
from demur.cli import main
here = os.getcwd()
os.chdir("../rehearsal")  # as root, who may read the modules wherever they are installed
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main()
os.chdir(here)
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
with contextlib.suppress(OSError):
    os.listdir("/root")
    sys.exit("still root")
main()
"""


@dataclass
class Environment:
    """How commands are run."""

    variables: Mapping[str, str] = field(default_factory=dict)
    before: str = ""
    umask: int = 0o022
    other_user: bool = False
    folder: str = "run"


ENVIRONMENTS = {
    "nohup, TERM=dumb, LANG=C, umask 077, unwritable cache, path with spaces": Environment(
        {
            "TERM": "dumb", "LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0",
            "NUMBA_CACHE_DIR": "/proc/nowhere",
        },
        before="nohup ", umask=0o077, folder="a run, with spaces & 'quotes'",
    ),
    "another user, no home, no TERM": Environment({"HOME": "/nonexistent", "TERM": ""}, other_user=True),
}  # fmt: skip


@dataclass
class Shell:
    """Runs commands in a folder as the environment says."""

    environment: Environment
    folder: Path

    def run(self, arguments: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
        """Run `demur` with arguments that a shell splits."""
        here = self.environment
        python = shlex.quote(sys.executable)
        called = f"{python} -c {shlex.quote(AS_NOBODY)}" if here.other_user else f"{python} -m demur.cli"
        line = f"umask {here.umask:04o} && {here.before}{called} {arguments}"
        source = str(Path(__file__).parents[2] / "src")
        given = {**os.environ, "PYTHONPATH": source, **here.variables, **variables}
        return subprocess.run(
            ["sh", "-c", line], cwd=self.folder, env=given, capture_output=True, timeout=300,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip

    def output(self, arguments: str, **variables: str) -> str:
        """Return what a command prints, which has to be plain text, with nothing on stderr."""
        done = self.run(arguments, **variables)
        said = [line for line in done.stderr.splitlines() if not line.startswith(b"nohup:")]
        assert (done.returncode, said) == (0, []), done.stderr.decode()
        assert b"\x1b" not in done.stdout
        return done.stdout.decode("latin-1")


def write_predictions(folder: Path) -> None:
    folder.mkdir()
    random = np.random.default_rng(0)
    labels = random.integers(4, size=60)
    logits = random.normal(size=(5, 100, 4)).astype(np.float32)
    logits[:, np.arange(60), labels] += 2
    np.save(folder / "id.npy", logits[:, :60])
    np.save(folder / "ood.npy", logits[:, 60:])
    np.save(folder / "labels.npy", labels)


@pytest.fixture(params=ENVIRONMENTS)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    """A folder with predictions and labels, in each environment."""
    environment = ENVIRONMENTS[request.param]
    folder = tmp_path / environment.folder
    write_predictions(folder)
    if environment.other_user:
        if os.geteuid() != 0:
            pytest.skip("only root can become another user")
        give_to_nobody(folder)
        write_predictions(tmp_path / "rehearsal")
    return Shell(environment, folder)


def give_to_nobody(folder: Path) -> None:
    """Let the other user own a folder, and reach it."""
    for path in (folder, *folder.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    for parent in folder.parents:
        if stat.S_IMODE(parent.stat().st_mode) == 0o700 and parent.name not in ("", "root"):
            parent.chmod(0o755)


def test_score_evaluate_and_report(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    score = "score id.npy --logits --labels labels.npy --out id.csv --top 3"
    assert "The 3 most uncertain inputs" in shell.output(score)
    shell.output("score ood.npy --logits --out ood-far.csv")
    assert "AUROC" in shell.output("evaluate ood --id id.csv --ood ood-far.csv --resamples 100")
    assert shell.output("report .") == "report.html\n"
    assert "</html>" in (shell.folder / "report.html").read_text("utf-8")
    given, written = {"id.npy", "ood.npy", "labels.npy"}, {"id.csv", "ood-far.csv", "report.html"}
    assert {path.name for path in shell.folder.iterdir()} == given | written
    for name in written:
        mode = stat.S_IMODE((shell.folder / name).stat().st_mode)
        assert mode == 0o666 & ~shell.environment.umask, name
    # The numbers are those of any other environment.
    write_predictions(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    assert CliRunner().invoke(app, score.split()).exit_code == 0
    assert Path("id.csv").read_bytes() == (shell.folder / "id.csv").read_bytes()


@pytest.mark.parametrize("encoding", ["ascii", pytest.param("latin-1", marks=pytest.mark.slow)])
def test_output_in_another_encoding(tmp_path: Path, encoding: str) -> None:
    """Letters that the encoding lacks are escaped; nothing ends in a traceback."""
    np.save(tmp_path / "Größe→.npy", np.random.default_rng(0).normal(size=(3, 5, 2)))
    score = "score 'Größe→.npy' --logits --out 'Maß→.csv'"
    said = Shell(Environment(), tmp_path).output(score, PYTHONIOENCODING=encoding, PYTHONUTF8="1")
    written = "Maß→.csv".encode(encoding, "backslashreplace").decode("latin-1")
    assert said == f"Wrote the scores of 5 inputs to {written}\n"
    assert (tmp_path / "Maß→.csv").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_read_only_folder_is_told_in_a_line(tmp_path: Path) -> None:
    write_predictions(tmp_path / "run")
    write_predictions(tmp_path / "rehearsal")
    give_to_nobody(tmp_path / "run")
    (tmp_path / "run").chmod(0o555)
    done = Shell(Environment(other_user=True), tmp_path / "run").run("score id.npy --logits --out s.csv")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"demur: s.csv: expected a directory to write to, got one that is read-only\n"
