"""How fast scores are counted, and in how much memory: a billion of them, with clusters, and exactly.

python -m benchmarks.score_counts [--millions 1000] [--refined 100]
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator

import numpy as np

from demur.tasks import ScoreCounts

_CHUNK = 10_000_000
_IMAGE = 250_000  # pixels


def draw_chunks(count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield chunks of scores, all different, of which a tenth are positives."""
    rng = np.random.default_rng(0)
    positive = rng.random(_CHUNK, dtype=np.float32) < 0.1
    scores = rng.standard_exponential(_CHUNK, dtype=np.float32) * (1 + positive)
    for index in range(count):
        yield scores * np.float32(1 + index / 1000), positive


def say(what: str, seconds: float, number: int) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{what:<40} {seconds:8.2f} s  {number / seconds / 1e6:6.0f} million/s  peak {peak:.2f} GiB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=int, default=1000)
    parser.add_argument("--refined", type=int, default=100)
    chosen = parser.parse_args()
    counts, seconds = ScoreCounts(), 0.0
    for scores, positive in draw_chunks(chosen.millions // 10):
        begin = time.process_time()
        counts.update(scores, positive)
        seconds += time.process_time() - begin
    say("counted", seconds, chosen.millions * 10**6)
    begin = time.process_time()
    print(counts.misclassification(), counts.selective(), sep="\n")
    say("figures", time.process_time() - begin, chosen.millions * 10**6)
    counts, seconds, image = ScoreCounts(), 0.0, 0
    for scores, positive in draw_chunks(chosen.refined // 10):
        begin = time.process_time()
        for first in range(0, _CHUNK, _IMAGE):
            part = slice(first, first + _IMAGE)
            counts.update(scores[part], positive[part], clusters=image)
            image += 1
        seconds += time.process_time() - begin
    say("counted with clusters", seconds, chosen.refined * 10**6)
    begin = time.process_time()
    print(counts.misclassification())
    say(f"intervals over {image} clusters", time.process_time() - begin, chosen.refined * 10**6)
    begin = time.process_time()
    counts.refine(lambda: draw_chunks(chosen.refined // 10))
    say("made exact", time.process_time() - begin, chosen.refined * 10**6)
    print(counts.misclassification())


if __name__ == "__main__":
    main()
