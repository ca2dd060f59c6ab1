"""SWAG and MultiSWAG draw from the Gaussian that the paper defines, refresh batch norm, and resume."""

import copy
import math
import sys

import numpy as np
import pytest

import demur
from demur.posteriors import SWAG, MultiSWAG
from demur.posteriors.weight_averaging import descent
from demur.posteriors.weight_averaging.moments import IterateMoments

torch = pytest.importorskip("torch")
nn = torch.nn

ERRORS = 4.5  # standard errors: a statistic is out once in 150,000 seeds
rng = np.random.default_rng(0)
X = torch.from_numpy(rng.normal(size=(60, 4)).astype(np.float32))
Y = torch.from_numpy(rng.integers(0, 3, 60))


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Dropout(), nn.Linear(5, 3))


def plain():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def fitted(model=None, **options):
    settings = {"samples": 6, "rank": 3, "epochs": 5, "batch_size": 16, "rate": 0.05, "progress": False}
    return SWAG.fit(plain() if model is None else model, (X, Y), **settings | options)


def equal(a, b) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def vectors(posterior) -> np.ndarray:
    """Drawn parameters, (members, parameters)."""
    drawn = posterior.parameters()
    return torch.cat([drawn[name].flatten(1) for name in drawn], dim=1).double().numpy()


# --- the Gaussian --------------------------------------------------------------------------------


def walk(iterates: int, layers=(3, 3)) -> np.ndarray:
    """Correlated iterates of all parameters, (iterates, parameters)."""
    source = np.random.default_rng(3)
    size = sum(layers)
    shared = source.normal(size=(iterates, 2)) @ source.normal(size=(2, size))
    return source.normal(size=size) + shared + 0.3 * source.normal(size=(iterates, size))


def collect(iterates: np.ndarray, **options) -> SWAG:
    model = nn.ModuleList([nn.Linear(3, 1, bias=False), nn.Linear(3, 1, bias=False)]).double()
    swag = SWAG(model, **options)
    for row in torch.from_numpy(iterates):
        with torch.no_grad():
            model[0].weight.copy_(row[None, :3])
            model[1].weight.copy_(row[None, 3:])
        swag.collect(model)
    return swag


