"""`FeatureDensity`: the density of features under one Gaussian per class."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from typing import Any, Literal, Self

import numpy as np

from demur.posteriors import networks
from demur.posteriors.heads.features import Features
from demur.posteriors.one_pass.covariance import Shrinkage, check_shrinkage, estimate_covariance, factorise
from demur.posteriors.one_pass.detector import Detector
from demur.posteriors.one_pass.encoder import Encoder
from demur.posteriors.one_pass.softmax_entropy import SoftmaxEntropy
from demur.posteriors.tensor_files import read_tensors, write_tensors

_ROWS = 4096
"""Features read at a time, in float64."""
_LARGEST = 1 << 32
"""Bytes of all covariances, at most."""


class FeatureDensity(Detector):
    r"""Density of the features under one Gaussian per class: deep deterministic uncertainty (DDU).

    Mukhoti, Kirsch, van Amersfoort, Torr and Gal (2023), "Deep deterministic uncertainty: a new simple
    baseline". The score is

    .. math:: -\log \sum_y p(y) \, \mathcal N(z;\; \mu_y, \Sigma_y)

    of the features z, in nats: their epistemic uncertainty. Their aleatoric part is the softmax entropy of
    the same network, ``detector.aleatoric``, a detector of its own. The density may be above 1, so that
    scores may be negative: only their order means something. The paper trains the network with spectral
    normalisation and residual connections (see ``spectral_normalise``), so that distances between features
    reflect those between inputs; of any other network, features may collapse.

    Use ``fit`` or ``load``.

    Parameters
    ----------
    model, layer, forward
        As for ``LastLayer``.
    log_priors
        (classes,): log of the share of each class.
    means
        (classes, features).
    factors
        Cholesky factors of the covariances, (classes, features, features); or one for all classes,
        (1, features, features).
    shrinkage
        The amount used for each covariance.

    Examples
    --------
    >>> import torch
    >>> from demur.posteriors.one_pass import FeatureDensity
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    >>> x, y = torch.randn(90, 4), torch.arange(90) % 3
    >>> density = FeatureDensity.fit(model, [(x, y)], covariance="shared")
    >>> scores = demur.score([model, model], [x, 9 * x], columns=[density], progress=False)
    >>> far, near = scores.columns["feature_density"][90:], scores.columns["feature_density"][:90]
    >>> bool(np.median(far) > np.median(near))
    True
    """

    name = "feature_density"

    def __init__(
        self,
        model: Any,
        log_priors: Any,
        means: Any,
        factors: Any,
        *,
        shrinkage: Any = (),
        layer: str | None = None,
        forward: networks.Forward | None = None,
    ) -> None:
        self.encoder = Encoder(model, layer=layer, forward=forward)
        self.log_priors, self.means, self.factors = log_priors, means, factors
        self.shrinkage = tuple(float(each) for each in shrinkage)
        width = self.encoder.width
        shapes = [(count, width, width) for count in (1, len(means))]
        if means.shape != (len(means), width) or factors.shape not in shapes:
            raise ValueError(
                f"means and factors must be of {width} features, as the last layer takes. "
                f"Got {tuple(means.shape)} and {tuple(factors.shape)}."
            )

    @classmethod
    def fit(
        cls,
        model: Any,
        loader: Any,
        *,
        covariance: Literal["class", "shared"] = "class",
        shrinkage: Shrinkage = "ledoit_wolf",
        layer: str | None = None,
        forward: networks.Forward | None = None,
        cache: str | os.PathLike[str] | None = None,
        every: float = 10.0,
        progress: bool = True,
    ) -> Self:
        """Compute mean and covariance of each class, from one pass over the training data.

        Parameters
        ----------
        model, layer, forward
            As for the class.
        loader
            As for ``demur.score``, with labels; or ``Features`` of this model.
        covariance
            ``"class"``: one for each class, as in the paper. ``"shared"``: one for all, about the mean of
            each input's class (Lee et al., 2018, the Mahalanobis distance), which takes few inputs per class
            and little memory where there are many classes.
        shrinkage
            How far covariances are drawn towards a multiple of the identity, which makes them invertible
            where a class has fewer inputs than features. ``"ledoit_wolf"``: by the amount that has the least
            expected error, close to 0 where inputs are many. A number from 0 to 1: by that much; 0 is the
            paper's formula, whose code adds the least power of ten that lets the factorisation pass.
        cache, every
            A folder for the features, as for ``features``, and seconds between writes.
        progress
            Show a progress bar, on a terminal.
        """
        import torch

        if covariance not in ("class", "shared"):
            raise ValueError(f"covariance must be 'class' or 'shared'. Got {covariance!r}.")
        check_shrinkage(shrinkage)
        encoder = Encoder(model, layer=layer, forward=forward)
        found = encoder.read(loader, cache=cache, every=every, progress=progress)
        if found.labels is None or found.labels.ndim != 1:
            had = "none" if found.labels is None else f"labels of shape {found.labels.shape}"
            raise ValueError(f"fit takes labels, one for each input. The loader had {had}.")
        names, numbers = np.unique(found.labels, return_inverse=True)
        rows = [np.flatnonzero(numbers == k) for k in range(len(names))]
        count = len(names) if covariance == "class" else 1
        if count * encoder.width**2 * 8 > _LARGEST:
            raise ValueError(
                f"covariance='class' would take {count * encoder.width**2 * 8 / 2**30:.0f} GB for {count} "
                f"classes of {encoder.width} features. Give covariance='shared'."
            )
        means = torch.stack(
            [torch.stack([x.sum(0) for x in _read(found, own)]).sum(0) / len(own) for own in rows]
        )
        factors, amounts = [], []
        for number in range(count):
            own = [number] if covariance == "class" else range(len(names))
            centred = (x - means[k] for k in own for x in _read(found, rows[k]))
            estimate, amount = estimate_covariance(centred, shrinkage)
            factor = factorise(estimate)
            if factor is None:
                inputs = sum(len(rows[k]) for k in own)
                whose = f"class {names[number]!s}" if covariance == "class" else "all classes"
                raise ValueError(
                    f"The covariance of {whose}, of {inputs} inputs and {encoder.width} features, must be "
                    "invertible. Got a singular one: are features constant? Give covariance='shared', or "
                    "shrinkage='ledoit_wolf' or above 0."
                )
            factors.append(factor)
            amounts.append(amount)
        sizes = torch.tensor([len(own) for own in rows], dtype=torch.float64)
        log_priors = (sizes / sizes.sum()).log()
        return cls(
            model, log_priors, means, torch.stack(factors), shrinkage=amounts, layer=layer, forward=forward
        )

    def __repr__(self) -> str:
        classes, features = self.means.shape
        kind = "shared" if len(self.factors) == 1 < classes else "class"
        used = sorted({f"{each:.2g}" for each in self.shrinkage}, key=float)
        amount = f", shrinkage {' to '.join(dict.fromkeys((used[0], used[-1])))}" if used else ""
        return f"FeatureDensity({classes} classes, {features} features, {kind} covariance{amount})"

    @property
    def aleatoric(self) -> SoftmaxEntropy:
        """The softmax entropy of the same network, which the paper takes as the aleatoric part."""
        return SoftmaxEntropy(self.encoder.model, forward=self.encoder.forward)

    def log_densities(self, features: Any) -> Any:
        """Return the log density of features under each class, without its share, (inputs, classes)."""
        import torch

        features = features.double().to(self.means.device)
        constant = self.encoder.width * math.log(2 * math.pi) / 2
        found = features.new_empty(len(features), len(self.means))
        if len(self.factors) == 1:
            # About the middle of the means, so that little cancels in the differences below.
            middle = self.means.mean(0)
            white, own = (
                torch.linalg.solve_triangular(self.factors[0], (each - middle).T, upper=False)
                for each in (features, self.means)
            )
            half = white.square().sum(0)[:, None] / 2 + own.square().sum(0) / 2 - white.T @ own
            return -half - self.factors[0].diagonal().log().sum() - constant
        for k, (mean, factor) in enumerate(zip(self.means, self.factors, strict=True)):
            white = torch.linalg.solve_triangular(factor, (features - mean).T, upper=False)
            found[:, k] = -white.square().sum(0) / 2 - factor.diagonal().log().sum() - constant
        return found

    def score_batch(self, batch: Any) -> Any:
        import torch

        return -torch.logsumexp(self.log_densities(self.encoder.encode(batch)) + self.log_priors, 1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file: shares, means and covariances of the classes."""
        tensors = {"log_priors": self.log_priors, "means": self.means, "factors": self.factors}
        facts = {"method": "FeatureDensity", "shrinkage": json.dumps(self.shrinkage)}
        write_tensors(path, tensors, facts | self.encoder.describe())

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: Any, **options: Any) -> Self:
        """Read a file from ``save``, for the same model; ``options`` are ``layer`` and ``forward``."""
        tensors, facts = read_tensors(path, "FeatureDensity")
        # Copies, aligned as fitted ones, so that products have the same last digit.
        own = {name: each.clone() for name, each in tensors.items()}
        found = cls(model, **own, shrinkage=json.loads(facts["shrinkage"]), **options)
        found.encoder.check(facts, path)
        return found


def _read(found: Features, rows: np.ndarray) -> Iterator[Any]:
    """Yield some rows of the features, in float64."""
    import torch

    for start in range(0, len(rows), _ROWS):
        yield torch.from_numpy(np.asarray(found.values[rows[start : start + _ROWS]], np.float64))
