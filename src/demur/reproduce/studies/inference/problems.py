"""The problems: training, test and out-of-distribution inputs of a data set, drawn anew for each seed.

images     images in MNIST's format, as principal components; out-of-distribution: those of another folder
digits     the digits that come with scikit-learn, 0 to 7; out-of-distribution: 8 and 9
rows       a table of numbers, as `demur.reproduce.data.uci` reads it; out-of-distribution: see `_split_rows`
diabetes   such a table, which comes with scikit-learn
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from demur.reproduce.data import mnist, uci

SETS = {"in": "in-distribution", "out": "out-of-distribution"}
"""The two sets of test inputs."""
_TEST_SHARE, _OUTER_SHARE = 0.2, 0.1
"""Of a table's rows: those out-of-distribution, and of the rest those for tests."""
_KNOWN_DIGITS = 8


@dataclass(frozen=True)
class Problem:
    """What the methods are given with one seed.

    Attributes
    ----------
    classes
        The number of classes; 0: numbers are predicted.
    x, y
        Training inputs (inputs, features), and their classes or standardised numbers.
    sets
        Test inputs (inputs, features) by the names of `SETS`.
    truth
        Classes or standardised numbers of the inputs "in".
    """

    classes: int
    x: np.ndarray
    y: np.ndarray
    sets: dict[str, np.ndarray]
    truth: np.ndarray


@dataclass(frozen=True)
class Source:
    """A data set from which problems are drawn.

    Attributes
    ----------
    title, classes
        What it is called, and the number of classes; 0: numbers.
    description
        For the results page: what is in and out of the distribution.
    mark
        Sixteen hexadecimal digits that depend on its content.
    draw
        Returns the problem of a seed.
    sizes
        How many training, test and out-of-distribution inputs a problem has.
    """

    title: str
    classes: int
    description: str
    mark: str
    draw: Callable[[int], Problem]
    sizes: tuple[int, int, int]


@dataclass(frozen=True)
class Kind:
    """A kind of problem: what reads it, and its settings."""

    read: Callable[..., Source]
    required: tuple[str, ...]
    settings: tuple[str, ...]
    reads_files: bool


def _read_images(
    data: Path, *, folder: str, ood: str, features: int = 20, train: int = 1000, test: int = 500
) -> Source:
    known, other = (mnist.read_images(data / each) for each in (folder, ood))
    mark = mnist.compute_digest(data / folder) + mnist.compute_digest(data / ood)
    _check_sizes(data / folder, len(known.train_images), len(known.test_images), train, test)
    names = [mnist.DATASETS.get(each, each) for each in (folder, ood)]

    def draw(seed: int) -> Problem:
        source = np.random.default_rng([seed, 1])
        picks = [
            source.permutation(len(each))[:size]
            for each, size in (
                (known.train_images, train), (known.test_images, test), (other.test_images, test),
            )
        ]  # fmt: skip
        pixels = known.train_images[picks[0]], known.test_images[picks[1]], other.test_images[picks[2]]
        x, *sets = _project(*(each.reshape(len(each), -1) / 255.0 for each in pixels), features=features)
        labels = (known.train_labels[picks[0]], known.test_labels[picks[1]])
        y, truth = (each.astype(np.int64) for each in labels)
        return Problem(mnist.CLASSES, x, y, dict(zip(SETS, sets, strict=True)), truth)

    described = f"{names[0]}, {features} principal components, ten classes; out-of-distribution: {names[1]}"
    return Source(names[0], mnist.CLASSES, described, mark, draw, (train, test, test))


def _read_digits(data: Path | None, *, features: int = 20, train: int = 800, test: int = 300) -> Source:
    from sklearn.datasets import load_digits

    pixels, digits = (np.asarray(each) for each in load_digits(return_X_y=True))
    known = np.flatnonzero(digits < _KNOWN_DIGITS)
    strange = np.flatnonzero(digits >= _KNOWN_DIGITS)
    _check_sizes("digits", len(known), len(known) - train, train, test)

    def draw(seed: int) -> Problem:
        source = np.random.default_rng([seed, 2])
        rows, others = source.permutation(known), source.permutation(strange)[:test]
        own, held = rows[:train], rows[train : train + test]
        x, *sets = _project(*(pixels[each] / 16 for each in (own, held, others)), features=features)
        y, truth = (digits[each].astype(np.int64) for each in (own, held))
        return Problem(_KNOWN_DIGITS, x, y, dict(zip(SETS, sets, strict=True)), truth)

    described = f"scikit-learn's digits 0 to 7, {features} principal components; out-of-distribution: 8 and 9"
    mark = _mark_arrays(pixels, digits)
    return Source("digits", _KNOWN_DIGITS, described, mark, draw, (train, test, min(test, len(strange))))


