"""A mixture of specialists: whose training set a text is from, and what each score is by prefix."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from demur.reproduce.records import Records
from demur.reproduce.studies.language.character_models import CharacterModels, read_character_models
from demur.reproduce.studies.language.config import SpecialistSettings
from demur.reproduce.studies.language.text_files import TextSet, read_lines, read_texts
from demur.reproduce.studies.language.token_scores import average_prefix
from demur.tasks.estimate import proportion

NAME = "specialists"
"""The mixture among the ensembles of the tables."""
KNOWN = "titles"
"""All texts that specialists were trained on."""


@dataclass(frozen=True)
class SpecialistMixture:
    """Models, the texts that each specialist was trained on, by its name, and other texts."""

    models: CharacterModels
    own: list[TextSet]
    others: list[TextSet]


def read_mixture(given: SpecialistSettings, data: Path) -> SpecialistMixture:
    """Read and check models and texts."""
    models, source = read_character_models(data / given.models), data / given.texts
    length = max(given.prefixes)
    by_member: dict[str, list[str]] = {}
    for row in read_lines(source):
        if row.get("set") not in models.parameters or not isinstance(row.get("text"), str):
            raise ValueError(
                f"{source}: expected 'text', and in 'set' one of {', '.join(models.parameters)}, on each "
                f"line, got {row.get('set')!r}"
            )
        by_member.setdefault(row["set"], []).append(row["text"])
    own = [
        models.select_texts(name, texts, given.number, length, source) for name, texts in by_member.items()
    ]
    others = [
        models.select_texts(name, read_texts(data / path), given.number, length, data / path)
        for name, path in given.others.items()
    ]
    return SpecialistMixture(models, own, others)


def measure_bits(
    name: str, members: Sequence[str], logs: np.ndarray, scores: Mapping[str, np.ndarray]
) -> Records:
    """Return bits per character of a set of texts under each member and both averages, a row for each.

    ``logs`` are log-probabilities of the characters, (members, texts, positions).
    """
    found = {member: -own.mean() for member, own in zip(members, logs, strict=True)}
    found |= {"average": scores["step|nll"].mean(), "by sequence": scores["sequence|nll"].mean()}
    return [{"set": name, "by": by, "bits": float(nats) / math.log(2)} for by, nats in found.items()]


def measure_means(name: str, scores: Mapping[str, np.ndarray], prefixes: Sequence[int]) -> Records:
    """Return the mean of each score over texts and the first characters of each, by number of these."""
    return [
        {"set": name, "score": score, "prefix": prefix, "mean": float(values.mean())}
        for prefix in prefixes
        for score, values in average_prefix(scores, prefix).items()
    ]


def attribute_texts(name: str, members: Sequence[str], logs: np.ndarray, prefixes: Sequence[int]) -> Records:
    """Return how many texts of a member's training set are likeliest under that member, by prefix.

    ``mistaken`` is the member that takes most of the others. Intervals are over draws of texts, 95 %.
    """
    rows: Records = []
    for prefix in prefixes:
        likeliest = [members[k] for k in logs[:, :, :prefix].sum(axis=-1).argmax(axis=0)]
        right = np.array([each == name for each in likeliest])
        share = proportion(int(right.sum()), len(right), 0.95)
        wrong = Counter(each for each in likeliest if each != name)
        rows.append({
            "set": name, "prefix": prefix, "texts": len(right), "right": share.value, "low": share.low,
            "high": share.high, "mistaken": wrong.most_common(1)[0][0] if wrong else "",
        })  # fmt: skip
    return rows
