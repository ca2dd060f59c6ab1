"""`DeferringClassifier`: a scikit-learn classifier that predicts a class, or defers, with a promise."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import GroupShuffleSplit, train_test_split
from sklearn.utils import (
    _safe_indexing,  # public in all but its name
    assert_all_finite,
    check_random_state,
    column_or_1d,
    get_tags,
    resample,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from demur.deferral import Deferral, Report
from demur.measures import canonical_name
from demur.moments import Moments
from demur.posteriors.given_posteriors import as_posterior
from demur.posteriors.posterior import parse_chunk
from demur.posteriors.sklearn_ensembles import Predictors
from demur.predictions import Categorical
from demur.tasks.clusters import check_clusters
from demur.tasks.guarantees import NoGuarantee

_DEFER = "defer"
_GOALS = ("accuracy", "coverage", "risk", "cost")
_PARTS = ("total", "aleatoric", "epistemic")
_SEEDS = 2**31


class NothingPromised(UserWarning):
    """No threshold can promise what was asked for: a `DeferringClassifier` defers all, or a whole group."""


class DeferringClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier that keeps the predictions it can promise an accuracy for, and defers the others.

    ``fit`` holds out a random calibration part, fits the estimator to the rest, and a `demur.Deferral` to the
    uncertainty of the calibration part. What that promises, it promises for new inputs from the same source.
    The estimator is not fitted again to all inputs: the promise would be lost.

    Where nothing can be promised, as from few inputs, ``fit`` warns with `NothingPromised`, which says what
    could be, and every input is deferred; with groups, every input of that group.

    Parameters
    ----------
    estimator
        A classifier with ``predict_proba``, also a ``Pipeline``.
    posterior
        What disagrees about an input:

        - None: nothing. The uncertainty is the entropy of the estimator's probabilities.
        - ``"own"``: the members of the estimator, if it is a forest, or a bagging, voting, stacking or
          calibrated ensemble.
        - a number: so many clones, each fitted to a bootstrap sample of the training part.
        - a function of the fitted estimator: it returns what `demur.score` takes as a posterior, with
          columns in the order of ``classes_``.
    accuracy, coverage, risk, cost
        The goal of `demur.Deferral.fit`, exactly one of them: for another one give ``accuracy=None``.
    confidence
        Confidence level of the promise.
    calibration
        The share of the inputs that are held out, or their number. They must be independent, unless ``fit``
        is given ``clusters``: then whole clusters are held out, and this is their share, or number.
    measure, part
        What is thresholded: a measure of `demur.decompose`, and its ``"total"``, ``"aleatoric"`` or
        ``"epistemic"`` part. The default is the entropy of the average prediction.
    promise_groups
        For a promise per group: the column of X that names the group of each input (a name in a table, a
        place in an array), or a function of X that returns these names. Each group has a threshold of its
        own, and inputs of a group that was not there in the calibration part are deferred.
    defer_label
        What ``predict`` returns for inputs that are deferred: a text for classes with names, a whole number
        for classes with numbers, and no class. None: ``predict`` returns a class for every input, so that all
        metrics work as ever; ``defer`` and ``decide`` say which to leave to a person.
    random_state
        Seed, or generator, of the calibration part, the bootstrap samples, and the clones.

    Attributes
    ----------
    estimator_
        The fitted estimator.
    posterior_
        What predicts, one of `demur.posteriors`. ``predict_proba`` is the average of its members.
    policy_
        The `demur.Deferral`; None where nothing could be promised.
    classes_
        The classes.
    calibration_scores_, calibration_correct_
        Uncertainty of the inputs that were held out, and whether they were predicted right.
    n_features_in_, feature_names_in_
        Those of the estimator, where it has them.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from demur.sklearn import DeferringClassifier
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(2000, 1))
    >>> y = np.where(x[:, 0] + rng.normal(size=2000) / 2 > 0, "dog", "cat")
    >>> model = DeferringClassifier(LogisticRegression(), accuracy=0.95, random_state=0).fit(x, y)
    >>> model.decide([[-2.0], [0.1], [2.0]])
    array(['cat', 'defer', 'dog'], dtype=object)
    >>> model.predict([[-2.0], [0.1], [2.0]])
    array(['cat', 'dog', 'dog'], dtype='<U3')
    """

    def __init__(
        self,
        estimator: Any,
        *,
        posterior: Any = None,
        accuracy: float | None = 0.95,
        coverage: float | None = None,
        risk: float | None = None,
        cost: float | None = None,
        confidence: float = 0.95,
        calibration: float | int = 0.3,
        measure: str = "average",
        part: str = "total",
        promise_groups: Any = None,
        defer_label: Any = None,
        random_state: Any = None,
    ) -> None:
        self.estimator, self.posterior = estimator, posterior
        self.accuracy, self.coverage, self.risk, self.cost = accuracy, coverage, risk, cost
        self.confidence, self.calibration = confidence, calibration
        self.measure, self.part = measure, part
        self.promise_groups = promise_groups
        self.defer_label, self.random_state = defer_label, random_state

    def fit(self, X: Any, y: Any, *, clusters: Any = None) -> Self:
        """Fit the estimator to a part of the inputs, and the policy to the others.

        Parameters
        ----------
        X
            Inputs, as the estimator takes them.
        y
            Classes, (inputs,).
        clusters
            A label for each input, as the patient that an image is of, where inputs of one cluster are not
            independent. All inputs of a cluster are held out, or none, and the policy is fitted on one of
            each, drawn at random: what it promises is for an input drawn from a new cluster. These are the
            ``groups`` of scikit-learn's splitters; to cross-validate, give them to both.
        """
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        self._check_settings()
        source = check_random_state(self.random_state)
        own, held, labels, truth, together = self._split(X, y, clusters, source)
        self.estimator_ = _seed(clone(self.estimator), source).fit(own, labels)
        self.classes_ = np.asarray(self.estimator_.classes_)
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)  # of an earlier fit
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        self._check_label()
        self.posterior_ = self._make_posterior(own, labels, source)
        average, self.calibration_scores_ = self._predict(held)
        self.calibration_correct_ = self.classes_[average.argmax(axis=1)] == truth
        self.policy_ = self._fit_policy(self._name_groups(held), together, source)
        return self

    def _split(self, X: Any, y: Any, clusters: Any, source: np.random.RandomState) -> tuple[Any, ...]:
        """Return the inputs to fit to and those held out, the labels of both, and the clusters held out."""
        if clusters is None:
            return (*train_test_split(X, y, test_size=self.calibration, random_state=source), None)
        found = check_clusters(clusters, len(y))
        assert found is not None
        splitter = GroupShuffleSplit(1, test_size=self.calibration, random_state=source)
        ((own, held),) = splitter.split(X, y, found.codes)
        parts = [_safe_indexing(each, rows) for each in (X, y) for rows in (own, held)]
        return (*parts, found.codes[held])

    def _name_groups(self, X: Any) -> np.ndarray | None:
        """Return the group of each input, the same text for 1 and 1.0; None where there are none."""
        if self.promise_groups is None:
            return None
        if callable(self.promise_groups):
            names = np.asarray(self.promise_groups(X))
        else:
            table = np.asarray(X) if isinstance(X, list) else X
            names = np.asarray(_safe_indexing(table, self.promise_groups, axis=1))
        if names.dtype.kind in "iuf":
            return np.array([np.format_float_positional(each, trim="-") for each in names.ravel()])
        return names

    def _fit_policy(self, groups: Any, clusters: Any, source: np.random.RandomState) -> Deferral | None:
        """Return the policy of the groups that something can be promised for, and warn of the others."""
        options: dict[str, Any] = {name: getattr(self, name) for name in _GOALS}
        options["confidence"] = self.confidence
        if clusters is not None:
            options["seed"] = source.randint(_SEEDS)
        left = np.ones(len(self.calibration_scores_), bool)
        while left.any():
            parts = [None if each is None else each[left] for each in (groups, clusters)]
            scores, correct = self.calibration_scores_[left], self.calibration_correct_[left]
            try:
                return Deferral.fit(scores, correct, groups=parts[0], clusters=parts[1], **options)
            except NoGuarantee as error:
                whose = f" of group {error.group}" if error.group else ""
                warnings.warn(f"Every input{whose} is deferred. {error}", NothingPromised, stacklevel=3)
                left &= groups is not None and groups.astype(str) != error.group
        return None

    def _check_settings(self) -> None:
        """Raise unless the settings that nothing else checks are possible."""
        canonical_name(self.measure)
        if self.part not in _PARTS:
            raise ValueError(f"part must be one of {', '.join(_PARTS)}. Got {self.part!r}.")
        if self.part == "epistemic" and self.posterior is None:
            raise ValueError("part='epistemic' needs members. Got posterior=None: give posterior=10, say.")
        if not hasattr(self.estimator, "predict_proba"):
            raise TypeError(
                f"estimator must have predict_proba. Got {type(self.estimator).__name__}, which gives no "
                "probabilities. Put it inside CalibratedClassifierCV, which adds them."
            )

    def _check_label(self) -> None:
        """Raise unless the label of deferred inputs has the kind of the classes, and is none of them."""
        if self.defer_label is None:
            return
        kind = self.classes_.dtype.kind
        named = kind in "UO" and isinstance(self.defer_label, str)
        numbered = kind in "iuf" and isinstance(self.defer_label, int | np.integer)
        if not (named or numbered) or isinstance(self.defer_label, bool) or self.defer_label in self.classes_:
            raise ValueError(
                "defer_label must be a text for classes with names, a whole number for classes with numbers, "
                f"and no class. Got {self.defer_label!r} for {self.classes_.tolist()}: see decide."
            )

    def _make_posterior(self, own: Any, labels: Any, source: np.random.RandomState) -> Any:
        """Return what predicts."""
        given = self.posterior
        if given is None:
            return Predictors([self.estimator_])
        if isinstance(given, str) and given == "own":
            found = as_posterior(self.estimator_)
        elif isinstance(given, int | np.integer) and not isinstance(given, bool) and given > 1:
            found = Predictors([self._fit_to_bootstrap(own, labels, source) for _ in range(given)])
        elif callable(given):
            found = as_posterior(given(self.estimator_))
        else:
            raise ValueError(
                "posterior must be None, 'own', a number of bootstrap samples from 2 on, or a function of "
                f"the fitted estimator. Got {given!r}."
            )
        if found.classes is not None and not np.array_equal(found.classes, self.classes_):
            raise ValueError(
                f"posterior must know the classes {self.classes_.tolist()}. Got {list(found.classes)}."
            )
        return found

    def _fit_to_bootstrap(self, own: Any, labels: Any, source: np.random.RandomState) -> Any:
        """Return a clone that is fitted to a bootstrap sample with all classes in it."""
        drawn: Any = resample(own, labels, stratify=labels, random_state=source)
        return _seed(clone(self.estimator), source).fit(*drawn)

    def _predict(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return average probabilities (inputs, classes), and the uncertainty of each input."""
        moments = Moments()
        # Objects that only know how to become an array.
        X = np.asarray(X) if hasattr(X, "__array__") and not hasattr(X, "shape") else X
        for chunk in self.posterior_.predict(X):
            prediction, weights = parse_chunk(chunk)
            if not isinstance(prediction, Categorical) or prediction.values.shape[-1] != len(self.classes_):
                raise ValueError(f"posterior must predict {len(self.classes_)} classes. Got {prediction!r}.")
            moments.update(prediction, weights=weights)
        found = moments.decompose(self.measure)
        return np.asarray(moments.mean, float), np.asarray(getattr(found, self.part), float)

    def _decide(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the class of each input, and whether it is deferred."""
        check_is_fitted(self)
        average, scores = self._predict(X)
        deferred = np.ones(len(scores), bool)
        if self.policy_ is not None:
            deferred = self.policy_.defer(scores, self._name_groups(X))
        return self.classes_[average.argmax(axis=1)], deferred

    def predict(self, X: Any) -> np.ndarray:
        """Return a class for each input, or ``defer_label``, unless that is None, for those deferred."""
        found, deferred = self._decide(X)
        if self.defer_label is None:
            return found
        label = np.asarray([self.defer_label], object if found.dtype.kind == "O" else None)
        # A longer text widens the array; whole numbers keep the type of the classes where it holds them.
        kind = np.result_type(found, label) if found.dtype.kind == "U" else _fit_kind(found.dtype, label)
        found = found.astype(kind)
        found[deferred] = self.defer_label
        return found

    def decide(self, X: Any) -> np.ndarray:
        """Return a class for each input, or "defer" (or ``defer_label``), in an array of objects.

        Classes keep their own type, so that it works for classes of any kind.
        """
        found, deferred = self._decide(X)
        label = _DEFER if self.defer_label is None else self.defer_label
        if label in self.classes_.tolist():
            raise ValueError(f"defer_label must be given, and no class: {label!r} is one.")
        decided = found.astype(object)
        decided[deferred] = label
        return decided

    def defer(self, X: Any) -> np.ndarray:
        """Return True where an input is to be deferred."""
        return self._decide(X)[1]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return class probabilities (inputs, classes), the average over members."""
        check_is_fitted(self)
        return self._predict(X)[0]

    def uncertainty(self, X: Any) -> np.ndarray:
        """Return what is thresholded, in nats: higher = less certain."""
        check_is_fitted(self)
        return self._predict(X)[1]

    def report(self, X: Any, y: Any, *, clusters: Any = None) -> Report:
        """Return the share of inputs kept, and their accuracy, with intervals, as `Deferral.report`."""
        check_is_fitted(self)
        if self.policy_ is None:
            raise ValueError(
                "report needs a policy. Got none: nothing could be promised, and all is deferred."
            )
        average, scores = self._predict(X)
        correct = self.classes_[average.argmax(axis=1)] == column_or_1d(y)
        return self.policy_.report(scores, correct, self._name_groups(X), clusters)

    def __sklearn_tags__(self) -> Any:
        tags, own = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags = own.input_tags
        if own.classifier_tags is not None:
            tags.classifier_tags = own.classifier_tags
            tags.classifier_tags.multi_label = False
        tags.target_tags.multi_output = False
        return tags


def _fit_kind(kind: np.dtype, label: np.ndarray) -> Any:
    """Return the type of the classes if it holds the label, else one that holds both."""
    if kind.kind in "iu" and np.iinfo(kind).min <= label[0] <= np.iinfo(kind).max:
        return kind
    return kind if kind.kind in "Of" else np.result_type(kind, label)


def _seed(estimator: Any, source: np.random.RandomState) -> Any:
    """Return the estimator, its own seeds and those of its parts drawn from a source where they are None."""
    seeds = {
        name: source.randint(_SEEDS)
        for name, value in sorted(estimator.get_params(deep=True).items())
        if name.rpartition("__")[2] == "random_state" and value is None
    }
    if seeds:  # A FrozenEstimator has none, and its set_params returns nothing.
        estimator.set_params(**seeds)
    return estimator
