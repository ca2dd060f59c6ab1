"""The report in headless Chromium: what it reads out is the library's, and everybody can use it.

Deselected unless asked for: `pytest -m browser`.
"""

import json
import math
import re

import numpy as np
import pytest

import demur
from demur.report.cards import describe_promise
from demur.report.contents import gather_contents
from demur.report.page import write_page
from demur.report.run_folder import read_run
from demur.stores import write_columns

pytestmark = pytest.mark.browser

NASTY = "</script><script>document.title='broken'</script><img src=x onerror=alert(1)>\u2028 & \" '"


@pytest.fixture(scope="module")
def run(tmp_path_factory, write_run):
    facts = {
        "title": "A run", "command": "python run.py", "seed": 7, "versions": {"numpy": "2.0"},
        "classes": ["cat", "dog", "emu", "fox"],
    }  # fmt: skip
    sets = ("id", "ood-far", "ood-near", "adversarial-pgd")
    folder = tmp_path_factory.mktemp("run")
    return write_run(folder, methods=("one", "two"), sets=sets, images=(8, 8), facts=facts, number=400)


@pytest.fixture(scope="module")
def address(run):
    return write_page(gather_contents(read_run(run)), run / "report.html").as_uri()


def share(text):
    """A share in percent as a person reads it, and by how much it may be rounded."""
    number = re.search(r"[\d.]+", text)[0]
    digits = len(number.partition(".")[2])
    return float(number) / 100, 0.5 * 10**-digits / 100 + 1e-6  # the page holds six digits


def near(text, expected):
    value, tolerance = share(text)
    if "over" in text:
        return value <= expected < 1
    if "under" in text:
        return 0 < expected <= value
    return abs(value - expected) <= tolerance


def number(text):
    return math.inf if text == "∞" else float(text.replace("−", "-"))


def count(text):
    return int(text.replace(",", ""))


@pytest.mark.parametrize(("method", "column"), [("one", "pairwise_epistemic"), ("two", "average_total")])
def test_the_slider_reads_out_what_the_library_says(open_page, run, method, column):
    page = open_page()
    found = read_run(run)
    own = next(m for m in found.methods if m.name == method)
    scores, correct = own.sets["id"].scores[column], own.sets["id"].correct
    columns = json.loads(page.text_content("#data"))["scores"]
    page.select_option("#method", label=method)
    page.select_option("#score", str([c["column"] for c in columns].index(column)))
    seen = set()
    for at in (0, 0.2, 0.5, 0.9, 0.95, 0.99, 1):
        page.locator("#threshold").fill(str(at))
        kept, whole = map(
            count, re.match(r"([\d,]+) of ([\d,]+);", page.inner_text("#share-interval")).groups()
        )
        assert whole == len(scores)
        seen.add(kept)
        assert (
            abs(kept / whole - at) <= 0.02
            and page.evaluate(
                "kept => Math.abs(document.getElementById('threshold').value - kept)", kept / whole
            )
            < 1e-6
        )  # it stands at the share kept, over all its length
        expected = demur.Deferral.fit(scores, correct, coverage=(kept - 0.5) / whole).report(scores, correct)
        assert expected.kept == kept
        assert near(page.inner_text("#share"), expected.coverage.value)
        assert near(page.inner_text("#accuracy"), expected.accuracy.value)
        for where, estimate in (("share", expected.coverage), ("accuracy", expected.accuracy)):
            low, high = page.inner_text(f"#{where}-interval").partition(";")[2].split(" to ")
            assert near(low, estimate.low) and near(high, estimate.high), (at, where)
        cut = page.inner_text("#cut")
        threshold = np.inf if cut == "none" else number(cut)
        policy = demur.Deferral.fit(scores, correct, coverage=(kept - 0.5) / whole).thresholds[""]
        assert threshold == pytest.approx(policy.value, rel=1e-3)
        for row, name in zip(page.locator("#acted tbody tr").all(), found.sets, strict=True):
            told = demur.Deferral.fit(scores, correct, coverage=(kept - 0.5) / whole).report(
                own.sets[name].scores[column]
            )
            assert count(row.locator("td").first.inner_text().split(" ")[0]) == told.kept
    assert len(seen) == 7


