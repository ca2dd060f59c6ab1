"""`python -m benchmarks.quam` runs to its end, on a small size."""

import re

import pytest

pytest.importorskip("torch")

from benchmarks import quam


def test_time_and_memory_are_printed(monkeypatch, capsys) -> None:
    for name, size in (("FEATURES", 6), ("CLASSES", 5), ("TRAINING", 40)):
        monkeypatch.setattr(quam, name, size)
    monkeypatch.setattr("sys.argv", ["quam", "--targets", "2", "--steps", "10", "--inputs", "3"])
    quam.main()
    printed = capsys.readouterr().out
    assert "QUAM(last layer, 2 targets, 10 steps): 5 members of an input" in printed
    assert re.search(r"[\d.]+ s an input \([\d.]+ s of processor time\)", printed)
    assert re.search(r"peak memory of the process: \d\.\d\d GB", printed)
