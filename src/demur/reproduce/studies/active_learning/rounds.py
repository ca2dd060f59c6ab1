"""One curve: label what an acquisition asks for, fit again, and test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from demur.atomic import open_file
from demur.decompose import decompose
from demur.reading import open_regular, read_arrays
from demur.reproduce.networks.threads import use_one_thread
from demur.reproduce.studies.active_learning.networks import MemberRecipe, predict_logits
from demur.reproduce.studies.active_learning.pools import InputPool
from demur.tasks import acquire, batch_bald

SCORES = {
    "K": ("pairwise", "epistemic"),
    "I": ("average", "epistemic"),
    "M": ("reverse", "epistemic"),
    "total new": ("pairwise", "total"),
    "total current": ("average", "total"),
    "aleatoric": ("pairwise", "aleatoric"),
}
"""Acquisitions by a score of single inputs: the measure and the part of it."""

ACQUISITIONS = (*SCORES, "random", "BatchBALD")


def run_first_round(folder: Path, pool: InputPool, posterior: MemberRecipe, seed: int) -> None:
    """Fit to the images that are labelled at the start; all acquisitions of a seed continue from here."""
    with use_one_thread():
        logits, correct = fit_and_predict(pool, posterior, pool.start, seed, 0)
    np.save(folder / "pool_logits.npy", logits)
    np.save(folder / "correct.npy", correct[None])


def run_curve(
    folder: Path,
    begin: Path,
    pool: InputPool,
    posterior: MemberRecipe,
    acquisition: str,
    *,
    seed: int,
    rounds: int,
    batch: int,
    configurations: int,
    say: Callable[[int], object] = lambda done: None,
) -> None:
    """Write what an acquisition picked in each round, and which test images were correct after it.

    picked.npy        (rounds, batch): indices into the pool
    correct.npy       (rounds + 1, test images): bool; the first row is before any pick
    information.npy   (rounds, batch), only for BatchBALD: in nats, of the first pick, the first two, ...
    """
    state = folder / "state.npz"
    if state.exists():
        found = _read_state(state)
        picked, correct, information = (list(found[name]) for name in ("picked", "correct", "information"))
        logits = found["logits"]
    else:
        picked, information, correct = [], [], list(np.load(begin / "correct.npy"))
        logits = np.load(begin / "pool_logits.npy")
    with use_one_thread():
        while len(picked) < rounds:
            number = len(picked) + 1
            labelled = np.concatenate([pool.start, *picked])
            chosen, gained = choose_inputs(
                logits, acquisition, batch, labelled, configurations, [seed, number]
            )
            labelled = np.concatenate([labelled, chosen])
            logits, right = fit_and_predict(pool, posterior, labelled, seed, number)
            picked.append(chosen)
            information.append(gained)
            correct.append(right)
            _save_state(state, picked=picked, correct=correct, information=information, logits=logits)
            say(number)
    np.save(folder / "picked.npy", np.stack(picked))
    np.save(folder / "correct.npy", np.stack(correct))
    if acquisition == "BatchBALD":
        np.save(folder / "information.npy", np.stack(information))
    state.unlink()


def fit_and_predict(
    pool: InputPool, posterior: MemberRecipe, labelled: np.ndarray, seed: int, number: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits of the pool, and which test images are correct, of members fitted to labelled images.

    Initial weights, batches and masks depend on seed and round and not on the acquisition, so that the
    acquisitions of a seed differ only by their images.
    """
    members = posterior.fit(pool.images[labelled], pool.labels[labelled], combine_seeds(seed, number, 0))
    from scipy.special import softmax

    average = softmax(predict_logits(members, pool.test).astype(np.float64), axis=-1).mean(axis=0)
    return predict_logits(members, pool.images), average.argmax(axis=-1) == pool.test_labels


def choose_inputs(
    logits: np.ndarray,
    acquisition: str,
    k: int,
    labelled: np.ndarray,
    configurations: int,
    seeds: list[int],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the inputs that an acquisition asks for, with their information for BatchBALD, otherwise NaN."""
    seed, nothing = combine_seeds(*seeds, 1), np.full(k, np.nan)
    exact = logits.astype(np.float64)
    if acquisition == "BatchBALD":
        found = batch_bald(logits=exact, k=k, labelled=labelled, configurations=configurations, seed=seed)
        return found.indices, found.information
    if acquisition == "random":
        return acquire(np.zeros(logits.shape[1]), k, labelled=labelled, seed=seed), nothing
    measure, part = SCORES[acquisition]
    scores = getattr(decompose(logits=exact, measure=measure), part)
    return acquire(scores, k, labelled=labelled, seed=seed), nothing


def combine_seeds(*numbers: int) -> int:
    """Return a different seed for every combination of numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def _read_state(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an interrupted run."""
    try:
        with open_regular(path) as file:
            found = read_arrays(file)
        if set(found) != {"picked", "correct", "information", "logits"}:
            raise ValueError(f"the arrays {', '.join(found)}")
    except ValueError as error:
        raise ValueError(f"{path}: expected the rounds so far, got {error}: remove it") from error
    return found


def _save_state(path: Path, **arrays: Any) -> None:
    """Write arrays to a file."""
    with open_file(path) as file:
        np.savez(file, **arrays)
