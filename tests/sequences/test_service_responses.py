"""Whole responses in the shapes that services document: limits from them hold for the exact distributions."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import demur
from demur.sequences import TopLogProbs

VOCABULARY, TOP, POSITIONS = 60, 5, 12
MEASURES = ("pairwise", "average", "reverse")


@pytest.fixture(scope="module")
def exact() -> tuple[np.ndarray, list[int]]:
    """Log-probabilities of two members, (members, 1, positions, vocabulary), and a text that both read.

    Some of its tokens are far down both lists.
    """
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(1, 1, POSITIONS, VOCABULARY)) + rng.normal(
        size=(2, 1, POSITIONS, VOCABULARY)
    )
    logs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    mean = np.exp(logs[:, 0]).mean(axis=0)
    tokens = [
        int(rng.integers(VOCABULARY)) if k % 3 == 0 else int(mean[k].argmax()) for k in range(POSITIONS)
    ]
    return logs, tokens


def count_violations(lists: TopLogProbs, logs: np.ndarray, slack: float = 1e-6) -> int:
    count = 0
    for measure in MEASURES:
        bounds = lists.bounds(vocabulary=VOCABULARY, measure=measure, rounding=1e-5)
        true = demur.decompose(log_probs=logs, measure=measure)
        for part in ("total", "aleatoric", "epistemic"):
            value = getattr(true, part)
            count += int((getattr(bounds.lower, part) > value + slack).sum())
            count += int((getattr(bounds.upper, part) < value - slack).sum())
    return count


def list_likeliest(row: np.ndarray, count: int = TOP) -> list[int]:
    return [int(token) for token in np.argsort(-row)[:count]]


# --- OpenAI's interface --------------------------------------------------------------------------


def write_token(token: int) -> dict[str, Any]:
    text = f" word{token}"
    return {"token": text, "bytes": list(text.encode())}


def make_chat(rows: np.ndarray, tokens: list[int]) -> dict[str, Any]:
    """A chat completion: of a token that is not among the likeliest, -9999.0 is all that is said."""
    content = []
    for row, token in zip(rows, tokens, strict=True):
        likeliest = list_likeliest(row)
        said = round(float(row[token]), 6) if token in likeliest else -9999.0
        content.append({
            **write_token(token), "logprob": said,
            "top_logprobs": [{**write_token(t), "logprob": round(float(row[t]), 6)} for t in likeliest],
        })  # fmt: skip
    text = "".join(each["token"] for each in content)
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "some-model",
        "choices": [{
            "index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": text, "refusal": None, "annotations": []},
            "logprobs": {"content": content, "refusal": None},
        }],
        "usage": {"prompt_tokens": 9, "completion_tokens": len(tokens), "total_tokens": 9 + len(tokens)},
        "system_fingerprint": None, "service_tier": "default",
    }  # fmt: skip


def make_completion(rows: np.ndarray, tokens: list[int]) -> dict[str, Any]:
    """A completion of the older interface: the token that came is in the list, with its own number."""
    lists = []
    for row, token in zip(rows, tokens, strict=True):
        lists.append({f" word{t}": float(row[t]) for t in [*list_likeliest(row), token]})
    logprobs = {
        "tokens": [f" word{token}" for token in tokens],
        "token_logprobs": [float(row[token]) for row, token in zip(rows, tokens, strict=True)],
        "top_logprobs": lists, "text_offset": list(range(len(tokens))),
    }  # fmt: skip
    return {
        "id": "cmpl-1", "object": "text_completion",
        "choices": [{"index": 0, "text": "", "finish_reason": "length", "logprobs": logprobs}],
    }  # fmt: skip


def as_objects(value: Any) -> Any:
    if isinstance(value, dict) and all(key.isidentifier() for key in value):
        return SimpleNamespace(**{name: as_objects(each) for name, each in value.items()})
    return [as_objects(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("convert", [lambda each: each, as_objects], ids=["json", "objects"])
@pytest.mark.parametrize("make", [make_chat, make_completion])
def test_responses_of_openai_s_interface(exact, make, convert) -> None:
    logs, tokens = exact
    lists = TopLogProbs.from_openai([[convert(make(member[0], tokens))] for member in logs])
    assert repr(lists) == f"TopLogProbs(2 members, 1 inputs, {POSITIONS} positions)"
    assert count_violations(lists, logs) == 0


def test_minus_9999_is_no_probability(exact) -> None:
    """Control: read as a number, it excludes a token that the other member may list."""
    logs, tokens = exact
    lists = TopLogProbs.from_openai([[make_chat(member[0], tokens)] for member in logs])
    values = [log for member in lists.lists for log in member[0] for log in log.values()]
    assert min(values) > -30
    raw = [
        [
            {t["token"]: t["logprob"] for t in [*each["top_logprobs"], each]}
            for each in make_chat(member[0], tokens)["choices"][0]["logprobs"]["content"]
        ]
        for member in logs
    ]
    assert count_violations(TopLogProbs([[own] for own in raw]), logs) > 0


# --- vLLM ----------------------------------------------------------------------------------------


@dataclass
class Logprob:
    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass
class CompletionOutput:
    index: int
    text: str
    token_ids: Sequence[int]
    cumulative_logprob: float | None
    logprobs: Any
    finish_reason: str | None = "stop"
    stop_reason: int | str | None = None
    lora_request: Any = None


@dataclass
class RequestOutput:
    request_id: str
    prompt: str | None
    prompt_token_ids: list[int] | None
    prompt_logprobs: Any
    outputs: list[CompletionOutput]
    finished: bool = True
    metrics: Any = None
    num_cached_tokens: int | None = field(default=None)


class FlatLogprobs(Sequence):
    """Lists in one piece (``flat_logprobs=True``), which give dictionaries one by one."""

    def __init__(self, lists):
        self.lists = lists

    def __len__(self):
        return len(self.lists)

    def __getitem__(self, place):
        return FlatLogprobs(self.lists[place]) if isinstance(place, slice) else self.lists[place]


def make_request_output(rows: np.ndarray, tokens: list[int], wrap: Any = list) -> RequestOutput:
    lists = []
    for row, token in zip(rows, tokens, strict=True):
        order = np.argsort(-row).tolist()
        chosen = dict.fromkeys([token, *order[:TOP]])  # the token that came is first
        lists.append({t: Logprob(float(row[t]), order.index(t) + 1, f" word{t}") for t in chosen})
    output = CompletionOutput(0, "", tuple(tokens), -1.0, wrap(lists))
    return RequestOutput("0", "why", [1, *tokens], wrap([None, *lists]), [output])


@pytest.mark.parametrize("wrap", [list, FlatLogprobs])
@pytest.mark.parametrize("prompt", [False, True])
def test_outputs_of_vllm(exact, prompt, wrap) -> None:
    logs, tokens = exact
    outputs = [[make_request_output(member[0], tokens, wrap)] for member in logs]
    lists = TopLogProbs.from_vllm(outputs, prompt=prompt)
    assert set(lists.lists[0][0][0]) == {tokens[0], *list_likeliest(logs[0, 0, 0])}
    assert count_violations(lists, logs) == 0


def test_only_the_token_that_came(exact) -> None:
    """Logprobs=0: a token that may be unlikely says nothing of the others' largest probability."""
    logs, tokens = exact
    outputs = []
    for member in logs:
        output = make_request_output(member[0], tokens)
        for k, token in enumerate(tokens):
            own = output.outputs[0].logprobs[k]
            output.outputs[0].logprobs[k] = {token: own[token]}
        outputs.append([output])
    lists = TopLogProbs.from_vllm(outputs)
    assert all(each.beyond == 0 for member in lists.lists for each in member[0])
    assert count_violations(lists, logs) == 0


