"""Files at URLs: whatever fsspec opens, as s3://, gs://, https:// and memory://.

Files other than zarr stores are copied to or from a temporary local file: then they are read and written as
local ones are. Credentials, endpoints and other settings come as fsspec finds them, from the environment or
its configuration files.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from demur.stores.errors import StoreError

# At least two letters: one is a drive of Windows. A Path makes one slash of two.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.+)", re.DOTALL)


def find_url(place: str | os.PathLike[str]) -> str | None:
    """Return the URL that is meant, also by a `Path` made of it; None for a local path.

    Examples
    --------
    >>> find_url("s3://bucket/scores.csv"), find_url(Path("s3://bucket/scores.csv"))
    ('s3://bucket/scores.csv', 's3://bucket/scores.csv')
    >>> find_url("run/scores.csv") is None
    True
    """
    written = os.fspath(place)
    found = _URL.fullmatch(written)
    if found is None or os.path.exists(written):
        return None
    return f"{found[1]}://{'/' if found[1] == 'file' else ''}{found[2]}"


def show_place(place: str | os.PathLike[str]) -> str:
    """Return what messages call a path or a URL."""
    return find_url(place) or os.fspath(place)


def is_same_place(left: Path, right: Path) -> bool:
    """Tell whether two paths, or URLs, are of the same file or folder that exists."""
    urls = find_url(left), find_url(right)
    if None not in urls:
        return urls[0] == urls[1]
    return left.exists() and right.exists() and left.samefile(right)


def open_file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it; a `StoreError` where it cannot be had."""
    with explain_remote_errors(url):
        import fsspec

        return fsspec.url_to_fs(url)


@contextlib.contextmanager
def explain_remote_errors(url: str, doing: str = "read") -> Iterator[None]:
    """Raise a `StoreError` of one line for whatever a file system or a network says of a URL."""
    try:
        yield
    except StoreError as error:
        if str(error).startswith(url):
            raise
        raise StoreError(f"{url}: {error}") from error
    except FileNotFoundError as error:
        raise StoreError(f"{url}: cannot be {doing}: No such file or directory") from error
    except ImportError as error:
        missing = next(iter(re.findall(r"[Ii]nstall (\w+)", str(error))), error.name or "its package")
        how = "'demur[cluster]'" if missing in ("fsspec", "zarr") else missing
        raise StoreError(
            f"{url}: expected {missing} to be installed, found none: pip install {how}"
        ) from error
    except Exception as error:  # each service has errors of its own
        said = " ".join(str(error).split()) or type(error).__name__
        raise StoreError(f"{url}: cannot be {doing}: {said[:300]}") from error


def exists_at(url: str) -> bool:
    """Tell whether there is a file, or a folder, at a URL."""
    files, path = open_file_system(url)
    with explain_remote_errors(url):
        return bool(files.exists(path))


def list_matches(url: str) -> list[str]:
    """Return the URLs that match a glob."""
    files, path = open_file_system(url)
    with explain_remote_errors(url):
        return [files.unstrip_protocol(each) for each in files.glob(path)]


def copy_to_folder(url: str, folder: Path, number: int) -> Path:
    """Copy a file into a folder under a name that keeps its own; return the copy."""
    files, path = open_file_system(url)
    target = folder / f"{number}-{_name_file(url)}"
    with explain_remote_errors(url):
        if files.isdir(path):
            raise StoreError(f"{url}: expected a file, got a directory: give its files, as '{url}/*.npy'")
        files.get_file(path, os.fspath(target))
    return target


@contextlib.contextmanager
def fetch_file(url: str) -> Iterator[Path]:
    """Yield a temporary local copy of a file; errors about the copy speak of the URL."""
    with tempfile.TemporaryDirectory(prefix=".demur-") as folder:
        copy = copy_to_folder(url, Path(folder), 0)
        with blame_url(url, copy):
            yield copy


@contextlib.contextmanager
def store_file(url: str) -> Iterator[Path]:
    """Yield a temporary local path to write to; what stands there at the end is copied to the URL."""
    files, path = open_file_system(url)
    with tempfile.TemporaryDirectory(prefix=".demur-") as folder:
        copy = Path(folder) / _name_file(url)
        with blame_url(url, copy):
            yield copy
        with explain_remote_errors(url, "written"):
            files.put_file(os.fspath(copy), path)


@contextlib.contextmanager
def blame_url(url: str, copy: Path) -> Iterator[None]:
    """Let errors about a local copy speak of its URL."""
    try:
        yield
    except StoreError as error:
        raise type(error)(str(error).replace(os.fspath(copy), url)) from error


def _name_file(url: str) -> str:
    """Return the name of a file, without what follows it in the URL."""
    return re.split(r"[?#]", url)[0].rstrip("/").rpartition("/")[2] or "file"
