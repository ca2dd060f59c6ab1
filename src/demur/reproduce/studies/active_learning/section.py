"""The section of the results page: every figure in it comes from the run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from demur.reproduce.markdown import format_p_value, format_table, join_words
from demur.reproduce.studies.active_learning.comparisons import CONFIDENCE, Curve, Difference
from demur.reproduce.studies.active_learning.figures import Titles, list_settings
from demur.tasks import Comparison

if TYPE_CHECKING:
    from demur.reproduce.studies.active_learning.study import Settings

_SIGNIFICANCE = 1 - CONFIDENCE


def compose_section(
    settings: Settings,
    accuracies: Mapping[Curve, np.ndarray],
    areas: Mapping[Curve, float],
    found: Sequence[Difference],
    told: Mapping[Curve, np.ndarray],
    titles: Titles,
) -> str:
    """Return the section in Markdown."""
    every = [each for each in found if each.data == "all"]
    single = [each for each in found if each.data != "all"]
    ends = {curve: float(each[-1]) for curve, each in accuracies.items()}
    _, acquisitions = list_settings(areas)
    against_k = [each for each in every if each.first == "K"]
    against_chance = [each for each in every if each.second == "random"]
    totals = [each for each in every if each.first == "total new" and each.second == "total current"]
    freedom = len({each.data for each in areas}) * (settings.seeds - 1)
    return "\n\n".join(
        [
            "## Active learning",
            _describe_setup(settings),
            f"```sh\n{_write_command(settings)}\n```",
            "![Accuracy over labelled images](figures/results/active-learning-accuracy.png)",
            f"Lines are means over {settings.seeds} seeds, bands go from the lowest seed to the highest.",
            f"Mean accuracy from {settings.label_counts[0]} to {settings.label_counts[-1]} labels (the area "
            "under the curve divided by its width) in percent, mean ± standard deviation over seeds, best "
            "mean bold:",
            _format_means(areas, acquisitions, titles),
            f"Accuracy with {settings.label_counts[-1]} labels, likewise:",
            _format_means(ends, acquisitions, titles),
            "![Areas less that of random labels](figures/results/active-learning-areas.png)",
            "Each circle is a seed, each bar the mean with its interval over test images.",
            "### Is K the better score to ask by?",
            "Differences of the mean accuracy in points, the mean over all settings. *Over seeds*: "
            f"Student's {CONFIDENCE:.0%} interval, paired by seed, with {freedom} degrees of freedom (the "
            "posteriors of a data set share pools, so they are averaged first); it is about other pools, "
            "first images and members. *Over test images*: a paired bootstrap, which takes these very "
            f"members as given. p is after Holm's correction over the {len(every)} comparisons of a column.",
            _format_comparisons(every),
            summarise_k(against_k),
            *(summarise_comparison(each) for each in totals),
            _summarise_random(against_chance),
            _summarise_settings(single, titles),
            _describe_limits(settings, told),
        ]
    )


def _describe_setup(settings: Settings) -> str:
    """Return a paragraph on what was done."""
    one, two = settings.posteriors
    return (
        "Which uncertainty should choose the images to label next? Pools of "
        f"{settings.pool} images, of which {settings.start} have labels at first, as many of each class; "
        f"{settings.rounds} rounds of {settings.batch} labels. After each, new members are fitted to all "
        f"labelled images and tested on {settings.test} others: {one.networks} small convolutional networks "
        f"({one.title}), or one of them with {two.samples} dropout masks ({two.title}). All acquisitions of "
        "a seed have the same pool, first images, first members and random numbers. *Total new* is the "
        "pairwise total, *total current* the entropy of the average; BatchBALD draws "
        f"{settings.configurations} combinations of labels."
    )


def _write_command(settings: Settings) -> str:
    """Return the command that repeats the run."""
    return (
        f"demur reproduce active-learning --data DATA --out RUN --pool {settings.pool} "
        f"--rounds {settings.rounds} --seeds {settings.seeds} --seed {settings.seed}{settings.options} "
        "--docs docs/results.md"
    )


def _format_means(values: Mapping[Curve, float], acquisitions: Sequence[str], titles: Titles) -> str:
    """Return acquisitions by settings; the highest mean of each setting is bold."""
    settings, _ = list_settings(values)
    cells: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for place in settings:
        for name in acquisitions:
            own = [100 * v for c, v in values.items() if c[:3] == (*place, name)]
            cells.setdefault(place, []).append((float(np.mean(own)), float(np.std(own, ddof=1))))
    best = {place: max(mean for mean, _ in column) for place, column in cells.items()}
    head, lines = ["", *(f"{titles[d]}, {titles[p]}" for d, p in settings)], []
    for index, name in enumerate(acquisitions):
        line = [name]
        for place in settings:
            mean, spread = cells[place][index]
            text = f"{mean:.2f} ± {spread:.2f}"
            line.append(f"**{text}**" if mean == best[place] else text)
        lines.append(line)
    return format_table(head, lines)


def _format_comparisons(found: Sequence[Difference]) -> str:
    """Return comparisons with both intervals."""
    lines = []
    for each in found:
        line = [f"{each.first} − {each.second}"]
        for one in (each.seeds, each.images):
            line += [_format_points(one), format_p_value(one.adjusted)]
        lines.append(line)
    return format_table(["", "over seeds", "p", "over test images", "p"], lines)


def _format_points(found: Comparison) -> str:
    """Write a difference and its interval in points of accuracy."""
    each = found.difference
    return f"{100 * each.value:+.2f} [{100 * each.low:+.2f}, {100 * each.high:+.2f}]"


def summarise_k(found: Sequence[Difference]) -> str:
    """Return which acquisitions K is better than, worse than, or not told apart from, over seeds."""
    told = [each for each in found if each.seeds.adjusted <= _SIGNIFICANCE]
    better = [each.second for each in told if each.seeds.difference.value > 0]
    worse = [each.second for each in told if each.seeds.difference.value < 0]
    rest = [each.second for each in found if each not in told]
    said = []
    if better:
        said.append(f"Over seeds, K is better than {join_words(better)}.")
    if worse:
        said.append(f"Over seeds, K is worse than {join_words(worse)}.")
    if rest:
        said.append(f"Between K and {join_words(rest)} no difference can be told from chance over seeds.")
    return " ".join(said)


def summarise_comparison(found: Difference) -> str:
    """Return the outcome of one comparison by both tests, as a sentence."""
    kinds = (("over seeds", found.seeds), ("over test images", found.images))
    told = [name for name, one in kinds if one.adjusted <= _SIGNIFICANCE]
    end = f"which is told from 0 {join_words(told)}" if told else "which neither test tells from 0"
    return f"{found.first} less {found.second} is {_format_points(found.seeds)} points, {end}."


def _summarise_random(found: Sequence[Difference]) -> str:
    """Return which acquisitions beat random labels, as a sentence."""
    told = [e.first for e in found if e.seeds.adjusted <= _SIGNIFICANCE and e.seeds.difference.value > 0]
    worse = [e.first for e in found if e.seeds.adjusted <= _SIGNIFICANCE and e.seeds.difference.value < 0]
    ahead = [e.first for e in found if e.seeds.difference.value > 0]
    text = f"Ahead of random labels in the mean: {join_words(ahead) or 'none'}; of these "
    text += f"{join_words(told) or 'none'} by more than chance over seeds."
    if worse:
        text += f" Behind random labels by more than chance: {join_words(worse)}."
    return text


def _summarise_settings(found: Sequence[Difference], titles: Titles) -> str:
    """Return how K compares with I in each setting."""
    own = [e for e in found if e.first == "K" and e.second == "I"]
    told = [e for e in found if e.first == "K" and e.seeds.adjusted <= _SIGNIFICANCE]
    number = sum(e.first == "K" for e in found)
    text = "K less I in each setting, over seeds and, after the semicolon, over test images: "
    text += ", ".join(
        f"{titles[e.data]} with {titles[e.posterior]} {_format_points(e.seeds)}; "
        f"[{100 * e.images.difference.low:+.2f}, {100 * e.images.difference.high:+.2f}]"
        for e in own
    )
    return (
        f"{text}. Of the {number} comparisons of K in single settings, {len(told)} hold over seeds after "
        f"Holm's correction over all {len(found)}."
    )


def _describe_limits(settings: Settings, told: Mapping[Curve, np.ndarray]) -> str:
    """Return what the tests cannot show, and where BatchBALD ran out of members."""
    parts, picks = [], sorted({1, (settings.batch + 1) // 2, settings.batch})
    for posterior in settings.posteriors:
        end = math.log(posterior.members)
        own = np.concatenate([v for c, v in told.items() if c.posterior == posterior.name]).mean(axis=0)
        shares = [f"{100 * own[pick - 1] / end:.0f} %" for pick in picks]
        parts.append(f"{join_words(shares)} of log {posterior.members} with {posterior.title}")
    return (
        f"**What this cannot tell.** {settings.seeds} seeds are few: a difference must be large and steady "
        "to pass over seeds, so *no difference told* is not *no difference*. The test over images has more "
        "power, but says nothing about other pools or other fits. Both are about these two data sets, this "
        f"small network and batches of {settings.batch}. BatchBALD cannot learn more than the log of the "
        f"number of members. After {join_words([str(pick) for pick in picks])} picks it had, in the mean, "
        f"{'; '.join(parts)}. Picks after the bound is reached rest on nothing, so more members would serve "
        "it better."
    )
