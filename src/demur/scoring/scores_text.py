"""Scores as a person wants to see them: a heading and a small table, in text or HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence

from demur.measures import PARTS
from demur.scoring.score_table import ScoreTable

_HEADER = ("mean of", "total", "aleatoric", "epistemic", "largest", "infinite")


def format_text(heading: str, table: ScoreTable, others: Sequence[str]) -> str:
    """Return the heading, a table of aligned columns below it, and the names of other columns."""
    rows = _list_rows(table)
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) if k == 0 else cell.rjust(width) for k, (cell, width) in enumerate(pairs))
        for pairs in (zip(row, widths, strict=True) for row in rows)
    ]
    return "\n".join([heading, *(line.rstrip() for line in lines), *_name_others(others)])


def format_html(heading: str, table: ScoreTable, others: Sequence[str]) -> str:
    """Return the same as HTML; names are escaped."""
    first, *rows = ([html.escape(cell) for cell in row] for row in _list_rows(table))
    head = "".join(f"<th>{cell}</th>" for cell in first)
    body = "".join(
        f"<tr><th>{name}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" for name, *cells in rows
    )
    below = "".join(f"<p>{html.escape(line)}</p>" for line in _name_others(others))
    whole = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<p>{html.escape(heading)}</p>{whole}{below}"


def _list_rows(table: ScoreTable) -> list[list[str]]:
    """Return the header and a row for each measure: means of its parts, and the largest epistemic part."""
    rows: list[list[str]] = [list(_HEADER)]
    for measure, parts in table.summary().items():
        means = [_show(parts[part]["mean"]) for part in PARTS]
        infinite = parts["epistemic"]["infinite"]
        rows.append([measure, *means, _show(parts["epistemic"]["max"]), str(infinite or "")])
    # Nobody needs a column that says that nothing is infinite.
    return rows if any(row[-1] for row in rows[1:]) else [row[:-1] for row in rows]


def _name_others(names: Sequence[str]) -> list[str]:
    """Return a line with the names of columns that belong to no measure; none where there are none."""
    return [f"also {', '.join(names)}"] if names else []


def _show(value: float | str) -> str:
    """Return a number with four digits."""
    return f"{float(value):.4g}"
