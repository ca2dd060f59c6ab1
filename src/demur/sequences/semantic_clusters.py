"""`semantic_entropy`: the entropy of meaning, from answers that are sorted into clusters of one meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logsumexp

from demur.core import arrays
from demur.core.arrays import ArrayLike
from demur.decompose import decompose
from demur.measures import Decomposition
from demur.predictions.answers import as_answers


def semantic_entropy(
    clusters: Any,
    *,
    log_likelihoods: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    base: float | None = None,
) -> Decomposition:
    r"""Return the entropy of meaning of sampled answers, and what members disagree about of it.

    Answers that say the same are in one cluster, which some model of entailment, a person or a rule has
    decided. With :math:`p_m(c)` the share of cluster c among the answers of member m,

    .. math:: \mathrm{total} = H\Big(\sum_m w_m p_m\Big), \quad
              \mathrm{aleatoric} = \sum_m w_m H(p_m), \quad I = \mathrm{total - aleatoric}.

    For one model, ``clusters[None]``, the total is the semantic entropy of Farquhar et al. (2024), in its
    discrete form; there is no disagreement.

    Parameters
    ----------
    clusters
        Which cluster each answer is in, (members, draws, ...): numbers or text, that mean the same for all
        members of an input.
    log_likelihoods
        Log-probability of each answer under the member that drew it, of the same shape. Clusters then have
        the probability of their answers together, normalised over the answers of a member: the other form
        of Farquhar et al. (2024). An answer that was drawn twice counts twice, as in their code.
    lengths
        Tokens of each answer, of the same shape: log-likelihoods are divided by them, as they and Kuhn et al.
        (2023) do, so that long answers are not unlikely for their length alone.
    mask
        True where there is an answer, of the same shape; None: everywhere.
    weights
        Of members, (members,) or (members, inputs); None: all the same.
    base
        None for nats, 2 for bits.

    Returns
    -------
    Decomposition
        0 where all answers mean the same. Entropies of few draws are too small on average: by about
        ``(clusters - 1) / (2 draws)`` nats in the discrete form (Miller, 1955), and I is too large as long
        as members have few draws.

    Notes
    -----
    S. Farquhar, J. Kossen, L. Kuhn and Y. Gal (2024), "Detecting hallucinations in large language models
    using semantic entropy", Nature 630. L. Kuhn, Y. Gal and S. Farquhar (2023), "Semantic uncertainty", ICLR;
    their estimate is instead the mean of :math:`-\log p(c)` over clusters. K and M of shares are infinite as
    soon as one member has an answer that another has not; take ``Draws`` with a kernel.

    Examples
    --------
    Five answers of one model to two questions, (members, draws, questions):

    >>> clusters = np.array([[[0, 0], [0, 1], [0, 2], [1, 1], [0, 3]]])
    >>> demur.sequences.semantic_entropy(clusters).total.round(3)
    array([0.5  , 1.332])

    Two models that answer alike among themselves, and contradict each other on the second question:

    >>> u = demur.sequences.semantic_entropy([[["a", "x"], ["a", "x"]], [["a", "y"], ["a", "y"]]])
    >>> u.total.round(3), u.epistemic.round(3)
    (array([0.   , 0.693]), array([0.   , 0.693]))
    """
    labels = as_answers("clusters", clusters)
    if labels.ndim < 2 or 0 in labels.shape:
        raise ValueError(
            "clusters must have members and draws, shape (members, draws, ...), none of them empty. Got "
            f"{labels.shape}. For one model add a members axis: clusters[None]."
        )
    kept = np.ones(labels.shape, bool) if mask is None else _read("mask", mask, labels.shape).astype(bool)
    if not kept.any(axis=1).all():
        place = [int(i) for i in np.argwhere(~kept.any(axis=1))[0]]
        raise ValueError(
            f"mask must keep an answer of each member. Got none at {place}. Leave this input out."
        )
    codes, size = _number_clusters(labels, kept)
    logs = np.where(kept, _read_log_likelihoods(log_likelihoods, lengths, kept), -np.inf)
    shares = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
    probs = np.stack([np.where(codes == c, shares, 0.0).sum(axis=1) for c in range(size)], axis=-1)
    return decompose(probs, measure="average", weights=weights, base=base)


def _number_clusters(labels: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the clusters of each input as numbers from 0, and how many there are at most."""
    flat, seen = labels.reshape(*labels.shape[:2], -1), kept.reshape(*labels.shape[:2], -1)
    codes = np.full(flat.shape, -1)
    size = 2  # one class alone would look like a probability of yes
    for place in range(flat.shape[2]):
        numbers: dict[Any, int] = {}
        for index in np.argwhere(seen[..., place]).tolist():
            label = flat[*index, place]
            if label is None or label != label:
                raise ValueError(
                    f"clusters must name the cluster of each answer. Got {label!r} at {[*index, place]}, "
                    "members, draws and inputs. Leave out what is no answer: mask=."
                )
            codes[*index, place] = numbers.setdefault(label, len(numbers))
        size = max(size, len(numbers))
    return codes.reshape(labels.shape), size


def _read(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array; raise unless it has that shape."""
    found = arrays.to_numpy(arrays.as_array(value))
    if found.shape != shape or found.dtype.kind not in "fiub":
        raise ValueError(
            f"{name} must be numbers of the shape of clusters, {shape}. Got {found.dtype} of shape "
            f"{found.shape}."
        )
    return found


def _read_log_likelihoods(value: Any, lengths: Any, kept: np.ndarray) -> np.ndarray:
    """Return what each answer counts, as a logarithm: the same for all where nothing is given."""
    if value is None:
        if lengths is not None:
            raise ValueError("lengths go with log_likelihoods. Got lengths alone. Leave them out.")
        return np.zeros(kept.shape)
    logs = _read("log_likelihoods", value, kept.shape).astype(np.float64)
    wrong = kept & ~((logs <= 1e-6) & np.isfinite(logs))
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"log_likelihoods must be finite and at most 0, of answers that were drawn. Got {logs[place]} at "
            f"{list(place)}."
        )
    if lengths is None:
        return logs
    tokens = _read("lengths", lengths, kept.shape).astype(np.float64)
    if not (tokens[kept] > 0).all():
        raise ValueError("lengths must be positive, tokens of each answer.")
    return logs / np.where(kept, tokens, 1.0)
