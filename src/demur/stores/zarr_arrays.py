"""Arrays in zarr stores (version 3), read so that what is missing is an error.

zarr reads a chunk that is not there as the fill value, zeros as a rule, without a word: a copy that broke
off halfway would be scored as if it were whole. Here every chunk has to be there. Write chunks of nothing but
zeros too: ``config={"write_empty_chunks": True}``, as `demur.stores` itself does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from demur.reading import check_memory, count_bytes, parse_json
from demur.stores.column_names import ID_NAMES, LABEL_NAMES
from demur.stores.errors import StoreError
from demur.stores.mapped_arrays import FileArray, check_numbers
from demur.stores.spool import Part, Spool
from demur.stores.urls import explain_remote_errors, find_url, open_file_system, show_place

if TYPE_CHECKING:
    import zarr
    from zarr.abc.store import Store

ZARR_SUFFIX = ".zarr"
ATTRIBUTES = "demur"
"""The entry of a group's attributes that says what `demur.stores` has written there."""
_METADATA = "zarr.json"
_WIDE = ("predictions", "mean", "variance")
"""Arrays that hold predictions."""
_CODECS = ("bytes", "blosc", "crc32c", "gzip", "sharding_indexed", "transpose", "vlen-utf8", "zstd")
"""Codecs of zarr itself; others may be any package's code."""


def is_zarr(path: Path) -> bool:
    """Tell whether this is a zarr store: by its suffix, or a folder with the metadata of one."""
    return path.suffix.lower() == ZARR_SUFFIX or (path.is_dir() and (path / _METADATA).is_file())


def open_zarr_array(path: Path, name: str | None, spool: Spool) -> ZarrArray | FileArray:
    """Return an array of predictions in a store, read a row of chunks at a time.

    Parameters
    ----------
    path
        The store.
    name
        Which of its arrays; None: the store itself, where it is one array, else ``predictions``, or the only
        array that has at least two axes.
    spool
        Where chunks that hold too many inputs to be kept are unpacked to.
    """
    group = open_node(path)
    label, precision = show_place(path), ""
    if name is None and not is_group(group):
        array = group
    else:
        if not is_group(group):
            raise StoreError(f"{label}: expected no name, got ':{name}': it holds one array")
        check_complete(group, label)
        facts = read_facts(group)
        precision = str(facts.get("precision", ""))
        if facts and facts.get("holds") != "predictions":
            raise StoreError(f"{label}: expected predictions, got a store of {facts.get('holds')}")
        name = _choose_name(group, label) if name is None else name
        array = open_member(group, name, label)
        label = f"{label}:{name}"
        if name == "predictions" and "inputs" in facts and array.shape[1:2] != (facts["inputs"],):
            raise StoreError(
                f"{label}: expected the {facts['inputs']} inputs that the store was written with, got shape "
                f"{array.shape}: copy or write the store again"
            )
    found = ZarrArray(label, array, precision)
    return found if spool.hold(found.held_bytes) else _unpack(found, spool)


