"""Draws the figure of the page "Images, pixel by pixel", from the code of that page.

python docs/figures/pixels.py --out docs/figures
"""

from __future__ import annotations

import argparse
import doctest
from pathlib import Path
from typing import Any

import numpy as np

PAGE = Path(__file__).parents[1] / "walk-pixels.md"


def run_page(until: str) -> dict[str, Any]:
    """Run the examples of the page, up to the one that begins with a text; return its names."""
    names: dict[str, Any] = {}
    for example in doctest.DocTestParser().get_examples(PAGE.read_text("utf-8")):
        exec(compile(example.source, PAGE.name, "exec"), names)
        if example.source.startswith(until):
            return names
    raise ValueError(f"{PAGE}: expected an example that begins with {until!r}")


def draw(found: dict[str, Any]) -> Any:
    """Draw three scenes that have an unseen digit: the image, the predicted classes, and K."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    truth, k = found["truth"].numpy(), found["u"].epistemic.numpy()
    classes = found["logits"].softmax(2).mean(0).argmax(1).numpy()
    shown = np.flatnonzero((truth > 8).any(axis=(1, 2)))[:3]
    figure = Figure(figsize=(6.4, 6.4), layout="constrained")
    axes = figure.subplots(3, 3)
    for row, scene in zip(axes, shown, strict=True):
        row[0].imshow(found["test"][scene, 0], cmap="gray_r")
        row[1].imshow(np.ma.masked_equal(classes[scene], 0), cmap="tab10", vmin=1, vmax=10)
        seen = row[2].imshow(k[scene], cmap="magma", vmin=0, vmax=np.quantile(k[shown], 0.995))
        for each in row:
            each.set(xticks=[], yticks=[])
            for top in range(0, 24, 8):
                for left in range(0, 24, 8):
                    if (truth[scene, top : top + 8, left : left + 8] > 8).any():
                        place = (left - 0.5, top - 0.5)
                        each.add_patch(Rectangle(place, 8, 8, fill=False, edgecolor="#d62728", lw=1.5))
    for each, title in zip(axes[0], ("scene", "predicted class", "K per pixel (nats)"), strict=True):
        each.set_title(title, fontsize=10)
    figure.colorbar(seen, ax=axes[:, 2], shrink=0.6)
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    draw(run_page("u = demur.decompose")).savefig(parser.parse_args().out / "pixels.png", dpi=110)
