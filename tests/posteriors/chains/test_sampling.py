"""SGLD, SGHMC and CyclicalSGHMC draw from the law that they should, and the checks here can tell.

A network whose parameters have a first axis of R replicas, and whose log-likelihood is the sum over them, has
a posterior of R independent copies: one chain is R chains, through the same door that users take.

Tolerances are in standard errors of R independent draws, about the law of the discretised chain, which
`reference.chains` computes: the error that a finite step makes is in that law, and not in the tolerance. A
statistic is out at 4.5 standard errors: once in 150,000 seeds where the sampler is right.
"""

import itertools
import math

import numpy as np
import pytest
from reference import chains
from scipy.special import digamma, polygamma

from demur.posteriors import SGHMC, SGLD, CyclicalSGHMC
from demur.posteriors.chains.stepper import add_forces, add_noise

torch = pytest.importorskip("torch")

ERRORS = 4.5


def within(found, expected, error) -> bool:
    return bool((np.abs(np.asarray(found) - expected) < ERRORS * np.asarray(error)).all())


class Replicas(torch.nn.Module):
    """Parameters (replicas, ...), and what they make of a batch."""

    def __init__(self, shape, function) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64))
        self.function = function

    def forward(self, x):
        return self.function(self.w, x)


def drawn(posterior) -> np.ndarray:
    """Samples (members, replicas, ...)."""
    return posterior.fit(progress=False).parameters()["w"].numpy()


# --- Bayesian linear regression: a Gaussian posterior, with curvatures from 0.1 to 5 over N -------

N, NOISE, SCALE = 50, 0.5, 2.0
CURVATURES = np.array([0.1, 1.0, 5.0])


class Regression:
    """y = x w + noise, of known variance; and the posterior along its eigen-directions."""

    def __init__(self, curvatures=CURVATURES) -> None:
        rng = np.random.default_rng(0)
        prior = 1 / (N * SCALE**2)
        orthogonal = np.linalg.qr(rng.normal(size=(N, len(curvatures))))[0]
        self.directions = np.linalg.qr(rng.normal(size=(len(curvatures),) * 2))[0]
        x = orthogonal * np.sqrt((curvatures - prior) * N) * NOISE @ self.directions.T
        y = x @ rng.normal(size=len(curvatures)) + NOISE * rng.normal(size=N)
        precision = x.T @ x / NOISE**2 + np.eye(len(curvatures)) / SCALE**2
        self.mean = np.linalg.solve(precision, x.T @ y / NOISE**2) @ self.directions
        self.data = torch.from_numpy(x), torch.from_numpy(y)
        np.testing.assert_allclose(
            self.directions.T @ precision @ self.directions, np.diag(curvatures * N), atol=1e-10
        )

    def posterior(self, method, replicas, **options):
        def log_likelihood(out, y):
            return -((out - y[:, None]) ** 2).sum(1) / (2 * NOISE**2)

        model = Replicas((replicas, len(self.mean)), lambda w, x: x @ w.T)
        options |= {"log_likelihood": log_likelihood, "prior_scale": SCALE, "batch_size": N}
        return method(model, self.data, **options)

    def along(self, samples) -> np.ndarray:
        """Samples in the eigen-directions, about the posterior's mean."""
        return samples @ self.directions - self.mean


def gaussian(found, mean, variance) -> bool:
    """Whether replicas (replicas, directions) have these means and variances."""
    replicas = len(found)
    centred = found - mean
    return within(found.mean(0), mean, np.sqrt(variance / replicas)) and within(
        (centred**2).mean(0), variance, variance * math.sqrt(2 / replicas)
    )


REPLICAS = 1000
CHAINS = {
    "SGLD": (SGLD, chains.langevin, 300, {"step_size": 0.3}),
    "SGHMC": (SGHMC, chains.baoa, 120, {"step_size": 0.3, "friction": 0.3}),
}


@pytest.mark.parametrize("name", ["SGHMC", pytest.param("SGLD", marks=pytest.mark.slow)])
def test_linear_regression_has_the_stationary_law_of_the_chain(name) -> None:
    method, step, steps, options = CHAINS[name]
    target = Regression()
    friction = options.get("friction")
    long_run = np.array([chains.stationary(step, k, 0.3, friction, 1 / N) for k in CURVATURES])
    rates, temperatures = [0.3] * steps, [1 / N] * steps
    laws = [
        chains.marginal(step, k, rates, friction, temperatures, -start)
        for k, start in zip(CURVATURES, target.mean, strict=True)
    ]
    mean, variance = np.array(laws).T
    # The start is forgotten, to a small part of a standard error.
    np.testing.assert_allclose(variance, long_run, rtol=1e-3)
    assert (np.abs(mean) < 0.1 * np.sqrt(variance / REPLICAS)).all()

    found = target.along(drawn(target.posterior(method, REPLICAS, samples=1, steps=steps, **options))[0])
    assert gaussian(found, 0, long_run)
    for wrong in (1 / N, 2.0, 0.5):  # of the noise: the check can fail
        assert not gaussian(found, 0, wrong * long_run)


