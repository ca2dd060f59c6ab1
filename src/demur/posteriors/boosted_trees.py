"""`BoostedTrees`: models of CatBoost, LightGBM and XGBoost, one at several stages or several whole ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from demur.posteriors.boosting.tree_model import LIBRARIES, TreeModel, find_library
from demur.posteriors.fingerprint import fingerprint
from demur.posteriors.posterior import Posterior, check_count, select_members
from demur.posteriors.sklearn_ensembles import to_table
from demur.predictions import Categorical, Gaussian, Points


class BoostedTrees(Posterior):
    """Boosted trees: one model at several stages of boosting, or several models.

    Malinin, Prokhorenkova and Ustimenko (2021), "Uncertainty in gradient boosting via ensembles". A *virtual
    ensemble* is one model cut off after several numbers of rounds, evenly spaced over the second half of
    boosting; the last member is the whole model. Their members are samples of a posterior only if boosting
    was made a Markov chain, which CatBoost does with ``posterior_sampling=True``; without, they show how much
    the last trees still change. A list of models, each fitted with another seed or to a bootstrap sample, has
    members that differ more, at the price of fitting them.

    Parameters
    ----------
    models
        A fitted ``CatBoostClassifier``, ``CatBoostRegressor``, ``LGBMClassifier``, ``LGBMRegressor``,
        ``XGBClassifier``, ``XGBRegressor`` or ``Booster``; or a list of them, each of which is a member as a
        whole. Two or more classes give logits; numbers are without a variance, as `demur.Points`, but for
        CatBoost's ``RMSEWithUncertainty``, which gives `demur.Gaussian`.
    samples
        The number of members of a virtual ensemble, at most half the rounds of boosting; 10, as CatBoost has
        it. Not for a list.

    Examples
    --------
    >>> from lightgbm import LGBMClassifier
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = LGBMClassifier(n_estimators=40, verbose=-1).fit(x, x[:, 0] > 0)
    >>> posterior = demur.posteriors.BoostedTrees(model)
    >>> posterior
    BoostedTrees(10 stages of LGBMClassifier)
    >>> demur.score(posterior, [x], progress=False).members
    10
    """

    def __init__(self, models: Any, samples: int | None = None) -> None:
        self._bag = isinstance(models, Sequence)
        given = list(models) if isinstance(models, Sequence) else [models]
        if not given:
            raise TypeError("models must be a model of boosted trees, or a list of them. Got an empty list.")
        if self._bag and samples is not None:
            raise ValueError("samples goes with one model. Got a list, whose members are its models.")
        self._models = [_open_model(each) for each in given]
        first = self._models[0]
        for k, model in enumerate(self._models):
            if _describe(model) != _describe(first):
                raise ValueError(
                    f"models must predict the same, {_describe(first)}. Got {_describe(model)} of "
                    f"models[{k}]."
                )
        self.classes = first.classes
        self.members = len(given) if self._bag else check_count("samples", 10 if samples is None else samples)
        if not self._bag and first.unstaged:
            raise ValueError(
                "model must be boosted by gradient steps, so that its first trees are a model too. Got a "
                f"{first.name} with {first.unstaged!r}. Give a list of such models, each fitted with another "
                "seed."
            )
        if not self._bag and 2 * self.members > first.rounds:
            raise ValueError(
                f"samples must be at most half of the {first.rounds} rounds of boosting. Got {self.members}. "
                "Fit more rounds, or give fewer samples."
            )
        self._last: tuple[Any, np.ndarray] | None = None

    def __repr__(self) -> str:
        name = self._models[0].name
        return f"BoostedTrees({self.members} {'models' if self._bag else f'stages of {name}'})"

    @property
    def together(self) -> int:
        """How many members ``order="member"`` asks for in one pass: all, since stages are sums of stages."""
        return self.members or 1

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        raw = self._predict_raw(batch)
        self._last = None
        wanted = select_members(members, self.members or 0)
        yield self._read_raw(raw[wanted.start : wanted.stop : wanted.step])

    def deployed(self, batch: Any) -> Any:
        """Return the whole model's logits, (inputs, classes); None for numbers and for several models."""
        if self._bag or self._models[0].task not in ("binary", "classes"):
            return None
        raw = self._predict_raw(batch)
        self._last = (batch, raw)
        return _make_logits(raw[-1], self._models[0].task)

    def fingerprint(self) -> str:
        return fingerprint([self.members, self._bag, [model.serialise() for model in self._models]])

    def _predict_raw(self, batch: Any) -> np.ndarray:
        """Return raw predictions of all members, (members, inputs, outputs)."""
        if self._last is not None and self._last[0] is batch:
            return self._last[1]
        inputs = to_table(batch)
        if self._bag:
            return np.stack([model.predict_whole(inputs) for model in self._models])
        return self._models[0].predict_stages(inputs, self.members or 0)

    def _read_raw(self, raw: np.ndarray) -> Any:
        """Return raw predictions as what they are."""
        task = self._models[0].task
        if task in ("binary", "classes"):
            return Categorical(logits=_make_logits(raw, task))
        if task == "gaussian":
            return Gaussian(raw[..., 0], raw[..., 1])
        if raw.shape[-1] != 1:
            raise ValueError(
                f"model must predict one number for each input. Got {raw.shape[-1]}. Score one output at a "
                "time."
            )
        return Points(np.exp(raw[..., 0]) if task == "log numbers" else raw[..., 0])


def _make_logits(raw: np.ndarray, task: str) -> np.ndarray:
    """Return logits of all classes, (..., classes): of two classes only one is predicted."""
    return raw if task == "classes" else np.concatenate([np.zeros_like(raw), raw], axis=-1)


def _open_model(model: Any) -> TreeModel:
    """Return what to ask of a model of one of the libraries."""
    library = find_library(model)
    if library == "catboost":
        from demur.posteriors.boosting.catboost_models import CatBoostModel

        return CatBoostModel(model)
    if library == "lightgbm":
        from demur.posteriors.boosting.lightgbm_models import LightGBMModel

        return LightGBMModel(model)
    if library == "xgboost":
        from demur.posteriors.boosting.xgboost_models import XGBoostModel

        return XGBoostModel(model)
    raise TypeError(
        f"models must be of {', '.join(LIBRARIES)}. Got {type(model).__name__}. See demur.posteriors.Forest, "
        "Bagging and Regressors for ensembles of scikit-learn."
    )


def _describe(model: TreeModel) -> str:
    """Return what a model predicts, for messages."""
    return model.task if model.classes is None else f"{model.task} {model.classes.tolist()}"
