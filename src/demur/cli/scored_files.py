"""Files of predictions, scored for a command: with the labels of their inputs, and a progress bar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from demur.progress import progress_bar

if TYPE_CHECKING:
    import numpy as np

    from demur.scoring.block_scores import BlockScores
    from demur.scoring.score_table import ScoreTable
    from demur.stores import Predictions

Kind = Literal["logits", "probs", "log_probs"]


def choose_kind(*, logits: bool, probs: bool, log_probs: bool) -> Kind:
    """Return what the files hold; it is never guessed from the range of the numbers."""
    given: list[Kind] = []
    if logits:
        given.append("logits")
    if probs:
        given.append("probs")
    if log_probs:
        given.append("log_probs")
    if len(given) != 1:
        came = " and ".join("--" + each.replace("_", "-") for each in given) or "none"
        raise ValueError(
            f"expected exactly one of --logits, --probs, --log-probs, got {came}: say what the files hold"
        )
    return given[0]


def score_files(
    files: list[str],
    kind: Kind | None,
    *,
    axis: int = 0,
    weights: Path | None = None,
    labels: str | None = None,
    out: Path | None = None,
    force: bool = False,
    layout: dict[str, Any] | None = None,
    options: dict[str, Any],
) -> ScoreTable | BlockScores:
    """Read files and score their inputs, with a progress bar on a terminal.

    ``layout`` holds further arguments of `open_predictions`. Scores are written here where that is done
    block by block; else the caller has them in memory.
    """
    from demur.scoring.block_scores import score_in_blocks, takes_blocks
    from demur.scoring.score_files import score_predictions
    from demur.stores import check_output, open_predictions, read_weights
    from demur.stores.urls import find_url

    if out is not None:
        check_output(out, force=force)
    local = out is not None and find_url(out) is None
    where: dict[str, Any] = {"axis": axis, "directory": out.parent if out and local else None}
    with open_predictions(files, **where | (layout or {})) as predictions:
        refuse_to_replace([source.place for source in predictions.sources], out)
        chosen = None
        if weights is not None:
            chosen = read_weights(weights, members=predictions.members, inputs=predictions.batch[0])
            refuse_to_replace([weights], out)
        truth = None if labels is None else _read_truth(labels, predictions)
        with progress_bar(predictions.inputs, "inputs") as progress:
            if out is not None and takes_blocks(predictions, out):
                return score_in_blocks(
                    predictions,
                    kind,
                    out,
                    weights=chosen,
                    weights_label=str(weights),
                    add=None if truth is None else _make_adder(truth, predictions.inputs, files[0]),
                    labels=labels,
                    force=force,
                    progress=progress,
                    **options,
                )
            scores = score_predictions(
                predictions,
                kind,
                weights=chosen,
                weights_label=str(weights),
                progress=progress,
                **options,
            )
    return scores if truth is None else _add_labels(scores, truth, files[0])


def _read_truth(labels: str, predictions: Predictions) -> dict[str, np.ndarray]:
    """Return labels of every row of scores; sets of labels as predictions have them."""
    import numpy as np

    from demur.scoring.score_files import join_labels
    from demur.stores import StoreError, read_batch_labels, read_labels

    if predictions.outcome == "multilabel":
        shape = (*predictions.batch, predictions.classes)
        names = predictions.label_names
        found = read_batch_labels(labels, shape, names if len(shape) == 2 else None)
        present = found["label"].reshape(-1, predictions.classes)
        if not np.isin(present, (0, 1)).all():
            row, label = np.argwhere(~np.isin(present, (0, 1)))[0]
            raise ValueError(
                f"{labels}: expected 0 or 1 for each label, got {present[row, label]} at input {row}, "
                f"{names[label]}: leave such inputs out, or score each label by itself with --binary"
            )
        ids = {"id": found["id"][:: predictions.classes]} if "id" in found else {}
        return {"label": join_labels(present == 1, names), **ids}
    if len(predictions.batch) > 1:
        try:
            return read_batch_labels(labels, predictions.batch, predictions.tasks)
        except StoreError as error:
            if predictions.members > 1:
                raise
            read = f"one member of {predictions.batch[0]} inputs"
            raise StoreError(f"{error}; {predictions.sources[0].label} was read as {read}") from error
    named = predictions.outcome in ("binary", "points") and predictions.names
    return read_labels(labels, named[0] if named else None)


def _make_adder(
    truth: dict[str, np.ndarray], rows: int, path: str
) -> Callable[[ScoreTable, int], ScoreTable]:
    """Return a function that adds labels to the scores of a block of rows."""
    from demur.stores import StoreError

    if len(truth["label"]) != rows:
        raise StoreError(f"labels: expected {rows}, one for each input of {path}, got {len(truth['label'])}")

    def add(scores: ScoreTable, first: int) -> ScoreTable:
        own = {name: values[first : first + scores.inputs] for name, values in truth.items()}
        return _add_labels(scores, own, path)

    return add


def _add_labels(scores: ScoreTable, truth: dict[str, np.ndarray], path: str) -> ScoreTable:
    """Return scores with the labels of the same inputs among their columns."""
    from demur.stores import match_labels

    columns = dict(scores.columns)
    match_labels(columns, truth, path)  # as many, of the same kind and in the same order
    if "label" in columns:
        raise ValueError(f"{path}: expected labels once, got a column label and --labels too: leave one out")
    place = list(columns).index("prediction")
    before = dict(list(columns.items())[:place])
    return replace(scores, columns=before | {"label": truth["label"]} | columns)


def refuse_to_replace(read: list[Path], out: Path | None) -> None:
    """Raise a `StoreError` where the output file is one that is read."""
    from demur.stores import StoreError
    from demur.stores.urls import is_same_place, show_place

    if out is not None and any(is_same_place(path, out) for path in read):
        raise StoreError(
            f"{show_place(out)}: expected a file that is not read from, got one of the inputs: choose "
            "another name"
        )
