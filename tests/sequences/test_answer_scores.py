"""Answers from records: what TopLogProbs says of each, limits that hold, and damaged records."""

import math

import numpy as np
import pytest
from reference.answers import SHAPES, SIZE, VOCABULARY, make_members

import demur
from demur.sequences import TopLogProbs
from demur.sequences.answer_scores import score_answers
from demur.stores import AnswerRecord, StoreError

MEASURES = ("pairwise", "average", "reverse")
PARTS = ("total", "aleatoric", "epistemic")


def as_prompts(records):
    """Records by prompt, as AnswerFiles yields them."""
    found = {}
    for line, each in enumerate(records, start=1):
        record = AnswerRecord(str(each["id"]), str(each["member"]), each, f"a.jsonl, line {line}")
        found.setdefault(record.id, []).append(record)
    return list(found.values())


@pytest.fixture(scope="module")
def truth():
    """Twelve prompts, of two or three members, and answers of different lengths."""
    rng = np.random.default_rng(0)
    return [make_members(rng, 2 + n % 2, int(rng.integers(1, 9))) for n in range(12)]


def make_records(truth, service, top, **more):
    return [
        SHAPES[service](f"q{n}", m, own, tokens, top, **more)
        for n, (logs, tokens) in enumerate(truth)
        for m, own in enumerate(logs)
    ]


@pytest.mark.parametrize("service", SHAPES)
@pytest.mark.parametrize("top", [5, SIZE])
def test_limits_hold_and_are_exact_of_whole_lists(truth, service, top) -> None:
    found = score_answers(
        as_prompts(make_records(truth, service, top)), service, vocabulary=SIZE, per_token=True
    )
    columns, tokens = found.columns, found.token_columns
    assert columns["id"].tolist() == [f"q{n}" for n in range(12)]
    assert columns["text"].tolist() == ["".join(VOCABULARY[t] for t in own) for _, own in truth]
    assert tokens is not None and tokens["token"].tolist() == [VOCABULARY[t] for _, own in truth for t in own]
    for n, (logs, own) in enumerate(truth):
        assert (columns["members"][n], columns["tokens"][n]) == (len(logs), len(own))
        here = tokens["input"] == n
        assert tokens["position"][here].tolist() == list(range(len(own)))
        surprisal = -logs[0][np.arange(len(own)), own]
        np.testing.assert_allclose(tokens["surprisal"][here], surprisal, rtol=1e-12)
        assert columns["perplexity"][n] == pytest.approx(math.exp(surprisal.mean()))
        for measure in MEASURES:
            exact = demur.decompose(log_probs=logs, measure=measure)
            for part in PARTS:
                name, wanted = f"{measure}_{part}", getattr(exact, part)
                limits = [(tokens[name][here], wanted), (columns[name][n], wanted.mean())]
                for low, value in limits:
                    assert (low <= value + 1e-5).all()
                    if top == SIZE:
                        np.testing.assert_allclose(low, value, atol=2e-4)
                if measure == "average":
                    assert (tokens[f"{name}_upper"][here] >= wanted - 1e-5).all()
                    assert columns[f"{name}_upper"][n] >= wanted.mean() - 1e-5


def test_answers_scored_together_are_as_alone(truth, monkeypatch) -> None:
    records = make_records(truth, "openai", 5)
    together = score_answers(as_prompts(records), "openai", vocabulary=SIZE, per_token=True)
    monkeypatch.setattr("demur.sequences.answer_scores._TOKENS_AT_ONCE", 1)
    alone = score_answers(as_prompts(records), "openai", vocabulary=SIZE, per_token=True)
    for one, two in ((together.columns, alone.columns), (together.token_columns, alone.token_columns)):
        assert one is not None and two is not None and list(one) == list(two)
        for name, values in one.items():
            if values.dtype.kind == "f":
                np.testing.assert_allclose(values, two[name], rtol=1e-9, atol=1e-12, err_msg=name)
            else:
                np.testing.assert_array_equal(values, two[name])


def test_answers_are_compared_up_to_where_they_differ() -> None:
    rng = np.random.default_rng(1)
    logs, tokens = make_members(rng, 2, 6)
    other = [*tokens[:3], (tokens[3] + 1) % SIZE, *tokens[4:]]
    records = [
        SHAPES["openai"]("q", 0, logs[0], tokens, 5), SHAPES["openai"]("q", 1, logs[1], other, 5),
    ]  # fmt: skip
    found = score_answers(as_prompts(records), "openai", per_token=True)
    wanted = TopLogProbs.from_openai([[{"choices": [{"logprobs": r["logprobs"]}]}] for r in records])
    bounds = wanted.bounds()
    assert found.columns["tokens"].tolist() == [4]
    assert found.token_columns is not None
    np.testing.assert_allclose(found.token_columns["pairwise_epistemic"], bounds.lower.epistemic[0])
    assert np.isposinf(found.columns["average_total_upper"]).all()  # the vocabulary is not known
    assert found.columns["text"][0] == "".join(VOCABULARY[t] for t in tokens)  # all of it


