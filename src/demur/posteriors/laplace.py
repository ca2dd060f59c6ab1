"""`Laplace`: a Gaussian about a trained network, as wide as the curvature of its loss allows."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from typing import Any, Literal, Self, get_args

import numpy as np

from demur.posteriors import networks
from demur.posteriors.curvature.accumulating import MARKS, accumulate
from demur.posteriors.curvature.decomposed import Structure
from demur.posteriors.curvature.draws import HeadDraws, ParameterDraws
from demur.posteriors.curvature.fitted import Curvature, Layers
from demur.posteriors.curvature.last_layer import Bias, LastLayerSums
from demur.posteriors.curvature.likelihoods import Likelihood
from demur.posteriors.curvature.whole_network import NetworkSums
from demur.posteriors.fingerprint import fingerprint
from demur.posteriors.fit_files import FitFile
from demur.posteriors.heads.features import Features, features
from demur.posteriors.heads.parameters import find_last_linear
from demur.posteriors.last_layer import LastLayer
from demur.posteriors.posterior import Ask, Posterior, check_count
from demur.posteriors.tensor_files import read_tensors, write_tensors
from demur.predictions import Gaussian, MultivariateGaussian

Chosen = float | Literal["marginal_likelihood"]
_MARGINAL = "marginal_likelihood"


class Laplace(Posterior):
    r"""Samples of a trained network's parameters from the Laplace approximation of their posterior.

    Daxberger et al. (2021), "Laplace redux - effortless Bayesian deep learning", section 2; MacKay (1992), "A
    practical Bayesian framework for backpropagation networks"; with Kronecker factors, Ritter et al. (2018),
    "A scalable Laplace approximation for neural networks". Members are draws from

    .. math:: \mathcal N(\theta,\; (H + \delta)^{-1}), \qquad H = \sum_n J_n^T \Lambda_n J_n,

    with the network's parameters :math:`\theta`, the Jacobians :math:`J_n` of its outputs, the curvature
    :math:`\Lambda_n` of the loss in them, :math:`\mathrm{diag}(p) - p p^T` for classes, and the precision
    :math:`\delta` of a Gaussian prior of mean 0. ``fit`` makes one, ``load`` reads one.

    Parameters
    ----------
    model
        The trained network, which is also the deployed model. It should be at a minimum of its loss.
    curvature
        From ``fit``: the attribute of another `Laplace` of this model, for another prior or more samples.
    prior_precision
        The prior precision :math:`\delta`; ``"marginal_likelihood"``: the one that maximises it (Immer et
        al., 2021, "Scalable marginal likelihood estimation for model selection in deep learning").
    noise_variance
        In regression, the variance of the observations, or ``"marginal_likelihood"``.
    samples, seed
        The number of members, and the seed of their draws.
    layer, forward
        As for ``fit``.

    Attributes
    ----------
    log_marginal_likelihood
        Of the training data, in nats; it compares networks as well as priors.
    prior_precision, noise_variance
        As numbers; the latter None for classes.

    Examples
    --------
    >>> import torch
    >>> x, y = torch.randn(200, 4), torch.randint(3, (200,))
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> posterior = demur.posteriors.Laplace.fit(model, [(x, y)], samples=50)
    >>> demur.score(posterior, [x[:5]], progress=False).members
    50
    """

    def __init__(
        self,
        model: Any,
        curvature: Curvature,
        *,
        prior_precision: Chosen = _MARGINAL,
        noise_variance: Chosen = _MARGINAL,
        samples: int = 100,
        seed: int = 0,
        layer: str | None = None,
        forward: networks.Forward | None = None,
    ) -> None:
        networks.check_network("model", model)
        self.model, self.curvature, self.forward, self.layer = model, curvature, forward, layer
        self.members, self.seed = check_count("samples", samples), seed
        regression = curvature.likelihood == "regression"
        given = [
            _check_positive(name, value)
            for name, value in (("prior_precision", prior_precision), ("noise_variance", noise_variance))
        ]
        evidence = curvature.evidence
        self.prior_precision, self.noise_variance = evidence.maximise(given[0], given[1])
        self.log_marginal_likelihood = evidence.log_marginal_likelihood(
            self.prior_precision, self.noise_variance
        )
        precision, noise = self.prior_precision, self.noise_variance or 1.0
        if curvature.layers == "last":
            linear = find_last_linear(model, layer)
            heads = HeadDraws(linear, curvature.decomposed, precision, noise, samples, seed)
            self._members: Posterior = LastLayer(model, heads, layer=layer, forward=forward)
        else:
            scales = {name: (h / noise + precision).rsqrt() for name, h in curvature.tensors.items()}
            self._members = ParameterDraws(model, forward, scales, samples, seed)
        self.tile = None if regression else self._members.tile

    @classmethod
    def fit(
        cls,
        model: Any,
        loader: Any,
        *,
        structure: Structure = "kronecker",
        layers: Layers = "last",
        likelihood: Likelihood = "classification",
        prior_precision: Chosen = _MARGINAL,
        noise_variance: Chosen = _MARGINAL,
        bias: Bias = "joint",
        samples: int = 100,
        seed: int = 0,
        layer: str | None = None,
        forward: networks.Forward | None = None,
        cache: str | os.PathLike[str] | None = None,
        path: str | os.PathLike[str] | None = None,
        every: float = 30.0,
        progress: bool = True,
    ) -> Self:
        """Compute the curvature of a trained network's loss in one pass over its training data.

        After an interruption, the same call resumes from ``cache`` and ``path`` with the same result.

        Parameters
        ----------
        model, prior_precision, noise_variance, samples, seed
            As for the class.
        loader
            The training data, as for ``demur.score``, without shuffling or augmentation. Labels are classes
            from 0, or numbers (inputs,) or (inputs, outputs). With ``layers="last"`` also ``Features``.
        structure
            Of the matrix H: ``"kronecker"``, ``"full"`` (up to 1 GiB, 11,585 parameters) or ``"diagonal"``.
        layers
            ``"last"``: only the last linear layer is uncertain. ``"all"``: all parameters with
            ``requires_grad``; takes ``structure="diagonal"``.
        likelihood
            ``"classification"``: outputs are logits. ``"regression"``: outputs are means of Gaussians that
            share one variance.
        bias
            With Kronecker factors: ``"joint"``, the bias is the weight of one more feature, which is always
            1; ``"separate"``, it is independent of the weights, as in laplace-torch.
        layer
            Name of the last layer; None: the last ``torch.nn.Linear``.
        forward
            A function of the network and its inputs that returns logits or means (inputs, outputs), where
            ``model(inputs)`` does not.
        cache
            A folder for the features, as for ``features``; None: they stay in memory.
        path
            A safetensors file for the work done so far, and in the end for the posterior, as from ``save``.
        every
            Seconds between writes of the file.
        progress
            Show progress bars, on a terminal.
        """
        networks.check_network("model", model)
        _check_choices(structure=structure, layers=layers, likelihood=likelihood, bias=bias)
        for name, value in (("prior_precision", prior_precision), ("noise_variance", noise_variance)):
            _check_positive(name, value)
        check_count("samples", samples)
        sums: Any
        if layers == "last":
            linear = find_last_linear(model, layer)
            sums = LastLayerSums(linear, structure, likelihood, bias)
            if not isinstance(loader, Features):
                loader = features(
                    model, loader, cache=cache, layer=layer, forward=forward, every=every, progress=progress
                )
        else:
            sums = NetworkSums(model, forward, likelihood)
        settings = {
            "structure": structure, "layers": layers, "likelihood": likelihood, "bias": bias,
            "model": fingerprint(dict(model.state_dict())),
            "features": loader.mark if isinstance(loader, Features) else None,
        }  # fmt: skip
        file = FitFile(path, "Laplace", settings, every)
        before, facts, finished = file.read()
        with networks.suspend_training([model]):
            marks = accumulate(sums, loader, file, before, finished, progress=progress)
        if finished:
            curvature = Curvature.read(_drop_marks(before), facts["curvature"])
        else:
            curvature = sums.finish()
        found = cls(
            model, curvature, prior_precision=prior_precision, noise_variance=noise_variance, samples=samples,
            seed=seed, layer=layer, forward=forward,
        )  # fmt: skip
        file.write({**curvature.tensors, MARKS: marks}, finished=True, facts=found._describe())
        return found

    def __repr__(self) -> str:
        about = self.curvature
        where = "last layer" if about.layers == "last" else "all layers"
        return f"Laplace({about.structure}, {where}, {self.members} samples)"

    @property
    def together(self) -> int:
        """How many members ``order="member"`` asks for in one pass over the data set."""
        return self._members.together

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        for chunk in self._members.predict(batch, members=members, position=position):
            yield self._to_prediction(chunk)

    def hold(self, batch: Any, *, position: int = 0) -> Ask:
        ask = self._members.hold(batch, position=position)

        def ask_for_predictions(members: range | None, rows: np.ndarray | None = None) -> Iterator[Any]:
            return map(self._to_prediction, ask(members, rows))

        return ask_for_predictions

    def deployed(self, batch: Any) -> Any:
        if self.curvature.layers == "last":
            return self._to_prediction(self._members.deployed(batch))
        with networks.suspend_training([self.model]), networks.preserve_random_state():
            return self._to_prediction(networks.call_model(self.model, batch, self.forward))

    def _to_prediction(self, chunk: Any) -> Any:
        """Return logits as they are, and predicted numbers as Gaussians of the observations' variance."""
        outputs = chunk[0] if isinstance(chunk, tuple) else chunk
        if self.noise_variance is None:
            return outputs
        if outputs.shape[-1] == 1:
            return Gaussian(outputs[..., 0], variance=self.noise_variance)
        return MultivariateGaussian(outputs, variance=self.noise_variance)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file: the curvature, the prior, and the seed of the members."""
        write_tensors(path, self.curvature.tensors, {"method": "Laplace", **self._describe()})

    def _describe(self) -> dict[str, str]:
        """Return what a file holds beside tensors."""
        names = ("prior_precision", "noise_variance", "seed", "layer")
        options = {name: getattr(self, name) for name in names} | {"samples": self.members}
        return {
            "curvature": self.curvature.describe(),
            "options": json.dumps(options),
            "model": fingerprint(dict(self.model.state_dict())),
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: Any, **options: Any) -> Self:
        """Read a file from ``save``, for the same model; ``options`` as for the class."""
        tensors, facts = read_tensors(path, "Laplace")
        networks.check_network("model", model)
        if fingerprint(dict(model.state_dict())) != facts["model"]:
            raise ValueError(f"model must have the parameters that {os.fspath(path)!r} is about. Got others.")
        curvature = Curvature.read(_drop_marks(tensors), facts["curvature"])
        saved = {name: value for name, value in json.loads(facts["options"]).items() if value is not None}
        return cls(model, curvature, **{**saved, **options})


def _drop_marks(tensors: dict[str, Any]) -> dict[str, Any]:
    """Return the tensors of a file without the marks of batches."""
    return {name: value for name, value in tensors.items() if name != MARKS}


def _check_positive(name: str, value: Any) -> float | None:
    """Return a number, or None for the marginal likelihood; raise where it is neither."""
    if isinstance(value, str) and value == _MARGINAL:
        return None
    if isinstance(value, bool | str) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be 'marginal_likelihood' or a positive number. Got {value!r}.")
    return float(value)


def _check_choices(structure: str, layers: str, likelihood: str, bias: str) -> None:
    """Raise unless the settings of a fit are known, and go together."""
    for name, value, allowed in (
        ("structure", structure, get_args(Structure)),
        ("layers", layers, get_args(Layers)),
        ("likelihood", likelihood, get_args(Likelihood)),
        ("bias", bias, get_args(Bias)),
    ):
        if value not in allowed:
            raise ValueError(f"{name} must be {' or '.join(map(repr, allowed))}. Got {value!r}.")
    if layers == "all" and structure != "diagonal":
        raise ValueError(f"layers='all' takes structure='diagonal'. Got {structure!r}. Or use layers='last'.")
