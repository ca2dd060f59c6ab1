"""`Scores`, the result of `demur.score`: read by measure, printed, extended, saved and loaded."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from demur.core.parts_as_text import Reading
from demur.measures import PARTS, Decomposition, canonical_name, name_unit
from demur.scoring import scores_text
from demur.scoring.batch_parts import as_column
from demur.scoring.outcomes import mark_correct
from demur.scoring.saved_scores import read_scores, write_scores
from demur.scoring.score_table import ScoreTable

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, repr=False)
class Scores:
    """Scores of each input of a data set; ``scores["pairwise"].epistemic`` and so on.

    Printed, it shows a table of its measures; in a notebook, an HTML one.

    Attributes
    ----------
    table
        The columns, as files have them, with ``table.top(10)`` and ``table.summary()``.
    labels, ids
        (inputs,) each, from the loader; labels of several per input (inputs, labels). None where it had none.
    deployed
        (inputs,): the class that the deployed model predicts, for instance the network without dropout; None
        where the posterior has no such model.
    rule, base, unbiased
        As they were requested; ``rule`` is "energy" for numbers that members predict without a variance.
        After ``load``, None where the file does not say.
    outcome
        What is predicted: "classes", "multilabel", "points" (numbers without a variance) or "numbers".
    """

    table: ScoreTable
    labels: np.ndarray | None
    ids: np.ndarray | None
    deployed: np.ndarray | None
    rule: str | None
    base: float | None
    unbiased: bool | None
    outcome: str = "classes"

    def __repr__(self) -> str:
        return scores_text.format_text(self._heading(), self.table, self._others())

    def _repr_html_(self) -> str:
        return scores_text.format_html(self._heading(), self.table, self._others())

    def _heading(self) -> str:
        """Return one line that says what was scored."""
        used = self.table.columns.get("members")
        drawn = "" if used is None else f"{used.mean():.1f} of "
        members = "" if self.members is None else f", {drawn}{self.members} member{'s'[: self.members != 1]}"
        unit = "" if self.rule is None else f", {name_unit(self.rule, self.base)}"
        unit = unit.replace(", the", ", in the")
        return f"Scores({len(self)} input{'s'[: len(self) != 1]}{members}{unit})"

    def _others(self) -> list[str]:
        """Return the names of columns that belong to no measure, such as those from ``with_column``."""
        own = {
            f"{name}_{part}{end}" for name in self.table.measures for part in PARTS for end in ("", "_stderr")
        }
        return [name for name in self.table.columns if name not in own | {"input", "prediction", "members"}]

    def __len__(self) -> int:
        return self.table.inputs

    def __getitem__(self, measure: str) -> Decomposition:
        measure = measure if measure in self.table.measures else canonical_name(measure)
        if measure not in self.table.measures:
            raise KeyError(f"Expected one of {', '.join(self.table.measures)}. Got {measure!r}.")

        def of(ending: str, **more: Any) -> Decomposition:
            columns = self.table.columns
            return Decomposition(**{part: columns[f"{measure}_{part}{ending}"] for part in PARTS}, **more)

        measured = f"{measure}_total_stderr" in self.table.columns
        unit = None if self.rule is None else Reading(name_unit(self.rule, self.base))
        return of("", stderr=of("_stderr") if measured else None, _reading=unit)

    @property
    def members(self) -> int | None:
        """How many members there were; with a tolerance, the most that an input could have.

        None where there were none, as for ``Dirichlet`` predictions, or where a file does not say.
        """
        return self.table.members or None

    @property
    def used(self) -> np.ndarray:
        """How many members each input had, (inputs,): all of them, unless a tolerance stopped it."""
        if "members" in self.table.columns:
            return self.table.columns["members"]
        if self.members is None:
            raise ValueError("used takes scores with a known number of members. Got none.")
        return np.full(len(self), self.members)

    @property
    def predictions(self) -> np.ndarray:
        """What the average of the members predicts.

        A class, or the mean of a predicted number, (inputs,). Of several labels (inputs, labels), 1 for each
        whose average probability is above 1/2.
        """
        if "prediction" not in self.table.columns:
            raise ValueError("predictions takes scores with a column prediction. These have none.")
        return self.table.columns["prediction"]

    @property
    def correct(self) -> np.ndarray:
        """Whether the average of the members predicts the label, (inputs,); of several labels, all of them.

        Labels must be class indices from 0 on, or the names of classes that the posterior knows or that
        ``demur.score(..., classes=...)`` was given. Numbers have no such answer: see ``demur.tasks.within``.
        """
        if self.labels is None:
            raise ValueError("correct takes labels. The loader had none: give batches of (inputs, labels).")
        names = self.table.columns.get("prediction_name")  # of files whose classes have names
        if names is not None and self.labels.dtype.kind == "U":
            return mark_correct(names, self.labels, self.outcome)
        return mark_correct(self.predictions, self.labels, self.outcome, self.table.classes)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """All columns by name: input, id, label, prediction, deployed, ``{measure}_{part}``, and your own.

        Several labels, or numbers, of an input are ``label_0``, ``prediction_0`` and so on.
        """
        rest = dict(self.table.columns)
        found = {"input": rest.pop("input")}
        found |= {} if self.ids is None else {"id": self.ids}
        found |= _spread("label", self.labels) | _spread("prediction", rest.pop("prediction", None))
        found |= {} if self.deployed is None else {"deployed": self.deployed}
        return found | rest

    def with_column(self, name: str, values: Any) -> Scores:
        """Return the same scores with one more column: a density, an energy, a score of your own.

        Parameters
        ----------
        name
            A name that no column has yet.
        values
            Numbers or text, (inputs,).

        Examples
        --------
        >>> logits = np.random.default_rng(0).normal(size=(5, 3, 2))
        >>> scores = demur.score(lambda x: demur.Categorical(logits=logits), [np.zeros((3, 1))])
        >>> more = scores.with_column("energy", -np.logaddexp.reduce(logits.mean(0), axis=-1))
        >>> list(more.columns)[-1]
        'energy'
        """
        if not isinstance(name, str) or not name:
            raise TypeError(f"name must be a text that is not empty. Got {name!r}.")
        reserved = ("id", "label", "deployed", "prediction", "members")
        if name in self.columns or name in reserved:
            raise ValueError(f"name must be one that no column has. Got {name!r}. Choose another.")
        found = as_column(name, values, len(self))
        if found is None:
            raise TypeError(f"{name} must be one value for each input. Got None.")
        return replace(self, table=replace(self.table, columns=self.table.columns | {name: found}))

    def to_pandas(self) -> pandas.DataFrame:
        """Return a table with a row for each input; needs pandas, in ``demur[tables]``."""
        try:
            import pandas
        except ImportError:
            raise ImportError(
                "to_pandas needs pandas. Install it with: pip install 'demur[tables]'"
            ) from None
        return pandas.DataFrame(self.columns)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write a file as ``demur score --out`` does: .csv, .parquet, .npz or .json, by the name's ending.

        Two columns hold the number of members and the unit; in .json they are beside the columns. An
        existing file is replaced only with ``force``, and an error otherwise.
        """
        facts = {
            "inputs": len(self),
            "members": self.table.members,
            "classes": self.table.classes,
            "outcome": self.outcome,
            "rule": self.rule,
            "unit": None if self.rule is None else name_unit(self.rule, self.base),
            "unbiased": self.unbiased,
            "summary": self.table.summary(),
        }
        write_scores(Path(path), self.columns, facts, force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Scores:
        """Read a file from ``save`` or from ``demur score --out``.

        The number of members, the rule and the unit come with it; whether values are unbiased only in .json.

        Examples
        --------
        >>> import tempfile
        >>> scores = demur.score(lambda x: demur.Bernoulli(np.array([[0.1, 0.7], [0.2, 0.9]])), [np.zeros(2)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     scores.save(f"{folder}/scores.csv")
        ...     back = demur.Scores.load(f"{folder}/scores.csv")
        >>> back["pairwise"].epistemic.shape
        (2,)
        """
        return cls(**read_scores(Path(path)))


def _spread(name: str, values: np.ndarray | None) -> dict[str, np.ndarray]:
    """Return one column, or one for each entry of the last axis."""
    if values is None:
        return {}
    if values.ndim == 1:
        return {name: values}
    return {f"{name}_{d}": values[:, d] for d in range(values.shape[1])}
