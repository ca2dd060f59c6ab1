"""I and K as they are usually computed, in several dtypes, and as demur computes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from demur.decompose import decompose

_EPSILON = 1e-10


@dataclass(frozen=True)
class _Formula:
    """A way to compute I and K from logits.

    Attributes
    ----------
    name
        In tables.
    dtype
        Of PyTorch, by name: logits are rounded to it, and everything is computed in it.
    compute
        From logits (members, inputs, classes) to I and K, (inputs,) each.
    """

    name: str
    dtype: str
    compute: Callable[[Any], tuple[Any, Any]]

    def __call__(self, logits: Any) -> tuple[Any, Any]:
        """Return I and K."""
        import torch

        return self.compute(logits.to(getattr(torch, self.dtype)))


def _compute_exactly(logits: Any) -> tuple[Any, Any]:
    """Return I and K without cancellation."""
    return decompose(logits=logits, measure="average").epistemic, decompose(logits=logits).epistemic


def _subtract_entropies(logits: Any) -> tuple[Any, Any]:
    """Return I and K as differences of entropies, carefully: log-softmax, and 0 log 0 = 0."""
    import torch

    logs = torch.log_softmax(logits, -1)
    p = logs.exp()
    mean = p.mean(0)
    aleatoric = -(p * logs).sum(-1).mean(0)
    return torch.special.entr(mean).sum(-1) - aleatoric, -(mean * logs.mean(0)).sum(-1) - aleatoric


def _subtract_with_epsilon(logits: Any) -> tuple[Any, Any]:
    """Return I and K as differences of entropies, as often written: softmax, and log(p + 1e-10)."""
    import torch

    p = torch.softmax(logits, -1)
    logs, mean = torch.log(p + _EPSILON), p.mean(0)
    aleatoric = -(p * logs).sum(-1).mean(0)
    of_mean = -(mean * torch.log(mean + _EPSILON)).sum(-1)
    return of_mean - aleatoric, -(mean * logs.mean(0)).sum(-1) - aleatoric


EXACT = _Formula("exact", "float32", _compute_exactly)
FORMULAS = (
    EXACT,
    _Formula("float64", "float64", _subtract_entropies),
    _Formula("float32", "float32", _subtract_entropies),
    _Formula("float32 + 1e-10", "float32", _subtract_with_epsilon),
    _Formula("float16", "float16", _subtract_entropies),
    _Formula("float16 + 1e-10", "float16", _subtract_with_epsilon),
    _Formula("bfloat16", "bfloat16", _subtract_entropies),
    _Formula("bfloat16 + 1e-10", "bfloat16", _subtract_with_epsilon),
    _Formula("exact, float16 logits", "float16", _compute_exactly),
    _Formula("exact, bfloat16 logits", "bfloat16", _compute_exactly),
)
