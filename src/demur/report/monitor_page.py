"""The page of a monitor: evidence over time, risk with its band, audits, drift by column."""

from __future__ import annotations

import html
import re
from importlib.resources import files
from pathlib import Path

import numpy as np

from demur.atomic import write_text
from demur.control_characters import escape_controls
from demur.monitoring import Drift, Monitor, Status
from demur.monitoring.status import write_capital
from demur.report.line_chart import LineChart
from demur.stores import StoreError

_COLOURS = 6
_SHOWN_TO = 1e12
"""Capital beyond this is not drawn."""
_ROOM_ABOVE = 30
"""How many times the largest capital the axis goes, so that words at the top have room."""


def write_monitor_page(monitor: Monitor, drift: Drift | None, path: Path) -> Path:
    """Write the page as one file that works offline."""
    try:
        write_text(path, build_monitor_page(monitor, drift))
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path


def build_monitor_page(monitor: Monitor, drift: Drift | None) -> str:
    """Return the page, with its style and its charts put in."""
    folder = files("demur.report") / "pages"
    found = monitor.status
    advice = monitor.recommend() if len(monitor.streams) == 1 else None
    parts = {
        "verdict": _write_verdict(found),
        "state": "alarm" if found.alarm else "calm",
        "explanation": _paragraphs(found.explain()),
        "advice": "" if advice is None else _paragraphs(advice.text),
        "promise": _paragraphs(
            "\n".join(line[:1].upper() + line[1:] for line in monitor.policy.promise().splitlines())
        ),
        "evidence": _draw_evidence(monitor, found),
        "risk": _draw_risk(monitor, found),
        "groups": _write_groups(found),
        "audits": _write_audits(monitor, found),
        "drift": _write_drift(drift),
        "report.css": (folder / "report.css").read_text(encoding="utf-8"),
        "monitor.css": (folder / "monitor.css").read_text(encoding="utf-8"),
    }
    page = (folder / "monitor.html").read_text(encoding="utf-8")
    # In one pass over the page itself, so that nothing is looked for in what was put in.
    return re.sub(r"\{\{([\w.]+)\}\}", lambda marker: parts[marker[1]], page)


def _plain(text: str) -> str:
    return html.escape(escape_controls(text))


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{_plain(line)}</p>" for line in text.splitlines())


def _write_verdict(found: Status) -> str:
    if found.alarm:
        return f"Alarm after {found.alarm_at:,} inputs: the promise does not hold"
    return f"No alarm in {found.observed:,} inputs"


def _add_moments(chart: LineChart, found: Status) -> None:
    if found.alarm_at is not None:
        chart.add_moment(found.alarm_at, "alarm", "alarm")
    if found.since is not None:
        chart.add_moment(found.since, "change, as a guess", "guess", left=True)


def _list_course(monitor: Monitor, found: Status) -> np.ndarray:
    """Return the points of the history, and the present, which is not always among them."""
    now = [found.observed, found.audited, found.capital, found.risk.value, found.risk.low, found.risk.high]
    course = monitor.history
    return np.vstack([[0, 0, 1, np.nan, 0, 1], course[course[:, 0] < found.observed], now])


def _draw_evidence(monitor: Monitor, found: Status) -> str:
    needed = 1 / (1 - monitor.confidence)
    places, capital = _list_course(monitor, found)[:, [0, 2]].T
    if found.alarm_at not in (None, *places) and len(found.groups) == len(monitor.streams) == 1:
        # The course has only the ends of what was observed at a time; the alarm may have come in between.
        place = int(np.searchsorted(places, found.alarm_at))
        places, capital = np.insert(places, place, found.alarm_at), np.insert(capital, place, needed)
    capital = np.clip(capital, None, _SHOWN_TO)
    low = min(0.1, float(capital.min(initial=1.0)) / 2)
    high = max(5 * needed, _ROOM_ABOVE * float(capital.max(initial=1.0)))
    chart = LineChart(
        "Evidence over inputs observed", found.observed, low, high, "evidence (starts at 1)", True
    )
    chart.add_level(needed, f"alarm at {needed:g}")
    chart.add_line(places, capital)
    _add_moments(chart, found)
    return chart.draw()


