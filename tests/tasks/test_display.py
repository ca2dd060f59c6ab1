"""What results look like in a terminal and in a notebook."""

from html.parser import HTMLParser

import numpy as np
import pytest

import demur
from demur.tasks import Estimate, calibration, compare, contest, detection, selective, sparsification

RNG = np.random.default_rng(0)
KNOWN, UNKNOWN = RNG.normal(0, 1, 200), RNG.normal(1, 1, 150)
CORRECT = RNG.uniform(size=200) < 0.8
PAIR = KNOWN + RNG.normal(size=200), UNKNOWN + RNG.normal(size=150)
NASTY = '<script>alert("x")</script> & co'


class Balanced(HTMLParser):
    """Objects to a tag that is not closed, or not one of those of small tables."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        assert tag in ("table", "caption", "thead", "tbody", "tr", "th", "td", "p", "small", "pre")
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


RESULTS = {
    "estimate": lambda: detection(KNOWN, UNKNOWN).auroc,
    "splits": lambda: detection(KNOWN, UNKNOWN, splits=3).auroc,
    "detection": lambda: detection(KNOWN, UNKNOWN),
    "selective": lambda: selective(KNOWN, CORRECT),
    "calibration": lambda: calibration([[0.8, 0.2], [0.6, 0.4]], [0, 1], bins=1),
    "sparsification": lambda: sparsification(np.abs(KNOWN), KNOWN),
    "comparison": lambda: compare((KNOWN, UNKNOWN), PAIR, "detection"),
    "contest": lambda: contest({NASTY: {"K": (KNOWN, UNKNOWN), NASTY: PAIR}}, "detection"),
    "deferral": lambda: demur.Deferral.fit(
        KNOWN, CORRECT, coverage=0.9, groups=np.where(KNOWN > 0, NASTY, "b")
    ),
    "report": lambda: demur.Deferral.fit(KNOWN, CORRECT, coverage=0.9).report(KNOWN, CORRECT),
}


@pytest.mark.parametrize("name", RESULTS)
def test_all_print_for_people_and_have_a_form_in_html(name):
    found = RESULTS[name]()
    text, page = repr(found), found._repr_html_()
    assert str(found) == text and "array(" not in text and "Estimate(" not in text
    assert max(map(len, text.splitlines())) < 200 and len(text.splitlines()) < 12
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert "<script>" not in page and ("&lt;script&gt;" in page) == (name in ("contest", "deferral"))


def test_what_is_said():
    assert repr(Estimate(0.5, 0.25, 0.75)) == "0.5000 [0.2500, 0.7500]"
    assert Estimate(0.5, 0.25, 0.75)._repr_html_() == "0.5000 <small>[0.2500, 0.7500], 95 %</small>"
    first, auroc, *_ = repr(detection(KNOWN, UNKNOWN)).splitlines()
    assert first == "Detection: 150 positives, 200 negatives; 95 % intervals"
    assert auroc.split(maxsplit=1) == ["auroc", str(detection(KNOWN, UNKNOWN).auroc)]
    assert "more certain of" in repr(detection(KNOWN, UNKNOWN - 5))
    assert "coin toss" in repr(detection(KNOWN, KNOWN)) and "coin toss" not in repr(detection(KNOWN, UNKNOWN))
    c = compare((KNOWN, UNKNOWN), PAIR, "detection")
    assert repr(c).splitlines()[1].split(maxsplit=1)[1] == str(c.difference)
    both = {"K": (KNOWN, UNKNOWN), "worse": PAIR}
    lines = repr(contest({"m": both}, "detection")).splitlines()
    assert lines[2].split()[:2] == ["m", "K"] and lines[2].endswith("*")
    policy = demur.Deferral.fit(KNOWN, CORRECT, coverage=0.9)
    assert repr(policy).splitlines()[0] == "Deferral: coverage 0.9" and policy.promise() in repr(policy)
