"""How far members' logits spread: knowing the average spread makes scores from few members steadier."""

from __future__ import annotations

from typing import Any

import numpy as np

from demur.core import arrays


class LogitSpread:
    """The spread of the members drawn so far about the deployed model, against the known average spread.

    With the deployed model's logits ``z`` and probabilities ``p``, a member's spread is the variance of
    ``z_k - z`` over classes drawn from ``p``. To second order in these differences K is its average over
    members, and I and M are half of it. Where the posterior knows that average, an epistemic part estimated
    from some members is multiplied by the known average over theirs (a ratio estimator: Cochran, "Sampling
    techniques", 1977, chapter 6). This removes the noise that the spread explains.

    Parameters
    ----------
    logits
        The deployed model's, (inputs, classes).
    expected
        The average spread over all members that could be drawn, (inputs,).
    groups
        Groups of members: member k goes to group k mod groups, as in ``Moments``.
    """

    def __init__(self, logits: Any, expected: np.ndarray, groups: int) -> None:
        self.logits = arrays.to_numpy(logits).astype(float)
        self.top, self.rest = _split_likeliest(self.logits)
        self.expected = expected
        self.sums = np.zeros((groups, len(expected)))
        self.counts = np.zeros((groups, len(expected)))

    def update(self, logits: np.ndarray, first: int, rows: np.ndarray) -> None:
        """Add the logits of members, the first of which is number ``first``, for these inputs."""
        found = _compute_spreads(logits.astype(float) - self.logits[rows], self.top[rows], self.rest[rows])
        groups = (first + np.arange(len(found))) % len(self.sums)
        np.add.at(self.sums, (groups[:, None], rows), found)
        np.add.at(self.counts, (groups[:, None], rows), 1.0)

    def factors(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return known over estimated average spread, (inputs,), and the same without each group in turn."""
        sums, counts = self.sums[:, rows], self.counts[:, rows]
        totals, members = sums.sum(0), counts.sum(0)
        return (
            _divide_spreads(self.expected[rows], totals, members),
            _divide_spreads(self.expected[rows], totals - sums, members - counts),
        )


def _divide_spreads(expected: np.ndarray, sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return ``expected / (sums / counts)``; 1 where the spread is 0 or not finite."""
    usable = (sums > 0) & (expected > 0) & np.isfinite(sums)
    return np.where(usable, expected * counts / np.where(usable, sums, 1.0), 1.0)


def _split_likeliest(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the likeliest class of each input, and the probabilities of all others.

    Where one class has nearly all of the probability, the variance is of the order of the remainder.
    Differences are therefore taken from that class, which then has no term.
    """
    top = logits.argmax(-1)
    p = np.exp(logits - np.take_along_axis(logits, top[:, None], -1))
    p /= p.sum(-1, keepdims=True)
    np.put_along_axis(p, top[:, None], 0.0, -1)
    return top, p


def _compute_spreads(differences: np.ndarray, top: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Return the variance of differences of logits over classes, (members, inputs)."""
    place = np.broadcast_to(top[:, None], (len(differences), len(top), 1))
    differences = differences - np.take_along_axis(differences, place, -1)
    mean = np.einsum("mic,ic->mi", differences, rest)
    return np.einsum("mic,mic,ic->mi", differences, differences, rest) - mean**2


def compute_dropout_spread(features: Any, weight: Any, logits: Any, rate: float) -> np.ndarray:
    """Return the average spread of a last layer with dropout of its input at this rate, (inputs,).

    A feature's factor, 0 or 1 / (1 - rate), has mean 1 and variance rate / (1 - rate), and features are
    dropped independently: the average is ``rate / (1 - rate) sum_f x_f**2 Var_p(W_f)``.
    """
    import torch

    with torch.no_grad():
        top, rest = (
            torch.from_numpy(each) for each in _split_likeliest(arrays.to_numpy(logits).astype(float))
        )
        rest, own = rest.to(weight), weight[top.to(weight.device)]
        mean, left = rest @ weight, rest.sum(-1, keepdim=True)
        # The mean and the mean square of the distance from the likeliest class.
        first, second = mean - own * left, rest @ weight**2 - 2 * own * mean + own**2 * left
        found = (features.to(weight) ** 2 * (second - first**2)).sum(-1) * (rate / (1 - rate))
    return arrays.to_numpy(found).astype(float)
