"""CSV files of predictions: what is read, and the words with which others are refused."""

from __future__ import annotations

import numpy as np
import pytest
from reference.files import read, refused

from demur.stores import read_columns, write_columns


@pytest.mark.parametrize("header", ["", "class_0,class_1,class_2,class_3\n", "0,1,2,3\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_csv(tmp_path, logits, header, end, monkeypatch):
    monkeypatch.setattr("demur.stores.csv_files._BLOCK_BYTES", 200)  # several blocks
    for member, values in enumerate(logits):
        lines = [",".join(map(repr, row.tolist())) for row in values]
        text = header + "\n".join(lines) + "\n\n"
        (tmp_path / f"m{member}.csv").write_bytes(text.replace("\n", end).encode("utf-8-sig"))
    values = read(tmp_path / "m*.csv")
    np.testing.assert_array_equal(values, logits.astype(np.float64))


def test_csv_and_parquet_of_pandas(tmp_path, logits):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(logits[0])
    frame.to_csv(tmp_path / "z.csv", index=False)
    np.testing.assert_array_equal(read(tmp_path / "z.csv")[0].astype(np.float32), logits[0])
    frame.columns = frame.columns.astype(str)
    frame.to_parquet(tmp_path / "z.parquet")
    values = read(tmp_path / "z.parquet")
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, logits[:1])


def test_csv_infinity(tmp_path):
    (tmp_path / "z.csv").write_text("0.5,-inf\n1e3,-Infinity\n")
    np.testing.assert_array_equal(read(tmp_path / "z.csv")[0], [[0.5, -np.inf], [1000, -np.inf]])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["(0, 0)"]),
        ("a,b\n", ["(0, 2)"]),
        ("0.1,0.9\n0.1,x\n", ["'x'", "line 2"]),
        ("a,b\n0.1,0.9\n\n0.1\n", ["2 numbers", "got 1", "line 4"]),
        ("a,b\n0.1,0.9,0.0\n", ["2 numbers", "got 3", "line 2"]),
        ("a,b\n0.1,\n", ["an empty cell", "line 2"]),
        ("a;b\n0.1;0.9\n", ["'0.1;0.9'", "line 2", "commas"]),
        (",a,b\n0,0.1,0.9\n", ["index=False"]),
        ("0,1\n1,0\n", ["either", "class_0", "0.0 for 0"]),
        ("1,2,3\n0.1,0.2,0.7\n", ["line 1", "got 1,2,3", "either", "class_0", "1.0 for 1"]),
        ("0.1,0.9\n0.1,1_0\n", ["'1_0'", "line 2"]),
        (",0,1\n0,0.1,0.9\n", ["index=False"]),
        ("0.2,,0.8\n0.2,0.3,0.5\n", ["an empty cell", "line 1"]),
        (",0.2,0.8\n0.2,0.3,0.5\n", ["an empty cell", "line 1"]),
        ("0.2,NA,0.8\n0.2,0.3,0.5\n", ["'NA'", "line 1"]),
        ("NA,NA\n0.2,0.8\n", ["'NA'", "line 1"]),
        ("\n0.2,0.5x\n0.2,0.8\n", ["'0.5x'", "line 2"]),
        ("id,c0,c1\n1,0.1,0.9\n2,0.1,x\n", ["'x'", "line 3"]),
        ("id,c0,c1\n1,0.1,0.9\n\n2,0.1\n", ["3 numbers", "got 2", "line 4"]),
        ("a,b\n50.0%,50.0%\n", ["'50.0%'", "line 2", "write percentages as probabilities"]),
        ("a;b\n0,5;0,5\n", ["'5;0'", "write the table with commas between the columns"]),
        ("a\tb\n0.5\t0.5\n", ["line 2", "write the table with commas between the columns"]),
        ("id,c0,c1\n1,0.1,0.9\n2,,0.4\n", ["an empty cell", "line 3"]),
        ("a,b,c\n0.1,x,0.9\n0.2,0.3,0.5\n", ["numbers or text in b", "got both", "line 3", "--keep b"]),
        ("smiles,name\nCC,x\n", ["'CC'", "line 2"]),
        ("CC,0.1,0.9\nCO,0.2,0.8\n", ["'CC'", "line 1"]),
        ("a,a,id\n0.1,0.9,x\n", ["'a'", "line 1"]),
    ],
)
def test_bad_csv(tmp_path, text, words):
    (tmp_path / "z.csv").write_text(text)
    refused(tmp_path / "z.csv", "z.csv", *words)


def test_blank_lines_of_a_csv_do_not_count(tmp_path):
    for text in ("\n\na,b\n\n0.1,0.9\n", "\n0.1,0.9\n\n", " \n0,1\n\n0.1,0.9\n"):
        (tmp_path / "z.csv").write_text(text)
        np.testing.assert_array_equal(read(tmp_path / "z.csv"), [[[0.1, 0.9]]])


def test_foreign_csv(tmp_path):
    (tmp_path / "z.csv").write_bytes(bytes(range(256)) * 10)
    refused(tmp_path / "z.csv", "z.csv")
    (tmp_path / "z.csv").write_bytes(b"\x00\x01" * 100)
    refused(tmp_path / "z.csv", "z.csv")


def test_names_that_python_takes_for_numbers(tmp_path):
    (tmp_path / "s.csv").write_text("group,x\n1_0,1\n10,2\n")
    columns = read_columns(tmp_path / "s.csv")
    assert columns["group"].tolist() == ["1_0", "10"] and columns["x"].tolist() == [1, 2]


def test_text_with_any_end_of_line_comes_back(tmp_path) -> None:
    texts = np.array(["a\rb", "\r", "a\nb", "\r\n", 'say "x", y', "plain", "", "nan", "1"])
    write_columns(tmp_path / "a.csv", {"text": texts, "x": np.arange(9.0)})
    found = read_columns(tmp_path / "a.csv")
    assert found["text"].tolist() == texts.tolist() and found["x"].tolist() == list(range(9))
    write_columns(tmp_path / "b.csv", {"x": np.arange(2)})
    assert (tmp_path / "b.csv").read_bytes() == b"x\n0\n1\n"
