"""The average of Gaussian members: a mixture, whose entropy has no closed form, integrated numerically.

With ``p`` the average and ``r = q / p``, every divergence from it is an integral of something not negative,

    KL(q, p) = integral of p (r log r - r + 1),

so that nothing cancels where members nearly agree, and identical ones give exactly 0. The line is cut in
panels until each is narrow beside the finest member that reaches it, whatever the ratio of scales; there
the rule of Gauss and Kronrod with 15 points is applied, and panels are halved until the error that it
estimates is small. A panel's points are counted from the mean of that finest member, and so keep their
digits wherever it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from demur.core.logarithms import generalised_kl_term

REACH = 9.0  # standard deviations; what lies beyond is 2e-19 of a member, and 1e-14 of its z**4
WIDEST_PANEL = 3.0  # standard deviations of the finest member that a panel may be wide
TOLERANCE = 1e-9  # of the result, for the sum of all estimated errors; the true ones are a thousandth
_MOST_HALVINGS = 200  # halvings of a panel; a ratio of scales of 1e12 takes 45
_LARGEST_LOG_RATIO = 500.0  # of log r, beyond which r times p is better taken as q
_DENSITIES_AT_ONCE = 1 << 19  # densities evaluated at a time

# Nodes of Kronrod, and weights of Kronrod and of the 7 points of Gauss among them (QUADPACK's qk15).
_NODES = np.array([
    0.991455371120812639206854697526329, 0.949107912342758524526189684047851,
    0.864864423359769072789712788640926, 0.741531185599394439863864773280788,
    0.586087235467691130294144691693013, 0.405845151377397166906606412076961,
    0.207784955007898467600689403773245, 0.0,
])  # fmt: skip
_KRONROD = np.array([
    0.022935322010529224963732008058970, 0.063092092629978553290700663189204,
    0.104790010322250183839876322541518, 0.140653259715525918745189590510238,
    0.169004726639267902826583426598550, 0.190350578064785409913256402421014,
    0.204432940075298892414161999234649, 0.209482141084727828012999174891714,
])  # fmt: skip
_GAUSS = np.array([
    0.0, 0.129484966168869693270611432679082, 0.0, 0.279705391489276667901467771423780,
    0.0, 0.381830050505118944950369775488975, 0.0, 0.417959183673469387755102040816327,
])  # fmt: skip
_POINTS = np.concatenate([-_NODES, _NODES[-2::-1]])
_WEIGHTS = np.stack([np.concatenate([w, w[-2::-1]]) for w in (_KRONROD, _GAUSS)], axis=-1)


class Integral(NamedTuple):
    """A value for each input, and an estimate of its absolute error."""

    value: np.ndarray
    error: np.ndarray


class Panels(NamedTuple):
    """Parts of the line: of which input, and from where to where, counted from an anchor's mean."""

    owner: np.ndarray
    anchor: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def where(self, chosen: Any) -> Panels:
        """Return some of the panels."""
        return Panels(*(part[chosen] for part in self))

    def halves(self) -> Panels:
        """Return both halves of each panel."""
        middle = self.low + (self.high - self.low) / 2
        return Panels(
            np.tile(self.owner, 2),
            np.tile(self.anchor, 2),
            np.concatenate([self.low, middle]),
            np.concatenate([middle, self.high]),
        )


def divergence_from_average(
    mean: np.ndarray,
    variance: np.ndarray,
    weights: np.ndarray,
    given: tuple[np.ndarray, np.ndarray] | None = None,
) -> Integral:
    """Return the mean of ``KL(q_k, p)``: mutual information where the ``q_k`` are the members themselves.

    Parameters
    ----------
    mean, variance, weights
        Of the members that are averaged, shape (members, inputs); weights not negative.
    given
        Mean and variance of equally weighted Gaussians, shape (given, inputs); None: the members.
    """
    shares = weights / weights.sum(axis=0)
    count = len(mean)
    part = shares if given is None else np.full(given[0].shape, 1 / len(given[0]))
    used = shares > 0
    if given is not None:
        mean, variance = (np.concatenate(pair) for pair in zip((mean, variance), given, strict=True))
        used = np.concatenate([used, part > 0])
    scale = np.sqrt(variance)

    def integrand(owner: np.ndarray, log_densities: np.ndarray) -> np.ndarray:
        members = log_densities[..., :count]
        charged = members if given is None else log_densities[..., count:]
        log_average = _log_mean(members, shares[:, owner].T[:, None, :])
        return np.einsum("psk,pk->ps", _divergence_density(charged, log_average), part[:, owner].T)

    return _integrate(mean, scale, used, integrand)


