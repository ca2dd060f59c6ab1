"""Threads that share the work of one call: what they hand back, and what a forked child has of them."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import demur
from demur.kernels import threads


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.setenv("DEMUR_THREADS", "2")


def test_this_thread_and_another_work_together(two_threads) -> None:
    """Neither could pass the barrier alone."""
    both = threading.Barrier(2, timeout=30)
    assert sorted(threads.run_together(both.wait, 2)) == [0, 1]


def test_no_more_threads_than_shares(two_threads) -> None:
    assert len(threads.run_together(lambda: 7, 1)) == 1


def test_parts_come_back_in_order(two_threads) -> None:
    assert threads.map_parts(lambda part: part * part, range(100)) == [n * n for n in range(100)]


def test_an_error_in_a_part_is_told(two_threads) -> None:
    def refuse(part: int) -> int:
        if part == 7:
            raise ValueError("seven")
        return part

    with pytest.raises(ValueError, match="seven"):
        threads.map_parts(refuse, range(20))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_threads_of_its_own() -> None:
    code = (
        "import os, threading; from demur.kernels import threads\n"
        "def meet(): return threads.run_together(threading.Barrier(2, timeout=30).wait, 2)\n"
        "meet()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    meet()\n"
        "    os._exit(17)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    variables = os.environ | {"DEMUR_THREADS": "2"}
    printed = subprocess.check_output([sys.executable, "-c", code], env=variables, text=True)
    assert printed.strip() == "17"


@pytest.mark.parametrize("value", ["x", "0", "-1", "1.5", "²"])
def test_a_number_of_threads_that_is_none_is_an_error(value, monkeypatch) -> None:
    monkeypatch.setenv("DEMUR_THREADS", value)
    for logits in (np.zeros((2, 3, 4)), np.zeros((8, 200, 100))):
        with pytest.raises(ValueError, match=rf"DEMUR_THREADS must be a whole number.*Got '{value}'"):
            demur.decompose(logits=logits)
        with pytest.raises(ValueError, match="DEMUR_THREADS"):
            demur.Moments().update(logits=logits)


@pytest.mark.parametrize("value", ["", " ", "3", " 3 "])
def test_numbers_of_threads(value, monkeypatch) -> None:
    monkeypatch.setenv("DEMUR_THREADS", value)
    assert threads.count_threads() == (3 if value.strip() else threads.available_processors())
