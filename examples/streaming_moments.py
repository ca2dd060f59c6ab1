"""Score a stream of members without keeping them, on two machines that never share a prediction.

Each machine runs its own samples of a posterior and keeps one `Moments`, whose size does not depend
on how many samples come. What travels is the state: a file of a few arrays (inputs, classes).

Run: python examples/streaming_moments.py
"""

import tempfile
from pathlib import Path

import numpy as np

import demur

INPUTS, CLASSES, MEMBERS, GROUPS = 200, 20, 256, 16


def sampler(seed):
    """Yield logits of one posterior sample after another, as a stochastic network would."""
    centre = 4 * np.random.default_rng(0).normal(size=(INPUTS, CLASSES))
    spread = np.linspace(0.0, 1.5, INPUTS)[:, None]  # the last inputs are the least known
    noise = np.random.default_rng(seed)
    for _ in range(MEMBERS // 2):
        yield centre + spread * noise.normal(size=(INPUTS, CLASSES))


def machine(seed, path):
    """Accumulate one machine's members and leave the state in a file."""
    moments = demur.Moments(groups=GROUPS)
    for logits in sampler(seed):
        moments.update(logits=logits)
    moments.save(path)


def main():
    """Merge two machines, report what they know, and compare with all members at once."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"machine{seed}.npz" for seed in (1, 2)]
        for seed, path in enumerate(paths, start=1):
            machine(seed, path)
        moments = demur.Moments.load(paths[0]).merge(demur.Moments.load(paths[1]))
        size = paths[0].stat().st_size

    u = moments.decompose(unbiased=True, stderr=True)
    print(f"{moments.count} members, {INPUTS} inputs, {CLASSES} classes")
    logits_size = MEMBERS * INPUTS * CLASSES * 8
    print(f"a state on disk: {size / 1e6:.1f} MB; all logits: {logits_size / 1e6:.1f} MB")
    print("input  epistemic  +/- (over members)")
    for index in (0, 50, 100, 199):
        print(f"{index:5d}  {u.epistemic[index]:9.4f}  {u.stderr.epistemic[index]:.4f}")

    everything = np.stack([logits for seed in (1, 2) for logits in sampler(seed)])
    at_once = demur.decompose(logits=everything, unbiased=True).epistemic
    difference = np.max(np.abs(u.epistemic - at_once)) / np.max(at_once)
    verdict = "equal" if difference < 1e-12 else f"off by {difference:.1e}"
    print(f"streamed and merged, against all at once: {verdict}")


if __name__ == "__main__":
    main()
