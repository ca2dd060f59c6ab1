"""`SNGP`: a network that keeps distances, with a Gaussian process as its last layer."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from typing import Any, Self, Unpack

from demur.posteriors import networks
from demur.posteriors.one_pass.detector import Detector
from demur.posteriors.one_pass.random_features import RandomFeatureHead, factorise_precision
from demur.posteriors.one_pass.training import (
    FitOptions,
    Trainer,
    choose_length_scale,
    pack_state,
    prepare_extractor,
    restore_state,
)
from demur.posteriors.posterior import Posterior, check_count, check_seed, select_members, split_members
from demur.posteriors.shared_pass import run_network
from demur.posteriors.tensor_files import read_tensors, write_tensors

_LARGEST = 1 << 32
"""Bytes of all covariances, at most."""
_MEAN_FIELD = math.pi / 8


class SNGP(Posterior, Detector):
    r"""Spectral-normalised neural Gaussian process: one pass, and members if wanted.

    Liu, Lin, Padhy, Tran, Bedrax-Weiss and Lakshminarayanan (2020), "Simple and principled uncertainty
    estimation with deterministic deep learning via distance awareness", algorithm 1. A feature extractor with
    bounded layers (section 3.2) ends in a Gaussian process with the kernel
    :math:`\exp(-|h - h'|^2 / 2 \ell^2)`, by D random features, whose weights have a Laplace
    approximation per class (section 3.1). It is two things:

    - a **score** of one pass, the column ``sngp``: with the mean logits :math:`g_k` and variances
      :math:`v_k`, the mean-field logits :math:`g_k / \sqrt{1 + \pi v_k / 8}` give the uncertainty
      :math:`K / (K + \sum_k e^{g_k})` of its experiments for K classes, between 0 and 1;
    - a **posterior**, whose members are draws of the last layer's weights, so that K, I and M exist.

    Use ``fit`` or ``load``.

    Parameters
    ----------
    model
        The trained feature extractor.
    head, factors
        The last layer, and the Cholesky factors of its precisions.
    samples, seed
        The number of members, and the seed of their draws.
    bound, forward
        As for ``fit``.

    Examples
    --------
    >>> import torch
    >>> from demur.posteriors.one_pass import SNGP, NetworkTraining
    >>> x = torch.randn(200, 2) + torch.tensor([3.0, 0.0]) * (torch.arange(200) % 2)[:, None]
    >>> sngp = SNGP.fit(
    ...     torch.nn.Linear(2, 16), (x, torch.arange(200) % 2), classes=2, features=64,
    ...     training=NetworkTraining(epochs=20, optimizer="adam", rate=0.02), progress=False)
    >>> scores = demur.score(sngp, [x], columns=[sngp], progress=False)
    >>> scores["pairwise"].epistemic.shape, scores.columns["sngp"].shape
    ((200,), (200,))
    """

    name = "sngp"

    def __init__(
        self,
        model: Any,
        head: RandomFeatureHead,
        factors: Any,
        *,
        samples: int = 100,
        seed: int = 0,
        bound: float | None = 0.95,
        forward: networks.Forward | None = None,
    ) -> None:
        self.model, self.forward, self.bound, self.seed = model, forward, bound, check_seed(seed)
        self._head = head
        self.head = {**head.parameters, **head.buffers}
        self.factors, self.members = factors.contiguous(), check_count("samples", samples)

    @classmethod
    def fit(
        cls,
        model: Any,
        data: Any,
        *,
        classes: int,
        features: int = 1024,
        length_scale: float | None = None,
        bound: float | None = 0.95,
        samples: int = 100,
        **options: Unpack[FitOptions],
    ) -> Self:
        """Train a copy of a feature extractor with a Gaussian process on top.

        After an interruption, the same call resumes from ``checkpoint`` to the same result.

        Parameters
        ----------
        model
            Maps inputs to features, (inputs, features): a network without its last layer, best with residual
            connections. ``torch.nn.Identity()`` where inputs are features already. It is left as it is.
        data
            A pair (inputs, labels) of arrays, a ``Dataset``, a ``DataLoader``, or ``Features``.
        classes
            How many classes there are; labels are 0 to classes - 1.
        features
            D, the number of random features: 1024 in the paper.
        length_scale
            That of the kernel; None: the mean distance between features of up to 1000 inputs before training.
            The paper has 1, and leaves the scale to the features.
        bound
            As for ``spectral_normalise``; None: layers stay as they are.
        samples
            The number of members.
        **options
            ``training=None``, a ``NetworkTraining``, or its defaults; ``seed=0``, the seed of everything;
            ``forward=None``, where ``forward(model, inputs)`` and not ``model(inputs)`` returns the features;
            ``checkpoint=None`` and ``every=30.0``, a safetensors file for the work done so far, which stays,
            and seconds between writes; ``progress=True``, a progress bar on a terminal.
        """
        import torch

        check_count("features", features)
        check_count("samples", samples)
        trainer = Trainer(model, data, classes, bound=bound, **options)
        if classes * features**2 * 8 > _LARGEST:
            size, fewer = classes * features**2 * 8 / 2**30, math.isqrt(_LARGEST // 8 // classes)
            raise ValueError(
                f"The covariances would take {size:.0f} GB for {classes} classes and {features} random "
                f"features. Give fewer: features={fewer}."
            )
        some = trainer.encode_some()
        scale = choose_length_scale(length_scale, some)
        head = RandomFeatureHead(
            some.shape[1], classes, features=features, length_scale=scale,
            seed=networks.derive_seed(trainer.seed, 4), device=trainer.device,
        )  # fmt: skip

        def compute_loss(inputs: Any, labels: Any, _: Any) -> Any:
            logits = head.logits(head.expand(trainer.encode(inputs)))
            return torch.nn.functional.cross_entropy(logits, labels) + head.penalty() / trainer.data.size

        settings = {"features": features, "length_scale": length_scale, "bound": bound}
        trainer.run(head, compute_loss, method="SNGP", settings=settings)
        factors = factorise_precision(head, (values for values, _ in trainer.iterate_features()))
        return cls(
            trainer.model,
            head,
            factors,
            samples=samples,
            seed=trainer.seed,
            bound=bound,
            forward=trainer.forward,
        )

    def __repr__(self) -> str:
        size, classes = self.head["beta"].shape
        return f"SNGP({classes} classes, {size} random features, {self.members} samples)"

    def _expand(self, batch: Any) -> Any:
        """Return the random features of a batch, (inputs, D)."""
        return self._head.expand(run_network(self.model, batch, forward=self.forward)[1].detach())

    def marginals(self, batch: Any) -> tuple[Any, Any]:
        """Return mean and variance of the logits of a batch, (inputs, classes) each."""
        import torch

        expanded = self._expand(batch)
        # Class by class, so that large batches fit in memory.
        variances = [
            torch.linalg.solve_triangular(factor, expanded.T, upper=False).square().sum(0)
            for factor in self.factors
        ]
        return self._head.logits(expanded).detach(), torch.stack(variances, 1)

    def mean_field_logits(self, batch: Any) -> Any:
        """Return logits whose softmax is about the average prediction, (inputs, classes)."""
        mean, variance = self.marginals(batch)
        return mean / (1 + _MEAN_FIELD * variance).sqrt()

    def score_batch(self, batch: Any) -> Any:
        import torch

        logits = self.mean_field_logits(batch)
        return torch.sigmoid(math.log(logits.shape[1]) - torch.logsumexp(logits, 1)).cpu()

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        import torch

        expanded = self._expand(batch)
        if self._drawn is None:
            self._drawn = torch.stack([self._draw(member) for member in range(self.members or 0)])
        wanted = select_members(members, self.members or 0)
        for run in split_members(wanted, len(expanded) * self._drawn.shape[2]):
            yield expanded @ self._drawn[list(run)]

    _drawn: Any = None

    def _draw(self, member: int) -> Any:
        """Return the weights of a member, (D, classes)."""
        import torch

        beta = self.head["beta"].detach()
        source = torch.Generator().manual_seed(networks.derive_seed(self.seed, 5, member))
        noise = torch.randn(beta.T.shape, generator=source, dtype=beta.dtype).to(beta.device)
        # With the precision L L^T, L^-T times noise has its inverse as covariance.
        away = torch.linalg.solve_triangular(self.factors.mT, noise[..., None], upper=True)[..., 0]
        return beta + away.T

    def deployed(self, batch: Any) -> Any:
        return self.mean_field_logits(batch)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file: the network, its last layer and the covariances."""
        settings = {"samples": self.members, "seed": self.seed, "bound": self.bound}
        tensors = {**pack_state(self.model, self._head), "factors": self.factors}
        write_tensors(path, tensors, {"method": "SNGP", "settings": json.dumps(settings)})

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: Any, **options: Any) -> Self:
        """Read a file from ``save`` into a copy of a feature extractor like the one that ``fit`` was given.

        ``options`` are ``samples``, ``seed`` and ``forward``.
        """
        tensors, facts = read_tensors(path, "SNGP")
        settings = json.loads(facts["settings"])
        trained = prepare_extractor(model, settings["bound"]).eval()
        size, width = tensors["buffer.weight"].shape
        head = RandomFeatureHead(
            width, tensors["head.beta"].shape[1], features=size, length_scale=1.0, seed=0,
            device=networks.locate_model(trained)[0],
        )  # fmt: skip
        restore_state(trained, head, tensors)
        # A copy, aligned as a fitted one, so that products have the same last digit.
        factors = tensors["factors"].clone().to(networks.locate_model(trained)[0])
        return cls(trained, head, factors, **{**settings, **options})
