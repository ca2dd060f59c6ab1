"""From a posterior and a loader to the scores of each input."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from demur.core.rules import resolve_rule
from demur.decompose import decompose
from demur.measures import GIVEN, Decomposition, Measure, cell, check_base, needs_groups, resolve
from demur.moments import Moments
from demur.posteriors.networks import preserve_random_state
from demur.posteriors.posterior import Posterior, as_posterior, parse_chunk
from demur.predictions import arrays, rule_for
from demur.progress import progress_bar
from demur.scoring.adaptive import ERROR_GROUPS, FIRST_MEMBERS, MORE_MEMBERS, Stopping, check_tolerance
from demur.scoring.batches import ARRAY_BATCH_SIZE, InputBatch, iterate_batches, preserve_generators
from demur.scoring.checkpoint import Checkpoint, pack_moments, unpack_moments
from demur.scoring.logit_spread import LogitSpread
from demur.scoring.score_files import MEASURES, count_groups, score_columns
from demur.scoring.scores import Scores, ScoresSoFar


def score(
    posterior: Any,
    loader: Iterable[Any],
    *,
    measures: Sequence[str] = MEASURES,
    rule: str = "log",
    base: float | None = None,
    unbiased: bool = False,
    stderr: bool = False,
    tolerance: float | None = None,
    order: Literal["batch", "member"] = "batch",
    checkpoint: str | os.PathLike[str] | None = None,
    every: float = 30.0,
    progress: bool = True,
) -> Scores:
    """Score each input of a data set by the disagreement of a posterior's members.

    Predictions are summed as they come and never held all at once. Models, their modes, statistics and
    gradients, and the state of all random generators are afterwards as they were, also after an error.

    Parameters
    ----------
    posterior
        One of ``demur.posteriors``, a list of objects with ``predict_proba``, or a callable that returns
        predictions.
    loader
        A ``DataLoader``, or any iterable of batches: inputs, (inputs, labels), (inputs, labels, ids), or
        mappings, whose ``labels`` and ``ids`` are told apart from the inputs by their names. Or one array
        of inputs.
    measures, rule, base, unbiased, stderr
        As for ``demur.decompose``, several measures from one pass. Also ``"A1"``, ``"A2"``, ``"A3"``,
        ``"B1"`` and ``"C1"``, the cells of the table of measures with a given model: here the deployed one.
        Standard errors go over members, and beyond 64 of them over 64 groups.
    tolerance
        Stop drawing for an input once more members would hardly change the order of the inputs: the root
        mean square of the share of the inputs that noise may move an input past, by the epistemic part of
        the first measure. The rank correlation with endless members is then about
        ``1 - 6 tolerance**2``, 0.99 at 0.04, or above. ``scores.used`` says how many members each input
        had, of at most those of the posterior. Values are unbiased, since bias depends on that number, and
        lean on the members' spread where the posterior knows it. Needs ``order="batch"``; see "Draw fewer
        members" in the documentation.
    order
        ``"batch"``: all members for a batch, then the next one; memory is that of one batch. ``"member"``:
        the whole data set for a member, or for the few that fit in memory, then the next ones, for
        ensembles that do not fit together; memory is that of the moments of all inputs. The scores are
        the same.
    checkpoint
        A file that keeps what is done. The same call after a kill goes on from there; the file is removed
        at the end. It knows the inputs and the parameters of the models again, but not what functions do
        (``forward``, ``prepare``, networks that are loaded in turn): remove it if those change.
    every
        Seconds between two writes of the checkpoint.
    progress
        Show how far it has come, on a terminal.

    Returns
    -------
    Scores
        ``scores["pairwise"].epistemic`` and so on, with ``labels``, ``ids`` and ``predictions``.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> forest = RandomForestClassifier(50, random_state=0).fit(x[::2], y[::2])
    >>> scores = demur.score(demur.posteriors.Forest(forest, prior=1.0), [(x[1::2], y[1::2])])
    >>> scores["pairwise"].epistemic.shape, float(scores.correct.mean()) > 0.9
    ((75,), True)
    """
    unbiased = unbiased or tolerance is not None
    job = ScoringJob(as_posterior(posterior), loader, measures, rule, base, unbiased, stderr, tolerance)
    job.check(order)
    run = {"batch": _batch_by_batch, "member": _member_by_member}[order]
    settings = {} if checkpoint is None else job.settings(order)
    with preserve_random_state(), _shown(job, order, progress) as advance:
        return run(job, Checkpoint(checkpoint, settings, every), advance)


@dataclass
class ScoringJob:
    """What a run was asked for."""

    posterior: Posterior
    loader: Any
    measures: Sequence[str]
    rule: str
    base: float | None
    unbiased: bool
    stderr: bool
    tolerance: float | None = None
    groups: int | None = field(default=None, init=False)

    def check(self, order: str) -> None:
        """Raise before the work where what is asked for makes no sense."""
        if isinstance(self.measures, str) or not all(isinstance(name, str) for name in self.measures):
            raise TypeError(f"measures must be a list of names. Got {self.measures!r}.")
        self.measures = tuple(dict.fromkeys(self.measures))
        if not self.measures:
            raise ValueError("measures must have at least one name. Got none.")
        for measure in self.named(()).values():
            resolve(measure)
        check_base(self.base, resolve_rule(self.rule))
        if order not in ("batch", "member"):
            raise ValueError(f"order must be 'batch' or 'member'. Got {order!r}.")
        if not hasattr(self.loader, "__iter__"):
            raise TypeError(f"loader must be an iterable of batches. Got {type(self.loader).__name__}.")
        members = self.posterior.members
        if self.tolerance is not None:
            check_tolerance(self.tolerance, order=order, members=members)
        asked = {"stderr": self.stderr, "unbiased": self.unbiased, "order='member'": order == "member"}
        for name in (name for name, value in asked.items() if value and members is None):
            raise ValueError(f"{name} must know how many members there are. Give Samples(..., members=...).")
        if (self.stderr or self.unbiased) and members == 1:
            raise ValueError("A standard error or an unbiased value takes at least 2 members. Got 1.")
        if order == "member" and hasattr(self.loader, "__next__"):
            raise TypeError("order='member' takes a loader that can be gone through again. Got an iterator.")
        named = self.named(()).values()
        self.groups = count_groups(named, members or 0, unbiased=self.unbiased, stderr=self.stderr)
        if self.tolerance is not None:
            self.groups = min(ERROR_GROUPS, members or 0)

    def settings(self, order: str) -> dict[str, Any]:
        """Return what must be the same for a run to go on from a checkpoint."""
        chosen = {
            name: getattr(self.posterior, name, None) for name in ("members", "seed", "dropout", "prior")
        }
        names = ("measures", "rule", "base", "unbiased", "stderr", "tolerance")
        asked = {name: getattr(self, name) for name in names}
        own = {"posterior": type(self.posterior).__name__, "parameters": self.posterior.fingerprint()}
        return {"order": order, **own, **chosen, **asked}

    def moments(self) -> Moments:
        """Return empty sums."""
        return Moments(rule=self.rule, groups=self.groups)

    def named(self, given: Any) -> dict[str, str | Measure]:
        """Return the measures by name, with the deployed model's predictions where they are needed."""
        return {name: cell(name, given) if name in GIVEN else name for name in self.measures}

    def scores_of(self, summed: Any, logits: Any) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the columns of summed members; ``logits`` are the deployed model's, or None."""
        options = {"unbiased": self.unbiased, "stderr": self.stderr, "base": self.base}
        given = None if logits is None else parse_chunk(logits)[0]
        if given is not None and isinstance(summed, Moments) and not set(GIVEN).isdisjoint(self.measures):
            given = summed.beside(given)
        for name, values in score_columns(summed, self.named(given), **options):
            yield name, values if name != "prediction" else self.labelled(values)

    def logits(self, batch: InputBatch) -> Any:
        """Return what the deployed model predicts for a batch, or None where there is no such model."""
        found = self.posterior.deployed(batch.inputs)
        if found is None and any(name in GIVEN for name in self.measures):
            raise ValueError(
                f"measures {', '.join(GIVEN)} take a posterior with a deployed model. "
                f"{self.posterior!r} has none."
            )
        return found

    def deployed(self, logits: Any) -> np.ndarray | None:
        """Return the class that the deployed model predicts."""
        if logits is None or not hasattr(logits, "ndim"):
            return None
        return self.labelled(arrays.to_numpy(logits).argmax(-1))

    def labelled(self, columns: np.ndarray) -> np.ndarray:
        """Return the labels of columns of the predictions."""
        return columns if self.posterior.classes is None else np.asarray(self.posterior.classes)[columns]


