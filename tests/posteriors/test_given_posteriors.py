"""What people hold is taken as it is by score, or refused with what it is and what to do."""

import numpy as np
import pytest

import demur
from demur.posteriors import Bagging, DeepEnsemble, Forest, Predictors, Regressors
from demur.posteriors.given_posteriors import as_posterior

pytest.importorskip("sklearn")
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])[Y]
TRAIN, TEST = slice(0, None, 2), slice(1, None, 2)
BATCH = [(X[TEST], NAMES[TEST])]


def fitted(model, labels=NAMES):
    return model.fit(X[TRAIN], labels[TRAIN])


def members_of(posterior, inputs=X[TEST]) -> np.ndarray:
    chunks = [each if isinstance(each, tuple) else (each, None) for each in posterior.predict(inputs)]
    return np.concatenate([found.values for found, _ in chunks])


def two_models() -> list:
    return [("line", LogisticRegression(max_iter=2000)), ("bayes", GaussianNB())]


# --- networks ------------------------------------------------------------------------------------


def test_lists_of_networks_are_an_ensemble() -> None:
    torch = pytest.importorskip("torch")
    networks = [torch.nn.Linear(4, 3).double() for _ in range(3)]
    expected = demur.score(DeepEnsemble(networks), BATCH, classes=["setosa", "versicolor", "virginica"])
    for given in (networks, tuple(networks), torch.nn.ModuleList(networks)):
        scores = demur.score(given, BATCH)
        np.testing.assert_array_equal(scores["pairwise"].epistemic, expected["pairwise"].epistemic)
    with pytest.raises(TypeError, match="One network alone has no members"):
        demur.score(networks[0], BATCH)
    with pytest.raises(TypeError, match="of one kind"):
        demur.score([networks[0], 3], BATCH)


def test_networks_of_yes_or_no() -> None:
    torch = pytest.importorskip("torch")
    networks = [torch.nn.Linear(4, 1).double() for _ in range(3)]
    for forward in (None, lambda model, x: model(x)[:, 0]):
        with pytest.raises(ValueError, match=r"demur\.Bernoulli\(logits="):
            demur.score(DeepEnsemble(networks, forward=forward), [X])
    posterior = DeepEnsemble(networks, forward=lambda model, x: demur.Bernoulli(logits=model(x).flatten()))
    scores = demur.score(posterior, [(X, Y > 0)])
    z = np.stack([each(torch.from_numpy(X)).detach().numpy()[:, 0] for each in networks])
    expected = demur.decompose(demur.Bernoulli(logits=z)).epistemic
    np.testing.assert_allclose(scores["pairwise"].epistemic, expected, rtol=1e-9)
    np.testing.assert_array_equal(scores.predictions, (1 / (1 + np.exp(-z))).mean(0) > 0.5)
    assert scores.correct.shape == (150,)
    with pytest.raises(ValueError, match="at least 2 classes"):
        demur.score(demur.posteriors.Samples(lambda x: np.zeros((3, len(x), 1)), kind="logits"), [X])


# --- classifiers of scikit-learn -----------------------------------------------------------------


@pytest.mark.parametrize("kind", [RandomForestClassifier, ExtraTreesClassifier])
def test_forests_directly(kind) -> None:
    forest = fitted(kind(20, max_depth=3, min_samples_leaf=5, random_state=0))
    scores = demur.score(forest, BATCH, measures=["average"])
    np.testing.assert_array_equal(scores.predictions, forest.predict(X[TEST]))
    assert scores.members == 20 and scores.correct.mean() > 0.9
    assert isinstance(as_posterior(forest), Forest)


def test_pure_leaves_are_named_once_with_what_to_do() -> None:
    forest = fitted(RandomForestClassifier(20, random_state=0))
    halves = [(X[:75], NAMES[:75]), (X[75:], NAMES[75:])]
    with pytest.warns(UserWarning, match=r"infinite for \d+ of 150 inputs: .* prior=1\.0") as caught:
        scores = demur.score(forest, halves)
    assert len(caught) == 1
    infinite = np.isinf(scores["pairwise"].epistemic).sum()
    assert infinite > 0 and f"for {infinite} of 150" in str(caught[0].message)
    demur.score(Forest(forest, prior=1.0), halves)  # warnings are errors here
    demur.score(forest, halves, measures=["average"])


