"""A card for each task: what the verdict's method and score are worth there, in a figure and a few words."""

from __future__ import annotations

import math
from typing import Any

from demur.deferral import Deferral
from demur.report.contents import ReportContents
from demur.report.percent import (
    digits_for,
    join_names,
    write_difference,
    write_estimate,
    write_interval,
    write_points,
    write_share,
)
from demur.report.run_sets import kind_of
from demur.report.score_names import name_of
from demur.report.verdict import FEW_INPUTS
from demur.tasks import Detection
from demur.tasks.clusters import Clusters, check_clusters
from demur.tasks.estimate import Estimate, perfect_bound
from demur.tasks.evaluation import ERRORS, Key
from demur.tasks.guarantees import NoGuarantee, write_threshold
from demur.tasks.kept_accuracy import estimate_share

_TIES_NAMED = 3  # ties that are named; more are counted
_TASKS_WITH_CARDS = 4  # predicted tasks up to which each has cards; of more, the one that the page opens with
_NEARLY_ALIKE = 0.9  # rank correlation above which two scores rank nearly the same inputs highest
_NO_COMPARISON = (
    "Methods are not compared here: a method that resists the attack is rightly certain of these inputs."
)


def make_cards(found: ReportContents) -> list[dict[str, Any]]:
    """Return one card for each task, all by the method and the score of the verdict."""
    if "id" not in found.run.sets:
        return []
    keys = [found.key]
    if found.run.by_task and len(found.run.methods) <= _TASKS_WITH_CARDS:
        keys = [(method.name, found.key[1]) for method in found.run.methods]
    return [card for key in keys for card in _cards_of(found, key)]


def _cards_of(found: ReportContents, key: Key) -> list[dict[str, Any]]:
    """Return the cards of a method, or of a task."""
    return [*_detection_cards(found, key), *_error_cards(found, key), *_deferral_cards(found, key)]


def make_parts_card(found: ReportContents) -> dict[str, Any] | None:
    """Return a card on whether the two parts of uncertainty are two things; None where they are not there."""
    method, _ = found.key
    if method not in found.evaluation.parts:
        return None
    measure, apart = found.evaluation.parts[method]
    short = name_of(f"{measure}_epistemic").short
    of = f" of {method}" if len(found.run.methods) > 1 else ""
    figure, ends = _write_correlation(apart.parts)
    sentences = []
    if apart.parts.low > _NEARLY_ALIKE:
        sentences.append("They order the inputs nearly alike, so one tells little that the other does not.")
    if apart.reference is not None and apart.epistemic_reference is not None:
        first, second = (_write_correlation(e) for e in (apart.reference, apart.epistemic_reference))
        sentences.append(
            f"With the reference in the files the aleatoric part has {first[0]} ({first[1]}), {short} "
            f"{second[0]} ({second[1]}): the first should be the higher."
        )
    return {
        "title": "Two kinds of uncertainty",
        "figure": figure,
        "unit": "rank correlation",
        "bounds": [apart.parts.value, apart.parts.low, apart.parts.high],
        "ends": [-1, 1],
        "interval": f"{100 * found.confidence:g} % interval {ends}",
        "caption": f"How alike the aleatoric part and {short}{of} order the in-distribution inputs: 1 is the "
        "same order, 0 none.",
        "sentences": sentences,
        "chance": False,
    }


def _write_correlation(estimate: Estimate) -> tuple[str, str]:
    """Return a rank correlation and its interval, with as many digits as are worth reading."""
    digits = 3 if estimate.high - estimate.low < 0.02 else 2
    value, low, high = (
        f"{each:.{digits}f}".replace("-", "\u2212") for each in (estimate.value, estimate.low, estimate.high)
    )
    return value, f"{low} to {high}"


def _make_card(
    title: str, figure: Estimate, caption: str, sentences: list[str], *, chance: bool = False
) -> dict[str, Any]:
    """Return a card; `chance` says that 50 % is what a coin toss would give."""
    return {
        "title": title,
        "figure": write_estimate(figure),
        "bounds": [figure.value, figure.low, figure.high],
        "interval": write_interval(figure),
        "caption": caption,
        "sentences": sentences,
        "chance": chance,
    }


