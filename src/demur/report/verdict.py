"""The verdict in plain words: what to use, how good it is, with what certainty, and where none is better."""

from __future__ import annotations

import math

import numpy as np

from demur.report.contents import ReportContents
from demur.report.percent import digits_for, join_names, write_estimate, write_points, write_share
from demur.report.run_sets import kind_of
from demur.report.score_names import name_of
from demur.tasks import Detection
from demur.tasks.evaluation import ERRORS
from demur.tasks.recommendation import ScoreAdvice

FEW_INPUTS = 30  # inputs of a kind, below which a figure is called uncertain
_TASKS_NAMED = 6  # tasks that are named one by one
_RISE_TOGETHER_FROM = 0.5  # rank correlation from which on two scores are said to rise together


def write_verdict(found: ReportContents) -> list[str]:
    """Return the verdict in sentences: what to use, why, how good it is, how sure that is, what matters."""
    choice = found.recommendation
    if choice is None:
        return _say_what_is_missing(found)
    if not choice.number:
        return [
            *_say_what_is_missed(found, choice),
            *([] if found.evaluation.ood_sets else _explain_method(found, choice)),
            *_explain_tasks(found),
            _say_how_good(found, choice),
            *_warn_of_few_mistakes(found),
        ]
    return [
        _say_what_to_use(found, choice),
        *_explain_measure(found, choice),
        *_explain_method(found, choice),
        *_explain_tasks(found),
        *_say_what_is_missed(found, choice),
        _say_how_good(found, choice),
        *_explain_agreement(found, choice.key[0]),
        *_explain_aleatoric(found, choice),
        *_say_what_matters(found, choice),
        *_warn_of_few_mistakes(found),
    ]


def _say_what_is_missing(found: ReportContents) -> list[str]:
    """Return what is missing where nothing can be measured."""
    if found.evaluation.accuracy:
        values = {accuracy.value for accuracy in found.evaluation.accuracy.values()}
        which = "right" if values == {1.0} else "wrong" if values == {0.0} else "right, or all are wrong"
        said = [f"All predictions are {which}: there are no mistakes to tell from the rest."]
    elif any("id" in method.sets and method.sets["id"].numbers for method in found.run.methods):
        said = [
            "The predictions are numbers, which hardly ever equal the outcome: this page cannot tell which "
            "are mistakes. Say how close is right: demur evaluate misclassification id.csv --tolerance 0.5."
        ]
    elif "id" in found.run.sets:
        said = [
            "Scores of one kind of inputs, without labels: there is nothing to measure them against.",
            "To see how well they find mistakes, add the true classes: a column label in id.csv, as demur "
            "score --labels writes it.",
        ]
    else:
        said = [
            "No scores of in-distribution inputs: there is nothing to measure these against. Add them as "
            "id.csv, best with the true classes in a column label, as demur score --labels writes it."
        ]
    if found.run.sets == ["id"]:
        said.append(
            "To see how well they find out-of-distribution inputs, add scores of such inputs as ood-NAME.csv."
        )
    return [*said, "Below is how the scores are spread, and which inputs are the least certain."]


def _say_what_to_use(found: ReportContents, choice: ScoreAdvice) -> str:
    """Return what to use."""
    method, score = choice.key
    short = name_of(score).short
    name = short if short == score else f"{short} (column {score})"
    if len(found.run.methods) > 1 and not found.run.by_task:
        return f"Use {method} with {name}."
    return f"Use {name}." if len(found.scores) > 1 else f"There is one measure, {name}, so nothing to choose."


def _say_what_is_missed(found: ReportContents, choice: ScoreAdvice) -> list[str]:
    """Return what no measure finds: where the model is more certain, and where nothing is shown."""
    if not found.run.by_task:
        return _say_what_one_misses(found, choice, choice.key[0])
    return [said for task in choice.missed for said in _say_what_one_misses(found, choice, task)]


def _say_what_one_misses(found: ReportContents, choice: ScoreAdvice, method: str) -> list[str]:
    """Return what no measure of a method finds, or for a task."""
    one = len(found.scores) == 1
    measures = (
        f"the measure {_name_choice(choice)} does not find " if one else "none of these measures finds "
    )
    by = f"{'For' if found.run.by_task else 'With'} {method}, " if len(found.run.methods) > 1 else ""
    missed = choice.missed[method]

    def name(kind: str) -> list[str]:
        return [_name_task(found, task) for task, chance in missed.items() if chance == kind]

    said = []
    if below := name("below"):
        more = "where it is wrong" if missed.get(ERRORS) == "below" and len(below) == 1 else "there"
        said.append(
            f"{by}{measures}{join_names(below)}: the model is more certain {more} than elsewhere, so a high "
            "score does not point to it."
        )
    if toss := name("toss"):
        said.append(
            f"{by}{measures}{join_names(toss)}, as far as these inputs can show: it may be a coin toss."
        )
    return [each[0].upper() + each[1:] for each in said]


def _name_choice(choice: ScoreAdvice) -> str:
    """Return the short name of the measure chosen."""
    return name_of(choice.key[1]).short


