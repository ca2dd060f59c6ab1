"""Points and Draws: kernel scores against loops over pairs, closed forms, other scores and simulation."""

import itertools
import math

import numpy as np
import pytest
from reference import kernels, loops

import demur
from demur import Draws, Measure, Points, decompose
from demur.core import kernel_distances

PARTS = loops.PARTS
MEASURES = {"pairwise": ("each", "each"), "average": ("each", "bma"), "reverse": ("bma", "each"),
            "bma": ("bma", "bma")}  # fmt: skip
RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(6, 4))
POINTS[2] = POINTS[4]  # ties
DRAWS = RNG.normal(size=(4, 5, 3)) * np.exp(RNG.normal(size=(4, 1, 3))) + 0.5 * np.arange(4)[:, None, None]
DRAWS[1, 2] = DRAWS[3, 0]
WEIGHTS = np.array([0.2, 1.0, 0.0, 2.0, 0.7, 0.1])


def gauss(x, y):
    return np.exp(-((x - y) ** 2) / 2)


def minus_distance(x, y):
    return -np.abs(x - y)


def as_members(values: np.ndarray, place: int) -> list[list[float]]:
    """The members of one input: lists of draws, of one draw for points."""
    return [np.atleast_1d(member[..., place]).tolist() for member in values]


def reference(values, weights=None, measure=("each", "each"), kernel=kernels.energy):
    """Loops over the inputs; members of weight 0 are left out."""
    found = []
    for place in range(values.shape[-1]):
        own = None if weights is None else (weights if weights.ndim == 1 else weights[:, place])
        members = as_members(values, place)
        if own is not None:
            members, own = [m for m, w in zip(members, own, strict=True) if w > 0], own[own > 0].tolist()
        sides = tuple(s if isinstance(s, str) else as_members(s, place) for s in measure)
        found.append(kernels.decompose_one(members, own, measure=sides, kernel=kernel))
    return {part: np.array([f[part] for f in found]) for part in PARTS}


def assert_parts(found, wanted, rtol=1e-12, atol=1e-14) -> None:
    for part in PARTS:
        np.testing.assert_allclose(getattr(found, part), wanted[part], rtol=rtol, atol=atol, err_msg=part)


# --- loops ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("weighted", ["no", "members", "inputs"])
@pytest.mark.parametrize("kind", ["Points", "Draws"])
@pytest.mark.parametrize("kernel", ["energy", minus_distance, gauss])
def test_every_measure_against_loops(measure, weighted, kind, kernel) -> None:
    values = POINTS if kind == "Points" else DRAWS
    weights = None if weighted == "no" else WEIGHTS[: len(values)]
    if weighted == "inputs":
        weights = np.stack([np.roll(weights, i) for i in range(values.shape[-1])], axis=1)
    found = decompose(getattr(demur, kind)(values, kernel=kernel), measure=measure, weights=weights)
    one = kernels.energy if kernel == "energy" else lambda x, y: float(kernel(x, y))
    assert_parts(found, reference(values, weights, MEASURES[measure], one))
    assert found.stderr is None


GIVEN = {
    "one number": lambda values: RNG.normal(size=values.shape[-1]),
    "a set": lambda values: RNG.normal(size=(3, values.shape[-1])),
    "draws": lambda values: Draws(RNG.normal(size=(5, values.shape[-1]))),
    "a set of draws": lambda values: Draws(RNG.normal(size=(2, 7, values.shape[-1]))),
}


@pytest.mark.parametrize("other", ["each", "bma", "given"])
@pytest.mark.parametrize("side", ["predictor", "truth"])
@pytest.mark.parametrize("way", GIVEN)
@pytest.mark.parametrize("values", [POINTS, DRAWS], ids=["points", "draws"])
@pytest.mark.parametrize("pairs", [False, True])
def test_given_sides_against_loops(other, side, way, values, pairs) -> None:
    kernel = minus_distance if pairs else "energy"
    members = (Points if values.ndim == 2 else Draws)(values, kernel=kernel)
    weights = WEIGHTS[: len(values)]
    given = GIVEN[way](values)
    plain = given.values if isinstance(given, Draws) else given
    one = 2 if isinstance(given, Draws) else 1
    if isinstance(given, Draws):
        given = Draws(plain, kernel)
    second = RNG.normal(size=values.shape[-1]) if other == "given" else other
    sides = {"predictor": second, "truth": second} | {side: given}
    wanted = {"predictor": second, "truth": second} | {side: plain[None] if plain.ndim == one else plain}
    wanted = {k: v[None] if isinstance(v, np.ndarray) and v.ndim == 1 else v for k, v in wanted.items()}
    found = decompose(members, measure=Measure(**sides), weights=weights)
    assert_parts(found, reference(values, weights, (wanted["predictor"], wanted["truth"])))