def rename(value: Any, names: dict[str, str]) -> Any:
    """Return a response in which tokens have other names."""
    if isinstance(value, dict):
        found = {names.get(key, key): rename(each, names) for key, each in value.items()}
        return found | ({"bytes": list(found["token"].encode())} if "token" in found else {})
    if isinstance(value, list):
        return [rename(each, names) for each in value]
    return names.get(value, value) if isinstance(value, str) else value


@pytest.mark.parametrize(
    ("make", "name"), [(make_chat, "\ufffd"), (make_completion, "\ufffd"), (make_chat, "same")]
)
def test_tokens_of_one_name_say_nothing_for_certain(exact, make, name) -> None:
    """Servers write parts of characters as one and the same character."""
    logs, _ = exact
    best = logs[0, 0].argmax(axis=-1).tolist()  # by one member, so that other text is not compared
    second = {f" word{int(np.argsort(-row)[1])}": name for row in logs[0, 0]}
    names = second | {f" word{token}": name for token in best[1::2]}
    lists = TopLogProbs.from_openai([[rename(make(logs[0, 0], best), names)]])
    assert count_violations(lists, logs[:1]) == 0


def test_members_are_not_compared_after_a_token_of_unclear_name(exact) -> None:
    logs, tokens = exact
    names = {f" word{tokens[2]}": "\ufffd"}
    outputs = [[rename(make_chat(member[0], tokens), names)] for member in logs]
    lists = TopLogProbs.from_openai(outputs)
    assert len(lists.lists[0][0]) == 1 + next(i for i, t in enumerate(tokens) if t == tokens[2])
    assert len(TopLogProbs.from_openai(outputs[:1]).lists[0][0]) == POSITIONS
    bounds = lists.bounds(vocabulary=VOCABULARY)
    assert bounds.lower.epistemic.shape == (1, len(lists.lists[0][0]))


