"""Credal sets: the entropies that members leave possible, and the certificates that come with them."""

import io
import math
import subprocess
import sys

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from reference import credal as reference
from reference import loops, members

import demur
import demur.progress
from demur.credal import hull, intervals, knapsack
from demur.credal.compiled_calls import SEARCH
from demur.kernels import compiling

package = sys.modules["demur.credal"]  # the attribute of that name is the function
SETS = ("hull", "intervals")
SHAPES = [(1, 3), (2, 2), (2, 4), (3, 5), (5, 3), (8, 6), (12, 4)]


def kinds(count: int, classes: int, inputs: int = 6) -> dict[str, np.ndarray]:
    """Members (members, inputs, classes) of several kinds."""
    rng = np.random.default_rng([count, classes])
    spread = rng.dirichlet(np.full(classes, 0.7), (count, inputs))
    sparse = spread * (rng.random(spread.shape) < 0.5)
    sparse[..., 0] += 0.01
    certain = np.eye(classes)[rng.integers(0, classes, (count, inputs))]
    mixed = np.where(np.arange(count)[:, None, None] % 2 == 0, certain, spread)
    twice = np.concatenate([spread, spread])[:count]
    return {
        "spread": spread,
        "excluded classes": sparse / sparse.sum(axis=-1, keepdims=True),
        "certain": certain,
        "some certain": mixed,
        "some twice": twice,
        "confident": loops.softmax(rng.normal(size=spread.shape) * 8),
    }


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_hull_against_a_second_solver(shape) -> None:
    for name, p in kinds(*shape).items():
        found = demur.credal(p)
        upper = [reference.highest_in_hull(p[:, i]) for i in range(p.shape[1])]
        lower = [min(map(reference.entropy, p[:, i])) for i in range(p.shape[1])]
        assert (found.gap <= 1e-6).all(), name
        # The second solver's mixtures are in the set: none may be above the certified bound, and being
        # good to 1e-7 itself, none may be far below what was found.
        assert (np.array(upper) <= found.upper + found.gap + 1e-13).all(), name
        np.testing.assert_allclose(found.upper, upper, atol=2e-6, err_msg=name)
        np.testing.assert_allclose(found.lower, lower, rtol=1e-13, atol=1e-15, err_msg=name)
        np.testing.assert_array_equal(found.difference, found.upper - found.lower)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_gap_is_the_duality_gap(shape) -> None:
    for name, p in kinds(*shape).items():
        inputs_first = np.ascontiguousarray(p.swapaxes(0, 1))
        lowest = package.entropy(inputs_first).min(axis=1)
        weights, gap = hull.highest_entropy_weights(inputs_first, lowest)
        assert (weights >= 0).all()
        np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-15)
        expected = [reference.duality_gap(*pair) for pair in zip(inputs_first, weights, strict=True)]
        np.testing.assert_allclose(gap, expected, atol=1e-14, err_msg=name)


def test_control_the_gap_of_a_mixture_that_is_not_the_best_is_large() -> None:
    p = np.array([[[0.5, 0.5, 0.0], [0.9, 0.05, 0.05], [0.98, 0.01, 0.01]]])
    gap = hull.mixtures_of(p, np.full((1, 3), 1 / 3)).gap[0]
    assert gap > 0.1
    assert gap == pytest.approx(reference.duality_gap(p[0], np.full(3, 1 / 3)), rel=1e-12)


