"""Members that are language models: whole models, adapters, dropout, templates; and how one reads tokens."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_LOGITS_TOGETHER = 1 << 22
"""Logits of all members that are looked at together: 16 MB, which a processor's cache may hold."""


@dataclass(frozen=True)
class LanguageMember:
    """One member: a model, or one way to use it.

    Attributes
    ----------
    model
        A causal or encoder-decoder model of transformers, or a function that returns one.
    adapter
        The name of the adapter to switch on; None: leave adapters as they are.
    template
        What to make of a prompt, with ``{}`` in its place.
    dropout
        A seed for dropout, which then stays on; None: off.
    """

    model: Any
    adapter: str | None = None
    template: str = "{}"
    dropout: int | None = None

    @contextlib.contextmanager
    def enter(self, moment: Sequence[int], modules: Sequence[Any] | None = None) -> Iterator[Any]:
        """Give the model as this member uses it, without gradients.

        ``moment`` fixes what dropout draws; ``modules`` are those of the model, for callers that come often.
        """
        import torch

        modules = list(self.model.modules()) if modules is None else modules
        # Setting the modes of all modules for every token takes as long as a small model's arithmetic.
        training = [module for module in modules if module.training]
        layers = [] if self.dropout is None else [each for each in modules if _is_dropout(each)]
        try:
            for module in training:
                module.training = False
            with torch.no_grad(), contextlib.ExitStack() as stack:
                if self.adapter is not None:
                    stack.enter_context(_switch_adapter(self.model, self.adapter))
                if self.dropout is not None:
                    for layer in layers:
                        layer.training = True
                    stack.enter_context(torch.random.fork_rng(devices=[]))
                    torch.manual_seed(_make_seed(self.dropout, *moment))
                yield self.model
        finally:
            for layer in layers:
                layer.training = False
            for module in training:
                module.training = True


@contextlib.contextmanager
def _switch_adapter(model: Any, name: str) -> Iterator[None]:
    """Switch an adapter on; afterwards, what was on before is on, and as trainable as it was."""
    given: Any = getattr(model, "active_adapters", None)  # a list, in PEFT; a function, in transformers
    before: Any = given() if callable(given) else given
    trainable = [(each, each.requires_grad) for each in model.parameters()]
    model.set_adapter(name)
    try:
        yield
    finally:
        if before:
            model.set_adapter(before if len(before) > 1 else before[0])
        for parameter, flag in trainable:
            parameter.requires_grad_(flag)


def list_members(
    models: Any,
    adapters: Sequence[str] | None,
    templates: Sequence[str] | None,
    dropout: int | None,
    seed: int,
) -> list[LanguageMember]:
    """Return members from what `LanguageModels` is given."""
    given = list(models) if isinstance(models, list | tuple) else [models]
    if not given:
        raise ValueError("models must be a model of transformers or a list of them. Got an empty list.")
    for model in given:
        if not callable(getattr(model, "forward", None)):
            raise TypeError(
                f"models must be models of transformers. Got {type(model).__name__}. "
                "Load it first: AutoModelForCausalLM.from_pretrained(...)."
            )
    members = [LanguageMember(model) for model in given]
    if dropout is not None and (not isinstance(dropout, int) or dropout < 1):
        raise ValueError(f"dropout must be a positive integer, members per model. Got {dropout!r}.")
    for name, values in (("adapters", adapters), ("templates", templates)):
        if values is None:
            continue
        if isinstance(values, str) or not len(values):
            raise ValueError(f"{name} must be a list of {name}, a member each. Got {values!r}.")
        if len(members) not in (1, len(values)):
            raise ValueError(
                f"{name} must be as many as there are members, {len(members)}, or go with one model. "
                f"Got {len(values)}."
            )
        members = members * len(values) if len(members) == 1 else members
        kept = [{"adapter": m.adapter, "template": m.template} for m in members]
        field = name.removesuffix("s")
        members = [
            LanguageMember(m.model, **{**k, field: value})
            for m, k, value in zip(members, kept, values, strict=True)
        ]
    for template in templates or ():
        if template.count("{}") != 1:
            raise ValueError(f"templates must have {{}} where the prompt goes, once. Got {template!r}.")
    for adapter in adapters or ():
        if not hasattr(given[0], "set_adapter"):
            raise TypeError(
                f"adapters needs a model with set_adapter, as PEFT's. Got {type(given[0]).__name__}."
            )
        known = getattr(given[0], "peft_config", None)
        if known is not None and adapter not in known:
            raise ValueError(f"adapters must be among {sorted(known)}. Got {adapter!r}.")
    if dropout is not None:
        if not any(_is_dropout(each) for m in members for each in m.model.modules()):
            raise ValueError(
                "Expected a model with dropout layers. Got none, so that all members would be identical. "
                "Give several models, adapters or templates."
            )
        members = [
            LanguageMember(m.model, m.adapter, m.template, _make_seed(seed, k, number))
            for number, m in enumerate(members) for k in range(dropout)
        ]  # fmt: skip
    return members


