"""Measure memory and time of QUAM on a last layer of ImageNet's size.

python -m benchmarks.quam [--targets 20] [--steps 20] [--inputs 2]

A last layer of 1280 features and 1000 classes, with random features and labels drawn from the layer's own
predictions: what the numbers are does not change memory or time. The authors state 24 to 50 GB of GPU memory
and 512 GB of RAM for this size.
"""

from __future__ import annotations

import argparse
import resource
import time

import torch

import demur
from demur.posteriors import QUAM

FEATURES, CLASSES, TRAINING = 1280, 1000, 8192


def main() -> None:
    """Print time per input and the peak of the process's memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("targets", 20), ("steps", 20), ("inputs", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    torch.manual_seed(0)
    layer = torch.nn.Linear(FEATURES, CLASSES)
    torch.nn.init.normal_(layer.weight, std=0.1)
    features = torch.rand(TRAINING + given.inputs, FEATURES)
    with torch.no_grad():
        labels = torch.distributions.Categorical(logits=layer(features)).sample()
    quam = QUAM(
        layer,
        (features[:TRAINING], labels[:TRAINING]),
        targets=given.targets,
        steps=given.steps,
        progress=False,
    )
    started, worked = time.perf_counter(), time.process_time()
    scores = demur.score(quam, [features[TRAINING:]], progress=False)
    wall, work = time.perf_counter() - started, time.process_time() - worked
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{quam}: {scores.members} members of an input, {torch.get_num_threads()} threads")
    print(f"{wall / given.inputs:.1f} s an input ({work / given.inputs:.1f} s of processor time)")
    print(f"peak memory of the process: {peak:.2f} GB")


if __name__ == "__main__":
    main()
