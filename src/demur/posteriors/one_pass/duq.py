"""`DUQ`: the distance to the closest of the classes' centroids, in a space that keeps distances."""

from __future__ import annotations

import json
import math
import os
from typing import Any, Self, Unpack

from demur.posteriors import networks
from demur.posteriors.one_pass.detector import Detector
from demur.posteriors.one_pass.training import (
    FitOptions,
    Trainer,
    pack_state,
    prepare_extractor,
    restore_state,
)
from demur.posteriors.posterior import check_count
from demur.posteriors.shared_pass import run_network
from demur.posteriors.tensor_files import read_tensors, write_tensors

_FIRST_COUNT = 13.0
"""The moving number of inputs of a class at the start, from the authors' code."""
_FIRST_SPREAD = 0.05
"""Standard deviation of the first centroids, from the authors' code."""


class CentroidHead:
    r"""Distances of features to one centroid per class, each after a linear map of its own.

    .. math:: d_c = \frac{|W_c h - e_c|^2}{2 n \sigma^2}, \qquad K_c = e^{-d_c}

    for n dimensions and the length scale :math:`\sigma`; the centroids :math:`e_c = m_c / N_c` are
    moving averages.
    """

    def __init__(
        self, width: int, classes: int, *, size: int, length_scale: float, seed: int, like: Any = None
    ) -> None:
        import torch

        source = torch.Generator().manual_seed(seed)
        kind: dict[str, Any] = {"dtype": torch.float64}
        weight = torch.randn(classes, size, width, generator=source, **kind) * math.sqrt(2 / width)
        sums = torch.randn(classes, size, generator=source, **kind) * _FIRST_SPREAD * _FIRST_COUNT
        like = sums if like is None else like
        self.length_scale = length_scale
        self.parameters = {"weight": weight.to(like).requires_grad_()}
        self.buffers = {"sums": sums.to(like), "counts": torch.full((classes,), _FIRST_COUNT).to(like)}

    def embed(self, features: Any) -> Any:
        """Return the embedding of features for each class, (inputs, classes, n)."""
        import torch

        weight = self.parameters["weight"]
        return torch.einsum("nd,ced->nce", features.to(weight), weight)

    def distances(self, features: Any) -> Any:
        """Return the scaled distances to the centroids, (inputs, classes)."""
        centroids = self.buffers["sums"] / self.buffers["counts"][:, None]
        return (self.embed(features) - centroids).square().mean(2) / (2 * self.length_scale**2)

    def update(self, features: Any, labels: Any, momentum: float) -> None:
        """Move the centroids towards the embeddings of a batch."""
        import torch

        sums, counts = self.buffers["sums"], self.buffers["counts"]
        chosen = torch.nn.functional.one_hot(labels, len(counts)).to(sums)
        added = torch.einsum("nc,nce->ce", chosen, self.embed(features))
        sums.mul_(momentum).add_(added, alpha=1 - momentum)
        counts.mul_(momentum).add_(chosen.sum(0), alpha=1 - momentum)


def compute_cross_entropy(distances: Any, labels: Any) -> Any:
    """Return the mean binary cross-entropy of ``exp(-distances)``, (inputs, classes)."""
    import torch

    own = torch.nn.functional.one_hot(labels, distances.shape[1]).bool()
    # Of the label -log K, of the others -log(1 - K): from the distances, so that neither log meets a 0.
    others = torch.where(own, 1.0, distances)
    return torch.where(own, distances, -torch.log(-torch.expm1(-others))).mean()


def compute_gradient_penalty(inputs: Any, distances: Any) -> Any:
    """Return the two-sided penalty on the gradient of the sum of all K with respect to each input.

    The paper prints the squared norm minus 1, squared; its code, which made its results, has the norm.
    """
    import torch

    total = torch.exp(-distances).sum()
    gradient = torch.autograd.grad(total, inputs, create_graph=True)[0]
    return (gradient.flatten(1).norm(dim=1) - 1).square().mean()


