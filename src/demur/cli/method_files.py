"""Files that `demur evaluate` reads, one per method: scores, or predictions that are scored first."""

from __future__ import annotations

import glob
import os
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from demur.cli.printing import complain, count_things
from demur.cli.scored_files import Kind, choose_kind, score_files
from demur.report.run_sets import kind_of
from demur.report.score_names import COLUMNS_BY_NAME, SCORE_NAMES
from demur.report.tables import PAPER

if TYPE_CHECKING:
    import numpy as np

DEFAULT_SCORE = "pairwise_epistemic"
"""The score that stands first where the user names none."""


NAMELESS_SCORE = "score"
"""What a single column of numbers without a name is called."""


@dataclass(frozen=True)
class MethodFiles:
    """The scores of one method.

    Attributes
    ----------
    name
        Of the method.
    path
        The file that messages name.
    columns
        All rows of the file.
    rows
        True for rows that count: those with a prediction, of the task.
    task
        The only task of these rows, where the file has several.
    """

    name: str
    path: str
    columns: dict[str, np.ndarray]
    rows: np.ndarray
    task: str = ""

    @property
    def wanted(self) -> np.ndarray:
        """True for all rows of the task, with a prediction or without."""
        import numpy as np

        return self.columns["task"] == self.task if self.task else np.ones(len(self.rows), bool)

    def judge(
        self, labels: str | None, prediction: str, tolerance: float | None = None
    ) -> tuple[MethodFiles, np.ndarray]:
        """Return the scores of rows whose label is known, and which of their predictions are right."""
        import numpy as np

        from demur.stores import find_unlabelled, mark_correct, parse_correct, read_labels_of

        truth = None if labels is None else read_labels_of(labels, self.columns)
        correct = mark_correct(self.columns, truth, self.path, prediction=prediction, tolerance=tolerance)
        label = (self.columns if truth is None else truth).get("label")
        if label is None:
            unknown = np.isnan(parse_correct(self.columns["correct"], self.path))
        else:
            unknown = find_unlabelled(label)
        known = replace(self, rows=self.rows & ~unknown)
        left_out = int(self.rows.sum() - known.rows.sum())
        if left_out:
            where = f"{self.path}{f', task {self.task}' if self.task else ''}"
            complain(f"{where}: left out {count_things(left_out, 'row')} without a label")
        return known, correct[known.rows]

    def column(self, name: str) -> np.ndarray:
        """Return the rows that count of any column."""
        from demur.stores import pick_column

        return pick_column(self.columns, name, self.path)[self.rows]

    def score(self, name: str) -> np.ndarray:
        """Return the rows that count of a column of numbers."""
        from demur.stores import StoreError, pick_column, pick_numbers

        try:
            pick_column(self.columns, name, self.path)
        except StoreError as error:
            known = [
                f"{name.short} for {column}" for column, name in SCORE_NAMES.items() if column in self.columns
            ]
            words = f"; short names are {', '.join(known)}" if known else ""
            raise StoreError(f"{error}: choose one with --score{words}") from error
        return pick_numbers(self.columns, name, self.path)[self.rows]


