"""Answers that are no numbers, such as texts, and how alike they are: by a function or by a matrix.

Answers are numbered, so that they pass through the sums over pairs as numbers do. A kernel of answers takes
two arrays of these numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from demur.core import arrays

_INDEFINITE = 1e-3
"""How far below 0 eigenvalues may be, per root of their number: as far as rounding to three decimals."""
_LONGEST_SHOWN = 40  # letters of an answer in a message


def holds_answers(values: Any, kernel: Any) -> bool:
    """Tell answers from numbers: they come with a matrix of similarities, or are no numbers themselves."""
    if is_matrix(kernel):
        return True
    while isinstance(values, list | tuple) and values:
        values = values[0]
    if isinstance(values, np.ndarray):
        return values.dtype.kind not in "fiubc"
    return values is not None and not any(
        hasattr(values, name) for name in ("__array__", "__float__", "shape")
    )


def is_matrix(kernel: Any) -> bool:
    """Tell a matrix of similarities from a function and from a name."""
    return not isinstance(kernel, str) and not callable(kernel)


def as_answers(name: str, values: Any) -> np.ndarray:
    """Return answers as an array of objects; lists and tuples are axes, all else is an answer."""
    if isinstance(values, np.ndarray):
        return values.astype(object)
    if not isinstance(values, list | tuple):
        values = arrays.to_numpy(arrays.as_array(values)).astype(object)
        return values
    shape: list[int] = []
    first: Any = values
    while isinstance(first, list | tuple):
        shape.append(len(first))
        first = first[0] if first else None
    flat = _flatten(name, values, tuple(shape))
    found = np.empty(len(flat), dtype=object)
    found[:] = flat
    return found.reshape(shape)


def _flatten(name: str, values: Any, shape: tuple[int, ...], place: tuple[int, ...] = ()) -> list[Any]:
    if not shape:
        if isinstance(values, list | tuple):
            raise ValueError(f"{name} must be nested to one depth. Got a list at {list(place)}.")
        return [values]
    if not isinstance(values, list | tuple) or len(values) != shape[0]:
        came = f"{len(values)}" if isinstance(values, list | tuple) else repr(_shown(values))
        raise ValueError(
            f"{name} must have as many answers from every member, {shape[0]} as first. Got {came} at "
            f"{list(place)}. Draw as many from each, or leave the others out."
        )
    return [
        leaf for index, each in enumerate(values) for leaf in _flatten(name, each, shape[1:], (*place, index))
    ]


class Similarities:
    """A kernel of answers by their numbers: called with two arrays of these, as kernels of numbers are."""

    def encode(self, answers: np.ndarray) -> np.ndarray:
        """Return the numbers of answers, (members, draws, ...) or (members, ...)."""
        raise NotImplementedError

    def __call__(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the similarity of each two."""
        raise NotImplementedError

    def check_inputs(self, codes: np.ndarray) -> None:
        """Raise unless the similarities of the answers to each input, (inputs, ...), are those of a kernel.

        Only sums with weights that sum to 0 matter, so a constant may be added to all similarities.
        """
        for own in codes.reshape(len(codes), -1):
            some = np.unique(own)
            if len(some) < 2:
                continue
            gram = np.asarray(self(some[:, None], some[None, :]), dtype=np.float64)
            centred = gram - gram.mean(axis=0) - gram.mean(axis=1)[:, None] + gram.mean()
            least = float(np.linalg.eigvalsh(centred)[0])
            if least < -_INDEFINITE * math.sqrt(len(some)) * float(np.abs(centred).max()):
                raise ValueError(
                    "kernel must be positive definite, up to rounding, or K is no divergence. Got "
                    f"similarities with the eigenvalue {least:.3g}. Take cosines of embeddings or another "
                    "kernel; of distances, give the negatives."
                )


