"""The table of measures: who draws the outcome, who is charged for it, and how the parts are computed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from demur.core.parts_as_text import Reading, describe_parts, write_html_table
from demur.core.rules import Array, Rule, describe_unknown, epsilon
from demur.core.state import Means

if TYPE_CHECKING:
    import pandas

MeasureName = Literal[
    "pairwise", "average", "reverse", "bma", "K", "I", "M", "mutual_information", "mi", "bald", "epkl",
    "C3", "C2", "B3", "B2",
]  # fmt: skip
"""Names of measures, for type checkers and editors."""


@dataclass(frozen=True)
class Measure:
    """A cell of the table of measures: total = <predictor's probabilities, truth's losses>.

    Parameters
    ----------
    predictor
        Who draws the outcome: ``"each"`` member, ``"bma"`` (the average of the members), or a given model:
        an array of probabilities (inputs, classes), predictions, a set of members (members, inputs,
        classes), or ``Moments``.
    truth
        Who is charged for it; the same choices.

    Examples
    --------
    The expected pairwise measure (Schweighofer et al., 2023, Eq. 4), and their Eq. 3 for a deployed model:

    >>> demur.Measure()
    Measure('each', 'each')
    >>> deployed = np.array([[0.9, 0.1]])
    >>> demur.Measure(predictor=deployed, truth="each")
    Measure(given, 'each')
    """

    predictor: Any = "each"
    truth: Any = "each"
    _sides: ClassVar[tuple[str, str]]  # of the instance, but no field

    def __post_init__(self) -> None:
        for side in ("predictor", "truth"):
            value = getattr(self, side)
            if isinstance(value, str) and value not in ("each", "bma"):
                expected = describe_unknown(side, value, ["each", "bma"])
                raise ValueError(f"{expected} Or give a model, as an array or Moments.")
        predictor, truth = (s if isinstance(s, str) else "given" for s in (self.predictor, self.truth))
        object.__setattr__(self, "_sides", (predictor, truth))

    def __repr__(self) -> str:
        sides = (repr(s) if isinstance(s, str) else "given" for s in (self.predictor, self.truth))
        return f"Measure({', '.join(sides)})"

    def sides(self) -> tuple[str, str]:
        """Return ``"each"``, ``"bma"`` or ``"given"`` for predictor and truth."""
        return self._sides


class _Entry(NamedTuple):
    """A named measure with its properties, for documentation and for tests that walk the registry."""

    measure: Measure
    alias: str
    epistemic: str
    equation: str
    may_be_infinite: bool


MEASURES: dict[str, _Entry] = {
    "pairwise": _Entry(Measure("each", "each"), "C3", "expected pairwise KL divergence K", "Eq. 4", True),
    "average": _Entry(Measure("each", "bma"), "C2", "mutual information I", "Eq. 1 and 2", False),
    "reverse": _Entry(Measure("bma", "each"), "B3", "reverse mutual information M", "Eq. 19", True),
    "bma": _Entry(Measure("bma", "bma"), "B2", "none: 0", "", False),
}  # fmt: skip
_CELLS = {entry.alias: name for name, entry in MEASURES.items()}
_SPOKEN = {
    "K": "pairwise", "epkl": "pairwise", "I": "average", "mutual_information": "average", "mi": "average",
    "bald": "average", "M": "reverse",
}  # fmt: skip
_ALIASES = _SPOKEN | _CELLS
PARTS = ("total", "aleatoric", "epistemic")
GIVEN = ("A1", "A2", "A3", "B1", "C1")
"""Cells of the table that need a given model."""


def cell(name: str, given: Any) -> Measure:
    """Return a cell of the table by its letter and number, with a given model where it has one.

    Examples
    --------
    >>> cell("A3", np.array([[0.9, 0.1]])), cell("C3", None)
    (Measure(given, 'each'), Measure('each', 'each'))
    """
    sides = {"A": given, "B": "bma", "C": "each", "1": given, "2": "bma", "3": "each"}
    return Measure(sides[name[0]], sides[name[1]])


def canonical_name(name: str) -> str:
    """Return the name under which results of a measure are kept; cells of the table keep their own.

    Examples
    --------
    >>> canonical_name("K"), canonical_name("bald"), canonical_name("A3")
    ('pairwise', 'average', 'A3')
    """
    return _SPOKEN.get(name, name)


def resolve(measure: str | Measure) -> Measure:
    """Return the measure of that name."""
    if isinstance(measure, Measure):
        return measure
    name = _ALIASES.get(measure, measure) if isinstance(measure, str) else measure
    if isinstance(name, str) and name in MEASURES:
        return MEASURES[name].measure
    raise ValueError(
        describe_unknown("measure", measure, [*MEASURES, *_ALIASES]) + " Or give a demur.Measure."
    )


def check_base(base: float | None, rule: Rule) -> float:
    """Return the factor from nats to the wanted unit."""
    if base is None:
        return 1.0
    if not rule.nats:
        raise ValueError(f"base goes with rule 'log' only: {rule.name!r} has no unit. Got base {base!r}.")
    if isinstance(base, bool) or not isinstance(base, Real) or not 1 < base < math.inf:
        raise ValueError(f"base must be a number above 1, as 2 for bits. Got {base!r}.")
    return 1 / math.log(float(base))


def name_unit(rule: str, base: float | None) -> str:
    """Return the unit that scores are measured in.

    Examples
    --------
    >>> name_unit("log", None), name_unit("log", 2), name_unit("brier", None)
    ('nats', 'bits', 'brier loss')
    >>> name_unit("energy", None)
    'the unit of the numbers'
    """
    if rule == "energy":
        return "the unit of the numbers"
    if rule != "log":
        return f"{rule} loss"
    return {None: "nats", 2.0: "bits"}.get(base, f"units of log {base:g}" if base else "")


def check_separable(rule: Rule) -> None:
    """Raise unless a rule's divergence has a share for each class."""
    if not rule.separable:
        raise ValueError(
            "attribute needs a rule whose divergence is a sum over classes, 'log' or 'brier'. "
            f"Got {rule.name!r}."
        )


