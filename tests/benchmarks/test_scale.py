"""The plan of a job: linear in everything it should be, and by hand for one case."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # benchmarks are not installed

pytest.importorskip("torch")
from benchmarks.scale import _fit_power, format_plan, make_plan

RATES = {"network_seconds": 2e-9, "sums_seconds": 1e-9, "worker_peak_bytes": 5e8}


def test_a_plan_by_hand():
    plan = make_plan(RATES, 1e9, 100, 1000, workers=500, parts=3, pass_seconds=0.036)
    assert plan["network_core_hours"] == pytest.approx(1e14 * 2e-9 / 3600)
    assert plan["passes_core_hours"] == pytest.approx(1e4)
    assert plan["hours"] == pytest.approx((1e14 * 3e-9 + 3.6e7) / 3600 / 500)
    assert plan["bytes_of_predictions"] == 4e14  # 400 TB in single precision
    assert plan["bytes_of_sums"] == 1e12 * 40 * 4
    assert plan["worker_bytes"] == 5e8 + 5.1e6 / 3
    said = format_plan(plan, 500)
    assert "| the network before its last layer | 10,000 core-hours |" in said and "| 400.0 TB |" in said


@pytest.mark.parametrize("what", ["inputs", "members", "classes"])
def test_a_plan_grows_with_what_there_is_more_of(what):
    size = {"inputs": 1000, "members": 10, "classes": 50}
    once, twice = (make_plan(RATES, **(size | {what: size[what] * k})) for k in (1, 2))
    for name in ("network_core_hours", "sums_core_hours", "bytes_of_predictions"):
        assert twice[name] == pytest.approx(2 * once[name])
    assert twice["bytes_read"] == (2 if what == "inputs" else 1) * once["bytes_read"]


def test_the_power_of_a_growth():
    sizes = [(k, 1, 1) for k in (1, 2, 4)]
    assert _fit_power(sizes, [3, 6, 12], "inputs") == pytest.approx(1)
    assert _fit_power(sizes, [3, 12, 48], "inputs") == pytest.approx(2)
