"""Shares, their intervals and their differences in percent, and lists of names, as sentences have them."""

from __future__ import annotations

from collections.abc import Iterable

from demur.tasks.estimate import Estimate


def write_share(value: float, digits: int | None = None) -> str:
    """Write a share; near 0 and 1 with more digits, so that 99.97 % is not 100 %.

    Examples
    --------
    >>> write_share(0.5), write_share(0.99968), write_share(1.0), write_share(0.0004)
    ('50.0 %', '99.97 %', '100 %', '0.04 %')
    """
    if value in (0, 1):
        return f"{100 * value:.0f} %"
    if digits is None:
        digits = 2 if min(value, 1 - value) < 0.01 else 1
    text = f"{100 * value:.{digits}f}"
    if float(text) in (0, 100):
        return (
            f"under {10**-digits:.{digits}f} %"
            if float(text) == 0
            else f"over {100 - 10**-digits:.{digits}f} %"
        )
    return f"{text} %"


def digits_for(estimate: Estimate) -> int:
    """Return as many digits as an interval of this width makes worth reading."""
    width = estimate.high - estimate.low
    return 2 if width < 0.01 else 1 if width < 0.2 else 0


def write_estimate(estimate: Estimate) -> str:
    """Write a share with these digits."""
    return write_share(estimate.value, digits_for(estimate))


def write_interval(estimate: Estimate) -> str:
    """Write the interval of a share.

    Examples
    --------
    >>> write_interval(Estimate(0.9, 0.88, 0.92))
    '95 % interval 88.0 % to 92.0 %'
    """
    ends = " to ".join(write_share(end, digits_for(estimate)) for end in (estimate.low, estimate.high))
    return f"{100 * estimate.confidence:g} % interval {ends}"


def write_points(difference: float) -> str:
    """Write a difference of two shares.

    Examples
    --------
    >>> write_points(0.0123), write_points(0.01), write_points(1.0)
    ('1.2 points', '1 point', '100 points')
    """
    text = _hundredfold(difference)
    return f"{text} point{'' if text == '1' else 's'}"


def _hundredfold(difference: float) -> str:
    """Write a difference in percent, with two digits and without a power of ten."""
    return f"{float(f'{100 * difference:.2g}'):g}"


def write_difference(difference: Estimate) -> str:
    """Write a difference of two shares with its interval.

    Examples
    --------
    >>> write_difference(Estimate(0.012, 0.004, 0.02))
    '1.2 points (0.4 to 2)'
    """
    low, high = _hundredfold(difference.low), _hundredfold(difference.high)
    return f"{write_points(difference.value)} ({low} to {high})"


def join_names(names: Iterable[str]) -> str:
    """Write names with commas and an "and".

    Examples
    --------
    >>> join_names(["a", "b", "c"]), join_names(["a"])
    ('a, b and c', 'a')
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
