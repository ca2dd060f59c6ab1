"""Small data in the published formats, made from nothing."""

from pathlib import Path

import numpy as np


def features(path: Path, classes: int = 8, width: int = 12) -> Path:
    """Six images a class around its own direction, and textures that belong to none."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(classes, width)) / 2
    labels = np.repeat(np.arange(classes), 6)
    images = 2 * weight[labels] + rng.normal(size=(len(labels), width))
    np.savez(
        path, val=images.astype(np.float16), val_label=labels.astype(np.int16),
        dtd=rng.normal(size=(30, width)).astype(np.float16), fc_weight=weight.astype(np.float16),
        fc_bias=np.zeros(classes, np.float32),
    )  # fmt: skip
    return path


def rows(folder: Path, sets: int = 2, number: int = 80) -> Path:
    """Sets of a number that is harder to tell where the first input is large."""
    folder.mkdir(parents=True)
    for k in range(sets):
        rng = np.random.default_rng(k)
        x = rng.normal(size=(number, 3 + k))
        y = x[:, 0] ** 2 + x[:, 1] + np.exp(x[:, 0] / 2) * rng.normal(size=number)
        test = np.stack([rng.permutation(number)[: number // 10] for _ in range(4)])
        np.savez(folder / f"set-{k}.npz", X=x, y=10 * y + 100, test_index=test.astype(np.int32))
    return folder
