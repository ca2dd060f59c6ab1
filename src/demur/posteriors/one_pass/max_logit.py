"""`MaxLogit`: the largest logit, negated."""

from __future__ import annotations

from typing import Any

from demur.posteriors.one_pass.logit_detector import LogitDetector


class MaxLogit(LogitDetector):
    """The largest logit, negated.

    Hendrycks, Basart, Mazeika, Zou, Kwon, Mostajabi, Steinhardt and Song (2022), "Scaling out-of-distribution
    detection for real-world settings". Scores may be negative. As for `Energy`, a constant added
    to all logits moves it.

    Parameters
    ----------
    model, forward
        The network, and how it is called where ``model(inputs)`` does not do.

    Examples
    --------
    >>> import torch
    >>> from demur.posteriors.one_pass import MaxLogit
    >>> MaxLogit(torch.nn.Identity()).score([np.array([[1.0, 3.0], [0.5, 0.0]])])
    array([-3. , -0.5])
    """

    name = "max_logit"

    def score_logits(self, logits: Any) -> Any:
        return -logits.max(1).values