def test_the_bias_of_the_step_size_is_no_standard_error() -> None:
    """BAOA has none in a Gaussian; that of SGLD is 1 / (1 - step_size k / 2), and is seen."""
    exact = 1 / (CURVATURES * N)
    found = [chains.stationary(chains.baoa, k, 0.3, 0.3, 1 / N) for k in CURVATURES]
    np.testing.assert_allclose(found, exact, rtol=1e-12)
    found = [chains.stationary(chains.langevin, k, 0.3, None, 1 / N) for k in CURVATURES]
    np.testing.assert_allclose(found, exact / (1 - 0.3 * CURVATURES / 2), rtol=1e-12)
    target = Regression()
    sample = target.along(drawn(target.posterior(SGLD, REPLICAS, samples=1, steps=200, step_size=0.3))[0])
    assert not gaussian(sample, 0, exact)


@pytest.mark.parametrize("temperature", [0.0, 0.25, float(N)])
def test_a_temperature_is_that_of_the_whole_posterior(temperature) -> None:
    """0 leaves the noise out; N is the error of a chain that forgets to divide by the number of inputs."""
    _, _, steps, options = CHAINS["SGHMC"]
    target = Regression()
    posterior = target.posterior(SGHMC, 300, samples=1, steps=steps, temperature=temperature, **options)
    found = target.along(drawn(posterior)[0])
    if temperature == 0:
        np.testing.assert_allclose(found, 0, atol=1e-4)
    else:
        assert gaussian(found, 0, temperature / (CURVATURES * N))
    assert not gaussian(found, 0, 1 / (CURVATURES * N))


class ExplicitEuler(SGHMC):
    """The same dynamics by explicit Euler steps."""

    def _move(self, moving, factors, rate, temperature):
        time = math.sqrt(rate)
        alpha = -math.log(1 - self.friction) / time
        for each, of, forces in moving:
            value, momentum = torch.as_tensor(each), torch.as_tensor(of)
            before = momentum.clone()
            add_forces(momentum, tuple(map(torch.as_tensor, forces)), factors, time)
            momentum.add_(before, alpha=-alpha * time)
            add_noise(momentum, math.sqrt(2 * alpha * temperature * time))
            value.add_(before, alpha=time)


def test_control_explicit_euler_steps_fail_along_the_eigen_directions() -> None:
    curvatures = np.array([1.0, 3.0, 5.0])
    target = Regression(curvatures)
    posterior = target.posterior(ExplicitEuler, REPLICAS, samples=1, steps=150, step_size=0.1, friction=0.7)
    found = target.along(drawn(posterior)[0])
    own = np.array([chains.stationary(chains.euler, k, 0.1, 0.7, 1 / N) for k in curvatures])
    assert gaussian(found, 0, own)
    assert own[-1] * curvatures[-1] * N > 2
    assert not gaussian(found, 0, 1 / (curvatures * N))


def cosine(length: int, step_size: float) -> list[float]:
    return [step_size / 2 * (math.cos(math.pi * k / length) + 1) for k in range(length)]


def test_each_sample_of_a_cycle_has_the_law_of_its_step() -> None:
    target, length, cycles = Regression(), 100, 2
    posterior = target.posterior(
        CyclicalSGHMC, REPLICAS, samples=8, cycles=cycles, steps=cycles * length, step_size=1.0, friction=0.5,
        exploration=0.3, discard=0.2,
    )  # fmt: skip
    found = target.along(drawn(posterior))
    rates = cosine(length, 1.0) * cycles
    temperatures = ([0.0] * 30 + [1 / N] * 70) * cycles
    taken = [58, 72, 86, 100, 158, 172, 186, 200]  # 30 explored, 14 discarded, then four times 14
    for sample, step in zip(found, taken, strict=True):
        laws = [
            chains.marginal(chains.baoa, k, rates[:step], 0.5, temperatures[:step], -start)
            for k, start in zip(CURVATURES, target.mean, strict=True)
        ]
        mean, variance = np.array(laws).T
        assert gaussian(sample, mean, variance)
        if step % length == 0:
            # The slowest direction is a little narrow at the end of a short cycle; the others are right.
            np.testing.assert_allclose(variance * CURVATURES * N, 1, rtol=0.15)
        without = np.array([chains.marginal(chains.baoa, k, rates[:step], 0.5, [1 / N] * step, 0)[1]
                            for k in CURVATURES])  # fmt: skip
        if step == 58:
            assert not gaussian(sample, mean, without)  # noise also in the exploration: told apart


