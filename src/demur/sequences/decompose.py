"""`decompose` and `attribute` of sequences that are in memory."""

from __future__ import annotations

import numpy as np

from demur.core import arrays
from demur.core.arrays import Array, ArrayLike
from demur.decompose import attribute as attribute_classes
from demur.measures import Measure, MeasureName
from demur.predictions import as_prediction
from demur.sequences.sequence_decomposition import SequenceDecomposition
from demur.sequences.stream import Average, Stream

_NUMBERS_AT_ONCE = 1 << 24


def decompose(
    probs: ArrayLike | None = None,
    /,
    *,
    logits: ArrayLike | None = None,
    log_probs: ArrayLike | None = None,
    tokens: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    average: Average = "step",
    measure: MeasureName | str | Measure = "pairwise",
    weights: ArrayLike | None = None,
    base: float | None = None,
) -> SequenceDecomposition:
    r"""Return the uncertainty of each token and of each sequence.

    Malinin and Gales (2021), "Uncertainty estimation in autoregressive structured prediction". A token is
    scored like any prediction of a class; a sequence is the sum of its tokens, which is one draw of the chain
    rule: averaged over sequences drawn from the members' average, it is the measure of whole sequences,
    exactly so with ``average="sequence"``.

    Parameters
    ----------
    probs, logits, log_probs
        Exactly one of them, (members, inputs, positions, vocabulary). Position l has the distribution of
        token l: shift the logits of a causal language model by one.
    tokens
        The tokens that came, (inputs, positions). They give log-likelihoods, and ``average="sequence"`` needs
        them.
    mask
        True where a position counts, (inputs, positions), with padding on either side; None: everywhere.
    average
        How members are averaged. ``"step"``: alike at every position. ``"sequence"``: by
        :math:`w_m P_m(y_1 \dots y_{l-1})`, how likely a member found the tokens before. The members that play
        the truth keep their weights :math:`w_m`, as in the divergence of whole sequences.
    measure
        ``"pairwise"`` (K), ``"average"`` (I), ``"reverse"`` (M) or ``"bma"``.
    weights
        Shape (members,), or (members, inputs); None: all the same.
    base
        None for nats, 2 for bits.

    Returns
    -------
    SequenceDecomposition
        ``tokens``, ``sequence`` and ``per_token`` are `Decomposition`\ s, and there are log-likelihoods, in
        the library of the predictions and without gradients.

    Examples
    --------
    >>> logits = np.log([[[[0.9, 0.1], [0.5, 0.5]]], [[[0.9, 0.1], [0.1, 0.9]]]])     # two members, one text
    >>> found = demur.sequences.decompose(logits=logits, tokens=[[0, 1]])
    >>> found.tokens.epistemic.round(3)                       # they agree on the first token only
    array([[0.   , 0.22]])
    >>> found.sequence.epistemic.round(3), found.per_token.epistemic.round(3)
    (array([0.22]), array([0.11]))
    >>> found.log_likelihoods.round(3)
    array([[-0.799],
           [-0.211]])
    """
    stream = Stream(average=average, weights=weights)
    stream.update(probs, logits=logits, log_probs=log_probs, tokens=tokens, mask=mask)
    return stream.decompose(measure, base=base)


def attribute(
    probs: ArrayLike | None = None,
    /,
    *,
    logits: ArrayLike | None = None,
    log_probs: ArrayLike | None = None,
    top: int = 5,
    measure: MeasureName | str | Measure = "pairwise",
    weights: ArrayLike | None = None,
    base: float | None = None,
) -> tuple[Array, Array]:
    """Say which tokens of the vocabulary the members disagree about, at each position.

    Members are averaged step by step. Arguments as for ``decompose``.

    Parameters
    ----------
    top
        How many tokens, those with the largest shares first.

    Returns
    -------
    tokens, shares
        Shape (inputs, positions, top): places in the vocabulary, and what each adds to the epistemic part.

    Examples
    --------
    >>> logits = np.log([[[[0.5, 0.4, 0.1]]], [[[0.1, 0.8, 0.1]]]])
    >>> tokens, shares = demur.sequences.attribute(logits=logits, top=2)
    >>> tokens, shares.round(3)
    (array([[[0, 1]]]), array([[[0.161, 0.069]]]))
    """
    prediction = as_prediction(probs, logits, log_probs)
    if len(prediction.shape) != 4:
        raise ValueError(
            "Expected members, inputs, positions and vocabulary, 4 axes. "
            f"Got shape {tuple(prediction.shape)}."
        )
    members, inputs, positions, vocabulary = prediction.shape
    if not isinstance(top, int) or not 1 <= top <= vocabulary:
        raise ValueError(f"top must be from 1 to the size of the vocabulary, {vocabulary}. Got {top!r}.")
    given = None if weights is None else arrays.to_numpy(arrays.as_array(weights))
    step = max(1, _NUMBERS_AT_ONCE // (members * inputs * vocabulary))
    places, shares = [], []
    for begin in range(0, positions, step):
        part = prediction.with_values(prediction.values[:, :, begin : begin + step])
        own = given
        if given is not None and given.ndim == 2:
            own = given[:, :, None].repeat(part.shape[2], axis=2)
        found = arrays.to_numpy(attribute_classes(part, measure=measure, weights=own, base=base))
        chosen = np.argpartition(-found, top - 1, axis=-1)[..., :top]
        largest = np.take_along_axis(found, chosen, axis=-1)
        order = np.argsort(-largest, axis=-1, kind="stable")
        places.append(np.take_along_axis(chosen, order, axis=-1))
        shares.append(np.take_along_axis(largest, order, axis=-1))
    like, double = arrays.sample(prediction.values), arrays.is_double(prediction.values)
    tokens = arrays.matching(np.concatenate(places, axis=1), like)
    return tokens, arrays.like(np.concatenate(shares, axis=1), like, double)
