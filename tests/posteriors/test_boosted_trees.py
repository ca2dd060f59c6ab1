"""Boosted trees: stages are the library's own predictions with as many rounds; lists are whole models."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import demur
from demur.posteriors import BoostedTrees
from demur.posteriors.boosting.tree_model import list_stages

X2, Y2 = load_breast_cancer(return_X_y=True)
X3, Y3 = load_iris(return_X_y=True)
XR, YR = load_diabetes(return_X_y=True)
ROUNDS = 30


def lightgbm(kind="Classifier", **options):
    library = pytest.importorskip("lightgbm")
    return getattr(library, f"LGBM{kind}")(
        **{"n_estimators": ROUNDS, "verbose": -1, "n_jobs": 1, "random_state": 0, **options}
    )


def xgboost(kind="Classifier", **options):
    library = pytest.importorskip("xgboost")
    return getattr(library, f"XGB{kind}")(
        **{"n_estimators": ROUNDS, "n_jobs": 1, "random_state": 0, "base_score": None, **options}
    )


def catboost(kind="Classifier", **options):
    library = pytest.importorskip("catboost")
    settings = {"iterations": ROUNDS, "thread_count": 1, "verbose": 0, "allow_writing_files": False}
    return getattr(library, f"CatBoost{kind}")(**settings, random_seed=0, **options)


def raw_after(model, x, rounds):
    """What the library itself predicts with as many rounds, before any link."""
    if hasattr(model, "booster_"):
        return model.predict(x, raw_score=True, num_iteration=rounds)
    if hasattr(model, "get_booster"):
        return model.predict(x, output_margin=True, iteration_range=(0, rounds))
    return model.predict(x, prediction_type="RawFormulaVal", ntree_end=rounds)


def members_of(posterior, x):
    (chunk,) = posterior.predict(x)
    return chunk


LIBRARIES = pytest.mark.parametrize("make", [lightgbm, xgboost, catboost])


@LIBRARIES
@pytest.mark.parametrize(("x", "y"), [(X2, Y2), (X3, Y3)], ids=["binary", "classes"])
def test_stages_of_a_classifier_are_its_own_predictions_with_fewer_rounds(make, x, y):
    model = make().fit(x, y)
    logits = members_of(BoostedTrees(model, 5), x[:40]).values
    ends = list_stages(ROUNDS, 5)
    assert ends == [18, 21, 24, 27, 30]
    for found, end in zip(logits, ends, strict=True):
        raw = np.asarray(raw_after(model, x[:40], end))
        wanted = raw if raw.ndim == 2 else np.stack([np.zeros(len(raw)), raw], axis=1)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    probs = np.exp(logits[-1]) / np.exp(logits[-1]).sum(-1, keepdims=True)
    np.testing.assert_allclose(probs, model.predict_proba(x[:40]), rtol=1e-5, atol=1e-7)
    earlier = np.exp(logits[0]) / np.exp(logits[0]).sum(-1, keepdims=True)  # the check can fail
    assert np.abs(earlier - model.predict_proba(x[:40])).max() > 1e-3


@LIBRARIES
def test_stages_of_a_regressor_are_numbers(make):
    model = make("Regressor").fit(XR, YR)
    found = members_of(BoostedTrees(model, 3), XR[:20])
    assert isinstance(found, demur.Points)
    for values, end in zip(found.values, list_stages(ROUNDS, 3), strict=True):
        np.testing.assert_allclose(values, raw_after(model, XR[:20], end), rtol=1e-5)
    np.testing.assert_allclose(found.values[-1], model.predict(XR[:20]), rtol=1e-5)
    scores = demur.score(model, [(XR[:20], YR[:20])])
    assert scores.members == 10 and (scores["pairwise"].epistemic > 0).all()


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lightgbm, {"objective": "poisson"}), (lightgbm, {"objective": "gamma"}),
        (lightgbm, {"objective": "tweedie"}), (lightgbm, {"objective": "huber"}),
        (xgboost, {"objective": "count:poisson"}), (xgboost, {"objective": "reg:gamma"}),
        (xgboost, {"objective": "reg:tweedie"}), (xgboost, {"objective": "reg:absoluteerror"}),
        (catboost, {"loss_function": "Poisson"}), (catboost, {"loss_function": "MAE"}),
        (catboost, {"loss_function": "Tweedie:variance_power=1.5"}),
    ],
)  # fmt: skip
def test_numbers_are_on_the_scale_of_the_outcome(make, options):
    model = make("Regressor", **options).fit(XR, YR)
    found = members_of(BoostedTrees(model, 3), XR[:20])
    wanted = model.predict(XR[:20])
    if make is catboost and "Tweedie" in options["loss_function"]:
        wanted = model.predict(XR[:20], prediction_type="Exponent")
    np.testing.assert_allclose(found.values[-1], wanted, rtol=1e-5)


def test_catboost_with_a_variance_gives_gaussians():
    model = catboost("Regressor", loss_function="RMSEWithUncertainty", posterior_sampling=True).fit(XR, YR)
    found = members_of(BoostedTrees(model, 3), XR[:20])
    assert isinstance(found, demur.Gaussian)
    np.testing.assert_allclose(found.values[-1], model.predict(XR[:20]), rtol=1e-6)
    bag = members_of(BoostedTrees([model, model]), XR[:20])
    np.testing.assert_allclose(bag.values[0], model.predict(XR[:20]), rtol=1e-6)
    assert np.isfinite(demur.score(model, [XR[:20]])["pairwise"].epistemic).all()


def test_catboost_undoes_the_shrinkage_of_posterior_sampling():
    model = catboost(posterior_sampling=True).fit(X2, Y2)
    rate = model.get_all_params()["model_shrink_rate"] * model.get_all_params()["learning_rate"]
    logits = members_of(BoostedTrees(model, 5), X2[:40]).values[..., 1]
    for found, end in zip(logits, list_stages(ROUNDS, 5), strict=True):
        raw = raw_after(model, X2[:40], end) / (1 - rate) ** (ROUNDS - end)
        np.testing.assert_allclose(found, raw, rtol=1e-4)


def test_the_slope_of_lightgbm_s_sigmoid_is_part_of_the_logit():
    model = lightgbm(sigmoid=2.0).fit(X2, Y2)
    logits = members_of(BoostedTrees(model, 3), X2[:40]).values[-1]
    np.testing.assert_allclose(1 / (1 + np.exp(-logits[:, 1])), model.predict_proba(X2[:40])[:, 1], rtol=1e-6)


@pytest.mark.parametrize("make", [lightgbm, xgboost])
def test_early_stopping_leaves_the_last_rounds_out(make):
    held_out = (X2[1::2], Y2[1::2])
    if make is lightgbm:
        watched = {"eval_X": held_out[0], "eval_y": held_out[1]}
    else:
        watched = {"eval_set": [held_out], "verbose": False}
    model = make(early_stopping_rounds=3, n_estimators=200).fit(X2[::2], Y2[::2], **watched)
    logits = members_of(BoostedTrees(model, 3), X2[:40]).values[-1]
    probs = 1 / (1 + np.exp(-logits[:, 1]))
    np.testing.assert_allclose(probs, model.predict_proba(X2[:40])[:, 1], rtol=1e-5)
    if make is xgboost:  # LightGBM removes the others itself
        everything = raw_after(model, X2[:40], model.get_booster().num_boosted_rounds())
        assert np.abs(1 / (1 + np.exp(-everything)) - probs).max() > 1e-4


@pytest.mark.parametrize("make", [lightgbm, xgboost])
def test_a_booster_is_taken_as_its_estimator_is(make):
    model = make().fit(X3, Y3)
    booster = model.booster_ if make is lightgbm else model.get_booster()
    a, b = (demur.score(each, [(X3, Y3)])["pairwise"].epistemic for each in (model, booster))
    np.testing.assert_allclose(a, b, rtol=1e-6)


@LIBRARIES
def test_a_list_holds_whole_models_and_their_logits(make):
    models = [make().fit(X3[k::2], Y3[k::2]) for k in range(2)]
    scores = demur.score(models, [(X3, Y3)])
    probs = np.stack([model.predict_proba(X3) for model in models])
    np.testing.assert_allclose(
        scores["average"].epistemic, demur.decompose(probs, measure="average").epistemic, rtol=1e-3, atol=1e-6
    )
    assert scores.members == 2 and scores.correct.mean() > 0.9


@LIBRARIES
def test_names_of_classes_pipelines_and_orders(make):
    names = np.array(["setosa", "versicolor", "virginica"])[Y3]
    labels = Y3 if make is xgboost else names  # XGBoost takes numbers alone
    model = make_pipeline(StandardScaler(), make()).fit(X3, labels)
    scores = demur.score(model, [(X3[:90], labels[:90]), (X3[90:], labels[90:])])
    assert scores.correct.mean() > 0.9 and scores.members == 10
    whole = make_pipeline(StandardScaler(), make()).fit(X3, labels)
    assert (scores.deployed == np.ravel(whole.predict(X3))).all()
    by_member = demur.score(model, [(X3, labels)], order="member")
    np.testing.assert_allclose(by_member["pairwise"].epistemic, scores["pairwise"].epistemic, rtol=1e-6)


@LIBRARIES
def test_the_fingerprint_knows_the_trees(make):
    a, b = make().fit(X2, Y2), make().fit(X2[::2], Y2[::2])
    assert BoostedTrees(a).fingerprint() != BoostedTrees(b).fingerprint()
    assert BoostedTrees(a).fingerprint() == BoostedTrees(a).fingerprint()
    assert BoostedTrees(a).fingerprint() != BoostedTrees(a, 5).fingerprint()


def own_objective(truth, margin):
    return margin - truth, np.ones_like(margin)


def fit(make, data, *arguments, **options):
    return lambda: make(*arguments, **options).fit(*data)


BINARY, CLASSES, NUMBERS = (X2, Y2), (X3, Y3), (XR, YR)


@pytest.mark.parametrize(
    ("words", "make"),
    [
        ("Got LGBMClassifier, which is not: call fit", lightgbm),
        ("Got XGBClassifier, which is not: call fit", xgboost),
        ("Got CatBoostClassifier, which is not: call fit", catboost),
        ("with 'dart'. Give a list", fit(lightgbm, BINARY, boosting_type="dart")),
        ("with 'dart'. Give a list", fit(xgboost, BINARY, booster="dart")),
        ("made of trees", fit(xgboost, BINARY, booster="gblinear")),
        ("objectives .* Got", fit(lightgbm, CLASSES, objective="multiclassova")),
        ("objectives .* Got", fit(lightgbm, NUMBERS, "Regressor", reg_sqrt=True)),
        ("objectives .* Got", fit(lightgbm, NUMBERS, "Regressor", objective=own_objective)),
        ("objectives .* Got", fit(catboost, CLASSES, loss_function="MultiClassOneVsAll")),
        ("one output", fit(xgboost, (XR, np.stack([YR, YR], 1)), "Regressor")),
        ("at most half of the 12 rounds of boosting. Got 10", fit(lightgbm, BINARY, n_estimators=12)),
    ],
)
def test_models_without_stages_are_refused_in_a_line(words, make):
    with pytest.raises(ValueError, match=words):
        demur.score(make(), [X2[:5]])


def test_lists_that_make_no_sense_are_refused_in_a_line():
    two, three = lightgbm().fit(*BINARY), lightgbm().fit(*CLASSES)
    with pytest.raises(ValueError, match=r"must predict the same, binary \[0, 1\]. Got classes"):
        BoostedTrees([two, three])
    with pytest.raises(ValueError, match="samples goes with one model"):
        BoostedTrees([two, two], 3)
    with pytest.raises(TypeError, match="Got an empty list"):
        BoostedTrees([])
    with pytest.raises(TypeError, match=r"xgboost\. Got StandardScaler"):
        BoostedTrees(StandardScaler())


def test_dart_models_are_members_of_a_list():
    model = lightgbm(boosting_type="dart").fit(X2, Y2)
    logits = members_of(BoostedTrees([model, model]), X2[:40]).values[0]
    np.testing.assert_allclose(1 / (1 + np.exp(-logits[:, 1])), model.predict_proba(X2[:40])[:, 1], rtol=1e-6)
