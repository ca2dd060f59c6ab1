"""The curvature of the loss by eigenvalues, so that a prior precision is added, and drawn from, cheaply."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Structure = Literal["kronecker", "full", "diagonal"]


class Decomposed(NamedTuple):
    r"""A symmetric matrix over the parameters of a last layer, :math:`Q \Lambda Q^T`.

    Parameters are a matrix (outputs, inputs), where a bias is the last input, which is always 1.

    Attributes
    ----------
    structure
        ``"kronecker"``: :math:`Q` is the Kronecker product of ``left`` (outputs, outputs) and ``right``
        (inputs, inputs). ``"full"``: ``left`` has a row for each parameter, output after output.
        ``"diagonal"``: :math:`Q` is 1.
    values
        The eigenvalues, (outputs, inputs).
    left, right
        Eigenvectors, in columns; None where the structure has none, and for 1.
    """

    structure: Structure
    values: Any
    left: Any = None
    right: Any = None

    def multiply(self, coordinates: Any) -> Any:
        """Return ``Q`` times parameters (outputs, inputs) that are given along the eigenvectors."""
        if self.structure == "kronecker":
            found = self.left @ coordinates
            return found if self.right is None else found @ self.right.T
        if self.structure == "full":
            return (self.left @ coordinates.reshape(-1)).reshape(coordinates.shape)
        return coordinates


def decompose_kronecker(outer: Any, inner: Any) -> Decomposed:
    """Decompose the Kronecker product of two matrices, (outputs, outputs) and (inputs, inputs)."""
    (outer_values, left), (inner_values, right) = _decompose(outer), _decompose(inner)
    return Decomposed("kronecker", outer_values[:, None] * inner_values, left, right)


def decompose_full(matrix: Any, outputs: int) -> Decomposed:
    """Decompose a matrix over all parameters, output after output."""
    values, vectors = _decompose(matrix)
    return Decomposed("full", values.reshape(outputs, -1), vectors)


def _decompose(matrix: Any) -> tuple[Any, Any]:
    """Return eigenvalues and eigenvectors of a sum of squares."""
    import torch

    values, vectors = torch.linalg.eigh(matrix)
    # A sum of squares has none below 0; rounding makes some, of the size of its last digit.
    # In memory as a file gives it back, since the order decides about the last digit of products.
    return values.clamp(min=0), vectors.contiguous()
