"""`Samples`: a function that returns the predictions of members, however it draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from demur.posteriors.posterior import Posterior, check_count
from demur.predictions import Categorical
from demur.predictions.parametric import Parametric


class Samples(Posterior):
    """A function from a batch to the predictions of all members.

    Parameters
    ----------
    function
        Takes the inputs of a batch and returns an array (members, inputs, classes), or a
        ``demur.Categorical(...)`` or ``demur.Gaussian(...)`` with these axes.
    kind
        What the numbers of an array are: ``"logits"``, ``"probs"`` or ``"log_probs"``. It is never guessed
        from their range, so that an array without it is an error.
    members
        The number of members that it returns; only standard errors, unbiased values, a tolerance and
        ``order="member"`` need it.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> heads = rng.normal(size=(8, 4, 3))                    # from some sampler of yours
    >>> posterior = demur.posteriors.Samples(lambda x: x @ heads, kind="logits")
    >>> demur.score(posterior, [rng.normal(size=(5, 4))], progress=False).members
    8
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        *,
        kind: Literal["logits", "probs", "log_probs"] | None = None,
        members: int | None = None,
    ) -> None:
        if not callable(function):
            raise TypeError(f"function must be callable. Got {type(function).__name__}.")
        if kind not in (None, "logits", "probs", "log_probs"):
            raise ValueError(f"kind must be 'logits', 'probs' or 'log_probs'. Got {kind!r}.")
        self.function, self.kind = function, kind
        self.members = None if members is None else check_count("members", members)

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        found = self.function(batch)
        if not isinstance(found, Categorical | Parametric):
            if self.kind is None:
                raise TypeError(
                    "Expected to know what the numbers of a callable are. Got an array. Give "
                    "demur.posteriors.Samples(function, kind='logits'), 'probs' or 'log_probs'."
                )
            found = Categorical(**{self.kind: found})
        if len(found.shape) != 3:
            raise ValueError(
                "A callable must return predictions of shape (members, inputs, classes). "
                f"Got {tuple(found.shape)}."
            )
        if self.members not in (None, found.shape[0]):
            raise ValueError(f"Expected {self.members} members. Got {found.shape[0]}.")
        if members is not None:
            found = found.with_values(found.values[members.start : members.stop])
        yield found
