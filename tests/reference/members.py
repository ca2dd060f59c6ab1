"""Members to test with, by name. Every function is fixed by its seed."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def ordinary(*shape: int, seed: int = 0, scale: float = 2.0) -> Array:
    """Logits of members that share a tendency and differ by about as much again.

    Skewed on purpose, since a symmetric target hides errors of sign and of side.
    """
    rng = np.random.default_rng([seed, *shape])
    tendency = scale * rng.exponential(size=(1, *shape[1:]))
    return tendency + scale * rng.normal(size=shape)


def agreeing(difference: float, *shape: int, seed: int = 0) -> Array:
    """Logits of members that differ from each other by about `difference`."""
    rng = np.random.default_rng([seed, *shape])
    return 3.0 * rng.normal(size=(1, *shape[1:])) + difference * rng.normal(size=shape)


def confident(members: int, inputs: int, classes: int, seed: int = 0) -> Array:
    """Logits with one class 8 to 24 above the rest: K runs from 1e-3 down to 1e-10."""
    rng = np.random.default_rng([seed, members, inputs, classes])
    logits = rng.normal(size=(1, inputs, classes)) + 0.5 * rng.normal(size=(members, inputs, classes))
    top = rng.integers(classes, size=inputs)
    logits[:, np.arange(inputs), top] += rng.uniform(8.0, 24.0, size=inputs)
    return logits


def weights(members: int, *batch: int, seed: int = 0) -> Array:
    """Unequal positive weights that do not sum to one."""
    return np.random.default_rng([seed, members, *batch]).exponential(size=(members, *batch)) + 0.1
