"""The verdict in plain words: which score, how good, with what certainty, and where none is better."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from demur.deferral import Deferral
from demur.report.findings import Findings, Key
from demur.report.folder import shown_name
from demur.report.words import name_of
from demur.tasks import Detection, Leading
from demur.tasks.estimate import Estimate, proportion


def percent(value: float, digits: int | None = None) -> str:
    """Write a share; near 0 and 1 with more digits, so that 99.97 % is not 100 %.

    Examples
    --------
    >>> percent(0.5), percent(0.99968), percent(1.0), percent(0.0004)
    ('50.0 %', '99.97 %', '100 %', '0.04 %')
    """
    if value in (0, 1):
        return f"{100 * value:.0f} %"
    if digits is None:
        digits = 2 if min(value, 1 - value) < 0.01 else 1
    text = f"{100 * value:.{digits}f}"
    if float(text) in (0, 100):
        return (
            f"under {10**-digits:.{digits}f} %"
            if float(text) == 0
            else f"over {100 - 10**-digits:.{digits}f} %"
        )
    return f"{text} %"


def digits_for(estimate: Estimate) -> int:
    """Return as many digits as an interval of this width makes worth reading."""
    width = estimate.high - estimate.low
    return 2 if width < 0.01 else 1 if width < 0.2 else 0


def interval(estimate: Estimate) -> str:
    """Write the interval of a share.

    Examples
    --------
    >>> interval(Estimate(0.9, 0.88, 0.92))
    '95 % interval 88.0 % to 92.0 %'
    """
    ends = " to ".join(percent(end, digits_for(estimate)) for end in (estimate.low, estimate.high))
    return f"{100 * estimate.confidence:g} % interval {ends}"


def called(found: Findings, key: Key) -> str:
    """Return what a (method, score) is called: the score alone where there is one method."""
    method, score = key
    short = name_of(score).short
    return f"{short} of {method}" if len(found.run.methods) > 1 else short


def listed(names: Iterable[str]) -> str:
    """Write names with commas and an "and".

    Examples
    --------
    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def all_called(found: Findings, keys: Iterable[Key]) -> str:
    """Write several (method, score), those of a method together."""
    by_method: dict[str, list[str]] = {}
    for method, score in keys:
        by_method.setdefault(method, []).append(name_of(score).short)
    if len(found.run.methods) == 1:
        return listed(next(iter(by_method.values())))
    return "; ".join(f"{listed(scores)} of {method}" for method, scores in by_method.items())


def headline(found: Findings) -> str:
    """Return the verdict on all tasks in one sentence or two."""
    tasks = {name: best for name, best in found.best.items() if best.comparisons}
    if not tasks:
        if found.best:
            return "There is one score only, so nothing to choose between. How good it is stands below."
        return (
            "Scores of one kind of inputs, without labels: there is nothing to measure them against. "
            "Below is how they are spread, and which inputs are the least certain."
        )
    good = dict.fromkeys(found.scores, 0)
    for best in tasks.values():
        for score in {score for _, score in map(tuple, (best.best, *best.ties))}:
            good[score] += 1
    always = [score for score, count in good.items() if count == len(tasks)]
    where = "this comparison" if len(tasks) == 1 else f"all {len(tasks)} comparisons"
    if len(always) == len(found.scores):
        return f"None is better here: in {where} every measure is the best, or cannot be told from it."
    if len(always) == 1:
        name = capital(name_of(always[0]).long)
        return f"{name} is the best, or cannot be told from it, in {where}. No other is."
    if always:
        names, others = (
            listed(name_of(score).short for score in found.scores if (score in always) == wanted)
            for wanted in (True, False)
        )
        some = "with one of the methods " if len(found.run.methods) > 1 else ""
        return (
            f"No single winner: each of {names} is {some}the best, or cannot be told from it, in {where}; "
            f"{others} not in all."
        )
    return "Which measure is best depends on the task: none is the best, or as good, in all of them."


