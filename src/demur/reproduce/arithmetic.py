"""How much of a run is a network's own arithmetic: forward passes and products of matrices."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_PRODUCTS = frozenset({
    "mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "matmul", "__matmul__", "__rmatmul__", "linear",
    "bilinear", "einsum", "tensordot", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "scaled_dot_product_attention", "backward", "grad",
})  # fmt: skip
"""Functions of PyTorch that are products of matrices, or gradients of forward passes."""

_COMPILED = ("multiply_masked", "compute_gradient")
"""Functions of demur that are forward passes of a layer, with its dropout or with their gradient."""


@dataclass
class Arithmetic:
    """Time that was spent, in seconds of the clock.

    Attributes
    ----------
    inside
        In forward passes of networks and in products of matrices.
    stepping
        In the rest of the steps of Markov chains: noise and momenta.
    seconds
        In all.
    calls
        How many forward passes and products there were, those within others not counted.
    """

    inside: float = 0.0
    stepping: float = 0.0
    seconds: float = 0.0
    calls: int = 0

    @property
    def outside(self) -> float:
        """The share of the time that was spent on anything else."""
        return 1 - self.inside / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        return (
            f"{self.outside:.1%} of {self.seconds:.1f} s outside forward passes and products of matrices "
            f"({self.calls:,} of them)"
        )


@contextlib.contextmanager
def arithmetic() -> Iterator[Arithmetic]:
    """Measure how much time goes into forward passes and products of matrices.

    What counts is the outermost call: of a ``torch.nn.Module``, of a function as ``torch.mm``, or of a
    compiled one that is a layer's forward pass, with its dropout or its gradient. Work of this thread alone
    is seen, and where PyTorch runs on an accelerator, only the time to hand it over.

    Examples
    --------
    >>> import torch
    >>> with arithmetic() as spent:
    ...     _ = torch.ones(8, 8) @ torch.ones(8, 8) + torch.ones(8, 8)
    >>> spent.calls, 0 < spent.inside < spent.seconds
    (1, True)
    """
    import torch
    from torch.nn.modules import module

    from demur import kernels
    from demur.posteriors.chains.stepper import Stepper

    spent, mine = Arithmetic(), threading.get_ident()
    depth, begun = 0, 0.0

    def enter(*_: Any) -> None:
        nonlocal depth, begun
        if depth == 0:
            begun = time.perf_counter()
        depth += 1

    def leave(*_: Any, counts: bool = True) -> None:
        nonlocal depth
        depth -= 1
        if depth == 0 and counts:
            spent.inside += time.perf_counter() - begun
            spent.calls += 1

    def watched(function: Any) -> Any:
        compiled = getattr(function, "overloads", None)

        def product(*args: Any, **options: Any) -> Any:
            if depth or threading.get_ident() != mine:
                return function(*args, **options)
            if compiled == {}:
                _prepare(function, args)
            known = compiled and len(compiled)
            enter()
            try:
                return function(*args, **options)
            finally:
                # Compiling for other types is no arithmetic either.
                leave(counts=not compiled or len(compiled) == known)

        return product

    def advance(self: Stepper, state: Any) -> None:
        begin, before = time.perf_counter(), spent.inside
        try:
            step(self, state)
        finally:
            spent.stepping += time.perf_counter() - begin - (spent.inside - before)

    step = Stepper.advance
    with contextlib.ExitStack() as stack:
        if kernels.has_numba():
            from demur.posteriors.heads import compiled_products

            for name in _COMPILED:
                function = getattr(compiled_products, name)
                stack.enter_context(_replaced(compiled_products, name, watched(function)))
        # Functions are replaced, and not all calls listened to: that would cost small networks a third more.
        for owner in (torch, torch.nn.functional, torch.autograd, torch.Tensor):
            for name in _PRODUCTS & set(dir(owner)):
                stack.enter_context(_replaced(owner, name, watched(getattr(owner, name))))
        stack.enter_context(_replaced(Stepper, "advance", advance))
        stack.callback(module.register_module_forward_pre_hook(enter).remove)
        stack.callback(module.register_module_forward_hook(leave, always_call=True).remove)
        start = time.perf_counter()
        try:
            yield spent
        finally:
            spent.seconds = time.perf_counter() - start


@contextlib.contextmanager
def _replaced(owner: Any, name: str, function: Any) -> Iterator[None]:
    """Give a module or a class another function for a while."""
    inherited, before = name not in vars(owner), getattr(owner, name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        if inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def _prepare(function: Any, args: tuple[Any, ...]) -> None:
    """Have numba compile a function, or read it from disk, for such arguments: that is no arithmetic."""
    import numba

    function.compile(tuple(map(numba.typeof, args)))
