"""The page of a monitor: what it says, and how it looks in Chromium."""

import re

import numpy as np
import pytest

import demur
from demur.report.line_chart import LineChart, list_powers, list_ticks
from demur.report.monitor_page import build_monitor_page, write_monitor_page


def watch(harm=0.3, groups=None, column="size"):
    rng = np.random.default_rng(0)
    scores = rng.uniform(size=4000)
    names = None if groups is None else np.resize(groups, 4000)
    policy = demur.Deferral.fit(scores, rng.uniform(size=4000) > scores**2 / 3, accuracy=0.9, groups=names)
    monitor, drift = demur.Monitor(policy, audit=0.3), demur.Drift({column: rng.normal(size=500)})
    for week in range(20):
        new = rng.uniform(size=400)
        right = rng.uniform(size=400) > new**2 / 3 + harm * (week >= 10)
        known = np.where(rng.uniform(size=400) < 0.98, right, np.nan)
        monitor.observe(new, known, groups=None if groups is None else np.resize(groups, 400))
        drift.observe({column: rng.normal(week >= 10, 1, size=100)})
    return monitor, drift


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    long = "a name of a group that is far too long for one line"
    return write_monitor_page(*watch(groups=[long, "b"]), path).as_uri()


def test_the_page_says_what_the_monitor_found() -> None:
    monitor, drift = watch()
    page = build_monitor_page(monitor, drift)
    assert f"Alarm after {monitor.status.alarm_at:,} inputs" in page and "{{" not in page
    assert page.count("<svg") == 3 and f"after {drift.status.columns['size'].alarm_at:,}" in page
    assert "Withdraw" in page or "Defer scores above" in page
    calm = build_monitor_page(watch(harm=0.0)[0], None)
    assert "No alarm in 8,000 inputs" in calm and "Not watched" in calm
    empty = build_monitor_page(demur.Monitor(monitor.policy), demur.Drift([1.0, 2.0]))
    assert "No alarm in 0 inputs" in empty and "Nothing observed yet" in empty


def test_the_evidence_reaches_the_line_where_the_alarm_is() -> None:
    """Also where the alarm came within what was observed at a time, and evidence was lower at its end."""
    policy = demur.Deferral.fit(np.zeros(100), np.ones(100, bool), accuracy=0.95)
    monitor = demur.Monitor(policy, audit=1.0)
    monitor.observe(np.zeros(500), np.r_[np.ones(200), np.zeros(5), np.ones(295)])
    status = monitor.status
    assert status.alarm_at is not None and 200 < status.alarm_at < 500 and status.capital < 20
    page = build_monitor_page(monitor, None)
    alarm = re.search(r'<line class="moment alarm" x1="([\d.]+)"', page)
    level = re.search(r'<line class="level" [^>]*y1="([\d.]+)"', page)
    assert alarm is not None and level is not None
    assert f"{alarm[1]},{level[1]}" in page


def test_names_cannot_change_the_page() -> None:
    hostile = "</table><script>alert(1)</script>{{report.css}}\u202e"
    page = build_monitor_page(*watch(groups=[hostile, "b"], column=hostile))
    assert "<script" not in page and "\u202e" not in page
    assert page.count("--page:") == build_monitor_page(*watch()).count("--page:")


def test_charts_place_what_they_draw() -> None:
    chart = LineChart("a title", 100, 0.0, 10.0, "y")
    chart.add_line(np.array([0.0, 50, 100]), np.array([0.0, np.nan, 20]))
    points = re.search(r'points="([^"]+)"', chart.draw())
    assert points is not None
    first, last = (tuple(map(float, each.split(","))) for each in points[1].split())
    assert first == (78.0, 230.0) and last == (726.0, 14.0)  # the corners: 20 is above the top
    assert list_ticks(0, 7) == [0, 2, 4, 6] and list_ticks(3, 3) == [3]
    assert list_powers(1e-3, 1e12)[0] >= 1e-3 and len(list_powers(1e-3, 1e12)) <= 8


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_page_opens_and_fits(open_page, width, scheme) -> None:
    page = open_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("svg.chart").count() == 3
    for index in range(3):
        box = page.locator("svg.chart").nth(index).bounding_box()
        assert box["height"] > 110 and box["width"] < width
    # Every word of a chart lies inside it.
    inside = page.evaluate(
        """() => [...document.querySelectorAll('svg.chart text')].every(text => {
             const a = text.getBoundingClientRect(), b = text.closest('svg').getBoundingClientRect()
             return !a.width || a.left > b.left - 1 && a.right < b.right + 1 &&
               a.top > b.top - 1 && a.bottom < b.bottom + 1
           })"""
    )
    assert inside
    # No cell of a table runs into the next one.
    assert page.evaluate(
        "() => [...document.querySelectorAll('th, td')].every(c => c.scrollWidth <= c.clientWidth + 1)"
    )
