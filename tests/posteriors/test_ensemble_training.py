"""DeepEnsemble.fit: the same members however they are trained, and whatever is killed on the way."""

import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import demur
from demur.posteriors import DeepEnsemble

torch = pytest.importorskip("torch")
nn = torch.nn

# Other processes import it, so that it lies in a file.
MODULE = """
import os, random, time
from pathlib import Path

import numpy as np
import torch


def factory():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))


def train(model, member, log=None, fail=(), slow=()):
    if log is not None:
        Path(log, f"{member.index}-{os.getpid()}").touch()
    if member.index in slow:
        time.sleep(60)
    if member.index in fail:
        raise ArithmeticError("no luck")
    data = torch.Generator().manual_seed(1)
    x, y = torch.randn(60, 4, generator=data), torch.randint(3, (60,), generator=data)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(5):
        some = torch.randperm(60)[:30]
        optimizer.zero_grad()
        scale = 1 + random.random() + np.random.random()
        (scale * torch.nn.functional.cross_entropy(model(x[some]), y[some])).backward()
        optimizer.step()


def other_train(model, member):
    return None


def dies(model, member):
    os._exit(3)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "trained_apart.py").write_text(MODULE)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "trained_apart", raising=False)
    import trained_apart

    return trained_apart


def states(ensemble) -> list[dict[str, np.ndarray]]:
    return [{n: t.numpy().copy() for n, t in model.state_dict().items()} for model in ensemble.models]


def same(left, right) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert list(a) == list(b)
        for name in a:
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def test_members_do_not_depend_on_processes(module, tmp_path) -> None:
    before = torch.get_rng_state()
    threads = torch.get_num_threads()
    here = DeepEnsemble.fit(module.factory, module.train, 4, seed=5, processes=0)
    np.testing.assert_array_equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    log = tmp_path / "log"
    log.mkdir()
    train = functools.partial(module.train, log=str(log))
    there = DeepEnsemble.fit(module.factory, train, 4, seed=5, processes=2)
    same(states(here), states(there))
    who = {name.split("-")[1] for name in os.listdir(log)}
    assert len(who) == 2 and str(os.getpid()) not in who
    # They are members: each another one, and another seed gives others.
    weights = [m["0.weight"] for m in states(here)]
    assert all((weights[0] != other).any() for other in weights[1:])
    others = DeepEnsemble.fit(module.factory, module.train, 1, seed=6, processes=0)
    assert (states(others)[0]["0.weight"] != weights[0]).any()
    scores = demur.score(there, [torch.rand(5, 4)])
    assert scores.members == 4 and (scores["pairwise"].epistemic > 0).all()


def test_a_folder_is_gone_on_with_and_grows(module, tmp_path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    train = functools.partial(module.train, log=str(log))
    folder = tmp_path / "ensemble"
    fit = functools.partial(DeepEnsemble.fit, module.factory, train, seed=1, processes=0)
    expected = states(fit(5))
    for path in log.iterdir():
        path.unlink()
    same(states(fit(3, folder=folder)), expected[:3])
    (folder / "member-0001.safetensors").unlink()
    same(states(fit(5, folder=folder)), expected)
    trained = sorted(int(name.split("-")[0]) for name in os.listdir(log))
    assert trained == [0, 1, 2, 3, 4]  # member 1 twice, under the same name
    same(states(fit(2, folder=folder)), expected[:2])


SCRIPT = """
import functools, sys
import demur, trained_apart as t
if __name__ == "__main__":
    train = functools.partial(t.train, log=sys.argv[2], slow=eval(sys.argv[3]))
    demur.posteriors.DeepEnsemble.fit(t.factory, train, 3, folder=sys.argv[1], processes=int(sys.argv[4]))
