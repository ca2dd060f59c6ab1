"""Slow, obvious versions of the measures of sequences: plain loops, and sums over every possible sequence."""

from __future__ import annotations

import itertools

import numpy as np


def kl(p: np.ndarray, q: np.ndarray) -> float:
    """KL divergence by its definition."""
    return sum(
        float(a) * (np.log(a) - np.log(b)) if b > 0 else np.inf for a, b in zip(p, q, strict=True) if a > 0
    )


def entropy(p: np.ndarray) -> float:
    return -sum(float(a) * np.log(a) for a in p if a > 0)


def step_parts(members: np.ndarray, predictor: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Parts of one step: predictors weighted by one set of weights, truths by another, in double loops."""
    mean = np.einsum("m,mv->v", predictor, members)
    count = range(len(members))
    k = sum(
        predictor[i] * truth[j] * kl(members[i], members[j])
        for i in count
        for j in count
        if predictor[i] * truth[j]
    )
    return {
        "entropy": sum(predictor[i] * entropy(members[i]) for i in count),
        "K": k,
        "I": sum(predictor[i] * kl(members[i], mean) for i in count if predictor[i]),
        "M": sum(truth[j] * kl(mean, members[j]) for j in count if truth[j]),
    }


def parts_along(
    probs: np.ndarray, tokens: np.ndarray, mask: np.ndarray, weights: np.ndarray, average: str
) -> dict:
    """Sums of parts along one sequence: (members, positions, vocabulary), (positions,), (positions,)."""
    totals = dict.fromkeys(("entropy", "K", "I", "M"), 0.0)
    prefix = weights / weights.sum()
    for position in np.flatnonzero(mask):
        own = probs[:, position]
        now = prefix / prefix.sum() if average == "sequence" else weights / weights.sum()
        for name, value in step_parts(own, now, weights / weights.sum()).items():
            totals[name] += value
        prefix = prefix * own[:, tokens[position]]
    return totals


class Chain:
    """Members that are random autoregressive models: a distribution for every prefix."""

    def __init__(self, members: int, vocabulary: int, length: int, seed: int, scale: float = 1.0) -> None:
        rng = np.random.default_rng(seed)
        self.vocabulary, self.length = vocabulary, length
        self.table = {}
        for size in range(length):
            for prefix in itertools.product(range(vocabulary), repeat=size):
                raw = np.exp(scale * rng.normal(size=(members, vocabulary)))
                self.table[prefix] = raw / raw.sum(axis=-1, keepdims=True)

    def sequences(self) -> list[tuple[int, ...]]:
        return list(itertools.product(range(self.vocabulary), repeat=self.length))

    def along(self, sequence: tuple[int, ...]) -> np.ndarray:
        """The distributions met along a sequence, (members, positions, vocabulary)."""
        return np.stack([self.table[sequence[:size]] for size in range(self.length)], axis=1)

    def joint(self) -> np.ndarray:
        """The probability of every sequence under each member, (members, sequences)."""
        steps = range(self.length)
        columns = [np.prod([self.table[s[:i]][:, s[i]] for i in steps], axis=0) for s in self.sequences()]
        return np.stack(columns, axis=1)
