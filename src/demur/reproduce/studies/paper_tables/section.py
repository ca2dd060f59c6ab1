"""The section of the results page, from the files of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from demur.report.table_forms import write_number as number
from demur.reproduce.markdown import format_table, join_words
from demur.reproduce.records import Records, convert_to_records
from demur.reproduce.results_page import write_tally
from demur.reproduce.studies.paper_tables.method_comparison import FILE as METHODS_FILE
from demur.reproduce.studies.paper_tables.method_comparison import NETWORKS_FILE
from demur.reproduce.studies.paper_tables.published_figures import get_figure
from demur.stores import read_columns

_PAIRS = {
    "total": ("average_total", "pairwise_total"),
    "epistemic": ("average_epistemic", "pairwise_epistemic"),
}
"""What the paper compares: the current measure and its new one."""
_SIGNIFICANCE = 0.05


def compose_section(out: Path) -> str:
    """Return the section of a run in Markdown.

    Parameters
    ----------
    out
        The folder of the run, with its results.
    """
    facts = json.loads((out / "run.json").read_text("utf-8"))
    said = _format_accuracy(out / "accuracy.csv")
    sizes = ", ".join(f"{name} {size:,}" for name, size in facts["sizes"].items())
    text = [
        f"## {facts['title']}",
        f"`{facts['command'].replace('table2', 'table1')}`, and the same with `table2`",
        f"{facts['note']} Inputs: {sizes}. Accuracy of the average: {said}.".strip(),
        "Mean ± standard deviation over splits. The inputs to be detected are the same in each split, so the "
        "deviation understates the error.",
        (out / "table1.md").read_text("utf-8").strip(),
        (out / "table2.md").read_text("utf-8").strip(),
        "**New minus current**, on the inputs of all splits together, with the interval of the paired "
        "difference. Even: the paired test, corrected for all comparisons of a task, finds no difference.",
        _format_differences(out, facts),
        *_count_winners(out),
    ]
    if facts.get("reference"):
        text += [
            f"**Every method against {facts['reference']}**, by AUROC on the inputs that both scored, all "
            "splits together. K is the epistemic part of the new measure, A3 the disagreement with the "
            "deployed network; scores of one pass are in lower case. Even: DeLong's paired test, corrected "
            "for all rows of a task, finds no difference.",
            _format_methods(out, facts["reference"]),
        ]
        if (out / NETWORKS_FILE).exists():
            text.append(_describe_networks(out, facts))
    if (out / "people.csv").exists():
        text += [
            "**Labels from people.** Spearman correlation of the aleatoric part with the entropy of the "
            "labels that people gave, by rule, with a bootstrap interval over inputs:",
            _format_people(out),
        ]
    return "\n\n".join(text)


def _read_table(path: Path) -> Records:
    """Return the rows of a CSV file."""
    return convert_to_records(read_columns(path))


def _format_accuracy(path: Path) -> str:
    """Return the accuracy of each method in words."""
    said = []
    for each in _read_table(path):
        value, low, high = (f"{100 * each[name]:.1f} %" for name in ("accuracy", "low", "high"))
        said.append(f"{each['method']} {value} [{low}, {high}]")
    return ", ".join(said)


def _describe_networks(out: Path, facts: dict[str, Any]) -> str:
    """Return what methods train that have a network of their own, and how accurate it is."""
    names = [name for name, given in facts["methods"].items() if given["kind"] == "one-pass-network"]
    trained, one = f"on the {facts['sizes']['train']:,} inputs of train", len(names) == 1
    if facts["source"] == "make":
        what = f"a network of {'its' if one else 'their'} own, of the same architecture, {trained}"
        others = "Attacked inputs were attacked on the first network, not on these. "
    else:
        what, others = f"a last layer only, {trained}, on the features of the first network", ""
    return (
        f"{join_words(names)} {'trains' if one else 'train'} {what}. {others}Errors of another network are "
        f"not compared. Accuracy: {_format_accuracy(out / NETWORKS_FILE)}."
    )


def _list_differences(out: Path) -> list[dict[str, Any]]:
    """Return new minus current for each task, method and part, from the saved comparisons."""
    found = []
    for each in _read_table(out / "table1-comparisons.csv") + _read_table(out / "table2-comparisons.csv"):
        for part, (current, new) in _PAIRS.items():
            if {each["score"], each["minus"]} != {current, new}:
                continue
            sign = 1 if each["score"] == new else -1
            ends = sorted(sign * each[end] for end in ("low", "high"))
            found.append({
                "task": each["task"], "method": each["method"], "part": part,
                "difference": sign * each["difference"], "low": ends[0], "high": ends[1],
                "significant": each["adjusted"] <= _SIGNIFICANCE,
            })  # fmt: skip
    return found


def _name_winner(entry: dict[str, Any]) -> str:
    """Return which measure is ahead."""
    if not entry["significant"]:
        return "even"
    return "new" if entry["difference"] > 0 else "current"


def _format_differences(out: Path, facts: dict[str, Any]) -> str:
    """Return the table of differences, beside the paper's figures where it has them."""
    figures = {
        (each["task"], each["method"], each["score"]): each["value"]
        for table in ("table1", "table2")
        for each in _read_table(out / f"{table}-figures.csv")
        if each["figure"] in ("auroc", "auc")
    }
    rows = []
    for each in _list_differences(out):
        current, new = _PAIRS[each["part"]]
        ours = [figures[each["task"], each["method"], score] for score in (current, new)]
        value, low, high = (_format_signed(each[name]) for name in ("difference", "low", "high"))
        interval = f"{value} [{low}, {high}]"
        theirs = [
            get_figure(
                _find_paper_task(each["task"], facts), _find_paper_method(each["method"], facts), score
            )
            for score in (current, new)
        ]
        beside = "" if None in theirs else f"{number(theirs[0] or 0)}, {number(theirs[1] or 0)}"
        row = [each["task"], each["method"], each["part"], f"{number(ours[0])}, {number(ours[1])}", interval]
        rows.append([*row, _name_winner(each), beside])
    head = ["Task", "Method", "Part", "Current, new", "New minus current", "Ahead", "The paper"]
    if not any(row[-1] for row in rows):
        head, rows = head[:-1], [row[:-1] for row in rows]
    return format_table(head, rows)