def _log_mean(logs: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return ``log sum share exp(log)`` over the last axis, equal to the logs where they are all equal."""
    top = np.max(np.where(shares > 0, logs, -np.inf), axis=-1, keepdims=True)
    below = logs - top
    np.minimum(below, 0.0, out=below)  # of those without weight too
    close = below.min(axis=-1) > -0.5
    shares = np.broadcast_to(shares, below.shape)
    rest = np.empty(below.shape[:-1])
    rest[close] = np.log1p(np.einsum("pk,pk->p", shares[close], np.expm1(below[close])))
    rest[~close] = np.log(np.einsum("pk,pk->p", shares[~close], np.exp(below[~close])))
    return top + rest[..., None]


def _divergence_density(log_q: np.ndarray, log_p: np.ndarray) -> np.ndarray:
    """Return ``p (r log r - r + 1)`` for ``r = q / p``, never negative."""
    d = log_q - log_p
    np.maximum(d, -745.0, out=d)  # below that r is 0, and r log r with it
    p = np.exp(log_p)
    growth = np.expm1(np.minimum(d, _LARGEST_LOG_RATIO))
    density = p * generalised_kl_term(np, growth, d)
    far = d > _LARGEST_LOG_RATIO
    if far.any():
        density[far] = np.exp(log_q[far]) * (d[far] - 1) + np.broadcast_to(p, d.shape)[far]
    return density


def _integrate(
    mean: np.ndarray,
    scale: np.ndarray,
    used: np.ndarray,
    integrand: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> Integral:
    """Integrate a function that is not negative over the line, for each input.

    Parameters
    ----------
    mean, scale, used
        Gaussians (count, inputs) outside whose reach the function is nothing; which of them take part.
    integrand
        From inputs (panels,) and log-densities (panels, points, count) to values (panels, points).
    """
    inputs = mean.shape[1]
    panels = _hulls(mean, scale, used)
    value, error = np.zeros(inputs), np.zeros(inputs)
    for last in [False] * _MOST_HALVINGS + [True]:
        panels, wide = _arrange(panels, mean, scale, used)
        later = panels.where(wide).halves()
        panels = panels.where(~wide)
        found, doubt = _apply_rule(panels, mean, scale, integrand)
        whole = value + np.bincount(panels.owner, found, inputs)
        # Beyond the rounding of the integrand no halving helps.
        enough = TOLERANCE / 16 * whole + _rounding(whole) / 16
        bad = doubt > enough[panels.owner] if not last else np.zeros(len(doubt), bool)
        value += np.bincount(panels.owner[~bad], found[~bad], inputs)
        error += np.bincount(panels.owner[~bad], doubt[~bad], inputs)
        more = panels.where(bad).halves()
        panels = Panels(*(np.concatenate(pair) for pair in zip(later, more, strict=True)))
        if not len(panels.owner):
            break
    return Integral(value, error + _rounding(value))


def _rounding(value: np.ndarray) -> np.ndarray:
    """Return what rounding may do to an integral of this size.

    Logarithms of densities are rounded by ``eps`` times their size, a few units. The integrand is their
    squared difference where members nearly agree, so that the error is ``eps`` times its root.
    """
    return 8 * np.finfo(float).eps * (value + np.sqrt(value))


def _hulls(mean: np.ndarray, scale: np.ndarray, used: np.ndarray) -> Panels:
    """Return one panel per input, wide enough for all of its members."""
    owner = np.arange(mean.shape[1])
    anchor = np.argmin(np.where(used, scale, np.inf), axis=0)
    offset = mean - mean[anchor, owner]
    low = np.min(np.where(used, offset - REACH * scale, np.inf), axis=0)
    high = np.max(np.where(used, offset + REACH * scale, -np.inf), axis=0)
    return Panels(owner, anchor, low, high)


def _arrange(
    panels: Panels, mean: np.ndarray, scale: np.ndarray, used: np.ndarray
) -> tuple[Panels, np.ndarray]:
    """Return the panels that a member reaches, counted from the finest one, and which are too wide for it."""
    own_mean, own_scale = mean[:, panels.owner], scale[:, panels.owner]
    offset = own_mean - np.take_along_axis(own_mean, panels.anchor[None], 0)
    reach = REACH * own_scale
    reaching = used[:, panels.owner] & (offset - reach < panels.high) & (offset + reach > panels.low)
    some = reaching.any(axis=0)
    finest = np.argmin(np.where(reaching, own_scale, np.inf), axis=0)
    shift = np.take_along_axis(offset, finest[None], 0)[0]
    moved = Panels(panels.owner, finest, panels.low - shift, panels.high - shift)
    unit = np.take_along_axis(own_scale, finest[None], 0)[0]
    wide = (moved.high - moved.low) > WIDEST_PANEL * unit
    return moved.where(some), wide[some]


def _apply_rule(
    panels: Panels,
    mean: np.ndarray,
    scale: np.ndarray,
    integrand: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the integral over each panel, and an estimate of its error."""
    found, doubt = np.empty(len(panels.owner)), np.empty(len(panels.owner))
    step = max(1, _DENSITIES_AT_ONCE // (len(_POINTS) * len(mean)))
    for begin in range(0, len(found), step):
        part = slice(begin, begin + step)
        some = panels.where(part)
        half = (some.high - some.low) / 2
        points = (some.low + half)[:, None] + half[:, None] * _POINTS
        own_mean, own_scale = mean[:, some.owner].T, scale[:, some.owner].T
        offset = own_mean - np.take_along_axis(own_mean, some.anchor[:, None], 1)
        # Densities are in units of the anchor's scale: those of 1e-200 are as good as any.
        unit = np.take_along_axis(own_scale, some.anchor[:, None], 1)
        with np.errstate(over="ignore"):  # so far away that there is nothing
            z = (points[..., None] - offset[:, None, :]) / own_scale[:, None, :]
            logs = -0.5 * z * z - np.log(own_scale / unit)[:, None, :]
        values = integrand(some.owner, logs)
        length = half / (unit[:, 0] * np.sqrt(2 * np.pi))
        kronrod, gauss = (values @ _WEIGHTS).T * length
        # QUADPACK's estimate: the rule of Gauss errs by the difference, that of Kronrod by far less.
        level = (values @ _WEIGHTS[:, :1]) / 2
        variation = np.abs(values - level) @ _WEIGHTS[:, 0] * length
        difference = np.abs(kronrod - gauss)
        relative = 200 * difference / np.where(variation > 0, variation, 1.0)
        found[part] = kronrod
        doubt[part] = variation * np.minimum(1.0, relative**1.5)
    return found, doubt
