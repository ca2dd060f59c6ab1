"""State on disk: the same after a restart, complete after a kill at any byte, refused where it was edited."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import demur


def feed_folder(monitor, scores, correct, step=40) -> None:
    for begin in range(0, len(scores), step):
        ids = [f"{k}" for k in range(begin, begin + step)]
        monitor.observe(scores[begin : begin + step], correct[begin : begin + step], ids=ids)


def test_a_saved_monitor_goes_on_as_if_nothing_had_happened(policy, traffic, tmp_path) -> None:
    scores, correct = traffic(1000, harm=0.05)
    scores[::7] = -np.inf
    straight, stopped = demur.Monitor(policy, audit=0.3), demur.Monitor(policy, audit=0.3)
    known = np.where(np.arange(1000) % 5, correct, np.nan)
    straight.observe(scores[:600], known[:600])
    straight.observe(scores[600:], known[600:])
    stopped.observe(scores[:600], known[:600])
    stopped.save(tmp_path / "a.json")
    again = demur.Monitor.load(tmp_path / "a.json")
    assert repr(again) == repr(stopped)
    again.observe(scores[600:], known[600:])
    again.save(tmp_path / "a.json")
    straight.save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_any_edit_of_a_saved_monitor_is_refused(policy, traffic, tmp_path) -> None:
    monitor = demur.Monitor(policy, audit=0.5)
    monitor.observe(*traffic(60))
    path = tmp_path / "monitor.json"
    monitor.save(path)
    content = path.read_bytes()
    rng, refused = np.random.default_rng(0), 0
    for place in range(0, len(content) - 1, 7):
        edited = bytearray(content)
        edited[place] ^= 1 << int(rng.integers(7))
        path.write_bytes(edited)
        try:
            again = demur.Monitor.load(path)
        except ValueError as error:
            refused += "Take the last good copy" in str(error)
        else:  # another spelling of the same content, as a space for a line break, or E for e
            assert repr(again.status) == repr(monitor.status)
    assert refused > 0.98 * len(range(0, len(content) - 1, 7))
    fewer = json.loads(content)
    fewer["content"]["streams"][0]["rows"][""].pop()
    path.write_text(json.dumps(fewer))
    with pytest.raises(ValueError, match="changed since"):
        demur.Monitor.load(path)


@pytest.mark.parametrize("every", [37, pytest.param(1, marks=pytest.mark.slow)])
def test_a_log_cut_at_any_byte_holds_all_complete_records_and_can_be_repeated(
    policy, traffic, tmp_path, every
) -> None:
    scores, correct = traffic(160)
    folder = tmp_path / "m"
    states = []
    with demur.Monitor.open(folder, policy, audit=0.3) as monitor:
        states.append(repr(monitor.status))
        for begin in range(0, 160, 40):
            ids = [f"{k}" for k in range(begin, begin + 40)]
            monitor.observe(scores[begin : begin + 40], correct[begin : begin + 40], ids=ids)
            states.append(repr(monitor.status))
    (log,) = folder.glob("log-*.txt")
    content, ends = log.read_bytes(), [0]
    for line in content.split(b"\n")[:-1]:
        ends.append(ends[-1] + len(line) + 1)
    assert len(ends) == 5
    for cut in range(0, len(content) + 1, every):
        log.write_bytes(content[:cut])
        with demur.Monitor.open(folder) as monitor:
            complete = int(np.searchsorted(ends, cut, side="right")) - 1
            assert repr(monitor.status) == states[complete], cut
            if (
                cut // every % 10 == 0
            ):  # whoever was killed repeats all: nothing is lost, nothing counts twice
                feed_folder(monitor, scores, correct)
                assert repr(monitor.status) == states[-1]
        assert log.read_bytes()[: ends[complete]] == content[: ends[complete]]


def test_an_edited_log_is_refused(policy, traffic, tmp_path) -> None:
    with demur.Monitor.open(tmp_path, policy, audit=0.3) as monitor:
        feed_folder(monitor, *traffic(120))
    (log,) = tmp_path.glob("log-*.txt")
    content = log.read_bytes()
    first, second, third, _ = content.split(b"\n")
    swapped = b"\n".join([second, first, third, b""])
    without = b"\n".join([first, third, b""])
    flipped = content.replace(b'"observe"', b'"obserwe"', 1)
    for edited in (swapped, without, flipped):
        log.write_bytes(edited)
        with pytest.raises(ValueError, match="was changed or does not follow"):
            demur.Monitor.open(tmp_path)
    log.write_bytes(content)
    demur.Monitor.open(tmp_path).close()


def test_a_log_that_is_gone_is_no_empty_one(policy, traffic, tmp_path) -> None:
    with demur.Monitor.open(tmp_path, policy, audit=0.3) as monitor:
        feed_folder(monitor, *traffic(120))
    (log,) = tmp_path.glob("log-*.txt")
    moved = log.rename(tmp_path / "log-99.txt")
    with pytest.raises(ValueError, match=r"log-1\.txt must be there"):
        demur.Monitor.open(tmp_path)
    moved.rename(log)
    with demur.Monitor.open(tmp_path) as monitor:
        assert monitor.status.observed == 120


@pytest.mark.parametrize("place", ["_sync_folder", "records.save", "Journal._open"])
def test_a_kill_within_a_snapshot(policy, traffic, tmp_path, monkeypatch, place) -> None:
    from demur.monitoring import journal

    scores, correct = traffic(120)
    demur.Monitor.open(tmp_path, policy, audit=0.3).close()
    with monkeypatch.context() as patched, demur.Monitor.open(tmp_path) as monitor:
        owner, _, name = f"demur.monitoring.journal.{place}".rpartition(".")
        patched.setattr(journal, "_SHORTEST_LOG", 0)
        patched.setattr(f"{owner}.{name}", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            feed_folder(monitor, scores, correct, 20)
    with demur.Monitor.open(tmp_path) as monitor:
        seen = monitor.status.observed
        feed_folder(monitor, scores, correct, 20)
        assert 0 < seen <= monitor.status.observed == 120
    assert len(list(tmp_path.glob("log-*.txt"))) == 1


def test_snapshots_fold_the_log_at_no_loss(policy, traffic, tmp_path, monkeypatch) -> None:
    from demur.monitoring import journal

    scores, correct = traffic(400)
    plain = demur.Monitor(policy, audit=0.3)
    feed_folder(plain, scores, correct, 20)
    monkeypatch.setattr(journal, "_SHORTEST_LOG", 2000)
    with demur.Monitor.open(tmp_path, policy, audit=0.3) as monitor:
        feed_folder(monitor, scores, correct, 20)
    with demur.Monitor.open(tmp_path) as monitor:
        assert repr(monitor.status) == repr(plain.status)
        np.testing.assert_array_equal(monitor.history, plain.history)
    (log,) = tmp_path.glob("log-*.txt")
    assert int(log.stem[4:]) > 2


WRITER = """
import sys, numpy as np, demur
from demur.monitoring import journal
journal._SHORTEST_LOG = 3000
scores = np.random.default_rng(0).uniform(size=5000)
with demur.Monitor.open(sys.argv[1]) as monitor:
    print("ready", flush=True)
    for begin in range(0, 5000, 10):
        ids = [str(k) for k in range(begin, begin + 10)]
        monitor.observe(scores[begin:begin + 10], scores[begin:begin + 10] < 0.6, ids=ids)
        print(begin + 10, flush=True)
