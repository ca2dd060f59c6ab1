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
"""From inputs to what the whole model returns for them."""


class Split(Protocol):
    """One way to run a pass."""

    def run_shared(self, inputs: Any) -> Any:
        """Run what all members share."""

    def run_own(self, state: Any) -> Any:
        """Run what is each member's own; the state stays as it is."""


class NoSplit:
    """Nothing is shared."""

    def __init__(self, call: Call) -> None:
        self.call = call

    def run_shared(self, inputs: Any) -> Any:
        return inputs

    def run_own(self, state: Any) -> Any:
        # A layer may work in place: what all members share must stay as it is.
        return self.call(networks.copy_inputs(state))


class SequenceSplit:
    """Layers of a ``torch.nn.Sequential``, one after the other."""

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
    """A pass as ``torch.fx`` sees it, cut before its first sampling layer; what is needed later is kept."""

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
        # Copied together: what shares memory goes on sharing it. Parameters are not copied.
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
    """The whole pass, in which layers up to a named one return what they returned before."""

    def __init__(self, call: Call, model: Any, active: dict[str, Any], name: str) -> None:
        self.call, self.model, self.active, self.name = call, model, active, name
        self.sampling = {id(module) for module in active.values()}
        self.target = model.get_submodule(name)

    def run_shared(self, inputs: Any) -> Any:
        """Run a pass, and keep what layers return until the named one is done, the outermost layers alone."""
        calls: list[tuple[Any, Any]] = []
        begun: list[int] = []
        reached = False

        def before(module: Any, _: Any) -> None:
            begun.append(len(calls))
            if id(module) in self.sampling and not reached:
                name = next(name for name, each in self.active.items() if each is module)
                raise ValueError(
                    f"after must name a layer that is done before dropout samples. Got {self.name!r}, and "
                    f"{name!r} samples before it."
                )

        def done(module: Any, _: Any, output: Any) -> None:
            nonlocal reached
            start = begun.pop()
            if not reached and not contains_sampling(module, self.sampling):
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
    """Return the pass of a plain sequence; None where the model is something else, or nothing is shared."""
    steps = _list_layers(model)
    if steps is None:
        return None
    count = next((i for i, step in enumerate(steps) if contains_sampling(step, sampling)), 0)
    return SequenceSplit(steps, count) if count else None


def _list_layers(model: Any) -> list[Any] | None:
    """Return the layers of a plain sequence, nested ones too; None where it is something else."""
    from torch import nn

    if type(model) is not nn.Sequential or _has_hooks(model):
        return None
    return [step for child in model for step in (_list_layers(child) or [child])]


def split_graph(model: Any, inputs: Any, sampling: set[int]) -> GraphSplit | None:
    """Return the pass as ``torch.fx`` sees it; None where it cannot, or nothing is shared."""
    from torch import fx, nn

    class Called(nn.Module):
        """The model with the inputs that it is given; all others keep their default values."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, given: Any) -> Any:
            if isinstance(inputs, Mapping):
                return networks.call_with_names(self.model, {name: given[name] for name in inputs})
            return self.model(given)

    class Tracer(fx.Tracer):
        """Looks into layers only where something samples inside."""

        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            plain = super().is_leaf_module(m, module_qualified_name)
            return plain or id(m) in sampling or not contains_sampling(m, sampling)

    if any(
        _has_hooks(each)
        for each in model.modules()
        if contains_sampling(each, sampling) and id(each) not in sampling
    ):
        return None  # nobody calls a layer that is looked into
    root = Called()
    with _preserve_attributes(model), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            traced = fx.GraphModule(root, Tracer().trace(root))
        except Exception:  # whatever a model does that cannot be traced
            return None
    layers = dict(traced.named_modules())
    nodes = list(traced.graph.nodes)
    count = next(
        (
            i
            for i, node in enumerate(nodes)
            if node.op == "call_module" and contains_sampling(layers[str(node.target)], sampling)
        ),
        0,
    )
    work = any(node.op.startswith("call_") for node in nodes[:count])
    return GraphSplit(traced, count) if work else None


@contextlib.contextmanager
def _preserve_attributes(model: Any) -> Iterator[None]:
    """Leave the attributes of all modules as they were: a model may remember what it is called with."""
    kept = [(module, dict(vars(module))) for module in model.modules()]
    try:
        yield
    finally:
        for module, before in kept:
            vars(module).clear()
            vars(module).update(before)


def contains_sampling(module: Any, sampling: set[int]) -> bool:
    """Tell whether a module, or one inside, samples."""
    return any(id(each) in sampling for each in module.modules())


def _has_hooks(module: Any) -> bool:
    """Tell whether somebody listens to this module, and would miss its call."""
    return bool(module._forward_hooks or module._forward_pre_hooks)
