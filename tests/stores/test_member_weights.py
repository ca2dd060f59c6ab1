"""Weights of members from files."""

from __future__ import annotations

import numpy as np
import pytest

from demur.stores import StoreError, read_weights


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("w.txt", "0.5 1\n2\n"),
        ("w.csv", "0.5,1,2\n"),
        ("w.csv", "weight\n0.5\n1\n2\n"),
        ("w.json", "[0.5, 1, 2]"),
    ],
)
def test_weights(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    np.testing.assert_array_equal(read_weights(tmp_path / name, members=3, inputs=7), [0.5, 1, 2])


def test_weights_in_arrays(tmp_path):
    for array in (np.array([1, 2, 3]), np.arange(21.0).reshape(3, 7)):
        np.save(tmp_path / "w.npy", array)
        weights = read_weights(tmp_path / "w.npy", members=3, inputs=7)
        assert weights.dtype == np.float64
        np.testing.assert_array_equal(weights, array)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("w.txt", "1 2", ["3 members", "(2,)"]),
        ("w.txt", "1 2 x", ["'x'"]),
        ("w.json", '{"a": 1}', ["dict"]),
        ("w.json", "[1, 2, null]", ["null"]),
        ("w.json", "[1, 2", ["w.json"]),
        ("w.npz", "", [".npy", "'.npz'"]),
        ("w.npy", "foreign", ["NumPy file"]),
        ("w.json", "[1, 2, " + "9" * 400 + "]", ["3 numbers", "too large"]),
        ("w.json", "[" * 100_000, ["3 numbers", "recursion"]),
    ],
)
def test_bad_weights(tmp_path, name, content, words):
    (tmp_path / name).write_text(content)
    with pytest.raises(StoreError) as caught:
        read_weights(tmp_path / name, members=3, inputs=7)
    for word in ["w.", *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
def test_weights_that_are_none(tmp_path, shape):
    np.save(tmp_path / "w.npy", np.ones(shape))
    with pytest.raises(StoreError, match=r"w\.npy: expected a weight for each of the 3 members"):
        read_weights(tmp_path / "w.npy", members=3, inputs=7)
