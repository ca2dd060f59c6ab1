"""Credal sets: the highest and the lowest entropy that the members leave possible."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from demur import kernels
from demur.core import arrays
from demur.core.arrays import ArrayLike
from demur.core.probabilities import softmax
from demur.core.rules import Array, describe_unknown, resolve_rule
from demur.credal.hull import highest_entropy_weights, mix
from demur.credal.intervals import Search, highest_entropy_point, lowest_entropy_point, search_for
from demur.decompose import to_batch_shape
from demur.measures import check_base
from demur.predictions import Categorical, Members, Prediction, choose_members_axis, gather
from demur.progress import progress_bar

PROBABILITIES_AT_ONCE = 1 << 18  # probabilities worked on at a time
PROBABILITIES_FOR_A_BAR = 1 << 26  # probabilities from which a bar on the terminal is worth its lines

SETS = ("hull", "intervals")

_Progress = Callable[[int], object]


@dataclass(frozen=True, eq=False)
class Credal:
    """Upper and lower entropy of the credal set of each input.

    Attributes
    ----------
    upper, lower
        Highest and lowest entropy found in the set, in nats unless a base was given. Shaped like the batch.
    difference
        ``upper - lower``: how much of the uncertainty is lack of knowledge. 0 for identical members.
    gap
        A certified bound on what the search may have missed: the true difference is between ``difference``
        and ``difference + gap``. In the hull the upper entropy may be higher by that much, within intervals
        the lower entropy may be lower; the other end is exact.
    length
        For two classes, the length of the interval of probabilities; None for more, where the members have no
        volume that would mean as much.
    """

    upper: Array
    lower: Array
    difference: Array
    gap: Array
    length: Array | None

    def to_dict(self) -> dict[str, Array]:
        """Return the parts by name, without a length that is None."""
        parts = {name: getattr(self, name) for name in ("upper", "lower", "difference", "gap", "length")}
        return {name: part for name, part in parts.items() if part is not None}


class Ends(NamedTuple):
    """Both ends of the entropy of each input, and what the search for one of them may have missed."""

    upper: np.ndarray
    lower: np.ndarray
    gap: np.ndarray


def credal(
    probs: ArrayLike | Prediction | None = None,
    /,
    *,
    logits: ArrayLike | None = None,
    log_probs: ArrayLike | None = None,
    set: str = "hull",
    base: float | None = None,
    axis: int = 0,
    progress: bool | _Progress = True,
    class_axis: int = -1,
    member_axis: int | None = None,
) -> Credal:
    r"""Return the highest and the lowest entropy in the credal set that the members span.

    A credal set holds every distribution that is considered possible, none more probable than another.
    Of members :math:`p_i` it is their convex hull, :math:`\{\sum_i w_i p_i\}`, or all distributions between
    the lowest and the highest probability that a member gives to each class. The upper entropy stands for
    the total, the lower one for the aleatoric, their difference for the epistemic uncertainty (Abellán,
    Klir and Moral, 2006).

    Parameters
    ----------
    probs, logits, log_probs
        Exactly one of them: predictions of members, shape (members, ..., classes), as for ``decompose``.
        Members have no weights here. Arrays of PyTorch and JAX are computed with NumPy, without gradients.
    set
        ``"hull"``: lower entropy exact, upper entropy by concave maximisation with a duality gap.
        ``"intervals"``: upper entropy exact, lower entropy by branch and bound with a bound.
    base
        None for nats, 2 for bits.
    axis, member_axis, class_axis
        Where the members and the classes are, as for ``decompose``.
    progress
        True: show a bar on a terminal if there is much to do, and nothing in a pipe. Or a function that is
        called with the number of inputs done.

    Returns
    -------
    Credal
        Each part is shaped like the batch, in the library of the predictions. All are finite.

    Examples
    --------
    Two members that contradict each other allow everything between them:

    >>> c = demur.credal(np.array([[[0.9, 0.1]], [[0.2, 0.8]]]), base=2)
    >>> c.upper.round(4), c.lower.round(4), c.length
    (array([1.]), array([0.469]), array([0.7]))
    """
    given = Categorical(probs, logits=logits, log_probs=log_probs)
    members = gather(given, None, choose_members_axis(axis, member_axis), class_axis)
    if arrays.is_traced(members.prediction.values):
        raise TypeError("credal computes with NumPy. Got an array that JAX traces. Call it outside of jit.")
    if set not in SETS:
        raise ValueError(describe_unknown("set", set, list(SETS)))
    if not isinstance(progress, bool) and not callable(progress):
        raise ValueError(f"progress must be True, False or a function. Got {progress!r}.")
    scale = check_base(base, resolve_rule("log"))
    ends_of = _hull_ends
    if set == "intervals":
        ends_of = functools.partial(_interval_ends, search_for(members.inputs * members.classes))
    ends = np.empty((3, members.inputs))
    length = np.empty(members.inputs) if members.classes == 2 else None

    here = Members(members.prediction.on_host(), None, members.batch, members.places)
    with _counter(members, progress) as count:

        def share(bounds: tuple[int, int]) -> None:
            part = here.part(*bounds)
            for begin, end in part.parts(PROBABILITIES_AT_ONCE):
                p = probabilities(part.part(begin, end))
                where = slice(bounds[0] + begin, bounds[0] + end)
                ends[:, where] = ends_of(p)
                if length is not None:
                    length[where] = _interval_length(p)
                count(end - begin)

        kernels.in_parallel(share, members.inputs, members.size)

    upper, lower, gap = ends
    return Credal(
        to_batch_shape(upper, members, scale),
        to_batch_shape(lower, members, scale),
        to_batch_shape(upper - lower, members, scale),
        to_batch_shape(gap, members, scale),
        None if length is None else to_batch_shape(length, members, 1.0),
    )


def _hull_ends(p: np.ndarray) -> Ends:
    """Return the ends of the entropy in the convex hull of members (inputs, members, classes)."""
    own = entropy(p)
    weights, gap = highest_entropy_weights(p, own.min(axis=1))
    mixture = mix(weights, p)
    # What all members agree on is theirs to the last digit: identical ones have a difference of exactly 0.
    mixture = np.where(p.min(axis=1) == p.max(axis=1), p[:, 0], mixture)
    return Ends(np.maximum(entropy(mixture), own.max(axis=1)), own.min(axis=1), gap)


def _interval_ends(search: Search, p: np.ndarray) -> Ends:
    """Return the ends of the entropy within the intervals of members (inputs, members, classes)."""
    low, high = p.min(axis=1), p.max(axis=1)
    point, gap = lowest_entropy_point(low, high, search)
    level, corner = entropy(highest_entropy_point(low, high)), entropy(point)
    # Both are of the set, and where nearly all of it is settled rounding may put them the other way round.
    return Ends(np.maximum(level, corner), np.minimum(level, corner), gap)


def entropy(p: np.ndarray) -> np.ndarray:
    """Return the entropy of probabilities, over the last axis."""
    with np.errstate(divide="ignore"):
        return resolve_rule("log").entropy(np, np.log(p))


def _interval_length(p: np.ndarray) -> np.ndarray:
    """Return by how much the probability of two classes varies: of the rarer one, which has more digits."""
    low, high = p.min(axis=1), p.max(axis=1)
    return np.where(high[:, 0] < high[:, 1], high[:, 0] - low[:, 0], high[:, 1] - low[:, 1])


def probabilities(members: Members) -> np.ndarray:
    """Return checked probabilities in float64, (inputs, members, classes)."""
    values = arrays.widened(members.prediction.values)
    members.prediction._check(np, values, None, members.places)
    known = members.prediction.kind == "probs"
    p = values / values.sum(axis=-1, keepdims=True) if known else softmax(np, values)
    return np.ascontiguousarray(p.swapaxes(0, 1))


@contextlib.contextmanager
def _counter(members: Members, progress: bool | _Progress) -> Iterator[_Progress]:
    """Yield a function that threads call with the number of further inputs that are done."""
    shown = (
        progress_bar(members.inputs, "inputs")
        if progress is True and members.size >= PROBABILITIES_FOR_A_BAR
        else None
    )
    with shown or contextlib.nullcontext(progress if callable(progress) else lambda done: None) as report:
        lock, done = threading.Lock(), 0

        def count(more: int) -> None:
            nonlocal done
            with lock:
                done += more
                report(done)

        yield count
