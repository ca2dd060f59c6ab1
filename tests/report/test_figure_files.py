"""Figures: what is drawn is what was computed, at any number of inputs, and the same bytes each time."""

import numpy as np
import pytest

import demur
from demur import report, tasks

pytest.importorskip("matplotlib")


def texts(figure):
    found = []
    for axes in figure.axes:
        found += [t.get_text() for t in axes.texts]
        found += [t.get_text() for axis in (axes.xaxis, axes.yaxis) for t in axis.get_ticklabels()]
        found += [t.get_text() for t in (axes.get_legend().get_texts() if axes.get_legend() else [])]
    return found


def scores(number, seed=0):
    rng = np.random.default_rng(seed)
    return rng.lognormal(0, 2, number), rng.lognormal(2, 2, number)


def detected(number, **options):
    return tasks.detection(*scores(number), **options)


def kept(number, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.uniform(size=number)
    return tasks.selective(values, rng.uniform(size=number) > values / 2, interval="asymptotic")


def members(number=6, inputs=3, classes=4, excluded=False):
    p = np.random.default_rng(0).dirichlet(np.ones(classes), (number, inputs))
    if excluded:
        p[0, 0, 1] = 0
        p /= p.sum(-1, keepdims=True)
    return p


def pairs(p):
    return tuple(demur.decompose(p, measure=m).epistemic for m in ("average", "pairwise"))


FIGURES = {
    "density": lambda: report.density_figure(dict(zip("ab", scores(400), strict=True))),
    "roc": lambda: report.roc_figure({"K": detected(300, interval="asymptotic")}),
    "accuracy": lambda: report.accuracy_figure({"K": kept(300)}),
    "scatter": lambda: report.scatter_figure({"a": pairs(members(6, 50))}),
    "decomposition": lambda: report.decomposition_figure(
        demur.decompose(members()), demur.attribute(members())
    ),
    "divergence": lambda: report.divergence_figure(demur.divergences(members()[:, 0])),
    "convergence": lambda: report.convergence_figure(demur.convergence(members(20))),
}


@pytest.mark.parametrize("name", FIGURES)
def test_the_figure_can_be_drawn_and_says_what_its_axes_are(name):
    figure = FIGURES[name]()
    figure.draw_without_rendering()
    assert all(axes.get_xlabel() or axes.get_ylabel() for axes in figure.axes)


@pytest.mark.parametrize("name", ["scatter", pytest.param("decomposition", marks=pytest.mark.slow)])
def test_the_same_figure_gives_the_same_bytes(tmp_path, name):
    for run in ("first", "second"):
        (tmp_path / run).mkdir()
        paths = report.save(FIGURES[name](), tmp_path / run, name)
    assert [p.name for p in paths] == [f"{name}.pdf", f"{name}.png"]
    for path in paths:
        assert path.read_bytes() == (tmp_path / "first" / path.name).read_bytes()
        assert path.stat().st_size > 2000


def heights(figure):
    """Shares of all steps and bars, by label."""
    from matplotlib.patches import StepPatch

    steps = [p for p in figure.axes[0].patches if isinstance(p, StepPatch)]
    bars = [p for p in figure.axes[0].patches if not isinstance(p, StepPatch)]
    return {p.get_label(): p.get_data().values for p in steps}, [bar.get_height() for bar in bars]


def test_densities_add_to_one_with_what_is_beside():
    values = np.append(scores(300)[0], [0, 0, np.inf])
    figure = report.density_figure({"a": values, "b": np.array([1.0])})
    steps, bars = heights(figure)
    assert steps["a"].sum() + bars[0] + bars[1] == pytest.approx(1)
    assert bars[1] == pytest.approx(1 / 303) and steps["b"].sum() == 1
    assert {"∞", "less", "a", "b"} <= set(texts(figure))


@pytest.mark.parametrize("values", [[0.0], [np.inf], [np.inf, 0.0], [1.0] * 5, [-1.0, 2.0]])
def test_odd_scores_have_a_density(values):
    report.density_figure({"a": np.array(values)}).draw_without_rendering()


def distance(points, line):
    """How far the furthest point is from a line through others."""
    start, step = line[:-1], np.diff(line, axis=0)
    length = np.maximum((step**2).sum(1), 1e-300)
    along = np.clip(((points[:, None] - start) * step).sum(-1) / length, 0, 1)
    return np.hypot(*np.moveaxis(points[:, None] - start - along[..., None] * step, -1, 0)).min(1).max()


def test_the_roc_is_the_curve_within_the_tolerance_of_a_pixel_and_its_band():
    found = detected(2000, interval="asymptotic")
    figure = report.roc_figure({"K": found})
    axes = figure.axes[0]
    x, y = axes.lines[0].get_data()
    assert len(x) < 300
    assert distance(np.array(found.curve[:2]).T, np.array([x, y]).T) <= 1e-3 + 1e-12
    assert f"K: {found.auroc}" in texts(figure)
    band = axes.collections[0].get_paths()[0].get_extents()
    assert (band.x0, band.x1) == (0, 1)
    assert not report.roc_figure({"K": found}, bands=False).axes[0].collections


def test_accuracy_with_band_oracle_and_chance():
    found = kept(400)
    figure = report.accuracy_figure({"K": found, "again": found})
    lines = {line.get_label(): line.get_data() for line in figure.axes[0].lines}
    best = lines["best possible of K"]
    np.testing.assert_allclose(best[1], tasks.best_accuracy(found))
    assert set(np.asarray(lines["any order of K"][1])) == {found.curve.accuracy[-1]}
    x, y = lines[f"K: {found.auc}"]
    np.testing.assert_allclose(y, found.curve.accuracy[np.rint(np.asarray(x) * 400).astype(int) - 1])
    assert len(figure.axes[0].collections) == 2
    legend = figure.axes[0].get_legend()
    assert legend.get_frame().get_alpha() == 1 and legend.zorder > max(
        each.zorder for each in figure.axes[0].lines
    )


def test_points_at_the_edge_are_drawn_there():
    i, k = np.array([0.0, 0.1, 0.2]), np.array([0.0, 0.2, np.inf])
    figure = report.scatter_figure({"a": (i, k)})
    axes = figure.axes[0]
    at = axes.collections[0].get_offsets()
    low, high = axes.get_xlim()
    assert at[:, 0].min() == pytest.approx(low) and at[:, 1].max() == pytest.approx(high)
    assert "∞" in texts(figure)
    many = report.scatter_figure({"a": (np.arange(1.0, 5001), 2 * np.arange(1.0, 5001))})
    assert len(many.axes[0].collections[0].get_offsets()) == 2000


def test_a_decomposition_has_its_bars_and_the_classes_that_drive_it():
    p = members(5, 3, 12)
    found = demur.decompose(p)
    figure = report.decomposition_figure(found, demur.attribute(p), names=["x", "y", "z"])
    bars = figure.axes[0].containers
    np.testing.assert_allclose([b.get_width() for b in bars[0]], found.aleatoric)
    np.testing.assert_allclose([b.get_width() for b in bars[1]], found.epistemic)
    drawn = np.asarray(figure.axes[1].images[0].get_array())
    assert drawn.shape == (3, 8) and drawn.max() == demur.attribute(p).max()
    assert {"x", "y", "z"} <= set(texts(figure))
    endless = report.decomposition_figure(
        *(f(members(excluded=True), rounding=0) for f in (demur.decompose, demur.attribute))
    )
    assert "∞" in "".join(texts(endless)) and endless.axes[0].containers[1][0].get_hatch()


def test_a_matrix_has_its_figures_and_infinity_is_hatched():
    with pytest.warns(demur.RoundingWarning, match="1 of 1 input"):
        matrix = demur.divergences(members(excluded=True)[:, 0])
    figure = report.divergence_figure(matrix, names=[f"net {k}" for k in range(6)])
    assert f"{matrix[1, 2]:.2f}" in texts(figure) and "∞" in texts(figure) and "net 3" in texts(figure)
    assert (
        sum(patch.get_hatch() is not None for patch in figure.axes[0].patches) == np.isinf(matrix).sum() > 0
    )
    report.divergence_figure(np.zeros((1, 1)))
    assert not report.divergence_figure(demur.divergences(members(30)[:, 0])).axes[0].texts


def test_convergence_has_lines_and_bars_of_one_standard_error():
    found = demur.convergence(members(20))
    figure = report.convergence_figure(found, names=["a", "b", "c"])
    containers = figure.axes[0].containers
    assert len(containers) == 3
    for index, container in enumerate(containers):
        line, _, (bars,) = container
        np.testing.assert_allclose(line.get_ydata(), found.value[:, index])
        ends = np.array([segment[:, 1] for segment in bars.get_segments()])
        np.testing.assert_allclose(np.diff(ends)[:, 0] / 2, found.stderr[:, index])
    with pytest.warns(demur.RoundingWarning, match="1 of 3 inputs"):
        found = demur.convergence(members(20, excluded=True))
    report.convergence_figure(found)


@pytest.mark.parametrize("number", [1, 2, 5])
def test_few_inputs(number):
    report.roc_figure({"K": detected(number)}).draw_without_rendering()
    report.accuracy_figure({"K": kept(number)}).draw_without_rendering()


def test_many_inputs_make_small_files(tmp_path):
    known, unknown = scores(100_000)
    found = tasks.detection(known, unknown)
    for name, figure in {
        "density": report.density_figure({"known": known, "unknown": unknown}),
        "roc": report.roc_figure({"K": found}),
        "accuracy": report.accuracy_figure({"K": kept(100_000)}),
    }.items():
        figure.savefig(tmp_path / f"{name}.pdf")
        assert (tmp_path / f"{name}.pdf").stat().st_size < 200_000, name


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: report.density_figure({"a": [np.nan]}), "Got NaN"),
        (lambda: report.divergence_figure(np.zeros((2, 3))), "shape \\(members, members\\)"),
        (lambda: report.divergence_figure(np.zeros((2, 2, 3))), "of one input"),
        (lambda: report.decomposition_figure(demur.decompose(members()), np.zeros((2, 4))), "and \\(2, 4\\)"),
        (lambda: report.convergence_figure(demur.convergence(members(5, 7))), "at most 6 inputs"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("name", ["a.pdf", "a.png"])
def test_an_interruption_leaves_the_old_file_whole(tmp_path, monkeypatch, name):
    figure = report.density_figure({"id": np.arange(10.0)})
    report.save(figure, tmp_path, "a")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    plain = figure.savefig

    def interrupted(file, **options):
        if options["format"] == name[-3:]:
            file.write(b"half a figure")
            raise KeyboardInterrupt
        plain(file, **options)

    monkeypatch.setattr(figure, "savefig", interrupted)
    with pytest.raises(KeyboardInterrupt):
        report.save(figure, tmp_path, "a")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
