"""`demur score --logprobs`: what it prints and writes, what evaluate and report make of it, how it fails."""

import json
from pathlib import Path

import numpy as np
import pytest
from reference.answers import SHAPES, make_members
from typer.testing import CliRunner

from demur.cli import app
from demur.report.run_folder import read_run
from demur.sequences.answer_scores import score_answers
from demur.stores import AnswerFiles, read_columns

PARTS = ("total", "aleatoric", "epistemic")


@pytest.fixture(autouse=True)
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def answers():
    """Thirty prompts of three members; those that members disagree about are wrong more often."""
    for service, shape in SHAPES.items():
        rng = np.random.default_rng(0)
        records = []
        for n in range(30):
            noise = rng.uniform(0.1, 2)
            logs, tokens = make_members(rng, 3, int(rng.integers(1, 4)), noise)
            right = bool(rng.uniform() > noise / 2.2)
            for member, own in zip("abc", logs, strict=True):
                records.append(shape(f"q{n}", member, own, tokens, 5, correct=right))
        order = rng.permutation(len(records))
        Path(f"{service}.jsonl").write_text("".join(json.dumps(records[i]) + "\n" for i in order))


def run(*arguments):
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 0 and result.stderr == "", result.output
    return result.stdout


def fails(*arguments):
    before = sorted(Path().rglob("*"))
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert result.stderr.count("\n") == 1 and "Traceback" not in result.stderr
    assert sorted(Path().rglob("*")) == before
    return result.stderr


@pytest.mark.parametrize("service", SHAPES)
@pytest.mark.parametrize(
    "suffix",
    [".csv", pytest.param(".npz", marks=pytest.mark.slow), pytest.param(".json", marks=pytest.mark.slow)],
)
def test_files_hold_what_the_library_says(answers, service, suffix) -> None:
    out = Path(f"run/id{suffix}")
    out.parent.mkdir()
    said = run(
        "score", f"{service}.jsonl", "--logprobs", service, "--vocabulary", 24, "--tokens", "--out", out
    )
    assert said.startswith(f"Wrote the scores of 30 answers to {out}, and of their tokens to run/tokens-id")
    assert "K and M have no upper limit" in said and "without --vocabulary" not in said
    with AnswerFiles([Path(f"{service}.jsonl")]) as files:
        wanted = score_answers(files, service, vocabulary=24, per_token=True)
    for path, columns in ((out, wanted.columns), (out.with_name(f"tokens-{out.name}"), wanted.token_columns)):
        found = read_columns(path)
        assert columns is not None and found.keys() >= columns.keys()
        for name, values in columns.items():
            if values.dtype.kind == "U":
                assert found[name].tolist() == values.tolist(), name  # also tokens such as 1, nan and "\n"
            else:
                np.testing.assert_allclose(found[name], values, rtol=1e-12)
    if suffix != ".json":
        assert set(read_columns(out)["unit"]) == {"nats per token"}


def test_printed_and_as_json(answers) -> None:
    text = run("score", "openai.jsonl", "--logprobs", "openai", "--tokens", "--top", 3)
    assert "30 inputs, 3 members" in text and "Uncertainty in nats per token" in text
    assert "The 3 most uncertain answers, by pairwise_epistemic" in text and "worst token" in text
    assert "infinite without --vocabulary" in text
    held = json.loads(run("score", "openai.jsonl", "--logprobs", "openai", "--tokens", "--json", "--base", 2))
    facts = {"inputs": 30, "members": 3, "unit": "bits per token", "limits": "lower"}
    assert {name: held[name] for name in facts} == facts
    assert len(held["scores"]["pairwise_epistemic"]) == 30
    assert len(held["tokens"]["token"]) == sum(held["scores"]["tokens"])
    assert set(held["scores"]["average_total_upper"]) == {"inf"}


def test_same_bytes_twice_and_no_file_is_replaced(answers) -> None:
    command = ("score", "vllm.jsonl", "--logprobs", "vllm", "--tokens", "--out")
    run(*command, "a.csv")
    run(*command, "b.csv")
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()
    assert Path("tokens-a.csv").read_bytes() == Path("tokens-b.csv").read_bytes()
    assert "a.csv: expected a new file" in fails(*command, "a.csv")
    Path("a.csv").unlink()
    assert "tokens-a.csv: expected a new file" in fails(*command, "a.csv")
    run(*command, "a.csv", "--force")
    Path("vllm.jsonl").rename("vllm.csv")
    assert "one of the inputs" in fails(
        "score", "vllm.csv", "--logprobs", "vllm", "--out", "vllm.csv", "--force"
    )


