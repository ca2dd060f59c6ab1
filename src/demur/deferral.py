"""When to defer: thresholds of a score, and what each of them promises for new inputs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from html import escape
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from demur import atomic
from demur.reading import read_json
from demur.tasks.clusters import Clusters, check_clusters
from demur.tasks.display import Displayed, Rows
from demur.tasks.estimate import Estimate, check_correct, check_scores, check_share, proportion
from demur.tasks.kept_accuracy import share_in_clusters
from demur.tasks.thresholds import find_ends, find_threshold

_SMALLEST_SHARE_KEPT = 0.3  # the smallest share kept that is tested: fewer inputs prove little and help few
_NUMBERS_TESTED = 100  # numbers kept that are tested, evenly spaced from there to all
_GOALS = ("accuracy", "coverage", "risk", "cost")
_FORMAT = "demur deferral 1"
_MORE_INPUTS = "or give more inputs with known truth"


class NoGuarantee(ValueError):
    """No threshold can promise what was asked for; the message says what could be promised."""


@dataclass(frozen=True)
class Threshold:
    """One threshold: scores above it are deferred; None defers all.

    Parameters
    ----------
    value : float or None
        The threshold.
    kept, number : int
        How many of the inputs that it was fitted on are kept, out of how many.
    right : int
        How many of the kept ones are right.
    promise : float or None
        What holds for new inputs, in the terms of the policy's goal; None where nothing is promised.
    """

    value: float | None
    kept: int
    number: int
    right: int
    promise: float | None


@dataclass(frozen=True)
class Report:
    """What a policy does to some inputs: the share kept, and its accuracy where the truth is known."""

    kept: int
    number: int
    coverage: Estimate
    accuracy: Estimate | None
    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.text)}</pre>"


@dataclass(frozen=True, repr=False)
class Deferral(Displayed):
    """A rule that says which inputs to defer, made by ``Deferral.fit``.

    Parameters
    ----------
    goal : "accuracy", "coverage", "risk" or "cost"
        What was asked for.
    target : float
        The accuracy, coverage, risk, or cost of a deferral in units of that of an error.
    confidence : float
        Confidence level of the promise, for each group by itself.
    thresholds : dict
        The `Threshold` of each group; of "" where there are no groups.
    score, method : str or None
        The column of the scores and the folder of a run's METHOD/id.csv, where the command line fitted it.
    clusters : int or None
        How many clusters it was fitted on, where clusters were given: what is promised is then for inputs
        drawn from new clusters, one from each.
    """

    goal: str
    target: float
    confidence: float
    thresholds: dict[str, Threshold]
    score: str | None = None
    method: str | None = None
    clusters: int | None = None

    def _display(self) -> tuple[str, Rows, list[str]]:
        of = "".join(f", {each}" for each in (self.method, self.score) if each)
        rows = [["group"] * (set(self.thresholds) != {""}) + ["threshold", "kept", "right of the kept"]]
        for name, t in self.thresholds.items():
            above = "defers all" if t.value is None else f"{t.value:.6g}"
            share = f"{t.right:,} of {t.kept:,}" if t.kept else "none"
            rows.append([name] * bool(name) + [above, f"{t.kept:,} of {t.number:,}", share])
        return f"Deferral: {self.goal} {self.target:g}{of}", rows, self.promise().splitlines()

    @classmethod
    def fit(
        cls,
        scores: Any,
        correct: Any,
        *,
        accuracy: float | None = None,
        coverage: float | None = None,
        risk: float | None = None,
        cost: float | None = None,
        confidence: float = 0.95,
        groups: Any = None,
        clusters: Any = None,
        seed: int = 0,
    ) -> Deferral:
        """Return a policy from inputs whose truth is known, and on which the model was not trained.

        Parameters
        ----------
        scores : (inputs,) array
            Uncertainty of each input, higher = less certain.
        correct : (inputs,) array of bool
            Whether the prediction is right.
        accuracy : float
            Keep the most while what is kept has at least this accuracy on new inputs from the same source.
            The probability that this is promised and does not hold is at most ``1 - confidence``. Numbers
            kept are tested from 0.3 n upward, in this order, each by its Clopper-Pearson bound, up to the
            first failure. Those too few to prove the target pass while all of them are right.
        coverage : float
            Keep the most certain share, at least this much of the given inputs; promises the Clopper-Pearson
            bound of its accuracy.
        risk : float
            Conformal risk control: the expected share of inputs that are kept and wrong is at most this. It
            is an expectation over draws of the given inputs too, and of all inputs, not of those kept.
        cost : float
            Cost of a deferral over that of an error: the cheapest threshold on the given inputs. No promise.
        confidence : float
            Confidence level of the promise, for each group by itself.
        groups : (inputs,) array, optional
            A name for each input: each group gets a threshold of its own, and its own promise.
        clusters : (inputs,) array, optional
            A label for each input, as the image that a pixel is of. Promises need independent inputs, which
            those of one cluster are not: so one input of each cluster is drawn at random (of each cluster and
            group), and the policy is fitted on these alone. What it promises is for an input drawn from a
            new cluster, whatever its size. ``cost`` promises nothing and takes all inputs.
        seed : int
            Seed of that draw.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> scores = rng.uniform(size=2000)
        >>> correct = rng.uniform(size=2000) > scores**3 / 3
        >>> policy = demur.Deferral.fit(scores, correct, accuracy=0.95)
        >>> policy.defer([0.2, 0.99, np.inf])
        array([False,  True,  True])
        >>> demur.Deferral.fit(scores, correct, accuracy=0.9999)
        Traceback (most recent call last):
        demur.deferral.NoGuarantee: No threshold can promise an accuracy of 0.9999 with confidence 0.95. ...
        """
        goals = {"accuracy": accuracy, "coverage": coverage, "risk": risk, "cost": cost}
        asked = {name: target for name, target in goals.items() if target is not None}
        if len(asked) != 1:
            raise ValueError(
                "Expected exactly one of accuracy, coverage, risk and cost. "
                f"Got {', '.join(asked) or 'none'}."
            )
        ((goal, target),) = asked.items()
        for name, share in ((goal, target), ("confidence", confidence)):
            if (name, share) != ("coverage", 1):
                check_share(name, share)
        values = check_scores("scores", scores)
        right = check_correct(correct, len(values))
        names = _name_groups(groups, len(values))
        together = check_clusters(clusters, len(values))
        if together is not None and goal != "cost":
            chosen = _draw_one_per_cluster(together, names, seed)
            values, right, names = values[chosen], right[chosen], names[chosen]
        thresholds = {
            str(name): _fit_group(
                goal, target, confidence, values[names == name], right[names == name], str(name)
            )
            for name in np.unique(names)
        }
        number = None if together is None else together.number
        return cls(goal, float(target), float(confidence), thresholds, clusters=number)

    def defer(self, scores: Any, groups: Any = None) -> np.ndarray:
        """Return True where an input is to be deferred; inputs of a group never seen always are."""
        values = check_scores("scores", scores)
        self._check_groups(groups)
        names = _name_groups(groups, len(values))
        kept = np.zeros(len(values), bool)
        for name, threshold in self.thresholds.items():
            if threshold.value is not None:
                kept |= (names == name) & (values <= threshold.value)
        return ~kept

    def report(self, scores: Any, correct: Any = None, groups: Any = None, clusters: Any = None) -> Report:
        """Return what the policy does to inputs: share kept and, where `correct` is given, its accuracy.

        With `clusters`, a label for each input, intervals are over draws of whole clusters.
        """
        kept = ~self.defer(scores, groups)
        number, count = len(kept), int(kept.sum())
        together = check_clusters(clusters, number)
        share = _estimate_share(kept, together, self.confidence)
        lines = [self.promise(), f"Keeps {count} of {number} inputs: {share}."]
        accuracy = None
        if correct is not None:
            right = check_correct(correct, number)
            if count:
                own = None if together is None else Clusters(together.codes[kept], together.number)
                accuracy = _estimate_share(right[kept], own, self.confidence)
                lines.append(f"Accuracy of the kept: {accuracy}; of all: {right.mean():.4f}.")
                promises = [t.promise for t in self.thresholds.values() if t.promise is not None]
                if self.goal in ("accuracy", "coverage") and promises and accuracy.high < min(promises):
                    lines.append("That is less than promised: these inputs seem to be from another source.")
        return Report(count, number, share, accuracy, "\n".join(lines))

    def promise(self) -> str:
        """Return in words what the policy promises, group by group."""
        lines = []
        for name, t in self.thresholds.items():
            who = f"Group {name}: " if name else ""
            lines.append(who + _describe_promise(self.goal, self.confidence, t))
        if self.clusters is not None and self.goal != "cost":
            lines.append(
                f"Fitted on one input of each of {self.clusters} clusters: it holds for an input drawn from "
                "a new cluster."
            )
        if len(self.thresholds) > 1 and self.goal in ("accuracy", "coverage"):
            together = max(0.0, 1 - len(self.thresholds) * (1 - self.confidence))
            lines.append(f"Each holds by itself; all at once with confidence {together:.4g} at least.")
        return "\n".join(lines)

    def save(self, path: str | Path) -> None:
        """Write the policy as JSON: whole or not at all."""
        thresholds = {name: asdict(t) for name, t in self.thresholds.items()}
        for entry in thresholds.values():
            if entry["value"] is not None and math.isinf(entry["value"]):
                entry["value"] = "inf" if entry["value"] > 0 else "-inf"
        content = {"format": _FORMAT, **asdict(self), "thresholds": thresholds}
        atomic.write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Deferral:
        """Read a policy that ``save`` wrote; any other file is a ValueError."""
        try:
            return _parse_policy(read_json(path))
        except ValueError as error:
            raise ValueError(
                f"{path} must be a policy written by Deferral.save. Got something else: {error}. "
                "Fit and save it again."
            ) from error

    def _check_groups(self, groups: Any) -> None:
        grouped = set(self.thresholds) != {""}
        if grouped and groups is None:
            raise ValueError("groups must be given: the policy has a threshold for each group. Got none.")
        if not grouped and groups is not None:
            raise ValueError("groups must be None: the policy was fitted without them. Fit it with groups=.")


def _parse_policy(content: Any) -> Deferral:
    """Return the policy that JSON describes; raise a ValueError that says where it describes none."""
    names: dict[str, Any] = {
        "format": str,
        "goal": str,
        "target": float,
        "confidence": float,
        "thresholds": dict,
    }
    names |= {"score": (str, None), "method": (str, None), "clusters": (int, None)}
    if isinstance(content, dict):
        content = {"clusters": None} | content  # policies of before have no such entry
    found = _check_entries("", content, names)
    if found.pop("format") != _FORMAT:
        raise ValueError("another format")
    if found["goal"] not in _GOALS:
        raise ValueError(f"the goal {found['goal']!r}")
    if found["target"] != 1 or found["goal"] != "coverage":
        check_share(found["goal"], found["target"])
    check_share("confidence", found["confidence"])
    if not found["thresholds"]:
        raise ValueError("no threshold")
    if len(found["thresholds"]) > 1 and "" in found["thresholds"]:
        raise ValueError("a threshold without a group beside those of groups")
    thresholds = {
        name: _parse_threshold(f"threshold {name!r}: " if name else "", found["goal"], entry)
        for name, entry in found["thresholds"].items()
    }
    return Deferral(**{**found, "thresholds": thresholds})


def _parse_threshold(where: str, goal: str, content: Any) -> Threshold:
    """Return the threshold that JSON describes."""
    kinds = {"value": (float, str, None), "kept": int, "number": int, "right": int, "promise": (float, None)}
    found = _check_entries(where, content, kinds)
    if isinstance(found["value"], str):
        if found["value"] not in ("inf", "-inf"):
            raise ValueError(f"{where}the value {found['value']!r}")
        found["value"] = float(found["value"])
    if not 0 <= found["right"] <= found["kept"] <= found["number"] or found["number"] == 0:
        raise ValueError(f"{where}{found['right']} right of {found['kept']} kept of {found['number']} inputs")
    if (found["promise"] is None) != (goal == "cost"):
        raise ValueError(f"{where}{'a' if goal == 'cost' else 'no'} promise for the goal {goal}")
    if found["promise"] is not None and not 0 <= found["promise"] <= 1:
        raise ValueError(f"{where}the promise {found['promise']!r}")
    return Threshold(**found)


def _check_entries(where: str, content: Any, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a JSON object; raise unless they are these, each of its kind.

    Numbers are finite, and True is none. A whole number may stand for any.
    """
    if not isinstance(content, dict):
        raise ValueError(f"{where}{type(content).__name__} where an object was expected")
    if odd := sorted(set(content) ^ set(kinds)):
        raise ValueError(f"{where}{'no' if odd[0] in kinds else 'the unknown'} entry {odd[0]!r}")
    found = {}
    for name, value in content.items():
        allowed = kinds[name] if isinstance(kinds[name], tuple) else (kinds[name],)
        if float in allowed and type(value) is int and abs(value) < 2**53:
            value = float(value)
        if type(value) not in (type(None) if kind is None else kind for kind in allowed) or (
            isinstance(value, float) and not math.isfinite(value)
        ):
            raise ValueError(f"{where}{json.dumps(value)[:40]} for {name}")
        found[name] = value
    return found


