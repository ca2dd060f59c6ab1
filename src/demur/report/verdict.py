"""The verdict in plain words: which score, how good, with what certainty, and where none is better."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from demur.deferral import Deferral
from demur.report.choice import Choice, as_key, choose, equals
from demur.report.findings import ERRORS, Findings, Key
from demur.report.folder import kind_of
from demur.report.words import name_of
from demur.tasks import Detection, Leading
from demur.tasks.estimate import Estimate, all_alike, proportion

FEW = 30  # inputs of a kind, below which a figure is called uncertain
NAMED = 3  # ties that are named; more are counted
TOGETHER = 0.5  # rank correlation from which on two scores are said to rise together
OWN = "Methods are not compared here: one that attacks fool less is certain of them with good reason."
SHARPER = (
    "Scores of one method err on the same inputs, so they are compared more sharply: a small gap can count "
    "there, while a larger one between methods does not."
)


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


def headline(found: Findings) -> list[str]:
    """Return the verdict in a few sentences: what to use, how good it is, how much the choice matters."""
    choice = choose(found)
    if choice is None:
        if found.within:
            return ["There is one score only, so nothing to choose between. How good it is stands below."]
        return [
            "Scores of one kind of inputs, without labels: there is nothing to measure them against.",
            "Below is how they are spread, and which inputs are the least certain.",
        ]
    sentences = [use(found, choice), worth(found, choice), *surprise(found, choice)]
    return [*sentences, matter(found, choice), *few(found)]


def use(found: Findings, choice: Choice) -> str:
    """Return which score to use, and why this one."""
    short, column = name_of(choice.key[1]).short, choice.key[1]
    name = short if short == column else f"{short} (column {column})"
    always = "in this comparison" if choice.number == 1 else f"in all {choice.number} comparisons"
    often = always if choice.good == choice.number else f"in {choice.good} of {choice.number} comparisons"
    if len(found.run.methods) > 1:
        often += " (one for each method and task)"
    if len(choice.equal) == len(found.scores) - 1:
        return (
            f"Use {name}, though none is shown to be better: each of the {len(found.scores)} measures is the "
            f"best, or statistically tied with the best, {often}; this one has the highest mean."
        )
    reason = f"Use {name}: it is the best measure, or statistically tied with the best, {often}"
    if choice.good < choice.number:
        reason += f", and elsewhere up to {100 * choice.behind:.2g} points below it"
    if not choice.equal:
        return f"{reason}; {'no other is' if choice.good == choice.number else 'no other is as often'}."
    others = listed(name_of(score).short for score in choice.equal)
    return f"{reason}; as often {'is' if len(choice.equal) == 1 else 'are'} {others}, lower on average."


def worth(found: Findings, choice: Choice) -> str:
    """Return how good the score is at each task."""

    def figure(result: Detection) -> str:
        area = result.auroc
        ends = " to ".join(f"{100 * end:.{digits_for(area)}f}" for end in (area.low, area.high))
        return f"{percent(area.value, digits_for(area))} ({ends})"

    told = [
        f"{'mistakes' if task == ERRORS else found.run.set_name(task)} {figure(result)}"
        for task, result in choice.figures.items()
    ]
    by = ""
    if len(found.run.methods) > 1:
        unknown = sum(kind_of(task) == "ood" for task in choice.figures)
        if unknown:
            average = " on average" if unknown > 1 else ""
            why = f", where {name_of(choice.key[1]).short} is highest on unknown inputs{average}"
        else:
            why = ", the most accurate method" if choice.key[0] in found.accuracy else ""
        by = f" with {choice.key[0]}{why}"
    return f"AUROC{by}: {', '.join(told)}; 50 % is a coin toss."


def surprise(found: Findings, choice: Choice) -> list[str]:
    """Return why the aleatoric part may find unknown inputs, if that is the verdict."""
    finds = any(result.auroc.low > 0.5 for task, result in choice.figures.items() if task != ERRORS)
    if choice.beside is None or not finds:
        return []
    where = f"with {choice.key[0]}" if len(found.run.methods) > 1 else "in this run"
    together = choice.beside >= TOGETHER
    how = (
        "both rise together, so either of them can find unknown inputs"
        if together
        else "the two tell different things, and each member by itself is unsure of unknown inputs"
    )
    return [
        "That the aleatoric part finds unknown inputs is no mistake: "
        f"{where} {how} (rank correlation of aleatoric with K: {choice.beside:.2f})."
    ]


def matter(found: Findings, choice: Choice) -> str:
    """Return how much the choice of the score matters, beside that of the method."""
    measure = f"{100 * choice.by_score:.2g} points"
    if choice.by_method is None:
        of = " of one method" if len(found.run.methods) > 1 else ""
        return f"Between the best and the worst measure{of} lie up to {measure}."
    ratio = choice.by_method / choice.by_score if choice.by_score else math.inf
    how = "about as much as" if 0.8 < ratio < 1.25 else "more than" if ratio > 1 else "less than"
    return (
        f"On unknown inputs the method matters {how} the measure: by {name_of(choice.key[1]).short} up to "
        f"{100 * choice.by_method:.2g} points lie between methods, and up to {measure} between measures of "
        "one method."
    )


def few(found: Findings) -> list[str]:
    """Return a warning where few mistakes were made."""
    wrong = sorted({result.positives for result in found.errors.values()})
    if not wrong or wrong[0] >= FEW:
        return []
    number = f"{wrong[0]} to {wrong[-1]}" if len(wrong) > 1 else f"{wrong[0]}"
    mistakes = "mistake was" if number == "1" else "mistakes were"
    each = " by each method" if len(found.run.methods) > 1 else ""
    return [f"Only {number} {mistakes} made{each}, so figures on finding them are uncertain."]


def accuracies(found: Findings) -> str:
    """Return how many predictions of each method are right, for sets whose labels tell; else nothing.

    What attacks do to a method is to be seen here, and not from how well their inputs are found.
    """
    methods = found.run.methods
    right = {s: [m.sets[s].correct for m in methods] for s in found.run.sets if kind_of(s) != "ood"}
    shares = {
        s: [float(c.mean()) for c in each if c is not None]
        for s, each in right.items()
        if all(c is not None for c in each)
    }
    if not shares:
        return ""
    told = [
        f"{m.name} {listed(percent(each[place]) for each in shares.values())}".strip()
        for place, m in enumerate(methods)
    ]
    return f"Accuracy on {listed(map(found.run.set_name, shares))}: {'; '.join(told)}."


def cards(found: Findings) -> list[dict[str, Any]]:
    """Return one card for each task: a title, a figure with its interval, and sentences."""
    made = [*detection_cards(found), *error_cards(found), *deferral_cards(found)]
    for place, each in enumerate(made):  # said once is enough
        if any(SHARPER in earlier["sentences"] for earlier in made[:place]):
            each["sentences"] = [sentence for sentence in each["sentences"] if sentence != SHARPER]
    return made


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
    """Return how well other inputs are told from known ones, set by set.

    Attacked ones by the method of the verdict, since methods are not compared by them.
    """
    choice = choose(found)
    own = choice.key[0] if choice else found.run.methods[0].name
    made = []
    for name in found.run.sets:
        best = found.best.get(name) or found.within.get((own, name))
        if best is None:
            continue
        result = found.detections[as_key(best.best)][name]
        kind = "unknown" if name in found.best else "attacked"
        by = best_called(found, best, name)
        caption = f"How often an {kind} input scores higher than a known one, by {by}{alone(best)}."
        title = f"Telling {found.run.set_name(name)} from in-distribution"
        sentences = compared(found, best, name, result, (f"{kind} inputs", "in-distribution inputs"))
        if name not in found.best and len(found.run.methods) > 1:
            sentences.append(OWN)
        made.append(card(title, result.auroc, caption, sentences, chance=True))
    return made


def best_called(found: Findings, best: Leading, task: str) -> str:
    """Return what the best of a task is called, and what is exactly as good."""
    key = as_key(best.best)
    equal = equals(found, best, task)
    names = [name_of(other[1]).short if other[0] == key[0] else called(found, other) for other in equal]
    if len(names) > NAMED:
        names = [f"{len(names)} others"]
    return called(found, key) + (f" (equal: {', '.join(names)})" if names else "")


def alone(best: Leading) -> str:
    """Return that a score was chosen for one task, where there was a choice; the verdict is about all."""
    return ", the best for this task alone" if best.comparisons else ""


def error_cards(found: Findings) -> list[dict[str, Any]]:
    """Return how well each method finds its own errors, and what deferral brings."""
    made = []
    for method in found.run.methods:
        if method.name not in found.accuracy:
            continue
        accuracy = found.accuracy[method.name]
        number = method.sets["id"].number
        of = f" of {method.name}" if len(found.run.methods) > 1 else ""
        best = found.within.get((method.name, ERRORS))
        if best is None:
            what = "No prediction is wrong" if accuracy.value == 1 else "No prediction is right"
            caption = f"{what} among {number:,} inputs, so there is nothing to rank."
            made.append(card(f"Accuracy{of}", accuracy, caption, []))
            continue
        result = found.errors[as_key(best.best)]
        by = best_called(found, best, ERRORS)
        caption = f"How often a wrong prediction scores higher than a right one, by {by}{alone(best)}."
        sentences = compared(found, best, ERRORS, result, ("mistakes", "right predictions"))
        made.append(card(f"Finding the mistakes{of}", result.auroc, caption, sentences, chance=True))
    return made


def deferral_cards(found: Findings) -> list[dict[str, Any]]:
    """Return what leaving the least certain tenth to a person brings, for the most accurate method."""
    keys = [as_key(best.best) for (_, task), best in found.within.items() if task == ERRORS]
    if not keys:
        return []
    key = max(keys, key=lambda key: found.accuracy[key[0]].value)
    known = next(m for m in found.run.methods if m.name == key[0]).sets["id"]
    policy = Deferral.fit(known.scores[key[1]], known.correct, coverage=0.9, confidence=found.confidence)
    t = policy.thresholds[""]
    if t.kept == t.number:
        return []
    share, by = percent(1 - t.kept / t.number), name_of(key[1]).short
    caption = f"Accuracy when the least certain {share} go to a person, by {called(found, key)}."
    right = percent(found.accuracy[key[0]].value)
    rule = (
        f"Without asking, {right} of the predictions are right. No measure finds mistakes better than {by}."
    )
    if len(found.run.methods) > 1:
        rule = (
            f"{key[0]} is taken since it is the most accurate method ({right} without asking), and {by} "
            "since no measure finds its mistakes better."
        )
    measured = (
        "Measured on these inputs. What can be promised for new ones stands below: When to ask a person."
    )
    made = card("Asking a person", proportion(t.right, t.kept, found.confidence), caption, [rule, measured])
    names = [method.name for method in found.run.methods]
    return [made | {"show": [names.index(key[0]), found.scores.index(key[1]), t.kept]}]


def promised(policy: Deferral) -> str:
    """Return in plain words what a policy for an accuracy promises.

    Examples
    --------
    >>> right = np.arange(1000) % 100 > 0
    >>> print(promised(demur.Deferral.fit(np.linspace(0, 1, 1000), right, accuracy=0.95)))
    Nothing is deferred: on new inputs from the same source at least 95 % are right, with confidence 95 %.
    """
    (t,) = policy.thresholds.values()
    who, kept = (
        ("Nothing is", "") if t.value == math.inf else (f"Scores above {t.value:.4g} are", " of the kept")
    )
    return (
        f"{who} deferred: on new inputs from the same source at least {100 * policy.target:g} %{kept} are "
        f"right, with confidence {100 * policy.confidence:g} %."
    )


def compared(
    found: Findings, best: Leading, task: str, result: Detection, kinds: tuple[str, str]
) -> list[str]:
    """Return how the best score stands against chance and the others; `kinds` are what it tells apart."""
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
    if not best.comparisons:
        return sentences
    equal = equals(found, best, task)  # the caption names them
    ties = [key for key in map(as_key, best.ties) if key not in equal]
    worse = {name: c.difference for name, c in best.comparisons.items() if name not in best.ties}
    others = len(best.comparisons)
    if not worse:
        all_others = "the other one" if others == 1 else f"all {others} others"
        return [*sentences, f"None is better here: statistically tied with {all_others}. {span(best)}"]
    if len(ties) > NAMED:
        sentences.append(
            f"Statistically tied with {len(ties)} of the {others} others (marked ≈ in the last table)."
        )
    elif ties:
        sentences.append(f"Statistically tied with {all_called(found, ties)}.")
    nearest = min(worse, key=lambda name: worse[name].value)
    gap = worse[nearest]
    points = " to ".join(f"{100 * x:.2g}" for x in (gap.low, gap.high))
    lower = f"{called(found, as_key(nearest))}, lower by {100 * gap.value:.2g} points ({points})"
    if others == 1:
        sentences.append(f"Better than {lower}.")
        return sentences
    them = "Better than the rest" if ties or equal else f"Better than all {others} others"
    sentences.append(f"{them}, of which the nearest is {lower}. {span(best)}")
    if any(best.comparisons[name].difference.value > gap.value for name in best.ties):
        sentences.append(SHARPER)
    return sentences


def span(best: Leading) -> str:
    """Return between what the figures of all scores lie: whether the choice matters."""
    losses = [c.difference.value for c in best.comparisons.values()]
    count = len(losses) + 1
    furthest = f"{100 * max(losses):.2g}"
    return f"The lowest of all {count} is {furthest} points below the best."
