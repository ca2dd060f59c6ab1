"""Tables: what is marked, and that LaTeX and Markdown hold what they should."""

import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from demur.report.table_forms import Column, Row, Table
from demur.report.tables import PAPER, column_of, kinds_of, table_of_figures, table_of_scores
from demur.tasks import Estimate, Standing, contest, detection


@pytest.fixture(scope="module")
def found():
    """Two methods whose total scores are equal, and whose new epistemic score is plainly better."""
    rng = np.random.default_rng(0)
    scores = {}
    for method in ("MC_D & more", "DE|5"):
        known, unknown = rng.normal(0, 1, 300), rng.normal(2, 1, 300)
        noise = rng.normal(0, 2, 300)
        near = (known + rng.normal(0, 0.01, 300), unknown + rng.normal(0, 0.01, 300))
        values = [
            (known, unknown),
            near,
            (known, unknown),
            (known + noise, unknown + noise),
            (known, unknown),
        ]
        scores[method] = dict(zip(PAPER, values, strict=True))
    return contest(scores, "detection", figures=["auroc", "fpr95"], groups=kinds_of(PAPER))


def test_the_best_is_marked_within_its_kind(found) -> None:
    for figure in ("auroc", "fpr95"):
        for standings in found.standings[figure].values():
            assert standings["pairwise_epistemic"].best and not standings["pairwise_epistemic"].tied
            assert not standings["average_epistemic"].best and not standings["average_epistemic"].tied
            assert not standings["pairwise_aleatoric"].best
            totals = [standings["average_total"], standings["pairwise_total"]]
            assert any(s.best for s in totals) and all(s.best or s.tied for s in totals)


def test_rows_know_how_many_inputs_are_of_the_rarer_kind(found) -> None:
    assert {row.fewest for row in table_of_scores(found).rows} == {300}
    right = np.arange(40) > 2
    some = {"m": {"a": np.arange(40.0), "b": np.arange(40.0) ** 2}}
    counts = [
        [row.fewest for row in table_of_scores(contest(some, task, correct={"m": right})).rows]
        for task in ("misclassification", "selective")
    ]
    assert counts == [[3], [None]]


def test_holm_is_over_the_whole_table(found) -> None:
    assert len(found.comparisons) == 8
    smallest = min(found.comparisons.values(), key=lambda c: c.p_value)
    assert smallest.adjusted == pytest.approx(min(1, 8 * smallest.p_value))


def test_equal_values_are_both_best() -> None:
    one = np.arange(10.0), np.arange(5.0, 15.0)
    found = contest({"m": {"a": one, "b": one}}, "detection")
    assert all(s.best and not s.tied for s in found.standings["auroc"]["m"].values())
    alone = contest({"m": {"a": one}}, "detection").standings["auroc"]["m"]["a"]
    assert not alone.best and not alone.tied


def test_markdown_and_text(found) -> None:
    table = table_of_scores(found)
    lines = table.markdown().splitlines()
    assert lines[0].startswith(
        "| Figure | Method | Total, average | Total, pairwise | Aleatoric | Epistemic, mutual information"
    )
    assert r"DE\|5" in lines[3]
    assert {line.replace(r"\|", "").count("|") for line in lines[:6]} == {8}
    assert "Bold: the better of the two totals, or of the two epistemic parts" in lines[-1]
    assert lines[-1].startswith("Total: aleatoric + I (average), or K (pairwise).")
    cells = table.cells()
    assert [len(row) for row in cells] == [7] * 5
    assert [row[0] for row in cells[1:]] == ["AUROC", "", "FPR95", ""]
    heads = ["Total\naverage", "Total\npairwise", "Aleatoric"]
    assert cells[0][2:] == [*heads, "Epistemic\nmutual\ninformation I", "Epistemic\npairwise KL K"]


def test_only_the_paper_s_tables_have_its_names(found) -> None:
    plain, paper = table_of_scores(found), table_of_scores(found, paper=True)
    assert not {"current", "new"} & {column.heading for column in plain.columns}
    assert paper.markdown().splitlines()[0].endswith("| Epistemic, current | Epistemic, new |")
    assert paper.notes("*")[0] == "Current: average (I), new: pairwise (K)."
    assert paper.cells()[0][5:] == ["Epistemic\nI (current)", "Epistemic\nK (new)"]
    assert plain.csv() == paper.csv()  # files have the names of the columns


def table_with(*cells, section="auroc"):
    columns = [Column("average_total", "Total", "current"), Column("pairwise_total", "Total", "new")]
    return Table(columns, [Row(section, "m", cells)])


def test_marks_are_explained_where_they_are() -> None:
    best, equal = (Standing(Estimate(0.9, low, 0.95), best=True) for low in (0.8, 0.81))
    tied, lower = Standing(Estimate(0.89, 0.8, 0.94), tied=True), Standing(Estimate(0.7, 0.6, 0.8))
    current = "Current: average (I), new: pairwise (K)."
    assert table_with(best, lower).notes("*") == [current, "*: the better of the two totals."]
    assert table_with(best, equal).notes("*")[1].endswith("two totals; several where they are equal.")
    *_, holm, few = table_with(best, tied).notes("*")
    assert holm.startswith("=: no difference from it is shown by a paired test") and "at 0.05" in holm
    assert few.startswith("Lower ends in a row are alike because there are so few inputs of one kind: with")
    table = table_with(best, tied)
    rows = [Row("auroc", "m", (best, tied), fewest) for fewest in (20, 18, 26)]
    few = replace(table, rows=rows, rare="mistakes").notes("*")[-1]
    assert few.startswith(
        "Lower ends in a row are alike because there are only 18 to 26 mistakes: with so few,"
    )
    assert "only 18 mistakes:" in replace(table, rows=rows[1:2], rare="mistakes").notes("*")[-1]
    assert "AUC: mean accuracy over all shares kept" in table_with(lower, lower, section="auc").notes("*")[1]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_latex_compiles(found, tmp_path) -> None:
    whole = r"\documentclass{article}\usepackage{booktabs,amsmath}\begin{document}" + "\n"
    (tmp_path / "t.tex").write_text(whole + table_of_scores(found).latex() + "\n\\end{document}\n")
    done = subprocess.run(
        ["pdflatex", "-halt-on-error", "t.tex"], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_latex_has_as_many_cells_in_each_row(found) -> None:
    lines = table_of_scores(found).latex().splitlines()
    assert lines[0] == r"\begin{tabular}{llccccc}"
    assert r"\cmidrule(lr){3-4}\cmidrule(lr){6-7}" in lines[2]
    assert r"MC\_D \& more" in lines[5]
    for line in lines[3:10]:
        if line.endswith(r"\\"):
            assert line.replace(r"\&", "").count("&") == 6
    assert sum(line == r"\midrule" for line in lines) == 2


def test_columns_by_name() -> None:
    assert column_of("pairwise_total", ["pairwise_total"]).heading == ""
    assert column_of("reverse_total", ["reverse_total", "average_total"]).heading == "reverse"
    assert column_of("my_score", ["my_score"]).heading == "my_score"
    assert kinds_of(["a", "b_total", "c", "d_total"]) == [["a", "c"], ["b_total", "d_total"]]


def test_one_score_has_its_figures_in_columns() -> None:
    result = detection(np.arange(10.0), np.arange(5.0, 15.0))
    table = table_of_figures({"DE": result}, ["auroc", "fpr95"], "K")
    assert table.cells()[0] == ["Method", "AUROC", "FPR95"]
    assert table.csv().splitlines()[1].startswith(f"auroc,DE,K,{result.auroc.value}")
    assert table.notes("*") == []
