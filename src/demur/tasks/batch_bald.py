"""BatchBALD: the batch of inputs whose labels together would tell most about the members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from demur.decompose import decompose
from demur.predictions import Categorical, gather
from demur.tasks.acquire import find_unlabelled, rank_free
from demur.tasks.estimate import generator

_PROBABILITIES_AT_ONCE = 1 << 17  # probabilities of configurations held at a time


class Batch(NamedTuple):
    """Inputs to label together, in the order they were picked, and what they tell together.

    Attributes
    ----------
    indices : (k,) array of int
        The inputs.
    information : (k,) array
        Joint mutual information, in nats, of the labels of the first one, the first two, ...
    """

    indices: np.ndarray
    information: np.ndarray


def batch_bald(
    probs: Any = None,
    /,
    *,
    k: int,
    logits: Any = None,
    log_probs: Any = None,
    weights: Any = None,
    labelled: Any = None,
    configurations: int = 4096,
    seed: int = 0,
) -> Batch:
    r"""Return k inputs whose labels together have much mutual information with the member.

    One input after the other is added, each time that with the largest

    .. math:: I(y_x; i \mid y_B) = \sum_{y_B} p(y_B) \Big[ H\Big(\sum_i p(i \mid y_B) \, p_i(y_x)\Big)
              - \sum_i p(i \mid y_B) \, H(p_i(y_x)) \Big]

    where B are those picked before. It is what one more label tells, once those of B are known, so copies of
    an input add little. Kirsch, van Amersfoort and Gal (2019), section 3. The sum is exact while
    all labels of B have at most ``configurations`` combinations; then as many are drawn from :math:`p(y_B)`,
    which gives the paper's Monte Carlo estimate. The gains of an input fall as B grows, so most
    inputs need not be looked at again (Minoux, 1978).

    With k = 1 it is the input with the largest epistemic part of ``decompose(measure="average")``.

    .. warning:: M members tell no more than log M nats in all. Once ``information`` is close to it, further
       inputs are picked by chance: take more members, or a smaller k.

    Parameters
    ----------
    probs, logits, log_probs
        Exactly one of them: predictions of members, shape (members, inputs, classes).
    k : int
        How many inputs.
    weights
        Shape (members,); None: all the same.
    labelled, seed
        As for ``acquire``; the seed is also that of the drawn combinations.
    configurations : int
        How many combinations of labels are held. Twice as many take twice as long.

    Returns
    -------
    Batch
        `indices` in the order picked, and `information`.

    Examples
    --------
    >>> p = np.array([[[0.9, 0.1], [0.9, 0.1], [0.2, 0.8]], [[0.1, 0.9], [0.1, 0.9], [0.2, 0.8]],
    ...               [[0.5, 0.5], [0.5, 0.5], [0.9, 0.1]]])     # the first two inputs are the same
    >>> found = demur.tasks.batch_bald(p, k=2)
    >>> sorted(found.indices.tolist()), found.information.round(3)
    ([0, 2], array([0.245, 0.488]))
    """
    prediction = Categorical(probs, logits=logits, log_probs=log_probs).on_host()
    if len(prediction.shape) != 3:
        raise ValueError(
            f"{prediction.kind} must have shape (members, inputs, classes). Got {prediction.shape}."
        )
    if weights is not None and np.ndim(weights) != 1:
        raise ValueError(
            f"weights must have shape ({prediction.shape[0]},), one a member. Got {np.shape(weights)}."
        )
    if isinstance(configurations, bool) or not isinstance(configurations, int) or configurations < 1:
        raise ValueError(f"configurations must be a positive integer. Got {configurations!r}.")
    members = gather(prediction, weights, 0)
    free = find_unlabelled(members.inputs, labelled, k)
    rng = generator(seed)
    chance = rng.permutation(members.inputs)
    gains = np.asarray(decompose(prediction, measure="average", weights=weights).epistemic, dtype=np.float64)
    prior = np.ones(members.count) if members.weights is None else members.weights[:, 0]
    joint = Joint.of(members.logits()[prior > 0], prior[prior > 0] / prior.sum(), configurations, rng)
    picked: list[int] = []
    told: list[float] = []
    for _ in range(k):
        if picked:
            joint.add(picked[-1])
            joint.refresh(gains, free)
        best = int(rank_free(free, gains, chance)[0])
        free[best] = False
        picked.append(best)
        told.append(float(gains[best]))
    return Batch(np.array(picked), np.cumsum(told))


@dataclass
class Joint:
    """Labels of the inputs picked so far: combinations, and what each says about the member.

    Parameters
    ----------
    log_probs : (members, inputs, classes)
    probs : (members, inputs, classes)
    entropies : (members, inputs)
        Entropy of each prediction.
    prior : (members,)
        Weights, which sum to 1.
    logs : (configurations, members)
        Log of the probability of member and labels together, in the exact case; of labels given the member,
        and prior, in the other.
    drawn : (configurations,) or None
        The member that each combination was drawn from; None while all of them are there.
    """

    log_probs: np.ndarray
    probs: np.ndarray
    entropies: np.ndarray
    prior: np.ndarray
    logs: np.ndarray
    limit: int
    rng: np.random.Generator
    picked: list[int]
    drawn: np.ndarray | None = None

    @classmethod
    def of(cls, logits: np.ndarray, prior: np.ndarray, limit: int, rng: np.random.Generator) -> Joint:
        """Return the joint distribution of no labels."""
        from scipy.special import entr, log_softmax

        logs = log_softmax(logits, axis=-1)
        probs = np.exp(logs)
        return cls(logs, probs, entr(probs).sum(-1), prior, np.log(prior)[None], limit, rng, [])

    def add(self, place: int) -> None:
        """Take in the label of one more input."""
        self.picked.append(place)
        if self.drawn is None:
            more = (self.logs[:, None] + self.log_probs[:, place].T).reshape(-1, len(self.prior))
            more = more[(more > -np.inf).any(axis=1)]  # combinations that some member allows
            if len(more) <= self.limit:
                self.logs = more
                return
            # As many from each member as its weight says, so that only the labels are left to chance.
            places = (np.arange(self.limit) + self.rng.uniform()) / self.limit
            self.drawn = np.searchsorted(np.cumsum(self.prior)[:-1], places, side="right")
            self.logs = np.broadcast_to(np.log(self.prior), (self.limit, len(self.prior)))
            new = self.picked
        else:
            new = [place]
        for each in new:
            self.logs = self.logs + self.draw(each)

    def draw(self, place: int) -> np.ndarray:
        """Draw a label of an input for each combination; return its log-probability under all members."""
        assert self.drawn is not None
        steps = np.cumsum(self.probs[:, place], axis=1)[self.drawn]
        labels = np.argmax(steps > self.rng.uniform(size=(len(steps), 1)) * steps[:, -1:], axis=1)
        return self.log_probs[:, place, labels].T

    def refresh(self, gains: np.ndarray, free: np.ndarray) -> None:
        """Bring gains up to date where that may change which one is largest; others stay upper bounds."""
        from scipy.special import logsumexp

        # Sure members draw the same labels again and again: each combination is looked at once.
        logs, counts = np.unique(self.logs, axis=0, return_counts=True)
        whole = np.asarray(logsumexp(logs, axis=1, keepdims=True))
        member = np.exp(logs - whole)  # p(i | y_B), a row for each combination
        share = counts * np.exp(whole[:, 0]) if self.drawn is None else counts / len(self.logs)
        average = share @ member
        classes = self.probs.shape[2]
        step = max(1, _PROBABILITIES_AT_ONCE // (len(member) * classes))
        order = np.flatnonzero(free)
        order = order[np.argsort(-gains[order], kind="stable")]
        best = 0.0
        for begin in range(0, len(order), step):
            some = order[begin : begin + step]
            some = some[gains[some] >= best] if best else some[gains[some] > 0]
            if not len(some):
                return
            mixed = member @ self.probs[:, some].reshape(len(self.prior), -1)
            mixed *= np.log(mixed + (mixed == 0))  # where 0: 0 times the log of 1
            entropy = -(share @ mixed).reshape(len(some), classes).sum(axis=1)
            gains[some] = entropy - average @ self.entropies[:, some]
            best = max(best, float(gains[some].max()))
