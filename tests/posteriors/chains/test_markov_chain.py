"""Chains over networks: the same samples by any way, what is left as it was, what is refused."""

import copy
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import demur
from demur.posteriors import SGHMC, SGLD, CyclicalSGHMC
from demur.posteriors.chains.minibatches import make_minibatches

torch = pytest.importorskip("torch")
nn = torch.nn

rng = np.random.default_rng(0)
X = torch.from_numpy(rng.normal(size=(60, 4)).astype(np.float32))
Y = torch.from_numpy(rng.integers(0, 3, 60))
SMALL = {"steps": 24, "samples": 6, "cycles": 2, "batch_size": 16, "exploration": 0.5, "discard": 0.0}


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Dropout(), nn.Linear(5, 3))


def equal(a, b) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(
    "method", [CyclicalSGHMC, *(pytest.param(m, marks=pytest.mark.slow) for m in (SGHMC, SGLD))]
)
def test_the_same_samples_however_they_are_asked_for(method) -> None:
    options = SMALL if method is CyclicalSGHMC else {"steps": 24, "samples": 6, "batch_size": 16}
    model = network()
    whole = method(model, (X, Y), **options).parameters()
    assert all(len(value) == 6 for value in whole.values())
    assert not torch.equal(whole["0.weight"][0], whole["0.weight"][5])
    assert equal(whole, method(network(), (X.numpy(), Y.numpy()), **options).parameters())
    assert not equal(whole, method(model, (X, Y), seed=1, **options).parameters())
    passing = method(model, (X, Y), keep=False, **options)
    for asked in (range(4, 6), range(2), range(5, 6), range(1, 2), range(3, 4), range(3, 4), range(0, 6, 2)):
        expected = {name: value[asked.start : asked.stop : asked.step] for name, value in whole.items()}
        assert equal(passing.parameters(asked), expected)


def test_scores_are_the_same_with_samples_kept_and_let_go() -> None:
    model = network()
    kept = demur.score(CyclicalSGHMC(model, (X, Y), **SMALL), [X[:25], X[25:]], progress=False)
    passing = CyclicalSGHMC(model, (X, Y), keep=False, **SMALL)
    scores = demur.score(passing, [X[:25], X[25:]], order="member", progress=False)
    assert kept.members == scores.members == 6
    np.testing.assert_allclose(scores["pairwise"].epistemic, kept["pairwise"].epistemic, rtol=1e-9)
    with pytest.raises(ValueError, match="Score with order='member', or keep them"):
        demur.score(passing, [X], progress=False)
    with pytest.raises(ValueError, match=r"fit keeps samples. Got keep=False"):
        passing.fit()
    with pytest.raises(ValueError, match=r"Expected samples to save. Got keep=False"):
        passing.save("nowhere")


def test_each_state_of_a_let_go_chain_is_stepped_to_once(monkeypatch) -> None:
    passing = CyclicalSGHMC(network(), (X, Y), keep=False, **SMALL)
    steps = []
    advance = passing.stepper.advance
    monkeypatch.setattr(passing.stepper, "advance", lambda state: steps.append(state.step) or advance(state))
    demur.score(passing, [X[:25], X[25:]], order="member", progress=False)
    assert steps == list(range(24))
    steps.clear()
    passing.parameters(range(3, 4))  # the first sample of the last cycle, which begins at step 12
    assert steps == list(range(12, 20))