def test_blocks_of_inputs_give_what_all_inputs_give(monkeypatch) -> None:
    whole = [decompose(Draws(DRAWS, k), stderr=True) for k in ("energy", gauss)]
    monkeypatch.setattr(kernel_distances, "NUMBERS_AT_ONCE", 1)
    for kernel, wanted in zip(("energy", gauss), whole, strict=True):
        found = decompose(Draws(DRAWS, kernel), stderr=True)
        for part in PARTS:
            np.testing.assert_allclose(getattr(found, part), getattr(wanted, part), rtol=1e-14)
            errors = [getattr(d.stderr, part) for d in (found, wanted)]
            np.testing.assert_allclose(*errors, rtol=1e-12)


# --- closed forms and other scores ----------------------------------------------------------------


def test_two_points() -> None:
    u = decompose(Points([[0.0], [3.0]]), weights=[1.0, 3.0])
    assert u.aleatoric == [0] and u.epistemic == [2 * 0.25 * 0.75 * 3]
    for measure in ("average", "reverse"):
        assert decompose(Points([[0.0], [3.0]]), measure=measure).epistemic == [0.75]


def same(x, y):
    return (x == y).astype(float)


@pytest.mark.parametrize("measure", MEASURES)
def test_the_indicator_is_half_the_brier_score(measure) -> None:
    classes = np.random.default_rng(3).integers(0, 3, size=(5, 20))
    u = decompose(Points(classes, kernel=same), measure=measure)
    brier = decompose(np.eye(3)[classes], rule="brier", measure=measure)
    for part in PARTS:
        np.testing.assert_allclose(2 * getattr(u, part), getattr(brier, part), atol=1e-14)


def test_two_different_draws_are_the_unbiased_brier_entropy() -> None:
    """The share of equal pairs among m (m - 1) different ones, not among m * m."""
    classes = np.random.default_rng(4).integers(0, 3, size=(5, 10, 20))
    probs = np.stack([(classes == y).mean(axis=1) for y in range(3)], axis=-1)
    u = decompose(Draws(classes, same))
    brier = decompose(probs, rule="brier")
    np.testing.assert_allclose(2 * u.aleatoric, brier.aleatoric * 10 / 9, rtol=1e-12)


def crps(values, weights, y):
    """CRPS of a weighted set of numbers, as the integral of (cdf - 1[z >= y])**2 over a fine grid's gaps."""
    edges = np.sort(np.append(values, y))
    middles = (edges[1:] + edges[:-1]) / 2
    cdf = (weights[:, None] * (values[:, None] <= middles)).sum(axis=0) / weights.sum()
    return float(np.sum(np.diff(edges) * (cdf - (y <= middles)) ** 2))


def test_total_is_the_expected_crps() -> None:
    """Average: the outcome is drawn from a member and charged to the average; bma/each the other way."""
    weights = WEIGHTS[WEIGHTS > 0]
    for place in range(POINTS.shape[1]):
        x = POINTS[WEIGHTS > 0, place]
        shares = weights / weights.sum()
        to_average = sum(s * crps(x, weights, y) for y, s in zip(x, shares, strict=True))
        to_each = sum(
            s * t * crps(np.array([a]), np.ones(1), y)
            for (y, s), (a, t) in itertools.product(zip(x, shares, strict=True), repeat=2)
        )
        found = [decompose(Points(x), weights=weights, measure=m) for m in ("average", "bma")]
        assert math.isclose(float(found[0].total), to_average, rel_tol=1e-12)
        assert math.isclose(float(found[1].total), to_average, rel_tol=1e-12)
        found = [decompose(Points(x), weights=weights, measure=m) for m in ("pairwise", "reverse")]
        assert math.isclose(float(found[0].total), to_each, rel_tol=1e-12)
        assert math.isclose(float(found[1].total), to_each, rel_tol=1e-12)


