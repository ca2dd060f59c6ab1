"""`DeferringClassifier` with inputs that are not independent, and with a promise per group."""

import warnings

import numpy as np
import pytest

import demur

pytest.importorskip("sklearn")

import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import GroupKFold, cross_val_score, cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from demur.sklearn import DeferringClassifier, NothingPromised, coverage

RUNS = 200


class Guesses(ClassifierMixin, BaseEstimator):
    """Says 1 for every input, with the same probability: what it keeps is all or nothing."""

    def fit(self, x, y):
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, x):
        return np.tile([0.3, 0.7], (len(x), 1))


class Remembers(GaussianNB):
    """Keeps the clusters that it was fitted to: they are the last column."""

    def fit(self, x, y):
        self.seen_ = set(x[:, -1])
        return super().fit(x, y)


def draw_patients(rng, patients=120, size=20, accuracy=0.8):
    """Inputs of patients: predictions are right for all of one patient, or wrong for all."""
    patient = np.repeat(np.arange(patients), size)
    right = np.repeat(rng.uniform(size=patients) < accuracy, size)
    return rng.uniform(size=(len(patient), 1)), right.astype(int), patient


def count_broken(known: bool) -> float:
    """How often an accuracy of 0.81 is promised, where it is 0.8: of every input, or of none."""
    broken = 0
    for run in range(RUNS):
        x, y, patient = draw_patients(np.random.default_rng(run))
        model = DeferringClassifier(Guesses(), accuracy=0.81, calibration=0.5, random_state=run)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NothingPromised)
            model.fit(x, y, clusters=patient if known else None)
        broken += model.policy_ is not None
    return broken / RUNS


def test_the_promise_holds_for_new_clusters() -> None:
    """At most 0.05 of the fits may break it, and three standard errors more in so many runs."""
    assert count_broken(known=True) <= 0.05 + 3 * (0.05 * 0.95 / RUNS) ** 0.5


def test_control_inputs_of_a_cluster_taken_for_independent_ones_break_it() -> None:
    """1,200 inputs of 120 patients vary ten times as much: twice as often as was said, at least."""
    assert count_broken(known=False) > 0.1


def test_control_patients_on_both_sides_of_the_split_break_it() -> None:
    """What is learned by heart of a patient tells the rest of that patient, and nothing of the next one."""
    rng = np.random.default_rng(0)

    def draw(patients):
        patient = np.repeat(np.arange(patients), 8)
        place = np.repeat(rng.normal(size=(patients, 4)), 8, axis=0)
        y = np.repeat(rng.integers(2, size=patients), 8)  # nothing to learn
        return place + 0.01 * rng.normal(size=place.shape), y, patient

    x, y, patient = draw(150)
    new, truth, _ = draw(150)
    leaky = DeferringClassifier(KNeighborsClassifier(3), accuracy=0.9, random_state=0).fit(x, y)
    assert leaky.report(new, truth).accuracy.high < 0.65
    whole = DeferringClassifier(KNeighborsClassifier(3), accuracy=0.9, random_state=0)
    with pytest.warns(NothingPromised):  # as it should be
        whole.fit(x, y, clusters=patient)
    assert whole.defer(new).all()


@pytest.mark.parametrize(("calibration", "held"), [(0.3, 36), (50, 50)])
def test_whole_clusters_are_held_out(calibration, held) -> None:
    rng = np.random.default_rng(0)
    patient = np.repeat(np.arange(120), rng.integers(1, 20, size=120))
    y = rng.integers(2, size=len(patient))
    x = np.column_stack([y + rng.normal(size=len(y)) / 4, patient])
    names = np.array([f"patient {k}" for k in patient])
    model = DeferringClassifier(Remembers(), accuracy=0.8, calibration=calibration, random_state=0)
    model.fit(x, y, clusters=names)
    outside = ~np.isin(patient, list(model.estimator_.seen_))
    assert len(np.unique(patient[outside])) == model.policy_.clusters == held
    assert len(model.calibration_scores_) == outside.sum()
    assert sorted(model.uncertainty(x[outside])) == pytest.approx(sorted(model.calibration_scores_))
    again = DeferringClassifier(Remembers(), accuracy=0.8, calibration=calibration, random_state=0)
    assert again.fit(x, y, clusters=names).policy_ == model.policy_
    together, apart = model.report(x, y, clusters=names), model.report(x, y)
    assert float(together.accuracy) == float(apart.accuracy)
    assert together.coverage.low < apart.coverage.low


