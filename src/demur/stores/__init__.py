"""Files: predictions of members in, columns of scores out.

    open_predictions   .npy, .npz, .safetensors, .pt, .csv, .parquet; one file or many
    read_weights       one number a member
    write_columns      .csv, .parquet, .npz, .json, whole or not at all
    read_columns       the same formats back; read_labels also from .npy

Files are mapped, never loaded whole, and no code in them is ever run.
"""

from demur.stores.arrays import StoreError
from demur.stores.columns import column_of, correct_of, numbers_of, read_columns, read_labels
from demur.stores.formats import register_reader
from demur.stores.output import (
    check_output,
    json_columns,
    json_number,
    make_directory,
    whole_file,
    write_columns,
)
from demur.stores.predictions import Predictions, open_predictions
from demur.stores.weights import read_weights

__all__ = [
    "Predictions",
    "StoreError",
    "check_output",
    "column_of",
    "correct_of",
    "json_columns",
    "json_number",
    "make_directory",
    "numbers_of",
    "open_predictions",
    "read_columns",
    "read_labels",
    "read_weights",
    "register_reader",
    "whole_file",
    "write_columns",
]
