"""`TreeModel`: what `BoostedTrees` asks of a model, whichever library it is of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

Task = Literal["binary", "classes", "numbers", "log numbers", "gaussian"]
"""What raw predictions are: the logit of class 1, logits, numbers, their logarithms, mean and variance."""

LIBRARIES = ("catboost", "lightgbm", "xgboost")


class TreeModel(ABC):
    """A fitted model of boosted trees.

    Attributes
    ----------
    name
        Of its class, for messages.
    task
        What raw predictions are.
    classes
        The label of each class; None where the model does not know them.
    rounds
        How many rounds of boosting its predictions use.
    unstaged
        The kind of boosting, where its first trees are no model by themselves; else empty.
    """

    name: str
    task: Task
    classes: np.ndarray | None
    rounds: int
    unstaged: str = ""

    @abstractmethod
    def predict_stages(self, inputs: Any, stages: int) -> np.ndarray:
        """Return raw predictions after the rounds that `list_stages` lists, (stages, inputs, outputs)."""

    @abstractmethod
    def predict_whole(self, inputs: Any) -> np.ndarray:
        """Return raw predictions of the whole model, (inputs, outputs)."""

    @abstractmethod
    def serialise(self) -> bytes:
        """Return the model as bytes, for fingerprints."""


def list_stages(rounds: int, stages: int) -> list[int]:
    """Return numbers of rounds, evenly spaced over the second half of boosting; the last is all of them.

    Examples
    --------
    >>> list_stages(100, 5)
    [60, 70, 80, 90, 100]
    """
    step = rounds // (2 * stages)
    return [rounds - step * (stages - 1 - k) for k in range(stages)]


def find_library(model: Any) -> str | None:
    """Return which library a model is of; None where it is of none of them."""
    if isinstance(model, type):
        return None
    names = (kind.__module__.partition(".")[0] for kind in type(model).__mro__)
    return next((name for name in names if name in LIBRARIES), None)


def choose_task(objective: str, tasks: Mapping[Task, tuple[str, ...]], name: str) -> Task:
    """Return what an objective's raw predictions are; raise where members cannot be made of them."""
    for task, objectives in tasks.items():
        if objective in objectives:
            return task
    known = ", ".join(each for objectives in tasks.values() for each in objectives)
    raise ValueError(f"model must have one of the objectives {known}. Got a {name} with {objective!r}.")


def refuse_unfitted(name: str) -> None:
    """Raise for a model without trees."""
    raise ValueError(f"model must be fitted. Got {name}, which is not: call fit first.")


def as_columns(found: Any) -> np.ndarray:
    """Return raw predictions as (inputs, outputs)."""
    values = np.asarray(found)
    return values[:, None] if values.ndim == 1 else values
