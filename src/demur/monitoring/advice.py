"""What to do when a promise does not hold: a stricter threshold that new audits support, or none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

import numpy as np

from demur.deferral import Deferral
from demur.monitoring.stream import MISSING, RIGHT, AuditedInput
from demur.tasks.betting import accuracy_factors, average_capital
from demur.tasks.guarantees import Threshold, write_threshold

_SHARES_KEPT = np.linspace(0.3, 1, 15)
"""Of what was kept before, the shares that stricter thresholds would have kept; tested in this order."""
_FEWEST_BEFORE = 20


@dataclass(frozen=True)
class Recommendation:
    """What to do with a policy.

    Parameters
    ----------
    action : "keep", "stricter" or "withdraw"
        Go on as before, with a stricter threshold, or defer everything (of some groups, where there are any).
    policy : Deferral
        The policy to use from now on.
    since : int or None
        The audits of inputs from this one on support it (of groups, the first start; the text has each);
        None where it is the policy as it was.
    text : str
        All that in words.
    """

    action: str
    policy: Deferral
    since: int | None
    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.text)}</pre>"


def keep(policy: Deferral) -> Recommendation:
    """Return the advice where there is no alarm."""
    return Recommendation("keep", policy, None, "Keep the policy: no evidence that its promise is broken.")


def recommend(
    policy: Deferral,
    inputs: Mapping[str, Sequence[AuditedInput]],
    least: float,
    confidence: float,
    starts: Mapping[str, int],
) -> Recommendation:
    """Return the advice for groups, from their audited inputs before and since the start of each."""
    thresholds, lines, actions = dict(policy.thresholds), [], []
    for name, audited in inputs.items():
        action, threshold, text = _advise_group(
            policy.thresholds[name], audited, least, confidence, starts[name]
        )
        thresholds[name] = threshold
        actions.append(action)
        lines.append((f"Group {name}: " if name else "") + text)
    action = next(each for each in ("withdraw", "stricter", "keep") if each in actions)
    promises = [t.promise for t in thresholds.values() if t.promise is not None]
    if action == "keep":
        return Recommendation(action, policy, min(starts.values()), "\n".join(lines))
    new = replace(policy, goal="accuracy", target=min(promises), thresholds=thresholds)
    old = [name for name, t in thresholds.items() if t.value is not None and t is policy.thresholds[name]]
    if old:  # Of groups that stay as they are, the promise is still that of their fit.
        new = replace(new, confidence=min(confidence, policy.confidence))
    else:
        new = replace(new, confidence=confidence, clusters=None, weights=None)
    return Recommendation(action, new, min(starts.values()), "\n".join(lines))


def _advise_group(
    threshold: Threshold, audited: Sequence[AuditedInput], least: float, confidence: float, since: int
) -> tuple[str, Threshold, str]:
    """Return action, threshold and words for one group.

    Thresholds are quantiles of scores before `since`, so no label from there on chose them. The first, at
    30 % of what was kept, must be shown to have the accuracy before the next one is tried, and so on: among
    those that do not have it, only the first is ever tested, and it passes with probability at most
    1 - confidence, however often this is asked.
    """
    assert threshold.promise is not None
    assert threshold.value is not None
    before = np.array([each.score for each in audited if each.place < since])
    after = _end_at_last_label([each for each in audited if each.place >= since])
    scores = np.array([each.score for each in after])
    right = np.array([each.outcome == RIGHT for each in after], bool)  # without a label: as if wrong
    share = np.array([least / each.probability for each in after])
    found: tuple[float, int, int] | None = None
    candidates = _list_candidates(before, threshold.value)
    for value in candidates:
        own = scores <= value
        if not own.any():
            break
        factors = accuracy_factors(1 - threshold.promise, share[own])
        capital = average_capital(np.log(np.where(right[own][:, None], *factors)))[-1]
        if capital < -math.log(1 - confidence):
            break
        found = (value, int(own.sum()), int(right[own].sum()))
    seen = f"{len(after):,} inputs audited since input {since:,}"
    if found is None:
        why = f"the {seen} do not support any threshold yet"
        if not candidates:
            why = f"only {len(before)} inputs were audited before input {since:,}, too few to choose from"
        missing = sum(each.outcome == MISSING for each in after)
        if missing:
            why += f" ({missing:,} of them have no label and count as wrong)"
        text = f"Withdraw (defer all): {why}. Keep auditing what the policy would keep, and ask again."
        return "withdraw", replace(threshold, value=None, kept=0, number=max(len(after), 1), right=0), text
    value, kept, hits = found
    new = Threshold(value, kept, len(after), hits, threshold.promise)
    promise = (
        f"On inputs like the {seen}, accuracy of the kept is then at least {threshold.promise:.4g}, with "
        f"confidence {confidence:.4g}."
    )
    if value == candidates[-1]:
        return "keep", threshold, f"Keep the threshold. {promise}"
    text = f"Defer scores above {write_threshold(value, digits=6)}. {promise} It keeps {kept:,} of them."
    return "stricter", new, text


def _end_at_last_label(audited: Sequence[AuditedInput]) -> Sequence[AuditedInput]:
    """Return the audited inputs up to the last that has a label: the latest ones are just not known yet.

    The promise holds at all times, and so at the time of that input; those without a label before it count
    as wrong.
    """
    known = [index for index, each in enumerate(audited) if each.outcome != MISSING]
    return audited[: known[-1] + 1] if known else []


def _list_candidates(before: np.ndarray, own: float) -> list[float]:
    """Return thresholds from the strictest on; the policy's own is the last."""
    if len(before) < _FEWEST_BEFORE:
        return []
    quantiles = np.quantile(before, _SHARES_KEPT[:-1], method="higher")
    return [float(each) for each in np.unique(quantiles) if each < own] + [own]
