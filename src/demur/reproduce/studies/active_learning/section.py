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
    information: Mapping[Curve, np.ndarray],
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
            f"Lines are means over {settings.seeds} seeds; bands span the lowest to the highest seed.",
            f"Mean accuracy from {settings.label_counts[0]} to {settings.label_counts[-1]} labels (the area "
            "under the curve divided by its width) in percent, mean ± standard deviation over seeds, best "
            "mean bold:",
            _format_means(areas, acquisitions, titles),
            f"Accuracy with {settings.label_counts[-1]} labels, in the same form:",
            _format_means(ends, acquisitions, titles),
            "![Areas minus that of random labels](figures/results/active-learning-areas.png)",
            "Each circle is a seed, each bar the mean with its interval over test images.",
            "### Is K the better acquisition score?",
            "Differences of the mean accuracy in percentage points, averaged over all settings. *Over "
            f"seeds*: Student's {CONFIDENCE:.0%} interval, paired by seed, with {freedom} degrees of freedom "
            "(the posteriors of a data set share pools, so they are averaged first); it covers other pools, "
            "initial images and members. *Over test images*: a paired bootstrap, for these particular "
            f"members. p-values are corrected for the {len(every)} comparisons of a column (Holm).",
            _format_comparisons(every),
            summarise_k(against_k),
            *(summarise_comparison(each) for each in totals),
            _summarise_random(against_chance),
            _summarise_settings(single, titles),
            _describe_limits(settings, information),
        ]
    )


def _describe_setup(settings: Settings) -> str:
    """Return a paragraph on what was done."""
    one, two = settings.posteriors
    return (
        "Which uncertainty should choose the images to label next? Pools of "
        f"{settings.pool} images, of which {settings.start} are labelled at the start, equally many of "
        f"each class; {settings.rounds} rounds of {settings.batch} labels. After each round, new members are "
        f"fitted to all labelled images and tested on {settings.test} others: {one.networks} small "
        f"convolutional networks ({one.title}), or one of them with {two.samples} dropout masks "
        f"({two.title}). All acquisitions of a seed share the pool, the initial images and members, and the "
        "random numbers. *Total new* is the pairwise total, *total current* the entropy of the average; "
        f"BatchBALD draws {settings.configurations} combinations of labels."
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
    """Return a difference and its interval in percentage points of accuracy."""
    each = found.difference
    return f"{100 * each.value:+.2f} [{100 * each.low:+.2f}, {100 * each.high:+.2f}]"


def summarise_k(found: Sequence[Difference]) -> str:
    """Return how K compares with each acquisition over seeds, in sentences."""
    significant = [each for each in found if each.seeds.adjusted <= _SIGNIFICANCE]
    better = [each.second for each in significant if each.seeds.difference.value > 0]
    worse = [each.second for each in significant if each.seeds.difference.value < 0]
    rest = [each.second for each in found if each not in significant]
    said = []
    if better:
        said.append(f"Over seeds, K is better than {join_words(better)}.")
    if worse:
        said.append(f"Over seeds, K is worse than {join_words(worse)}.")
    if rest:
        said.append(f"Over seeds, no difference between K and {join_words(rest)} is significant.")
    return " ".join(said)


def summarise_comparison(found: Difference) -> str:
    """Return the outcome of one comparison by both tests, as a sentence."""
    kinds = (("over seeds", found.seeds), ("over test images", found.images))
    significant = [name for name, one in kinds if one.adjusted <= _SIGNIFICANCE]
    end = f"significant {join_words(significant)}" if significant else "significant by neither test"
    return f"{found.first} minus {found.second} is {_format_points(found.seeds)} points, {end}."


def _summarise_random(found: Sequence[Difference]) -> str:
    """Return which acquisitions beat random labels, as a sentence."""
    significant = [
        e.first for e in found if e.seeds.adjusted <= _SIGNIFICANCE and e.seeds.difference.value > 0
    ]
    worse = [e.first for e in found if e.seeds.adjusted <= _SIGNIFICANCE and e.seeds.difference.value < 0]
    ahead = [e.first for e in found if e.seeds.difference.value > 0]
    text = f"Ahead of random labels on average: {join_words(ahead) or 'none'}; significantly over seeds: "
    text += f"{join_words(significant) or 'none'}."
    if worse:
        text += f" Significantly behind random labels: {join_words(worse)}."
    return text


def _summarise_settings(found: Sequence[Difference], titles: Titles) -> str:
    """Return how K compares with I in each setting."""
    own = [e for e in found if e.first == "K" and e.second == "I"]
    significant = [e for e in found if e.first == "K" and e.seeds.adjusted <= _SIGNIFICANCE]
    number = sum(e.first == "K" for e in found)
    text = "K minus I in each setting, over seeds and, after the semicolon, the interval over test images: "
    text += ", ".join(
        f"{titles[e.data]} with {titles[e.posterior]} {_format_points(e.seeds)}; "
        f"[{100 * e.images.difference.low:+.2f}, {100 * e.images.difference.high:+.2f}]"
        for e in own
    )
    return (
        f"{text}. Of the {number} comparisons of K in single settings, {len(significant)} are significant "
        f"over seeds after Holm's correction for all {len(found)}."
    )


def _describe_limits(settings: Settings, information: Mapping[Curve, np.ndarray]) -> str:
    """Return what the tests cannot show, and where BatchBALD ran out of members."""
    parts, picks = [], sorted({1, (settings.batch + 1) // 2, settings.batch})
    for posterior in settings.posteriors:
        end = math.log(posterior.members)
        own = np.concatenate([v for c, v in information.items() if c.posterior == posterior.name]).mean(
            axis=0
        )
        shares = [f"{100 * own[pick - 1] / end:.0f} %" for pick in picks]
        parts.append(f"{join_words(shares)} of log {posterior.members} with {posterior.title}")
    return (
        f"**Limits.** {settings.seeds} seeds are few: only a large and steady difference is significant over "
        "seeds, so *not significant* does not mean *no difference*. The test over images has more power, but "
        "says nothing about other pools or other fits. Both apply to these two data sets, this small network "
        f"and batches of {settings.batch}. The information that BatchBALD gains is at most the log of the "
        f"number of members. After {join_words([str(pick) for pick in picks])} picks it had on average "
        f"{'; '.join(parts)}. Once the bound is reached, further picks are arbitrary, so more members would "
        "help it."
    )
