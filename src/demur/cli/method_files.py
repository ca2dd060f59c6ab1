"""Files that `demur evaluate` reads, one per method: scores, or predictions that are scored first."""

from __future__ import annotations

import glob
import os
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from demur.cli.score import Kind, choose_kind, score_files
from demur.report.run_folder import kind_of
from demur.report.score_names import COLUMNS_BY_NAME, SCORE_NAMES
from demur.report.tables import PAPER

if TYPE_CHECKING:
    import numpy as np

DEFAULT_SCORE = "pairwise_epistemic"
"""The score that stands first where the user names none."""


@dataclass(frozen=True)
class MethodScores:
    """The scores of one method: its name, the file that messages name, and the columns."""

    name: str
    path: str
    columns: dict[str, np.ndarray]

    def score(self, name: str) -> np.ndarray:
        """Return a column of numbers."""
        from demur.stores import StoreError, pick_column, pick_numbers

        try:
            pick_column(self.columns, name, self.path)
        except StoreError as error:
            words = ", ".join(f"{known.short} for {column}" for column, known in SCORE_NAMES.items())
            raise StoreError(f"{error}; short names are {words}") from error
        return pick_numbers(self.columns, name, self.path)


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
    """

    def __init__(
        self, scores: Sequence[str] | None, *, logits: bool, probs: bool, log_probs: bool, axis: int
    ) -> None:
        self.wanted = tuple(dict.fromkeys(scores or ()))
        self.kind: Kind | None = None
        if logits or probs or log_probs:
            self.kind = choose_kind(logits=logits, probs=probs, log_probs=log_probs)
        self.axis = axis

    @property
    def head(self) -> str:
        """The score that stands first in a JSON object."""
        return self.wanted[0] if self.wanted else DEFAULT_SCORE

    def read(self, written: str) -> MethodScores:
        """Read `path` or `name=path`; else the name is that of the method (METHOD/id.csv) or of the file."""
        from demur.stores import read_columns

        name, path = split_method_name(written)
        if self.kind is None:
            columns = read_columns(Path(path))
        else:
            names = [_spell_out(each, ()) for each in self.wanted or PAPER]
            measures = list(dict.fromkeys(each.rpartition("_")[0] or each for each in names))
            options = {"rule": "log", "base": None, "unbiased": False, "stderr": False, "measures": measures}
            columns = score_files([path], self.kind, axis=self.axis, options=options).columns
        self.wanted = tuple(dict.fromkeys(_spell_out(each, columns) for each in self.wanted))
        stem = Path(path).stem  # several sets of one method are told apart by their own names
        return MethodScores(name or (stem == "id" and find_method(path)) or stem, path, columns)

    def read_all(self, written: Sequence[str]) -> list[MethodScores]:
        """Read several files, each under its own name."""
        found = [self.read(each) for each in written]
        names = [source.name for source in found]
        for source in found:
            if names.count(source.name) > 1:
                raise ValueError(
                    f"expected a different name for each file, as NAME={source.path}, got {source.name} twice"
                )
        return found

    def scores(self, sources: Sequence[MethodScores]) -> tuple[str, ...]:
        """Return the names of the scores: as wanted, or the paper's, of those that all files have."""
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
    known: Sequence[MethodScores], unknown: Sequence[MethodScores]
) -> dict[str, tuple[MethodScores, MethodScores]]:
    """Return in- and out-of-distribution inputs that belong together, by name.

    One --id goes with every --ood. Several go with the --ood of the same name.
    """
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