def test_clusters_go_through_cross_validation_and_pipelines() -> None:
    rng = np.random.default_rng(0)
    x, _, patient = draw_patients(rng, 200, 4)
    y = (x[:, 0] + rng.normal(size=len(x)) / 8 > 0.5).astype(int)
    model = DeferringClassifier(LogisticRegression(), accuracy=0.8, defer_label=-1, random_state=0)
    scorer = make_scorer(coverage, defer_label=-1)
    options = {"cv": GroupKFold(3), "scoring": scorer, "error_score": "raise"}
    plain = cross_val_score(model, x, y, groups=patient, params={"clusters": patient}, **options)
    named = {"deferringclassifier__clusters": patient}
    piped = cross_val_score(
        make_pipeline(StandardScaler(), model), x, y, groups=patient, params=named, **options
    )
    with sklearn.config_context(enable_metadata_routing=True):
        model.set_fit_request(clusters=True)
        both = {"groups": patient, "clusters": patient}
        routed = cross_validate(model, x, y, params=both, return_estimator=True, **options)
        through = cross_val_score(make_pipeline(StandardScaler(), model), x, y, params=both, **options)
    np.testing.assert_array_equal(plain, routed["test_score"])
    np.testing.assert_array_equal(piped, through)
    assert plain.min() > 0.3
    # Of 133 or 134 patients, 0.3 are held out.
    assert {each.policy_.clusters for each in routed["estimator"]} <= {40, 41}


@pytest.mark.parametrize(
    ("clusters", "message"),
    [
        (np.arange(5), r"clusters must have shape \(100,\)"),
        (np.zeros(100, int), "at least 2 different labels"),
        (["a"] * 99 + [None], "a label for every input"),
    ],
)
def test_bad_clusters_are_told(clusters, message) -> None:
    rng = np.random.default_rng(0)
    model = DeferringClassifier(LogisticRegression(), accuracy=0.5)
    with pytest.raises(ValueError, match=message):
        model.fit(rng.normal(size=(100, 2)), rng.integers(2, size=100), clusters=clusters)


# --- a promise per group ---------------------------------------------------------------------------


def draw_sites(rng, number=4000):
    """Two sites, in the last column: the same scores, and far more errors at site 1."""
    site = rng.integers(2, size=number)
    x = rng.uniform(size=number)
    error = np.where(site == 1, 0.25, 0.02)
    y = (x > 0.5) ^ (rng.uniform(size=number) < error)
    return np.column_stack([x, site]), y.astype(int), site


def test_every_group_keeps_what_can_be_promised_for_it() -> None:
    rng = np.random.default_rng(0)
    x, y, _ = draw_sites(rng)
    inner = make_pipeline(StandardScaler(), LogisticRegression())
    together = DeferringClassifier(inner, accuracy=0.78, random_state=0).fit(x, y)
    apart = DeferringClassifier(inner, accuracy=0.78, promise_groups=1, random_state=0)
    with pytest.warns(NothingPromised, match="Every input of group 1 is deferred.*for group 1"):
        apart.fit(x, y)
    new, truth, there = draw_sites(rng, 8000)
    assert apart.defer(new)[there == 1].all() and apart.defer(new)[there == 0].mean() < 0.05
    kept = ~together.defer(new) & (there == 1)  # one promise for all is kept at the cost of site 1
    assert kept.sum() > 1000 and (together.predict(new) == truth)[kept].mean() < 0.77
    assert list(apart.policy_.thresholds) == ["0"] and "Group 0: " in apart.report(new, truth).text


def test_groups_are_columns_of_arrays_lists_and_tables_or_functions() -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    x, y, site = draw_sites(rng, 2000)
    settings = {"accuracy": 0.6, "random_state": 0}
    model = DeferringClassifier(LogisticRegression(), promise_groups=1, **settings).fit(x, y)
    assert set(model.policy_.thresholds) == {"0", "1"}
    found = model.defer(x)
    groups = np.array(["0", "1"])[site]
    np.testing.assert_array_equal(found, model.policy_.defer(model.uncertainty(x), groups))
    np.testing.assert_array_equal(found[:9], model.defer(x[:9].tolist()))
    assert model.defer(np.column_stack([x[:, 0], np.full(2000, 7)])).all()  # a site never seen
    table = pandas.DataFrame({"x": x[:, 0], "site": site})
    by_name = DeferringClassifier(LogisticRegression(), promise_groups="site", **settings).fit(table, y)
    by_function = DeferringClassifier(
        LogisticRegression(), promise_groups=lambda rows: rows["site"].map({0: "0", 1: "1"}), **settings
    ).fit(table, y)
    for other in (by_name, by_function):
        assert other.policy_ == model.policy_
        np.testing.assert_array_equal(other.defer(table), found)
    assert cross_val_score(by_name, table, y, cv=3, error_score="raise").min() > 0.7


def test_the_policy_is_that_of_deferral_with_groups_and_clusters() -> None:
    rng = np.random.default_rng(0)
    x, y, _ = draw_sites(rng)
    patient = np.arange(4000) // 4
    seen = []
    model = DeferringClassifier(
        LogisticRegression(),
        accuracy=0.6,
        promise_groups=lambda rows: seen.append(rows) or rows[:, 1],
        random_state=0,
    ).fit(x, y, clusters=patient)
    groups = np.array(["0", "1"])[seen[0][:, 1].astype(int)]
    options = {"accuracy": 0.6, "groups": groups}
    plain = demur.Deferral.fit(model.calibration_scores_, model.calibration_correct_, **options)
    assert model.policy_.clusters == 300 and plain.clusters is None
    for name, threshold in model.policy_.thresholds.items():
        assert threshold.number <= 300 < plain.thresholds[name].number