def _name_draws(found: ReportContents) -> str:
    """Return what intervals are over draws of."""
    return f"whole clusters of inputs (column {found.run.clusters})" if found.run.clusters else "inputs"


def _name_rows(found: ReportContents) -> str:
    """Return what the methods of a run are: methods, or tasks."""
    return "task" if found.run.by_task else "method"


def _name_task(found: ReportContents, task: str) -> str:
    """Return what is to be found, in words."""
    return "mistakes" if task == ERRORS else found.run.set_name(task)


def _explain_measure(found: ReportContents, choice: ScoreAdvice) -> list[str]:
    """Return why this measure: how often it is the best or tied, and how far behind it may be."""
    if len(found.scores) == 1:
        return []
    own, number = choice.key[1], choice.number
    good, short = choice.good[own], name_of(own).short
    often = "in this comparison" if number == 1 else f"in all {number} comparisons"
    if good < number:
        often = f"in {good} of {number} comparisons"
    if number > 1 and found.run.by_task:
        often += " (one for each task, and for each thing to find there)"
    elif number > 1:
        often += f" (one for each {'method and ' * (len(found.run.methods) > 1)}task)"
    lost = write_points(choice.losses[own])
    if len(choice.equal) == len(found.scores) - 1 and good == number:
        never = f"is never more than {lost} below the best, and no other stays closer to it"
        return [
            f"None of the {len(found.scores)} measures is shown to be better: each is the best, or "
            f"statistically tied with the best, {often}.",
            f"The measure {short} {never if choice.losses[own] else 'is always the highest'}.",
        ]
    behind = f" and never more than {lost} below it" if choice.losses[own] else ""
    reason = f"The measure {short} is the best, or statistically tied with the best, {often}{behind}"
    if choice.equal:
        others = [
            f"{name_of(s).short} (up to {write_points(choice.losses[s])} below it)"
            if choice.losses[s]
            else name_of(s).short
            for s in choice.equal
        ]
        return [f"{reason}; just as often: {join_names(others)}."]
    said = [f"{reason}; no other measure is{' as often' if number > 1 else ''}."]
    closest = min(choice.losses, key=lambda score: choice.losses[score])
    if choice.losses[closest] < choice.losses[own]:
        said.append(
            f"The measure that stays closest to the best is {name_of(closest).short} (best or tied in "
            f"{choice.good[closest]}): never more than {write_points(choice.losses[closest])} below it."
        )
    return said


def _explain_method(found: ReportContents, choice: ScoreAdvice) -> list[str]:
    """Return why this method, where there are several."""
    method, number = choice.key[0], len(found.run.methods)
    if number == 1 or found.run.by_task:
        return []
    unknown = sum(kind_of(task) == "ood" for task in choice.figures[method])
    if unknown:
        average = ", on average over their sets" if unknown > 1 else ""
        all_others = number > 2 and len(choice.rivals) == number - 1
        others = "any of the others" if all_others else join_names(choice.rivals or [""])
        doubt = f", but is not shown to be better than {others}" if choice.rivals else ""
        return [
            f"By {name_of(choice.key[1]).short}, {method} finds out-of-distribution inputs best of the "
            f"{number} methods{average}{doubt}."
        ]
    if method in found.evaluation.accuracy:
        most = max(accuracy.value for accuracy in found.evaluation.accuracy.values())
        some = "" if found.evaluation.accuracy[method].value == most else " that makes mistakes"
        return [f"No method{some} is more accurate than {method}."]
    return [f"Nothing here tells methods apart: {method} is the first."]


def _explain_tasks(found: ReportContents) -> list[str]:
    """Return that tasks do not compete, where there are several."""
    if not found.run.by_task:
        return []
    tasks = list(dict.fromkeys(method.task for method in found.run.methods))
    several = len(tasks) < len(found.run.methods)
    named = join_names(tasks) if len(tasks) <= _TASKS_NAMED else f"{tasks[0]} to {tasks[-1]}"
    said = (
        f"The {len(tasks)} tasks ({named}) are different things to predict, not rival methods"
        if len(tasks) > 1
        else f"There is one task ({tasks[0]})"
    )
    more = f" To compare methods, choose one task: demur report --task {tasks[0]}." if several else ""
    return [
        f"{said}: each has figures of its own, and a higher AUROC in one does not make it the better "
        f"choice.{more}"
    ]


def _say_how_good(found: ReportContents, choice: ScoreAdvice) -> str:
    """Return how good the score is at each task, and how sure that is."""

    def figure(result: Detection) -> str:
        area = result.auroc
        ends = " to ".join(f"{100 * end:.{digits_for(area)}f}" for end in (area.low, area.high))
        return f"{write_estimate(area)} ({ends})"

    def tell(method: str) -> str:
        figures = choice.figures[method].items()
        return ", ".join(f"{_name_task(found, task)} {figure(result)}" for task, result in figures)

    told = tell(choice.key[0])
    if found.run.by_task:
        told = "; ".join(f"{method}: {tell(method)}" for method in choice.figures)
    of = "this choice" if choice.number else f"{_name_choice(choice)}, the highest"
    return (
        f"AUROC of {of} (50 % is a coin toss): {told}. The ranges are "
        f"{100 * found.confidence:g} % confidence intervals over draws of {_name_draws(found)}; another "
        "training run may differ by more."
    )


