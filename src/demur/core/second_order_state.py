"""The state of infinitely many members that a distribution over predictions describes."""

from __future__ import annotations

import functools
from dataclasses import replace

from demur import kernels
from demur.core import arrays, plain_arrays
from demur.core.rules import Rule
from demur.core.state import SUMS, State
from demur.predictions import Deltas, Members, Mixture, SecondOrder


def state_of_distribution(prediction: SecondOrder, rule: Rule, stays: bool | None = None) -> State:
    """Return the state of a distribution, of weight 1: as if all of its members had been summed."""
    stays = prediction._stays if stays is None else stays
    if isinstance(prediction, Mixture):
        parts = zip(prediction.components, prediction.weights.tolist(), strict=True)
        states = [
            _scale(state_of_distribution(each, rule, stays), share) for each, share in parts if share > 0
        ]
        return functools.reduce(State.merge, states)
    if isinstance(prediction, Deltas):
        return _points_state(prediction._as_members(stays), rule, stays)
    spread = prediction._expectations(rule.name, stays)
    classes = prediction.shape[-1]
    xp = arrays.namespace(spread.log_mean)
    log_mean, *sums = (xp.reshape(each, (1, -1, classes)) for each in spread[:-1])
    entropy = xp.reshape(spread.entropy, (1, -1))
    ones = xp.ones_like(entropy)
    named = dict(zip(SUMS, (xp.zeros_like(log_mean), *sums), strict=True))
    return State(
        rule, xp, rule.reference(xp, log_mean[0]), **named, excluded=None, allowed=None, p=None,
        entropy=entropy, weight=ones, pair_weight=ones, heaviest=ones[0], count=ones[0],
    )  # fmt: skip


def _points_state(members: Members, rule: Rule, stays: bool) -> State:
    """Return the state of points, which stay in their own library where the rest of a mixture does."""
    if not stays or members.stays:
        return kernels.state_of(members, rule, 1)
    logits, weights = members.prediction.values, members.weights
    weights = None if weights is None else arrays.matching(weights, logits)
    return plain_arrays.state_of(arrays.namespace(logits), logits, weights, rule, 1, None)


def _scale(state: State, share: float) -> State:
    """Return the state scaled to another total weight."""
    whole = state.total("weight")
    factor = share / whole
    changed = {
        name: None if sums is None else sums * factor[..., None]
        for name, sums in ((name, getattr(state, name)) for name in (*SUMS, "excluded", "allowed"))
    }
    return replace(
        state,
        **changed,
        entropy=state.entropy * factor,
        weight=state.weight * factor,
        pair_weight=state.pair_weight * factor * factor,
        heaviest=state.heaviest * factor,
    )
