"""NearestFeatures against brute force, across blocks, ties and features of length 0."""

import numpy as np
import pytest

from demur.posteriors import Features
from demur.posteriors.one_pass import NearestFeatures, nearest_features

torch = pytest.importorskip("torch")


def brute_force(bank: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    def scale(x: np.ndarray) -> np.ndarray:
        length = np.sqrt((x**2).sum(1))
        return np.stack([row / n if n > 0 else row for row, n in zip(x, length, strict=True)])

    distances = np.sqrt(((scale(queries)[:, None] - scale(bank)[None]) ** 2).sum(2))
    return np.sort(distances, axis=1)[:, k - 1]


@pytest.mark.parametrize("k", [1, 3, 40])
@pytest.mark.parametrize("rows", [5, 4096])
def test_it_is_the_brute_force_distance(k, rows, monkeypatch) -> None:
    monkeypatch.setattr(nearest_features, "_ROWS", rows)
    monkeypatch.setattr(nearest_features, "_QUERIES", 4)
    rng = np.random.default_rng(0)
    bank, queries = rng.normal(size=(43, 6)), rng.normal(size=(9, 6))
    bank[4] = queries[3] = 0
    head = torch.nn.Linear(6, 2).double()
    found = NearestFeatures.fit(head, Features(bank), k=k)
    np.testing.assert_allclose(found.score([queries]), brute_force(bank, queries, k), rtol=1e-12, atol=1e-15)
    assert not np.allclose(found.score([queries]), brute_force(bank, queries, k + 1), rtol=1e-6)  # a control


def test_inputs_of_the_training_data_are_at_distance_zero() -> None:
    bank = np.random.default_rng(1).normal(size=(30, 5)) * 1e3
    found = NearestFeatures(torch.nn.Linear(5, 2).double(), bank, k=1)
    assert found.score([bank * 3]).max() < 1e-15  # by the root of 2 - 2 cos it would be 1e-8


def test_half_precision_features_are_kept_as_they_are(tmp_path) -> None:
    bank = np.random.default_rng(1).normal(size=(30, 5)).astype(np.float16)
    head = torch.nn.Linear(5, 2).double()
    found = NearestFeatures(head, bank, k=2)
    found.save(tmp_path / "bank.safetensors")
    again = NearestFeatures.load(tmp_path / "bank.safetensors", head)
    with pytest.raises(ValueError, match=r"the last layer that .* is about\. Got another"):
        NearestFeatures.load(tmp_path / "bank.safetensors", torch.nn.Linear(head.in_features, 3))
    assert again.features.dtype == np.float16
    assert (again.k, again.fingerprint()) == (2, found.fingerprint())
    queries = np.random.default_rng(2).normal(size=(4, 5))
    np.testing.assert_array_equal(again.score([queries]), found.score([queries]))
    np.testing.assert_allclose(
        found.score([queries]), brute_force(bank.astype(float), queries, 2), rtol=1e-12
    )


def test_bad_arguments() -> None:
    head = torch.nn.Linear(5, 2)
    with pytest.raises(ValueError, match="k must be at most the number of inputs, 3"):
        NearestFeatures(head, np.zeros((3, 5)), k=4)
    with pytest.raises(ValueError, match="features must be 5"):
        NearestFeatures(head, np.zeros((3, 4)), k=1)
    with pytest.raises(ValueError, match="k must be a positive integer"):
        NearestFeatures(head, np.zeros((3, 5)), k=0)
