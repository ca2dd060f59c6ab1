"""`DeferringClassifier`: scikit-learn's own checks, a promise kept by simulation, labels of every kind."""

import pickle

import numpy as np
import pytest

import demur

pytest.importorskip("sklearn")

from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from demur.sklearn import DeferringClassifier, NothingPromised, coverage, kept_accuracy

X, Y = make_classification(2400, n_features=6, flip_y=0.1, random_state=0)
NAMES = np.array(["cat", "dog"])[Y]


def make(estimator=None, **settings) -> DeferringClassifier:
    settings = {"accuracy": 0.85, "random_state": 0} | settings
    return DeferringClassifier(GaussianNB() if estimator is None else estimator, **settings)


@pytest.mark.filterwarnings("ignore::demur.sklearn.NothingPromised")
@parametrize_with_checks(
    [
        DeferringClassifier(LogisticRegression()),
        DeferringClassifier(GaussianNB(), posterior=3, part="epistemic"),
        DeferringClassifier(DecisionTreeClassifier(max_depth=3), posterior=2, coverage=0.5, accuracy=None),
    ]
)
def test_scikit_learn_takes_it_for_an_estimator(estimator, check) -> None:
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::demur.sklearn.NothingPromised")
@parametrize_with_checks([DeferringClassifier(RandomForestClassifier(10), posterior="own")])
def test_scikit_learn_takes_it_for_one_around_a_forest(estimator, check) -> None:
    check(estimator)


# --- the promise -----------------------------------------------------------------------------------


class KnownTruth(ClassifierMixin, BaseEstimator):
    """Knows that class 1 has the probability of the only feature, which is between 0 and 1."""

    def fit(self, x, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, x):
        return np.hstack([1 - x, x])


def draw(rng, number: int):
    x = rng.uniform(size=(number, 1))
    return x, (rng.uniform(size=number) < x[:, 0]).astype(int)


def test_the_promise_is_broken_no_more_often_than_said() -> None:
    """Where all with |x - 1/2| >= d are kept, their accuracy is 3/4 + d/2."""
    broken = kept = 0
    for run in range(400):
        rng = np.random.default_rng(run)
        model = DeferringClassifier(KnownTruth(), accuracy=0.8, calibration=0.7, random_state=run)
        try:
            model.fit(*draw(rng, 600))
        except NothingPromised:  # warnings are errors here
            continue
        h = min(model.policy_.thresholds[""].value, np.log(2))
        p = np.linspace(0.5, 1, 20_001)[1:-1]
        entropy = -p * np.log(p) - (1 - p) * np.log1p(-p)
        d = p[np.searchsorted(-entropy, -h)] - 0.5
        broken += 0.75 + d / 2 < 0.8 - 1e-4
        kept += 1
    assert kept > 300
    assert broken / 400 <= 0.05 + 3 * (0.05 * 0.95 / 400) ** 0.5


def test_control_the_training_inputs_would_break_it() -> None:
    """A model that knows its training inputs by heart is right about all of them, whatever is true."""
    rng = np.random.default_rng(0)
    x, y = draw(rng, 600)
    learned = KNeighborsClassifier(1).fit(x, y)
    own = demur.Deferral.fit(np.zeros(600), learned.predict(x) == y, accuracy=0.85)
    fresh = draw(rng, 4000)
    assert own.report(np.zeros(4000), learned.predict(fresh[0]) == fresh[1]).accuracy.high < 0.75
    with pytest.warns(NothingPromised):  # as it should be
        model = DeferringClassifier(KNeighborsClassifier(1), accuracy=0.85, random_state=0).fit(x, y)
    assert model.defer(fresh[0]).all()


class Remembers(GaussianNB):
    """Keeps what it was fitted to."""

    def fit(self, x, y):
        self.seen_ = {tuple(row) for row in x}
        return super().fit(x, y)


@pytest.mark.parametrize(("calibration", "held"), [(0.3, 720), (0.5, 1200), (500, 500)])
def test_the_calibration_part_is_held_out(calibration, held) -> None:
    model = make(Remembers(), calibration=calibration, posterior=3).fit(X, Y)
    assert len(model.calibration_scores_) == len(model.calibration_correct_) == held
    assert len(model.estimator_.seen_) == 2400 - held
    assert all(each.seen_ <= model.estimator_.seen_ for each in model.posterior_.models)
    outside = np.array([tuple(row) not in model.estimator_.seen_ for row in X])
    assert sorted(model.uncertainty(X[outside])) == pytest.approx(sorted(model.calibration_scores_))
    expected = demur.Deferral.fit(model.calibration_scores_, model.calibration_correct_, accuracy=0.85)
    assert model.policy_ == expected


