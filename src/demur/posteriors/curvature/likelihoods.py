"""Likelihoods of `Laplace`: how well outputs fit targets, and the curvature of the loss in the outputs."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from demur.posteriors.heads.training import check_classes

Likelihood = Literal["classification", "regression"]


def measure_fit(outputs: Any, targets: np.ndarray | None, likelihood: Likelihood) -> Any:
    """Return the summed log-likelihood of labels, or the summed squared residuals of numbers.

    Parameters
    ----------
    outputs
        Logits or predicted numbers, (inputs, outputs).
    targets
        Classes (inputs,), or numbers (inputs, outputs); (inputs,) where there is one output.
    likelihood
        ``"classification"`` or ``"regression"``.
    """
    import torch

    if targets is None:
        raise ValueError("fit takes labels. The loader had none: give batches of (inputs, labels).")
    if not bool(outputs.isfinite().all()):
        raise ValueError("model must return finite outputs. Got NaN or infinity. Check its inputs.")
    if likelihood == "classification":
        check_classes(targets, outputs.shape[1])
        labels = torch.from_numpy(targets.astype(np.int64)).to(outputs.device)
        return outputs.log_softmax(1).gather(1, labels[:, None]).sum()
    expected = tuple(outputs.shape)
    if targets.dtype.kind not in "fiu" or targets.shape not in (expected, expected[:1] * (expected[1] == 1)):
        raise ValueError(
            f"labels must be numbers of shape {expected}, as the model predicts. "
            f"Got {targets.dtype} of shape {targets.shape}."
        )
    if not np.isfinite(targets).all():
        raise ValueError("labels must be finite numbers. Got NaN or infinity among them.")
    numbers = torch.from_numpy(targets.reshape(expected).astype(np.float64)).to(outputs.device)
    return (outputs - numbers).square().sum()


def compute_roots(outputs: Any, likelihood: Likelihood) -> Any:
    r"""Return roots of the curvature of the loss in the outputs, (inputs, outputs, outputs).

    Rows :math:`r_j` with :math:`\sum_j r_j r_j^T = \Lambda`: for classes, :math:`\sqrt{p_j} (e_j - p)`.
    """
    import torch

    unit = torch.eye(outputs.shape[1], dtype=outputs.dtype, device=outputs.device)
    if likelihood == "regression":
        return unit.expand(len(outputs), -1, -1)
    p = outputs.softmax(1)
    return p.sqrt()[:, :, None] * (unit - p[:, None, :])
