"""The command `demur`. Each command parses, calls the library and prints; it computes nothing.

Exit code 0 means done; 2 means bad usage or bad input, and one line on stderr says what was
expected, what came and what to do. `demur monitor` ends with 3 on an alarm.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Annotated, Any

import typer
import typer.core

from demur.cli import demo, evaluate, monitor, report, reproduce, score, store, warm
from demur.cli.printing import bad_output_exits, complain, mend_streams

# typer brings its own copy of click, or before 0.25 the real one: this is UsageError of either.
_UsageError: Any = typer.BadParameter.__mro__[1]


class _Commands(typer.core.TyperGroup):
    """Commands whose usage errors are one line too."""

    def main(self, *args: Any, standalone_mode: bool = True, **options: Any) -> Any:
        try:
            with bad_output_exits():
                result = super().main(*args, standalone_mode=False, **options)
            code = result if isinstance(result, int) else 0
        except _UsageError as error:
            message = error.format_message().partition(", unable to parse")[0].rstrip(".")
            command = error.ctx.command_path if error.ctx else "demur"
            complain(f"{message}: see {command} --help")
            code = 2
        if standalone_mode:
            sys.exit(code)
        return code


app = typer.Typer(
    name="demur",
    cls=_Commands,
    help="Measure how uncertain each prediction of a model is, and decide which ones to defer.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from demur import __version__

        typer.echo(f"demur {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


app.command()(score.score)
app.command()(store.store)
app.command()(report.report)
app.command()(demo.demo)
app.add_typer(evaluate.app, name="evaluate")
app.add_typer(monitor.app, name="monitor")
app.add_typer(reproduce.app, name="reproduce")
app.command()(warm.warm)


@contextlib.contextmanager
def _signals_end_it() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into `SystemExit`, so that temporary files are removed."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    found: list[int] = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # What is ignored, as by nohup, stays so; and only the main thread may ask for signals.
    if threading.current_thread() is not threading.main_thread():
        found = []
    found = [number for number in found if signal.getsignal(number) is signal.SIG_DFL]
    for number in found:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in found:
            signal.signal(number, signal.SIG_DFL)


def main() -> None:
    """Run the command line; ends in `SystemExit` with the exit code."""
    mend_streams()
    if not sys.warnoptions:
        # Warnings of PyTorch and NumPy are about code that users of the command line cannot change.
        warnings.simplefilter("ignore")
        warnings.filterwarnings(
            "default", module=r"demur\.posteriors"
        )  # Those about the network are for users.
    # Idle threads of PyTorch would otherwise keep the processors busy that demur's own threads need.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with _signals_end_it():
        app(prog_name="demur")
