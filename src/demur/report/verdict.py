"""The verdict in plain words: what to use, how good it is, with what certainty, and where none is better."""

from __future__ import annotations

import math
from collections.abc import Iterable

from demur.report.choice import Choice, choose
from demur.report.findings import ERRORS, Findings
from demur.report.folder import kind_of
from demur.report.words import name_of
from demur.tasks import Detection
from demur.tasks.estimate import Estimate

FEW = 30  # inputs of a kind, below which a figure is called uncertain
NAMED = 3  # ties that are named; more are counted
_TOGETHER = 0.5  # rank correlation from which on two scores are said to rise together


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


def rounded(estimate: Estimate) -> str:
    """Write a share with these digits."""
    return percent(estimate.value, digits_for(estimate))


def interval(estimate: Estimate) -> str:
    """Write the interval of a share.

    Examples
    --------
    >>> interval(Estimate(0.9, 0.88, 0.92))
    '95 % interval 88.0 % to 92.0 %'
    """
    ends = " to ".join(percent(end, digits_for(estimate)) for end in (estimate.low, estimate.high))
    return f"{100 * estimate.confidence:g} % interval {ends}"


def points(difference: float) -> str:
    """Write a difference of two shares.

    Examples
    --------
    >>> points(0.0123), points(0.01), points(1.0)
    ('1.2 points', '1 point', '100 points')
    """
    text = _hundredfold(difference)
    return f"{text} point{'' if text == '1' else 's'}"


def _hundredfold(difference: float) -> str:
    """Write a difference in percent, with two digits and without a power of ten."""
    return f"{float(f'{100 * difference:.2g}'):g}"


def away(difference: Estimate) -> str:
    """Write a difference of two shares with its interval.

    Examples
    --------
    >>> away(Estimate(0.012, 0.004, 0.02))
    '1.2 points (0.4 to 2)'
    """
    return f"{points(difference.value)} ({_hundredfold(difference.low)} to {_hundredfold(difference.high)})"


