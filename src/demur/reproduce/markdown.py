"""Pieces of Markdown that the sections of the results page share."""

from __future__ import annotations

from collections.abc import Sequence


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table.

    Examples
    --------
    >>> print(format_table(["data", "K"], [["yacht", "0.19"]]))
    | data | K |
    |---|---|
    | yacht | 0.19 |
    """
    lines = [f"| {' | '.join(each)} |" for each in (head, *rows)]
    lines.insert(1, "|---" * len(head) + "|")
    return "\n".join(lines)


def join_words(names: Sequence[str]) -> str:
    """Return names as a list in words.

    Examples
    --------
    >>> join_words(["I", "M", "random"])
    'I, M and random'
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def format_p_value(p: float) -> str:
    """Return a p-value with three digits.

    Examples
    --------
    >>> format_p_value(0.00012), format_p_value(0.0312)
    ('< 0.001', '0.031')
    """
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def format_interval(value: float, low: float, high: float, digits: int = 3) -> str:
    """Return a figure with its interval.

    Examples
    --------
    >>> format_interval(0.8123, 0.79, 0.83)
    '0.812 [0.790, 0.830]'
    """
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def format_difference(value: float, low: float, high: float, digits: int = 3, mark: str = "") -> str:
    """Return a difference with its sign, a mark and its interval.

    Examples
    --------
    >>> format_difference(0.0121, -0.004, 0.02, mark="*")
    '+0.012* [-0.004, 0.020]'
    """
    return f"{value:+.{digits}f}{mark} [{low:.{digits}f}, {high:.{digits}f}]"
