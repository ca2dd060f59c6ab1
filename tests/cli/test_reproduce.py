"""`demur reproduce bernoulli`: tables, figures and a page, the same each time."""

import builtins
import csv
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from reference import second_order as reference
from typer.testing import CliRunner

import demur
from demur.cli import app

pytest.importorskip("matplotlib")

FILES = [
    "bernoulli.csv", "bernoulli.pdf", "bernoulli.png", "explorer.html", "twins.csv", "twins.pdf", "twins.png",
]  # fmt: skip
POSTERIORS = {
    "uniform(0,1)": reference.uniform(0, 1),
    "beta(5,5)": reference.beta(5, 5),
    "beta(0.4,0.4)": reference.beta(0.4, 0.4),
    "uniform(0.3,0.7)": reference.uniform(0.3, 0.7),
    "uniform(0.5,0.9)": reference.uniform(0.5, 0.9),
}


def run(*arguments: object):
    return CliRunner().invoke(app, ["reproduce", *(str(each) for each in arguments)])


def table(path: Path) -> dict[str, dict[str, list[float]]]:
    """Total, aleatoric and epistemic by posterior and measure."""
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["posterior", "measure", "total", "aleatoric", "epistemic"]
    found: dict[str, dict[str, list[float]]] = {}
    for posterior, measure, *parts in rows[1:]:
        found.setdefault(posterior, {})[measure] = [float(part) for part in parts]
    return found


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("study") / "new" / "bernoulli"
    result = run("bernoulli", "--out", out)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return out, result.stdout


def test_what_is_written(study):
    assert sorted(path.name for path in study[0].iterdir()) == FILES


def test_values_of_the_six_posteriors(study):
    found = table(study[0] / "bernoulli.csv")
    assert list(found) == [*POSTERIORS, "deltas(0,1)"]
    for name, part in POSTERIORS.items():
        h, k, i, m = reference.integrated(part)
        expected = {"average": [h + i, h, i], "pairwise": [h + k, h, k], "reverse": [h + k, h + i, m]}
        assert list(found[name]) == list(expected)
        for measure, values in expected.items():
            assert found[name][measure] == pytest.approx(values, rel=1e-9, abs=1e-12)
    log2 = math.log(2)
    assert found["deltas(0,1)"]["average"] == pytest.approx([log2, 0, log2], abs=1e-15)
    assert found["deltas(0,1)"]["pairwise"] == [math.inf, 0, math.inf]
    assert found["deltas(0,1)"]["reverse"] == pytest.approx([math.inf, log2, math.inf])
    assert '"deltas(0,1)",pairwise,inf,0.0,inf\n' in (study[0] / "bernoulli.csv").read_text()


def test_twins_agree_under_the_current_measure_alone(study):
    found = table(study[0] / "twins.csv")
    assert next(iter(found)) == "uniform(0.1,0.9)"
    _, beta, deltas = ([float(x) for x in re.findall(r"[\d.]+", name)] for name in found)
    assert beta[0] == beta[1]
    assert sum(deltas) == 1
    first, *others = found.values()
    for other in others:
        assert other["average"] == pytest.approx(first["average"], abs=1e-12)
        for measure in ("pairwise", "reverse"):
            assert other[measure][1] == pytest.approx(first[measure][1], abs=1e-12)
            assert abs(other[measure][2] - first[measure][2]) > 0.01
    # The parameters themselves: a step of 1e-10 to either side changes the sign of what is missing.
    target = demur.decompose(demur.Uniform(0.1, 0.9)).aleatoric
    for make, x in ((lambda a: demur.Beta(a, a), beta[0]), (lambda p: demur.Deltas([p, 1 - p]), deltas[0])):
        below, above = (demur.decompose(make(x + step)).aleatoric - target for step in (-1e-10, 1e-10))
        assert below < 0 < above
    h, k, *_ = reference.integrated(reference.beta(*beta))
    assert found[list(found)[1]]["pairwise"] == pytest.approx([h + k, h, k], rel=1e-9)


def test_what_is_printed(study):
    out, text = study
    for name in (*POSTERIORS, "deltas(0,1)", "uniform(0.1,0.9)"):
        assert name in text
    assert "0.6931" in text
    assert text.count("∞") == 4
    assert "inf" not in text
    for name in FILES:
        assert str(out / name) in text


def test_figures_are_pictures(study):
    image = pytest.importorskip("matplotlib.image")
    for name, height in (("bernoulli", 1500), ("twins", 800)):
        pixels = image.imread(study[0] / f"{name}.png")
        assert pixels.shape[1] == 2160  # 7.2 inches at 300 dots
        assert pixels.shape[0] >= height
        assert pixels[..., :3].std() > 0.05
        content = (study[0] / f"{name}.pdf").read_bytes()
        assert content.startswith(b"%PDF")
        assert b"CreationDate" not in content


def test_the_figures_say_infinity_by_its_sign():
    from demur.report.bernoulli_figure import COLOURS, draw_posteriors
    from demur.reproduce.studies.bernoulli import POSTERIORS as STUDY
    from demur.reproduce.studies.bernoulli import build_panel

    panels = [build_panel(name, posterior) for name, posterior in STUDY.items()]
    texts = [text for axes in draw_posteriors(panels).axes for text in axes.texts]
    infinite = [text for text in texts if text.get_text() == "∞"]
    assert [text.get_color() for text in infinite] == [COLOURS["pairwise"]] * 2 + [COLOURS["reverse"]] * 2
    written = [text.get_text() for text in texts]
    for colour, label in zip(COLOURS.values(), ("current", "new", "reverse"), strict=True):
        assert [text.get_color() for text in texts if text.get_text() == label] == [colour] * 6
    assert written.count("0.693") == 11


@pytest.mark.slow
def test_the_same_bytes_in_another_process(study, tmp_path):
    command = [sys.executable, "-m", "demur.cli", "reproduce", "bernoulli", "--out", str(tmp_path)]
    environment = os.environ | {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" inf") == 4  # a terminal without the sign
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (study[0] / name).read_bytes(), name


def test_a_directory_with_files_is_kept(study, tmp_path):
    out, _ = study
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    result = run("bernoulli", "--out", out)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "--force" in result.stderr
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before
    (tmp_path / "file").write_text("x")
    result = run("bernoulli", "--out", tmp_path / "file")
    assert result.exit_code == 2
    assert "expected a directory, got a file" in result.stderr


def test_force_writes_again_and_leaves_other_files(study, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "bernoulli.csv").write_text("old")
    assert run("bernoulli", "--out", tmp_path, "--force").exit_code == 0
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "bernoulli.csv").read_bytes() == (study[0] / "bernoulli.csv").read_bytes()


@pytest.mark.parametrize("arguments", [(), ("bernoulli",), ("coin", "--out", "x")])
def test_bad_usage_is_one_line(arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    plain = builtins.__import__

    def without(name, *rest, **named):
        if name.split(".")[0] == "matplotlib":
            raise ImportError("No module named 'matplotlib'", name="matplotlib")
        return plain(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    result = run("bernoulli", "--out", tmp_path / "study")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "demur[report]" in result.stderr
    assert not (tmp_path / "study").exists()


def test_the_page_needs_nothing_from_outside(study):
    text = (study[0] / "explorer.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    for pattern in (r"https?://(?!www\.w3\.org/2000/svg)", r"\bsrc=", r"@import", r"url\((?!#)", r"fetch\("):
        assert not re.search(pattern, text), pattern
    assert f"demur {demur.__version__}" in text
    assert not re.search(r"/\* \S+\.(js|css) \*/", text)
