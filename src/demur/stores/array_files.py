"""Files of arrays: .npy, .npz, .safetensors, .pt, .zarr, and tables of numbers. No code in a file is run."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np

from demur.reading import check_entry_size, count_bytes, list_entries, parse_json, read_array_header
from demur.stores.column_names import refuse_scores
from demur.stores.csv_files import read_csv_blocks
from demur.stores.errors import StoreError
from demur.stores.mapped_arrays import FileArray, StoredArray, TensorArray
from demur.stores.parquet_files import count_parquet_bytes, read_parquet_blocks
from demur.stores.paths import NAMED_SUFFIXES, open_binary
from demur.stores.spool import Spool
from demur.stores.table_columns import TableColumns
from demur.stores.zarr_arrays import is_zarr, open_zarr_array

_ARRAY_SUFFIXES = (".npy", ".npz", ".safetensors", ".pt", ".pth", ".csv", ".parquet", ".zarr")
_MOST_EXPANDED_BYTES = 256 << 20
"""A tensor may repeat the numbers in its file up to so many bytes."""
_SAFETENSORS_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
}


def open_array(path: Path, name: str | None, spool: Spool, table: TableColumns | None = None) -> StoredArray:
    """Find the array that a file holds.

    Parameters
    ----------
    path
        The file; its suffix says the format.
    name
        Which of its arrays, where it can hold several; None where it holds one.
    spool
        Where a format that cannot be mapped (.csv, .parquet, compressed .npz) is unpacked to.
    table
        Collects what a .csv or .parquet has beside the predictions.

    Raises
    ------
    StoreError
        The file is missing, foreign, truncated, or holds no array of numbers.
    """
    suffix = path.suffix.lower()
    if is_zarr(path):
        return open_zarr_array(path, name, spool)
    if path.is_dir():
        raise StoreError(f"{path}: expected a file, got a directory: give its files, as '{path}/*.npy'")
    if suffix in _READERS and name is None:
        return _open_registered(path, spool)
    if suffix not in _ARRAY_SUFFIXES:
        raise StoreError(
            f"{path}: expected a file that ends in {', '.join(_ARRAY_SUFFIXES)}, got "
            f"{repr(suffix) if suffix else 'no suffix'}: convert or rename it"
        )
    if name is not None and suffix not in NAMED_SUFFIXES:
        raise StoreError(f"{path}: expected no name, got ':{name}': a {suffix} file holds one array")
    if suffix == ".npz":
        return _open_npz(path, name, spool)
    if suffix == ".safetensors":
        return _open_safetensors(path, name)
    if suffix in (".pt", ".pth"):
        return _open_pt(path, name)
    with open_binary(path) as file:
        if suffix == ".npy":
            return _open_npy(path, file)
    if suffix == ".parquet":
        spool.check_room(str(path), count_parquet_bytes(path), path.stat().st_size)
        return spool.add_rows(str(path), read_parquet_blocks(path, table))
    # Text rarely has more digits than float32, so its probabilities need not sum to 1 more exactly.
    return spool.add_rows(str(path), read_csv_blocks(path, table), precision="float32")


_READERS: dict[str, Callable[[Path], Any]] = {}
"""Functions of users that read formats of their own, by suffix."""


def register_reader(suffix: str, read: Callable[[Path], Any]) -> None:
    """Read files that end in a suffix with a function of your own.

    Parameters
    ----------
    suffix
        With its dot, as ".dat"; not one of the formats that demur reads itself.
    read
        From a path to an array: (inputs, classes) of one member, or (members, inputs, classes). What it
        returns is copied to a temporary file, so that memory does not grow with the number of files.

    Examples
    --------
    >>> from demur.stores import register_reader
    >>> register_reader(".dat", lambda path: np.loadtxt(path))
    """
    if not isinstance(suffix, str) or not suffix.startswith(".") or len(suffix) < 2:
        raise ValueError(f"suffix must be a text that begins with a dot, as '.dat'. Got {suffix!r}.")
    if suffix.lower() in _ARRAY_SUFFIXES:
        raise ValueError(f"suffix must be one that demur does not read itself. Got {suffix!r}. Use another.")
    if not callable(read):
        raise TypeError(f"read must be a function from a path to an array. Got {type(read).__name__}.")
    _READERS[suffix.lower()] = read


def _open_registered(path: Path, spool: Spool) -> FileArray:
    """Return the array that a user's reader makes of a file, unpacked as a compressed one is."""
    open_binary(path).close()
    try:
        array, buffer = np.asarray(_READERS[path.suffix.lower()](path)), io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
    except Exception as error:  # whatever the reader says of a file that it does not understand
        raise StoreError(f"{path}: the reader registered for {path.suffix} failed: {error}") from error
    buffer.seek(0)
    unpacked = spool.add_bytes(buffer)
    return _find_npy(str(path), unpacked, unpacked)


