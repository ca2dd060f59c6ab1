"""What services and libraries return beside generated text: tokens, and lists of log-probabilities.

Every reader returns the tokens of an answer and, for each of them, a list of log-probabilities by token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_UNLIKELY = -9999.0
"""What OpenAI's interface and servers like it say of a token that is not among the likeliest: no number."""


class TokenList(dict[Any, float]):
    """Log-probabilities by token: the likeliest ones, and perhaps the one that came.

    ``beyond`` is a log-probability that no token exceeds that is not in the list. Numbers that stand for
    "very unlikely" are left out; minus infinity excludes a token.
    """

    def __init__(self, likeliest: Mapping[Any, float], came: tuple[Any, float] | None = None) -> None:
        super().__init__({token: log for token, log in likeliest.items() if _is_number(log)})
        self.beyond = min(self.values(), default=0.0)
        if came is not None and _is_number(came[1]):
            # A token that came may be far less likely than many that are not listed.
            self.setdefault(*came)


def _is_number(log: float) -> bool:
    return log > _UNLIKELY or log == float("-inf")


Answer = tuple[list[Any], list[TokenList]]


def read_openai(response: Any) -> Answer:
    """Read a chat completion or a completion of OpenAI's interface, as an object or as its dictionary."""
    choices = _get(response, "choices")
    logprobs = _get(choices[0], "logprobs") if choices else None
    if logprobs is None:
        raise ValueError(
            "Expected a response with log-probabilities. Got one without. Ask for them: "
            "logprobs=True, top_logprobs=20 (chat), or logprobs=5 (completions)."
        )
    content = _get(logprobs, "content", None)
    if content is not None:
        return [_key(each) for each in content], [_read_entry(each) for each in content]
    tokens, lists = _get(logprobs, "tokens"), _get(logprobs, "top_logprobs")
    chosen = _get(logprobs, "token_logprobs")
    found = []
    for token, own, log in zip(tokens, lists or [None] * len(tokens), chosen, strict=True):
        # The first token of an echoed prompt has no log-probabilities.
        given = {} if log is None else {token: float(log)}
        found.append(_set_apart(dict(own or {}) | given, token))
    first = next((i for i, each in enumerate(found) if each), len(found))
    return list(tokens)[first:], found[first:]


def _key(entry: Any) -> Any:
    """Return what tells a token of OpenAI's interface from others: its bytes, where the text is not whole."""
    data = _get(entry, "bytes", None)
    return bytes(data) if data is not None else _get(entry, "token")


def _read_entry(entry: Any) -> TokenList:
    """Return the list of one position."""
    found = {_key(each): float(_get(each, "logprob")) for each in _get(entry, "top_logprobs", None) or []}
    return TokenList(found, (_key(entry), float(_get(entry, "logprob"))))


def read_vllm(output: Any) -> Answer:
    """Read the first completion of a ``RequestOutput`` of vLLM."""
    completion = _get(output, "outputs")[0]
    lists = _get(completion, "logprobs")
    if lists is None:
        raise ValueError(
            "Expected an output with log-probabilities. Got one without. "
            "Ask for them: SamplingParams(logprobs=20)."
        )
    tokens = [int(token) for token in _get(completion, "token_ids")]
    return tokens, [_read_vllm_list(own, token) for own, token in zip(lists, tokens, strict=True)]


def read_vllm_prompt(output: Any) -> Answer:
    """Read the log-probabilities of a prompt of vLLM; its first token has none."""
    lists = _get(output, "prompt_logprobs")
    if lists is None:
        raise ValueError(
            "Expected an output with log-probabilities of the prompt. Got one without. Ask for them: "
            "SamplingParams(prompt_logprobs=20)."
        )
    tokens = [int(token) for token in _get(output, "prompt_token_ids")][1:]
    return tokens, [_read_vllm_list(own, token) for own, token in zip(lists[1:], tokens, strict=True)]


def _read_vllm_list(entry: Any, came: int) -> TokenList:
    """Return a list by token ids; values are ``Logprob`` objects, their dictionaries, or numbers."""
    found = {
        int(token): float(each if isinstance(each, int | float) else _get(each, "logprob"))
        for token, each in entry.items()
    }
    return _set_apart(found, came)


def _set_apart(found: Mapping[Any, float], came: Any) -> TokenList:
    """Return a list to which a service added the token that came, however unlikely that is.

    Without it, the others are the likeliest for certain.
    """
    others = {token: log for token, log in found.items() if token != came}
    likelier = came in found and bool(others) and found[came] >= min(others.values())
    if came not in found or likelier:
        return TokenList(found)
    return TokenList(others, (came, found[came]))


def read_generate_output(output: Any, top: int) -> list[Answer]:
    """Read a batch of answers from ``generate(output_logits=True, return_dict_in_generate=True)``."""
    import torch

    logits = _get(output, "logits", None)
    if logits is None:
        raise ValueError(
            "Expected an output with logits. Got one without. Ask for them: "
            "generate(..., output_logits=True, return_dict_in_generate=True)."
        )
    sequences = _get(output, "sequences")
    answers: list[Answer] = [([], []) for _ in range(len(sequences))]
    for position, each in enumerate(logits):
        logs = torch.log_softmax(each.detach().float(), dim=-1)
        best = logs.topk(min(top, logs.shape[-1]), dim=-1)
        came = sequences[:, sequences.shape[1] - len(logits) + position]
        for row, (tokens, lists) in enumerate(answers):
            token = int(came[row])
            own = dict(zip(best.indices[row].tolist(), best.values[row].tolist(), strict=True))
            tokens.append(token)
            lists.append(TokenList(own, (token, float(logs[row, token]))))
    return answers


_MISSING = object()


def _get(source: Any, name: str, default: Any = _MISSING) -> Any:
    """Return a field of an object or of its dictionary."""
    found = source.get(name, default) if isinstance(source, Mapping) else getattr(source, name, default)
    if found is _MISSING:
        raise ValueError(
            f"Expected a response with {name!r}. Got {type(source).__name__} without. "
            "Give response objects of the client, or the dictionaries of their JSON."
        )
    return found
