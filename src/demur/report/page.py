"""The report of a run: one page with everything in it, to be opened from the file."""

from __future__ import annotations

import html
import json
import math
import os
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from demur.decompose import attribute
from demur.deferral import Deferral, just_below, written
from demur.report import cards, verdict
from demur.report.choice import choose, key_of, standing
from demur.report.findings import ERRORS, RESAMPLED, Findings, Key
from demur.report.folder import Method, Run, Scored, kind_of
from demur.report.shapes import binned, corners, spread
from demur.report.thumbnails import sprite
from demur.report.words import name_of
from demur.stores import StoreError
from demur.tasks import Detection, Selective, accuracy_band, best_accuracy, roc_band
from demur.tasks.estimate import Estimate, proportion

MARK = b'<meta name="generator" content="demur report">'  # of the pages that demur report may replace
STEPS = 100  # places of the slider
_POINTS = 200  # inputs of a set in the figure of K against I
_PIXELS = 400_000  # bytes of all thumbnails before they are compressed
_NAMED = 3  # classes that are named for an input


def write(found: Findings, path: Path, *, top: int = 20) -> Path:
    """Write the page, whole or not at all; a report that is there already is replaced.

    Parameters
    ----------
    found
        What `find` returned.
    path
        The file.
    top
        How many of the most uncertain inputs are listed, by each score.
    """
    text = page(found, top=top)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        os.replace(temporary, path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return path


def page(found: Findings, *, top: int = 20) -> str:
    """Return the page, with its style, its script and its data put in."""
    folder = files("demur.report") / "pages"

    def part(marker: re.Match[str]) -> str:
        name = marker[1]
        if name == "title":
            return html.escape(_title_of(found.run)).encode("utf-8", "replace").decode()
        if name == "data":
            return embedded(data(found, top))
        return (folder / name).read_text(encoding="utf-8")

    # In one pass over the page itself, so that nothing is looked for in what was put in.
    return re.sub(r"\{\{([\w.]+)\}\}", part, (folder / "report.html").read_text(encoding="utf-8"))


def embedded(content: Any) -> str:
    r"""Return JSON that can stand in a script element: no markup, no end of the element, no line separators.

    Examples
    --------
    >>> embedded({"a": "</script><!--"})
    '{"a":"\\u003c/script\\u003e\\u003c!--"}'
    """
    text = json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    # Half a character, as a name of a file may hold, has no place in UTF-8.
    return text.encode("utf-8", "backslashreplace").decode()


def _title_of(run: Run) -> str:
    """Return the title: that of the run, or the name of the folder."""
    return run.title or run.path.resolve().name


def data(found: Findings, top: int = 20) -> dict[str, Any]:
    """Return all that the page shows, as JSON can hold it."""
    from demur import __version__

    run = found.run
    rows = {(m.name, s): _rows_of(found, m, s, top) for m in run.methods for s in run.sets}
    mistakes = {m.name: _mistaken(found, m, top) for m in run.methods}
    return {
        "title": _title_of(run),
        "headline": verdict.headline(found),
        "accuracies": verdict.accuracies(found),
        "cards": cards.cards(found),
        "confidence": found.confidence,
        "methods": [method.name for method in run.methods],
        "sets": [
            {"file": s, "name": run.set_name(s), "kind": kind_of(s), "number": run.methods[0].sets[s].number}
            for s in run.sets
        ],
        "scores": [{"column": s, **name_of(s)._asdict()} for s in found.scores],
        "results": [[result(found, (m.name, s), m) for s in found.scores] for m in run.methods],
        "points": [[_points_of(m.sets[s]) for s in run.sets] for m in run.methods],
        "start": start(found),
        "chosen": choose(found) is not None,
        "tally": tally(found),
        "top": top,
        **pictures(run, rows, mistakes),
        "rows": [[*(rows[m.name, s] for s in run.sets), mistakes[m.name]] for m in run.methods],
        "files": [[m.sets[s].path.relative_to(run.path).as_posix() for s in run.sets] for m in run.methods],
        "members": [[s in m.members for s in run.sets] for m in run.methods],
        "provenance": provenance(run, __version__),
        "resampled": RESAMPLED,
    }


def short(value: float, digits: int = 6) -> Any:
    """Return a number with so many digits; infinity as text."""
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _shorts(values: Any, digits: int = 6) -> list[Any]:
    """Return numbers with so many digits."""
    return [short(value, digits) for value in np.asarray(values).tolist()]


def bounds(estimate: Estimate) -> list[Any]:
    """Return value, low and high."""
    return _shorts([estimate.value, estimate.low, estimate.high])


def start(found: Findings) -> list[int]:
    """Return the method and the score that the page opens with."""
    method, score = key_of(found)
    return [[each.name for each in found.run.methods].index(method), found.scores.index(score)]


def tally(found: Findings) -> dict[str, Any] | None:
    """Return what the verdict counts, by score: how often it is the best or tied, and its largest loss."""
    choice = choose(found)
    if choice is None or len(found.scores) == 1:
        return None
    return {
        "number": choice.number,
        "good": [choice.good[score] for score in found.scores],
        "loss": [verdict.points(choice.losses[score]) for score in found.scores],
    }


def result(found: Findings, key: Key, method: Method) -> dict[str, Any]:
    """Return what one score of one method shows, with null for what labels or sets are missing for."""
    sets = method.sets
    shown = {name: sets[name].scores[key[1]] for name in found.run.sets}
    correct = sets["id"].correct if "id" in sets else None
    if correct is not None:
        shown["wrong"] = shown["id"][~correct]
    density = binned(shown)
    return {
        "density": {
            "edges": _shorts(density.edges),
            "log": density.logarithmic,
            "counts": [density.counts[name].tolist() for name in shown],
            "below": [density.below[name] for name in shown],
            "infinite": [density.infinite[name] for name in shown],
        },
        "detection": [
            _detected(found.detections[key][name], standing(found, key, name))
            if name in found.detections[key]
            else None
            for name in found.run.sets
        ],
        "errors": _detected(found.errors[key], standing(found, key, ERRORS)) if key in found.errors else None,
        "kept": kept(found.kept[key]) if key in found.kept else None,
        "slider": slider(found, key, method) if "id" in sets else None,
    }


def _detected(result: Detection, mark: str) -> dict[str, Any]:
    """Return figures, curve and band of a detection, and where it stands."""
    curve = result.curve
    at = corners(curve.fpr, curve.tpr)
    band = roc_band(result, np.linspace(0, 1, 401), confidence=result.auroc.confidence)
    ends = []
    for end in (band.low, band.high):
        some = corners(band.at, end)
        ends.append([_shorts(band.at[some], 4), _shorts(end[some], 4)])
    return {
        "mark": mark,
        "auroc": bounds(result.auroc),
        "aupr": bounds(result.aupr),
        "fpr95": bounds(result.fpr95),
        "roc": [_shorts(curve.fpr[at]), _shorts(curve.tpr[at])],
        "thresholds": [None, *_shorts(curve.thresholds[at][1:], 5)],
        "band": ends,
    }


def kept(result: Selective) -> dict[str, Any]:
    """Return areas, and the curve of accuracy over the fraction kept with its band, oracle and chance."""
    curve = result.curve
    number = len(curve.kept)
    height = float(np.ptp(curve.accuracy)) or 1.0
    some = np.union1d(
        corners(curve.kept, curve.accuracy / height, 2e-3), np.linspace(0, number - 1, 60).round().astype(int)
    )
    band = accuracy_band(result, some + 1, confidence=result.auc.confidence)
    return {
        "auc": bounds(result.auc),
        "at": (some + 1).tolist(),
        "accuracy": _shorts(curve.accuracy[some]),
        "low": _shorts(band.low),
        "high": _shorts(band.high),
        "oracle": _shorts(best_accuracy(result, some + 1)),
        "chance": short(float(curve.accuracy[-1])),
    }


def slider(found: Findings, key: Key, method: Method) -> dict[str, Any]:
    """Return what thresholds do, from the strictest on, with those of the promises among them."""
    known = method.sets["id"]
    scores = known.scores[key[1]]
    number, ranked = len(scores), np.sort(scores)
    ends = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]) + 1, number)  # no tie is torn apart
    # Half of the places in the last tenth, where good models have their errors.
    wanted = np.ceil(
        number * np.append(np.linspace(0.9 * 2 / STEPS, 0.9, STEPS // 2), np.linspace(0.9, 1, STEPS // 2))
    )
    policies = found.policies.get(key, [])
    promised = [p.thresholds[""].kept for p in policies if isinstance(p, Deferral)]
    at = np.unique([*ends[np.searchsorted(ends, np.clip(wanted, 1, number))], *promised]).astype(int)
    thresholds = np.array([just_below(ranked, int(k)) for k in at])
    shares = [proportion(int(k), number, found.confidence) for k in at]
    shown: dict[str, Any] = {
        "threshold": _shorts(thresholds),
        "written": [
            written(value, float(ranked[k - 1])).replace("-", "\u2212") if value < math.inf else None
            for value, k in zip(thresholds.tolist(), at.tolist(), strict=True)
        ],
        "share": _ends_of(shares),
        "sets": [
            acted(method.sets[s], key[1], thresholds, _right_of(found.run, method, s)) for s in found.run.sets
        ],
    }
    if known.correct is not None:
        right = shown["sets"][found.run.sets.index("id")]["right"]
        accuracy = [proportion(r, int(k), found.confidence) for r, k in zip(right, at, strict=True)]
        shown["accuracy"] = _ends_of(accuracy)
        shown["promises"] = [
            promise(target, p, ranked, at.tolist()) for target, p in zip(found.targets, policies, strict=True)
        ]
    return shown


def promise(target: float, policy: Deferral | str, ranked: np.ndarray, at: list[int]) -> dict[str, Any]:
    """Return what can be promised, in words, and at which place of the slider; or why nothing can be."""
    if isinstance(policy, str):
        return {"target": target, "text": policy, "at": None}
    kept = policy.thresholds[""].kept
    return {"target": target, "text": cards.promised(policy, float(ranked[kept - 1])), "at": at.index(kept)}


def _ends_of(estimates: list[Estimate]) -> list[list[Any]]:
    """Return lower and upper ends; the values follow from the counts."""
    return [_shorts([e.low for e in estimates]), _shorts([e.high for e in estimates])]


def _right_of(run: Run, method: Method, name: str) -> np.ndarray | None:
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


def acted(scored: Scored, score: str, thresholds: np.ndarray, correct: np.ndarray | None) -> dict[str, Any]:
    """Return how many inputs of a set each threshold keeps, and how many of them are right."""
    values = scored.scores[score]
    order = np.argsort(values, kind="stable")
    count = np.searchsorted(values[order], thresholds, side="right")
    right = None
    if correct is not None:
        right = np.append(0, np.cumsum(correct[order]))[count].tolist()
    return {"kept": count.tolist(), "right": right}


def _points_of(scored: Scored) -> list[list[Any]] | None:
    """Return I and K of some inputs of a set, evenly spaced by rank of K."""
    if not {"pairwise_epistemic", "average_epistemic"} <= set(scored.scores):
        return None
    k, i = scored.scores["pairwise_epistemic"], scored.scores["average_epistemic"]
    some = spread(k, _POINTS)
    return [_shorts(i[some], 4), _shorts(k[some], 4)]


def _mistaken(found: Findings, method: Method, top: int) -> list[dict[str, Any]] | None:
    """Return the most uncertain mistakes; None where nobody can tell."""
    correct = method.sets["id"].correct if "id" in method.sets else None
    return None if correct is None else _rows_of(found, method, "id", top, np.flatnonzero(~correct))


def _rows_of(
    found: Findings, method: Method, name: str, top: int, among: np.ndarray | None = None
) -> list[dict[str, Any]]:
    """Return the most uncertain inputs of a set, or of some `among` it: the first by any of the scores."""
    scored = method.sets[name]
    these = np.arange(scored.number) if among is None else among
    chosen: dict[int, None] = {}
    for score in found.scores:
        first = np.argsort(-scored.scores[score][these], kind="stable")[:top]
        chosen |= dict.fromkeys(these[first].tolist())
    some = sorted(chosen)
    right = _right_of(found.run, method, name)
    why = _reasons(method.members.get(name), some, found.run)
    rows = []
    for place, index in enumerate(some):
        row: dict[str, Any] = {
            "input": index,
            "scores": [short(scored.scores[s][index], 5) for s in found.scores],
        }
        if scored.ids is not None:
            row["id"] = str(scored.ids[index])
        if scored.label is not None and (kind_of(name) != "ood" or right is not None):
            row["label"] = found.run.name_of(scored.label[index])
        if scored.prediction is not None:
            row["prediction"] = found.run.name_of(scored.prediction[index])
        if right is not None:
            row["right"] = bool(right[index])
        rows.append(row | {what: classes[place] for what, classes in why.items()})
    return rows


def _reasons(members: np.ndarray | None, some: list[int], run: Run) -> dict[str, list[list[list[Any]]]]:
    """Return the classes that are likely, and those that members disagree about, for some inputs of a set."""
    if members is None or len(members) < 2 or not some:
        return {}
    said = np.asarray(members[:, some], dtype=np.float64)
    return {
        "likely": _first_classes(np.exp(said).mean(axis=0), run),
        "drivers": _first_classes(attribute(log_probs=said), run),
    }


def _first_classes(parts: np.ndarray, run: Run) -> list[list[list[Any]]]:
    """Return the classes with the largest parts of each input, (inputs, classes), and these parts."""
    order = np.argsort(-parts, axis=-1, kind="stable")[:, :_NAMED]
    return [
        [[run.name_of(int(c)), short(own[c], 3)] for c in first if own[c] > 0]
        for own, first in zip(parts, order, strict=True)
    ]


def pictures(
    run: Run,
    rows: dict[tuple[str, str], list[dict[str, Any]]],
    mistakes: dict[str, list[dict[str, Any]] | None],
) -> dict[str, Any]:
    """Return thumbnails of all inputs that are listed, and tell each row which one is its own."""
    sheets: list[dict[str, Any] | None] = []
    for name in run.sets:
        if name not in run.images:
            sheets.append(None)
            continue
        listed = [row for method in run.methods for row in rows[method.name, name]]
        if name == "id":
            listed += [row for own in mistakes.values() for row in own or []]
        some = sorted({row["input"] for row in listed})
        place = {index: position for position, index in enumerate(some)}
        for row in listed:
            row["picture"] = place[row["input"]]
        sheets.append(sprite(np.asarray(run.images[name][some]), _PIXELS // len(run.images)))
    return {"pictures": sheets}


def provenance(run: Run, version: str) -> list[list[str]]:
    """Return what was run with what, in lines of name and value."""
    lines = [["Command", run.command], ["Training", run.training]]
    lines += [[method.name, run.made.get(method.name, "")] for method in run.methods]
    lines += [[run.set_name(name), run.sources.get(name, "")] for name in run.sets]
    lines += [["Seed", run.seed]]
    lines += [[name, value] for name, value in run.versions.items()]
    files_ = [scored.path for method in run.methods for scored in method.sets.values()]
    lines.append(["Files", ", ".join(str(path.relative_to(run.path)) for path in files_)])
    return [line for line in lines if line[1]] + [["This page", f"demur {version}, demur report"]]
