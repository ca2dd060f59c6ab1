"""A card for each task: what the verdict's method and score are worth there, in a figure and a few words."""

from __future__ import annotations

import math
from typing import Any

from demur.deferral import Deferral, written
from demur.report.choice import area, as_key, figure_of, key_of, standing
from demur.report.findings import ERRORS, Findings, Key
from demur.report.folder import kind_of
from demur.report.verdict import (
    FEW,
    NAMED,
    away,
    digits_for,
    interval,
    listed,
    percent,
    points,
    rounded,
)
from demur.report.words import name_of
from demur.tasks import Comparison, Detection
from demur.tasks.estimate import Estimate, all_alike, proportion

OWN = "Methods are not compared here: one that attacks fool less is certain of them with good reason."


def cards(found: Findings) -> list[dict[str, Any]]:
    """Return one card for each task, all by the method and the score of the verdict."""
    if "id" not in found.run.sets:
        return []
    key = key_of(found)
    return [*_detection_cards(found, key), *_error_cards(found, key), *_deferral_cards(found, key)]


def card(
    title: str, figure: Estimate, caption: str, sentences: list[str], *, chance: bool = False
) -> dict[str, Any]:
    """Return a card; `chance` says that 50 % is what a coin toss would give."""
    return {
        "title": title,
        "figure": rounded(figure),
        "bounds": [figure.value, figure.low, figure.high],
        "interval": interval(figure),
        "caption": caption,
        "sentences": sentences,
        "chance": chance,
    }


def _called(found: Findings, key: Key) -> str:
    """Return what a (method, score) is called: the score alone where there is one method."""
    method, score = key
    short = name_of(score).short
    return f"{short} of {method}" if len(found.run.methods) > 1 else short


def _detection_cards(found: Findings, key: Key) -> list[dict[str, Any]]:
    """Return how well other inputs are told from known ones, set by set."""
    made = []
    for name, result in found.detections[key].items():
        kind = "unknown" if kind_of(name) == "ood" else "attacked"
        caption = f"How often an {kind} input scores higher than a known one, by {_called(found, key)}."
        title = f"Telling {found.run.set_name(name)} from {found.run.set_name('id')}"
        sentences = _doubts(result, (f"{kind} inputs", "known inputs")) + compared(found, key, name)
        if len(found.run.methods) > 1:
            sentences.append(OWN if kind == "attacked" else _across(found, key, name))
        made.append(card(title, result.auroc, caption, sentences, chance=True))
    return made


def _error_cards(found: Findings, key: Key) -> list[dict[str, Any]]:
    """Return how well mistakes are found."""
    if key[0] not in found.accuracy:
        return []
    of = f" of {key[0]}" if len(found.run.methods) > 1 else ""
    if key not in found.errors:
        accuracy = found.accuracy[key[0]]
        number = found.run.methods[0].sets["id"].number
        what = "No prediction is wrong" if accuracy.value == 1 else "No prediction is right"
        caption = f"{what} among {number:,} inputs, so there is nothing to rank."
        return [card(f"Accuracy{of}", accuracy, caption, [])]
    result = found.errors[key]
    caption = f"How often a wrong prediction scores higher than a right one, by {_called(found, key)}."
    sentences = _doubts(result, ("mistakes", "right predictions")) + compared(found, key, ERRORS)
    return [card(f"Finding the mistakes{of}", result.auroc, caption, sentences, chance=True)]


def _deferral_cards(found: Findings, key: Key) -> list[dict[str, Any]]:
    """Return what leaving the least certain tenth to a person brings."""
    if key not in found.errors:
        return []
    names = [method.name for method in found.run.methods]
    known = found.run.methods[names.index(key[0])].sets["id"]
    policy = Deferral.fit(known.scores[key[1]], known.correct, coverage=0.9, confidence=found.confidence)
    t = policy.thresholds[""]
    if t.kept == t.number:
        return []
    caption = (
        f"Accuracy when the least certain {percent(1 - t.kept / t.number)} go to a person, by "
        f"{_called(found, key)}."
    )
    sentences = [
        f"Without asking, {percent(found.accuracy[key[0]].value)} of the predictions are right.",
        "Measured on these inputs. What can be promised for new ones stands below: When to ask a person.",
    ]
    made = card("Asking a person", proportion(t.right, t.kept, found.confidence), caption, sentences)
    return [made | {"show": [names.index(key[0]), found.scores.index(key[1]), t.kept]}]


