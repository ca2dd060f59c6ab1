"""Families of predictive distributions beyond classes; each is to the sums what a rule is.

A contract test walks ``FAMILIES``: whatever is put there must keep every promise made for the others.
"""

from demur.core.rules import Rule, resolve_rule
from demur.families.family import Family
from demur.families.full_gaussian import FullGaussianRule
from demur.families.gaussian import DiagonalGaussianRule, GaussianRule
from demur.families.labels import MultiLabelRule
from demur.families.positive import ExponentialRule, GammaRule, PoissonRule

FAMILIES: dict[str, Family | MultiLabelRule] = {
    family.name: family
    for family in (
        GaussianRule("Gaussian", separable=False),
        DiagonalGaussianRule("diagonal Gaussian", separable=False),
        FullGaussianRule("full Gaussian", separable=False),
        MultiLabelRule("multi-label", separable=True),
        PoissonRule("Poisson", separable=False),
        ExponentialRule("exponential", separable=False),
        GammaRule("gamma", separable=False),
    )
}


def named(name: str) -> Rule:
    """Return the rule or family that a file names."""
    return FAMILIES[name] if name in FAMILIES else resolve_rule(name)


__all__ = ["FAMILIES", "Family", "named"]
