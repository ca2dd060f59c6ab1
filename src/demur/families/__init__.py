"""Families of predictive distributions beyond classes; each is to the sums what a rule is.

A contract test walks ``FAMILIES``: a new family must keep every promise that the others keep.
"""

from demur.families.family import Family
from demur.families.registry import FAMILIES, find_rule, register_rule

__all__ = ["FAMILIES", "Family", "find_rule", "register_rule"]
