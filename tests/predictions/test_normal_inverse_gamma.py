"""Distributions over Gaussians: closed forms against mpmath, draws and the Gaussian members themselves."""

import mpmath as mp
import numpy as np
import pytest
import torch
from scipy import stats

import demur


def exact_parts(nu: float, alpha: float, beta: float) -> tuple[float, float, float]:
    """Expected entropy, I and K, at 50 digits: textbook formulas of Student's t and the inverse gamma."""
    with mp.workdps(50):
        nu, alpha, beta = mp.mpf(nu), mp.mpf(alpha), mp.mpf(beta)
        entropy = (mp.log(2 * mp.pi * mp.e) + mp.log(beta) - mp.psi(0, alpha)) / 2
        freedom, scale = 2 * alpha, mp.sqrt(beta * (1 + nu) / (nu * alpha))
        student = (
            (freedom + 1) / 2 * (mp.psi(0, (freedom + 1) / 2) - mp.psi(0, freedom / 2))
            + mp.log(mp.sqrt(freedom) * mp.beta(freedom / 2, mp.mpf(1) / 2))
            + mp.log(scale)
        )
        # K = E sigma^2 E sigma^-2 / 2 - 1/2 + E (mu - mu')^2 / (2 sigma'^2)
        ratio = alpha / (alpha - 1)
        k = (ratio - 1) / 2 + (ratio + 1) / nu / 2
        return float(entropy), float(student - entropy), float(k)


@pytest.mark.parametrize("nu", [1e-12, 0.3, 5.0, 1e9])
@pytest.mark.parametrize("alpha", [1.001, 2.0, 31.9, 32.1, 1e4, 1e12])
def test_parts_agree_with_fifty_digits(nu, alpha):
    entropy, information, k = exact_parts(nu, alpha, 0.7)
    prediction = demur.NormalInverseGamma(3.0, nu, alpha, 0.7)
    found = demur.decompose(prediction)
    np.testing.assert_allclose(found.epistemic, k, rtol=3e-12)
    np.testing.assert_allclose(found.aleatoric, entropy, rtol=3e-12)
    average = demur.decompose(prediction, measure="average")
    np.testing.assert_allclose(average.epistemic, information, rtol=3e-12)
    reverse = demur.decompose(prediction, measure="reverse")
    np.testing.assert_allclose(reverse.epistemic, k - information, rtol=3e-12)
    np.testing.assert_allclose(reverse.aleatoric, average.total, rtol=3e-12)


def test_parts_are_those_of_many_gaussians_drawn_from_it():
    nu, alpha, beta, members = 2.0, 6.0, 3.0, 4000
    rng = np.random.default_rng(0)
    parts = []
    for _ in range(20):
        variance = stats.invgamma.rvs(alpha, scale=beta, size=members, random_state=rng)
        mean = rng.normal(1.0, np.sqrt(variance / nu))
        u = demur.decompose(demur.Gaussian(mean, variance), unbiased=True)
        parts.append([float(u.aleatoric), float(u.epistemic)])
    u = demur.decompose(demur.NormalInverseGamma(1.0, nu, alpha, beta))
    error = np.std(parts, axis=0, ddof=1) / np.sqrt(len(parts))
    assert (np.abs(np.mean(parts, axis=0) - [u.aleatoric, u.epistemic]) < 4 * error).all()
    wrong = demur.decompose(demur.NormalInverseGamma(1.0, nu, alpha + 0.5, beta))  # the check can fail
    assert abs(np.mean(parts, axis=0)[1] - wrong.epistemic) > 4 * error[1]


def test_variances_are_moments_of_the_draws():
    prediction = demur.NormalInverseGamma(0.0, 4.0, 5.0, 2.0)
    variance = stats.invgamma.rvs(5.0, scale=2.0, size=200_000, random_state=1)
    mean = np.random.default_rng(2).normal(0, np.sqrt(variance / 4))
    for found, drawn in (
        (prediction.aleatoric_variance, variance),
        (prediction.epistemic_variance, mean**2),
    ):
        assert abs(drawn.mean() - found) < 4 * drawn.std() / np.sqrt(len(drawn))


def test_little_evidence_of_the_variance_makes_k_infinite_and_i_finite():
    prediction = demur.NormalInverseGamma(0.0, 1.0, [0.5, 1.0, 1.5], 1.0)
    assert demur.decompose(prediction).epistemic.tolist()[:2] == [np.inf, np.inf]
    assert np.isfinite(demur.decompose(prediction, measure="average").epistemic).all()
    assert np.isfinite(demur.decompose(prediction).epistemic[2])


def test_the_unit_of_the_outcome_moves_entropy_alone():
    a, b = (demur.decompose(demur.NormalInverseGamma(0.0, 2.0, 3.0, beta)) for beta in (1.0, 100.0))
    assert a.epistemic == b.epistemic
    np.testing.assert_allclose(b.aleatoric - a.aleatoric, np.log(10))
    bits = demur.decompose(demur.NormalInverseGamma(0.0, 2.0, 3.0, 1.0), base=2)
    np.testing.assert_allclose(bits.epistemic, a.epistemic / np.log(2))


def test_gradients_pass():
    parameters = [
        torch.tensor(each, dtype=torch.float64, requires_grad=True)
        for each in ([0.0, 1.0], [0.5, 3.0], [1.5, 80.0], [1.0, 2.0])
    ]
    for measure in ("pairwise", "average", "reverse"):

        def total(*given, measure=measure):
            return demur.decompose(demur.NormalInverseGamma(*given), measure=measure).total

        assert torch.autograd.gradcheck(total, parameters)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: demur.NormalInverseGamma(0.0, 0.0, 2.0, 1.0), "nu must be above 0"),
        (lambda: demur.NormalInverseGamma(np.inf, 1.0, 2.0, 1.0), "mean must be finite"),
        (
            lambda: demur.attribute(demur.NormalInverseGamma(0.0, 1.0, 2.0, 1.0)),
            "attribute takes predictions of classes",
        ),
        (
            lambda: demur.decompose(demur.NormalInverseGamma(0.0, 1.0, 2.0, 1.0), rule="brier"),
            "rule must be 'log'",
        ),
        (
            lambda: demur.decompose(
                demur.NormalInverseGamma(0.0, 1.0, 2.0, 1.0),
                measure=demur.Measure(demur.Gaussian([0.0], 1.0), "each"),
            ),
            "Got a given side",
        ),
        (
            lambda: demur.decompose(
                demur.Dirichlet([1.0, 2.0]),
                measure=demur.Measure(demur.NormalInverseGamma([0.0, 1.0], 1.0, 2.0, 1.0), "each"),
            ),
            "A given side must be a prediction",
        ),
    ],
)
def test_what_has_no_meaning_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_mixtures_are_refused():
    one = demur.NormalInverseGamma([0.0], 1.0, 2.0, 1.0)
    with pytest.raises(TypeError, match="components must be Dirichlet"):
        demur.Mixture([one, one])
