"""`SoftmaxEntropy`: the entropy of one network's prediction."""

from __future__ import annotations

from typing import Any

import numpy as np

from demur.measures import Measure
from demur.moments import Moments
from demur.posteriors.one_pass.logit_detector import LogitDetector


class SoftmaxEntropy(LogitDetector):
    """Entropy of one network's prediction, in nats: 0 where it is certain.

    Mukhoti et al. (2023) take it as the aleatoric part beside `FeatureDensity`, for inputs like those of
    training: far from them it means nothing.

    Parameters
    ----------
    model, forward
        The network, and how it is called where ``model(inputs)`` does not do.

    Examples
    --------
    >>> import torch
    >>> from demur.posteriors.one_pass import SoftmaxEntropy
    >>> SoftmaxEntropy(torch.nn.Identity()).score([np.zeros((1, 2))]).round(4)
    array([0.6931])
    """

    name = "softmax_entropy"

    def score_logits(self, logits: Any) -> np.ndarray:
        moments = Moments()
        moments.update(logits=logits.numpy())
        return np.asarray(moments.decompose(Measure("each", "each")).aleatoric)
