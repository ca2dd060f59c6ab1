"""`Posterior`, the base class of all methods, and what its predictions may be."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from demur.posteriors.fingerprint import fingerprint
from demur.predictions import Categorical, Parametric, SecondOrder, arrays, as_prediction, as_second_order

LOGITS_PER_CHUNK = 1 << 22
"""Logits in one chunk of members, at most."""

Ask = Callable[[range | None, np.ndarray | None], Iterator[Any]]
"""A function of members and rows of a batch (None: all) that yields chunks, as ``Posterior.predict`` does."""


class Posterior(ABC):
    """Members that predict batches of inputs, a few members at a time.

    To write your own, set ``members`` and define ``predict``. What a call draws must not depend on earlier
    calls: random numbers belong to the member and to the position of the batch, so that a run that resumes,
    or that goes member by member, gives the same scores.

    Attributes
    ----------
    members
        The number of members; None where only the predictions show it.
    classes
        The label of each column of the predictions; None where labels are 0, 1, 2, ...
    tile
        How many inputs of a batch are scored at a time, through ``hold``, so that their sums stay in the
        processor's cache; None: all of them.
    drawn
        Whether members are random draws. Standard errors, unbiased values and a tolerance are only for those.
    measures
        What ``demur.score`` computes unless it is told; None: its own default.
    """

    members: int | None = None
    classes: Any = None
    tile: int | None = None
    drawn: bool = True
    measures: tuple[str, ...] | None = None

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
            The inputs, as the model takes them; a mapping holds named arguments.
        members
            Which members; None: all.
        position
            The number of the batch's first input in the whole data set.

        Yields
        ------
        chunk
            Logits of shape (members, inputs, classes), or other predictions with the same axes, such as
            ``demur.Categorical(probs=...)`` or ``demur.Gaussian(...)``. Or a pair: these, and weights of
            shape (members,), or (members, inputs) where each input has its own.
        """

    def hold(self, batch: Any, *, position: int = 0) -> Ask:
        """Return a function of members and rows that predicts for some inputs of one batch.

        It is for batches that are predicted in several calls. This version treats the rows as a smaller batch
        at the same position: a posterior that draws noise for a whole batch at once may then give an input
        other draws, of the same distribution. Override it to keep intermediate results between the calls.
        """

        def ask(members: range | None, rows: np.ndarray | None = None) -> Iterator[Any]:
            part = batch if rows is None else select_rows(batch, rows)
            return self.predict(part, members=members, position=position)

        return ask

    def keep_loaded(self, members: range | None) -> Posterior:
        """Return the same posterior with what these members need in memory, for many calls; None: all.

        This version returns itself. Override it where members are loaded for their turn and released.
        """
        return self

    def deployed(self, batch: Any) -> Any:
        """Return the deployed model's logits (inputs, classes), or None where there is no such model."""
        return None

    def spread(self, batch: Any) -> np.ndarray | None:
        """Return the average spread of members' logits about the deployed model's, (inputs,).

        ``demur.scoring.logit_spread`` defines the spread; the average is over all members that could be
        drawn. None where it is not known.
        """
        return None

    @property
    def infinity_advice(self) -> str | None:
        """Why K is infinite for some inputs and what to do, where the method makes that likely; else None."""
        return None

    def fingerprint(self) -> str:
        """Return a text that changes with any attribute whose name has no leading underscore.

        An interrupted run resumes only where it is unchanged.
        """
        return fingerprint({name: each for name, each in vars(self).items() if not name.startswith("_")})


def parse_chunk(chunk: Any, *, on_host: bool = True) -> tuple[Any, Any]:
    """Return the predictions of a chunk, on the processor, and its weights.

    An array is logits. With ``on_host=False``, tensors on an accelerator stay there. Predictions that cannot
    be summed member by member, `Dirichlet` and `Points`, say, are returned as they are.
    """
    given, weights = chunk if isinstance(chunk, tuple) else (chunk, None)
    prediction = as_predictions(given)
    if prediction is None:
        prediction = Categorical(logits=given)
    if isinstance(prediction, SecondOrder) or is_numbers(prediction):
        return prediction, weights
    # Scores are columns of a table, without gradients or devices.
    values = prediction.values
    if not on_host and arrays.library(values) == "torch" and arrays.stays(values.detach()):
        return prediction.with_values(values.detach()), weights
    host = prediction.with_values(arrays.to_numpy(values))
    host.precision = prediction.precision
    return host, weights


def as_predictions(found: Any) -> Any:
    """Return predictions that say what their numbers are, as those of ``torch.distributions``; else None."""
    if isinstance(found, Categorical | Parametric) or is_numbers(found):
        return found
    distribution = as_second_order(found)
    if distribution is None and type(found).__module__.startswith("torch.distributions"):
        return as_prediction(found)
    return distribution


def is_numbers(prediction: Any) -> bool:
    """Tell whether members predict numbers without a density: `demur.Points` or `demur.Draws`."""
    kind = type(prediction)
    return kind.__name__ in ("Points", "Draws") and kind.__module__.startswith("demur.")


def count_inputs(batch: Any) -> int:
    """Return how many inputs a batch has, on the first axis."""
    first = next(iter(batch.values())) if isinstance(batch, Mapping) else batch
    return first.shape[0] if hasattr(first, "shape") else len(first)


def select_rows(batch: Any, rows: np.ndarray) -> Any:
    """Return some inputs of a batch; entries of a mapping without one row per input are left as they are."""
    if isinstance(batch, Mapping):
        size = count_inputs(batch)
        return {
            name: select_rows(v, rows) if np.ndim(v) and len(v) == size else v for name, v in batch.items()
        }
    if hasattr(batch, "iloc"):
        return batch.iloc[rows]
    return batch[rows] if hasattr(batch, "shape") else [batch[row] for row in rows]


def select_members(members: range | None, count: int) -> range:
    """Return the requested members, or all; raise unless they exist."""
    if members is None:
        return range(count)
    if not isinstance(members, range) or any(not 0 <= each < count for each in members):
        raise ValueError(f"members must be a range within 0 to {count}. Got {members!r}.")
    return members


def check_count(name: str, value: Any) -> int:
    """Return the value; raise unless it is a positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a positive integer. Got {value!r}.")
    return value


def check_seed(value: Any) -> int:
    """Return a seed as an integer; raise unless it is one, 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise ValueError(f"seed must be an integer, 0 or more. Got {value!r}.")
    return int(value)


def split_members(members: range, numbers: int, *, fewest: int = 1) -> Iterator[range]:
    """Split members into ranges whose predictions, ``numbers`` each, fit in little memory."""
    step = max(fewest, LOGITS_PER_CHUNK // max(1, numbers))
    for start in range(0, len(members), step):
        yield members[start : start + step]