class MatrixSimilarities(Similarities):
    """Similarities from a matrix for each input, (..., answers, answers), member by member."""

    def __init__(self, matrix: Any) -> None:
        found = arrays.to_numpy(arrays.as_array(matrix))
        if found.dtype.kind not in "fiub" or found.ndim < 2 or found.shape[-1] != found.shape[-2]:
            raise ValueError(
                "kernel must be 'energy', a function k(x, y), or a square matrix of similarities, one per "
                f"input. Got {found.dtype} of shape {found.shape}."
            )
        found = found.astype(np.float64)
        if not np.isfinite(found).all():
            raise ValueError("kernel must hold finite similarities. Got NaN or infinity.")
        apart = np.abs(found - np.swapaxes(found, -1, -2))
        if (apart > 1e-5 * np.abs(found).max()).any():
            place = [int(i) for i in np.unravel_index(apart.argmax(), apart.shape)]
            there = [*place[:-2], place[-1], place[-2]]
            raise ValueError(
                f"kernel must be symmetric. Got {found[tuple(place)]:.6g} at {place} and "
                f"{found[tuple(there)]:.6g} at {there}. Give (matrix + its transpose) / 2."
            )
        self.matrix = (found + np.swapaxes(found, -1, -2)) / 2
        self._flat = self.matrix.reshape(-1, *self.matrix.shape[-2:])

    def encode(self, answers: np.ndarray) -> np.ndarray:
        """Return input * answers + answer: which row of which matrix."""
        batch = self.matrix.shape[:-2]
        own, size = answers.shape[: answers.ndim - len(batch)], self.matrix.shape[-1]
        if answers.shape[len(own) :] != batch or math.prod(own) != size or not own:
            per_input = math.prod(answers.shape[:2])
            raise ValueError(
                f"kernel must have a row and a column for each answer to an input, shape "
                f"{(*answers.shape[2:], per_input, per_input)} for answers of shape {answers.shape}, members "
                f"and draws first. Got {self.matrix.shape}."
            )
        rows = np.arange(size, dtype=np.float64).reshape(*own, *(1,) * len(batch))
        return rows + size * np.arange(math.prod(batch)).reshape(batch)

    def __call__(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return what the matrices hold."""
        size = self.matrix.shape[-1]
        (where, row), column = np.divmod(x.astype(np.int64), size), np.mod(y.astype(np.int64), size)
        return self._flat[where, row, column]


class FunctionSimilarities(Similarities):
    """Similarities by a function of two answers, called once per pair of different ones, in both orders."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function
        self._answers: list[Any] = []
        self._codes: dict[Hashable, int] = {}
        self._known: dict[int, float] = {}

    def encode(self, answers: np.ndarray) -> np.ndarray:
        """Return the place of each answer among the different ones."""
        return np.array([self._place(each) for each in answers.ravel()], dtype=np.float64).reshape(
            answers.shape
        )

    def _place(self, answer: Any) -> int:
        if isinstance(answer, str | bytes | int):
            key: Hashable = (type(answer), answer)
        else:
            key = ("", id(answer))  # kept alive by the list below
        place = self._codes.setdefault(key, len(self._answers))
        if place == len(self._answers):
            self._answers.append(answer)
        return place

    def check_inputs(self, codes: np.ndarray) -> None:
        """Forget the pairs of other inputs, and raise unless these are similarities of a kernel."""
        self._known.clear()
        super().check_inputs(codes)

    def __call__(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Call the function for pairs that are not known yet."""
        x, y = np.broadcast_arrays(x.astype(np.int64), y.astype(np.int64))
        number = len(self._answers)
        pairs = np.minimum(x, y) * number + np.maximum(x, y)
        different, where = np.unique(pairs, return_inverse=True)
        values = np.empty(len(different))
        for index, pair in enumerate(different.tolist()):
            if pair not in self._known:
                self._known[pair] = self._compare(*divmod(pair, number))
            values[index] = self._known[pair]
        return values[where].reshape(pairs.shape)

    def _compare(self, i: int, j: int) -> float:
        one, two = self._answers[i], self._answers[j]
        there = self._call(one, two)
        back = there if i == j else self._call(two, one)
        if not math.isclose(there, back, rel_tol=1e-5, abs_tol=1e-6):
            raise ValueError(
                f"kernel must be symmetric. Got {there:.6g} for {_shown(one)!r} and {_shown(two)!r}, "
                f"{back:.6g} the other way. Give the average of both."
            )
        return (there + back) / 2

    def _call(self, one: Any, two: Any) -> float:
        value = self.function(one, two)
        try:
            found = float(value)
        except (TypeError, ValueError):
            found = math.nan
        if not math.isfinite(found):
            raise ValueError(
                f"kernel must return a finite number for two answers. Got {_shown(value)!r} for "
                f"{_shown(one)!r} and {_shown(two)!r}."
            )
        return found


def as_similarities(kernel: Any) -> Similarities:
    """Return the kernel of answers that a function or a matrix stands for."""
    if callable(kernel):
        return FunctionSimilarities(kernel)
    if isinstance(kernel, str):
        raise ValueError(
            "kernel must be a function k(x, y) of two answers, or a matrix of their similarities: answers "
            f"are no numbers. Got {kernel!r}."
        )
    return MatrixSimilarities(kernel)


def _shown(answer: Any) -> Any:
    """Return an answer as messages show it, cut to a line."""
    text = answer if isinstance(answer, str) else repr(answer)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."
