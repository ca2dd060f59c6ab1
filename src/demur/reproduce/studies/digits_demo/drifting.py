"""A policy in service while the digits turn: the monitor's alarm, drift, and their page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import demur
from demur.monitoring import Recommendation, Status
from demur.report.monitor_page import write_monitor_page

_WEEKS, _IMAGES_A_WEEK, _FIRST_WEEK_TURNED, _DEGREES_A_WEEK = 16, 250, 8, 6.0
_ACCURACY, _AUDIT = 0.97, 0.2


@dataclass(frozen=True)
class WatchedDigits:
    """What was found while digits turned.

    Attributes
    ----------
    status, advice
        At the end.
    alarm_week, drift_week
        The first week that ended with an alarm of the promise, and of drift; None: none did.
    turned_week
        The first week in which digits are turned.
    degrees
        By how much they are turned in the last week.
    accuracies
        Accuracy of what was kept, by week; nobody but the simulation knows it.
    """

    status: Status
    advice: Recommendation
    alarm_week: int | None
    drift_week: int | None
    turned_week: int
    degrees: float
    accuracies: list[float]

    def describe(self) -> str:
        """Return in words what happened."""
        lines = [
            f"A policy keeps what the deep ensemble predicts with an accuracy of {_ACCURACY:g}. "
            f"{_IMAGES_A_WEEK} digits a week; from week {self.turned_week} they turn, up to "
            f"{self.degrees:g} degrees in week {_WEEKS}. A fifth of the kept is audited.",
            f"Accuracy of the kept: {self.accuracies[0]:.3f} in week 1, {self.accuracies[-1]:.3f} in week "
            f"{_WEEKS}.",
            f"Drift of the score, without labels: {_name_week(self.drift_week)}.",
            f"Alarm that the promise is broken, from audits: {_name_week(self.alarm_week)}.",
            str(self.advice),
        ]
        return "\n".join(lines)


def watch_drifting_digits(
    posterior: demur.posteriors.Posterior,
    known: demur.Scores,
    images: np.ndarray,
    digits: np.ndarray,
    out: Path,
    *,
    seed: int,
) -> WatchedDigits:
    """Fit a policy on half of the known digits, watch it on the others as they turn, and write the page."""
    from scipy.ndimage import rotate

    rng = np.random.default_rng([seed, 0xD16])
    fit, served = np.array_split(rng.permutation(len(images)), 2)
    score = "pairwise_total"
    scores = known.columns[score]
    policy = demur.Deferral.fit(scores[fit], known.correct[fit], accuracy=_ACCURACY)
    monitor = demur.Monitor(policy, audit=_AUDIT, seed=seed)
    drift = demur.Drift({score: scores[fit]}, seed=seed)
    alarm_week = drift_week = None
    accuracies, degrees = [], 0.0
    for week in range(1, _WEEKS + 1):
        chosen = rng.choice(served, _IMAGES_A_WEEK)
        degrees = _DEGREES_A_WEEK * max(0, week + 1 - _FIRST_WEEK_TURNED)
        pictures = images[chosen].reshape(-1, 8, 8)
        turned = rotate(pictures, degrees, axes=(1, 2), reshape=False, order=1) if degrees else pictures
        found = demur.score(posterior, [(turned.reshape(-1, 64).astype(np.float32), digits[chosen])])
        monitor.observe(found.columns[score], found.correct)  # of which the audited ones are read
        drift.observe({score: found.columns[score]})
        kept = ~policy.defer(found.columns[score])
        accuracies.append(float(found.correct[kept].mean()) if kept.any() else 1.0)
        if alarm_week is None and monitor.status.alarm:
            alarm_week = week
        if drift_week is None and drift.status.alarm:
            drift_week = week
    monitor.save(out / "monitor.json")
    write_monitor_page(monitor, drift, out / "monitor.html")
    return WatchedDigits(
        monitor.status, monitor.recommend(), alarm_week, drift_week, _FIRST_WEEK_TURNED, degrees, accuracies
    )


def _name_week(week: int | None) -> str:
    return "not seen" if week is None else f"week {week}"
