"""Slow, obvious versions of the bets: every bettor, from every start, as a product of its own."""

import math

LAST_START = 1 << 24


def stakes() -> list[float]:
    """24 shares of the largest stake, from 0.0005 to 0.9, each the same multiple of the one before."""
    ratio = (0.9 / 5e-4) ** (1 / 23)
    return [5e-4 * ratio**j for j in range(24)]


def capital(events: list[tuple[float, int]], limit: float, least: float) -> float:
    """The capital after audited inputs, each (probability, 1 if wrong)."""
    total = 1.0
    norm = math.log(LAST_START) + 0.57721566490153286
    for start in range(1, len(events) + 1):
        share = 1 / start / norm
        total -= share
        for stake in stakes():
            product = share / 24
            for probability, wrong in events[start - 1 :]:
                product *= 1 + stake * least / limit * (wrong - limit) / probability
            total += product
    return total


def risk_interval(
    events: list[tuple[float, int]], kept: int, least: float, confidence: float, steps: int = 2000
) -> tuple[float, float]:
    """The means, on a grid, at which the average of exp(L - b kept (mean - c)) is below 2 / (1 - level)."""
    centres = [0.0, 0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95, 1.0]
    bets: dict[int, list[tuple[float, float, float]]] = {1: [], -1: []}
    for sign, own in bets.items():
        for power in range(-18, 15):
            for centre in centres:
                slope = sign * least * 2 ** (power / 2)
                if max(slope * centre, -slope * (1 - centre)) / least <= 0.9:
                    factors = [1 + slope * (wrong - centre) / probability for probability, wrong in events]
                    own.append((slope, centre, sum(map(math.log, factors))))
    inside = []
    for step in range(steps + 1):
        mean, fine = step / steps, True
        for own in bets.values():
            found = [log - slope * kept * (mean - centre) for slope, centre, log in own]
            top = max(found)
            log_mean = top + math.log(sum(math.exp(each - top) for each in found) / len(found))
            fine &= log_mean < math.log(2 / (1 - confidence))
        if fine:
            inside.append(mean)
    return inside[0], inside[-1]