class Reader:
    """Reads files of scores, or of predictions where the options say so.

    Parameters
    ----------
    scores
        The columns that are wanted, or the report's words for them, as K; none: those of the paper's tables.
    logits, probs, log_probs
        At most one: the files are predictions of this kind. None: they are scores.
    axis
        Where predictions have their members.
    task
        The one task that is wanted of scores that have several; None: each.
    """

    def __init__(
        self,
        scores: Sequence[str] | None,
        *,
        logits: bool,
        probs: bool,
        log_probs: bool,
        axis: int | None,
        task: str | None = None,
    ) -> None:
        self.task = task
        self.wanted = tuple(dict.fromkeys(scores or ()))
        self.kind: Kind | None = None
        if logits or probs or log_probs:
            self.kind = choose_kind(logits=logits, probs=probs, log_probs=log_probs)
        self.axis = axis

    @property
    def head(self) -> str:
        """The score that stands first in a JSON object."""
        return self.wanted[0] if self.wanted else DEFAULT_SCORE

    def read(self, written: str) -> MethodFiles:
        """Read `path` or `name=path`; else the name is that of the method (METHOD/id.csv) or of the file."""
        name, path = split_method_name(written)
        if self.kind is None:
            columns = _read_scores(Path(path))
        else:
            from demur.scoring.score_table import ScoreTable

            names = [_spell_out(each, ()) for each in self.wanted or PAPER]
            measures = list(dict.fromkeys(each.rpartition("_")[0] or each for each in names))
            options = {"rule": "log", "base": None, "unbiased": False, "stderr": False, "measures": measures}
            scores = score_files([path], self.kind, axis=self.axis, options=options)
            assert isinstance(scores, ScoreTable)  # in memory, since nothing is written
            columns = scores.columns
        self.wanted = tuple(dict.fromkeys(_spell_out(each, columns) for each in self.wanted))
        stem = Path(path).stem  # several sets of one method are told apart by their own names
        found = name or (stem == "id" and find_method(path)) or stem
        return self._choose_rows(MethodFiles(found, path, columns, _find_scored(path, columns)))

    def _choose_rows(self, source: MethodFiles) -> MethodFiles:
        """Return the rows of the task that is wanted."""
        if self.task is None:
            return source
        from demur.stores import pick_column

        tasks = pick_column(source.columns, "task", source.path)
        if self.task not in tasks:
            known = ", ".join(dict.fromkeys(tasks.tolist()))
            raise ValueError(f"{source.path}: expected one of the tasks {known}, got --task {self.task}")
        return replace(source, rows=source.rows & (tasks == self.task), task=self.task)

    def read_all(self, written: Sequence[str]) -> list[MethodFiles]:
        """Read several files, each under its own name; each task of a file by itself."""
        found = [self.read(each) for each in written]
        names = [source.name for source in found]
        for source in found:
            if names.count(source.name) > 1:
                raise ValueError(
                    f"expected a different name for each file, as NAME={source.path}, got {source.name} twice"
                )
        return [part for source in found for part in self._split_tasks(source)]

    def _split_tasks(self, source: MethodFiles) -> list[MethodFiles]:
        if source.task or "task" not in source.columns:
            return [source]
        tasks = source.columns["task"]
        return [
            replace(source, rows=source.rows & (tasks == task), task=task)
            for task in dict.fromkeys(tasks.tolist())
        ]

    def scores(self, sources: Sequence[MethodFiles]) -> tuple[str, ...]:
        """Return the names of the scores: as wanted, or the paper's, of those that all files have."""
        if not self.wanted and all(NAMELESS_SCORE in source.columns for source in sources):
            self.wanted = (NAMELESS_SCORE,)
        if self.wanted:
            return self.wanted
        for source in sources:
            if DEFAULT_SCORE not in source.columns:
                known = [name for name, values in source.columns.items() if values.dtype.kind == "f"]
                raise ValueError(
                    f"{source.path}: expected a column {DEFAULT_SCORE}, got "
                    f"{', '.join(known) or 'no score'}: choose one with --score"
                )
        return tuple(name for name in PAPER if all(name in source.columns for source in sources))


def _read_scores(path: Path) -> dict[str, np.ndarray]:
    """Read columns of scores, or one number per input."""
    from demur.stores import read_columns, read_labels

    if path.suffix.lower() == ".npy":
        return {NAMELESS_SCORE: read_labels(str(path))["label"]}
    return read_columns(path, nameless=NAMELESS_SCORE)


def _find_scored(path: str, columns: dict[str, np.ndarray]) -> np.ndarray:
    """Return which rows have a prediction, and say how many have none."""
    import numpy as np

    status = columns.get("status")
    if status is None:
        return np.ones(len(next(iter(columns.values()))), bool)
    scored = status == "ok"
    if not scored.all():
        left_out = len(scored) - int(scored.sum())
        complain(f"{path}: left out {left_out} of {count_things(len(scored), 'row')} without a prediction")
    return scored