def capital(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


def cards(found: Findings) -> list[dict[str, Any]]:
    """Return one card for each task: a title, a figure with its interval, and sentences."""
    return [*detection_cards(found), *error_cards(found), *deferral_cards(found)]


def card(
    title: str, figure: Estimate, caption: str, sentences: list[str], *, chance: bool = False
) -> dict[str, Any]:
    """Return a card; `chance` says that 50 % is what a coin toss would give."""
    return {
        "title": title,
        "figure": percent(figure.value, digits_for(figure)),
        "bounds": [figure.value, figure.low, figure.high],
        "interval": interval(figure),
        "caption": caption,
        "sentences": sentences,
        "chance": chance,
    }


def detection_cards(found: Findings) -> list[dict[str, Any]]:
    """Return how well other inputs are told from known ones, set by set."""
    made = []
    for name in found.run.sets:
        if name in found.best:
            best = found.best[name]
            result = found.detections[as_key(best.best)][name]
            kind = "attacked" if name.startswith("adversarial") else "unknown"
            by = called(found, as_key(best.best))
            caption = f"How often an {kind} input scores higher than a known one, by {by}."
            title = f"Telling {shown_name(name)} from in-distribution"
            made.append(card(title, result.auroc, caption, compared(found, best, result), chance=True))
    return made


def error_cards(found: Findings) -> list[dict[str, Any]]:
    """Return how well each method finds its own errors, and what deferral brings."""
    made = []
    for method in found.run.methods:
        if method.name not in found.accuracy:
            continue
        accuracy = found.accuracy[method.name]
        number = method.sets["id"].number
        of = f" of {method.name}" if len(found.run.methods) > 1 else ""
        best = found.best.get(f"errors of {method.name}")
        if best is None:
            what = "No prediction is wrong" if accuracy.value == 1 else "No prediction is right"
            caption = f"{what} among {number:,} inputs, so there is nothing to rank."
            made.append(card(f"Accuracy{of}", accuracy, caption, []))
            continue
        key = as_key(best.best)
        result = found.errors[key]
        caption = f"How often a wrong prediction scores higher than a right one, by {called(found, key)}."
        made.append(
            card(
                f"Finding the mistakes{of}", result.auroc, caption, compared(found, best, result), chance=True
            )
        )
    return made


def deferral_cards(found: Findings) -> list[dict[str, Any]]:
    """Return what leaving the least certain tenth to a person brings, for the most accurate method."""
    keys = [as_key(best.best) for task, best in found.best.items() if task not in found.run.sets]
    if not keys:
        return []
    key = max(keys, key=lambda key: found.accuracy[key[0]].value)
    known = next(m for m in found.run.methods if m.name == key[0]).sets["id"]
    policy = Deferral.fit(known.scores[key[1]], known.correct, coverage=0.9, confidence=found.confidence)
    t = policy.thresholds[""]
    if t.kept == t.number:
        return []
    who, share = key[0] or "the predictions", percent(1 - t.kept / t.number)
    caption = f"Accuracy of {who} when the least certain {share} go to a person, by {called(found, key)}."
    sentences = [
        f"Of all predictions {percent(found.accuracy[key[0]].value)} are right.",
        "What can be promised for new inputs stands below, at the threshold.",
    ]
    return [card("Asking a person", proportion(t.right, t.kept, found.confidence), caption, sentences)]


def compared(found: Findings, best: Leading, result: Detection) -> list[str]:
    """Return how the best score stands against chance and against the others."""
    sentences = []
    if result.auroc.low <= 0.5 <= result.auroc.high:
        sentences.append("No better than chance, as far as these inputs can show: 50 % is a coin toss.")
    fewest = min(result.positives, result.negatives)
    if fewest < 30:
        sentences.append(
            f"Only {fewest} inputs of one kind: the interval is wide, and reaches as low as that of {fewest} "
            "in perfect order would."
        )
    if not best.comparisons:
        return sentences
    ties = [as_key(name) for name in best.ties]
    worse = {name: c for name, c in best.comparisons.items() if name not in best.ties}
    if not worse:
        return [
            *sentences,
            f"None is better here: no difference from any other could be shown. {span(found, best)}",
        ]
    if ties:
        sentences.append(f"Not to be told from it: {all_called(found, ties)}.")
    nearest = min(worse, key=lambda name: worse[name].difference.value)
    difference = worse[nearest].difference
    points = " to ".join(f"{100 * x:.2g}" for x in (difference.low, difference.high))
    them = "Better than all others" if not ties else "Better than the rest"
    sentences.append(
        f"{them}; the nearest is {called(found, as_key(nearest))}, lower by {100 * difference.value:.2g} "
        f"points ({points}). {span(found, best)}"
    )
    return sentences


def span(found: Findings, best: Leading) -> str:
    """Return between what the figures of all scores lie: whether the choice matters."""
    losses = [c.difference.value for c in best.comparisons.values()]
    count = len(losses) + 1
    furthest = f"{100 * max(losses):.2g}"
    return f"The lowest of all {count} is {furthest} points below the best."


def as_key(name: Any) -> Key:
    """Return a (method, score)."""
    method, score = name
    return method, score
