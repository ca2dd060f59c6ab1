"""Scores predictions to a zarr store or a Parquet file a block of inputs at a time.

Memory does not grow with the inputs, and a run that was interrupted resumes with the blocks that are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from demur.checksums import sum_array
from demur.measures import canonical_name, name_unit
from demur.scoring.file_predictions import Kind
from demur.scoring.parquet_pieces import ParquetPieces
from demur.scoring.saved_scores import add_facts
from demur.scoring.score_files import OK, nothing_predicted, score_predictions
from demur.scoring.score_table import DEFAULT_MEASURES, ScoreTable, count_sizes, summarise
from demur.stores import Predictions, check_output, split_name
from demur.stores.block_store import BlockStore, open_columns_of
from demur.stores.column_files import COLUMN_BLOCK
from demur.stores.file_stamps import stamp, stamp_files
from demur.stores.parquet_files import read_parquet_parts

AddColumns = Callable[[ScoreTable, int], ScoreTable]
"""From the scores of some rows, and the number of the first, to the same scores with more columns."""


@dataclass(frozen=True)
class BlockScores:
    """Scores that were written block by block: what `ScoreTable` says of them, without holding them.

    Attributes
    ----------
    path
        Where they are.
    measures, members, classes, outcome, batch
        As in `ScoreTable`.
    failed, infinite
        How many rows have no scores, and how many an infinite epistemic part.
    """

    path: Path
    measures: tuple[str, ...]
    members: int
    classes: int
    outcome: str
    batch: tuple[int, ...]
    failed: int
    infinite: int

    @property
    def inputs(self) -> int:
        """How many rows there are; each pixel and each task counts."""
        return int(np.prod(self.batch))

    @property
    def sizes(self) -> dict[str, int]:
        """How many there are of what."""
        tasks = self.outcome in ("binary", "points") and len(self.batch) == 2
        return count_sizes(self.batch, self.outcome, self.members, self.classes, tasks=tasks)

    def count_failed(self) -> int:
        """Count the rows that have no scores."""
        return self.failed

    def count_infinite(self) -> int:
        """Count the rows that have an infinite epistemic part under any measure."""
        return self.infinite

    def summary(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Compute what `ScoreTable.summary` does; one column is in memory at a time."""

        def read_column(name: str) -> np.ndarray:
            return np.concatenate([part[name] for part in read_parts(self.path, [name])])

        scored = read_column("status") == OK if self.failed else np.ones(self.inputs, bool)
        return summarise(read_column, self.measures, scored)

    def pick_top(self, count: int) -> ScoreTable:
        """Return the most uncertain rows alone."""
        best: dict[str, np.ndarray] = {}
        for part in read_parts(self.path):
            joined = {name: np.concatenate([best[name], part[name]]) for name in part} if best else part
            chosen = ScoreTable(joined, self.measures, self.members, self.classes).top(count)
            best = {name: values[chosen] for name, values in joined.items()}
        return ScoreTable(best, self.measures, self.members, self.classes, self.outcome)


def takes_blocks(predictions: Predictions, out: Path | None) -> bool:
    """Tell whether scores are written block by block: to a store, and to Parquet where there are several."""
    if out is None:
        return False
    suffix = out.suffix.lower()
    return suffix == ".zarr" or (suffix == ".parquet" and predictions.inputs > COLUMN_BLOCK)


