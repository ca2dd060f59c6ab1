"""The explorer in headless Chromium: its values are the library's, and everybody can use it.

Deselected unless asked for: `pytest -m browser`. Where there is no Chromium the tests are skipped and say
so; with DEMUR_BROWSER=required they fail instead.
"""

import math

import pytest

import demur

pytestmark = pytest.mark.browser

MEASURES = ("average", "pairwise", "reverse")
PARTS = ("total", "aleatoric", "epistemic")

SETTINGS = {
    "beta": [
        (5, 5), (0.4, 0.4), (1, 1), (2, 30), (1e-6, 1e-6), (1e12, 1e12), (1e12, 1e-6), (1e-6, 3), (10, 9.999),
        (0.001, 10000), (1e-3, 1e-3), (7, 1e9),
    ],
    "uniform": [
        (0, 1), (0.3, 0.7), (0.5, 0.9), (0, 1e-9), (0.3, 0.300001), (0.999999, 1), (0, 0.5), (1e-12, 1),
    ],
    "deltas": [
        (0, 1, 0.5), (0.1, 0.9, 0.25), (0.3, 0.3, 0.4), (0, 0.5, 0.5), (0, 0.5, 0), (0.2, 1, 1),
        (1e-12, 0.999999, 0.5), (0.5, 0.5000001, 0.3), (0, 0, 0.5),
    ],
}  # fmt: skip
FIELDS = {"beta": ("a", "b"), "uniform": ("lo", "hi"), "deltas": ("first", "second", "weight")}


def posterior(family, values):
    if family == "beta":
        return demur.Beta(*map(float, values))
    if family == "uniform":
        return demur.Uniform(*map(float, values))
    first, second, weight = map(float, values)
    return demur.Deltas([first, second], [weight, 1 - weight])


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    from demur.report.explorer import write_explorer

    return write_explorer(tmp_path_factory.mktemp("page") / "explorer.html").as_uri()


def enter(page, family, values):
    page.check(f"[name=family][value={family}]")
    for field, value in zip(FIELDS[family], values, strict=True):
        page.fill(f"#{field}", repr(value))


def read(page, selector):
    """What a person reads there, as a number."""
    text = page.inner_text(selector)
    return math.inf if text == "∞" else float(text.replace("−", "-"))


def cell(page, measure, part):
    return read(page, f"td[data-measure={measure}][data-part={part}]")


@pytest.mark.parametrize("family", SETTINGS)
def test_values_are_the_library_s(open_page, family):
    page = open_page()
    for values in SETTINGS[family]:
        enter(page, family, values)
        assert page.inner_text("#complaint") == "", values
        ours = {name: demur.decompose(posterior(family, values), measure=name) for name in MEASURES}
        for name in MEASURES:
            for part in PARTS:
                expected = float(getattr(ours[name], part))
                # Read as a person does: seven digits, so 1e-6 of the value; and 1e-6 in all near 0.
                where = (values, name, part)
                assert cell(page, name, part) == pytest.approx(expected, rel=1e-6, abs=1e-6), where
                # And what the page computed with, to far more.
                held = page.get_attribute(f"td[data-measure={name}][data-part={part}]", "data-value")
                assert float(held) == pytest.approx(expected, rel=1e-9, abs=1e-13), where
        gap = float(ours["pairwise"].epistemic) - float(ours["average"].epistemic)
        assert cell(page, "difference", "epistemic") == pytest.approx(gap, rel=1e-6, abs=1e-6)
        mean = read(page, "#mean")
        assert mean == pytest.approx(float(posterior(family, values).mean), rel=1e-6, abs=1e-9)


def test_the_posteriors_of_the_study_are_one_click_away(open_page):
    page = open_page()
    buttons = page.query_selector_all("[data-preset]")
    assert len(buttons) == 6
    for button in buttons:
        family, *values = button.get_attribute("data-preset").split(",")
        button.click()
        expected = demur.decompose(posterior(family, values)).epistemic
        assert cell(page, "pairwise", "epistemic") == pytest.approx(float(expected), rel=1e-6)
        assert button.get_attribute("aria-pressed") == "true"
        assert page.locator("[aria-pressed=true]").count() == 1


