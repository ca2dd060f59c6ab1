"""The package of files imports nothing heavy; missing extras are named."""

from __future__ import annotations

import builtins
import sys

import pytest
from reference.files import refused

from demur.stores import StoreError, check_output


@pytest.mark.parametrize(
    ("suffix", "module", "extra"),
    [("pt", "torch", "demur[torch]"), ("parquet", "pyarrow", "[tables]")],
)
def test_a_missing_extra_is_named(tmp_path, monkeypatch, suffix, module, extra):
    plain = builtins.__import__

    def without(name, *rest, **named):
        if name.split(".")[0] == module:
            raise ImportError(f"No module named {module!r}", name=module)
        return plain(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    (tmp_path / f"z.{suffix}").write_bytes(b"x")
    refused(tmp_path / f"z.{suffix}", "pip install", extra)
    if suffix == "parquet":
        with pytest.raises(StoreError, match="pip install"):
            check_output(tmp_path / "out.parquet")


def test_stores_import_nothing_heavy():
    import subprocess

    code = (
        "import sys, demur.stores; "
        "print([m for m in ('torch', 'pandas', 'pyarrow', 'jax', 'numba', 'rich', 'matplotlib') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_checker_objects():
    """The control of `refused`: a message without the words does not pass."""
    with pytest.raises(AssertionError):
        refused("none.npy", "no such words")