class ZarrArray:
    """An array in a store, whose rows of chunks are read as they are needed.

    Attributes
    ----------
    label
        What messages call it.
    shape, dtype, precision
        As `StoredArray` has them.
    """

    def __init__(self, label: str, array: zarr.Array, precision: str = "") -> None:
        self.label, self._array = label, array
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.dtype = np.dtype(array.dtype)
        self.precision = precision or self.dtype.name
        check_numbers(label, self.dtype, self.shape)
        self._check_chunks()
        self._held: dict[int, np.ndarray] = {}

    @property
    def chunks(self) -> tuple[int, ...]:
        """How long chunks are on each axis, no longer than the array."""
        return tuple(min(pair) for pair in zip(self._array.chunks, self.shape, strict=True))

    @property
    def held_bytes(self) -> int:
        """Bytes of a row of chunks; inputs are taken to be on the first axis, or the second of three."""
        sizes = list(self.shape)
        axis = 1 if len(sizes) > 2 else 0
        sizes[axis] = self.chunks[axis]
        return count_bytes(tuple(sizes), self.dtype)

    def map(self) -> np.ndarray:
        """Read all of it."""
        with _explain(self.label):
            check_memory(count_bytes(self.shape, self.dtype))
            return np.asarray(self._array[...])

    def read_along(self, axis: int, start: int, stop: int) -> tuple[np.ndarray, int]:
        """Read the chunks that hold the entries from `start` to `stop` of an axis, and all of other axes.

        Returns
        -------
        values, first
            The values of these chunks, and the entry that they begin with. They are kept until others are
            read, since the next call mostly wants the rest of the last one.
        """
        length = self.chunks[axis]
        rows = range(start // length, -(-stop // length))
        self._held = {row: values for row, values in self._held.items() if row in rows}
        for row in rows:
            if row not in self._held:
                self._held[row] = self._read_row(axis, row * length, length)
        parts = [self._held[row] for row in rows]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=axis), rows.start * length

    def read_parts(self) -> Iterator[Part]:
        """Yield all chunks, each with its place."""
        grid = [range(0, size, length) for size, length in zip(self.shape, self.chunks, strict=True)]
        for place in np.ndindex(*(len(each) for each in grid)):
            starts = [each[index] for each, index in zip(grid, place, strict=True)]
            part = tuple(slice(a, a + length) for a, length in zip(starts, self.chunks, strict=True))
            with _explain(self.label):
                yield part, np.asarray(self._array[part])

    def _read_row(self, axis: int, start: int, length: int) -> np.ndarray:
        place = (slice(None),) * axis + (slice(start, start + length),)
        with _explain(self.label):
            return np.asarray(self._array[place])

    def _check_chunks(self) -> None:
        """Raise unless a chunk fits into memory: a damaged or hostile file may claim any size."""
        sizes = getattr(self._array, "shards", None) or self._array.chunks
        with _explain(self.label):
            check_memory(count_bytes(tuple(sizes), self.dtype))


class ZarrColumn:
    """A column of a store, one value or one map per input, of which slices are read.

    Attributes
    ----------
    label
        What messages call it.
    shape
        As in NumPy.
    """

    def __init__(self, label: str, array: zarr.Array) -> None:
        self.label, self._array = label, array
        self.shape: tuple[int, ...] = tuple(array.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, place: int | slice) -> np.ndarray:
        with _explain(self.label):
            found = np.asarray(self._array[place])
        return np.array(found.tolist(), dtype=str) if found.dtype.kind in "OT" else found


def open_columns(path: Path, named: Sequence[str] = ()) -> dict[str, ZarrColumn]:
    """Return the columns that a store has beside its predictions.

    Those of a store that demur wrote; of others, ids and labels by their names, and those that are named.
    """
    group, label = open_node(path), show_place(path)
    if not is_group(group):
        return {}
    known = {*ID_NAMES, *LABEL_NAMES}
    own = bool(read_facts(group))
    names = [
        name
        for name in list_arrays(group, label)
        if name not in _WIDE and (own or name.lower() in known or name in named)
    ]
    return {name: ZarrColumn(f"{label}:{name}", open_member(group, name, label)) for name in names}


def read_names(path: Path) -> tuple[str, ...] | None:
    """Return the names of the classes, where a store says them."""
    group = open_node(path)
    names = read_facts(group).get("names") if is_group(group) else None
    return tuple(map(str, names)) if isinstance(names, list) else None


def open_node(path: Path) -> Any:
    """Open the array or group at a path or URL, for reading; a `StoreError` where there is none."""
    label = show_place(path)
    with _explain(label):
        import zarr

        store = make_store(path, read_only=True)
        _check_metadata(store, "", label)
        return zarr.open(store, mode="r", zarr_format=3)


def make_store(path: Path, *, read_only: bool) -> Any:
    """Return zarr's view of a folder or a URL; for reading, a chunk that is missing is an error in it."""
    from zarr.storage import FsspecStore, LocalStore

    from demur.stores.strict_zarr import StrictStore

    url = find_url(path)
    files, inside = (None, str(path)) if url is None else open_file_system(url)
    if files is None or "file" in files.protocol:  # fsspec makes no folders there
        store: Store = LocalStore(inside, read_only=read_only)
    else:
        from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

        # Through threads, since sessions that zarr's own loop opens are never closed.
        wrapped = AsyncFileSystemWrapper(files, asynchronous=True)
        store = FsspecStore(wrapped, path=inside, read_only=read_only)
    # zarr looks at a chunk before it is written for the first time.
    return StrictStore(store) if read_only else store


def is_group(node: Any) -> bool:
    """Tell whether an open node is a group of arrays."""
    return not hasattr(node, "shape")