def widths(page, measure):
    """Share of the track that each bar takes."""
    tracks = page.locator(f"#bar-{measure} .track").bounding_box()["width"]
    bars = page.locator(f"#bar-{measure} .track > div").all()
    return [bar.bounding_box()["width"] / tracks for bar in bars]


def shown(page):
    """Everything on the page that a parameter moves."""
    page.wait_for_timeout(400)  # the sentence comes when the rest is at rest
    return {
        "bars": [widths(page, name) for name in (*MEASURES, "difference")],
        "curve": page.get_attribute("#plot .curve", "points"),
        "table": page.inner_text("#values"),
        "sentence": page.inner_text("#summary"),
        "field": page.input_value("#a"),
        "triangle": page.get_attribute("#plot .mean", "d"),
    }


def test_dragging_a_slider_moves_everything(open_page):
    page = open_page(reduced_motion="reduce")
    before = shown(page)
    box = page.locator("#a-range").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.53, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] / 2, steps=5)
    page.mouse.up()
    after = shown(page)
    for what in before:
        assert before[what] != after[what], what
    a = float(after["field"])
    assert 0.05 < a < 1
    assert cell(page, "pairwise", "epistemic") == pytest.approx(1 / (a + 5), rel=1e-6)


def test_bars_are_as_long_as_the_numbers(open_page):
    page = open_page(reduced_motion="reduce")
    enter(page, "beta", (2, 3))
    lengths = {name: widths(page, name) for name in (*MEASURES, "difference")}
    unit = lengths["pairwise"][0] / cell(page, "pairwise", "aleatoric")
    for name, (aleatoric, epistemic) in lengths.items():
        if name != "difference":
            assert aleatoric == pytest.approx(unit * cell(page, name, "aleatoric"), rel=0.02)
        assert epistemic == pytest.approx(unit * cell(page, name, "epistemic"), abs=0.01)


def test_infinity_is_a_sign_and_an_endless_bar(open_page):
    page = open_page(reduced_motion="reduce")
    page.click("[data-preset='deltas,0,1,0.5']")
    assert page.inner_text("td[data-measure=pairwise][data-part=total]") == "∞"
    assert page.get_attribute("td[data-measure=pairwise][data-part=total]", "aria-label") == "infinite"
    assert page.inner_text("#bar-pairwise .endless") == "∞"
    assert widths(page, "pairwise")[1] == pytest.approx(1, abs=0.01)
    assert page.locator("#bar-average .endless").count() == 0
    page.wait_for_timeout(400)
    assert "infinite" in page.inner_text("#summary")


def test_the_keyboard_reaches_and_moves_everything(open_page):
    page = open_page()
    reached = []
    for _ in range(20):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "() => { const e = document.activeElement;"
                " return e.id || e.dataset.preset || e.name || e.tagName; }"
            )
        )
    assert reached[0] == "theme"
    assert [each for each in reached if each in ("family", "a-range", "a", "b-range", "b")] == [
        "family", "a-range", "a", "b-range", "b",
    ]  # fmt: skip
    assert len({each for each in reached if "," in each}) == 6
    assert "SUMMARY" in reached
    page.focus("#a-range")
    before = page.input_value("#a")
    page.keyboard.press("ArrowRight")
    assert float(page.input_value("#a")) > float(before)
    outline = page.eval_on_selector("#a-range", "e => getComputedStyle(e).outlineStyle")
    assert outline == "solid"
    page.focus("[name=family]:checked")
    page.keyboard.press("ArrowRight")
    assert page.is_visible("#lo")
    assert page.locator("#a").count() == 0