class _HeldMembers:
    """Members of a batch whose average has to be integrated, so that sums are not enough."""

    def __init__(self, moments: Moments, chunks: list[tuple[Any, Any]], groups: int | None) -> None:
        self.rule, self.mean = moments.rule, moments.mean
        self._groups = groups
        predictions = [prediction for prediction, _ in chunks]
        self._whole = predictions[0].with_values(np.concatenate([each.values for each in predictions]))
        self._weights = None
        if any(weights is not None for _, weights in chunks):
            self._weights = np.concatenate([np.ones(len(p.values)) if w is None else w for p, w in chunks])

    def decompose(self, measure: str, *, unbiased: bool, stderr: bool, base: float | None) -> Decomposition:
        """Return the decomposition of each input's uncertainty."""
        return decompose(
            self._whole, measure=measure, weights=self._weights, unbiased=unbiased, stderr=stderr, base=base,
            groups=self._groups,
        )  # fmt: skip


def _batch_by_batch(job: ScoringJob, checkpoint: Checkpoint, advance: Callable[[], None]) -> Scores:
    """Ask all members for a batch, then go on to the next."""
    before = checkpoint.read()
    so_far = ScoresSoFar(before)
    stopping = None if job.tolerance is None else Stopping(job.tolerance, before)
    with preserve_generators(job.loader):
        for index, batch in enumerate(iterate_batches(job.loader)):
            if index < len(so_far.marks):
                so_far.check(index, batch)
            else:
                found = _summed_columns(job, batch) if stopping is None else _stopped(job, batch, stopping)
                so_far.add(batch, **found)
                if checkpoint.due():
                    checkpoint.write(so_far.arrays() | (stopping.arrays() if stopping else {}))
            advance()
    checkpoint.remove()
    return _finished(job, so_far)


