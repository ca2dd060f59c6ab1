"""Scoring with order="member": some members predict the whole data set, then the next ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from demur.posteriors.networks import preserve_random_state
from demur.posteriors.shared_pass import share_passes
from demur.scoring.batches import preserve_generators
from demur.scoring.checkpoint import Checkpoint, pack_moments, unpack_moments
from demur.scoring.job import ScoringJob, check_chunk, check_summable, count_classes
from demur.scoring.scores_so_far import ScoresSoFar

_DIFFERS = "loader must bring the same batches in each pass."
_ADVICE = "Switch off shuffling and random augmentation."


def score_by_member(job: ScoringJob, checkpoint: Checkpoint, advance: Callable[[], None]) -> ScoresSoFar:
    """Score in passes over the data set, each with the next members; ``advance`` follows each batch."""
    before = checkpoint.read()
    moments, done, marks = [], 0, None
    if before and checkpoint.path is not None:
        done, marks = int(before["done"]), before["marks"].tolist()
        moments = [unpack_moments(before[f"moments {i}"], checkpoint.path) for i in range(len(marks))]
    so_far, members, logits = ScoresSoFar({}), job.posterior.members or 0, []
    own: list[dict[str, np.ndarray]] = []
    for start in range(done, members, job.posterior.together):
        run, seen = range(start, min(start + job.posterior.together, members)), []
        # Each pass starts from the same random state, so that a loader that shuffles repeats its order.
        with preserve_random_state(), preserve_generators(job.loader):
            for index, batch in enumerate(job.iterate_batches()):
                seen.append(batch.mark)
                if marks is not None and (len(seen) > len(marks) or marks[index] != batch.mark):
                    raise ValueError(f"{_DIFFERS} Got others at input {batch.position}. {_ADVICE}")
                if start == done:
                    with share_passes():
                        logits.append(job.predict_deployed(batch))
                        own.append(job.score_detectors(batch))
                    so_far.add(batch, columns={}, deployed=job.classify(logits[-1]))
                if marks is None:
                    moments.append(job.make_moments())
                for chunk in job.posterior.predict(batch.inputs, members=run, position=batch.position):
                    prediction, weights = check_chunk(chunk, batch.size)
                    check_summable(prediction, "order='member'")
                    moments[index].update(prediction, weights=weights)
                advance()
        if marks is not None and len(seen) != len(marks):
            raise ValueError(f"{_DIFFERS} Got {len(seen)} batches, not {len(marks)}. {_ADVICE}")
        marks = seen
        if checkpoint.due() and checkpoint.path is not None and run.stop < members:
            packed = {f"moments {i}": pack_moments(each, checkpoint.path) for i, each in enumerate(moments)}
            checkpoint.write({**packed, "done": np.array(run.stop), "marks": np.array(marks)})
    for each, given, columns in zip(moments, logits, own, strict=True):
        for name, values in [*job.compute_columns(each, given), *columns.items()]:
            so_far.columns.setdefault(name, []).append(values)
    so_far.outcome = job.outcome
    so_far.members, so_far.classes = members, count_classes(moments[0])
    return so_far
