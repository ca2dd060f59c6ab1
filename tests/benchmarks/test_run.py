"""`make bench` runs to its end: every section, on small arrays."""

import json

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks import run


def test_every_section_is_run_printed_and_saved(monkeypatch, tmp_path, capsys) -> None:
    def call_here(function, *args, **options):
        return function(*args, **options)

    full_size = run.logits_of
    monkeypatch.setattr(run, "alone", call_here)  # in one process
    monkeypatch.setattr(run, "logits_of", lambda shape: full_size(tuple(min(n, 6) for n in shape)))
    monkeypatch.setattr("sys.argv", ["run", "--quick", "--out", str(tmp_path)])
    run.main()
    printed = capsys.readouterr().out
    for name in ("as bayesian-torch", "as torch-uncertainty", "brier as probly", "zero_one as probly"):
        assert printed.count(f"{name} ") == len(run.OF_PROBABILITIES)
    for line in (
        "share of the read bandwidth",
        "call on (10, 1, 10)",
        "memory beyond",
        "import beyond NumPy",
    ):
        assert line in printed
    results = json.loads((tmp_path / "bench.json").read_text())
    assert [tuple(row["shape"]) for row in results["probabilities"]] == run.OF_PROBABILITIES
    times = [row["ns_per_number"].values() for row in results["probabilities"]]
    assert all(np.isfinite(list(each)).all() and min(each) > 0 for each in times)
    assert (tmp_path / "bench.png").stat().st_size > 0
