"""The pass over the data in which curvature is added up; after an interruption, it resumes from a file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from demur.posteriors import networks
from demur.posteriors.fit_files import FitFile
from demur.progress import progress_bar
from demur.scoring.batches import iterate_batches, preserve_generators

MARKS = "marks of batches"
"""The entry of a file by which the batches are recognised."""


class Sums(Protocol):
    """Tensors that batches are added to, in order."""

    state: dict[str, Any]

    def add(self, inputs: Any, targets: np.ndarray | None) -> None:
        """Add a batch."""
        ...


def accumulate(
    sums: Sums,
    loader: Iterable[Any],
    file: FitFile,
    before: dict[str, Any],
    finished: bool,
    *,
    progress: bool,
) -> Any:
    """Add the batches of a loader, and return marks that recognise them.

    Parameters
    ----------
    sums
        Added to in place.
    loader
        As for ``demur.score``, without shuffling.
    file
        Where the sums are written from time to time.
    before, finished
        What an earlier run left in the file. If it was finished, the batches are only compared.
    progress
        Show a progress bar.
    """
    import torch

    known: list[int] = before[MARKS].tolist() if before else []
    if before and not finished:
        for name, value in sums.state.items():
            value.copy_(before[name])
    try:
        total = len(loader)  # pyright: ignore[reportArgumentType]
    except TypeError:
        total = None
    marks: list[int] = []
    bar = progress_bar(total, "batches", hidden=not progress)
    with networks.preserve_random_state(), preserve_generators(loader), bar as show:
        for index, batch in enumerate(iterate_batches(loader, label_axes=2)):
            marks.append(batch.full_mark)
            if marks[: len(known)] != known[: len(marks)] or (finished and index == len(known)):
                raise ValueError(
                    "path: expected the inputs whose curvature it holds. Got others at input "
                    f"{batch.position}. Switch off shuffling and random augmentation, or remove the file."
                )
            if index >= len(known):
                sums.add(batch.inputs, batch.labels)
                if file.due():
                    file.write({**sums.state, MARKS: torch.tensor(marks)}, finished=False)
            show(index + 1)
    if len(marks) < len(known):
        raise ValueError(
            f"path: expected {len(known)} batches, whose curvature it holds. Got {len(marks)}. "
            "Remove the file."
        )
    return torch.tensor(marks)
