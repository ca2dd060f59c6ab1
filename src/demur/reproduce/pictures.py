"""Sets of images in folders as they are published, checked before hours of work begin."""

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

from demur.reproduce.labels import class_map, labels_of

_SUFFIXES = (".jpeg", ".jpg", ".png", ".webp", ".bmp")

COUNTS = {"imagenet-val": 50_000, "imagenet-o": 2_000, "imagenet-a": 7_500}
"""How many images the published sets have."""

_PLACES = {
    "imagenet-val": (
        "imagenet-val", "val", "ILSVRC2012_img_val", "imagenet/val", "ILSVRC/Data/CLS-LOC/val",
    ),
    "imagenet-o": ("imagenet-o",),
    "imagenet-a": ("imagenet-a",),
}  # fmt: skip
"""Where under a folder of data the published sets are looked for."""

_LAYOUTS = {
    "imagenet-val": (
        "ILSVRC2012_val_00000001.JPEG to ILSVRC2012_val_00050000.JPEG with labels beside them, or one folder "
        "a class, named by its wnid as n01440764"
    ),
    "imagenet-o": "2,000 images in folders named by wnids, as imagenet-o.tar unpacks",
    "imagenet-a": "7,500 images in folders named by wnids, as imagenet-a.tar unpacks",
}


@dataclass(frozen=True)
class ImageSet:
    """Images in files.

    Attributes
    ----------
    name
        Of the set, as "imagenet-o".
    folder
        Where the files lie.
    ids
        The name of each file from there, with / between folders. They are sorted, so that a set has the same
        order on every machine.
    labels
        (images,) int64, from 0 to classes - 1 and -1 where nobody knows; None: there are none.
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
        """Digits that tell this set from another: by names and sizes of the files, and by labels.

        The files are not read for it: one that was changed and has its old size is not noticed.
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
    """Open a folder of images, flat or with folders in it.

    Parameters
    ----------
    folder
        All files below it that end as images do belong to the set, but for names that begin with a dot.
    name
        Of the set; None: the folder's.
    labels
        A file with the label of each image, as `demur.reproduce.labels.labels_of` reads it; None: labels
        are the names of folders where `classes` is given, and else there are none.
    classes
        From the names of classes (wnids) to 0 to classes - 1.
    only
        A part of the set: how many images, drawn by the seed; or a text file with the name of a file, or its
        row, in each line.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder}: expected a folder of images, found none")
    ids = tuple(sorted(_found_in(folder)))
    if not ids:
        raise ValueError(f"{folder}: expected images, files that end in {', '.join(_SUFFIXES)}; found none")
    known = None
    if labels is not None:
        known = labels_of(Path(labels), ids, classes)
    elif classes is not None:
        known = np.array([classes.get(each.split("/")[0], -1) for each in ids], np.int64)
        if (known < 0).any():
            wrong = ids[int(np.flatnonzero(known < 0)[0])]
            raise ValueError(
                f"{folder}: expected images in folders that are named by classes, as "
                f"{next(iter(classes))}; got {wrong}"
            )
    whole = ImageSet(name or folder.resolve().name, folder, ids, known)
    return whole if only is None else whole.take(_chosen_rows(whole, only, seed))


def open_published(
    data: str | os.PathLike[str],
    name: str,
    *,
    labels: str | os.PathLike[str] | None = None,
    only: int | str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> ImageSet:
    """Open "imagenet-val", "imagenet-o" or "imagenet-a" under a folder of data.

    Parameters
    ----------
    data
        The folder that holds `imagenet-o`, `imagenet-a` and the validation images; these may be called
        `imagenet-val`, `val`, `ILSVRC2012_img_val`, `imagenet/val` or lie where Kaggle's archive has them.
        The validation images are flat, with a file of labels in their folder or in one above it up to
        `data`, or in one folder a class.
    name
        Which of the three. ImageNet-A has labels where the classes of ImageNet are known from a file or from
        the validation folders. ImageNet-O has none: its images show none of the 1000 classes, and its
        folders are named by what they are mistaken for.
    labels
        The file of labels of validation images; None: the first that is found.
    only, seed
        As for `open_images`.
    """
    if name not in _PLACES:
        raise ValueError(f"name: expected {', '.join(_PLACES)}, got {name!r}")
    data = Path(data)
    folder = next((data / each for each in _PLACES[name] if (data / each).is_dir()), None)
    if folder is None:
        places = ", ".join(_PLACES[name])
        raise ValueError(f"{data}: expected {name} in it ({places}): {_LAYOUTS[name]}; found none of these")
    if name == "imagenet-o":
        return open_images(folder, name, only=only, seed=seed)
    classes = _known_classes(data, folder)
    if name == "imagenet-a":
        return open_images(folder, name, classes=classes, only=only, seed=seed)
    flat = not _wnids_below(folder)
    if flat and labels is None:
        labels = _label_file(data, folder)
    if not flat and labels is None and classes is None:
        raise ValueError(
            f"{folder}: expected 1000 folders, one a class, got {len(_wnids_below(folder))}: for fewer put a "
            "file with all wnids beside them, as LOC_synset_mapping.txt"
        )
    return open_images(folder, name, labels=labels, classes=classes, only=only, seed=seed)


def check(
    images: ImageSet, *, any_count: bool = False, labelled: bool = False, sample: int = 16, seed: int = 0
) -> str:
    """Return a line on a set that can be worked with; raise a `ValueError` of one line on another.

    Parameters
    ----------
    images
        The set. One with the name of a published set must have all images of it.
    any_count
        Allow other numbers of images.
    labelled
        Every image must have a label.
    sample, seed
        How many images are decoded, and what fixes which.
    """
    expected = COUNTS.get(images.name)
    if expected is not None and len(images) != expected and not any_count:
        raise ValueError(
            f"{images.folder}: expected the {expected:,} images of {images.name}, got {len(images):,}: "
            f"unpack the whole archive ({_LAYOUTS[images.name]}), or allow other numbers"
        )
    if labelled and (images.labels is None or (images.labels < 0).any()):
        raise ValueError(
            f"{images.folder}: expected a label for each image of {images.name}, got "
            f"{'none' if images.labels is None else 'some'}: give a file of labels or one folder a class"
        )
    rows = drawn(len(images), min(sample, len(images)), seed)
    for row in rows:
        decoded(images.folder / images.ids[row])
    of = "no labels" if images.labels is None else f"{len(np.unique(images.labels)):,} classes"
    return f"{images.name}: {len(images):,} images, {of}, {len(rows)} decoded, {images.folder}"


def decoded(path: Path) -> Any:
    """Return an image in RGB; a file that is none is a `ValueError`."""
    Image = pillow()
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        said = str(error).replace(f" {str(path)!r}", "")
        raise ValueError(f"{path}: expected an image, got a file that cannot be decoded: {said}") from error


def pillow() -> Any:
    """Return the module that decodes images; raise in one line where it is missing."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ValueError(
            "expected pillow, which decodes images, found none: pip install 'demur[report]'"
        ) from error
    return Image


