"""Joint mutual information of labels and member, by listing every combination of labels."""

import itertools
import math

import numpy as np


def joint_information(probs, inputs, weights=None):
    """I(labels of the inputs; member) in nats: the entropy of the joint less the mean of the conditional."""
    members, _, classes = probs.shape
    weights = np.ones(members) if weights is None else np.asarray(weights, float)
    weights = weights / weights.sum()
    joint, conditional = 0.0, 0.0
    for labels in itertools.product(range(classes), repeat=len(inputs)):
        each = [
            math.prod(probs[m, x, y] for x, y in zip(inputs, labels, strict=True)) for m in range(members)
        ]
        mean = sum(w * p for w, p in zip(weights, each, strict=True))
        joint -= mean * math.log(mean) if mean > 0 else 0.0
        conditional -= sum(w * p * math.log(p) for w, p in zip(weights, each, strict=True) if p > 0)
    return joint - conditional


def greedy(probs, k, weights=None):
    """The batch that grows by the input that leaves the joint information largest, and that information."""
    picked, told = [], []
    for _ in range(k):
        values = {
            x: joint_information(probs, [*picked, x], weights)
            for x in range(probs.shape[1])
            if x not in picked
        }
        picked.append(max(values, key=values.__getitem__))
        told.append(values[picked[-1]])
    return picked, told
