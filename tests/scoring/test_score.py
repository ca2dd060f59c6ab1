"""score: loaders, loop orders, checkpoints, files, and what is left behind."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import demur
from demur.posteriors import DeepEnsemble, LastLayer, MCDropout, Posterior, Samples

torch = pytest.importorskip("torch")
nn = torch.nn
PARTS = ("total", "aleatoric", "epistemic")
MEASURES = ("pairwise", "average", "reverse")


def network(seed: int, kind=torch.float64, inputs: int = 6):
    torch.manual_seed(seed)
    layers = (
        nn.Linear(inputs, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 8),
        nn.Dropout(0.2), nn.Linear(8, 4),
    )  # fmt: skip
    return nn.Sequential(*layers).to(kind)


def data(count: int = 23):
    rng = np.random.default_rng(7)
    return torch.from_numpy(rng.normal(size=(count, 6))), torch.from_numpy(rng.integers(0, 4, count))


def batches(size: int = 5):
    x, y = data()
    return [(x[i : i + size], y[i : i + size]) for i in range(0, len(x), size)]


def posteriors():
    model = network(0)
    heads = [nn.Linear(8, 4).double() for _ in range(3)]
    return {
        "ensemble": DeepEnsemble([network(s) for s in range(4)], weights=[1.0, 2.0, 0.5, 1.0]),
        "dropout": MCDropout(model, samples=7),
        "heads": LastLayer(model, heads, weights=[1.0, 3.0, 1.0]),
        "last dropout": LastLayer(model, dropout=0.2, samples=6),
        "callable": Samples(lambda x: torch.stack([x[:, :4], x[:, 2:]]), kind="logits", members=2),
    }


NAMES = ("ensemble", "dropout", "heads", "last dropout", "callable")


def same(left, right, rtol: float = 1e-12) -> None:
    for measure, part in itertools.product(MEASURES, PARTS):
        a, b = getattr(left[measure], part), getattr(right[measure], part)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-15, err_msg=f"{measure} {part}")
    np.testing.assert_array_equal(left.predictions, right.predictions)


# --- what comes out ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_those_of_all_predictions_at_once(name) -> None:
    posterior = posteriors()[name]
    scores = demur.score(posterior, batches())
    at, whole, weights = 0, [], None
    for x, _ in batches():
        chunks = [c if isinstance(c, tuple) else (c, None) for c in posterior.predict(x, position=at)]
        values = [getattr(c, "values", c) if isinstance(c, demur.Categorical) else c for c, _ in chunks]
        whole.append(np.concatenate([v.detach().numpy() for v in values]))
        weights = None if chunks[0][1] is None else np.concatenate([w for _, w in chunks])
        at += len(x)
    logits = np.concatenate(whole, axis=1)
    assert scores.members == len(logits)
    for measure in MEASURES:
        expected = demur.decompose(logits=logits, weights=weights, measure=measure)
        for part in PARTS:
            np.testing.assert_allclose(
                getattr(scores[measure], part), getattr(expected, part), rtol=1e-9, atol=1e-14
            )
    np.testing.assert_array_equal(scores.labels, data()[1].numpy())
    assert (scores["pairwise"].epistemic > 0).all()
    assert scores.correct.mean() == (scores.predictions == scores.labels).mean()


@pytest.mark.parametrize("name", NAMES)
def test_both_loop_orders_give_the_same_scores(name) -> None:
    by_batch = demur.score(posteriors()[name], batches())
    by_member = demur.score(posteriors()[name], batches(), order="member")
    same(by_batch, by_member)
    np.testing.assert_array_equal(by_batch.labels, by_member.labels)
    if by_batch.deployed is not None:
        np.testing.assert_array_equal(by_batch.deployed, by_member.deployed)


@pytest.mark.parametrize("order", ["batch", "member"])
def test_batches_without_inputs_are_left_out(order) -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(4, 3)), torch.randn(5, 4)
    posterior = MCDropout(model, samples=3)
    whole, parts = (
        demur.score(posterior, batches, order=order, progress=False)
        for batches in ([x[:2], x[2:]], [x[:0], x[:2], x[:0], x[2:], x[:0]])
    )
    np.testing.assert_array_equal(parts["pairwise"].epistemic, whole["pairwise"].epistemic)
    with pytest.raises(ValueError, match=r"loader must have inputs\. Got none"):
        demur.score(posterior, [x[:0]], order=order, progress=False)


def test_control_other_noise_is_not_the_same() -> None:
    model = network(0)
    with pytest.raises(AssertionError):
        same(
            demur.score(MCDropout(model, samples=7), batches()),
            demur.score(MCDropout(model, samples=7, seed=1), batches()),
        )


def test_standard_errors_and_unbiased_values() -> None:
    ensemble = DeepEnsemble([network(s) for s in range(5)])
    x, _ = data()
    scores = demur.score(ensemble, [x], stderr=True, unbiased=True, base=2)
    logits = np.concatenate([c.numpy() for c, _ in ensemble.predict(x)])
    expected = demur.decompose(logits=logits, measure="average", stderr=True, unbiased=True, base=2)
    np.testing.assert_allclose(scores["average"].epistemic, expected.epistemic, rtol=1e-9)
    np.testing.assert_allclose(scores["average"].stderr.epistemic, expected.stderr.epistemic, rtol=1e-7)


def test_gaussian_heads() -> None:
    def forward(model, x):
        out = model(x)
        return demur.Gaussian(out[:, 0], variance=out[:, 1].exp())

    ensemble = DeepEnsemble([network(s) for s in range(4)], forward=forward)
    x, y = data()
    scores = demur.score(ensemble, [(x[:9], y[:9]), (x[9:], y[9:])])
    out = torch.stack([m.eval()(x) for m in ensemble.models]).detach().numpy()
    members = demur.Gaussian(out[..., 0], variance=np.exp(out[..., 1]))
    for measure in MEASURES:
        np.testing.assert_allclose(
            scores[measure].epistemic, demur.decompose(members, measure=measure).epistemic, rtol=1e-8
        )
    np.testing.assert_allclose(np.ravel(scores.predictions), out[..., 0].mean(0), rtol=1e-12)
    pairs = demur.score(ensemble, [x], order="member", measures=["pairwise"])
    np.testing.assert_allclose(pairs["pairwise"].epistemic, scores["pairwise"].epistemic, rtol=1e-10)


# --- loaders -------------------------------------------------------------------------------------


class Named(nn.Module):
    """A classifier as Hugging Face writes them: named inputs, an object with logits."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.inner = network(seed)

    def forward(self, features, scale=None):
        class Output:
            logits = self.inner(features if scale is None else features * scale)

        return Output()


