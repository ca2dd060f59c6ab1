"""`demur.score`: a posterior and a loader in, the scores of each input out."""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from demur.core.rounding import hold_warnings, warn_of
from demur.measures import Measure
from demur.posteriors.networks import preserve_random_state
from demur.posteriors.one_pass.detector import Detector
from demur.posteriors.posterior import Posterior
from demur.progress import progress_bar
from demur.scoring.batch_parts import Unpack, count_rows
from demur.scoring.batches import ARRAY_BATCH_SIZE, is_whole
from demur.scoring.by_batch import score_by_batch
from demur.scoring.by_member import score_by_member
from demur.scoring.checkpoint import Checkpoint
from demur.scoring.dense import Reduce, make_dense
from demur.scoring.job import ScoringJob, make_job
from demur.scoring.score_table import DEFAULT_MEASURES
from demur.scoring.scores import Scores

if TYPE_CHECKING:
    from demur.cluster.settings import Cluster

_ADVICE = (
    "Let the posterior return logits, not probabilities; or give rounding='dtype', or a half-width (5e-7 for "
    "six decimals), for the least value that fits; or rank by the 'average' measure, which is always finite. "
    "rounding=0 says that the numbers are exact."
)


def score(
    posterior: Any,
    loader: Iterable[Any],
    *,
    measures: Sequence[str] | Mapping[str, str | Measure] = DEFAULT_MEASURES,
    rule: str = "log",
    base: float | None = None,
    unbiased: bool = False,
    stderr: bool = False,
    rounding: float | str | None = None,
    tolerance: float | None = None,
    unpack: Unpack | None = None,
    classes: Sequence[Any] | None = None,
    columns: Sequence[Detector] = (),
    class_axis: int | None = None,
    reduce: Reduce = "mean",
    maps: str | os.PathLike[str] | None = None,
    order: Literal["batch", "member"] = "batch",
    checkpoint: str | os.PathLike[str] | None = None,
    every: float = 30.0,
    cluster: str | Cluster | None = None,
    progress: bool = True,
) -> Scores:
    """Score each input of a data set by the disagreement of a posterior's members.

    Predictions are summed as they come and never held all at once. The models, with their modes, statistics
    and gradients, and all random generators are left as they were, also after an error.

    Parameters
    ----------
    posterior
        One of ``demur.posteriors``; a list of PyTorch networks, or of fitted classifiers or regressors; a
        fitted forest, or a bagging, voting, stacking or calibrated ensemble of scikit-learn, also inside a
        search or at the end of a ``Pipeline``; a model of CatBoost, LightGBM or XGBoost; or a callable that
        returns predictions.
    loader
        A ``DataLoader``, or any iterable of batches: inputs, (inputs, labels), (inputs, labels, ids), or
        mappings, in which the names ``labels`` and ``ids`` stand for just that. Or one array of inputs. Or a
        DataFrame of pandas or polars, whose columns ``label`` and ``id`` are taken out; without a column of
        ids, an index of pandas that does not just count the rows takes its place.
    measures, rule, base, unbiased, stderr
        As for ``demur.decompose``, with several measures from one pass. Also ``"A1"``, ``"A2"``, ``"A3"``,
        ``"B1"`` and ``"C1"``, the cells of the table of measures with a given model: here the deployed one.
        Or a mapping from column names to measures of your own, as ``demur.Measure``; a given side is then
        a function from the inputs of a batch to predictions.
        Standard errors leave out one member at a time; with more than 64 members, one of 64 groups.
    rounding
        As for ``demur.decompose``, for posteriors that return probabilities: how far each may be off. All
        members' probabilities of a batch are then held at once, so that it needs ``order="batch"``.
    tolerance
        Stop drawing members for an input once more of them would hardly change the ranking of the inputs by
        the epistemic part of the first measure. The tolerance is the root mean square error of an input's
        rank, as a share of the inputs. The rank correlation with infinitely many members is then at least
        about ``1 - 6 tolerance**2``, which is 0.99 at 0.04. ``scores.used`` has the number of members of each
        input, at most those of the posterior. Scores are unbiased, since the bias depends on that number, and
        use the members' known spread where the posterior has it. Needs ``order="batch"``; see "Draw fewer
        members" in the documentation.
    unpack
        How to open batches of another kind. A function from a batch to (inputs, labels, ids, size), with None
        for what it does not have. Or a mapping from ``"inputs"``, ``"labels"``, ``"ids"`` and ``"size"`` to
        the names, or places, of these in the batch: ``{"labels": "y", "size": "num_graphs"}`` for batches of
        PyTorch Geometric. Without ``"inputs"``, the model gets the batch itself; ``"axis"`` in place of
        ``"size"`` is the inputs' own axis of an array, as 1 for (time, inputs, features).
    classes
        The label of each column of the predictions, where labels are not 0, 1, 2, ... and the posterior does
        not know them.
    columns
        Scores that need no members, from ``demur.posteriors.one_pass``: one more column for each, named after
        it. A network that several of them use, or that is a ``LastLayer``'s too, runs once per batch.
    class_axis
        For predictions of every pixel: where they have their classes, 2 for (members, inputs, classes,
        height, width). Scores are then one number per image, of the map of its pixels. Where labels are of
        pixels, too, the column ``accuracy`` has the share that the average predicts right; labels that are no
        class do not count. In memory are the predictions of one image by all members.
    reduce
        With ``class_axis``, how the map of an image becomes its score: ``"mean"``, ``"max"``, a quantile from
        0 to 1, or a function from a map (height, width) to a number.
    maps
        With ``class_axis``, where to keep the maps: a path or URL that ends in ``.zarr``. It gets arrays
        (inputs, height, width) named as the columns of scores, ``prediction``, and ``label`` where labels are
        of pixels; see ``demur.stores.open_maps``. All images must have one size.
    order
        ``"batch"``: all members predict one batch, then the next; this needs the memory of one batch.
        ``"member"``: one member, or the few that fit in memory, predict the whole data set, then the next;
        this needs the memory of the moments of all inputs, and suits ensembles that do not fit in memory
        together. The scores are the same.
    checkpoint
        A file for the work done so far. After an interruption, the same call resumes from it; it is removed
        at the end. A checkpoint of other inputs or models is refused, but changes of functions (``forward``,
        ``prepare``, functions that load networks) go unnoticed: remove the file if those change.
    every
        Seconds between writes of the checkpoint.
    cluster
        Run on Ray: ``"local"``, ``"auto"``, ``"ray://host:port"``, or a ``demur.cluster.Cluster``; None: in
        this process. The loader may then be a ``ray.data.Dataset``, too, and a checkpoint is a folder that
        all machines see, with a file for each finished block. See "Scale" in the documentation.
    progress
        Show a progress bar, on a terminal or in a notebook.

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
    >>> scores = demur.score(forest, [(x[1::2], y[1::2])], measures=["average"])
    >>> scores["average"].epistemic.shape, float(scores.correct.mean()) > 0.9
    ((75,), True)
    """
    if cluster is not None:
        from demur.cluster.jobs import prepare_loader

        loader = prepare_loader(loader, cluster)
    elif type(loader).__module__.startswith("ray.data."):
        raise ValueError(
            "A ray.data.Dataset is scored on a cluster. Got no cluster=. Give cluster='auto', or 'local'."
        )
    job = make_job(
        posterior, loader, measures=measures, rule=rule, base=base, unbiased=unbiased, stderr=stderr,
        tolerance=tolerance, unpack=unpack, classes=classes, rounding=rounding, columns=columns,
        dense=make_dense(class_axis, reduce, maps),
    )  # fmt: skip
    job.check(order)
    with preserve_random_state(), _show_progress(job, order, progress) as advance, hold_warnings() as held:
        if cluster is not None:
            from demur.cluster.jobs import score_on_cluster

            so_far = score_on_cluster(
                job, cluster, order=order, checkpoint=checkpoint, advance=advance, say=progress
            )
        else:
            file = Checkpoint(checkpoint, {} if checkpoint is None else job.settings(order), every)
            so_far = {"batch": score_by_batch, "member": score_by_member}[order](job, file, advance)
            if job.dense is not None:
                job.dense.finish(so_far.inputs)
            file.remove()
    scores = so_far.finish(job.measures, rule=job.rule, base=job.base, unbiased=job.unbiased)
    if held.any:
        warn_of(scores.table.count_infinite(), len(scores), advice=_ADVICE, stacklevel=3)
    _warn_of_infinity(scores, job.posterior)
    return scores


def _warn_of_infinity(scores: Scores, posterior: Posterior) -> None:
    """Say once how many inputs have an infinite epistemic part, where the posterior knows the reason."""
    infinite = np.zeros(len(scores), bool)
    for name in scores.table.measures:
        infinite |= np.isinf(scores[name].epistemic)
    if infinite.any() and posterior.infinity_advice is not None:
        warnings.warn(
            f"The epistemic part is infinite for {infinite.sum()} of {len(scores)} inputs: "
            f"{posterior.infinity_advice}",
            stacklevel=3,
        )


@contextlib.contextmanager
def _show_progress(job: ScoringJob, order: str, progress: bool) -> Iterator[Callable[[], None]]:
    """Show a progress bar; yields what is called after each batch."""
    passes = math.ceil((job.posterior.members or 1) / job.posterior.together) if order == "member" else 1
    try:
        batches = (
            math.ceil(count_rows(job.loader) / ARRAY_BATCH_SIZE) if is_whole(job.loader) else len(job.loader)
        )
    except TypeError:  # the loader has no length
        batches = None
    done = 0
    with progress_bar(None if batches is None else batches * passes, "batches", hidden=not progress) as show:

        def advance() -> None:
            nonlocal done
            done += 1
            show(done)

        yield advance
