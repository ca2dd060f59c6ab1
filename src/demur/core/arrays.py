"""Arrays of NumPy, PyTorch and JAX: where one comes from, and how it gets to the processor and back.

No library is imported here that the caller has not imported already, but where a file asks for one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from demur.core.table_alignment import align_tables

if TYPE_CHECKING:
    import jax
    import torch

Array = Any


class TableLike(Protocol):
    """What tables and columns of pandas and polars have in common."""

    def to_numpy(self) -> Any:
        """Return the numbers as a NumPy array."""
        ...


ArrayLike: TypeAlias = "np.ndarray | torch.Tensor | jax.Array | TableLike | Sequence[Any] | float"
"""What users may give as an array: see ``as_array``."""

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
        f"Expected an array of NumPy, PyTorch or JAX. Got {type(array).__name__}. {_advise_on(array)}"
    )


def _advise_on(argument: object) -> str:
    """Return how an array is got from what is none."""
    if isinstance(argument, (str, bytes, os.PathLike)):
        return "Read the file first, for instance with numpy.load."
    if hasattr(argument, "epistemic"):
        return "Pass one of its parts, as .total or .epistemic."
    if isinstance(argument, Mapping):
        return "If it holds one array per member, give list(members.values())."
    if isinstance(argument, Iterator):
        return "Give list(members), or pass one member at a time to demur.Moments."
    return "Convert it first, for instance with numpy.asarray."


def as_array(argument: object) -> Array:
    """Return an array as it is; lists of numbers or arrays, and tables, as an array.

    Lists of arrays are stacked in their own library. Tables are what has ``to_numpy``, as pandas and polars
    have.
    """
    if argument.__class__ is np.ndarray:
        return argument
    if isinstance(argument, np.ndarray):
        return _without_mask(argument)
    if isinstance(argument, (int, float)):
        return np.asarray(argument)
    if isinstance(argument, (list, tuple)):
        return _stack(argument)
    if hasattr(argument, "to_numpy"):
        return _read_table(argument)
    library(argument)
    return argument


def _without_mask(array: np.ndarray) -> np.ndarray:
    """Return the numbers of a subclass of NumPy's array; raise if some of them are masked."""
    if isinstance(array, np.ma.MaskedArray):
        masked = int(np.ma.count_masked(array))
        if masked:
            raise ValueError(
                f"Expected an array without a mask. Got one that masks {masked} of {array.size} numbers. "
                "Drop these inputs, or fill them with array.filled(...) and give them weight 0."
            )
        return np.asarray(array.data)
    return np.asarray(array) if isinstance(array, np.matrix) else array


def _read_table(table: Any) -> np.ndarray:
    """Return what a table or column of pandas, polars or the like holds; of tables, only numbers."""
    array = _without_mask(np.asarray(table.to_numpy()))
    if array.dtype != object:
        return array
    try:  # columns of several types, or with missing numbers
        return np.asarray(table.to_numpy(dtype=float, na_value=np.nan))
    except (TypeError, ValueError):
        if array.ndim < 2:
            return array
        raise TypeError(
            f"Expected numbers. Got a {type(table).__name__} that also holds something else"
            f"{_name_odd_columns(table)}. Leave out columns such as names and ids."
        ) from None


def _name_odd_columns(table: Any) -> str:
    """Return which columns of a table, as of pandas, are no numbers; nothing where it does not tell."""
    odd = []
    for name in getattr(table, "columns", ()):
        try:
            np.asarray(table[name].to_numpy(), dtype=float)
        except (TypeError, ValueError):
            odd.append(repr(name))
    return f", in {', '.join(odd[:3])}{', ...' if len(odd) > 3 else ''}" if odd else ""


def _stack(items: list[Any] | tuple[Any, ...]) -> Array:
    """Return (nested) lists of numbers as a NumPy array, and lists of arrays stacked in their library."""
    first: Any = items
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    if isinstance(first, (list, tuple, int, float, complex, str, bytes, np.generic)) or first is None:
        try:
            return np.asarray(items)
        except ValueError:
            raise ValueError(f"Expected rows of equal length. Got {_find_ragged(items)}.") from None
    parts = [as_array(item) for item in align_tables(items)[0]]
    shapes = [tuple(part.shape) for part in parts]
    odd = next((k for k, shape in enumerate(shapes) if shape != shapes[0]), None)
    if odd is not None:
        raise ValueError(
            "Expected arrays of one shape, one per member. "
            f"Got shape {shapes[0]} at 0 and {shapes[odd]} at {odd}. Give every member the same inputs."
        )
    leader = next((part for part in parts if library(part) != "numpy"), parts[0])
    xp = namespace(leader)
    parts = [matching(part, leader) for part in parts]
    if len({part.dtype for part in parts}) > 1:
        kind = xp.result_type(*parts)
        parts = [xp.astype(part, kind) for part in parts]
    return xp.stack(parts)


def _find_ragged(items: Any) -> str:
    """Return where nested lists, counted from the outermost, stop being of one length."""
    rows: list[tuple[list[int], Any]] = [([], items)]
    while True:
        first = rows[0][1]
        nested = isinstance(first, (list, tuple))
        for at, row in rows:
            if isinstance(row, (list, tuple)) != nested:
                return f"lists and numbers side by side, at {at}"
            if nested and len(row) != len(first):
                return f"a list of {len(first)} and, at {at}, one of {len(row)}"
        if not nested:
            return f"a nested list of {type(first).__name__}"
        rows = [([*at, k], each) for at, row in rows for k, each in enumerate(row)]
        if not rows:
            return "empty lists"


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


def empty_of(name: str) -> Array:
    """Return an empty array of the library of that name, or of NumPy where that cannot be imported."""
    try:
        if name == "torch":
            import torch

            return torch.empty(0)
        if name == "jax":
            import jax

            return jax.numpy.empty(0)
    except ImportError:
        pass
    return np.empty(0)


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
