"""`OutlierScore`: the outlier scores of another library's detector, as they are."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from demur.core import arrays
from demur.posteriors import networks
from demur.posteriors.fingerprint import fingerprint
from demur.posteriors.one_pass.detector import Detector
from demur.posteriors.one_pass.encoder import Encoder


class OutlierScore(Detector):
    """A detector of pytorch-ood, or any object like it, as a column.

    ``detector.predict(inputs)`` returns one number for each input, higher where it is more likely an outlier:
    pytorch-ood's direction, and demur's. Networks that the detector holds are in evaluation mode meanwhile.

    Parameters
    ----------
    detector
        An object with ``predict(inputs)``; with ``model``, one with ``predict_logits(values)`` or
        ``predict_features(values)``.
    name
        The name of the column; None: the name of its class, in small letters.
    model, layer, forward
        As for ``LastLayer``: a network whose logits, or features, the detector gets, so that the pass is
        shared with other columns and the features of a cache can be used. None: it gets the inputs.

    Examples
    --------
    >>> import torch
    >>> from demur.posteriors.one_pass import OutlierScore
    >>> class Norm:
    ...     def predict(self, x):
    ...         return x.norm(dim=1)
    >>> OutlierScore(Norm(), name="norm").score([torch.tensor([[3.0, 4.0]])])
    array([5.])
    """

    def __init__(
        self,
        detector: Any,
        *,
        name: str | None = None,
        model: Any = None,
        layer: str | None = None,
        forward: networks.Forward | None = None,
    ) -> None:
        self.detector = detector
        self.encoder = None if model is None else Encoder(model, layer=layer, forward=forward)
        kinds = ("predict",) if model is None else ("predict_logits", "predict_features")
        found = [kind for kind in kinds if callable(getattr(detector, kind, None))]
        if not found:
            raise TypeError(
                f"detector must have a method {' or '.join(kinds)}. Got {type(detector).__name__}."
            )
        self.method = found[0]
        self.name = type(detector).__name__.lower() if name is None else name

    @classmethod
    def fit(cls, detector: Any, loader: Any, **options: Any) -> Self:
        """Fit the detector to a data set, and return its column; ``options`` as for the class.

        Parameters
        ----------
        detector
            An object with ``fit(loader)``, which gets the loader as it is; with ``model``, one with
            ``fit_logits(values, labels)`` or ``fit_features(values, labels)``.
        loader
            The training data, as the detector wants them. With ``model``, as for ``demur.score`` with labels,
            or ``Features`` of that model.
        """
        import torch

        found = cls(detector, **options)
        if found.encoder is None:
            with networks.suspend_training(found._list_networks()), torch.enable_grad():
                detector.fit(loader)
            return found
        read = found.encoder.read(loader, cache=None, every=10.0, progress=False)
        if read.labels is None:
            raise ValueError("fit takes labels. The loader had none: give batches of (inputs, labels).")
        values, labels = torch.tensor(read.values), torch.from_numpy(np.asarray(read.labels))
        if found.method == "predict_logits":
            detector.fit_logits(found.encoder.apply_last_layer(values), labels)
        else:
            detector.fit_features(values, labels)
        return found

    def __repr__(self) -> str:
        return f"OutlierScore({type(self.detector).__name__}, name={self.name!r})"

    def score_batch(self, batch: Any) -> np.ndarray:
        import torch

        held = self._list_networks()
        # Some detectors need gradients with respect to the inputs.
        with networks.suspend_training(held), networks.preserve_random_state(), torch.enable_grad():
            if self.encoder is None:
                device, kind = networks.locate_model(held[0]) if held else (None, None)
                found = self.detector.predict(networks.move_inputs(batch, device, kind))
            else:
                values, logits = self.encoder.encode_both(batch)
                asked = logits if self.method == "predict_logits" else values
                found = getattr(self.detector, self.method)(asked)
        return arrays.to_numpy(found.detach().cpu() if hasattr(found, "detach") else found)

    def _list_networks(self) -> list[Any]:
        """Return the networks that the detector holds."""
        import torch

        held = vars(self.detector).values() if hasattr(self.detector, "__dict__") else ()
        return [each for each in held if isinstance(each, torch.nn.Module)]

    def fingerprint(self) -> str:
        """Return a text that changes with the detector's numbers, arrays and networks, and with the name."""
        held = vars(self.detector) if hasattr(self.detector, "__dict__") else {}
        return fingerprint(type(self.detector).__name__, self.name, self.method, dict(held), self.encoder)
