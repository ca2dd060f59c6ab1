"""What one call of `demur.score` is asked for: checked before the work, and compared with a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from demur.core.rounding import check_rounding
from demur.core.rules import resolve_rule
from demur.derived_moments import sums_of_given
from demur.families.labels import MultiLabelRule
from demur.measures import GIVEN, Measure, canonical_name, cell, check_base, resolve
from demur.moments import Moments
from demur.posteriors.one_pass.detector import Detector, check_detectors, score_columns
from demur.posteriors.posterior import Posterior, is_numbers, parse_chunk
from demur.predictions import Categorical, SecondOrder, arrays
from demur.scoring.adaptive import ERROR_GROUPS, check_tolerance
from demur.scoring.batch_parts import Unpack, check_unpack
from demur.scoring.batches import InputBatch, iterate_batches
from demur.scoring.dense import DenseScoring, take_label_maps
from demur.scoring.given_models import GivenModels, ask_given_models, deployed_of
from demur.scoring.held_members import is_draws
from demur.scoring.outcomes import Outcome, name_outcome
from demur.scoring.score_table import compute_columns, count_groups

_LABEL_AXES = 8
"""Axes of labels of pixels, at most: inputs, then those of an image or a volume."""


@dataclass
class ScoringJob:
    """The arguments of `demur.score`, and what both orders compute from them."""

    posterior: Posterior
    loader: Any
    measures: Sequence[str]
    rule: str
    base: float | None
    unbiased: bool
    stderr: bool
    tolerance: float | None = None
    unpack: Unpack | None = None
    classes: Any = None
    rounding: float | str | None = None
    detectors: Sequence[Detector] = ()
    dense: DenseScoring | None = None
    groups: int | None = field(default=None, init=False)
    own: dict[str, Measure] = field(default_factory=dict, init=False)
    outcome: Outcome = field(default="classes", init=False)

    def check(self, order: str) -> None:
        """Raise, before any work, where the arguments do not go together."""
        if isinstance(self.measures, str) or not all(isinstance(name, str) for name in self.measures):
            raise TypeError(f"measures must be a list of names. Got {self.measures!r}.")
        names = (name if name in self.own else canonical_name(name) for name in self.measures)
        self.measures = tuple(dict.fromkeys(names))
        if not self.measures:
            raise ValueError("measures must have at least one name. Got none.")
        for measure in self.name_measures(()).values():
            resolve(measure)
        check_base(self.base, resolve_rule(self.rule))
        check_unpack(self.unpack)
        self.detectors = check_detectors(self.detectors, self.measures)
        self.classes = self.posterior.classes if self.classes is None else check_names(self.classes)
        if order not in ("batch", "member"):
            raise ValueError(f"order must be 'batch' or 'member'. Got {order!r}.")
        if not hasattr(self.loader, "__iter__"):
            raise TypeError(f"loader must be an iterable of batches. Got {type(self.loader).__name__}.")
        members = self.posterior.members
        self._check_rounding(order)
        if self.tolerance is not None:
            check_tolerance(self.tolerance, order=order, members=members)
        asked = {"stderr": self.stderr, "unbiased": self.unbiased, "order='member'": order == "member"}
        for name in (name for name, value in asked.items() if value and members is None):
            raise ValueError(f"{name} must know how many members there are. Give Samples(..., members=...).")
        asked = {"tolerance": self.tolerance is not None, "stderr": self.stderr, "unbiased": self.unbiased}
        for name in (name for name, value in asked.items() if value and not self.posterior.drawn):
            raise ValueError(
                f"{name} takes members that are random draws. Those of {self.posterior!r} are found by a "
                "search. Leave it out."
            )
        if (self.stderr or self.unbiased) and members == 1:
            raise ValueError("A standard error or an unbiased value takes at least 2 members. Got 1.")
        if order == "member" and hasattr(self.loader, "__next__"):
            raise TypeError(
                "order='member' takes a loader that can be iterated over several times. Got an iterator."
            )
        named = self.name_measures(()).values()
        self.groups = count_groups(named, members or 0, unbiased=self.unbiased, stderr=self.stderr)
        if self.tolerance is not None:
            self.groups = min(ERROR_GROUPS, members or 0)
        if self.dense is not None:
            self.dense.check(self, order)

    def _check_rounding(self, order: str) -> None:
        """Raise where the least value that fits is wanted of members that are not held all at once."""
        if self.rounding is None:
            return
        check_rounding(self.rounding, "float64")
        for name, value in {"order='member'": order == "member", "tolerance": self.tolerance}.items():
            if value:
                raise ValueError(
                    f"rounding needs all members of an input at once, and {name} adds them up as they come. "
                    f"Leave out {name}, or let the posterior return logits."
                )

    def settings(self, order: str) -> dict[str, Any]:
        """Return what must be unchanged for a run to resume from a checkpoint."""
        chosen = {
            name: getattr(self.posterior, name, None) for name in ("members", "seed", "dropout", "prior")
        }
        names = ("measures", "rule", "base", "unbiased", "stderr", "tolerance", "rounding")
        asked = {name: getattr(self, name) for name in names}
        asked["classes"] = None if self.classes is None else [str(name) for name in self.classes]
        # None where there are none, as in checkpoints from before there were detectors.
        asked["columns"] = {each.name: each.fingerprint() for each in self.detectors} or None
        own = {"posterior": type(self.posterior).__name__, "parameters": self.posterior.fingerprint()}
        dense = {} if self.dense is None else self.dense.settings()
        return {"order": order, **own, **chosen, **asked, **dense}

    def iterate_batches(self) -> Iterator[InputBatch]:
        """Yield the batches of the loader."""
        if self.dense is None:
            return iterate_batches(self.loader, unpack=self.unpack, label_axes=2)
        found = iterate_batches(self.loader, unpack=self.unpack, label_axes=_LABEL_AXES)
        return map(take_label_maps, found)

    def make_moments(self) -> Moments:
        """Return empty moments."""
        return Moments(rule=self.rule, groups=self.groups)

    def name_measures(self, given: Any, own: dict[str, Measure] | None = None) -> dict[str, str | Measure]:
        """Return the measures by name, with the given models' predictions where they need them."""
        of_table = {name: cell(name, given) if name in GIVEN else name for name in self.measures}
        return of_table | (self.own if own is None else own)

    def compute_columns(self, summed: Any, logits: Any) -> Iterator[tuple[str, np.ndarray]]:
        """Yield names and columns of scores from summed members and the deployed model's logits, or None."""
        options = {"unbiased": self.unbiased, "stderr": self.stderr, "base": self.base}
        self.outcome = name_outcome(summed.rule)
        if self.outcome == "classes":
            self.check_classes(summed.mean.shape[-1])
        own = logits.own if isinstance(logits, GivenModels) else None
        logits = deployed_of(logits)
        on_host = not (isinstance(summed, Moments) and arrays.library(summed._filled().reference) == "torch")
        given = None if logits is None else parse_chunk(logits, on_host=on_host)[0]
        if given is not None and isinstance(summed, Moments) and not set(GIVEN).isdisjoint(self.measures):
            given = sums_of_given(given, summed)
        for name, values in compute_columns(summed, self.name_measures(given, own), **options):
            yield name, values if name != "prediction" else self.to_labels(values)

    def predict_deployed(self, batch: InputBatch) -> Any:
        """Return the deployed model's predictions for a batch, or None where there is no such model."""
        found = self.posterior.deployed(batch.inputs)
        if found is None and any(name in GIVEN and name not in self.own for name in self.measures):
            raise ValueError(
                f"measures {', '.join(GIVEN)} take a posterior with a deployed model. "
                f"{self.posterior!r} has none."
            )
        if not any("given" in each.sides() for each in self.own.values()):
            return found
        return GivenModels(found, {name: ask_given_models(each, batch) for name, each in self.own.items()})

    def score_detectors(self, batch: InputBatch) -> dict[str, np.ndarray]:
        """Return the columns of scores that need no members."""
        return score_columns(self.detectors, batch.inputs, batch.size, batch.position)

    def classify(self, logits: Any) -> np.ndarray | None:
        """Return the label of the deployed model's likeliest class for each input."""
        logits = deployed_of(logits)
        if logits is None or not hasattr(logits, "ndim"):
            return None
        return self.to_labels(arrays.to_numpy(arrays.namespace(logits).argmax(logits, axis=-1)))

    def to_labels(self, columns: np.ndarray) -> np.ndarray:
        """Return the labels of predicted classes; several labels, and numbers, are left as they are."""
        if self.classes is None:
            return columns
        if columns.ndim != 1 or columns.dtype.kind == "f":
            raise ValueError("classes goes with predictions of one class for each input. Got others.")
        return np.asarray(self.classes)[columns]

    def check_classes(self, count: int) -> None:
        """Raise unless there is a name for each class."""
        if self.classes is not None and len(self.classes) != count:
            raise ValueError(
                f"classes must name each column of the predictions, {count} of them. Got {len(self.classes)}."
            )


