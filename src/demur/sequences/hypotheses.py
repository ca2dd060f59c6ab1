"""`hypotheses`: the uncertainty about whole answers, from some answers and how likely members find them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import logsumexp

from demur.core import arrays
from demur.core.arrays import Array, ArrayLike
from demur.core.logarithms import generalised_kl_term, itakura_saito
from demur.core.parts_as_text import Reading
from demur.core.rules import LOG
from demur.measures import Decomposition, Measure, MeasureName, check_base, name_unit, resolve

_STEP_ADVICE = (
    "With the average by step, log_likelihood=, only total and M are known: take measure='reverse' or 'bma'."
)


@dataclass(frozen=True, eq=False)
class HypothesisDecomposition:
    """Total, aleatoric and epistemic uncertainty about whole answers.

    Attributes
    ----------
    sequence
        A `Decomposition` of shape (inputs,). Its ``stderr`` is over hypotheses, where they were drawn.
    per_token
        The same with each hypothesis divided by its length; None without lengths.
    weights
        What each hypothesis counts, (inputs, hypotheses), summing to 1.
    effective_count
        How many hypotheses of equal weight these are worth, (inputs,).
    covered
        The probability of all hypotheses together under the average, (inputs,); None where they were drawn
        and may repeat.
    """

    sequence: Decomposition
    per_token: Decomposition | None
    weights: Array
    effective_count: Array
    covered: Array | None


def hypotheses(
    log_likelihoods: ArrayLike,
    *,
    drawn_from: Literal["average"] | ArrayLike | None = None,
    log_likelihood: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    measure: MeasureName | str | Measure = "pairwise",
    temperature: float = 1.0,
    weights: ArrayLike | None = None,
    base: float | None = None,
) -> HypothesisDecomposition:
    r"""Return the uncertainty about whole answers, from several complete ones.

    Malinin and Gales (2021), section 4. With answers :math:`y_s`, members' probabilities :math:`P_m(y_s)` and
    their average :math:`P(y_s) = \sum_m w_m P_m(y_s)`, every part is an average over answers,

    .. math::
        \pi_s \propto P(y_s)^{1/T} / Q(y_s), \quad
        H = -\sum_s \pi_s \log P(y_s), \quad
        M = \sum_s \pi_s \sum_m w_m \log \frac{P(y_s)}{P_m(y_s)}, \quad
        I = \sum_s \pi_s \sum_m w_m \frac{P_m(y_s)}{P(y_s)} \log \frac{P_m(y_s)}{P(y_s)}

    and K = I + M. Their code has no I and K of whole answers; these are the same averages of other terms.

    **What this estimates.** With ``drawn_from="average"`` the answers are draws from :math:`P`, all count the
    same, and every part is unbiased. With log-probabilities :math:`\log Q` of the distribution that they
    were drawn from, weights are normalised by their own sum: the bias is of the order of 1 / answers. Without
    (None), they are a list of *different* answers, as from a beam: parts are those of :math:`P` restricted to
    the list, exact once the list holds every possible answer, and too small where it misses unlikely
    ones; ``covered`` says how much probability the list has. A temperature other than 1 weighs the answers
    otherwise, and biases all of these on purpose.

    Parameters
    ----------
    log_likelihoods
        Log-probability of each whole answer under each member, (members, inputs, hypotheses).
    drawn_from
        None, ``"average"``, or log-probabilities (inputs, hypotheses): see above.
    log_likelihood
        Log-probability of the answers under an average of another kind, (inputs, hypotheses), as
        ``SequenceDecomposition.log_likelihood`` by step. Then only total and M exist.
    lengths
        Tokens of each answer, (inputs, hypotheses).
    mask
        True where there is an answer, (inputs, hypotheses); None: everywhere.
    measure
        ``"pairwise"``, ``"average"``, ``"reverse"`` or ``"bma"``.
    temperature
        :math:`T`, above 0.
    weights
        Of members, (members,); None: all the same.
    base
        None for nats, 2 for bits.

    Examples
    --------
    A language of two answers, and two members that disagree about them:

    >>> found = demur.sequences.hypotheses(np.log([[[0.9, 0.1]], [[0.5, 0.5]]]))
    >>> found.sequence.epistemic.round(3), found.covered
    (array([0.22]), array([1.]))
    >>> demur.decompose([[[0.9, 0.1]], [[0.5, 0.5]]]).epistemic.round(3)
    array([0.22])
    """
    given = arrays.as_array(log_likelihoods)
    members = arrays.to_numpy(given).astype(np.float64)
    if members.ndim != 3:
        raise ValueError(
            f"log_likelihoods must have members, inputs and hypotheses, 3 axes. Got shape {members.shape}."
        )
    shape = members.shape[1:]
    kept = np.ones(shape, bool) if mask is None else _check_shape("mask", mask, shape).astype(bool)
    _check_log_likelihoods("log_likelihoods", members, kept)
    chosen, scale = resolve(measure), check_base(base, LOG)
    if not np.isfinite(temperature) or temperature <= 0:
        raise ValueError(f"temperature must be a number above 0. Got {temperature!r}.")
    prior = _check_weights(weights, len(members))[:, None, None]
    members = np.where(kept, members, 0.0)
    averaged, ratio = _average_members(members, prior)
    if log_likelihood is not None:
        if chosen.sides()[0] != "bma":
            raise ValueError(_STEP_ADVICE)
        given_average = _check_shape("log_likelihood", log_likelihood, shape).astype(np.float64)
        _check_log_likelihoods("log_likelihood", given_average, kept)
        averaged = np.where(kept, given_average, 0.0)
        with np.errstate(invalid="ignore"):
            ratio = np.where(np.isneginf(members), -np.inf, members - averaged)
    shares = _weigh_hypotheses(averaged, kept, drawn_from, temperature)
    three = np.stack(_terms_of(chosen, ratio, prior, averaged, by_step=log_likelihood is not None))
    unit, drawn = Reading(name_unit("log", base)), drawn_from is not None
    like = arrays.sample(given)
    double = arrays.is_double(given)

    def back(part: np.ndarray) -> Array:
        return arrays.like(part, like, double)

    def average(terms: np.ndarray) -> Decomposition:
        means = _average(shares, terms) * scale
        errors = _compute_errors(shares, kept, terms) * scale if drawn else None
        stderr = None if errors is None else Decomposition(*(back(each) for each in errors))
        total, aleatoric, epistemic = (back(each) for each in means)
        return Decomposition(total, aleatoric, epistemic, stderr, _reading=unit)

    per_token = None
    if lengths is not None:
        count = _check_shape("lengths", lengths, shape).astype(np.float64)
        if not (count[kept] > 0).all():
            raise ValueError("lengths must be positive, tokens of each answer.")
        per_token = average(three / np.where(kept, count, 1.0))
    covered = None if drawn else np.where(kept, np.exp(averaged), 0.0).sum(axis=-1)
    return HypothesisDecomposition(
        sequence=average(three),
        per_token=per_token,
        weights=back(shares),
        effective_count=back(1 / (shares**2).sum(axis=-1)),
        covered=None if covered is None else back(covered),
    )


def _terms_of(
    measure: Measure, ratio: np.ndarray, prior: np.ndarray, averaged: np.ndarray, *, by_step: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what each hypothesis says of total, aleatoric and epistemic part, (inputs, hypotheses)."""
    predictor, truth = measure.sides()
    if "given" in (predictor, truth):
        raise ValueError(
            "measure must be 'pairwise', 'average', 'reverse' or 'bma'. Got one with a given model."
        )
    change, possible = np.expm1(ratio), ~np.isneginf(ratio)
    finite = np.where(possible, ratio, 0.0)
    # With sum w P_m / P = 1, both are sums of terms that are never negative and vanish where members agree.
    mutual = (prior * generalised_kl_term(np, change, finite)).sum(axis=0)
    safe = np.where(possible, np.exp(finite), 1.0)
    apart = itakura_saito(np, safe, np.ones_like(safe), np.where(possible, change, 0.0))
    if by_step:
        # That sum is not 1 for a product of averages; by Jensen's inequality the logarithms are enough.
        apart = -finite
    reverse = np.where(possible | (prior == 0), prior * apart, np.inf).sum(axis=0)
    if predictor == "bma":
        aleatoric = -averaged
        epistemic = reverse if truth == "each" else np.zeros_like(averaged)
    else:
        aleatoric = -averaged - mutual
        epistemic = mutual + (reverse if truth == "each" else 0.0)
    return aleatoric + epistemic, aleatoric, epistemic


