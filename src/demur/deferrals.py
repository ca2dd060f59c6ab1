"""Several deferral policies under names, in one file: one score, a choice of targets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from demur import atomic
from demur.deferral import Deferral, Report
from demur.policy_json import SEVERAL, check_entries, describe_policy, parse_policy
from demur.reading import read_json
from demur.tasks.display import Displayed, Rows
from demur.tasks.guarantees import NoGuarantee

_Targets = float | list[float] | tuple[float, ...]


class Deferrals(Displayed, Mapping[str, Deferral]):
    """Policies by name, of which each decision takes one.

    Which one may be chosen after the fit, and changed later. ``policies["accuracy=0.95"]`` is a `Deferral`.

    Parameters
    ----------
    policies
        Policies by name, at least one.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.uniform(size=2000)
    >>> correct = rng.uniform(size=2000) > scores**3 / 3
    >>> policies = demur.Deferrals.fit(scores, correct, accuracy=[0.95, 0.98], cost=0.1)
    >>> list(policies)
    ['accuracy=0.95', 'accuracy=0.98', 'cost=0.1']
    >>> policies["accuracy=0.98"].defer([0.2, 0.8])
    array([False,  True])

    Under names of your own:

    >>> strict = demur.Deferral.fit(scores, correct, accuracy=0.98, confidence=0.99)
    >>> list(demur.Deferrals({"strict": strict, **policies}))
    ['strict', 'accuracy=0.95', 'accuracy=0.98', 'cost=0.1']
    """

    def __init__(self, policies: Mapping[str, Deferral]) -> None:
        self._policies = dict(policies)
        if not self._policies:
            raise ValueError("policies must hold one policy at least. Got none.")
        for name, policy in self._policies.items():
            if not isinstance(name, str) or not name:
                raise ValueError(f"policies must have names, texts that are not empty. Got {name!r}.")
            if not isinstance(policy, Deferral):
                raise TypeError(f"policies must be Deferrals. Got {type(policy).__name__} for {name!r}.")

    def __getitem__(self, name: str) -> Deferral:
        if name not in self._policies:
            raise KeyError(f"Expected one of {', '.join(self._policies)}. Got {name!r}.")
        return self._policies[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._policies)

    def __len__(self) -> int:
        return len(self._policies)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Deferrals) and list(self.items()) == list(other.items())

    def _display(self) -> tuple[str, Rows, list[str]]:
        rows = [["policy", "kept", "right of the kept"]]
        for name, policy in self.items():
            kept, number, right = (
                sum(getattr(each, part) for each in policy.thresholds.values())
                for part in ("kept", "number", "right")
            )
            rows.append([name, f"{kept:,} of {number:,}", f"{right:,} of {kept:,}" if kept else "none"])
        return (
            f"Deferrals: {len(self)} polic{'y' if len(self) == 1 else 'ies'}",
            rows,
            self.promise().splitlines(),
        )

    @classmethod
    def fit(
        cls,
        scores: Any,
        correct: Any,
        *,
        accuracy: _Targets = (),
        coverage: _Targets = (),
        risk: _Targets = (),
        cost: _Targets = (),
        **options: Any,
    ) -> Deferrals:
        """Return a policy for each target, all from the same inputs; `Deferral.fit` describes them.

        A target that cannot be promised raises `NoGuarantee`, as it does there, and names itself.

        Parameters
        ----------
        scores, correct
            As for `Deferral.fit`.
        accuracy, coverage, risk, cost
            A target, or several. Policies are named after them, as ``"accuracy=0.95"``.
        **options
            ``confidence``, ``groups``, ``clusters`` and ``seed``: see `Deferral.fit`.
        """
        given = {"accuracy": accuracy, "coverage": coverage, "risk": risk, "cost": cost}
        asked = [
            (goal, float(target))
            for goal, targets in given.items()
            for target in np.atleast_1d(np.asarray(targets, float)).tolist()
        ]
        if not asked:
            raise ValueError(
                "Expected a target of accuracy, coverage, risk or cost. Got none. For instance, pass "
                "accuracy=, as 0.95."
            )
        if len(set(asked)) < len(asked):
            raise ValueError("targets must differ. Got one of them twice.")
        found = {}
        for goal, target in asked:
            goals: dict[str, Any] = {goal: target}
            try:
                found[name_target(goal, target)] = Deferral.fit(scores, correct, **goals, **options)
            except NoGuarantee as error:
                whose = f"{name_target(goal, target)}: " if len(asked) > 1 else ""
                raise NoGuarantee(f"{whose}{error}", error.group) from error
        return cls(found)

    def defer(self, scores: Any, groups: Any = None) -> dict[str, np.ndarray]:
        """Return, for each policy, True where an input is to be deferred."""
        return {name: policy.defer(scores, groups) for name, policy in self.items()}

    def report(
        self, scores: Any, correct: Any = None, groups: Any = None, clusters: Any = None
    ) -> dict[str, Report]:
        """Return what each policy does to inputs; see `Deferral.report`."""
        return {name: policy.report(scores, correct, groups, clusters) for name, policy in self.items()}

    def promise(self) -> str:
        """Return in words what each policy promises, and what holds of all of them at once."""
        lines = [f"{name}: {line}" for name, policy in self.items() for line in policy.promise().splitlines()]
        missed = [
            (1 - policy.confidence) * len(policy.thresholds)
            for policy in self.values()
            if policy.goal in ("accuracy", "coverage")
        ]
        if len(missed) > 1:
            together = max(0.0, 1 - sum(missed))
            lines.append(
                f"Each policy holds by itself; all at once, and so whichever is chosen by what they keep, "
                f"with confidence {together:.4g} at least."
            )
        return "\n".join(lines)

    def save(self, path: str | Path) -> None:
        """Write all policies as JSON: whole or not at all."""
        content = {"format": SEVERAL, "policies": {n: describe_policy(each) for n, each in self.items()}}
        atomic.write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Deferrals:
        """Read what ``save`` wrote, or one policy from ``Deferral.save``, which is named after its target.

        Any other file is a ValueError.
        """
        try:
            return _parse_policies(read_json(path))
        except ValueError as error:
            raise ValueError(
                f"{path} must be a policy written by Deferral.save, or several by Deferrals.save. Got "
                f"something else: {error}. Fit and save it again."
            ) from error


def name_target(goal: str, target: float) -> str:
    """Return the name of a policy with this target.

    Examples
    --------
    >>> name_target("accuracy", 0.95)
    'accuracy=0.95'
    """
    return f"{goal}={target!r}"


def _parse_policies(content: Any) -> Deferrals:
    """Return the policies that JSON describes; raise a ValueError that says where it describes none."""
    if not isinstance(content, dict) or content.get("format") != SEVERAL:
        policy = Deferral(**parse_policy(content))
        return Deferrals({name_target(policy.goal, policy.target): policy})
    found = {}
    for name, entry in check_entries("", content, {"format": str, "policies": dict})["policies"].items():
        try:
            found[name] = Deferral(**parse_policy(entry))
        except ValueError as error:
            raise ValueError(f"policy {name!r}: {error}") from error
    return Deferrals(found)
