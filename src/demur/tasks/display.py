"""How results look where people meet them: in a terminal, and as small tables in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from html import escape

Rows = Sequence[Sequence[str]]


def write_lines(title: str, rows: Rows, notes: Sequence[str] = ()) -> str:
    """Return a title, rows with their columns aligned, and notes below.

    Examples
    --------
    >>> print(write_lines("Two figures", [["a", "0.5"], ["longer", "1"]]))
    Two figures
      a       0.5
      longer  1
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([title, *(f"  {line}".rstrip() for line in lines), *notes])


def write_html(title: str, rows: Rows, notes: Sequence[str] = ()) -> str:
    """Return the same as a table in HTML. All text is escaped: names may be of any kind.

    Examples
    --------
    >>> write_html("<b>", [["a", "0.5"]])
    '<table><caption>&lt;b&gt;</caption><tbody><tr><th scope="row">a</th><td>0.5</td></tr></tbody></table>'
    """
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<table><caption>{escape(title)}</caption><tbody>{body}</tbody></table>{below}"


def write_p_value(p_value: float) -> str:
    """Return a p-value in words.

    Examples
    --------
    >>> write_p_value(0.0321), write_p_value(1e-9)
    ('p = 0.0321', 'p < 0.0001')
    """
    return "p < 0.0001" if p_value < 0.0001 else f"p = {p_value:.4f}"


class Displayed(ABC):
    """Shown as a title, rows and notes, which `_display` returns, in a terminal and in a notebook."""

    @abstractmethod
    def _display(self) -> tuple[str, Rows, Sequence[str]]:
        """Return title, rows and notes."""

    def __repr__(self) -> str:
        return write_lines(*self._display())

    def _repr_html_(self) -> str:
        return write_html(*self._display())
