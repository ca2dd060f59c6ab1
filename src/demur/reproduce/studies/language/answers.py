"""What scores say about recorded answers: which are wrong, what accuracy is kept, what can be promised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from demur.decompose import decompose
from demur.measures import Measure
from demur.reproduce.records import Records
from demur.reproduce.studies.language.recorded_answers import Choices, SampledAnswers
from demur.tasks import compare, misclassification, selective

ENSEMBLE = {
    "k": "K", "i": "I", "m": "M", "total": "total of K", "entropy": "total of I",
    "aleatoric": "mean entropy", "unsure": "1 - largest probability",
}  # fmt: skip
"""Scores of an ensemble's average answer."""
DEPLOYED = {
    "own_entropy": "its entropy", "own_unsure": "its 1 - largest probability",
    "cross_total": "cross-entropy to all", "cross": "divergence to all", "k": "K of all",
}  # fmt: skip
"""Scores of one model's answer, by itself and by what the others say."""
SAMPLED = {
    "entropy": "entropy of the answers", "distinct": "share of different answers",
    "rest": "1 - share of the most frequent", "others": "share that differ from the one given",
}  # fmt: skip
"""Scores of one sampled answer, from the others to the same question."""


def score_average(log_probs: np.ndarray) -> dict[str, np.ndarray]:
    """Return the scores of an ensemble's average answer to each question.

    Parameters
    ----------
    log_probs
        (members, questions, options).
    """
    pairwise = decompose(log_probs=log_probs)
    average = decompose(log_probs=log_probs, measure="average")
    reverse = decompose(log_probs=log_probs, measure="reverse")
    found = {
        "k": pairwise.epistemic, "i": average.epistemic, "m": reverse.epistemic, "total": pairwise.total,
        "entropy": average.total, "aleatoric": average.aleatoric,
        "unsure": 1 - average_answers(log_probs).max(axis=-1),
    }  # fmt: skip
    return {name: np.asarray(value, float) for name, value in found.items()}


def average_answers(log_probs: np.ndarray) -> np.ndarray:
    """Return the mean probabilities of the members, (questions, options)."""
    return np.exp(log_probs).mean(axis=0)


def score_deployed(log_probs: np.ndarray, model: int) -> dict[str, np.ndarray]:
    """Return the scores of one model's answers: its own, and those of the paper's Eq. 3 with all models.

    The predictor is the deployed model, the truth is each of the models.
    """
    own = np.exp(log_probs[model])
    cross = decompose(log_probs=log_probs, measure=Measure(own, "each"))
    found = {
        "own_entropy": decompose(log_probs=log_probs[model : model + 1]).total,
        "own_unsure": 1 - own.max(axis=-1), "cross_total": cross.total, "cross": cross.epistemic,
        "k": decompose(log_probs=log_probs).epistemic,
    }  # fmt: skip
    return {name: np.asarray(value, float) for name, value in found.items()}


def score_sampled(samples: SampledAnswers) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return scores of the first answer to each question, from the others, and whether it is right."""
    rows = []
    for answers in samples.answers:
        given, others = answers[0], answers[1:]
        shares = np.array([*Counter(others).values()]) / len(others)
        entropy = float(np.asarray(decompose(shares[None]).total))
        differ = np.mean([each != given for each in others])
        rows.append((entropy, len(shares) / len(others), 1 - shares.max(), differ))
    columns = np.array(rows, float).T
    return dict(zip(SAMPLED, columns, strict=True)), samples.right[:, 0]


def judge_scores(
    scores: Mapping[str, np.ndarray], correct: np.ndarray, reference: str
) -> tuple[Records, Records]:
    """Return the figures of each score, and its paired differences from a reference.

    Figures are the AUROC for wrong answers and the mean accuracy over all shares kept. P-values are not yet
    corrected.
    """
    found: Records = []
    differences: Records = []
    for name, values in scores.items():
        area = misclassification(values, correct, interval="asymptotic").auroc
        kept = selective(values, correct, interval="asymptotic").auc
        found.append({
            "score": name, "auroc": area.value, "auroc_low": area.low, "auroc_high": area.high,
            "auc": kept.value, "auc_low": kept.low, "auc_high": kept.high,
        })  # fmt: skip
        if name == reference:
            continue
        for task in ("misclassification", "selective"):
            gap = compare(scores[reference], values, task, correct=correct, interval="asymptotic")
            differences.append({
                "task": task, "first": reference, "second": name, "difference": gap.difference.value,
                "low": gap.difference.low, "high": gap.difference.high, "p_value": gap.p_value,
            })  # fmt: skip
    return found, differences


def list_ensembles(choices: Choices, prompt: str, shots: int) -> dict[str, np.ndarray]:
    """Return the ensembles of recorded options: all models, and the prompts of each model with every one."""
    models, logs = choices.select_models(prompt, shots)
    found = {f"{len(models)} models": logs}
    return found | {f"prompts of {name}": each for name, each in choices.select_prompts().items()}
