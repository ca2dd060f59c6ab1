"""LastLayer.fit: heads against scikit-learn's optimum, apart from each other, and after a kill."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import demur
from demur.posteriors import Features, HeadTraining, LastLayer
from demur.posteriors.heads import training as heads
from demur.posteriors.tensor_files import read_tensors

torch = pytest.importorskip("torch")
nn = torch.nn


def backbone():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def data(count: int = 90):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(count, 4)).astype(np.float32)
    y = (x @ rng.normal(size=(4, 3)) + rng.gumbel(size=(count, 3))).argmax(1)
    return torch.from_numpy(x), torch.from_numpy(y)


def batches(size: int = 40):
    x, y = data()
    return [(x[i : i + size], y[i : i + size]) for i in range(0, len(x), size)]


def weights(posterior) -> tuple[np.ndarray, np.ndarray]:
    return posterior.heads[0].numpy(), posterior.heads[1].numpy()


@pytest.mark.parametrize(
    ("optimizer", "start"),
    [
        ("adam", "fresh"),
        ("sgd", "network"),
        pytest.param("sgd", "fresh", marks=pytest.mark.slow),
        pytest.param("adam", "network", marks=pytest.mark.slow),
    ],
)
def test_heads_end_at_the_optimum_that_scikit_learn_finds(optimizer, start) -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    model, (x, y) = backbone().double(), data()
    training = HeadTraining(
        epochs=400, batch=90, rate=0.1 if optimizer == "adam" else 1.0, weight_decay=0.05,
        optimizer=optimizer, start=start,
    )  # fmt: skip
    posterior = LastLayer.fit(model, [(x.double(), y)], 3, training=training)
    with torch.no_grad():
        features = model[:2](x.double()).numpy()
    # The bias is a feature of its own, since the penalty is on it too.
    with_one = np.concatenate([features, np.ones((90, 1))], 1)
    best = linear.LogisticRegression(C=1 / (0.05 * 90), fit_intercept=False, tol=1e-10, max_iter=5000)
    expected = best.fit(with_one, y.numpy()).coef_
    found = np.concatenate([weights(posterior)[0], weights(posterior)[1][..., None]], -1)
    for head in found:
        np.testing.assert_allclose(head, expected, atol=2e-4)
    # The check can fail: with another penalty the optimum is elsewhere.
    best.set_params(C=1 / (0.06 * 90)).fit(with_one, y.numpy())
    assert np.abs(best.coef_ - expected).max() > 2e-2


def test_heads_that_are_trained_together_know_nothing_of_each_other(monkeypatch) -> None:
    model, training = backbone().double(), HeadTraining(epochs=3, batch=16)
    loader = [(x.double(), y) for x, y in batches()]
    together = weights(LastLayer.fit(model, loader, 5, training=training, seed=3))
    monkeypatch.setattr(heads, "WEIGHTS_TOGETHER", 2 * 18)  # two heads at a time
    apart = weights(LastLayer.fit(model, loader, 5, training=training, seed=3))
    for a, b in zip(together, apart, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    assert all((together[0][0] != other).any() for other in together[0][1:])
    other_seed = weights(LastLayer.fit(model, loader, 1, training=training, seed=4))
    assert (other_seed[0][0] != together[0][0]).any()


def test_one_head_is_a_plain_loop() -> None:
    """The same batches, a layer and an optimizer of PyTorch's own."""
    from demur.posteriors.networks import derive_seed

    x, y = data()
    layer = nn.Linear(4, 3)
    training = HeadTraining(epochs=2, batch=32, rate=1e-3, start="network", noise=0.0, weight_decay=0.02)
    found = LastLayer.fit(layer, [(x, y)], 1, training=training, seed=9)
    plain = nn.Linear(4, 3)
    plain.load_state_dict(layer.state_dict())
    optimizer = torch.optim.Adam(plain.parameters(), weight_decay=0.02)
    for epoch in range(2):
        order = torch.randperm(90, generator=torch.Generator().manual_seed(derive_seed(9, 0, epoch)))
        for step, index in enumerate(order.split(32)):
            optimizer.param_groups[0]["lr"] = 1e-3 * (1 + np.cos(np.pi * (epoch * 3 + step) / 6)) / 2
            optimizer.zero_grad()
            nn.functional.cross_entropy(plain(x[index]), y[index]).backward()
            optimizer.step()
    np.testing.assert_allclose(weights(found)[0][0], plain.weight.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(weights(found)[1][0], plain.bias.detach().numpy(), rtol=1e-5)


def test_how_heads_start() -> None:
    layer = nn.Linear(400, 300)
    fresh = heads.draw_start(layer, HeadTraining(), 1)[0]
    bound = 1 / 20
    assert fresh.abs().max() < bound and abs(float(fresh.std()) - bound / 3**0.5) < 0.01 * bound
    near = heads.draw_start(layer, HeadTraining(start="network", noise=0.3), 1)
    for found, own in zip(near, (layer.weight, layer.bias), strict=True):
        own = own.detach().double()
        away = (found - own).square().mean().sqrt() / own.square().mean().sqrt()
        assert abs(float(away) - 0.3) < 0.3 * 5 / (2 * own.numel()) ** 0.5  # five standard errors
    without = heads.draw_start(nn.Linear(4, 3, bias=False), HeadTraining(start="network"), 1)
    assert (without[1] == 0).all()


def test_a_file_is_gone_on_with_and_becomes_what_save_writes(tmp_path, monkeypatch) -> None:
    model, path = backbone(), tmp_path / "heads.safetensors"
    training = HeadTraining(epochs=6, batch=16, optimizer="sgd", rate=0.05)
    monkeypatch.setattr(heads, "WEIGHTS_TOGETHER", 2 * 18)
    expected = weights(LastLayer.fit(model, batches(), 3, training=training))

    class Killed(BaseException):
        pass

    steps, original = [], heads.HeadGroup.step
    for limit in (10, 30, 40, 60):  # in the first pair of heads, and in the one after it

        def counted(self, *arguments, limit=limit):
            steps.append(1)
            if len(steps) == limit:
                raise Killed
            return original(self, *arguments)

        monkeypatch.setattr(heads.HeadGroup, "step", counted)
        with pytest.raises(Killed):
            LastLayer.fit(model, batches(), 3, training=training, path=path, every=0.0)
        with pytest.raises(ValueError, match=r"written by LastLayer.save.*of LastLayer.fit"):
            LastLayer.load(path, model)
    done = LastLayer.fit(model, batches(), 3, training=training, path=path, every=0.0)
    assert len(steps) < 60 + 6 * 6 * 2  # what was done is not done again
    for a, b in zip(weights(done), expected, strict=True):
        np.testing.assert_array_equal(a, b)
    loaded = LastLayer.load(path, model)
    np.testing.assert_array_equal(weights(loaded)[0], expected[0])
    before = len(steps)
    again = LastLayer.fit(model, batches(), 3, training=training, path=path)
    np.testing.assert_array_equal(weights(again)[0], expected[0])
    assert len(steps) == before
    wrong = [
        ("seed was 0 and is 1", {"seed": 1}, model, batches()),
        ("epochs was 6 and is 7", {"training": HeadTraining(epochs=7, batch=16)}, model, batches()),
        ("features changed", {}, model, batches(30)),
        ("features changed", {}, nn.Sequential(*model[:2], nn.Linear(6, 3)), batches()),
    ]
    for message, options, other, loader in wrong:
        with pytest.raises(ValueError, match=f"of another.*{message}.*choose another name"):
            LastLayer.fit(other, loader, 3, path=path, **{"training": training, **options})
    done.save(path)
    with pytest.raises(ValueError, match="file of this fit"):
        LastLayer.fit(model, batches(), 3, training=training, path=path)


CODE = """
import sys, torch
from demur.posteriors import Features, HeadTraining, LastLayer
from demur.posteriors.networks import set_threads

def heads(path):
    source = torch.Generator().manual_seed(0)
    x = torch.randn(1500, 20, generator=source)
    y = (x @ torch.randn(20, 5, generator=source)).argmax(1)
    training = HeadTraining(epochs=10, batch=16)
    with set_threads(1):
        return LastLayer.fit(
            torch.nn.Linear(20, 5), Features(x, y), 4, path=path, every=0.0, training=training).heads
"""


def test_after_sigkill_the_same_call_gives_the_same_heads(tmp_path) -> None:
    path = tmp_path / "heads.safetensors"
    child = subprocess.Popen(
        [sys.executable, "-c", f"{CODE}\nheads(sys.argv[1])", str(path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end and child.poll() is None
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    state, facts = read_tensors(path, "LastLayer.fit")
    assert 0 < int(state["epoch"]) < 10 and json.loads(facts["settings"])["epochs"] == 10
    names: dict = {}
    exec(CODE, names)
    for a, b in zip(names["heads"](path), names["heads"](None), strict=True):
        np.testing.assert_array_equal(a, b)


def test_heads_on_a_mapped_file_are_those_in_memory(tmp_path) -> None:
    model, training = backbone(), HeadTraining(epochs=2, batch=16)
    fitted = [
        LastLayer.fit(model, batches(), 2, training=training, cache=cache)
        for cache in (None, tmp_path / "cache", tmp_path / "cache")
    ]
    for other in fitted[1:]:
        np.testing.assert_array_equal(weights(other)[0], weights(fitted[0])[0])
    x, y = data()
    scores = demur.score(fitted[0], [(x, y)])
    assert scores.members == 2 and (scores["pairwise"].epistemic > 0).all()


def test_what_fit_refuses() -> None:
    model, (x, y) = backbone(), data()
    fit = LastLayer.fit
    wrong = [
        (ValueError, "fit takes labels", lambda: fit(model, [x])),
        (ValueError, "integers from 0 to 2.*to 3", lambda: fit(model, [(x, y + 1)])),
        (ValueError, "integers from 0 to 2.*float", lambda: fit(model, [(x, y.float())])),
        (ValueError, "must be 6, as the last layer takes. Got 4", lambda: fit(model, Features(x, y))),
        (ValueError, "members must be", lambda: fit(model, [(x, y)], 0)),
        (TypeError, "must be a HeadTraining. Got dict", lambda: fit(model, [(x, y)], training={})),
        (ValueError, "not finite in epoch 1. Choose a rate below",
         lambda: fit(model, [(x, y)], training=HeadTraining(rate=1e38, optimizer="sgd"))),
        (ValueError, "epochs must be", lambda: HeadTraining(epochs=0)),
        (ValueError, "optimizer must be 'adam' or 'sgd'", lambda: HeadTraining(optimizer="lbfgs")),
        (ValueError, "start must be 'fresh' or 'network'", lambda: HeadTraining(start="any")),
        (ValueError, "rate must be above 0", lambda: HeadTraining(rate=0.0)),
        (ValueError, "noise must be 0 or more", lambda: HeadTraining(noise=float("nan"))),
        (ValueError, "momentum must be", lambda: HeadTraining(momentum=1.0)),
    ]  # fmt: skip
    for kind, message, call in wrong:
        with pytest.raises(kind, match=message):
            call()