def _draw_risk(monitor: Monitor, found: Status) -> str:
    course = _list_course(monitor, found)
    limits = {group.accuracy: 1 - group.accuracy for group in found.groups.values()}
    value = course[:, 3][~np.isnan(course[:, 3])]
    highest = max([*limits.values(), float(value[-1]) if len(value) else 0.0, found.risk.low])
    high = min(1.0, max(4 * max(limits.values()), 2.5 * highest))
    chart = LineChart(
        "Risk of the kept so far, with its band", found.observed, 0.0, high, "risk of the kept so far",
        write=lambda share: f"{100 * share:g} %",
    )  # fmt: skip
    chart.add_band(course[:, 0], course[:, 4], course[:, 5])
    chart.add_line(course[:, 0], course[:, 3])
    for limit in limits.values():
        chart.add_level(limit, f"promised: at most {100 * limit:.4g} %")
    _add_moments(chart, found)
    return chart.draw()


def _table(head: list[str], rows: list[list[str]]) -> str:
    heading = "".join(f'<th scope="col">{_plain(each)}</th>' for each in head)
    body = "".join(
        f'<tr><th scope="row">{_plain(first)}</th>{"".join(f"<td>{_plain(each)}</td>" for each in rest)}</tr>'
        for first, *rest in rows
    )
    return f'<div class="wide"><table><thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table></div>'


def _write_groups(found: Status) -> str:
    head = ["", "promised risk", "risk so far", "evidence", "alarm at", "audited", "no label yet"]
    rows = [
        [
            name or "all",
            f"at most {100 * (1 - group.accuracy):.4g} %",
            str(group.risk),
            write_capital(group.capital) + (", alarm" if group.alarm else ""),
            f"{group.needed:g}",
            f"{group.audited:,} of {group.kept:,}",
            f"{group.missing:,}",
        ]
        for name, group in found.groups.items()
    ]
    return _table(head, rows)


def _write_audits(monitor: Monitor, found: Status) -> str:
    expected = sum(stream.expected for stream in monitor.streams)
    correct = monitor.audits()["correct"]
    counts = {
        "right": int(np.sum(correct == 1)),
        "wrong": int(np.sum(correct == 0)),
        "no label yet": found.missing,
    }
    bars = "".join(
        f'<span class="{name.split()[0]}" style="flex-grow:{count}" title="{count:,} {name}"></span>'
        for name, count in counts.items()
        if count
    )
    words = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    steps = [f"{probability:g}" for _, probability in monitor.plan.steps]
    each = f"each with probability {steps[0]}"
    if len(steps) > 1:
        each = f"with probability {' or '.join(steps)}, by score"
    return (
        f'<div class="bar" role="img" aria-label="{words}">{bars}</div>'
        f"<p>{found.audited:,} audited inputs: {words}. About {expected:,.0f} of the {found.kept:,} kept "
        f"were to be audited, {each}.</p>"
    )


def _write_drift(drift: Drift | None) -> str:
    if drift is None:
        return "<p>Not watched: start the monitor with calibration scores.</p>"
    found = drift.status
    if not found.observed:
        return "<p>Nothing observed yet.</p>"
    needed = len(found.columns) / (1 - found.confidence)
    traces = {name: np.clip(trace, None, _SHOWN_TO) for name, trace in drift.trace().items()}
    values = np.concatenate([trace[:, 1] for trace in traces.values()])
    low, high = min(0.1, float(values.min()) / 2), max(5 * needed, _ROOM_ABOVE * float(values.max()))
    chart = LineChart("Evidence of drift", found.observed, low, high, "evidence (starts at 1)", True)
    chart.add_level(needed, f"drift at {needed:g}")
    for index, trace in enumerate(traces.values()):
        chart.add_line(trace[:, 0], trace[:, 1], f"set{index % _COLOURS}")
    key = "".join(
        f'<li><i class="set{index % _COLOURS}"></i>{_plain(name)}</li>'
        for index, name in enumerate(found.columns)
    )
    head = [
        "column",
        "drift",
        "since about input",
        "P(new > calibration)",
        "largest distance of distributions",
    ]
    rows = [
        [
            name,
            f"after {column.alarm_at:,}" if column.alarm else "not seen",
            "" if column.since is None else f"{column.since:,}",
            str(column.auroc or ""),
            f"{column.distance:.3f}",
        ]
        for name, column in found.columns.items()
    ]
    return f'{chart.draw()}<ul class="colours">{key}</ul>{_table(head, rows)}'