def _found_in(folder: Path) -> list[str]:
    """Return the names of all images below a folder, links followed."""
    found = []
    for place, _, files in os.walk(folder, followlinks=True):
        below = Path(place).relative_to(folder)
        found += [
            (below / file).as_posix()
            for file in files
            if file.lower().endswith(_SUFFIXES) and not file.startswith(".")
        ]
    return found


def _chosen_rows(images: ImageSet, only: int | str | os.PathLike[str], seed: int) -> np.ndarray:
    """Return the rows of a part of a set."""
    if isinstance(only, int):
        if not 0 < only <= len(images):
            raise ValueError(f"only: expected 1 to {len(images)} images of {images.name}, got {only}")
        return drawn(len(images), only, seed)
    rows = {each: row for row, each in enumerate(images.ids)}
    rows |= {str(row): row for row in range(len(images))}
    lines = [line.strip() for line in Path(only).read_text("utf-8").splitlines()]
    names = [line for line in lines if line]
    wrong = [line for line in names if line not in rows]
    if wrong or not names or len({rows[line] for line in names}) < len(names):
        got = f"{wrong[0]!r}" if wrong else ("a name twice" if names else "no line")
        raise ValueError(
            f"{only}: expected lines with names of files of {images.name}, as {images.ids[0]}, or rows, 0 to "
            f"{len(images) - 1}; got {got}"
        )
    return np.array([rows[line] for line in names])


def drawn(count: int, some: int, seed: int) -> np.ndarray:
    """Return so many rows of a set, drawn without repetition, in order."""
    return np.sort(np.random.default_rng(seed).permutation(count)[:some])


def _wnids_below(folder: Path) -> list[str]:
    """Return the names of the folders in a folder that may be classes."""
    return sorted(each.name for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))


_CLASS_FILES = (
    "LOC_synset_mapping.txt", "synset_words.txt", "synsets.txt", "imagenet_class_index.json",
    "imagenet_classes.tsv", "LOC_val_solution.csv",
)  # fmt: skip
_LABEL_FILES = (
    "val.txt", "LOC_val_solution.csv", "labels.csv", "ILSVRC2012_validation_ground_truth.txt",
    "data/ILSVRC2012_validation_ground_truth.txt",
    "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt",
)  # fmt: skip


def _near(data: Path, folder: Path, names: Sequence[str]) -> Path | None:
    """Return the first file of these names in a folder or in those above it, up to the folder of data."""
    between = [folder, *(each for each in folder.parents if each == data or data in each.parents)]
    return next((place / each for place in between for each in names if (place / each).is_file()), None)


def _known_classes(data: Path, folder: Path) -> dict[str, int] | None:
    """Return the classes of ImageNet, from a file or from folders of validation images; None: unknown."""
    found = _near(data, folder, _CLASS_FILES)
    if found is not None:
        return class_map(found)
    for each in _PLACES["imagenet-val"]:
        below = _wnids_below(data / each) if (data / each).is_dir() else []
        if len(below) == 1000:
            return {wnid: index for index, wnid in enumerate(below)}
    return None


def _label_file(data: Path, folder: Path) -> Path:
    """Return the file of labels of validation images; raise where there is none."""
    found = _near(data, folder, _LABEL_FILES)
    if found is None:
        raise ValueError(
            f"{folder}: expected labels of the validation images in it or above it: val.txt with lines as "
            "'ILSVRC2012_val_00000001.JPEG 65', Kaggle's LOC_val_solution.csv, labels.csv with columns file "
            "and label, or the development kit's ILSVRC2012_devkit_t12; found none of these"
        )
    return found