def paper(iterates: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Algorithm 1 as it stands, slowly: mean, diagonal and deviations."""
    deviations = [row - iterates[: n + 1].mean(0) for n, row in enumerate(iterates)]
    mean = iterates.mean(0)
    return mean, (iterates**2).mean(0) - mean**2, np.array(deviations[-rank:] if rank else [])


def agrees(drawn: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> bool:
    """Whether means and covariances of Gaussian draws are within so many standard errors."""
    variance = np.diag(covariance)
    if not (np.abs(drawn.mean(0) - mean) < ERRORS * np.sqrt(variance / len(drawn))).all():
        return False
    spread = np.sqrt((covariance**2 + np.outer(variance, variance)) / len(drawn))
    return bool((np.abs(np.cov(drawn.T) - covariance) < ERRORS * spread).all())


@pytest.mark.parametrize(("iterates", "rank"), [(12, 5), (4, 5), (2, 20), (7, 0)])
def test_moments_are_those_of_algorithm_1(iterates, rank) -> None:
    path = walk(iterates)
    moments = collect(path, rank=rank).moments
    mean, diagonal, deviations = paper(path, rank)
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(moments.variance, diagonal, rtol=1e-10)
    assert moments.columns == len(deviations) == min(iterates, rank)
    # The rows come round; their order means nothing.
    found = moments.deviations[: moments.columns].numpy()
    np.testing.assert_allclose(np.sort(found, axis=0), np.sort(deviations.reshape(found.shape), axis=0))


@pytest.mark.parametrize(("rank", "scale"), [(5, 0.5), (20, 0.5), (0, 1.0)])
def test_draws_have_half_the_diagonal_and_half_the_low_rank_covariance(rank, scale) -> None:
    path = walk(12)
    mean, diagonal, deviations = paper(path, rank)
    low_rank = deviations.T @ deviations / (len(deviations) - 1) if rank else 0.0
    drawn = vectors(collect(path, rank=rank, scale=scale, samples=4000))
    assert agrees(drawn, mean, scale * (np.diag(diagonal) + low_rank))


def test_control_draws_layer_by_layer_are_found() -> None:
    path = walk(12)
    mean, diagonal, deviations = paper(path, 5)
    covariance = (np.diag(diagonal) + deviations.T @ deviations / 4) / 2
    source = np.random.default_rng(1)
    noise = source.normal(size=(4000, 6)) * np.sqrt(diagonal / 2)
    layers = [source.normal(size=(4000, 5)) @ deviations[:, part] for part in (slice(3), slice(3, 6))]
    by_layer = mean + noise + np.concatenate(layers, axis=1) / math.sqrt(8)
    assert not agrees(by_layer, mean, covariance)
    jointly = mean + noise + source.normal(size=(4000, 5)) @ deviations / math.sqrt(8)
    assert agrees(jointly, mean, covariance)


def test_small_variances_of_large_parameters_are_kept_and_the_clamped_ones_are_not() -> None:
    """A deviation of 1e-3 about 100: float32 holds the iterates, but not the difference of squares."""
    source = np.random.default_rng(2)
    path = torch.from_numpy((100 + 1e-3 * source.normal(size=(50, 40))).astype(np.float32))
    exact = path.double().numpy().var(axis=0)
    moments = IterateMoments(path[0], 0)
    for row in path:
        moments.collect(row)
    np.testing.assert_allclose(moments.variance, exact, rtol=1e-9)
    mean = square = torch.zeros(40)
    for n, row in enumerate(path):
        mean, square = (mean * n + row) / (n + 1), (square * n + row**2) / (n + 1)
    clamped = (square - mean**2).clamp(min=1e-30).numpy()
    assert (np.abs(clamped / exact - 1) > 0.9).all()
    assert (clamped == np.float32(1e-30)).any()


def test_iterates_of_sgd_on_a_quadratic_have_their_stationary_variance() -> None:
    """w <- (1 - r) w + r t for each t of a pass, in random order: its variance at the end is known.

    With factors a of the t in their order, that of one pass is s^2 (sum a^2 - (sum a)^2 / M) M / (M - 1),
    for draws without replacement; the rest of the pass before shrinks by (1 - r)^M.
    """
    targets, rate, epochs = 16, 0.3, 150
    source = np.random.default_rng(4)
    centred = np.linalg.qr(np.column_stack([np.ones(targets), source.normal(size=(targets, 8))]))[0][:, 1:]

    class Point(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros(8, dtype=torch.float64))

        def forward(self, x):
            return self.w.expand(len(x), 8)

    posterior = SWAG.fit(
        Point(), (torch.zeros(targets, 1), torch.from_numpy(centred)), rank=0, epochs=epochs, burn_in=2,
        rate=rate, momentum=0.0, weight_decay=0.0, batch_size=1, progress=False,
        log_likelihood=lambda out, target: -(out - target).square().sum(-1) / 2,
    )  # fmt: skip
    factors = rate * (1 - rate) ** np.arange(targets)
    one = centred.var(axis=0) * (factors @ factors - factors.sum() ** 2 / targets) * targets / (targets - 1)
    expected = one / (1 - (1 - rate) ** (2 * targets))
    ratio = (posterior.moments.variance.numpy() / expected).mean()
    # The columns are orthogonal, and so nearly independent.
    assert abs(ratio - 1) < ERRORS * math.sqrt(2 / epochs / 8)
    with_replacement = centred.var(axis=0) * rate / (2 - rate)
    assert abs((posterior.moments.variance.numpy() / with_replacement).mean() - 1) > 0.25


# --- draws ---------------------------------------------------------------------------------------


def test_draws_depend_on_seed_and_member_alone() -> None:
    posterior = fitted()
    whole = posterior.parameters()
    assert equal(whole, fitted().parameters())
    assert not torch.equal(whole["0.weight"], fitted(seed=1).parameters()["0.weight"])
    more = fitted(samples=9)
    for asked in (range(5, 6), range(2), range(0, 6, 2), range(4, 1, -1)):
        assert torch.equal(more.parameters(asked)["0.weight"], whole["0.weight"][list(asked)])
    assert more._ready == {0, 1, 2, 3, 4, 5}
    assert vectors(posterior).std(axis=0).min() > 0


@pytest.mark.parametrize("kept", [SWAG.numbers_kept, 0])
@pytest.mark.parametrize("make", [plain, pytest.param(network, marks=pytest.mark.slow)])
def test_scores_are_the_same_by_batch_and_by_member(make, kept, monkeypatch) -> None:
    monkeypatch.setattr(SWAG, "numbers_kept", kept)
    posterior = fitted(make())
    by_batch = demur.score(posterior, [X[:25], X[25:]], progress=False)
    by_member = demur.score(posterior, [X[:25], X[25:]], order="member", progress=False)
    assert (posterior._samples is not None) == bool(kept)
    assert by_batch.members == 6 and (by_batch["pairwise"].epistemic > 0).all()
    np.testing.assert_allclose(by_member["pairwise"].epistemic, by_batch["pairwise"].epistemic, rtol=1e-9)


def test_collecting_from_ones_own_loop_is_what_fit_does() -> None:
    model, batches = plain(), descent_batches()
    swag = SWAG(model, samples=6, rank=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    for epoch in range(5):
        for step in range(3):
            inputs, targets = batches.at(3 * epoch + step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
        swag.collect(model)
    np.testing.assert_array_equal(vectors(swag), vectors(fitted()))
    before = vectors(swag)
    swag.collect(plain())
    assert swag.moments.count == 6 and not np.array_equal(vectors(swag), before)
    assert repr(swag) == "SWAG(6 samples from 6 iterates)"


def descent_batches():
    from demur.posteriors.chains.minibatches import make_minibatches

    return make_minibatches((X, Y), 16, 0)


def test_the_mean_is_the_average_network() -> None:
    posterior = fitted()
    np.testing.assert_array_equal(
        torch.cat([each.flatten() for each in posterior.mean.values()]), posterior.moments.mean
    )


# --- batch norm ----------------------------------------------------------------------------------


def test_each_draw_has_batch_norm_statistics_of_its_own() -> None:
    model = network()
    posterior = fitted(model)
    drawn = posterior.parameters()
    batches = [descent_batches().at(step)[0] for step in range(3)]
    for k in range(6):
        own = network()
        own[3].p = 0.0  # dropout is off in predictions
        own.load_state_dict({name: value[k] for name, value in drawn.items()}, strict=False)
        torch.optim.swa_utils.update_bn(batches, own)
        for name in ("1.running_mean", "1.running_var"):
            torch.testing.assert_close(drawn[name][k], own.state_dict()[name], rtol=1e-6, atol=1e-7)
        own.eval()
        with torch.no_grad():
            expected = own(X)
        torch.testing.assert_close(next(posterior.predict(X, members=range(k, k + 1)))[0], expected)
    means = drawn["1.running_mean"]
    assert all(not torch.equal(means[0], means[k]) for k in range(1, 6))
    assert torch.equal(model[1].running_mean, torch.zeros(5))


def test_control_stale_statistics_give_other_predictions() -> None:
    posterior = fitted(network())
    fresh = next(posterior.predict(X, members=range(1)))
    stale = copy.copy(posterior)
    stale.refresh, stale._samples, stale._ready = False, None, set()
    assert "1.running_mean" not in stale.parameters()
    assert (next(stale.predict(X, members=range(1))) - fresh).abs().max() > 1e-3


def test_batch_norm_without_data_is_refused_unless_it_is_meant() -> None:
    model = network()
    swag, kept = SWAG(model, samples=3), SWAG(model, samples=3, refresh=False)
    for _ in range(3):
        with torch.no_grad():
            for each in model.parameters():
                each += 0.1 * torch.randn_like(each)
        swag.collect()
        kept.collect()
    with pytest.raises(ValueError, match=r"batch norm.*SWAG\(model, data=...\).*refresh=False"):
        demur.score(swag, [X], progress=False)
    assert demur.score(kept, [X], progress=False).members == 3


# --- fit -----------------------------------------------------------------------------------------


def test_a_killed_fit_resumes_to_the_same_bytes(tmp_path, monkeypatch) -> None:
    file, options = tmp_path / "run" / "swag.safetensors", {"burn_in": 1, "start_rate": 0.01}
    fitted(network(), **options).save(tmp_path / "whole")
    before = IterateMoments.collect
    calls = []

    def stop_at_the_fourth(self, vector) -> None:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        before(self, vector)

    monkeypatch.setattr(IterateMoments, "collect", stop_at_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        fitted(network(), checkpoint=file, every=0.0, **options)
    monkeypatch.setattr(
        IterateMoments, "collect", lambda self, vector: calls.append(1) or before(self, vector)
    )
    resumed = fitted(network(), checkpoint=file, every=0.0, **options)
    assert len(calls) == 4 + 2
    resumed.save(tmp_path / "resumed")
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "resumed").read_bytes()
    again = fitted(network(), checkpoint=file, **options)
    assert len(calls) == 6 and equal(again.parameters(), resumed.parameters())
    with pytest.raises(ValueError, match=r"of another: rate was 0.05 and is 0.1"):
        fitted(network(), checkpoint=file, rate=0.1, **options)


def test_fit_leaves_everything_else_as_it_was() -> None:
    model = network().eval()
    model[0].bias.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    posterior = fitted(model)
    demur.score(posterior, [X], progress=False)
    assert equal(dict(model.state_dict()), dict(before)) and not model.training
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), states[0])
    np.testing.assert_array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002
    assert "0.bias" not in posterior.parameters()


def test_the_learning_rate_is_that_of_swalr() -> None:
    plan = descent.DescentPlan(3, 4, 0.05, 0.4, 0.9, 0.0, 2)
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.4)
    schedule = torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.05, anneal_epochs=4)
    for epoch in range(7):
        assert plan.find_rate(epoch) == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert [step for step in range(7 * 5) if plan.collects(step, 5)] == [22, 24, 27, 29, 32, 34]


@pytest.mark.slow
def test_a_compiled_network_is_collected_by_its_own_names() -> None:
    model = plain()
    compiled = torch.compile(model)
    swag = SWAG(compiled, samples=2)
    swag.collect(compiled)
    swag.collect(plain())
    assert set(swag.parameters()) == set(dict(model.named_parameters()))


def test_a_loader_trains_and_refreshes() -> None:
    data = torch.utils.data.TensorDataset(X, Y)
    loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True, drop_last=True)
    settings = {"samples": 3, "epochs": 3, "progress": False}
    first, second = (SWAG.fit(network(), loader, **settings) for _ in range(2))
    assert equal(first.parameters(), second.parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "samples must be a positive integer"),
        ({"rank": 1}, "rank must be at least 2"),
        ({"scale": 0.0}, "scale must be positive"),
        ({"rate": 0.0}, "rate must be positive"),
        ({"start_rate": math.inf}, "start_rate must be positive"),
        ({"burn_in": -1}, "0 or more"),
        ({"epochs": 1}, "at least 2, as iterates have a spread"),
        ({"momentum": 1.0}, "below 1"),
        ({"weight_decay": -1.0}, "weight_decay must be 0 or more"),
        ({"collections": 0}, "collections must be a positive integer"),
    ],
)
def test_what_it_refuses(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        fitted(**options)


def test_what_cannot_be_collected_or_drawn() -> None:
    swag = SWAG(plain())
    swag.collect()
    with pytest.raises(ValueError, match=r"at least 2 iterates. Got 1"):
        swag.parameters()
    with pytest.raises(ValueError, match="parameters that SWAG was made for"):
        swag.collect(nn.Linear(4, 3))
    with pytest.raises(FloatingPointError, match="Lower the learning rate"):
        swag.collect(
            nn.Sequential(*plain()).apply(
                lambda m: m.weight.data.fill_(math.nan) if hasattr(m, "weight") else 0
            )
        )
    with pytest.raises(FloatingPointError, match="Lower rate, which is 1e"):
        fitted(rate=1e30, log_likelihood=lambda out, _: -out.square().sum(-1))


# --- files, and several SWAGs --------------------------------------------------------------------


@pytest.mark.parametrize("make", [plain, network])
def test_a_saved_swag_has_the_same_members_without_the_data(make, tmp_path) -> None:
    posterior = fitted(make())
    posterior.save(tmp_path / "swag")
    loaded = SWAG.load(tmp_path / "swag", make())
    assert equal(loaded.parameters(), posterior.parameters()) and repr(loaded) == repr(posterior)
    assert next(loaded.predict(X)).equal(next(posterior.predict(X)))
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "swag").read_bytes()
    assert torch.equal(loaded.model[0].weight, posterior.mean["0.weight"].float())
    with pytest.raises(ValueError, match="architecture that was saved"):
        SWAG.load(tmp_path / "swag", nn.Linear(4, 3))
    frozen = make()
    frozen[0].requires_grad_(False)
    with pytest.raises(ValueError, match="requires_grad on the parameters that were drawn"):
        SWAG.load(tmp_path / "swag", frozen)


def test_a_diagonal_swag_is_saved_too(tmp_path) -> None:
    posterior = fitted(rank=0, scale=1.0)
    posterior.save(tmp_path / "swag")
    assert equal(SWAG.load(tmp_path / "swag", plain()).parameters(), posterior.parameters())


def test_several_swags_take_turns_with_equal_weights(tmp_path) -> None:
    swags = [fitted(seed=seed) for seed in (0, 1, 2)]
    posterior = MultiSWAG(swags)
    assert repr(posterior) == "MultiSWAG(18 samples of 3 SWAGs)"
    logits = torch.cat(list(posterior.predict(X)))
    for member in range(18):
        own = next(swags[member % 3].predict(X, members=range(member // 3, member // 3 + 1)))
        assert torch.equal(logits[member], own[0])
    assert swags[0].numbers_kept == SWAG.numbers_kept // 3
    scores = demur.score(posterior, [X], progress=False)
    by_member = demur.score(posterior, [X], order="member", progress=False)
    expected = demur.decompose(logits=logits.numpy()).epistemic
    for found in (scores, by_member):
        np.testing.assert_allclose(found["pairwise"].epistemic, expected, rtol=1e-5)
    posterior.save(tmp_path / "swags")
    loaded = MultiSWAG.load(tmp_path / "swags", [plain() for _ in range(3)])
    assert torch.equal(torch.cat(list(loaded.predict(X))), logits)
    assert loaded.fingerprint() != MultiSWAG(swags[:2]).fingerprint()
    with pytest.raises(ValueError, match=r"holds 3 SWAGs. Got 2 models"):
        MultiSWAG.load(tmp_path / "swags", [plain(), plain()])
    with pytest.raises(ValueError, match=r"equal numbers of samples.*Got \[6, 4\]"):
        MultiSWAG([swags[0], fitted(samples=4)])
    with pytest.raises(TypeError, match="Got Linear among them"):
        MultiSWAG([nn.Linear(1, 1)])
    with pytest.raises(ValueError, match="at least one SWAG"):
        MultiSWAG([])


# Other processes import it, so that it lies in a file.
MODULE = """
import torch

def factory():
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 3))

