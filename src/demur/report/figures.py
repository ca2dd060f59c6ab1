"""The style of all figures, and saving them: PDF and PNG, the same bytes each time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demur.atomic import open_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INFINITY = "∞"
# Okabe and Ito's colours, but for yellow: told apart with any colour vision; lines and markers also in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LINES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)))
MARKERS = ("o", "^", "s", "D", "v", "P")
STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 7,
    "legend.title_fontsize": 7,
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


@contextlib.contextmanager
def drawing(width: float, height: float, columns: int = 1, rows: int = 1) -> Iterator[tuple[Figure, Any]]:
    """Give a new figure of so many inches, in the style, and its axes."""
    require_matplotlib("the figures")
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.subplots(rows, columns)


def percent_axis(axis: Any) -> None:
    """Write the shares of an axis in percent."""
    axis.set_major_formatter(lambda share, _: f"{100 * share:.6g} %")


def write_number(value: float, digits: int = 3) -> str:
    """Write a number for a figure.

    Examples
    --------
    >>> write_number(0.69315), write_number(float("inf"))
    ('0.693', '∞')
    """
    return INFINITY if value == float("inf") else f"{value:.{digits}f}"


def save(figure: Figure, directory: str | Path, name: str) -> list[Path]:
    """Write a figure as PDF and PNG without the date, so that the same figure gives the same bytes.

    Each file appears whole or not at all.
    """
    import matplotlib

    directory = Path(directory)
    paths = [directory / f"{name}.pdf", directory / f"{name}.png"]
    with matplotlib.rc_context(STYLE):
        with open_file(paths[0]) as file:
            figure.savefig(file, format="pdf", metadata={"CreationDate": None})
        with open_file(paths[1]) as file:
            figure.savefig(file, format="png", dpi=300)
    return paths