def _explain_agreement(found: ReportContents, method: str) -> list[str]:
    """Return why the epistemic parts say nothing, if all of them are 0."""
    chosen = next(each for each in found.run.methods if each.name == method)
    parts = [
        values
        for each in chosen.sets.values()
        for name, values in each.scores.items()
        if name in ("pairwise_epistemic", "average_epistemic", "reverse_epistemic")
    ]
    if not parts or any(part.any() for part in parts):
        return []
    return ["Epistemic scores are 0 for all inputs, as those of a single member are: they rank nothing."]


def _explain_aleatoric(found: ReportContents, choice: ScoreAdvice) -> list[str]:
    """Return why the aleatoric part may find out-of-distribution inputs, if that is the verdict."""
    own = choice.figures[choice.key[0]]
    finds = any(r.chance == "above" for task, r in own.items() if kind_of(task) == "ood")
    if choice.aleatoric_with_k is None or not finds:
        return []
    preposition = "for" if found.run.by_task else "with"
    where = f"{preposition} {choice.key[0]} " if len(found.run.methods) > 1 else "here "
    correlation = f"(rank correlation {choice.aleatoric_with_k:.2f})"
    how = (
        f"aleatoric and K rise together {correlation}, so either of the two can find them"
        if choice.aleatoric_with_k >= _RISE_TOGETHER_FROM
        else f"aleatoric and K tell different things {correlation}, and the members are unsure of them"
    )
    return [f"That the aleatoric part finds out-of-distribution inputs is no mistake: {where}{how}."]


def _say_what_matters(found: ReportContents, choice: ScoreAdvice) -> list[str]:
    """Return how much the choice of the measure matters, beside that of the method."""
    if choice.by_method is None:
        if len(found.scores) == 1:
            return []
        of = f" of one {_name_rows(found)}" if len(found.run.methods) > 1 else ""
        return [f"Measures{of} differ by up to {write_points(choice.by_score)}."]
    method = f"methods differ by up to {write_points(choice.by_method)} (by {name_of(choice.key[1]).short})"
    if len(found.scores) == 1:
        return [f"On out-of-distribution inputs {method}."]
    ratio = choice.by_method / choice.by_score if choice.by_score else math.inf
    how = "about as much as" if 0.8 < ratio < 1.25 else "more than" if ratio > 1 else "less than"
    return [
        f"On out-of-distribution inputs the method matters {how} the measure: {method}, measures of one "
        f"method by up to {write_points(choice.by_score)}."
    ]


def _warn_of_few_mistakes(found: ReportContents) -> list[str]:
    """Return a warning where few mistakes were made."""
    contest = found.evaluation.contests.get(ERRORS)
    keys = [(method, found.scores[0]) for method in contest.results] if contest else []
    wrong = sorted({found.evaluation.result(key, ERRORS).positives for key in keys})
    if not wrong or wrong[0] >= FEW_INPUTS:
        return []
    number = f"{wrong[0]} to {wrong[-1]}" if len(wrong) > 1 else f"{wrong[0]}"
    mistakes = "mistake was" if number == "1" else "mistakes were"
    each = " by each method" if len(found.run.methods) > 1 else ""
    each = " in each task" if found.run.by_task else each
    return [f"Only {number} {mistakes} made{each}, so figures on finding them are uncertain."]


def write_accuracies(found: ReportContents) -> str:
    """Return how many predictions of each method are right, for sets whose labels tell; else nothing.

    What attacks do to a method is to be seen here, and not from how well their inputs are found.
    """
    shares = found.evaluation.set_accuracy
    shares = {
        name: by_method for name, by_method in shares.items() if len(by_method) == len(found.run.methods)
    }
    if not shares:
        return ""
    told = [
        f"{name} {join_names(write_share(each[name].value) for each in shares.values())}".strip()
        for name in found.evaluation.methods
    ]
    return f"Accuracy on {join_names(map(found.run.set_name, shares))}: {'; '.join(told)}."


def write_infinities(found: ReportContents) -> str:
    """Return how many inputs have an infinite epistemic part, by method and set; else nothing."""
    told = []
    for method in found.run.methods:
        of = f" ({method.name})" if len(found.run.methods) > 1 else ""
        for name, scored in method.sets.items():
            parts = {each: v for each, v in scored.scores.items() if each.endswith("_epistemic")}
            counts = {each: int(np.isposinf(values).sum()) for each, values in parts.items()}
            if any(counts.values()):
                most = max(counts, key=lambda each: counts[each])
                share = f"{counts[most]:,} of {scored.number:,} {found.run.set_name(name)}"
                told.append(f"{name_of(most).short}{of} for {share}")
    if not told:
        return ""
    return (
        f"Infinite: {'; '.join(told)}. There a member gives probability 0 to what another allows. Rounded "
        "probabilities do so, too: score from logits, or with --rounding, to tell."
    )