@pytest.mark.parametrize("kernel", ["energy", gauss])
def test_no_truth_is_better_than_the_predictor_itself(kernel) -> None:
    """Proper: the score of any other prediction is not below the entropy of what draws the outcome."""
    rng = np.random.default_rng(5)
    mine = rng.normal(size=(7, 300))
    others = rng.normal(size=(3, 300))
    points = Points(mine, kernel=kernel)
    honest = decompose(points, measure="bma").total
    for truth in (others[0], others, mine[2]):
        charged = decompose(points, measure=Measure("bma", truth))
        assert np.all(charged.total >= honest) and np.all(charged.epistemic > 0)
    for row in mine:  # a member is never charged less by another than by itself
        away = decompose(points, measure=Measure(row, "each"))
        assert np.all(away.epistemic >= 0)


def mean_distance(shift, variance):
    """E|X| for X normal."""
    scale = math.sqrt(variance)
    z = shift / scale
    return scale * math.sqrt(2 / math.pi) * math.exp(-z * z / 2) + shift * math.erf(z / math.sqrt(2))


def test_gaussian_draws_find_the_closed_form() -> None:
    """4,000 inputs of 6 draws each: means within 4.5 standard errors (7 in a million for each of 4)."""
    rng = np.random.default_rng(7)
    mean, scale = np.array([0.0, 0.5, 0.5]), np.array([1.0, 1.0, 2.0])
    draws = mean[:, None, None] + scale[:, None, None] * rng.normal(size=(3, 6, 4000))
    within = [mean_distance(0, 2 * s * s) for s in scale]
    across = [
        mean_distance(mean[i] - mean[j], scale[i] ** 2 + scale[j] ** 2)
        for i, j in itertools.product(range(3), repeat=2)
    ]
    wanted = {"aleatoric": np.mean(within) / 2, "epistemic": np.mean(across) - np.mean(within)}
    plain = decompose(Draws(draws))
    for part, value in wanted.items():
        found = getattr(plain, part)
        error = found.std() / math.sqrt(4000)
        assert abs(found.mean() - value) < 4.5 * error, part
        assert error < 0.1 * value  # the test could fail
    # The same random numbers for all members: still unbiased.
    shared = mean[:, None, None] + scale[:, None, None] * rng.normal(size=(1, 6, 4000))
    for part, value in wanted.items():
        found = getattr(decompose(Draws(shared)), part)
        assert abs(found.mean() - value) < 4.5 * found.std() / math.sqrt(4000), part


# --- exactness ------------------------------------------------------------------------------------


@pytest.mark.parametrize("measure", ["pairwise", "average", "reverse"])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
@pytest.mark.parametrize("kernel", ["energy", gauss])
def test_identical_members_have_exactly_zero(measure, weights, kernel) -> None:
    one = np.random.default_rng(1).normal(size=(1, 50, 20)) * 1e3 + 0.1
    draws = Draws(np.repeat(one, 6, axis=0), kernel)
    points = Points(np.repeat(one[:, 0], 6, axis=0), kernel=kernel)
    for members in (draws, points):
        u = decompose(members, measure=measure, weights=weights)
        if kernel == "energy":
            assert np.all(u.epistemic == 0)
        np.testing.assert_allclose(u.epistemic, 0, atol=1e-16)
    plain = demur.variance(draws, weights=weights)
    assert np.all(plain.epistemic == 0) and np.all(plain.aleatoric > 0)


def test_a_large_offset_costs_no_digits() -> None:
    """Multiples of 2**-20 beside 1e8 are exact, so everything must be the same to the bit."""
    rng = np.random.default_rng(2)
    for kind, shape in ((Points, (9, 30)), (Draws, (9, 8, 30))):
        near = rng.integers(-1000, 1000, size=shape) * 2.0**-20
        for arguments in ({}, {"unbiased": True, "stderr": True}, {"weights": np.arange(9.0)}):
            here, far = (decompose(kind(x), **arguments) for x in (near, near + 1e8))
            for part in PARTS:
                np.testing.assert_array_equal(getattr(here, part), getattr(far, part))
        here, far = (demur.variance(kind(x)) for x in (near, near + 1e8))
        np.testing.assert_allclose(far.epistemic, here.epistemic, rtol=1e-12)
        ninths = near / 9  # whose means are rounded
        here, far = (demur.variance(kind(x)) for x in (ninths + 1e8 - 1e8, ninths + 1e8))
        np.testing.assert_allclose(far.epistemic, here.epistemic, rtol=1e-12)
        np.testing.assert_allclose(far.aleatoric, here.aleatoric, rtol=1e-12)