def train(model, member, steps=3):
    data = torch.Generator().manual_seed(1)
    x, y = torch.randn(60, 4, generator=data), torch.randint(3, (60,), generator=data)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

def other_train(model, member):
    return None
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "trained_for_swag.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path / "code")
    monkeypatch.delitem(sys.modules, "trained_for_swag", raising=False)
    import trained_for_swag

    return trained_for_swag


SETTINGS = {"samples": 4, "rank": 3, "epochs": 3, "batch_size": 16, "progress": False}


def test_multi_swag_trains_its_members_and_resumes(module, tmp_path) -> None:
    def fit(folder, swags=3, train=module.train, data=(X, Y), **options):
        return MultiSWAG.fit(
            module.factory, train, data, swags, folder=folder, processes=0, **SETTINGS | options
        )

    whole = fit(tmp_path / "whole")
    assert whole.members == 12 and [each.moments.count for each in whole.swags] == [3, 3, 3]
    starts = [each.moments.mean for each in whole.swags]
    assert not torch.equal(starts[0], starts[1])
    logits = torch.cat(list(whole.predict(X)))
    fit(tmp_path / "grown", swags=2)
    assert torch.equal(torch.cat(list(fit(tmp_path / "grown").predict(X))), logits)
    assert fit(tmp_path / "whole", samples=2, scale=1.0).members == 6
    for changed in ({"train": module.other_train}, {"data": (X + 1, Y)}, {"rank": 2}, {"epochs": 4}):
        with pytest.raises(ValueError, match="folder: expected members with the same settings"):
            fit(tmp_path / "whole", **changed)
    with pytest.raises(TypeError, match="options must not have 'checkpoint'"):
        fit(tmp_path / "whole", checkpoint="file")


@pytest.mark.slow
def test_multi_swag_is_the_same_in_other_processes(module) -> None:
    here, there = (
        MultiSWAG.fit(module.factory, module.train, (X, Y), 2, processes=each, **SETTINGS) for each in (0, 2)
    )
    assert torch.equal(torch.cat(list(here.predict(X))), torch.cat(list(there.predict(X))))
    with pytest.raises(ValueError, match="train must be a function that other processes can import"):
        MultiSWAG.fit(module.factory, lambda *_: None, (X, Y), 2, processes=2, **SETTINGS)
