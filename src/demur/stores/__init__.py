"""Files: predictions of members in, columns of scores out.

    open_predictions   .npy, .npz, .safetensors, .pt, .csv, .parquet, .zarr; one file or many, also at URLs
    write_predictions  a .zarr store, batch by batch
    read_weights       one number per member
    write_columns      .csv, .parquet, .npz, .json, .zarr, whole or not at all
    read_columns       the same formats back; read_labels also from .npy
    register_reader    predictions in a format of your own

Which file holds what:

    prediction_files   the members of all files, read a tile at a time; member_files are those of one
    array_files        one array in a file, by format; mapped_arrays maps it, spool unpacks the rest
    zarr_arrays        arrays in zarr stores; strict_zarr makes a missing chunk an error
    block_store        zarr stores that are written block by block; prediction_stores are those of predictions
    urls               files at URLs, by fsspec
    table_columns      which columns of a table are predictions; row_columns keeps the others beside scores
    member_weights     weights of members
    label_maps         true classes of pixels
    column_files       columns by name, read and written; labels compares them with predictions
    csv_files, parquet_files, jsonl_files, json_values   one format each
    answer_files       records of answers, sorted by the prompt that they answer
    paths              what users write for files
    errors             StoreError

Files are mapped, never loaded whole, and no code in them is ever run.
"""

from demur.stores.answer_files import AnswerFiles, AnswerRecord
from demur.stores.array_files import register_reader
from demur.stores.block_store import open_maps
from demur.stores.column_files import (
    COLUMN_SUFFIXES,
    check_output,
    explain_write_errors,
    pick_column,
    pick_numbers,
    read_columns,
    write_columns,
)
from demur.stores.csv_files import parse_cells
from demur.stores.errors import StoreError
from demur.stores.json_values import json_columns, json_number
from demur.stores.jsonl_files import LOG_SUFFIXES, read_log
from demur.stores.labels import (
    find_unlabelled,
    mark_correct,
    match_labels,
    number_labels,
    parse_correct,
    read_batch_labels,
    read_labels,
    read_labels_of,
)
from demur.stores.member_weights import read_weights
from demur.stores.paths import find_files, make_directory, natural_key, open_binary, split_name
from demur.stores.prediction_files import Chunk, Outcome, Predictions, open_predictions
from demur.stores.prediction_stores import write_predictions
from demur.stores.row_columns import describe_row, name_rows

__all__ = [
    "COLUMN_SUFFIXES",
    "LOG_SUFFIXES",
    "AnswerFiles",
    "AnswerRecord",
    "Chunk",
    "Outcome",
    "Predictions",
    "StoreError",
    "check_output",
    "describe_row",
    "explain_write_errors",
    "find_files",
    "find_unlabelled",
    "json_columns",
    "json_number",
    "make_directory",
    "mark_correct",
    "match_labels",
    "name_rows",
    "natural_key",
    "number_labels",
    "open_binary",
    "open_maps",
    "open_predictions",
    "parse_cells",
    "parse_correct",
    "pick_column",
    "pick_numbers",
    "read_batch_labels",
    "read_columns",
    "read_labels",
    "read_labels_of",
    "read_log",
    "read_weights",
    "register_reader",
    "split_name",
    "write_columns",
    "write_predictions",
]
