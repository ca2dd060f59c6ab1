"""ImageNet validation images, ImageNet-O and ImageNet-A, in the folders in which they are published."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from demur.reproduce.data.image_folders import ImageSet, check_images, open_images
from demur.reproduce.data.imagenet_labels import CLASSES, read_class_indices

COUNTS = {"imagenet-val": 50_000, "imagenet-o": 2_000, "imagenet-a": 7_500}
"""How many images each published set has."""

_FOLDERS = {
    "imagenet-val": (
        "imagenet-val", "val", "ILSVRC2012_img_val", "imagenet/val", "ILSVRC/Data/CLS-LOC/val",
    ),
    "imagenet-o": ("imagenet-o",),
    "imagenet-a": ("imagenet-a",),
}  # fmt: skip
"""Where in a folder of data each published set may be."""

_LAYOUTS = {
    "imagenet-val": (
        "ILSVRC2012_val_00000001.JPEG to ILSVRC2012_val_00050000.JPEG with labels beside them, or one folder "
        "per class, named by its wnid, such as n01440764"
    ),
    "imagenet-o": "2,000 images in folders named by wnids, as in imagenet-o.tar",
    "imagenet-a": "7,500 images in folders named by wnids, as in imagenet-a.tar",
}
_CLASS_FILES = (
    "LOC_synset_mapping.txt", "synset_words.txt", "synsets.txt", "imagenet_class_index.json",
    "imagenet_classes.tsv", "LOC_val_solution.csv",
)  # fmt: skip
_LABEL_FILES = (
    "val.txt", "LOC_val_solution.csv", "labels.csv", "ILSVRC2012_validation_ground_truth.txt",
    "data/ILSVRC2012_validation_ground_truth.txt",
    "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt",
)  # fmt: skip


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
        `imagenet-val`, `val`, `ILSVRC2012_img_val`, `imagenet/val` or be where Kaggle's archive has them.
        The validation images are in one folder, with a file of labels in it or in one above it up to
        `data`, or in one folder per class.
    name
        Which of the three. ImageNet-A has labels if the classes of ImageNet are known from a file or from
        the validation folders. ImageNet-O has none: its images show none of the 1000 classes, and its
        folders are named after what they are mistaken for.
    labels
        The file with the labels of the validation images; None: the first that is found.
    only, seed
        As for `open_images`.
    """
    if name not in _FOLDERS:
        raise ValueError(f"name: expected {', '.join(_FOLDERS)}, got {name!r}")
    data = Path(data)
    folder = next((data / each for each in _FOLDERS[name] if (data / each).is_dir()), None)
    if folder is None:
        places = ", ".join(_FOLDERS[name])
        raise ValueError(f"{data}: expected {name} in it ({places}): {_LAYOUTS[name]}; found none of these")
    if name == "imagenet-o":
        return open_images(folder, name, only=only, seed=seed)
    classes = _find_classes(data, folder)
    if name == "imagenet-a":
        return open_images(folder, name, classes=classes, only=only, seed=seed)
    flat = not _list_class_folders(folder)
    if flat and labels is None:
        labels = _find_label_file(data, folder)
    if not flat and labels is None and classes is None:
        raise ValueError(
            f"{folder}: expected {CLASSES} folders, one per class, got "
            f"{len(_list_class_folders(folder))}: for fewer, put a file with all wnids beside "
            "them, such as LOC_synset_mapping.txt"
        )
    return open_images(folder, name, labels=labels, classes=classes, only=only, seed=seed)


def check_published(images: ImageSet, *, labelled: bool = False) -> str:
    """Return a line that describes a published set; raise a `ValueError` if images are missing."""
    expected = COUNTS[images.name]
    if len(images) != expected:
        raise ValueError(
            f"{images.folder}: expected the {expected:,} images of {images.name}, got {len(images):,}: "
            f"unpack the whole archive ({_LAYOUTS[images.name]})"
        )
    return check_images(images, labelled=labelled)


def _list_class_folders(folder: Path) -> list[str]:
    """Return the names of the subfolders that may be classes."""
    return sorted(each.name for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))


def _find_near(data: Path, folder: Path, names: Sequence[str]) -> Path | None:
    """Return the first file with one of these names in a folder or above it, up to the folder of data."""
    between = [folder, *(each for each in folder.parents if each == data or data in each.parents)]
    return next((place / each for place in between for each in names if (place / each).is_file()), None)


def _find_classes(data: Path, folder: Path) -> dict[str, int] | None:
    """Return the index of each class, from a file or the validation folders; None if neither is there."""
    found = _find_near(data, folder, _CLASS_FILES)
    if found is not None:
        return read_class_indices(found)
    for each in _FOLDERS["imagenet-val"]:
        below = _list_class_folders(data / each) if (data / each).is_dir() else []
        if len(below) == CLASSES:
            return {wnid: index for index, wnid in enumerate(below)}
    return None


def _find_label_file(data: Path, folder: Path) -> Path:
    """Return the file with the labels of the validation images; raise a `ValueError` if there is none."""
    found = _find_near(data, folder, _LABEL_FILES)
    if found is None:
        raise ValueError(
            f"{folder}: expected labels of the validation images in it or above it: val.txt with lines like "
            "'ILSVRC2012_val_00000001.JPEG 65', Kaggle's LOC_val_solution.csv, labels.csv with columns file "
            "and label, or the development kit's ILSVRC2012_devkit_t12; found none of these"
        )
    return found