def test_a_light_member_far_away_is_not_lost() -> None:
    u = decompose(Points([[0.0], [1e20]]), weights=[1.0, 1e-20])
    np.testing.assert_allclose(u.epistemic, 2.0, rtol=1e-12)


def test_members_without_weight_have_no_effect_whatever_they_hold() -> None:
    spoilt = np.concatenate([POINTS, np.full((1, 4), np.nan)])
    weights = np.append(np.ones(6), 0.0)
    for arguments in ({"measure": "average"}, {"unbiased": True, "stderr": True}):
        with_it = decompose(Points(spoilt), weights=weights, **arguments)
        without = decompose(Points(POINTS), **arguments)
        np.testing.assert_allclose(with_it.epistemic, without.epistemic, rtol=1e-14)
    u = demur.variance(Points(spoilt), weights=weights)
    np.testing.assert_array_equal(u.epistemic, demur.variance(Points(POINTS)).epistemic)


# --- few members ----------------------------------------------------------------------------------


@pytest.mark.parametrize("measure", MEASURES)
def test_unbiased_counts_pairs_of_different_members(measure) -> None:
    weights = WEIGHTS[[0, 1, 3, 4, 5]]
    values = POINTS[[0, 1, 3, 4, 5]]
    u = decompose(Points(values), weights=weights, measure=measure, unbiased=True)
    share = 1 - np.sum(weights**2) / weights.sum() ** 2
    plain = decompose(Points(values), weights=weights)
    halves = {"pairwise": 2, "average": 1, "reverse": 1, "bma": 0}[measure]
    np.testing.assert_allclose(u.epistemic, halves * plain.epistemic / share / 2, rtol=1e-13)


@pytest.mark.parametrize(
    "sides", ["each bma", "bma each", "given each", "given bma", "bma given", "each given"]
)
def test_unbiased_means_unbiased(sides) -> None:
    """Three of infinitely many Gaussian members, 20,000 times: every part within 4.5 standard errors."""
    rng = np.random.default_rng(11)
    few, many = 3, 20_000
    values = rng.normal(size=(few, many))
    given = 0.7
    predictor, truth = (np.full(many, given) if s == "given" else s for s in sides.split())
    u = decompose(Points(values), measure=Measure(predictor, truth), unbiased=True)
    k, to_given = mean_distance(0, 2), mean_distance(given, 1)
    apart = to_given - k / 2  # of the given point from the average: C_g / 2 + C / 2 - C_g,bma, with C = -k
    total = {"each bma": k / 2, "bma each": k, "given each": to_given, "given bma": apart,
             "bma given": to_given, "each given": to_given}[sides]  # fmt: skip
    aleatoric = k / 2 if sides.startswith("bma") else 0.0
    for part, value in (("total", total), ("aleatoric", aleatoric), ("epistemic", total - aleatoric)):
        found = getattr(u, part)
        assert abs(found.mean() - value) <= 4.5 * found.std() / math.sqrt(many), part


def test_unbiased_draws_of_few_members() -> None:
    """Three members with means of N(0, 1), three draws of N(mean, 1) each."""
    rng = np.random.default_rng(12)
    draws = rng.normal(size=(3, 1, 20_000)) + rng.normal(size=(3, 3, 20_000))
    u = decompose(Draws(draws), unbiased=True)
    wanted = {"aleatoric": mean_distance(0, 2) / 2, "epistemic": mean_distance(0, 4) - mean_distance(0, 2)}
    for part, value in wanted.items():
        found = getattr(u, part)
        assert abs(found.mean() - value) < 4.5 * found.std() / math.sqrt(20_000) < 0.1 * value


@pytest.mark.parametrize("groups", [None, 3])
@pytest.mark.parametrize("measure", ["pairwise", "average"])
@pytest.mark.parametrize("values", [POINTS, DRAWS], ids=["points", "draws"])
def test_standard_errors_by_leaving_out(groups, measure, values) -> None:
    kind = Points if values.ndim == 2 else Draws
    u = decompose(kind(values), measure=measure, stderr=True, groups=groups)
    count = len(values)
    number = groups or count
    group = np.arange(count) % number
    rest = [decompose(kind(values[group != g]), measure=measure) for g in range(number)]
    for part in PARTS:
        whole = getattr(u, part)
        h = np.array([count / (group == g).sum() for g in range(number)])[:, None]
        pseudo = h * whole - (h - 1) * np.stack([getattr(r, part) for r in rest])
        centre = np.sum(pseudo / h, axis=0)
        wanted = np.sqrt(np.mean((pseudo - centre) ** 2 / (h - 1), axis=0))
        np.testing.assert_allclose(getattr(u.stderr, part), wanted, rtol=1e-9, atol=1e-15)