def test_a_token_is_the_same_with_bytes_and_without(exact) -> None:
    logs, tokens = exact
    chats = [make_chat(logs[0, 0], tokens) for _ in range(2)]
    for entry in chats[1]["choices"][0]["logprobs"]["content"]:
        entry["bytes"] = None
        for each in entry["top_logprobs"]:
            del each["bytes"]
    lists = TopLogProbs.from_openai([[each] for each in chats])
    assert lists.lists[0] == lists.lists[1]


def test_refusals_answers_without_tokens_and_damage(exact) -> None:
    logs, tokens = exact
    chat = make_chat(logs[0, 0], tokens)
    refused = make_chat(logs[0, 0], tokens)
    logprobs = refused["choices"][0]["logprobs"]
    logprobs |= {"content": None, "refusal": logprobs["content"]}
    assert TopLogProbs.from_openai([[refused]]).lists == TopLogProbs.from_openai([[chat]]).lists
    with pytest.raises(ValueError, match="Ask for them: logprobs=True"):
        TopLogProbs.from_openai([[{"choices": [{"logprobs": {"content": None, "refusal": None}}]}]])
    empty = {"choices": [{"logprobs": {"content": []}}]}
    found = TopLogProbs.from_openai([[chat, empty]]).bounds(vocabulary=VOCABULARY, measure="average")
    assert np.isnan(found.per_token.lower.total).tolist() == [False, True]
    assert found.per_token.decide(100.0).tolist() == ["keep", "ask for more"]
    output = make_request_output(logs[0, 0], tokens)
    output.outputs[0].logprobs.pop()
    with pytest.raises(ValueError, match="Got 11 for 12 tokens"):
        TopLogProbs.from_vllm([[output]])
    damaged = {"choices": [{"logprobs": {"content": [{"token": "a", "logprob": None}]}}]}
    with pytest.raises(ValueError, match=r"numbers as log-probabilities\. Got None"):
        TopLogProbs.from_openai([[damaged]])
