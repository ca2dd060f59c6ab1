"""Predictions of members: checked once, at the door."""

from demur.predictions.categorical import Categorical
from demur.predictions.members import Members, gather

__all__ = ["Categorical", "Members", "gather"]