class DUQ(Detector):
    r"""Deterministic uncertainty quantification: the distance to the closest centroid of a class.

    Van Amersfoort, Smith, Teh and Gal (2020), "Uncertainty estimation using a single deep deterministic
    neural network", section 2. A network is trained with one radial basis function per class, around
    centroids that are moving averages, and with a penalty that keeps its sensitivity to the input near 1. The
    score, the column ``duq``, is the scaled squared distance to the closest centroid,
    :math:`-\log \max_c K_c`: 0 at a centroid, and in the same order as the paper's certainty
    :math:`\max_c K_c`.

    There are no probabilities of classes, so that nothing is said of aleatoric uncertainty: an input between
    two classes and one far from all may score the same. ``classify`` gives the closest class.

    Use ``fit`` or ``load``.

    Parameters
    ----------
    model, head
        The trained feature extractor and the centroids.
    forward
        As for ``fit``.

    Examples
    --------
    >>> import torch
    >>> from demur.posteriors.one_pass import DUQ, NetworkTraining
    >>> x = torch.randn(200, 2) + torch.tensor([5.0, 0.0]) * (torch.arange(200) % 2)[:, None]
    >>> duq = DUQ.fit(
    ...     torch.nn.Linear(2, 8), (x, torch.arange(200) % 2), classes=2, size=8, length_scale=0.3,
    ...     training=NetworkTraining(epochs=20, optimizer="adam", rate=0.01), progress=False)
    >>> near, far = duq.score([x]), duq.score([x + 50])
    >>> bool(far.min() > near.mean())
    True
    """

    name = "duq"

    def __init__(self, model: Any, head: CentroidHead, *, forward: networks.Forward | None = None) -> None:
        self.model, self.forward = model, forward
        self._head = head
        self.head = {**head.parameters, **head.buffers, "length_scale": head.length_scale}

    @classmethod
    def fit(
        cls,
        model: Any,
        data: Any,
        *,
        classes: int,
        size: int = 256,
        length_scale: float = 0.1,
        penalty: float = 0.5,
        momentum: float = 0.999,
        **options: Unpack[FitOptions],
    ) -> Self:
        """Train a copy of a feature extractor with one centroid per class.

        After an interruption, the same call resumes from ``checkpoint`` to the same result.

        Parameters
        ----------
        model
            Maps inputs, floating numbers, to features, (inputs, features). It is left as it is.
        data
            A pair (inputs, labels) of arrays, a ``Dataset``, a ``DataLoader``, or ``Features``.
        classes
            How many classes there are; labels are 0 to classes - 1.
        size
            Dimensions of the space of the centroids: 256 in the paper for Fashion-MNIST, 512 for CIFAR-10.
        length_scale
            0.1 in the paper, which chooses it by accuracy from 0.05 to 1.
        penalty
            The weight of the gradient penalty: 0.5 in the paper for CIFAR-10, 0.05 for Fashion-MNIST.
        momentum
            That of the moving averages; 0.999 in the paper.
        **options
            As for ``SNGP.fit``. The defaults of ``training`` are the paper's for CIFAR-10.
        """
        check_count("size", size)
        for name, value in (("length_scale", length_scale), ("penalty", penalty)):
            if not 0 <= value < math.inf or (name == "length_scale" and value == 0):
                raise ValueError(f"{name} must be positive and finite. Got {value!r}.")
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be 0 or more and below 1. Got {momentum!r}.")
        trainer = Trainer(model, data, classes, bound=None, **options)
        if not getattr(trainer.first[0], "is_floating_point", lambda: False)():
            raise ValueError(
                "data must have inputs of floating numbers, for the gradient penalty. "
                f"Got {getattr(trainer.first[0], 'dtype', type(trainer.first[0]).__name__)}."
            )
        some = trainer.encode_some()
        like = some.to(networks.locate_model(trainer.model)[1])
        head = CentroidHead(
            some.shape[1], classes, size=size, length_scale=length_scale,
            seed=networks.derive_seed(trainer.seed, 4), like=like,
        )  # fmt: skip

        def compute_loss(inputs: Any, labels: Any, _: Any) -> Any:
            inputs = inputs.detach().requires_grad_()
            distances = head.distances(trainer.encode(inputs))
            loss = compute_cross_entropy(distances, labels)
            return loss + penalty * compute_gradient_penalty(inputs, distances) if penalty else loss

        settings = {
            "size": size, "length_scale": length_scale, "penalty": penalty, "centroid_momentum": momentum
        }  # fmt: skip
        trainer.run(
            head, compute_loss, method="DUQ", settings=settings,
            after=lambda x, y: head.update(trainer.encode(x), y, momentum),
        )  # fmt: skip
        return cls(trainer.model, head, forward=trainer.forward)

    def __repr__(self) -> str:
        classes, size, _ = self.head["weight"].shape
        return f"DUQ({classes} classes, {size} dimensions, length_scale={self._head.length_scale})"

    def distances(self, batch: Any) -> Any:
        """Return the scaled squared distances to all centroids, (inputs, classes), in float64."""
        found = run_network(self.model, batch, forward=self.forward)[1]
        return self._head.distances(found.detach()).detach().double().cpu()

    def score_batch(self, batch: Any) -> Any:
        return self.distances(batch).min(1).values

    def classify(self, batch: Any) -> Any:
        """Return the class of the closest centroid for each input, (inputs,)."""
        return self.distances(batch).argmin(1).numpy()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file: the network and the centroids."""
        facts = {"method": "DUQ", "length_scale": json.dumps(self._head.length_scale)}
        write_tensors(path, pack_state(self.model, self._head), facts)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], model: Any, *, forward: networks.Forward | None = None
    ) -> Self:
        """Read a file from ``save`` into a copy of a feature extractor of the same architecture."""
        tensors, facts = read_tensors(path, "DUQ")
        trained = prepare_extractor(model, None).eval()
        classes, size, width = tensors["head.weight"].shape
        head = CentroidHead(
            width, classes, size=size, length_scale=json.loads(facts["length_scale"]), seed=0,
            like=tensors["head.weight"].to(networks.locate_model(trained)[0]),
        )  # fmt: skip
        restore_state(trained, head, tensors)
        return cls(trained, head, forward=forward)
