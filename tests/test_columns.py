"""Columns of scores come back as they were written, and damage is named."""

import json

import numpy as np
import pytest

from demur.stores import StoreError, read_columns, write_columns

COLUMNS = {
    "input": np.arange(3),
    "id": np.array(["007", "b,c", "é\n"]),
    "label": np.array([1, 0, 2]),
    "pairwise_epistemic": np.array([0.1, np.inf, 1e-300]),
    "average_epistemic": np.array([0.1, 0.25, 3.0], np.float32),
}


@pytest.mark.parametrize("suffix", [".csv", ".npz", ".json", ".parquet"])
def test_what_was_written_is_read(tmp_path, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"scores{suffix}"
    write_columns(path, COLUMNS)
    found = read_columns(path)
    assert list(found) == list(COLUMNS)
    for name, values in COLUMNS.items():
        np.testing.assert_array_equal(found[name].astype(values.dtype), values, err_msg=name)
        assert found[name].dtype.kind == values.dtype.kind, name
    assert float(found["average_epistemic"][0]) == pytest.approx(0.1, rel=1e-7)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "columns of one length"),
        ("a.csv", b"a,b\n", "columns of one length"),
        ("a.csv", b"a,b\n1,2\n3\n", "2 cells in each line, as in the first, got 1 in line 3"),
        ("a.csv", b"a,a\n1,2\n", "each column once, got 'a' twice"),
        ("a.csv", b"\xff\xfe\x00", "UTF-8"),
        ("a.json", b"{", "JSON object with columns under 'scores'"),
        ("a.json", b"[1]", "JSON object with columns under 'scores'"),
        ("a.json", b'{"scores": {"a": [1], "b": []}}', "columns of one length"),
        ("a.json", b'{"scores": {"a": 1}}', "JSON object with columns under 'scores'"),
        ("a.npz", b"PK", "damaged or foreign"),
        ("a.parquet", b"PAR1", "Parquet"),
        ("a.txt", b"", "ends in .csv"),
    ],
)
def test_damage_is_named(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(StoreError, match=message) as caught:
        read_columns(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_arrays_of_other_shapes_and_pickles_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.zeros((2, 2)))
    with pytest.raises(StoreError, match="shape"):
        read_columns(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", a=np.array([{}], object))
    with pytest.raises(StoreError, match="damaged or foreign"):
        read_columns(tmp_path / "b.npz")
    with pytest.raises(StoreError, match="cannot be read"):
        read_columns(tmp_path / "none.csv")


def test_infinity_and_not_a_number_in_text(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"scores": {"a": ["inf", 1, "nan"], "b": [1.0, 2.0, 3.0]}}))
    found = read_columns(tmp_path / "a.json")
    assert found["a"][0] == np.inf and np.isnan(found["a"][2]) and found["b"].dtype.kind == "f"