def test_the_promise_is_the_policy_s_and_marked(open_page, run):
    page = open_page()
    assert page.inner_text("#looked").startswith("This page chose method and measure by looking at these")
    own = read_run(run).methods
    page.select_option("#method", label="one")
    page.select_option("#score", "0")
    known = next(m for m in own if m.name == "one").sets["id"]
    scores = known.scores["pairwise_epistemic"]
    held = 0
    for index, target in enumerate((0.9, 0.95, 0.98, 0.99, 0.995, 0.999)):
        page.select_option("#target", str(index))
        said = page.inner_text("#promised")
        try:
            policy = demur.Deferral.fit(scores, known.correct, accuracy=target)
        except demur.NoGuarantee as error:
            assert said == str(error)  # noqa: PT017
            assert page.locator("#marks span").count() == 0 and page.is_disabled("#go")
            assert page.is_hidden("#looked") and page.inner_text("#target-why") == ""
            continue
        held += 1
        last = np.sort(scores)[policy.thresholds[""].kept - 1]
        assert said == describe_promise(policy, last)
        shown = float(page.inner_text("#cut"))
        assert (scores <= shown).sum() == policy.thresholds[""].kept  # whoever types it keeps as many
        assert page.inner_text("#looked").startswith(
            "If you chose method and measure by looking at these inputs"
        )
        assert page.inner_text("#condition").startswith(
            "The promise does not cover far, near or pgd: see the table below."
        )
        sizes = page.eval_on_selector_all("#promise p", "all => all.map(e => getComputedStyle(e).fontSize)")
        assert len(set(sizes)) == 1
        command = f"--score pairwise_epistemic --accuracy {target:g} "
        assert command in page.inner_text("#fit")
        assert count(page.inner_text("#share-interval").split(" of ")[0]) == policy.thresholds[""].kept
        assert page.locator("#marks span").first.inner_text() == f"{100 * target:g} % promised"
        arrow, label = (page.locator("#marks span").nth(k).bounding_box() for k in (1, 0))
        middle = arrow["x"] + arrow["width"] / 2
        assert label["x"] <= middle <= label["x"] + label["width"]
        page.locator("#threshold").fill("0.07")
        assert page.is_enabled("#go") and page.is_hidden("#promised") and page.is_hidden("#condition")
        now = page.inner_text("#now")
        right, kept = page.inner_text("#accuracy"), page.inner_text("#share")
        assert now.startswith(
            f"Measured at this threshold: {right} of the kept are right (95\u00a0% interval "
        )
        assert f"{kept} are kept." in now
        assert now.endswith(f"The promise of {100 * target:g} % belongs to the marked threshold alone.")
        page.click("#go")
        assert page.inner_text("#promised") == describe_promise(policy, last)
        low = page.inner_text("#accuracy-interval").partition(";")[2].split(" to ")[0]
        apart = "it leaves 2.5 % of doubt on each side, the promise 5 % on one" in page.inner_text(
            "#condition"
        )
        assert apart == (share(low)[0] < target)
        assert count(page.inner_text("#share-interval").split(" of ")[0]) == policy.thresholds[""].kept
    assert 0 < held < 6


def test_why_a_target_is_chosen_at_first_is_said(open_page):
    page = open_page()
    first = page.locator("#target option:checked").inner_text()
    assert page.inner_text("#target-why").startswith(f"{first} is selected at first: ")
    page.select_option("#target", "0" if page.input_value("#target") != "0" else "1")
    assert page.inner_text("#target-why") == ""