@pytest.mark.parametrize("weights", [None, [5.0, 1.0]])
@pytest.mark.parametrize("voting", ["soft", "hard"])
def test_voting_with_its_weights(weights, voting) -> None:
    model = fitted(VotingClassifier(two_models(), voting=voting, weights=weights))
    scores = demur.score(model, BATCH)
    probs = np.stack([each.predict_proba(X[TEST]) for each in model.estimators_])
    expected = demur.decompose(probs, weights=weights)
    np.testing.assert_allclose(scores["pairwise"].epistemic, expected.epistemic, rtol=1e-9)
    if voting == "soft":
        np.testing.assert_array_equal(scores.predictions, model.predict(X[TEST]))


def test_weights_of_estimators_that_were_dropped() -> None:
    models = [*two_models(), ("other", GaussianNB())]
    model = VotingClassifier(models, voting="soft", weights=[5.0, 7.0, 1.0]).set_params(bayes="drop")
    np.testing.assert_array_equal(Bagging(fitted(model)).weights, [5.0, 1.0])


def test_stacking_is_its_base_estimators_and_deploys_itself() -> None:
    model = fitted(StackingClassifier(two_models(), LogisticRegression(max_iter=2000), cv=3))
    scores = demur.score(model, BATCH)
    probs = np.stack([each.predict_proba(X[TEST]) for each in model.estimators_])
    np.testing.assert_allclose(scores["pairwise"].epistemic, demur.decompose(probs).epistemic, rtol=1e-9)
    np.testing.assert_array_equal(scores.deployed, model.predict(X[TEST]))


def test_stacking_of_models_that_were_fitted_before_and_miss_a_class() -> None:
    few = [
        (name, each.fit(X[TRAIN][Y[TRAIN] > 0], NAMES[TRAIN][Y[TRAIN] > 0])) for name, each in two_models()
    ]
    model = fitted(StackingClassifier(few, LogisticRegression(max_iter=2000), cv="prefit"))
    found = members_of(as_posterior(model))
    assert found.shape == (2, 75, 3) and (found[:, :, 0] == 0).all()
    np.testing.assert_allclose(found[0, :, 1:], few[0][1].predict_proba(X[TEST]))


def test_calibrated_classifiers_are_members() -> None:
    model = fitted(CalibratedClassifierCV(GaussianNB(), cv=4))
    scores = demur.score(model, BATCH)
    assert scores.members == 4
    np.testing.assert_array_equal(scores.predictions, model.predict(X[TEST]))
    np.testing.assert_allclose(members_of(as_posterior(model)).mean(0), model.predict_proba(X[TEST]))
    with pytest.raises(TypeError, match="ensemble=True"):
        demur.score(fitted(CalibratedClassifierCV(GaussianNB(), cv=4, ensemble=False)), BATCH)


def test_pipelines_transform_first() -> None:
    model = fitted(make_pipeline(StandardScaler(), VotingClassifier(two_models(), voting="soft")))
    posterior = as_posterior(model)
    np.testing.assert_allclose(members_of(posterior).mean(0), model.predict_proba(X[TEST]))
    scores = demur.score(model, BATCH)
    np.testing.assert_array_equal(scores.predictions, model.predict(X[TEST]))
    np.testing.assert_array_equal(scores.predictions, demur.score(model, BATCH, order="member").predictions)
    other = fitted(make_pipeline(StandardScaler(with_mean=False), VotingClassifier(two_models())))
    assert posterior.fingerprint() == as_posterior(model).fingerprint() != as_posterior(other).fingerprint()
    alone = fitted(make_pipeline(RandomForestClassifier(5, max_depth=2, random_state=0)))
    assert isinstance(as_posterior(alone), Forest)
    with pytest.warns(UserWarning, match="prior"):
        demur.score(
            fitted(make_pipeline(StandardScaler(), RandomForestClassifier(20, random_state=0))), BATCH
        )


