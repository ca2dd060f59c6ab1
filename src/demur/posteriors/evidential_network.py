"""`EvidentialNetwork`: one network that predicts a distribution over predictions, in one pass."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any, Self

from demur.posteriors import networks
from demur.posteriors.evidential import make_concentration, make_normal_inverse_gamma
from demur.posteriors.posterior import Posterior
from demur.posteriors.tensor_files import load_state, read_tensors, write_tensors
from demur.predictions import Dirichlet, NormalInverseGamma, SecondOrder

_OF_CLASSES = ("softplus", "exp", "relu", "prior")
_OF_NUMBERS = "regression"


class EvidentialNetwork(Posterior):
    r"""One network whose outputs describe all members at once: every measure is exact, in one pass.

    Malinin and Gales (2018), "Predictive uncertainty estimation via prior networks"; Sensoy et al. (2018),
    "Evidential deep learning to quantify classification uncertainty"; for numbers Amini et al. (2020), "Deep
    evidential regression". Train it with the losses in ``demur.posteriors.evidential``; K is then
    :math:`(C - 1) / \alpha_0` for C classes.

    Parameters
    ----------
    model
        The network.
    head
        How its outputs are read, as in training. ``"softplus"``, ``"exp"``, ``"relu"`` or ``"prior"``: as
        concentrations, see ``demur.posteriors.evidential.make_concentration``. ``"regression"``: four outputs
        as a ``demur.NormalInverseGamma``. Or a function from outputs to a ``demur.Dirichlet`` or
        ``demur.NormalInverseGamma``.
    forward
        A function of the network and its inputs that returns the outputs, where ``model(inputs)`` does not.

    Warnings
    --------
    Such a network is trained to say how much evidence there is, and no loss can make it say so truthfully
    from labels alone: Bengs, Hüllermeier and Waegeman (2022), "Pitfalls of epistemic uncertainty
    quantification through loss minimisation". Without out-of-distribution inputs in training, nothing ties
    its K to how much the data leave open. See "Evidential networks" in the documentation.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Linear(4, 3)
    >>> posterior = demur.posteriors.EvidentialNetwork(model, "softplus")
    >>> scores = demur.score(posterior, [torch.ones(2, 4)], progress=False)
    >>> alpha = demur.posteriors.evidential.make_concentration(model(torch.ones(2, 4)))
    >>> np.allclose(scores["pairwise"].epistemic, (2 / alpha.sum(1)).detach())
    True
    """

    def __init__(
        self,
        model: Any,
        head: str | Callable[[Any], SecondOrder] = "softplus",
        *,
        forward: networks.Forward | None = None,
    ) -> None:
        networks.check_network("model", model)
        if not callable(head) and head not in (*_OF_CLASSES, _OF_NUMBERS):
            names = ", ".join(map(repr, _OF_CLASSES))
            raise ValueError(
                f"head must be {names}, {_OF_NUMBERS!r}, or a function from outputs to a demur.Dirichlet or "
                f"demur.NormalInverseGamma. Got {head!r}."
            )
        self.model, self.head, self.forward = model, head, forward

    def __repr__(self) -> str:
        return f"EvidentialNetwork({self.head!r})"

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        with networks.suspend_training([self.model]), networks.preserve_random_state():
            found = self._read_outputs(networks.call_model(self.model, batch, self.forward))
        yield found

    def _read_outputs(self, outputs: Any) -> SecondOrder:
        """Return the distribution that a network's outputs describe."""
        if callable(self.head):
            found = self.head(outputs)
            if not isinstance(found, Dirichlet | NormalInverseGamma):
                raise TypeError(
                    "head must return a demur.Dirichlet or a demur.NormalInverseGamma. "
                    f"Got {type(found).__name__}."
                )
            return found
        if self.head == _OF_NUMBERS:
            return make_normal_inverse_gamma(outputs)
        return Dirichlet(make_concentration(outputs, self.head))  # pyright: ignore[reportArgumentType]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file: parameters, buffers and the name of the head."""
        if callable(self.head):
            raise ValueError("head must be a name to be saved. Got a function, which a file cannot hold.")
        facts = {"method": "EvidentialNetwork", "settings": json.dumps({"head": self.head})}
        write_tensors(path, self.model.state_dict(), facts)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: Any, **options: Any) -> Self:
        """Read a file from ``save`` into a network of the same architecture; ``options`` as for the class."""
        tensors, facts = read_tensors(path, "EvidentialNetwork")
        load_state("model", model, tensors)
        return cls(model, **{**json.loads(facts["settings"]), **options})
