"""What the first argument of ``decompose`` may be, and which rule goes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from demur.core.rules import LOG, Rule
from demur.families import FAMILIES
from demur.predictions.categorical import Categorical
from demur.predictions.gaussian import Gaussian, MultivariateGaussian
from demur.predictions.labels import Bernoulli, MultiLabel
from demur.predictions.parametric import Parametric
from demur.predictions.points import Numbers
from demur.predictions.positive import Exponential, Gamma, Poisson
from demur.predictions.second_order import SecondOrder

if TYPE_CHECKING:
    import torch

Prediction: TypeAlias = "Categorical | Parametric | Numbers | SecondOrder | torch.distributions.Distribution"
"""What may stand in place of an array of probabilities."""


def as_prediction(probs: Any = None, logits: Any = None, log_probs: Any = None) -> Categorical | Parametric:
    """Return checked predictions: of classes, or of one of the families."""
    if isinstance(probs, Numbers):
        raise ValueError(
            f"{type(probs).__name__} go into demur.decompose, variance, mean and quantiles, all members at "
            "once: they have no classes, and no sums of a fixed size. Stack the members first."
        )
    if logits is None and log_probs is None:
        if isinstance(probs, (Parametric, Bernoulli)):
            return probs
        if type(probs).__module__.startswith("torch.distributions"):
            return _from_torch(probs)
    return Categorical(probs, logits=logits, log_probs=log_probs)


def rule_for(prediction: Categorical | Parametric, rule: Rule) -> Rule:
    """Return the rule that sums these predictions: a family has its own, which is the log loss."""
    if isinstance(prediction, Parametric):
        if rule in (LOG, prediction.rule):
            return prediction.rule
        if rule.name not in FAMILIES:
            raise ValueError(
                f"{prediction.kind} predictions go with rule 'log' only. Got rule {rule.name!r}."
            )
    if rule.name in FAMILIES:
        raise ValueError(f"Expected {rule.name} predictions, as the others. Got {prediction!r}.")
    return rule


def _from_torch(distribution: Any) -> Categorical | Parametric:
    """Return the predictions that a ``torch.distributions`` object holds."""
    name = type(distribution).__name__
    way = "probs" if "probs" in vars(distribution) else "logits"  # the other one is derived, and clamped
    if name == "Independent" and distribution.reinterpreted_batch_ndims == 1:
        base = distribution.base_dist
        if type(base).__name__ == "Normal":
            return MultivariateGaussian(base.loc, scale=base.scale)
        if type(base).__name__ == "Bernoulli":
            way = "probs" if "probs" in vars(base) else "logits"
            return MultiLabel(**{way: vars(base)[way]})
    if name == "Normal":
        return Gaussian(distribution.loc, scale=distribution.scale)
    if name == "MultivariateNormal":
        return MultivariateGaussian(distribution.loc, covariance=distribution.covariance_matrix)
    if name == "Bernoulli":
        return Bernoulli(**{way: vars(distribution)[way]})
    if name == "Poisson":
        return Poisson(distribution.rate)
    if name == "Exponential":
        return Exponential(distribution.rate)
    if name == "Gamma":
        return Gamma(distribution.concentration, distribution.rate)
    return Categorical(distribution)