def test_pipelines_of_texts_and_sparse_matrices() -> None:
    texts = ["a warm film", "a dull film", "not warm", "dull and slow", "warm and good", "slow"] * 4
    labels = np.array([1, 0, 0, 0, 1, 0] * 4)
    model = make_pipeline(TfidfVectorizer(), RandomForestClassifier(10, min_samples_leaf=3, random_state=0))
    model.fit(texts, labels)
    scores = demur.score(model, [(texts[:12], labels[:12]), (texts[12:], labels[12:])], measures=["average"])
    np.testing.assert_array_equal(scores.predictions, model.predict(texts))
    sparse = model[:-1].transform(texts)
    again = demur.score(model[-1], [(sparse, labels)], measures=["average"])
    np.testing.assert_array_equal(again["average"].epistemic, scores["average"].epistemic)
    whole = demur.score(model[-1], sparse, measures=["average"])
    np.testing.assert_array_equal(whole["average"].epistemic, scores["average"].epistemic)


def test_tables_of_mixed_columns_go_through_a_pipeline_by_name() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X, columns=["a", "b", "c", "d"]).assign(place=["north", "south", "east"] * 50)
    by_name = make_column_transformer(
        (OneHotEncoder(), ["place"]), (StandardScaler(), ["c", "a"]), remainder="drop"
    )
    model = make_pipeline(by_name, RandomForestClassifier(10, min_samples_leaf=5, random_state=0))
    model.fit(table[TRAIN], NAMES[TRAIN])
    rows = table[TEST].assign(label=NAMES[TEST], id=[f"flower {i}" for i in range(75)])
    scores = demur.score(model, rows, measures=["average"])
    np.testing.assert_array_equal(scores.predictions, model.predict(table[TEST]))
    assert scores.correct.mean() > 0.9 and scores.ids is not None and scores.ids[-1] == "flower 74"


def test_searches_give_their_best_estimator() -> None:
    pipeline = make_pipeline(StandardScaler(), RandomForestClassifier(10, min_samples_leaf=5, random_state=0))
    search = fitted(GridSearchCV(pipeline, {"randomforestclassifier__max_depth": [1, 2]}, cv=2))
    scores = demur.score(search, BATCH, measures=["average"])
    np.testing.assert_array_equal(scores.predictions, search.predict(X[TEST]))
    with pytest.raises(TypeError, match="refit=True"):
        demur.score(fitted(GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9]}, refit=False)), BATCH)


def test_bagging_of_some_features_from_a_table() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X, columns=["a", "b", "c", "d"])
    model = BaggingClassifier(GaussianNB(), 6, max_features=0.5, random_state=0)
    model.fit(table[TRAIN], NAMES[TRAIN])
    expected = model.predict_proba(table[TEST])
    found = members_of(as_posterior(model), table[TEST][["d", "c", "b", "a"]])  # columns go by name
    np.testing.assert_allclose(found.mean(0), expected)
    with pytest.raises(ValueError, match="none named 'c'"):
        demur.score(model, [table[["a", "b", "d"]]])


