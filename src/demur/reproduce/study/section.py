"""The section of the results page, from the files of a run."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from demur.report.tables import write_number as number
from demur.reproduce import paper
from demur.reproduce.results import tally
from demur.reproduce.study.scoring import read_shares

_PAIRS = {
    "total": ("average_total", "pairwise_total"),
    "epistemic": ("average_epistemic", "pairwise_epistemic"),
}
"""What the paper compares: its current measure and its new one."""
_LEVEL = 0.05


def section(out: Path) -> str:
    """Return the section of a run in Markdown.

    Parameters
    ----------
    out
        The folder of the run, with what `Study.run` laid out in it.
    """
    facts = json.loads((out / "run.json").read_text("utf-8"))
    accuracy = read(out / "accuracy.csv")
    said = ", ".join(
        f"{each['method']} {_percent(each['accuracy'])} [{_percent(each['low'])}, {_percent(each['high'])}]"
        for each in accuracy
    )
    sizes = ", ".join(f"{name} {size:,}" for name, size in facts["sizes"].items())
    text = [
        f"## {facts['title']}",
        f"`{facts['command'].replace('table2', 'table1')}`, and the same with `table2`",
        f"{facts['note']} Inputs: {sizes}. Accuracy of the average: {said}.".strip(),
        "Mean and spread over splits. The inputs to be found are the same in each split, so the spread "
        "understates the error.",
        (out / "table1.md").read_text("utf-8").strip(),
        (out / "table2.md").read_text("utf-8").strip(),
        "**New minus current**, on all inputs of the splits together, with the interval of the paired "
        "difference. Even: the paired test, corrected for all comparisons of a task, cannot tell them apart.",
        _differences(out, facts),
        *_tallies(out),
    ]
    if (out / "people.csv").exists():
        text += [
            "**Labels of people.** Spearman's correlation of the aleatoric part with the entropy of what "
            "people said, with a bootstrap interval over inputs, by rule:",
            people(out),
        ]
    shares = read_shares(out / "timings.jsonl")
    if shares:
        said = ", ".join(f"{name} {share}" for name, share in shares.items())
        text.append(f"Time to score that was spent outside forward passes and products of matrices: {said}.")
    return "\n\n".join(text)


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _percent(text: str) -> str:
    """Write a share in percent."""
    return f"{100 * float(text):.1f} %"


def _compared(out: Path) -> list[dict[str, Any]]:
    """Return new minus current for each task, method and part, from the saved comparisons."""
    found = []
    for each in read(out / "table1-comparisons.csv") + read(out / "table2-comparisons.csv"):
        for part, (current, new) in _PAIRS.items():
            if {each["score"], each["minus"]} != {current, new}:
                continue
            sign = 1 if each["score"] == new else -1
            ends = sorted(sign * float(each[end]) for end in ("low", "high"))
            found.append({
                "task": each["task"], "method": each["method"], "part": part,
                "difference": sign * float(each["difference"]), "low": ends[0], "high": ends[1],
                "told": float(each["adjusted"]) <= _LEVEL,
            })  # fmt: skip
    return found


def _verdict(entry: dict[str, Any]) -> str:
    """Say who is ahead."""
    if not entry["told"]:
        return "even"
    return "new" if entry["difference"] > 0 else "current"


def _differences(out: Path, facts: dict[str, Any]) -> str:
    """Return the table of differences, the paper's beside ours where it has one."""
    figures = {
        (each["task"], each["method"], each["score"]): float(each["value"])
        for table in ("table1", "table2")
        for each in read(out / f"{table}-figures.csv")
        if each["figure"] in ("auroc", "auc")
    }
    rows = []
    for each in _compared(out):
        current, new = _PAIRS[each["part"]]
        ours = [figures[each["task"], each["method"], score] for score in (current, new)]
        interval = f"{_signed(each['difference'])} [{_signed(each['low'])}, {_signed(each['high'])}]"
        theirs = [
            paper.figure(_paper_task(each["task"], facts), _paper_method(each["method"], facts), score)
            for score in (current, new)
        ]
        beside = "" if None in theirs else f"{number(theirs[0] or 0)}, {number(theirs[1] or 0)}"
        row = [each["task"], each["method"], each["part"], f"{number(ours[0])}, {number(ours[1])}", interval]
        rows.append([*row, _verdict(each), beside])
    head = ["Task", "Method", "Part", "Current, new", "New minus current", "Ahead", "The paper"]
    if not any(row[-1] for row in rows):
        head, rows = head[:-1], [row[:-1] for row in rows]
    return markdown(head, rows)


def _paper_task(task: str, facts: dict[str, Any]) -> str:
    """Return the paper's name of a task that stands for one of its own."""
    for given in facts["sets"].values():
        if "paper" in given and task.startswith(given.get("called", "\0")):
            return given["paper"]
    return task


def _paper_method(method: str, facts: dict[str, Any]) -> str:
    """Return the paper's name of a method."""
    return facts["methods"][method].get("paper", "")


def _tallies(out: Path) -> list[str]:
    """Say how often the new measure is ahead, and again for the summary of the page."""
    lines, counts = [], {}
    for part in _PAIRS:
        found = [_verdict(each) for each in _compared(out) if each["part"] == part]
        new, even, current = (found.count(name) for name in ("new", "even", "current"))
        counts[part] = new, even, current
        lines.append(
            f"By the {part} part the new measure is ahead in {new} of {len(found)} comparisons, "
            f"even in {even}, behind in {current}."
        )
    return [" ".join(lines), tally(**counts)]


def people(out: Path) -> str:
    """Return the table of rank correlations."""
    found = read(out / "people.csv")
    rules = list(dict.fromkeys(each["rule"] for each in found))
    methods = list(dict.fromkeys(each["method"] for each in found))
    cells = {
        (each["method"], each["rule"]): f"{number(float(each['correlation']))} "
        f"[{number(float(each['low']))}, {number(float(each['high']))}]"
        for each in found
    }
    rows = [[method, *(cells[method, rule] for rule in rules)] for method in methods]
    return (
        markdown(["Method", *rules], rows) + f"\n\n{int(found[0]['inputs']):,} inputs have labels of people."
    )


def _signed(value: float) -> str:
    """Write a difference with its sign."""
    return f"{'+' if value >= 0 else '−'}{number(abs(value), 4)}"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = ["| " + " | ".join(each) + " |" for each in [head, *rows]]
    lines.insert(1, "|---" * len(head) + "|")
    return "\n".join(lines)