def _open_npy(path: Path, file: IO[bytes]) -> FileArray:
    array = _find_npy(str(path), path, file)
    size = file.seek(0, 2)
    if size > array.end:
        raise StoreError(
            f"{path}: expected {array.end} bytes, as its header says, got {size}: "
            "save one array in a file, or several with numpy.savez"
        )
    return array


def _find_npy(label: str, path: Path | IO[bytes], file: IO[bytes]) -> FileArray:
    """Return the array whose .npy header begins where `file` stands."""
    shape, fortran, dtype = _read_header(label, file)
    return FileArray(label, path, shape, dtype, fortran, file.tell())


def _read_header(label: str, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        return read_array_header(file)
    except ValueError as error:
        raise StoreError(f"{label}: expected a NumPy file, got {error}") from error


def _open_npz(path: Path, name: str | None, spool: Spool) -> FileArray:
    with open_binary(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                entries = list_entries(archive, others=True)
                if name is None:
                    refuse_scores(path, entries)
                chosen = _choose(path, name, entries)
                info, label = entries[chosen], f"{path}:{chosen}"
                if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
                    return _unpack(label, archive, info, spool)
                # A stored entry is the .npy file as it is, behind a header of its own:
                # 30 bytes, the last four of which count the bytes of a name and an extra field.
                file.seek(info.header_offset + 26)
                name_and_extra = np.frombuffer(file.read(4), "<u2").sum(dtype=int)
                begin = file.seek(info.header_offset + 30 + int(name_and_extra))
                array = _find_npy(label, path, file)
                _check_entry(label, info, array.end - begin)
                with archive.open(info) as member:  # read to its end, so that zipfile compares the checksum
                    while member.read(1 << 20):
                        pass
                return array
        except StoreError:
            raise
        except ValueError as error:
            raise StoreError(f"{path}: expected a NumPy archive, got {error}") from error
        except Exception as error:  # zipfile, and what unpacks for it, fail in many ways
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the system failed, as for want of room; bzip2's own have no number
            raise StoreError(
                f"{path}: expected a NumPy archive, got a damaged or foreign file ({error}): "
                "write it with numpy.savez"
            ) from error


def _unpack(label: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo, spool: Spool) -> FileArray:
    """Return an array that lies packed in an archive: unpacked, but no more than its header says."""
    with archive.open(info) as member:
        shape, fortran, dtype = _read_header(label, member)
        size = count_bytes(shape, dtype)
        _check_entry(label, info, member.tell() + size)
        spool.check_room(label, size, info.compress_size)
        unpacked = spool.add_bytes(member)
    return FileArray(label, unpacked, shape, dtype, fortran, unpacked.tell())


def _check_entry(label: str, info: zipfile.ZipInfo, expected: int) -> None:
    try:
        check_entry_size(info, expected)
    except ValueError as error:
        raise StoreError(f"{label}: expected {expected} bytes, got {error}") from error


def _open_safetensors(path: Path, name: str | None) -> FileArray:
    from safetensors import SafetensorError, safe_open

    with open_binary(path) as file:
        try:
            with safe_open(path, framework="numpy"):  # checks the header and every offset in it
                pass
        except SafetensorError as error:
            raise StoreError(
                f"{path}: expected a safetensors file, got a damaged or foreign one ({error}): write it again"
            ) from error
        size = int.from_bytes(file.read(8), "little")
        try:
            header: dict[str, Any] = parse_json(file.read(size))
        except ValueError as error:
            raise StoreError(f"{path}: expected each tensor once, got {error}: write it again") from error
    header.pop("__metadata__", None)
    entry = header[_choose(path, name, header)]
    label = str(path) if name is None else f"{path}:{name}"
    if entry["dtype"] not in _SAFETENSORS_DTYPES:
        raise StoreError(
            f"{label}: expected float16, bfloat16, float32, float64 or integers, "
            f"got {entry['dtype']}: convert it"
        )
    return FileArray(
        label,
        path,
        tuple(entry["shape"]),
        np.dtype(_SAFETENSORS_DTYPES[entry["dtype"]]),
        offset=8 + size + entry["data_offsets"][0],
        precision="bfloat16" if entry["dtype"] == "BF16" else "",
    )


def _open_pt(path: Path, name: str | None) -> TensorArray:
    try:
        import torch
    except ImportError as error:
        raise StoreError(
            f"{path}: expected PyTorch to be installed, found none: pip install 'demur[torch]'"
        ) from error
    _refuse_compressed(path)

    def load() -> torch.Tensor:
        try:
            # weights_only: no code of the file is ever run.
            held = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except pickle.UnpicklingError as error:
            raise StoreError(
                f"{path}: expected a plain tensor, got objects that could run code and were not "
                "loaded: write it with torch.save(tensor, path)"
            ) from error
        except Exception as error:  # a damaged file fails in PyTorch's own unpickler in many ways
            raise StoreError(
                f"{path}: expected a tensor of torch.save, got a damaged or foreign file, or the "
                "format before PyTorch 1.6: write it with torch.save(tensor, path)"
            ) from error
        if isinstance(held, dict):
            held = held[_choose(path, name, held)]
        elif name is not None:
            raise StoreError(f"{path}: expected no name, got ':{name}': it holds one tensor")
        if not isinstance(held, torch.Tensor):
            raise StoreError(
                f"{path}: expected a plain tensor, got {type(held).__name__}: "
                "write it with torch.save(tensor, path)"
            )
        if held.numel() * held.element_size() > max(_MOST_EXPANDED_BYTES, path.stat().st_size):
            raise StoreError(
                f"{path}: expected a tensor with all of its numbers in the file, got one of shape "
                f"{tuple(held.shape)} that repeats a few: write it with torch.save(tensor.contiguous(), path)"
            )
        return held

    return TensorArray(str(path) if name is None else f"{path}:{name}", load)


def _refuse_compressed(path: Path) -> None:
    """Raise a `StoreError` where a file of tensors is packed: PyTorch would unpack all of it."""
    with open_binary(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                packed = [info for info in archive.infolist() if info.compress_type != zipfile.ZIP_STORED]
        except Exception:  # what PyTorch says of such a file is told in one place, when it is loaded
            return
    if packed:
        raise StoreError(
            f"{path}: expected a tensor of torch.save, got a compressed archive: write it with "
            "torch.save(tensor, path)"
        )


def _choose(path: Path, name: str | None, names: Iterable[object]) -> Any:
    """Return the name of the array to take out of a file that holds several."""
    known = list(names)
    listed = ", ".join(str(each) for each in known[:8]) + (", ..." if len(known) > 8 else "")
    if name is not None:
        for each in known:
            if str(each) == name:  # keys of a .pt may be numbers
                return each
        raise StoreError(
            f"{path}: expected the name of an array in it, got '{name}': it has {listed or 'none'}"
        )
    if len(known) == 1:
        return known[0]
    if not known:
        raise StoreError(f"{path}: expected an array, got a file that holds none")
    raise StoreError(
        f"{path}: expected the name of one of its {len(known)} arrays ({listed}), got none: "
        f"write {path}:{known[0]}"
    )
