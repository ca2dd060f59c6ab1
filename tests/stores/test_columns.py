"""Columns of files: what was written comes back, and foreign files are told in a line."""

import json
from pathlib import Path

import numpy as np
import pytest

from demur.stores import StoreError, csv_files, read_columns, read_labels, write_columns


@pytest.fixture(autouse=True)
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


COLUMNS = {
    "input": np.arange(4),
    "id": np.array(["007", "a,b", 'say "x"', "é"]),
    "pairwise_epistemic": np.array([0.1, np.inf, 1e-300, 0.0]),
}


@pytest.mark.parametrize("suffix", ["csv", "npz", "json", "parquet"])
def test_what_was_written_comes_back(suffix) -> None:
    write_columns(Path(f"s.{suffix}"), COLUMNS)
    found = read_columns(Path(f"s.{suffix}"))
    assert list(found) == list(COLUMNS)
    for name, values in COLUMNS.items():
        np.testing.assert_array_equal(found[name], values)
        assert found[name].dtype.kind == values.dtype.kind


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_ids_keep_their_zeros(suffix) -> None:
    write_columns(
        Path(f"s.{suffix}"), {"id": np.array(["007", "008"]), "a": np.array([0.1, 0.2], np.float32)}
    )
    found = read_columns(Path(f"s.{suffix}"))
    assert found["id"].tolist() == ["007", "008"]
    np.testing.assert_allclose(found["a"], [0.1, 0.2], rtol=1e-7)


def test_text_that_begins_after_many_numbers_stays_text(monkeypatch) -> None:
    monkeypatch.setattr(csv_files, "_ROWS_AT_ONCE", 2)
    Path("s.csv").write_text("id,x\n007,1\n008,2\nnine,2.5\n")
    found = read_columns(Path("s.csv"))
    assert found["id"].tolist() == ["007", "008", "nine"]
    assert found["x"].tolist() == [1.0, 2.0, 2.5]


def test_json_of_columns_alone() -> None:
    Path("s.json").write_text(json.dumps({"a": [1, 2.5, "inf"], "b": [True, False, True], "c": [1, 2, 0.5]}))
    found = read_columns(Path("s.json"))
    assert found["a"].tolist() == [1.0, 2.5, np.inf]
    assert found["b"].dtype == bool
    assert found["c"].tolist() == [1.0, 2.0, 0.5]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("s.csv", "", "expected names of columns in the first line, got none"),
        ("s.csv", "1,2\n3,4\n", "expected names of columns in the first line, got 1, 2"),
        ("s.csv", "a,a\n3,4\n", "expected a different name for each column"),
        ("s.csv", "a,b\n", "at least one row, got 0"),
        ("s.csv", "a,b\n1,2\n3\n", "expected 2 cells in each row"),
        ("s.csv", b"a,b\n\xff,2\n", "expected a table in UTF-8"),
        ("s.json", "[1]", "expected a JSON object of columns"),
        ("s.json", '{"a": [null]}', "expected a JSON object of columns"),
        ("s.json", "[" * 100_000, "expected a JSON object of columns"),
        (
            "s.json",
            '{"a": [1], "b": [1, 2]}',
            "expected columns of one length and at least one row, got 1 and 2",
        ),
        ("s.npz", "nonsense", "expected a NumPy archive of columns"),
        ("s.parquet", "nonsense", "expected a Parquet file"),
        ("s.npy", "nonsense", "expected scores in a file that ends in .csv"),
    ],
)
def test_foreign_files_are_told(name, content, message) -> None:
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(StoreError, match=message.replace(".", r"\.")):
        read_columns(Path(name))


def test_predictions_are_not_columns() -> None:
    np.savez("p.npz", z=np.zeros((2, 3, 4)))
    with pytest.raises(StoreError, match=r"got z of shape \(2, 3, 4\): for predictions say --logits"):
        read_columns(Path("p.npz"))
    np.savez("o.npz", z=np.array([{}], dtype=object))
    with pytest.raises(StoreError, match="never unpickled"):
        read_columns(Path("o.npz"))


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
