"""Features on disk: what a network gives, whole or cut, and never of another network or other inputs."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import demur
from demur.posteriors import Features, LastLayer, features

torch = pytest.importorskip("torch")
nn = torch.nn


def network(seed: int = 1):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 3))


class Counted(nn.Module):
    def __init__(self, inner) -> None:
        super().__init__()
        self.inner, self.calls = inner, 0

    def forward(self, x):
        self.calls += 1
        return self.inner(x)


def batches(size: int = 7, count: int = 25):
    rng = np.random.default_rng(3)
    x = torch.from_numpy(rng.normal(size=(count, 4)).astype(np.float32))
    y, ids = torch.arange(count) % 3, [f"row {i}" for i in range(count)]
    return [(x[i : i + size], y[i : i + size], ids[i : i + size]) for i in range(0, count, size)]


def expected(model, loader) -> np.ndarray:
    with torch.no_grad():
        return torch.cat([model[:2](x) for x, *_ in loader]).numpy()


@pytest.mark.parametrize("kept", [False, True])
def test_features_are_what_comes_into_the_last_layer(kept, tmp_path) -> None:
    model = network()
    found = features(model, batches(), cache=tmp_path / "cache" if kept else None, rows=10)
    assert isinstance(found.values, np.memmap) == kept and model.training
    np.testing.assert_array_equal(found.values, expected(model, batches()))
    np.testing.assert_array_equal(found.labels, np.arange(25) % 3)
    assert found.ids.tolist() == [f"row {i}" for i in range(25)] and found.layer is model[-1]
    assert [len(values) for values, *_ in found] == [10, 10, 5] and len(found) == 3


def test_scores_on_features_are_scores_on_inputs(tmp_path) -> None:
    model = network()
    heads = [nn.Linear(6, 3) for _ in range(4)]
    whole = demur.score(LastLayer(model, heads), batches())
    found = features(model, batches(), cache=tmp_path, rows=10)
    scores = demur.score(LastLayer(found.layer, heads), found)
    for name in ("labels", "ids", "deployed", "predictions"):
        np.testing.assert_array_equal(getattr(scores, name), getattr(whole, name))
    np.testing.assert_allclose(scores["pairwise"].epistemic, whole["pairwise"].epistemic, rtol=1e-4)
    half = features(model, batches(), dtype="float16")
    assert half.values.dtype == np.float16
    near = demur.score(LastLayer(half.layer, heads), half)
    np.testing.assert_allclose(near["pairwise"].epistemic, whole["pairwise"].epistemic, rtol=0.05)


def test_a_cache_runs_no_network_and_goes_on_after_an_error(tmp_path) -> None:
    model = Counted(network())
    loader = batches()
    broken = [*loader[:2], (torch.zeros(3, 5), loader[2][1][:3], ["a", "b", "c"])]
    with pytest.raises(RuntimeError):
        features(model, broken, cache=tmp_path)
    with open(tmp_path / "features.bin", "ab") as file:  # what a kill may leave behind the last entry
        file.write(b"half a row")
    model.calls = 0
    found = features(model, loader, cache=tmp_path)
    assert model.calls == 2
    np.testing.assert_array_equal(found.values, expected(model.inner, loader))
    again = features(model, loader, cache=tmp_path)
    assert model.calls == 2 and again.mark == found.mark
    np.testing.assert_array_equal(again.values, found.values)
    assert sorted(os.listdir(tmp_path)) == ["features.bin", "index.npz"]


def test_other_networks_and_other_inputs_are_noticed(tmp_path) -> None:
    model, loader = network(), batches()
    features(model, loader, cache=tmp_path)
    other = network()
    with torch.no_grad():
        other[0].bias[3] += 1e-6
    changed = batches()
    changed[1][0][3, 2] += 1e-6  # in the middle of a batch
    relabelled = batches()
    relabelled[3][1][2] += 1
    wrong = [
        ("model changed", other, loader, {}),
        ("dtype was None and is '<f2'", model, loader, {"dtype": "float16"}),
        ("Got others at input 7", model, changed, {}),
        ("Got others at input 21", model, relabelled, {}),
        ("Got others at input 0", model, batches(5), {}),
        ("expected 4 batches, as it holds. Got 3", model, loader[:3], {}),
        ("expected 25 inputs, as it holds. Got more", model, [*loader, loader[0]], {}),
    ]
    for message, network_given, given, options in wrong:
        with pytest.raises(ValueError, match=message):
            features(network_given, given, cache=tmp_path, **options)
    assert len(features(model, loader, cache=tmp_path).values) == 25
    (tmp_path / "features.bin").write_bytes(b"short")
    with pytest.raises(ValueError, match=r"expected 600 bytes.*Got 5. Remove the folder"):
        features(model, loader, cache=tmp_path)


@pytest.mark.parametrize("complete", [True, False])
def test_a_flipped_bit_of_a_cache_is_noticed(tmp_path, complete) -> None:
    model, loader = network(), batches()
    if complete:
        features(model, loader, cache=tmp_path)
    else:
        with pytest.raises(RuntimeError):
            features(model, [*loader[:2], torch.zeros(3, 5)], cache=tmp_path)
    path = tmp_path / "features.bin"
    whole = path.read_bytes()
    for at in (
        0,
        7 * 24 - 1,
        7 * 24,
        14 * 24 - 1,
    ):  # seven inputs in a batch, six float32 numbers in an input
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        first = 7 * (at // (7 * 24))
        with pytest.raises(
            ValueError, match=rf"other numbers for inputs {first} to {first + 6}\. Remove the fo"
        ):
            features(model, loader, cache=tmp_path)
    path.write_bytes(whole)
    np.testing.assert_array_equal(features(model, loader, cache=tmp_path).values, expected(model, loader))


def test_a_changed_index_of_a_cache_is_noticed(tmp_path) -> None:
    model, loader = network(), batches()
    features(model, loader, cache=tmp_path)
    path = tmp_path / "index.npz"
    with np.load(path) as file:
        content = dict(file)
    for name, value in (
        ("labels", content["labels"] + 1),
        ("size", np.array(3)),
        ("inputs", np.array([1, 2])),
    ):
        np.savez(path, **(content | {name: value}))
        with pytest.raises(ValueError, match=r"changed since it was written\. Remove it"):
            features(model, loader, cache=tmp_path)
    np.savez(path, **{name: value for name, value in content.items() if name != "marks"})
    with pytest.raises(ValueError, match=r"changed since it was written\. Remove it"):
        features(model, loader, cache=tmp_path)


CODE = """
import sys, time, torch
from demur.posteriors import features

