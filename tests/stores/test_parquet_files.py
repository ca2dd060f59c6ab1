"""Parquet files of predictions: read in pieces, and refused where they hold something else."""

from __future__ import annotations

import numpy as np
import pytest
from reference.files import refused

from demur.stores.parquet_files import read_parquet_blocks


def test_bad_parquet(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [0.1, 0.9], "b": [[1], [2]]})
    frame.to_parquet(tmp_path / "z.parquet")
    refused(tmp_path / "z.parquet", "'b'", "leave it out")
    frame = pd.DataFrame({"name": ["x", "y"]})
    frame.to_parquet(tmp_path / "z.parquet")
    refused(tmp_path / "z.parquet", "columns of numbers", "got none")


@pytest.mark.parametrize(
    "metadata", [b"[1]", b"[" * 100_000, b"\xff\xfe", b"{", b'{"index_columns": 5}'], ids=range(5)
)
def test_parquet_with_damaged_metadata(tmp_path, metadata):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({"a": [0.1, 0.9]}).replace_schema_metadata({"pandas": metadata})
    pq.write_table(table, tmp_path / "z.parquet")
    refused(tmp_path / "z.parquet", "z.parquet", "damaged metadata")


@pytest.mark.parametrize("rows", [1000, 200_000])
def test_parquet_is_read_in_pieces(tmp_path, rows, monkeypatch):
    """In row groups of any size, Arrow holds a small part of the file."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("demur.stores.parquet_files._BLOCK_BYTES", 1 << 20)
    values = np.random.default_rng(0).random((200_000, 10))
    table = pa.table({f"c{column}": values[:, column] for column in range(10)})
    pq.write_table(table, tmp_path / "z.parquet", row_group_size=rows, use_dictionary=False)
    del table
    before, found = pa.total_allocated_bytes(), []
    for block in read_parquet_blocks(tmp_path / "z.parquet"):
        found.append(len(block))
        assert pa.total_allocated_bytes() - before < values.nbytes / 2
    assert sum(found) == len(values)
