"""The table of methods: how each is fitted, which distribution it targets, and what it costs.

A method is a function of a `Task` and of settings with defaults, which configurations may replace. It
returns a `Fitted`. To add one, write the function and a line of `METHODS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur.reproduce.studies.inference.networks import Task, train_network
from demur.reproduce.studies.inference.predictions import Kept, summarise_posterior

REFERENCE = "hmc"
"""The method that the others are judged by."""
_MORE_DRAWS = 1000
"""Seeds of members follow that of the network, which has this many to itself."""


@dataclass(frozen=True)
class Fitted:
    """A fitted method.

    Attributes
    ----------
    posterior
        What draws its members.
    passes
        Passes over the training data that fitting took, with gradients, or without where it needs none.
    facts
        What the results page says about the fit.
    """

    posterior: Any
    passes: float
    facts: dict[str, float] | None = None

    def summarise(self, inputs: np.ndarray, noise: float | None) -> Kept:
        """Return what is kept of the predictions for inputs."""
        from demur.posteriors.one_pass import Detector

        if isinstance(self.posterior, Detector):
            return {"score": self.posterior.score([inputs], progress=False)}
        return summarise_posterior(self.posterior, inputs, noise)


@dataclass(frozen=True)
class Method:
    """A line of the table.

    Attributes
    ----------
    title, target
        What it is called, and which distribution it approximates.
    fit
        The function that fits it.
    uses_trained
        Whether it starts from the trained network, whose training then belongs to its cost.
    classes_only
        Whether it cannot predict numbers.
    seconds, slower_for_numbers
        Estimate of the time of a fit, for the plan, and by how much it is slower for numbers.
    """

    title: str
    target: str
    fit: Callable[..., Fitted]
    uses_trained: bool = False
    classes_only: bool = False
    seconds: float = 1.0
    slower_for_numbers: float = 1.0


# --- Markov chains ---------------------------------------------------------------------------------------


def _fit_hmc(task: Task, chains: int = 4, samples: int = 400, burn_in: int = 200, thin: int = 8) -> Fitted:
    from demur.posteriors import HMC

    posterior = HMC(
        task.make_network(task.seed), task.data, chains=chains, samples=samples, burn_in=burn_in, thin=thin,
        prior_scale=task.design.prior_scale, log_likelihood=task.log_likelihood, seed=task.seed,
    )  # fmt: skip
    found = posterior.fit(progress=False).diagnostics
    trajectories = burn_in + thin * samples // chains
    facts = {
        "acceptance": sum(found.acceptance) / chains,
        "leapfrog_steps": sum(found.leapfrog_steps) / chains,
    }
    return Fitted(posterior, sum(found.leapfrog_steps) * trajectories, facts)


def _fit_chain(
    task: Task, kind: str, steps: int, step_size: float, batch_size: int, **settings: Any
) -> Fitted:
    """Run a stochastic-gradient chain; its step is in units of the noise's variance, where there is one."""
    from demur import posteriors

    posterior = getattr(posteriors, kind)(
        task.make_network(task.seed), task.data, steps=steps, batch_size=min(batch_size, task.inputs),
        step_size=step_size * (task.noise or 1.0) ** 2, prior_scale=task.design.prior_scale,
        log_likelihood=task.log_likelihood, seed=task.seed, **settings,
    )  # fmt: skip
    posterior.fit(progress=False)
    return Fitted(posterior, steps * min(batch_size, task.inputs) / task.inputs)


def _fit_sghmc(
    task: Task, samples: int = 100, steps: int = 5_000, step_size: float = 0.03, friction: float = 0.02,
    burn_in: float = 0.2, batch_size: int = 100,
) -> Fitted:  # fmt: skip
    return _fit_chain(
        task, "SGHMC", steps, step_size, batch_size, samples=samples, friction=friction, burn_in=burn_in
    )


def _fit_cyclical_sghmc(
    task: Task, samples: int = 100, steps: int = 5_000, cycles: int = 5, step_size: float = 0.2,
    friction: float = 0.1, exploration: float = 0.5, discard: float = 0.2, batch_size: int = 100,
) -> Fitted:  # fmt: skip
    return _fit_chain(
        task, "CyclicalSGHMC", steps, step_size, batch_size, samples=samples, cycles=cycles,
        friction=friction, exploration=exploration, discard=discard,
    )  # fmt: skip


def _fit_sgld(
    task: Task, samples: int = 100, steps: int = 5_000, step_size: float = 0.1, burn_in: float = 0.2,
    batch_size: int = 100,
) -> Fitted:  # fmt: skip
    return _fit_chain(task, "SGLD", steps, step_size, batch_size, samples=samples, burn_in=burn_in)


# --- networks trained several times, or with dropout -------------------------------------------------------


