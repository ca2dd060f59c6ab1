"""Evaluate the pixels of a data set, image by image on two machines, without keeping any of them.

Each machine counts its own images in a `ScoreCounts`, 16 MB however many there are. Merged, they give every
figure between certain limits, with intervals over draws of whole images. A second pass makes them exact.

Run: python examples/pixels_in_fixed_memory.py
"""

import tempfile
from pathlib import Path

import numpy as np

import demur

IMAGES, SIDE = 60, 64


def predict(image):
    """Return the score of each pixel of an image, and which pixels are predicted wrongly."""
    draws = np.random.default_rng(image)
    hard = draws.gamma(2.0)  # a hard image has more errors, and all of its pixels are less certain
    wrong = draws.uniform(size=(SIDE, SIDE)) < min(0.5, hard / 10)
    scores = (hard + 2 * wrong) * draws.gamma(3.0, size=(SIDE, SIDE))
    return scores.astype(np.float32), wrong


def count_images(images, path):
    """Count the pixels of some images, and save the counts."""
    counts = demur.tasks.ScoreCounts()
    for image in images:
        counts.update(*predict(image), clusters=image)
    counts.save(path)


def main():
    """Merge the counts of two machines, and print limits, then exact figures."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"machine{machine}.npz" for machine in (1, 2)]
        for machine, path in enumerate(paths):
            count_images(range(machine, IMAGES, 2), path)
        first, second = (demur.tasks.ScoreCounts.load(path) for path in paths)
    counts = first.merge(second)
    print(counts.misclassification(resamples=500))
    counts.refine(lambda: (predict(image) for image in range(IMAGES)))
    print(counts.misclassification(resamples=500))
    print(counts.selective(resamples=500))


if __name__ == "__main__":
    main()