@pytest.mark.parametrize("keep", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_after_an_interrupt_within_a_step_samples_are_the_same(keep) -> None:
    model, done = network(), 0
    expected = CyclicalSGHMC(model, (X, Y), **SMALL).parameters()
    chain = CyclicalSGHMC(model, (X, Y), keep=keep, **SMALL)
    move = chain.stepper.move

    def interrupted(*given):
        nonlocal done
        done += 1
        move(*given)
        if done in (3, 21):  # all has moved, the step is not counted
            raise KeyboardInterrupt

    chain.stepper.move = interrupted
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            chain.parameters()
    assert equal(chain.parameters(), expected)


@pytest.mark.parametrize("model", [nn.Linear(X.shape[1], 3), nn.Sequential(nn.Linear(X.shape[1], 3))])
def test_a_copy_of_a_chain_goes_on_as_the_chain_does(model) -> None:
    chain = CyclicalSGHMC(model, (X, Y), keep=False, **SMALL)
    chain.parameters(range(1))
    other = copy.deepcopy(chain)
    assert equal(other.parameters(range(1, 5)), chain.parameters(range(1, 5)))


def test_a_chain_that_was_begun_in_inference_mode_goes_on() -> None:
    model = nn.Linear(X.shape[1], 3).bfloat16()
    chain, other = (CyclicalSGHMC(model, (X.bfloat16(), Y), keep=False, **SMALL) for _ in range(2))
    with torch.inference_mode():
        chain.parameters(range(1))
    assert equal(chain.parameters(range(1, 3)), other.parameters(range(1, 3)))


def test_samples_stay_as_they_are_when_the_chain_moves_on() -> None:
    passing = CyclicalSGHMC(network(), (X, Y), keep=False, **SMALL)
    first = passing.parameters(range(1))
    before = {name: value.clone() for name, value in first.items()}
    passing.parameters(range(1, 6))
    assert equal(first, before)


def test_everything_else_is_as_it_was() -> None:
    model = network()
    model[0].bias.requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    posterior = SGHMC(model, (X, Y), steps=10, samples=2).fit()
    demur.score(posterior, [X], progress=False)
    assert equal(dict(model.state_dict()), before)
    assert [module.training for module in model.modules()] == modes
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), states[0])
    np.testing.assert_array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002
    assert "0.bias" not in posterior.parameters() and "0.weight" in posterior.parameters()


def test_members_are_the_network_with_their_parameters() -> None:
    model = network()
    posterior = SGLD(model, (X, Y), steps=10, samples=3)
    [found] = [torch.cat(list(posterior.predict(X)))]
    for k in range(3):
        own = network().eval()
        own.load_state_dict({n: v[k] for n, v in posterior.parameters().items()}, strict=False)
        with torch.no_grad():
            assert torch.equal(found[k], own(X))
    assert torch.equal(torch.cat(list(posterior.predict(X, members=range(1, 3)))), found[1:])


def one_step(**options):
    """The gradient part of a step: SGLD without noise, at step size 1."""
    model = nn.Linear(4, 3)
    nn.init.ones_(model.weight)
    nn.init.zeros_(model.bias)
    options = {"steps": 1, "samples": 1, "step_size": 1.0, "temperature": 0.0, "burn_in": 0.0} | options
    found = SGLD(model, (X, Y), **options).parameters()
    return model, found["weight"][0] - model.weight


def test_likelihood_and_prior_are_scaled_by_the_size_of_the_data() -> None:
    model, flat = one_step(prior_scale=math.inf)
    nn.functional.cross_entropy(model(X), Y).backward()
    torch.testing.assert_close(flat, -model.weight.grad)
    model, step = one_step(prior_scale=0.5)
    torch.testing.assert_close(step, flat - model.weight.detach() / (0.25 * 60))
    model, step = one_step(prior_scale=0.5, prior_mean="model")
    torch.testing.assert_close(step, flat)
    mean = {"weight": torch.full((3, 4), 3.0), "bias": torch.zeros(3)}
    model, step = one_step(prior_scale=0.5, prior_mean=mean)
    torch.testing.assert_close(step, flat + 2.0 / (0.25 * 60))


def test_regression_by_a_likelihood_of_ones_own() -> None:
    model, targets = nn.Linear(4, 1), X[:, 0] * 2
    posterior = SGHMC(
        model, (X, targets), log_likelihood=lambda out, y: -((out[:, 0] - y) ** 2) / 2, samples=20, steps=60,
        forward=lambda model, x: demur.Gaussian(model(x).double()[:, 0], torch.ones(len(x)).double()),
    )  # fmt: skip
    scores = demur.score(posterior, [X], progress=False)
    assert scores.members == 20 and (scores["pairwise"].epistemic > 0).all()