def _fit_ensemble(task: Task, members: int = 10) -> Fitted:
    from demur.posteriors import DeepEnsemble

    networks, passes = _train_several(task, members)
    return Fitted(DeepEnsemble(networks), passes)


def _train_several(task: Task, members: int) -> tuple[list[Any], float]:
    """Train networks from different initial parameters; return them, and all passes over the data."""
    networks, passes = [], 0.0
    for k in range(members):
        seed = _MORE_DRAWS * (task.seed + 1) + k
        networks.append(task.make_network(seed))
        passes += train_network(task, networks[-1], seed)
    return networks, passes


def _fit_mc_dropout(task: Task, rate: float = 0.2, samples: int = 100) -> Fitted:
    from demur.posteriors import MCDropout

    network = task.make_network(task.seed, dropout=rate)
    passes = train_network(task, network.train(), task.seed)
    return Fitted(MCDropout(network, samples=samples, seed=task.seed), passes)


# --- the last layer of the trained network ---------------------------------------------------------------


def _fit_last_layer_dropout(task: Task, rate: float = 0.2, samples: int = 100) -> Fitted:
    from demur.posteriors import LastLayer

    return Fitted(LastLayer(task.make_trained(), dropout=rate, samples=samples, seed=task.seed), 0)


def _fit_last_layers(task: Task, members: int = 10, epochs: int = 20) -> Fitted:
    from demur.posteriors import HeadTraining, LastLayer

    training = HeadTraining(epochs=epochs, weight_decay=task.weight_decay)
    posterior = LastLayer.fit(
        task.make_trained(), [task.data], members, training=training, seed=task.seed, progress=False
    )
    return Fitted(posterior, members * epochs)


# --- Gaussians -------------------------------------------------------------------------------------------


def _fit_laplace(
    task: Task, samples: int = 100, structure: str = "kronecker", layers: str = "last"
) -> Fitted:
    from demur.posteriors import Laplace

    settings: dict[str, Any] = {"structure": structure, "layers": layers}
    if task.noise is not None:
        settings |= {"likelihood": "regression", "noise_variance": task.noise**2}
    posterior = Laplace.fit(
        task.make_trained(), [task.data], prior_precision=task.design.prior_scale**-2, samples=samples,
        seed=task.seed, progress=False, **settings,
    )  # fmt: skip
    return Fitted(posterior, 1)


def _fit_laplace_full(task: Task, samples: int = 100) -> Fitted:
    return _fit_laplace(task, samples, structure="full")


def _fit_laplace_diagonal(task: Task, samples: int = 100) -> Fitted:
    return _fit_laplace(task, samples, structure="diagonal", layers="all")


def _fit_swag(
    task: Task, samples: int = 100, epochs: int = 100, rate: float = 0.05, rank: int = 20
) -> Fitted:
    return Fitted(_collect_swag(task, task.make_trained(), samples, epochs, rate, rank, task.seed), epochs)


def _collect_swag(
    task: Task, network: Any, samples: int, epochs: int, rate: float, rank: int, seed: int
) -> Any:
    """Run SWAG from a trained network; the rate is in units of the variance of the noise."""
    from demur.posteriors import SWAG

    return SWAG.fit(
        network, task.data, samples=samples, epochs=epochs, rate=rate * (task.noise or 1.0) ** 2, rank=rank,
        weight_decay=task.weight_decay, batch_size=task.design.batch, log_likelihood=task.log_likelihood,
        seed=seed, progress=False,
    )  # fmt: skip


def _fit_multi_swag(
    task: Task, swags: int = 5, samples: int = 20, epochs: int = 100, rate: float = 0.05, rank: int = 20
) -> Fitted:
    from demur.posteriors import MultiSWAG

    networks, passes = _train_several(task, swags)
    found = [
        _collect_swag(task, each, samples, epochs, rate, rank, task.seed + k)
        for k, each in enumerate(networks)
    ]
    return Fitted(MultiSWAG(found), passes + swags * epochs)


def _fit_bayes_by_backprop(
    task: Task, samples: int = 100, steps: int = 4000, rate: float = 0.01, start_scale: float = 0.05
) -> Fitted:
    from demur.posteriors import BayesByBackprop

    posterior = BayesByBackprop(
        task.make_network(task.seed), task.data, samples=samples, steps=steps, rate=rate,
        start_scale=start_scale, batch_size=task.design.batch, prior_scale=task.design.prior_scale,
        log_likelihood=task.log_likelihood, seed=task.seed,
    )  # fmt: skip
    batch = min(task.design.batch, task.inputs)
    return Fitted(posterior.fit(progress=False), steps * batch / task.inputs)


# --- searched for, evidential, and one pass ----------------------------------------------------------------


