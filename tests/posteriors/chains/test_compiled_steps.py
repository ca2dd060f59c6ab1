"""Noise of the chains has the law that it should: from compiled loops and NumPy, alike, and from PyTorch."""

import math
import sys

import numpy as np
import pytest
from scipy import stats

from demur import kernels
from demur.kernels import compiling
from demur.kernels import threads as workers
from demur.posteriors import SGHMC
from demur.posteriors.chains import gradients, plain_steps
from demur.posteriors.compiled_calls import BAOA_STEP, flatten
from demur.posteriors.sghmc import baoa_step
from demur.posteriors.sgld import langevin_step

torch = pytest.importorskip("torch")

SIZE = 1_000_001  # odd: the last pair is half used


@pytest.fixture(params=["compiled", "numpy", "torch"])
def way(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setenv("DEMUR_COMPILE", "never")
    elif request.param == "torch":
        monkeypatch.setattr(sys.modules[__name__], "flatten", lambda values: values)
    elif not kernels.has_numba():
        pytest.skip("numba is not installed")
    return request.param


def noise(seed, size=SIZE, deviation=1.0, kind=torch.float32, shape=None):
    torch.manual_seed(seed)
    values = torch.zeros(shape or size, dtype=kind)
    add_noise(values, deviation)
    return values.double().numpy()


def add_noise(values, deviation):
    own = flatten(values)
    langevin_step([(own, None, (own, own, own))], (0.0, 0.0, 0.0), 0.5, deviation**2)


def test_noise_is_gaussian(way) -> None:
    found = noise(0)
    assert stats.kstest(found, "norm").pvalue > 1e-4
    for power, moment, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((found**power).mean() - moment) < 4.5 * math.sqrt(spread / SIZE)
    for far in (3, 4):
        expected = 2 * stats.norm.sf(far) * SIZE
        assert abs((np.abs(found) > far).sum() - expected) < 4.5 * math.sqrt(expected)
    assert 4.2 < np.abs(found).max() < 6.7


@pytest.mark.parametrize("lag", [1, 2, 511, 512, 513, 1024])
def test_noise_is_independent(way, lag) -> None:
    """Neighbours, the two of a pair (512 apart), and chunks; also what is far from 0."""
    found = noise(1)
    for each in (found, found**2 - 1, np.sign(found)):
        score = (each[lag:] * each[:-lag]).mean() / each.var() * math.sqrt(SIZE - lag)
        assert abs(score) < 4.5


def test_the_two_of_a_pair_point_in_any_direction(way) -> None:
    found = noise(2, 1024 * 900).reshape(-1, 2, 512)
    angle = np.arctan2(found[:, 0], found[:, 1]).ravel()
    assert stats.kstest(angle, "uniform", (-math.pi, 2 * math.pi)).pvalue > 1e-4
    far = np.hypot(found[:, 0], found[:, 1]).ravel()
    assert stats.kstest(far, "rayleigh").pvalue > 1e-4
    assert abs(np.corrcoef(np.cos(4 * angle), far)[0, 1]) < 4.5 / math.sqrt(far.size)


def test_noise_has_its_size_its_seed_and_its_place(way) -> None:
    np.testing.assert_array_equal(noise(3), noise(3))
    assert abs(np.corrcoef(noise(3), noise(4))[0, 1]) < 4.5 / math.sqrt(SIZE)
    np.testing.assert_allclose(noise(3, deviation=0.01), 0.01 * noise(3), rtol=1e-5, atol=1e-9)
    np.testing.assert_array_equal(noise(5, shape=(3, 7, 11)).ravel(), noise(5, 231))
    assert noise(6, 0).size == 0 and noise(6, 1).size == 1
    assert (noise(7, deviation=0.0) == 0).all()
    assert abs(noise(8, kind=torch.float64).std() - 1) < 4.5 / math.sqrt(2 * SIZE)


def test_noise_is_added() -> None:
    torch.manual_seed(9)
    values = torch.full((1000,), 5.0)
    add_noise(values, 0.1)
    assert abs(values.mean().item() - 5) < 4.5 * 0.1 / math.sqrt(1000)


def test_noise_of_half_precision() -> None:
    assert abs(noise(10, kind=torch.bfloat16).std() - 1) < 0.01


def test_logarithm_of_noise() -> None:
    number = np.concatenate([np.logspace(-9.9, 0, 100_000), [2.0**-32, 0.5, 1.0]]).astype(np.float32)
    exact = np.log(number.astype(float))
    np.testing.assert_allclose(plain_steps.log_of(number), exact, rtol=3e-7, atol=1e-7)


def take_steps(kind, size, temperature, first_state=14):
    given = torch.randn(5, size, generator=torch.Generator().manual_seed(13), dtype=kind)
    torch.manual_seed(first_state)
    first, second, *forces = (flatten(each) for each in given)
    for _ in range(3):
        baoa_step([(first, second, (forces[0], first, forces[1]))], (1.0, -0.3, 0.2), 0.2, temperature, 0.1)
        langevin_step([(forces[2], None, (first, forces[2], second))], (1.0, -0.3, 0.2), 0.2, temperature)
    return np.stack([first, second, forces[2]])


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 10, 511, 512, 513, 1023, 1024, 1025, 40_000])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_compiled_steps_are_those_of_numpy_to_the_last_bit(monkeypatch, kind, size, temperature) -> None:
    compiled = take_steps(kind, size, temperature)
    monkeypatch.setenv("DEMUR_COMPILE", "never")
    assert compiled.tobytes() == take_steps(kind, size, temperature).tobytes()
    # Control: another seed is another noise.
    assert (compiled.tobytes() == take_steps(kind, size, temperature, 15).tobytes()) == (temperature == 0)


