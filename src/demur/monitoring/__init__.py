"""Policies in service: whether their promise still holds, whether their inputs drift, and what to do then.

monitor        Monitor: bets against the promise, from audited inputs
status         what it found
audits         who is audited, with which probability
stream         what one server saw
running_risk   the risk so far, with an interval that holds at all times
records        the state as JSON; journal keeps it in a folder, through kills
"""

from demur.monitoring.advice import Recommendation
from demur.monitoring.drift import ColumnDrift, Drift, DriftStatus
from demur.monitoring.monitor import Monitor
from demur.monitoring.shift import shift_weights
from demur.monitoring.status import GroupStatus, Status

__all__ = [
    "ColumnDrift",
    "Drift",
    "DriftStatus",
    "GroupStatus",
    "Monitor",
    "Recommendation",
    "Status",
    "shift_weights",
]
