"""Score a stream of members without storing them, on two machines that never share a prediction.

Each machine draws its own samples of a posterior into one `Moments`, whose size does not depend on the number
of samples. Only this state is exchanged: a file with a few arrays (inputs, classes).

Run: python examples/streaming_moments.py
"""

import tempfile
from pathlib import Path

import numpy as np

import demur

INPUTS, CLASSES, MEMBERS, GROUPS = 200, 20, 256, 16


def draw_members(seed):
    """Yield the logits of one posterior sample after another, as a stochastic network would."""
    centre = 4 * np.random.default_rng(0).normal(size=(INPUTS, CLASSES))
    spread = np.linspace(0.0, 1.5, INPUTS)[:, None]  # members disagree most about the last inputs
    noise = np.random.default_rng(seed)
    for _ in range(MEMBERS // 2):
        yield centre + spread * noise.normal(size=(INPUTS, CLASSES))


def run_machine(seed, path):
    """Accumulate one machine's members and save the state to a file."""
    moments = demur.Moments(groups=GROUPS)
    for logits in draw_members(seed):
        moments.update(logits=logits)
    moments.save(path)


def main():
    """Merge the states of two machines, print scores, and compare them with all members at once."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"machine{seed}.npz" for seed in (1, 2)]
        for seed, path in enumerate(paths, start=1):
            run_machine(seed, path)
        moments = demur.Moments.load(paths[0]).merge(demur.Moments.load(paths[1]))
        size = paths[0].stat().st_size

    u = moments.decompose(unbiased=True, stderr=True)
    print(f"{moments.count} members, {INPUTS} inputs, {CLASSES} classes")
    logits_size = MEMBERS * INPUTS * CLASSES * 8
    print(f"a state on disk: {size / 1e6:.1f} MB; all logits: {logits_size / 1e6:.1f} MB")
    print("input  epistemic  +/- (over members)")
    for index in (0, 50, 100, 199):
        print(f"{index:5d}  {u.epistemic[index]:9.4f}  {u.stderr.epistemic[index]:.4f}")

    everything = np.stack([logits for seed in (1, 2) for logits in draw_members(seed)])
    at_once = demur.decompose(logits=everything, unbiased=True).epistemic
    difference = np.max(np.abs(u.epistemic - at_once)) / np.max(at_once)
    verdict = "equal" if difference < 1e-12 else f"off by {difference:.1e}"
    print(f"streamed and merged, against all at once: {verdict}")


if __name__ == "__main__":
    main()
