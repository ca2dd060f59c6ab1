"""Scores that are lower where they should be higher: no verdict, table or page calls one of them the best."""

from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from demur.cli import app
from demur.report import cards
from demur.report.contents import gather_contents
from demur.report.page import gather_data
from demur.report.run_folder import read_run
from demur.report.table_forms import Row
from demur.report.tables import table_of_scores
from demur.report.verdict import write_verdict
from demur.stores import write_columns
from demur.tasks import contest, detection


def write_sets(folder, shifts, number=200, columns=("mine", "other")):
    """Write an in-distribution set and others whose scores are shifted; the scores are of equal worth."""
    rng = np.random.default_rng(0)
    for name, shift in {"id": 0.0, **shifts}.items():
        write_columns(folder / f"{name}.csv", {c: rng.normal(shift, 1, number) for c in columns})


def test_the_interval_decides():
    rng = np.random.default_rng(0)
    known = rng.normal(size=300)
    for shift, expected in ((-1, "below"), (0, "toss"), (1, "above")):
        unknown = rng.normal(shift, 1, 300)
        assert detection(known, unknown).chance == expected
        assert detection(known, unknown, splits=3).chance == expected  # by all inputs, not by three numbers
    assert detection([0.5] * 9, [0.5] * 9).chance == "toss"
    assert detection([1.0] * 20, [0.0] * 20).chance == "below"


def test_ties_at_chance_are_no_wins():
    rng = np.random.default_rng(0)
    below = {name: (rng.normal(size=300), rng.normal(-1, 1, 300)) for name in "ab"}
    standings = contest({"m": below}, "detection").standings["auroc"]["m"]
    assert any(each.best for each in standings.values())
    assert not any(each.wins for each in standings.values())
    good = {"a": (rng.normal(size=300), rng.normal(1, 1, 300)), "b": below["a"]}
    standings = contest({"m": good}, "detection").standings["auroc"]["m"]
    assert standings["a"].wins and not standings["b"].wins


def test_the_verdict_recommends_nothing_below_chance(tmp_path):
    for name, level in (("id", 1.0), ("ood-a", 0.0)):  # every score is lower there: an AUROC of 0
        values = level + np.linspace(0, 0.1, 60)
        write_columns(tmp_path / f"{name}.csv", {"K": values, "I": values / 2})
    found = gather_contents(read_run(tmp_path))
    said = write_verdict(found)
    assert said[0] == (
        "None of these measures finds a: the model is more certain there than elsewhere, so a high score "
        "does not point to it."
    )
    assert not any(word in " ".join(said) for word in ("Use ", "always the highest", "tied"))
    (card,) = cards.make_cards(found)
    assert card["chance"] and card["sentences"][0] == (
        "Below 50 %, a coin toss: the model is more certain of the out-of-distribution inputs than of the "
        "in-distribution inputs, so this does not find them."
    )
    assert card["sentences"][1].startswith("None of the 2 measures is shown to be better than a coin toss")
    page = gather_data(found)
    assert [each["detection"][1]["mark"] for each in page["results"][0]] == ["", ""]
    assert page["tally"]["number"] == 0 and page["tally"]["good"] == [0, 0]


def test_the_verdict_says_which_set_is_not_found(tmp_path):
    write_sets(tmp_path, {"ood-far": 2.0, "ood-near": -1.0, "ood-same": 0.0})
    said = write_verdict(gather_contents(read_run(tmp_path)))
    assert said[0].startswith("Use ")
    assert any(
        each.startswith("None of these measures finds near: the model is more certain") for each in said
    )
    assert (
        "None of these measures finds same, as far as these inputs can show: it may be a coin toss." in said
    )
    assert "in this comparison" in said[1]  # of the three, one counts


def test_tables_mark_no_winner_below_chance(tmp_path):
    rng = np.random.default_rng(0)
    scores = {name: (rng.normal(size=300), rng.normal(-1, 1, 300)) for name in ("a_epistemic", "b_epistemic")}
    table = table_of_scores(contest({"m": scores}, "detection"))
    (note,) = table.notes("*")
    assert note.startswith("m: none of these scores finds what is sought. AUROC is at or below .5")
    assert "**" not in table.markdown() and "boldsymbol" not in table.latex()
    assert all(line.endswith(",0,0") for line in table.csv().splitlines()[1:])

    tasks = [Row(section, "m", table.rows[0].cells) for section in ("far, AUROC", "near, AUROC")]
    (note,) = replace(table, rows=tasks).notes("*")
    assert note.startswith("m, far, AUROC; m, near, AUROC: none of these")

    write_sets(tmp_path, {"ood": -1.0}, columns=("pairwise_epistemic",))
    files = ["--id", str(tmp_path / "id.csv"), "--ood", str(tmp_path / "ood.csv")]
    printed = CliRunner().invoke(app, ["evaluate", "ood", *files]).stdout
    assert "none of these scores finds what is sought" in printed


@pytest.mark.browser
def test_the_coin_toss_stays_on_the_page(tmp_path, open_page):
    from demur.report.page import write_page

    write_sets(tmp_path, {"ood-near": -1.0})
    path = write_page(gather_contents(read_run(tmp_path)), tmp_path / "report.html")
    page = open_page(path.resolve().as_uri())
    assert page.locator(".whisker .toss").first.inner_text() == "coin toss"
    assert "nothing is counted" in page.locator("#tally-why").inner_text()