def test_every_kind_of_loader() -> None:
    x, y = data()
    ensemble = DeepEnsemble([network(s) for s in range(3)])
    expected = demur.score(ensemble, [(x, y)])
    dataset = torch.utils.data.TensorDataset(x, y)
    loaders = {
        "DataLoader": torch.utils.data.DataLoader(dataset, batch_size=4),
        "arrays": [x[:10], x[10:]],
        "numpy": x.numpy(),
        "numpy pairs": [(x.numpy(), y.numpy())],
        "generator": ((a, b) for a, b in batches()),
    }
    for name, loader in loaders.items():
        scores = demur.score(ensemble, loader)
        same(scores, expected, rtol=1e-9)
        assert (scores.labels is None) == (name in ("arrays", "numpy")), name


def test_mappings_have_labels_and_ids() -> None:
    x, y = data()
    named = DeepEnsemble([Named(s) for s in range(3)])
    expected = demur.score(DeepEnsemble([network(s) for s in range(3)]), [x])
    ids = [f"row {i}" for i in range(len(x))]
    scores = demur.score(named, [{"features": x, "labels": y, "id": ids}])
    same(scores, expected)
    assert scores.ids is not None and scores.ids.tolist() == ids
    np.testing.assert_array_equal(scores.labels, y.numpy())
    with_two = demur.score(named, [{"features": x, "scale": torch.ones(1).double()}])
    same(with_two, expected)
    other_name = demur.score(DeepEnsemble([network(s) for s in range(3)]), [{"anything": x}])
    same(other_name, expected)


