"""The law of discretised Markov chains, computed and not sampled; slow and obvious.

Along one direction of a Gaussian posterior the chains are linear: state z = (parameter, momentum), with

    z' = A z + b + noise,   noise ~ N(0, Q),

so that means and covariances of any step, and the stationary ones, follow from A, b and Q alone. Elsewhere
`expected` applies the chain's transition to a function on a grid, step by step.
"""

import math

import numpy as np
from scipy.interpolate import RectBivariateSpline
from scipy.linalg import solve_discrete_lyapunov


def baoa(curvature, rate, friction, temperature):
    """(A, Q) of a BAOA step, by its four parts; temperature and curvature are those over N."""
    h, c = math.sqrt(rate), 1 - friction
    kick = np.array([[1, 0], [-h * curvature, 1]])
    drift = np.array([[1, h / 2], [0, 1]])
    damp = np.array([[1, 0], [0, c]])
    noise = drift @ np.array([0, math.sqrt(temperature * (1 - c**2))])
    return drift @ damp @ drift @ kick, np.outer(noise, noise)


def langevin(curvature, rate, friction, temperature):
    """(A, Q) of a step of SGLD, which has no momentum: the second coordinate stays 0."""
    return np.array([[1 - rate * curvature, 0], [0, 0]]), np.array([[2 * rate * temperature, 0], [0, 0]])


def euler(curvature, rate, friction, temperature):
    """(A, Q) of an explicit Euler step of the same dynamics as `baoa`: `posteriors.sgmcmc.sghmc`."""
    h = math.sqrt(rate)
    alpha = -math.log(1 - friction) / h
    return (
        np.array([[1, h], [-h * curvature, 1 - h * alpha]]),
        np.array([[0, 0], [0, 2 * h * alpha * temperature]]),
    )


def stationary(step, *numbers):
    """Variance of the parameter that a chain with this step has in the long run."""
    a, q = step(*numbers)
    assert np.abs(np.linalg.eigvals(a)).max() < 1, "the chain is not stable"
    return solve_discrete_lyapunov(a, q)[0, 0]


def marginal(step, curvature, rates, friction, temperatures, start):
    """Mean and variance of the parameter after these steps, from a start about the posterior's mean."""
    mean, covariance = np.array([start, 0.0]), np.zeros((2, 2))
    for rate, temperature in zip(rates, temperatures, strict=True):
        a, q = step(curvature, rate, friction, temperature)
        mean, covariance = a @ mean, a @ covariance @ a.T + q
    return mean[0], covariance[0, 0]


def shuffled(passes, noise):
    """Stationary mean and second moment at the end of a pass whose batches come in a random order.

    `passes` has, for each order that a pass may take (all as likely), its affine steps in homogeneous
    coordinates, (1, z); `noise` is what each step adds to the covariance of (1, z).
    """
    size = passes[0][0].shape[0]
    forward, added = np.zeros((size**2, size**2)), np.zeros((size, size))
    for steps in passes:
        whole, covariance = np.eye(size), np.zeros((size, size))
        for step in steps:
            whole, covariance = step @ whole, step @ covariance @ step.T + noise
        forward += np.kron(whole, whole) / len(passes)
        added += covariance / len(passes)
    # The moment matrix M of (1, z) has M = F M + added, with M[0, 0] = 1: the one is an eigenvector.
    system = np.eye(size**2) - forward
    system[0] = 0
    system[0, 0] = 1
    right = added.reshape(-1).copy()
    right[0] = 1
    moments = np.linalg.solve(system, right).reshape(size, size)
    return moments[0, 1:], moments[1:, 1:]


def expected(function, gradient, steps, rate, friction, temperature, start, parameters, momenta):
    """E[function(parameter)] after so many steps from `start`, at rest, for any log posterior over N.

    BAOA steps, or for `friction=None` steps of SGLD. `parameters` and `momenta` are grids that hold all but
    a negligible part of the chain's law; the noise is integrated by Gauss-Hermite quadrature.
    """
    node, weight = np.polynomial.hermite_e.hermegauss(20)
    weight = weight / weight.sum()
    w, m = np.meshgrid(parameters, momenta, indexing="ij")
    if friction is None:
        after = w + rate * gradient(w) + np.sqrt(2 * rate * temperature) * node[:, None, None]
        moved = np.zeros_like(after)
    else:
        h, c = math.sqrt(rate), 1 - friction
        kicked = m + h * gradient(w)
        moved = c * kicked + math.sqrt(temperature * (1 - c**2)) * node[:, None, None]
        after = w + h / 2 * kicked + h / 2 * moved
    values = function(w)
    for _ in range(steps):
        spline = RectBivariateSpline(parameters, momenta, values)
        values = np.einsum("k,kij->ij", weight, spline.ev(after, moved))
    return RectBivariateSpline(parameters, momenta, values).ev(start, 0.0).item()
