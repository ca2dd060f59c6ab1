"""Labels from files: classes, of any format and byte order."""

import json
from pathlib import Path

import numpy as np
import pytest

from demur.stores import StoreError, mark_correct, read_batch_labels, read_labels, write_columns


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


def test_labels_of_tasks() -> None:
    """Columns are found by name; an empty cell is a label that nobody knows."""
    Path("y.csv").write_text("id,soluble,toxic\nx,0,1\ny,,0\n")
    found = read_batch_labels("y.csv", (2, 2), ["toxic", "soluble"])
    np.testing.assert_array_equal(found["label"], [1, 0, 0, np.nan])
    assert found["id"].tolist() == ["x", "x", "y", "y"]
    np.save("y.npy", np.array([[1, 0], [0, 1]]))
    assert read_batch_labels("y.npy", (2, 2))["label"].tolist() == [1, 0, 0, 1]
    for message, arguments in {
        "for each of toxic, round, got id, soluble, toxic: round": ("y.csv", (2, 2), ["toxic", "round"]),
        "expected labels of 3 inputs, got 2": ("y.csv", (3, 1), ["toxic"]),
        r"y.npy: expected labels of shape \(3, 2\), got int64 of \(2, 2\)": ("y.npy", (3, 2)),
        r"y.csv: expected labels in a .npy of shape \(2, 2\)": ("y.csv", (2, 2)),
    }.items():
        with pytest.raises(StoreError, match=message):
            read_batch_labels(*arguments)


def test_what_is_right() -> None:
    classes = {"prediction": np.array([0, 1, 1]), "prediction_name": np.array(["cat", "dog", "dog"])}
    assert mark_correct(classes, {"label": np.array([0, 0, 1])}, "s").tolist() == [True, False, True]
    names = np.array(["cat", "cat", "owl"])
    assert mark_correct(classes, {"label": names}, "s").tolist() == [True, False, False]
    with pytest.raises(StoreError, match="names of classes, got Cat, Dog where predictions are cat, dog"):
        mark_correct(classes, {"label": np.array(["Cat", "Cat", "Dog"])}, "s")
    with pytest.raises(StoreError, match="got NaN at input 1"):
        mark_correct(classes, {"label": np.array([0, np.nan, 1])}, "s")
    numbers = {"prediction": np.array([0.5, 1.0, np.nan])}
    with pytest.raises(StoreError, match=r"got numbers as 0\.5, .*--tolerance"):
        mark_correct(numbers, {"label": np.array([0.5, 1.5, 1.0])}, "s")
    right = mark_correct(numbers, {"label": np.array([0.5, 1.5, 1.0])}, "s", tolerance=0.1)
    assert right.tolist() == [True, False, False]
    with pytest.raises(StoreError, match="expected numbers in prediction for --tolerance"):
        mark_correct({"prediction": np.array(["a"])}, {"label": np.array(["a"])}, "s", tolerance=1.0)