def _fit_quam(task: Task, steps: int = 60, layers: str = "last") -> Fitted:
    """Weigh models by their likelihood of all training inputs: a temperature of 1 / inputs."""
    from demur.posteriors import QUAM

    settings: dict[str, Any] = {"steps": steps, "layers": layers, "temperature": 1 / task.inputs}
    return Fitted(QUAM(task.make_trained(), task.data, seed=task.seed, progress=False, **settings), 1)


def _fit_evidential(task: Task, weight: float = 0.1) -> Fitted:
    from demur.posteriors import EvidentialNetwork
    from demur.posteriors.evidential import evidential_loss, make_concentration

    network = task.make_network(task.seed)

    def loss(outputs: Any, targets: Any) -> Any:
        return evidential_loss(make_concentration(outputs), targets, weight=weight)

    passes = train_network(task, network, task.seed, loss, prior=False)
    return Fitted(EvidentialNetwork(network), passes)


def _fit_one_network(task: Task) -> Fitted:
    from demur.posteriors import DeepEnsemble

    return Fitted(DeepEnsemble([task.make_trained()]), 0)


def _fit_detector(task: Task, name: str, **settings: Any) -> Fitted:
    from demur.posteriors import one_pass

    return Fitted(
        getattr(one_pass, name).fit(task.make_trained(), [task.data], progress=False, **settings), 1
    )


def _fit_feature_density(task: Task, covariance: str = "class") -> Fitted:
    return _fit_detector(task, "FeatureDensity", covariance=covariance)


def _fit_nearest_features(task: Task) -> Fitted:
    return _fit_detector(task, "NearestFeatures")


def _fit_logit_score(task: Task, name: str) -> Fitted:
    from demur.posteriors import one_pass

    return Fitted(getattr(one_pass, name)(task.make_trained()), 0)


def _fit_energy(task: Task) -> Fitted:
    return _fit_logit_score(task, "Energy")


def _fit_max_logit(task: Task) -> Fitted:
    return _fit_logit_score(task, "MaxLogit")


_POSTERIOR = "the posterior"
_LAST_LAYER = "the posterior of the last layer"
_ORDER = "an order of inputs, no K"
_MAXIMA = "maxima of the posterior"
METHODS = {
    REFERENCE: Method("HMC", _POSTERIOR, _fit_hmc, seconds=80, slower_for_numbers=2.5),
    "sghmc": Method("SGHMC", _POSTERIOR, _fit_sghmc, seconds=6),
    "csg-hmc": Method("cSG-HMC", _POSTERIOR, _fit_cyclical_sghmc, seconds=6),
    "sgld": Method("SGLD", _POSTERIOR, _fit_sgld, seconds=6),
    "deep-ensemble": Method("deep ensemble", _MAXIMA, _fit_ensemble, seconds=10),
    "multi-swag": Method("MultiSWAG", "several modes", _fit_multi_swag, seconds=20),
    "swag": Method("SWAG", "one mode", _fit_swag, uses_trained=True),
    "laplace-diagonal": Method(
        "Laplace (all layers, diagonal)", "one mode", _fit_laplace_diagonal, uses_trained=True
    ),
    "laplace-full": Method("Laplace (last layer, full)", _LAST_LAYER, _fit_laplace_full, uses_trained=True),
    "laplace-kronecker": Method(
        "Laplace (last layer, Kronecker)", _LAST_LAYER, _fit_laplace, uses_trained=True
    ),
    "bayes-by-backprop": Method(
        "Bayes by backprop", "the closest independent Gaussian", _fit_bayes_by_backprop, seconds=5
    ),
    "mc-dropout": Method("MC dropout", "dropout's own", _fit_mc_dropout),
    "last-layer-dropout": Method(
        "last-layer dropout", "dropout's own, not trained with it", _fit_last_layer_dropout, uses_trained=True
    ),
    "last-layers": Method(
        "ensemble of last layers", "one maximum, from several starts", _fit_last_layers, uses_trained=True,
        classes_only=True,
    ),
    "quam": Method(
        "QUAM (last layer)", "models that disagree, by their likelihood", _fit_quam, uses_trained=True,
        classes_only=True, seconds=30,
    ),
    "evidential": Method("evidential network", "no posterior", _fit_evidential, classes_only=True),
    "one-network": Method("one network", "one maximum", _fit_one_network, uses_trained=True),
    "feature-density": Method(
        "feature density", _ORDER, _fit_feature_density, uses_trained=True, classes_only=True
    ),
    "nearest-features": Method("nearest features", _ORDER, _fit_nearest_features, uses_trained=True),
    "energy": Method("energy", _ORDER, _fit_energy, uses_trained=True, classes_only=True),
    "max-logit": Method("max logit", _ORDER, _fit_max_logit, uses_trained=True, classes_only=True),
}  # fmt: skip
"""All methods by name, in the order of the tables."""
