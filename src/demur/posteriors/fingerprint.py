"""A short text that tells one model's parameters, or one set of inputs, from another."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Mapping, Set
from typing import Any

import numpy as np

_SIZE = 40
"""Digits of a fingerprint."""


def fingerprint(*things: Any) -> str:
    """Return the fingerprint of numbers, texts, arrays, networks and estimators of scikit-learn.

    All parameters and buffers count, and the layers as they print themselves. Of functions and of
    other objects only the kind counts: what they do cannot be told from outside.
    """
    return _digest(things, set()).hex()[:_SIZE]


def _digest(thing: Any, above: set[int]) -> bytes:
    """Return the bytes that stand for a thing; ``above`` are the objects that it lies in."""
    if id(thing) in above:
        return b"again"
    found = hashlib.sha256(type(thing).__name__.encode())
    for part in _parts_of(thing):
        found.update(part if isinstance(part, bytes | memoryview) else _digest(part, above | {id(thing)}))
    return found.digest()


def _parts_of(thing: Any) -> list[Any]:
    """Return what a thing is made of: bytes, or parts that have parts themselves."""
    kind = type(thing)
    if thing is None or isinstance(thing, bool | int | float | complex | str | range | np.generic):
        return [repr(thing).encode()]
    if isinstance(thing, bytes):
        return [thing]
    if callable(getattr(thing, "fingerprint", None)):
        return [thing.fingerprint().encode()]
    if isinstance(thing, np.ndarray):
        return _array_parts(thing)
    if isinstance(thing, Mapping):
        return [each for name in sorted(thing, key=repr) for each in (name, thing[name])]
    if isinstance(thing, list | tuple):
        return list(thing)
    if isinstance(thing, Set):
        return sorted(_digest(each, set()) for each in thing)
    if hasattr(thing, "state_dict") and hasattr(thing, "named_modules"):
        # Layers print their settings, as rates of dropout, which are no parameters.
        return [re.sub(r" at 0x[0-9a-f]+", "", repr(thing)).encode(), dict(thing.state_dict())]
    if kind.__module__.split(".")[0] == "torch" and hasattr(thing, "untyped_storage"):
        return _tensor_parts(thing)
    if hasattr(thing, "get_params") or hasattr(thing, "predict_proba"):
        return [vars(thing)]
    if kind.__name__ == "Tree" and kind.__module__.startswith("sklearn."):
        return [thing.__getstate__()]
    return []


def _array_parts(array: np.ndarray) -> list[Any]:
    """Return type, shape and numbers of an array; of records the fields, since gaps between are anything."""
    if array.dtype.names:
        return [(name, array[name]) for name in array.dtype.names]
    head = repr((array.dtype.str, array.shape)).encode()
    if array.dtype == object:
        return [head, array.tolist()]
    return [head, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data]


def _tensor_parts(tensor: Any) -> list[Any]:
    """Return type, shape and numbers of a tensor of PyTorch, whatever its type."""
    import torch

    flat = tensor.detach().cpu().contiguous().reshape(-1)
    head = repr((str(tensor.dtype), tuple(tensor.shape))).encode()
    return [head, flat.view(torch.uint8).numpy().data]


def describe_code(function: Any) -> list[Any]:
    """Return what a fingerprint can know of a function: its name, its code, and arguments given to it."""
    if hasattr(function, "func") and hasattr(function, "keywords"):  # functools.partial
        return [describe_code(function.func), list(function.args), dict(function.keywords)]
    if inspect.isfunction(function):
        return [function.__qualname__, *_compiled_parts(function.__code__)]
    if inspect.ismethod(function):
        return [describe_code(function.__func__)]
    if isinstance(function, type):
        return [f"{function.__module__}.{function.__qualname__}"]
    call = type(function).__call__
    return [type(function).__qualname__, describe_code(call) if inspect.isfunction(call) else [], function]


def _compiled_parts(code: Any) -> list[Any]:
    """Return the instructions, names and constants of compiled code, not its place in a file."""
    constants = [_compiled_parts(c) if inspect.iscode(c) else c for c in code.co_consts]
    return [code.co_code, list(code.co_names), constants]
