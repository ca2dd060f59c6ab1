"""Figures of merit: how close a method's average is to the reference's, and which inputs its parts doubt."""

from __future__ import annotations

import numpy as np

from demur.reproduce.records import Records
from demur.reproduce.studies.inference.fidelity import compare_averages
from demur.reproduce.studies.inference.predictions import Kept, summarise_members
from demur.tasks import rank_correlation
from demur.tasks.estimate import Estimate, normal_quantile, proportion

REFERENCE, ONE_NETWORK = "hmc", "one-network"
CONFIDENCE = 0.95


def judge_methods(logits: dict[str, np.ndarray], reference: np.ndarray, labels: np.ndarray) -> Records:
    """Return a row for each method and figure: its value, and the ends of its interval over test inputs.

    Parameters
    ----------
    logits
        Of each method, (members, inputs, classes); the first member of ``ensemble`` is judged alone as well.
    reference
        The reference's average prediction, (inputs, classes).
    labels
        The classes, (inputs,).
    """
    found = {REFERENCE: judge_average(reference, labels)}
    for name, given in {ONE_NETWORK: logits["ensemble"][:1], **logits}.items():
        kept = summarise_members(given, None, None)
        found[name] = judge_average(kept["average"], labels) | compare_with_reference(kept, reference)
    return [
        {"method": name, "figure": figure, "value": each.value, "low": each.low, "high": each.high}
        for name, figures in found.items()
        for figure, each in figures.items()
    ]


def judge_average(average: np.ndarray, labels: np.ndarray) -> dict[str, Estimate]:
    """Return the accuracy of an average prediction, its loss, and the entropy of it, in nats."""
    right = average.argmax(axis=1) == labels
    loss = -np.log(average[np.arange(len(labels)), labels])
    return {
        "accuracy": proportion(int(right.sum()), len(right), CONFIDENCE),
        "nll": average_inputs(loss),
        "total": average_inputs(compute_entropy(average)),
    }


def compare_with_reference(kept: Kept, reference: np.ndarray) -> dict[str, Estimate]:
    """Return the figures of a method against the reference, which has an average prediction and no members.

    Returns
    -------
    dict
        - ``agreement``: share of inputs with the same likeliest class.
        - ``tv``: total variation between the averages, mean over inputs.
        - ``total|spearman``: rank correlation of the entropies of both averages.
        - ``k``, ``i``, ``m``: means of the method's own parts.
        - ``PART|gap``: rank correlation of a part, or of the entropy of the average (``total``), with the
          total variation of the input: does it say where the method is far from the reference? Only for
          methods whose members differ.
    """
    gaps, agrees = compare_averages(kept["average"], reference)
    total = compute_entropy(kept["average"])
    found = {
        "agreement": proportion(int(agrees.sum()), len(agrees), CONFIDENCE),
        "tv": average_inputs(gaps),
        "total|spearman": _correlate(total, compute_entropy(reference)),
        "total|gap": _correlate(total, gaps),
    }
    if np.ptp(kept["k"]) > 0:
        for part in ("k", "i", "m"):
            found |= {part: average_inputs(kept[part]), f"{part}|gap": _correlate(kept[part], gaps)}
    return found


def _correlate(first: np.ndarray, second: np.ndarray) -> Estimate:
    return rank_correlation(first, second, confidence=CONFIDENCE)


def average_inputs(values: np.ndarray) -> Estimate:
    """Return a mean over inputs with its normal interval."""
    mean = float(values.mean())
    half = normal_quantile(CONFIDENCE) * float(values.std(ddof=1)) / len(values) ** 0.5
    return Estimate(mean, mean - half, mean + half, CONFIDENCE, "asymptotic")


def compute_entropy(probs: np.ndarray) -> np.ndarray:
    """Return the entropies of distributions over classes, (inputs,), in nats."""
    from scipy.special import entr

    return entr(probs).sum(axis=-1)
