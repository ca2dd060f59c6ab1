"""What a monitor has found so far, for programs and for people."""

from __future__ import annotations

import math
from dataclasses import dataclass

from demur.tasks.display import Displayed, Rows
from demur.tasks.estimate import Estimate


@dataclass(frozen=True)
class GroupStatus:
    """One group: what is promised for it, and what was found.

    Parameters
    ----------
    accuracy : float
        What is promised: the kept are right with at least this probability.
    alarm : bool
        Whether the promise was found broken, at the share of ``1 - confidence`` that the group has.
    capital, needed : float
        What the bets against the promise have made of 1, and what an alarm takes.
    risk : Estimate
        Mean probability of an error of the kept so far, at the group's share of ``1 - confidence``.
    kept, audited, missing : int
        Inputs kept, audited, and audited without a label yet.
    """

    accuracy: float
    alarm: bool
    capital: float
    needed: float
    risk: Estimate
    kept: int
    audited: int
    missing: int


@dataclass(frozen=True, repr=False)
class Status(Displayed):
    """What a monitor has found so far.

    Parameters
    ----------
    alarm : bool
        Whether there was an alarm; it is never taken back.
    holds : bool
        True until there is one. It is the absence of evidence, no proof: look at ``risk``.
    risk : Estimate
        Mean probability of an error over all kept inputs so far; the interval is valid at all times at once.
    observed, kept, audited, missing : int
        Inputs observed, kept, audited, and audited without a label yet.
    capital : float
        What the bets against the promise have made of 1: an alarm at ``1 / (1 - confidence)``.
    alarm_at : int or None
        How many inputs had been observed when the alarm came.
    since : int or None
        After an alarm: the input from which on the bets won the most, as a guess of when the change came.
    confidence : float
        The probability of an alarm while the promise holds is at most ``1 - confidence``.
    groups : dict
        The `GroupStatus` of each group; of "" where there are none.
    """

    alarm: bool
    risk: Estimate
    observed: int
    kept: int
    audited: int
    missing: int
    capital: float
    alarm_at: int | None
    since: int | None
    confidence: float
    groups: dict[str, GroupStatus]

    @property
    def holds(self) -> bool:
        """True until there is an alarm."""
        return not self.alarm

    def _display(self) -> tuple[str, Rows, list[str]]:
        title = "Alarm: the promise does not hold" if self.alarm else "No alarm"
        rows = [["group"] * (set(self.groups) != {""}) + ["promised", "risk so far", "audited", "evidence"]]
        for name, g in self.groups.items():
            found = f"{g.audited:,} of {g.kept:,}"
            capital = f"{write_capital(g.capital)} of {g.needed:g}"
            promised = f"at most {1 - g.accuracy:.4g}"
            rows.append(
                [name] * bool(name) + [promised, str(g.risk).replace("nan ", "unknown "), found, capital]
            )
        return title, rows, self.explain().splitlines()

    def explain(self) -> str:
        """Return in words what was found."""
        lines = []
        if self.alarm:
            since = "" if self.since is None else f", most likely since about input {self.since:,}"
            lines.append(f"Alarm after {self.alarm_at:,} inputs{since}: {self._broken()}.")
        else:
            lines.append("No evidence that the promise is broken, which is no proof that it holds.")
        if self.missing:
            lines.append(
                f"{self.missing:,} audited inputs have no label yet: they count as right for the alarm and "
                "the lower end of the risk, and as wrong for its upper end."
            )
        false = 1 - self.confidence
        lines.append(
            f"If the promise holds, the probability that an alarm is ever raised is at most {false:.4g}."
        )
        if len(self.groups) > 1:
            share = false / len(self.groups)
            lines.append(
                f"The {len(self.groups)} groups share this: {share:.4g} for each alarm, and for each risk."
            )
        return "\n".join(lines)

    def _broken(self) -> str:
        names = [name for name, group in self.groups.items() if group.alarm]
        if set(self.groups) == {""}:
            return f"the accuracy of the kept is below {self.groups[''].accuracy:.4g}"
        return (
            f"the promise is broken in {', '.join(names)}" if names else "the promise is broken in some group"
        )


def write_capital(capital: float) -> str:
    """Return what bets have made of 1.

    Examples
    --------
    >>> write_capital(0.5), write_capital(23.4), write_capital(3e7)
    ('0.5', '23.4', '3e+07')
    """
    return f"{capital:.3g}" if math.isfinite(capital) else "infinity"