def check_names(classes: Any) -> np.ndarray:
    """Return the names of classes as an array; raise unless they differ."""
    found = np.asarray(classes)
    if found.dtype == object:
        found = found.astype(str)
    if found.ndim != 1 or len(np.unique(found)) != len(found):
        raise ValueError(
            f"classes must be a list of different labels, in the order of columns. Got {classes!r}."
        )
    return found


def count_classes(moments: Moments) -> int:
    """Return how many classes, labels or parameters the predictions had."""
    count = moments.shape[1]
    return count // 2 if isinstance(moments.rule, MultiLabelRule) else count


def check_chunk(chunk: Any, inputs: int, *, on_host: bool = True) -> tuple[Any, Any]:
    """Return the predictions and weights of a chunk; raise unless they are for this many inputs."""
    prediction, weights = parse_chunk(chunk, on_host=on_host)
    shape = tuple(prediction.shape)
    if isinstance(prediction, SecondOrder):
        if len(shape) != 1 + prediction._over_classes or shape[0] != inputs:
            raise ValueError(
                f"A posterior must predict a distribution for each of {inputs} inputs, (inputs, classes), or "
                "(inputs,) of a predicted number. "
                f"Got {prediction!r}."
            )
    elif is_numbers(prediction):
        axes = 1 + is_draws(prediction) + 1 + (prediction.scale is not None)
        if len(shape) != axes or shape[1 + is_draws(prediction)] != inputs:
            raise ValueError(
                f"A posterior must predict numbers (members, inputs), of {inputs} inputs. "
                f"Got {prediction!r}. Several outputs of an input need scale=, to be added up."
            )
    elif len(shape) != 3 or shape[1] != inputs:
        raise ValueError(
            f"A posterior must predict (members, inputs, classes), of {inputs} inputs. Got {shape}. Where "
            "there are classes for each pixel, say on which axis: class_axis=2; else give "
            "forward=lambda model, inputs: ... that returns logits of this shape."
        )
    elif isinstance(prediction, Categorical) and shape[2] == 1:
        raise ValueError(
            "A posterior must predict at least 2 classes. Got 1. For one probability or logit of yes or no "
            "give demur.Bernoulli(...), (members, inputs), from a network by "
            "forward=lambda model, inputs: demur.Bernoulli(logits=model(inputs).flatten()); for a predicted "
            "number, demur.Points(...), or demur.Gaussian(...) with its variance."
        )
    return prediction, weights


def check_summable(prediction: Any, option: str) -> None:
    """Raise unless predictions can be summed member by member, as an option needs it."""
    if isinstance(prediction, SecondOrder) or is_numbers(prediction):
        raise ValueError(
            f"{option} takes predictions that are summed member by member. Got {prediction!r}. Leave it out."
        )
