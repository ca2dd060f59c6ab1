"""Answers on the page: which, their tokens and scores; and hostile text, in Chromium."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from demur.cli import app
from demur.report.contents import gather_contents
from demur.report.page import gather_data
from demur.report.run_folder import read_run
from demur.stores import StoreError, read_columns, write_columns

HOSTILE = [
    "</script><script>document.title='hacked'</script>", "<img src=x onerror=\"document.title='hacked'\">",
    " <b>bold</b>", "\u202eright to left", "\x1b[31m", "&amp;", "\n", "'\"`${document.title='hacked'}", " ",
    "\ufffd",
]  # fmt: skip


def write_answers(folder: Path, answers: list[list[str]], name: str = "id", rest: str = " the rest") -> None:
    """A folder with scores of answers by token: the score of a token is its place in all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    inputs = np.repeat(np.arange(len(answers)), [len(own) for own in answers])
    tokens = [token for own in answers for token in own]
    values = np.arange(len(tokens)) / len(tokens)
    means = np.array([values[inputs == n].mean() for n in range(len(answers))])
    write_columns(folder / f"tokens-{name}.csv", {
        "id": np.array([f"q{n}" for n in inputs]), "input": inputs,
        "position": np.concatenate([np.arange(len(own)) for own in answers]), "token": np.array(tokens),
        "surprisal": values[::-1], "pairwise_epistemic": values, "average_epistemic_upper": values + 1,
    })  # fmt: skip
    write_columns(folder / f"{name}.csv", {
        "input": np.arange(len(answers)), "id": np.array([f"q{n}" for n in range(len(answers))]),
        "correct": (np.arange(len(answers)) % 3 > 0).astype(int),
        "text": np.array(["".join(own) + rest for own in answers]),
        "perplexity": 9 - means, "pairwise_epistemic": means, "average_epistemic_upper": means + 1,
        "unit": np.full(len(answers), "nats per token"),
    })  # fmt: skip


@pytest.fixture
def answers() -> list[list[str]]:
    rng = np.random.default_rng(0)
    plain = [[f" w{k}" for k in rng.integers(9, size=rng.integers(2, 7))] for _ in range(40)]
    return [*plain, HOSTILE]


def test_rows_have_their_tokens_and_scores(tmp_path, answers) -> None:
    write_answers(tmp_path, answers)
    found = gather_data(gather_contents(read_run(tmp_path)), top=5)
    about = found["tokens"][0][0]
    assert about["scores"] == ["pairwise_epistemic", "surprisal"] and about["limits"] is True
    every = np.arange(sum(map(len, answers))) / sum(map(len, answers))
    assert about["scales"][0] == pytest.approx(np.quantile(every, [0.95, 0.995]), rel=1e-3)
    rows = {row["input"]: row for row in found["rows"][0][0]}
    assert max(rows) == 40 and len(rows) == 10  # five by each score
    begins = np.concatenate([[0], np.cumsum([len(own) for own in answers])])
    for place, row in rows.items():
        assert row["answer"]["tokens"] == answers[place] and row["answer"]["rest"] == " the rest"
        own = slice(begins[place], begins[place + 1])
        np.testing.assert_allclose(row["answer"]["values"][0], every[own], rtol=1e-3)
        assert row["right"] is bool(place % 3)
    assert all("answer" in row for row in found["rows"][0][1])  # of the mistakes, too


def test_answers_without_a_score_do_not_shift_the_others(tmp_path, answers) -> None:
    write_answers(tmp_path, answers)

    columns = read_columns(tmp_path / "id.csv")
    columns["status"] = np.array(["ok"] * len(answers))
    columns["status"][[0, 7]] = "no tokens"
    write_columns(tmp_path / "id.csv", columns, force=True)
    found = gather_data(gather_contents(read_run(tmp_path)), top=50)
    shown = {row["id"]: row["answer"]["tokens"] for row in found["rows"][0][0]}
    assert "q7" not in shown and all(shown[f"q{n}"] == answers[n] for n in range(41) if n not in (0, 7))


def test_infinite_scores_of_tokens_have_a_scale(tmp_path, answers) -> None:
    write_answers(tmp_path, answers)
    columns = read_columns(tmp_path / "tokens-id.csv")
    columns["pairwise_epistemic"][::3] = np.inf
    columns["surprisal"][:] = np.inf
    write_columns(tmp_path / "tokens-id.csv", columns, force=True)
    assert CliRunner().invoke(app, ["report", str(tmp_path)]).exit_code == 0
    scales = gather_data(gather_contents(read_run(tmp_path)))["tokens"][0][0]["scales"]
    assert 0 < scales[0][0] <= scales[0][1] < 1 and scales[1] == [0, 0]


