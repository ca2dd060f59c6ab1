"""The explorer of the Bernoulli study: one page with everything in it, to be opened from the file."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from demur.atomic import write_text


def build_explorer() -> str:
    """Return the page, with its style and its script put in."""
    from demur import __version__

    folder = files("demur.report") / "pages"
    text = (folder / "explorer.html").read_text(encoding="utf-8")
    for name in ("explorer.css", "dom.js", "coin.js", "explorer.js"):
        text = text.replace(f"/* {name} */", (folder / name).read_text(encoding="utf-8"))
    return text.replace("{version}", __version__)


def write_explorer(path: Path) -> Path:
    """Write the page, whole or not at all."""
    write_text(path, build_explorer())
    return path