def test_a_loader_that_shuffles_does_so_alike_for_each_member() -> None:
    dataset = torch.utils.data.TensorDataset(*data())
    ensemble = DeepEnsemble([network(s) for s in range(3)])
    for generator in (None, torch.Generator().manual_seed(3)):
        loader = torch.utils.data.DataLoader(dataset, batch_size=4, shuffle=True, generator=generator)
        same(demur.score(ensemble, loader, order="member"), demur.score(ensemble, loader))


def test_a_loader_that_changes_between_passes_is_refused() -> None:
    class Noisy:
        calls = 0

        def __iter__(self):
            Noisy.calls += 1
            yield data()[0] + Noisy.calls

    ensemble = DeepEnsemble([network(s) for s in range(3)])
    with pytest.raises(ValueError, match=r"same batches in each pass.*Switch off shuffling"):
        demur.score(ensemble, Noisy(), order="member")


# --- nothing is left behind ----------------------------------------------------------------------


def everything(model) -> list:
    modes = [m.training for m in model.modules()]
    buffers = [b.numpy().copy() for b in model.buffers()]
    grads = [None if p.grad is None else p.grad.numpy().copy() for p in model.parameters()]
    return [modes, buffers, grads, torch.get_rng_state().numpy(), random.getstate(), np.random.get_state()]  # noqa: NPY002


def check_untouched(model, before) -> None:
    after = everything(model)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_equal(new, old)
    assert all(not m._forward_hooks for m in model.modules())
    assert torch.is_grad_enabled() and torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("order", ["batch", "member"])
@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("method", ["ensemble", "dropout", "last layer"])
def test_models_and_generators_are_as_they_were(method, broken, order) -> None:
    model = network(0).train()
    model[1].eval()  # somebody froze the statistics
    model(data()[0]).sum().backward()
    posterior = {
        "ensemble": lambda: DeepEnsemble([model, network(1)]),
        "dropout": lambda: MCDropout(model, samples=3),
        "last layer": lambda: LastLayer(model, dropout=0.5, samples=3),
    }[method]()
    dataset = torch.utils.data.TensorDataset(*data())
    loader = torch.utils.data.DataLoader(dataset, batch_size=4, shuffle=True)
    if broken:
        x, y = data()
        loader = [(x[:4], y[:4]), (x[:4, :3], y[:4])]  # three features are too few
    before = everything(model)
    if broken:
        with pytest.raises(RuntimeError):
            demur.score(posterior, loader, order=order)
    else:
        demur.score(posterior, loader, order=order)
    check_untouched(model, before)


def test_control_the_check_objects_to_what_a_plain_loop_leaves() -> None:
    model = network(0).train()
    for careless in (model.eval, lambda: model.train()(data()[0]), lambda: torch.rand(1)):
        model.train()
        before = everything(model)
        careless()
        with pytest.raises(AssertionError):
            check_untouched(model, before)


# --- checkpoints ---------------------------------------------------------------------------------


class Killed(BaseException):
    """As a signal would end it."""


@pytest.mark.parametrize("order", ["batch", "member"])
@pytest.mark.parametrize("method", ["dropout", "ensemble"])
def test_a_killed_run_goes_on_to_the_same_scores(order, method, tmp_path, monkeypatch) -> None:
    path = tmp_path / "run.checkpoint"
    expected = demur.score(posteriors()[method], batches(), order=order, stderr=True)
    calls, limit = [], 3 if order == "batch" else 12

    def counted(self, *arguments, original, **options):
        calls.append(1)
        if len(calls) == limit:
            raise Killed
        return original(self, *arguments, **options)

    kind = type(posteriors()[method])
    original = kind.predict
    monkeypatch.setattr(kind, "predict", lambda self, *a, **o: counted(self, *a, original=original, **o))
    options = {"order": order, "stderr": True, "checkpoint": path, "every": 0.0}
    with pytest.raises(Killed):
        demur.score(posteriors()[method], batches(), **options)
    assert path.exists()
    before, limit = len(calls), -1
    scores = demur.score(posteriors()[method], batches(), **options)
    whole = 5 if order == "batch" else 5 * expected.members
    assert len(calls) - before < whole  # what was done is not done again
    for name, values in expected.columns.items():
        np.testing.assert_array_equal(scores.columns[name], values)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_of_another_run_is_refused(tmp_path, monkeypatch) -> None:
    path = tmp_path / "run.checkpoint"
    model = network(0)
    with pytest.raises(RuntimeError):
        demur.score(MCDropout(model, 3), [data()[0], data()[0][:, :2]], checkpoint=path, every=0.0)
    with pytest.raises(ValueError, match="run with other settings"):
        demur.score(MCDropout(model, 4), [data()[0]], checkpoint=path)
    with pytest.raises(ValueError, match="same batches as before"):
        demur.score(MCDropout(model, 3), [data()[0] + 1], checkpoint=path)
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match="expected a file of this run"):
        demur.score(MCDropout(model, 3), [data()[0]], checkpoint=path)


