"""`demur warm`: compile the loops for large arrays before they are needed."""

from __future__ import annotations

import time

from demur.cli.options import Json
from demur.cli.printing import bad_input_exits, count_things, print_object

_NAME_WIDTH = 40
"""Columns of a line for the name of a loop."""


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
        for name, taken in kernels.warm():
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
