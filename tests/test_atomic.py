"""Files appear whole or not at all, with the permissions that the umask allows."""

import ast
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from demur import atomic


@contextmanager
def umask_of(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("content", ["Größe\n", "a\r\nb\n", ""])
def test_text_is_written_in_utf8_as_it_is(tmp_path: Path, content: str) -> None:
    atomic.write_text(tmp_path / "a b.txt", content)
    assert (tmp_path / "a b.txt").read_bytes() == content.encode()
    assert [path.name for path in tmp_path.iterdir()] == ["a b.txt"]


def test_bytes_and_copies_and_arrays(tmp_path: Path) -> None:
    atomic.write_bytes(tmp_path / "a", b"\0\1")
    atomic.copy_file(tmp_path / "a", tmp_path / "b")
    with atomic.open_file(tmp_path / "c.npy") as file:
        np.save(file, np.arange(5))
    assert (tmp_path / "b").read_bytes() == b"\0\1"
    assert np.load(tmp_path / "c.npy").tolist() == [0, 1, 2, 3, 4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c.npy"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("exists", [True, False])
def test_a_writer_that_fails_in_the_middle_changes_nothing(
    tmp_path: Path, error: type[BaseException], exists: bool
) -> None:
    path = tmp_path / "kept.txt"
    if exists:
        path.write_text("old")

    def fail() -> None:
        with atomic.open_file(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        fail()
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("kept.txt", "old")] * exists


def test_readers_see_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "kept.txt"
    path.write_text("old")
    with atomic.write_file(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.parent == tmp_path and temporary.name.startswith(".")
    assert path.read_text() == "new"


def test_a_file_that_exists_is_kept_on_request(tmp_path: Path) -> None:
    path = tmp_path / "kept.txt"

    def write() -> None:
        with atomic.open_file(path, replace=False) as file:
            file.write(b"new")
            path.write_text("old")  # somebody else is faster

    with pytest.raises(FileExistsError):
        write()
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("kept.txt", "old")]
    with atomic.open_file(tmp_path / "other.txt", replace=False) as file:
        file.write(b"new")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["kept.txt", "other.txt"]


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no links")

    monkeypatch.setattr(os, "link", refuse)
    with atomic.open_file(tmp_path / "a", replace=False) as file:
        file.write(b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    with pytest.raises(FileExistsError), atomic.open_file(tmp_path / "a", replace=False):
        pass
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("a", "new")]


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
@pytest.mark.parametrize("private", [True, False])
def test_a_new_file_has_the_permissions_that_the_umask_allows(
    tmp_path: Path, mask: int, mode: int, private: bool
) -> None:
    def write(temporary: Path) -> None:
        if private:  # as libraries do that make temporary files of their own
            temporary.unlink()
            os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY, 0o600))
        temporary.write_text("new")

    with umask_of(mask), atomic.write_file(tmp_path / "a") as temporary:
        write(temporary)
    assert mode_of(tmp_path / "a") == mode


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_a_replaced_file_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(mode)
    with umask_of(0o022), atomic.write_file(path) as temporary:
        assert mode_of(temporary) == mode | 0o200
        temporary.write_text("new")
    assert (path.read_text(), mode_of(path)) == ("new", mode)


def test_a_link_stays_and_its_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "file")
    atomic.write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert [(each.name, each.read_text()) for each in (tmp_path / "folder").iterdir()] == [("file", "new")]


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append((tmp_path / "pipe").read_text()))
    reader.start()
    atomic.write_text(tmp_path / "pipe", "new")
    reader.join()
    assert found == ["new"] and (tmp_path / "pipe").is_fifo()


def test_errors_name_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        atomic.write_text(tmp_path / "no" / "such.txt", "new")
    assert caught.value.filename == str(tmp_path / "no" / "such.txt")
    with pytest.raises(IsADirectoryError) as found:
        atomic.write_text(tmp_path, "new")
    assert found.value.filename == str(tmp_path)


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left") as caught:
        atomic.write_text(tmp_path / "a", "new")
    assert caught.value.filename == str(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def as_user(tmp_path: Path) -> Iterator[None]:
    """Whoever runs the tests, not as root, who writes into read-only folders."""
    if os.geteuid() != 0:
        yield
        return
    for folder in tmp_path.parents:
        if folder != Path("/tmp") and folder.owner() == "root" and mode_of(folder) == 0o700:
            folder.chmod(0o755)
    os.chown(tmp_path, 65534, 65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.usefixtures("as_user")
def test_a_read_only_folder_keeps_its_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    tmp_path.chmod(0o555)
    with pytest.raises(PermissionError) as caught:
        atomic.write_text(tmp_path / "a", "new")
    tmp_path.chmod(0o755)
    assert caught.value.filename == str(tmp_path / "a")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("a", "old")]


@pytest.mark.usefixtures("as_user")
def test_a_folder_that_cannot_be_listed_is_written_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o333)
    atomic.write_text(tmp_path / "a", "new")
    tmp_path.chmod(0o755)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("a", "new")]


