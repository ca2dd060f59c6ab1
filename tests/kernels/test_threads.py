"""Threads that share the work of one call: where they run, and what they hand back."""

import os
import subprocess
import sys
import threading

import pytest

from demur.kernels import workers

several = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or workers.available_processors() < 2,
    reason="needs Linux and two processors",
)


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.setenv("DEMUR_THREADS", "2")


def meet() -> None:
    """Let this thread and one of the pool be in ``together`` at the same time."""
    both = threading.Barrier(2, timeout=30)
    workers.together(both.wait, 2)


@several
def test_threads_stay_off_the_processor_of_the_one_that_calls(two_threads) -> None:
    allowed = os.sched_getaffinity(0)
    meet()  # the pool has a thread now, at the latest
    meet()
    meet()  # a second one, if the first was still on its way back
    processor, count = workers._kept_off[0]
    assert processor in allowed
    for thread in workers._started[:count]:
        assert os.sched_getaffinity(thread) == allowed - {processor}
    assert os.sched_getaffinity(0) == allowed  # and the caller stays free


@several
def test_a_caller_with_one_processor_leaves_threads_where_they_are(two_threads) -> None:
    code = (
        "import os, threading; from demur.kernels import workers\n"
        "one = {min(os.sched_getaffinity(0))}; os.sched_setaffinity(0, one)\n"
        "for _ in range(3): workers.together(threading.Barrier(2, timeout=30).wait, 2)\n"
        "print(all(os.sched_getaffinity(t) == one for t in workers._started), len(workers._started) > 0)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["True", "True"]


@several
def test_a_forked_child_leaves_the_threads_of_its_parent_alone(two_threads) -> None:
    code = (
        "import os, threading; from demur.kernels import workers\n"
        "meet = lambda: workers.together(threading.Barrier(2, timeout=30).wait, 2)\n"
        "meet(); before = set(workers._started); child = os.fork()\n"
        "meet()\n"
        "if child == 0: os._exit(int(bool(before & set(workers._started))))\n"
        "print(os.waitpid(child, 0)[1], before <= set(workers._started))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["0", "True"]


def test_without_a_system_that_tells_processors_threads_work(two_threads, monkeypatch) -> None:
    monkeypatch.setattr(workers, "own_processor", lambda: lambda: -1)
    before = list(workers._kept_off)
    meet()
    assert workers._kept_off == before


def test_parts_come_back_in_order(two_threads) -> None:
    assert workers.mapped(lambda part: part * part, range(100)) == [n * n for n in range(100)]


def test_an_error_in_a_part_is_told(two_threads) -> None:
    def refuse(part: int) -> int:
        if part == 7:
            raise ValueError("seven")
        return part

    with pytest.raises(ValueError, match="seven"):
        workers.mapped(refuse, range(20))