def open_member(group: Any, name: str, label: str) -> zarr.Array:
    """Open one array of a group."""
    with _explain(f"{label}:{name}"):
        _check_metadata(group.store, name, f"{label}:{name}")
        found = group[name]
    if is_group(found):
        raise StoreError(f"{label}:{name}: expected an array, got a group")
    return found


def read_facts(group: Any) -> dict[str, Any]:
    """Return what `demur.stores` says of a store that it has written; empty of others."""
    facts = dict(group.attrs).get(ATTRIBUTES)
    return facts if isinstance(facts, dict) else {}


def check_complete(group: Any, label: str) -> None:
    """Raise a `StoreError` where writing a store of demur's own was interrupted."""
    facts = read_facts(group)
    if facts and facts.get("complete") is not True:
        raise StoreError(
            f"{label}: expected a complete store, got one whose writing was interrupted: run what writes it "
            "again, and it resumes"
        )


def list_arrays(group: Any, label: str) -> list[str]:
    """Return the names of the arrays in a group, as far as the place can list them."""
    facts = read_facts(group)
    if isinstance(names := facts.get("arrays"), list):
        return [str(name) for name in names]
    with _explain(label):
        return sorted(name for name, _ in group.arrays())


def _choose_name(group: Any, label: str) -> str:
    names = list_arrays(group, label)
    if "predictions" in names:
        return "predictions"
    with _explain(label):
        wide = [name for name in names if group[name].ndim > 1]
    if len(wide) != 1:
        came = ", ".join(names) or "none"
        raise StoreError(
            f"{label}: expected an array named predictions, or one array, got {came}: name it, as in "
            f"{label}:NAME"
        )
    return wide[0]


def _unpack(array: ZarrArray, spool: Spool) -> FileArray:
    """Return an array with chunks of very many inputs as one in a file: each chunk is decoded once."""
    size = count_bytes(array.shape, array.dtype)
    spool.check_room(array.label, size, size)
    file = spool.add_array(array.shape, array.dtype, array.read_parts())
    # Here bfloat16 is as float32; in a FileArray it would be the upper halves of it.
    coding = array.precision if array.precision != "bfloat16" else "float16"
    return FileArray(array.label, file, array.shape, array.dtype, offset=file.tell(), precision=coding)


def _check_metadata(store: Any, name: str, label: str) -> None:
    """Raise unless a node's metadata says what demur reads, before any code looks at its chunks."""
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.sync import sync

    key = f"{name}/{_METADATA}" if name else _METADATA
    found = sync(store.get(key, default_buffer_prototype()))
    if found is None:
        old = any(
            sync(store.get(f"{name}/{each}".lstrip("/"), default_buffer_prototype())) is not None
            for each in (".zarray", ".zgroup")
        )
        came = "one of version 2: copy it with zarr" if old else "nothing there"
        raise StoreError(f"{label}: expected a zarr store of version 3, got {came}")
    said = parse_json(found.to_bytes())
    if not isinstance(said, Mapping) or said.get("node_type") not in ("array", "group"):
        raise StoreError(f"{label}: expected a zarr store of version 3, got other metadata")
    if said["node_type"] == "array":
        shape = said.get("shape")
        if not isinstance(shape, list) or any(type(length) is not int or length < 0 for length in shape):
            raise StoreError(f"{label}: expected the shape of an array, got {shape!r}")
        _check_codecs(said.get("codecs"), label)


def _check_codecs(codecs: Any, label: str) -> None:
    for codec in codecs if isinstance(codecs, list) else [None]:
        name = codec.get("name") if isinstance(codec, Mapping) else codec
        if name not in _CODECS:
            raise StoreError(
                f"{label}: expected codecs {', '.join(_CODECS)}, got {name!r}: write it with these"
            )
        inner = codec.get("configuration") if isinstance(codec, Mapping) else None
        if name == "sharding_indexed" and isinstance(inner, Mapping):
            _check_codecs(inner.get("codecs"), label)


@contextlib.contextmanager
def _explain(label: str) -> Iterator[None]:
    """Raise a `StoreError` of one line where zarr fails, which it does in many ways."""
    try:
        with explain_remote_errors(label):
            yield
    except MemoryError as error:
        raise StoreError(f"{label}: expected as much memory as it takes, got too little") from error