def test_what_slips_through_is_said_of_what_is_to_be_found(open_page):
    page = open_page()
    page.locator("#threshold").fill("0.97")
    kept = {row.locator("th").inner_text(): row.locator("td").all_inner_texts()
            for row in page.locator("#acted tbody tr").all()}  # fmt: skip
    for name in ("far", "near", "pgd"):
        page.get_by_role("radio", name=name).check()
        slipped = count(kept[name][0].split(" ")[0])
        assert near(page.inner_text("#slip"), slipped / 400)
        assert page.inner_text("#slip-what") == f"of {name} slip through"
        assert page.inner_text("#slip-note") == f"{slipped} of 400 are kept"
        if name != "pgd":  # their labels are numbers of known classes, which says nothing
            assert kept[name][2] == f"not known: {slipped} of 400 out-of-distribution inputs are kept"
    assert "wrong)" in kept["pgd"][2]
    page.get_by_role("radio", name="mistakes").check()
    wrong = int(re.search(r"\((\d+) wrong\)", kept["in-distribution inputs"][2])[1])
    assert page.inner_text("#slip-what") == "of mistakes slip through"
    assert page.inner_text("#slip-note").startswith(f"{wrong} of ")


def test_the_card_on_asking_a_person_sets_what_is_shown(open_page):
    page = open_page()
    method, place, kept = json.loads(page.text_content("#data"))["cards"][-1]["show"]
    page.select_option("#method", str(1 - method))
    page.get_by_role("button", name="Show its threshold").click()
    assert page.input_value("#method") == str(method) and page.input_value("#score") == str(place)
    assert count(page.inner_text("#share-interval").split(" of ")[0]) >= kept
    top = page.locator("#deferral-title").bounding_box()["y"]
    bar = page.locator("#controls").bounding_box()
    assert bar["y"] <= 0 and top > bar["y"] + bar["height"]  # what stays at the top does not cover it
    card = page.locator(".card", has_text="Asking a person")
    assert near(card.locator(".figure").inner_text(), share(page.inner_text("#accuracy"))[0])


def test_choices_change_what_is_shown(open_page, run):
    page = open_page()
    assert page.inner_text("h1") == "A run"
    assert "2 methods" in page.inner_text("#lead")
    found = read_run(run)
    labels = ["far", "near", "pgd"]
    for method in found.methods:
        page.select_option("#method", label=method.name)
        for task, name in zip(labels, found.sets[1:], strict=True):
            page.get_by_role("radio", name=task).check()
            page.select_option("#score", "1")
            result = demur.tasks.detection(
                method.sets["id"].scores["average_epistemic"], method.sets[name].scores["average_epistemic"]
            )
            assert near(re.search(r"AUROC ([\d.]+\s%)", page.inner_text("#roc-why"))[1], float(result.auroc))
            assert task in page.inner_text("#density .key") and task in page.inner_text("#points .key")
    page.get_by_role("radio", name="mistakes").check()
    assert page.locator("#input-set option:checked").inner_text() == "mistakes"
    assert page.locator("#inputs .wrong").count() == page.locator("#inputs tbody tr").count() > 0
    wrong = int((~found.methods[-1].sets["id"].correct).sum())
    assert f", of {wrong}." in page.inner_text("#inputs-why")
    assert f"its row in {found.methods[-1].name}/id.npz, from 0." in page.inner_text("#inputs-why")
    known = found.methods[-1].sets["id"]
    result = demur.tasks.misclassification(known.scores["average_epistemic"], known.correct)
    assert near(re.search(r"AUROC ([\d.]+\s%)", page.inner_text("#roc-why"))[1], float(result.auroc))