def _name_key(found: ReportContents, key: Key) -> str:
    """Return what a (method, score) is called: the score alone where there is one method."""
    method, score = key
    return f"{name_of(score).short}{found.run.whose(method)}"


def _name_subject(found: ReportContents, key: Key) -> str:
    """Return the task of a card at the end of its title; nothing without tasks."""
    return f": {key[0]}" if found.run.by_task else ""


def _detection_cards(found: ReportContents, key: Key) -> list[dict[str, Any]]:
    """Return how well other inputs are told from in-distribution ones, set by set."""
    made = []
    for name in [task for task in found.evaluation.tasks_of(key[0]) if task != ERRORS]:
        result = found.evaluation.result(key, name)
        kind = "out-of-distribution" if kind_of(name) == "ood" else "adversarial"
        higher = f"How often an {kind} input scores higher than an in-distribution one"
        caption = f"{higher}, by {_name_key(found, key)}."
        title = f"Telling {found.run.set_name(name)} from {found.run.set_name('id')}"
        title += _name_subject(found, key)
        sentences = _say_doubts(result, (f"{kind} inputs", "in-distribution inputs")) + _compare_within(
            found, key, name
        )
        if len(found.run.methods) > 1 and not found.run.by_task:
            sentences.append(_NO_COMPARISON if kind == "adversarial" else _compare_across(found, key, name))
        made.append(_make_card(title, result.auroc, caption, sentences, chance=True))
    return made


def _error_cards(found: ReportContents, key: Key) -> list[dict[str, Any]]:
    """Return how well mistakes are found."""
    if key[0] not in found.evaluation.accuracy:
        return []
    of = _name_subject(found, key) or found.run.whose(key[0])
    if ERRORS not in found.evaluation.tasks_of(key[0]):
        accuracy = found.evaluation.accuracy[key[0]]
        number = found.run.methods[0].sets["id"].number
        what = "No prediction is wrong" if accuracy.value == 1 else "No prediction is right"
        inputs = "1 input" if number == 1 else f"{number:,} inputs"
        caption = f"{what} among {inputs}, so there is nothing to rank."
        return [_make_card(f"Accuracy{of}", accuracy, caption, [])]
    result = found.evaluation.result(key, ERRORS)
    caption = f"How often a wrong prediction scores higher than a right one, by {_name_key(found, key)}."
    sentences = _say_doubts(result, ("mistakes", "right predictions")) + _compare_within(found, key, ERRORS)
    return [_make_card(f"Finding the mistakes{of}", result.auroc, caption, sentences, chance=True)]


def _deferral_cards(found: ReportContents, key: Key) -> list[dict[str, Any]]:
    """Return what leaving the least certain tenth to a person brings."""
    if ERRORS not in found.evaluation.tasks_of(key[0]):
        return []
    names = [method.name for method in found.run.methods]
    known = found.run.methods[names.index(key[0])].sets["id"]
    try:
        policy = Deferral.fit(known.scores[key[1]], known.correct, coverage=0.9, confidence=found.confidence)
    except NoGuarantee:  # all that it would keep is wrong
        return []
    t = policy.thresholds[""]
    if t.kept == t.number or known.correct is None:
        return []
    caption = (
        f"Accuracy when the least certain {write_share(1 - t.kept / t.number)} go to a person, by "
        f"{_name_key(found, key)}."
    )
    accuracy = found.evaluation.accuracy[key[0]]
    sentences = [
        f"Without asking, {write_share(accuracy.value)} of the predictions are right.",
        "Measured on these inputs. What can be promised for new ones is below, under When to ask a person.",
    ]
    title = f"Asking a person{_name_subject(found, key)}"
    kept = ~policy.defer(known.scores[key[1]])
    together = check_clusters(known.clusters, known.number)
    own = None if together is None else Clusters(together.codes[kept], together.number)
    figure = estimate_share(known.correct[kept], own, found.confidence)
    made = _make_card(title, figure, caption, sentences)
    return [made | {"show": [names.index(key[0]), found.scores.index(key[1]), t.kept]}]


