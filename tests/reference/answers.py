"""Records of answers in the shapes of services, made from logits that are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

WORDS = [" the", " ship", " sank", " in", " 1912", "1", "nan", " <b>no</b>", "\n", ' "', ",", " é", "\r", ""]
SIZE = 24
VOCABULARY = [*WORDS, *(f" w{k}" for k in range(SIZE - len(WORDS)))]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)


def openai_record(
    name: Any, member: Any, logs: np.ndarray, tokens: Sequence[int], top: int, **more: Any
) -> dict[str, Any]:
    """A record with the log-probabilities of a chat completion."""

    def write(row: np.ndarray, token: int) -> dict[str, Any]:
        text = VOCABULARY[token]
        return {"token": text, "bytes": list(f"{token}:{text}".encode()), "logprob": float(row[token])}

    content = [
        {**write(row, token), "top_logprobs": [write(row, int(k)) for k in np.argsort(-row)[:top]]}
        for row, token in zip(logs, tokens, strict=True)
    ]
    text = "".join(VOCABULARY[token] for token in tokens)
    return {"id": name, "member": member, "text": text, "logprobs": {"content": content}, **more}


def vllm_record(
    name: Any, member: Any, logs: np.ndarray, tokens: Sequence[int], top: int, **more: Any
) -> dict[str, Any]:
    """A record with the log-probabilities of vLLM, which adds the token that came to the likeliest."""
    lists = [
        {
            str(k): {"logprob": float(row[k]), "rank": 1, "decoded_token": VOCABULARY[k]}
            for k in dict.fromkeys([token, *np.argsort(-row)[:top].tolist()])
        }
        for row, token in zip(logs, tokens, strict=True)
    ]
    return {"id": name, "member": member, "token_ids": list(tokens), "logprobs": lists, **more}


SHAPES = {"openai": openai_record, "vllm": vllm_record}


def make_members(
    rng: np.random.Generator, members: int, length: int, noise: float = 0.5
) -> tuple[np.ndarray, list[int]]:
    """Log-probabilities (members, positions, vocabulary), and the tokens that are likeliest on average."""
    shared = 2 * rng.normal(size=(length, SIZE))
    logs = log_softmax(shared + noise * rng.normal(size=(members, length, SIZE)))
    return logs, [int(k) for k in np.exp(logs).mean(axis=0).argmax(axis=-1)]
