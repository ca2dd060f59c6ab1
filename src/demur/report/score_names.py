"""Names of score columns in figures and on pages, and which columns are equal by an identity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from demur.measures import name_unit


class Name(NamedTuple):
    """Names of a score: short for tables, long for axes, and a sentence for readers new to the paper."""

    short: str
    long: str
    about: str


SCORE_NAMES = {
    "pairwise_epistemic": Name(
        "K",
        "K: epistemic, pairwise KL",
        "How far the predictions of two members are apart, on average: the expected pairwise KL divergence.",
    ),
    "average_epistemic": Name(
        "I",
        "I: epistemic, mutual information",
        "How far the members are from their average prediction: mutual information, what most people use.",
    ),
    "reverse_epistemic": Name(
        "M",
        "M: epistemic, reverse of I",
        "I the other way round: how far the average prediction is from the members. Large where one of them "
        "rules out what others find likely. M = K − I.",
    ),
    "pairwise_total": Name(
        "pairwise total",
        "total, pairwise",
        "Aleatoric uncertainty plus K.",
    ),
    "average_total": Name(
        "average total",
        "total, entropy of the average",
        "Entropy of the average prediction: aleatoric uncertainty plus I.",
    ),
    "reverse_total": Name(
        "reverse total",
        "total, reverse",
        "Entropy of the average prediction plus M.",
    ),
    "pairwise_aleatoric": Name(
        "aleatoric",
        "aleatoric, mean entropy",
        "How unsure the members are by themselves, on average. For inputs like the training data this is "
        "noise that more data would not remove; out-of-distribution inputs can have a lot of it too.",
    ),
}  # fmt: skip
_ONE_PASS_NAMES = {
    "perplexity": Name(
        "perplexity",
        "perplexity of the answer",
        "How unlikely the tokens of an answer are to the member that gave it. It needs no second member.",
    ),
    "feature_density": Name(
        "feature density",
        "feature density, −log p(features)",
        "How unlikely the network's features are under one Gaussian per class. It needs no members.",
    ),
    "nearest_features": Name(
        "nearest features",
        "distance to the nearest features",
        "How far the network's features are from the k-th nearest of the training data. It needs no members.",
    ),
    "energy": Name(
        "energy",
        "free energy of the logits",
        "Minus the log of the sum of the exponentiated logits of one network. It needs no members.",
    ),
    "max_logit": Name(
        "max logit",
        "largest logit, negated",
        "How small the largest logit of one network is. It needs no members.",
    ),
    "softmax_entropy": Name(
        "softmax entropy",
        "entropy of one network",
        "Entropy of one network's prediction. It needs no members.",
    ),
    "sngp": Name(
        "SNGP",
        "SNGP, little evidence for any class",
        "How little evidence a Gaussian process on the features has for any class. It needs no members.",
    ),
    "due": Name(
        "DUE",
        "DUE, entropy of the average",
        "Entropy of the average prediction of a Gaussian process on the features.",
    ),
    "duq": Name(
        "DUQ",
        "DUQ, distance to the closest centroid",
        "How far the features are from the closest centroid of a class. It needs no members.",
    ),
}  # fmt: skip
EQUAL_COLUMNS = {
    "average_aleatoric": "pairwise_aleatoric",
    "reverse_aleatoric": "average_total",
    "reverse_total": "pairwise_total",
}
"""Columns that are others by an identity of the measures."""
COLUMNS_BY_NAME = {name.short.lower(): column for column, name in SCORE_NAMES.items()}
"""Columns by the words of the report, in small letters: k, i, m, aleatoric, ..."""


_DISTANCE_NAMES = {
    "pairwise_epistemic": Name(
        "K",
        "K: epistemic, mean distance between members",
        "How far two members are apart, on average: the mean distance between the numbers that they predict. "
        "For predictions that are draws, the expected pairwise energy distance.",
    ),
    "average_epistemic": Name(
        "I",
        "I: epistemic, distance from the average",
        "How far the members are from their average, by the energy score (CRPS): half of K.",
    ),
    "reverse_epistemic": Name(
        "M",
        "M: epistemic, reverse of I",
        "How far the average is from the members, by the energy score (CRPS): half of K.",
    ),
    "pairwise_aleatoric": Name(
        "aleatoric",
        "aleatoric, mean entropy under the energy score",
        "How far two draws of one member are apart, on average, halved. Members that predict a single number "
        "say nothing about noise: 0.",
    ),
    "average_total": Name("average total", "total, average", "Aleatoric uncertainty plus I."),
    "reverse_total": Name("reverse total", "total, reverse", "Total of the average measure plus M."),
}
"""Names of scores of predicted numbers without a density, by the energy score."""


def name_of(score: str, unit: str = "") -> Name:
    """Return the names of a score; a column that is not one of demur's is named as it is.

    Parameters
    ----------
    score
        The column.
    unit
        The unit of the scores, as files have it, which tells what kind of divergence they are; "" where
        files do not say: logarithmic ones.

    Examples
    --------
    >>> name_of("pairwise_epistemic").short, name_of("max_probability").long
    ('K', 'max_probability')
    >>> name_of("pairwise_epistemic", "the unit of the numbers").long
    'K: epistemic, mean distance between members'
    >>> name_of("pairwise_epistemic", "brier loss").long
    'K: epistemic, pairwise brier divergence'
    """
    if score in _ONE_PASS_NAMES:
        return _ONE_PASS_NAMES[score]
    column = score if score in SCORE_NAMES else EQUAL_COLUMNS.get(score, "")
    known = SCORE_NAMES.get(column)
    if known is None:
        return Name(score, score, "A column of the files, higher where the prediction is less certain.")
    if measures_distances(unit):
        return _DISTANCE_NAMES.get(column, known)
    if unit.endswith(" loss") and column == "pairwise_epistemic":
        rule = unit.removesuffix(" loss")
        about = "How far the predictions of two members are apart, on average, by the divergence of the "
        return Name("K", f"K: epistemic, pairwise {rule} divergence", f"{about}{rule} rule.")
    if unit.endswith(" loss") and column == "average_epistemic":
        about = "How far the members are from their average prediction, by the divergence of the rule."
        return Name("I", "I: epistemic, divergence from the average", about)
    return known


def measures_distances(unit: str) -> bool:
    """Tell whether scores in a unit are distances between predicted numbers, not divergences."""
    return unit == name_unit("energy", None)


def drop_duplicates(
    scores: Sequence[str], columns: Sequence[Mapping[str, np.ndarray]], unit: str = ""
) -> list[str]:
    """Return the scores to show, the best known first, without those that are others under a second name.

    Two names of one measure stay apart where the values differ, as unbiased ones may. Of predicted numbers
    without a variance I and M are half of K, and totals are the epistemic parts: they order inputs alike.
    """
    order = [*SCORE_NAMES, *_ONE_PASS_NAMES, *scores]
    known = {**dict.fromkeys(SCORE_NAMES), **EQUAL_COLUMNS}
    shown: list[str] = []

    def is_multiple(score: str, twin: str, factor: float) -> bool:
        return twin in scores and all(
            np.allclose(c[score], factor * c[twin], rtol=1e-5, atol=1e-7 * (not measures_distances(unit)))
            for c in columns
        )

    for score in sorted(dict.fromkeys(scores), key=order.index):
        twins = [(EQUAL_COLUMNS.get(score, ""), 1.0)]
        if measures_distances(unit) and score in known and score != "pairwise_epistemic":
            twins += [("pairwise_epistemic", 1.0), ("pairwise_epistemic", 0.5)]
        if not any(is_multiple(score, *each) for each in twins):
            shown.append(score)
    return shown