def test_standard_errors_are_the_spread_of_the_estimate() -> None:
    """40 members, 3,000 times: the mean squared error within 15 % of the variance found."""
    rng = np.random.default_rng(13)
    u = decompose(Points(rng.normal(size=(40, 3000))), unbiased=True, stderr=True)
    assert u.stderr is not None
    ratio = float(np.mean(u.stderr.epistemic**2) / u.epistemic.var())
    assert 0.85 < ratio < 1.15


# --- outputs, libraries, shapes -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Points", "Draws"])
def test_outputs_add_up_in_units_of_their_scale(kind) -> None:
    rng = np.random.default_rng(17)
    values = rng.normal(size=(5, 4, 3, 2) if kind == "Draws" else (5, 3, 2))
    scale = np.array([0.5, 40.0])
    make = getattr(demur, kind)
    each = decompose(make(values / scale))
    both = decompose(make(values, scale=scale))
    for part in PARTS:
        np.testing.assert_allclose(getattr(both, part), getattr(each, part).sum(-1), rtol=1e-13, atol=1e-16)
    np.testing.assert_allclose(
        demur.variance(make(values, scale=scale)).total, demur.variance(make(values / scale)).total.sum(-1)
    )
    one = decompose(make(values, scale=2.0), stderr=True, weights=np.arange(1.0, 6.0))
    assert one.epistemic.shape == (3,) and one.stderr is not None
    rest = [
        decompose(
            make(np.delete(values, i, 0), scale=2.0), weights=np.delete(np.arange(1.0, 6.0), i)
        ).epistemic
        for i in range(5)
    ]
    h = (15 / np.arange(1.0, 6.0))[:, None]
    pseudo = h * one.epistemic - (h - 1) * np.stack(rest)
    centre = np.sum(pseudo / h, axis=0)
    np.testing.assert_allclose(
        one.stderr.epistemic, np.sqrt(np.mean((pseudo - centre) ** 2 / (h - 1), axis=0))
    )


def test_every_library_gets_its_own_arrays_back(xp) -> None:
    for kind, values in ((Points, POINTS), (Draws, DRAWS)):
        found = decompose(kind(xp.array(values)), weights=xp.array(WEIGHTS[: len(values)]), stderr=True)
        wanted = decompose(kind(values), weights=WEIGHTS[: len(values)])
        for part in PARTS:
            xp.close(getattr(found, part), getattr(wanted, part))
        xp.close(demur.variance(kind(xp.array(values))).total, demur.variance(kind(values)).total)
    half = decompose(Points(xp.array(POINTS, "float32")))
    assert xp.dtype_name(half.epistemic) == "float32"


def test_the_members_axis_may_be_anywhere() -> None:
    wanted = decompose(Draws(DRAWS)).epistemic
    for axis in (1, 2, -1):
        moved = np.moveaxis(DRAWS, 0, axis)
        np.testing.assert_array_equal(decompose(Draws(moved), axis=axis).epistemic, wanted)
    single = decompose(Points(POINTS[:, 0]))
    assert single.epistemic.shape == () and single.epistemic == decompose(Points(POINTS)).epistemic[0]
    grid = np.random.default_rng(0).normal(size=(4, 2, 3, 5))
    assert decompose(Points(grid), weights=np.ones((4, 2, 3, 5))).epistemic.shape == (2, 3, 5)
    assert decompose(Points(np.arange(3))).epistemic == pytest.approx(8 / 9)  # whole numbers


def test_variance_by_the_law_of_total_variance() -> None:
    weights = WEIGHTS[[0, 1, 3, 4, 5]]
    points = POINTS[[0, 1, 3, 4, 5]]
    u = demur.variance(Points(points), weights=weights)
    np.testing.assert_allclose(u.epistemic, np.cov(points.T, aweights=weights, ddof=0).diagonal(), rtol=1e-12)
    assert np.all(u.aleatoric == 0)
    product = decompose(Draws(DRAWS, lambda x, y: x * y))  # K is the variance of the means
    v = demur.variance(Draws(DRAWS))
    np.testing.assert_allclose(v.epistemic, product.epistemic, rtol=1e-9)
    np.testing.assert_allclose(v.aleatoric, 2 * product.aleatoric, rtol=1e-9)
    np.testing.assert_allclose(v.total, v.aleatoric + v.epistemic)


