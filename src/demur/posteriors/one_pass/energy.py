"""`Energy`: the free energy of a network's logits."""

from __future__ import annotations

import math
from typing import Any

from demur.posteriors import networks
from demur.posteriors.one_pass.logit_detector import LogitDetector


class Energy(LogitDetector):
    r"""Free energy of the logits.

    Liu, Wang, Owens and Li (2020), "Energy-based out-of-distribution detection", Eq. 4: for logits f and
    temperature T,

    .. math:: E = -T \log \sum_y \exp(f_y / T).

    Their score for known inputs is -E; here, as everywhere, higher means less certain. Scores may be
    negative. A constant added to all logits of an input moves this score but not the prediction: it says
    something only if training has tied that constant down.

    Parameters
    ----------
    model, forward
        The network, and how it is called where ``model(inputs)`` does not do.
    temperature
        T, 1 in the paper.

    Examples
    --------
    >>> import torch
    >>> from demur.posteriors.one_pass import Energy
    >>> Energy(torch.nn.Identity()).score([np.zeros((1, 4))]).round(3)     # -log 4
    array([-1.386])
    """

    name = "energy"

    def __init__(
        self, model: Any, *, temperature: float = 1.0, forward: networks.Forward | None = None
    ) -> None:
        super().__init__(model, forward=forward)
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature must be positive and finite. Got {temperature!r}.")
        self.temperature = temperature

    def score_logits(self, logits: Any) -> Any:
        import torch

        return -self.temperature * torch.logsumexp(logits / self.temperature, 1)
