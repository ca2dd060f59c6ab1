"""Checksums: every single bit, dtype, shape and name counts; order and layout do not."""

from pathlib import Path

import numpy as np

from demur.checksums import sum_array, sum_arrays, sum_file


def test_every_bit_counts() -> None:
    values = np.random.default_rng(0).normal(size=(3, 4))
    known = {sum_array(values)}
    for at in range(values.nbytes * 8):
        flipped = values.copy()
        flipped.view(np.uint8).reshape(-1)[at // 8] ^= 1 << at % 8
        known.add(sum_array(flipped))
    assert len(known) == values.nbytes * 8 + 1


def test_dtype_shape_and_names_count_and_layout_does_not() -> None:
    values = np.arange(6.0).reshape(2, 3)
    others = [values.reshape(3, 2), values.view(np.int64), values.reshape(-1)]
    assert len({sum_array(each) for each in [values, *others]}) == 4
    assert sum_array(np.asfortranarray(values)) == sum_array(values)
    assert sum_arrays({"a": values, "b": others[0]}) == sum_arrays({"b": others[0], "a": values})
    assert sum_arrays({"a": values, "b": others[0]}) != sum_arrays({"a": others[0], "b": values})
    assert sum_arrays({"a": values}) != sum_arrays({"b": values})


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(3 << 20))
    (tmp_path / "b").write_bytes(bytes((3 << 20) - 1) + b"\1")
    (tmp_path / "c").write_bytes(bytes((3 << 20) - 1))
    assert len({sum_file(tmp_path / name) for name in "abc"}) == 3
