"""Few numbers that look like many: bins, corners, ranks."""

import numpy as np
import pytest

from demur.report.downsampling import count_bins, find_corners, spread_by_rank


def total(found, name):
    return int(found.counts[name].sum()) + found.below[name] + found.infinite[name]


@pytest.mark.parametrize(
    ("values", "logarithmic"),
    [
        (np.random.default_rng(0).lognormal(0, 3, 1000), True),
        (np.random.default_rng(0).uniform(1, 5, 1000), False),
        (np.random.default_rng(0).normal(size=1000), False),
        (np.append(np.zeros(10), np.random.default_rng(0).lognormal(0, 3, 90)), True),
        (np.zeros(5), False),
        (np.full(5, np.inf), False),
        (np.array([3.0]), False),
        (np.array([0.0, 1e-300, 1.0, np.inf]), True),
        (np.array([5e-324, 1e308]), True),
        (np.array([-np.inf, 0.0, 1.0, np.inf]), False),
    ],
)
def test_every_input_is_in_a_bin_or_beside(values, logarithmic):
    found = count_bins({"a": values, "b": values[:1]})
    assert found.logarithmic == logarithmic
    for name, own in (("a", values), ("b", values[:1])):
        assert total(found, name) == found.number[name] == len(own)
        assert found.infinite[name] == np.isposinf(own).sum()
    assert np.isfinite(found.edges).all() and (np.diff(found.edges) > 0).all()


def test_bins_count_what_lies_in_them():
    values = np.random.default_rng(1).lognormal(0, 2, 500)
    found = count_bins({"a": values}, bins=20)
    for k in range(20):
        low, high = found.edges[k : k + 2]
        inside = (values >= low) & ((values < high) | (k == 19) & (values == high))
        assert found.counts["a"][k] == inside.sum()


def test_lines_between_corners_pass_all_points():
    rng = np.random.default_rng(0)
    y = np.cumsum(rng.uniform(size=20_000) < 0.5) / 10_000
    x = np.arange(20_000) / 20_000
    kept = find_corners(x, y, 1e-3)
    assert len(kept) < 2000 and kept[0] == 0 and kept[-1] == 19_999
    # The distance upright is at most that across times the slope's share, here below 2.
    assert np.abs(np.interp(x, x[kept], y[kept]) - y).max() < 3e-3


def test_corners_of_few_points_and_of_steps():
    assert find_corners(np.array([0.0, 1.0]), np.array([0.0, 1.0])).tolist() == [0, 1]
    assert find_corners(np.zeros(1), np.zeros(1)).tolist() == [0]
    assert find_corners(np.array([0.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0])).tolist() == [0, 1, 2]
    assert find_corners(np.zeros(3), np.array([0.0, 1.0, 0.0])).tolist() == [0, 1, 2]


def test_ranks_are_even_and_have_both_ends():
    values = np.random.default_rng(0).permutation(1000).astype(float)
    some = spread_by_rank(values, 11)
    assert values[some].tolist() == [round(k * 99.9) for k in range(11)]
    assert sorted(spread_by_rank(values[:5], 11)) == [0, 1, 2, 3, 4]
