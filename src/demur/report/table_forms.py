"""A table of figures: for a terminal, LaTeX, Markdown and CSV, with notes on what its marks mean."""

from __future__ import annotations

import csv
import io
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from demur.tasks.contest import Standing
from demur.tasks.estimate import Estimate

PAPER_NAMES = {"average": "current", "pairwise": "new"}
_LETTERS = {"average": "I", "pairwise": "K", "reverse": "M"}
_GROUP_NAMES = {
    "Total": "totals",
    "Aleatoric": "aleatoric parts",
    "Epistemic": "epistemic parts",
    "": "scores",
}
FIGURE_NAMES = {
    "auroc": "AUROC", "aupr": "AUPR", "fpr95": "FPR95", "auc": "AUC", "aurc": "AURC", "excess": "excess",
    "augrc": "AUGRC", "prr": "PRR", "nll": "NLL", "brier": "Brier", "ece": "ECE",
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column: its name in files, the heading that it shares with its neighbours, and its own."""

    name: str
    group: str
    heading: str


@dataclass(frozen=True)
class Row:
    """A row: the section it is in, its name, and a `Standing` for each column.

    `fewest` is how many inputs are of the rarer kind, where two kinds are told apart.
    """

    section: str
    name: str
    cells: tuple[Standing, ...]
    fewest: int | None = None


@dataclass(frozen=True)
class Table:
    """Figures in rows and columns.

    Parameters
    ----------
    columns, rows : list
        What stands in it. Sections of rows are shown where there are several.
    across : "score" or "figure"
        What the columns are; the sections of rows are the other.
    level : float
        Significance level of the tests behind the marks of best and tied figures.
    rare : str
        What the rarer kind of inputs is called.
    remarks : list of str
        What else is to be said below it.
    of : str
        What the rows are: "Method", or "Task" for things to predict, which do not compete.

    Examples
    --------
    >>> from demur.tasks import Estimate, Standing
    >>> best = Standing(Estimate(0.9, 0.85, 0.94), best=True)
    >>> tied = Standing(Estimate(0.88, 0.83, 0.92), tied=True)
    >>> names = {"average_epistemic": "mutual information", "pairwise_epistemic": "pairwise KL"}
    >>> columns = [Column(name, "Epistemic", heading) for name, heading in names.items()]
    >>> print(Table(columns, [Row("auroc", "MCD", (best, tied))]).markdown())
    | Method | Epistemic, mutual information | Epistemic, pairwise KL |
    |---|---|---|
    | MCD | **.900** [.850, .940] | .880= [.830, .920] |
    <BLANKLINE>
    Bold: the better of the two epistemic parts. =: ...
    """

    columns: Sequence[Column]
    rows: Sequence[Row]
    across: str = "score"
    level: float = 0.05
    rare: str = "inputs of one kind"
    remarks: Sequence[str] = ()
    of: str = "Method"

    @property
    def corner(self) -> list[str]:
        """Headings of what names the rows."""
        kind = "Figure" if self.across == "score" else "Score"
        return [kind, self.of] if len({row.section for row in self.rows}) > 1 else [self.of]

    def name_rows(self) -> list[list[str]]:
        """Return what names each row, a section where it begins."""
        names, last = [], None
        for row in self.rows:
            section = (
                []
                if len(self.corner) == 1
                else [FIGURE_NAMES.get(row.section, row.section) if row.section != last else ""]
            )
            names.append([*section, row.name])
            last = row.section
        return names

    def notes(self, best: str) -> list[str]:
        """Return what headings and marks mean, a line each, with `best` for the mark of the best."""
        headings = {column.heading for column in self.columns}
        said = [f"{name}: {m} ({_LETTERS[m]})" for m, name in PAPER_NAMES.items() if name in headings]
        notes = [f"{', '.join(said)}.".replace("current", "Current", 1)] if said else []
        totals = [
            c.name.rpartition("_")[0] for c in self.columns if c.group == "Total" and c.heading in _LETTERS
        ]
        if totals:
            each = ", or ".join(f"{_LETTERS[m]} ({m})" for m in totals)
            notes.append(f"Total: aleatoric + {each}.")
        cells = [cell for row in self.rows for cell in row.cells]
        if any(cell.wins for cell in cells):
            equal = "; several where they are equal" if any(map(self._has_equals, self.rows)) else ""
            notes.append(f"{best}: {self._say_contested()}{equal}.")
        if any(cell.wins and cell.tied for cell in cells):
            notes.append(
                "=: no difference from it is shown by a paired test on the same inputs, at "
                f"{self.level:g} for all comparisons together (Holm's correction)."
            )
        notes += self._say_what_is_missed()
        if any(row.section.lower().endswith("auc") for row in self.rows):
            notes.append("AUC: mean accuracy over all shares kept, the most certain first.")
        bounded = [row for row in self.rows if self._has_bound(row)]
        if bounded:
            counts = sorted({row.fewest for row in bounded if row.fewest is not None})
            many = " to ".join(str(n) for n in dict.fromkeys([*counts[:1], *counts[-1:]]))
            notes.append(
                f"Lower ends in a row are alike because there are {f'only {many}' if counts else 'so few'} "
                f"{self.rare}: with so few, even a perfect ranking does not rule out that the true value is "
                "that low."
            )
        return [*notes, *self.remarks]

    def _say_what_is_missed(self) -> list[str]:
        """Return which rows have no score above chance, and that nothing is won there."""
        below, toss, some = [], [], False
        for row in self.rows:
            chances = {cell.chance for cell in row.cells}
            # Sections are figures of one task, or tasks: only of these the name says where.
            name = (
                row.name
                if row.section in FIGURE_NAMES or len(self.corner) == 1
                else f"{row.name}, {row.section}"
            )
            if chances == {"below"}:
                below.append(name)
            elif chances <= {"toss", "below"}:
                toss.append(name)
            else:
                some |= any((cell.best or cell.tied) and not cell.wins for cell in row.cells)
        notes = []
        if below:
            names = "; ".join(dict.fromkeys(below))
            notes.append(
                f"{names}: none of these scores finds what is sought. AUROC is at or below .5: the model is "
                "more certain there."
            )
        if toss:
            names = "; ".join(dict.fromkeys(toss))
            notes.append(f"{names}: no score is shown to be better than a coin toss, AUROC .5.")
        if some:
            notes.append("No mark where the AUROC may be a coin toss, .5: ties at chance are no wins.")
        return notes

    def _has_equals(self, row: Row) -> bool:
        """Return whether several figures under one heading are best, being equal."""
        best = [c.group for c, cell in zip(self.columns, row.cells, strict=True) if cell.best and cell.wins]
        return len(best) > len(set(best))

    def _has_bound(self, row: Row) -> bool:
        """Return whether figures that differ have the same lower end, which their number sets."""
        ends, values = {cell.estimate.low for cell in row.cells}, {cell.value for cell in row.cells}
        return self.across == "score" and len(ends) < len(values)

    def _say_contested(self) -> str:
        """Return among what the best is sought: columns under one heading, where there are several."""
        many = {group: n for group, n in Counter(c.group for c in self.columns).items() if n > 1}
        words = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}
        kinds = [f"of the {words.get(n, n)} {_GROUP_NAMES[group]}" for group, n in many.items()]
        if not kinds:
            return "the best of its kind"
        return f"the {'better' if set(many.values()) == {2} else 'best'} {', or '.join(kinds)}"

    def cells(self) -> list[list[str]]:
        """Return the table for a terminal, headings first; line feeds part values from intervals."""
        head = [*self.corner, *(f"{c.group}\n{_break_heading(c)}".strip("\n") for c in self.columns)]
        body = [
            [f"{write_number(e.value)}{_mark(e, '*')}\n{write_around(e.estimate)}" for e in r.cells]
            for r in self.rows
        ]
        return [head, *(names + cells for names, cells in zip(self.name_rows(), body, strict=True))]

    def markdown(self) -> str:
        """Return the table in Markdown, the best figures in bold."""
        head = [*self.corner, *(", ".join(filter(None, (c.group, c.heading))) for c in self.columns)]
        lines = [head]
        for names, row in zip(self.name_rows(), self.rows, strict=True):
            found = []
            for cell in row.cells:
                value = write_number(cell.value)
                value = f"**{value}**" if cell.best and cell.wins else value + _mark(cell)
                found.append(f"{value} {write_around(cell.estimate)}")
            lines.append(names + found)
        text = ["| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines]
        text.insert(1, "|---" * len(head) + "|")
        notes = " ".join(self.notes("Bold"))
        return "\n".join([*text, "", notes] if notes else text)

    def latex(self) -> str:
        """Return the table in LaTeX, as the paper has it; it needs the package booktabs."""
        above, rules, at = [""] * (len(self.corner) - 1) + [""], [], len(self.corner) + 1
        for group, members in groupby(self.columns, key=lambda column: column.group):
            wide = len(list(members))
            above.append(
                rf"\multicolumn{{{wide}}}{{c}}{{{_escape_latex(group)}}}" if group else " & " * (wide - 1)
            )
            if group and wide > 1:
                rules.append(rf"\cmidrule(lr){{{at}-{at + wide - 1}}}")
            at += wide
        lines = [
            rf"\begin{{tabular}}{{{'l' * len(self.corner)}{'c' * len(self.columns)}}}",
            r"\toprule",
            " & ".join(above) + r" \\ " + "".join(rules),
            " & ".join([*self.corner, *(_escape_latex(c.heading) for c in self.columns)]) + r" \\",
        ]
        last = None
        for names, row in zip(self.name_rows(), self.rows, strict=True):
            if row.section != last:
                lines.append(r"\midrule")
                last = row.section
            cells = [_latex_cell(cell) for cell in row.cells]
            lines.append(" & ".join([*(_escape_latex(name) for name in names), *cells]) + r" \\")
        notes = [f"% {note}" for note in self.notes("Bold")]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", *notes])

    def csv(self) -> str:
        """Return one line for each figure: value, ends, spread, and whether it is best or tied."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["figure", "method", "score", "value", "low", "high", "spread", "best", "tied"])
        for row in self.rows:
            for column, cell in zip(self.columns, row.cells, strict=True):
                e = cell.estimate
                figures = [e.value, e.low, e.high, "" if e.spread is None else e.spread]
                marks = [int(cell.wins and cell.best), int(cell.wins and cell.tied)]
                what = [row.section, column.name][:: 1 if self.across == "score" else -1]
                writer.writerow([what[0], row.name, what[1], *figures, *marks])
        return text.getvalue().rstrip("\n")


def _break_heading(column: Column) -> str:
    """Return the heading of a column for a terminal: narrow, with the letter of its measure as pages have it.

    Examples
    --------
    >>> _break_heading(Column("average_epistemic", "Epistemic", "mutual information")).splitlines()
    ['mutual', 'information I']
    """
    measure, _, part = column.name.rpartition("_")
    letter = _LETTERS.get(measure) if part == "epistemic" else None
    if not letter or not column.heading:
        return column.heading
    if column.heading in PAPER_NAMES.values():
        return f"{letter} ({column.heading})"
    return textwrap.fill(f"{column.heading} {letter}", 14)  # as wide as an interval


def write_number(value: float, digits: int = 3) -> str:
    """Write a number without the zero before the point, as the paper does.

    Examples
    --------
    >>> write_number(0.8764), write_number(1), write_number(-0.2), write_number(float("inf"))
    ('.876', '1.000', '-.200', 'inf')
    """
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def write_around(estimate: Estimate) -> str:
    """Write how uncertain a figure is: the spread over splits, or the interval."""
    if estimate.spread is not None:
        return f"± {write_number(estimate.spread)}"
    return f"[{write_number(estimate.low)}, {write_number(estimate.high)}]"


def _mark(cell: Standing, best: str = "") -> str:
    """Return the mark of a figure."""
    if not cell.wins:
        return ""
    return best if cell.best else "="


def _latex_cell(cell: Standing) -> str:
    """Return a figure in LaTeX: the spread below the line as in the paper, or the interval behind it."""
    estimate = cell.estimate
    value = (
        rf"\boldsymbol{{{write_number(cell.value)}}}" if _mark(cell, "*") == "*" else write_number(cell.value)
    )
    value += "^{=}" * (_mark(cell) == "=")
    if estimate.spread is not None:
        return rf"${value}_{{\pm {write_number(estimate.spread)}}}$"
    return rf"${value}$ {{\scriptsize [{write_number(estimate.low)}, {write_number(estimate.high)}]}}"


def _escape_latex(text: str) -> str:
    r"""Return text that LaTeX prints as it is.

    Examples
    --------
    >>> _escape_latex("DE_5 & 10 %")
    'DE\\_5 \\& 10 \\%'
    """
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(each, f"\\{each}" if each in "&%$#_{}" else each) for each in text)
