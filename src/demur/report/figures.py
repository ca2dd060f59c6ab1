"""How figures look and how they are written: for print and screen, the same bytes each time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INFINITY = "∞"
STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "pdf.fonttype": 42,  # real fonts in the file, as publishers ask for
}


def require_matplotlib(what: str) -> None:
    """Raise a ``ValueError`` that says how to get matplotlib, if it is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"expected matplotlib, which draws {what}, found none: pip install 'demur[report]'"
        ) from error


def number(value: float, digits: int = 3) -> str:
    """Write a number for a figure.

    Examples
    --------
    >>> number(0.69315), number(float("inf"))
    ('0.693', '∞')
    """
    return INFINITY if value == float("inf") else f"{value:.{digits}f}"


def save(figure: Figure, directory: Path, name: str) -> list[Path]:
    """Write a figure as PDF and PNG without the date, so that the same figure gives the same bytes."""
    import matplotlib

    paths = [directory / f"{name}.pdf", directory / f"{name}.png"]
    with matplotlib.rc_context(STYLE):
        figure.savefig(paths[0], metadata={"CreationDate": None})
        figure.savefig(paths[1], dpi=300)
    return paths
