"""`BoundedWeight`: a weight scaled down to a largest singular value; imported only with PyTorch."""

from __future__ import annotations

import torch

_FIRST_ITERATIONS = 30
"""Power iterations at the start, as the weights are then known for the first time."""


class BoundedWeight(torch.nn.Module):
    """A parametrization that scales a weight to a largest singular value of at most ``bound``."""

    left: torch.Tensor
    right: torch.Tensor

    def __init__(self, weight: torch.Tensor, bound: float, iterations: int, seed: int) -> None:
        super().__init__()
        self.bound, self.iterations = bound, iterations
        source = torch.Generator().manual_seed(seed)
        matrix = weight.detach().flatten(1)
        for name, size in (("left", matrix.shape[0]), ("right", matrix.shape[1])):
            drawn = torch.randn(size, generator=source, dtype=torch.float64)
            self.register_buffer(name, (drawn / drawn.norm()).to(matrix))
        self._follow(matrix, _FIRST_ITERATIONS)

    def extra_repr(self) -> str:
        return f"bound={self.bound}, iterations={self.iterations}"

    @torch.no_grad()
    def _follow(self, matrix: torch.Tensor, iterations: int) -> None:
        """Move the vectors towards those of the largest singular value."""
        for _ in range(iterations):
            for own, product in ((self.left, matrix @ self.right), (self.right, None)):
                found = matrix.T @ self.left if product is None else product
                length = found.norm()
                if length > 0:  # a weight of zeros has no direction, and needs no bound
                    own.copy_(found / length)

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        matrix = weight.flatten(1)
        if self.training:
            self._follow(matrix.detach(), self.iterations)
        # Copies: the vectors change in the next pass, while gradients still need these.
        sigma = self.left.clone() @ (matrix @ self.right.clone())
        return weight / torch.clamp(sigma / self.bound, min=1.0)
