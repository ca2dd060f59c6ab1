"""Labels of images, from the files that ImageNet is published with."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

CLASSES = 1000
"""The number of classes of ImageNet-1K."""

_KIT_NUMBERING = "the development kit's numbering, in which class 1 is not n01440764"


def read_class_indices(path: Path) -> dict[str, int]:
    """Return the index of each class of ImageNet-1K by its wnid, from any text that names all of them.

    The index is the position among the sorted wnids. All published files agree on it except those of the
    development kit.
    """
    wnids = sorted(set(re.findall(r"\bn\d{8}\b", path.read_text("utf-8"))))
    if len(wnids) != CLASSES:
        raise ValueError(
            f"{path}: expected the wnids of {CLASSES} classes, such as n01440764, got {len(wnids)}"
        )
    return {wnid: index for index, wnid in enumerate(wnids)}


def read_labels(path: Path, ids: Sequence[str], classes: Mapping[str, int] | None = None) -> np.ndarray:
    """Return the labels of images from a file.

    Parameters
    ----------
    path
        One of: lines with a file name and its class, counted from 0 (val.txt); Kaggle's
        LOC_val_solution.csv; a csv with columns file and label, counted from 0 or wnids; the development
        kit's ILSVRC2012_validation_ground_truth.txt with meta.mat beside it.
    ids
        File names of the images.
    classes
        The index of each wnid, needed if the file names only some of the wnids.

    Returns
    -------
    numpy.ndarray
        (images,), int64.
    """
    lines = [line.strip() for line in path.read_text("utf-8-sig").splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"{path}: expected labels, got an empty file")
    if all(re.fullmatch(r"\d+", line) for line in lines):
        return _read_kit_labels(path, lines, ids)
    pairs = _split_lines(path, lines)
    texts = {Path(name).stem: label for name, label in pairs}
    missing = [each for each in ids if Path(each).stem not in texts]
    if missing:
        raise ValueError(
            f"{path}: expected a label for each of {len(ids)} images, got none for {len(missing)}, such as "
            f"{missing[0]}"
        )
    own = [texts[Path(each).stem] for each in ids]
    if all(re.fullmatch(r"n\d{8}", each) for each in own):
        found = classes or read_class_indices(path)
        unknown = [each for each in own if each not in found]
        if unknown:
            raise ValueError(f"{path}: expected wnids of the {len(found)} classes, got {unknown[0]}")
        return np.array([found[each] for each in own], np.int64)
    wrong = [each for each in own if not re.fullmatch(r"\d+", each)]
    if wrong:
        raise ValueError(f"{path}: expected labels that are numbers from 0 or wnids, got {wrong[0]!r}")
    labels = np.array([int(each) for each in own], np.int64)
    # An ImageNet file that counts from 1 may use the order of the development kit: there is no way to tell.
    if labels.max() >= CLASSES:
        raise ValueError(
            f"{path}: expected labels from 0 to {CLASSES - 1}, got {labels.max()}: labels from 1 may be "
            f"{_KIT_NUMBERING}; use val.txt, LOC_val_solution.csv or one folder per class"
        )
    return labels


def _split_lines(path: Path, lines: Sequence[str]) -> list[tuple[str, str]]:
    """Return pairs of a file name and a label, as text."""
    head = [cell.strip().lower() for cell in lines[0].split(",")]
    if head == ["imageid", "predictionstring"]:  # boxes follow the wnid
        rows = [line.split(",", 1) for line in lines[1:]]
        return [(name, text.split()[0]) for name, text in rows if text.split()]
    if {"file", "label"} <= set(head):
        file, label = head.index("file"), head.index("label")
        rows = list(csv.reader(lines[1:]))
        if all(len(row) == len(head) for row in rows):
            return [(row[file].strip(), row[label].strip()) for row in rows]
    cells = [line.split() for line in lines]
    if not all(len(row) == 2 for row in cells):
        raise ValueError(
            f"{path}: expected lines like 'ILSVRC2012_val_00000001.JPEG 65', a csv with columns file and "
            f"label, or Kaggle's LOC_val_solution.csv; got {lines[0][:60]!r}"
        )
    return [(row[0], row[1]) for row in cells]


def _read_kit_labels(path: Path, lines: Sequence[str], ids: Sequence[str]) -> np.ndarray:
    """Return the labels from lines with only a number per validation image, by the table in meta.mat."""
    meta = path.with_name("meta.mat")
    if not meta.is_file():
        raise ValueError(
            f"{path}: expected a name and a label in each line, got only numbers, {_KIT_NUMBERING}: put "
            "meta.mat of the kit beside it, or use val.txt, LOC_val_solution.csv or one folder per class"
        )
    numbers = [re.search(r"val_(\d{8})", each) for each in ids]
    if not all(each and int(each[1]) <= len(lines) for each in numbers):
        raise ValueError(
            f"{path}: expected images named ILSVRC2012_val_00000001.JPEG and so on, up to {len(lines)}, got "
            f"{ids[0]}"
        )
    wnids = _read_kit_wnids(meta)
    order = {wnid: index for index, wnid in enumerate(sorted(wnids.values()))}
    kit = [int(lines[int(each[1]) - 1]) for each in numbers if each]
    unknown = [each for each in kit if each not in wnids]
    if unknown:
        raise ValueError(f"{path}: expected numbers of classes in {meta.name}, got {unknown[0]}")
    return np.array([order[wnids[each]] for each in kit], np.int64)


def _read_kit_wnids(meta: Path) -> dict[int, str]:
    """Return the wnid of each class by its number in the development kit."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        synsets: Any = loadmat(meta, squeeze_me=True)["synsets"]
        leaves = synsets[synsets["num_children"].astype(int) == 0]
        found = {
            int(number): str(wnid)
            for number, wnid in zip(leaves["ILSVRC2012_ID"], leaves["WNID"], strict=True)
        }
    except (ValueError, TypeError, KeyError, IndexError, OSError, MatReadError) as error:
        raise ValueError(
            f"{meta}: expected the table of classes of ILSVRC2012_devkit_t12: {error}"
        ) from error
    if len(found) != CLASSES:
        raise ValueError(f"{meta}: expected {CLASSES} classes without children, got {len(found)}")
    return found