@dataclass(frozen=True, eq=False)
class Decomposition:
    """Total, aleatoric and epistemic uncertainty of each input; total = aleatoric + epistemic.

    Attributes
    ----------
    total, aleatoric, epistemic
        Shaped like the batch, in the library and on the device of the predictions.
    stderr
        Standard errors of the three over members, or None.
    """

    total: Array
    aleatoric: Array
    epistemic: Array
    stderr: Decomposition | None = None
    _reading: Reading | None = field(default=None, kw_only=True, repr=False, compare=False)

    def __repr__(self) -> str:
        errors = {} if self.stderr is None else self.stderr._parts()
        return describe_parts(self._parts(), errors, self._reading)

    def _repr_html_(self) -> str:
        return write_html_table(self._parts(), self._reading)

    def _parts(self) -> dict[str, Array]:
        return {"total": self.total, "aleatoric": self.aleatoric, "epistemic": self.epistemic}

    def to_dict(self) -> dict[str, Array]:
        """Return the parts by name; standard errors, if any, as ``total_stderr`` and so on."""
        parts = self._parts()
        if self.stderr is not None:
            parts |= {f"{name}_stderr": value for name, value in self.stderr.to_dict().items()}
        return parts

    def to_pandas(self) -> pandas.DataFrame:
        """Return a table with a row for each input; needs pandas, in ``demur[tables]``."""
        from demur.core import arrays

        try:
            import pandas
        except ImportError:
            raise ImportError(
                "to_pandas needs pandas. Install it with: pip install 'demur[tables]'"
            ) from None
        columns = {name: arrays.to_numpy(part) for name, part in self.to_dict().items()}
        return pandas.DataFrame({name: part.reshape(-1) for name, part in columns.items()})

    def map(self, change: Callable[[Array], Array]) -> Decomposition:
        """Return the decomposition with every array changed."""
        stderr = None if self.stderr is None else self.stderr.map(change)
        parts = change(self.total), change(self.aleatoric), change(self.epistemic)
        return Decomposition(*parts, stderr, _reading=self._reading)


