"""I and K as they are usually written, in several types, and as demur computes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from demur.decompose import decompose

_EPSILON = 1e-10


@dataclass(frozen=True)
class _Arithmetic:
    """A way to compute I and K from logits.

    Attributes
    ----------
    name
        What it is called in tables.
    dtype
        Of PyTorch, by name: logits are rounded to it, and everything else is computed in it.
    scores
        From logits (members, inputs, classes) to I and K, (inputs,) each.
    """

    name: str
    dtype: str
    scores: Callable[[Any], tuple[Any, Any]]

    def __call__(self, logits: Any) -> tuple[Any, Any]:
        """Return I and K."""
        import torch

        return self.scores(logits.to(getattr(torch, self.dtype)))


def exact(logits: Any) -> tuple[Any, Any]:
    """Return I and K without cancellation."""
    return decompose(logits=logits, measure="average").epistemic, decompose(logits=logits).epistemic


def _closed(logits: Any) -> tuple[Any, Any]:
    """Return I and K as differences of entropies, with care: log-softmax, and 0 log 0 = 0."""
    import torch

    logs = torch.log_softmax(logits, -1)
    p = logs.exp()
    mean = p.mean(0)
    aleatoric = -(p * logs).sum(-1).mean(0)
    return torch.special.entr(mean).sum(-1) - aleatoric, -(mean * logs.mean(0)).sum(-1) - aleatoric


def _closed_with_epsilon(logits: Any) -> tuple[Any, Any]:
    """Return the same as many write it: softmax, and a small number inside each logarithm."""
    import torch

    p = torch.softmax(logits, -1)
    logs, mean = torch.log(p + _EPSILON), p.mean(0)
    aleatoric = -(p * logs).sum(-1).mean(0)
    of_mean = -(mean * torch.log(mean + _EPSILON)).sum(-1)
    return of_mean - aleatoric, -(mean * logs.mean(0)).sum(-1) - aleatoric


EXACT = _Arithmetic("exact", "float32", exact)
ARITHMETICS = (
    EXACT,
    _Arithmetic("float64", "float64", _closed),
    _Arithmetic("float32", "float32", _closed),
    _Arithmetic("float32 + 1e-10", "float32", _closed_with_epsilon),
    _Arithmetic("float16", "float16", _closed),
    _Arithmetic("float16 + 1e-10", "float16", _closed_with_epsilon),
    _Arithmetic("bfloat16", "bfloat16", _closed),
    _Arithmetic("bfloat16 + 1e-10", "bfloat16", _closed_with_epsilon),
    _Arithmetic("exact, float16 logits", "float16", exact),
    _Arithmetic("exact, bfloat16 logits", "bfloat16", exact),
)
