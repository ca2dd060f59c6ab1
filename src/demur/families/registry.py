"""Rules and families by name: those that demur brings, and those that users register."""

from __future__ import annotations

from demur.core.rules import RULES, Rule
from demur.families.family import Family
from demur.families.full_gaussian import FullGaussianRule
from demur.families.gaussian import DiagonalGaussianRule, GaussianRule
from demur.families.labels import MultiLabelRule
from demur.families.positive import ExponentialRule, GammaRule, PoissonRule

FAMILIES: dict[str, Rule] = {
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

_BUILT_IN = frozenset((*RULES, *FAMILIES))


def register_rule(rule: Rule, *, replace: bool = False) -> Rule:
    """Make a rule or family of your own known by its name.

    ``decompose``, ``attribute``, ``score`` and ``Moments`` then take the name as ``rule=``, and
    ``Moments.load`` finds the rule that a file names. A family is found through its predictions instead,
    which are a subclass of ``demur.predictions.Parametric``. See "Extend demur" in the documentation.

    Parameters
    ----------
    rule
        An instance of a subclass of ``demur.core.rules.Rule``: usually of ``BoundedRule`` for losses of
        classes, or of ``demur.families.Family`` for predicted numbers.
    replace
        Replace a rule of that name that was registered before, as when a notebook cell runs again. The
        rules that come with demur cannot be replaced.

    Returns
    -------
    Rule
        The same rule.

    Examples
    --------
    >>> from demur.core.rules import BrierRule
    >>> _ = demur.register_rule(BrierRule("my brier", separable=True))
    >>> demur.decompose(np.array([[0.9, 0.1], [0.5, 0.5]]), rule="my brier").epistemic
    array(0.16)
    """
    if not isinstance(rule, Rule):
        came = f"the class {rule.__name__}" if isinstance(rule, type) else type(rule).__name__
        raise TypeError(
            f"rule must be an instance of a subclass of demur.core.rules.Rule. Got {came}. "
            "Make one, as in MyRule('my rule', separable=True)."
        )
    if not isinstance(rule.name, str) or not rule.name:
        raise ValueError(f"rule must have a name that is not empty. Got {rule.name!r}.")
    if rule.compiled:
        raise ValueError(
            f"rule {rule.name!r} must have compiled=False: the compiled loops compute the log rule only. "
            "Got compiled=True. Leave it out."
        )
    known = RULES | FAMILIES
    if known.get(rule.name) == rule:
        return rule
    if rule.name in _BUILT_IN or (rule.name in known and not replace):
        advice = "Choose another name." if rule.name in _BUILT_IN else "Choose another, or pass replace=True."
        raise ValueError(f"rule must have a name of its own. Got {rule.name!r}, which is taken. {advice}")
    RULES.pop(rule.name, None)
    FAMILIES.pop(rule.name, None)
    (FAMILIES if isinstance(rule, Family) else RULES)[rule.name] = rule
    return rule


def find_rule(name: str) -> Rule:
    """Return the rule or family that a file names."""
    known = RULES | FAMILIES
    if name not in known:
        raise ValueError(f"its rule {name!r} is not known here. Call demur.register_rule with it first")
    return known[name]
