"""Energy, MaxLogit and SoftmaxEntropy against closed forms."""

import numpy as np
import pytest
from scipy.special import logsumexp, softmax
from scipy.stats import entropy

from demur.posteriors.one_pass import Energy, MaxLogit, SoftmaxEntropy

torch = pytest.importorskip("torch")
LOGITS = np.random.default_rng(0).normal(size=(20, 4)) * 30


@pytest.mark.parametrize("temperature", [1.0, 0.5, 10.0])
def test_energy(temperature) -> None:
    found = Energy(torch.nn.Identity(), temperature=temperature).score([LOGITS.astype(np.float32)])
    expected = -temperature * logsumexp(LOGITS.astype(np.float32).astype(float) / temperature, axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_energy_of_excluded_classes_and_of_large_logits() -> None:
    logits = torch.tensor([[0.0, -torch.inf], [1e30, 0.0]])
    np.testing.assert_allclose(Energy(torch.nn.Identity()).score([logits]), [0, -1e30], rtol=1e-6)


def test_max_logit_and_entropy() -> None:
    logits = torch.from_numpy(LOGITS)
    np.testing.assert_array_equal(MaxLogit(torch.nn.Identity()).score([logits]), -LOGITS.max(1))
    found = SoftmaxEntropy(torch.nn.Identity()).score([logits])
    np.testing.assert_allclose(found, entropy(softmax(LOGITS, axis=1), axis=1), rtol=1e-9, atol=1e-13)


def test_fit_is_there_for_all_and_reads_nothing() -> None:
    def loader():
        raise AssertionError
        yield

    for kind in (Energy, MaxLogit, SoftmaxEntropy):
        assert isinstance(kind.fit(torch.nn.Identity(), loader()), kind)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="temperature must be positive"):
        Energy(torch.nn.Identity(), temperature=0)
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module"):
        MaxLogit(lambda x: x)
    with pytest.raises(ValueError, match=r"energy: expected a number for each input\. Got NaN at input 3"):
        Energy(torch.nn.Identity()).score([np.zeros((2, 2)), np.array([[0, 0], [np.nan, 0]])])
