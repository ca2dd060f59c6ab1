"""FeatureDensity against scipy's Gaussians and scikit-learn's Ledoit-Wolf; singular covariances."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.covariance import ledoit_wolf

from demur.posteriors import Features
from demur.posteriors.one_pass import FeatureDensity, SoftmaxEntropy, feature_density

torch = pytest.importorskip("torch")


def made(inputs: int = 60, width: int = 4, classes: int = 3, seed: int = 0):
    """Features about far and unequal means, with labels of unequal shares, and a last layer."""
    rng = np.random.default_rng(seed)
    labels = np.minimum(rng.integers(0, classes + 1, inputs), classes - 1)
    mixing = rng.normal(size=(classes, width, width))
    z = 100 + 5 * labels[:, None] + np.einsum("nij,nj->ni", mixing[labels], rng.normal(size=(inputs, width)))
    return z, labels, torch.nn.Linear(width, classes).double()


def reference(z, labels, queries, *, shared: bool, shrinkage) -> np.ndarray:
    """The score by scipy, with covariances by scikit-learn or by hand."""

    def cover(centred: np.ndarray) -> np.ndarray:
        if shrinkage == "ledoit_wolf":
            return ledoit_wolf(centred, assume_centered=True)[0]
        found = centred.T @ centred / len(centred)
        width = len(found)
        return (1 - shrinkage) * found + shrinkage * np.trace(found) / width * np.eye(width)

    classes = range(labels.max() + 1)
    means = np.stack([z[labels == k].mean(0) for k in classes])
    pooled = cover(z - means[labels])
    logs = [
        np.log(np.mean(labels == k))
        + multivariate_normal(means[k], pooled if shared else cover(z[labels == k] - means[k])).logpdf(
            queries
        )
        for k in classes
    ]
    return -logsumexp(logs, axis=0)


@pytest.mark.parametrize("covariance", ["class", "shared"])
@pytest.mark.parametrize("shrinkage", ["ledoit_wolf", 0.0, 0.3])
def test_scores_are_those_of_scipy(covariance, shrinkage) -> None:
    z, labels, head = made()
    found = FeatureDensity.fit(head, Features(z, labels), covariance=covariance, shrinkage=shrinkage)
    queries = np.concatenate([z[:10], z[:10] + 30])
    expected = reference(z, labels, queries, shared=covariance == "shared", shrinkage=shrinkage)
    np.testing.assert_allclose(found.score([queries]), expected, rtol=1e-10)


def test_control_other_covariances_are_told_apart() -> None:
    z, labels, head = made()
    found = FeatureDensity.fit(head, Features(z, labels)).score([z])
    for wrong in ({"shared": True, "shrinkage": "ledoit_wolf"}, {"shared": False, "shrinkage": 0.0}):
        assert not np.allclose(found, reference(z, labels, z, **wrong), rtol=1e-3)


def test_many_rows_are_summed_in_blocks(monkeypatch) -> None:
    z, labels, head = made(inputs=101)
    whole = FeatureDensity.fit(head, Features(z, labels))
    monkeypatch.setattr(feature_density, "_ROWS", 7)
    parts = FeatureDensity.fit(head, Features(z, labels))
    np.testing.assert_allclose(parts.score([z]), whole.score([z]), rtol=1e-11)


def test_fewer_inputs_than_features_take_shrinkage_and_say_so() -> None:
    z, labels, head = made(inputs=40, width=30)
    with pytest.raises(
        ValueError, match=r"class 0, of \d+ inputs and 30 features, must be invertible.*shrink"
    ):
        FeatureDensity.fit(head, Features(z, labels), shrinkage=0.0)
    found = FeatureDensity.fit(head, Features(z, labels))
    assert min(found.shrinkage) > 0.05
    assert "shrinkage 0." in repr(found)
    expected = reference(z, labels, z, shared=False, shrinkage="ledoit_wolf")
    np.testing.assert_allclose(found.score([z]), expected, rtol=1e-10)


def test_a_class_of_one_input_is_refused_and_shared_takes_it() -> None:
    z, labels, head = made()
    labels[:] = np.minimum(labels, 1)
    labels[0] = 2
    with pytest.raises(ValueError, match=r"class 2, of 1 inputs"):
        FeatureDensity.fit(head, Features(z, labels))
    found = FeatureDensity.fit(head, Features(z, labels), covariance="shared")
    np.testing.assert_allclose(
        found.score([z]), reference(z, labels, z, shared=True, shrinkage="ledoit_wolf"), rtol=1e-10
    )


def test_constant_features_are_not_inverted_by_rounding() -> None:
    z, labels, head = made()
    z[:, 1] = z[:, 0]  # rounding may leave a tiny pivot, and a density of nonsense
    with pytest.raises(ValueError, match="singular"):
        FeatureDensity.fit(head, Features(z, labels), shrinkage=0.0)


def test_too_many_covariances_are_refused_before_the_work(monkeypatch) -> None:
    z, labels, head = made()
    monkeypatch.setattr(feature_density, "_LARGEST", 200)
    with pytest.raises(ValueError, match="covariance='shared'"):
        FeatureDensity.fit(head, Features(z, labels))
    FeatureDensity.fit(head, Features(z, labels), covariance="shared")


def test_its_aleatoric_part_is_the_entropy_of_the_same_network() -> None:
    z, labels, head = made()
    aleatoric = FeatureDensity.fit(head, Features(z, labels)).aleatoric
    p = torch.softmax(head(torch.from_numpy(z)), 1).detach().numpy()
    terms = np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0)
    assert isinstance(aleatoric, SoftmaxEntropy)
    np.testing.assert_allclose(aleatoric.score([z]), -terms.sum(1), rtol=1e-9, atol=1e-12)


def test_saved_and_loaded(tmp_path) -> None:
    z, labels, head = made()
    found = FeatureDensity.fit(head, Features(z, labels))
    found.save(tmp_path / "a.safetensors")
    FeatureDensity.fit(head, Features(z, labels)).save(tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    again = FeatureDensity.load(tmp_path / "a.safetensors", head)
    assert again.fingerprint() == found.fingerprint()
    assert repr(again) == repr(found)
    plain = FeatureDensity(head, found.log_priors, found.means, found.factors)
    assert repr(plain) == "FeatureDensity(3 classes, 4 features, class covariance)"
    np.testing.assert_array_equal(again.score([z]), found.score([z]))
    with pytest.raises(ValueError, match=r"the last layer that .* is about\. Got another"):
        FeatureDensity.load(tmp_path / "a.safetensors", torch.nn.Linear(4, 3))
    with pytest.raises(ValueError, match="of 5 features"):
        FeatureDensity.load(tmp_path / "a.safetensors", torch.nn.Linear(5, 3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"covariance": "own"}, "covariance must be"),
        ({"shrinkage": 1.5}, "shrinkage must be"),
        ({"shrinkage": "oas"}, "shrinkage must be"),
    ],
)
def test_bad_arguments(options, message) -> None:
    z, labels, head = made()
    with pytest.raises(ValueError, match=message):
        FeatureDensity.fit(head, Features(z, labels), **options)
    with pytest.raises(ValueError, match="fit takes labels"):
        FeatureDensity.fit(head, Features(z))
    with pytest.raises(ValueError, match="Features must be 4"):
        FeatureDensity.fit(head, Features(z[:, :2], labels))
