"""When a loop is compiled, where it is kept on disk, and that a change of its sources is noticed."""

import contextlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from numba.core import caching
from numba.core.dispatcher import Dispatcher

import demur
from demur.kernels import compiling
from demur.posteriors.compiled_calls import find_loop_by_work

HOMES = (
    "demur.kernels", "demur.posteriors.compiled_calls", "demur.credal.compiled_calls",
    "demur.sequences.compiled_calls",
)  # fmt: skip

CALLS = {
    "float32 logits": "demur.decompose(logits=rng.normal(size=(10, 1000, 10)).astype(np.float32))",
    "float64 probabilities": "demur.decompose(np.full((10, 1000, 10), 0.1))",
    "moments": "demur.Moments(groups=8).update(logits=rng.normal(size=(10, 1000, 10)))",
    "hull": "demur.credal(logits=rng.normal(size=(70, 10, 70)))",
    "intervals": "demur.credal(logits=rng.normal(size=(5, 300, 10)), set='intervals')",
    "SGLD": "demur.posteriors.SGLD(layer, data, samples=5, steps=100).fit()",
    "SGHMC": "demur.posteriors.SGHMC(layer, data, samples=5, steps=100).fit()",
    "dropout": "demur.score(demur.posteriors.LastLayer(layer, dropout=0.2), [data[0]], progress=False)",
}
TORCH = "import torch; layer = torch.nn.Linear(20, 10); data = torch.rand(99, 20), torch.randint(10, (99,))"


def test_small_arrays_neither_compile_nor_import_the_compiler(tmp_path) -> None:
    """All in one process, which takes its seconds to start."""
    lines = [
        "import sys, numpy as np, demur",
        "rng = np.random.default_rng(0)",
        TORCH,
        *(f"{call}\nprint({name!r}, 'numba' in sys.modules)" for name, call in CALLS.items()),
    ]
    variables = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    variables.pop("DEMUR_COMPILE", None)
    said = subprocess.check_output([sys.executable, "-c", "\n".join(lines)], env=variables, text=True)
    assert said.splitlines() == [f"{name} False" for name in CALLS]


@pytest.fixture
def fresh(monkeypatch):
    """A process that has loaded no loop yet, as far as the decisions know."""
    monkeypatch.delenv("DEMUR_COMPILE", raising=False)
    monkeypatch.setattr(compiling, "_loaded", {})
    monkeypatch.setattr(compiling, "_spent", 0.0)
    monkeypatch.setattr(compiling, "_spent_on", {})
    compiling._announce.cache_clear()
    yield
    compiling._announce.cache_clear()


LOOP = "demur.kernels.compiling.is_on_disk"  # stands for a loop: something that can be imported


def test_a_loop_is_compiled_for_two_seconds_of_work_only(fresh, monkeypatch, capsys) -> None:
    monkeypatch.setattr(compiling, "is_on_disk", lambda name: False)
    for _ in range(100):
        assert compiling.find_loop(LOOP, 1.9) is None
    assert capsys.readouterr().err == ""
    assert compiling.find_loop(LOOP, 2.1) is not None
    assert compiling.find_loop(LOOP, 0.0) is not None  # it is there now
    assert capsys.readouterr().err.count("demur warm") == 1


def test_calls_that_are_alike_count_together(fresh, monkeypatch, capsys) -> None:
    monkeypatch.setattr(compiling, "is_on_disk", lambda name: False)
    other = f"{LOOP}-float32"
    assert compiling.find_loop(other, 1.9, repeated=True) is None  # another loop, which counts by itself
    found = [compiling.find_loop(LOOP, 0.6, repeated=True) is not None for _ in range(5)]
    assert found == [False, False, False, True, True]
    assert capsys.readouterr().err.count("demur warm") == 1


@pytest.mark.parametrize("on_disk", [True, False])
def test_where_a_seed_fixes_the_result_the_disk_does_not_decide(fresh, monkeypatch, on_disk) -> None:
    monkeypatch.setattr(compiling, "is_on_disk", lambda name: on_disk)
    found = [find_loop_by_work(LOOP, "float32", each) is not None for each in (1.9, 2.1, 1.9)]
    assert found == [False, True, False]


@pytest.mark.parametrize(("numba", "seconds"), [(False, 0.2), (True, 0.02)])
def test_a_loop_on_disk_is_loaded_once_that_pays(fresh, monkeypatch, capsys, numba, seconds) -> None:
    monkeypatch.setattr(compiling, "is_on_disk", lambda name: True)
    modules = {name: module for name, module in sys.modules.items() if name != "numba"}
    monkeypatch.setattr(compiling.sys, "modules", modules | ({"numba": None} if numba else {}))
    monkeypatch.setattr(compiling, "load_loop", lambda name: name)
    found = [compiling.find_loop(LOOP, seconds) is not None for _ in range(4)]
    assert found == [False, False, True, True]
    assert capsys.readouterr().err == ""


def test_the_user_has_the_last_word(fresh, monkeypatch) -> None:
    monkeypatch.setattr(compiling, "is_on_disk", lambda name: True)
    monkeypatch.setenv("DEMUR_COMPILE", "never")
    assert compiling.find_loop(LOOP, 1e9) is None
    assert not compiling.has_numba()
    monkeypatch.setenv("DEMUR_COMPILE", "always")
    assert compiling.find_loop(LOOP, 0.0) is not None


STAMP = """
import importlib.util, sys
source = importlib.util.spec_from_file_location("own", sys.argv[1])
module = importlib.util.module_from_spec(source)
source.loader.exec_module(module)
print(module.stamp())
"""


