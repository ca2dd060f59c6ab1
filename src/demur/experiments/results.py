"""The page of results: a section for each study, written from its saved run and never by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from demur.experiments.stages import copied, write_text

SECTIONS = ("imagenet", "human-labels", "precision", "active-learning", "regression")
"""In the order of the page; a study may add to a name, as "imagenet-cifar10"."""

HEAD = """# Results

What the measures are worth on real models and real data: every section is written by the command that
stands in it, from the files of that run.
"""


def add_section(page: Path, name: str, text: str, figures: Mapping[str, Path] | None = None) -> None:
    """Put a section into the page, in place of what an earlier run wrote there.

    Parameters
    ----------
    page
        A Markdown file, made if there is none.
    name
        Of the section; it begins with one of `SECTIONS`.
    text
        Markdown, with a heading of the second level.
    figures
        Pictures by file name. They are copied to `figures/results/` beside the page.
    """
    found = sections(page.read_text("utf-8")) if page.exists() else {}
    found[name] = text.strip()
    for file, source in (figures or {}).items():
        copied(source, page.parent / "figures" / "results" / file)
    whole = [HEAD]
    for each in sorted(found, key=rank):
        whole.append(f"<!-- section {each} -->\n\n{found[each]}\n\n<!-- end of {each} -->\n")
    page.parent.mkdir(parents=True, exist_ok=True)
    write_text(page, "\n".join(whole))


def sections(text: str) -> dict[str, str]:
    r"""Return the sections of a page by name.

    Examples
    --------
    >>> sections("# Results\n\n<!-- section a -->\n\n## A\n\n<!-- end of a -->\n")
    {'a': '## A'}
    """
    found = re.findall(r"<!-- section (\S+) -->\n(.*?)\n<!-- end of \1 -->", text, re.DOTALL)
    return {name: body.strip() for name, body in found}


def rank(name: str) -> tuple[int, str]:
    """Return where a section stands."""
    known = [index for index, each in enumerate(SECTIONS) if name.startswith(each)]
    return (known[0] if known else len(SECTIONS)), name
