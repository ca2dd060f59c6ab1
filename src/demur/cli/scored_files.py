"""Files of predictions, scored for a command: with the labels of their inputs, and a progress bar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from demur.progress import progress_bar

if TYPE_CHECKING:
    import numpy as np

    from demur.scoring.block_scores import BlockScores
    from demur.scoring.score_table import ScoreTable
    from demur.stores import Outcome, Predictions

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


def choose_outcome(**asked: bool) -> Outcome:
    """Return what is predicted: classes unless something else is asked for."""
    chosen = [name for name, wanted in asked.items() if wanted]
    if len(chosen) > 1:
        raise ValueError(
            "expected at most one of --binary, --multilabel, --points, --gaussian, got "
            f"--{' and --'.join(chosen)}"
        )
    return cast("Outcome", chosen[0] if chosen else "classes")


def choose_kind_of(outcome: Outcome, **asked: bool) -> Kind | None:
    """Return what the numbers are; None where they are predicted themselves."""
    if outcome not in ("points", "gaussian"):
        return choose_kind(**asked)
    given = [name for name, wanted in asked.items() if wanted]
    if given:
        raise ValueError(
            f"expected --{outcome} alone, got --{given[0].replace('_', '-')} too: numbers that are predicted "
            "have no logits or probabilities; leave one out"
        )
    return None


def parse_rounding(text: str | None) -> float | str | None:
    """Return a half-width as a number; "dtype" stays."""
    try:
        return text if text is None or text == "dtype" else float(text)
    except ValueError:
        raise ValueError(
            f"--rounding: expected a half-width, as 5e-7 for six decimals, or dtype, got {text!r}"
        ) from None


def parse_reduce(text: str | None, maps: Path | None) -> str | float:
    """Return how maps become one number: "mean" where nothing is asked; a quantile as a number."""
    from demur.scoring.dense import check_reduce

    if text is not None and maps is None:
        raise ValueError(
            f"expected --maps STORE with --reduce, got --reduce {text} alone: without maps each pixel has a "
            "row"
        )
    try:
        quantile = None if text in (None, "mean", "max") else float(text)
        check_reduce("mean" if quantile is None else quantile)
    except ValueError:
        raise ValueError(f"--reduce: expected mean, max or a quantile from 0 to 1, got {text!r}") from None
    return text or "mean" if quantile is None else quantile


def score_files(
    files: list[str],
    kind: Kind | None,
    *,
    axis: int | None = 0,
    weights: Path | None = None,
    labels: str | None = None,
    out: Path | None = None,
    force: bool = False,
    layout: dict[str, Any] | None = None,
    options: dict[str, Any],
    cluster: str | None = None,
    maps: Path | None = None,
    reduce: str | float = "mean",
    write: Callable[[ScoreTable | BlockScores], object] = lambda scores: None,
) -> ScoreTable | BlockScores:
    """Read files and score their inputs, with a progress bar on a terminal.

    ``layout`` holds further arguments of `open_predictions`; ``cluster`` is where to run, None for here.
    With ``maps``, images are scored pixel by pixel, and ``reduce`` says how maps become one number.
    Scores are written here where that is done block by block; else by ``write``, which always gets them.
    """
    from demur.scoring.block_scores import score_in_blocks, takes_blocks
    from demur.scoring.score_files import score_predictions
    from demur.stores import check_output, open_predictions, read_weights
    from demur.stores.urls import find_url

    if out is not None:
        check_output(out, force=force)
        if maps is not None and out.absolute() == maps.absolute():
            raise ValueError(f"expected two names for --out and --maps, got {out} for both")
    where = {"axis": axis, **(layout or {})}
    if cluster is not None:
        from demur.cluster.score_files import check_output_of, spread_tiles

        if maps is not None:
            raise ValueError("expected --maps without --cluster, got both: maps are written by one process")
        check_output_of(out)
        options = options | {"iterate": spread_tiles(cluster, files, where)}
    room = next(
        (place.parent for place in (out, maps) if place is not None and find_url(place) is None), None
    )
    with open_predictions(files, directory=room, **where) as predictions:
        read = [source.place for source in predictions.sources]
        refuse_to_replace(read, out)
        refuse_to_replace(read, maps)
        chosen = None
        if weights is not None:
            chosen = read_weights(weights, members=predictions.members, inputs=predictions.batch[0])
            refuse_to_replace([weights], out)
        options = options | {"weights": chosen, "weights_label": str(weights)}
        if maps is not None:
            options |= {"reduce": reduce, "force": force, "write": write}
            return _score_maps(predictions, kind, maps, labels, room, options)
        truth = None if labels is None else _read_truth(labels, predictions)
        with progress_bar(predictions.inputs, "inputs") as progress:
            if out is not None and cluster is None and takes_blocks(predictions, out):
                scores: ScoreTable | BlockScores = score_in_blocks(
                    predictions,
                    kind,
                    out,
                    add=None if truth is None else _make_adder(truth, predictions.inputs, files[0]),
                    labels=labels,
                    force=force,
                    progress=progress,
                    **options,
                )
            else:
                scores = score_predictions(predictions, kind, progress=progress, **options)
                scores = scores if truth is None else _add_labels(scores, truth, files[0])
    write(scores)
    return scores


def _score_maps(
    predictions: Predictions,
    kind: Kind | None,
    maps: Path,
    labels: str | None,
    room: Path | None,
    options: dict[str, Any],
) -> ScoreTable:
    """Score images pixel by pixel; what cannot be mapped is unpacked in a folder that has room."""
    from demur.scoring.file_maps import score_images
    from demur.stores.label_maps import LabelMaps
    from demur.stores.spool import Spool

    with Spool(room) as spool, progress_bar(predictions.batch[0], "images") as progress:
        truth = None if labels is None else LabelMaps(labels, predictions.batch, spool)
        return score_images(predictions, kind, maps, labels=truth, progress=progress, **options)


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