def _name_groups(groups: Any, number: int) -> np.ndarray:
    """Return the name of each input's group as text, empty where there are none."""
    if groups is None:
        return np.full(number, "")
    names = np.asarray(groups)
    if names.shape != (number,):
        raise ValueError(f"groups must have shape ({number},), one per score. Got {names.shape}.")
    names = names.astype(str)
    if (names == "").any():
        raise ValueError("groups must be names that are not empty. Got an empty one.")
    return names


def _draw_one_per_cluster(clusters: Clusters, groups: np.ndarray, seed: int) -> np.ndarray:
    """Return the place of one input of each cluster, drawn at random; of each cluster and group."""
    order = np.random.default_rng([seed, 0xDE4]).permutation(len(groups))
    _, kinds = np.unique(groups, return_inverse=True)
    both = clusters.codes * (kinds.max() + 1) + kinds.ravel()
    return np.sort(order[np.unique(both[order], return_index=True)[1]])


def _estimate_share(chosen: np.ndarray, clusters: Clusters | None, confidence: float) -> Estimate:
    """Return the share of chosen inputs with its interval."""
    if clusters is None:
        return proportion(int(chosen.sum()), len(chosen), confidence)
    return share_in_clusters(chosen, clusters, confidence)


def _fit_group(
    goal: str, target: float, confidence: float, scores: np.ndarray, right: np.ndarray, name: str
) -> Threshold:
    """Return the threshold of one group."""
    order = np.argsort(scores, kind="stable")
    ranked, hits = scores[order], np.append(0, np.cumsum(right[order]))
    number = len(ranked)
    ends = find_ends(ranked)

    def threshold(kept: int, promise: float | None) -> Threshold:
        return Threshold(find_threshold(ranked, kept), kept, number, int(hits[kept]), promise)

    if goal == "coverage":
        kept = int(ends[np.searchsorted(ends / number, target)])  # a share of k / n keeps k, not k + 1
        if hits[kept] == 0:
            why = (
                f"None of the {kept} predictions that it would keep is right. Predicted numbers are hardly "
                "ever equal to the truth: say which are near enough, as correct=abs(predicted - truth) <= 0.1"
            )
            _refuse(name, f"an accuracy above 0 at a coverage of {target:g}", why)
        return threshold(kept, float(lower_bound(hits[kept], kept, confidence)))
    if goal == "risk":
        shares = np.arange(1, number + 2) / (number + 1)
        allowed = int(np.searchsorted(shares, target, side="right")) - 1
        if allowed < 0:
            _refuse(
                name,
                f"a risk of {target:g}",
                f"The least that can be promised is 1 in {number + 1}, by deferring nearly all: ask for "
                f"that, {_MORE_INPUTS}",
            )
        errors = np.flatnonzero(~right[order])
        if allowed >= len(errors):
            return threshold(number, target)
        kept = int(np.searchsorted(ranked, ranked[errors[allowed]]))  # all below the first error too many
        return threshold(kept, target)
    if goal == "cost":
        candidates = np.append(0, ends)
        kept = int(candidates[np.argmin(candidates - hits[candidates] + target * (number - candidates))])
        return threshold(kept, None)
    tested = choose_numbers_kept(ends, number)
    bounds = promisable_accuracy(hits[tested], tested, confidence)
    if bounds.max() >= target:
        return threshold(int(tested[bounds >= target][-1]), target)
    _refuse(
        name,
        f"an accuracy of {target:g} with confidence {confidence:g}",
        _instead_of_accuracy(hits[tested], tested, bounds, number),
    )