def test_an_edit_of_any_source_of_a_loop_is_noticed(tmp_path) -> None:
    package = Path(demur.__file__).parent
    for folder in ("core", "kernels", "posteriors", "credal", "sequences"):
        shutil.copytree(package / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))

    def stamp() -> str:
        compiling.stamp.cache_clear()
        own = str(tmp_path / "kernels" / "compiling.py")
        return subprocess.check_output([sys.executable, "-c", STAMP, own], text=True).strip()

    before = stamp()
    assert before == stamp()
    for path in (
        "kernels/layouts.py", "core/class_terms.py", "kernels/float32.py", "credal/gram.py",
        "credal/knapsack.py", "posteriors/chains/compiled_steps.py", "posteriors/chains/plain_steps.py",
        "posteriors/dropout/masks.py", "posteriors/heads/compiled_products.py", "sequences/compiled_steps.py",
    ):  # fmt: skip
        file = tmp_path / path
        file.write_text(file.read_text() + "\n# changed\n")
        after = stamp()
        assert after != before, path
        before = after


def test_every_compiled_function_is_in_a_file_that_the_stamp_knows() -> None:
    package = Path(demur.__file__).parent
    known = {str(path) for each in compiling.SOURCES for path in package.glob(each)}
    for home in HOMES:
        for name in importlib.import_module(home).LOOPS:
            importlib.import_module(name.partition("-")[0].rpartition(".")[0])
    modules = [vars(module) for name, module in sys.modules.items() if name.startswith("demur.")]
    compiled = {each for names in modules for each in names.values() if isinstance(each, Dispatcher)}
    assert len(compiled) > 50
    assert {each.py_func.__code__.co_filename for each in compiled} <= known


@pytest.mark.parametrize("home", HOMES)
def test_every_loop_is_one_that_is_kept_on_disk(home) -> None:
    for name in importlib.import_module(home).LOOPS:
        loop = compiling.load_loop(name)
        assert isinstance(loop, Dispatcher) and loop._cache.cache_path.endswith(name.partition("-")[0])


def double(x):
    return 2 * x


def halve(x):
    return x / 2


def test_a_loop_for_one_type_is_not_taken_for_that_of_another(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(compiling, "cache_folder", lambda: tmp_path)
    name = f"{halve.__module__}.halve"
    compiling.cached(halve)(np.ones(3, np.float32))
    assert compiling.is_on_disk(name) and compiling.is_on_disk(f"{name}-float32")
    assert not compiling.is_on_disk(f"{name}-float64")


@pytest.mark.parametrize("alone", [True, False])
def test_processes_that_save_at_once_do_not_mix_their_code(alone, monkeypatch, tmp_path) -> None:
    """Control: without the lock, numba leaves the index of one and the code of the other."""
    monkeypatch.setattr(compiling, "cache_folder", lambda: tmp_path)
    if not alone:
        monkeypatch.setattr(compiling, "_lock", lambda path: contextlib.nullcontext())
    # Two dispatchers stand for two processes: each compiles for a type of its own, then both save.
    both, compiled = [compiling.cached(double) for _ in range(2)], []
    saves = [each._cache.save_overload for each in both]
    for each, number in zip(both, (1.5, 2), strict=True):
        each._cache.save_overload = lambda *result: compiled.append(result)
        each(number)
    met = threading.Barrier(2)
    write_index, write_data = caching.IndexDataCacheFile._save_index, caching.IndexDataCacheFile._save_data

    def index_of_whole_numbers_last(self, overloads):
        with contextlib.suppress(threading.BrokenBarrierError):
            met.wait(0.5)
        time.sleep(0.1 if threading.current_thread().name == "whole" else 0.0)
        write_index(self, overloads)

    def data_of_fractions_last(self, name, data):
        time.sleep(0.4 if threading.current_thread().name == "fraction" else 0.0)
        write_data(self, name, data)

    monkeypatch.setattr(caching.IndexDataCacheFile, "_save_index", index_of_whole_numbers_last)
    monkeypatch.setattr(caching.IndexDataCacheFile, "_save_data", data_of_fractions_last)
    threads = [
        threading.Thread(target=save, args=result, name=name)
        for name, save, result in zip(("fraction", "whole"), saves, compiled, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert isinstance(compiling.cached(double)(2), int) == alone


def test_what_was_compiled_is_found_by_the_next_process(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(compiling, "cache_folder", lambda: tmp_path)
    name = f"{double.__module__}.double"
    assert not compiling.is_on_disk(name)
    assert compiling.cached(double)(21) == 42
    assert compiling.is_on_disk(name)
    again = compiling.cached(double)
    assert again(21) == 42
    assert sum(again.stats.cache_hits.values()) == 1


def test_where_nothing_can_be_written_loops_are_compiled_anew(monkeypatch) -> None:
    monkeypatch.setattr(compiling, "cache_folder", lambda: None)
    assert compiling.cached(double)(21) == 42
    assert not compiling.is_on_disk(f"{double.__module__}.double")


@pytest.mark.slow
def test_warm_compiles_everything_once(tmp_path) -> None:
    variables = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "demur.cli", "warm", "--json"]
    first, second = (json.loads(subprocess.check_output(command, env=variables, text=True)) for _ in range(2))
    assert all(seconds > 0 for seconds in first["loops"].values())
    assert second["loops"] == dict.fromkeys(first["loops"], 0)