def test_both_forms_of_the_newton_equations_agree() -> None:
    rng = np.random.default_rng(0)
    for members_, classes in ((3, 7), (7, 3)):
        p = rng.dirichlet(np.ones(classes), (4, members_))
        q, diagonal = p.mean(axis=1), rng.random((4, members_)) + 0.1
        b = rng.normal(size=(4, members_))
        matrix = np.einsum("bny,bmy,by->bnm", p, p, 1 / q) + diagonal[..., None] * np.eye(members_)
        x = hull.newton_solver(p, q, diagonal)(b)
        np.testing.assert_allclose(np.einsum("bnm,bm->bn", matrix, x), b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rows", [1, 4, 5, 6, 7, 50])
def test_products_of_a_matrix_with_itself(rows) -> None:
    from demur.credal.gram import gram

    a = np.random.default_rng(rows).normal(size=(3, rows, 33))
    np.testing.assert_allclose(gram(a), np.matmul(a, a.swapaxes(1, 2)), rtol=1e-12, atol=1e-13)


def test_many_members_and_classes_take_the_compiled_products(monkeypatch) -> None:
    logits = members.ordinary(50, 4, 300)
    assert hull.PRODUCTS_FOR_THREADS <= 50 * 50 * 300
    compiled = demur.credal(logits=logits)
    monkeypatch.setenv("DEMUR_COMPILE", "never")
    plain = demur.credal(logits=logits)
    assert (compiled.gap <= 1e-6).all() and (plain.gap <= 1e-6).all()
    np.testing.assert_allclose(compiled.upper, plain.upper, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_intervals_against_all_corners_and_the_halved_level(shape) -> None:
    for name, p in kinds(*shape).items():
        found = demur.credal(p, set="intervals")
        low, high = p.min(axis=0), p.max(axis=0)
        pairs = list(zip(low, high, strict=True))
        upper = [reference.highest_in_intervals(*pair) for pair in pairs]
        lower = [reference.lowest_in_intervals(*pair) for pair in pairs]
        np.testing.assert_allclose(found.upper, upper, atol=1e-14, err_msg=name)
        np.testing.assert_allclose(found.lower, lower, atol=1e-9, err_msg=name)
        assert (found.gap <= 1e-9).all()
        assert (found.lower - found.gap <= np.array(lower) + 1e-14).all()


@pytest.mark.parametrize("concentration", [0.05, 0.3, 1.0, 5.0])
def test_the_search_against_all_corners_of_more_classes(concentration) -> None:
    """Twelve classes: enough for the best corner to be off the order in which classes are filled."""
    rng = np.random.default_rng(5)
    for count in (2, 3, 6):
        p = rng.dirichlet(np.full(12, concentration), (count, 6))
        low, high = p.min(axis=0), p.max(axis=0)
        found = demur.credal(p, set="intervals")
        lowest = np.array([reference.lowest_in_intervals(*pair) for pair in zip(low, high, strict=True)])
        assert (found.lower >= lowest - 1e-14).all()
        assert (found.lower - found.gap <= lowest + 1e-14).all()
        np.testing.assert_allclose(found.lower, lowest, atol=1e-9)


@pytest.mark.parametrize("nodes", [4, 8, 16])
def test_a_search_that_is_cut_short_still_knows_a_bound(monkeypatch, nodes) -> None:
    monkeypatch.setattr(knapsack, "MOST_NODES", nodes)
    p = np.random.default_rng(3).dirichlet(np.ones(9), (4, 60))
    low, high = p.min(axis=0), p.max(axis=0)
    points, gap = intervals.lowest_entropy_point(low, high, knapsack.search)
    attained = package.entropy(points)
    lowest = [reference.lowest_in_intervals(*pair) for pair in zip(low, high, strict=True)]
    assert (gap > 1e-4).any()  # it was cut short
    assert (attained >= np.array(lowest) - 1e-14).all()
    assert (attained - gap <= np.array(lowest) + 1e-14).all()


def test_points_are_distributions_within_the_intervals() -> None:
    for p in kinds(6, 40, 50).values():
        low, high = p.min(axis=0), p.max(axis=0)
        for point in (
            intervals.highest_entropy_point(low, high),
            intervals.lowest_entropy_point(low, high, knapsack.search)[0],
        ):
            np.testing.assert_allclose(point.sum(axis=1), 1.0, rtol=1e-14)
            assert (point >= low - 1e-15).all() and (point <= high + 1e-15).all()


def test_the_compiled_search_is_the_plain_one(monkeypatch) -> None:
    p = loops.softmax(members.ordinary(6, 80, 40))
    assert p[0].size >= intervals.INTERVALS_WORTH_COMPILING
    compiled = demur.credal(p, set="intervals")
    monkeypatch.setenv("DEMUR_COMPILE", "never")
    plain = demur.credal(p, set="intervals")
    np.testing.assert_array_equal(compiled.lower, plain.lower)
    np.testing.assert_array_equal(compiled.gap, plain.gap)
    np.testing.assert_array_equal(compiled.upper, plain.upper)


def test_a_search_that_takes_long_goes_on_compiled(monkeypatch) -> None:
    """And gives the same bytes as one that is plain to its end."""
    p = loops.softmax(members.ordinary(6, 80, 40))
    monkeypatch.setenv("DEMUR_COMPILE", "never")
    plain = demur.credal(p, set="intervals")
    monkeypatch.delenv("DEMUR_COMPILE")
    for name, value in (("_loaded", {}), ("_spent_on", {}), ("_spent", 0.0)):
        monkeypatch.setattr(compiling, name, value)
    monkeypatch.setattr(compiling, "WORTH_COMPILING", 1e-3)
    monkeypatch.setattr(compiling, "WORTH_LOADING", 1e-3)
    mixed = demur.credal(p, set="intervals")
    assert SEARCH in compiling._spent_on and SEARCH in compiling._loaded  # in this order
    np.testing.assert_array_equal(mixed.lower, plain.lower)
    np.testing.assert_array_equal(mixed.gap, plain.gap)


def test_closed_forms() -> None:
    for classes in (2, 3, 7):
        certain = np.eye(classes)[:, None]  # one member for each class, certain of it
        for which in SETS:
            found = demur.credal(certain, set=which)
            assert found.upper[0] == pytest.approx(math.log(classes), abs=1e-6)
            assert found.lower[0] == 0.0
    # Between 0.6 and 0.9 the entropy falls: both ends are the members'.
    pair = demur.credal(np.array([[0.9, 0.1], [0.6, 0.4]]))
    assert float(pair.upper) == pytest.approx(reference.entropy([0.6, 0.4]), rel=1e-14)
    assert float(pair.lower) == pytest.approx(reference.entropy([0.9, 0.1]), rel=1e-14)
    # Within [0.1, 0.5], [0.1, 0.5] and [0.4, 0.5]: level is 0.3, 0.3, 0.4; a corner has what is left, 0.4.
    three = np.array([[0.5, 0.1, 0.4], [0.1, 0.5, 0.4], [0.4, 0.1, 0.5]])
    found = demur.credal(three, set="intervals")
    assert float(found.upper) == pytest.approx(reference.entropy([0.3, 0.3, 0.4]), rel=1e-14)
    assert float(found.lower) == pytest.approx(reference.entropy([0.5, 0.1, 0.4]), rel=1e-14)


@hypothesis.given(st.integers(0, 10**6), st.integers(2, 6))
@hypothesis.settings(max_examples=40)
def test_two_classes_have_one_set(seed, count) -> None:
    p = np.random.default_rng(seed).dirichlet([0.5, 0.5], (count, 3))
    both = [demur.credal(p, set=which) for which in SETS]
    np.testing.assert_allclose(both[0].upper, both[1].upper, atol=1e-6)
    np.testing.assert_allclose(both[0].lower, both[1].lower, atol=1e-9)
    for found in both:
        assert found.length is not None
        np.testing.assert_allclose(found.length, np.ptp(p[..., 0], axis=0), rtol=1e-12, atol=1e-15)
        across = (p[..., 0].min(axis=0) <= 0.5) & (p[..., 0].max(axis=0) >= 0.5)
        np.testing.assert_allclose(found.upper[across], math.log(2), atol=1e-6)


def test_the_length_keeps_the_digits_of_the_rarer_class() -> None:
    found = demur.credal(logits=np.array([[50.0, 0.0], [60.0, 0.0]]))
    assert float(found.length) == pytest.approx(math.exp(-50) - math.exp(-60), rel=1e-12)
    assert demur.credal(np.full((2, 3), 1 / 3)).length is None


@hypothesis.given(
    st.integers(0, 10**6), st.integers(1, 6), st.integers(2, 6), st.sampled_from([0.05, 0.5, 5.0])
)
@hypothesis.settings(max_examples=60)
def test_sets_that_hold_others(seed, count, classes, concentration) -> None:
    p = np.random.default_rng(seed).dirichlet(np.full(classes, concentration), (count, 4))
    inner, outer = (demur.credal(p, set=which) for which in SETS)
    # The hull is within the intervals and holds every member and their average.
    assert (outer.upper >= inner.upper - 1e-14).all()
    assert (outer.lower <= inner.lower + 1e-9).all()
    assert (inner.upper + inner.gap >= demur.decompose(p, measure="bma").total - 1e-14).all()
    assert (inner.upper <= math.log(classes) * (1 + 1e-15)).all()
    for found in (inner, outer):
        assert (found.difference >= 0).all() and (found.lower >= 0).all() and (found.gap >= 0).all()
    # With a member more the set can only grow.
    more = np.concatenate([p, np.random.default_rng(seed + 1).dirichlet(np.ones(classes), (1, 4))])
    grown = demur.credal(more)
    assert (grown.upper + grown.gap >= inner.upper).all() and (grown.lower <= inner.lower).all()


@pytest.mark.parametrize("which", SETS)
def test_conventions_are_those_of_decompose(xp, which) -> None:
    logits = members.ordinary(5, 2, 3, 4)
    expected = demur.credal(logits=logits, set=which)
    p = loops.softmax(logits)
    for found in (
        demur.credal(xp.array(p), set=which),
        demur.credal(logits=xp.array(logits), set=which),
        demur.credal(log_probs=xp.array(np.log(p)), set=which),
        demur.credal(logits=xp.array(np.moveaxis(logits, 0, 2)), axis=2, set=which),
        demur.credal(demur.Categorical(logits=xp.array(logits[::-1].copy())), set=which),
    ):
        for name, part in expected.to_dict().items():
            if name != "gap":
                xp.close(found.to_dict()[name], part, atol=2e-6)
        assert (xp.numpy(found.gap) <= 1e-6).all()
    for dtype in ("float16", "float32"):
        assert xp.dtype_name(demur.credal(logits=xp.array(logits, dtype), set=which).upper) == "float32"
    bits = demur.credal(p[:, 0], set=which, base=2)
    np.testing.assert_allclose(bits.upper, expected.upper[0] / math.log(2), atol=2e-6)
    two = demur.credal(p[:, 0, :, :2] / p[:, 0, :, :2].sum(axis=-1, keepdims=True), set=which, base=2)
    assert sorted(two.to_dict()) == ["difference", "gap", "length", "lower", "upper"]


@pytest.mark.parametrize("which", SETS)
def test_identical_members_have_a_difference_of_exactly_0(xp, which) -> None:
    rng = np.random.default_rng(0)
    for p in (rng.dirichlet(np.ones(7), 20), rng.dirichlet(np.full(7, 0.05), 20), np.eye(7)):
        for count in (1, 2, 9):
            found = demur.credal(xp.array(np.repeat(p[None], count, axis=0)), set=which)
            assert (xp.numpy(found.difference) == 0).all()


@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize("closeness", [1e-2, 1e-5, 1e-8])
def test_members_that_nearly_agree(which, closeness) -> None:
    """To first order the entropy is linear, and both sets have its ends at members or corners."""
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(1, 5, 4)) + closeness * rng.normal(size=(6, 5, 4))
    p = loops.softmax(logits)
    found = demur.credal(p, set=which)
    if which == "hull":
        own = np.array([[reference.entropy(row) for row in p[:, i]] for i in range(5)])
        # The second solver stops at 1e-8 or so; a member may then have more.
        upper = np.maximum([reference.highest_in_hull(p[:, i]) for i in range(5)], own.max(axis=1))
        lower = own.min(axis=1)
    else:
        pairs = list(zip(p.min(axis=0), p.max(axis=0), strict=True))
        upper = [reference.highest_in_intervals(*pair) for pair in pairs]
        lower = [reference.lowest_in_intervals(*pair) for pair in pairs]
    expected = np.array(upper) - np.array(lower)
    # Entropies of order one are good to 1e-15; the hull's gap is 1e-6 of the difference.
    np.testing.assert_allclose(found.difference, expected, rtol=1e-5, atol=1e-14)
    assert (found.gap <= 2e-6 * found.difference + 1e-12).all()


def test_members_that_differ_by_roundings_have_no_negative_difference() -> None:
    rng = np.random.default_rng(2)
    p = rng.dirichlet(np.full(5, 0.3), (1, 400)) * (1 + 1e-16 * rng.integers(-3, 4, (4, 400, 5)))
    for which in SETS:
        found = demur.credal(p, set=which)
        assert (found.difference >= 0).all() and (found.difference < 1e-14).all()
        assert (found.gap <= 1e-12).all()


def test_zeros_and_huge_logits_are_exact() -> None:
    p = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])  # nobody allows the last class
    for which in SETS:
        found = demur.credal(p, set=which)
        assert float(found.upper) == pytest.approx(math.log(2), abs=1e-6)
        assert float(found.lower) == 0.0
        wild = demur.credal(logits=np.array([[1e5, 0.0, -np.inf], [-np.inf, 3.0, -1e5]]), set=which)
        assert float(wild.upper) == pytest.approx(math.log(2), abs=1e-6)
        assert float(wild.lower) == 0.0


