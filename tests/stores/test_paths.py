"""Paths, globs and `file:name`, as users write them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from reference.files import read, refused

from demur.stores.paths import find_files, natural_key


def test_natural_order():
    names = ["m_10", "m_9", "m_09", "m_1", "a2/b10", "a2/b9", "a10/b1"]
    expected = ["a2/b9", "a2/b10", "a10/b1", "m_1", "m_09", "m_9", "m_10"]
    assert sorted(names, key=natural_key) == expected


def test_glob(tmp_path, logits):
    many = np.concatenate([logits, logits + 1, logits + 2])
    for index, member in enumerate(many):
        np.save(tmp_path / f"member_{index}.npy", member)
    np.testing.assert_array_equal(read(tmp_path / "member_*.npy"), many)
    np.savez(tmp_path / "one.npz", a=logits, b=logits)
    assert find_files([f"{tmp_path}/*.npz:b"]) == [(tmp_path / "one.npz", "b")]
    refused(tmp_path / "nothing_*.npy", "nothing_*.npy", "found none")


def test_a_name_with_glob_characters_or_a_colon_is_a_name(tmp_path, logits):
    for name in ("a[1].npy", "b:c.npy"):
        np.save(tmp_path / name, logits)
        np.testing.assert_array_equal(read(tmp_path / name), logits)


@pytest.mark.parametrize("suffix", ["npz", "safetensors", "pt"])
def test_names_of_arrays_may_have_colons(tmp_path, logits, suffix, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("z").mkdir()
    for path in (f"z.{suffix}", f"z:1.{suffix}", f"z/z.{suffix}"):
        arrays = {"c:d": logits, "d": logits[:1], ":": logits[:2], "z/e": logits[:3]}
        if suffix == "npz":
            np.savez(path, **arrays)  # pyright: ignore
        elif suffix == "safetensors":
            pytest.importorskip("safetensors.numpy").save_file(arrays, path)
        else:
            torch = pytest.importorskip("torch")
            torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, path)
        for name, array in arrays.items():
            np.testing.assert_array_equal(read(f"{path}:{name}"), array)
        refused(f"{path}:c:e", f"{path}: expected the name of an array in it, got 'c:e': it has ")
    np.testing.assert_array_equal(read(f"z/*.{suffix}:c:d"), logits)
    refused(f"none.{suffix}:c:d", f"none.{suffix}: cannot be read: No such file")


def test_a_directory_is_not_what_a_colon_splits_off(tmp_path, logits, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("run", "run:1"):
        Path(name).mkdir()
    np.save("run:1/z.npy", logits)
    np.testing.assert_array_equal(read("run:1/*.npy"), logits)
    refused("run:1/y.npy", "run:1/y.npy: cannot be read: No such file")


def test_names_of_tensors_may_be_numbers(tmp_path, logits):
    torch = pytest.importorskip("torch")
    torch.save({0: torch.from_numpy(logits), 1: torch.from_numpy(logits[:1])}, tmp_path / "z.pt")
    np.testing.assert_array_equal(read(f"{tmp_path}/z.pt:0"), logits)
    refused(tmp_path / "z.pt", f"write {tmp_path}/z.pt:0")


def test_one_file_under_two_spellings_is_one(tmp_path, logits, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("one.npz", logits)
    np.savez("two.npz", a=logits[:2], b=logits[2:])
    Path("link.npz").symlink_to("one.npz")
    for other in (tmp_path / "one.npz", "./one.npz", "link.npz", "one.npz:arr_0"):
        refused(["one.npz", other], "twice")
        refused([other, "one.npz"], "twice")
    refused(["two.npz:a", f"{tmp_path}/two.npz:a"], "twice")
    np.testing.assert_array_equal(read(["two.npz:a", "two.npz:b"]), logits)


def test_a_pipe_is_not_waited_for(tmp_path):
    if not hasattr(os, "mkfifo"):
        pytest.skip("needs named pipes")
    for suffix in ("npy", "npz", "safetensors", "pt", "csv", "parquet"):
        os.mkfifo(tmp_path / f"z.{suffix}")
        refused(tmp_path / f"z.{suffix}", f"z.{suffix}: expected a file, got a pipe")


def test_missing_files(tmp_path):
    for suffix in ("npy", "npz", "safetensors", "pt", "csv", "parquet"):
        refused(tmp_path / f"none.{suffix}", f"none.{suffix}", "No such file")
    refused(tmp_path, "directory", "*.npy")
    (tmp_path / "z.txt").write_text("1")
    refused(tmp_path / "z.txt", ".safetensors", "'.txt'")
    refused([], "at least one")
    np.save(tmp_path / "z.npy", np.ones((2, 2)))
    refused(f"{tmp_path}/z.npy:a", "':a'", "holds one array")
