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
    ``least``: some epistemic parts are lower bounds, since probabilities were rounded.
    """

    unit: str
    members: int = 0
    batch: tuple[int, ...] = ()
    classes: int = 0
    axis: int = 0
    class_axis: int = 0
    least: bool = False

    def describe_notes(self) -> list[str]:
        """Return what to know about the numbers: whether they are bounds, and how doubtful axes were read."""
        bound = "Epistemic parts are lower bounds: the least that fit the rounded probabilities."
        return [*([bound] if self.least else []), *self.describe_doubt()]

    def describe_doubt(self) -> list[str]:
        """Return which axis was taken for what, and what else it may be; nothing where there is no doubt."""
        sizes = (self.members, *self.batch, *([self.classes] if self.classes else []))
        inputs = math.prod(self.batch)
        crowded = self.members > inputs + (self.classes or 2)
        image = self._guess_classes_of_images()
        if not self.members or (self.batch and 1 not in sizes and not crowded and image is None):
            return []
        counts = [_count(self.members, "member"), _count(inputs, "input")]
        axes = f"axis {self.axis} = members"
        if self.classes:
            counts.append(_count(self.classes, "class", "classes"))
            last = self.class_axis == len(self.batch) + 1
            axes += f", {'last' if last else f'axis {self.class_axis}'} = classes"
        hints = []
        if not self.batch and self.members > 1:
            hints.append(f"If these are {self.members} inputs of one model, give a list of one: [array].")
        elif self.batch and (crowded or self.members == 1):
            hints.append("If the members are on another axis, pass axis=.")
        if self.classes == 1:
            hints.append("For one probability of yes use demur.Bernoulli.")
        if image is not None:
            hints.append(f"If the last two axes are height and width, pass class_axis={image}.")
        return [f"Read as {', '.join(counts)} ({axes}).", *hints]

    def _guess_classes_of_images(self) -> int | None:
        """Return where the classes would be if the last two axes were those of an image and look like it."""
        if self.axis or self.class_axis != len(self.batch) + 1 or len(self.batch) not in (2, 3):
            return None
        *_, before, height, width = (self.members, *self.batch, self.classes)
        wide = len(self.batch) == 3 and before < min(height, width)
        return len(self.batch) - 1 if height == width > 1 or wide else None


def describe_parts(parts: dict[str, Array], errors: dict[str, Array], reading: Reading | None) -> str:
    """Return the parts as lines of text; ``errors`` are their standard errors, by the same names.

    Examples
    --------
    >>> part = np.array([0.5, 0.25])
    >>> print(describe_parts({"total": part}, {"total": part / 10}, Reading("bits")))
    Decomposition of 2 inputs, in bits
      total  0.5 ± 0.05  0.25 ± 0.025
    """
    rows = []
    if not arrays.is_traced(parts["total"]):
        numbers, beside = _flatten(parts), _flatten(errors)
        few = numbers["total"].size <= _FEW
        rows = _list_numbers(numbers, beside) if few else _list_ranges(numbers)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(["", row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in rows
    ]
    return "\n".join([_head(parts, reading), *lines, *(reading.describe_notes() if reading else [])])


def write_html_table(parts: dict[str, Array], reading: Reading | None) -> str:
    """Return the range of the parts as a table for notebooks."""
    rows = [] if arrays.is_traced(parts["total"]) else _list_ranges(_flatten(parts))
    lines = [f"<table><caption>{html.escape(_head(parts, reading))}</caption>"]
    for row in rows:
        tag = "td" if row[0] else "th"
        cells = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row[1:])
        lines.append(f"<tr><th>{html.escape(row[0])}</th>{cells}</tr>")
    doubt = " ".join(reading.describe_notes()) if reading else ""
    return "".join([*lines, "</table>", f"<p>{html.escape(doubt)}</p>" if doubt else ""])


def _head(parts: dict[str, Array], reading: Reading | None) -> str:
    """Return what is decomposed, and in which unit."""
    shape = tuple(parts["total"].shape)
    traced = ", traced by JAX" if arrays.is_traced(parts["total"]) else ""
    if reading is None:
        return f"Decomposition, shape {shape}{traced}"
    several = f" of shape {shape}" if len(shape) > 1 else ""
    return f"Decomposition of {_count(math.prod(shape), 'input')}{several}, in {reading.unit}{traced}"


def _list_numbers(numbers: dict[str, np.ndarray], errors: dict[str, np.ndarray]) -> list[list[str]]:
    """Return a row for each part, with all its numbers and their standard errors."""
    rows = []
    for name, values in numbers.items():
        beside = errors.get(name, [None] * values.size)
        rows.append([name, *map(_write, values, beside)])
    return rows


def _list_ranges(numbers: dict[str, np.ndarray]) -> list[list[str]]:
    """Return a heading, and a row for each part: lowest, median and highest number, how many are infinite."""
    rows = [["", "min", "median", "max"]]
    for name, values in numbers.items():
        rows.append([name, _write(values.min()), _write(np.median(values)), _write(values.max())])
    infinite = [int(np.isinf(values).sum()) for values in numbers.values()]
    if any(infinite):
        return [[*row, cell] for row, cell in zip(rows, ["infinite", *map(str, infinite)], strict=True)]
    return rows


def _flatten(parts: dict[str, Array]) -> dict[str, np.ndarray]:
    """Return the numbers of each part in one row, in float64."""
    return {name: np.asarray(arrays.to_numpy(part), np.float64).ravel() for name, part in parts.items()}


def _write(value: Any, error: Any = None) -> str:
    """Return a number, with its standard error if there is one."""
    return f"{value:.4g}" if error is None else f"{value:.4g} ± {error:.2g}"


def _count(number: int, one: str, more: str | None = None) -> str:
    """Return a number of things, as in ``1 input`` and ``2 inputs``."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"