def test_figures_are_read_by_pointer_and_by_keys(open_page):
    page = open_page()
    for name in ("density", "roc", "kept", "points"):
        frame = page.locator(f"#{name} .frame")
        rest = page.inner_text(f"#{name} .reading")
        frame.scroll_into_view_if_needed()
        box = frame.bounding_box()
        page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.4 * box["height"])
        pointed = page.inner_text(f"#{name} .reading")
        assert pointed != rest and frame.get_attribute("aria-valuetext") == pointed, name
        page.mouse.move(1, 1)
        assert page.inner_text(f"#{name} .reading") == rest
        frame.focus()
        readings = []
        for key in ("Home", "ArrowRight", "PageUp", "End", "ArrowLeft"):
            page.keyboard.press(key)
            readings.append(page.inner_text(f"#{name} .reading"))
        assert len(set(readings)) >= 4, name
        assert int(frame.get_attribute("aria-valuenow")) == int(frame.get_attribute("aria-valuemax")) - 1
        assert frame.get_attribute("role") == "slider" and frame.get_attribute("aria-label")


def test_a_reading_of_the_accuracy_is_the_library_s(open_page, run):
    page = open_page()
    page.select_option("#method", label="two")
    page.select_option("#score", "0")
    known = next(m for m in read_run(run).methods if m.name == "two").sets["id"]
    curve = demur.tasks.selective(known.scores["pairwise_epistemic"], known.correct).curve.accuracy
    page.locator("#kept .frame").focus()
    for _ in range(6):
        page.keyboard.press("PageUp")
        text = page.inner_text("#kept .reading")
        kept, accuracy = re.search(r"kept \((\d+)\): accuracy ((?:over |under )?[\d.]+\s%)", text).groups()
        assert near(accuracy, curve[int(kept) - 1]), text


def rows(page, column):
    names = page.eval_on_selector_all("#inputs th", "all => all.map(e => e.innerText.replace(/ [▼▲↕]/, ''))")
    place = names.index(column)
    return page.eval_on_selector_all(
        "#inputs tbody tr", "(all, place) => all.map(e => e.children[place].innerText)", place
    )


def test_the_table_sorts_and_names_the_classes_that_drive(open_page, run):
    page = open_page()
    page.select_option("#method", label="one")
    page.select_option("#score", "0")
    page.select_option("#input-set", "0")
    own = read_run(run).methods[0]
    for column, label in (("pairwise_epistemic", "K"), ("average_epistemic", "I")):
        if column != "pairwise_epistemic":
            page.click("[data-column='score 1']")
        expected = np.argsort(-own.sets["id"].scores[column], kind="stable")[:20]
        assert [int(i) for i in rows(page, "input")] == expected.tolist(), label
        header = page.locator("th[aria-sort=descending]")
        assert header.count() == 1 and header.inner_text().startswith(label)
    page.click("[data-column='score 1']")
    values = [number(v) for v in rows(page, "I")]
    assert values == sorted(values) and page.locator("th[aria-sort=ascending]").count() == 1
    page.focus("[data-column=prediction]")
    page.keyboard.press("Enter")
    predictions = [text.split(" ")[0] for text in rows(page, "predicted")]
    assert predictions == sorted(predictions) and set(predictions) <= {"cat", "dog", "emu", "fox"}
    assert page.evaluate("document.activeElement.dataset.column") == "prediction"
    first = int(rows(page, "input")[0])
    parts = demur.attribute(log_probs=np.asarray(own.members["id"][:, first]))
    names = np.array(["cat", "dog", "emu", "fox"])[np.argsort(-parts)[:3]]
    assert re.findall("[a-z]+", rows(page, "they disagree about: class, part of K")[0]) == names.tolist()
    likely = np.exp(own.members["id"][:, first]).mean(axis=0)
    name, percent = rows(page, "members on average: class, probability")[0].split()[:2]
    assert name.rstrip(":") == ["cat", "dog", "emu", "fox"][likely.argmax()] and near(
        f"{percent} %", likely.max()
    )
    assert page.locator("#inputs .picture").count() == 20
    label, predicted = rows(page, "label"), rows(page, "predicted")
    for truth, told in zip(label, predicted, strict=True):
        assert ("wrong" in told) == (truth != told.split(" ")[0])


