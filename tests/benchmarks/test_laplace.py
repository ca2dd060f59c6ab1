"""`python -m benchmarks.laplace` runs to its end, on a small size and in one process."""

import json

import pytest

pytest.importorskip("torch")

from benchmarks import laplace


@pytest.mark.slow
def test_every_contender_of_demur_is_run_printed_and_saved(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(laplace, "run_alone", laplace.run_one)
    monkeypatch.setattr(laplace, "SMALL", ((6, 4),))
    monkeypatch.setattr(laplace, "LARGE", ((5, 40),))
    monkeypatch.setattr(laplace.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("sys.argv", ["laplace", "--large", "--out", str(tmp_path)])
    laplace.main()
    printed = capsys.readouterr().out
    assert printed.count("demur, bfloat16") == 2 and "pip install laplace-torch" in printed
    rows = json.loads((tmp_path / "laplace.json").read_text())["rows"]
    assert [(row["features"], row["classes"]) for row in rows] == [(6, 4)] * 2 + [(5, 40)] * 2
    assert all(row["found"]["ms_per_input"] > 0 for row in rows)


def test_a_contender_that_fails_has_a_row_that_says_so(monkeypatch) -> None:
    monkeypatch.setattr(laplace, "SECONDS", 0.01)
    found = laplace.run_alone("demur", 6, 4)
    row = {"contender": "demur", "features": 6, "classes": 4, "found": found}
    assert found is None and "failed, or took more than" in laplace.report([row])