def _without(name):
    return lambda content: {each: values for each, values in content.items() if each != name}


TAMPERED = {
    "changed": lambda content: content | {"inputs": np.array(3)},
    "shortened": lambda content: content | {"marks": content["marks"][:0]},
    "removed": _without("members"),
    "without a header": _without("header"),
    "a list": lambda content: content | {"header": np.array("[]")},
    "a number": lambda content: content | {"header": np.array("5")},
    "nested": lambda content: content | {"header": np.array("[" * 100_000)},
    "settings": lambda content: (
        content
        | {"header": np.array(str(content["header"]).replace('"settings": {', '"settings": [5], "old": {'))}
    ),
    "numbers": lambda content: content | {"header": np.arange(3)},
}


@pytest.mark.parametrize("edit", TAMPERED.values(), ids=TAMPERED.keys())
def test_a_tampered_checkpoint_is_refused_in_one_line(edit, tmp_path) -> None:
    path = tmp_path / "run.checkpoint"
    model = network(0)
    with pytest.raises(RuntimeError):
        demur.score(MCDropout(model, 3), [data()[0], data()[0][:, :2]], checkpoint=path, every=0.0)
    with np.load(path) as file:
        content = dict(file)
    with path.open("wb") as file:
        np.savez(file, **edit(content))
    with pytest.raises(ValueError, match="checkpoint: expected a file of this run") as caught:
        demur.score(MCDropout(model, 3), [data()[0], data()[0]], checkpoint=path)
    assert "\n" not in str(caught.value)


def test_changed_parameters_are_noticed(tmp_path) -> None:
    from sklearn.ensemble import RandomForestClassifier

    path = tmp_path / "run.checkpoint"
    x, y = data()
    heads = [nn.Linear(8, 4).double() for _ in range(2)]

    def forest(seed: int):
        return demur.posteriors.Forest(
            RandomForestClassifier(5, random_state=seed).fit(x[:, :3], y), prior=1.0
        )

    def other(model, name):
        model.state_dict()[name].view(-1)[0] += 1e-9
        return model

    def rate(model):
        model[3].p = 0.4
        return model

    # What is scored first, and what then must not go on from it; the last pair is the same twice.
    pairs = {
        "weight": (lambda: MCDropout(network(0), 3), lambda: MCDropout(other(network(0), "4.weight"), 3)),
        "buffer": (lambda: MCDropout(network(0), 3),
                   lambda: MCDropout(other(network(0), "1.running_mean"), 3)),
        "rate": (lambda: MCDropout(network(0), 3), lambda: MCDropout(rate(network(0)), 3)),
        "member": (lambda: DeepEnsemble([network(0), network(1)]),
                   lambda: DeepEnsemble([network(0), network(2)])),
        "heads": (lambda: LastLayer(network(0), heads), lambda: LastLayer(network(0), heads[::-1])),
        "forest": (lambda: forest(0), lambda: forest(1)),
        "nothing": (lambda: forest(0), lambda: forest(0)),
        "nothing at all": (lambda: MCDropout(network(0), 3), lambda: MCDropout(network(0), 3)),
    }  # fmt: skip
    for name, (before, after) in pairs.items():
        columns = slice(0, 3 if name in ("forest", "nothing") else 6)
        good, bad = x[:5, columns], x[:5, :2]
        with pytest.raises((RuntimeError, ValueError)):
            demur.score(before(), [good, bad], checkpoint=path, every=0.0)
        if name.startswith("nothing"):
            demur.score(after(), [good, good], checkpoint=path)
        else:
            with pytest.raises(ValueError, match=r"other settings: parameters changed"):
                demur.score(after(), [good, good], checkpoint=path)
            path.unlink()
        assert not path.exists(), name


