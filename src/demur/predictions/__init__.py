"""Predictions of members, and distributions over predictions: checked once, at the door."""

from demur.predictions.categorical import Categorical
from demur.predictions.dirichlet import Beta, Dirichlet
from demur.predictions.members import Members, gather
from demur.predictions.mixture import Mixture
from demur.predictions.second_order import SecondOrder, second_order
from demur.predictions.unit_interval import Deltas, Uniform

__all__ = [
    "Beta",
    "Categorical",
    "Deltas",
    "Dirichlet",
    "Members",
    "Mixture",
    "SecondOrder",
    "Uniform",
    "gather",
    "second_order",
]
