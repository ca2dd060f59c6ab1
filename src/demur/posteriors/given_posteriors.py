"""What `demur.score` takes as a posterior: networks, estimators of scikit-learn, and functions."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from demur.posteriors.boosted_trees import BoostedTrees
from demur.posteriors.boosting.tree_model import find_library
from demur.posteriors.deep_ensemble import DeepEnsemble
from demur.posteriors.posterior import Posterior
from demur.posteriors.samples import Samples
from demur.posteriors.sklearn_ensembles import Bagging, Forest, Predictors, to_table
from demur.posteriors.sklearn_members import (
    has_class,
    is_estimator,
    is_fitted,
    kind_of,
    list_estimators,
    refuse_boosting,
)
from demur.posteriors.sklearn_regressors import Regressors
from demur.posteriors.transformed import Transformed
from demur.predictions import SecondOrder

_EXPECTED = (
    "posterior must be one of demur.posteriors, a list of networks or of fitted estimators, an ensemble of "
    "scikit-learn, or a callable."
)
_ENSEMBLES = ("BaseForest", "BaseBagging", "_BaseVoting", "_BaseStacking", "CalibratedClassifierCV")


def as_posterior(given: Any) -> Posterior:
    """Return a posterior unchanged; make one of networks, estimators or a callable."""
    if isinstance(given, Posterior):
        return given
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.nn.ModuleList):
        given = list(given)
    if isinstance(given, Sequence) and not isinstance(given, str):
        return _open_list(given)
    if find_library(given) is not None:
        return BoostedTrees(given)
    if is_estimator(given):
        return _open_estimator(given)
    if torch is not None and isinstance(given, torch.nn.Module):
        return _EvidentialNetwork(given)
    if hasattr(given, "parameters"):
        raise _refuse_one_network(given)
    if callable(given):
        return Samples(given)
    raise TypeError(f"{_EXPECTED} Got {type(given).__name__}.")


class _EvidentialNetwork(DeepEnsemble):
    """One network, which predicts a distribution over predictions in place of members."""

    def __init__(self, network: Any) -> None:
        super().__init__([network])
        self.members = None

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        for found in super().predict(batch, position=position):
            if not isinstance(found, SecondOrder):
                raise _refuse_one_network(self.models[0])
            yield found


def _refuse_one_network(network: Any) -> TypeError:
    """Return the error about a network whose predictions have nothing to disagree with."""
    return TypeError(
        f"{_EXPECTED} Got {type(network).__name__}. One network alone has no members: see MCDropout or "
        "DeepEnsemble. Only an evidential network, which returns a demur.Dirichlet, needs none."
    )


def _open_list(given: Sequence[Any]) -> Posterior:
    """Return a posterior whose members are listed."""
    if not given:
        raise TypeError(f"{_EXPECTED} Got an empty list.")
    torch = sys.modules.get("torch")
    if torch is not None and all(isinstance(each, torch.nn.Module) for each in given):
        return DeepEnsemble(given)
    if all(find_library(each) is not None for each in given):
        return BoostedTrees(given)
    if all(hasattr(each, "predict_proba") for each in given):
        return Predictors(given)
    kinds = [kind_of(each) for each in given]
    if all(kind == "regressor" for kind in kinds):
        return Regressors(given)
    for k, (each, kind) in enumerate(zip(given, kinds, strict=True)):
        if kind == "classifier" and not hasattr(each, "predict_proba"):
            raise TypeError(
                f"posterior[{k}] must have predict_proba. Got {type(each).__name__}, which gives no "
                "probabilities. Fit it inside CalibratedClassifierCV, which adds them."
            )
    names = ", ".join(sorted({type(each).__name__ for each in given}))
    if all(hasattr(each, "predict") for each in given):
        advice = "Say what predict returns: demur.posteriors.Samples(lambda x: ..., kind='probs'), say."
    elif all(callable(each) for each in given):
        advice = (
            "For functions that load networks write demur.posteriors.DeepEnsemble(...); for functions that "
            "predict, one that stacks what they return: demur.posteriors.Samples(lambda x: ..., kind=...)."
        )
    else:
        advice = "Members must be of one kind."
    raise TypeError(f"{_EXPECTED} Got a list of {names}. {advice}")


def _open_estimator(model: Any) -> Posterior:
    """Return the posterior of a fitted ensemble, also inside a search or at the end of a pipeline."""
    name = type(model).__name__
    if hasattr(model, "best_estimator_"):
        return as_posterior(model.best_estimator_)
    if hasattr(model, "cv_results_"):
        raise TypeError(
            f"{_EXPECTED} Got a {name} without best_estimator_. Search with refit=True, or give the model."
        )
    if hasattr(model, "named_steps") and hasattr(model, "steps"):
        return _open_pipeline(model)
    if kind_of(model) is not None and has_class(model, *_ENSEMBLES):
        if kind_of(model) == "regressor":
            return Regressors(model)
        found = Forest(model) if has_class(model, "BaseForest") else Bagging(model)
        if found.members == 1 and has_class(model, "CalibratedClassifierCV"):
            raise TypeError(
                f"{_EXPECTED} Got a {name} with one calibrated classifier, which has none to disagree with. "
                "Fit it with ensemble=True and cv=5, say."
            )
        return found
    refuse_boosting(model)
    if not is_fitted(model):
        raise ValueError(f"posterior must be fitted. Got {name}, which is not: call fit first.")
    if kind_of(model) is not None and hasattr(model, "estimators_"):
        list_estimators(model, "predict_proba")  # refuses what has an estimator for each class
    if kind_of(model) is None:
        advice = "It is no classifier or regressor."
    elif hasattr(model, "estimator_"):
        advice = "Give what it wraps, its estimator_, if that is an ensemble."
    else:
        kind = "Classifier" if kind_of(model) == "classifier" else "Regressor"
        advice = f"Give a list of fits, on resampled data, or fit a Bagging{kind} of it."
    raise TypeError(f"{_EXPECTED} Got {name}, which is one model without members. {advice}")


def _open_pipeline(model: Any) -> Posterior:
    """Return the posterior of a pipeline's last step, behind the steps before it."""
    last = model.steps[-1][1]
    if not is_estimator(last):
        raise TypeError(
            f"{_EXPECTED} Got a {type(model).__name__} that ends in {last!r}, which predicts nothing."
        )
    found = as_posterior(last)
    if len(model.steps) == 1:
        return found
    before = model[:-1]
    return Transformed(found, lambda batch: before.transform(to_table(batch)), before)
