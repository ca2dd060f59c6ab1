"""`Forest`, `Bagging`, `Predictors`: scikit-learn ensembles and other objects with ``predict_proba``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from demur.posteriors.posterior import Posterior, select_members, split_members
from demur.posteriors.sklearn_members import has_class, is_tree, list_estimators
from demur.predictions import Categorical, arrays
from demur.scoring.batch_parts import count_rows


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

    weights: np.ndarray | None = None

    def __init__(self, models: Sequence[Any]) -> None:
        self.models = list(models)
        if not self.models or not all(hasattr(model, "predict_proba") for model in self.models):
            raise TypeError("models must be objects with predict_proba. Got none, or others among them.")
        self.members = len(self.models)
        self.classes = getattr(self.models[0], "classes_", None)
        for k, model in enumerate(self.models):
            if not np.array_equal(getattr(model, "classes_", self.classes), self.classes):
                raise ValueError(
                    f"models must know the same classes, {_list_classes(self.classes)}. "
                    f"Got {_list_classes(model.classes_)} of models[{k}]. Train it on data that has them all."
                )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.members} members)"

    @property
    def _has_trees(self) -> bool:
        """Whether a probability of 0 is a share of training inputs in a leaf, and never one by rounding."""
        return any(map(is_tree, self.models))

    @property
    def infinity_advice(self) -> str | None:
        if not self._has_trees:
            return None
        return (
            "trees whose leaves are pure exclude classes that other members predict. Grow smaller trees, as "
            "with min_samples_leaf=5, or use the average measure."
        )

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        inputs = to_table(batch)
        wanted = select_members(members, len(self.models))
        step = max(1, count_rows(inputs) * (2 if self.classes is None else len(self.classes)))
        for run in split_members(wanted, step):
            found = Categorical(probs=np.stack([self.probabilities(k, inputs) for k in run]))
            found._rounding = 0.0 if self._has_trees else None
            yield found if self.weights is None else (found, self.weights[run.start : run.stop])

    def probabilities(self, k: int, inputs: Any) -> np.ndarray:
        """Return the probabilities that one member predicts, (inputs, classes)."""
        return np.asarray(self.models[k].predict_proba(inputs))


class Bagging(Predictors):
    """A fitted scikit-learn ensemble of classifiers; each estimator is a member.

    Breiman (1996), "Bagging predictors". An estimator that never saw a class gives it probability 0, which
    makes K infinite where another estimator does not.

    Parameters
    ----------
    model
        A fitted ``BaggingClassifier``; a ``VotingClassifier``, with its weights; a ``StackingClassifier``,
        whose base estimators are the members and which is itself the deployed model; or a
        ``CalibratedClassifierCV``, whose members are its calibrated classifiers.

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
        self.models = list_estimators(model, "predict_proba")
        self.members = len(self.models)
        self.classes = model.classes_
        self.weights = list_vote_weights(model)

    def probabilities(self, k: int, inputs: Any) -> np.ndarray:
        member = self.models[k]
        found = np.asarray(member.predict_proba(select_features(self.model, k, inputs)))
        known = getattr(member, "classes_", None)
        if known is None or found.shape[1] == len(self.classes):
            return found
        # Members number classes by their index in the ensemble's, unless they were fitted before it.
        fitted_before = getattr(self.model, "cv", None) == "prefit"
        places = np.searchsorted(self.classes, known) if fitted_before else np.asarray(known, int)
        whole = np.zeros((len(found), len(self.classes)), found.dtype)
        whole[:, places] = found
        return whole

    def deployed(self, batch: Any) -> np.ndarray | None:
        if not has_class(self.model, "StackingClassifier"):
            return None
        with np.errstate(divide="ignore"):
            return np.log(self.model.predict_proba(to_table(batch)))


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

    def __init__(self, model: Any, *, prior: float = 0.0) -> None:
        super().__init__(model)
        if not np.isfinite(prior) or prior < 0:
            raise ValueError(f"prior must be 0 or a positive number. Got {prior!r}.")
        self.prior = float(prior)
        if not all(hasattr(tree, "tree_") for tree in self.models):
            raise TypeError(f"model must be a forest of trees. Got {type(model).__name__}. See Bagging.")

    @property
    def infinity_advice(self) -> str | None:
        if self.prior > 0:
            return None
        return (
            "trees whose leaves are pure exclude classes that other trees predict. Give the leaves a prior, "
            "demur.posteriors.Forest(forest, prior=1.0), or use the average measure."
        )

    def probabilities(self, k: int, inputs: Any) -> np.ndarray:
        found = super().probabilities(k, inputs)
        if self.prior == 0.0:
            return found
        tree = self.models[k]
        leaves = tree.apply(select_features(self.model, k, inputs))
        count = tree.tree_.weighted_n_node_samples[leaves][:, None]
        return (count * found + self.prior) / (count + self.prior * found.shape[1])


def list_vote_weights(model: Any) -> np.ndarray | None:
    """Return the weights of a voting ensemble's estimators, without those that were dropped."""
    given = getattr(model, "weights", None)
    if given is None or not has_class(model, "_BaseVoting"):
        return None
    kept = [weight for (_, each), weight in zip(model.estimators, given, strict=True) if each != "drop"]
    return np.asarray(kept, float)


def select_features(model: Any, k: int, inputs: Any) -> Any:
    """Return the inputs of a member as its ensemble gives them: arrays of the features it was fitted on."""
    if not has_class(model, "BaseForest", "BaseBagging"):
        return inputs  # as they are: members may select columns of a table by name
    if hasattr(inputs, "columns"):
        names = list(getattr(model, "feature_names_in_", inputs.columns))
        if missing := [name for name in names if name not in inputs.columns]:
            raise ValueError(
                f"inputs must have the columns that the model was fitted on. Got none named {missing[0]!r}."
            )
        inputs = inputs[names].to_numpy()
    features = getattr(model, "estimators_features_", None)
    if features is None:
        return inputs
    return (inputs if hasattr(inputs, "shape") else np.asarray(inputs))[:, features[k]]


def to_table(batch: Any) -> Any:
    """Return inputs as a NumPy array, or unchanged where they are a table, a sparse matrix or texts."""
    if isinstance(batch, Mapping):
        if len(batch) != 1:
            raise TypeError(f"Inputs must be one array. Got {len(batch)}: {', '.join(map(repr, batch))}.")
        batch = next(iter(batch.values()))
    if hasattr(batch, "columns"):
        return batch
    try:
        return arrays.to_numpy(batch)
    except TypeError:
        return batch


def _list_classes(classes: Any) -> list[Any] | None:
    """Return classes as a list, for messages."""
    return None if classes is None else list(classes)