def test_a_long_name_has_a_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / ("ä" * 127)
    atomic.write_text(path, "new")
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_threads_that_write_the_same_file_leave_one_of_theirs(tmp_path: Path) -> None:
    def write(number: int) -> None:
        for _ in range(20):
            atomic.write_text(tmp_path / "a", f"{number}" * 1000)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() in {f"{number}" * 1000 for number in range(4)}


WRITER = """
import sys, time
from demur import atomic
with atomic.open_file(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("ready", flush=True)
    time.sleep(60)
"""


def test_a_killed_process_leaves_the_old_file_and_the_next_writer_cleans_up(tmp_path: Path) -> None:
    path = tmp_path / "kept.txt"
    path.write_text("old")
    arguments = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        atomic.write_text(path, "newer")  # of a process that is alive nothing is removed
        assert len(list(tmp_path.iterdir())) == 2
        process.send_signal(signal.SIGKILL)
    left = sorted(each.name for each in tmp_path.iterdir())
    assert len(left) == 2 and left[0].startswith(".kept.txt.") and left[0].endswith(".tmp")
    assert path.read_text() == "newer"
    atomic.write_text(path, "newest")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("kept.txt", "newest")]


def test_what_another_machine_left_goes_after_a_day_without_a_change(tmp_path: Path) -> None:
    path = tmp_path / "kept.txt"
    old, young, other = (
        tmp_path / f".{name}.tmp" for name in ("kept.txt.0123abcd-7-0", "kept.txt.0123abcd-8-1", "x")
    )
    foreign = tmp_path / ".kept.txt.backup.tmp"  # not a name of ours
    for each in (old, young, other, foreign):
        each.write_text("half")
    past = time.time() - 25 * 3600
    for each in (old, other, foreign):
        os.utime(each, (past, past))
    atomic.write_text(path, "new")
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(
        each.name for each in (path, young, other, foreign)
    )


def test_temporary_names_of_two_containers_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    own = atomic.name_machine()
    monkeypatch.setattr(os, "readlink", lambda _: "pid:[1]")
    assert atomic.name_machine() != own


def _plain_writes(text: str) -> list[str]:
    """Calls that write to a file by name, which a signal may leave half-written."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        given = [ast.unparse(each) for each in node.args]
        modes = [each for each in given if each.strip("'\"")[:1] in "wax" and len(each) <= 5]
        if (
            (name == "open" and modes)
            or (name in ("write_text", "write_bytes") and owner not in ("", "atomic"))
            or (
                name in ("save", "savez", "savez_compressed")
                and owner in ("np", "torch")
                and given[0] not in HANDLES
            )
            or (name == "save_file" and given[1] not in HANDLES)
            or (name == "savefig" and given[0] not in HANDLES)
        ):
            found.append(f"{name}({', '.join(given)})")
    return found


HANDLES = ("file", "buffer", "temporary")
PLAIN = {
    "atomic.py": 1,  # the one that all others use
    "kernels/compiling.py": 1,  # a lock
    "cli/printing.py": 2,  # /dev/null
    "scoring/checkpoint.py": 1,  # a temporary file
    "scoring/parquet_pieces.py": 1,  # a local copy of what goes to a store
    "monitoring/journal.py": 3,  # a log that only grows, with a checksum in each line; an empty one; a lock
}
"""Files with plain writes, and how many. Stages of a study write as they like: their folder is renamed."""


def test_every_file_is_written_whole() -> None:
    source = Path(atomic.__file__).parent
    found = {
        path.relative_to(source).as_posix(): len(calls)
        for path in source.rglob("*.py")
        if (calls := _plain_writes(path.read_text("utf-8"))) and "reproduce/" not in path.as_posix()
    }
    assert found == PLAIN


@pytest.mark.parametrize(
    "line",
    [
        "open(name, 'w')",
        "path.open('wb')",
        "path.write_text(text)",
        "np.save(path, a)",
        "figure.savefig(path)",
    ],
)
def test_control_the_check_finds_plain_writes(line: str) -> None:
    assert len(_plain_writes(line)) == 1
    assert (
        _plain_writes("with atomic.open_file(path) as file: np.save(file, a)\natomic.write_text(path, 'a')")
        == []
    )


def test_a_figure_that_is_interrupted_leaves_the_one_before(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from demur.report.figures import save

    class Figure:
        interrupted = False

        def savefig(self, file: IO[bytes], **_: object) -> None:
            file.write(b"half")
            if self.interrupted:
                raise SystemExit(143)

    figure: Any = Figure()
    names = [path.name for path in save(figure, tmp_path, "curve")]
    figure.interrupted = True
    for each in tmp_path.iterdir():
        each.write_text("before")
    with pytest.raises(SystemExit):
        save(figure, tmp_path, "curve")
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == dict.fromkeys(names, "before")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_leaves_nothing_behind_under_the_command_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / "kept.txt"
    path.write_text("old")
    # Signals that the tests themselves ignore, as under nohup, are not ignored here.
    normal = "from signal import *\nsignal(SIGHUP, SIG_DFL)\nsignal(SIGINT, default_int_handler)"
    code = f"import demur.cli\n{normal}\nwith demur.cli._signals_end_it():\n    exec({WRITER!r})"
    arguments = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, name))
    assert process.returncode != 0
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("kept.txt", "old")]
