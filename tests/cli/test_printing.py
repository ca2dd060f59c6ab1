"""What the commands print: names from files and folders as text, never as commands to the terminal."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import demur
from demur.cli import app
from demur.cli.printing import bad_input_exits
from demur.control_characters import escape_controls
from demur.stores import write_columns

ESCAPE = "\x1b]0;title\x07[red]x[/red]:smile:\x9b2J\u202e\u2066"
SHOWN = r"\x1b]0;title\x07[red]x[/red]:smile:\x9b2J\u202e\u2066"


@pytest.fixture(autouse=True)
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*arguments: Any) -> str:
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def fails(*arguments: Any) -> str:
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 2 and result.stdout == "" and result.stderr.count("\n") == 1, result.output
    return result.stderr


def printable(text: str) -> bool:
    return text.replace("\n", "").isprintable()


def test_ordinary_text_of_any_language_stays() -> None:
    for text in ("Größe", "日本語", "עברית", "é", "👩‍🔬", "a\\b"):
        assert escape_controls(text) == text
    assert escape_controls("a\nb\tc", keep="\n") == "a\nb\\tc".replace("\\t", "\\x09")
    assert escape_controls("\udcff") == "\\udcff"


@pytest.mark.parametrize("form", [[], ["--markdown"], ["--latex"], ["--csv"]])
@pytest.mark.parametrize("names", [["K"], [ESCAPE, "K"]])
def test_names_of_methods_and_scores_in_tables(form, names) -> None:
    rng = np.random.default_rng(0)
    for name in ("id.npz", "ood.npz"):
        write_columns(Path(name), {"pairwise_epistemic": rng.random(20), ESCAPE: rng.random(20)})
    scores = [each for name in names for each in ("--score", name)]
    given = ["--id", f"{ESCAPE}=id.npz", "--ood", f"{ESCAPE}=ood.npz", "--resamples", 100]
    text = run("evaluate", "ood", *given, *scores, *form)
    assert printable(text) and "\\x1b" in text.replace(r"\textbackslash{}", "\\")
    if not form:
        assert "[red]x[/red]:smile:" in text.replace("\n", "")


def test_names_of_files_arrays_and_columns_in_errors() -> None:
    np.savez("z.npz", **{ESCAPE: np.zeros((2, 3, 4)), "b": np.zeros((2, 3, 4))})
    assert SHOWN in (text := fails("score", "z.npz", "--logits")) and printable(text)
    assert printable(fails("score", f"{ESCAPE}.npy", "--logits"))
    assert printable(fails("score", "z.npz", f"--{ESCAPE}"))
    write_columns(Path("scores.npz"), {ESCAPE: np.zeros(3)})
    assert SHOWN in (text := fails("evaluate", "ood", "--id", "scores.npz", "--ood", "scores.npz"))
    assert printable(text)


def test_names_of_groups_and_outputs() -> None:
    columns = {"pairwise_epistemic": np.arange(20.0), "correct": np.ones(20, bool)}
    write_columns(Path("scores.npz"), columns | {"group": np.full(20, ESCAPE), "prediction": np.zeros(20)})
    out = f"policy{ESCAPE.replace('/', '')}.json"
    text = run("evaluate", "defer", "fit", "scores.npz", "--coverage", 0.5, "--groups", "group", "--out", out)
    assert printable(text) and f"Group {SHOWN}: defers" in text
    text = run("evaluate", "defer", "apply", out, "scores.npz", "--groups", "group")
    assert printable(text) and f"Group {SHOWN}: defers" in text
    np.save("z.npy", np.zeros((2, 3, 4)))
    assert printable(run("score", "z.npy", "--logits", "--out", f"{out}.csv"))


def test_a_policy_of_another_score_is_told_without_its_control_characters() -> None:
    write_columns(Path("scores.npz"), {"a": np.arange(20.0), ESCAPE: np.arange(20.0)})
    policy = demur.Deferral.fit(np.arange(20.0), np.ones(20, bool), coverage=0.5)
    policy.save("policy.json")
    text = Path("policy.json").read_text().replace('"score": null', '"score": "\\u001b[31m"')
    Path("policy.json").write_text(text)
    result = CliRunner().invoke(
        app, ["evaluate", "defer", "apply", "policy.json", "scores.npz", "--score", "a"]
    )
    assert result.exit_code == 0 and r"fitted on \x1b[31m, these are a" in result.stderr


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            MemoryError("Unable to allocate 9 TiB."),
            "expected more memory, got: Unable to allocate 9 TiB: give",
        ),
        (MemoryError(), "expected more memory: give fewer inputs at once"),
    ],
)
def test_too_little_memory_is_one_line(error, line, capsys) -> None:
    import typer

    with pytest.raises(typer.Exit) as caught, bad_input_exits():
        raise error
    assert caught.value.exit_code == 2
    found = capsys.readouterr().err
    assert line in found and found.count("\n") == 1