def choose_numbers_kept(ends: np.ndarray, number: int) -> np.ndarray:
    """Return the numbers kept that are tested, in their order; they depend on scores alone.

    Never on labels, so that the promise holds; never on the target, so that a higher one keeps no more.
    """
    wanted = np.ceil(np.linspace(_SMALLEST_SHARE_KEPT * number, number, _NUMBERS_TESTED))
    return np.unique(ends[np.searchsorted(ends, np.clip(wanted, 1, number))])


def promisable_accuracy(right: np.ndarray, kept: np.ndarray, confidence: float) -> np.ndarray:
    """Return the highest accuracy that each number kept can promise, tested in order up to the first failure.

    A number that could not prove a target even if all of its inputs are right is no failure while they are:
    it would end the search before it began. To go on from there only with all of them right is stricter
    than to begin later, and a number kept that passes for a target passes for every lower one.
    """
    own = lower_bound(right, kept, confidence)
    so_far = np.minimum.accumulate(np.where(right < kept, own, np.inf))
    return np.minimum(own, so_far)


def _instead_of_accuracy(right: np.ndarray, kept: np.ndarray, bounds: np.ndarray, number: int) -> str:
    """Return the accuracy that could be promised, rounded down so that `fit` takes it, and what it keeps."""
    best = float(Decimal(float(bounds.max())).quantize(Decimal("0.0001"), ROUND_FLOOR))
    if best == 0:
        return f"Nothing can be promised, with {right[0]} of the most certain {kept[0]} predictions right"
    return (
        f"The most that can be promised is {best:g}, by keeping the most certain {kept[bounds >= best][-1]} "
        f"of {number} inputs: ask for that, {_MORE_INPUTS}"
    )


