"""Areas under the curves, and whether those of two acquisitions differ by more than chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from demur.tasks import Comparison, Estimate
from demur.tasks.compare import adjust_by_holm
from demur.tasks.estimate import generator, percentile

CONFIDENCE = 0.95
RESAMPLES = 4000


class Curve(NamedTuple):
    """What a curve is of."""

    data: str
    posterior: str
    acquisition: str
    seed: int


class Difference(NamedTuple):
    """The area of one acquisition less that of another.

    Attributes
    ----------
    data, posterior : str
        The setting; "all": the mean over all of them.
    first, second : str
        The acquisitions.
    seeds : Comparison
        Student's, paired by seed: another pool, other first images and other members.
    images : Comparison
        A bootstrap, paired by test image: the members are as they are.
    """

    data: str
    posterior: str
    first: str
    second: str
    seeds: Comparison
    images: Comparison


def compute_area(correct: np.ndarray) -> np.ndarray:
    """Return the share of the labels axis on which each test image is correct, by the trapezoid rule.

    Its mean over images is the area under the curve of the accuracy, over the width of the axis: the mean
    accuracy. `correct` is (rounds + 1, images).

    Examples
    --------
    >>> compute_area(np.array([[0, 0], [1, 0], [1, 1]]))
    array([0.75, 0.25])
    """
    steps = len(correct) - 1
    weights = np.full(steps + 1, 1 / steps)
    weights[[0, -1]] /= 2
    return weights @ correct


def _list_pairs(acquisitions: Sequence[str]) -> list[tuple[str, str]]:
    """Return the comparisons: K with all others, the two totals, and the others with random labels."""
    others = [name for name in acquisitions if name != "K"]
    found = [("K", name) for name in others] + [("total new", "total current")]
    return found + [(name, "random") for name in others if name != "random"]


def compare_acquisitions(areas: Mapping[Curve, np.ndarray], acquisitions: Sequence[str]) -> list[Difference]:
    """Compare areas (of each test image, by curve), in each setting and over all of them.

    Holm's correction is over the pairs of all settings together, and over those of the mean of all settings.
    """
    settings = list(dict.fromkeys((each.data, each.posterior) for each in areas))
    seeds = sorted({each.seed for each in areas})
    counts = {
        data: resample_images(len(next(iter(areas.values()))), i)
        for i, data in enumerate(_list_datasets(settings))
    }
    rows: list[Difference] = []
    for wanted in ([("all", "all")], settings):
        family = []
        for first, second in _list_pairs(acquisitions):
            # By setting: (seeds, test images).
            by = {
                (d, p): np.stack(
                    [areas[Curve(d, p, first, s)] - areas[Curve(d, p, second, s)] for s in seeds]
                )
                for d, p in settings
            }
            for place in wanted:
                chosen = by if place == ("all", "all") else {place: by[place]}
                # Posteriors of a data set share pools and test images: they are averaged, not counted twice.
                means = [
                    np.mean([v.mean(axis=1) for (d, _), v in chosen.items() if d == data], axis=0)
                    for data in _list_datasets(chosen)
                ]
                drawn = np.mean([counts[d] @ v.mean(axis=0) for (d, _), v in chosen.items()], axis=0)
                family.append(
                    Difference(
                        *place, first, second, compare_over_seeds(means), _compare_over_images(means, drawn)
                    )
                )
        by_seed, by_image = (
            adjust_by_holm([getattr(each, kind) for each in family]) for kind in ("seeds", "images")
        )
        rows += [
            each._replace(seeds=s, images=i) for each, s, i in zip(family, by_seed, by_image, strict=True)
        ]
    return rows


def _list_datasets(settings: Sequence[tuple[str, str]] | Mapping[tuple[str, str], object]) -> list[str]:
    """Return the data sets of settings, each once."""
    return list(dict.fromkeys(data for data, _ in settings))


def resample_images(images: int, stream: int) -> np.ndarray:
    """Return how often each test image is drawn, as a share: (resamples, images)."""
    shares = np.full(images, 1 / images)
    return generator(stream).multinomial(images, shares, size=RESAMPLES) / images


def compare_over_seeds(groups: Sequence[np.ndarray]) -> Comparison:
    """Return the mean of the means of groups, with Student's interval and test and a pooled variance.

    Parameters
    ----------
    groups
        For each data set the differences by seed.

    Examples
    --------
    >>> found = compare_over_seeds([np.array([1.0, 2.0, 3.0])])       # scipy.stats.ttest_1samp has p = 0.0742
    >>> found.difference.value, round(found.p_value, 4)
    (2.0, 0.0742)
    """
    from scipy.special import stdtr, stdtrit

    value = float(np.mean([group.mean() for group in groups]))
    freedom = sum(len(group) - 1 for group in groups)
    variance = sum(float(np.sum((group - group.mean()) ** 2)) for group in groups) / freedom
    error = math.sqrt(variance * sum(1 / len(group) for group in groups)) / len(groups)
    half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
    if error == 0:
        p_value = float(value == 0)
    else:
        p_value = 2 * float(stdtr(freedom, -abs(value) / error))
    return Comparison(Estimate(value, value - half, value + half, CONFIDENCE, "student"), p_value, p_value)


def _compare_over_images(groups: Sequence[np.ndarray], replicates: np.ndarray) -> Comparison:
    """Return the mean of the means of groups, with the interval and test of bootstrap replicates."""
    value = float(np.mean([group.mean() for group in groups]))
    tails = [(1 + np.sum(side)) / (1 + len(replicates)) for side in (replicates <= 0, replicates >= 0)]
    p_value = min(1.0, 2 * float(min(tails)))
    return Comparison(percentile(value, replicates, CONFIDENCE), p_value, p_value)