"""


@pytest.mark.slow
def test_a_killed_process_loses_nothing_that_it_had_acknowledged(policy, tmp_path) -> None:
    demur.Monitor.open(tmp_path, policy, audit=0.3).close()
    for wait in (0.0, 0.03, 0.1):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(wait)
        os.kill(process.pid, signal.SIGKILL)
        told = process.stdout.read().split()
        process.stdout.close()
        process.wait()
        with demur.Monitor.open(tmp_path) as monitor:
            assert monitor.status.observed >= int(told[-1] if told else 0)
            assert monitor.status.observed % 10 == 0
    subprocess.run([sys.executable, "-c", WRITER, str(tmp_path)], check=True, stdout=subprocess.DEVNULL)
    plain = demur.Monitor(policy, audit=0.3)
    scores = np.random.default_rng(0).uniform(size=5000)
    plain.observe(scores, scores < 0.6, ids=[str(k) for k in range(5000)])
    with demur.Monitor.open(tmp_path) as monitor:
        assert repr(monitor.status) == repr(plain.status)


def test_one_process_at_a_time_and_one_setting_for_a_folder(policy, tmp_path) -> None:
    with pytest.raises(ValueError, match="start one with a policy"):
        demur.Monitor.open(tmp_path / "none")
    with demur.Monitor.open(tmp_path, policy), pytest.raises(ValueError, match="one process at a time"):
        demur.Monitor.open(tmp_path)
    demur.Monitor.open(tmp_path, policy).close()
    with pytest.raises(ValueError, match="another audit"):
        demur.Monitor.open(tmp_path, policy, audit=0.2, least=0.1)


def test_merging_and_drawing_survive_in_a_folder(policy, traffic, tmp_path) -> None:
    other = demur.Monitor(policy, seed=5)
    other.observe(*traffic(300, 1))
    with demur.Monitor.open(tmp_path, policy) as monitor:
        first = monitor.to_audit(np.zeros(50))
        monitor.merge(other)
        state = repr(monitor.status)
    with demur.Monitor.open(tmp_path) as monitor:
        assert repr(monitor.status) == state
        both = np.concatenate([first, monitor.to_audit(np.zeros(50))])
    np.testing.assert_array_equal(demur.Monitor(policy).to_audit(np.zeros(100)), both)


def test_a_full_disk_raises_and_leaves_the_log_as_it_was(policy, traffic, tmp_path) -> None:
    """The system writes the part of a record that has room, and says so without an error."""
    resource = pytest.importorskip("resource")
    scores, correct = traffic(200)
    with demur.Monitor.open(tmp_path / "watch", policy) as monitor:
        monitor.observe(scores[:100], correct[:100], ids=np.arange(100))
        log = tmp_path / "watch" / "log-1.txt"
        before, limits = log.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, limits[1]))
        try:
            with pytest.raises(OSError, match="too large"):
                monitor.observe(scores[100:], correct[100:], ids=np.arange(100, 200))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert log.read_bytes() == before and monitor.status.observed == 100
        monitor.observe(scores[100:], correct[100:], ids=np.arange(100, 200))
    with demur.Monitor.open(tmp_path / "watch") as monitor:
        assert monitor.status.observed == 200
