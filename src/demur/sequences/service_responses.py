"""What services and libraries return beside generated text: tokens, and lists of log-probabilities.

Every reader returns the tokens of an answer and, for each of them, a list of log-probabilities by token.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

_REPLACED = "\N{REPLACEMENT CHARACTER}"
_PARTS = _REPLACED.encode()
_UNLIKELY = -9999.0
"""What OpenAI's interface and servers like it say of a token that is not among the likeliest: no number."""


class TokenList(dict[Any, float]):
    """Log-probabilities by token: the likeliest ones, and perhaps the one that came.

    Numbers that stand for "very unlikely" are left out; minus infinity excludes a token. Tokens that a
    service does not tell apart are left out, too, as if it had not listed them.

    Attributes
    ----------
    beyond
        A log-probability that no token exceeds that is not in the list.
    came
        Log-probability of the token that came; NaN where it is not known.
    is_clear
        Whether it is known which token came.
    """

    def __init__(
        self,
        likeliest: Mapping[Any, float] | Sequence[tuple[Any, float]],
        came: tuple[Any, float] | None = None,
    ) -> None:
        pairs = likeliest.items() if isinstance(likeliest, Mapping) else likeliest
        listed = [(token, log) for token, log in pairs if _is_number(log)]
        known = dict(listed)
        self.beyond, self.came, self.is_clear = min(known.values(), default=0.0), math.nan, True
        unclear = {token for token in known if _is_unclear(token)}
        if len(known) < len(listed):
            counts = Counter(token for token, _ in listed)
            unclear |= {token for token, count in counts.items() if count > 1}
        if came is not None:
            self.came = came[1] if _is_number(came[1]) else math.nan
            self.is_clear = came[0] not in unclear and not _is_unclear(came[0])
            if self.is_clear and not math.isnan(self.came):
                # A token that came may be far less likely than many that are not listed.
                known.setdefault(came[0], self.came)
        if unclear:
            # A mapping by text has kept one of several such tokens, not always the likeliest.
            logs = [log for token, log in listed if token in unclear]
            self.beyond = 0.0 if isinstance(likeliest, Mapping) else max(logs)
        super().__init__({token: log for token, log in known.items() if token not in unclear})


def count_compared(answers: Sequence[tuple[Sequence[Any], Sequence[TokenList]]]) -> int:
    """Return how many tokens of members' answers can be compared: all have read the same ones before."""
    length = min(len(tokens) for tokens, _ in answers)
    for position in range(length if len(answers) > 1 else 0):
        alike = len({tokens[position] for tokens, _ in answers}) == 1
        if not alike or not all(lists[position].is_clear for _, lists in answers):
            return position + 1
    return length


def _is_unclear(token: Any) -> bool:
    """Say whether a token is text in which parts of characters were replaced, as many tokens' are."""
    return _REPLACED in token if isinstance(token, str) else isinstance(token, bytes) and _PARTS in token


def _is_number(log: float) -> bool:
    return not log <= _UNLIKELY or log == float("-inf")


Answer = tuple[list[Any], list[TokenList]]


def read_openai(response: Any) -> Answer:
    """Read a chat completion or a completion of OpenAI's interface, as an object or as its dictionary."""
    choices = _get(response, "choices")
    logprobs = _get(choices[0], "logprobs") if choices else None
    content = None if logprobs is None else find_content(logprobs)
    if logprobs is None or (content is None and _get(logprobs, "tokens", None) is None):
        raise ValueError(
            "Expected a response with log-probabilities. Got one without. Ask for them: "
            "logprobs=True, top_logprobs=20 (chat), or logprobs=5 (completions)."
        )
    if content is not None:
        return [_key(each) for each in content], [_read_entry(each) for each in content]
    tokens = list(_get(logprobs, "tokens"))
    logs = list(_get(logprobs, "token_logprobs"))
    lists = list(_get(logprobs, "top_logprobs", None) or [None] * len(tokens))
    _check_lengths(tokens, logs, lists)
    # The first token of an echoed prompt has no log-probabilities.
    first = next((i for i, log in enumerate(logs) if log is not None or lists[i]), len(tokens))
    found = []
    for token, own, log in list(zip(tokens, lists, logs, strict=True))[first:]:
        read = {each: _read_log(value) for each, value in (own or {}).items()}
        found.append(_set_apart(read | ({} if log is None else {token: _read_log(log)}), token))
    return tokens[first:], found


def find_content(logprobs: Any) -> Any:
    """Return the tokens of a chat completion, an answer or a refusal; None: it is a completion."""
    content = _get(logprobs, "content", None)
    return _get(logprobs, "refusal", None) if content is None else content