def found(folder, pause):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))
    x = torch.randn(60, 4)

    class Loader:
        def __iter__(self):
            for i in range(0, 60, 3):
                time.sleep(pause)
                yield x[i : i + 3]

    return features(model, Loader(), cache=folder, every=0.0).values
"""


def test_after_sigkill_the_same_call_gives_the_same_features(tmp_path) -> None:
    index = tmp_path / "cache" / "index.npz"
    child = subprocess.Popen(
        [sys.executable, "-c", f"{CODE}\nfound(sys.argv[1], 0.05)", str(index.parent)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    end = time.monotonic() + 60
    while not index.exists():
        assert time.monotonic() < end and child.poll() is None
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    with np.load(index) as file:
        assert 0 < file["inputs"] < 60 and not file["complete"]
    names: dict = {}
    exec(CODE, names)
    np.testing.assert_array_equal(names["found"](index.parent, 0), names["found"](None, 0))


def test_what_is_refused() -> None:
    model, large = network(), nn.Sequential(nn.Identity(), nn.Linear(4, 3))
    wrong = [
        (ValueError, "dtype must be a floating type", lambda: features(model, batches(), dtype="int8")),
        (ValueError, "finite numbers of type float16. Got up to 1e", lambda: features(
            large, [torch.full((2, 4), 1e6)], dtype="float16")),
        (ValueError, "labels must be in every batch", lambda: features(
            model, [batches()[0][:2], batches()[1][0]])),
        (ValueError, r"shape \(inputs, features\). Got int64", lambda: Features(np.arange(4))),
        (ValueError, r"labels must be one for each input, shape \(2,\)", lambda: Features(
            np.zeros((2, 3)), labels=[1])),
    ]  # fmt: skip
    for kind, message, call in wrong:
        with pytest.raises(kind, match=message):
            call()
