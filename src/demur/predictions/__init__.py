"""Predictions of members, and distributions over predictions: checked once, at the door."""

from demur.predictions.categorical import Categorical
from demur.predictions.dirichlet import Beta, Dirichlet
from demur.predictions.door import predicted, rule_for
from demur.predictions.gaussian import Gaussian, MultivariateGaussian
from demur.predictions.labels import Bernoulli, MultiLabel
from demur.predictions.members import Members, gather
from demur.predictions.mixture import Mixture
from demur.predictions.parametric import Exponential, Gamma, Parametric, Poisson
from demur.predictions.second_order import SecondOrder, second_order
from demur.predictions.unit_interval import Deltas, Uniform

__all__ = [
    "Bernoulli",
    "Beta",
    "Categorical",
    "Deltas",
    "Dirichlet",
    "Exponential",
    "Gamma",
    "Gaussian",
    "Members",
    "Mixture",
    "MultiLabel",
    "MultivariateGaussian",
    "Parametric",
    "Poisson",
    "SecondOrder",
    "Uniform",
    "gather",
    "predicted",
    "rule_for",
    "second_order",
]
