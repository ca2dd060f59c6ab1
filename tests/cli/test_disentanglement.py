"""`demur evaluate disentanglement`: the task's figures from files, and how it fails."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from demur.cli import app
from demur.stores import read_columns, write_columns
from demur.tasks import disentanglement


@pytest.fixture(autouse=True)
def parts(tmp_path, monkeypatch):
    """Scores of three training sizes, a reference in a column and in a file of its own."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    noise, rarity = rng.gamma(1.0, size=(2, 200))
    for size in (100, 1000, 5000):
        columns = {
            "pairwise_aleatoric": noise,
            "pairwise_epistemic": (rarity + 0.5 * noise) * rng.gamma(9.0, size=200) / size,
            "human": noise**2,
            "patient": np.repeat(np.arange(40), 5),
        }
        write_columns(tmp_path / f"{size}.csv", columns)
    np.save("human.npy", noise**2)
    return noise, rarity


def run(*arguments):
    done = CliRunner().invoke(app, ["evaluate", "disentanglement", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_figures_are_those_of_the_task():
    levels = ["--size", "100=100.csv", "--size", "1000=1000.csv", "--size", "5000=5000.csv"]
    code, text, _ = run("1000.csv", "--reference", "human", *levels, "--json")
    found = json.loads(text)
    files = {size: read_columns(Path(f"{size}.csv")) for size in (100, 1000, 5000)}
    wanted = disentanglement(
        files[1000]["pairwise_aleatoric"], files[1000]["pairwise_epistemic"], reference=files[1000]["human"],
        sizes={size: columns["pairwise_epistemic"] for size, columns in files.items()},
    )  # fmt: skip
    assert code == 0
    assert found["parts"] == wanted.parts.to_dict()
    assert found["reference"] == wanted.reference.to_dict() and found["reference"]["value"] == 1
    assert found["sizes"]["tau"] == wanted.sizes.tau.to_dict() and found["sizes"]["levels"] == [
        100,
        1000,
        5000,
    ]
    assert found["noise"] is None and found["failures"] == [] and found["inputs"] == 200


def test_text_says_what_is_wrong():
    code, text, _ = run("1000.csv", "--noise", "0=1000.csv", "--noise", "0.4=100.csv")
    assert code == 0 and "tau: rises" in text and "not ignorance" in text
    code, text, _ = run("a=100.csv", "b=1000.csv", "--reference", "human.npy", "--clusters", "patient")
    assert code == 0 and "a: Disentanglement of 200 inputs" in text and "b: Disentanglement" in text


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("average_aleatoric", ["1000.csv", "--measure", "average"]),
        ("nothing", ["1000.csv", "--reference", "nothing"]),
        ("as 1000=scores.csv, got small", ["1000.csv", "--size", "small"]),
        ("at least two levels", ["1000.csv", "--size", "100=100.csv"]),
        ("one file of scores", ["a=100.csv", "b=1000.csv", "--size", "100=100.csv"]),
        ("expected 200 numbers", ["1000.csv", "--reference", "short.npy"]),
    ],
)
def test_bad_input_is_refused_in_one_line(words, arguments):
    np.save("short.npy", np.arange(3.0))
    code, text, said = run(*arguments)
    assert (code, text) == (2, "") and said.startswith("demur: ") and said.count("\n") == 1
    assert words in said
