"""A simulated year of traffic for a policy that is watched: in autumn, the world changes.

1,000 inputs a day. The policy promises that 95 % of the kept are right, and keeps this promise until day 270;
from then on, inputs with scores from 0.35 are often predicted wrong. A fifth of the kept inputs is audited.
"""

from pathlib import Path

import numpy as np

import demur

DAYS, INPUTS, CHANGE = 365, 1000, 270


def draw_traffic(rng: np.random.Generator, day: int) -> tuple[np.ndarray, np.ndarray]:
    """Return scores, and whether predictions are right; scores drift with the seasons, which harms nobody."""
    season = 0.1 * np.sin(2 * np.pi * day / 365)
    scores = rng.beta(2 + 5 * max(season, 0), 2 - 5 * min(season, 0), INPUTS)
    error = scores**2 / 3 + np.where((scores > 0.35) & (day >= CHANGE), 0.25, 0.0)
    return scores, rng.uniform(size=INPUTS) > error


def main() -> None:
    """Fit a policy, watch it for a year, and ask what to do."""
    rng = np.random.default_rng(0)
    scores, correct = (
        np.concatenate(each) for each in zip(*(draw_traffic(rng, 0) for _ in range(4)), strict=True)
    )
    policy = demur.Deferral.fit(scores, correct, accuracy=0.95)
    print(policy.promise())

    folder = Path("monitor")
    alarm_day = None
    drift = demur.Drift(scores)
    with demur.Monitor.open(folder, policy, audit=0.2) as monitor:  # what it observes survives a kill
        for day in range(DAYS):
            scores, correct = draw_traffic(rng, day)
            ids = [f"{day}-{k}" for k in range(INPUTS)]
            audited = monitor.to_audit(scores, ids=ids)
            labels = np.where(audited, correct, np.nan)  # somebody looks these up, and no others
            monitor.observe(scores, labels, audited, ids=ids)
            if day % 7 == 0:  # a sample is enough for drift
                drift.observe(scores[:50])
            if alarm_day is None and monitor.status.alarm:
                alarm_day = day
                print(f"Alarm on day {day}, {day - CHANGE} days after the change.")
        print(monitor.status)
        print(monitor.recommend())
    print(drift.status)


if __name__ == "__main__":
    main()