def test_the_verdict_comes_first_and_says_how_sure_it_is(open_page):
    page = open_page()
    assert page.locator("main > *").first.get_attribute("class") == "verdict"
    assert page.inner_text("#headline").startswith("Use ") and page.inner_text("#findings")
    words = page.locator("#glossary dt").all_inner_texts()
    assert words[:5] == ["aleatoric", "epistemic", "K", "I", "M"]
    assert {
        "method",
        "members",
        "in-distribution inputs",
        "out-of-distribution inputs",
        "deferred",
        "points",
        "nats",
    } <= set(words)
    assert "K: epistemic, pairwise" in page.inner_text("#score")
    page.select_option("#score", "0")
    assert page.inner_text("#about").endswith("Column pairwise_epistemic.")
    cards = page.locator(".card")
    assert cards.count() == 6  # three sets, mistakes, asking a person, and the two parts
    parts = cards.last
    assert (
        "rank correlation" in parts.inner_text()
        and parts.locator(".whisker small").first.inner_text() == "−1"
    )
    assert 0 < float(parts.locator(".dot").evaluate("dot => dot.style.left").rstrip("%")) < 100
    for card in cards.all():
        assert "95 % interval" in " ".join(card.inner_text().split())
    assert page.inner_text("#accuracies").startswith("Accuracy on in-distribution inputs and pgd: one ")


def test_the_verdict_can_be_counted_in_the_table(open_page):
    page = open_page()
    counts = {}
    for row in page.locator("#all tbody tr").all():
        measure = row.locator("th").inner_text().split("\n")[0]
        marks = sum("★" in text or "≈" in text for text in row.locator("td").all_inner_texts())
        counts[measure] = counts.get(measure, 0) + marks
    told = {row.locator("th").inner_text(): row.locator("td").first.inner_text()
            for row in page.locator("#tally tbody tr").all()}  # fmt: skip
    # Two methods and four tasks, less two comparisons in which no measure is shown to beat a coin toss.
    assert told == {measure: f"{marks} of 6" for measure, marks in counts.items()}
    chosen = page.locator("#tally .chosen th").inner_text()
    assert counts[chosen] == max(counts.values()) and f" with {chosen} " in page.inner_text("#headline")
    assert f"The measure {chosen} is " in page.inner_text("#findings")


def test_what_steers_the_figures_ends_with_them(open_page):
    page = open_page(viewport={"width": 1280, "height": 900})
    page.locator("#inputs-title").scroll_into_view_if_needed()
    page.locator("#kept").scroll_into_view_if_needed()
    assert abs(page.locator("#controls").bounding_box()["y"]) < 1
    page.evaluate("document.getElementById('provenance').scrollIntoView()")
    bar = page.locator("#controls").bounding_box()
    assert bar["y"] + bar["height"] < 0


def test_equal_measures_all_have_a_star(open_page, tmp_path):
    rng = np.random.default_rng(0)
    for name, shift in (("id", 0.0), ("ood-a", 2.0)):
        mine = rng.normal(shift, 1, 200)
        write_columns(
            tmp_path / f"{name}.csv", {"mine": mine, "twice": 2 * mine, "noise": rng.normal(size=200)}
        )
    page = open_page(write_page(gather_contents(read_run(tmp_path)), tmp_path / "report.html").as_uri())
    assert page.locator("#all td.best").count() == 2 and page.locator("#all td.tie").count() == 0
    assert page.locator("#tally td:has-text('1 of 1')").count() == 2
    assert page.is_hidden("#accuracies")


def test_a_comparison_with_another_set_leaves_the_slider_alone(open_page):
    page = open_page()

    def state():
        shown = (page.inner_text(each) for each in ("#share", "#accuracy", "#cut", "#now"))
        return page.input_value("#threshold"), page.input_value("#target"), *shown

    for at in (0.3, 0.96):
        page.locator("#threshold").fill(str(at))
        moved = state()
        assert abs(float(moved[0]) - at) < 0.02
        for name in ("pgd", "mistakes", "near", "far"):
            page.get_by_role("radio", name=name).check()
            assert state() == moved, name
    page.get_by_role("button", name="Show its threshold").click()
    moved = state()
    page.get_by_role("radio", name="pgd").check()
    assert state() == moved
    assert "pgd" in page.inner_text("#density .key")
    lines = page.locator("#density svg line.cut").count()
    assert lines == 1


