"""Scores six segmentation networks on road scenes pixel by pixel, and draws the figure of walk-pixels.md.

python docs/figures/camvid.py --data CAMVID --work build/camvid --out docs/figures

CAMVID holds `weights/NAME.npz` (state dicts of ESPNet, trained on Cityscapes) and `test_images/NAME.jpg` with
`NAME_mask.png` (CamVid, classes 0 to 10). The figure shows maps of scores, and none of the photographs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import demur
from demur.reproduce.networks.espnet import build_espnet
from demur.stores import open_maps

MEMBERS = ("espnetc_q3", "espnetc_q5", "espnetc_q8", "espnet_q3", "espnet_q5", "espnet_q8")
CLASSES = 11
MEAN, SCALE = (72.392, 82.909, 73.158), (45.319, 46.153, 44.915)
"""Of blue, green and red in Cityscapes."""
SIZE = (512, 1024)
"""Of the images that the networks were trained on."""
CLASS_OF = (3, 4, 1, 1, 7, 2, 6, 6, 5, 5, 0, 9, 10, 8, 8, 8, 8, 10, 10)
"""The class in CamVid of each class in Cityscapes; the last one of these, "other", has none."""
SCORES = {
    "K": "pairwise_epistemic",
    "I": "average_epistemic",
    "aleatoric": "pairwise_aleatoric",
    "total": "pairwise_total",
    "entropy of the average": "average_total",
}
FOUND_AMONG = 0.1
"""Share of the pixels of an image that somebody would look at."""


class Member(torch.nn.Module):
    """One network, from images (inputs, 3, height, width), red first, 0 to 255, to logits of CamVid."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        with np.load(path) as parameters:
            self.network = build_espnet(dict(parameters))
        self.register_buffer("mean", torch.tensor(MEAN)[:, None, None])
        self.register_buffer("scale", torch.tensor(SCALE)[:, None, None])

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        resize = torch.nn.functional.interpolate
        large = resize(images.flip(1), SIZE, mode="bilinear", align_corners=False)
        logits = self.network((large - self.mean) / self.scale / 255)
        if logits.shape[2:] != SIZE:
            logits = resize(logits, SIZE, mode="bilinear", align_corners=False)
        known = logits.double().softmax(1)[:, : len(CLASS_OF)]
        probs = torch.zeros(len(images), CLASSES, *SIZE, dtype=known.dtype)
        probs.index_add_(1, torch.tensor(CLASS_OF), known)
        return resize(probs, images.shape[2:], mode="bilinear", align_corners=False).log().float()


def read_scenes(data: Path) -> Iterator[tuple[torch.Tensor, np.ndarray, list[str]]]:
    """Yield batches of one image, its labels and its name."""
    for path in sorted((data / "test_images").glob("*.jpg")):
        image = np.array(Image.open(path).convert("RGB"))
        labels = np.array(Image.open(path.with_name(f"{path.stem}_mask.png"))).astype(np.int64)
        yield torch.from_numpy(image).permute(2, 0, 1)[None].float(), labels[None], [path.stem]


def count_found(score: np.ndarray, wrong: np.ndarray) -> float:
    """Return the share of wrong pixels among the most uncertain ones."""
    chosen = score >= np.quantile(score, 1 - FOUND_AMONG)
    return float((chosen & wrong).sum() / wrong.sum())


def measure_images(place: Path) -> dict[str, np.ndarray]:
    """Return figures of each image, (images,) each."""
    maps = open_maps(place)
    found: dict[str, list[float]] = {"accuracy": []}
    for index in range(len(maps["label"])):
        labels = maps["label"][index]
        known = labels < CLASSES
        right = (maps["prediction"][index] == labels)[known]
        found["accuracy"].append(float(right.mean()))
        for name, column in SCORES.items():
            score = maps[column][index][known]
            auroc = demur.tasks.misclassification(score, right).auroc
            found.setdefault(f"mean {name}", []).append(float(score.mean()))
            found.setdefault(f"AUROC {name}", []).append(float(auroc))
            found.setdefault(f"found {name}", []).append(count_found(score, ~right))
    return {name: np.array(values) for name, values in found.items()}


def measure_pixels(place: Path) -> dict[str, demur.tasks.Estimate]:
    """Return the AUROC for wrong pixels of each score, with an interval over draws of whole images."""
    maps = open_maps(place)
    thin = np.s_[:, ::4, ::4]  # neighbours say the same
    labels, guess = maps["label"][:][thin], maps["prediction"][:][thin]
    known = labels < CLASSES
    image = np.broadcast_to(np.arange(len(labels))[:, None, None], labels.shape)[known]
    names = (
        "pairwise_epistemic",
        "average_epistemic",
        "pairwise_aleatoric",
        "average_total",
        "pairwise_total",
    )
    found = {}
    for name in names:
        score = maps[name][:][thin][known]
        found[name] = demur.tasks.misclassification(score, (guess == labels)[known], clusters=image).auroc
    return found


def draw(place: Path, shown: list[int]) -> Any:
    """Draw the wrong pixels and maps of three scores, a row for each image."""
    from matplotlib.figure import Figure

    maps = open_maps(place)
    columns = {name: SCORES[name] for name in ("K", "I", "aleatoric")}
    figure = Figure(figsize=(8, 1.62 * len(shown) + 0.3), layout="constrained")
    axes = figure.subplots(len(shown), 1 + len(columns), squeeze=False)
    tops = {name: np.quantile([maps[each][i] for i in shown], 0.99) for name, each in columns.items()}
    drawn: dict[str, Any] = {}
    for row, index in zip(axes, shown, strict=True):
        labels = maps["label"][index]
        wrong = np.where(labels < CLASSES, maps["prediction"][index] != labels, np.nan)
        row[0].set_facecolor("0.85")
        row[0].imshow(wrong, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
        for axis, (name, column) in zip(row[1:], columns.items(), strict=True):
            drawn[name] = axis.imshow(maps[column][index], cmap="magma", vmin=0, vmax=tops[name])
        for axis in row:
            axis.set(xticks=[], yticks=[])
    titles = ("wrong (grey: no label)", "K (nats)", "I (nats)", "aleatoric (nats)")
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=9)
    for place, name in enumerate(columns, 1):
        figure.colorbar(drawn[name], ax=axes[:, place], location="bottom", shrink=0.9, pad=0.02, extend="max")
    return figure


def main() -> None:
    """Score what is not scored yet, print the figures of all images, and draw some."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name in ("data", "work", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--images", type=int, nargs="+", default=[1, 9, 16], help="images to draw")
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    place = asked.work / "maps.zarr"
    if not (asked.work / "scores.csv").exists():
        members = [Member(asked.data / "weights" / f"{name}.npz") for name in MEMBERS]
        scenes = list(read_scenes(asked.data))
        scores = demur.score(
            members, scenes, class_axis=2, maps=place, checkpoint=asked.work / "checkpoint.npz"
        )
        scores.save(asked.work / "scores.csv")
    found = measure_images(place)
    for name, values in found.items():
        print(f"{name:30} mean {values.mean():.3f}, from {values.min():.3f} to {values.max():.3f}")
    for name in ("mean K", "mean I", "mean aleatoric", "mean total"):
        estimate = demur.tasks.rank_correlation(found[name], found["accuracy"])
        print(f"rank correlation of {name} with accuracy: {estimate}")
    for name, estimate in measure_pixels(place).items():
        print(f"AUROC of {name} over pixels of all images, drawn image by image: {estimate}")
    draw(place, asked.images).savefig(asked.out / "camvid.png", dpi=100)


if __name__ == "__main__":
    main()
