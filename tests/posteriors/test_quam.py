"""QUAM finds the models that it should, weighs them by their training loss, and depends on nothing else."""

import copy

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from scipy.stats import spearmanr

import demur
from demur.posteriors import QUAM, Features, Posterior
from demur.posteriors.chains.minibatches import ArrayMinibatches
from demur.posteriors.networks import derive_seed
from demur.posteriors.tensor_files import read_tensors, write_tensors
from demur.posteriors.transformed import Transformed

torch = pytest.importorskip("torch")
nn = torch.nn

FEW = {"steps": 12, "keep_every": 3, "growth_every": 4, "batch_size": 20, "loss_inputs": 30}


def problem(inputs: int = 50):
    """A small network with dropout and batch statistics, its training data, and inputs to score."""
    torch.manual_seed(0)
    layers = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 3)
    model = nn.Sequential(*layers).double()
    x, y = torch.randn(inputs, 4).double(), torch.randint(3, (inputs,))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(30):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.zero_grad()
    return model, (x, y), 2 * torch.randn(7, 4).double()


def follow_search(model, parameters, posterior, row, target):
    """One search as it is written down, by automatic differentiation: logits and excess losses on the way."""
    plan, batches = posterior.plan, posterior._search.minibatches
    model, start = model.eval(), {n: p.detach().clone() for n, p in model.named_parameters()}
    moving = [p for n, p in model.named_parameters() if n in parameters]
    optimizer = torch.optim.Adam(moving, weight_decay=plan.weight_decay)
    loss_of, logits, excess = nn.functional.cross_entropy, [], []
    compared = posterior.compared
    reference = loss_of(model(compared[0]), compared[1]).item()
    for step in range(plan.steps):
        rows = batches.find_rows(step)
        x, y = posterior.training[0][rows], posterior.training[1][rows]
        optimizer.zero_grad()
        growth = plan.growth ** (step // plan.growth_every)
        loss = loss_of(model(row), torch.tensor([target])) + plan.penalty * growth * loss_of(model(x), y)
        loss.backward()
        optimizer.param_groups[0]["lr"] = plan.rate / growth
        optimizer.step()
        if (step + 1) % 3 == 0:
            logits.append(model(row)[0].detach().numpy())
            excess.append(loss_of(model(compared[0]), compared[1]).item() - reference)
    model.load_state_dict({**model.state_dict(), **start})
    return np.array(logits), np.array(excess)


MOVING = {"last": ("4.",), "all": ("",), ("1", "4"): ("1.", "4.")}
"""Which parameters move, by how their names begin."""


@pytest.mark.parametrize("layers", ["last", pytest.param("all", marks=pytest.mark.slow), ("1", "4")])
def test_members_and_weights_are_those_of_the_search_as_written(layers) -> None:
    model, data, points = problem()
    names = [n for n, _ in model.named_parameters() if n.startswith(MOVING[layers])]
    posterior = QUAM(
        model, data, layers=layers, temperature=0.01, bound=0.02, rate=0.1, penalty=1.0, targets=2, **FEW
    )
    posterior.training = data
    # The 30 training inputs that losses are compared on: a batch of another order.
    posterior.compared = ArrayMinibatches(*data, 30, derive_seed(0, 7)).at(0)
    [(logits, weights)] = posterior.predict(points[:3])
    cut = 0
    for i, row in enumerate(points[:3].split(1)):
        deployed = model.eval()(row)[0].detach().numpy()
        found = [follow_search(model, names, posterior, row, t) for t in np.argsort(-deployed)[:2]]
        np.testing.assert_allclose(logits[0, i], deployed, rtol=1e-12)
        np.testing.assert_allclose(
            logits[1:, i], np.concatenate([f[0] for f in found]), rtol=1e-8, atol=1e-10
        )
        excess = np.append(0, np.concatenate([f[1] for f in found]))
        expected = np.where(excess > 0.02, 0, np.exp(-(excess - excess.min()) / 0.01))
        np.testing.assert_allclose(weights[:, i], expected, rtol=1e-7)
        cut += (excess > 0.02).sum()
    assert cut > 1  # the bound was there for something


@pytest.mark.parametrize("layers", ["last", pytest.param("all", marks=pytest.mark.slow)])
def test_a_long_search_ends_at_the_minimum_of_its_objective(layers) -> None:
    """Logistic regression with one feature: the difference of two classes has two parameters."""
    x, y, _, model = logistic_problem()
    point, target = 2.5, 0
    plan = {"steps": 800, "growth": 1.0, "weight_decay": 0.0, "rate": 0.02, "batch_size": len(y)}
    posterior = QUAM(model, (x[:, None], y), layers=layers, penalty=2.0, **plan)
    found = posterior._search.run(torch.tensor([[point]]).double(), torch.tensor([target]))

    def objective(p, c):
        loss = -log_expit((2 * y - 1) * (p[0] * x + p[1])).mean()
        return -log_expit((2 * target - 1) * (p[0] * point + p[1])) + c * loss

    def best(c):
        p = minimize(objective, [1.0, 0.0], args=(c,), tol=1e-12).x
        return p[0] * point + p[1]

    ended = np.diff(found.logits[-1].numpy())[0]
    assert abs(ended - best(2.0)) < 1e-4
    assert abs(ended - best(1.5)) > 1e-2  # control: another penalty has another minimum


def logistic_problem(inputs: int = 60):
    """Data of a logistic regression, its maximum likelihood, and a linear layer that holds it."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=inputs)
    y = (rng.random(inputs) < expit(2 * x - 0.3)).astype(int)
    best = minimize(lambda p: -log_expit((2 * y - 1) * (p[0] * x + p[1])).mean(), [1.0, 0.0], tol=1e-12).x
    model = nn.Linear(1, 2).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-best[0]], [best[0]]]) / 2)
        model.bias.copy_(torch.tensor([-best[1], best[1]]) / 2)
    return x, y, best, model


@pytest.mark.slow
def test_weighted_models_are_near_the_posterior_and_unweighted_ones_are_not() -> None:
    """The posterior is summed on a grid. Models on a path are no sample of it: a factor of 2 remains."""
    x, y, best, model = logistic_problem()
    points = np.linspace(-4, 4, 17)
    side = np.linspace(-6, 6, 161)
    slope, offset = (each + start for each, start in zip(np.meshgrid(side, side), best, strict=True))
    loss = -log_expit((2 * y - 1) * (slope[..., None] * x + offset[..., None])).mean(-1)
    posterior = np.exp(-len(y) * (loss - loss.min()))
    posterior /= posterior.sum()

    def divergence(point):
        own, z = best[0] * point + best[1], slope * point + offset
        q = expit(own)
        parts = q * (log_expit(own) - log_expit(z)) + (1 - q) * (log_expit(-own) - log_expit(-z))
        return (posterior * parts).sum()

    exact = np.array([divergence(point) for point in points])

    def search(temperature):
        plan = {
            "steps": 60,
            "penalty": 0.25,
            "growth": 1.5,
            "growth_every": 5,
            "rate": 0.05,
            "batch_size": len(y),
        }
        quam = QUAM(model, (x[:, None], y), temperature=temperature, weight_decay=0.0, **plan)
        return demur.score(quam, [points[:, None]], measures=["A3"], progress=False)["A3"].epistemic

    weighted, unweighted = search(1 / len(y)), search(1e6)
    assert 0.5 < np.median(weighted / exact) < 2
    assert spearmanr(weighted, exact).statistic > 0.8
    assert np.median(unweighted / exact) > 10
    assert spearmanr(unweighted, exact).statistic < 0.5


def test_a_model_above_the_bound_never_counts() -> None:
    model, data, points = problem()
    free = QUAM(model, data, rate=0.1, **FEW)
    tight = QUAM(model, data, rate=0.1, bound=0.0, **FEW)
    for row in points.split(1):
        excess = np.append(0, free._search.run(row, torch.arange(3)).excess)
        [(_, weights)] = tight.predict(row)
        targets = model.eval()(row)[0].topk(3).indices
        order = np.append(0, 1 + (targets[:, None] * 4 + torch.arange(4)).flatten().numpy())
        assert (weights[:, 0] > 0).tolist() == (excess[order] <= 0).tolist()
        assert weights[0, 0] > 0


# --- what an input's result depends on -----------------------------------------------------------


@pytest.mark.parametrize("layers", ["last", pytest.param("all", marks=pytest.mark.slow)])
def test_members_depend_on_their_input_alone_to_the_last_bit(layers) -> None:
    model, data, points = problem()
    posterior = QUAM(model, data, layers=layers, **FEW)
    logits, weights = next(posterior.predict(points))
    parts = [next(posterior.predict(part, position=9)) for part in points.flip(0).split(2)]
    np.testing.assert_array_equal(np.concatenate([z for z, _ in parts], axis=1)[:, ::-1], logits)
    np.testing.assert_array_equal(np.concatenate([w for _, w in parts], axis=1)[:, ::-1], weights)
    some = next(posterior.predict(points, members=range(3, 7)))
    np.testing.assert_array_equal(some[0], logits[3:7])
    np.testing.assert_array_equal(some[1], weights[3:7])
    assert len(np.unique(logits[-1, :, 0])) == len(points)


@pytest.mark.parametrize("layers", ["last", pytest.param("all", marks=pytest.mark.slow)])
def test_batches_and_order_change_only_how_sums_are_rounded(layers) -> None:
    model, data, points = problem()
    posterior = QUAM(model, data, layers=layers, **FEW)
    whole = demur.score(posterior, [points], progress=False)
    for batch, order in ((2, "batch"), (3, "member")):
        found = demur.score(posterior, list(points.split(batch)), progress=False, order=order)
        for name in whole.table.measures:
            np.testing.assert_allclose(found[name].epistemic, whole[name].epistemic, rtol=1e-12)


def test_the_seed_decides_on_the_order_of_the_training_data() -> None:
    model, data, points = problem()
    first, again, other = (
        demur.score(QUAM(model, data, seed=seed, **FEW), [points], progress=False)["A3"].epistemic
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()
    # With all training inputs in every step, there is nothing to order.
    whole = FEW | {"batch_size": 50, "loss_inputs": 50}
    first, other = (
        demur.score(QUAM(model, data, seed=seed, **whole), [points], progress=False)["A3"].epistemic
        for seed in (0, 1)
    )
    np.testing.assert_allclose(first, other, rtol=1e-12)


def test_blocks_of_targets_change_nothing_but_roundings(monkeypatch) -> None:
    model, data, points = problem()
    whole = next(QUAM(model, data, **FEW).predict(points))
    monkeypatch.setattr("demur.posteriors.adversarial.head_search._WEIGHTS_TOGETHER", 1)
    for found, expected in zip(next(QUAM(model, data, **FEW).predict(points)), whole, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def pictures():
    """A small convolutional network, its training data, and inputs to score."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    model = nn.Sequential(*convolution, nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    return model, (torch.randn(40, 1, 6, 6).double(), torch.arange(40) % 3), torch.randn(3, 1, 6, 6).double()


@pytest.mark.parametrize("layers", ["all", pytest.param(("0", "6"), marks=pytest.mark.slow)])
def test_target_classes_searched_at_once_are_those_searched_one_by_one(layers) -> None:
    """Two at a time leave one for itself, since there are three."""
    model, data, points = pictures()
    options = FEW | {"layers": layers, "rate": 0.05}
    alone = next(QUAM(model, data, **options).predict(points))
    together = QUAM(model, data, **options, targets_at_once=2)
    mapped = next(together.predict(points))
    for found, expected in zip(mapped, alone, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    # The same bits for an input, whatever else is in its batch.
    for row in range(3):
        for found, expected in zip(next(together.predict(points[row : row + 1])), mapped, strict=True):
            np.testing.assert_array_equal(found[:, 0], expected[:, row])
    # Convolutions move, and not only what comes after them.
    still = next(QUAM(model, data, **options | {"layers": ("6",)}).predict(points))
    assert np.abs(still[0] - alone[0]).max() > 1e-3


def test_named_layers_tell_fingerprints_apart_and_the_last_alone_is_the_last_layer() -> None:
    model, data, points = problem()
    last, named, more = (QUAM(model, data, layers=each, **FEW) for each in ("last", ["4"], ["0", "4"]))
    for found, expected in zip(next(named.predict(points)), next(last.predict(points)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-12)
    assert named.fingerprint() != more.fingerprint()
    assert repr(more) == "QUAM(0 and 4, 3 targets, 12 steps)"


def test_the_network_and_all_generators_are_left_alone() -> None:
    model, data, points = problem()
    model.train()
    model[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes, state = [each.training for each in model.modules()], torch.get_rng_state()
    for layers in ("last", "all"):
        demur.score(QUAM(model, data, layers=layers, **FEW), [points], progress=False)
    assert modes == [each.training for each in model.modules()]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(each.grad is None for each in model.parameters())
    assert torch.equal(state, torch.get_rng_state())


# --- through demur.score -------------------------------------------------------------------------


def test_its_own_measure_comes_first_and_is_that_of_the_weighted_members() -> None:
    model, data, points = problem()
    posterior = QUAM(model, data, **FEW)
    scores = demur.score(posterior, [points], progress=False)
    assert scores.table.measures == ("A3", "pairwise", "average", "reverse")
    assert scores.members == 13
    logits, weights = (np.concatenate(each) for each in zip(*posterior.predict(points), strict=True))
    assert weights.shape == (13, 7)
    deployed = torch.softmax(model.eval()(points), -1).detach().numpy()
    expected = demur.decompose(logits=logits, weights=weights, measure=demur.Measure(deployed, "each"))
    np.testing.assert_allclose(scores["A3"].epistemic, expected.epistemic, rtol=1e-9)
    np.testing.assert_array_equal(scores.deployed, deployed.argmax(-1))
    assert demur.score(posterior, [points], measures=["average"], progress=False).table.measures == (
        "average",
    )
    # Control: weights that are the same for all inputs are not enough.
    alike = np.repeat(weights.mean(1, keepdims=True), 7, axis=1)
    wrong = demur.decompose(logits=logits, weights=alike, measure=demur.Measure(deployed, "each"))
    assert (np.abs(wrong.epistemic / expected.epistemic - 1) > 0.01).any()


def test_an_interrupted_run_resumes_with_the_inputs_that_are_missing(tmp_path) -> None:
    model, data, points = problem()
    whole = demur.score(QUAM(model, data, **FEW), list(points.split(1)), progress=False)
    seen: list[int] = []

    def loader(stop):
        class Loader:
            def __iter__(self):
                for index, row in enumerate(points.split(1)):
                    if index == stop:
                        raise KeyboardInterrupt
                    yield row

        return Loader()

    posterior = QUAM(model, data, **FEW)
    file, options = tmp_path / "run.npz", {"every": 0.0, "progress": False}
    with pytest.raises(KeyboardInterrupt):
        demur.score(posterior, loader(4), checkpoint=file, **options)
    again = QUAM(model, data, **FEW)
    search = again._search.run
    again._search.run = lambda row, targets: seen.append(1) or search(row, targets)
    resumed = demur.score(again, loader(None), checkpoint=file, **options)
    assert len(seen) == 3
    for name in ("A3", "pairwise"):
        np.testing.assert_array_equal(resumed[name].epistemic, whole[name].epistemic)
    with pytest.raises(KeyboardInterrupt):
        demur.score(posterior, loader(4), checkpoint=file, **options)
    for other in (
        QUAM(model, data, temperature=0.1, **FEW),
        QUAM(model, (data[0] + 1e-6, data[1]), **FEW),
        QUAM(model, data, bound=0.5, **FEW),
    ):
        with pytest.raises(ValueError, match="parameters changed"):
            demur.score(other, loader(None), checkpoint=file, **options)


def test_save_and_load(tmp_path) -> None:
    model, data, points = problem()
    posterior = QUAM(model, data, targets=2, bound=0.3, seed=3, **FEW)
    posterior.save(tmp_path / "quam.safetensors")
    found = QUAM.load(tmp_path / "quam.safetensors", model)
    assert found.fingerprint() == posterior.fingerprint()
    assert repr(found) == "QUAM(last layer, 2 targets, 12 steps)"
    for a, b in zip(next(found.predict(points)), next(posterior.predict(points)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert QUAM.load(tmp_path / "quam.safetensors", model, temperature=0.5).temperature == 0.5
    with pytest.raises(ValueError, match="model must have the last layer"):
        QUAM.load(tmp_path / "quam.safetensors", problem()[0].apply(perturb))


@pytest.mark.parametrize("layers", ["all", ("1", "4")])
@pytest.mark.parametrize("named", [False, True])
def test_save_and_load_of_searches_through_the_network(layers, named, tmp_path) -> None:
    model, (x, y), points = problem()
    given = {"input": x} if named else x
    options = {"layers": layers, "targets": 2, "targets_at_once": 2, "temperature": 0.1, "seed": 3, **FEW}
    posterior, file = QUAM(model, (given, y), **options), tmp_path / "quam.safetensors"
    posterior.save(file)
    found = QUAM.load(file, copy.deepcopy(model))
    assert found.fingerprint() == posterior.fingerprint() and repr(found) == repr(posterior)
    batch = {"input": points} if named else points
    scores, again = (demur.score(each, [batch], progress=False) for each in (posterior, found))
    assert again["A3"].epistemic.tobytes() == scores["A3"].epistemic.tobytes()
    assert (again["A3"].epistemic > 0).all()
    # Control: another network, whose last layer is the same.
    other = copy.deepcopy(model)
    perturb(other[0])
    with pytest.raises(ValueError, match="model must have the parameters and buffers"):
        QUAM.load(file, other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors, facts: tensors.pop("targets"), "without training data"),
        (lambda tensors, facts: tensors.pop("inputs "), "without training data"),
        (lambda tensors, facts: facts.pop("settings"), "of other settings"),
        (lambda tensors, facts: facts.update(settings="[]"), "of other settings"),
        (lambda tensors, facts: facts.update(settings='{"steps": 3}'), "of other settings"),
        (lambda tensors, facts: facts.update(settings="{"), "of other settings"),
        (lambda tensors, facts: facts.update(method="SWAG"), "of SWAG"),
    ],
)
def test_files_of_something_else_are_refused(change, message, tmp_path) -> None:
    model, data, _ = problem()
    QUAM(model, data, layers="all", **FEW).save(tmp_path / "quam.safetensors")
    tensors, facts = read_tensors(tmp_path / "quam.safetensors", "QUAM")
    change(tensors, facts)
    write_tensors(tmp_path / "other.safetensors", tensors, facts)
    with pytest.raises(ValueError, match=message) as raised:
        QUAM.load(tmp_path / "other.safetensors", model)
    assert "\n" not in str(raised.value)
    (tmp_path / "half.safetensors").write_bytes((tmp_path / "quam.safetensors").read_bytes()[:-100])
    with pytest.raises(ValueError, match="Expected a file written by QUAM") as raised:
        QUAM.load(tmp_path / "half.safetensors", model)
    assert "\n" not in str(raised.value)


def perturb(module) -> None:
    for value in module.parameters(recurse=False):
        value.data += 1


# --- what it takes -------------------------------------------------------------------------------


def test_training_data_of_all_kinds_give_the_same() -> None:
    model, (x, y), points = problem()
    whole = FEW | {"batch_size": 50, "loss_inputs": 50}
    expected = next(QUAM(model, (x, y), **whole).predict(points))
    pairs = torch.utils.data.TensorDataset(x, y)
    found = demur.posteriors.features(model, [(x, y)], progress=False)
    kinds = [pairs, torch.utils.data.DataLoader(pairs, 16), (x.numpy(), y.numpy()), found]
    for kind in kinds:
        for each, other in zip(next(QUAM(model, kind, **whole).predict(points)), expected, strict=True):
            np.testing.assert_allclose(each, other, rtol=1e-9)
    # A last layer alone takes features.
    alone = next(QUAM(model[4], found, **whole).predict(model.eval()[:4](points).detach()))
    for each, other in zip(alone, expected, strict=True):
        np.testing.assert_allclose(each, other, rtol=1e-9)


@pytest.mark.slow
def test_batches_with_names() -> None:
    model, (x, y), points = problem()
    data = torch.utils.data.DataLoader([{"input": a, "labels": b} for a, b in zip(x, y, strict=True)], 50)
    for layers in ("last", "all"):
        plain = demur.score(QUAM(model, (x, y), layers=layers, **FEW), [points], progress=False)
        named = demur.score(QUAM(model, data, layers=layers, **FEW), [{"input": points}], progress=False)
        np.testing.assert_allclose(named["A3"].epistemic, plain["A3"].epistemic, rtol=1e-9)


def test_half_precision_is_searched_in_single_precision() -> None:
    model, (x, y), points = problem()
    scores = demur.score(QUAM(model.half(), (x.half(), y), **FEW), [points.half()], progress=False)
    assert (scores["A3"].epistemic > 0).all()


def test_a_layer_without_bias() -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(4, 3, bias=False), torch.randn(30, 4)
    scores = demur.score(QUAM(model, (x, torch.arange(30) % 3), **FEW), [x[:4]], progress=False)
    assert (scores["A3"].epistemic > 0).all()


@pytest.mark.parametrize("option", [{"stderr": True}, {"unbiased": True}, {"tolerance": 0.1}])
def test_what_is_for_random_draws_is_refused(option) -> None:
    model, data, points = problem()
    posterior = QUAM(model, data, **FEW)
    for each in (posterior, Transformed(posterior, lambda batch: batch)):
        with pytest.raises(ValueError, match="random draws"):
            demur.score(each, [points], progress=False, **option)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": "first"}, "layers must be"),
        ({"layers": []}, "layers must be"),
        ({"layers": ["0", "3"]}, "names of layers with parameters that require gradients: 0, 1, 4. Got '3'"),
        ({"targets_at_once": 2}, "targets_at_once is not for layers='last'"),
        ({"layers": "all", "targets_at_once": 0}, "targets_at_once must be a positive integer"),
        ({"bound": -1.0}, "bound must be 0 or more"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"targets": 4}, "at most the number of classes, 3"),
        ({"steps": 0}, "steps must be a positive integer"),
        ({"keep_every": 61}, "keep_every must be at most steps"),
        ({"loss_inputs": 0}, "loss_inputs must be a positive integer"),
        ({"growth": 0.5}, "growth must be a factor of at least 1"),
        ({"rate": -1.0}, "rate must be positive"),
        ({"weight_decay": -1.0}, "weight_decay must be 0 or more"),
        ({"layers": "all", "layer": "4"}, "takes no layer"),
        ({"batch_size": 0}, "batch_size must be a positive integer"),
    ],
)
def test_bad_arguments_are_refused(options, message) -> None:
    model, data, _ = problem()
    with pytest.raises(ValueError, match=message):
        QUAM(model, data, **options)


def test_labels_that_are_no_classes_and_searches_that_diverge_are_refused() -> None:
    model, (x, y), points = problem()
    for layers in ("last", "all"):
        with pytest.raises(ValueError, match="from 0 to 2"):
            QUAM(model, (x, y + 1), layers=layers)
    with pytest.raises(ValueError, match="stay finite"):
        next(QUAM(model, (x, y), **FEW).predict(points * np.inf))
    with pytest.raises(ValueError, match="takes labels"):
        QUAM(model, Features(x.numpy()))


class OwnWeights(Posterior):
    """Members with a weight for each input, in chunks of three."""

    members, tile = 8, 4

    def __init__(self, make) -> None:
        rng = np.random.default_rng(3)
        self.values, self.weights = rng.normal(size=(8, 11, 3)), rng.random((8, 11))
        self.weights[2, 4] = 0
        self.make = make

    def predict(self, batch, *, members=None, position=0):
        rows = np.asarray(batch)[:, 0].astype(int)
        wanted = members or range(8)
        for start in range(wanted.start, wanted.stop, 3):
            some = slice(start, min(start + 3, wanted.stop))
            yield self.make(self.values[some][:, rows]), self.weights[some][:, rows]


KINDS = {
    "classes": lambda z: demur.Categorical(logits=z),
    "Gaussian": lambda z: demur.Gaussian(z[..., 0], variance=np.exp(z[..., 1])),
    "points": lambda z: demur.Points(z[..., 0]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_members_and_inputs_are_those_of_decompose(kind) -> None:
    """In both orders where members are summed, in tiles, and for batches whose rows only `unpack` knows."""
    make, posterior = KINDS[kind], OwnWeights(KINDS[kind])
    rows = np.arange(11.0)[:, None]
    measures = ["pairwise"] if kind == "points" else ["pairwise", "average"]
    options = {"measures": measures, "progress": False}
    runs = [demur.score(posterior, [rows[:5], rows[5:]], **options)]
    if kind != "points":
        runs.append(demur.score(posterior, [rows], unpack=lambda x: (x, None, None, 11), **options))
    if kind == "classes":
        runs.append(demur.score(posterior, [rows], order="member", **options))
    for measure in measures:
        expected = demur.decompose(make(posterior.values), weights=posterior.weights, measure=measure)
        wrong = demur.decompose(make(posterior.values), measure=measure)
        for scores in runs:
            np.testing.assert_allclose(scores[measure].epistemic, expected.epistemic, rtol=1e-9)
            assert (np.abs(scores[measure].epistemic / wrong.epistemic - 1) > 1e-3).all()
