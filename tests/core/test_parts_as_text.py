"""What a decomposition prints: the numbers or their range, the unit, and how doubtful axes were read."""

import html.parser

import numpy as np
import pytest
from reference import loops, members

import demur

PROBS = loops.softmax(members.ordinary(4, 3, 5))


def test_few_numbers_are_all_there(xp) -> None:
    u = demur.decompose(xp.array(PROBS))
    lines = str(u).splitlines()
    assert lines[0] == "Decomposition of 3 inputs, in nats" and len(lines) == 4
    for line, part in zip(lines[1:], loops.PARTS, strict=True):
        name, *numbers = line.split()
        assert name == part
        np.testing.assert_allclose([float(n) for n in numbers], xp.numpy(getattr(u, part)), rtol=1e-3)
    assert repr(u) == str(u)


def test_standard_errors_stand_beside_few_numbers() -> None:
    u = demur.decompose(PROBS, stderr=True)
    last = repr(u).splitlines()[3]
    assert f"{u.epistemic[0]:.4g} ± {u.stderr.epistemic[0]:.2g}" in last and last.count("±") == 3


def test_many_numbers_have_a_range_and_a_shape() -> None:
    u = demur.decompose(loops.softmax(members.ordinary(4, 6, 7, 5)), base=2)
    head, columns, *rows = repr(u).splitlines()
    assert head == "Decomposition of 42 inputs of shape (6, 7), in bits"
    assert columns.split() == ["min", "median", "max"]
    for row, part in zip(rows, loops.PARTS, strict=True):
        values = getattr(u, part)
        expected = [values.min(), np.median(values), values.max()]
        np.testing.assert_allclose([float(n) for n in row.split()[1:]], expected, rtol=1e-3)


def test_infinite_numbers_are_counted() -> None:
    probs = np.tile([[0.5, 0.5], [0.25, 0.75]], (10, 1, 1)).swapaxes(0, 1).copy()
    probs[0, :3] = [1.0, 0.0]
    rows = [line.split() for line in repr(demur.decompose(probs, rounding=0)).splitlines()[1:]]
    assert [row[-1] for row in rows] == ["infinite", "3", "0", "3"]


def test_units() -> None:
    units = {
        "nats": {},
        "bits": {"base": 2},
        "units of log 10": {"base": 10},
        "brier loss": {"rule": "brier"},
    }
    for unit, options in units.items():
        assert repr(demur.decompose(PROBS, **options)).startswith(f"Decomposition of 3 inputs, in {unit}\n")
        if "base" not in options:
            moments = demur.Moments(**options).update(PROBS)
            assert repr(moments.decompose()).startswith(f"Decomposition of 3 inputs, in {unit}\n")
    assert ", in nats" in repr(demur.decompose(demur.Gaussian(np.zeros((3, 2)), 1.0)))
    assert repr(demur.decompose(demur.Beta(5, 5))).splitlines()[0] == "Decomposition of 1 input, in nats"


def test_one_that_somebody_made() -> None:
    own = demur.Decomposition(np.array([3.0]), np.array([1.0]), np.array([2.0]))
    assert repr(own) == "Decomposition, shape (1,)\n  total      3\n  aleatoric  1\n  epistemic  2"


@pytest.mark.slow
def test_what_jax_traces_has_no_numbers_yet() -> None:
    jax = pytest.importorskip("jax")
    printed = []

    def one(p):
        u = demur.decompose(p)
        printed.extend([repr(u), u._repr_html_()])
        return u.total

    jax.jit(one)(jax.numpy.asarray(PROBS))
    assert printed[0] == "Decomposition of 3 inputs, in nats, traced by JAX"
    assert "traced by JAX" in printed[1]


@pytest.mark.parametrize(
    ("options", "unit"),
    [
        ({}, "the unit of the numbers"),
        ({"scale": [1.0, 2.0]}, "units of the scale"),
        ({"kernel": lambda x, y: x * y}, "the unit of the kernel"),
    ],
)
def test_numbers_have_a_unit(options, unit) -> None:
    values = np.arange(8.0).reshape((2, 2, 2) if "scale" in options else (4, 2))
    printed = repr(demur.decompose(demur.Points(values, **options)))
    assert printed.splitlines()[0] == f"Decomposition of 2 inputs, in {unit}"


def test_lower_bounds_are_said_to_be_bounds() -> None:
    rounded = np.float32([[1.0, 0.5], [0.9999999, 0.4]])
    words = "Epistemic parts are lower bounds"
    assert words in repr(demur.decompose(demur.Bernoulli(rounded)))
    assert words in demur.decompose(demur.Bernoulli(rounded), rounding=1e-6)._repr_html_()
    assert words not in repr(demur.decompose(demur.Bernoulli(rounded[:, 1:])))
    assert words not in repr(demur.decompose(demur.Bernoulli(rounded, rounding=0)))