def test_where_nothing_can_be_promised_all_is_deferred() -> None:
    with pytest.warns(NothingPromised, match=r"Every input is deferred\. No threshold can promise"):
        model = make(accuracy=0.9999, defer_label=-1).fit(X, Y)
    assert model.policy_ is None and model.defer(X).all()
    assert set(model.predict(X)) == {-1} and set(model.decide(X)) == {-1}
    assert coverage(Y, model.predict(X), defer_label=-1) == 0
    assert np.isnan(kept_accuracy(Y, model.predict(X), defer_label=-1))
    with pytest.raises(ValueError, match="report needs a policy"):
        model.report(X, Y)


# --- what it returns -------------------------------------------------------------------------------


def test_all_that_it_returns_belongs_together() -> None:
    model = make().fit(X, NAMES)
    probs = model.estimator_.predict_proba(X)
    np.testing.assert_allclose(model.predict_proba(X), probs, rtol=1e-12)
    np.testing.assert_allclose(model.uncertainty(X), -(probs * np.log(probs)).sum(1), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(model.defer(X), model.policy_.defer(model.uncertainty(X)))
    np.testing.assert_array_equal(model.predict(X), model.estimator_.predict(X))
    deferred = model.defer(X)
    assert 0 < deferred.sum() < 2400
    decided = model.decide(X)
    assert decided.dtype == object and (decided[deferred] == "defer").all()
    np.testing.assert_array_equal(decided[~deferred], model.predict(X)[~deferred])
    report = model.report(X, NAMES)
    assert report.kept == (~deferred).sum()
    assert float(report.accuracy) == (model.predict(X) == NAMES)[~deferred].mean()
    assert model.score(X, NAMES) == (model.predict(X) == NAMES).mean()


@pytest.mark.parametrize(
    ("classes", "label", "kind"),
    [
        ([0, 1], -1, "int64"),
        (np.array([0, 1], np.int8), -1, "int8"),
        (np.array([0, 1], np.uint8), -1, "int64"),  # which holds both
        (np.array([0, 1], np.int8), 1000, "int64"),
        ([0.0, 1.0], -1, "float64"),
        (["cat", "dog"], "defer", "<U5"),
        (["elephant", "dog"], "defer", "<U8"),
        (np.array(["cat", "dog"], object), "defer", "object"),
    ],
)
def test_predict_returns_the_label_in_a_type_that_holds_it(classes, label, kind) -> None:
    y = np.asarray(classes)[Y]
    model = make(LogisticRegression(), defer_label=label).fit(X, y)
    found, deferred = model.predict(X), model.defer(X)
    assert found.dtype == kind and 0 < deferred.sum() < 2400
    assert set(found[deferred].tolist()) == {label}
    plain = clone(model).set_params(defer_label=None).fit(X, y)
    assert plain.predict(X).dtype == y.dtype
    np.testing.assert_array_equal(found[~deferred], plain.predict(X)[~deferred])
    assert set(model.decide(X)[deferred]) == {label}
    assert coverage(y, found, defer_label=label) == (~deferred).mean()
    assert kept_accuracy(y, found, defer_label=label) == float(model.report(X, y).accuracy)


@pytest.mark.parametrize(
    ("y", "label"),
    [(Y, 1), (Y, "defer"), (NAMES, -1), (NAMES, "dog"), (Y == 1, -1), (Y, True), (Y, -0.5), (NAMES, None)],
)
def test_labels_of_another_kind_are_refused(y, label) -> None:
    model = make(defer_label=label)
    if label is None:
        clash = np.where(y == "cat", "defer", "keep")
        with pytest.raises(ValueError, match="'defer' is one"):
            model.fit(X, clash).decide(X)
        return
    with pytest.raises(ValueError, match="defer_label must be a text for classes with names"):
        model.fit(X, y)


def test_yes_and_no_can_be_decided() -> None:
    decided = make().fit(X, Y == 1).decide(X)
    assert {True, False, "defer"} == set(decided)


# --- posteriors ------------------------------------------------------------------------------------


def test_members_of_a_forest_are_its_trees() -> None:
    forest = RandomForestClassifier(5, min_samples_leaf=10)
    model = make(forest, posterior="own", measure="I", part="epistemic", coverage=0.5, accuracy=None)
    model.fit(X, Y)
    scores = demur.score(model.estimator_, [X], measures=["average"], progress=False)
    np.testing.assert_allclose(model.uncertainty(X), scores["average"].epistemic, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(model.predict_proba(X), model.estimator_.predict_proba(X), rtol=1e-6)


def test_bootstrap_samples_are_those_of_the_seed() -> None:
    models = [make(posterior=4, measure="K", part="epistemic").fit(X, Y) for _ in range(2)]
    assert models[0].posterior_.members == 4
    np.testing.assert_array_equal(*(each.uncertainty(X) for each in models))
    members = [each.predict_proba(X) for each in models[0].posterior_.models]
    assert all(np.ptp([a - b for a in members], axis=0).max() > 0 for b in members[:1])
    expected = demur.decompose(np.stack(members), measure="pairwise").epistemic
    np.testing.assert_allclose(models[0].uncertainty(X), expected, rtol=1e-9)
    np.testing.assert_allclose(models[0].predict_proba(X), np.mean(members, axis=0), rtol=1e-9)
    other = make(posterior=4, part="epistemic", random_state=1).fit(X, Y)
    assert not np.allclose(other.uncertainty(X), models[0].uncertainty(X))


def test_a_function_makes_any_posterior() -> None:
    def double(fitted):
        return demur.posteriors.Samples(
            lambda x: np.stack([fitted.predict_log_proba(x), 2 * fitted.predict_log_proba(x)]), kind="logits"
        )

    model = make(posterior=double, part="epistemic").fit(X, Y)
    logits = model.estimator_.predict_log_proba(X)
    expected = demur.decompose(logits=np.stack([logits, 2 * logits]), measure="average").epistemic
    np.testing.assert_allclose(model.uncertainty(X), expected, rtol=1e-9)


def predict_three_classes(fitted):
    return demur.posteriors.Samples(lambda x: np.zeros((2, len(x), 3)), kind="logits")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"posterior": "trees"}, "posterior must be None, 'own', a number"),
        ({"posterior": 1}, "posterior must be None, 'own', a number"),
        ({"posterior": "own"}, "one model without members"),
        ({"part": "epistemic"}, "needs members"),
        ({"part": "sum"}, "part must be one of total, aleatoric, epistemic"),
        ({"measure": "best"}, "measure"),
        ({"estimator": RidgeClassifier()}, "CalibratedClassifierCV"),
        ({"coverage": 0.5}, "exactly one of accuracy"),
        ({"accuracy": 2}, "between 0 and 1"),
        ({"confidence": 95}, "confidence"),
        ({"calibration": 2.0}, "test_size"),
        ({"posterior": lambda fitted: RandomForestClassifier(3).fit(X, NAMES)}, "must know the classes"),
        ({"posterior": predict_three_classes}, "must predict 2 classes"),
    ],
)  # fmt: skip
def test_bad_settings_are_told(settings, message) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make(**settings).fit(X, Y)