KILLED = """
import sys, time
import torch, demur
from demur.posteriors import DeepEnsemble, MCDropout

def network(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(16, 4))

class Slow(torch.utils.data.Dataset):
    def __init__(self, pause):
        self.pause, self.x = pause, torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
    def __len__(self):
        return 40
    def __getitem__(self, i):
        time.sleep(self.pause)
        return self.x[i], i % 4, f"row {i}"

def scored(method, order, path, pause, out=None):
    posterior = (
        DeepEnsemble([network(s) for s in range(6)]) if method == "ensemble" else MCDropout(network(0), 6))
    loader = torch.utils.data.DataLoader(Slow(pause), batch_size=4)
    scores = demur.score(posterior, loader, order=order, stderr=True, checkpoint=path, every=0.0)
    if out is not None:
        scores.save(out)
    return scores
"""


@pytest.mark.parametrize(
    ("order", "method"), [pytest.param("batch", "dropout", marks=pytest.mark.slow), ("member", "ensemble")]
)
def test_after_sigkill_the_same_call_writes_the_same_bytes(order, method, tmp_path) -> None:
    path = tmp_path / "run.checkpoint"
    child = subprocess.Popen(
        [sys.executable, "-c", f"{KILLED}\nscored(*sys.argv[1:4], 0.01)", method, order, str(path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end and child.poll() is None
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL and path.exists()
    names: dict = {}
    exec(KILLED, names)
    for checkpoint, out in ((path, "resumed.csv"), (None, "whole.csv")):
        names["scored"](method, order, checkpoint, 0.0, tmp_path / out)
    assert (tmp_path / "resumed.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert not path.exists()


# --- files ---------------------------------------------------------------------------------------


def test_files_are_those_that_the_command_writes(tmp_path) -> None:
    from demur.cli.scored_files import score_files

    ensemble = DeepEnsemble([network(s) for s in range(3)])
    x, y = data()
    logits = np.concatenate([c.numpy() for c, _ in ensemble.predict(x)])
    np.save(tmp_path / "predictions.npy", logits)
    options = {"rule": "log", "base": None, "unbiased": False, "stderr": False}
    table = score_files([str(tmp_path / "predictions.npy")], "logits", options=options)
    ids = np.array([f"r{i}" for i in range(len(x))])
    scores = demur.score(ensemble, [(x, y, ids)])
    assert list(demur.score(ensemble, [x]).columns) == list(table.columns)
    for name, values in table.columns.items():
        np.testing.assert_allclose(scores.columns[name], values, rtol=1e-9, atol=1e-14)
    scores.save(tmp_path / "scores.csv")
    header, first = (tmp_path / "scores.csv").read_text().splitlines()[:2]
    assert header.startswith("input,id,label,prediction,pairwise_total,pairwise_aleatoric,pairwise_epistemic")
    assert first.startswith("0,r0,")
    scores.save(tmp_path / "scores.npz")
    with np.load(tmp_path / "scores.npz") as file:
        np.testing.assert_array_equal(file["pairwise_epistemic"], scores["pairwise"].epistemic)
    scores.save(tmp_path / "scores.json")
    written = json.loads((tmp_path / "scores.json").read_text())
    assert written["members"] == 3 and written["unit"] == "nats" and written["scores"]["id"][0] == "r0"
    with pytest.raises(ValueError, match="got one that exists"):
        scores.save(tmp_path / "scores.csv")


# --- bad input -----------------------------------------------------------------------------------


def test_bad_input_gets_one_clear_line() -> None:
    model, (x, y) = network(0), data()
    ensemble = DeepEnsemble([model])
    wrong = [
        (TypeError, "One network alone has no members", lambda: demur.score(model, [x])),
        (TypeError, r"Write \[batch\]", lambda: demur.score(ensemble, (x, y))),
        (TypeError, "loader must be an iterable", lambda: demur.score(ensemble, 3)),
        (ValueError, "loader must have inputs", lambda: demur.score(ensemble, [])),
        (ValueError, "Got 4 parts", lambda: demur.score(ensemble, [(x, y, y, y)])),
        (ValueError, "labels must be one for each input", lambda: demur.score(ensemble, [(x, y[:3])])),
        (ValueError, "in every batch or in none", lambda: demur.score(ensemble, [(x, y), x])),
        (ValueError, "order must be", lambda: demur.score(ensemble, [x], order="any")),
        (ValueError, "nonsense", lambda: demur.score(ensemble, [x], measures=["nonsense"])),
        (TypeError, "list of names", lambda: demur.score(ensemble, [x], measures="pairwise")),
        (ValueError, "at least 2 members", lambda: demur.score(ensemble, [x], stderr=True)),
        (TypeError, "Got an iterator", lambda: demur.score(ensemble, iter([x]), order="member")),
        (TypeError, "what the numbers of a callable are", lambda: demur.score(lambda x: x[None], [x])),
        (ValueError, "members=", lambda: demur.score(lambda x: x[None], [x], order="member")),
        (ValueError, "Expected 3 members",
         lambda: demur.score(Samples(lambda x: x[None], kind="logits", members=3), [x])),
        (ValueError, "of 23 inputs",
         lambda: demur.score(Samples(lambda x: x[None, :2], kind="logits"), [x])),
        (ValueError, "takes labels", lambda: demur.score(ensemble, [x]).correct),
        (KeyError, "Expected one of pairwise", lambda: demur.score(ensemble, [x])["other"]),
    ]  # fmt: skip
    for kind, message, call in wrong:
        with pytest.raises(kind, match=message):
            call()


def test_a_posterior_of_ones_own() -> None:
    class Two(Posterior):
        members = 2

        def predict(self, batch, *, members=None, position=0):
            for k in members or range(2):
                yield demur.Categorical(probs=np.full((1, len(batch), 2), 0.5)), [k + 1.0]

    scores = demur.score(Two(), [np.zeros((3, 1))], order="member")
    assert (scores["pairwise"].epistemic == 0).all() and scores.deployed is None


@pytest.mark.parametrize("order", ["batch", "member"])
def test_cells_with_a_given_model_take_the_deployed_one(order):
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))
    posterior = demur.posteriors.LastLayer(model, dropout=0.5, samples=7)
    x = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))
    cells = ["A1", "A2", "A3", "B1", "C1", "pairwise"]
    scores = demur.score(posterior, [x[:5], x[5:]], measures=cells, order=order, progress=False)
    for batch, start in ((x[:5], 0), (x[5:], 5)):
        members = torch.cat([logits for logits, _ in posterior.predict(batch, position=start)])
        given = torch.softmax(model(batch), -1).detach().numpy()
        sides = {"A": given, "B": "bma", "C": "each", "1": given, "2": "bma", "3": "each"}
        for name in cells[:-1]:
            measure = demur.Measure(sides[name[0]], sides[name[1]])
            expected = demur.decompose(logits=members, measure=measure)
            for part in ("total", "aleatoric", "epistemic"):
                found = getattr(scores[name], part)[start : start + len(batch)]
                np.testing.assert_allclose(found, getattr(expected, part), rtol=1e-5, atol=1e-7)
    assert np.abs(scores["A1"].epistemic).max() == 0


def test_cells_with_a_given_model_want_a_deployed_one():
    posterior = demur.posteriors.Samples(lambda x: np.zeros((3, len(x), 2)), kind="logits")
    with pytest.raises(ValueError, match="deployed model"):
        demur.score(posterior, [np.zeros((4, 2))], measures=["A3"], progress=False)
