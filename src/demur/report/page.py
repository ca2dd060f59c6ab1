"""The report of a run: one page with everything in it, to be opened from the file."""

from __future__ import annotations

import html
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from demur.atomic import write_text
from demur.control_characters import escape_controls
from demur.report.cards import make_cards, make_parts_card
from demur.report.contents import ReportContents
from demur.report.page_inputs import (
    add_answers,
    add_maps,
    add_pictures,
    list_inputs,
    list_mistakes,
    sample_points,
)
from demur.report.page_json import embed_json
from demur.report.page_results import describe_score
from demur.report.percent import write_points
from demur.report.run_sets import Run, kind_of
from demur.report.score_names import measures_distances, name_of
from demur.report.verdict import write_accuracies, write_infinities, write_verdict
from demur.stores import StoreError
from demur.tasks.estimate import RESAMPLED_UP_TO

GENERATOR_MARK = b'<meta name="generator" content="demur report">'  # of pages that demur report may replace


def write_page(found: ReportContents, path: Path, *, top: int = 20) -> Path:
    """Write the page, whole or not at all; a report that is there already is replaced.

    Parameters
    ----------
    found
        What `gather_contents` returned.
    path
        The file.
    top
        How many of the most uncertain inputs are listed, by each score.
    """
    text = build_page(found, top=top)
    try:
        write_text(path, text)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path


def build_page(found: ReportContents, *, top: int = 20) -> str:
    """Return the page, with its style, its script and its data put in."""
    folder = files("demur.report") / "pages"

    def part(marker: re.Match[str]) -> str:
        name = marker[1]
        if name == "title":
            return html.escape(escape_controls(_title_of(found.run)))
        if name == "data":
            return embed_json(gather_data(found, top))
        return (folder / name).read_text(encoding="utf-8")

    # In one pass over the page itself, so that nothing is looked for in what was put in.
    return re.sub(r"\{\{([\w.]+)\}\}", part, (folder / "report.html").read_text(encoding="utf-8"))


def _title_of(run: Run) -> str:
    """Return the title: that of the run, or the name of the folder."""
    return run.title or run.path.resolve().name


def gather_data(found: ReportContents, top: int = 20) -> dict[str, Any]:
    """Return all that the page shows, as JSON can hold it."""
    from demur import __version__

    run = found.run
    rows = {(m.name, s): list_inputs(found, m, s, top) for m in run.methods for s in run.sets}
    mistakes = {m.name: list_mistakes(found, m, top) for m in run.methods}
    return {
        "title": _title_of(run),
        "headline": write_verdict(found),
        "accuracies": " ".join(filter(None, (write_accuracies(found), write_infinities(found)))),
        "cards": make_cards(found),
        "parts": make_parts_card(found),
        "confidence": found.confidence,
        "unit": run.unit,
        "byTask": run.by_task,
        "clusters": run.clusters,
        "numbers": measures_distances(run.unit),
        "methods": [method.name for method in run.methods],
        "sets": [
            {"file": s, "name": run.set_name(s), "kind": kind_of(s), "number": run.methods[0].sets[s].number}
            for s in run.sets
        ],
        "scores": [{"column": s, **name_of(s, run.unit)._asdict()} for s in found.scores],
        "results": [[describe_score(found, (m.name, s), m) for s in found.scores] for m in run.methods],
        "points": [
            [None if measures_distances(run.unit) else sample_points(m.sets[s]) for s in run.sets]
            for m in run.methods
        ],
        "start": _find_start(found),
        "chosen": found.recommendation is not None,
        "tally": _count_marks(found),
        "top": top,
        **add_pictures(run, rows, mistakes),
        **add_answers(run, found.scores, rows, mistakes),
        **add_maps(run, rows, found.scores),
        "rows": [[*(rows[m.name, s] for s in run.sets), mistakes[m.name]] for m in run.methods],
        "files": [[m.sets[s].path.relative_to(run.path).as_posix() for s in run.sets] for m in run.methods],
        "members": [[s in m.members for s in run.sets] for m in run.methods],
        "provenance": list_provenance(run, __version__),
        "resampled": RESAMPLED_UP_TO,
    }


def _find_start(found: ReportContents) -> list[int]:
    """Return the method and the score that the page opens with."""
    method, score = found.key
    return [[each.name for each in found.run.methods].index(method), found.scores.index(score)]


def _count_marks(found: ReportContents) -> dict[str, Any] | None:
    """Return what the verdict counts, by score: how often it is the best or tied, and its largest loss."""
    choice = found.recommendation
    if choice is None or len(found.scores) == 1:
        return None
    return {
        "number": choice.number,
        "good": [choice.good[score] for score in found.scores],
        "loss": [write_points(choice.losses[score]) for score in found.scores],
    }


def list_provenance(run: Run, version: str) -> list[list[str]]:
    """Return what was run with what, in lines of name and value."""
    lines = [["Command", run.command], ["Training", run.training]]
    lines += [[method.name, run.made.get(method.name, "")] for method in run.methods]
    lines += [[run.set_name(name), run.sources.get(name, "")] for name in run.sets]
    lines += [["Seed", run.seed]]
    lines += [[name, value] for name, value in run.versions.items()]
    files_ = [scored.path for method in run.methods for scored in method.sets.values()]
    lines.append(["Files", ", ".join(str(path.relative_to(run.path)) for path in files_)])
    return [line for line in lines if line[1]] + [["This page", f"demur {version}, demur report"]]