def test_names_from_files_stay_text(open_page, tmp_path, write_run):
    facts = {
        "title": NASTY,
        "command": NASTY,
        "seed": NASTY,
        "versions": {NASTY: NASTY},
        "classes": [NASTY] * 4,
    }
    method, name = "<img src=x onerror=alert(3)>", "ood-<script>document.title='broken'<"
    write_run(
        tmp_path,
        methods=(method, "b"),
        sets=("id", name),
        facts=facts,
        number=40,
        names=lambda i: f"{NASTY}{i}",
    )
    page = open_page(write_page(gather_contents(read_run(tmp_path)), tmp_path / "report.html").as_uri())
    assert page.inner_text("h1").startswith("</script><script>document.title") and "broken'" in page.title()
    assert page.title() != "broken"
    assert page.locator("img, main script").count() == 0
    assert page.locator("#method option").first.inner_text() == method
    assert NASTY.split("\u2028")[0] in page.inner_text("#inputs")
    assert page.locator("#tasks").inner_text().startswith("<script>document")


@pytest.mark.parametrize(
    ("options", "hidden", "shown"),
    [
        ({"labels": False}, ["#kept-section", "#promise-box", "#accuracy-box"], ["#roc", "#deferral"]),
        ({"sets": ("id",)}, ["#method-label"], ["#roc", "#kept", "#deferral", "#promise-box"]),
        ({"sets": ("id",), "labels": False}, ["#task-choice", "#roc-section", "#all-section"], ["#deferral"]),
        ({"sets": ("ood-far",)}, ["#task-choice", "#roc-section", "#deferral"], ["#density", "#inputs"]),
        ({"methods": ("a", "b"), "members": False}, [], ["#method-label", "#all"]),
        ({"number": 2}, [], ["#density", "#inputs"]),
    ],
)  # fmt: skip
def test_what_is_not_there_is_not_shown(open_page, tmp_path, write_run, options, hidden, shown):
    write_run(tmp_path, **({"number": 60} | options))
    page = open_page(write_page(gather_contents(read_run(tmp_path)), tmp_path / "report.html").as_uri())
    for selector in hidden:
        assert page.is_hidden(selector), selector
    for selector in shown:
        assert page.is_visible(selector), selector
    assert "NaN" not in page.inner_text("main") and "undefined" not in page.inner_text("main")
    if options.get("members") is False:
        assert page.inner_text("#inputs-why").endswith("is not known: the run has no a/members-ood-far.npy.")
    assert page.locator("svg [d*=NaN], svg [points*=NaN], svg [x*=NaN], svg [cx*=NaN]").count() == 0


def test_infinite_scores_are_shown_beside_the_axis(open_page, tmp_path):
    rng = np.random.default_rng(0)
    for name, endless in (("id", 5), ("ood-a", 40)):
        k = rng.lognormal(0, 2, 60)
        i = k / 3
        k[:endless], i[50:] = np.inf, 0
        label = rng.integers(0, 2, 60)
        columns = {
            "label": label,
            "prediction": np.zeros(60, int),
            "pairwise_epistemic": k,
            "average_epistemic": i,
        }
        write_columns(tmp_path / f"{name}.csv", columns)
    page = open_page(write_page(gather_contents(read_run(tmp_path)), tmp_path / "report.html").as_uri())
    page.select_option("#score", "0")
    assert page.text_content("#density .endless") == "∞" == page.text_content("#points .endless")
    page.locator("#density .frame").focus()
    page.keyboard.press("End")
    assert page.inner_text("#density .reading").replace("\u00a0", " ") == (
        "Score infinite: 8.3 % of in-distribution inputs, 66.7 % of a."
    )
    page.locator("#threshold").fill(page.get_attribute("#threshold", "max"))
    assert page.inner_text("#cut") == "none" and page.inner_text("#share").split() == ["100", "%"]
    assert rows(page, "K")[0] == "∞"
    assert "NaN" not in page.inner_text("main")