def _is_dropout(module: Any) -> bool:
    import torch

    return isinstance(module, torch.nn.modules.dropout._DropoutNd) and module.p > 0


def _make_seed(*numbers: int) -> int:
    """Return a seed that any of the numbers changes."""
    text = ",".join(str(int(each)) for each in numbers).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:7], "little")


class TokenReader:
    """One member that reads a batch of texts from left to right and says what comes next.

    The last token of every text waits until somebody asks what follows it, so that nothing is read in vain.

    Parameters
    ----------
    member
        The member.
    context, mask
        Tokens that come first, (inputs, positions), padded on the left, and where they are tokens. At least
        one for each input.
    source, source_mask
        What an encoder reads; None for models without one.
    first
        The number of the batch's first input, for dropout.
    """

    def __init__(
        self, member: LanguageMember, context: Any, mask: Any, source: Any = None, source_mask: Any = None,
        first: int = 0,
    ) -> None:  # fmt: skip
        self.member, self.first = member, first
        self._modules = list(member.model.modules())
        self._waiting, self._waiting_mask = context, mask
        self._mask = mask[:, :0]
        self._cache: Any = None
        self._source_mask = source_mask
        self._encoded: Any = None
        # A wrapper, as PEFT's, passes on what the model in it takes.
        inner = member.model.get_base_model() if hasattr(member.model, "get_base_model") else member.model
        self._accepts = set(inspect.signature(inner.forward).parameters)
        # Recurrent models, as Mamba, keep states of other kinds: they read all from the start each time.
        self._rereads = source is None and "past_key_values" not in self._accepts
        self._tokens = context[:, :0]
        if source is not None:
            with member.enter((first, -1), self._modules) as model:
                self._encoded = model.get_encoder()(input_ids=source, attention_mask=source_mask)

    def read(self, tokens: Any, mask: Any) -> Any:
        """Read tokens (inputs, positions); return the logits that the member had for each of them.

        The first of them comes from what was read before.
        """
        import torch

        own = torch.cat([self._waiting, tokens[:, :-1]], dim=1)
        own_mask = torch.cat([self._waiting_mask, mask[:, :-1]], dim=1)
        self._waiting, self._waiting_mask = tokens[:, -1:], mask[:, -1:]
        return self._read(own, own_mask, tokens.shape[1])

    def look_ahead(self) -> Any:
        """Return the logits of the next token, (inputs, vocabulary); `append` then says which one came."""
        logits = self._read(self._waiting, self._waiting_mask, 1)
        self._waiting, self._waiting_mask = self._waiting[:, :0], self._waiting_mask[:, :0]
        return logits[:, -1]

    def append(self, tokens: Any) -> None:
        """Take the token that came for each input, (inputs,)."""
        import torch

        self._waiting = torch.cat([self._waiting, tokens[:, None]], dim=1)
        self._waiting_mask = torch.ones_like(self._waiting)

    def keep(self, rows: Any) -> None:
        """Go on with some of the rows, in a new order; rows may repeat."""
        if self._cache is not None:
            self._cache.reorder_cache(rows)
        self._tokens = self._tokens[rows]
        self._mask, self._waiting = self._mask[rows], self._waiting[rows]
        self._waiting_mask = self._waiting_mask[rows]
        if self._encoded is not None:
            self._encoded.last_hidden_state = self._encoded.last_hidden_state[rows]
            self._source_mask = self._source_mask[rows]

    def _read(self, tokens: Any, mask: Any, last: int) -> Any:
        """Return the logits after the last tokens, so many of them."""
        import torch

        begin = self._mask.shape[1]
        self._mask = torch.cat([self._mask, mask], dim=1)
        self._tokens = torch.cat([self._tokens, tokens], dim=1)
        if self._rereads:
            return self._read_all(last)
        options: dict[str, Any] = {"past_key_values": self._cache, "use_cache": True}
        if self._encoded is None:
            options |= {"input_ids": tokens, "attention_mask": self._mask}
            if "position_ids" in self._accepts:
                options["position_ids"] = (self._mask.cumsum(dim=1) - 1).clamp(min=0)[:, begin:]
            if "logits_to_keep" in self._accepts:  # a long prompt needs no others
                options["logits_to_keep"] = last
        else:
            options |= {
                "decoder_input_ids": tokens, "encoder_outputs": self._encoded,
                "attention_mask": self._source_mask,
            }  # fmt: skip
            if "decoder_attention_mask" in self._accepts:
                options["decoder_attention_mask"] = self._mask
        found = self._call(options, begin)
        self._cache = getattr(found, "past_key_values", None)
        if self._cache is None and self._encoded is None:
            self._rereads = True
            return self._read_all(last)
        return found.logits[:, -last:]

    def _read_all(self, last: int) -> Any:
        """Return the same of a model without a cache; texts of different lengths apart, without padding."""
        import torch

        starts = self._mask.argmax(dim=1).tolist()
        rows = [slice(None)] if len(set(starts)) == 1 else [slice(n, n + 1) for n in range(len(starts))]
        parts = []
        for own in rows:
            begin = starts[own][0]
            found = self._call({"input_ids": self._tokens[own, begin:], "use_cache": False}, begin)
            parts.append(found.logits[:, -last:])
        return torch.cat(parts)

    def _call(self, options: dict[str, Any], begin: int) -> Any:
        """Return what the model says; raise a clear error where a text is longer than it takes."""
        with self.member.enter((self.first, begin), self._modules) as model:
            try:
                return model(**options)
            except IndexError as error:
                most = getattr(model.config.get_text_config(), "max_position_embeddings", None)
                if most is None or self._mask.shape[1] <= most:
                    raise
                raise ValueError(
                    f"Prompt and text must have at most {most} tokens, as the model takes. "
                    f"Got {self._mask.shape[1]}. Shorten them, or score parts."
                ) from error