# --- doubtful axes ------------------------------------------------------------------------------


def notes(shape: tuple[int, ...], **options) -> list[str]:
    """The lines after the numbers."""
    lines = repr(demur.decompose(logits=members.ordinary(*shape), **options)).splitlines()
    return lines[next(k for k, line in enumerate(lines) if line.startswith("  epistemic")) + 1 :]


@pytest.mark.parametrize("shape", [(4, 3, 5), (10, 100, 2), (4, 6, 7, 5), (4, 2, 32, 30, 3)], ids=str)
def test_clear_axes_go_without_saying(shape) -> None:
    assert notes(shape) == []


_ANOTHER, _IMAGE = "If the members are on another axis, pass axis=.", "height and width, pass class_axis="


@pytest.mark.parametrize(
    ("shape", "options", "counts", "hint"),
    [
        (
            (10, 3),
            {},
            "10 members, 1 input, 3 classes",
            "these are 10 inputs of one model, give a list of one: [array]",
        ),
        ((1, 3), {}, "1 member, 1 input, 3 classes", None),
        ((1, 8, 3), {}, "1 member, 8 inputs, 3 classes", _ANOTHER),
        ((4, 1, 3), {}, "4 members, 1 input, 3 classes", None),
        ((5, 8, 1), {}, "5 members, 8 inputs, 1 class", "For one probability of yes use demur.Bernoulli."),
        ((12, 8, 3), {}, "12 members, 8 inputs, 3 classes", _ANOTHER),
        ((8, 12, 3), {"axis": 1}, "12 members, 8 inputs, 3 classes", _ANOTHER),
        ((4, 3, 1, 5), {"class_axis": 1}, "4 members, 5 inputs, 3 classes", None),
        ((4, 5, 3, 16, 16), {}, "4 members, 240 inputs, 16 classes", _IMAGE + "2"),
        ((4, 5, 3, 16, 20), {}, "4 members, 240 inputs, 20 classes", _IMAGE + "2"),
        ((4, 3, 16, 16), {}, "4 members, 48 inputs, 16 classes", _IMAGE + "1"),
    ],
    ids=str,
)
def test_doubtful_axes_are_named(shape, options, counts, hint) -> None:
    found = notes(shape, **options)
    classes = "last" if "class_axis" not in options else f"axis {options['class_axis']}"
    assert found[0] == f"Read as {counts} (axis {options.get('axis', 0)} = members, {classes} = classes)."
    assert (len(found) == 1) if hint is None else (hint in found[1])


@pytest.mark.parametrize("rounding", [None, 0, 1e-6])
def test_yes_and_no_have_no_axis_of_classes(rounding) -> None:
    printed = repr(demur.decompose(demur.Bernoulli(np.array([[0.9], [0.8]]), rounding=rounding)))
    assert printed.splitlines()[-1] == "Read as 2 members, 1 input (axis 0 = members)."


def test_images_read_as_asked_are_not_doubted() -> None:
    assert notes((4, 5, 3, 16, 16), class_axis=2) == []


def test_other_predictions_have_no_classes_to_name() -> None:
    lines = repr(demur.decompose(demur.Gaussian([0.0, 1.0, 2.0], 1.0))).splitlines()
    assert lines[4] == "Read as 3 members, 1 input (axis 0 = members)."


# --- notebooks ----------------------------------------------------------------------------------


class Cells(html.parser.HTMLParser):
    """Collects the text of the cells, row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.inside = ""

    def handle_starttag(self, tag, attrs) -> None:
        self.inside = tag
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data) -> None:
        if self.inside in ("td", "th"):
            self.rows[-1][-1] += data


def test_a_table_for_notebooks() -> None:
    u = demur.decompose(PROBS)
    cells = Cells()
    cells.feed(u._repr_html_())
    assert cells.rows[0] == ["", "min", "median", "max"]
    assert [row[0] for row in cells.rows[1:]] == list(loops.PARTS)
    assert cells.rows[3][3] == f"{u.epistemic.max():.4g}"
    assert "<caption>Decomposition of 3 inputs, in nats</caption>" in u._repr_html_()


def test_what_is_not_ours_is_escaped() -> None:
    class Odd(type(demur.core.rules.resolve_rule("brier"))):
        pass

    demur.register_rule(Odd("<b>odd</b>", True))
    page = demur.decompose(PROBS, rule="<b>odd</b>")._repr_html_()
    assert "<b>" not in page and "&lt;b&gt;odd&lt;/b&gt; loss" in page
