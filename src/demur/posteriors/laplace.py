"""`Laplace`: a Gaussian about a trained network, as wide as the curvature of its loss allows."""

from __future__ import annotations

import json
import math
import os
from typing import Any, Literal, Self, get_args

from demur.posteriors import networks
from demur.posteriors.curvature.accumulating import MARKS, accumulate
from demur.posteriors.curvature.decomposed import Structure
from demur.posteriors.curvature.draws import (
    GaussianHead,
    HeadDraws,
    ParameterDraws,
    RoundedHeads,
    draw_normal,
)
from demur.posteriors.curvature.fitted import Curvature, Layers
from demur.posteriors.curvature.gaussian_outputs import GaussianOutputs
from demur.posteriors.curvature.last_layer import Bias, LastLayerSums
from demur.posteriors.curvature.likelihoods import Likelihood
from demur.posteriors.curvature.whole_network import NetworkSums
from demur.posteriors.fingerprint import fingerprint
from demur.posteriors.fit_files import FitFile
from demur.posteriors.heads.features import Features, features
from demur.posteriors.heads.parameters import find_last_linear
from demur.posteriors.last_layer import LastLayer
from demur.posteriors.posterior import Posterior, check_count, check_seed
from demur.posteriors.tensor_files import read_tensors, write_tensors

Products = Literal["exact", "bfloat16"]
Chosen = float | Literal["marginal_likelihood"]
_MARGINAL = "marginal_likelihood"
_CHOICES = {
    "structure": Structure, "layers": Layers, "likelihood": Likelihood, "bias": Bias, "products": Products,
}  # fmt: skip


class Laplace(GaussianOutputs):
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
    products
        ``"bfloat16"``: heads and features are rounded where they multiply, for twice the speed with many
        classes on processors with such instructions. Only the distance from the network's own head is
        rounded: K changes by about a thousandth, far less than its sampling error.
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
        products: Products = "exact",
        layer: str | None = None,
        forward: networks.Forward | None = None,
    ) -> None:
        networks.check_network("model", model)
        self.model, self.curvature, self.forward, self.layer = model, curvature, forward, layer
        _check_choices(products=products)
        self.seed, self.products = check_seed(seed), products
        given = (
            _check_positive("prior_precision", prior_precision),
            _check_positive("noise_variance", noise_variance),
        )
        if given[1] is not None and curvature.likelihood != "regression":
            raise ValueError(
                f"noise_variance goes with likelihood='regression'. Got {noise_variance!r} for classes."
            )
        if products != "exact" and curvature.layers == "all":
            raise ValueError(f"products={products!r} goes with layers='last'. Got layers='all'.")
        evidence = curvature.evidence
        self.prior_precision, noise = evidence.maximise(*given)
        self.log_marginal_likelihood = evidence.log_marginal_likelihood(self.prior_precision, noise)
        self._set_up(self._draw_members(check_count("samples", samples), noise or 1.0), noise)

    def _draw_members(self, samples: int, noise: float) -> Posterior:
        """Return members whose heads, or parameters, are drawn on demand."""
        about, precision = self.curvature, self.prior_precision
        if about.layers == "all":
            scales = {name: (h / noise + precision).rsqrt() for name, h in about.tensors.items()}

            def draw(member: int) -> dict[str, Any]:
                found = {}
                for place, (name, centre) in enumerate(self.model.named_parameters()):
                    if name in scales:
                        drawn = draw_normal((self.seed, member, place), centre)
                        found[name] = centre.detach() + drawn * scales[name].to(centre)
                return found

            return ParameterDraws(self.model, self.forward, draw, samples)
        linear = find_last_linear(self.model, self.layer)
        head = GaussianHead(linear, about.decomposed, precision, noise, self.seed)
        options = {"layer": self.layer, "forward": self.forward}
        if self.products == "bfloat16":
            heads = HeadDraws(linear, head.draw_rotated, samples, rounded=True)
            return RoundedHeads(self.model, heads, head.basis, **options)
        return LastLayer(self.model, HeadDraws(linear, head.draw, samples), **options)

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
        training_inputs: int | None = None,
        samples: int = 100,
        seed: int = 0,
        products: Products = "exact",
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
        model, prior_precision, noise_variance, samples, seed, products
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
        training_inputs
            How many inputs the network was trained on, where the loader brings only a sample of them: sums
            are scaled up. None: those of the loader.
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
        _check_choices(
            structure=structure, layers=layers, likelihood=likelihood, bias=bias, products=products
        )
        if layers == "all" and structure != "diagonal":
            raise ValueError(
                f"layers='all' takes structure='diagonal'. Got {structure!r}. Or use layers='last'."
            )
        for name, value in (("prior_precision", prior_precision), ("noise_variance", noise_variance)):
            _check_positive(name, value)
        check_count("samples", samples)
        check_seed(seed)
        if training_inputs is not None:
            check_count("training_inputs", training_inputs)
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
            "training_inputs": training_inputs,
        }  # fmt: skip
        file = FitFile(path, "Laplace", settings, every)
        before, facts, finished = file.read()
        with networks.suspend_training([model]):
            marks = accumulate(sums, loader, file, before, finished, progress=progress)
        if finished:
            curvature = Curvature.read(_drop_marks(before), facts["curvature"])
        else:
            curvature = sums.finish().scale(training_inputs)
        found = cls(
            model, curvature, prior_precision=prior_precision, noise_variance=noise_variance, samples=samples,
            seed=seed, products=products, layer=layer, forward=forward,
        )  # fmt: skip
        file.write({**curvature.tensors, MARKS: marks}, finished=True, facts=found._describe())
        return found

    def __repr__(self) -> str:
        about = self.curvature
        where = "last layer" if about.layers == "last" else "all layers"
        return f"Laplace({about.structure}, {where}, {self.members} samples)"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file: the curvature, the prior, and the seed of the members."""
        write_tensors(path, self.curvature.tensors, {"method": "Laplace", **self._describe()})

    def _describe(self) -> dict[str, str]:
        """Return what a file holds beside tensors."""
        names = ("prior_precision", "noise_variance", "seed", "products", "layer")
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
    if isinstance(value, bool | str) or not hasattr(value, "__float__") or not 0 < value < math.inf:
        raise ValueError(f"{name} must be 'marginal_likelihood' or a positive number. Got {value!r}.")
    return float(value)


def _check_choices(**given: str) -> None:
    """Raise unless each setting has a value that it may have."""
    for name, value in given.items():
        allowed = get_args(_CHOICES[name])
        if value not in allowed:
            raise ValueError(f"{name} must be {' or '.join(map(repr, allowed))}. Got {value!r}.")