def test_what_a_screen_reader_is_told(open_page):
    page = open_page()
    page.wait_for_timeout(400)
    for role, name in (
        ("spinbutton", "a: evidence for outcome 1"),
        ("slider", "a: evidence for outcome 1, slider"),
        ("radio", "uniform"),
        ("button", "Beta(5, 5)"),
        ("combobox", "Theme"),
        ("heading", "Uncertainty in nats"),
        ("table", "The same in numbers"),
        ("rowheader", "pairwise − average"),
    ):
        assert page.get_by_role(role, name=name, exact=True).count() == 1, (role, name)
    assert page.get_attribute("#summary", "aria-live") == "polite"
    assert page.inner_text("#summary").startswith("Beta(5, 5): epistemic uncertainty 0.04751")
    image = page.get_by_role("img", name="Beta(5, 5), density over θ from 0 to 1; expected value 0.5")
    assert image.count() == 1
    assert "pairwise: total 0.7456, aleatoric 0.6456, epistemic 0.1" in page.get_attribute(
        "#bars", "aria-label"
    )
    assert page.get_attribute("#a-range", "aria-valuetext") == "5"
    assert page.get_attribute("html", "lang") == "en"


@pytest.mark.parametrize(
    ("family", "field", "value", "complaint"),
    [
        ("beta", "a", "0", "a: a and b must be above 0"),
        ("beta", "b", "-3", "b: a and b must be above 0"),
        ("beta", "b", "", "b: type a number"),
        ("uniform", "lo", "0.8", "lo: lo must be below hi"),
        ("uniform", "hi", "1.2", "hi: each number must be between 0 and 1"),
        ("deltas", "weight", "2", "weight: each number must be between 0 and 1"),
    ],
)
def test_a_wrong_number_is_named_and_changes_nothing(open_page, family, field, value, complaint):
    page = open_page()
    page.check(f"[name=family][value={family}]")
    before = page.inner_text("#values")
    page.fill(f"#{field}", value)
    assert page.inner_text("#complaint").startswith(complaint)
    assert page.get_attribute(f"#{field}", "aria-invalid") == "true"
    assert page.inner_text("#values") == before
    page.fill(f"#{field}", "0.5")
    assert page.inner_text("#complaint") == ""
    assert page.get_attribute(f"#{field}", "aria-invalid") == "false"


def test_a_slider_of_a_uniform_pushes_the_other_end(open_page):
    page = open_page()
    page.check("[name=family][value=uniform]")
    page.focus("#lo-range")
    page.keyboard.press("End")
    assert (page.input_value("#lo"), page.input_value("#hi")) == ("0.999", "1")
    page.focus("#hi-range")
    page.keyboard.press("Home")
    assert (page.input_value("#lo"), page.input_value("#hi")) == ("0", "0.001")
    assert page.inner_text("#complaint") == ""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_by_system_and_by_choice(open_page, contrast, scheme):
    page = open_page(color_scheme=scheme)
    dark = "rgb(20, 23, 26)"
    background = "() => getComputedStyle(document.body).backgroundColor"
    assert (page.evaluate(background) == dark) == (scheme == "dark")
    for front in ("--ink", "--soft", "--average", "--pairwise", "--reverse", "--difference", "--error"):
        for back in ("--page", "--panel"):
            assert contrast(page, front, back) >= 4.5, (front, back)
    other = "light" if scheme == "dark" else "dark"
    page.select_option("#theme", other)
    assert (page.evaluate(background) == dark) == (other == "dark")
    page.select_option("#theme", "auto")
    assert (page.evaluate(background) == dark) == (scheme == "dark")


@pytest.mark.parametrize("width", [320, 390, 768, 1280, 1920])
def test_nothing_is_cut_off_at_any_width(open_page, width):
    page = open_page(viewport={"width": width, "height": 844})
    for preset in ("beta,0.4,0.4", "deltas,0,1,0.5"):
        page.click(f"[data-preset='{preset}']")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        table = page.eval_on_selector(".scroll", "e => e.scrollWidth - e.clientWidth")
        assert table <= 0 or width < 390  # there the table scrolls by itself
    small = page.eval_on_selector_all(
        "button, select, input",
        "all => all.filter(e => e.type !== 'radio' && e.getBoundingClientRect().height < 24).length",
    )
    assert small == 0
