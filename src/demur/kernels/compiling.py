"""Compiled loops: how they are compiled, where they are kept on disk, and when one is worth its price.

A loop that is loaded already is used from some thousands of numbers on. One that lies on disk is loaded as
soon as plain array functions have cost as much time as loading it would. One that has to be compiled is
compiled only for work that would take plain functions two seconds, or by ``demur warm``.

``DEMUR_COMPILE`` overrides this: ``always`` compiles at the first use, ``never`` keeps to plain functions.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import importlib
import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

SOURCES = (
    "core/class_terms.py", "kernels/*.py", "posteriors/**/compiled_*.py", "posteriors/dropout/masks.py",
    "posteriors/chains/plain_steps.py", "credal/*.py", "sequences/compiled_*.py",
)  # fmt: skip
"""Loops are made of functions in these files, and of none elsewhere."""

WORTH_COMPILING = 2.0
"""Seconds of plain functions for which a loop is compiled: on one array, or in calls that are alike."""

WORTH_LOADING = 0.5
"""Seconds of plain functions in this process after which a loop is loaded from disk: what that takes.

A tenth of it once numba is there, which most of it is for."""

# Rounds after every operation. Python calls none of these functions but through ``cached``, nor does C: what
# would unpack their arguments takes longer to compile than most of them do.
AS_WRITTEN: dict[str, Any] = {
    "nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True,
}  # fmt: skip
COMPILED: dict[str, Any] = {**AS_WRITTEN, "fastmath": {"contract"}}
INLINED: dict[str, Any] = {"inline": "always", "error_model": "numpy", "fastmath": {"contract"}}

_spent = 0.0  # seconds that plain functions took in this process, as estimated
_spent_on: dict[str, float] = {}  # the same in place of a single loop, for those that are called repeatedly
_loaded: dict[str, Any] = {}  # loops that are compiled, or loaded, in this process


def find_loop(name: str, seconds: float, *, repeated: bool = False) -> Any:
    """Return a compiled loop by its module and name, or None where plain functions do better.

    Names of loops that are compiled for either type end with ``-float32`` or ``-float64``. ``seconds``: what
    plain functions would take; ``repeated``: this is one of many calls, whose seconds count together.
    """
    global _spent
    wanted = os.environ.get("DEMUR_COMPILE", "")
    if wanted == "never":
        return None
    if name in _loaded:
        return _loaded[name]
    if not has_numba():
        return None
    if wanted != "always":
        before = _spent_on.get(name, 0.0) if repeated else 0.0
        worth = WORTH_LOADING / 10 if "numba" in sys.modules else WORTH_LOADING
        loads, compiles = _spent + seconds >= worth, before + seconds >= WORTH_COMPILING
        on_disk = (loads or compiles) and is_on_disk(name)
        if not (loads if on_disk else compiles):
            _spent += seconds
            _spent_on[name] = before + seconds
            return None
    return load_loop(name)


def load_loop(name: str) -> Any:
    """Return a loop by its module and name; it is compiled, or loaded from disk, when it is called."""
    if name not in _loaded:
        if os.environ.get("DEMUR_COMPILE", "") != "always" and not is_on_disk(name):
            _announce()
        module, _, function = name.partition("-")[0].rpartition(".")
        _loaded[name] = getattr(importlib.import_module(module), function)
    return _loaded[name]


def has_numba() -> bool:
    """Tell whether loops may be compiled: numba is installed, which is not imported here, and wanted."""
    return os.environ.get("DEMUR_COMPILE", "") != "never" and _is_installed()


@functools.cache
def _is_installed() -> bool:
    return "numba" in sys.modules or importlib.util.find_spec("numba") is not None


@functools.cache
def _announce() -> None:
    """Say once on the terminal what takes the time."""
    first = "demur: compiling a loop for large arrays, once for this machine; "
    print(f"{first}`demur warm` does that for all of them beforehand.", file=sys.stderr)


def is_on_disk(name: str) -> bool:
    """Tell whether a loop was compiled here before; numba is not asked."""
    folder = cache_folder()
    return folder is not None and (folder / f"{name}.done").exists()


@functools.cache
def cache_folder() -> Path | None:
    """Return where compiled loops are kept: none other than from these sources, versions and processor.

    None where nothing can be written.
    """
    root = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(OSError, RuntimeError):
        folder = (Path(root) if root else Path.home() / ".cache") / "demur" / stamp()
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    return None


@functools.cache
def stamp() -> str:
    """Return a text that changes with the sources of loops, with what compiles them, and for what."""
    package = Path(__file__).parents[1]
    found = hashlib.sha256()
    for path in sorted(path for each in SOURCES for path in package.glob(each)):
        found.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    with contextlib.suppress(ImportError):
        found.update(f"{version('numba')} {version('llvmlite')}".encode())
    found.update(f"{sys.implementation.cache_tag} {platform.machine()} {_processor()}".encode())
    return found.hexdigest()[:20]


def _processor() -> str:
    """Return what the system says of the processor: its name and what it can do."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        return "\n".join(line for line in lines if line.startswith(("model name", "flags", "Features")))
    return platform.processor()