# --- among other estimators ------------------------------------------------------------------------


def test_it_works_in_a_pipeline_and_around_one() -> None:
    scores = []
    for model in (
        make_pipeline(StandardScaler(), make(LogisticRegression(), defer_label=-1)),
        make(make_pipeline(StandardScaler(), LogisticRegression()), defer_label=-1),
    ):
        for metric in (coverage, kept_accuracy):
            scorer = make_scorer(metric, defer_label=-1)
            scores.append(cross_val_score(model, X, Y, cv=3, scoring=scorer, error_score="raise"))
        assert set(cross_val_predict(model, X, Y, cv=3)) == {-1, 0, 1}
    np.testing.assert_allclose(scores[0], scores[2], atol=0.3)
    assert min(map(np.min, scores)) > 0.2 and min(scores[1].min(), scores[3].min()) > 0.8
    assert cross_val_score(make(), X, Y, cv=3).min() > 0.8  # a class for every input


def test_a_fitted_estimator_can_be_frozen() -> None:
    fitted = GaussianNB().fit(X[:1200], Y[:1200])
    model = make(FrozenEstimator(fitted), calibration=1000).fit(X[1200:], Y[1200:])
    assert model.policy_ is not None
    np.testing.assert_array_equal(model.predict(X), fitted.predict(X))


def test_a_search_chooses_what_defers_least() -> None:
    search = GridSearchCV(
        make(defer_label=-1),
        {"estimator__var_smoothing": [1e-9, 0.01]},
        scoring=make_scorer(coverage, defer_label=-1),
        cv=2,
        error_score="raise",
    )
    search.fit(X, Y)
    assert search.best_score_ == search.cv_results_["mean_test_score"].max()
    assert search.best_estimator_.policy_.promise() and search.predict(X).shape == (2400,)


def test_tables_and_text_go_to_the_estimator_as_they_are() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X, columns=list("abcdef")).assign(g=NAMES)
    inner = make_pipeline(make_column_transformer((StandardScaler(), ["a", "b", "c"])), LogisticRegression())
    model = make(inner, posterior=3, coverage=0.7, accuracy=None).fit(table, NAMES)
    assert list(model.feature_names_in_) == [*"abcdef", "g"] and model.n_features_in_ == 7
    assert model.decide(table[:5]).shape == (5,)
    with pytest.raises(ValueError, match="columns are missing"):
        model.predict(table[["a", "b"]])


def test_it_comes_back_from_a_pickle_and_is_cloned() -> None:
    model = make(CalibratedClassifierCV(RidgeClassifier(), cv=3), posterior="own").fit(X, NAMES)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decide(X), model.decide(X))
    assert not hasattr(clone(model), "policy_") and clone(model).posterior == "own"


def test_metrics_refuse_labels_of_another_shape() -> None:
    with pytest.raises(ValueError, match="one label for each input"):
        coverage([0, 1], [0], defer_label=-1)
