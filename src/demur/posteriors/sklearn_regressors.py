"""`Regressors`: members that predict numbers without a variance, from scikit-learn or alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from demur.posteriors.posterior import Posterior, select_members
from demur.posteriors.sklearn_ensembles import list_vote_weights, select_features, to_table
from demur.posteriors.sklearn_members import kind_of, list_estimators


class Regressors(Posterior):
    """Regressors that predict one number each, without a variance; each is a member.

    Parameters
    ----------
    models
        A list of objects whose ``predict(inputs)`` returns (inputs,); or a fitted ``RandomForestRegressor``,
        ``ExtraTreesRegressor``, ``BaggingRegressor``, ``VotingRegressor`` (with its weights) or
        ``StackingRegressor`` (its base estimators) of scikit-learn.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> x = np.random.default_rng(0).normal(size=(60, 2))
    >>> forest = RandomForestRegressor(10, random_state=0).fit(x, x[:, 0])
    >>> demur.posteriors.Regressors(forest)
    Regressors(10 members)
    """

    def __init__(self, models: Any) -> None:
        self.model = None if isinstance(models, Sequence) else models
        self.models = list(models) if self.model is None else list_estimators(models, "predict")
        if not self.models or not all(hasattr(model, "predict") for model in self.models):
            raise TypeError("models must be objects with predict. Got none, or others among them.")
        for model in self.models:
            if kind_of(model) == "classifier":
                raise TypeError(
                    f"models must predict numbers. Got {type(model).__name__}, which predicts classes. See "
                    "demur.posteriors.Bagging, Forest and Predictors."
                )
        self.members = len(self.models)
        self.weights = None if self.model is None else list_vote_weights(self.model)

    def __repr__(self) -> str:
        return f"Regressors({self.members} members)"

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        from demur.predictions import Points

        inputs = to_table(batch)
        wanted = select_members(members, len(self.models))
        found = Points(np.stack([self._predict_numbers(k, inputs) for k in wanted]))
        yield found if self.weights is None else (found, self.weights[wanted.start : wanted.stop])

    def _predict_numbers(self, k: int, inputs: Any) -> np.ndarray:
        """Return the numbers that one member predicts, (inputs,)."""
        own = inputs if self.model is None else select_features(self.model, k, inputs)
        found = np.asarray(self.models[k].predict(own), float)
        if found.ndim == 2 and found.shape[1] == 1:
            found = found[:, 0]
        if found.ndim != 1:
            raise ValueError(
                f"A regressor must predict one number for each input. Got shape {found.shape}. "
                "Score one output at a time."
            )
        return found
