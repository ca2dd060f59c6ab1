"""Training of SNGP, DUQ and DUE: seeds, resuming after a kill, data of all kinds, and bad input."""

import subprocess
import sys
import time

import numpy as np
import pytest

from demur.posteriors import Features, features
from demur.posteriors.one_pass import DUE, DUQ, SNGP, NetworkTraining

torch = pytest.importorskip("torch")
nn = torch.nn
TRAINING = NetworkTraining(epochs=4, batch=20, rate=0.02, optimizer="adam")
METHODS = {
    SNGP: {"features": 16, "samples": 3},
    DUQ: {"size": 4, "length_scale": 0.5},
    DUE: {"inducing": 5, "draws": 4, "samples": 3},
}
ONE_IS_QUICK = [SNGP, *(pytest.param(kind, marks=pytest.mark.slow) for kind in (DUQ, DUE))]


def made():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    return rng.normal(size=(90, 4)) + y[:, None], y


def extractor():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.2), nn.Tanh()).double()


def fit(kind, data=None, model=None, **options):
    given = {"classes": 3, "training": TRAINING, "progress": False, **METHODS[kind], **options}
    return kind.fit(model or extractor(), data or made(), **given)


@pytest.mark.parametrize("kind", ONE_IS_QUICK)
@pytest.mark.parametrize("optimizer", [pytest.param("sgd", marks=pytest.mark.slow), "adam"])
def test_an_interrupted_fit_resumes_to_the_same_bytes(kind, optimizer, tmp_path, monkeypatch) -> None:
    from demur.posteriors import resumable_training

    training = NetworkTraining(epochs=3, batch=20, rate=0.01, optimizer=optimizer)
    fit(kind, training=training).save(tmp_path / "whole")
    write, count = resumable_training.TrainingFile.write, []

    def write_and_die(self, step, tensors):
        write(self, step, tensors)
        count.append(step)
        if step == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(resumable_training.TrainingFile, "write", write_and_die)
    options = {"checkpoint": tmp_path / "run", "every": 0, "training": training}
    with pytest.raises(KeyboardInterrupt):
        fit(kind, **options)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="of another: seed was 0 and is 1"):
        fit(kind, seed=1, **options)
    fit(kind, **options).save(tmp_path / "resumed")
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "resumed").read_bytes()
    assert count == list(range(1, 8))


@pytest.mark.slow
@pytest.mark.parametrize("kind", METHODS)
def test_after_sigkill_the_same_call_gives_the_same_bytes(kind, tmp_path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from posteriors.one_pass import test_training as t\n"
        f"t.fit(t.{kind.__name__}, checkpoint=sys.argv[2] + '/run', every=0,\n"
        "      training=t.NetworkTraining(epochs=60, batch=20, rate=0.01)).save(sys.argv[2] + '/done')\n"
    )
    tests = __file__.rsplit("/posteriors/", 1)[0]
    command = [sys.executable, "-c", code, tests, str(tmp_path)]
    running = subprocess.Popen(command)
    while not (tmp_path / "run").exists():
        time.sleep(0.05)
    time.sleep(0.2)
    running.kill()
    running.wait()
    assert not (tmp_path / "done").exists()
    subprocess.run(command, check=True)
    fit(kind, training=NetworkTraining(epochs=60, batch=20, rate=0.01)).save(tmp_path / "whole")
    assert (tmp_path / "done").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize("kind", ONE_IS_QUICK)
def test_a_seed_fixes_everything_and_nothing_is_left_behind(kind, tmp_path) -> None:
    model = extractor()
    before, state = {n: t.clone() for n, t in model.state_dict().items()}, torch.random.get_rng_state()
    fit(kind, model=model).save(tmp_path / "a")
    assert torch.equal(state, torch.random.get_rng_state())
    torch.manual_seed(5)
    fit(kind).save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    fit(kind, seed=1).save(tmp_path / "c")
    assert (tmp_path / "c").read_bytes() != (tmp_path / "a").read_bytes()


@pytest.mark.parametrize("kind", ONE_IS_QUICK)
def test_loaders_features_and_single_precision(kind, tmp_path) -> None:
    x, y = made()
    data = torch.utils.data.TensorDataset(torch.from_numpy(x).float(), torch.from_numpy(y))
    loader = torch.utils.data.DataLoader(data, batch_size=30, shuffle=True)
    single = extractor().float()
    found = fit(kind, loader, model=single)
    assert np.isfinite(found.score([x])).all()  # arrays of float64 to a network of float32
    assert np.isfinite(fit(kind, (x, y), model=single).score([x])).all()
    half = Features(x.astype(np.float16), y)
    assert np.isfinite(fit(kind, half, model=nn.Identity()).score(half, progress=False)).all()
    cached = features(nn.Sequential(single, nn.Linear(6, 3)), [(x, y)], cache=tmp_path)  # a mapped file
    assert np.isfinite(fit(kind, cached, model=nn.Identity()).score(cached, progress=False)).all()


def test_settings_of_training_are_checked() -> None:
    for wrong in ({"epochs": 0}, {"rate": 0}, {"optimizer": "lbfgs"}, {"momentum": 1}, {"weight_decay": -1}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
            NetworkTraining(**wrong)


@pytest.mark.parametrize("kind", METHODS)
def test_bad_input_is_one_clear_line(kind) -> None:
    x, y = made()
    with pytest.raises(ValueError, match="labels must be integers from 0 to 1, one for each input"):
        fit(kind, classes=2)
    with pytest.raises(ValueError, match=r"model must return features of shape \(inputs, features\)"):
        fit(kind, model=nn.Unflatten(1, (2, 2)))
    with pytest.raises(TypeError, match="training must be a NetworkTraining"):
        fit(kind, training={"epochs": 3})
    with pytest.raises(ValueError, match="classes must be at least 2"):
        fit(kind, (x, y * 0), classes=1)
    with pytest.raises(ValueError, match="fit takes labels"):
        fit(kind, Features(x))
    with pytest.raises(ValueError, match=r"Expected training to converge|training that diverged"):
        fit(kind, training=NetworkTraining(epochs=50, batch=20, rate=1e200))
