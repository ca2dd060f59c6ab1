"""`from_laplace`: a fitted object of laplace-torch as a posterior."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from demur.posteriors import networks
from demur.posteriors.curvature.draws import HeadDraws, ParameterDraws
from demur.posteriors.curvature.gaussian_outputs import GaussianOutputs
from demur.posteriors.fingerprint import fingerprint
from demur.posteriors.last_layer import LastLayer
from demur.posteriors.networks import derive_seed
from demur.posteriors.posterior import Posterior, check_count, check_seed, select_members


def from_laplace(
    la: Any, *, samples: int = 100, seed: int = 0, forward: networks.Forward | None = None
) -> Posterior:
    """Return a posterior whose members are drawn from a fitted object of laplace-torch.

    Parameters are drawn by ``la.sample`` and put into the network, as ``pred_type="nn"`` does there.
    Last-layer objects compute features once per batch. Function-space objects (``"gp"``, ELLA, VaLLA) have no
    parameters to draw: the outputs of each input are drawn from their Gaussian, independently of other
    inputs. Scores are about one input at a time, and do not notice.

    Parameters
    ----------
    la
        From ``laplace.Laplace(...)``, after ``fit``: any subset of weights and any structure, for
        classification or regression. After a change, of its prior precision, say, call this function again.
    samples, seed
        The number of members, and the seed of their draws.
    forward
        A function of the network and its inputs that returns outputs, where ``model(inputs)`` does not.

    Notes
    -----
    demur does not import laplace-torch, and does not need it for `Laplace`::

        la = laplace.Laplace(model, "classification", "last_layer", "kron")
        la.fit(loader)
        la.optimize_prior_precision()
        scores = demur.score(demur.posteriors.from_laplace(la, samples=100), test_loader)
    """
    likelihood = getattr(la, "likelihood", None)
    if likelihood is None or not hasattr(la, "prior_precision"):
        raise TypeError(f"la must be an object of laplace-torch. Got {type(la).__name__}.")
    if likelihood not in ("classification", "regression"):
        raise ValueError(f"la must be for classification or regression. Got {str(likelihood)!r}.")
    if not getattr(la, "n_data", 0):
        raise ValueError("la must be fitted. Got one that is not. Call la.fit(loader) first.")
    check_count("samples", samples)
    return _LaplaceTorch(la, samples, check_seed(seed), forward)


class _LaplaceTorch(GaussianOutputs):
    """Members drawn from an object of laplace-torch."""

    def __init__(self, la: Any, samples: int, seed: int, forward: networks.Forward | None) -> None:
        self.seed, self._la = seed, la
        noise = float(la.sigma_noise) ** 2 if la.likelihood == "regression" else None
        if hasattr(la, "predictive_moments"):
            self._set_up(_OutputDraws(la, samples, seed, forward), noise)
        else:
            self._set_up(_draw_parameters(la, samples, seed, forward), noise)

    def __repr__(self) -> str:
        return f"from_laplace({type(self._la).__name__}, {self.members} samples)"

    def fingerprint(self) -> str:
        la = self._la
        # A draw changes with the mean and the covariance, whatever form they are in.
        drawn = None if hasattr(la, "predictive_moments") else _VectorDraw(la, self.seed)(0)
        parts = (type(la).__name__, self.members, self.seed, self.noise_variance, la.prior_precision)
        return fingerprint(*parts, la.model, drawn)


class _VectorDraw:
    """Draws all parameters of a member as one vector."""

    def __init__(self, la: Any, seed: int) -> None:
        self._la, self._seed = la, seed

    def __call__(self, member: int) -> Any:
        import torch

        source = torch.Generator(next(self._la.model.parameters()).device)
        source.manual_seed(derive_seed(self._seed, member))
        return self._la.sample(1, generator=source).detach().reshape(-1)


def _draw_parameters(la: Any, samples: int, seed: int, forward: networks.Forward | None) -> Posterior:
    """Return members with drawn parameters: of the last layer, or of all that require gradients."""
    draw, last = _VectorDraw(la, seed), getattr(la.model, "last_layer", None)
    if last is None:
        own = {name: value for name, value in la.model.named_parameters() if value.requires_grad}
        return ParameterDraws(la.model, forward, lambda member: _split(draw(member), own), samples)
    network = la.model.model
    layer = next(name for name, each in network.named_modules() if each is last)
    if getattr(la.model, "feature_reduction", None) is not None:
        own = {f"{layer}.{name}": value for name, value in last.named_parameters()}
        return ParameterDraws(network, forward, lambda member: _split(draw(member), own), samples)

    def draw_distance(member: int) -> Any:
        import torch

        found = _split(draw(member) - la.mean, dict(last.named_parameters()))
        return torch.cat([each.reshape(last.out_features, -1) for each in found.values()], 1)

    return LastLayer(network, HeadDraws(last, draw_distance, samples), layer=layer, forward=forward)


def _split(vector: Any, like: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a vector by name, shaped like tensors."""
    parts = vector.split([each.numel() for each in like.values()])
    return {name: part.reshape(each.shape) for (name, each), part in zip(like.items(), parts, strict=True)}


class _OutputDraws(Posterior):
    """Outputs drawn from the Gaussian of each input, where there are no parameters to draw."""

    def __init__(self, la: Any, samples: int, seed: int, forward: networks.Forward | None) -> None:
        self.members, self._la, self._seed, self._forward = samples, la, seed, forward

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        import torch

        wanted = list(select_members(members, self.members or 0))
        with networks.preserve_random_state():
            mean, covariance = self._la.predictive_moments(networks.move_to_model(batch, self._la.model))
        mean, covariance = mean.detach().double(), covariance.detach().double()
        values, vectors = torch.linalg.eigh(covariance)
        # The symmetric root, which does not depend on the choice of eigenvectors where eigenvalues are equal.
        # Rounding makes eigenvalues below 0 of those that are 0.
        roots = (vectors * values.clamp(min=0).sqrt()[:, None, :]) @ vectors.mT
        shape = (self.members or 0, mean.shape[1])
        noise = [
            np.random.default_rng((self._seed, position + place)).standard_normal(shape)[wanted]
            for place in range(len(mean))
        ]
        drawn = torch.from_numpy(np.stack(noise, 1)).to(mean.device)
        yield mean + torch.einsum("ioj,mij->mio", roots, drawn)

    def deployed(self, batch: Any) -> Any:
        with networks.suspend_training([self._la.model]), networks.preserve_random_state():
            return networks.call_model(self._la.model, batch, self._forward)