def _summed_columns(job: ScoringJob, batch: InputBatch) -> dict[str, Any]:
    """Return the columns of one batch, how many members and classes it had, and the deployed prediction."""
    ask = job.posterior.hold(batch.inputs, position=batch.position)
    logits = job.logits(batch)
    step = job.posterior.tile or batch.size
    parts = [np.arange(i, min(i + step, batch.size)) for i in range(0, batch.size, step)]
    found = []
    for rows in parts:
        whole = len(rows) == batch.size
        given = logits if whole or not hasattr(logits, "ndim") else logits[rows]
        found.append(_summed_rows(job, ask(None, None if whole else rows), len(rows), given))
    columns = {name: np.concatenate([each[0][name] for each in found]) for name in found[0][0]}
    _, members, classes = found[0]
    return {"columns": columns, "members": members, "classes": classes, "deployed": job.deployed(logits)}


def _summed_rows(
    job: ScoringJob, chunks: Iterator[Any], inputs: int, logits: Any
) -> tuple[dict[str, np.ndarray], int, int]:
    """Return the columns of some inputs of a batch, and how many members and classes there were."""
    moments, held, members = job.moments(), [], 0
    for chunk in chunks:
        prediction, weights = check_chunk(chunk, inputs)
        moments.update(prediction, weights=weights)
        members += prediction.shape[0]
        rule = rule_for(prediction, resolve_rule(job.rule))
        if rule.integrates and any(needs_groups(resolve(each)) for each in job.named(()).values()):
            held.append((prediction, weights))
    if members == 0:
        raise ValueError(f"posterior must have members. Got none from {job.posterior!r}.")
    columns = dict(job.scores_of(_HeldMembers(moments, held, job.groups) if held else moments, logits))
    return columns, members, moments.shape[1]


def _stopped(job: ScoringJob, batch: InputBatch, stopping: Stopping) -> dict[str, Any]:
    """Do as ``_summed_columns``, and go on in rounds with the inputs that need more members."""
    members = job.posterior.members or 0
    ask = job.posterior.hold(batch.inputs, position=batch.position)
    active, moments = np.arange(batch.size), job.moments()
    known = job.posterior.spread(batch.inputs) if job.rule == "log" else None
    logits = job.logits(batch)
    spread = None if known is None else LogitSpread(logits, known, moments.groups or 1)
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
        steady = moments if spread is None else moments.scaled(spread.factors(active))
        found = steady.decompose(job.measures[0], unbiased=True, stderr=True)
        assert found.stderr is not None
        scores[active], errors[active] = found.epistemic, found.stderr.epistemic
        ends = (stopping.needed(scores, errors, used)[active] <= done) | (done == members)
        if ends.any():
            given = logits[active[ends]] if hasattr(logits, "ndim") else None
            for name, values in job.scores_of(steady.only(ends), given):
                whole = columns.setdefault(name, np.empty((batch.size, *values.shape[1:]), values.dtype))
                whole[active[ends]] = values
            classes = moments.shape[1]
            active = active[~ends]
            moments = moments.only(~ends)
    stopping.finish(scores, errors, used)
    columns["members"] = used.astype(int)
    beside = {"members": members, "classes": classes, "deployed": job.deployed(logits)}
    return {"columns": columns, **beside}


