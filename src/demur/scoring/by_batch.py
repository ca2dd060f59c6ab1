"""Scoring with order="batch": all members predict one batch, then the next; also where inputs stop early."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from demur.core.rules import resolve_rule
from demur.decompose import decompose
from demur.measures import Decomposition, needs_groups, resolve
from demur.moments import Moments, scale_divergences
from demur.predictions import rule_for
from demur.scoring.adaptive import FIRST_MEMBERS, MORE_MEMBERS, Stopping
from demur.scoring.batches import InputBatch, iterate_batches, preserve_generators
from demur.scoring.checkpoint import Checkpoint
from demur.scoring.given_models import deployed_of
from demur.scoring.job import ScoringJob, check_chunk
from demur.scoring.logit_spread import LogitSpread
from demur.scoring.scores import ScoresSoFar


def score_by_batch(job: ScoringJob, checkpoint: Checkpoint, advance: Callable[[], None]) -> ScoresSoFar:
    """Score batch after batch; ``advance`` is called after each."""
    before = checkpoint.read()
    so_far = ScoresSoFar(before)
    stopping = None if job.tolerance is None else Stopping(job.tolerance, before)
    with preserve_generators(job.loader):
        for index, batch in enumerate(iterate_batches(job.loader)):
            if index < len(so_far.marks):
                so_far.check(index, batch)
            else:
                found = (
                    _score_batch(job, batch) if stopping is None else _score_adaptively(job, batch, stopping)
                )
                so_far.add(batch, **found)
                if checkpoint.due():
                    checkpoint.write(so_far.to_arrays() | (stopping.to_arrays() if stopping else {}))
            advance()
    return so_far


def _score_batch(job: ScoringJob, batch: InputBatch) -> dict[str, Any]:
    """Return the columns of one batch, its number of members and classes, and the deployed prediction."""
    ask = job.posterior.hold(batch.inputs, position=batch.position)
    logits = job.predict_deployed(batch)
    step = job.posterior.tile or batch.size
    parts = [np.arange(i, min(i + step, batch.size)) for i in range(0, batch.size, step)]
    found = []
    for rows in parts:
        whole = len(rows) == batch.size
        given = logits if whole or not hasattr(logits, "ndim") else logits[rows]
        found.append(_score_rows(job, ask(None, None if whole else rows), len(rows), given))
    columns = {name: np.concatenate([each[0][name] for each in found]) for name in found[0][0]}
    _, members, classes = found[0]
    return {"columns": columns, "members": members, "classes": classes, "deployed": job.classify(logits)}


def _score_rows(
    job: ScoringJob, chunks: Iterator[Any], inputs: int, logits: Any
) -> tuple[dict[str, np.ndarray], int, int]:
    """Return the columns of some inputs of a batch, and how many members and classes there were."""
    moments, held, members = job.make_moments(), [], 0
    for chunk in chunks:
        prediction, weights = check_chunk(chunk, inputs)
        moments.update(prediction, weights=weights)
        members += prediction.shape[0]
        rule = rule_for(prediction, resolve_rule(job.rule))
        if rule.integrates and any(needs_groups(resolve(each)) for each in job.name_measures(()).values()):
            held.append((prediction, weights))
    if members == 0:
        raise ValueError(f"posterior must have members. Got none from {job.posterior!r}.")
    columns = dict(job.compute_columns(_HeldMembers(moments, held, job.groups) if held else moments, logits))
    return columns, members, moments.shape[1]


def _score_adaptively(job: ScoringJob, batch: InputBatch, stopping: Stopping) -> dict[str, Any]:
    """Return what `_score_batch` returns, drawing more members only for the inputs that need them."""
    members = job.posterior.members or 0
    ask = job.posterior.hold(batch.inputs, position=batch.position)
    active, moments = np.arange(batch.size), job.make_moments()
    known = job.posterior.spread(batch.inputs) if job.rule == "log" else None
    logits = job.predict_deployed(batch)
    spread = None if known is None else LogitSpread(deployed_of(logits), known, moments.groups or 1)
    first, step = (FIRST_MEMBERS, MORE_MEMBERS) if spread is None else (FIRST_MEMBERS // 2, MORE_MEMBERS // 2)
    used, scores, errors = (np.zeros(batch.size) for _ in range(3))
    columns: dict[str, np.ndarray] = {}
    done = classes = 0
    while len(active):
        run = range(done, min(done + (step if done else first), members))
        for chunk in ask(run, None if len(active) == batch.size else active):
            prediction, weights = check_chunk(chunk, len(active))
            moments.update(prediction, weights=weights)
            if spread is not None:
                spread.update(prediction.values, done, active)
            done += prediction.shape[0]
        used[active] = done
        steady = moments if spread is None else scale_divergences(moments, spread.factors(active))
        found = steady.decompose(job.measures[0], unbiased=True, stderr=True)
        assert found.stderr is not None
        scores[active], errors[active] = found.epistemic, found.stderr.epistemic
        ends = (stopping.count_needed(scores, errors, used)[active] <= done) | (done == members)
        if ends.any():
            given = logits[active[ends]] if hasattr(logits, "ndim") else None
            for name, values in job.compute_columns(steady.only(ends), given):
                whole = columns.setdefault(name, np.empty((batch.size, *values.shape[1:]), values.dtype))
                whole[active[ends]] = values
            classes = moments.shape[1]
            active = active[~ends]
            moments = moments.only(~ends)
    stopping.finish(scores, errors, used)
    columns["members"] = used.astype(int)
    return {"columns": columns, "members": members, "classes": classes, "deployed": job.classify(logits)}


class _HeldMembers:
    """The members of a batch whose average has to be integrated, so that moments are not enough."""

    def __init__(self, moments: Moments, chunks: list[tuple[Any, Any]], groups: int | None) -> None:
        self.rule, self.mean = moments.rule, moments.mean
        self._groups = groups
        predictions = [prediction for prediction, _ in chunks]
        self._whole = predictions[0].with_values(np.concatenate([each.values for each in predictions]))
        self._weights = None
        if any(weights is not None for _, weights in chunks):
            self._weights = np.concatenate([np.ones(len(p.values)) if w is None else w for p, w in chunks])

    def decompose(self, measure: str, *, unbiased: bool, stderr: bool, base: float | None) -> Decomposition:
        """Return the decomposition of each input's uncertainty, as `Moments.decompose` does."""
        return decompose(
            self._whole, measure=measure, weights=self._weights, unbiased=unbiased, stderr=stderr, base=base,
            groups=self._groups,
        )  # fmt: skip
