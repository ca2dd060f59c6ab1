"""How much of scoring is the network's own arithmetic: forward passes and matrix products.

python -m benchmarks.forward_share [--classes 100] [--features 512] [--inputs 1000] [--samples 100]

Scores a last layer by ten heads, by dropout and by cyclical SG-HMC, with the functions of PyTorch that
multiply matrices replaced by timed ones, and prints the share of the time that is spent elsewhere. Loops are
compiled, or read from disk, before.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PRODUCTS = frozenset({
    "mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "matmul", "__matmul__", "__rmatmul__", "linear",
    "bilinear", "einsum", "tensordot", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "scaled_dot_product_attention", "backward", "grad",
})  # fmt: skip
"""Functions of PyTorch that are matrix products, or gradients of forward passes."""

COMPILED = ("multiply_masked", "compute_gradient")
"""Functions of demur that are the forward pass of a layer, with its dropout or its gradient."""


@dataclass
class ForwardShare:
    """Where the time went, in seconds of wall time.

    Attributes
    ----------
    inside
        In forward passes of networks and in matrix products.
    stepping
        In the rest of the steps of Markov chains: noise and momenta.
    seconds
        In all.
    calls
        Number of forward passes and products, not counting those inside others.
    """

    inside: float = 0.0
    stepping: float = 0.0
    seconds: float = 0.0
    calls: int = 0

    @property
    def outside(self) -> float:
        """The share of the time that was spent elsewhere."""
        return 1 - self.inside / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        return (
            f"{self.outside:.1%} of {self.seconds:.1f} s outside forward passes and matrix products "
            f"({self.calls:,} of them)"
        )


@contextlib.contextmanager
def measure_forward_share() -> Iterator[ForwardShare]:
    """Measure how much time goes into forward passes and matrix products.

    What counts is the outermost call: of a ``torch.nn.Module``, of a function such as ``torch.mm``, or of a
    compiled one that is a layer's forward pass, with its dropout or its gradient. Only work of this thread is
    seen, and on an accelerator only the time to submit it.

    Examples
    --------
    >>> import torch
    >>> with measure_forward_share() as spent:
    ...     _ = torch.ones(8, 8) @ torch.ones(8, 8) + torch.ones(8, 8)
    >>> spent.calls, 0 < spent.inside < spent.seconds
    (1, True)
    """
    import torch
    from torch.nn.modules import module

    from demur.posteriors.chains.stepper import Stepper
    from demur.posteriors.heads import compiled_products

    spent, mine = ForwardShare(), threading.get_ident()
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

    def watch(function: Any) -> Any:
        compiled = getattr(function, "overloads", None)

        def product(*args: Any, **options: Any) -> Any:
            if depth or threading.get_ident() != mine:
                return function(*args, **options)
            if compiled == {}:
                compile_ahead(function, args)
            known = compiled and len(compiled)
            enter()
            try:
                return function(*args, **options)
            finally:
                # Compiling for other types does not count either.
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
        for name in COMPILED:
            function = getattr(compiled_products, name)
            stack.enter_context(replace_function(compiled_products, name, watch(function)))
        # A hook on all calls would cost small networks a third more than replacing functions does.
        for owner in (torch, torch.nn.functional, torch.autograd, torch.Tensor):
            for name in PRODUCTS & set(dir(owner)):
                stack.enter_context(replace_function(owner, name, watch(getattr(owner, name))))
        stack.enter_context(replace_function(Stepper, "advance", advance))
        stack.callback(module.register_module_forward_pre_hook(enter).remove)
        stack.callback(module.register_module_forward_hook(leave, always_call=True).remove)
        start = time.perf_counter()
        try:
            yield spent
        finally:
            spent.seconds = time.perf_counter() - start


@contextlib.contextmanager
def replace_function(owner: Any, name: str, function: Any) -> Iterator[None]:
    """Replace a function of a module or a class for a while."""
    inherited, before = name not in vars(owner), getattr(owner, name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        if inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def compile_ahead(function: Any, args: tuple[Any, ...]) -> None:
    """Have numba compile a function for such arguments, or read it from disk: that does not count."""
    import numba

    function.compile(tuple(map(numba.typeof, args)))


def build_posteriors(classes: int, features: int, samples: int) -> dict[str, Any]:
    """Return three posteriors of a last layer whose logits spread like those of a trained one."""
    import torch

    from demur.posteriors import CyclicalSGHMC, LastLayer

    torch.manual_seed(0)
    layer = torch.nn.Linear(features, classes)
    with torch.no_grad():
        layer.weight.normal_(0, 0.1)
    heads = torch.randn(10, classes, features) * 0.1, torch.randn(10, classes)
    data = torch.rand(1000, features), torch.randint(classes, (1000,))
    chain = CyclicalSGHMC(
        layer, data, samples=samples, cycles=2, steps=5 * samples, batch_size=100, step_size=0.01,
        prior_scale=0.1, exploration=0.2, discard=0.0, keep=False,
    )  # fmt: skip
    return {
        "ten heads": LastLayer(layer, heads),
        "dropout": LastLayer(layer, dropout=0.2, samples=samples),
        "cyclical SG-HMC": LastLayer(layer, chain),
    }


def main() -> None:
    """Score by each posterior twice, and print the shares of the second time."""
    import torch

    import demur

    os.environ.setdefault("DEMUR_COMPILE", "always")  # also for a few small arrays
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name, default in (("classes", 100), ("features", 512), ("inputs", 1000), ("samples", 100)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    inputs = torch.rand(given.inputs, given.features)
    for name in build_posteriors(given.classes, given.features, given.samples):
        order = "member" if name == "cyclical SG-HMC" else "batch"
        for again in (False, True):
            posterior = build_posteriors(given.classes, given.features, given.samples)[name]
            with measure_forward_share() as spent:
                demur.score(posterior, [inputs], order=order, progress=False)
            if again:
                chain = (
                    f", {spent.stepping / spent.seconds:.1%} in noise and momenta" if spent.stepping else ""
                )
                print(f"{name:<16} {spent}{chain}")


if __name__ == "__main__":
    main()
