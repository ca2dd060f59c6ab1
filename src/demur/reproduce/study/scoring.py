"""Scores of every set by every method, each a stage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import demur
from demur.posteriors import CyclicalSGHMC, LastLayer
from demur.posteriors.networks import preserve_random_state
from demur.reproduce.arithmetic import arithmetic
from demur.reproduce.stages import Stage
from demur.reproduce.study.methods import EVERY, NUMBERS, Methods, StoredLogits
from demur.stores import write_columns

MEASURES = ("pairwise", "average", "reverse", "bma")
CELLS = ("A1", "A2", "A3", "B1", "C1")
"""The cells of the table of measures that need a given model: the network as it is deployed."""
RULES = ("brier", "spherical", "zero_one")
"""Rules besides the logarithmic one, for the comparison with labels of people."""
_FEW = 100
"""Members that score by those rules at most: means settle early, and these rules are slower."""
_PER_LOGIT = 1.5e-9
"""Seconds for a logit of the last layer and its share of the sums, on two cores, for a rough plan."""


class Scoring:
    """The stages that score.

    Parameters
    ----------
    methods
        What is asked for predictions.
    """

    def __init__(self, methods: Methods) -> None:
        self.methods, self.config, self.stages = methods, methods.config, methods.stages

    def stage(self, name: str) -> Stage:
        """Return the stage that scores all sets by a method; its folder holds `SET.npz`."""

        def make(folder: Path) -> None:
            self.score(name, self.config.scored, folder, "log", (*MEASURES, *CELLS), "")

        return self._stage(f"score/{name}", name, make, {})

    def rules(self, name: str) -> Stage:
        """Return the stage that scores `id` by the other rules; its folder holds `id-RULE.npz`."""

        def make(folder: Path) -> None:
            for rule in RULES:
                if not (folder / f"id-{rule}.npz").exists():
                    self.score(name, ["id"], folder, rule, ("pairwise", "average"), f"-{rule}")

        return self._stage(f"rules/{name}", name, make, {"rules": RULES, "members": _FEW})

    def score(
        self, name: str, sets: list[str], folder: Path, rule: str, measures: tuple[str, ...], ending: str
    ) -> None:
        """Score sets by a method and write a file for each."""
        few = None if rule == "log" else _FEW
        posterior, loader, order = self.methods.posterior(name, sets, folder, few)
        _load_loops(self.methods.classes(name))
        with arithmetic() as spent:
            scores = demur.score(
                posterior, loader, measures=measures, rule=rule, order=order,
                checkpoint=folder / f"scoring{ending}.npz", every=EVERY,
            )  # fmt: skip
        self.stages.note(
            scored=f"{name}{ending}",
            inside=round(spent.inside, 3),
            stepping=round(spent.stepping, 3),
            seconds=round(spent.seconds, 3),
            networks=[each.key for each in self.methods.encoded(name)],
        )
        columns, start = scores.columns, 0
        for each in sets:
            stop = start + self.methods.encoding.inputs.rows(each).size
            part = {column: values[start:stop] for column, values in columns.items()}
            part["input"] = np.arange(stop - start)
            if (part["label"] < 0).all():
                del part["label"]
            write_columns(folder / f"{each}{ending}.npz", part, force=True)
            start = stop
        if (folder / "chain").is_dir():
            for file in (folder / "chain").iterdir():
                file.unlink()
            (folder / "chain").rmdir()

    def _stage(self, stage: str, name: str, make: Callable[[Path], object], facts: dict[str, Any]) -> Stage:
        given = self.methods.settings(name)
        inputs = sum(self.methods.encoding.inputs.rows(each).size for each in self.config.scored)
        members = given.get("samples") or given.get("members") or len(self.methods.networks(name))
        seconds = inputs * members * 1000 * _PER_LOGIT
        facts = {"kind": self.config.methods[name]["kind"], **given, "seed": self.config.seed, **facts}
        return Stage(stage, make, facts, self.methods.before(name), seconds, inputs * 3e-4)


def _load_loops(classes: int) -> None:
    """Have numba imported, and loops compiled or read from disk, which is not scoring.

    These are the loops of the measures, and those that draw members.
    """
    import torch

    inputs = max(4, NUMBERS // classes)
    logits = np.random.default_rng(0).normal(size=(8, inputs, classes)).astype(np.float32)
    # Members that disagree, that agree, and that are the same: each kind has a loop of its own.
    logits[:, 1::4] *= np.float32(0.1)
    logits[:, ::2] = logits[0, ::2]
    demur.Moments().update(logits=logits).update(logits=logits)
    with preserve_random_state():
        layer, features = torch.nn.Linear(4, classes), np.ones((2, 4), np.float32)
    plan = {"samples": 2, "cycles": 1, "steps": 2, "exploration": 0.0, "discard": 0.0}
    chain = CyclicalSGHMC(layer, (features, np.arange(2) % classes), **plan)
    for posterior, batch in (
        (StoredLogits(list(logits)), np.arange(inputs)),
        (LastLayer(layer, dropout=0.5, samples=2), features),
        (LastLayer(layer, chain), features),
    ):
        demur.score(posterior, [batch], measures=(*MEASURES, *CELLS), progress=False)


class Share(NamedTuple):
    """Where the time to score went, in seconds: in networks and products, in steps of a chain, and in all."""

    inside: float
    stepping: float
    seconds: float

    def __str__(self) -> str:
        digits = 0 if self.seconds >= 10 else 1
        said = f"{100 * (1 - self.inside / self.seconds):.0f} % of {self.seconds:,.{digits}f} s"
        if self.stepping:
            said += f" ({100 * self.stepping / self.seconds:.0f} % in noise and momenta of the chain)"
        return said


def read_shares(path: Path) -> dict[str, Share]:
    """Return how much of the time to score was not a network's own arithmetic, by method and in all.

    The networks of an ensemble ran when their logits were encoded, and that time counts. Predictions that
    came with the data have no such time and are left out, and so is what was scored by other rules. Of what
    was scored several times the last one counts.
    """
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    took = {each["key"]: each["seconds"] for each in lines if each.get("stage", "").startswith("encode/")}
    found = {}
    for each in lines:
        name = each.get("scored", "")
        if not name or name.endswith(tuple(f"-{rule}" for rule in RULES)):
            continue
        before = 0.0 if each["inside"] else sum(took.get(key, 0.0) for key in each["networks"])
        if each["inside"] or before:
            found[name] = Share(each["inside"] + before, each.get("stepping", 0.0), each["seconds"] + before)
    if len(found) > 1:
        found["all"] = Share(*(sum(each) for each in zip(*found.values(), strict=True)))
    return found
