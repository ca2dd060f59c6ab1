"""The part of the section that is about a mixture of specialists."""

from __future__ import annotations

from collections.abc import Mapping

from demur.reproduce.markdown import format_difference, format_interval, format_table
from demur.reproduce.networks.character_lstm import WINDOW
from demur.reproduce.records import Records, select_records
from demur.reproduce.studies.language.config import SpecialistSettings
from demur.reproduce.studies.language.detection import TOKEN, judge_difference, list_units
from demur.reproduce.studies.language.specialists import KNOWN
from demur.reproduce.studies.language.token_scores import name_score

_BY_PREFIX = (
    "step|k", "step|i", "step|m", "step|total", "step|nll", "sequence|k", "sequence|i", "sequence|total",
    "sequence|entropy", "sequence|nll",
)  # fmt: skip
"""Scores whose means are shown."""
_AREAS = (
    "step|k", "step|i", "step|total", "step|entropy", "step|nll", "sequence|k", "sequence|i",
    "sequence|entropy", "sequence|nll", "alone|entropy", "alone|nll",
)  # fmt: skip
_PAIRS = (
    ("step|k", "step|i"), ("step|k", "step|nll"), ("step|k", "sequence|k"), ("step|nll", "sequence|nll"),
)  # fmt: skip

_HEAD = """### A mixture of specialists: {title}

Each member reads the last {window} characters of a text, and one was not tuned. *Titles* are the first
{number} from each training set that have {longest} characters or more, cut there, so that every title is
training data of one member and new to the others. Other texts are cut alike, with line breaks as spaces;
those with a character that is not in the vocabulary are left out. Scores are per character, in nats.

![Titles by the training set that they are from, and AUROC by length of the prefix](figures/results/{picture})

Bits per character of the first {longest}, by each member, by the average at each step, and by the average by
sequence:
"""


def format_specialists(found: Mapping[str, Records], given: SpecialistSettings, picture: str) -> str:
    """Return the tables of a mixture of specialists."""
    longest = max(given.prefixes)
    head = _HEAD.format(
        title=given.title, window=WINDOW, number=given.number, longest=longest, picture=picture
    )  # fmt: skip
    return "\n\n".join([
        head.rstrip(), _format_bits(found["specialists-bits"]),
        "**Whose title is it?** The share of titles that are likeliest, by their first characters, under the "
        "member that was trained on them, with exact 95 % intervals, and the member that takes most of the "
        "others:",
        _format_owners(found["specialists-owners"], given.prefixes),
        f"**By prefix.** Means over all {KNOWN} and over {next(iter(given.others))}, of the first characters "
        "of each text:",
        _format_means(found["specialists-means"], given),
        f"**Titles or another text?** AUROC with the {KNOWN} as the known kind; *one model* is the member "
        "that comes first. Intervals and differences are as above, over draws of texts.",
        _format_areas(found["specialists-detection"], given),
        _format_differences(found["specialists-differences"], given), "",
    ])  # fmt: skip


def _format_bits(rows: Records) -> str:
    members = list(dict.fromkeys(row["by"] for row in rows))
    table = [
        [name, *(f"{row['bits']:.2f}" for row in select_records(rows, set=name))]
        for name in dict.fromkeys(row["set"] for row in rows)
    ]
    return format_table(["texts", *members], table)


def _format_owners(rows: Records, prefixes: list[int]) -> str:
    table = []
    for name in dict.fromkeys(row["set"] for row in rows):
        own = select_records(rows, set=name)
        cells = [format_interval(row["right"], row["low"], row["high"]) for row in own]
        table.append([name, *cells, own[0]["mistaken"]])
    heads = [f"first characters: {prefixes[0]}", *map(str, prefixes[1:])]
    return format_table(["titles of", *heads, f"others, at {prefixes[0]}"], table)


def _format_means(rows: Records, given: SpecialistSettings) -> str:
    table = []
    for name in (KNOWN, next(iter(given.others))):
        for score in _BY_PREFIX:
            own = select_records(rows, set=name, score=score)
            table.append([name, name_score(score), *(f"{row['mean']:.2f}" for row in own)])
    heads = [f"first characters: {given.prefixes[0]}", *map(str, given.prefixes[1:])]
    return format_table(["texts", "score", *heads], table)


def _list_shown(given: SpecialistSettings) -> list[tuple[str, str]]:
    """Return the sets and units that are shown: the shortest prefix, the longest, and single characters."""
    units = list_units(given.prefixes)
    return [(each, unit) for each in given.others for unit in dict.fromkeys((units[0], units[-2], TOKEN))]


def _name_unit(unit: str) -> str:
    return "one" if unit == TOKEN else unit


def _format_areas(rows: Records, given: SpecialistSettings) -> str:
    table = []
    for name, unit in _list_shown(given):
        cells = [name, _name_unit(unit)]
        for score in _AREAS:
            (row,) = select_records(rows, set=name, unit=unit, score=score)
            cells.append(f"{row['auroc']:.3f}")
        table.append(cells)
    return format_table(["texts", "characters", *map(name_score, _AREAS)], table)


def _format_differences(rows: Records, given: SpecialistSettings) -> str:
    table = []
    for name, unit in _list_shown(given):
        cells = [name, _name_unit(unit)]
        for first, second in _PAIRS:
            (row,) = select_records(rows, set=name, unit=unit, first=first, second=second)
            star = "" if judge_difference(row) == "even" else "*"
            cells.append(format_difference(row["difference"], row["low"], row["high"], mark=star))
        table.append(cells)
    heads = [f"{name_score(first)} − {name_score(second)}" for first, second in _PAIRS]
    return format_table(["texts", "characters", *heads], table)
