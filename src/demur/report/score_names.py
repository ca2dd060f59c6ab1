"""Names of score columns in figures and on pages, and which columns are equal by an identity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np


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


def name_of(score: str) -> Name:
    """Return the names of a score; a column that is not one of demur's is named as it is.

    Examples
    --------
    >>> name_of("pairwise_epistemic").short, name_of("max_probability").long
    ('K', 'max_probability')
    """
    known = (SCORE_NAMES | _ONE_PASS_NAMES).get(score) or SCORE_NAMES.get(EQUAL_COLUMNS.get(score, ""))
    return known or Name(score, score, "A column of the files, higher where the prediction is less certain.")


def drop_duplicates(scores: Sequence[str], columns: Sequence[Mapping[str, np.ndarray]]) -> list[str]:
    """Return the scores to show, the best known first, without those that are others under a second name.

    Two names of one measure stay apart where the values differ, as unbiased ones may.
    """
    order = [*SCORE_NAMES, *_ONE_PASS_NAMES, *scores]
    shown: list[str] = []
    for score in sorted(dict.fromkeys(scores), key=order.index):
        twin = EQUAL_COLUMNS.get(score, "")
        if twin in scores and all(np.allclose(c[score], c[twin], rtol=1e-5, atol=1e-7) for c in columns):
            continue
        shown.append(score)
    return shown