def promised(policy: Deferral, last: float = -math.inf) -> str:
    """Return in plain words what a policy for an accuracy promises; ``last`` is the last score kept.

    Examples
    --------
    >>> right = np.arange(1000) % 100 > 0
    >>> print(promised(demur.Deferral.fit(np.linspace(0, 1, 1000), right, accuracy=0.95)))
    Nothing is deferred: on new inputs from the same source at least 95 % are right, with confidence 95 %.
    """
    (t,) = policy.thresholds.values()
    who, kept = "Nothing is", ""
    if t.value is not None and t.value < math.inf:
        who, kept = f"Scores above {written(t.value, last)} are", " of the kept"
    return (
        f"{who} deferred: on new inputs from the same source at least {100 * policy.target:g} %{kept} are "
        f"right, with confidence {100 * policy.confidence:g} %."
    )


def _doubts(result: Detection, kinds: tuple[str, str]) -> list[str]:
    """Return where a figure says little: no better than chance, or few inputs of one of two kinds."""
    sentences = []
    area = result.auroc
    if area.low <= 0.5 <= area.high:
        sentences.append("No better than chance, as far as these inputs can show: 50 % is a coin toss.")
    fewest = min(result.positives, result.negatives)
    if fewest < FEW:
        what = kinds[result.positives > fewest]
        what = what.removesuffix("s") if fewest == 1 else what
        bound = percent(all_alike(fewest, area.confidence), digits_for(area))
        still = f"even a perfect ranking could not rule out {bound}."
        sentences.append(f"Only {fewest} {what} to judge by: with so few, {still}")
    return sentences


def compared(found: Findings, key: Key, task: str) -> list[str]:
    """Return how a score stands among those of its method."""
    leading = found.within[key[0], task]
    comparisons: dict[Any, Comparison] = dict(leading.comparisons)
    number = len(comparisons) + 1
    if number == 1:
        return []
    best, stands = as_key(leading.best), standing(found, key, task)
    furthest = points(max(c.difference.value for c in comparisons.values()))
    of = f"{key[0]}'s {number} measures" if len(found.run.methods) > 1 else f"the {number} measures"
    lowest = f" The lowest is {furthest} below the best."
    if stands == "tie":
        top = rounded(figure_of(found, best, task).auroc)
        return [f"Not shown to be worse than the best of {of}, {name_of(best[1]).short} ({top}).{lowest}"]
    if stands == "":
        behind = away(comparisons[key].difference)
        return [f"Below the best of {of}, {name_of(best[1]).short}, by {behind}.{lowest}"]
    others = [score for score in found.scores if score != key[1]]
    open_ = [score for score in others if standing(found, (key[0], score), task)]
    if len(open_) == len(others):
        rest = "the other" if len(others) == 1 else f"the other {len(others)}"
        return [f"The highest of {of}, but not shown to be better than {rest}.{lowest}"]
    if not open_:
        return [f"The best of {of}.{lowest}"]
    names = listed(name_of(s).short for s in open_) if len(open_) <= NAMED else f"{len(open_)} of them"
    return [f"The highest of {of}, but not shown to be better than {names}.{lowest}"]


def _across(found: Findings, key: Key, task: str) -> str:
    """Return how a score stands among those of all methods, on unknown inputs."""
    leading = found.best[task]
    comparisons: dict[Any, Comparison] = dict(leading.comparisons)
    best = as_key(leading.best)
    if best[0] == key[0] or area(figure_of(found, best, task)) == area(figure_of(found, key, task)):
        return "No measure of another method is higher."
    top = f"{_called(found, best)}, {rounded(figure_of(found, best, task).auroc)}"
    if key in map(as_key, leading.ties):
        return f"The highest of all methods is {top}: not shown to be better."
    return f"The highest of all methods is {top}: better by {away(comparisons[key].difference)}."
