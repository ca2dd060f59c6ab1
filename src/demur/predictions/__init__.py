"""Predictions of members, and distributions over predictions: checked once, on arrival."""

from demur.core import arrays
from demur.predictions.arguments import Prediction, as_prediction, rule_for
from demur.predictions.categorical import Categorical
from demur.predictions.dirichlet import Beta, Dirichlet
from demur.predictions.gaussian import Gaussian, MultivariateGaussian
from demur.predictions.labels import Bernoulli, MultiLabel
from demur.predictions.members import Members, gather
from demur.predictions.mixture import Mixture
from demur.predictions.normal_inverse_gamma import NormalInverseGamma
from demur.predictions.parametric import Parametric, as_real_array
from demur.predictions.places import Places, choose_members_axis
from demur.predictions.points import Draws, Numbers, Points
from demur.predictions.positive import Exponential, Gamma, Poisson
from demur.predictions.second_order import SecondOrder, as_second_order
from demur.predictions.uniform_deltas import Deltas, Uniform

__all__ = [
    "Bernoulli",
    "Beta",
    "Categorical",
    "Deltas",
    "Dirichlet",
    "Draws",
    "Exponential",
    "Gamma",
    "Gaussian",
    "Members",
    "Mixture",
    "MultiLabel",
    "MultivariateGaussian",
    "NormalInverseGamma",
    "Numbers",
    "Parametric",
    "Places",
    "Points",
    "Poisson",
    "Prediction",
    "SecondOrder",
    "Uniform",
    "arrays",
    "as_prediction",
    "as_real_array",
    "as_second_order",
    "choose_members_axis",
    "gather",
    "rule_for",
]