def name_methods(sources: Sequence[MethodFiles]) -> dict[str, MethodFiles]:
    """Return scores by the name of their method, of their task, or of both."""
    several = len({source.name for source in sources}) > 1
    return {
        (f"{source.name} {source.task}" if several else source.task) if source.task else source.name: source
        for source in sources
    }


def find_method(path: str) -> str:
    """Return the method of a file that is called METHOD/id.csv, as in the folder of a run; else nothing.

    Examples
    --------
    >>> find_method("run/mc-dropout/ood-far.csv"), find_method("id.csv"), find_method("mc-dropout/mine.csv")
    ('mc-dropout', '', '')
    """
    return Path(path).parent.name if kind_of(Path(path).stem) else ""


def _spell_out(name: str, columns: Container[str]) -> str:
    """Return the column that a word of the report stands for, as K, unless there is one of that very name.

    Examples
    --------
    >>> _spell_out("k", ()), _spell_out("aleatoric", ()), _spell_out("K", ["K"]), _spell_out("mine", ())
    ('pairwise_epistemic', 'pairwise_aleatoric', 'K', 'mine')
    """
    return name if name in columns else COLUMNS_BY_NAME.get(name.lower().replace("_", " "), name)


def split_method_name(written: str) -> tuple[str | None, str]:
    """Split `name=path` into both; a `path` alone has no name.

    Examples
    --------
    >>> split_method_name("MC dropout=mcd/id.csv"), split_method_name("id.csv")
    (('MC dropout', 'mcd/id.csv'), (None, 'id.csv'))
    """
    from demur.stores import split_name

    name, equals, path = written.partition("=")
    whole, _ = split_name(written)  # lr=0.1/*.npy may have no name before it
    if not equals or os.path.exists(whole) or glob.glob(whole, recursive=True):
        return None, written
    if not name or not path:
        raise ValueError(f"{written}: expected NAME=FILE, got only a part of it")
    return name, path


def pair_methods(
    known: Sequence[MethodFiles], unknown: Sequence[MethodFiles]
) -> dict[str, tuple[MethodFiles, MethodFiles]]:
    """Return in- and out-of-distribution inputs that belong together, by name.

    One --id goes with every --ood. Several go with the --ood of the same name. Each task goes with itself.
    """
    tasks = list(dict.fromkeys(source.task for source in known))
    if tasks != [""]:
        pairs = [_pair_task(task, known, unknown) for task in tasks]
        several = any(len(each) > 1 for each in pairs)
        return {
            f"{name} {task}" if several else task: pair
            for task, found in zip(tasks, pairs, strict=True)
            for name, pair in found.items()
        }
    if len(known) == 1:
        one = len(unknown) == 1
        return {known[0].name if one else each.name: (known[0], each) for each in unknown}
    others = {source.name: source for source in unknown}
    if set(others) != {source.name for source in known}:
        raise ValueError(
            "expected an --ood of the same name for each --id, as --id MCD=mcd/id.csv --ood MCD=mcd/ood.csv, "
            f"got {', '.join(s.name for s in known)} and {', '.join(others)}"
        )
    return {source.name: (source, others[source.name]) for source in known}


def _pair_task(
    task: str, known: Sequence[MethodFiles], unknown: Sequence[MethodFiles]
) -> dict[str, tuple[MethodFiles, MethodFiles]]:
    """Return the pairs of one task, by the names of the methods."""
    own = [replace(source, task="") for source in known if source.task == task]
    others = [replace(source, task="") for source in unknown if source.task == task]
    if not others:
        raise ValueError(
            f"{unknown[0].path}: expected the task {task}, as in {known[0].path}, got no such task"
        )
    return pair_methods(own, others)
