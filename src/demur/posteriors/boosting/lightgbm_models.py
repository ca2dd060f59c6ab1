"""Models of LightGBM, by rounds of boosting."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from demur.posteriors.boosting.tree_model import (
    Task,
    TreeModel,
    as_columns,
    choose_task,
    list_stages,
    refuse_unfitted,
)
from demur.posteriors.sklearn_members import is_estimator, is_fitted

_TASKS: dict[Task, tuple[str, ...]] = {
    "binary": ("binary",),
    "classes": ("multiclass",),
    "numbers": ("regression", "regression_l1", "huber", "fair", "quantile", "mape"),
    "log numbers": ("poisson", "gamma", "tweedie"),
}


class LightGBMModel(TreeModel):
    """An ``LGBMClassifier``, ``LGBMRegressor`` or ``Booster``."""

    def __init__(self, model: Any) -> None:
        self._model, self.name = model, type(model).__name__
        wrapped = is_estimator(model)
        if wrapped and not is_fitted(model):
            refuse_unfitted(self.name)
        self._booster = model.booster_ if wrapped else model
        self.rounds = self._booster.best_iteration
        if self.rounds <= 0:
            self.rounds = self._booster.current_iteration()
        text = self._booster.model_to_string(num_iteration=1)
        kind = re.search(r"^\[boosting: (\w+)\]$", text, re.MULTILINE)
        if kind and kind[1] not in ("gbdt", "goss"):
            self.unstaged = kind[1]  # rf averages trees; dart rescales those that it dropped
        said = re.search(r"^objective=(.*)$", text, re.MULTILINE)
        objective = said[1] if said else "an objective of your own"
        slope = re.search(r" sigmoid:(\S+)", objective)  # of the logit in raw predictions
        self._slope = float(slope[1]) if slope else 1.0
        plain = re.sub(r" (sigmoid|num_class):\S+", "", objective).strip()
        self.task = choose_task(plain, _TASKS, self.name)
        self.classes = getattr(model, "classes_", None) if self.task in ("binary", "classes") else None

    def predict_stages(self, inputs: Any, stages: int) -> np.ndarray:
        found, before, total = [], 0, 0.0
        for end in list_stages(self.rounds, stages):
            total = total + self._predict_rounds(inputs, before, end - before)
            found.append(total)
            before = end
        return np.stack(found)

    def predict_whole(self, inputs: Any) -> np.ndarray:
        return self._predict_rounds(inputs, 0, self.rounds)

    def _predict_rounds(self, inputs: Any, start: int, number: int) -> np.ndarray:
        """Return the sum of some rounds; the first holds the starting value of boosting."""
        found = self._model.predict(inputs, raw_score=True, start_iteration=start, num_iteration=number)
        return self._slope * as_columns(found)

    def serialise(self) -> bytes:
        return self._booster.model_to_string().encode()
