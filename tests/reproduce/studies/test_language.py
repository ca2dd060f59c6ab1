"""The language study: its parts against slow references, controls that must fail, and a small run."""

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import demur
from demur.cli import app
from demur.reproduce.records import convert_to_records, select_records
from demur.stores import read_columns

torch = pytest.importorskip("torch")
pytest.importorskip("matplotlib")
pytest.importorskip("transformers")


from demur.reproduce.studies.language import (  # noqa: E402
    answers,
    character_models,
    config,
    detection,
    limits,
    promises,
    recorded_answers,
    section,
    specialists,
    text_files,
    token_scores,
    training,
)
from demur.sequences import LanguageModels, decompose  # noqa: E402

from .made import language  # noqa: E402

TABLES = [
    "choices-curves", "choices-differences", "choices-promises", "choices", "deployed", "detection",
    "differences", "limits", "samples-differences", "samples-promises", "samples", "specialists-bits",
    "specialists-detection", "specialists-differences", "specialists-means", "specialists-owners",
]  # fmt: skip


def run(*arguments: object):
    return CliRunner().invoke(app, ["reproduce", "language", *(str(each) for each in arguments)])


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("language")
    language(folder)
    return folder


@pytest.fixture(scope="module")
def done(data) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(promises, "DRAWS", 5)  # two hundred take most of the time
        result = run("--data", data, "--out", data / "run", "--config", data / "tiny.toml")
    assert result.exit_code == 0, result.output
    return data / "run"


def read_table(folder: Path, name: str) -> list[dict]:
    return convert_to_records(read_columns(folder / f"{name}.csv"))


# --- a small run ---------------------------------------------------------------------------------


def test_a_run_writes_tables_figure_and_section(done) -> None:
    names = {path.name for path in done.iterdir() if path.is_file()}
    expected = {f"{name}.csv" for name in TABLES}
    pictures = {f"{name}.{end}" for name in ("language", "specialists") for end in ("pdf", "png")}
    assert names >= expected | pictures | {"section.md", "findings.txt"}
    text = (done / "section.md").read_text()
    assert "demur reproduce language" in text and "### Who is ahead" in text
    assert "](figures/results/language-tiny.png)" in text
    assert "](figures/results/language-tiny-specialists.png)" in text
    assert "### A mixture of specialists: three networks" in text
    for heading in ("trained apart", "two models", "Recorded options: options", "Sampled answers: answers"):
        assert heading in text
    assert section.write_tally(total=(0, 0, 0))[:10] in text
    rows = read_table(done, "detection")
    assert {row["ensemble"] for row in rows} == {"trained", "given"}
    assert {str(row["unit"]) for row in rows} == {"2", "6", "token"}


