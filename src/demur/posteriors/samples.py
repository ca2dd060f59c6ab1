"""`Samples`: a function that returns the predictions of members, however it draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from demur.posteriors.posterior import Posterior, as_predictions, check_count, is_numbers
from demur.predictions import Categorical, SecondOrder


class Samples(Posterior):
    """A function from a batch to the predictions of all members.

    Parameters
    ----------
    function
        Takes the inputs of a batch and returns an array (members, inputs, classes), or a
        ``demur.Categorical(...)`` or ``demur.Gaussian(...)``, say, with these axes. Or a ``demur.Dirichlet``
        (inputs, classes), as evidential networks predict it: a distribution over predictions, which takes the
        place of members.
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

    An evidential network:

    >>> evidence = lambda x: np.exp(x @ heads[0])
    >>> scores = demur.score(lambda x: demur.Dirichlet(1 + evidence(x)), [rng.normal(size=(5, 4))])
    >>> scores.members is None, scores["pairwise"].epistemic.shape
    (True, (5,))
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
        returned = self.function(batch)
        found = as_predictions(returned)
        if found is None:
            if self.kind is None:
                raise TypeError(
                    "Expected to know what the numbers of a callable are. Got an array. Give "
                    "demur.posteriors.Samples(function, kind='logits'), 'probs' or 'log_probs'."
                )
            found = Categorical(**{self.kind: returned})
        if isinstance(found, SecondOrder):
            if self.members is not None:
                raise ValueError(f"Expected {self.members} members. Got {found!r}, which has none.")
            yield found
            return
        axes = len(found.shape)
        if axes < 3 and not is_numbers(found):
            raise ValueError(
                "A callable must return predictions of shape (members, inputs, classes). "
                f"Got {tuple(found.shape)}."
            )
        if self.members not in (None, found.shape[0]):
            raise ValueError(f"Expected {self.members} members. Got {found.shape[0]}.")
        if members is not None and not is_numbers(found):
            found = found.with_values(found.values[members.start : members.stop])
        yield found
