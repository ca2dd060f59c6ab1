"""What `demur.score` asks of a posterior, and what it takes for one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from demur.posteriors.fingerprint import fingerprint
from demur.predictions import Categorical, arrays
from demur.predictions.parametric import Parametric

LOGITS_PER_CHUNK = 1 << 22
"""Logits that a chunk of members may hold."""

Ask = Callable[[range | None, np.ndarray | None], Iterator[Any]]
"""From members and rows of a batch (None: all of them) to chunks, as ``Posterior.predict`` yields them."""


class Posterior(ABC):
    """Members that can be asked for their predictions, some at a time.

    To write one, set ``members`` and define ``predict``. Nothing that a call draws may depend on the calls
    before it: noise belongs to the member and to the position of the batch, so that a run that resumes, or
    goes through members first, gives the same scores.

    Attributes
    ----------
    members
        How many members there are; None where only the predictions tell.
    classes
        The label of each column of the predictions; None where labels are 0, 1, 2, ...
    tile
        How many inputs of a batch are asked for at a time by ``hold``, so that their sums stay in the
        processor's cache; None: all of them.
    """

    members: int | None = None
    classes: Any = None
    tile: int | None = None

    @property
    def together(self) -> int:
        """How many members ``order="member"`` asks for in one pass over the data set."""
        return 1

    @abstractmethod
    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        """Yield the predictions of members for one batch, in chunks.

        Parameters
        ----------
        batch
            The inputs, as a model takes them; a mapping stands for named arguments.
        members
            Which members; None: all.
        position
            The place of the batch's first input in the whole data set.

        Yields
        ------
        chunk
            Logits of shape (members, inputs, classes), or other predictions with the same axes, as
            ``demur.Categorical(probs=...)`` or ``demur.Gaussian(...)``. Or a pair of those and weights,
            of shape (members,).
        """

    def hold(self, batch: Any, *, position: int = 0) -> Ask:
        """Return a function of members and rows that predicts for some inputs of one batch.

        For a batch that is asked for several times. Here the rows are a smaller batch at the same position.
        A posterior that draws noise for a whole batch at once may give an input other draws, of the same
        distribution, in a smaller batch; one that has something to keep in between defines its own.
        """

        def ask(members: range | None, rows: np.ndarray | None = None) -> Iterator[Any]:
            part = batch if rows is None else select_rows(batch, rows)
            return self.predict(part, members=members, position=position)

        return ask

    def deployed(self, batch: Any) -> Any:
        """Return the deployed model's logits (inputs, classes), or None where there is no such model."""
        return None

    def spread(self, batch: Any) -> np.ndarray | None:
        """Return how far members' logits spread about the deployed model's on average, (inputs,).

        As ``Spread`` defines it, over all members that could be drawn; None where it is not known.
        """
        return None

    def fingerprint(self) -> str:
        """Return a text that changes with the parameters, of all attributes without an underscore in front.

        A run that was killed goes on only where it is the same.
        """
        return fingerprint({name: each for name, each in vars(self).items() if not name.startswith("_")})


def parse_chunk(chunk: Any) -> tuple[Any, Any]:
    """Return a chunk's predictions, on the processor, and its weights."""
    given, weights = chunk if isinstance(chunk, tuple) else (chunk, None)
    prediction = given if isinstance(given, Categorical | Parametric) else Categorical(logits=given)
    # Scores are columns of a table: gradients and devices end here.
    host = prediction.with_values(arrays.to_numpy(prediction.values))
    host.precision = prediction.precision
    return host, weights


def select_rows(batch: Any, rows: np.ndarray) -> Any:
    """Return some inputs of a batch; entries of a mapping that are not one for each input stay whole."""
    if isinstance(batch, Mapping):
        size = len(next(iter(batch.values())))
        return {
            name: select_rows(v, rows) if np.ndim(v) and len(v) == size else v for name, v in batch.items()
        }
    return batch[rows] if hasattr(batch, "shape") else [batch[row] for row in rows]


def select_members(members: range | None, count: int) -> range:
    """Return which members are asked for; raise unless there are such members."""
    if members is None:
        return range(count)
    if not isinstance(members, range) or any(not 0 <= each < count for each in members):
        raise ValueError(f"members must be a range within 0 to {count}. Got {members!r}.")
    return members


def check_count(name: str, value: Any) -> int:
    """Return a number of members; raise unless it is a positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a positive integer. Got {value!r}.")
    return value


def split_members(members: range, numbers: int, *, fewest: int = 1) -> Iterator[range]:
    """Cut members into runs whose predictions, of so many numbers each, fit in little memory."""
    step = max(fewest, LOGITS_PER_CHUNK // max(1, numbers))
    for start in range(0, len(members), step):
        yield members[start : start + step]


def as_posterior(given: Any) -> Posterior:
    """Return a posterior as it is, and objects with ``predict_proba`` or a callable as one."""
    from demur.posteriors.samples import Samples
    from demur.posteriors.sklearn_ensembles import Predictors

    if isinstance(given, Posterior):
        return given
    if isinstance(given, Sequence) and given and all(hasattr(each, "predict_proba") for each in given):
        return Predictors(given)
    if callable(given) and not hasattr(given, "parameters"):
        return Samples(given)
    raise TypeError(
        "posterior must be one of demur.posteriors, a list of objects with predict_proba, or a callable. "
        f"Got {type(given).__name__}. One network alone has no members: see MCDropout or DeepEnsemble."
    )
