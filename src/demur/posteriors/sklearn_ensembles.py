"""`Forest`, `Bagging`, `Predictors`: scikit-learn ensembles and other objects with ``predict_proba``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from demur.posteriors.posterior import Posterior, select_members, split_members
from demur.predictions import Categorical, arrays


class Predictors(Posterior):
    """Independently trained objects with ``predict_proba``, each a member.

    Parameters
    ----------
    models
        Objects with ``predict_proba(inputs)``, which returns (inputs, classes). Where they have ``classes_``,
        these must be the same.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> x, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 1, 0, 1])
    >>> models = [LogisticRegression(C=c).fit(x, y) for c in (0.1, 1.0, 10.0)]
    >>> demur.score(models, [(x, y)], progress=False)["pairwise"].epistemic.shape
    (4,)
    """

    _exact: ClassVar[bool] = False  # a probability of 0 is never one by rounding

    def __init__(self, models: Sequence[Any]) -> None:
        self.models = list(models)
        if not self.models or not all(hasattr(model, "predict_proba") for model in self.models):
            raise TypeError("models must be objects with predict_proba. Got none, or others among them.")
        self.members = len(self.models)
        self.classes = getattr(self.models[0], "classes_", None)
        for k, model in enumerate(self.models):
            if not np.array_equal(getattr(model, "classes_", self.classes), self.classes):
                raise ValueError(
                    f"models must know the same classes, {list(self.classes)}. "
                    f"Got {list(model.classes_)} of models[{k}]. Train it on data that has them all."
                )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.members} members)"

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        inputs = _to_table(batch)
        wanted = select_members(members, len(self.models))
        step = max(1, len(inputs) * (2 if self.classes is None else len(self.classes)))
        for run in split_members(wanted, step):
            made = Categorical(probs=np.stack([self.probabilities(k, inputs) for k in run]))
            made._rounding = 0.0 if self._exact else None
            yield made

    def probabilities(self, k: int, inputs: Any) -> np.ndarray:
        """Return the probabilities that one member predicts, (inputs, classes)."""
        return np.asarray(self.models[k].predict_proba(inputs))


class Bagging(Predictors):
    """A fitted ``BaggingClassifier`` or ``VotingClassifier`` of scikit-learn; each estimator is a member.

    Breiman (1996), "Bagging predictors". An estimator that never saw a class gives it probability 0, which
    makes K infinite where another estimator does not.

    Parameters
    ----------
    model
        The fitted ensemble.

    Examples
    --------
    >>> from sklearn.ensemble import BaggingClassifier
    >>> from sklearn.linear_model import LogisticRegression
    >>> x = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = x[:, 0] > 0
    >>> fitted = BaggingClassifier(LogisticRegression(), n_estimators=5, random_state=0).fit(x, y)
    >>> demur.score(demur.posteriors.Bagging(fitted), [(x, y)], progress=False).members
    5
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.models = _list_estimators(model)
        self.members = len(self.models)
        self.classes = model.classes_
        self._features = getattr(model, "estimators_features_", None)

    def probabilities(self, k: int, inputs: Any) -> np.ndarray:
        member = self.models[k]
        own = inputs if self._features is None else np.asarray(inputs)[:, self._features[k]]
        found = np.asarray(member.predict_proba(own))
        known = getattr(member, "classes_", None)
        if known is None or found.shape[1] == len(self.classes):
            return found
        # Members number classes by their index in the ensemble's.
        whole = np.zeros((len(found), len(self.classes)), found.dtype)
        whole[:, np.asarray(known, int)] = found
        return whole


class Forest(Bagging):
    """A fitted forest of scikit-learn; each tree is a member.

    Breiman (2001), "Random forests"; Shaker and Hüllermeier (2020), "Aleatoric and epistemic uncertainty
    with random forests".

    Parameters
    ----------
    model
        A fitted ``RandomForestClassifier`` or ``ExtraTreesClassifier``.
    prior
        Pseudo-count of each class in each leaf: (n p + prior) / (n + classes prior) for a leaf with n
        training inputs; 1 is Laplace's rule. Trees grown to pure leaves give probabilities of 0 and 1, which
        make K infinite wherever two trees disagree: then give a prior, or grow smaller trees.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> x = np.random.default_rng(0).normal(size=(60, 2))
    >>> forest = RandomForestClassifier(10, random_state=0).fit(x, x[:, 0] > 0)
    >>> scores = demur.score(demur.posteriors.Forest(forest, prior=1.0), [x], progress=False)
    >>> scores.members, bool(np.isfinite(scores["pairwise"].epistemic).all())
    (10, True)
    """

    _exact: ClassVar[bool] = True  # shares of training inputs in a leaf

    def __init__(self, model: Any, *, prior: float = 0.0) -> None:
        super().__init__(model)
        if not np.isfinite(prior) or prior < 0:
            raise ValueError(f"prior must be 0 or a positive number. Got {prior!r}.")
        self.prior = float(prior)
        if not all(hasattr(tree, "tree_") for tree in self.models):
            raise TypeError(f"model must be a forest of trees. Got {type(model).__name__}. See Bagging.")

    def probabilities(self, k: int, inputs: Any) -> np.ndarray:
        found = super().probabilities(k, inputs)
        if self.prior == 0.0:
            return found
        tree = self.models[k]
        count = tree.tree_.weighted_n_node_samples[tree.apply(inputs)][:, None]
        return (count * found + self.prior) / (count + self.prior * found.shape[1])


def _list_estimators(model: Any) -> list[Any]:
    """Return the estimators of a fitted ensemble of classifiers."""
    name = type(model).__name__
    members = getattr(model, "estimators_", None)
    if members is None:
        if hasattr(model, "fit"):
            raise ValueError(f"model must be fitted. Got a {name} that is not: call fit first.")
        raise TypeError(f"model must be an ensemble of scikit-learn. Got {name}.")
    members = list(np.ravel(np.asarray(members, dtype=object)))
    if "Boosting" in name or "AdaBoost" in name:
        raise TypeError(f"model must have estimators that each predict by themselves. Got {name}: boosted.")
    if not all(hasattr(member, "predict_proba") for member in members):
        raise TypeError(
            f"model must have estimators with predict_proba. Got {name}, whose have none. "
            "For regression give demur.Gaussian predictions through a callable."
        )
    if isinstance(getattr(model, "classes_", None), list):
        raise TypeError(f"model must predict one output. Got {name} with several.")
    return members


def _to_table(batch: Any) -> Any:
    """Return inputs as a NumPy array, or unchanged where they are a table."""
    if isinstance(batch, Mapping):
        if len(batch) != 1:
            raise TypeError(f"Inputs must be one array. Got {len(batch)}: {', '.join(map(repr, batch))}.")
        batch = next(iter(batch.values()))
    try:
        return arrays.to_numpy(batch)
    except TypeError:
        return batch
