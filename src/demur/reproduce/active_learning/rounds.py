"""One curve: label what an acquisition asks for, fit again, see how many test images are right."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from demur.decompose import decompose
from demur.reproduce.active_learning.images import Split
from demur.reproduce.active_learning.networks import Posterior, predicted
from demur.reproduce.threads import one_thread
from demur.tasks import acquire, batch_bald

SCORES = {
    "K": ("pairwise", "epistemic"),
    "I": ("average", "epistemic"),
    "M": ("reverse", "epistemic"),
    "total new": ("pairwise", "total"),
    "total current": ("average", "total"),
    "aleatoric": ("pairwise", "aleatoric"),
}
"""Acquisitions by a score of single inputs: which part of which measure."""

ACQUISITIONS = (*SCORES, "random", "BatchBALD")


def first_round(folder: Path, split: Split, posterior: Posterior, seed: int) -> None:
    """Fit to the images that are labelled at first; all acquisitions of a seed go on from here."""
    with one_thread():
        logits, correct = fit_and_predict(split, posterior, split.start, seed, 0)
    np.save(folder / "pool_logits.npy", logits)
    np.save(folder / "correct.npy", correct[None])


def curve(
    folder: Path,
    begin: Path,
    split: Split,
    posterior: Posterior,
    acquisition: str,
    *,
    seed: int,
    rounds: int,
    batch: int,
    configurations: int,
    say: Callable[[int], object] = lambda done: None,
) -> None:
    """Write what an acquisition picked, round by round, and which test images were right after each.

    picked.npy        (rounds, batch): indices into the pool
    correct.npy       (rounds + 1, test images): bool; the first row is before any pick
    information.npy   (rounds, batch), of BatchBALD alone: in nats, of the first pick, the first two, ...
    """
    state = folder / "state.npz"
    if state.exists():
        with np.load(state) as found:
            picked, correct, told = (list(found[name]) for name in ("picked", "correct", "told"))
            logits = found["logits"]
    else:
        picked, told, correct = [], [], list(np.load(begin / "correct.npy"))
        logits = np.load(begin / "pool_logits.npy")
    with one_thread():
        while len(picked) < rounds:
            number = len(picked) + 1
            labelled = np.concatenate([split.start, *picked])
            chosen, information = asked(logits, acquisition, batch, labelled, configurations, [seed, number])
            labelled = np.concatenate([labelled, chosen])
            logits, right = fit_and_predict(split, posterior, labelled, seed, number)
            picked.append(chosen)
            told.append(information)
            correct.append(right)
            keep(state, picked=picked, correct=correct, told=told, logits=logits)
            say(number)
    np.save(folder / "picked.npy", np.stack(picked))
    np.save(folder / "correct.npy", np.stack(correct))
    if acquisition == "BatchBALD":
        np.save(folder / "information.npy", np.stack(told))
    state.unlink()


def fit_and_predict(
    split: Split, posterior: Posterior, labelled: np.ndarray, seed: int, number: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return logits of the pool and which test images are right, of members fitted to the labelled images.

    First weights, batches and masks depend on seed and round and not on the acquisition, so that the
    acquisitions of a seed differ by their images alone.
    """
    members = posterior.fitted(split.pool[labelled], split.labels[labelled], seed_of(seed, number, 0))
    from scipy.special import softmax

    average = softmax(predicted(members, split.test).astype(np.float64), axis=-1).mean(axis=0)
    return predicted(members, split.pool), average.argmax(axis=-1) == split.test_labels


def asked(
    logits: np.ndarray,
    acquisition: str,
    k: int,
    labelled: np.ndarray,
    configurations: int,
    seeds: list[int],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the inputs that an acquisition asks for; of BatchBALD also what they tell, else NaN."""
    seed, nothing = seed_of(*seeds, 1), np.full(k, np.nan)
    exact = logits.astype(np.float64)
    if acquisition == "BatchBALD":
        found = batch_bald(logits=exact, k=k, labelled=labelled, configurations=configurations, seed=seed)
        return found.indices, found.information
    if acquisition == "random":
        return acquire(np.zeros(logits.shape[1]), k, labelled=labelled, seed=seed), nothing
    measure, part = SCORES[acquisition]
    scores = getattr(decompose(logits=exact, measure=measure), part)
    return acquire(scores, k, labelled=labelled, seed=seed), nothing


def seed_of(*numbers: int) -> int:
    """Return a seed of its own for every combination of numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def keep(path: Path, **arrays: Any) -> None:
    """Write arrays to a file, whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        np.savez(file, **arrays)
    os.replace(temporary, path)
