"""`DUE`: a Gaussian process with inducing points on features that keep distances."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Self, Unpack

import numpy as np

from demur.moments import Moments
from demur.posteriors import networks
from demur.posteriors.one_pass.detector import Detector
from demur.posteriors.one_pass.gaussian_process import GaussianProcessHead, find_centres
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


class DUE(Posterior, Detector):
    r"""Deterministic uncertainty estimation: a deep kernel Gaussian process, one pass and members if wanted.

    Van Amersfoort, Smith, Jesson, Key and Gal (2022), "On feature collapse and deep kernel learning for
    single forward pass uncertainty". A feature extractor with bounded layers is trained together with a
    sparse variational Gaussian process on its features (Hensman et al., 2015) by the evidence lower bound

    .. math:: \sum_i E_{q(f_i)} \log \operatorname{softmax}(f_i)_{y_i} - \operatorname{KL}(q(u), p(u)).

    Without the bound on the layers this is the hybrid of network and Gaussian process of Bradshaw, Matthews
    and Ghahramani (2017): ``bound=None``. It is two things:

    - a **score** of one pass, the column ``due``: the entropy of the average prediction over ``samples``
      draws of the logits, in nats, as in the paper's code;
    - a **posterior**, whose members are these draws, so that K, I and M exist. The draws of one input have
      its marginal distribution; across inputs a member moves all logits of a class by the same number of
      standard deviations.

    Use ``fit`` or ``load``.

    Parameters
    ----------
    model, head
        The trained feature extractor and the Gaussian processes.
    samples, seed
        The number of members, and the seed of their draws.
    bound, forward
        As for ``fit``.

    Examples
    --------
    >>> import torch
    >>> from demur.posteriors.one_pass import DUE, NetworkTraining
    >>> x = torch.randn(200, 2) + torch.tensor([4.0, 0.0]) * (torch.arange(200) % 2)[:, None]
    >>> due = DUE.fit(
    ...     torch.nn.Linear(2, 4), (x, torch.arange(200) % 2), classes=2,
    ...     training=NetworkTraining(epochs=10, optimizer="adam", rate=0.05), progress=False)
    >>> scores = demur.score(due, [x], columns=[due], progress=False)
    >>> bool(np.allclose(scores.columns["due"], scores["average"].total))
    True
    """

    name = "due"

    def __init__(
        self,
        model: Any,
        head: GaussianProcessHead,
        *,
        samples: int = 100,
        seed: int = 0,
        bound: float | None = 3.0,
        forward: networks.Forward | None = None,
    ) -> None:
        self.model, self.forward, self.bound, self.seed = model, forward, bound, check_seed(seed)
        self._head = head
        self.head = dict(head.parameters)
        self.members = check_count("samples", samples)

    @classmethod
    def fit(
        cls,
        model: Any,
        data: Any,
        *,
        classes: int,
        inducing: int = 20,
        length_scale: float | None = None,
        bound: float | None = 3.0,
        draws: int = 32,
        samples: int = 100,
        **options: Unpack[FitOptions],
    ) -> Self:
        """Train a copy of a feature extractor with Gaussian processes on top.

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
        inducing
            Inducing points, which start at the centres of up to 1000 inputs' features: as many as classes,
            or 20, in the paper.
        length_scale
            The first one of the kernels; None: the mean distance between these features, as in the paper.
        bound
            As for ``spectral_normalise``; 3 in the paper.
        draws
            Draws of the logits per input and step in the bound; 32 in the paper's code.
        samples, **options
            As for ``SNGP.fit``.
        """
        import torch

        for name, value in (("inducing", inducing), ("draws", draws), ("samples", samples)):
            check_count(name, value)
        trainer = Trainer(model, data, classes, bound=bound, **options)
        some = trainer.encode_some()
        scale = choose_length_scale(length_scale, some)
        head = GaussianProcessHead(find_centres(some, inducing, trainer.seed), classes, length_scale=scale)

        def compute_loss(inputs: Any, labels: Any, source: Any) -> Any:
            mean, variance = head.marginals(trainer.encode(inputs))
            noise = torch.randn((draws, *mean.shape), generator=source, dtype=mean.dtype).to(mean.device)
            logits = (mean + variance.sqrt() * noise).flatten(0, 1)
            loss = torch.nn.functional.cross_entropy(logits, labels.repeat(draws))
            return loss + head.divergence() / trainer.data.size

        settings = {"inducing": inducing, "length_scale": length_scale, "bound": bound, "draws": draws}
        trainer.run(head, compute_loss, method="DUE", settings=settings)
        return cls(
            trainer.model, head, samples=samples, seed=trainer.seed, bound=bound, forward=trainer.forward
        )

    def __repr__(self) -> str:
        classes, count = self.head["mean"].shape
        return f"DUE({classes} classes, {count} inducing points, {self.members} samples)"

    def marginals(self, batch: Any) -> tuple[Any, Any]:
        """Return mean and variance of the logits of a batch, (inputs, classes) each."""
        import torch

        with torch.no_grad():
            return self._head.marginals(run_network(self.model, batch, forward=self.forward)[1])

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        import torch

        mean, variance = self.marginals(batch)
        sources = (
            torch.Generator().manual_seed(networks.derive_seed(self.seed, 5, member))
            for member in range(self.members or 0)
        )
        noise = torch.stack(
            [torch.randn(mean.shape[1], generator=source, dtype=mean.dtype) for source in sources]
        ).to(mean.device)
        for run in split_members(select_members(members, self.members or 0), mean.numel()):
            yield mean + variance.sqrt() * noise[list(run), None]

    def score_batch(self, batch: Any) -> np.ndarray:
        moments = Moments()
        for logits in self.predict(batch):
            moments.update(logits=logits.cpu().numpy())
        return np.asarray(moments.decompose("average").total)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file: the network and the Gaussian processes."""
        settings = {"samples": self.members, "seed": self.seed, "bound": self.bound}
        facts = {"method": "DUE", "settings": json.dumps(settings)}
        write_tensors(path, pack_state(self.model, self._head), facts)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: Any, **options: Any) -> Self:
        """Read a file from ``save`` into a copy of a feature extractor like the one that ``fit`` was given.

        ``options`` are ``samples``, ``seed`` and ``forward``.
        """
        tensors, facts = read_tensors(path, "DUE")
        settings = json.loads(facts["settings"])
        trained = prepare_extractor(model, settings["bound"]).eval()
        points = tensors["head.points"].to(networks.locate_model(trained)[0])
        head = GaussianProcessHead(points, len(tensors["head.constant"]), length_scale=1.0)
        restore_state(trained, head, tensors)
        return cls(trained, head, **{**settings, **options})
