"""The data of the study: features of images and a last layer, from an .npz file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from demur.reproduce.data.npz import read_arrays

_FILE_IN_FOLDER = Path("imagenet_features") / "efficientnet_lite0_features.npz"
"""Where the file is in a folder of data."""

_KEYS = {
    "val": "features of in-distribution images, (images, features)",
    "val_label": "their classes, (images,)",
    "dtd": "features of textures, (textures, features)",
    "fc_weight": "the last layer's weight, (classes, features)",
    "fc_bias": "the last layer's bias, (classes,)",
}
_FITTED_PER_CLASS = 3
"""Images of each class that members are fitted to, the first ones; the others are test images."""


@dataclass(frozen=True)
class FeatureData:
    """Float32 features, split into those that members may be fitted to and those of the test.

    Attributes
    ----------
    fit, fit_label
        The first three images of each class.
    known, known_label
        All other images.
    strange
        Textures.
    weight, bias
        The last layer.
    mark
        Sixteen hexadecimal digits that depend on the content of the file.
    """

    fit: np.ndarray
    fit_label: np.ndarray
    known: np.ndarray
    known_label: np.ndarray
    strange: np.ndarray
    weight: np.ndarray
    bias: np.ndarray
    mark: str

    @property
    def test(self) -> np.ndarray:
        """All test features, those of known images first."""
        return np.concatenate([self.known, self.strange])


def read_features(path: Path, most: int | None = None) -> FeatureData:
    """Read and check the file.

    Parameters
    ----------
    path
        The .npz file with `_KEYS`, or a folder that has it at `_FILE_IN_FOLDER`.
    most
        Use at most this many test images, and half as many textures, evenly spaced.

    Raises
    ------
    ValueError
        The file is missing or has other arrays.
    """
    place = path / _FILE_IN_FOLDER if path.is_dir() else path
    found = read_arrays(place, _KEYS)
    _check_arrays(place, found)
    labels = found.pop("val_label").astype(np.int64)
    values = {key: array.astype(np.float32) for key, array in found.items()}
    fitted = _rank_in_class(labels) < _FITTED_PER_CLASS
    known, strange = np.flatnonzero(~fitted), np.arange(len(values["dtd"]))
    if most is not None:
        known, strange = known[:: -(-len(known) // most)], strange[:: -(-2 * len(strange) // most)]
    return FeatureData(
        values["val"][fitted], labels[fitted], values["val"][known], labels[known], values["dtd"][strange],
        values["fc_weight"], values["fc_bias"], hashlib.sha256(place.read_bytes()).hexdigest()[:16],
    )  # fmt: skip


def _check_arrays(place: Path, found: dict[str, np.ndarray]) -> None:
    """Raise a `ValueError` unless shapes and values fit together."""
    weight = found["fc_weight"]
    classes, features = weight.shape if weight.ndim == 2 else (0, 0)
    images = len(found["val_label"]) if found["val_label"].ndim == 1 else 0
    wanted = {
        "fc_weight": (classes, features), "fc_bias": (classes,), "val_label": (images,),
        "val": (images, features), "dtd": (len(np.atleast_1d(found["dtd"])), features),
    }  # fmt: skip
    for key, shape in wanted.items():
        got, kinds = found[key], "iu" if key == "val_label" else "f"
        if got.shape != shape or got.dtype.kind not in kinds or 0 in shape:
            raise ValueError(
                f"{place}: expected {key!r} to be {_KEYS[key]}, {'whole' if kinds == 'iu' else 'real'} "
                f"numbers that fit the other arrays, got {got.dtype} of shape {got.shape}"
            )
        if not np.isfinite(got).all():
            raise ValueError(f"{place}: expected finite numbers in {key!r}, got infinite ones or NaN")
    labels = found["val_label"]
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(
            f"{place}: expected 'val_label' from 0 to {classes - 1}, the rows of 'fc_weight', got "
            f"{labels.min()} to {labels.max()}"
        )
    if not (_rank_in_class(labels) >= _FITTED_PER_CLASS).any():
        raise ValueError(
            f"{place}: expected more than {_FITTED_PER_CLASS} images of some class, got {len(labels)} images "
            f"of {len(np.unique(labels))} classes: members are fitted to the first "
            f"{_FITTED_PER_CLASS} of each, and tested on the others"
        )


def _rank_in_class(labels: np.ndarray) -> np.ndarray:
    """Return how many earlier ones have the same label.

    Examples
    --------
    >>> _rank_in_class(np.array([2, 0, 2, 2, 0]))
    array([0, 0, 1, 2, 1])
    """
    order = np.argsort(labels, kind="stable")
    _, starts, counts = np.unique(labels[order], return_index=True, return_counts=True)
    ranks = np.empty(len(labels), np.int64)
    ranks[order] = np.arange(len(labels)) - np.repeat(starts, counts)
    return ranks
