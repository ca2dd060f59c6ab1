"""`IterateMoments`: mean, variance and last deviations of iterates of SGD, and draws from their Gaussian."""

from __future__ import annotations

import math
from typing import Any


class IterateMoments:
    r"""The Gaussian of Maddox et al. (2019), updated one iterate at a time.

    With the n-th iterate :math:`\theta` and :math:`\delta = \theta - \bar\theta` about the mean so far,

    .. math:: \bar\theta \leftarrow \bar\theta + \delta / n, \qquad
              S \leftarrow S + \tfrac{n - 1}{n} \delta^2, \qquad \Sigma_{diag} = S / n

    (Welford, 1962), in float64. In exact arithmetic :math:`\Sigma_{diag}` is the paper's
    :math:`\overline{\theta^2} - \bar\theta^2`. In float32 that difference loses a standard deviation below
    about 3e-4 of the parameter itself: it comes out as noise, or negative, which the authors' code clamps to
    1e-30. Here nothing cancels, and nothing is clamped.

    Parameters
    ----------
    like
        A vector of all parameters, for its length and dtype.
    rank
        How many of the last deviations :math:`\theta - \bar\theta` are kept.

    Attributes
    ----------
    count
        The number of iterates so far.
    mean, squares
        (parameters,), :math:`\bar\theta` and S.
    deviations
        (rank, parameters); the n-th is in row n - 1, modulo the rank. The first one is zero.
    """

    def __init__(self, like: Any, rank: int) -> None:
        import torch

        self.count, self.rank = 0, rank
        self.mean = torch.zeros(len(like), dtype=torch.float64)
        self.squares = torch.zeros_like(self.mean)
        kind = torch.float64 if like.dtype == torch.float64 else torch.float32
        self.deviations = torch.zeros((rank, len(like)), dtype=kind)

    @property
    def columns(self) -> int:
        """How many deviations there are: K, or fewer while fewer were collected."""
        return min(self.count, self.rank)

    def collect(self, vector: Any) -> None:
        """Add an iterate."""
        vector = vector.detach().to(self.mean)
        self.count += 1
        delta = vector - self.mean
        self.mean += delta / self.count
        self.squares += delta.square() * ((self.count - 1) / self.count)
        if self.rank:
            self.deviations[(self.count - 1) % self.rank] = vector - self.mean

    @property
    def variance(self) -> Any:
        """The diagonal part, (parameters,)."""
        return self.squares / self.count

    def draw(self, scale: float, seed: int) -> Any:
        """Draw one vector, in float64: one z1 and one z2 for all parameters together (Eq. 1)."""
        import torch

        source = torch.Generator().manual_seed(seed)
        noise = torch.randn(len(self.mean), generator=source, dtype=torch.float64)
        spread = self.variance.sqrt() * noise
        if self.rank:
            shared = torch.randn(self.columns, generator=source, dtype=self.deviations.dtype)
            spread += (shared @ self.deviations[: self.columns]) / math.sqrt(self.columns - 1)
        return self.mean + math.sqrt(scale) * spread

    def tensors(self) -> dict[str, Any]:
        """Return the vectors by name; those of ``deviations`` have the rows that there are."""
        return {"mean": self.mean, "squares": self.squares, "deviations": self.deviations[: self.columns]}

    def restore(self, count: int, tensors: dict[str, Any]) -> None:
        """Take up what ``tensors`` returned after so many iterates."""
        self.count = count
        self.mean.copy_(tensors["mean"])
        self.squares.copy_(tensors["squares"])
        self.deviations[: self.columns] = tensors["deviations"][: self.columns]
