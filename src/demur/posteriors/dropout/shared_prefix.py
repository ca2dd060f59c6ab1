"""Splits a forward pass: the layers before the first one that samples run once for all members.

Each split has ``run_shared(inputs)``, called once per batch, and ``run_own(state)``, called once per member.
Layers run in the order of the whole pass, so that the same seed gives the same result to the last bit.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from demur.posteriors import networks

Call = Callable[[Any], Any]
"""A function of inputs that returns the output of the whole model."""


class NetworkSplit(Protocol):
    """A pass in two parts."""

    def run_shared(self, inputs: Any) -> Any:
        """Run the part that all members share."""

    def run_own(self, state: Any) -> Any:
        """Run the part of one member; the state is not changed."""


class NoSplit:
    """A whole pass for each member: nothing is shared."""

    def __init__(self, call: Call) -> None:
        self.call = call

    def run_shared(self, inputs: Any) -> Any:
        return inputs

    def run_own(self, state: Any) -> Any:
        # A copy, since a layer may work in place.
        return self.call(networks.copy_inputs(state))


class SequenceSplit:
    """The layers of a ``torch.nn.Sequential``, split before the first one that samples."""

    def __init__(self, steps: list[Any], count: int) -> None:
        self.shared, self.own = steps[:count], steps[count:]

    def run_shared(self, inputs: Any) -> Any:
        for step in self.shared:
            inputs = step(inputs)
        return inputs

    def run_own(self, state: Any) -> Any:
        value = networks.copy_inputs(state)
        for step in self.own:
            value = step(value)
        return value


class GraphSplit:
    """A pass traced by ``torch.fx``, split before its first sampling layer; keeps the values needed later."""

    def __init__(self, traced: Any, count: int) -> None:
        from torch import fx

        self.traced = traced
        nodes = list(traced.graph.nodes)
        self.shared, self.own = nodes[:count], nodes[count:]
        own = set(self.own)
        self.needed = [node for node in self.shared if own & set(node.users)]
        self.runner = fx.Interpreter(traced, garbage_collect_values=False)
        last = {used: node for node in self.own for used in node.all_input_nodes}
        self.done = {node: [used for used, user in last.items() if user is node] for node in self.own}

    def run_shared(self, inputs: Any) -> Any:
        self.runner.env, self.runner.args_iter = {}, iter([networks.copy_inputs(inputs)])
        for node in self.shared:
            self.runner.env[node] = self.runner.run_node(node)
        return [self.runner.env[node] for node in self.needed]

    def run_own(self, state: Any) -> Any:
        # Copied together, so that values which share memory still do. Parameters are not copied.
        own = {id(p): p for each in (self.traced.parameters(), self.traced.buffers()) for p in each}
        env = dict(zip(self.needed, copy.deepcopy(state, own), strict=True))
        self.runner.env = env
        for node in self.own:
            env[node] = self.runner.run_node(node)
            if node.op == "output":
                break
            for used in self.done[node]:
                del env[used]
        found = env[self.own[-1]]
        self.runner.env = {}
        return found


class ReplaySplit:
    """A whole pass in which the layers up to a named one return their earlier outputs."""

    def __init__(self, call: Call, model: Any, active: dict[str, Any], name: str) -> None:
        self.call, self.model, self.active, self.name = call, model, active, name
        self.sampling = {id(module) for module in active.values()}
        self.target = model.get_submodule(name)

    def run_shared(self, inputs: Any) -> Any:
        """Run a pass and keep the outputs of the outermost layers that finish before the named one does."""
        calls: list[tuple[Any, Any]] = []
        begun: list[int] = []
        reached = False

        def before(module: Any, _: Any) -> None:
            begun.append(len(calls))
            if id(module) in self.sampling and not reached:
                name = next(name for name, each in self.active.items() if each is module)
                raise ValueError(
                    f"after must name a layer that finishes before dropout samples. Got {self.name!r}, and "
                    f"{name!r} samples before it."
                )

        def done(module: Any, _: Any, output: Any) -> None:
            nonlocal reached
            start = begun.pop()
            if not reached and not _contains_sampling(module, self.sampling):
                del calls[start:]
                calls.append((module, copy.deepcopy(output)))
            reached = reached or module is self.target

        handles = [
            handle
            for module in self.model.modules()
            for handle in (module.register_forward_pre_hook(before), module.register_forward_hook(done))
        ]
        try:
            self.call(networks.copy_inputs(inputs))
        finally:
            for handle in handles:
                handle.remove()
        return inputs, calls

    def run_own(self, state: Any) -> Any:
        inputs, calls = state
        outputs = iter(copy.deepcopy([output for _, output in calls]))
        waiting: dict[Any, list[Any]] = {}
        for module, _ in calls:
            waiting.setdefault(module, []).append(next(outputs))

        def replayed(module: Any, original: Any, *arguments: Any, **named: Any) -> Any:
            return waiting[module].pop(0) if waiting[module] else original(*arguments, **named)

        patched = []
        try:
            for module in waiting:
                patched.append((module, module.__dict__.get("forward")))
                module.forward = functools.partial(replayed, module, module.forward)
            return self.call(networks.copy_inputs(inputs))
        finally:
            for module, own in patched:
                del module.forward
                if own is not None:
                    module.forward = own


def split_sequence(model: Any, sampling: set[int]) -> SequenceSplit | None:
    """Split a plain sequence; None where the model is something else, or nothing would be shared."""
    steps = _list_layers(model)
    if steps is None:
        return None
    count = next((i for i, step in enumerate(steps) if _contains_sampling(step, sampling)), 0)
    return SequenceSplit(steps, count) if count else None


def _list_layers(model: Any) -> list[Any] | None:
    """Return the layers of a plain sequence, also of nested ones; None where the model is something else."""
    from torch import nn

    if type(model) is not nn.Sequential or _has_hooks(model):
        return None
    return [step for child in model for step in (_list_layers(child) or [child])]


def split_graph(model: Any, inputs: Any, sampling: set[int]) -> GraphSplit | None:
    """Split a pass traced by ``torch.fx``; None where it cannot be traced, or nothing would be shared."""
    from torch import fx, nn

    class Called(nn.Module):
        """The model with the given inputs; all its other arguments keep their defaults."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, given: Any) -> Any:
            if isinstance(inputs, Mapping):
                return networks.call_with_names(self.model, {name: given[name] for name in inputs})
            return self.model(given)

    class Tracer(fx.Tracer):
        """Traces into a layer only where something inside it samples."""

        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            plain = super().is_leaf_module(m, module_qualified_name)
            return plain or id(m) in sampling or not _contains_sampling(m, sampling)

    if any(
        _has_hooks(each)
        for each in model.modules()
        if _contains_sampling(each, sampling) and id(each) not in sampling
    ):
        return None  # a layer that is traced into is never called, and so are its hooks
    root = Called()
    with _preserve_attributes(model), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            traced = fx.GraphModule(root, Tracer().trace(root))
        except Exception:  # tracing runs the model's own code, which may raise anything
            return None
    layers = dict(traced.named_modules())
    nodes = list(traced.graph.nodes)
    count = next(
        (
            i
            for i, node in enumerate(nodes)
            if node.op == "call_module" and _contains_sampling(layers[str(node.target)], sampling)
        ),
        0,
    )
    work = any(node.op.startswith("call_") for node in nodes[:count])
    return GraphSplit(traced, count) if work else None


@contextlib.contextmanager
def _preserve_attributes(model: Any) -> Iterator[None]:
    """Restore the attributes of all modules afterwards: a model may store what it is called with."""
    saved = [(module, dict(vars(module))) for module in model.modules()]
    try:
        yield
    finally:
        for module, before in saved:
            vars(module).clear()
            vars(module).update(before)


def _contains_sampling(module: Any, sampling: set[int]) -> bool:
    """Return whether a module, or one inside it, samples."""
    return any(id(each) in sampling for each in module.modules())


def _has_hooks(module: Any) -> bool:
    """Return whether a module has hooks, which would be skipped if it were not called."""
    return bool(module._forward_hooks or module._forward_pre_hooks)
