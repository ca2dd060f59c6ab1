"""Files that appear whole or not at all.

Each is written under a temporary name beside its own and renamed at the end. Readers see the old file or the
new one, never half of it. An error, an interruption (Ctrl-C) or a signal that the command line turns into
``SystemExit`` leaves the old file as it was, and no temporary one. Only a process that is killed outright
leaves a temporary file, whose name begins with a dot and ends in ``.tmp``. The next writer of the same file
removes it: at once if it runs on the same machine and the process is gone, and elsewhere, where nobody can
tell, once the temporary file has not changed for a day.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import platform
import re
import shutil
import stat
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_counter = itertools.count()
_NAME_KEPT = 50
"""Characters of a file's name that its temporary name keeps: file systems allow 255 bytes."""
_ENDING = re.compile(r"[0-9a-f]{8}-[0-9]+-[0-9]+\.tmp")
"""How temporary names end: machine, process, number."""
_SECONDS_UNTIL_ABANDONED = 24 * 3600


@contextlib.contextmanager
def write_file(path: str | os.PathLike[str], *, replace: bool = True) -> Iterator[Path]:
    """Yield a temporary path to write to; what stands there at the end becomes the file.

    For writers that want a name. The name has another suffix than the file: ``numpy.save`` and
    ``Figure.savefig`` look at it, so give them `open_file`, or name the format.

    Parameters
    ----------
    path
        The file. A symbolic link stays, and the file that it points to is written. A device or a pipe is
        written to directly.
    replace
        Replace an existing file. If false, one that exists at the end raises ``FileExistsError``.

    Notes
    -----
    A new file gets the permissions that the umask allows; one that is replaced keeps its own.
    """
    target = follow_link(Path(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if target.exists() and not target.is_file():
        yield target
        return
    temporary = name_temporary(target)
    try:
        with _blame(path, temporary):
            before = stat.S_IMODE(target.stat().st_mode) if target.is_file() else None
            _remove_leftovers(target)
            temporary.touch(mode=0o666, exist_ok=False)
            mode = stat.S_IMODE(temporary.stat().st_mode)
            if before is not None:
                mode = before
                # Not even for a moment may others read what they could not read before.
                os.chmod(temporary, before | stat.S_IWUSR)
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            if stat.S_IMODE(temporary.stat().st_mode) != mode:
                os.chmod(temporary, mode)
            if replace:
                os.replace(temporary, target)
            else:
                _rename_new(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def open_file(path: str | os.PathLike[str], *, replace: bool = True) -> Iterator[IO[bytes]]:
    """Yield a binary file, open for writing, that appears as `write_file` says once it is complete.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_file(f"{folder}/values.npy") as file:
    ...         np.save(file, np.arange(3))
    ...         before = os.path.exists(f"{folder}/values.npy")
    ...     before, np.load(f"{folder}/values.npy").tolist()
    (False, [0, 1, 2])
    """
    with write_file(path, replace=replace) as temporary, temporary.open("wb") as file:
        yield file


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write text in UTF-8, with the line ends that it has."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | os.PathLike[str], content: bytes | memoryview) -> None:
    """Write bytes."""
    with open_file(path) as file:
        file.write(content)


def copy_file(source: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Copy the content of a file."""
    with open_file(path) as file, open(source, "rb") as original:
        shutil.copyfileobj(original, file)


def follow_link(path: Path) -> Path:
    """Return the file that a link points to: it is written, and the link stays."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def name_temporary(target: Path) -> Path:
    """Return a hidden name beside the target that no other writer uses."""
    return target.with_name(f"{_temporary_prefix(target)}{os.getpid()}-{next(_counter)}.tmp")


def _temporary_prefix(target: Path) -> str:
    """Return how temporary names of a target begin on this machine: others may share the folder."""
    return f".{target.name[:_NAME_KEPT]}.{name_machine()}-"


def name_machine() -> str:
    """Return eight hexadecimal digits for this machine, in which its processes have their numbers.

    Containers have numbers of their own, and may share a folder and a host name.
    """
    try:
        numbered = os.readlink("/proc/self/ns/pid")
    except OSError:
        numbered = ""
    return f"{zlib.crc32(f'{platform.node()} {numbered}'.encode()):08x}"


def _remove_leftovers(target: Path) -> None:
    """Remove temporary files of the target whose processes are gone."""
    own, others = _temporary_prefix(target), f".{target.name[:_NAME_KEPT]}."
    try:
        names = os.listdir(target.parent)
    except OSError:  # Folders may be written to without being listed.
        return
    for name in names:
        if not name.startswith(others) or not _ENDING.fullmatch(name[len(others) :]):
            continue
        left = target.with_name(name)
        # Others may remove it too, or not allow it; then it stays, and nothing else changes.
        with contextlib.suppress(OSError):
            if name.startswith(own):
                abandoned = not is_running(int(name[len(own) :].partition("-")[0]))
            else:
                abandoned = time.time() - left.stat().st_mtime > _SECONDS_UNTIL_ABANDONED
            if abandoned:
                left.unlink()


def is_running(process: int) -> bool:
    """Return whether a process of this machine runs, as far as the system tells."""
    if os.name != "posix":  # Elsewhere the question itself may end the process.
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # It runs, as another user.
        pass
    return True


def _rename_new(temporary: Path, target: Path) -> None:
    """Give the file its name, unless somebody else took that name meanwhile."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # A file system without hard links: then a check just before must do.
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
        os.replace(temporary, target)


@contextlib.contextmanager
def _blame(path: str | os.PathLike[str], temporary: Path) -> Iterator[None]:
    """Let errors about the temporary name speak of the file that the caller asked for."""
    try:
        yield
    except OSError as error:
        # Where the disk is full, errors of writing name no file.
        if error.errno is None or error.filename not in (None, os.fspath(temporary)):
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