def describe_promise(policy: Deferral, last: float = -math.inf) -> str:
    """Return in plain words what a policy for an accuracy promises; ``last`` is the last score kept.

    Examples
    --------
    >>> right = np.arange(1000) % 100 > 0
    >>> print(describe_promise(demur.Deferral.fit(np.linspace(0, 1, 1000), right, accuracy=0.95)))
    Nothing is deferred: on new inputs from the same source at least 95 % are right, with confidence 95 %.
    """
    (t,) = policy.thresholds.values()
    who, kept = "Nothing is", ""
    if t.value is not None and t.value < math.inf:
        who, kept = f"Scores above {write_threshold(t.value, last)} are", " of the kept"
    return (
        f"{who} deferred: on new inputs from the same source at least {100 * policy.target:g} %{kept} are "
        f"right, with confidence {100 * policy.confidence:g} %."
    )


def _say_doubts(result: Detection, kinds: tuple[str, str]) -> list[str]:
    """Return where a figure says little: no better than chance, or few inputs of one of two kinds."""
    sentences = []
    area = result.auroc
    if result.chance == "toss":
        sentences.append("No better than chance, as far as these inputs can show: 50 % is a coin toss.")
    if result.chance == "below":
        sentences.append(
            f"Below 50 %, a coin toss: the model is more certain of the {kinds[0]} than of the {kinds[1]}, "
            "so this does not find them."
        )
    fewest = min(result.positives, result.negatives)
    if result.clusters is not None and result.clusters < FEW_INPUTS <= fewest:
        sentences.append(f"Only {result.clusters} clusters to judge by: with so few, intervals are wide.")
    if fewest < FEW_INPUTS:
        what = kinds[result.positives > fewest]
        what = what.removesuffix("s") if fewest == 1 else what
        bound = write_share(perfect_bound(fewest, area.confidence), digits_for(area))
        still = f"even a perfect ranking could not rule out {bound}."
        sentences.append(f"Only {fewest} {what} to judge by: with so few, {still}")
    return sentences


def _compare_within(found: ReportContents, key: Key, task: str) -> list[str]:
    """Return how a score stands among those of its method."""
    contest = found.evaluation.contests[task]
    method, score = key
    standings = contest.standings["auroc"][method]
    number = len(standings)
    if number == 1:
        return []
    best = contest.best("auroc", method)
    below = {name: contest.difference("auroc", method, best, name) for name in standings if name != best}
    rivals = len(found.run.methods) > 1 and not found.run.by_task
    of = f"{method}'s {number} measures" if rivals else f"the {number} measures"
    lowest = f" The lowest is {write_points(max(c.difference.value for c in below.values()))} below the best."
    if all(each.chance in ("toss", "below") for each in standings.values()):
        top = f"{name_of(best).short}, has {write_estimate(standings[best].estimate)}"
        return [f"None of {of} is shown to be better than a coin toss: the highest, {top}."]
    if standings[score].tied:
        top = write_estimate(standings[best].estimate)
        return [f"Not shown to be worse than the best of {of}, {name_of(best).short} ({top}).{lowest}"]
    if not standings[score].best:
        behind = write_difference(below[score].difference)
        return [f"Below the best of {of}, {name_of(best).short}, by {behind}.{lowest}"]
    others = [name for name in standings if name != score]
    ties = [name for name in others if standings[name].wins]
    if len(ties) == len(others):
        rest = "the other" if len(others) == 1 else f"the other {len(others)}"
        return [f"The highest of {of}, but not shown to be better than {rest}.{lowest}"]
    if not ties:
        return [f"The best of {of}.{lowest}"]
    named = len(ties) <= _TIES_NAMED
    names = join_names(name_of(name).short for name in ties) if named else f"{len(ties)} of them"
    return [f"The highest of {of}, but not shown to be better than {names}.{lowest}"]


def _compare_across(found: ReportContents, key: Key, task: str) -> str:
    """Return how a score stands among those of all methods, on out-of-distribution inputs."""
    contest = found.evaluation.across[task]
    best, standing = contest.best("auroc", ""), contest.standings["auroc"][""][key]
    if best[0] == key[0] or standing.best:
        return "No measure of another method is higher."
    top = f"{_name_key(found, best)}, {write_estimate(found.evaluation.result(best, task).auroc)}"
    if standing.tied:
        return f"The highest of all methods is {top}: not shown to be better."
    behind = write_difference(contest.difference("auroc", "", best, key).difference)
    return f"The highest of all methods is {top}: better by {behind}."