_SHOWN_SCORES = {"pairwise_epistemic": "K", "A3_epistemic": "A3"}


def _format_methods(out: Path, reference: str) -> str:
    """Return the table of all methods beside the one that they are compared with."""
    rows = []
    for each in _read_table(out / METHODS_FILE):
        value, low, high = (number(each[name]) for name in ("value", "low", "high"))
        ends = [_format_signed(each[name]) for name in ("difference", "difference_low", "difference_high")]
        ahead = each["method"] if each["difference"] > 0 else reference
        rows.append([
            each["task"], each["method"], _SHOWN_SCORES.get(each["score"], each["score"]),
            f"{each['known']:,}, {each['positive']:,}", f"{value} [{low}, {high}]",
            f"{_SHOWN_SCORES[each['against']]} {number(each['reference'])}",
            f"{ends[0]} [{ends[1]}, {ends[2]}]",
            "even" if each["adjusted"] > _SIGNIFICANCE else ahead,
        ])  # fmt: skip
    against = ["Inputs: known, to be detected", "AUROC", reference, f"Minus {reference}", "Ahead"]
    return format_table(["Task", "Method", "Score", *against], rows)


def _find_paper_task(task: str, facts: dict[str, Any]) -> str:
    """Return the task of the paper that a task stands for."""
    for given in facts["sets"].values():
        if "paper" in given and task.startswith(given.get("called", "\0")):
            return given["paper"]
    return task


def _find_paper_method(method: str, facts: dict[str, Any]) -> str:
    """Return the name of a method in the paper."""
    return facts["methods"][method].get("paper", "")


def _count_winners(out: Path) -> list[str]:
    """Return how often the new measure is ahead, in words and as a tally for the summary of the page."""
    lines, counts = [], {}
    for part in _PAIRS:
        found = [_name_winner(each) for each in _list_differences(out) if each["part"] == part]
        new, even, current = (found.count(name) for name in ("new", "even", "current"))
        counts[part] = new, even, current
        lines.append(
            f"By the {part} part the new measure is ahead in {new} of {len(found)} comparisons, "
            f"even in {even}, behind in {current}."
        )
    return [" ".join(lines), write_tally(**counts)]


def _format_people(out: Path) -> str:
    """Return the table of rank correlations."""
    found = _read_table(out / "people.csv")
    rules = list(dict.fromkeys(each["rule"] for each in found))
    methods = list(dict.fromkeys(each["method"] for each in found))
    cells = {
        (each["method"], each["rule"]): f"{number(each['correlation'])} "
        f"[{number(each['low'])}, {number(each['high'])}]"
        for each in found
    }
    rows = [[method, *(cells[method, rule] for rule in rules)] for method in methods]
    return (
        format_table(["Method", *rules], rows) + f"\n\n{found[0]['inputs']:,} inputs have labels from people."
    )


def _format_signed(value: float) -> str:
    """Return a difference with its sign."""
    return f"{'+' if value >= 0 else '−'}{number(abs(value), 4)}"
