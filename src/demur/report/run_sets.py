"""A run: its methods, or tasks, and the sets of inputs that each has scored."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from demur.report.answers import AnswerTokens
from demur.stores.zarr_arrays import ZarrColumn


@dataclass(frozen=True)
class SetScores:
    """Scores of one set by one method.

    Attributes
    ----------
    scores
        By column, (inputs,) each, float64.
    label, prediction
        (inputs,) classes, or None.
    ids
        (inputs,) text, or None.
    inputs
        (inputs,) their numbers among those of the pictures; None where they are all.
    left_out
        How many inputs of the file are none of these, since they have no prediction, in one task at least.
    numbers
        Labels and predictions are there, but as numbers that are no classes: those of a regression.
    unit
        Of demur's scores, where the file says so.
    clusters
        (inputs,) labels of inputs that belong together, where a column of them was asked for.
    reference
        (inputs,) what the aleatoric part should follow, as the entropy of people's labels, or None.
    marked
        (inputs,) whether each answer is right, where the file says that instead of labels, or None.
    texts
        (inputs,) the answers of language models, or None.
    """

    path: Path
    scores: dict[str, np.ndarray]
    label: np.ndarray | None
    prediction: np.ndarray | None
    ids: np.ndarray | None
    inputs: np.ndarray | None = None
    left_out: int = 0
    numbers: bool = False
    unit: str = ""
    clusters: np.ndarray | None = None
    reference: np.ndarray | None = None
    marked: np.ndarray | None = None
    texts: np.ndarray | None = None

    @property
    def number(self) -> int:
        """How many inputs."""
        return len(next(iter(self.scores.values())))

    @property
    def correct(self) -> np.ndarray | None:
        """Where the prediction is the label, or was marked as right; None where nobody can tell."""
        if self.marked is not None:
            return self.marked
        return None if self.label is None or self.prediction is None else self.label == self.prediction


@dataclass(frozen=True)
class MethodScores:
    """What one method gave: scores and, where kept, members' log-probabilities, tokens and maps, by set.

    Each task of a method that has several is one of these, and named after both. Maps are by name, unread.
    """

    name: str
    sets: dict[str, SetScores]
    members: dict[str, np.ndarray]
    task: str = ""
    tokens: dict[str, AnswerTokens] = field(default_factory=dict)
    maps: dict[str, dict[str, ZarrColumn]] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """All of a folder. Every method has the same sets, and every file the same score columns.

    `training` says what the models learned from, `made` how each method makes its members, `called` what
    people call a set, `sources` how its inputs came about; each as run.json has it. `clusters` is the column
    that says which inputs belong together, if there is one.
    """

    path: Path
    methods: list[MethodScores]
    sets: list[str]
    scores: list[str]
    images: dict[str, np.ndarray]
    title: str = ""
    command: str = ""
    seed: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    classes: list[str] = field(default_factory=list)
    training: str = ""
    made: dict[str, str] = field(default_factory=dict)
    called: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    clusters: str = ""

    @property
    def unit(self) -> str:
        """The unit of demur's scores; nothing where files do not say, or not the same."""
        units = {scored.unit for method in self.methods for scored in method.sets.values()}
        return units.pop() if len(units) == 1 else ""

    @property
    def by_task(self) -> bool:
        """Whether the methods are tasks: different things to predict, which do not compete."""
        return len(self.methods) > 1 and any(method.task for method in self.methods)

    def whose(self, name: str) -> str:
        """Return words that say which method or task something is of; nothing where there is one."""
        if len(self.methods) == 1:
            return ""
        return f" for {name}" if self.by_task else f" of {name}"

    def set_name(self, name: str) -> str:
        """Return what people call a set: as the run says, or by its file."""
        return self.called.get(name) or shown_name(name)

    def name_of(self, label: Any) -> str:
        """Return the name of a class, or its number where it has none."""
        if isinstance(label, int | np.integer) and 0 <= label < len(self.classes):
            return self.classes[int(label)]
        return str(label)


def kind_of(name: str) -> str | None:
    """Return "id", "ood" or "adversarial" for the name of a set; None for another file.

    Examples
    --------
    >>> kind_of("id"), kind_of("ood-svhn"), kind_of("labels")
    ('id', 'ood', None)
    """
    kind, dash, rest = name.partition("-")
    if name == "id" or (kind in ("ood", "adversarial") and (rest or not dash)):
        return kind
    return None


def shown_name(name: str) -> str:
    """Return what people call a set.

    Examples
    --------
    >>> shown_name("ood-svhn"), shown_name("ood"), shown_name("id")
    ('svhn', 'out-of-distribution inputs', 'in-distribution inputs')
    """
    kind, _, rest = name.partition("-")
    return (
        rest
        or {
            "id": "in-distribution inputs",
            "ood": "out-of-distribution inputs",
            "adversarial": "adversarial inputs",
        }[kind]
    )


def correct_of(run: Run, method: MethodScores, name: str) -> np.ndarray | None:
    """Return where predictions of a set are right; None where nobody can tell.

    No prediction for an out-of-distribution input is right if its label is none of the known classes. Labels
    that are known ones too may number other classes, and say nothing.
    """
    scored, source = method.sets[name], method.sets.get("id")
    if kind_of(name) != "ood" or scored.correct is None or scored.label is None:
        return scored.correct
    # All that the files tell of the classes that the model knows.
    given = [scored.prediction, *((source.label, source.prediction) if source else ())]
    known = {each for column in given if column is not None for each in column.tolist()}
    labels = set(scored.label.tolist())
    if len({isinstance(each, str) for each in known | labels}) > 1:
        return None  # numbers here and names there
    known |= {*range(len(run.classes)), *run.classes}
    return scored.correct if known.isdisjoint(labels) else None
