"""What the average of the members predicts, and whether that is right."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from demur.core import arrays
from demur.core.arrays import Array
from demur.families import Family
from demur.families.labels import MultiLabelRule

Outcome = Literal["classes", "multilabel", "points", "numbers"]
"""One class, several labels, numbers without a density, or numbers with one, as those of a Gaussian."""


def name_outcome(rule: Any) -> Outcome:
    """Return what is predicted under a rule or family; numbers without a density have none."""
    if rule is None:
        return "points"
    if isinstance(rule, MultiLabelRule):
        return "multilabel"
    return "numbers" if isinstance(rule, Family) else "classes"


def choose_outcomes(rule: Any, average: Array) -> np.ndarray:
    """Return what an average predicts, of which only that leaves an accelerator.

    The likeliest class, (inputs,); 1 for each label whose probability is above 1/2, else 0, (inputs, labels);
    or the mean of a predicted number.
    """
    outcome = name_outcome(rule)
    if outcome == "classes":
        return arrays.to_numpy(arrays.namespace(average).argmax(average, axis=-1))
    numbers = arrays.to_numpy(average)
    return (numbers > 0.5).astype(np.int64) if outcome == "multilabel" else numbers


def mark_correct(
    predictions: np.ndarray, labels: np.ndarray, outcome: str, classes: int | None = None
) -> np.ndarray:
    """Return whether predictions equal labels, (inputs,); raise where they cannot be compared.

    Parameters
    ----------
    predictions, labels
        (inputs,) each; of several labels (inputs, labels) each: right are those with all labels right.
    outcome
        What is predicted, an ``Outcome``.
    classes
        How many classes there are, where that is known.
    """
    if outcome in ("points", "numbers"):
        raise ValueError(
            "correct takes predicted classes. Got predicted numbers, which hardly ever equal the outcome. "
            "Say how close is right: demur.tasks.within(scores.predictions, scores.labels, tolerance)."
        )
    if outcome == "multilabel":
        if labels.shape != predictions.shape:
            raise ValueError(
                f"labels must be 0 or 1 for each input and label, shape {predictions.shape}. "
                f"Got {labels.shape}."
            )
        _refuse_missing(labels)
        return (predictions == labels).all(axis=1)
    if labels.ndim != 1:
        raise ValueError(
            f"labels must be one class for each input, shape {predictions.shape}. Got {labels.shape}. For "
            "one-hot labels give labels.argmax(1); for several labels of an input, demur.MultiLabel "
            "predictions."
        )
    if (labels.dtype.kind == "U") != (predictions.dtype.kind == "U"):
        last = "C - 1" if not classes else str(classes - 1)
        if labels.dtype.kind == "U":
            raise ValueError(
                f"labels must be class indices, 0 to {last}. Got text, as {str(labels[0])!r}. Give their "
                "names in the order of the columns, demur.score(..., classes=[...]), or compare by hand: "
                "numpy.array(names)[scores.predictions] == scores.labels."
            )
        raise ValueError(
            f"labels must be names of classes, such as {str(predictions[0])!r}. Got numbers, such as "
            f"{labels[0]}."
        )
    _refuse_missing(labels)
    return predictions == labels


def _refuse_missing(labels: np.ndarray) -> None:
    """Raise if a label is NaN."""
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        first = int(np.argwhere(np.isnan(labels))[0, 0])
        raise ValueError(f"labels must be known for each input. Got NaN at input {first}.")