def listed(names: Iterable[str]) -> str:
    """Write names with commas and an "and".

    Examples
    --------
    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def headline(found: Findings) -> list[str]:
    """Return the verdict in sentences: what to use, why, how good it is, how sure that is, what matters."""
    choice = choose(found)
    if choice is None:
        return _unmeasured(found)
    return [
        use(found, choice),
        *_why_measure(found, choice),
        *_why_method(found, choice),
        worth(found, choice),
        *_surprise(found, choice),
        *matter(found, choice),
        *few(found),
    ]


def _unmeasured(found: Findings) -> list[str]:
    """Return what is missing where nothing can be measured."""
    if found.accuracy:
        said = ["All predictions are right, or all are wrong: there are no mistakes to tell from the rest."]
    elif "id" in found.run.sets:
        said = [
            "Scores of one kind of inputs, without labels: there is nothing to measure them against.",
            "To see how well they find mistakes, add the true classes: a column label in id.csv, as demur "
            "score --labels writes it.",
        ]
    else:
        said = [
            "No scores of known inputs: there is nothing to measure these against. Add them as id.csv, best "
            "with the true classes in a column label, as demur score --labels writes it."
        ]
    if found.run.sets == ["id"]:
        said.append("To see how well they find unknown inputs, add scores of such inputs as ood-NAME.csv.")
    return [*said, "Below is how the scores are spread, and which inputs are the least certain."]


def use(found: Findings, choice: Choice) -> str:
    """Return what to use."""
    method, score = choice.key
    short = name_of(score).short
    name = short if short == score else f"{short} (column {score})"
    if len(found.run.methods) > 1:
        return f"Use {method} with {name}."
    return f"Use {name}." if len(found.scores) > 1 else f"There is one measure, {name}, so nothing to choose."


def _why_measure(found: Findings, choice: Choice) -> list[str]:
    """Return why this measure: how often it is the best or tied, and how far behind it may be."""
    if len(found.scores) == 1:
        return []
    own, number = choice.key[1], choice.number
    good, short = choice.good[own], name_of(own).short
    often = "in this comparison" if number == 1 else f"in all {number} comparisons"
    if good < number:
        often = f"in {good} of {number} comparisons"
    if number > 1:
        often += f" (one for each {'method and ' * (len(found.run.methods) > 1)}task)"
    lost = points(choice.losses[own])
    if len(choice.equal) == len(found.scores) - 1 and good == number:
        never = f"is never more than {lost} below the best, and no other keeps closer to it"
        return [
            f"None of the {len(found.scores)} measures is shown to be better: each is the best, or "
            f"statistically tied with the best, {often}.",
            f"The measure {short} {never if choice.losses[own] else 'is always the highest'}.",
        ]
    behind = f" and never more than {lost} below it" if choice.losses[own] else ""
    reason = f"The measure {short} is the best, or statistically tied with the best, {often}{behind}"
    if choice.equal:
        others = [f"{name_of(s).short} (up to {points(choice.losses[s])} below it)" for s in choice.equal]
        return [f"{reason}; as often {'is' if len(others) == 1 else 'are'} {listed(others)}."]
    said = [f"{reason}; no other measure is{' that often' if number > 1 else ''}."]
    closest = min(choice.losses, key=lambda score: choice.losses[score])
    if choice.losses[closest] < choice.losses[own]:
        said.append(
            f"The one that keeps closest to the best is {name_of(closest).short} (best or tied in "
            f"{choice.good[closest]}): never more than {points(choice.losses[closest])} below it."
        )
    return said


def _why_method(found: Findings, choice: Choice) -> list[str]:
    """Return why this method, where there are several."""
    method, number = choice.key[0], len(found.run.methods)
    if number == 1:
        return []
    unknown = sum(kind_of(task) == "ood" for task in choice.figures)
    if unknown:
        average = ", on average over their sets" if unknown > 1 else ""
        all_others = number > 2 and len(choice.rivals) == number - 1
        others = "any of the others" if all_others else listed(choice.rivals or [""])
        doubt = f", but is not shown to be better than {others}" if choice.rivals else ""
        return [
            f"By {name_of(choice.key[1]).short}, {method} finds unknown inputs best of the {number} "
            f"methods{average}{doubt}."
        ]
    if method in found.accuracy:
        most = max(accuracy.value for accuracy in found.accuracy.values())
        some = "" if found.accuracy[method].value == most else " that makes mistakes"
        return [f"No method{some} is more accurate than {method}."]
    return [f"Nothing here tells methods apart: {method} is the first."]


def worth(found: Findings, choice: Choice) -> str:
    """Return how good the score is at each task, and how sure that is."""

    def figure(result: Detection) -> str:
        area = result.auroc
        ends = " to ".join(f"{100 * end:.{digits_for(area)}f}" for end in (area.low, area.high))
        return f"{rounded(area)} ({ends})"

    told = [
        f"{'mistakes' if task == ERRORS else found.run.set_name(task)} {figure(result)}"
        for task, result in choice.figures.items()
    ]
    return (
        f"What this choice finds, by AUROC (50 % is a coin toss): {', '.join(told)}. The ranges are "
        f"{100 * found.confidence:g} % intervals for other inputs of the same kinds: they do not tell how "
        "another training run would come out."
    )


def _surprise(found: Findings, choice: Choice) -> list[str]:
    """Return why the aleatoric part may find unknown inputs, if that is the verdict."""
    finds = any(result.auroc.low > 0.5 for task, result in choice.figures.items() if kind_of(task) == "ood")
    if choice.beside is None or not finds:
        return []
    where = f"with {choice.key[0]} " if len(found.run.methods) > 1 else "here "
    correlation = f"(rank correlation {choice.beside:.2f})"
    how = (
        f"aleatoric and K rise together {correlation}, so either of the two can find them"
        if choice.beside >= _TOGETHER
        else f"aleatoric and K tell different things {correlation}, and the members are unsure of them"
    )
    return [f"That the aleatoric part finds unknown inputs is no mistake: {where}{how}."]


def matter(found: Findings, choice: Choice) -> list[str]:
    """Return how much the choice of the measure matters, beside that of the method."""
    if choice.by_method is None:
        if len(found.scores) == 1:
            return []
        of = " of one method" if len(found.run.methods) > 1 else ""
        return [f"Measures{of} differ by up to {points(choice.by_score)}."]
    method = f"methods differ by up to {points(choice.by_method)} (by {name_of(choice.key[1]).short})"
    if len(found.scores) == 1:
        return [f"On unknown inputs {method}."]
    ratio = choice.by_method / choice.by_score if choice.by_score else math.inf
    how = "about as much as" if 0.8 < ratio < 1.25 else "more than" if ratio > 1 else "less than"
    return [
        f"On unknown inputs the method matters {how} the measure: {method}, measures of one method by up to "
        f"{points(choice.by_score)}."
    ]


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
