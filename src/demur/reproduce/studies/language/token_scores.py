"""The scores of every token of a set of texts, by an ensemble of language models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from demur.reproduce.networks.threads import use_one_thread
from demur.sequences import LanguageModels
from demur.sequences.model_folders import load_model, load_tokenizer
from demur.sequences.sequence_decomposition import SequenceDecomposition
from demur.sequences.stream import Average

AVERAGES: tuple[Average, ...] = ("step", "sequence")
"""Both ways to average members: alike at each step, or by how likely they found the tokens before."""
SCORES = {
    "k": "K", "i": "I", "m": "M", "total": "total of K", "entropy": "total of I",
    "nll": "surprise",
}  # fmt: skip
"""Scores of an ensemble with either average; the last one is how unlikely the token that came was."""
ALONE = {"entropy": "entropy, one model", "nll": "surprise, one model"}
"""Scores of the first member, which need no other."""
_BATCH = 32
Decompose = Callable[..., SequenceDecomposition]


def score_texts(
    folders: Sequence[Path], templates: Sequence[str], texts: list[str], positions: int
) -> dict[str, np.ndarray]:
    """Return the scores of the first tokens of texts, each (texts, positions), by average and name.

    ``alone|NAME`` are those of the first member. What a sum over the first tokens of a text says depends on
    these tokens alone, so that every prefix has its scores, too.
    """
    found: dict[str, np.ndarray] = {}
    models, tokenizer = [load_model(each) for each in folders], load_tokenizer(folders[0])
    with use_one_thread():
        for average in AVERAGES:
            members = LanguageModels(models, tokenizer, templates=templates or None, average=average)
            scored = members.score(texts, batch_size=_BATCH).decompose
            shortest = int(scored("pairwise").lengths.min())
            if shortest < positions:
                raise ValueError(
                    f"texts: expected at least {positions} tokens in each, got {shortest}: raise characters, "
                    "or lower prefixes in the configuration"
                )
            found |= collect_figures(scored, average)[0]
        first = LanguageModels(models[:1], tokenizer, templates=templates[:1] or None)
        found |= collect_alone(first.score(texts, batch_size=_BATCH).decompose)
    return {name: values[:, :positions] for name, values in found.items()}


def collect_figures(decompose: Decompose, average: Average) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the scores of tokens by average and name, and each member's log-probabilities of the tokens.

    ``decompose`` is that of scored texts, or of a `Stream` with this average.
    """
    parts = {each: decompose(each) for each in ("pairwise", "average", "reverse")}
    logs = np.asarray(parts["pairwise"].token_log_likelihoods, float)
    figures = {
        "k": parts["pairwise"].tokens.epistemic, "i": parts["average"].tokens.epistemic,
        "m": parts["reverse"].tokens.epistemic, "total": parts["pairwise"].tokens.total,
        "entropy": parts["average"].tokens.total, "nll": measure_surprise(logs, average),
    }  # fmt: skip
    return {f"{average}|{name}": np.asarray(value, float) for name, value in figures.items()}, logs


def collect_alone(decompose: Decompose) -> dict[str, np.ndarray]:
    """Return the scores of tokens by a single member."""
    alone = decompose("average")
    found = {"alone|entropy": alone.tokens.total, "alone|nll": -np.asarray(alone.token_log_likelihoods)[0]}
    return {name: np.asarray(value, float) for name, value in found.items()}


def measure_surprise(logs: np.ndarray, average: Average) -> np.ndarray:
    """Return minus the log-probability of each token under the average, (texts, positions).

    Parameters
    ----------
    logs
        Log-probability of each token under each member, (members, texts, positions).
    average
        ``"step"``: the mean of the members' probabilities; ``"sequence"``: weighted by how likely each of
        them found the tokens before, so that the sum over a text is minus the log of the mean likelihood.
    """
    from scipy.special import logsumexp

    if average == "step":
        return np.log(len(logs)) - np.asarray(logsumexp(logs, axis=0))
    whole = np.asarray(logsumexp(np.cumsum(logs, axis=-1), axis=0)) - np.log(len(logs))
    return -np.diff(whole, axis=-1, prepend=0.0)


def name_score(key: str) -> str:
    """Return what a score is called.

    Examples
    --------
    >>> name_score("step|k"), name_score("sequence|k"), name_score("alone|nll")
    ('K', 'K by sequence', 'surprise, one model')
    """
    average, _, name = key.partition("|")
    if average == "alone":
        return ALONE[name]
    return SCORES[name] + (" by sequence" if average == "sequence" else "")


def average_prefix(scores: Mapping[str, np.ndarray], length: int) -> dict[str, np.ndarray]:
    """Return the mean of each score over the first tokens of each text, (texts,)."""
    return {name: values[:, :length].mean(axis=1) for name, values in scores.items()}
