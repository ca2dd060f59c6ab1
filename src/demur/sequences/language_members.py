"""Members that are language models: whole models, adapters, dropout, templates; and how one reads tokens."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any


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
    def enter(self, moment: Sequence[int]) -> Iterator[Any]:
        """Give the model as this member uses it, without gradients; ``moment`` fixes what dropout draws."""
        import torch

        layers = [] if self.dropout is None else [m for m in self.model.modules() if _is_dropout(m)]
        modes = {module: module.training for module in self.model.modules()}
        try:
            self.model.eval()
            with torch.no_grad(), contextlib.ExitStack() as stack:
                if self.adapter is not None:
                    stack.enter_context(_switch_adapter(self.model, self.adapter))
                if self.dropout is not None:
                    for layer in layers:
                        layer.train()
                    stack.enter_context(torch.random.fork_rng(devices=[]))
                    torch.manual_seed(_make_seed(self.dropout, *moment))
                yield self.model
        finally:
            for module, mode in modes.items():
                module.training = mode


@contextlib.contextmanager
def _switch_adapter(model: Any, name: str) -> Iterator[None]:
    """Switch an adapter on; afterwards, what was on before is on, and as trainable as it was."""
    before = getattr(model, "active_adapters", None)  # a list, in PEFT; a function, in transformers
    before = before() if callable(before) else before
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
    for name, values in (("adapters", adapters), ("templates", templates)):
        if values is None:
            continue
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

    Parameters
    ----------
    member
        The member.
    context, mask
        Tokens that the member has read before, (inputs, positions), padded on the left, and where they are
        tokens. At least one for each input.
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
        self._mask = mask[:, :0]
        self._cache: Any = None
        self._source_mask = source_mask
        self._encoded: Any = None
        # A wrapper, as PEFT's, passes on what the model in it takes.
        inner = member.model.get_base_model() if hasattr(member.model, "get_base_model") else member.model
        self._accepts = set(inspect.signature(inner.forward).parameters)
        if source is not None:
            with member.enter((first, -1)) as model:
                self._encoded = model.get_encoder()(input_ids=source, attention_mask=source_mask)
        self.next = self._read(context, mask)[:, -1:]

    def read(self, tokens: Any, mask: Any) -> Any:
        """Read tokens (inputs, positions); return the logits that the member had for each of them.

        The first of them comes from what was read before.
        """
        import torch

        after = self._read(tokens, mask)
        before = torch.cat([self.next, after[:, :-1]], dim=1)
        self.next = after[:, -1:]
        return before

    def keep(self, rows: Any) -> None:
        """Go on with some of the rows, in a new order; rows may repeat."""
        self._cache.reorder_cache(rows)
        self._mask, self.next = self._mask[rows], self.next[rows]
        if self._encoded is not None:
            self._encoded.last_hidden_state = self._encoded.last_hidden_state[rows]
            self._source_mask = self._source_mask[rows]

    def _read(self, tokens: Any, mask: Any) -> Any:
        """Return the logits after each of the tokens."""
        import torch

        begin = self._mask.shape[1]
        self._mask = torch.cat([self._mask, mask], dim=1)
        options: dict[str, Any] = {"past_key_values": self._cache, "use_cache": True}
        if self._encoded is None:
            options |= {"input_ids": tokens, "attention_mask": self._mask}
            if "position_ids" in self._accepts:
                options["position_ids"] = (self._mask.cumsum(dim=1) - 1).clamp(min=0)[:, begin:]
        else:
            options |= {
                "decoder_input_ids": tokens, "encoder_outputs": self._encoded,
                "attention_mask": self._source_mask,
            }  # fmt: skip
            if "decoder_attention_mask" in self._accepts:
                options["decoder_attention_mask"] = self._mask
        with self.member.enter((self.first, begin)) as model:
            found = model(**options)
        self._cache = found.past_key_values
        return found.logits
