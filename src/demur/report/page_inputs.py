"""What the page shows of single inputs: the most uncertain ones, what makes them so, and their pictures."""

from __future__ import annotations

from typing import Any

import numpy as np

from demur.decompose import attribute
from demur.report.answers import SURPRISAL
from demur.report.contents import ReportContents
from demur.report.downsampling import spread_by_rank
from demur.report.page_json import shorten, shorten_all
from demur.report.run_sets import MethodScores, Run, SetScores, correct_of, kind_of
from demur.report.thumbnails import make_sprite

_POINTS_PER_SET = 200  # inputs of a set in the figure of K against I
_THUMBNAIL_BYTES = 400_000  # of all thumbnails, before they are compressed
_MAP_BYTES, _MAP_SIDE = 1_600_000, 96  # of all maps, and of the longer side of one, in pixels
_MOST, _LEAST = (0x00, 0x3A, 0x66), (0xF5, 0xF7, 0xF9)  # colours of the highest and the lowest score of a map
_HIGHEST = 0.99  # share of the pixels of all maps of a set that are below the strongest colour
_CLASSES_NAMED = 3  # classes that are named for an input


def sample_points(scored: SetScores) -> list[list[Any]] | None:
    """Return I and K of some inputs of a set, evenly spaced by rank of K."""
    if not {"pairwise_epistemic", "average_epistemic"} <= set(scored.scores):
        return None
    k, i = scored.scores["pairwise_epistemic"], scored.scores["average_epistemic"]
    some = spread_by_rank(k, _POINTS_PER_SET)
    return [shorten_all(i[some], 4), shorten_all(k[some], 4)]


def list_mistakes(found: ReportContents, method: MethodScores, top: int) -> list[dict[str, Any]] | None:
    """Return the most uncertain mistakes; None where nobody can tell."""
    correct = method.sets["id"].correct if "id" in method.sets else None
    return None if correct is None else list_inputs(found, method, "id", top, np.flatnonzero(~correct))


def list_inputs(
    found: ReportContents, method: MethodScores, name: str, top: int, among: np.ndarray | None = None
) -> list[dict[str, Any]]:
    """Return the most uncertain inputs of a set, or of some `among` it: the first by any of the scores."""
    scored = method.sets[name]
    these = np.arange(scored.number) if among is None else among
    chosen: dict[int, None] = {}
    for score in found.scores:
        first = np.argsort(-scored.scores[score][these], kind="stable")[:top]
        chosen |= dict.fromkeys(these[first].tolist())
    some = sorted(chosen)
    right = correct_of(found.run, method, name)
    why = _explain_inputs(method.members.get(name), some, found.run)
    rows = []
    for place, index in enumerate(some):
        row: dict[str, Any] = {
            "input": index,
            "scores": [shorten(scored.scores[s][index], 5) for s in found.scores],
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


def _explain_inputs(
    members: np.ndarray | None, some: list[int], run: Run
) -> dict[str, list[list[list[Any]]]]:
    """Return the classes that are likely, and those that members disagree about, for some inputs of a set."""
    if members is None or len(members) < 2 or not some:
        return {}
    said = np.asarray(members[:, some], dtype=np.float64)
    return {
        "likely": _name_classes(np.exp(said).mean(axis=0), run),
        "drivers": _name_classes(attribute(log_probs=said), run),
    }


def _name_classes(parts: np.ndarray, run: Run) -> list[list[list[Any]]]:
    """Return the classes with the largest parts of each input, (inputs, classes), and these parts."""
    order = np.argsort(-parts, axis=-1, kind="stable")[:, :_CLASSES_NAMED]
    return [
        [[run.name_of(int(c)), shorten(own[c], 3)] for c in first if own[c] > 0]
        for own, first in zip(parts, order, strict=True)
    ]


def add_answers(
    run: Run,
    scores: list[str],
    rows: dict[tuple[str, str], list[dict[str, Any]]],
    mistakes: dict[str, list[dict[str, Any]] | None],
) -> dict[str, Any]:
    """Give each row of a language model's answer its tokens; return which scores these have, and scales."""
    found = []
    for method in run.methods:
        by_set: list[dict[str, Any] | None] = []
        for name in run.sets:
            tokens, scored = method.tokens.get(name), method.sets[name]
            if tokens is None:
                by_set.append(None)
                continue
            names = [each for each in (*scores, SURPRISAL) if each in tokens.scores]
            listed = [*rows[method.name, name], *((mistakes[method.name] or []) if name == "id" else [])]
            for row in listed:
                place = row["input"]
                text = "" if scored.texts is None else str(scored.texts[place])
                file_row = place if scored.inputs is None else int(scored.inputs[place])
                row["answer"] = tokens.describe_answer(file_row, text, names)
            scales = tokens.describe_scales(names)
            by_set.append({"scores": names, "scales": scales, "limits": tokens.limits})
        found.append(by_set)
    return {"tokens": found}


def add_pictures(
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
        sheets.append(make_sprite(np.asarray(run.images[name][some]), _THUMBNAIL_BYTES // len(run.images)))
    return {"pictures": sheets}


def add_maps(
    run: Run, rows: dict[tuple[str, str], list[dict[str, Any]]], scores: list[str]
) -> dict[str, Any]:
    """Return maps of the inputs that are listed, of one score, and tell each row which one is its own.

    Parameters
    ----------
    run
        The run.
    rows
        By method and set.
    scores
        Names of the scores, in the order of the page.
    """
    stored = [each for method in run.methods for each in method.maps.values()]
    names = [name for name in scores if stored and all(name in each for each in stored)]
    name = next((name for name in names if name.endswith("_epistemic")), next(iter(names), None))
    sheets: list[list[dict[str, Any] | None]] = []
    for method in run.methods:
        sheets.append([])
        for each in run.sets:
            if name is None or each not in method.maps or not rows[method.name, each]:
                sheets[-1].append(None)
                continue
            own = rows[method.name, each]
            inputs = method.sets[each].inputs
            places = [row["input"] if inputs is None else int(inputs[row["input"]]) for row in own]
            maps = np.stack([method.maps[each][name][place] for place in places])
            for place, row in enumerate(own):
                row["map"] = place
            sheets[-1].append(make_sprite(_colour(maps), _MAP_BYTES // len(stored), longer=_MAP_SIDE))
    return {"maps": sheets, "mapped": None if name is None else scores.index(name)}


def _colour(maps: np.ndarray) -> np.ndarray:
    """Return maps as pictures, uint8 (inputs, height, width, 3), all on one scale from 0.

    Pixels without a prediction are white.
    """
    finite = maps[np.isfinite(maps)]
    top = float(np.quantile(finite, _HIGHEST)) if finite.size else 1.0
    missing = np.isnan(maps)
    share = np.clip(np.where(missing, 0, maps) / (top or 1.0), 0, 1)[..., None]
    found = np.rint(share * np.array(_MOST) + (1 - share) * np.array(_LEAST)).astype(np.uint8)
    found[missing] = 255
    return found
