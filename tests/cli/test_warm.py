"""`demur warm` compiles the loops, and says which, for how long and where they are kept."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from demur import kernels
from demur.cli import app


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    loops = [("float32 logits, over classes", 2.5), ("float64 logits, over inputs", 0.0)]
    # As an attribute of the package, `warm` is the command.
    monkeypatch.setattr(sys.modules["demur.cli.warm"], "compile_all", lambda: iter(loops))
    monkeypatch.setattr(kernels, "cache_folder", lambda: Path("/cache/demur"))


@pytest.mark.usefixtures("stub")
def test_each_loop_is_a_line_and_then_the_total() -> None:
    found = CliRunner().invoke(app, ["warm"])
    assert found.exit_code == 0, found.output
    first, second, total, folder = found.stdout.splitlines()
    assert first.split("  ")[0] == "float32 logits, over classes" and first.endswith("2.5 s")
    assert second.startswith("float64 logits, over inputs") and second.endswith("on disk")
    assert total.startswith("2 loops, 1 compiled now, in ")
    assert folder == "Kept in /cache/demur"


@pytest.mark.usefixtures("stub")
def test_one_object() -> None:
    found = CliRunner().invoke(app, ["warm", "--json"])
    assert found.exit_code == 0, found.output
    loops = {"float32 logits, over classes": 2.5, "float64 logits, over inputs": 0.0}
    printed = json.loads(found.stdout)
    assert printed.pop("seconds") >= 0
    assert printed == {"loops": loops, "folder": "/cache/demur"}


@pytest.mark.usefixtures("stub")
def test_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "cache_folder", lambda: None, raising=False)
    assert "Set NUMBA_CACHE_DIR" in CliRunner().invoke(app, ["warm"]).stdout
    assert json.loads(CliRunner().invoke(app, ["warm", "--json"]).stdout)["folder"] is None