def minibatch_laws(x, y, rate, friction):
    """Orders of a pass over four inputs in batches of two, as steps of (1, w, m), flat prior, unit noise."""
    h, c = math.sqrt(rate), 1 - friction
    drift = np.array([[1, 0, 0], [0, 1, h / 2], [0, 0, 1]])
    damp = np.diag([1, 1, c])

    def step(batch):
        xx, xy = np.mean([x[i] ** 2 for i in batch]), np.mean([x[i] * y[i] for i in batch])
        return drift @ damp @ drift @ np.array([[1, 0, 0], [0, 1, 0], [h * xy, -h * xx, 1]])

    halves = list(itertools.combinations(range(4), 2))
    passes = [[step(half), step([i for i in range(4) if i not in half])] for half in halves]
    noise = drift @ np.array([0, 0, math.sqrt((1 - c**2) / 4)])
    return passes, np.outer(noise, noise)


@pytest.mark.parametrize("passes", [400, pytest.param(3000, marks=pytest.mark.slow)])
def test_minibatches_add_the_noise_that_they_should(passes) -> None:
    """Batches of a pass come without replacement: all orders of a pass, averaged exactly."""
    x, y, rate, friction = np.array([0.5, 1.0, 1.5, 2.0]), np.array([6.0, -5.0, 4.0, -3.0]), 0.4, 0.6
    first, second = chains.shuffled(*minibatch_laws(x, y, rate, friction))
    variance = second[0, 0] - first[0] ** 2
    posterior = SGHMC(
        Replicas((500,), lambda w, x: x[:, None] * w), (torch.from_numpy(x), torch.from_numpy(y)),
        log_likelihood=lambda out, y: -((out - y[:, None]) ** 2).sum(1) / 2, prior_scale=math.inf,
        samples=passes, steps=2 * passes + 40, burn_in=40 / (2 * passes + 40), batch_size=2,
        step_size=rate, friction=friction,
    )  # fmt: skip
    centred = drawn(posterior) - first[0]
    # All replicas see the same batches: independent are blocks of 20 passes, and not replicas.
    blocks = np.stack([centred.mean(1), (centred**2).mean(1)]).reshape(2, -1, 20).mean(2)
    error = blocks.std(1, ddof=1) / math.sqrt(blocks.shape[1])
    assert within(blocks.mean(1), [0, variance], error)
    assert (error[1] < 0.15 * variance).all()
    full = 1 / (x**2).sum()
    assert variance > 1.5 * full and not within(blocks.mean(1), [0, full], error)


def test_the_prior_is_where_and_as_wide_as_it_is_said_to_be() -> None:
    mean = torch.full((2000, 1), 3.0, dtype=torch.float64)
    posterior = SGHMC(
        Replicas((2000, 1), lambda w, x: w.sum() * x), (torch.zeros(10), torch.zeros(10)),
        log_likelihood=lambda out, y: 0 * out, prior_mean={"w": mean}, prior_scale=0.5,
        samples=1, steps=100, step_size=1.0, friction=0.5,
    )  # fmt: skip
    found = drawn(posterior)[0]
    assert gaussian(found, 3.0, 0.25)
    assert not gaussian(found, 3.0, 0.2) and not gaussian(found, 2.9, 0.25)


# --- a skewed posterior: the log of a rate, given three waiting times ----------------------------

WAITS = np.array([0.5, 1.0, 1.5])


def skewed(method, replicas, steps, **options):
    """Log-gamma: density exp(n w - sum(waits) exp(w)), with moments in closed form."""
    data = torch.zeros(3, 1, dtype=torch.float64), torch.from_numpy(WAITS)
    posterior = method(
        Replicas((replicas,), lambda w, x: w + x), data,
        log_likelihood=lambda w, waits: (w - waits[:, None] * w.exp()).sum(1),
        prior_scale=math.inf, samples=1, steps=steps, **options,
    )  # fmt: skip
    return drawn(posterior)[0]


def central(values):
    """Mean, variance and third central moment, and their standard errors."""
    d = values - values.mean()
    parts = np.stack([values, d**2, d**3 - 3 * d * (d**2).mean()])
    return parts.mean(1), parts.std(1) / math.sqrt(len(values))