def test_what_has_no_members_is_told_apart() -> None:
    wrong = [
        (ValueError, "call fit first", RandomForestClassifier()),
        (ValueError, "call fit first", GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9]})),
        (ValueError, "call fit first", make_pipeline(StandardScaler(), RandomForestClassifier())),
        (ValueError, "call fit first", LogisticRegression()),
        (TypeError, "is boosted: .* BaggingClassifier", fitted(HistGradientBoostingClassifier(max_iter=3))),
        (TypeError, "is boosted", fitted(make_pipeline(StandardScaler(), AdaBoostClassifier()))),
        (TypeError, "is boosted", fitted(HistGradientBoostingRegressor(max_iter=3), Y)),
        (TypeError, "is boosted", fitted(GradientBoostingRegressor(n_estimators=3), Y)),
        (TypeError, "without members.*BaggingClassifier", fitted(LogisticRegression(max_iter=2000))),
        (TypeError, "BaggingRegressor", fitted(LinearRegression(), Y)),
        (TypeError, "one per class", fitted(OneVsRestClassifier(GaussianNB()))),
        (TypeError, "LinearSVC gives no probabilities",
         fitted(VotingClassifier([("a", LinearSVC()), ("b", GaussianNB())]))),
        (TypeError, "no classifier or regressor", fitted(IsolationForest(n_estimators=3))),
        (TypeError, "no classifier or regressor", fitted(KMeans(2, n_init=1))),
        (TypeError, "predicts nothing", make_pipeline(StandardScaler(), "passthrough").fit(X)),
        (TypeError, r"posterior\[0\] must have predict_proba. Got SVC", [fitted(SVC())]),
        (TypeError, "of one kind", [fitted(GaussianNB()), 3]),
        (TypeError, "DeepEnsemble.*Samples", [len, len]),
        (TypeError, "empty list", []),
        (TypeError, "Got str", "forest"),
    ]  # fmt: skip
    for kind, message, given in wrong:
        with pytest.raises(kind, match=message):
            demur.score(given, BATCH)

    class Keras:
        def predict(self, inputs):
            return inputs

    with pytest.raises(TypeError, match="Say what predict returns"):
        demur.score([Keras(), Keras()], BATCH)


def test_lists_of_classifiers_stay_members_also_where_each_is_an_ensemble() -> None:
    forests = [fitted(RandomForestClassifier(5, max_depth=2, random_state=s)) for s in range(3)]
    assert isinstance(as_posterior(forests), Predictors) and as_posterior(forests).members == 3


# --- regressors ----------------------------------------------------------------------------------


def regressors() -> dict:
    lines = [("a", LinearRegression()), ("b", GradientBoostingRegressor(n_estimators=5, random_state=0))]
    return {
        "forest": fitted(RandomForestRegressor(7, random_state=0), Y),
        "bagging": fitted(BaggingRegressor(LinearRegression(), 5, max_features=2, random_state=0), Y),
        "voting": fitted(VotingRegressor(lines, weights=[3.0, 1.0]), Y),
    }


@pytest.mark.parametrize("name", ["forest", "bagging", "voting", "list", "pipeline"])
def test_ensembles_of_regressors_are_points(name) -> None:
    if name == "list":
        given = [fitted(LinearRegression(), Y), fitted(RandomForestRegressor(5, random_state=0), Y)]
        values, weights = np.stack([each.predict(X[TEST]) for each in given]), None
    elif name == "pipeline":
        given = fitted(make_pipeline(StandardScaler(), RandomForestRegressor(5, random_state=0)), Y)
        scaled = given[:-1].transform(X[TEST])
        values, weights = np.stack([each.predict(scaled) for each in given[-1].estimators_]), None
    else:
        given = regressors()[name]
        features = getattr(given, "estimators_features_", [slice(None)] * 9)
        each_of = zip(given.estimators_, features, strict=False)
        values = np.stack([each.predict(X[TEST][:, own]) for each, own in each_of])
        weights = [3.0, 1.0] if name == "voting" else None
    scores = demur.score(given, [(X[TEST][:30], Y[TEST][:30]), (X[TEST][30:], Y[TEST][30:])])
    for measure in ("pairwise", "average", "reverse"):
        expected = demur.decompose(demur.Points(values), measure=measure, weights=weights)
        np.testing.assert_allclose(scores[measure].epistemic, expected.epistemic, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(scores.predictions, np.average(values, axis=0, weights=weights))
    if name != "list":
        np.testing.assert_allclose(scores.predictions, given.predict(X[TEST]))
    assert scores.members == len(values) and scores.rule == "energy"
    with pytest.raises(ValueError, match=r"demur\.tasks\.within"):
        _ = scores.correct
    errors = demur.score(given, [X[TEST]], stderr=True)
    assert (errors["pairwise"].stderr.epistemic >= 0).all()
    for option in ({"order": "member"}, {"tolerance": 0.05}):
        with pytest.raises(ValueError, match="summed member by member"):
            demur.score(given, [X[TEST]], **option)


def test_what_regressors_refuse() -> None:
    with pytest.raises(TypeError, match="predicts classes"):
        Regressors(fitted(RandomForestClassifier(3)))
    with pytest.raises(TypeError, match="objects with predict"):
        Regressors([])
    with pytest.raises(ValueError, match="call fit first"):
        Regressors(RandomForestRegressor())
    several = RandomForestRegressor(3).fit(X, np.stack([Y, Y], 1))
    with pytest.raises(ValueError, match="one output at a time"):
        Regressors(several)._predict_numbers(0, X)


# --- pure leaves ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        VotingClassifier(
            [*two_models(), ("forest", RandomForestClassifier(3, random_state=0))], voting="soft"
        ),
        StackingClassifier([("tree", ExtraTreesClassifier(2, random_state=0)), *two_models()], cv=2),
        BaggingClassifier(make_pipeline(StandardScaler(), RandomForestClassifier(2)), 3, random_state=0),
    ],
)
def test_forests_inside_an_ensemble_exclude_classes_by_pure_leaves(model) -> None:
    """And not by rounding, which a RoundingWarning would speak of."""
    with pytest.warns(UserWarning, match="trees whose leaves are pure.*min_samples_leaf") as caught:
        demur.score(fitted(model), BATCH, progress=False)
    assert [each.category for each in caught] == [UserWarning]


