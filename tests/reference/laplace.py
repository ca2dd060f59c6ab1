"""Slow and obvious Laplace approximations of a linear layer, as dense matrices by NumPy.

Parameters are one vector, class after class, each with its weights and then its bias.
"""

import numpy as np


def softmax(logits):
    p = np.exp(logits - logits.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def output_curvatures(phi, theta, likelihood):
    """The curvature of each input's loss in its outputs, (inputs, outputs, outputs)."""
    outputs = len(theta)
    if likelihood == "regression":
        return np.broadcast_to(np.eye(outputs), (len(phi), outputs, outputs))
    p = softmax(phi @ theta.T)
    return np.array([np.diag(each) - np.outer(each, each) for each in p])


def full_curvature(phi, theta, likelihood="classification"):
    """The sum over inputs of kron(curvature in the outputs, features features^T)."""
    found = output_curvatures(phi, theta, likelihood)
    return sum(np.kron(own, np.outer(x, x)) for own, x in zip(found, phi, strict=True))


def kronecker_curvature(phi, theta, likelihood="classification", *, separate=False):
    """The product of the sum over inputs in the outputs, and the mean over inputs in the features."""
    inner = phi.T @ phi / len(phi)
    if separate:
        inner[-1, :-1] = inner[:-1, -1] = 0
    return np.kron(output_curvatures(phi, theta, likelihood).sum(0), inner)


def log_evidence(curvature, theta, log_likelihood, precision):
    """The Laplace approximation of the log marginal likelihood, by determinants."""
    size = theta.size
    posterior = curvature + precision * np.eye(size)
    log_prior = size / 2 * np.log(precision / (2 * np.pi)) - precision / 2 * (theta**2).sum()
    return log_likelihood + log_prior + size / 2 * np.log(2 * np.pi) - np.linalg.slogdet(posterior)[1] / 2
