"""Models of XGBoost, by rounds of boosting."""

from __future__ import annotations

import json
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
    "binary": ("binary:logistic", "binary:logitraw"),
    "classes": ("multi:softprob", "multi:softmax"),
    "numbers": (
        "reg:squarederror",
        "reg:absoluteerror",
        "reg:pseudohubererror",
        "reg:quantileerror",
        "reg:squaredlogerror",
    ),
    "log numbers": ("count:poisson", "reg:gamma", "reg:tweedie"),
}


class XGBoostModel(TreeModel):
    """An ``XGBClassifier``, ``XGBRegressor`` or ``Booster``."""

    def __init__(self, model: Any) -> None:
        self._model, self.name = model, type(model).__name__
        self._wrapped = is_estimator(model)
        if self._wrapped and not is_fitted(model):
            refuse_unfitted(self.name)
        self._booster = model.get_booster() if self._wrapped else model
        try:
            self.rounds = int(self._booster.best_iteration) + 1
        except AttributeError:  # no early stopping
            self.rounds = self._booster.num_boosted_rounds()
        settings = json.loads(self._booster.save_config())["learner"]
        kind = settings["gradient_booster"]["name"]
        if kind == "gblinear":
            raise ValueError(f"model must be made of trees. Got a {self.name} with {kind!r}.")
        self.unstaged = "" if kind == "gbtree" else kind  # dart rescales trees that it dropped
        if settings["learner_model_param"].get("num_target", "1") != "1":
            raise ValueError(f"model must predict one output. Got a {self.name} with several.")
        self.task = choose_task(settings["objective"]["name"], _TASKS, self.name)
        self.classes = getattr(model, "classes_", None) if self.task in ("binary", "classes") else None

    def predict_stages(self, inputs: Any, stages: int) -> np.ndarray:
        found: list[np.ndarray] = []
        before, margin = 0, None
        for end in list_stages(self.rounds, stages):
            # What was predicted so far is where the next rounds begin, in place of the base score.
            margin = self._predict_rounds(inputs, (before, end), margin)
            found.append(as_columns(margin))
            before = end
        return np.stack(found)

    def predict_whole(self, inputs: Any) -> np.ndarray:
        return as_columns(self._predict_rounds(inputs, (0, self.rounds), None))

    def _predict_rounds(self, inputs: Any, rounds: tuple[int, int], start: np.ndarray | None) -> np.ndarray:
        """Return margins after some rounds from a starting margin; None: the base score."""
        if self._wrapped:
            return self._model.predict(inputs, output_margin=True, iteration_range=rounds, base_margin=start)
        from xgboost import DMatrix

        data = DMatrix(inputs, base_margin=start)
        return self._booster.predict(data, output_margin=True, iteration_range=rounds)

    def serialise(self) -> bytes:
        return bytes(self._booster.save_raw("ubj"))
