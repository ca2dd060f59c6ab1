"""Progress bars: on terminals and in notebooks, and nothing anywhere else."""

import io
import sys
import types

import pytest

from demur import progress


class Shown:
    def __init__(self, log) -> None:
        self.log = log

    def update(self, content) -> None:
        self.log.append(content)


@pytest.fixture
def notebook(monkeypatch):
    """A stand-in for IPython in the kernel of a notebook; returns what was displayed."""
    log: list[str] = []

    def display(content, display_id):
        assert display_id is True
        log.append(content)
        return Shown(log)

    module = types.ModuleType("IPython")
    module.display = types.SimpleNamespace(display=display, HTML=str)
    module.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setattr(progress, "_NOTEBOOK_INTERVAL", 0.0)
    return log


def test_notebooks_show_a_bar_and_remove_it(notebook) -> None:
    def stop_halfway() -> None:
        with progress.progress_bar(4, "batches <i>") as show:
            show(1)
            show(3)
            raise KeyError

    with pytest.raises(KeyError):
        stop_halfway()
    assert notebook == [
        '<progress value="0" max="4"></progress> 0/4 batches &lt;i&gt;',
        '<progress value="1" max="4"></progress> 1/4 batches &lt;i&gt;',
        '<progress value="3" max="4"></progress> 3/4 batches &lt;i&gt;',
        "",
    ]
    notebook.clear()
    with progress.progress_bar(None, "batches") as show:
        show(7)
    assert notebook[1] == "<progress></progress> 7 batches"
    notebook.clear()
    with progress.progress_bar(4, "batches", hidden=True) as show:
        show(1)
    assert notebook == []


def test_updates_are_messages_and_come_now_and_then(notebook, monkeypatch) -> None:
    monkeypatch.setattr(progress, "_NOTEBOOK_INTERVAL", 1e9)
    with progress.progress_bar(1000, "batches") as show:
        for done in range(1000):
            show(done)
    assert len(notebook) == 2


def test_without_a_kernel_or_a_terminal_nothing_is_shown(notebook, monkeypatch) -> None:
    shells = (None, types.SimpleNamespace(), types.SimpleNamespace(kernel=None))
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    for shell in shells:
        monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda shell=shell: shell)
        with progress.progress_bar(4, "batches") as show:
            show(1)
    monkeypatch.delitem(sys.modules, "IPython")
    assert not progress.is_notebook() and "IPython" not in sys.modules
    assert notebook == [] and stream.getvalue() == ""


def test_terminals_show_a_bar(monkeypatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with progress.progress_bar(4, "batches") as show:
        show(4)
    assert "4/4" in stream.getvalue()
