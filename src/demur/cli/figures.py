"""Figures that the commands of `demur evaluate` print: in which form, over which clusters, as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from demur.cli.method_files import MethodFiles


def choose_form(**forms: bool) -> str:
    """Return the one form that is asked for, or "text"."""
    asked = [name for name, wanted in forms.items() if wanted]
    if len(asked) > 1:
        raise ValueError(f"expected at most one form, got --{' and --'.join(asked)}: choose one")
    return asked[0] if asked else "text"


def pick_clusters(name: str, source: MethodFiles, labels: str | None = None) -> Any:
    """Return the column of clusters, of the scores or of the file of labels, for the rows that count."""
    if name in source.columns or labels is None:
        return source.column(name)
    found = read_clusters(name, labels)
    if len(found) != len(source.rows):
        raise ValueError(
            f"{labels}: expected {len(source.rows)} clusters, one per row of {source.path}, got {len(found)}"
        )
    return found[source.rows]


def read_clusters(name: str, labels: str) -> Any:
    """Return a column of the file of labels."""
    from demur.stores import pick_column, read_columns, split_name

    path = split_name(labels)[0]
    columns = {} if path.lower().endswith(".npy") else read_columns(Path(path), nameless="label")
    return pick_column(columns, name, path)


def say_intervals(confidence: float, clusters: Any) -> str:
    """Return what the intervals of a table are."""
    return f"with {100 * confidence:g} % intervals{' over draws of whole clusters' if clusters else ''}"


def json_figures(result: Any, figures: tuple[str, ...]) -> dict[str, Any]:
    """Return figures as JSON can hold them."""
    from demur.stores import json_number

    if getattr(result, "within", None) is not None:
        figures = (*figures, "within")
    found: dict[str, Any] = {
        figure: {key: json_number(value) for key, value in getattr(result, figure).to_dict().items()}
        for figure in figures
    }
    chance = getattr(result, "chance", None)
    return found if chance is None else found | {"chance": chance}