class Named(nn.Module):
    """Takes named inputs and returns an object, as models of Hugging Face do."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)

    def forward(self, values, mask):
        return {"logits": self.last(values * mask), "loss": None}


class Rows(torch.utils.data.Dataset):
    def __init__(self, augment: bool = False) -> None:
        self.augment = augment

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index):
        moved = torch.randn(4) + np.random.normal() if self.augment else 0  # noqa: NPY002
        return {"values": X[index] + moved, "mask": torch.ones(4), "labels": Y[index], "id": index}


def test_data_sets_and_loaders_with_named_inputs() -> None:
    torch.manual_seed(0)
    model = Named()
    loader = torch.utils.data.DataLoader(Rows(), batch_size=60)
    found = SGLD(model, loader, steps=4, samples=2).parameters()
    pair = ({"values": X, "mask": torch.ones(60, 4)}, Y)
    assert equal(found, SGLD(model, pair, steps=4, samples=2).parameters())
    shuffled = SGLD(model, Rows(), batch_size=25, steps=4, samples=2)
    assert shuffled.stepper.minibatches.batches_per_pass == 2
    assert not equal(found, shuffled.parameters())
    batch = {"values": X[:7], "mask": torch.ones(7, 4), "labels": Y[:7]}
    assert demur.score(shuffled, [batch], progress=False).members == 2


@pytest.mark.parametrize("kind", ["arrays", "data set", "loader", "workers"])
def test_the_batch_of_a_step_does_not_depend_on_the_way_there(kind) -> None:
    source = torch.Generator().manual_seed(5)
    data = {
        "arrays": lambda: (torch.arange(60), Y),
        "data set": lambda: Rows(augment=True),
        "loader": lambda: torch.utils.data.DataLoader(
            Rows(augment=True), batch_size=16, shuffle=True, generator=source
        ),
        "workers": lambda: torch.utils.data.DataLoader(
            Rows(augment=True), batch_size=16, shuffle=True, num_workers=1, multiprocessing_context="fork"
        ),
    }[kind]()
    if kind == "workers" and sys.platform != "linux":
        pytest.skip("starts workers by fork")
    before = source.get_state(), torch.get_rng_state()
    batches = make_minibatches(data, 16, seed=0)

    def first(step):
        inputs, targets = batches.at(step)
        return [
            *(inputs["values"] if isinstance(inputs, dict) else inputs).flatten().tolist(),
            *targets.tolist(),
        ]

    steps = range(2 * batches.batches_per_pass)
    seen = [first(step) for step in steps]
    assert seen[0] != seen[batches.batches_per_pass]
    assert [first(step) for step in reversed(steps)] == seen[::-1]
    assert torch.equal(source.get_state(), before[0]) and torch.equal(torch.get_rng_state(), before[1])
    if kind == "arrays":
        rows = [row for batch in seen[: batches.batches_per_pass] for row in batch[:16]]
        assert len(set(rows)) == len(rows) == 48  # without replacement; 12 wait for another pass


# --- files ---------------------------------------------------------------------------------------


def test_samples_are_saved_and_loaded(tmp_path) -> None:
    posterior = CyclicalSGHMC(network(), (X, Y), **SMALL)
    posterior.save(tmp_path / "samples.safetensors")
    model = network()
    loaded = CyclicalSGHMC.load(tmp_path / "samples.safetensors", model)
    assert equal(loaded.parameters(), posterior.parameters()) and repr(loaded) == "CyclicalSGHMC(6 samples)"
    assert torch.equal(torch.cat(list(loaded.predict(X))), torch.cat(list(posterior.predict(X))))
    with pytest.raises(ValueError, match=r"'0.weight' is missing or has another shape"):
        CyclicalSGHMC.load(tmp_path / "samples.safetensors", nn.Sequential(nn.Linear(3, 5)))
    with pytest.raises(ValueError, match=r"written by SGLD.save"):
        SGLD.load(tmp_path / "samples.safetensors", model)


def test_a_finished_folder_is_found_again(tmp_path, monkeypatch) -> None:
    first = CyclicalSGHMC(network(), (X, Y), checkpoint=tmp_path / "chain", **SMALL).parameters()
    again = CyclicalSGHMC(network(), (X, Y), checkpoint=tmp_path / "chain", **SMALL)
    monkeypatch.setattr(again.stepper, "advance", lambda state: pytest.fail("a step"))
    assert equal(again.parameters(), first)


def test_a_folder_of_another_chain_is_refused(tmp_path) -> None:
    options = SMALL | {"checkpoint": tmp_path / "chain"}
    CyclicalSGHMC(network(), (X, Y), **options).fit()
    others = {
        "seed": lambda: CyclicalSGHMC(network(), (X, Y), seed=1, **options),
        "friction": lambda: CyclicalSGHMC(network(), (X, Y), friction=0.5, **options),
        "prior_mean": lambda: CyclicalSGHMC(network(), (X, Y), prior_mean="model", **options),
        "parameters": lambda: CyclicalSGHMC(nn.Linear(4, 3), (X, Y), **options),
        "schedule": lambda: CyclicalSGHMC(network(), (X, Y), **(options | {"samples": 4})),
        "data": lambda: CyclicalSGHMC(network(), (X + 1, Y), **options),
        "temperature": lambda: CyclicalSGHMC(network(), (X, Y), temperature=0.5, **options),
    }
    for name, other in others.items():
        with pytest.raises(ValueError, match=f"another (.*, )?{name}(, .*)?. Remove it or choose"):
            other().fit()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    with pytest.raises(ValueError, match="or an empty one"):
        CyclicalSGHMC(network(), (X, Y), **(options | {"checkpoint": tmp_path / "other"})).fit()


def flip(path: Path) -> None:
    """Flip the last bit of a file."""
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


@pytest.mark.parametrize("kind", ["sample-000000.safetensors", "state-*.safetensors"])
def test_a_flipped_bit_in_a_folder_is_noticed(tmp_path, kind) -> None:
    options = SMALL | {"checkpoint": tmp_path / "chain", "every": 0.0}
    CyclicalSGHMC(network(), (X, Y), **options).fit()
    path = next((tmp_path / "chain").glob(kind))
    flip(path)
    with pytest.raises(ValueError, match=rf"{path.name}', which was changed since it was written"):
        CyclicalSGHMC(network(), (X, Y), **options).fit()
    flip(path)
    CyclicalSGHMC(network(), (X, Y), **options).fit()


def test_a_tampered_folder_is_refused_in_one_line(tmp_path) -> None:
    from demur.posteriors.tensor_files import write_tensors

    options = SMALL | {"checkpoint": tmp_path / "chain", "every": 0.0}
    CyclicalSGHMC(network(), (X, Y), **options).fit()
    folder = tmp_path / "chain"
    facts = (folder / "chain.json").read_text()
    for text in ("[]", "nothing", "[" * 100_000, '{"seed": 0, "seed": 0}'):
        (folder / "chain.json").write_text(text)
        with pytest.raises(ValueError, match=r"whose chain\.json is damaged\. Remove it or choose"):
            CyclicalSGHMC(network(), (X, Y), **options).fit()
    (folder / "chain.json").write_text(facts)
    tensors = {"0.weight": torch.zeros(2, 2)}
    for name in ("sample-000000.safetensors", next(folder.glob("state-*")).name, "state-x.safetensors"):
        before = (folder / name).read_bytes() if (folder / name).exists() else None
        write_tensors(folder / name, tensors, {"method": "CyclicalSGHMC chain"})
        with pytest.raises(ValueError, match=rf"expected files of this chain\. Got .*{name}', of another"):
            CyclicalSGHMC(network(), (X, Y), **options).fit()
        (folder / name).unlink() if before is None else (folder / name).write_bytes(before)


RUN = """
import sys, time
import torch
from demur.posteriors import CyclicalSGHMC
torch.manual_seed(0)
x, y = torch.randn(60, 4), torch.randint(3, (60,))
model = torch.nn.Linear(4, 3)
posterior = CyclicalSGHMC(
    model, (x, y), steps=120, samples=12, cycles=2, exploration=0.3, batch_size=16,
    checkpoint=sys.argv[1], every=0.0)