# --- bad input ------------------------------------------------------------------------------------

BAD = {
    "a single draw": (lambda: decompose(Draws(DRAWS[:, :1])), r"at least 2 draws.*demur\.Points"),
    "no members": (lambda: decompose(Points(3.0)), r"Points must have shape \(members, \.\.\.\)"),
    "no draws": (lambda: decompose(Draws(POINTS[0])), r"shape \(members, draws, \.\.\.\)"),
    "empty": (lambda: decompose(Points(np.empty((3, 0)))), "none of them empty"),
    "NaN": (
        lambda: decompose(
            Draws(np.where(np.arange(60).reshape(5, 3, 4) == 33, np.nan, np.moveaxis(DRAWS, 0, 2))),
            axis=2,
        ),
        r"Draws must be numbers of at most 1e\+150 in size\. Got nan at \[2, 2, 1\]",
    ),
    "infinity": (lambda: demur.variance(Points([1.0, -np.inf])), r"Got -inf at \[1\]"),
    "kernel": (lambda: Points(POINTS, kernel="gauss"), "kernel must be 'energy' or a function"),
    "kernel's shape": (
        lambda: decompose(Points(POINTS, kernel=lambda x, y: 1.0)),
        "one number for each pair",
    ),
    "kernel's numbers": (
        lambda: decompose(Points(POINTS, kernel=lambda x, y: (x - y) * np.nan)),
        "kernel must return finite numbers",
    ),
    "scale": (lambda: Points(POINTS, scale=[1.0, 2.0]), r"one for each output on the last axis, \(4,\)"),
    "scale of 0": (lambda: Points(POINTS, scale=0), "scale must be finite and above 0"),
    "rule": (lambda: decompose(Points(POINTS), rule="brier"), "rule does not go with Points"),
    "base": (lambda: decompose(Points(POINTS), base=2), "base does not go with Points"),
    "logits": (lambda: decompose(Points(POINTS), logits=POINTS), "logits does not go with Points"),
    "weights": (lambda: decompose(Points(POINTS), weights=[1.0, 2.0]), r"weights must have shape \(6,\)"),
    "axis": (lambda: decompose(Points(POINTS), axis=2), "axis must be an axis of Points"),
    "groups": (lambda: decompose(Points(POINTS), groups=1, stderr=True), "groups must be None or"),
    "one member": (lambda: decompose(Points(POINTS[:1]), unbiased=True), "at least 2 members"),
    "given shape": (
        lambda: decompose(Points(POINTS), measure=Measure(POINTS[:, :2], "each")),
        "predictor must be numbers for the same inputs",
    ),
    "given kernel": (
        lambda: decompose(Points(POINTS), measure=Measure("each", Draws(DRAWS, gauss))),
        "truth must have the members' kernel",
    ),
    "given Gaussian": (
        lambda: decompose(Points(POINTS), measure=Measure("each", demur.Gaussian(POINTS, variance=1.0))),
        "truth must be numbers",
    ),
    "attribute": (lambda: demur.attribute(Points(POINTS)), "no classes"),
    "Moments": (lambda: demur.Moments().update(Points(POINTS)), "no sums of a fixed size. Stack"),
    "information": (lambda: demur.information(Points(POINTS)), "all members at once"),
    "divergences": (lambda: demur.divergences(Points(POINTS)), "all members at once"),
    "margin": (lambda: demur.margin(Points(POINTS)), "all members at once"),
    "given to classes": (
        lambda: decompose(np.full((3, 4, 2), 0.5), measure=Measure(Points(POINTS), "each")),
        "all members at once",
    ),
    "one weight": (lambda: decompose(Points(POINTS), weights=2.0), r"weights must have shape \(6,\)"),
    "complex": (lambda: Points(1j * POINTS), "must hold real numbers"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_told_in_one_line(case) -> None:
    call, message = BAD[case]
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_gradients_are_refused_and_not_lost() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="no gradient passes"):
        decompose(Points(torch.tensor(POINTS, requires_grad=True)))