class LogitBuffer:
    """Logits of all members in one array, a few positions at a time.

    Its memory is used again and again: new memory takes longer than what is done with the numbers.
    """

    def __init__(self) -> None:
        self._memory = np.empty(0, np.float32)

    def check(self, logits: Iterable[Any]) -> list[np.ndarray]:
        """Return tensors of members, (inputs, positions, vocabulary), as float32 arrays of one vocabulary."""
        found = [each.detach().float().cpu().numpy() for each in logits]
        sizes = sorted({each.shape[-1] for each in found})
        if len(sizes) > 1:
            raise ValueError(
                f"Expected members with one vocabulary. Got {sizes} tokens. Compare texts by likelihood."
            )
        return found

    def split(self, found: list[np.ndarray]) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield positions, and what members say of them, (members, inputs, positions, vocabulary).

        Parameters
        ----------
        found
            Of each member, (inputs, positions, vocabulary). An array is valid until the next one.
        """
        inputs, positions, vocabulary = found[0].shape
        step = min(positions, max(1, _LOGITS_TOGETHER // (len(found) * inputs * vocabulary)))
        if len(self._memory) < len(found) * inputs * step * vocabulary:
            self._memory = np.empty(len(found) * inputs * step * vocabulary, np.float32)
        for begin in range(0, positions, step):
            part = slice(begin, min(begin + step, positions))
            shape = len(found), inputs, part.stop - begin, vocabulary
            own = self._memory[: math.prod(shape)].reshape(shape)
            yield part, np.stack([each[:, part] for each in found], out=own)

    def join(self, logits: Iterable[Any]) -> np.ndarray:
        """Return what members say of the next token, (members, inputs, vocabulary), until asked again."""
        ((_, found),) = self.split(self.check(each[:, None] for each in logits))
        return found[:, :, 0]
