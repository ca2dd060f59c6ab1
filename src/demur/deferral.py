"""When to defer: thresholds of a score, and what each of them promises for new inputs."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from demur import atomic
from demur.policy_json import describe_policy, parse_policy
from demur.reading import read_json
from demur.tasks.clusters import Clusters, check_clusters
from demur.tasks.display import Displayed, Rows
from demur.tasks.estimate import Estimate, check_correct, check_scores, check_share
from demur.tasks.guarantees import Threshold, describe_promise, fit_threshold
from demur.tasks.kept_accuracy import estimate_share
from demur.tasks.weighted_guarantee import check_weights, fit_weighted_threshold


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
    weights : "known", "estimated" or None
        Of which kind the weights are that it was fitted with. What is promised is then for the source that
        they point to, and approximate where they are estimated.
    """

    goal: str
    target: float
    confidence: float
    thresholds: dict[str, Threshold]
    score: str | None = None
    method: str | None = None
    clusters: int | None = None
    weights: str | None = None

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
        demur.tasks.guarantees.NoGuarantee: No threshold can promise an accuracy of 0.9999 ...
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
            str(name): fit_threshold(
                goal, target, confidence, values[names == name], right[names == name], str(name)
            )
            for name in np.unique(names)
        }
        number = None if together is None else together.number
        return cls(goal, float(target), float(confidence), thresholds, clusters=number)

    def refit(
        self,
        scores: Any,
        correct: Any,
        *,
        weights: Any = None,
        weight_limit: float | None = None,
        estimated: bool = False,
        groups: Any = None,
    ) -> Deferral:
        """Return a policy of the same goal and confidence from other inputs, which may have weights.

        Weights are for labelled inputs that are not draws of the source that the policy is for: audited with
        unequal probabilities (weight 1 / probability), or from an old source whose inputs are rarer or more
        frequent now (weight: density now over density then, of what predictions depend on). Where they are
        known, the promise holds for the new source as exactly as that of ``fit`` does for its own.

        Parameters
        ----------
        scores, correct, groups
            As in ``fit``.
        weights : (inputs,) array, optional
            Weights, up to a common factor. For goal "accuracy" only.
        weight_limit : float, optional
            The largest weight that any input could have, as 1 / the least probability of an audit. Default:
            the largest that is given, which is exact only if that was known before.
        estimated : bool
            Whether the weights are estimates, as those of ``demur.shift_weights``. The promise then says that
            it is approximate.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> scores = rng.uniform(size=4000)
        >>> correct = rng.uniform(size=4000) > scores**2 / 3
        >>> policy = demur.Deferral.fit(scores, correct, accuracy=0.95)
        >>> high = policy.refit(scores, correct, weights=2 * scores, weight_limit=2)  # more high scores now
        >>> policy.thresholds[""].kept, high.thresholds[""].kept
        (2615, 1738)
        """
        if weights is None:
            if estimated or weight_limit is not None:
                raise ValueError("weight_limit and estimated are for weights. Got no weights.")
            goal: dict[str, Any] = {self.goal: self.target}
            new = type(self).fit(scores, correct, **goal, confidence=self.confidence, groups=groups)
            return replace(new, score=self.score, method=self.method)
        if self.goal != "accuracy":
            raise ValueError(f"weights are for policies of an accuracy. Got one of goal {self.goal!r}.")
        values = check_scores("scores", scores)
        right = check_correct(correct, len(values))
        names = _name_groups(groups, len(values))
        shares, largest = check_weights(weights, len(values), weight_limit)
        thresholds = {}
        for name in np.unique(names):
            own = names == name
            thresholds[str(name)] = fit_weighted_threshold(
                self.target, self.confidence, values[own], right[own], shares[own], largest, str(name)
            )
        return replace(
            self, thresholds=thresholds, clusters=None, weights="estimated" if estimated else "known"
        )

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
        share = estimate_share(kept, together, self.confidence)
        lines = [self.promise(), f"Keeps {count} of {number} inputs: {share}."]
        accuracy = None
        if correct is not None:
            right = check_correct(correct, number)
            if count:
                own = None if together is None else Clusters(together.codes[kept], together.number)
                accuracy = estimate_share(right[kept], own, self.confidence)
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
            lines.append(who + describe_promise(self.goal, self.confidence, t))
        if self.clusters is not None and self.goal != "cost":
            lines.append(
                f"Fitted on one input of each of {self.clusters} clusters: it holds for an input drawn from "
                "a new cluster."
            )
        if self.weights is not None:
            lines.append(
                "Fitted with weights: it holds for the source that they point to"
                + (", approximately, as they are estimated." if self.weights == "estimated" else ".")
            )
        if len(self.thresholds) > 1 and self.goal in ("accuracy", "coverage"):
            together = max(0.0, 1 - len(self.thresholds) * (1 - self.confidence))
            lines.append(f"Each holds by itself; all at once with confidence {together:.4g} at least.")
        return "\n".join(lines)

    def save(self, path: str | Path) -> None:
        """Write the policy as JSON: whole or not at all."""
        atomic.write_text(path, json.dumps(describe_policy(self), indent=2, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Deferral:
        """Read a policy that ``save`` wrote; any other file is a ValueError."""
        try:
            return cls(**parse_policy(read_json(path)))
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