def _read_rows(data: Path, *, file: str, train: int = 1000) -> Source:
    found = uci.read_dataset(data / file)
    return _split_rows(found.name, found.x, found.y, found.mark, train)


def _read_diabetes(data: Path | None, *, train: int = 1000) -> Source:
    from sklearn.datasets import load_diabetes

    x, y = (np.asarray(each) for each in load_diabetes(return_X_y=True))
    return _split_rows("diabetes", x, y, _mark_arrays(x, y), train)


def _split_rows(title: str, x: np.ndarray, y: np.ndarray, mark: str, most: int) -> Source:
    """Return a table of numbers: the outer tenth of its rows is out-of-distribution, for all seeds.

    These rows have the largest first principal component of the inputs. A fifth of the others is for tests.
    """
    scale = x.std(axis=0)
    standard = (x - x.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    first = np.linalg.svd(standard, full_matrices=False)[2][0]
    # The sign of a singular vector is arbitrary.
    order = np.argsort(standard @ (first * np.sign(first[np.argmax(np.abs(first))])), kind="stable")
    outer = max(1, round(_OUTER_SHARE * len(x)))
    inner, strange = order[:-outer], order[-outer:]
    held = max(1, round(_TEST_SHARE * len(inner)))
    size = min(most, len(inner) - held)

    def draw(seed: int) -> Problem:
        mixed = np.random.default_rng([seed, 3]).permutation(inner)
        own, test = mixed[held : held + size], mixed[:held]
        centre, spread = x[own].mean(axis=0), x[own].std(axis=0)
        inputs = (x - centre) / np.where(spread > 0, spread, 1.0)
        numbers = (y - y[own].mean()) / y[own].std()
        sets = {"in": inputs[test], "out": inputs[strange]}
        return Problem(0, inputs[own], numbers[own], sets, numbers[test])

    described = (
        f"{title}, {x.shape[1]} features, one number; out-of-distribution: the tenth of the rows with the "
        "largest first principal component"
    )
    return Source(title, 0, described, mark, draw, (size, held, outer))


KINDS = {
    "images": Kind(_read_images, ("folder", "ood"), ("folder", "ood", "features", "train", "test"), True),
    "rows": Kind(_read_rows, ("file",), ("file", "train"), True),
    "digits": Kind(_read_digits, (), ("features", "train", "test"), False),
    "diabetes": Kind(_read_diabetes, (), ("train",), False),
}


def read_source(given: Mapping[str, Any], data: Path | None) -> Source:
    """Read the data set of a problem, as it stands in a configuration."""
    kind = KINDS[given["kind"]]
    return kind.read(data, **{name: value for name, value in given.items() if name != "kind"})


def _project(train: np.ndarray, *others: np.ndarray, features: int) -> list[np.ndarray]:
    """Return inputs as principal components of the training inputs, each with a standard deviation of 1."""
    centre = train.mean(axis=0)
    directions = np.linalg.svd(train - centre, full_matrices=False)[2][:features].T
    scale = ((train - centre) @ directions).std(axis=0)
    return [(each - centre) @ directions / scale for each in (train, *others)]


def _check_sizes(where: Any, known: int, held: int, train: int, test: int) -> None:
    """Raise unless there are enough inputs."""
    if train > known or test > held or min(train, test) < 1:
        raise ValueError(
            f"{where}: expected at most {known} training and {held} test inputs, got train = {train} and "
            f"test = {test}"
        )


def _mark_arrays(*arrays: np.ndarray) -> str:
    return hashlib.sha256(b"".join(each.tobytes() for each in arrays)).hexdigest()[:16]
