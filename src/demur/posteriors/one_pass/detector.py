"""`Detector`, the base class of scores from one pass: a column for each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from demur.core import arrays
from demur.posteriors import networks
from demur.posteriors.fingerprint import fingerprint
from demur.progress import progress_bar
from demur.scoring.batch_parts import Unpack
from demur.scoring.batches import iterate_batches, preserve_generators

_RESERVED = ("input", "id", "label", "deployed", "prediction", "members", "status", "task")
_PARTS = ("total", "aleatoric", "epistemic")


class Detector(ABC):
    """One number for each input, higher where the prediction is less certain: a column of `Scores`.

    To write your own, set ``name`` and define ``score_batch``. ``demur.score(..., columns=[detector])``
    computes the column in the same pass as the measures; ``score`` computes it alone.

    Attributes
    ----------
    name
        The name of the column.
    """

    name: str

    @abstractmethod
    def score_batch(self, batch: Any) -> Any:
        """Return the scores of a batch of inputs, (inputs,)."""

    def score(
        self, loader: Iterable[Any], *, unpack: Unpack | None = None, progress: bool = True
    ) -> np.ndarray:
        """Return the scores of a data set, (inputs,), in float64.

        ``scores.with_column(detector.name, detector.score(loader))`` adds them to other scores of the same
        inputs. ``loader`` and ``unpack`` are as for ``demur.score``.
        """
        try:
            total = len(loader)  # pyright: ignore[reportArgumentType]
        except TypeError:
            total = None
        parts = []
        bar = progress_bar(total, "batches", hidden=not progress)
        with networks.preserve_random_state(), preserve_generators(loader), bar as show:
            for done, batch in enumerate(iterate_batches(loader, unpack=unpack, label_axes=2), 1):
                parts.append(check_column(self, self.score_batch(batch.inputs), batch.size, batch.position))
                show(done)
        return np.concatenate(parts)

    def fingerprint(self) -> str:
        """Return a text that changes with any attribute whose name has no leading underscore.

        An interrupted run resumes only where it is unchanged.
        """
        return fingerprint({name: each for name, each in vars(self).items() if not name.startswith("_")})


def check_detectors(given: Any, measures: Sequence[str]) -> tuple[Detector, ...]:
    """Return detectors; raise unless each has a name that no other column has."""
    found: tuple[Any, ...] = (given,) if isinstance(given, str | Detector) else tuple(given)
    for each in found:
        if not isinstance(each, Detector):
            raise TypeError(
                "columns must be a list of detectors of demur.posteriors.one_pass. "
                f"Got {type(each).__name__} in it. Wrap those of pytorch-ood: one_pass.OutlierScore(...)."
            )
    names = [each.name for each in found]
    parts = {f"{m}_{part}{end}" for m in measures for part in _PARTS for end in ("", "_stderr")}
    for k, name in enumerate(names):
        if name in names[:k] or name in _RESERVED or name in parts:
            raise ValueError(
                f"columns must have names of their own. Got {name!r} twice. Set the name of one: "
                "detector.name = '...'."
            )
    return found


def score_columns(
    detectors: Iterable[Detector], batch: Any, size: int, position: int
) -> dict[str, np.ndarray]:
    """Return the columns of several detectors for one batch."""
    return {each.name: check_column(each, each.score_batch(batch), size, position) for each in detectors}


def check_column(detector: Detector, values: Any, size: int, position: int) -> np.ndarray:
    """Return the scores of a batch as float64; raise unless there is a number for each input."""
    found = np.asarray(arrays.to_numpy(values))
    if found.shape != (size,) or found.dtype.kind not in "fiu":
        raise ValueError(
            f"{detector.name}: expected a number for each of {size} inputs. Got {found.dtype} of shape "
            f"{found.shape}."
        )
    found = found.astype(np.float64)
    if np.isnan(found).any():
        first = position + int(np.isnan(found).argmax())
        raise ValueError(
            f"{detector.name}: expected a number for each input. Got NaN at input {first}. Check its values."
        )
    return found
