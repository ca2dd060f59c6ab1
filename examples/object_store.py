"""Score predictions in an object store: written batch by batch, scored block by block, never held as a whole.

The store is in memory here; "s3://bucket/run.zarr" or "gs://..." work the same, and a folder does, too.

Run: python examples/object_store.py
"""

from pathlib import Path

import numpy as np

import demur
from demur.scoring.block_scores import score_in_blocks
from demur.stores import open_predictions, write_predictions

MEMBERS, INPUTS, CLASSES, BATCH = 10, 20_000, 10, 512
PREDICTIONS, SCORES = "memory://bucket/run.zarr", "memory://bucket/scores.zarr"


def predict_batches():
    """Yield what an ensemble says of batch after batch, with the names of the inputs."""
    rng = np.random.default_rng(0)
    for start in range(0, INPUTS, BATCH):
        names = [f"image-{k}" for k in range(start, min(start + BATCH, INPUTS))]
        centre = 3 * rng.normal(size=(len(names), CLASSES))
        spread = rng.uniform(0, 2, size=(len(names), 1))
        logits = centre + spread * rng.normal(size=(MEMBERS, len(names), CLASSES))
        yield logits.astype(np.float32), {"id": names}


def main():
    """Write the predictions, score them, and read the scores back."""
    write_predictions(PREDICTIONS, predict_batches())
    with open_predictions([PREDICTIONS]) as predictions:
        found = score_in_blocks(predictions, "logits", Path(SCORES))
    print(f"{found.inputs} inputs, {found.members} members")

    scores = demur.Scores.load(SCORES)
    assert scores.ids is not None
    for row in scores.table.top(3):
        print(
            f"{scores.ids[row]}: K {scores['K'].epistemic[row]:.2f}, I {scores['I'].epistemic[row]:.2f} nats"
        )


if __name__ == "__main__":
    main()
