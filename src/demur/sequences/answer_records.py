"""What a record of an answer holds: its text, its tokens as text, and the lists of a service.

A record is an object with ``id``, ``member`` and either ``response``, all that a service returned, or
``logprobs``, the part of it with log-probabilities (beside ``token_ids`` for vLLM).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from demur.sequences import service_responses
from demur.sequences.service_responses import TokenList
from demur.stores import AnswerRecord, StoreError

Service = Literal["openai", "vllm"]
SERVICES: tuple[str, ...] = get_args(Service)

_READERS = {"openai": service_responses.read_openai, "vllm": service_responses.read_vllm}
_WRONG = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError)
"""What reading a damaged response may raise."""


@dataclass(frozen=True)
class ReadAnswer:
    """The answer of one member.

    Attributes
    ----------
    text
        All of it.
    keys, lists
        Tokens as the service tells them apart, and their lists of log-probabilities.
    tokens
        The same tokens as text.
    """

    text: str
    keys: list[Any]
    lists: list[TokenList]
    tokens: list[str]

    @property
    def surprisals(self) -> list[float]:
        """Minus the log-probability of each token that came, in nats; NaN where the service does not say."""
        return [-own.came for own in self.lists]


def read_answer(record: AnswerRecord, service: Service, rounding: float) -> ReadAnswer:
    """Return the answer of a record; a `StoreError` says in which line what is wrong.

    Probabilities of a list may sum to 1 and `rounding`.
    """
    content = record.content
    try:
        response = _find_response(content, service)
        keys, lists = _READERS[service](response)
        tokens = _TOKEN_READERS[service](response, keys)
        for at, own in enumerate(lists):
            _check_list(at, own, rounding)
        text = content.get("text")
        if text is None:
            text = _find_text(response)
        text = "".join(tokens) if text is None else text
        if not isinstance(text, str):
            raise ValueError(f"text that is {type(text).__name__}")
    except _WRONG as error:
        why = str(error)
        if not isinstance(error, ValueError):
            why = f"another shape ({type(error).__name__}: {why})"
        raise StoreError(
            f"{record.place}: expected log-probabilities as {service} returns them, in response or logprobs, "
            f"got: {why}"
        ) from error
    return ReadAnswer(mend_text(text), keys, lists, [mend_text(token) for token in tokens])


def mend_text(text: str) -> str:
    """Return text without halves of characters, which JSON may hold and files may not."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _find_response(content: Mapping[str, Any], service: Service) -> Any:
    if "response" in content:
        response = content["response"]
        # OpenAI's batches wrap what they return.
        return response["body"] if isinstance(response, Mapping) and "body" in response else response
    if "logprobs" not in content:
        raise ValueError("neither response nor logprobs")
    if service == "openai":
        return {"choices": [{"logprobs": content["logprobs"]}]}
    if "token_ids" not in content:
        raise ValueError("logprobs without token_ids")
    return {"outputs": [{"token_ids": content["token_ids"], "logprobs": content["logprobs"]}]}


def _find_text(response: Mapping[str, Any]) -> Any:
    (first, *_) = response.get("choices") or response.get("outputs") or [{}]
    message = first.get("message")
    return first.get("text") if message is None else message.get("content") or message.get("refusal")


def _read_openai_tokens(response: Mapping[str, Any], keys: list[Any]) -> list[str]:
    content = service_responses.find_content(response["choices"][0]["logprobs"])
    # A completion names its tokens by their text; a chat by their bytes, which may be part of a character.
    return [str(each) for each in keys] if content is None else [str(each["token"]) for each in content]


def _read_vllm_tokens(response: Mapping[str, Any], keys: list[Any]) -> list[str]:
    lists = response["outputs"][0]["logprobs"]
    found = []
    for key, own in zip(keys, lists, strict=True):
        entry = own.get(str(key), own.get(key))
        text = entry.get("decoded_token") if isinstance(entry, Mapping) else None
        found.append(f"⟨{key}⟩" if text is None else str(text))
    return found


_TOKEN_READERS = {"openai": _read_openai_tokens, "vllm": _read_vllm_tokens}


def _check_list(at: int, own: TokenList, rounding: float) -> None:
    """Raise unless a list holds log-probabilities of different tokens."""
    for token, log in own.items():
        if not log <= 1e-6:
            raise ValueError(f"{log} as the log-probability of {token!r}, token {at}: none is above 0")
    total = math.fsum(map(math.exp, own.values()))
    if total > 1 + max(rounding, 1e-9):
        raise ValueError(
            f"probabilities that sum to {total:.9g}, more than 1, token {at}; if they were rounded, pass "
            "rounding="
        )
