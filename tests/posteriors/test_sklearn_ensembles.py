"""Ensembles of scikit-learn: each estimator a member, with the classes that it knows."""

import numpy as np
import pytest

import demur
from demur.posteriors import Bagging, Forest, Predictors

pytest.importorskip("sklearn")
from sklearn.datasets import load_digits
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

X, Y = load_digits(return_X_y=True)
NAMES = np.array([f"digit {d}" for d in range(10)])[Y]
TRAIN, TEST = slice(0, 1000), slice(1000, None)


def loader(labels=Y):
    return [(X[TEST][i : i + 200], labels[TEST][i : i + 200]) for i in range(0, len(X[TEST]), 200)]


@pytest.mark.parametrize("kind", [RandomForestClassifier, ExtraTreesClassifier])
def test_a_forest_averages_to_its_own_predictions(kind) -> None:
    forest = kind(30, min_samples_leaf=3, random_state=0).fit(X[TRAIN], NAMES[TRAIN])
    with pytest.warns(UserWarning, match="pure"):
        scores = demur.score(Forest(forest), loader(NAMES))
    assert scores.members == 30 and scores.correct.mean() > 0.85
    np.testing.assert_array_equal(scores.predictions, forest.predict(X[TEST]))
    trees = np.stack([tree.predict_proba(X[TEST]) for tree in forest.estimators_])
    expected = demur.decompose(trees, measure="average")
    np.testing.assert_allclose(scores["average"].epistemic, expected.epistemic, rtol=1e-9, atol=1e-14)
    assert np.isinf(scores["pairwise"].epistemic).any()  # leaves exclude classes


def test_a_prior_of_leaves_makes_k_finite_and_wrong_inputs_more_uncertain() -> None:
    forest = RandomForestClassifier(30, random_state=0).fit(X[TRAIN], Y[TRAIN])
    posterior = Forest(forest, prior=1.0)
    scores = demur.score(posterior, loader())
    k = scores["pairwise"].epistemic
    assert np.isfinite(k).all()
    assert k[~scores.correct].mean() > k[scores.correct].mean()
    tree = forest.estimators_[0]
    leaf = tree.tree_.apply(X[TEST][:1].astype(np.float32))[0]
    n, p = tree.tree_.weighted_n_node_samples[leaf], tree.predict_proba(X[TEST][:1])
    np.testing.assert_allclose(posterior.probabilities(0, X[TEST][:1]), (n * p + 1) / (n + 10))
    np.testing.assert_allclose(
        demur.score(posterior, loader(), order="member")["pairwise"].epistemic, k, rtol=1e-9
    )


def test_bagging_with_features_and_classes_that_some_members_never_saw() -> None:
    few = slice(0, 25)  # some draws of 25 digits miss a class
    fitted = BaggingClassifier(KNeighborsClassifier(3), n_estimators=8, max_features=0.5, random_state=0).fit(
        X[few], Y[few]
    )
    assert any(len(member.classes_) < 10 for member in fitted.estimators_)
    found = np.concatenate([c.values for c in Bagging(fitted).predict(X[TEST])])
    np.testing.assert_allclose(found.mean(0), fitted.predict_proba(X[TEST]), rtol=1e-9, atol=1e-12)
    scores = demur.score(Bagging(fitted), loader(), rule="brier")
    second, first = np.sort(fitted.predict_proba(X[TEST]), axis=1)[:, -2:].T
    clear = first - second > 1e-9  # votes of eight members tie often
    np.testing.assert_array_equal(scores.predictions[clear], fitted.predict(X[TEST])[clear])
    assert 0.5 < clear.mean() < 1


def test_voting_and_lists_of_predictors() -> None:
    models = [("a", LogisticRegression(max_iter=2000)), ("b", GaussianNB())]
    voting = VotingClassifier(models, voting="soft").fit(X[TRAIN], NAMES[TRAIN])
    with pytest.warns(demur.RoundingWarning):  # naive Bayes rounds to 0
        scores = demur.score(Bagging(voting), loader(NAMES))
    np.testing.assert_array_equal(scores.predictions, voting.predict(X[TEST]))
    apart = [model.fit(X[TRAIN], NAMES[TRAIN]) for _, model in models]
    same = demur.score(apart, loader(NAMES), measures=["average"])
    np.testing.assert_array_equal(same["average"].epistemic, scores["average"].epistemic)


def test_what_is_refused() -> None:
    forest = RandomForestClassifier(3, random_state=0).fit(X[:50], Y[:50])
    all_but_nine = LogisticRegression(max_iter=2000).fit(X[Y < 9][:200], Y[Y < 9][:200])
    wrong = [
        (ValueError, "call fit first", lambda: Forest(RandomForestClassifier())),
        (TypeError, "ensemble of scikit-learn. Got int", lambda: Forest(3)),
        (TypeError, "whose have none", lambda: Forest(RandomForestRegressor(3).fit(X[:50], Y[:50]))),
        (TypeError, "boosted", lambda: Bagging(AdaBoostClassifier(n_estimators=3).fit(X[:50], Y[:50]))),
        (TypeError, "See Bagging",
         lambda: Forest(BaggingClassifier(GaussianNB(), 3).fit(X[:200], Y[:200]))),
        (TypeError, "several",
         lambda: Forest(RandomForestClassifier(3).fit(X[:50], np.stack([Y, Y], 1)[:50]))),
        (ValueError, "prior must be", lambda: Forest(forest, prior=-1.0)),
        (TypeError, "objects with predict_proba", lambda: Predictors([])),
        (ValueError, r"of models\[1\]", lambda: Predictors([forest, all_but_nine])),
    ]  # fmt: skip
    for kind, message, call in wrong:
        with pytest.raises(kind, match=message):
            call()
