"""Labels from files: classes, of any format and byte order."""

import json
from pathlib import Path

import numpy as np
import pytest

from demur.stores import StoreError, read_labels, write_columns


@pytest.fixture(autouse=True)
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_labels() -> None:
    np.save("y.npy", np.array([1, 2]))
    assert read_labels("y.npy")["label"].tolist() == [1, 2]
    Path("one.csv").write_text("id,truth\nx,1\ny,2\n")
    found = read_labels("one.csv")
    assert found["label"].tolist() == [1, 2] and found["id"].tolist() == ["x", "y"]
    Path("bare.csv").write_text("3\n1\n2\n")
    assert read_labels("bare.csv")["label"].tolist() == [3, 1, 2]
    Path("two.csv").write_text("a,b\n1,2\n")
    with pytest.raises(StoreError, match=r"expected a column named label, or a single one, got a, b: write"):
        read_labels("two.csv")
    assert read_labels("two.csv:b")["label"].tolist() == [2]
    with pytest.raises(StoreError, match="expected a column c, got a, b"):
        read_labels("two.csv:c")
    Path("bad.npy").write_text("nonsense")
    with pytest.raises(StoreError, match="expected a NumPy file"):
        read_labels("bad.npy")


@pytest.mark.parametrize("suffix", ["npy", "npz", "json", "parquet"])
def test_truths_are_the_classes_0_and_1(suffix) -> None:
    values = np.array([True, False, True])
    if suffix == "npy":
        np.save("y.npy", values)
    elif suffix == "json":  # as others write it
        Path("y.json").write_text(json.dumps({"label": values.tolist()}))
    else:
        write_columns(Path(f"y.{suffix}"), {"label": values})
    labels = read_labels(f"y.{suffix}")["label"]
    assert labels.dtype == np.int64 and labels.tolist() == [1, 0, 1]


@pytest.mark.parametrize("dtype", [">i8", ">f4", ">U3"])
@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_labels_of_another_byte_order(suffix, dtype) -> None:
    values = np.array([1, 2], dtype)
    np.save("y.npy", values)
    np.savez("y.npz", label=values)
    labels = read_labels(f"y.{suffix}")["label"]
    assert labels.dtype.isnative
    np.testing.assert_array_equal(labels, values)
