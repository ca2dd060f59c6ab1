"""The share of time outside forward passes and matrix products, on mixes that are known."""

import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import demur
from demur.posteriors import DeepEnsemble, LastLayer, MCDropout

sys.path.insert(0, str(Path(__file__).parents[2]))  # benchmarks are not installed

from benchmarks.forward_share import ForwardShare, main, measure_forward_share

torch = pytest.importorskip("torch")
nn = torch.nn


class Slow(nn.Module):
    """A forward pass of a known length."""

    def __init__(self, inner, pause):
        super().__init__()
        self.inner, self.pause = inner, pause

    def forward(self, x):
        time.sleep(self.pause)
        return self.inner(x)


def test_forward_passes_are_inside_and_the_rest_is_outside():
    model = Slow(nn.Sequential(nn.Linear(4, 4), Slow(nn.Linear(4, 2), 0.05)), 0.05)
    with measure_forward_share() as spent:
        for _ in range(2):
            model(torch.ones(1, 4))
            time.sleep(0.1)
    # Sleeps are never shorter than asked for; on a busy machine they are longer, each by itself.
    assert spent.calls == 2
    assert spent.inside >= 0.2 and spent.seconds - spent.inside >= 0.2
    assert spent.outside == pytest.approx(1 - spent.inside / spent.seconds)
    assert str(spent).endswith("outside forward passes and matrix products (2 of them)")


def test_products_are_counted_once_each_and_other_work_is_not():
    x = torch.ones(300, 300)
    with measure_forward_share() as spent:
        torch.mm(x, x)
        x @ x
        torch.addmm(x, x, x, out=torch.empty(300, 300))
        torch.baddbmm(x[None], x[None], x[None])
        nn.functional.conv2d(torch.ones(1, 1, 9, 9), torch.ones(1, 1, 3, 3))
        nn.functional.linear(x, x)
        before = spent.inside
        (x + x).exp().sum()
        time.sleep(0.05)
        assert spent.inside == before
    assert spent.calls == 6 and 0 < spent.inside < spent.seconds - 0.05


def test_gradients_count_as_well():
    w = torch.ones(50, 50, requires_grad=True)
    with measure_forward_share() as spent:
        (w @ w).sum().backward()
        torch.autograd.grad((w * w).sum(), w)
    assert spent.calls == 3


def test_a_forward_pass_that_fails_ends_there():
    with pytest.raises(RuntimeError), measure_forward_share() as spent:  # noqa: PT012
        with pytest.raises(RuntimeError):
            nn.Linear(3, 3)(torch.ones(2, 2))
        inside = spent.inside
        time.sleep(0.02)
        nn.Linear(3, 3)(torch.ones(2, 3))
        assert spent.inside - inside < 0.02
        nn.Linear(3, 3)(torch.ones(2, 2))
    assert spent.calls == 3 and spent.seconds > 0.02
    with measure_forward_share() as again:  # nothing is left behind
        pass
    assert again.calls == 0 and ForwardShare().outside == 0.0


def network(seed: int = 0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(40, 200), nn.ReLU(), nn.Dropout(0.3), nn.Linear(200, 10))


def posteriors():
    return {
        "heads": LastLayer(network(), [nn.Linear(200, 10) for _ in range(5)]),
        "dropout of the last layer": LastLayer(network(), dropout=0.2, samples=20),
        "mc-dropout": MCDropout(network(), samples=8),
        "ensemble": DeepEnsemble([network(seed) for seed in range(3)]),
    }


@pytest.mark.parametrize("name", list(posteriors()))
def test_scores_are_the_same_and_the_products_are_seen(name):
    torch.manual_seed(5)
    heads, batches = posteriors()[name], [torch.randn(64, 40), torch.randn(30, 40)]
    expected = demur.score(heads, batches, progress=False)
    with measure_forward_share() as spent:
        found = demur.score(heads, batches, progress=False)
    np.testing.assert_array_equal(found["pairwise"].epistemic, expected["pairwise"].epistemic)
    least = {"heads": 4, "dropout of the last layer": 4, "mc-dropout": 16, "ensemble": 6}[name]
    assert spent.calls >= least and 0 < spent.inside < spent.seconds


def test_noise_and_momenta_of_a_chain_are_told_apart():
    from demur.posteriors import CyclicalSGHMC
    from demur.posteriors.chains.stepper import Stepper

    own = Stepper.advance
    layer, data = nn.Linear(40, 20), (torch.randn(64, 40), torch.randint(20, (64,)))
    chain = CyclicalSGHMC(
        layer, data, samples=4, cycles=2, steps=80, batch_size=16, exploration=0.2, discard=0.0, keep=False
    )
    with measure_forward_share() as spent:
        demur.score(LastLayer(layer, chain), [torch.ones(3, 40)], order="member", progress=False)
    assert Stepper.advance is own
    assert 0 < spent.stepping < spent.seconds - spent.inside
    assert spent.outside == pytest.approx(1 - spent.inside / spent.seconds)


def test_compiled_products_are_inside_and_compiling_them_is_not(monkeypatch):
    numba = pytest.importorskip("numba")
    from demur.posteriors.heads import compiled_products

    @numba.njit
    def own(x):
        total = 0.0
        for _ in range(300):
            total += (x @ x)[0, 0]
        return total

    monkeypatch.setattr(compiled_products, "multiply_masked", own)
    begun = time.perf_counter()
    with measure_forward_share() as spent:
        compiled_products.multiply_masked(np.ones((50, 50)))
    first = time.perf_counter() - begun
    assert spent.calls == 1 and 0 < spent.inside < first / 2
    with measure_forward_share() as again:
        compiled_products.multiply_masked(np.ones((50, 50), np.float32))  # compiles for another type
        assert again.inside == 0
        compiled_products.multiply_masked(np.ones((50, 50), np.float32))
    assert again.calls == 1 and again.inside > 0
    assert compiled_products.multiply_masked is own


def test_the_compiled_gradient_of_a_chain_is_inside():
    pytest.importorskip("numba")
    from demur.posteriors import SGHMC

    data = torch.randn(64, 40), torch.randint(5, (64,))
    chain = SGHMC(nn.Linear(40, 5), data, samples=2, steps=20, batch_size=16, burn_in=0.0)
    with measure_forward_share() as spent:
        chain.fit()
    assert spent.calls == 20


def test_the_command_prints_the_share_of_each_posterior(monkeypatch, capsys):
    monkeypatch.setattr(
        "sys.argv", ["forward_share", "--classes=10", "--features=20", "--inputs=30", "--samples=4"]
    )
    main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["ten heads", "dropout", "cyclical SG-HMC"]
    assert all(re.search(r"\d% of \d+\.\d s outside forward passes", line) for line in lines)
    assert lines[2].endswith("in noise and momenta")