def test_no_gradients_and_no_tracing() -> None:
    torch = pytest.importorskip("torch")
    logits = torch.zeros(3, 2, 4, requires_grad=True)
    assert not demur.credal(logits=logits).upper.requires_grad
    jax = pytest.importorskip("jax")
    with pytest.raises(TypeError, match="outside of jit"):
        jax.jit(lambda z: demur.credal(logits=z).upper)(np.zeros((3, 2, 4)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"set": "hul"}, r"set must be one of 'hull', 'intervals'. Got 'hul'. Did you mean 'hull'\?"),
        ({"set": None}, "set must be one of 'hull', 'intervals'. Got None."),
        ({"base": 1}, "base must be a number above 1"),
        ({"axis": -1}, "axis must be the members' axis"),
        ({"progress": "yes"}, "progress must be True, False or a function. Got 'yes'."),
    ],
)
def test_what_is_refused(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        demur.credal(np.full((2, 3, 4), 0.25), **arguments)


@pytest.mark.parametrize("which", SETS)
def test_predictions_are_checked_at_the_door(which) -> None:
    p = np.full((2, 3, 4), 0.25)
    p[1, 2, 3] = np.nan
    with pytest.raises(ValueError, match=r"probs must be numbers. Got nan at \[1, 2, 3\]"):
        demur.credal(p, set=which)
    with pytest.raises(ValueError, match="probs must sum to 1"):
        demur.credal(np.full((2, 3, 4), 0.3), set=which)
    with pytest.raises(ValueError, match="at least 2 axes"):
        demur.credal(np.full(4, 0.25), set=which)


@pytest.mark.parametrize("which", SETS)
def test_progress_counts_the_inputs(monkeypatch, which) -> None:
    monkeypatch.setattr(package, "PROBABILITIES_AT_ONCE", 60)
    seen: list[int] = []
    found = demur.credal(logits=members.ordinary(5, 50, 4), set=which, progress=seen.append)
    assert seen == sorted(seen) and seen[-1] == 50 and len(seen) > 10
    whole = demur.credal(logits=members.ordinary(5, 50, 4), set=which)
    np.testing.assert_allclose(found.upper, whole.upper, atol=1e-6)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("progress", "size", "shown"), [(True, 1, True), (False, 1, False), (True, 10**9, False)]
)
def test_a_bar_on_a_terminal_where_there_is_much_to_do(monkeypatch, progress, size, shown) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(package, "PROBABILITIES_FOR_A_BAR", size)
    monkeypatch.setenv("TERM", "xterm")
    demur.credal(np.full((2, 30, 4), 0.25), progress=progress)
    assert ("30/30" in screen.getvalue()) == shown


def test_nothing_is_printed_in_a_pipe() -> None:
    code = (
        "import sys, numpy, demur; sys.modules['demur.credal'].PROBABILITIES_FOR_A_BAR = 1; "
        "demur.credal(numpy.full((2, 30, 4), 0.25))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""
