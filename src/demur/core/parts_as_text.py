"""A decomposition as a person wants to see it: the numbers where they are few, else their range."""

from __future__ import annotations

import html
import math
from typing import Any, NamedTuple

import numpy as np

from demur.core import arrays
from demur.core.arrays import Array

_FEW = 8  # inputs whose numbers are all shown


class Reading(NamedTuple):
    """How predictions were read: the unit of the parts, and which axis was taken for what.

    Axes are counted from the front. 0 members: the axes leave no doubt. 0 classes: outcomes have no axis.
    """

    unit: str
    members: int = 0
    batch: tuple[int, ...] = ()
    classes: int = 0
    axis: int = 0
    class_axis: int = 0

    def describe_doubt(self) -> str | None:
        """Return which axis was taken for what, and what else it may be; None where there is no doubt."""
        sizes = (self.members, *self.batch, *([self.classes] if self.classes else []))
        inputs = math.prod(self.batch)
        crowded = self.members > inputs + self.classes
        image = self._guess_classes_of_images()
        if not self.members or not (not self.batch or 1 in sizes or crowded or image is not None):
            return None
        counts = [_count(self.members, "member"), _count(inputs, "input")]
        axes = f"axis {self.axis} = members"
        if self.classes:
            counts.append(_count(self.classes, "class", "classes"))
            last = self.class_axis == len(self.batch) + 1
            axes += f", {'last' if last else f'axis {self.class_axis}'} = classes"
        hints = []
        if not self.batch:
            hints.append(f"If these are {self.members} inputs of one model, give array[None].")
        elif crowded or self.members == 1:
            hints.append("If the members are on another axis, pass axis=.")
        if self.classes == 1:
            hints.append("For one probability of yes use demur.Bernoulli.")
        if image is not None:
            hints.append(f"If the last two axes are height and width, pass class_axis={image}.")
        return " ".join([f"Read as {', '.join(counts)} ({axes}).", *hints])

    def _guess_classes_of_images(self) -> int | None:
        """Return where the classes would be if the last two axes were those of an image and look like it."""
        if self.axis or self.class_axis != len(self.batch) + 1 or len(self.batch) not in (2, 3):
            return None
        *_, before, height, width = (self.members, *self.batch, self.classes)
        wide = len(self.batch) == 3 and before < min(height, width)
        return len(self.batch) - 1 if height == width > 1 or wide else None


def describe_parts(parts: dict[str, Array], errors: dict[str, Array], reading: Reading | None) -> str:
    """Return the parts as lines of text; ``errors`` are their standard errors, by the same names."""
    rows = _tabulate(parts, errors)
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))] if rows else []
    lines = [
        "  " + "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in _pairs(row, widths))]).rstrip()
        for row in rows
    ]
    doubt = None if reading is None else reading.describe_doubt()
    return "\n".join([_head(parts, reading), *lines, *([] if doubt is None else [doubt])])


def write_html_table(parts: dict[str, Array], errors: dict[str, Array], reading: Reading | None) -> str:
    """Return the same as a table for notebooks."""
    rows = _tabulate(parts, errors)
    lines = [f"<table><caption>{html.escape(_head(parts, reading))}</caption>"]
    for row in rows:
        tag = "td" if row[0] else "th"
        cells = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row[1:])
        lines.append(f"<tr><th>{html.escape(row[0])}</th>{cells}</tr>")
    doubt = None if reading is None else reading.describe_doubt()
    note = "" if doubt is None else f"<p>{html.escape(doubt)}</p>"
    return "".join([*lines, "</table>", note])


def _head(parts: dict[str, Array], reading: Reading | None) -> str:
    """Return what is decomposed, and in which unit."""
    shape = tuple(parts["total"].shape)
    traced = ", traced by JAX" if arrays.is_traced(parts["total"]) else ""
    if reading is None:
        return f"Decomposition, shape {shape}{traced}"
    several = f" of shape {shape}" if len(shape) > 1 else ""
    return f"Decomposition of {_count(math.prod(shape), 'input')}{several}, in {reading.unit}{traced}"


def _tabulate(parts: dict[str, Array], errors: dict[str, Array]) -> list[list[str]]:
    """Return rows of cells: a name, and all numbers where they are few, else under a heading their range."""
    if any(arrays.is_traced(part) for part in parts.values()):
        return []
    numbers = {name: _flatten(part) for name, part in parts.items()}
    if numbers["total"].size <= _FEW:
        beside = {name: _flatten(part) for name, part in errors.items()}
        return [
            [name, *(_write(value, beside[name][k] if beside else None) for k, value in enumerate(values))]
            for name, values in numbers.items()
        ]
    rows = [["", "min", "median", "max"]]
    with np.errstate(invalid="ignore"):
        rows += [
            [name, *(_write(find(values)) for find in (np.min, np.median, np.max))]
            for name, values in numbers.items()
        ]
    infinite = [int(np.isinf(values).sum()) for values in numbers.values()]
    if any(infinite):
        for row, cell in zip(rows, ["infinite", *map(str, infinite)], strict=True):
            row.append(cell)
    return rows


def _flatten(part: Array) -> np.ndarray:
    """Return the numbers in one row, in float64."""
    return np.asarray(arrays.to_numpy(part), np.float64).reshape(-1)


def _write(value: Any, error: Any = None) -> str:
    """Return a number, with its standard error if there is one."""
    return f"{value:.4g}" if error is None else f"{value:.4g} ± {error:.2g}"


def _count(number: int, one: str, more: str | None = None) -> str:
    """Return a number of things, as in ``1 input`` and ``2 inputs``."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def _pairs(row: list[str], widths: list[int]) -> list[tuple[str, int]]:
    """Return the cells after the first, with their widths."""
    return list(zip(row[1:], widths[1:], strict=True))
