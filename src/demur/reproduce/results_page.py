"""The page of results: a section for each study, written from its saved run and never by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from demur.atomic import copy_file, write_text

_SECTIONS = (
    "tables-imagenet", "tables-kit-imagenet-features", "tables-kit-imagenet-ensemble",
    "tables-kit-imagenet-images", "tables-kit-cifar10", "tables-kit-mnist", "tables-kit-fashion-mnist",
    "precision", "active-learning", "regression",
)  # fmt: skip
"""In the order of the page; others come last."""

_HEAD = """# Results

What the measures are worth on real models and real data. Every section is written by the command that
stands in it, from the files of that run. K is the pairwise divergence, the epistemic part of the paper's new
measure; I is mutual information, that of the current one.
"""
_MISSING = """
**Not run.** The paper's own tables take ImageNet-1K, ImageNet-O, ImageNet-A and EfficientNetV2-S with nine
other networks: `demur reproduce table1 --config imagenet` makes them from these, and was not run on them. The
sections below are from the same code on smaller data. Their images to be found are textures and flowers for
ImageNet-O, and validation images that a ResNet-50 gets wrong as a stand-in for ImageNet-A.
"""
_TALLIED = """
Comparisons of the new measure with the current one, by paired tests: ahead, even, behind. Tests and
intervals are for other inputs of the same kinds, given the networks and the draws of a run; another
training, or another chain, would move the figures as well.
"""


def add_section(page: Path, name: str, text: str, figures: Mapping[str, Path] | None = None) -> None:
    """Put a section into the page, in place of what an earlier run wrote there.

    Parameters
    ----------
    page
        A Markdown file, made if there is none.
    name
        Of the section; `_SECTIONS` says where it stands.
    text
        Markdown, with a heading of the second level.
    figures
        Pictures by file name. They are copied to `figures/results/` beside the page.
    """
    found = split_sections(page.read_text("utf-8")) if page.exists() else {}
    found[name] = text.strip()
    places = page.parent / "figures" / "results"
    if figures:
        places.mkdir(parents=True, exist_ok=True)
    for file, source in (figures or {}).items():
        copy_file(source, places / file)
    whole = [_HEAD, *([] if "tables-imagenet" in found else [_MISSING]), summarise_tallies(found)]
    for each in sorted(found, key=_sort_key):
        whole.append(f"<!-- section {each} -->\n\n{found[each]}\n\n<!-- end of {each} -->\n")
    page.parent.mkdir(parents=True, exist_ok=True)
    write_text(page, "\n".join(whole))


def write_tally(**counts: tuple[int, int, int]) -> str:
    """Return a line, not shown on the page: how often the new measure was ahead, even and behind."""
    said = "; ".join(f"{part} {' '.join(map(str, three))}" for part, three in counts.items())
    return f"<!-- tally: {said} -->"


def summarise_tallies(found: Mapping[str, str]) -> str:
    r"""Return a table of the tallies of all sections; empty where there are none.

    Examples
    --------
    >>> print(summarise_tallies({"a": "## Coins\n" + write_tally(total=(1, 2, 3), epistemic=(0, 1, 5))}))
    Comparisons of the new measure with the current one, by paired tests: ahead, even, behind. Tests and
    intervals are for other inputs of the same kinds, given the networks and the draws of a run; another
    training, or another chain, would move the figures as well.
    <BLANKLINE>
    | Study | total | epistemic |
    |---|---|---|
    | Coins | 1, 2, 3 | 0, 1, 5 |
    <BLANKLINE>
    """
    rows, parts = [], []
    for name in sorted(found, key=_sort_key):
        said = re.search(r"<!-- tally: (.*?) -->", found[name])
        title = re.search(r"^## (.*)$", found[name], re.MULTILINE)
        if said and title:
            own = dict(each.split(" ", 1) for each in said.group(1).split("; "))
            parts = list(own)
            rows.append([title.group(1), *(", ".join(three.split()) for three in own.values())])
    if not rows:
        return ""
    lines = [f"| {' | '.join(each)} |" for each in (["Study", *parts], *rows)]
    lines.insert(1, "|---" * (len(parts) + 1) + "|")
    return "\n".join([_TALLIED.strip(), "", *lines, ""])


def split_sections(text: str) -> dict[str, str]:
    r"""Return the sections of a page by name.

    Examples
    --------
    >>> split_sections("# Results\n\n<!-- section a -->\n\n## A\n\n<!-- end of a -->\n")
    {'a': '## A'}
    """
    found = re.findall(r"<!-- section (\S+) -->\n(.*?)\n<!-- end of \1 -->", text, re.DOTALL)
    return {name: body.strip() for name, body in found}


def _sort_key(name: str) -> tuple[int, str]:
    """Return where a section stands."""
    return (_SECTIONS.index(name) if name in _SECTIONS else len(_SECTIONS)), name