def test_a_chain_goes_on_alike_when_its_steps_get_compiled(monkeypatch) -> None:
    """The loop is found in the midst of the chain: its plain steps have taken long enough by then."""
    pytest.importorskip("numba")
    layer, data = torch.nn.Linear(12, 4), (torch.randn(60, 12), torch.randint(4, (60,)))

    def sample():
        chain = SGHMC(layer, data, samples=4, steps=40, batch_size=20, burn_in=0.1, seed=3)
        chain.fit()
        found = chain.parameters(range(4))
        return b"".join(found[name].numpy().tobytes() for name in ("weight", "bias"))

    monkeypatch.setenv("DEMUR_COMPILE", "never")
    plain = sample()
    monkeypatch.delenv("DEMUR_COMPILE")
    for name, value in (("_loaded", {}), ("_spent_on", {}), ("_spent", 0.0)):
        monkeypatch.setattr(compiling, name, value)
    for name in ("WORTH_COMPILING", "WORTH_LOADING"):
        monkeypatch.setattr(compiling, name, 40 * 50e-6)  # of two parameters, in 40 steps
    monkeypatch.setattr(gradients, "find_loop_by_work", lambda *given: None)
    assert sample() == plain
    assert 0 < compiling._spent_on[f"{BAOA_STEP}-float32"] < 40 * 50e-6
    assert f"{BAOA_STEP}-float32" in compiling._loaded


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("third", [0.0, 0.2])
def test_a_compiled_step_of_hamiltonian_dynamics(kind, third) -> None:
    pytest.importorskip("numba")
    torch.manual_seed(11)
    value, momentum, *others = (torch.randn(31, 100, dtype=kind) for _ in range(5))

    def stepped(temperature, form=flatten):
        own = value.clone(), momentum.clone()
        moving = [(*map(form, own), tuple(map(form, others)))]
        baoa_step(moving, (1.0, -0.3, third), 0.2, temperature, 0.1)
        return own

    found, noisy = stepped(0.0), stepped(0.5)
    for compiled, expected in zip(found, stepped(0.0, lambda values: values), strict=True):
        torch.testing.assert_close(compiled, expected, rtol=1e-5, atol=1e-6)
    noise = (noisy[1] - found[1]) / math.sqrt(0.5 * (1 - 0.9**2))
    assert stats.kstest(noise.numpy().ravel(), "norm").pvalue > 1e-4
    moved = (noisy[0] - found[0]) / (math.sqrt(0.2) / 2 * math.sqrt(0.5 * (1 - 0.9**2)))
    torch.testing.assert_close(moved, noise, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("third", [0.0, 0.2])
def test_a_compiled_step_of_langevin_dynamics(kind, third) -> None:
    pytest.importorskip("numba")
    torch.manual_seed(12)
    value, *others = (torch.randn(31, 100, dtype=kind) for _ in range(4))

    def stepped(temperature, form=flatten):
        own = value.clone()
        moving = [(form(own), None, tuple(map(form, others)))]
        langevin_step(moving, (1.0, -0.3, third), 0.2, temperature)
        return own

    found, noisy = stepped(0.0), stepped(0.5)
    torch.testing.assert_close(found, stepped(0.0, lambda values: values), rtol=1e-5, atol=1e-6)
    noise = (noisy - found) / math.sqrt(2 * 0.2 * 0.5)
    assert stats.kstest(noise.numpy().ravel(), "norm").pvalue > 1e-4


@pytest.mark.parametrize("form", [flatten, lambda values: values], ids=["compiled", "torch"])
def test_forces_are_taken_where_the_value_was(form) -> None:
    """The value is one of the forces, and moves."""
    gradient, value, centre, momentum = torch.randn(4, 50, dtype=torch.float64)
    factors = 1.0, -0.3, 0.2
    force = sum(f * each for f, each in zip(factors, (gradient, value, centre), strict=True))
    expected = value + 0.2 * force
    own = value.clone()
    langevin_step([(form(own), None, (form(gradient), form(own), form(centre)))], factors, 0.2, 0.0)
    torch.testing.assert_close(own, expected, rtol=1e-13, atol=1e-15)
    own, moved = value.clone(), momentum.clone()
    moving = [(form(own), form(moved), (form(gradient), form(own), form(centre)))]
    baoa_step(moving, factors, 0.04, 0.0, 0.1)
    pushed = momentum + 0.2 * force
    torch.testing.assert_close(moved, 0.9 * pushed, rtol=1e-13, atol=1e-15)
    torch.testing.assert_close(own, value + 0.1 * 1.9 * pushed, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("size", [1 << 18, (1 << 18) + 1025, 700_001])
def test_threads_do_the_step_of_one(monkeypatch, size) -> None:
    """Each thread draws its part of the one sequence."""
    pytest.importorskip("numba")
    given = torch.randn(5, size, generator=torch.Generator().manual_seed(13))

    def stepped(threads):
        monkeypatch.setattr(workers, "count_threads", lambda: threads)
        torch.manual_seed(14)
        first, second, *forces = (flatten(each) for each in given.clone())
        baoa_step([(first, second, tuple(forces))], (1.0, -0.3, 0.2), 0.2, 0.5, 0.1)
        langevin_step([(forces[0], None, tuple(forces))], (1.0, -0.3, 0.2), 0.2, 0.5)
        return np.stack([first, second, forces[0]])

    alone = stepped(1)
    for threads in (2, 3):
        np.testing.assert_array_equal(stepped(threads), alone)
