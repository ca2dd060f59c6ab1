"""Folders of images: opened, labelled, and checked before hours of work begin."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from demur.reproduce.data.imagenet_labels import read_labels

_SUFFIXES = (".jpeg", ".jpg", ".png", ".webp", ".bmp")


@dataclass(frozen=True)
class ImageSet:
    """Images in files.

    Attributes
    ----------
    name
        Of the set, such as "imagenet-o".
    folder
        The folder of the files.
    ids
        The path of each file in that folder, with / between folders, sorted so that the order is the same
        on every machine.
    labels
        (images,) int64, from 0 to classes - 1, -1 where unknown; None if there are none.
    """

    name: str
    folder: Path
    ids: tuple[str, ...]
    labels: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files."""
        return tuple(self.folder / each for each in self.ids)

    @functools.cached_property
    def mark(self) -> str:
        """Hexadecimal digits that depend on the names and sizes of the files and on the labels.

        The files are not read: a change that keeps the size goes unnoticed.
        """
        sizes = [os.stat(path).st_size for path in self.paths]
        labels = None if self.labels is None else self.labels.tolist()
        return hashlib.sha256(json.dumps([self.ids, sizes, labels]).encode()).hexdigest()[:40]

    def take(self, rows: Sequence[int] | np.ndarray) -> ImageSet:
        """Return some of the images, in the order of the rows."""
        ids = tuple(self.ids[int(row)] for row in rows)
        labels = None if self.labels is None else self.labels[np.asarray(rows, int)]
        return ImageSet(self.name, self.folder, ids, labels)


def open_images(
    folder: str | os.PathLike[str],
    name: str | None = None,
    *,
    labels: str | os.PathLike[str] | None = None,
    classes: Mapping[str, int] | None = None,
    only: int | str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> ImageSet:
    """Open a folder of images, with or without subfolders.

    Parameters
    ----------
    folder
        All files in it with the suffix of an image belong to the set, except hidden ones.
    name
        Of the set; None: the name of the folder.
    labels
        A file with the label of each image; `imagenet_labels.read_labels` has the formats. None: the names
        of the subfolders are the labels if `classes` is given; otherwise there are none.
    classes
        The index of each class name (wnid), from 0 to classes - 1.
    only
        A part of the set: a number of images, drawn with the seed; or a text file with a file name, or its
        row, on each line.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder}: expected a folder of images, found none")
    ids = tuple(sorted(_list_images(folder)))
    if not ids:
        raise ValueError(
            f"{folder}: expected images, files with a suffix of {', '.join(_SUFFIXES)}; found none"
        )
    known = None
    if labels is not None:
        known = read_labels(Path(labels), ids, classes)
    elif classes is not None:
        known = np.array([classes.get(each.split("/")[0], -1) for each in ids], np.int64)
        if (known < 0).any():
            wrong = ids[int(np.flatnonzero(known < 0)[0])]
            raise ValueError(
                f"{folder}: expected images in folders named after classes, such as "
                f"{next(iter(classes))}; got {wrong}"
            )
    whole = ImageSet(name or folder.resolve().name, folder, ids, known)
    return whole if only is None else whole.take(_choose_rows(whole, only, seed))


def check_images(images: ImageSet, *, labelled: bool = False, sample: int = 16, seed: int = 0) -> str:
    """Return a line that describes a set; raise a `ValueError` of one line if it cannot be used.

    Parameters
    ----------
    images
        The set.
    labelled
        Whether every image must have a label.
    sample, seed
        How many images are decoded as a check, and the seed that chooses them.
    """
    if labelled and (images.labels is None or (images.labels < 0).any()):
        raise ValueError(
            f"{images.folder}: expected a label for each image of {images.name}, got "
            f"{'none' if images.labels is None else 'some'}: give a file of labels, or one folder per class"
        )
    rows = _draw_rows(len(images), min(sample, len(images)), seed)
    for row in rows:
        decode_image(images.folder / images.ids[row])
    of = "no labels" if images.labels is None else f"{len(np.unique(images.labels)):,} classes"
    return f"{images.name}: {len(images):,} images, {of}, {len(rows)} decoded, {images.folder}"


def decode_image(path: Path) -> Any:
    """Return an image in RGB; raise a `ValueError` if the file is not an image."""
    Image = require_pillow()
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        said = str(error).replace(f" {str(path)!r}", "")
        raise ValueError(f"{path}: expected an image, got a file that cannot be decoded: {said}") from error


def require_pillow() -> Any:
    """Return the module that decodes images; raise a `ValueError` if it is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ValueError(
            "expected pillow, which decodes images, found none: pip install 'demur[report]'"
        ) from error
    return Image


def _list_images(folder: Path) -> list[str]:
    """Return the paths of all images in a folder and its subfolders, following links."""
    found = []
    for place, _, files in os.walk(folder, followlinks=True):
        below = Path(place).relative_to(folder)
        found += [
            (below / file).as_posix()
            for file in files
            if file.lower().endswith(_SUFFIXES) and not file.startswith(".")
        ]
    return found


def _choose_rows(images: ImageSet, only: int | str | os.PathLike[str], seed: int) -> np.ndarray:
    """Return the rows of a part of a set."""
    if isinstance(only, int):
        if not 0 < only <= len(images):
            raise ValueError(f"only: expected 1 to {len(images)} images of {images.name}, got {only}")
        return _draw_rows(len(images), only, seed)
    rows = {each: row for row, each in enumerate(images.ids)}
    rows |= {str(row): row for row in range(len(images))}
    lines = [line.strip() for line in Path(only).read_text("utf-8").splitlines()]
    names = [line for line in lines if line]
    wrong = [line for line in names if line not in rows]
    if wrong or not names or len({rows[line] for line in names}) < len(names):
        got = f"{wrong[0]!r}" if wrong else ("a name twice" if names else "no line")
        raise ValueError(
            f"{only}: expected lines with file names of {images.name}, such as {images.ids[0]}, or rows from "
            f"0 to {len(images) - 1}; got {got}"
        )
    return np.array([rows[line] for line in names])


def _draw_rows(count: int, some: int, seed: int) -> np.ndarray:
    """Return this many rows of a set, drawn without replacement, in order."""
    return np.sort(np.random.default_rng(seed).permutation(count)[:some])
