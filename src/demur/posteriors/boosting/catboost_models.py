"""Models of CatBoost; the library itself makes their virtual ensembles."""

from __future__ import annotations

from typing import Any

import numpy as np

from demur.posteriors.boosting.tree_model import Task, TreeModel, as_columns, choose_task, refuse_unfitted

_TASKS: dict[Task, tuple[str, ...]] = {
    "binary": ("Logloss", "CrossEntropy"),
    "classes": ("MultiClass",),
    "numbers": ("RMSE", "MAE", "MAPE", "Quantile", "Expectile", "Huber", "LogCosh", "Lq"),
    "log numbers": ("Poisson", "Tweedie"),
    "gaussian": ("RMSEWithUncertainty",),
}


class CatBoostModel(TreeModel):
    """A ``CatBoostClassifier``, ``CatBoostRegressor`` or ``CatBoost``."""

    def __init__(self, model: Any) -> None:
        self._model, self.name = model, type(model).__name__
        if not model.is_fitted():
            refuse_unfitted(self.name)
        loss = str(model.get_all_params().get("loss_function", "a loss of your own"))
        self.task = choose_task(loss.partition(":")[0], _TASKS, self.name)
        known = np.asarray(np.asarray(model.classes_).tolist())  # names come as objects
        self.classes = known if self.task in ("binary", "classes") and known.size else None
        self.rounds = model.tree_count_

    def predict_stages(self, inputs: Any, stages: int) -> np.ndarray:
        # It takes the trees that list_stages lists, and undoes the shrinkage of posterior sampling.
        found = self._model.virtual_ensembles_predict(
            inputs, prediction_type="VirtEnsembles", virtual_ensembles_count=stages
        )
        return np.moveaxis(np.asarray(found), 1, 0)

    def predict_whole(self, inputs: Any) -> np.ndarray:
        kind = "RMSEWithUncertainty" if self.task == "gaussian" else "RawFormulaVal"
        return as_columns(self._model.predict(inputs, prediction_type=kind))

    def serialise(self) -> bytes:
        return self._model.__getstate__()["__model"]
