"""The inputs, labels and ids of one batch: a tuple, a mapping, a table, or anything that ``unpack`` opens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from demur.core import arrays

LABEL_NAMES = ("labels", "label", "targets", "target", "y")
ID_NAMES = ("ids", "id", "idx", "index")
_PARTS = ("inputs", "labels", "ids", "size", "axis")

Unpack = Callable[[Any], Any] | Mapping[str, Any]
"""How to open a batch: a function to (inputs, labels, ids, size), or the names of these in the batch."""


class BatchParts(NamedTuple):
    """What a batch holds, as the loader gave it; labels and ids are None where it has none."""

    inputs: Any
    labels: Any
    ids: Any
    size: int
    opened: bool = False
    """Whether ``unpack`` opened the batch: then its rows may be on any axis, or on none."""


def split_batch(given: Any, position: int, unpack: Unpack | None = None) -> BatchParts:
    """Return the parts of a batch that begins at this position of the data set."""
    if unpack is not None:
        found = _open_by_names(given, unpack) if isinstance(unpack, Mapping) else _open_by_call(given, unpack)
    elif isinstance(given, Mapping):
        found = _split_mapping(given)
    elif is_table(given):
        found = _split_table(given, position)
    else:
        found = _split_sequence(given, position)
    return found


def is_table(given: Any) -> bool:
    """Tell whether this is a DataFrame of pandas or polars, or one with their methods."""
    return hasattr(given, "columns") and hasattr(given, "to_numpy") and hasattr(given, "drop")


def count_rows(inputs: Any) -> int:
    """Return how many inputs there are on the first axis; sparse matrices have no length."""
    return inputs.shape[0] if hasattr(inputs, "shape") else len(inputs)


def pop_first(rest: dict[Any, Any], names: tuple[str, ...]) -> Any:
    """Remove and return the first entry with one of these names; None if there is none."""
    return next((rest.pop(name) for name in names if name in rest), None)


def _split_mapping(given: Mapping[Any, Any]) -> BatchParts:
    rest = dict(given)
    labels, ids = pop_first(rest, LABEL_NAMES), pop_first(rest, ID_NAMES)
    if not rest:
        raise ValueError(f"A batch must have inputs. Got only {', '.join(map(repr, given))}.")
    return BatchParts(rest, labels, ids, count_rows(next(iter(rest.values()))))


def _split_table(table: Any, position: int) -> BatchParts:
    """Take columns of labels and ids out of a table; without a column of ids, its index may be one."""
    sides: list[Any] = []
    for names in (LABEL_NAMES, ID_NAMES):
        name = next((each for each in names if each in list(table.columns)), None)
        sides.append(None if name is None else table[name].to_numpy())
        if name is not None:
            table = table.drop(columns=[name]) if hasattr(table, "iloc") else table.drop(name)
    labels, ids = sides
    if table.shape[1] == 0:
        raise ValueError("A table must have columns of inputs. Got only labels and ids.")
    return BatchParts(table, labels, _read_index(table, position) if ids is None else ids, count_rows(table))


def _read_index(table: Any, position: int) -> np.ndarray | None:
    """Return the index of a pandas table; None where it only counts the rows, or there is none."""
    if not hasattr(table, "iloc"):
        return None
    index = table.index
    if index.__class__.__name__ == "RangeIndex" and index.step == 1 and index.start in (0, position):
        return None
    return index.to_numpy()


def _split_sequence(given: Any, position: int) -> BatchParts:
    parts = list(given) if isinstance(given, tuple | list) else [given]
    if not 1 <= len(parts) <= 3:
        raise ValueError(
            "A batch must be inputs, (inputs, labels) or (inputs, labels, ids). "
            f"Got {len(parts)} parts. Give models with several inputs a mapping."
        )
    inputs, labels, ids = (*parts, None, None)[:3]
    if hasattr(inputs, "num_graphs") or not (hasattr(inputs, "__len__") or hasattr(inputs, "shape")):
        raise TypeError(
            f"A batch must have an array of inputs. Got {type(inputs).__name__}. Say where its parts are: "
            "unpack={'labels': 'y', 'size': 'num_graphs'} for a batch of graphs, say."
        )
    if ids is None and is_table(inputs):
        ids = _read_index(inputs, position)
    return BatchParts(inputs, labels, ids, count_rows(inputs))


def check_unpack(unpack: Any) -> None:
    """Raise unless this says how to open a batch."""
    if unpack is None or callable(unpack):
        return
    if not isinstance(unpack, Mapping):
        raise TypeError(
            "unpack must be a function from a batch to (inputs, labels, ids, size), or a mapping such as "
            f"{{'labels': 'y', 'size': 'num_graphs'}}. Got {type(unpack).__name__}."
        )
    if others := [name for name in unpack if name not in _PARTS]:
        raise ValueError(f"unpack must name {', '.join(_PARTS)}. Got {others[0]!r}.")
    if "size" in unpack and "axis" in unpack:
        raise ValueError("unpack must give size or axis. Got both.")


def _open_by_call(given: Any, unpack: Callable[[Any], Any]) -> BatchParts:
    found = unpack(given)
    if not isinstance(found, tuple) or len(found) != 4:
        came = f"{len(found)} parts" if isinstance(found, tuple) else type(found).__name__
        raise ValueError(
            f"unpack must return (inputs, labels, ids, size), with None for what is not there. Got {came}."
        )
    return BatchParts(*found[:3], _check_size(found[3]), opened=True)


def _open_by_names(given: Any, unpack: Mapping[str, Any]) -> BatchParts:
    inputs = _get_part(given, unpack["inputs"]) if unpack.get("inputs") is not None else given
    labels, ids = (
        None if unpack.get(name) is None else _get_part(given, unpack[name]) for name in ("labels", "ids")
    )
    if unpack.get("size") is not None:
        size = _get_part(given, unpack["size"])
    else:
        axis = unpack.get("axis", 0)
        shape = getattr(inputs, "shape", None)
        if shape is None:
            raise ValueError(
                "unpack must give size, the name of the number of inputs in a batch, unless the inputs are "
                f"one array. Got inputs of type {type(inputs).__name__}."
            )
        if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
            raise ValueError(f"unpack must give an axis of the inputs, shape {tuple(shape)}. Got {axis!r}.")
        size = shape[axis]
    return BatchParts(inputs, labels, ids, _check_size(size), opened=True)


def _get_part(given: Any, name: Any) -> Any:
    """Return an entry of a mapping or of a tuple, or an attribute of any other object."""
    if isinstance(given, Mapping | tuple | list):
        try:
            return given[name]  # pyright: ignore[reportArgumentType, reportCallIssue]
        except (KeyError, IndexError, TypeError):
            held = f"{len(given)} parts" if not isinstance(given, Mapping) else ", ".join(map(repr, given))
            raise ValueError(
                f"unpack must name what each batch has. Got {name!r}, and a batch of {held}."
            ) from None
    if not isinstance(name, str) or not hasattr(given, name):
        raise ValueError(
            f"unpack must name what each batch has. Got {name!r}, which {type(given).__name__} has not."
        )
    return getattr(given, name)


def _check_size(size: Any) -> int:
    """Return the number of inputs of a batch as an integer."""
    try:
        found = int(size)
    except (TypeError, ValueError):
        found = -1
    if found < 1:
        raise ValueError(f"unpack must give a size of at least 1 input. Got {size!r}.")
    return found


def as_column(name: str, values: Any, size: int, *, axes: int = 1) -> np.ndarray | None:
    """Return labels or ids as an array, one per input; with 2 axes also one row per input."""
    if values is None:
        return None
    try:
        # A column of a table is taken as it is: as an array of numbers, it would be one of floats.
        column = values.to_numpy() if hasattr(values, "to_numpy") else values
        found = arrays.to_numpy(arrays.as_array(column))
    except TypeError:
        found = np.asarray(values)
    if found.dtype == object:  # numbers stay numbers, so that they equal predicted classes
        natural = np.asarray(found.tolist())
        found = (
            natural if natural.dtype.kind in "fiub" and natural.shape == found.shape else found.astype(str)
        )
    elif found.dtype.kind not in "fiubU":
        found = found.astype(str)  # dates, say
    if found.shape[:1] != (size,) or not 1 <= found.ndim <= axes:
        raise ValueError(f"{name} must be one for each input, shape ({size},). Got {found.shape}.")
    return found
