"""Files: predictions of members in, columns of scores out.

    open_predictions   .npy, .npz, .safetensors, .pt, .csv, .parquet; one file or many
    read_weights       one number a member
    score_predictions  a tile of inputs at a time through `demur.Moments`
    read_columns       columns of scores, back again
    write_columns      .csv, .parquet, .npz, .json, whole or not at all

Files are mapped, never loaded whole, and no code in them is ever run.
"""

from demur.stores.arrays import StoreError
from demur.stores.columns import read_columns
from demur.stores.output import check_output, json_columns, json_number, make_directory, write_columns
from demur.stores.predictions import Predictions, open_predictions
from demur.stores.scoring import (
    MEASURES,
    PARTS,
    ScoreTable,
    groups_for,
    score_columns,
    score_predictions,
    unit_of,
)
from demur.stores.weights import read_weights

__all__ = [
    "MEASURES",
    "PARTS",
    "Predictions",
    "ScoreTable",
    "StoreError",
    "check_output",
    "groups_for",
    "json_columns",
    "json_number",
    "make_directory",
    "open_predictions",
    "read_columns",
    "read_weights",
    "score_columns",
    "score_predictions",
    "unit_of",
    "write_columns",
]
