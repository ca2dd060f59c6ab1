"""Calls PyTorch networks for predictions and leaves them, and all random generators, as they were."""

from __future__ import annotations

import contextlib
import inspect
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from demur.predictions import Categorical, Draws, Parametric, Points, SecondOrder, as_second_order

Forward = Callable[[Any, Any], Any]
"""A function of a model and the inputs of a batch that returns logits, or a ``demur.Gaussian``, say."""


@contextlib.contextmanager
def suspend_training(models: Iterable[Any]) -> Iterator[None]:
    """Switch models to evaluation mode, without gradients, and restore their modes afterwards.

    The flags are set directly, since ``model.eval()`` may be overridden, for instance to merge adapters.
    """
    import torch

    flags = [(module, module.training) for model in models for module in model.modules()]
    try:
        for module, _ in flags:
            module.training = False
        with torch.no_grad():
            yield
    finally:
        for module, flag in flags:
            module.training = flag


@contextlib.contextmanager
def preserve_random_state() -> Iterator[None]:
    """Restore the random generators of Python, NumPy and PyTorch afterwards."""
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    torch = sys.modules.get("torch")
    kept = None if torch is None else torch.random.get_rng_state()
    graphics = torch.cuda.get_rng_state_all() if torch and torch.cuda.is_initialized() else None
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002
        if torch is not None and kept is not None:
            torch.random.set_rng_state(kept)
        if torch is not None and graphics is not None:
            torch.cuda.set_rng_state_all(graphics)


@contextlib.contextmanager
def set_threads(count: int | None) -> Iterator[None]:
    """Set the number of PyTorch's threads, unless None, and restore it afterwards."""
    import torch

    before = torch.get_num_threads()
    try:
        if count is not None:
            torch.set_num_threads(count)
        yield
    finally:
        torch.set_num_threads(before)


def derive_seed(*numbers: int) -> int:
    """Derive one seed from several numbers; the seeds of neighbouring numbers are unrelated."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def seed_device(seed: int, device: Any) -> None:
    """Seed only the generators that a network on this device draws from."""
    import torch

    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[index].manual_seed(seed)


def check_network(name: str, model: Any) -> None:
    """Raise unless this is a PyTorch network."""
    import torch

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"{name} must be a torch.nn.Module. Got {type(model).__name__}.")


def unwrap_compiled(model: Any) -> Any:
    """Return the network inside one from ``torch.compile``, whose layers cannot be hooked."""
    return getattr(model, "_orig_mod", model)


def locate_model(model: Any) -> tuple[Any, Any]:
    """Return the device and dtype of a model's first parameter."""
    import torch

    first = next(model.parameters(), None)
    if first is None:
        return torch.device("cpu"), torch.get_default_dtype()
    return first.device, first.dtype


def widen_half(kind: Any) -> Any:
    """Return float64 for itself, and float32 for every other floating type."""
    import torch

    return torch.float64 if kind == torch.float64 else torch.float32


def move_to_model(inputs: Any, model: Any) -> Any:
    """Move inputs to the model's device; NumPy arrays also to its dtype."""
    return move_inputs(inputs, *locate_model(model))


def move_inputs(inputs: Any, device: Any, kind: Any) -> Any:
    """Move inputs to a device; NumPy arrays and tables also to a dtype."""
    import torch

    if isinstance(inputs, Mapping):
        return {name: move_inputs(value, device, kind) for name, value in inputs.items()}
    if hasattr(inputs, "columns") and hasattr(inputs, "to_numpy"):
        inputs = inputs.to_numpy()
    if isinstance(inputs, np.ndarray) and inputs.dtype.kind in "fiub":
        tensor = torch.from_numpy(np.ascontiguousarray(inputs))
        return tensor.to(device, kind if tensor.is_floating_point() else None)
    # Batches of graphs, say, are moved as tensors are.
    move = getattr(inputs, "to", None)
    return move(device) if callable(move) else inputs


def copy_inputs(inputs: Any) -> Any:
    """Return a copy of inputs, which a network may change in place."""
    if isinstance(inputs, Mapping):
        return {name: copy_inputs(value) for name, value in inputs.items()}
    return inputs.clone() if hasattr(inputs, "clone") else inputs


def call_model(model: Any, inputs: Any, forward: Forward | None = None) -> Any:
    """Return a model's predictions for a batch: logits (inputs, classes), or a predicted distribution."""
    inputs = move_to_model(inputs, model)
    if forward is not None:
        found = forward(model, inputs)
    elif isinstance(inputs, Mapping):
        found = call_with_names(model, inputs)
    else:
        found = model(inputs)
    return extract_predictions(found)


def call_with_names(model: Any, inputs: Mapping[str, Any]) -> Any:
    """Call a model with named inputs; a single input may have a name that the model does not know."""
    if len(inputs) == 1:
        names = inspect.signature(model.forward).parameters
        open_ended = any(each.kind is each.VAR_KEYWORD for each in names.values())
        if not open_ended and next(iter(inputs)) not in names:
            return model(*inputs.values())
    return model(**inputs)


def extract_predictions(found: Any) -> Any:
    """Return the logits in a model's output; which part of a tuple they are is never guessed."""
    import torch

    if isinstance(found, Mapping) and "logits" in found:
        found = found["logits"]
    distribution = None if isinstance(found, torch.Tensor) else as_second_order(found)
    if distribution is not None:
        return distribution
    if not isinstance(found, torch.Tensor | Categorical | Parametric | Points | Draws):
        found = getattr(found, "logits", found)
    if not isinstance(found, torch.Tensor | Categorical | Parametric | Points | Draws):
        raise TypeError(
            "A model must return a tensor of logits, or an object with .logits. "
            f"Got {type(found).__name__}. Give forward=lambda model, inputs: ... that returns the logits, "
            "or demur.Gaussian(mean, variance), demur.Points(numbers) or demur.Dirichlet(concentration)."
        )
    if isinstance(found, torch.Tensor) and found.ndim < 2:
        raise ValueError(
            f"A model must return logits of shape (inputs, classes). Got {tuple(found.shape)}, a number for "
            "each input. For the logit of yes or no give forward=lambda model, inputs: "
            "demur.Bernoulli(logits=model(inputs).flatten()); for a predicted number, demur.Points(...), or "
            "demur.Gaussian(...) with its variance."
        )
    return found


def stack_members(outputs: list[Any]) -> Any:
    """Stack the predictions of members, (inputs, classes) each, along a new first axis."""
    import torch

    first = outputs[0]
    if isinstance(first, torch.Tensor):
        return torch.stack([each.to(first.device) for each in outputs])
    if isinstance(first, SecondOrder):
        raise TypeError(
            f"Members must predict classes or numbers. Got {first!r}, a distribution over predictions. Give "
            "forward=lambda model, inputs: ... that returns logits; or one such network, or a list of them, "
            "to demur.score."
        )
    values = torch.stack([torch.as_tensor(each.values) for each in outputs])
    if isinstance(first, Points | Draws):
        return type(first)(values, kernel=first.kernel, scale=first.scale)
    return first.with_values(values)
