"""The members of a fitted scikit-learn ensemble; what has none is told apart, with what to do about it."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

_BOOSTED = ("Boost", "LGBM", "XGB")
_BY_CLASS = (
    "OneVsRestClassifier",
    "OneVsOneClassifier",
    "OutputCodeClassifier",
    "MultiOutputClassifier",
    "MultiOutputRegressor",
    "ClassifierChain",
    "RegressorChain",
)


def is_estimator(model: Any) -> bool:
    """Tell whether this is an object with the methods of scikit-learn, and not a class."""
    return not isinstance(model, type) and hasattr(model, "fit") and hasattr(model, "get_params")


def is_fitted(model: Any) -> bool:
    """Tell whether an estimator is fitted, by scikit-learn's rule: it then has attributes that end in _."""
    if hasattr(model, "__sklearn_is_fitted__"):
        return bool(model.__sklearn_is_fitted__())
    return any(name.endswith("_") and not name.startswith("__") for name in vars(model))


def kind_of(model: Any) -> Literal["classifier", "regressor"] | None:
    """Return what an object predicts; None where it does not say so."""
    if hasattr(model, "predict_proba"):
        return "classifier"
    tags = getattr(model, "__sklearn_tags__", None)
    said = getattr(model, "_estimator_type", None) if tags is None else tags().estimator_type
    return said if said in ("classifier", "regressor") else None


def has_class(model: Any, *names: str) -> bool:
    """Tell whether a model is of a class of one of these names, or of a subclass."""
    return any(kind.__name__ in names for kind in type(model).__mro__)


def is_tree(model: Any) -> bool:
    """Tell whether a classifier is a tree or a forest, also inside a search or at the end of a pipeline."""
    model = getattr(model, "best_estimator_", model)
    steps = getattr(model, "steps", None)
    if steps:
        return is_tree(steps[-1][1])
    return hasattr(model, "tree_") or has_class(model, "BaseForest")


def list_estimators(model: Any, method: Literal["predict_proba", "predict"]) -> list[Any]:
    """Return the estimators of a fitted ensemble that each predict by themselves.

    Parameters
    ----------
    model
        A forest, or a bagging, voting, stacking or calibrated ensemble.
    method
        What the estimators must have.

    Raises
    ------
    TypeError
        The model has no such estimators: the message says what it is, and what to give instead.
    ValueError
        The model is not fitted.
    """
    name = type(model).__name__
    refuse_boosting(model)
    if has_class(model, *_BY_CLASS):
        raise TypeError(
            f"model must have estimators that each predict by themselves. Got {name}, with one per class or "
            "output. Wrap it, as in BaggingClassifier(model), or give a list of fits."
        )
    members = getattr(model, "calibrated_classifiers_", getattr(model, "estimators_", None))
    if members is None:
        if not is_estimator(model):
            raise TypeError(f"model must be an ensemble of scikit-learn. Got {name}.")
        if not is_fitted(model):
            raise ValueError(f"model must be fitted. Got {name}, which is not: call fit first.")
        raise TypeError(f"model must be an ensemble of scikit-learn. Got {name}, which is one model.")
    # Never an array of a list: pipelines and forests among it have a length, and would be taken apart.
    members = list(members.ravel()) if isinstance(members, np.ndarray) else list(members)
    for member in members:
        if not hasattr(member, method):
            raise TypeError(_describe_missing(name, member, method))
    if isinstance(getattr(model, "classes_", None), list):
        raise TypeError(f"model must predict one output. Got {name} with several.")
    return members


def refuse_boosting(model: Any) -> None:
    """Raise if a model is boosted: its trees correct each other, so that none predicts by itself."""
    name = type(model).__name__
    if any(part in kind.__name__ for kind in type(model).__mro__ for part in _BOOSTED):
        raise TypeError(
            f"model must have estimators that each predict by themselves. Got {name}, which is boosted: each "
            "tree corrects those before it. Fit several, on resampled data or with other seeds, and give the "
            "list; or fit a BaggingClassifier or BaggingRegressor of it. demur.posteriors.BoostedTrees takes "
            "models of CatBoost, LightGBM and XGBoost."
        )


def _describe_missing(name: str, member: Any, method: str) -> str:
    """Return what is wrong with an ensemble whose member lacks a method."""
    own = type(member).__name__
    if method == "predict_proba" and kind_of(member) == "regressor":
        return (
            f"model must have estimators with predict_proba. Got {name}, whose have none: they predict "
            "numbers. See demur.posteriors.Regressors."
        )
    if method == "predict_proba":
        return (
            f"model must have estimators with predict_proba. Got {name}, whose have none: {own} gives no "
            "probabilities. Fit it inside CalibratedClassifierCV, which adds them."
        )
    return f"model must have estimators with {method}. Got {name}, whose {own} has none."
