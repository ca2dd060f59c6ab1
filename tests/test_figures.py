"""The figures of the documentation: made by code that is here, with the library's numbers."""

import importlib.util
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from scipy import integrate, stats

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "docs" / "figures" / "mathematics.py"
NAMES = [f"{figure}-{theme}.svg" for figure in ("relation", "table") for theme in ("light", "dark")]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("figures_of_mathematics", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("figures")
    subprocess.run([sys.executable, "-W", "error", str(SCRIPT), "--out", str(folder)], check=True)
    return folder


def texts(path: Path) -> set[str]:
    """What is written in a figure; matplotlib keeps it beside the outlines of the letters."""
    return set(re.findall(r"<!-- (.*?) -->", path.read_text(encoding="utf-8")))


@pytest.mark.slow
def test_the_figures_can_be_made_and_are_those_of_the_page(made) -> None:
    assert sorted(path.name for path in made.iterdir()) == sorted(NAMES)
    page = (ROOT / "docs" / "mathematics.md").read_text(encoding="utf-8")
    assert "python docs/figures/mathematics.py --out docs/_static" in page
    for name in NAMES:
        assert ElementTree.parse(made / name).getroot().tag.endswith("svg")
        kept = ROOT / "docs" / "_static" / name
        assert len(texts(kept)) > 10
        assert texts(kept) == texts(made / name)
        assert f"_static/{name}" in page


def test_the_page_tells_the_numbers_of_the_table(script) -> None:
    page = (ROOT / "docs" / "mathematics.md").read_text(encoding="utf-8")
    for cell in script.cells().values():
        assert f"{float(cell.total):.4f}" in page
        assert f"{float(cell.epistemic):.4f}" in page or float(cell.epistemic) < 1e-12


def test_the_cells_are_those_of_the_posterior(script) -> None:
    a, b = script.POSTERIOR
    posterior = stats.beta(a, b)

    def mean(function) -> float:
        return integrate.quad(lambda x: function(x) * posterior.pdf(x), 0, 1, epsabs=1e-12, limit=200)[0]

    def cross(p: float, q: float) -> float:
        return -p * math.log(q) - (1 - p) * math.log(1 - q)

    q, truth, average = script.GIVEN["predictor"], script.GIVEN["truth"], a / (a + b)
    entropy = mean(lambda x: cross(x, x))
    expected = {
        "A1": (cross(q, truth), cross(q, q)),
        "A2": (cross(q, average), cross(q, q)),
        "A3": (mean(lambda x: cross(q, x)), cross(q, q)),
        "B1": (cross(average, truth), cross(average, average)),
        "B2": (cross(average, average), cross(average, average)),
        "B3": (mean(lambda x: cross(average, x)), cross(average, average)),
        "C1": (cross(average, truth), entropy),
        "C2": (cross(average, average), entropy),
        "C3": (entropy + 1 / (a + b), entropy),
    }
    found = script.cells()
    assert found.keys() == expected.keys() == script.FORMULAS.keys()
    for name, (total, aleatoric) in expected.items():
        assert float(found[name].total) == pytest.approx(total, abs=1e-6), name
        assert float(found[name].aleatoric) == pytest.approx(aleatoric, abs=1e-6), name


def test_pictures_of_the_report_are_small_and_all_shown_or_of_the_same_command() -> None:
    page = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    pictures = sorted((ROOT / "docs" / "figures").glob("report-*.png"))
    assert "python docs/figures/report.py --run build/demo --out docs/figures" in page
    assert len(pictures) == len(re.findall(r"\(figures/report-\w+\.png\)", page)) > 5
    for picture in pictures:
        assert f"(figures/{picture.name})" in page
        assert picture.stat().st_size < 150_000, picture
