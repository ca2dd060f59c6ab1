"""A line chart as SVG that stands in a page: no script, and colours that follow the page's theme."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

_WIDTH, _HEIGHT = 760.0, 280.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 78.0, 34.0, 14.0, 50.0
_THOUSANDS_FROM = 10_000


@dataclass
class LineChart:
    """Lines, bands and marks over the number of inputs.

    Parameters
    ----------
    title : str
        Said to screen readers.
    end : float
        Inputs at the right end.
    low, high : float
        Ends of the vertical axis; above 0 where it is logarithmic.
    label : str
        Of the vertical axis.
    logarithmic : bool
        Whether the vertical axis is.
    write : function
        Writes a number of the vertical axis.
    """

    title: str
    end: float
    low: float
    high: float
    label: str
    logarithmic: bool = False
    write: Callable[[float], str] = "{:g}".format
    _parts: list[str] = field(default_factory=list)

    def add_line(self, x: np.ndarray, y: np.ndarray, kind: str = "set0") -> None:
        """Draw a line; parts where y is not a number are left out."""
        known = ~np.isnan(y)
        places = zip(self._x(x[known]), self._y(y[known]), strict=True)
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        self._parts.append(f'<polyline class="line {kind}" points="{points}"/>')

    def add_band(self, x: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        """Fill what is between two lines."""
        upper = [f"{a:.1f},{b:.1f}" for a, b in zip(self._x(x), self._y(high), strict=True)]
        lower = [f"{a:.1f},{b:.1f}" for a, b in zip(self._x(x), self._y(low), strict=True)]
        self._parts.append(f'<polygon class="band" points="{" ".join(upper + lower[::-1])}"/>')

    def add_level(self, y: float, text: str) -> None:
        """Draw a dashed line across, with a word above it."""
        (height,) = self._y(np.array([y]))
        self._parts.append(
            f'<line class="level" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{height:.1f}" y2="{height:.1f}"/>'
            f'<text class="level" x="{_LEFT + 6}" y="{height - 5:.1f}">{html.escape(text)}</text>'
        )

    def add_moment(self, x: float, text: str, kind: str, *, left: bool = False) -> None:
        """Draw an upright line with a word to its right or left, where there is room."""
        (place,) = self._x(np.array([x]))
        late = place > _WIDTH * (0.3 if left else 0.85)
        anchor, shift = ("end", -5) if late else ("start", 5)
        self._parts.append(
            f'<line class="moment {kind}" x1="{place:.1f}" x2="{place:.1f}" y1="{_TOP}" '
            f'y2="{_HEIGHT - _BOTTOM}"/>'
            f'<text class="moment" text-anchor="{anchor}" x="{place + shift:.1f}" '
            f'y="{_TOP + (10 if kind == "alarm" else 26)}">{html.escape(text)}</text>'
        )

    def draw(self) -> str:
        """Return the chart."""
        ticks = []
        for value in list_ticks(0, self.end):
            (place,) = self._x(np.array([value]))
            count = f"{value / 1000:,g}k" if value and self.end >= _THOUSANDS_FROM else f"{value:,.0f}"
            ticks.append(f'<text x="{place:.1f}" y="{_HEIGHT - 30}" text-anchor="middle">{count}</text>')
        levels = list_powers(self.low, self.high) if self.logarithmic else list_ticks(self.low, self.high)
        for value in levels:
            (height,) = self._y(np.array([value]))
            ticks.append(
                f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{height:.1f}" '
                f'y2="{height:.1f}"/>'
                f'<text x="{_LEFT - 7}" y="{height + 4:.1f}" text-anchor="end">{self.write(value)}</text>'
            )
        middle = (_HEIGHT - _BOTTOM + _TOP) / 2
        name = html.escape(self.label)
        names = (
            f'<text x="{(_LEFT + _WIDTH) / 2}" y="{_HEIGHT - 5}" text-anchor="middle">inputs observed</text>'
            f'<text class="up" transform="translate(13 {middle}) rotate(-90)" text-anchor="middle">{name}'
            "</text>"
        )
        return (
            f'<div class="pan"><svg class="chart" role="img" aria-label="{html.escape(self.title)}" '
            f'viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}">{"".join(ticks)}{names}{"".join(self._parts)}'
            "</svg></div>"
        )

    def _x(self, values: np.ndarray) -> np.ndarray:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * np.asarray(values, float) / max(self.end, 1)

    def _y(self, values: np.ndarray) -> np.ndarray:
        shown = np.clip(np.asarray(values, float), self.low, self.high)
        low, high = self.low, self.high
        if self.logarithmic:
            shown, low, high = np.log(shown), math.log(low), math.log(high)
        return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * (shown - low) / (high - low)


def list_ticks(low: float, high: float, number: int = 5) -> Sequence[float]:
    """Return round numbers from `low` to `high`.

    Examples
    --------
    >>> list_ticks(0, 43_000)
    [0.0, 10000.0, 20000.0, 30000.0, 40000.0]
    """
    if not high > low:
        return [low]
    rough = (high - low) / number
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(k * power for k in (1, 2, 5, 10) if k * power >= rough * 0.999)
    return [step * k for k in range(math.ceil(low / step), math.floor(high / step * (1 + 1e-12)) + 1)]


def list_powers(low: float, high: float, number: int = 6) -> Sequence[float]:
    """Return powers of ten from `low` to `high`, not too many.

    Examples
    --------
    >>> list_powers(0.05, 300)
    [0.1, 1.0, 10.0, 100.0]
    """
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    step = max(1, math.ceil((last - first) / number))
    return [10.0**k for k in range(first, last + 1) if k % step == 0]
