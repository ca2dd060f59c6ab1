"""`demur warm`: compile the loops for large arrays before they are needed."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue

from demur.cli.options import Json
from demur.cli.printing import bad_input_exits, count_things, print_object

_NAME_WIDTH = 64
"""Columns of a line for the name of a loop."""

_HOMES = (
    "demur.kernels", "demur.posteriors.compiled_calls", "demur.credal.compiled_calls",
    "demur.sequences.compiled_calls",
)  # fmt: skip
"""Modules that know the names of loops, ``LOOPS``, and how to ``compile_loop`` one of them."""

_WORKER = """
import importlib, sys
for line in sys.stdin:
    home, name = line.split()
    importlib.import_module(home).compile_loop(name)
    print(name, flush=True)
"""

_Queue = SimpleQueue[tuple[str, float] | Exception]


def warm(json: Json = False) -> None:
    """Compile the loops for large arrays now, for container images and CI.

    Compiled loops are kept on disk, so this is needed once per machine or image, and again after an update of
    demur, numba or Python. Without it, demur compiles a loop when an array is large enough to need it.

    demur warm
    """
    with bad_input_exits():
        from demur import kernels

        seconds: dict[str, float] = {}
        begin = time.perf_counter()
        for name, taken in compile_all():
            seconds[name] = taken
            if not json:
                print(f"{name:<{_NAME_WIDTH}} {_describe_time(taken)}", flush=True)
        total = time.perf_counter() - begin  # less than the sum: several are compiled at a time
        folder = kernels.cache_folder()
    if json:
        rounded = {name: round(taken, 3) for name, taken in seconds.items()}
        print_object(
            {"seconds": round(total, 3), "loops": rounded, "folder": None if folder is None else str(folder)}
        )
        return
    compiled = sum(taken > 0 for taken in seconds.values())
    print(f"{count_things(len(seconds), 'loop')}, {compiled} compiled now, in {total:.1f} s")
    if folder is None:
        print("They are not kept: no folder can be written to. Set NUMBA_CACHE_DIR to one that can.")
    else:
        print(f"Kept in {folder}")


def _describe_time(seconds: float) -> str:
    return f"{seconds:6.1f} s" if seconds > 0 else "on disk"


def compile_all() -> Iterator[tuple[str, float]]:
    """Compile every loop that is not on disk yet, in as many processes as there are processors.

    Yields the name of each and the seconds that it took, 0 if it was there.
    """
    from demur import kernels
    from demur.kernels.compiling import is_on_disk

    waiting = []
    for home in _HOMES:
        for name in importlib.import_module(home).LOOPS:
            if is_on_disk(name):
                yield name.removeprefix("demur."), 0.0
            else:
                waiting.append((home, name))
    done: _Queue = SimpleQueue()
    lock, count = threading.Lock(), len(waiting)
    workers = [
        threading.Thread(target=_compile_in_process, args=(waiting, lock, done), daemon=True)
        for _ in range(min(kernels.count_threads(), count))
    ]
    for each in workers:
        each.start()
    for _ in range(count):
        found = done.get()
        if isinstance(found, Exception):
            raise found
        yield found
    for each in workers:
        each.join()


def _compile_in_process(waiting: list[tuple[str, str]], lock: threading.Lock, done: _Queue) -> None:
    """Have a new process compile one loop after the other until none is waiting.

    Loops of one module share functions, which a process compiles only once: they follow each other.
    """
    variables, module = {**os.environ, "DEMUR_COMPILE": "always"}, ""
    with subprocess.Popen(
        [sys.executable, "-c", _WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=variables,
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        while True:
            with lock:
                alike = [each for each in waiting if each[1].startswith(f"{module}.")]
                if not waiting:
                    return
                home, name = (alike or waiting)[0]
                waiting.remove((home, name))
            module, begin = name.rpartition(".")[0], time.perf_counter()
            process.stdin.write(f"{home} {name}\n")
            process.stdin.flush()
            if process.stdout.readline().strip() != name:
                done.put(RuntimeError(f"{name} was not compiled. The reason stands above."))
                return
            done.put((name.removeprefix("demur."), time.perf_counter() - begin))