"""


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
@pytest.mark.parametrize("processes", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_after_sigkill_the_same_call_gives_the_same_members(module, tmp_path, processes) -> None:
    log, folder, script = tmp_path / "log", tmp_path / "ensemble", tmp_path / "code" / "fit_script.py"
    log.mkdir()
    script.write_text(SCRIPT)
    child = subprocess.Popen(
        [sys.executable, str(script), str(folder), str(log), "(1,)", str(processes)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    # Member 0 is done, and member 1 is being trained.
    until(lambda: (folder / "member-0000.safetensors").exists() and any(log.glob("1-*")))
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    workers = {int(path.name.split("-")[1]) for path in log.iterdir()}
    until(lambda: not any(alive(pid) for pid in workers))  # nobody goes on without a parent
    kept = (folder / "member-0000.safetensors").stat().st_mtime_ns
    assert not (folder / "member-0001.safetensors").exists()
    (folder / ".member-0001.safetensors.77").write_bytes(b"half a file")

    (folder / "ensemble.json").unlink()  # its train has an argument slow that the next has not
    found = DeepEnsemble.fit(module.factory, module.train, 3, folder=folder, processes=processes)
    assert (folder / "member-0000.safetensors").stat().st_mtime_ns == kept
    same(states(found), states(DeepEnsemble.fit(module.factory, module.train, 3, processes=0)))
    names = ["ensemble.json", *(f"member-000{k}.safetensors" for k in range(3))]
    assert sorted(os.listdir(folder)) == names


def until(true, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


@pytest.mark.parametrize("processes", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_training_that_fails_names_its_member_and_loses_no_other(module, tmp_path, processes) -> None:
    train = functools.partial(module.train, fail=(1,))
    folder = None if processes else tmp_path / "ensemble"
    with pytest.raises(RuntimeError, match=r"member 1 failed: ArithmeticError: no luck\. Mem") as caught:
        DeepEnsemble.fit(module.factory, train, 2, folder=folder, processes=processes)
    place = Path(str(caught.value).split("folder='")[1].split("'")[0])
    assert place == folder or place.name.startswith("demur-ensemble-")
    assert (place / "member-0000.safetensors").exists()
    (place / "ensemble.json").unlink()  # its train fails; the next one does not
    found = DeepEnsemble.fit(module.factory, module.train, 2, folder=place, processes=0)
    same(states(found), states(DeepEnsemble.fit(module.factory, module.train, 2, processes=0)))
    shutil.rmtree(place)


def list_temporary() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("demur-ensemble-*"))


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    """A folder for temporary ones, so that other tests do not matter."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setenv("TMPDIR", str(place))
    return place


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interruption_leaves_no_temporary_folder(module, temporary, error) -> None:
    def train(model, member):
        assert len(list_temporary()) == 1
        raise error

    with pytest.raises(error):
        DeepEnsemble.fit(module.factory, train, 2, processes=0)
    assert list_temporary() == set()


FAILS = """
import functools, sys
import demur, trained_apart as t
if __name__ == "__main__":
    train = functools.partial(t.train, fail=(1,))
    try:
        demur.posteriors.DeepEnsemble.fit(t.factory, train, 2, processes=0)
    except RuntimeError as error:
        assert "kept until this process ends: the same call with folder='" in str(error), error
        folder = str(error).split("folder='")[1].split("'")[0]
        open(sys.argv[1], "w").write(folder)
"""