def _member_by_member(job: ScoringJob, checkpoint: Checkpoint, advance: Callable[[], None]) -> Scores:
    """Ask a few members for the whole data set, then go on to the next."""
    before = checkpoint.read()
    moments, done, marks = [], 0, None
    if before and checkpoint.path is not None:
        done, marks = int(before["done"]), before["marks"].tolist()
        moments = [unpack_moments(before[f"moments {i}"], checkpoint.path) for i in range(len(marks))]
    so_far, members, logits = ScoresSoFar({}), job.posterior.members or 0, []
    for start in range(done, members, job.posterior.together):
        run, seen = range(start, min(start + job.posterior.together, members)), []
        # Each pass starts from the same random state, so that a loader that shuffles does so alike.
        with preserve_random_state(), preserve_generators(job.loader):
            for index, batch in enumerate(iterate_batches(job.loader)):
                seen.append(batch.mark)
                if marks is not None and (len(seen) > len(marks) or marks[index] != batch.mark):
                    raise ValueError(f"{_DIFFERS} Got others at input {batch.position}. {_ADVICE}")
                if start == done:
                    logits.append(job.logits(batch))
                    so_far.add(batch, columns={}, deployed=job.deployed(logits[-1]))
                if marks is None:
                    moments.append(job.moments())
                for chunk in job.posterior.predict(batch.inputs, members=run, position=batch.position):
                    prediction, weights = check_chunk(chunk, batch.size)
                    moments[index].update(prediction, weights=weights)
                advance()
        if marks is not None and len(seen) != len(marks):
            raise ValueError(f"{_DIFFERS} Got {len(seen)} batches, not {len(marks)}. {_ADVICE}")
        marks = seen
        if checkpoint.due() and checkpoint.path is not None and run.stop < members:
            kept = {f"moments {i}": pack_moments(each, checkpoint.path) for i, each in enumerate(moments)}
            checkpoint.write({**kept, "done": np.array(run.stop), "marks": np.array(marks)})
    for each, given in zip(moments, logits, strict=True):
        for name, values in job.scores_of(each, given):
            so_far.columns.setdefault(name, []).append(values)
    so_far.members, so_far.classes = members, moments[0].shape[1]
    checkpoint.remove()
    return _finished(job, so_far)


_DIFFERS = "loader must bring the same batches in each pass."
_ADVICE = "Switch off shuffling and random augmentation."


def check_chunk(chunk: Any, inputs: int) -> tuple[Any, Any]:
    """Return predictions and weights of a chunk; raise unless they are for so many inputs."""
    prediction, weights = parse_chunk(chunk)
    if len(prediction.shape) != 3 or prediction.shape[1] != inputs:
        raise ValueError(
            f"A posterior must predict (members, inputs, classes), of {inputs} inputs. "
            f"Got {tuple(prediction.shape)}."
        )
    return prediction, weights


def _finished(job: ScoringJob, so_far: ScoresSoFar) -> Scores:
    """Put the batches together."""
    return so_far.whole(job.measures, rule=job.rule, base=job.base, unbiased=job.unbiased)


@contextlib.contextmanager
def _shown(job: ScoringJob, order: str, progress: bool) -> Iterator[Callable[[], None]]:
    """Count batches, on a terminal where the user wants it."""
    passes = math.ceil((job.posterior.members or 1) / job.posterior.together) if order == "member" else 1
    try:
        batches = (
            math.ceil(len(job.loader) / ARRAY_BATCH_SIZE) if hasattr(job.loader, "shape") else len(job.loader)
        )
    except TypeError:  # a loader that does not know how long it is
        batches = None
    done = 0
    with progress_bar(None if batches is None else batches * passes, "batches", hidden=not progress) as show:

        def advance() -> None:
            nonlocal done
            done += 1
            show(done)

        yield advance
