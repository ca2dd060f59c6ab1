"""Predictions of members: checked once, at the door."""

from demur.predictions.categorical import Categorical
from demur.predictions.door import predicted, rule_for
from demur.predictions.gaussian import Gaussian, MultivariateGaussian
from demur.predictions.labels import Bernoulli, MultiLabel
from demur.predictions.members import Members, gather
from demur.predictions.parametric import Exponential, Gamma, Parametric, Poisson

__all__ = [
    "Bernoulli",
    "Categorical",
    "Exponential",
    "Gamma",
    "Gaussian",
    "Members",
    "MultiLabel",
    "MultivariateGaussian",
    "Parametric",
    "Poisson",
    "gather",
    "predicted",
    "rule_for",
]
