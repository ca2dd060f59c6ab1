"""A policy, and traffic for it."""

import numpy as np
import pytest

import demur


@pytest.fixture(scope="session")
def policy() -> demur.Deferral:
    """Accuracy 0.95 at scores up to a threshold near 0.66; the mean risk below it is about 0.035."""
    rng = np.random.default_rng(0)
    scores = rng.uniform(size=4000)
    return demur.Deferral.fit(scores, rng.uniform(size=4000) > scores**2 / 3, accuracy=0.95)


@pytest.fixture
def traffic():
    """Make scores and whether predictions are right, with some points of error more."""

    def make(number, seed=0, harm=0.0):
        rng = np.random.default_rng([seed, 7])
        scores = rng.uniform(size=number)
        return scores, rng.uniform(size=number) > scores**2 / 3 + harm

    return make
