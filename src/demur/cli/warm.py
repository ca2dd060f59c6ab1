"""`demur warm`: compile the loops for large arrays before they are needed."""

from __future__ import annotations

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
        for name, taken in kernels.warm():
            seconds[name] = taken
            if not json:
                print(f"{name:<{_NAME_WIDTH}} {_describe_time(taken)}", flush=True)
        folder = kernels.cache_folder()
    if json:
        total = round(sum(seconds.values()), 3)
        rounded = {name: round(taken, 3) for name, taken in seconds.items()}
        print_object({"seconds": total, "loops": rounded, "folder": None if folder is None else str(folder)})
        return
    compiled = sum(taken > 0 for taken in seconds.values())
    print(f"{count_things(len(seconds), 'loop')}, {compiled} compiled now, in {sum(seconds.values()):.1f} s")
    if folder is None:
        print("They are not kept: no folder can be written to. Set NUMBA_CACHE_DIR to one that can.")
    else:
        print(f"Kept in {folder}")


def _describe_time(seconds: float) -> str:
    return f"{seconds:6.1f} s" if seconds > 0 else "on disk"
