"""The figures: how well scores tell texts apart by prefix, what accuracy is kept, and specialists."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from demur.report import figures
from demur.reproduce.records import Records, select_records
from demur.reproduce.studies.language.answers import ENSEMBLE
from demur.reproduce.studies.language.config import LanguageConfig, SpecialistSettings
from demur.reproduce.studies.language.detection import TOKEN, list_units
from demur.reproduce.studies.language.token_scores import name_score

_SHOWN = ("step|k", "step|i", "sequence|k", "step|entropy", "step|nll", "alone|nll")
"""Scores of tokens that are drawn."""
_SHOWN_ANSWERS = ("k", "i", "total", "entropy", "unsure")
"""Scores of answers that are drawn."""


def write_figures(found: Mapping[str, Records], config: LanguageConfig, folder: Path) -> None:
    """Draw language.pdf and language.png, and for specialists a figure of their own.

    Parameters
    ----------
    found
        The tables of the run, by name.
    config
        The settings.
    folder
        Where to write them.
    """
    nearest = next(iter(config.texts.others))
    ensembles = [name for name, each in config.ensembles.items() if not each.limits_only]
    curves = found.get("choices-curves")
    number = len(ensembles) + (curves is not None)
    with figures.drawing(3.3 * number, 3.4, columns=number) as (picture, panels):
        panels = panels if number > 1 else [panels]
        for axes, name in zip(panels, ensembles, strict=False):
            rows = select_records(found["detection"], ensemble=name, set=nearest)
            _draw_detection(axes, rows, config.texts.prefixes)
            axes.set_title(config.ensembles[name].title, loc="left", fontweight="bold")
        panels[0].set_ylabel(f"AUROC, {nearest} against the training kind")
        panels[0].legend(frameon=False, fontsize=6.5, loc=(0.42, 0.08))
        if curves is not None and config.choices is not None:
            _draw_curves(panels[-1], curves)
            panels[-1].set_title(config.choices.title, loc="left", fontweight="bold")
    figures.save(picture, folder, "language")
    if config.specialists is not None:
        _draw_specialists(found, config.specialists, folder)


def _draw_specialists(found: Mapping[str, Records], given: SpecialistSettings, folder: Path) -> None:
    """Draw specialists.pdf and specialists.png: whose training set titles are from, and AUROCs."""
    owners, nearest = found["specialists-owners"], next(iter(given.others))
    with figures.drawing(6.6, 3.2, columns=2) as (picture, (left, right)):
        names = dict.fromkeys(row["set"] for row in owners)
        for k, name in enumerate(names):
            own, shift = select_records(owners, set=name), 0.06 * (k - len(names) / 2)
            ends = [[row["right"] - row["low"] for row in own], [row["high"] - row["right"] for row in own]]
            left.errorbar(
                [place + shift for place in range(len(own))], [row["right"] for row in own], ends,
                color=figures.COLOURS[k % len(figures.COLOURS)], lw=1, elinewidth=0.7, ms=3.5,
                marker=figures.MARKERS[k % len(figures.MARKERS)], label=name,
            )  # fmt: skip
        left.set_xticks(range(len(given.prefixes)), [str(each) for each in given.prefixes])
        left.set(xlabel="first characters of a title", ylabel="likeliest under the member trained on it")
        left.legend(frameon=False, loc="lower right")
        figures.percent_axis(left.yaxis)
        _draw_detection(right, select_records(found["specialists-detection"], set=nearest), given.prefixes)
        right.set(xlabel="first characters of a text", ylabel=f"AUROC, {nearest} against titles")
        right.set_xticks(right.get_xticks(), ["one", *map(str, given.prefixes)])
        right.legend(frameon=False, fontsize=6.5)
    figures.save(picture, folder, "specialists")


def _draw_detection(axes: Any, rows: Records, prefixes: list[int]) -> None:
    """Draw AUROCs over the length of the prefix, with single tokens on the left."""
    units = list_units(prefixes)
    order = [TOKEN, *(unit for unit in units if unit != TOKEN)]
    for k, name in enumerate(_SHOWN):
        own = [select_records(rows, score=name, unit=unit)[0] for unit in order]
        colour, shift = figures.COLOURS[k % len(figures.COLOURS)], 0.06 * (k - len(_SHOWN) / 2)
        ends = [[row["auroc"] - row["low"] for row in own], [row["high"] - row["auroc"] for row in own]]
        axes.errorbar(
            [place + shift for place in range(len(order))], [row["auroc"] for row in own], ends, color=colour,
            marker=figures.MARKERS[k % len(figures.MARKERS)], ms=3.5, lw=1, elinewidth=0.7,
            label=name_score(name),
        )  # fmt: skip
    axes.axhline(0.5, color="#777777", lw=0.7, zorder=0)
    axes.set_xticks(range(len(order)), ["one\ntoken", *order[1:]])
    axes.set_xlabel("first tokens of a text")


def _draw_curves(axes: Any, rows: Records) -> None:
    """Draw the accuracy of the answers that are kept."""
    for k, name in enumerate(_SHOWN_ANSWERS):
        own = select_records(rows, score=name)
        axes.plot(
            [row["kept"] for row in own], [row["accuracy"] for row in own], lw=1.3, label=ENSEMBLE[name],
            color=figures.COLOURS[k % len(figures.COLOURS)], ls=figures.LINES[k % len(figures.LINES)],
        )  # fmt: skip
    axes.set(xlabel="share of answers kept, most certain first", ylabel="accuracy of what is kept")
    figures.percent_axis(axes.xaxis)
    figures.percent_axis(axes.yaxis)
    axes.legend(frameon=False, fontsize=6.5)