if sys.argv[3] == "slowly":
    advance = posterior.stepper.advance
    posterior.stepper.advance = lambda state: time.sleep(0.01) or advance(state)
posterior.save(sys.argv[2])
"""


def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path, monkeypatch) -> None:
    def arguments(folder, out, pace):
        return [str(tmp_path / folder), str(tmp_path / out), pace]

    def here(*words):
        monkeypatch.setattr(sys, "argv", ["run", *arguments(*words)])
        exec(RUN, {})

    here("whole", "whole.safetensors", "")
    run = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", RUN, *arguments("killed", "killed.safetensors", "slowly")],
        env=os.environ | {"PYTHONPATH": str(Path(demur.__file__).parents[1])},
    )
    deadline = time.monotonic() + 100
    while not (tmp_path / "killed" / "sample-000003.safetensors").exists():
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    run.send_signal(signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed" / "sample-000011.safetensors").exists()
    assert 1 <= len(list((tmp_path / "killed").glob("state-*"))) <= 3  # a third if killed in between
    here("killed", "killed.safetensors", "")
    assert (tmp_path / "killed.safetensors").read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


def test_a_let_go_chain_goes_on_from_its_folder(tmp_path, monkeypatch) -> None:
    options = SMALL | {"keep": False, "checkpoint": tmp_path / "chain", "every": 0.0}
    whole = CyclicalSGHMC(network(), (X, Y), **SMALL).parameters()
    CyclicalSGHMC(network(), (X, Y), **options).parameters(range(4))
    again = CyclicalSGHMC(network(), (X, Y), **options)
    steps = []
    advance = again.stepper.advance
    monkeypatch.setattr(again.stepper, "advance", lambda state: steps.append(state.step) or advance(state))
    assert equal(again.parameters(range(4, 5)), {name: value[4:5] for name, value in whole.items()})
    assert steps == [20, 21]
    assert not list((tmp_path / "chain").glob("sample-*"))


@pytest.mark.parametrize("kind", [torch.int16, torch.int32, torch.uint8])
def test_labels_of_any_integer_type(kind) -> None:
    sizes = {"samples": 2, "steps": 4}
    expected = SGLD(network(), (X, Y), **sizes).parameters()
    assert equal(SGLD(network(), (X, Y.to(kind)), **sizes).parameters(), expected)


def test_parameters_that_share_their_gradient_and_one_without() -> None:
    """Automatic differentiation may return one tensor for both biases, and none for what is not used."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.ones(3))
            self.idle = nn.Parameter(torch.full((2, 2), 3.0))

        def forward(self, x):
            return x[:, :3] + self.first + self.second

    found = SGHMC(
        Twice(), (X, Y), samples=1, steps=2, step_size=0.04, friction=0.5, burn_in=0.0, batch_size=60,
        temperature=0.0, prior_scale=0.5,
    ).parameters()  # fmt: skip
    h, kept, weight = 0.2, 0.5, 1 / (0.5**2 * 60)
    inputs, labels = X.double().numpy(), Y.numpy()
    value = {"first": np.zeros(3), "second": np.ones(3), "idle": np.full((2, 2), 3.0)}
    momentum = {name: np.zeros_like(each) for name, each in value.items()}
    for _ in range(2):
        logits = inputs[:, :3] + value["first"] + value["second"]
        p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        slope = (np.eye(3)[labels] - p).mean(0)
        for name in value:
            own = -weight * value[name] + (0 if name == "idle" else slope)
            momentum[name] = momentum[name] + h * own
            halfway = value[name] + h / 2 * momentum[name]
            momentum[name] = kept * momentum[name]
            value[name] = halfway + h / 2 * momentum[name]
    for name, expected in value.items():
        np.testing.assert_allclose(found[name][0].numpy(), expected, rtol=1e-5, atol=1e-6)


