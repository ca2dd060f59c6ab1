"""What a user would write: the closed form in PyTorch and in NumPy with SciPy, and the loop over pairs."""

from __future__ import annotations

import numpy as np
import torch
from scipy import special


def eager_torch(logits: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Total, aleatoric, K and I by the closed form, in the logits' own precision."""
    log_p = torch.log_softmax(logits, -1)
    p = log_p.exp()
    average = p.mean(0)
    aleatoric = -(p * log_p).sum(-1).mean(0)
    total = -(average * log_p.mean(0)).sum(-1)
    mutual = -torch.special.xlogy(average, average).sum(-1) - aleatoric
    return total, aleatoric, total - aleatoric, mutual


def numpy_scipy(logits: np.ndarray) -> tuple[np.ndarray, ...]:
    """Do the same with NumPy and SciPy; one softmax and no ``entr`` is the fastest way to write it."""
    log_p = special.log_softmax(logits, axis=-1)
    p = np.exp(log_p)
    average = p.mean(0)
    aleatoric = -(p * log_p).sum(-1).mean(0)
    total = -(average * log_p.mean(0)).sum(-1)
    mutual = special.entr(average).sum(-1) - aleatoric
    return total, aleatoric, total - aleatoric, mutual


def numpy_scipy_as_read(logits: np.ndarray) -> tuple[np.ndarray, ...]:
    """Do the same as the formulas read: a softmax, a log-softmax, and ``entr`` for each entropy."""
    p, log_p = special.softmax(logits, axis=-1), special.log_softmax(logits, axis=-1)
    average = p.mean(0)
    aleatoric = special.entr(p).sum(-1).mean(0)
    total = -(average * log_p.mean(0)).sum(-1)
    mutual = special.entr(average).sum(-1) - aleatoric
    return total, aleatoric, total - aleatoric, mutual


def pairs_torch(logits: torch.Tensor) -> torch.Tensor:
    """K as the definition says: the divergence of each pair of members, one after the other."""
    log_p = torch.log_softmax(logits, -1)
    p = log_p.exp()
    total = torch.zeros(logits.shape[1])
    for i in range(len(logits)):
        for j in range(len(logits)):
            total += (p[i] * (log_p[i] - log_p[j])).sum(-1)
    return total / len(logits) ** 2


def pairs_of_kl_div(logits: torch.Tensor) -> torch.Tensor:
    """K by ``torch.nn.functional.kl_div`` of each pair of members."""
    log_p = torch.log_softmax(logits, -1)
    total = torch.zeros(logits.shape[1])
    for i in range(len(logits)):
        for j in range(len(logits)):
            total += torch.nn.functional.kl_div(log_p[j], log_p[i], log_target=True, reduction="none").sum(-1)
    return total / len(logits) ** 2


def pairs_of_distributions(logits: torch.Tensor) -> torch.Tensor:
    """K by ``torch.distributions.kl_divergence`` of each pair of members."""
    members = [torch.distributions.Categorical(logits=each) for each in logits]
    total = torch.zeros(logits.shape[1])
    for p in members:
        for q in members:
            total += torch.distributions.kl_divergence(p, q)
    return total / len(members) ** 2


def probabilities_as_bayesian_torch(probs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Predictive entropy and mutual information by NumPy, with an epsilon in the logarithm."""
    average = probs.mean(axis=0)
    total = -np.sum(average * np.log(average + 1e-15), axis=-1)
    return total, total - np.mean(-np.sum(probs * np.log(probs + 1e-15), axis=-1), axis=0)


def probabilities_as_torch_uncertainty(probs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Entropy of the average and mutual information by ``torch.distributions``."""
    categorical = torch.distributions.Categorical
    total = categorical(probs=probs.mean(0)).entropy()
    return total, total - categorical(probs=probs).entropy().mean(0)


def brier_as_probly(probs: np.ndarray) -> tuple[np.ndarray, ...]:
    """Total, aleatoric and epistemic Brier uncertainty of the average by NumPy."""
    total = 1 - np.sum(probs.mean(axis=0) ** 2, axis=-1)
    aleatoric = np.mean(1 - np.sum(probs**2, axis=-1), axis=0)
    return total, aleatoric, total - aleatoric


def zero_one_as_probly(probs: np.ndarray) -> tuple[np.ndarray, ...]:
    """The same under the zero-one loss."""
    total = 1 - np.max(probs.mean(axis=0), axis=-1)
    aleatoric = np.mean(1 - np.max(probs, axis=-1), axis=0)
    return total, aleatoric, total - aleatoric


def read_memory(logits: torch.Tensor) -> torch.Tensor:
    """Add all numbers up: nothing that looks at every logit is faster."""
    return logits.sum()