def test_figures_of_the_run_are_those_of_a_direct_computation(done, data) -> None:
    """One AUROC, from forward passes and pairs, without any of the study's code."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    models = [AutoModelForCausalLM.from_pretrained(data / f"model-{k}").eval() for k in range(2)]
    tokenizer = AutoTokenizer.from_pretrained(data / "model-0")
    means = []
    for name in ("known", "other"):
        lines = (data / f"{name}.jsonl").read_text().splitlines()[:10]
        own = []
        for line in lines:
            ids = tokenizer(json.loads(line)["text"][:60], add_special_tokens=False)["input_ids"][:6]
            with torch.no_grad():
                probs = [
                    torch.softmax(m(torch.tensor([[1, *ids]])).logits[0, :-1].double(), -1) for m in models
                ]
            p, q = (each.numpy() for each in probs)
            own.append(np.mean(((p - q) * np.log(p / q)).sum(-1) / 4))
        means.append(own)
    wins = np.mean([[0.5 * (b == a) + (b > a) for b in means[1]] for a in means[0]])
    rows = [row for row in read_table(done, "detection") if str(row["unit"]) == "6"]
    (row,) = select_records(rows, ensemble="given", score="step|k")
    assert row["auroc"] == pytest.approx(wins, abs=1e-9)
    assert row["mean_known"] == pytest.approx(np.mean(means[0]), rel=1e-3)


@pytest.mark.slow
def test_an_interrupted_training_ends_with_the_same_bytes(data, tmp_path, monkeypatch) -> None:
    given = config.read_config(str(data / "tiny.toml")).ensembles["trained"]
    texts = text_files.read_texts(data / given.texts)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for each in (whole, cut):
        each.mkdir()
    training.train_member(whole, data / given.like, texts, given, 3)
    monkeypatch.setattr(training, "_SECONDS_BETWEEN_SAVES", 0.0)
    rate = training.scale_rate

    def stop(step: int, steps: int) -> float:
        if step == 4:
            raise KeyboardInterrupt
        return rate(step, steps)

    monkeypatch.setattr(training, "scale_rate", stop)
    with pytest.raises(KeyboardInterrupt):
        training.train_member(cut, data / given.like, texts, given, 3)
    assert (cut / "training.safetensors").exists()
    monkeypatch.setattr(training, "scale_rate", rate)
    training.train_member(cut, data / given.like, texts, given, 3)
    names = sorted(path.name for path in whole.iterdir())
    assert names == sorted(path.name for path in cut.iterdir())
    for name in names:
        assert (whole / name).read_bytes() == (cut / name).read_bytes()


def test_a_second_run_does_nothing_and_other_settings_are_other_stages(done, data) -> None:
    before = {path: path.stat().st_mtime_ns for path in (done / "stages").rglob("*") if path.is_file()}
    result = run("--data", data, "--out", done, "--config", data / "tiny.toml", "--dry-run")
    assert result.exit_code == 0 and "to do" not in result.output
    after = {path: path.stat().st_mtime_ns for path in (done / "stages").rglob("*") if path.is_file()}
    assert before == after
    result = run("--data", data, "--out", done, "--config", data / "tiny.toml", "--dry-run", "--seed", 1)
    assert "to do" in result.output


# --- scores of tokens ----------------------------------------------------------------------------


def test_surprise_sums_to_the_likelihood_of_the_average(data) -> None:
    folders = [data / "model-0", data / "model-1"]
    texts = ["a b c d", "e f g h"]
    for average in token_scores.AVERAGES:
        members = LanguageModels.load(folders, average=average)
        parts = members.score(texts, progress=False).decompose()
        found = token_scores.measure_surprise(np.asarray(parts.token_log_likelihoods, float), average)
        np.testing.assert_allclose(-found.sum(axis=1), parts.log_likelihood, rtol=1e-5)
    # Against the other average, as a control: they differ.
    other = token_scores.measure_surprise(np.asarray(parts.token_log_likelihoods, float), "step")
    assert not np.allclose(-other.sum(axis=1), parts.log_likelihood, rtol=1e-5)


def test_single_tokens_are_judged_by_texts(monkeypatch) -> None:
    """Tokens of a text that go together: the interval over texts is wider than that over tokens."""
    rng = np.random.default_rng(0)
    known = {"step|k": rng.normal(size=(40, 1)) + 0.1 * rng.normal(size=(40, 20))}
    other = {"step|k": 0.5 + rng.normal(size=(40, 1)) + 0.1 * rng.normal(size=(40, 20))}
    monkeypatch.setattr(detection, "PAIRS", ())
    (row,), none = detection.detect_set(known, other, [detection.TOKEN])
    assert none == []
    plain = demur.tasks.detection(
        known["step|k"].ravel(), other["step|k"].ravel(), interval="asymptotic"
    ).auroc
    assert row["auroc"] == pytest.approx(plain.value)
    assert row["high"] - row["low"] > 3 * (plain.high - plain.low)


def test_prefixes_are_means_of_the_first_tokens() -> None:
    values = np.arange(12.0).reshape(2, 6)
    np.testing.assert_allclose(token_scores.average_prefix({"x": values}, 3)["x"], [1, 7])
    (inputs, clusters) = detection.take_unit({"x": values}, detection.TOKEN)
    assert inputs["x"].shape == (12,) and clusters.tolist() == [0] * 6 + [1] * 6


# --- specialists ---------------------------------------------------------------------------------


def test_characters_are_scored_as_by_single_windows(data) -> None:
    """Every character by a network that reads its window alone, and K from pairs."""
    from demur.reproduce.networks.character_lstm import WINDOW, build_character_lstm

    models = character_models.read_character_models(data / "characters.npz")
    text = "a b c d"
    found, logs = character_models.score_characters(models, [text, "k l m n"])
    networks = [build_character_lstm(each) for each in models.parameters.values()]
    for place, character in enumerate(text):
        read = [models.places["<s>"], *(models.places[each] for each in text[:place])]
        window = torch.tensor([[0] * (WINDOW - len(read)) + read])
        with torch.no_grad():
            rows = np.stack([torch.log_softmax(net(window)[0].double(), -1).numpy() for net in networks])
        np.testing.assert_allclose(logs[:, 0, place], rows[:, models.places[character]], atol=1e-5)
        pairs = [(np.exp(p) * (p - q)).sum() for p in rows for q in rows]
        assert found["step|k"][0, place] == pytest.approx(np.mean(pairs), rel=1e-4)


def test_titles_go_to_the_member_that_prefers_their_letters(done, data) -> None:
    rows = read_table(done, "specialists-owners")
    assert {row["set"] for row in rows} == {"low", "high"} and all(row["texts"] == 10 for row in rows)
    assert all(row["right"] > 0.6 for row in rows if row["prefix"] == 8)
    bits = {(row["set"], row["by"]): row["bits"] for row in read_table(done, "specialists-bits")}
    for own, other in (("low", "high"), ("high", "low")):
        assert bits[own, own] < bits[own, other] and bits[own, "by sequence"] < bits[own, other]


def test_owners_are_counted_by_prefix() -> None:
    """Two members, three texts of the first: likelihoods of both prefixes by hand."""
    logs = np.array([[[-1.0, -1.0], [-3.0, -0.1], [-3.0, -3.0]], [[-2.0, -2.0], [-1.0, -5.0], [-1.0, -1.0]]])
    first, second = specialists.attribute_texts("one", ["one", "two"], logs, [1, 2])
    assert first["right"] == pytest.approx(1 / 3) and second["right"] == pytest.approx(2 / 3)
    assert first["mistaken"] == "two" and first["low"] < 1 / 3 < first["high"]


# --- limits --------------------------------------------------------------------------------------


def test_limits_are_never_violated_and_wrong_values_are_counted(data, monkeypatch) -> None:
    given = [data / "model-0", data / "model-1"], [], ["a b c d e f", "g h i j k l"], 5, [4, 10]
    rows = limits.measure_limits(*given)
    assert len(rows) == 10 and all(row["violated"] == 0 for row in rows)
    assert all(row["lower"] <= row["exact"] <= row["upper"] for row in rows)
    widths = {row["top"]: row["width"] for row in rows if row["part"] == "I"}
    assert widths[10] < widths[4]

    def lie(**options):
        return decompose(**{**options, "logits": 0.2 * options["logits"]})

    monkeypatch.setattr(limits, "decompose", lie)
    assert sum(row["violated"] for row in limits.measure_limits(*given)) > 0


# --- recorded answers ----------------------------------------------------------------------------


def test_scores_of_a_deployed_model_are_those_of_loops(data) -> None:
    choices = recorded_answers.read_choices(data / "options.npz")
    assert choices.log_probs.shape == (4, 79, 3)  # one was a demonstration
    names, logs = choices.select_models("plain", 0)
    assert names == ["x", "y"] and list(choices.select_prompts()) == ["x", "y"]
    found, probs = answers.score_deployed(logs, 1), np.exp(logs)
    for n in range(5):
        own = probs[1, n]
        cross = np.mean([-(own * logs[m, n]).sum() for m in range(2)])
        entropy = -(own * np.log(own)).sum()
        assert found["cross_total"][n] == pytest.approx(cross, rel=1e-9)
        assert found["cross"][n] == pytest.approx(cross - entropy, rel=1e-6)
        assert found["own_entropy"][n] == pytest.approx(entropy, rel=1e-9)
        assert found["own_unsure"][n] == pytest.approx(1 - own.max())
    scores = answers.score_average(logs)
    np.testing.assert_allclose(scores["k"], scores["i"] + scores["m"], rtol=1e-9)
    np.testing.assert_allclose(scores["total"], scores["aleatoric"] + scores["k"], rtol=1e-12)


def test_scores_of_sampled_answers_are_those_of_loops(data) -> None:
    samples = recorded_answers.read_samples(data / "answers.jsonl")
    scores, correct = answers.score_sampled(samples)
    for n, own in enumerate(samples.answers):
        counts = Counter(own[1:])
        shares = [count / 3 for count in counts.values()]
        assert scores["entropy"][n] == pytest.approx(-sum(p * math.log(p) for p in shares), abs=1e-12)
        assert scores["rest"][n] == pytest.approx(1 - max(shares))
        assert scores["others"][n] == pytest.approx(1 - counts[own[0]] / 3)
        assert correct[n] == (own[0] == "answer")


def test_a_score_of_chance_promises_less_than_one_that_knows() -> None:
    rng = np.random.default_rng(0)
    correct = rng.uniform(size=1000) < 0.6
    scores = {"knows": ~correct + rng.normal(size=1000) / 2, "chance": rng.normal(size=1000)}
    rows = {row["score"]: row for row in promises.try_promises(scores, correct, [0.8], 0)}
    assert rows["knows"]["promised"] == 1 and rows["knows"]["kept"] > 0.4
    assert rows["chance"]["promised"] < 0.1
    # At most 5 % may be broken: 200 draws show no more than 5 % and three standard errors of 1.5 %.
    assert rows["knows"]["right"] > 0.8 and rows["knows"]["broken"] < 0.05 + 3 * 0.0154


def test_a_promise_that_is_not_kept_is_counted(monkeypatch) -> None:
    """Control: a policy that promises what it has seen, without a margin."""

    class Hopeful:
        @classmethod
        def fit(cls, scores, correct, *, accuracy, confidence):
            order = np.argsort(scores)
            right = np.cumsum(correct[order]) / np.arange(1, len(order) + 1)
            found = cls()
            found.limit = scores[order][np.flatnonzero(right >= accuracy).max()]
            return found

        def defer(self, scores):
            return scores > self.limit

    rng = np.random.default_rng(0)
    correct = rng.uniform(size=1000) < 0.6
    scores = {"knows": ~correct + rng.normal(size=1000) / 2}
    monkeypatch.setattr(promises, "Deferral", Hopeful)
    assert promises.try_promises(scores, correct, [0.8], 0)[0]["broken"] > 0.25


def test_judged_scores_are_compared_with_the_reference() -> None:
    rng = np.random.default_rng(1)
    correct = rng.uniform(size=400) < 0.7
    scores = {"good": ~correct + rng.normal(size=400), "noise": rng.normal(size=400)}
    found, gaps = answers.judge_scores(scores, correct, "good")
    assert [row["score"] for row in found] == ["good", "noise"]
    assert [row["task"] for row in gaps] == ["misclassification", "selective"]
    for row in detection.adjust_differences(gaps):
        assert detection.judge_difference(row) == "ahead" and row["low"] > 0


# --- settings and files --------------------------------------------------------------------------


def test_bad_settings_and_files_get_one_line(data, tmp_path) -> None:
    text = (data / "tiny.toml").read_text()
    for change, message in (
        (("[texts]", "[text]"), "expected one of"),
        (("number = 10", "number = 1"), "a number from 2 up"),
        (("number = 10", "number = 50"), "expected 50 texts of 60 characters or more, got 12"),
        (("prefixes = [2, 6]", "prefixes = [2, 600]"), "expected at least 600 tokens"),
        (("number = 10", 'number = "10"'), "number: expected int"),
        (("prefixes = [3, 8]", "prefixes = [3, 80]"), "expected 10 texts of low with 80 characters or more"),
        (("prefixes = [3, 8]", "prefixes = [0]"), "[specialists]: expected others, prefixes from 1 up"),
        (('texts = "titles.jsonl"', 'texts = "known.jsonl"'), "in 'set' one of plain, low, high"),
        (('models = "characters.npz"', 'models = "options.npz"'), "'chars'"),
        (('like = "model-0"', 'like = "nowhere"'), "expected a folder of a model"),
        (('models = ["model-0", "model-1"]', "models = []"), "expected models, or like and texts"),
        (('prompt = "plain"', 'prompt = "none"'), "expected 2 models or more with prompt 'none'"),
        (('file = "answers.jsonl"', 'file = "options.npz"'), "expected JSON lines"),
        (('file = "options.npz"', 'file = "answers.jsonl"'), "expected an .npz"),
    ):
        wrong = tmp_path / "wrong.toml"
        wrong.write_text(text.replace(*change))
        result = run("--data", data, "--out", tmp_path / "run", "--config", wrong)
        assert result.exit_code == 2, (change, result.output)
        assert message in " ".join(result.output.split()), (change, result.output)
    assert run("--data", data, "--out", tmp_path / "x", "--config", "none").exit_code == 2
