"""OutlierScore: objects with the protocol of pytorch-ood's detectors, and that library where it imports."""

import copy

import numpy as np
import pytest

import demur
from demur.posteriors import MCDropout
from demur.posteriors.one_pass import Energy, NearestFeatures, OutlierScore

from .made import digits, train_network

torch = pytest.importorskip("torch")
nn = torch.nn


class ByInputs:
    """As ``pytorch_ood.api.Detector``: it holds its model, and calls it as it is."""

    def __init__(self, model):
        self.model, self.fitted = model, None

    def fit(self, loader):
        self.fitted = sum(len(x) for x, _ in loader)
        return self

    def predict(self, x):
        x = x.clone().requires_grad_()  # as ODIN does
        logits = self.model(x)
        (gradient,) = torch.autograd.grad(logits.logsumexp(1).sum(), x)
        return -logits.logsumexp(1) + 0 * gradient.sum(1)


class ByLogits:
    """As ``pytorch_ood.api.LogitsDetector``."""

    def fit_logits(self, logits, y):
        self.mean = logits.mean()
        assert len(logits) == len(y)
        return self

    def predict_logits(self, logits):
        return -logits.logsumexp(1)


class ByFeatures:
    """As ``pytorch_ood.api.FeaturesDetector``."""

    def fit_features(self, x, y):
        self.bank = nn.functional.normalize(x)
        assert len(x) == len(y)
        return self

    def predict_features(self, x):
        return torch.cdist(nn.functional.normalize(x), self.bank).kthvalue(5).values


@pytest.fixture(scope="module")
def made():
    x, y, noise = digits()
    model = train_network(x[:600], y[:600])
    model.insert(2, nn.Dropout(0.5))
    return model.train(), x, y, noise


def test_all_three_protocols(made) -> None:
    model, x, y, noise = made
    train = [(x[:600], y[:600])]
    columns = [
        OutlierScore.fit(ByInputs(model), train),
        OutlierScore.fit(ByLogits(), train, model=model, name="logits"),
        OutlierScore.fit(ByFeatures(), train, model=model, name="features"),
    ]
    assert [each.name for each in columns] == ["byinputs", "logits", "features"]
    assert columns[0].detector.fitted == 600
    own = [Energy(model), NearestFeatures.fit(model, train, k=5)]
    scores = demur.score(MCDropout(model, samples=3), [x[600:], noise], columns=columns + own, progress=False)
    found = scores.columns
    # The network has dropout and is in training mode: it was switched off for the score, and is on again.
    np.testing.assert_allclose(found["byinputs"], found["energy"], rtol=1e-12)
    np.testing.assert_allclose(found["logits"], found["energy"], rtol=1e-12)
    np.testing.assert_allclose(found["features"], found["nearest_features"], rtol=1e-6)
    assert model.training
    assert all(module.training for module in model.modules())


def test_a_change_of_what_it_holds_is_noticed(made) -> None:
    model, x, y, _ = made
    found = OutlierScore.fit(ByFeatures(), [(x[:600], y[:600])], model=model)
    before = found.fingerprint()
    found.detector.bank = found.detector.bank + 1
    assert found.fingerprint() != before


def test_a_detector_without_a_network_gets_tensors() -> None:
    class Norm:
        def predict(self, x):
            return x.norm(dim=1)

    np.testing.assert_array_equal(OutlierScore(Norm()).score([np.array([[3.0, 4.0]])]), [5.0])


def test_bad_detectors(made) -> None:
    model, x, *_ = made
    with pytest.raises(TypeError, match="detector must have a method predict"):
        OutlierScore(object())
    with pytest.raises(TypeError, match="method predict_logits or predict_features"):
        OutlierScore(ByInputs(model), model=model)
    with pytest.raises(ValueError, match="fit takes labels"):
        OutlierScore.fit(ByFeatures(), [x], model=model)


def test_detectors_of_pytorch_ood(made) -> None:
    detectors = pytest.importorskip("pytorch_ood.detector", exc_type=ImportError)
    model, x, y, noise = made
    model = copy.deepcopy(model).float()  # some of them take nothing else
    train = [(torch.from_numpy(x[:600]).float(), torch.from_numpy(y[:600]))]
    columns = [
        OutlierScore.fit(detectors.EnergyBased(model), train, name="their_energy"),
        OutlierScore.fit(detectors.KNN(None, k=5), train, model=model, name="their_neighbours"),
        OutlierScore.fit(detectors.Mahalanobis(None), train, model=model),
    ]
    own = [Energy(model), NearestFeatures.fit(model, train, k=5)]
    scores = demur.score(MCDropout(model, samples=3), [x[600:], noise], columns=columns + own, progress=False)
    np.testing.assert_allclose(scores.columns["their_energy"], scores.columns["energy"], rtol=1e-5)
    np.testing.assert_allclose(
        scores.columns["their_neighbours"], scores.columns["nearest_features"], rtol=1e-4
    )
    count = len(x) - 600
    values = scores.columns["mahalanobis"]
    assert demur.tasks.detection(values[:count], values[count:]).auroc.low > 0.6