def test_pages_without_tokens_say_nothing_of_answers(tmp_path, write_run) -> None:
    found = gather_data(gather_contents(read_run(write_run(tmp_path, number=30))))
    assert found["tokens"] == [[None, None]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input": np.array([0, 9])}, "expected rows of id as input, from 0 to 1"),
        ({"position": np.array(["a", "b"])}, "expected numbers in position"),
        ({"pairwise_epistemic": np.array([0.1, np.nan])}, "got NaN in row 1"),
        ({"token": None}, "expected a column token"),
        ({"pairwise_epistemic": None, "surprisal": None}, "expected columns of scores"),
    ],
)
def test_damaged_files_of_tokens_are_one_line(tmp_path, change, message) -> None:
    write_answers(tmp_path, [["a"], ["b"]])
    columns = {
        "input": np.array([0, 1]), "position": np.array([0, 0]), "token": np.array(["a", "b"]),
        "surprisal": np.array([0.5, 0.5]), "pairwise_epistemic": np.array([0.1, 0.2]),
    } | change  # fmt: skip
    columns = {name: values for name, values in columns.items() if values is not None}
    write_columns(tmp_path / "tokens-id.csv", columns, force=True)
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert done.exit_code == 2 and done.stderr.count("\n") == 1
    assert "tokens-id.csv: " in done.stderr and message in done.stderr
    write_columns(tmp_path / "tokens-id.npz", columns)
    with pytest.raises(StoreError, match=r"one file of tokens for a set, got tokens-id\.npz too"):
        read_run(tmp_path)


@pytest.mark.browser
def test_hostile_answers_are_text_and_the_worst_come_first(tmp_path, answers, open_page) -> None:
    write_answers(tmp_path, answers)
    assert CliRunner().invoke(app, ["report", str(tmp_path)]).exit_code == 0
    page = open_page((tmp_path / "report.html").as_uri(), viewport={"width": 1280, "height": 900})
    assert page.title() != "hacked" and "hacked" not in page.title()
    page.select_option("#score", label="K: epistemic, pairwise KL")
    items = page.locator("#answers > li")
    assert items.count() == 20
    shown = items.locator(".head").all_inner_texts()
    assert [line.split()[0] for line in shown[:3]] == ["q40", "q39", "q38"]
    values = [float(line.split()[2]) for line in shown]
    assert values == sorted(values, reverse=True)
    assert {line.split()[-1] for line in shown} == {"right", "wrong"}
    text = items.first.locator(".answer").text_content()
    assert "</script><script>document.title='hacked'</script>" in text and "<b>bold</b>" in text
    assert text.endswith(" the rest") and "\u202e" not in text
    assert page.locator("#answers b:has-text('bold'), #answers img, #answers script").count() == 0
    marked = page.locator("#answers mark").all_inner_texts()
    assert 0 < len(marked) <= 0.05 * sum(map(len, answers)) + 1
    assert "0.99" in items.first.locator(".worst").inner_text()
    page.select_option("#score", label="perplexity of the answer")
    assert "Words are shaded by their own surprisal" in page.locator("#answers-why").inner_text()
    assert items.first.locator(".head").inner_text().startswith("q0 ")


@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_can_be_read_on_the_deepest_shade(tmp_path, answers, open_page, theme, contrast) -> None:
    write_answers(tmp_path, answers)
    assert CliRunner().invoke(app, ["report", str(tmp_path)]).exit_code == 0
    size = {"width": 390, "height": 800}
    page = open_page((tmp_path / "report.html").as_uri(), color_scheme=theme, viewport=size)
    assert contrast(page, "--ink", "--shade") > 4.5  # the page mixes at most 65 % of it in
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert json.loads(page.locator("#data").text_content())["tokens"][0][0]["limits"]


@pytest.mark.browser
def test_blank_tokens_are_seen_and_text_from_the_right_moves_nothing(tmp_path, open_page) -> None:
    write_answers(tmp_path, [["\u2028", "\t", "\u200b", "\x1b", " ", "\n"], ["\ufdfa", " word"]], rest="")
    assert CliRunner().invoke(app, ["report", str(tmp_path)]).exit_code == 0
    page = open_page((tmp_path / "report.html").as_uri(), viewport={"width": 1280, "height": 900})
    page.select_option("#score", label="K: epistemic, pairwise KL")
    items = page.locator("#answers > li")
    shown = ["".join(each.locator(".token").all_text_contents()) for each in (items.nth(0), items.nth(1))]
    assert shown[0] == "\ufdfaword" and shown[1] == "\\u2028\\u0009\\u200b\\u001b\u2423\u23ce\n"
    assert items.nth(0).locator(".worst bdi").all_text_contents() == ["word", "\ufdfa"]
    assert items.nth(0).locator(".worst").text_content().endswith("\u201c\ufdfa\u201d 0.75")