def score_in_blocks(
    predictions: Predictions,
    kind: Kind | None,
    out: Path,
    *,
    measures: Sequence[str] = DEFAULT_MEASURES,
    weights: np.ndarray | None = None,
    add: AddColumns | None = None,
    labels: str | None = None,
    force: bool = False,
    block: int = COLUMN_BLOCK,
    progress: Callable[[int], object] | None = None,
    **options: Any,
) -> BlockScores:
    """Score each input, and write the scores as they come.

    Parameters
    ----------
    predictions, kind, measures, weights, progress, options
        As in `score_predictions`.
    out
        A .zarr store or a .parquet file, or a `Path` of a URL.
    add
        Adds columns to the scores of a block.
    labels
        The file that these come from: a run resumes only where it is the same.
    force
        Replace what is there.
    block
        Rows of scores in a block, about: the rows of an input stay together.
    """
    check_output(out, force=force)
    inner = predictions.inputs // predictions.batch[0]
    step = max(1, block // inner)
    names = tuple(dict.fromkeys(canonical_name(each) for each in measures))
    truth = None if labels is None else [labels, stamp(Path(split_name(labels)[0]))]
    settings = describe_run(predictions, kind, names, weights, truth, options)
    writer = {".zarr": BlockStore, ".parquet": ParquetPieces}[out.suffix.lower()](
        out,
        holds="scores",
        block=step * inner,
        inputs=predictions.inputs,
        settings=settings,
        force=force,
    )
    rule = "energy" if predictions.outcome == "points" else options.get("rule", "log")
    facts = {
        "members": predictions.members,
        "classes": predictions.classes,
        "outcome": predictions.outcome,
        "rule": rule,
        "unit": name_unit(rule, options.get("base")),
        "unbiased": bool(options.get("unbiased", False)),
    }
    epistemic = [f"{name}_epistemic" for name in names]
    failed = infinite = 0
    for number, start in enumerate(range(0, predictions.batch[0], step)):
        stop = min(start + step, predictions.batch[0])
        if number in writer.done:
            columns = {name: writer.read(number, name) for name in ("status", *epistemic)}
        else:
            part = predictions.window(start, stop)
            own = weights[:, start:stop] if weights is not None and weights.ndim == 2 else weights
            table = score_predictions(part, kind, measures=measures, weights=own, **options)
            table = table if add is None else add(table, start * inner)
            columns = add_facts(_with_status(table.columns), facts)
            writer.write(number, columns)
        failed += int((columns["status"] != OK).sum())
        infinite += int(np.any([np.isposinf(columns[name]) for name in epistemic], axis=0).sum())
        if progress is not None:
            progress(stop * inner)
    if failed == predictions.inputs:
        raise nothing_predicted(predictions)
    writer.finish(predictions.inputs, facts, leave_out=() if failed else ("status",))
    return BlockScores(
        out, names, predictions.members, predictions.classes, predictions.outcome, predictions.batch,
        failed, infinite,
    )  # fmt: skip


def read_parts(path: Path, names: Sequence[str] | None = None) -> Iterator[dict[str, np.ndarray]]:
    """Yield columns of a store or a Parquet file, a run of rows at a time."""
    if path.suffix.lower() == ".parquet":
        yield from read_parquet_parts(path, names, COLUMN_BLOCK)
        return
    columns = open_columns_of(path, "scores")[0]
    names = list(columns) if names is None else names
    for start in range(0, len(columns[names[0]]), COLUMN_BLOCK):
        yield {name: columns[name][start : start + COLUMN_BLOCK] for name in names}


def _with_status(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return columns with `status` before the scores: every block has it, since any may need it."""
    if "status" in columns:
        return dict(columns)
    found: dict[str, np.ndarray] = {}
    for name, values in columns.items():
        if "status" not in found and name.endswith("_total"):
            found["status"] = np.full(len(values), OK)
        found[name] = values
    return found


def describe_run(
    predictions: Predictions,
    kind: Kind | None,
    measures: Sequence[str],
    weights: np.ndarray | None,
    labels: list[Any] | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what must be unchanged for a run to resume: the files, and what was asked.

    Labels are what tells their file from others.
    """
    asked = {"rule": "log", **options}
    asked.pop("weights_label", None)
    return {
        "files": stamp_files(predictions.sources),
        "kind": kind,
        "outcome": predictions.outcome,
        "measures": list(measures),
        "weights": None if weights is None else sum_array(weights),
        "labels": labels,
        # Options that were not given are those that are None or False.
        **{name: value for name, value in asked.items() if value is not None and value is not False},
    }