def _key(entry: Any) -> bytes:
    """Return what tells a token of OpenAI's chats from others: its bytes, since its text may not be whole."""
    data = _get(entry, "bytes", None)
    return _get(entry, "token").encode(errors="surrogatepass") if data is None else bytes(data)


def _read_entry(entry: Any) -> TokenList:
    """Return the list of one position."""
    likeliest = _get(entry, "top_logprobs", None) or []
    found = [(_key(each), _read_log(_get(each, "logprob"))) for each in likeliest]
    return TokenList(found, (_key(entry), _read_log(_get(entry, "logprob"))))


def _read_log(value: Any) -> float:
    """Return a log-probability; raise unless it is a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"Expected numbers as log-probabilities. Got {value!r}.") from None


def _check_lengths(tokens: Sequence[Any], *others: Any) -> None:
    """Raise unless there is something for each token."""
    for each in others:
        if len(each) != len(tokens):
            raise ValueError(
                f"Expected log-probabilities for each token. Got {len(each)} for {len(tokens)} tokens."
            )


def read_vllm(output: Any) -> Answer:
    """Read the first completion of a ``RequestOutput`` of vLLM."""
    completions = _get(output, "outputs")
    if not completions:
        raise ValueError("Expected an output with an answer. Got one without. Leave it out for all members.")
    completion = completions[0]
    lists = _get(completion, "logprobs")
    if lists is None:
        raise ValueError(
            "Expected an output with log-probabilities. Got one without. "
            "Ask for them: SamplingParams(logprobs=20)."
        )
    tokens = [int(token) for token in _get(completion, "token_ids")]
    _check_lengths(tokens, lists)
    return tokens, [_read_vllm_list(own, token) for own, token in zip(lists, tokens, strict=True)]


def read_vllm_prompt(output: Any) -> Answer:
    """Read the log-probabilities of a prompt of vLLM; its first token has none."""
    lists = _get(output, "prompt_logprobs")
    if lists is None:
        raise ValueError(
            "Expected an output with log-probabilities of the prompt. Got one without. Ask for them: "
            "SamplingParams(prompt_logprobs=20)."
        )
    tokens = [int(token) for token in _get(output, "prompt_token_ids")]
    _check_lengths(tokens, lists)
    pairs = list(zip(lists, tokens, strict=True))[1:]
    return tokens[1:], [_read_vllm_list(own, token) for own, token in pairs]


def _read_vllm_list(entry: Any, came: int) -> TokenList:
    """Return a list by token ids; values are ``Logprob`` objects, their dictionaries, or numbers."""
    found = {
        int(token): _read_log(each if isinstance(each, int | float) else _get(each, "logprob"))
        for token, each in entry.items()
    }
    return _set_apart(found, came)


def _set_apart(found: Mapping[Any, float], came: Any) -> TokenList:
    """Return a list to which a service added the token that came, however unlikely that is.

    Without it, the others are the likeliest for certain.
    """
    others = {token: log for token, log in found.items() if token != came}
    if came not in found:
        return TokenList(found)
    likelier = bool(others) and found[came] >= min(others.values())
    return TokenList(found if likelier or _is_unclear(came) else others, (came, found[came]))


def read_generate_output(output: Any, top: int, ends: Collection[int] = ()) -> list[Answer]:
    """Read a batch of answers from ``generate(output_logits=True, return_dict_in_generate=True)``.

    What comes after one of the tokens that end an answer is padding.
    """
    import torch

    logits = _get(output, "logits", None)
    if logits is None:
        raise ValueError(
            "Expected an output with logits. Got one without. Ask for them: "
            "generate(..., output_logits=True, return_dict_in_generate=True)."
        )
    sequences = _get(output, "sequences")
    if _get(output, "beam_indices", None) is not None or any(len(each) != len(sequences) for each in logits):
        raise ValueError(
            "Expected an output whose logits are those of its answers. Got one of beams, which change places "
            "on the way. Generate with num_beams=1, or score the answers: LanguageModels(...).score."
        )
    answers: list[Answer] = [([], []) for _ in range(len(sequences))]
    for position, each in enumerate(logits):
        logs = torch.log_softmax(each.detach().float(), dim=-1)
        best = logs.topk(min(top, logs.shape[-1]), dim=-1)
        came = sequences[:, sequences.shape[1] - len(logits) + position]
        for row, (tokens, lists) in enumerate(answers):
            token = int(came[row])
            if tokens and tokens[-1] in ends:
                continue
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
