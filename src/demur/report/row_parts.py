"""Rows of a file of scores: which task they belong to, and what names them."""

from __future__ import annotations

import numpy as np

_NO_IDS = ("label", "prediction", "deployed", "prediction_name", "task", "status", "unit")
"""Columns of text that do not name inputs."""


def split_tasks(columns: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """Return the columns of each task; the status of an input is the same in all."""
    if "task" not in columns:
        return {"": columns}
    tasks, inputs = columns["task"], columns["input"]
    if "status" in columns:
        status = columns["status"]
        everywhere = ~np.isin(inputs, inputs[status != "ok"])
        columns = columns | {"status": np.where(everywhere, "ok", "no prediction in one of the tasks")}
    return {
        task: {name: values[tasks == task] for name, values in columns.items()}
        for task in dict.fromkeys(tasks.tolist())
    }


def find_ids(columns: dict[str, np.ndarray], inputs: np.ndarray | None) -> np.ndarray | None:
    """Return the names of inputs: ids, else the first column of text; their numbers if some are left out."""
    texts = [name for name, values in columns.items() if values.dtype.kind == "U"]
    named = [name for name in ("id", *texts) if name in columns and name not in _NO_IDS]
    ids = columns[named[0]] if named else inputs
    return None if ids is None else ids.astype(str)