class Parts(NamedTuple):
    """Aleatoric and epistemic part, (inputs,)."""

    aleatoric: Array
    epistemic: Array


class Given(NamedTuple):
    """The given sides of a measure as averages relative to the members' reference; None where not given."""

    predictor: Means | None = None
    truth: Means | None = None


def sides_of(measure: Measure, members: Means, given: Given) -> tuple[Means, Means]:
    """Return the averages of predictor and truth."""
    both = []
    for name, own in zip(measure.sides(), given, strict=True):
        both.append(own if own is not None else members if name == "each" else members.mixture)
    return both[0], both[1]


def evaluate(measure: Measure, members: Means, given: Given) -> Parts:
    """Return the parts of a measure."""
    predictor, truth = sides_of(measure, members, given)
    apart, together = divergence_terms(predictor, truth)
    xp = members.xp
    epistemic = xp.sum(apart, axis=-1) + xp.sum(together, axis=-1)
    if predictor.rule.votes:
        epistemic = drop_rounding(xp, epistemic, xp.ones_like(epistemic))
    return Parts(predictor.entropy, epistemic)


def divergence_terms(predictor: Means, truth: Means) -> tuple[Array, Array]:
    """Return the terms of ``E_i E_j D(p_i, p_j)``, i of the predictor and j of the truth.

    Every cell of the table: ``E phi_i - E phi_j  +  E a_j u_j - E a_i E u_j``. Both brackets are exactly 0
    where the sides are equal, and the first is 0 (class by class) for the pairwise measure.
    """
    xp = predictor.xp
    apart = predictor.phi - truth.phi
    if predictor.rule.separable:
        apart = drop_rounding(xp, apart, 8 * predictor.phi)
    together = truth.au - predictor.a * truth.u
    if predictor is truth:
        together = drop_rounding(xp, together, truth.au)
    if truth.excludes is not None:
        impossible = truth.excludes
        if predictor.allows is not None:
            impossible = impossible & predictor.allows
        together = xp.where(impossible, xp.full_like(together, float("inf")), together)
    return apart, together


def cap_terms(measure: Measure, members: Means, terms: Array) -> Array:
    """Return class terms of I or M with an I of at most the entropy of the weights, where a rule wants that.

    Every class gives up the same share of its I.
    """
    sides = measure.sides()
    if members.most is None or sides not in (("each", "bma"), ("bma", "each")):
        return terms
    xp = members.xp
    mutual = terms if sides[0] == "each" else sum(divergence_terms(members, members.mixture))
    whole = xp.sum(mutual, axis=-1)
    above = whole > members.most
    excess = xp.where(above, 1 - members.most / xp.where(above, whole, xp.ones_like(whole)), 0.0)
    given_up = excess[..., None] * mutual
    return terms - given_up if sides[0] == "each" else terms + given_up


def drop_rounding(xp: Any, difference: Array, of: Array) -> Array:
    """Return a difference, but exactly 0 where it is within the rounding error of its terms."""
    noise = 8 * epsilon(xp, difference) * xp.abs(of)
    return xp.where(xp.abs(difference) > noise, difference, xp.zeros_like(difference))


def from_summary(measure: Measure, entropy: Array, k: Array, i: Array, m: Array | None = None) -> Parts:
    """Return the parts of a measure without given sides from mean entropy, K, I and M (None: K - I)."""
    predictor, truth = measure.sides()
    if predictor == "each":
        return Parts(entropy, k if truth == "each" else i)
    return Parts(entropy + i, 0 * i if truth != "each" else k - i if m is None else m)


def is_summary(measure: Measure) -> bool:
    """Tell whether mean entropy, K and I are all that a measure needs."""
    return "given" not in measure.sides()


def needs_groups(measure: Measure) -> bool:
    """Tell whether correcting this measure's bias takes a jackknife: the average enters it."""
    return "bma" in measure.sides()