def cached(function: Callable[..., Any], options: dict[str, Any] = COMPILED, name: str = "") -> Any:
    """Compile a function that Python calls, and keep it on disk where something can be written.

    ``name``: as its module calls it, if another function made it.
    """
    from numba import njit

    if name:
        function.__name__ = function.__qualname__ = name
    called: dict[str, Any] = {**options, "no_cpython_wrapper": False}
    compiled: Any = njit(**called)(function)
    compile_types = compiled.compile

    def compile_without_collecting(types: Any) -> Any:
        """Compile without looking for garbage, which takes a tenth of the time and finds next to nothing."""
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return compile_types(types)
        finally:
            if was_enabled:
                gc.enable()

    compiled.compile = compile_without_collecting
    folder = cache_folder()
    if folder is not None:
        compiled._cache = _cache_of(function, folder)
    return compiled


cached_as_written = functools.partial(cached, options=AS_WRITTEN)


def named(name: str) -> Callable[..., Any]:
    """Compile a function made by another one, of which there are several, under a name of its own.

    numba calls code by the name of its function and a number that begins anew in each process. Of two
    functions of one name, compiled in two processes and kept on disk, one would be called for the other.
    """
    from numba import njit

    def compile_as(function: Callable[..., Any]) -> Any:
        function.__qualname__ = f"{function.__qualname__}.{name}"
        return njit(**COMPILED)(function)

    return compile_as


def _cache_of(function: Callable[..., Any], folder: Path) -> Any:
    """Return numba's cache of a function in a folder whose name tells the sources apart.

    numba itself knows only when the function's own file changes, and not what that is made of.
    """
    from numba.core import caching

    name = f"{function.__module__}.{function.__name__}"

    class Locator(caching._CacheLocator):
        def get_cache_path(self) -> Any:
            return str(folder / name)

        def get_source_stamp(self) -> Any:
            return stamp()

        def get_disambiguator(self) -> Any:
            return name

        @classmethod
        def from_function(cls, py_func: Any, py_file: Any) -> Locator:
            return cls()

    class Implementation(caching.CompileResultCacheImpl):
        _locator_classes: ClassVar = [Locator]

    class Cache(caching.FunctionCache):
        _impl_class = Implementation

        # numba adds a hash of what the function closes over, which differs from process to process.
        def _index_key(self, sig: Any, codegen: Any) -> Any:
            return sig, codegen.magic_tuple()

        # numba writes an index, then a file that the index names. Two processes that save at the same moment
        # can leave the code of one under the types of the other, and whoever loads that crashes.
        def save_overload(self, sig: Any, data: Any) -> None:
            with _lock(folder / "demur.lock"):
                super().save_overload(sig, data)
                arrays = {str(each.dtype) for each in sig if hasattr(each, "layout")}
                for kind in ("", *(f"-{each}" for each in arrays & {"float32", "float64"})):
                    (folder / f"{name}{kind}.done").touch()

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            with _lock(folder / "demur.lock"):
                return super().load_overload(sig, target_context)

    return Cache(function)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold a lock that no other process has; where there is none, or no place for it, go on without."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):
            import fcntl  # not on Windows

            fcntl.flock(stack.enter_context(path.open("a")), fcntl.LOCK_EX)
        yield