def lower_bound(right: Any, kept: Any, confidence: float) -> np.ndarray:
    """Return the one-sided Clopper-Pearson bound of each accuracy."""
    from scipy.special import betaincinv

    right, kept = np.asarray(right), np.asarray(kept)
    # Where none is right, the bound is 0, which the inverse does not take.
    return np.where(right > 0, betaincinv(np.maximum(right, 1), kept - right + 1, 1 - confidence), 0.0)


def write_threshold(value: float, last: float = -math.inf, digits: int = 4) -> str:
    """Return a threshold in decimal: rounded down, and with so many digits that the last score kept stays.

    Examples
    --------
    >>> write_threshold(0.25109249, last=0.2504), write_threshold(0.25109249, last=0.25109)
    ('0.251', '0.25109')
    """
    for number in range(digits, 17):
        lower = Context(prec=number, rounding=ROUND_FLOOR).create_decimal_from_float(value)
        if last <= float(lower) <= value:
            return f"{float(lower):.{number}g}"
    return repr(value)


def _refuse(name: str, wish: str, instead: str) -> NoReturn:
    """Raise `NoGuarantee`."""
    whose = f" for group {name}" if name else ""
    raise NoGuarantee(f"No threshold can promise {wish}{whose}. {instead}.")


def _describe_promise(goal: str, confidence: float, threshold: Threshold) -> str:
    """Return in words what one threshold promises."""
    t = threshold
    if t.value == math.inf:
        rule = "defers nothing"
    else:
        rule = (
            "defers all" if t.value is None else f"defers scores above {write_threshold(t.value, digits=6)}"
        )
    if goal == "risk":
        return f"{rule}; in expectation at most {t.promise:.4g} of all inputs are kept and wrong."
    if goal == "cost":
        return f"{rule}, the cheapest on the {t.number} inputs it was fitted on; nothing is promised."
    return (
        f"{rule}; for inputs from the source that it was fitted on, accuracy of the kept is at least "
        f"{t.promise:.4g}, with confidence {confidence:g}."
    )