def test_units_measures_and_fields(truth) -> None:
    more = {"question": "When?", "correct": True, "label": 3, "judge": "half \ud83d of one", "cost": 2}
    records = make_records(truth, "vllm", 5, **more)
    nats = score_answers(as_prompts(records), "vllm", measures=["I"], keep=["cost"], per_token=True)
    bits = score_answers(as_prompts(records), "vllm", measures=["I"], base=2, per_token=True)
    assert nats.token_columns is not None and bits.token_columns is not None
    for name in ("surprisal", "average_epistemic"):
        np.testing.assert_allclose(
            bits.token_columns[name], nats.token_columns[name] / math.log(2), atol=1e-12
        )
    assert not any(name.startswith("pairwise") for name in nats.columns)
    assert nats.columns["cost"].tolist() == [2] * 12 and "cost" not in bits.columns
    assert nats.columns["correct"].tolist() == [1] * 12 and nats.columns["label"].tolist() == [3] * 12
    assert set(nats.columns["judge"]) == {"half � of one"}


def test_answers_without_tokens_stay_in_the_table(truth) -> None:
    records = make_records(truth[:3], "openai", 5)
    records.append({"id": "none", "member": 0, "logprobs": {"content": []}})
    found = score_answers(as_prompts(records), "openai", per_token=True)
    assert found.columns["status"].tolist() == ["ok"] * 3 + ["no tokens with log-probabilities"]
    assert np.isnan(found.columns["pairwise_epistemic"]).tolist() == [False] * 3 + [True]
    assert np.isfinite(found.columns["perplexity"][:3]).all() and found.columns["text"][3] == ""
    with pytest.raises(StoreError, match="none in any answer"):
        score_answers(as_prompts(records[-1:]), "openai")


def test_whole_responses_and_batches(truth) -> None:
    logs, tokens = truth[1]
    plain = [SHAPES["openai"]("q", m, own, tokens, 5) for m, own in enumerate(logs)]
    whole = [
        {"id": "q", "member": r["member"],
         "response": {"choices": [{"message": {"content": r["text"]}, "logprobs": r["logprobs"]}]}}
        for r in plain
    ]  # fmt: skip
    batch = [r | {"response": {"status_code": 200, "body": r["response"]}} for r in whole]
    offline = [SHAPES["vllm"]("q", m, own, tokens, 5) for m, own in enumerate(logs)]
    output = [
        {"id": "q", "member": r["member"],
         "response": {"outputs": [{"text": "x", "token_ids": r["token_ids"], "logprobs": r["logprobs"]}]}}
        for r in offline
    ]  # fmt: skip
    wanted = score_answers(as_prompts(plain), "openai").columns
    for records, service in ((whole, "openai"), (batch, "openai"), (output, "vllm")):
        found = score_answers(as_prompts(records), service).columns
        for name in ("pairwise_epistemic", "average_total", "perplexity"):
            np.testing.assert_allclose(found[name], wanted[name])
        assert found["text"][0] == ("x" if service == "vllm" else plain[0]["text"])


def damage(record, how):
    logprobs = record["logprobs"]
    content = logprobs["content"] if isinstance(logprobs, dict) else logprobs
    how(record, content)
    return record


DAMAGE = {
    "no logprobs": lambda r, c: r.pop("logprobs"),
    "null": lambda r, c: r.update(logprobs=None),
    "text": lambda r, c: r.update(logprobs="many"),
    "number in list": lambda r, c: c.__setitem__(0, 3),
    "above 0": lambda r, c: c[0]["top_logprobs"].append({"token": "z", "bytes": None, "logprob": 0.7}),
    "not a number": lambda r, c: c[0].update(logprob="much"),
    "sum above 1": lambda r, c: c[0].update(
        top_logprobs=[{"token": t, "bytes": None, "logprob": -0.1} for t in "ab"]
    ),
    "text is a number": lambda r, c: r.update(text=5),
    "correct is text": lambda r, c: r.update(correct="yes"),
    "a column of scores": lambda r, c: r.update(pairwise_total="x"),
    "response": lambda r, c: r.update(response={"choices": []}),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_records_are_told_by_line(truth, case) -> None:
    records = make_records(truth, "openai", 5)
    records[2] = damage(records[2], DAMAGE[case])  # the first of the second prompt
    with pytest.raises(StoreError, match=r"a\.jsonl, line 3: ") as found:
        score_answers(as_prompts(records), "openai")
    assert "\n" not in str(found.value)


def test_correct_in_some_records_only(truth) -> None:
    records = make_records(truth, "openai", 5, correct=1)
    for record in records[:2]:
        del record["correct"]
    with pytest.raises(StoreError, match="'q0': expected correct in the records of all prompts, or of none"):
        score_answers(as_prompts(records), "openai")