def test_evaluate_and_report_take_the_files(answers) -> None:
    Path("run").mkdir()
    run(
        "score", "openai.jsonl", "--logprobs", "openai", "--vocabulary", 24, "--tokens", "--out", "run/id.csv"
    )
    for task in ("selective", "misclassification"):
        assert "pairwise KL K" in run("evaluate", task, "run/id.csv")
    shown = run("evaluate", "selective", "run/id.csv", "--score", "perplexity", "--figure", "prr")
    assert "perplexity" in shown and "PRR" in shown
    tokens = run("evaluate", "ood", "--id", "run/tokens-id.csv", "--ood", "run/tokens-id.csv", "--score", "K")
    assert ".500" in tokens
    assert run("report", "run") == "run/report.html\n"
    method = read_run(Path("run")).methods[0]
    scored = method.sets["id"]
    assert "average_epistemic_upper" not in scored.scores and "perplexity" in scored.scores
    assert scored.correct is not None and 0 < scored.correct.sum() < 30
    own = method.tokens["id"]
    assert own.limits and len(own.begins) == 31 and own.begins[-1] == len(own.texts)


def test_members_that_are_missing_are_told(answers) -> None:
    lines = Path("openai.jsonl").read_text().splitlines(keepends=True)
    first = json.loads(lines[0])["id"]
    alone = [line for line in lines if json.loads(line)["member"] == "a"]
    Path("one.jsonl").write_text("".join(alone))
    result = CliRunner().invoke(app, ["score", "one.jsonl", "--logprobs", "openai"])
    assert result.exit_code == 0 and "one member: a single member cannot disagree" in result.stderr
    Path("some.jsonl").write_text("".join(lines[1:]))
    result = CliRunner().invoke(app, ["score", "some.jsonl", "--logprobs", "openai", "--json"])
    assert "1 of 30 answers have records of fewer than all 3 members" in result.stderr
    scores = json.loads(result.stdout)["scores"]
    assert dict(zip(scores["id"], scores["members"], strict=True))[first] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--logprobs", "other"), "--logprobs: expected openai or vllm, got other"),
        ((), "--logprobs: expected openai or vllm, got none: say who returned them"),
        (("--logits",), "--logprobs: expected openai or vllm, got none"),
        (("--tokens",), "--logprobs: expected openai or vllm, got none"),
        (("--vocabulary", "9"), "--logprobs: expected openai or vllm, got none"),
        (("--logprobs", "openai", "--logits"), "expected --logprobs without --logits"),
        (("--logprobs", "openai", "--stderr"), "expected --logprobs without --stderr"),
        (("--logprobs", "openai", "--measure", "bma"), "measure must be 'pairwise', 'average' or 'reverse'"),
        (("--logprobs", "openai", "--vocabulary", "4"), "vocabulary must be at least the number of tokens"),
        (("--logprobs", "openai", "--rounding", "dtype"), "--rounding: expected how far sums"),
        (("--logprobs", "openai", "--keep", "cost"), "line 1: expected a number as cost, got 'None'"),
        (("--logprobs", "openai", "--id", "name"), "line 1: expected text or a whole number as name"),
        (("--logprobs", "vllm"), "line 1: expected log-probabilities as vllm returns them"),
        (("--logprobs", "openai", "--out", "x.txt"), "x.txt: expected an output file that ends in"),
    ],
)
def test_wrong_options_are_one_line(answers, arguments, message) -> None:
    assert message in fails("score", "openai.jsonl", *arguments)


@pytest.mark.parametrize("arguments", [("--measure", "doubt"), ("--measure", "bma"), ("--rounding", "0.5")])
def test_wrong_options_are_not_blamed_on_a_line(answers, arguments) -> None:
    assert "line 1" not in fails("score", "openai.jsonl", "--logprobs", "openai", *arguments)


def test_damaged_bytes_never_give_a_traceback(answers) -> None:
    content = Path("openai.jsonl").read_bytes()[:15_000]
    content = content[: content.rindex(b"\n") + 1]
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(12):
        damaged = bytearray(content)
        for place in rng.integers(len(damaged), size=3):
            damaged[place] = rng.integers(256)
        Path("damaged.jsonl").write_bytes(damaged)
        result = CliRunner().invoke(app, ["score", "damaged.jsonl", "--logprobs", "openai", "--measure", "I"])
        assert result.exit_code in (0, 2), result.exception
        if result.exit_code == 2:
            refused += 1
            assert result.stderr.count("\n") == 1 and "damaged.jsonl, line " in result.stderr, result.stderr
    assert refused > 2
