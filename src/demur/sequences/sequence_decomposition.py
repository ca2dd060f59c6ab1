"""`SequenceDecomposition`: the uncertainty of each token, of each sequence, and per token of a sequence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from demur.core import arrays
from demur.core.arrays import Array
from demur.measures import Decomposition


@dataclass(frozen=True, eq=False)
class SequenceDecomposition:
    """Total, aleatoric and epistemic uncertainty of tokens and of the sequences that they make.

    Attributes
    ----------
    tokens
        A `Decomposition` of shape (inputs, positions); 0 where the mask leaves a position out.
    sequence
        The sums over positions, (inputs,).
    per_token
        ``sequence`` divided by the number of tokens, (inputs,): for texts of different lengths.
    lengths
        How many positions of each input count, (inputs,).
    mask
        Which ones, (inputs, positions).
    log_likelihoods
        Log-probability of the tokens of each input under each member, (members, inputs); None without tokens.
    token_log_likelihoods
        The same token by token, (members, inputs, positions); 0 where the mask leaves a position out.
    log_likelihood
        Log-probability of each input's tokens under the average of the members, (inputs,).
    average
        ``"step"`` or ``"sequence"``: how members were averaged.
    """

    tokens: Decomposition
    sequence: Decomposition
    per_token: Decomposition
    lengths: np.ndarray
    mask: np.ndarray
    log_likelihoods: Array | None
    token_log_likelihoods: Array | None
    log_likelihood: Array | None
    average: str

    @property
    def perplexity(self) -> Array:
        """``exp(-log_likelihood / lengths)``: the usual baseline, which needs no second member."""
        if self.log_likelihood is None:
            raise ValueError("perplexity needs the tokens that came. Got none: pass tokens=.")
        xp = arrays.namespace(self.log_likelihood)
        return xp.exp(-self.log_likelihood / arrays.matching(self.lengths, self.log_likelihood))

    def __repr__(self) -> str:
        inputs, positions = self.mask.shape
        return (
            f"SequenceDecomposition({inputs} inputs, {int(self.lengths.sum())} tokens in {positions} "
            f"positions, average={self.average!r})\nper token: {self.per_token!r}"
        )
