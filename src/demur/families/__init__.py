"""Families of predictive distributions beyond classes; each is to the sums what a rule is.

A contract test walks ``FAMILIES``: whatever is put there must keep every promise made for the others.
"""

from demur.core.rules import Rule, resolve_rule
from demur.families.covariance import FullGaussian
from demur.families.exponential import Exponential, Gamma, Poisson
from demur.families.family import Family
from demur.families.gaussian import DiagonalGaussian, Gaussian
from demur.families.labels import Labels

FAMILIES: dict[str, Family | Labels] = {
    family.name: family
    for family in (
        Gaussian("Gaussian", separable=False),
        DiagonalGaussian("diagonal Gaussian", separable=False),
        FullGaussian("full Gaussian", separable=False),
        Labels("multi-label", separable=True),
        Poisson("Poisson", separable=False),
        Exponential("exponential", separable=False),
        Gamma("gamma", separable=False),
    )
}


def named(name: str) -> Rule:
    """Return the rule or family that a file names."""
    return FAMILIES[name] if name in FAMILIES else resolve_rule(name)


__all__ = ["FAMILIES", "Family", "named"]
