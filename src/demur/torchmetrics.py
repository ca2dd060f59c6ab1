"""Uncertainty as a metric of ``torchmetrics``, which Lightning logs in a line; needs ``torchmetrics``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from demur.core import arrays
from demur.decompose import decompose
from demur.measures import PARTS, MeasureName, canonical_name
from demur.moments import Moments
from demur.tasks.levels import area, count_levels

__all__ = ["Uncertainty"]

FIGURES = (*PARTS, "accuracy", "error_auroc")


class Uncertainty(Metric):
    """Mean uncertainty over a data set, and how well it finds the average prediction's errors.

    Updated with the predictions of all members for a batch, it gives the mean `total`, `aleatoric` and
    `epistemic` part over all inputs. With targets also `accuracy`, that of the average prediction, and
    `error_auroc`: the probability that a wrong prediction has a higher score than a right one, NaN where all
    are right or all are wrong. States are columns, 16 bytes an input, so that results do not depend on how
    inputs were dealt to batches and processes.

    Parameters
    ----------
    figure
        The one figure that ``compute`` returns, as Lightning's ``self.log`` wants it; None: a dictionary of
        all figures, for ``self.log_dict``.
    measure, rule
        As for ``demur.decompose``.
    score
        The part whose ranking `error_auroc` is about: "total", "aleatoric" or "epistemic".
    **options
        For ``torchmetrics.Metric``, as ``sync_on_compute``.

    Examples
    --------
    >>> import torch
    >>> from demur.torchmetrics import Uncertainty
    >>> metric = Uncertainty()
    >>> logits = torch.tensor([[[4.0, 0.0], [3.0, 0.0]], [[5.0, 0.0], [0.0, 3.0]]])   # 2 members, 2 inputs
    >>> metric.update(logits, target=torch.tensor([0, 1]))
    >>> {name: round(float(value), 3) for name, value in metric.compute().items()}
    {'total': 0.808, 'aleatoric': 0.128, 'epistemic': 0.68, 'accuracy': 0.5, 'error_auroc': 1.0}
    """

    higher_is_better = None
    is_differentiable = False
    full_state_update = False

    def __init__(
        self,
        figure: str | None = None,
        *,
        measure: MeasureName | str = "pairwise",
        rule: str = "log",
        score: str = "epistemic",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if figure not in (None, *FIGURES):
            raise ValueError(f"figure must be None or one of {', '.join(FIGURES)}. Got {figure!r}.")
        if score not in PARTS:
            raise ValueError(f"score must be one of {', '.join(PARTS)}. Got {score!r}.")
        Moments(rule=rule).update([[0.5, 0.5]]).decompose(measure)  # a wrong name is an error now
        self.figure, self.measure, self.rule, self.score = figure, measure, rule, score
        # Named after their measure: a MetricCollection takes metrics for the same one whose states have the
        # same names and hold the same after one batch, as all measures of members that agree do.
        kind = f"{canonical_name(measure)}_{rule}"
        self._states = {name: f"{kind}_{name}" for name in (*PARTS, "wrong")}
        for name in self._states.values():
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(
        self,
        logits: torch.Tensor | None = None,
        target: torch.Tensor | None = None,
        *,
        probs: torch.Tensor | None = None,
        weights: torch.Tensor | None = None,
    ) -> None:
        """Add a batch.

        Parameters
        ----------
        logits, probs
            One of them: predictions of all members, shape (members, inputs, classes).
        target
            The true classes, shape (inputs,); without, there is no accuracy and no error_auroc. Give it for
            every batch or for none.
        weights
            Of the members, (members,) or (members, inputs).
        """
        with torch.no_grad():
            found = decompose(probs, logits=logits, weights=weights, measure=self.measure, rule=self.rule)
            if found.total.ndim != 1:
                raise ValueError(
                    "Expected predictions of shape (members, inputs, classes). "
                    f"Got {tuple(found.total.shape)} between members and classes. Reshape them."
                )
            for part in PARTS:
                self._add(part, getattr(found, part))
            if target is not None:
                average = Moments().update(probs, logits=logits, weights=weights).mean
                if target.shape != average.shape[:1]:
                    raise ValueError(
                        f"target must have shape ({len(average)},), one class per input. "
                        f"Got {tuple(target.shape)}."
                    )
                self._add("wrong", average.argmax(-1) != target.to(average.device))

    def _add(self, name: str, column: torch.Tensor) -> None:
        getattr(self, self._states[name]).append(column.to(device=self.device, dtype=torch.float32))

    def compute(self) -> Any:
        """Return the figures of all inputs so far, over all processes: scalars by name, or one of them."""
        columns = {name: self._read(name) for name in self._states}
        inputs = len(columns["total"])
        found = {
            part: float(columns[part].sum(dtype=np.float64) / inputs if inputs else np.nan) for part in PARTS
        }
        wrong = columns["wrong"] > 0
        if len(wrong) not in (0, inputs):
            raise ValueError(
                f"Expected targets for every batch or for none. Got {len(wrong)} for {inputs} inputs. "
                "Give update a target each time."
            )
        if len(wrong):
            found |= {"accuracy": float(1 - wrong.mean()), "error_auroc": float("nan")}
            if 0 < wrong.sum() < len(wrong):
                levels = count_levels(columns[self.score].astype(np.float64), wrong)
                found["error_auroc"] = area(levels.positive, levels.negative)
        scalars = {name: torch.tensor(value, device=self.device) for name, value in found.items()}
        if self.figure is None:
            return scalars
        if self.figure not in scalars:
            raise ValueError(f"{self.figure} takes targets. Got none. Give update a target.")
        return scalars[self.figure]

    def _read(self, name: str) -> np.ndarray:
        column = getattr(self, self._states[name])
        if isinstance(column, list) and not column:
            return np.empty(0, np.float32)
        return arrays.to_numpy(dim_zero_cat(column))
