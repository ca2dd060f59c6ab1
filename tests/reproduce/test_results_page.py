"""The results page: one section per study, each written from its run."""

import shutil
from pathlib import Path

from demur.reproduce.results_page import add_section, split_sections

PAGE = Path(__file__).parents[2] / "docs" / "results.md"


def test_sections_of_the_page_are_replaced_in_place_and_ordered(tmp_path):
    page, picture = tmp_path / "results.md", tmp_path / "a.png"
    picture.write_bytes(b"png")
    add_section(page, "precision", "## Precision\n\nold")
    add_section(page, "tables-kit-mnist", "## ImageNet", {"b.png": picture})
    add_section(page, "precision", "## Precision\n\nnew")
    text = page.read_text()
    assert split_sections(text) == {"tables-kit-mnist": "## ImageNet", "precision": "## Precision\n\nnew"}
    assert text.index("## ImageNet") < text.index("## Precision")
    assert text.startswith("# Results\n")
    assert (tmp_path / "figures" / "results" / "b.png").read_bytes() == b"png"


def test_the_page_in_the_repository_is_what_its_sections_make(tmp_path):
    page = tmp_path / "results.md"
    shutil.copy(PAGE, page)
    for name, text in split_sections(PAGE.read_text("utf-8")).items():
        add_section(page, name, text)
    assert page.read_text("utf-8") == PAGE.read_text("utf-8")