def from_raw(first, second, third):
    return np.array([first, second - first**2, third - 3 * first * second + 2 * first**3])


@pytest.mark.parametrize("replicas", [4000, pytest.param(400_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("method", "friction"), [(SGLD, None), (SGHMC, 0.5)])
def test_a_skewed_posterior_has_the_moments_of_the_chain(method, friction, replicas) -> None:
    rate, steps = 0.5, 30
    momenta = np.linspace(-4, 4, 41) if friction else np.linspace(-1, 1, 5)
    grid = np.linspace(-6, 3, 91)
    raw = [
        chains.expected(
            lambda w, power=power: w**power,
            # Where exp(w) is beyond the grid's end the chain never comes; there it would overflow.
            lambda w: 1 - WAITS.mean() * np.exp(np.minimum(w, 4)),
            steps, rate, friction, 1 / 3, 0.0, grid, momenta,
        )
        for power in (1, 2, 3)
    ]  # fmt: skip
    expected = from_raw(*raw)
    options = {} if friction is None else {"friction": friction}
    found, error = central(skewed(method, replicas, steps, step_size=rate, **options))
    assert within(found, expected, error)
    exact = np.array([digamma(3) - math.log(WAITS.sum()), polygamma(1, 3), polygamma(2, 3)])
    assert expected[2] < 0 and exact[2] < 0
    flipped = found * [-1, 1, -1]
    assert not within(flipped, expected, error)  # a wrong sign: the check can fail
    if method is SGLD:
        assert not within(found, exact, error)  # the bias of a large step
    else:
        np.testing.assert_allclose(expected, exact, atol=0.006)


# --- 25 modes ------------------------------------------------------------------------------------

CENTRES = torch.tensor(list(itertools.product([-4.0, -2, 0, 2, 4], repeat=2)), dtype=torch.float64)
WIDTH = 0.03


def mixture(method, replicas, **options) -> np.ndarray:
    """Samples (members, replicas, 2) of the mixture of Zhang et al. (2020), section 4.1."""

    def log_density(w, targets):
        square = ((w[:, None] - CENTRES) ** 2).sum(-1)
        return torch.logsumexp(-square / (2 * WIDTH), 1).sum()[None]

    return drawn(
        method(
            Replicas((replicas, 2), lambda w, x: w), (torch.zeros(1), torch.zeros(1)),
            log_likelihood=log_density, prior_scale=math.inf, **options,
        )
    )  # fmt: skip


def nearest_mode(samples) -> np.ndarray:
    return ((samples[:, :, None] - CENTRES.numpy()) ** 2).sum(-1).argmin(-1)


def modes(samples) -> np.ndarray:
    """How many of the 25 modes each replica has been in."""
    return np.array([len(set(column)) for column in nearest_mode(samples).T])


@pytest.mark.parametrize(("replicas", "cycles"), [(20, 8), pytest.param(100, 60, marks=pytest.mark.slow)])
def test_cycles_find_modes_that_a_plain_chain_misses(replicas, cycles) -> None:
    length, step_size, friction, explored = 50, 0.14, 0.5, 20
    shared = {"samples": cycles, "steps": cycles * length, "friction": friction}
    cyclical = mixture(
        CyclicalSGHMC, replicas, cycles=cycles, step_size=step_size, exploration=explored / length,
        discard=0.0, **shared,
    )  # fmt: skip
    plain = mixture(SGHMC, replicas, step_size=0.03, **shared)
    # As many as if each cycle found any of the 25 with the same chance, to a quarter.
    assert modes(cyclical).mean() > 0.75 * 25 * (1 - 0.96**cycles)
    assert modes(plain).mean() < 1.5 and modes(cyclical).min() > modes(plain).max()

    # Where a cycle ends it has forgotten how it came into its mode; its law is that of the last steps, a
    # tenth wider than the mode, since the step size falls so fast here.
    rates = cosine(length, step_size)[explored:]
    mean, variance = chains.marginal(chains.baoa, 1 / WIDTH, rates, friction, [1.0] * len(rates), 1.0)
    assert abs(mean) < 1e-3 and 1.05 < variance / WIDTH < 1.1
    off = cyclical - CENTRES.numpy()[nearest_mode(cyclical)]
    assert gaussian(off.reshape(-1, 2), 0, np.full(2, variance))
    assert not gaussian(off.reshape(-1, 2), 0, np.full(2, 2 * variance))

    # The check can fail: small steps find nothing, with a cosine or without.
    small = mixture(CyclicalSGHMC, replicas, cycles=cycles, step_size=0.03, **shared)
    assert modes(small).mean() < 1.5
