"""Scoring with order="batch": all members predict one batch, then the next; also where inputs stop early."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from demur.core.rules import resolve_rule
from demur.derived_moments import scale_divergences
from demur.measures import needs_groups, resolve
from demur.posteriors.posterior import Ask, Posterior, is_numbers, parse_chunk
from demur.posteriors.shared_pass import share_passes
from demur.predictions import SecondOrder, rule_for
from demur.scoring.adaptive import FIRST_MEMBERS, MORE_MEMBERS, Stopping
from demur.scoring.batches import InputBatch, preserve_generators
from demur.scoring.checkpoint import Checkpoint
from demur.scoring.given_models import deployed_of
from demur.scoring.held_members import HeldDistribution, HeldMembers, HeldNumbers, normalise
from demur.scoring.job import ScoringJob, check_chunk, check_summable, count_classes
from demur.scoring.logit_spread import LogitSpread
from demur.scoring.scores_so_far import ScoresSoFar


def score_by_batch(job: ScoringJob, checkpoint: Checkpoint, advance: Callable[[], None]) -> ScoresSoFar:
    """Score batch after batch; ``advance`` is called after each."""
    before = checkpoint.read()
    so_far = ScoresSoFar(before)
    stopping = None if job.tolerance is None else Stopping(job.tolerance, before)
    with preserve_generators(job.loader):
        for index, batch in enumerate(job.iterate_batches()):
            if index < len(so_far.marks):
                so_far.check(index, batch)
            else:
                with share_passes():
                    if job.dense is not None:
                        found = job.dense.score_batch(job, batch, _score_rows)
                    elif stopping is None:
                        found = _score_batch(job, batch)
                    else:
                        found = _score_adaptively(job, batch, stopping)
                    found["columns"] |= job.score_detectors(batch)
                so_far.add(batch, **found)
                so_far.outcome = job.outcome
                if checkpoint.due():
                    checkpoint.write(so_far.to_arrays() | (stopping.to_arrays() if stopping else {}))
            advance()
    return so_far


def _score_batch(job: ScoringJob, batch: InputBatch) -> dict[str, Any]:
    """Return the columns of one batch, its number of members and classes, and the deployed prediction."""
    ask = _hold_batch(job, batch)
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
    moments, held, numbers, members = job.make_moments(), [], [], 0
    chunks = iter(chunks)  # a posterior of a user's own may return a list
    for chunk in chunks:
        prediction, weights = check_chunk(chunk, inputs, on_host=job.rounding is not None)
        if isinstance(prediction, SecondOrder):
            if members or weights is not None or next(chunks, None) is not None:
                raise ValueError(
                    f"A posterior must predict one distribution for all of its members. Got {prediction!r} "
                    "and others, or weights. Give one demur.Mixture of them."
                )
            found = HeldDistribution(prediction, job.rule)
            classes = prediction.shape[1] if prediction._over_classes else 0
            return dict(job.compute_columns(found, logits)), 0, classes
        members += prediction.shape[0]
        if is_numbers(prediction):
            numbers.append((prediction, weights))
            continue
        if job.rounding is not None:
            held.append((prediction, weights))
            moments.update(normalise(prediction), weights=weights)
            continue
        moments.update(prediction, weights=weights)
        rule = rule_for(prediction, resolve_rule(job.rule))
        if rule.integrates and any(needs_groups(resolve(each)) for each in job.name_measures(()).values()):
            held.append((prediction, weights))
    if members == 0:
        raise ValueError(f"posterior must have members. Got none from {job.posterior!r}.")
    if numbers:
        return dict(job.compute_columns(HeldNumbers(numbers, job.rule, job.groups), logits)), members, 0
    summed = HeldMembers(moments, held, job.groups, job.rounding, job.rule) if held else moments
    columns = dict(job.compute_columns(summed, logits))
    return columns, members, count_classes(moments)


def _hold_batch(job: ScoringJob, batch: InputBatch) -> Ask:
    """Return a function of members and rows that predicts for a batch, also where its inputs have no rows."""
    ask = job.posterior.hold(batch.inputs, position=batch.position)
    if batch.has_rows or type(job.posterior).hold is not Posterior.hold:
        return ask

    def ask_for_rows(members: range | None, rows: np.ndarray | None = None) -> Iterator[Any]:
        for chunk in ask(members, None):
            prediction, weights = parse_chunk(chunk)
            if rows is not None and hasattr(prediction, "with_values"):
                prediction = prediction.with_values(prediction.values[:, rows])
                weights = weights[:, rows] if np.ndim(weights) == 2 else weights
            yield prediction, weights

    return ask_for_rows


def _score_adaptively(job: ScoringJob, batch: InputBatch, stopping: Stopping) -> dict[str, Any]:
    """Return what `_score_batch` returns, drawing more members only for the inputs that need them."""
    members = job.posterior.members or 0
    ask = _hold_batch(job, batch)
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
            check_summable(prediction, "tolerance")
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
            classes = count_classes(moments)
            active = active[~ends]
            moments = moments.only(~ends)
    stopping.finish(scores, errors, used)
    columns["members"] = used.astype(int)
    return {"columns": columns, "members": members, "classes": classes, "deployed": job.classify(logits)}
