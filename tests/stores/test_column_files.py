"""Columns: what was written comes back, whole or not at all, and foreign files are told in a line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from demur.stores import StoreError, check_output, csv_files, read_columns, write_columns


@pytest.fixture(autouse=True)
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


COLUMNS = {
    "input": np.arange(3),
    "pairwise_epistemic": np.array([0.1, np.inf, np.nan], np.float32),
    "average_epistemic": np.array([1 / 3, 0.0, 1e-20]),
}


@pytest.mark.parametrize("values", [[[0.1, 0.9], [0.2, 0.8]], [{"a": 1}, {"a": 2}]])
def test_columns_of_lists_are_named(tmp_path, values):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"x": [0.1, 0.2], "y": values}), tmp_path / "s.parquet")
    with pytest.raises(StoreError, match=r"s\.parquet: expected numbers or text, got y of (list|struct)<"):
        read_columns(tmp_path / "s.parquet")


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz", "json"])
def test_written_columns_read_back(tmp_path, suffix):
    path = tmp_path / f"scores.{suffix}"
    write_columns(path, COLUMNS, facts={"members": 3})
    if suffix == "npz":
        with np.load(path) as file:
            back = dict(file)
    elif suffix == "json":
        whole = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
        assert whole["members"] == 3
        assert whole["scores"]["pairwise_epistemic"] == [0.1, "inf", "nan"]
        back = {name: np.array(values, float) for name, values in whole["scores"].items()}
    else:
        pd = pytest.importorskip("pandas")
        back = pd.read_csv(path) if suffix == "csv" else pd.read_parquet(path)
    assert list(back) == list(COLUMNS)
    for name, values in COLUMNS.items():
        np.testing.assert_array_equal(np.asarray(back[name]).astype(values.dtype), values)
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_same_columns_same_bytes(tmp_path):
    for suffix in ("csv", "parquet", "npz", "json"):
        for name in ("a", "b"):
            write_columns(tmp_path / f"{name}.{suffix}", COLUMNS)
        first, second = ((tmp_path / f"{name}.{suffix}").read_bytes() for name in ("a", "b"))
        assert first == second


def test_an_existing_file_is_kept(tmp_path, monkeypatch):
    path = tmp_path / "scores.csv"
    path.write_text("precious")
    with pytest.raises(StoreError, match="--force"):
        write_columns(path, COLUMNS)
    # Also where it comes to exist after the check.
    monkeypatch.setattr("demur.stores.column_files.check_output", lambda path, force: None)
    with pytest.raises(StoreError, match="--force"):
        write_columns(path, COLUMNS)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]
    write_columns(path, COLUMNS, force=True)
    assert path.read_text().startswith("input,")


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    path = tmp_path / "scores.csv"
    path.write_text("precious")

    def fail(file, *rest):
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("demur.stores.column_files._write", fail)
    with pytest.raises(StoreError, match="No space left on device"):
        write_columns(path, COLUMNS, force=True)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_a_link(tmp_path, exists):
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "link.csv", tmp_path / "there" / "target.csv"
    link.symlink_to(target)
    if exists:
        target.write_text("precious")
        with pytest.raises(StoreError, match="--force"):
            write_columns(link, COLUMNS)
    write_columns(link, COLUMNS, force=exists)
    assert link.is_symlink()
    assert target.read_text().startswith("input,")
    assert list(target.parent.iterdir()) == [target]


def test_bad_output(tmp_path):
    for path, words in [
        (tmp_path / "scores.txt", "'.txt'"),
        (tmp_path / "none" / "scores.csv", "create"),
    ]:
        with pytest.raises(StoreError, match=words):
            check_output(path)
    (tmp_path / "dir.csv").mkdir()
    with pytest.raises(StoreError, match="directory"):
        check_output(tmp_path / "dir.csv")


WITH_TEXT = {
    "input": np.arange(4),
    "id": np.array(["007", "a,b", 'say "x"', "é"]),
    "pairwise_epistemic": np.array([0.1, np.inf, 1e-300, 0.0]),
}


@pytest.mark.parametrize("suffix", ["csv", "npz", "json", "parquet"])
def test_what_was_written_comes_back(suffix) -> None:
    write_columns(Path(f"s.{suffix}"), WITH_TEXT)
    found = read_columns(Path(f"s.{suffix}"))
    assert list(found) == list(WITH_TEXT)
    for name, values in WITH_TEXT.items():
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


def test_blank_lines_are_no_end(monkeypatch) -> None:
    monkeypatch.setattr(csv_files, "_ROWS_AT_ONCE", 2)
    Path("s.csv").write_text("a\n1\n\n\n\n\n\n2\n")
    assert read_columns(Path("s.csv"))["a"].tolist() == [1, 2]