# --- what is refused -----------------------------------------------------------------------------


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from zip(X, Y, strict=True)


def test_what_chains_refuse() -> None:
    model = nn.Linear(4, 3)
    frozen = nn.Linear(4, 3).requires_grad_(False)
    empty = torch.utils.data.TensorDataset(X[:0], Y[:0])
    sizes = {"samples": 2, "steps": 4}
    wrong = [
        (TypeError, "model must be a torch.nn.Module. Got int", lambda: SGLD(3, (X, Y))),
        (TypeError, "data must be a pair .* Got list", lambda: SGLD(model, [(X, Y)])),
        (TypeError, "data must be a pair .* Got tuple", lambda: SGLD(model, (X, Y, Y))),
        (TypeError, "data must have a known size",
         lambda: SGLD(model, torch.utils.data.DataLoader(Endless(), batch_size=8))),
        (ValueError, r"as many targets as inputs, at least one. Got \[60, 5\]",
         lambda: SGLD(model, (X, Y[:5]))),
        (ValueError, r"Got \[0, 0\]", lambda: SGLD(model, (X[:0], Y[:0]))),
        (ValueError, r"Got \[60, 0\]", lambda: SGLD(model, (X, 3))),
        (ValueError, "data must have targets: .* Got None", lambda: SGLD(model, (X, None))),
        (ValueError, r"targets must be classes as integers, .* Got torch.float32 of shape \(60,\)",
         lambda: SGLD(model, (X, Y.float()), **sizes).fit()),
        (ValueError, "data must have inputs", lambda: SGLD(model, empty)),
        (ValueError, "batch_size must be a positive integer. Got 0",
         lambda: SGLD(model, (X, Y), batch_size=0)),
        (ValueError, "epochs must be positive. Got 0", lambda: SGLD(model, (X, Y), epochs=0)),
        (ValueError, "none that require gradients", lambda: SGLD(frozen, (X, Y))),
        (ValueError, "prior_scale must be positive; math.inf", lambda: SGLD(model, (X, Y), prior_scale=0)),
        (ValueError, "temperature must be at least 0", lambda: SGLD(model, (X, Y), temperature=-1.0)),
        (TypeError, "prior_mean must be None, 'model' or a mapping",
         lambda: SGLD(model, (X, Y), prior_mean=0)),
        (ValueError, "'bias' is missing",
         lambda: SGLD(model, (X, Y), prior_mean={"weight": model.weight})),
        (ValueError, r"prior_mean\['weight'\] must have shape \(3, 4\). Got \(4,\)",
         lambda: SGLD(model, (X, Y), prior_mean={"weight": torch.zeros(4), "bias": torch.zeros(3)})),
        (ValueError, "friction must be above 0 and below 1. Got 1.0",
         lambda: SGHMC(model, (X, Y), friction=1.0)),
        (ValueError, "samples must be a multiple of cycles",
         lambda: CyclicalSGHMC(model, (X, Y), samples=10, cycles=4)),
        (ValueError, r"one number for each input, shape \(60,\). Got \(60, 3\)",
         lambda: SGLD(model, (X, Y), log_likelihood=lambda out, y: out, **sizes).fit()),
        (ValueError, r"shape \(60,\). Got float",
         lambda: SGLD(model, (X, Y), log_likelihood=lambda out, y: 1.0, **sizes).fit()),
        (ValueError, r"log_likelihood must depend on the parameters",
         lambda: SGLD(model, (X, Y), log_likelihood=lambda out, y: out.detach()[:, 0], **sizes).fit()),
        (ValueError, r"A batch must be \(inputs, targets\)",
         lambda: SGLD(model, torch.utils.data.TensorDataset(X), **sizes).fit()),
        (ValueError, "within 0 to 2", lambda: SGLD(model, (X, Y), **sizes).parameters(range(3))),
        (FloatingPointError, r"Got nan at step 1 of 4. Lower step_size, which is 0.1",
         lambda: SGLD(model, (X * math.nan, Y), **sizes).fit()),
        (FloatingPointError, r"Expected finite parameters. Got others in 'weight' at step 1 of 1",
         lambda: SGLD(model, (X, Y), samples=1, steps=1, step_size=1e300, burn_in=0.0).fit()),
        (FloatingPointError, r"finite log-likelihood. Got .* of 400. Lower step_size, which is 1e\+06",
         lambda: SGLD(model, (X, Y), samples=2, steps=400, step_size=1e6, prior_scale=0.01).fit()),
    ]  # fmt: skip
    for kind, message, call in wrong:
        with pytest.raises(kind, match=message):
            call()
