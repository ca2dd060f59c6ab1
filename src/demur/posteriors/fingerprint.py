"""Fingerprints: short texts by which checkpoints recognise models, data and functions."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Mapping, Set
from typing import Any

import numpy as np

_DIGITS = 40
"""Hexadecimal digits of a fingerprint."""


def fingerprint(*things: Any) -> str:
    """Return the fingerprint of numbers, texts, arrays, networks and estimators of scikit-learn.

    It covers all parameters and buffers, and the printed form of the layers. Of functions and other objects
    it covers only the type, since what they do cannot be seen from outside.
    """
    return _compute_digest(things, set()).hex()[:_DIGITS]


def _compute_digest(thing: Any, above: set[int]) -> bytes:
    """Return the digest of a thing; ``above`` are the ids of the objects that contain it."""
    if id(thing) in above:
        return b"again"
    found = hashlib.sha256(type(thing).__name__.encode())
    for part in _list_parts(thing):
        found.update(
            part if isinstance(part, bytes | memoryview) else _compute_digest(part, above | {id(thing)})
        )
    return found.digest()


def _list_parts(thing: Any) -> list[Any]:
    """Return what a thing is made of: bytes, or parts that have parts in turn."""
    kind = type(thing)
    if thing is None or isinstance(thing, bool | int | float | complex | str | range | np.generic):
        return [repr(thing).encode()]
    if isinstance(thing, bytes):
        return [thing]
    if callable(getattr(thing, "fingerprint", None)):
        return [thing.fingerprint().encode()]
    if isinstance(thing, np.ndarray):
        return _list_array_parts(thing)
    if isinstance(thing, Mapping):
        return [each for name in sorted(thing, key=repr) for each in (name, thing[name])]
    if isinstance(thing, list | tuple):
        return list(thing)
    if isinstance(thing, Set):
        return sorted(_compute_digest(each, set()) for each in thing)
    if hasattr(thing, "state_dict") and hasattr(thing, "named_modules"):
        # Layers print their settings, such as rates of dropout, which are not parameters.
        return [re.sub(r" at 0x[0-9a-f]+", "", repr(thing)).encode(), dict(thing.state_dict())]
    if kind.__module__.split(".")[0] == "torch" and hasattr(thing, "untyped_storage"):
        return _list_tensor_parts(thing)
    if hasattr(thing, "get_params") or hasattr(thing, "predict_proba"):
        return [vars(thing)]
    if kind.__name__ == "Tree" and kind.__module__.startswith("sklearn."):
        return [thing.__getstate__()]
    return []


def _list_array_parts(array: np.ndarray) -> list[Any]:
    """Return dtype, shape and numbers of an array; for records, field by field, without the padding."""
    if array.dtype.names:
        return [(name, array[name]) for name in array.dtype.names]
    head = repr((array.dtype.str, array.shape)).encode()
    if array.dtype == object:
        return [head, array.tolist()]
    return [head, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data]


def _list_tensor_parts(tensor: Any) -> list[Any]:
    """Return dtype, shape and numbers of a PyTorch tensor of any dtype."""
    import torch

    flat = tensor.detach().cpu().contiguous().reshape(-1)
    head = repr((str(tensor.dtype), tuple(tensor.shape))).encode()
    return [head, flat.view(torch.uint8).numpy().data]


def describe_code(function: Any) -> list[Any]:
    """Return what a fingerprint covers of a function: its name, its code, and bound arguments."""
    if hasattr(function, "func") and hasattr(function, "keywords"):  # functools.partial
        return [describe_code(function.func), list(function.args), dict(function.keywords)]
    if inspect.isfunction(function):
        return [function.__qualname__, *_list_code_parts(function.__code__)]
    if inspect.ismethod(function):
        return [describe_code(function.__func__)]
    if isinstance(function, type):
        return [f"{function.__module__}.{function.__qualname__}"]
    call = type(function).__call__
    return [type(function).__qualname__, describe_code(call) if inspect.isfunction(call) else [], function]


def _list_code_parts(code: Any) -> list[Any]:
    """Return the instructions, names and constants of compiled code, without its position in a file."""
    constants = [_list_code_parts(c) if inspect.iscode(c) else c for c in code.co_consts]
    return [code.co_code, list(code.co_names), constants]
