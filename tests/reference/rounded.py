"""The least K, I and M of members within bounds, by a general optimiser from several starts."""

import numpy as np
from scipy.optimize import LinearConstraint, minimize


def pairwise(p, w):
    """Sum over classes of the covariance of p and log p; members are first, classes last."""
    return float(np.sum(w @ (p * np.log(p)) - (w @ p) * (w @ np.log(p))))


def reverse(p, w):
    mean = w @ p
    return float(np.sum(mean * np.log(mean) - mean * (w @ np.log(p))))


def average(p, w):
    mean = w @ p
    return float(np.sum(w @ (p * np.log(p)) - mean * np.log(mean)))


FIGURES = {"pairwise": pairwise, "average": average, "reverse": reverse}


def least(measure, low, high, w, *, sums_to_one, starts=4, seed=0):
    """The least figure of members (members, classes) within bounds, each row summing to 1 if wanted."""
    low, high, shape = np.maximum(low, 1e-11), np.maximum(high, 1e-11), low.shape
    rng = np.random.default_rng(seed)
    constraints = []
    if sums_to_one:
        rows = np.kron(np.eye(shape[0]), np.ones(shape[1]))
        constraints = [LinearConstraint(rows, 1.0, 1.0)]
    found = []
    for _ in range(starts):
        done = minimize(
            lambda p: FIGURES[measure](p.reshape(shape), w),
            rng.uniform(low, high).ravel(),
            bounds=list(zip(low.ravel(), high.ravel(), strict=True)),
            constraints=constraints,
            method="SLSQP" if sums_to_one else "L-BFGS-B",
            options={"maxiter": 500, "ftol": 1e-15},
        )
        p = np.clip(done.x, low.ravel(), high.ravel()).reshape(shape)
        if not sums_to_one or np.abs(p.sum(axis=1) - 1).max() < 1e-9:
            found.append(FIGURES[measure](p, w))
    return min(found)