def _average_members(members: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log P and log P_m / P; exactly 0 where members are identical."""
    top = np.where(prior > 0, members, -np.inf).max(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        below = np.where(np.isneginf(members), -np.inf, members - top)
        whole = np.log1p((prior * np.expm1(below)).sum(axis=0))
        return top + whole, np.where(np.isneginf(members), -np.inf, below - whole)


def _weigh_hypotheses(
    averaged: np.ndarray, kept: np.ndarray, drawn_from: Any, temperature: float
) -> np.ndarray:
    """Return what each hypothesis counts, summing to 1 for each input."""
    if not kept.any(axis=-1).all():
        empty = int(np.flatnonzero(~kept.any(axis=-1))[0])
        raise ValueError(f"mask must keep a hypothesis of each input. Got none for input {empty}.")
    if isinstance(drawn_from, str):
        if drawn_from != "average":
            raise ValueError(f"drawn_from must be None, 'average' or log-probabilities. Got {drawn_from!r}.")
        proposal = averaged
    elif drawn_from is None:
        proposal = np.zeros_like(averaged)
    else:
        proposal = _check_shape("drawn_from", drawn_from, kept.shape).astype(np.float64)
        _check_log_likelihoods("drawn_from", proposal, kept)
        if np.isneginf(proposal[kept]).any():
            raise ValueError("drawn_from must be finite: an answer that was drawn is possible. Got -inf.")
    logs = np.where(kept, averaged / temperature - proposal, -np.inf)
    if np.isnan(logs).any() or np.isneginf(logs.max(axis=-1)).any():
        raise ValueError("Every input needs a hypothesis that some member finds possible. Got one without.")
    return np.exp(logs - logsumexp(logs, axis=-1, keepdims=True))


def _average(shares: np.ndarray, terms: np.ndarray) -> np.ndarray:
    """Return weighted averages; a hypothesis without weight has no effect, whatever its terms are."""
    with np.errstate(invalid="ignore"):
        return np.where(shares > 0, shares * terms, 0.0).sum(axis=-1)


def _compute_errors(shares: np.ndarray, kept: np.ndarray, terms: np.ndarray) -> np.ndarray:
    """Return standard errors of weighted averages over draws; NaN for one draw or an infinite average."""
    count = kept.sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        off = terms - _average(shares, terms)[..., None]
        squares = np.where(shares > 0, (shares * off) ** 2, 0.0).sum(axis=-1)
        return np.sqrt(squares * np.where(count > 1, count / (count - 1), np.nan))


def _check_weights(weights: Any, members: int) -> np.ndarray:
    """Return weights of members that sum to 1."""
    if weights is None:
        return np.full(members, 1 / members)
    found = arrays.to_numpy(arrays.as_array(weights)).astype(np.float64)
    if found.shape != (members,):
        raise ValueError(f"weights must have shape {(members,)}, one per member. Got {found.shape}.")
    if not np.isfinite(found).all() or (found < 0).any() or not found.any():
        raise ValueError("weights must be finite, not negative, and not all zero.")
    return found / found.sum()


def _check_shape(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array; raise unless it has that shape."""
    found = arrays.to_numpy(arrays.as_array(value))
    if found.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, inputs and hypotheses. Got {found.shape}.")
    return found


def _check_log_likelihoods(name: str, values: np.ndarray, kept: np.ndarray) -> None:
    """Raise unless all are logarithms of probabilities."""
    # Sums of many rounded logarithms may be above 0 by their rounding.
    wrong = kept & (np.isnan(values) | (values > 1e-6))
    if wrong.any():
        place = [int(i) for i in np.argwhere(wrong)[0]]
        raise ValueError(
            f"{name} must be at most 0, logarithms of probabilities. Got {values[tuple(place)]} at {place}."
        )
