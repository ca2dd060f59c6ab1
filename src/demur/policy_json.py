"""Policies as JSON: what a file holds, read with distrust."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from demur.tasks.estimate import check_share
from demur.tasks.guarantees import Threshold

_GOALS = ("accuracy", "coverage", "risk", "cost")
_FORMAT = "demur deferral 1"
SEVERAL = "demur deferrals 1"
"""The format of a file of several policies, which `demur.deferrals` reads."""


def describe_policy(policy: Any) -> dict[str, Any]:
    """Return a `demur.Deferral` as JSON holds it."""
    thresholds = {name: asdict(t) for name, t in policy.thresholds.items()}
    for entry in thresholds.values():
        if entry["value"] is not None and math.isinf(entry["value"]):
            entry["value"] = "inf" if entry["value"] > 0 else "-inf"
    return {"format": _FORMAT, **asdict(policy), "thresholds": thresholds}


def parse_policy(content: Any) -> dict[str, Any]:
    """Return the fields of the policy that JSON describes; a ValueError says where it describes none."""
    names: dict[str, Any] = {
        "format": str,
        "goal": str,
        "target": float,
        "confidence": float,
        "thresholds": dict,
    }
    names |= {"score": (str, None), "method": (str, None), "clusters": (int, None), "weights": (str, None)}
    if isinstance(content, dict):
        if content.get("format") == SEVERAL:
            raise ValueError("several policies, which demur.Deferrals.load reads: give it one of them")
        content = {"clusters": None, "weights": None} | content  # policies of before have no such entries
    found = check_entries("", content, names)
    if found.pop("format") != _FORMAT:
        raise ValueError("another format")
    if found["goal"] not in _GOALS:
        raise ValueError(f"the goal {found['goal']!r}")
    if found["target"] != 1 or found["goal"] != "coverage":
        check_share(found["goal"], found["target"])
    check_share("confidence", found["confidence"])
    if found["clusters"] is not None and found["clusters"] < 1:
        raise ValueError(f"{found['clusters']} clusters")
    if found["weights"] not in (None, "known", "estimated"):
        raise ValueError(f"the weights {found['weights']!r}")
    if not found["thresholds"]:
        raise ValueError("no threshold")
    if len(found["thresholds"]) > 1 and "" in found["thresholds"]:
        raise ValueError("a threshold without a group beside those of groups")
    thresholds = {
        name: _parse_threshold(f"threshold {name!r}: " if name else "", found["goal"], entry)
        for name, entry in found["thresholds"].items()
    }
    return {**found, "thresholds": thresholds}


def _parse_threshold(where: str, goal: str, content: Any) -> Threshold:
    """Return the threshold that JSON describes."""
    kinds = {"value": (float, str, None), "kept": int, "number": int, "right": int, "promise": (float, None)}
    found = check_entries(where, content, kinds)
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


def check_entries(where: str, content: Any, kinds: Mapping[str, Any]) -> dict[str, Any]:
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