def test_forests_and_pipelines_are_members_as_they_are() -> None:
    """They have a length, of trees or steps, and are not taken apart."""
    forests = [(f"forest {k}", RandomForestClassifier(3, random_state=k)) for k in range(2)]
    found = Bagging(fitted(VotingClassifier(forests, voting="soft")))
    assert found.members == 2 and all(isinstance(each, RandomForestClassifier) for each in found.models)
    lines = make_pipeline(StandardScaler(), LogisticRegression())
    assert Bagging(fitted(BaggingClassifier(lines, 3, random_state=0))).members == 3


# --- evidential networks -------------------------------------------------------------------------


def make_evidential(**options):
    torch = pytest.importorskip("torch")

    class Evidential(torch.nn.Module):
        def __init__(self, seed: int) -> None:
            super().__init__()
            torch.manual_seed(seed)
            self.layer = torch.nn.Linear(4, 3)

        def forward(self, x):
            return options.get("kind", demur.Dirichlet)(1 + torch.exp(self.layer(x)))

    return Evidential(0), Evidential(1)


def test_an_evidential_network_is_a_posterior() -> None:
    torch = pytest.importorskip("torch")
    one, other = make_evidential()
    x = torch.as_tensor(X[TEST], dtype=torch.float32)
    scores = demur.score(one, [(x, Y[TEST])], progress=False)
    with torch.no_grad():
        expected = 2 / (1 + torch.exp(one.layer(x))).sum(-1)  # (C - 1) / sum(alpha)
        both = demur.decompose(demur.Mixture([one(x), other(x)])).epistemic
    np.testing.assert_allclose(scores["pairwise"].epistemic, expected, rtol=1e-5)
    assert scores.members is None and one.training
    for given in ([one, other], DeepEnsemble([one, other])):
        found = demur.score(given, [x], progress=False)["pairwise"].epistemic
        np.testing.assert_allclose(found, both, rtol=1e-5)
    alone = DeepEnsemble(
        [one.layer], forward=lambda model, inputs: demur.Dirichlet(1 + torch.exp(model(inputs)))
    )
    found = demur.score(alone, [x], progress=False)["pairwise"].epistemic
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    (torch_one, _) = make_evidential(kind=torch.distributions.Dirichlet)
    found = demur.score(torch_one, [x], progress=False)["pairwise"].epistemic
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_distribution_is_no_member() -> None:
    torch = pytest.importorskip("torch")
    x = torch.as_tensor(X[TEST], dtype=torch.float32)
    one, _ = make_evidential()
    dropout = demur.posteriors.MCDropout(torch.nn.Sequential(torch.nn.Dropout(0.1), one), samples=3)
    with pytest.raises(TypeError, match=r"a distribution over predictions.*forward=lambda"):
        demur.score(dropout, [x], progress=False)
    with pytest.raises(TypeError, match=r"One network alone has no members.*demur\.Dirichlet"):
        demur.score(one.layer, [x], progress=False)