@pytest.mark.parametrize("width", [320, 390, 768, 1280, 1920])
def test_nothing_is_cut_off_at_any_width(open_page, width):
    page = open_page(viewport={"width": width, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    small = page.eval_on_selector_all(
        "button, select, input",
        "all => all.filter(e => e.offsetParent && e.type !== 'radio' && e.clientHeight < 22).length",
    )
    assert small == 0
    if width >= 390:
        room = """select => {
            const canvas = document.createElement("canvas").getContext("2d");
            canvas.font = getComputedStyle(select).font;
            return select.clientWidth - canvas.measureText(select.selectedOptions[0].text).width;
        }"""
        for place in range(page.locator("#score option").count()):
            page.select_option("#score", str(place))
            assert page.eval_on_selector("#score", room) > 36, place  # the text and the arrow
        inner = page.locator(".scroll:has(#inputs)")
        if width < 640:  # cards: nothing to scroll to
            assert inner.evaluate("e => e.scrollWidth - e.clientWidth") <= 1
    page.set_viewport_size({"width": 500, "height": 800})
    page.wait_for_timeout(200)
    for name in ("density", "roc", "kept", "points"):
        box, frame = (page.locator(f"#{name} {what}").bounding_box() for what in ("svg", ".frame"))
        assert abs(box["width"] - frame["width"]) < 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_can_be_read(open_page, contrast, scheme):
    page = open_page(color_scheme=scheme)
    dark = "rgb(20, 23, 26)"
    background = "() => getComputedStyle(document.body).backgroundColor"
    assert (page.evaluate(background) == dark) == (scheme == "dark")
    for front in ("--ink", "--soft", "--wrong", "--good"):
        for back in ("--page", "--panel"):
            assert contrast(page, front, back) >= 4.5, (front, back)
    for k in range(6):
        assert contrast(page, f"--set{k}", "--panel") >= 3
    other = "light" if scheme == "dark" else "dark"
    page.select_option("#theme", other)
    assert (page.evaluate(background) == dark) == (other == "dark")


def test_the_keyboard_reaches_everything_in_order(open_page):
    page = open_page()
    reached = []
    for _ in range(45):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(
            "() => { const e = document.activeElement;"
            " return e.id || e.name || e.dataset.column || e.parentElement?.id || e.className || e.tagName; }"
        ))  # fmt: skip
    order = [
        "theme",
        "method",
        "score",
        "task",
        "density",
        "roc",
        "kept",
        "points",
        "threshold",
        "target",
        "input-set",
    ]
    assert [each for each in dict.fromkeys(reached) if each in order] == order
    assert "score 0" in reached and "prediction" in reached
    page.focus("#threshold")
    before = page.inner_text("#share")
    page.keyboard.press("Home")
    assert page.inner_text("#share") != before
    assert "step 1 of" in page.get_attribute("#threshold", "aria-valuetext")
    for at in (2, 3):  # place by place
        page.keyboard.press("ArrowRight")
        assert f"step {at} of" in page.get_attribute("#threshold", "aria-valuetext")
    page.wait_for_timeout(600)
    assert "kept, accuracy" in page.text_content("#slider-status")


def test_it_prints_in_light_with_all_that_is_on_it(open_page):
    page = open_page(color_scheme="dark")
    page.emulate_media(media="print")
    style = "() => getComputedStyle(document.documentElement).getPropertyValue('--page').trim()"
    assert page.evaluate(style) == "#ffffff"
    assert page.is_hidden("#theme") and page.is_visible("#density svg")
    assert len(page.pdf()) > 20_000