@pytest.mark.slow
def test_what_a_failure_keeps_goes_with_the_process(module, tmp_path, temporary) -> None:
    script = tmp_path / "code" / "fails.py"
    script.write_text(FAILS)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, str(script), str(tmp_path / "where")], env=environment, check=True)
    assert Path((tmp_path / "where").read_text()).parent == temporary
    assert list_temporary() == set()


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
@pytest.mark.parametrize("processes", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_killed_process_leaves_no_temporary_folder_for_long(module, tmp_path, temporary, processes) -> None:
    log, script = tmp_path / "log", tmp_path / "code" / "fit_script.py"
    log.mkdir()
    script.write_text(SCRIPT.replace("folder=sys.argv[1]", "folder=None"))
    child = subprocess.Popen(
        [sys.executable, str(script), "none", str(log), "(1,)", str(processes)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    until(lambda: any(log.glob("1-*")))
    assert len(list_temporary()) == 1
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    if processes:  # those that it started remove the folder before they end
        until(lambda: not list_temporary())
    DeepEnsemble.fit(module.factory, module.train, 1, processes=0)  # or whoever needs such a folder next
    assert list_temporary() == set()


def test_a_flipped_bit_in_a_member_is_noticed(module, tmp_path) -> None:
    folder = tmp_path / "ensemble"
    fit = functools.partial(DeepEnsemble.fit, module.factory, module.train, 2, processes=0, folder=folder)
    fit()
    path = folder / "member-0001.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(
        ValueError, match=r"member-0001\.safetensors', which was changed since it was written"
    ):
        fit()
    (folder / "ensemble.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"ensemble\.json cannot be read"):
        fit()


def test_a_process_that_dies_is_told(module, tmp_path) -> None:
    with pytest.raises(RuntimeError, match=r"failed: its process ended without a word.*__main__"):
        DeepEnsemble.fit(module.factory, module.dies, 2, folder=tmp_path / "f", processes=2)


def test_changed_settings_are_noticed(module, tmp_path) -> None:
    folder = tmp_path / "ensemble"
    fit = functools.partial(DeepEnsemble.fit, processes=0, folder=folder)
    fit(module.factory, module.train, 1)
    wrong = [
        (r"seed was 0 and is 1", lambda: fit(module.factory, module.train, 1, seed=1)),
        (r"threads was 1 and is 2", lambda: fit(module.factory, module.train, 1, threads=2)),
        (r"train changed", lambda: fit(module.factory, module.other_train, 1)),
        (r"train changed", lambda: fit(module.factory, functools.partial(module.train, log=None), 1)),
        (r"factory changed", lambda: fit(lambda: module.factory(), module.train, 1)),
    ]
    for message, call in wrong:
        with pytest.raises(ValueError, match=f"same settings.*{message}.*remove ensemble.json"):
            call()
    (folder / "ensemble.json").write_text("nothing")
    with pytest.raises(ValueError, match="cannot be read"):
        fit(module.factory, module.train, 1)


def test_what_fit_refuses(module, tmp_path) -> None:
    fit, factory, train = DeepEnsemble.fit, module.factory, module.train
    local = lambda model, member: None  # noqa: E731
    (tmp_path / "f").mkdir()
    wrong = [
        (ValueError, "factory must be a function that other processes can import.*processes=0. Got <fun",
         lambda: fit(lambda: factory(), train, 2)),
        (ValueError, "train must be a function that other processes", lambda: fit(factory, local, 2)),
        (ValueError, "members must be a positive", lambda: fit(factory, train, 0)),
        (ValueError, "threads must be a positive", lambda: fit(factory, train, 1, threads=0)),
        (ValueError, "processes must be 0 or more", lambda: fit(factory, train, 1, processes=-1)),
        (TypeError, "train must be a function. Got int", lambda: fit(factory, 3, 1)),
        (RuntimeError, "member 0 failed: TypeError: What factory returns must be a torch.nn.Module. Got int",
         lambda: fit(lambda: 3, train, 1, processes=0)),
        (RuntimeError, "that factory made. Got others, as '0.weight'. Build.*changes. Memb",
         lambda: fit(factory, lambda model, member: nn.Linear(4, 3), 1, processes=0, folder=tmp_path / "f")),
    ]  # fmt: skip
    for kind, message, call in wrong:
        with pytest.raises(kind, match=message):
            call()


def test_functions_of_a_prompt_are_refused_in_one_line() -> None:
    code = (
        "import demur, torch\n"
        "def factory(): return torch.nn.Linear(2, 2)\n"
        "def train(model, member): pass\n"
        "try: demur.posteriors.DeepEnsemble.fit(factory, train, 2)\n"
        "except ValueError as error: print(error)\n"
    )
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.check_output([sys.executable, "-c", code], env=os.environ | path, text=True)
    assert printed.count("\n") == 1 and "Got one of a notebook or prompt" in printed


def test_a_network_that_train_compiles_or_that_is_lazy(module) -> None:
    def factory():
        return nn.Sequential(nn.LazyLinear(5), nn.Linear(5, 3))

    def train(model, member):
        model(torch.ones(2, 4))
        return torch.compile(model, backend="eager")

    found = DeepEnsemble.fit(factory, train, 2, processes=0)
    assert list(found.models[0].state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert demur.score(found, [torch.rand(3, 4)]).members == 2
