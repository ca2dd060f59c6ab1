"""Arrays of NumPy, PyTorch and JAX: where one comes from, and how it gets to the processor and back.

No library is imported here that the caller has not imported already.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any

_NATIVE_FLOATS = np.dtype(np.float32), np.dtype(np.float64)  # as this processor reads them


def library(array: object) -> str:
    """Return ``"numpy"``, ``"torch"`` or ``"jax"``; anything else raises TypeError."""
    if isinstance(array, (np.ndarray, np.generic)):
        return "numpy"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return "torch"
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(array, jax.Array):
        return "jax"
    raise TypeError(
        f"Expected an array of NumPy, PyTorch or JAX. Got {type(array).__name__}. "
        "Convert it first, for instance with numpy.asarray."
    )


def as_array(argument: object) -> Array:
    """Return an array as it is, and (nested) lists of numbers as a NumPy array."""
    if isinstance(argument, np.ndarray):
        return argument
    if isinstance(argument, (list, tuple, int, float)):
        try:
            argument = np.asarray(argument)
        except ValueError as error:
            raise ValueError(
                f"Expected rows of equal length. Got a nested list: {error}. Give an array."
            ) from None
    library(argument)
    return argument


def namespace(array: Array) -> Any:
    """Return the module with the array's functions, under the names of the array API standard."""
    kind = library(array)
    if kind == "numpy":
        return np
    if kind == "jax":
        return sys.modules["jax"].numpy
    import array_api_compat

    return array_api_compat.array_namespace(array)


def is_traced(array: Array) -> bool:
    """Tell whether JAX only traces this array, so that its values are not known yet."""
    return library(array) == "jax" and isinstance(array, sys.modules["jax"].core.Tracer)


def stays(array: Array) -> bool:
    """Tell whether to compute in the array's own library: gradients, tracing, accelerators."""
    kind = library(array)
    if kind == "torch":
        torch = sys.modules["torch"]
        return array.device.type != "cpu" or (array.requires_grad and torch.is_grad_enabled())
    if kind == "jax":
        return is_traced(array) or any(d.platform != "cpu" for d in array.devices())
    return False


def is_floating(array: Array) -> bool:
    """Tell whether the numbers are real and not integers."""
    if library(array) == "torch":
        return array.is_floating_point()
    return "float" in type_name(array)  # also JAX's bfloat16, which NumPy does not count as floating


def is_double(array: Array) -> bool:
    """Tell whether results are due in float64: for float64 and, since they are exact, integers."""
    name = type_name(array)
    return name == "float64" or "float" not in name


def type_name(array: Array) -> str:
    """Return the name of the array's type, as float32, in every library."""
    if library(array) == "torch":
        return str(array.dtype).rpartition(".")[2]
    return array.dtype.type.__name__


def describe(array: Array) -> str:
    """Return a single number as text, and the shape of more."""
    if array.shape or is_traced(array):
        return f"shape={tuple(array.shape)}"
    return repr(to_numpy(array).item())


def to_numpy(array: Array) -> np.ndarray:
    """Return the numbers as a NumPy array, without a copy where the type allows; halves become float32."""
    if array.__class__ is np.ndarray and array.dtype in _NATIVE_FLOATS:
        return array
    if library(array) == "torch":
        array = array.detach().cpu()
        if type_name(array) in ("bfloat16", "float16"):
            array = array.float()
        return array.numpy()
    array = np.asarray(array)
    if is_floating(array) and array.dtype.itemsize < 4:
        return array.astype(np.float32)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def widened(array: Array) -> Array:
    """Return the numbers in float64, or the widest type that their library or device has."""
    kind = library(array)
    if kind == "torch":
        torch = sys.modules["torch"]
        return array.to(torch.float32 if array.device.type == "mps" else torch.float64)
    if kind == "jax":
        jax = sys.modules["jax"]
        return array.astype(jax.numpy.float64 if jax.config.jax_enable_x64 else jax.numpy.float32)
    return array.astype(np.float64, copy=False)


def like(result: Array, source: Array, double: bool) -> Array:
    """Return a result in the library and on the device of ``source``, in float64 or float32."""
    kind = library(source)
    if kind == "torch":
        torch = sys.modules["torch"]
        if not isinstance(result, torch.Tensor):
            result = torch.from_numpy(np.array(result))
        return result.to(device=source.device, dtype=torch.float64 if double else torch.float32)
    if kind == "jax":
        numpy = sys.modules["jax"].numpy
        wide = double and sys.modules["jax"].config.jax_enable_x64
        return numpy.asarray(result, dtype=numpy.float64 if wide else numpy.float32)
    return result if double else result.astype(np.float32)


def sample(array: Array) -> Array:
    """Return an empty array of the same library, device and type, which keeps none of the memory alive."""
    kind = library(array)
    if kind == "torch":
        return array.new_empty(0)
    return np.empty(0, array.dtype) if kind == "numpy" else array[:0]


def matching(array: Array, target: Array) -> Array:
    """Return an array in the library and on the device of another; NumPy goes anywhere."""
    kind = library(target)
    if library(array) == kind:
        return array.to(target.device) if kind == "torch" else array
    if kind == "numpy":
        return to_numpy(array)
    if library(array) != "numpy":
        raise TypeError(
            f"Expected arrays of one library. Got {library(array)} and {kind}. Convert one of them."
        )
    if kind == "torch":
        return (
            sys.modules["torch"]
            .from_numpy(np.ascontiguousarray(array))
            .reshape(array.shape)
            .to(target.device)
        )
    return sys.modules["jax"].numpy.asarray(array)


def repeat(step: Callable[[Any], Any], times: int, start: tuple[Array, ...]) -> tuple[Array, ...]:
    """Apply a function to its own result so many times; JAX compiles it once, and not as often as that."""
    if library(start[0]) == "jax":
        return sys.modules["jax"].lax.fori_loop(0, times, lambda _, state: step(state), start)
    for _ in range(times):
        start = step(start)
    return start
