"""Moments: the laws of merging, zero weights, files, and what groups are needed for."""

import copy
import functools
import pickle
import sys
import zipfile

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from reference import loops, members

import demur
from demur.derived_moments import sums_of_given

NAMES = tuple(loops.NAMES)

# Logits on a grid of quarters, and excluded classes: members either agree exactly or differ by
# something, so a relative tolerance means the same for every value.
GRID = st.integers(-32, 32).map(lambda quarter: quarter / 4.0)


@st.composite
def streams(draw, excluded: bool = True):
    """Logits (members, inputs, classes) and weights (members,), some of them zero."""
    shape = (draw(st.integers(2, 7)), draw(st.integers(1, 3)), draw(st.integers(2, 4)))
    elements = GRID | st.just(-np.inf) if excluded else GRID
    logits = draw(hnp.arrays(np.float64, shape, elements=elements))
    logits[..., 0] = np.where(np.isinf(logits).all(-1), 0.0, logits[..., 0])
    weights = draw(hnp.arrays(np.float64, shape[0], elements=st.sampled_from([0.0, 0.25, 1.0, 3.5])))
    weights[draw(st.integers(0, shape[0] - 1))] = 1.0
    return logits, weights


def fed(logits, weights=None, **options) -> demur.Moments:
    """One accumulator that has seen these members in one piece."""
    moments = demur.Moments(**options)
    if len(logits):
        moments.update(logits=logits, weights=weights)
    return moments


def same(
    left: demur.Moments,
    right: demur.Moments,
    rtol: float = 1e-12,
    parts: tuple[str, ...] = loops.PARTS,
    **options,
) -> None:
    """Every part of every measure: 1e-12 relative, and zero and infinity exactly."""
    for name in NAMES:
        a, b = left.decompose(measure=name, **options), right.decompose(measure=name, **options)
        pairs = [(a, b)] + ([(a.stderr, b.stderr)] if options.get("stderr") else [])
        for index, (one, other) in enumerate(pairs):
            for part in parts:
                expected = np.asarray(getattr(other, part))
                # The standard error is the spread of nearly equal numbers: what is lost is
                # relative to the value, not to the spread.
                scale = np.abs(np.asarray(getattr(b, part)))
                np.testing.assert_allclose(
                    np.asarray(getattr(one, part)),
                    expected,
                    rtol=rtol,
                    atol=rtol * np.max(scale, where=np.isfinite(scale), initial=0.0) * index,
                    err_msg=f"{name} {part}",
                )


# --- merge laws ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "part", ["epistemic", *(pytest.param(each, marks=pytest.mark.slow) for each in ("total", "aleatoric"))]
)
@given(streams(), st.data())
def test_any_chunking_order_and_split_gives_the_one_pass_result(part, stream, data) -> None:
    logits, weights = stream
    count = len(logits)
    order = data.draw(st.permutations(range(count)))
    machines = [demur.Moments() for _ in range(data.draw(st.integers(1, 3)))]
    start = 0
    while start < count:
        stop = data.draw(st.integers(start + 1, count))
        machine = machines[data.draw(st.integers(0, len(machines) - 1))]
        chosen = list(order[start:stop])
        if len(chosen) == 1 and data.draw(st.booleans()):
            machine.update(logits=logits[chosen[0]], weights=float(weights[chosen[0]]))
        else:
            machine.update(logits=logits[chosen], weights=weights[chosen])
        start = stop
    whole = functools.reduce(lambda left, right: left.merge(right), machines)
    one_pass = fed(logits, weights)
    same(whole, one_pass, parts=(part,))
    assert whole.count == one_pass.count == np.count_nonzero(weights)
    np.testing.assert_allclose(whole.effective_count, one_pass.effective_count, rtol=1e-12)
    np.testing.assert_allclose(whole.mean, one_pass.mean, rtol=1e-12)


@given(streams())
def test_one_pass_is_the_array_path_and_the_reference(stream) -> None:
    logits, weights = stream
    moments = fed(logits, weights)
    for name, measure in loops.NAMES.items():
        from_array = demur.decompose(logits=logits, weights=weights, measure=name)
        expected = loops.over_batch(loops.decompose_one, loops.softmax(logits), weights, measure=measure)
        found = moments.decompose(measure=name)
        for part in loops.PARTS:
            np.testing.assert_allclose(getattr(found, part), getattr(from_array, part), rtol=1e-12, atol=0)
            # The loops subtract two numbers of order one: 1e-14 absolute.
            np.testing.assert_allclose(getattr(found, part), expected[part], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("groups", [pytest.param(None, marks=pytest.mark.slow), 3])
@given(st.lists(streams(), min_size=1, max_size=1), st.data())
def test_merge_is_associative_and_commutative(groups, stream, data) -> None:
    logits, weights = stream[0]
    weights = np.where(weights == 0, 0.5, weights)
    cuts = sorted(data.draw(st.lists(st.integers(1, len(logits)), min_size=2, max_size=2)))
    pieces = [slice(0, cuts[0]), slice(cuts[0], cuts[1]), slice(cuts[1], None)]

    def machine(index: int) -> demur.Moments:
        return fed(logits[pieces[index]], weights[pieces[index]], groups=groups)

    options = {}
    if groups is not None and len({k % 3 for p in pieces for k in range(len(logits[p]))}) > 1:
        options = {"stderr": True, "unbiased": True}
    left = machine(0).merge(machine(1)).merge(machine(2))
    right = machine(0).merge(machine(1).merge(machine(2)))
    swapped = machine(2).merge(machine(0)).merge(machine(1))
    # Unbiased values are differences of G numbers of that size: 1e-12 of those, not of the result.
    rtol = 1e-12 if not options else 1e-10
    same(left, right, rtol, **options)
    same(left, swapped, rtol, **options)


@given(streams())
def test_the_empty_state_is_the_identity(stream) -> None:
    logits, weights = stream
    plain = fed(logits, weights)
    for merged in (
        fed(logits, weights).merge(demur.Moments()),
        demur.Moments().merge(fed(logits, weights)),
    ):
        same(merged, plain, rtol=0.0)
        assert merged.count == plain.count


def test_members_and_classes_may_be_on_other_axes() -> None:
    z = members.ordinary(4, 7, 3)
    expected = demur.Moments().update(logits=z).decompose().epistemic
    moved = [
        demur.Moments().update(logits=np.moveaxis(z, 0, 1), axis=1),
        demur.Moments().update(logits=np.moveaxis(z, 0, 2), class_axis=1, member_axis=2),
        demur.Moments().update(logits=np.moveaxis(z, 2, 0), member_axis=1, class_axis=0),
    ]
    one_by_one = demur.Moments()
    for member in z:
        one_by_one.update(logits=member.T, class_axis=0)
    for each in (*moved, one_by_one):
        np.testing.assert_allclose(each.decompose().epistemic, expected, rtol=1e-12)
    p = 1 / (1 + np.exp(-z[..., 0]))
    labels = [demur.Moments().update(demur.Bernoulli(p)), demur.Moments()]
    labels[1].update(demur.Bernoulli(p.T), axis=1)
    np.testing.assert_allclose(*(each.decompose().epistemic for each in labels), rtol=1e-12)
    with pytest.raises(ValueError, match="axis and member_axis"):
        demur.Moments().update(logits=z, axis=1, member_axis=2)


def test_merge_is_in_place_and_leaves_the_other_alone() -> None:
    logits = members.ordinary(6, 3, 4)
    left, right = fed(logits[:2]), fed(logits[2:])
    before = right.decompose().epistemic.copy()
    assert left.merge(right) is left
    np.testing.assert_array_equal(right.decompose().epistemic, before)
    left.update(logits=logits)  # must not reach into what it took from the other
    np.testing.assert_array_equal(right.decompose().epistemic, before)


@pytest.mark.parametrize("rule", loops.RULES)
def test_merge_for_every_rule(xp, rule) -> None:
    logits, weights = members.ordinary(6, 3, 4), members.weights(6)
    left = fed(xp.array(logits[:2]), xp.array(weights[:2]), rule=rule)
    left.merge(fed(xp.array(logits[2:]), xp.array(weights[2:]), rule=rule))
    for name, measure in loops.NAMES.items():
        expected = loops.over_batch(
            loops.decompose_one, loops.softmax(logits), weights, measure=measure, rule=rule
        )
        for part in loops.PARTS:
            xp.close(getattr(left.decompose(measure=name), part), expected[part])


def test_a_wrong_merge_is_found() -> None:
    """Control: states averaged without their weights must not pass `same`."""
    logits = members.ordinary(5, 3, 4)
    whole = fed(logits)
    unweighted = fed(logits[:1], [2.0]).merge(fed(logits[1:], [0.5] * 4))
    with pytest.raises(AssertionError):
        same(unweighted, whole)


# --- zero weights -------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [None, 2, 3])
@given(streams(excluded=False), st.data())
@settings(max_examples=30)
def test_zero_weights_are_no_operations(groups, stream, data) -> None:
    logits, weights = stream
    weights[data.draw(st.integers(0, len(logits) - 1))] = 1.0
    kept = weights > 0
    options = {"unbiased": True, "stderr": True} if groups and kept.sum() > 1 else {}
    together = fed(logits, weights, groups=groups)
    one_by_one = demur.Moments(groups=groups)
    for member, weight in zip(logits, weights, strict=True):
        one_by_one.update(logits=member, weights=float(weight))
    without = fed(logits[kept], weights[kept], groups=groups)
    for other in (together, one_by_one):
        same(other, without, 1e-10 if options else 1e-12, **options)
        assert other.count == without.count


def test_a_stream_that_starts_with_nothing() -> None:
    logits = members.ordinary(4, 3, 5)
    logits[0, :, 2] = -np.inf
    moments = demur.Moments()
    moments.update(logits=logits[0], weights=0.0)
    moments.update(logits=logits[1:])
    same(moments, fed(logits[1:]))


def test_weights_of_each_input() -> None:
    logits, weights = members.ordinary(5, 4, 3), members.weights(5, 4)
    weights[0, 1] = weights[3, 2] = 0.0
    weights[:2, 0] = weights[2:, 3] = 0.0  # a whole chunk without weight for one input
    logits[0, 0, 1] = logits[4, 3, 2] = -np.inf  # where only such a member excludes a class
    moments = demur.Moments()
    moments.update(logits=logits[:2], weights=weights[:2])
    moments.update(logits=logits[2:], weights=weights[2:])
    expected = loops.over_batch(loops.decompose_one, loops.softmax(logits), weights)
    np.testing.assert_allclose(moments.decompose().epistemic, expected["epistemic"], rtol=1e-9)
    effective = weights.sum(0) ** 2 / (weights**2).sum(0)
    np.testing.assert_allclose(moments.effective_count, effective, rtol=1e-12)


# --- what can be read, and from where -----------------------------------------------------------


def test_count_effective_count_and_mean(xp) -> None:
    logits, weights = members.ordinary(5, 3, 4), np.array([1.0, 2.0, 0.0, 4.0, 1.0])
    moments = fed(xp.array(logits), xp.array(weights))
    assert moments.count == 4
    np.testing.assert_allclose(np.asarray(moments.effective_count), 64.0 / 22.0, rtol=1e-6)
    share = weights / weights.sum()
    mean = np.einsum("m,mic->ic", share, loops.softmax(logits))
    xp.close(moments.mean, mean)


def test_results_live_where_the_members_came_from(xp) -> None:
    for dtype in ("float32", "float16"):
        moments = demur.Moments()
        for member in members.ordinary(4, 3, 5):
            moments.update(logits=xp.array(member, dtype))
        found = moments.decompose()
        for part in loops.PARTS:
            xp.numpy(getattr(found, part))  # asserts the library
            assert xp.dtype_name(getattr(found, part)) == "float32"


def test_the_state_does_not_grow_with_the_members(tmp_path) -> None:
    sizes = []
    for count in (10, 1000):
        moments = fed(members.ordinary(count, 20, 30))
        moments.save(tmp_path / f"{count}.npz")
        sizes.append((tmp_path / f"{count}.npz").stat().st_size)
    assert sizes[1] < 1.1 * sizes[0]


def test_base_and_given_measures_of_moments() -> None:
    logits, q = members.ordinary(5, 3, 4), loops.softmax(members.ordinary(3, 4, seed=5))
    moments = fed(logits)
    np.testing.assert_allclose(
        moments.decompose(base=2).total, moments.decompose().total / np.log(2.0), rtol=1e-14
    )
    for sides in ((q, "each"), ("each", q), (q, "bma"), ("bma", q), (q, q[::-1])):
        found = moments.decompose(measure=demur.Measure(*sides))
        expected = loops.over_batch(loops.decompose_one, loops.softmax(logits), measure=sides)
        for part in loops.PARTS:
            np.testing.assert_allclose(getattr(found, part), expected[part], rtol=1e-9, atol=1e-13)


# --- errors -------------------------------------------------------------------------------------


def test_groups_are_needed_for_stderr_and_the_unbiased_average() -> None:
    moments = fed(members.ordinary(5, 3, 4))
    for options in (
        {"stderr": True},
        {"unbiased": True, "measure": "average"},
        {"unbiased": True, "measure": "reverse"},
    ):
        with pytest.raises(ValueError, match="groups"):
            moments.decompose(**options)
    unbiased = moments.decompose(unbiased=True).epistemic  # the pairwise one needs none
    np.testing.assert_allclose(unbiased, moments.decompose().epistemic * 5 / 4, rtol=1e-12)


def test_what_does_not_belong_together() -> None:
    moments = fed(members.ordinary(4, 3, 5))
    with pytest.raises(ValueError, match=r"(?s)\(.*3, 5\).*\(.*3, 6\)|\(.*3, 6\).*\(.*3, 5\)"):
        moments.update(logits=members.ordinary(4, 3, 6))
    with pytest.raises(ValueError, match=r"2, 5\)"):
        moments.merge(fed(members.ordinary(4, 2, 5)))
    with pytest.raises(ValueError, match="brier"):
        moments.merge(fed(members.ordinary(4, 3, 5), rule="brier"))
    with pytest.raises(ValueError, match="groups"):
        moments.merge(fed(members.ordinary(4, 3, 5), groups=4))
    with pytest.raises(TypeError, match="Moments"):
        moments.merge(members.ordinary(4, 3, 5))
    with pytest.raises(ValueError, match=r"measure.*pairwize"):
        moments.decompose(measure="pairwize")
    same(moments, fed(members.ordinary(4, 3, 5)), rtol=0.0)  # and nothing has changed


def test_nothing_to_decompose() -> None:
    empty = demur.Moments()
    assert empty.count == 0
    with pytest.raises(ValueError, match="member"):
        empty.decompose()
    empty.update(logits=members.ordinary(3, 5), weights=0.0)
    with pytest.raises(ValueError, match=r"member|weight"):
        empty.decompose()


# --- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [None, 4])
@pytest.mark.parametrize("rule", loops.RULES)
def test_save_and_load_round_trip(tmp_path, rule, groups) -> None:
    logits = members.ordinary(6, 3, 4)
    logits[1, 0, 2] = -np.inf
    moments = fed(logits[:4], members.weights(4), rule=rule, groups=groups)
    for path in (tmp_path / "state.npz", str(tmp_path / "text.npz")):
        moments.save(path)
        loaded = demur.Moments.load(path)
        same(loaded, moments, rtol=0.0, **({"stderr": True} if groups else {}))
        assert loaded.count == moments.count
        # It goes on as if it had never stopped, also with the groups.
        loaded.update(logits=logits[4:])
    moments.update(logits=logits[4:])
    same(loaded, moments, rtol=0.0, **({"stderr": True} if groups else {}))
    with np.load(tmp_path / "state.npz", allow_pickle=False) as archive:
        for key in archive.files:
            assert archive[key].dtype != object


def test_truncated_and_foreign_files(tmp_path) -> None:
    fed(members.ordinary(6, 30, 40)).save(tmp_path / "good.npz")
    content = (tmp_path / "good.npz").read_bytes()
    bad = {name: tmp_path / f"{name}.npz" for name in ("half", "tail", "empty", "text", "other")}
    bad["half"].write_bytes(content[: len(content) // 2])
    bad["tail"].write_bytes(content[:-10])
    bad["empty"].write_bytes(b"")
    bad["text"].write_text("total,aleatoric,epistemic\n")
    np.savez(bad["other"], weights=np.ones(3))
    bad["pickle"] = tmp_path / "pickle.npz"
    bad["pickle"].write_bytes(pickle.dumps({"a": 1}))
    bad["array"] = tmp_path / "array.npy"
    np.save(bad["array"], np.ones(3))
    bad["flipped"] = tmp_path / "flipped.npz"
    damaged = bytearray(content)
    damaged[len(damaged) // 2] ^= 0xFF
    bad["flipped"].write_bytes(bytes(damaged))
    # One array of the state is gone.
    bad["missing"] = tmp_path / "missing.npz"
    with (
        zipfile.ZipFile(tmp_path / "good.npz") as source,
        zipfile.ZipFile(bad["missing"], "w") as target,
    ):
        for item in source.namelist()[:-1]:
            target.writestr(item, source.read(item))
    for path in bad.values():
        with pytest.raises(ValueError, match=path.name):
            demur.Moments.load(path)
    with pytest.raises(FileNotFoundError):
        demur.Moments.load(tmp_path / "nowhere.npz")


@pytest.mark.parametrize("groups", [None, 3])
def test_some_of_the_inputs(groups) -> None:
    logits = np.random.default_rng(3).normal(size=(9, 7, 4))
    logits[2, 5, 1] = -np.inf
    chosen = np.array([5, 0, 3])
    moments = demur.Moments(groups=groups).update(logits=logits)
    expected = demur.Moments(groups=groups).update(logits=logits[:, chosen])
    assert moments.only(np.arange(7) == 5).shape == (1, 4)
    found = moments.only(chosen)
    for measure in ("pairwise", "average"):
        np.testing.assert_array_equal(found.decompose(measure).total, expected.decompose(measure).total)
    found.update(logits=logits[:4, chosen])
    expected.update(logits=logits[:4, chosen])
    np.testing.assert_allclose(found.decompose().epistemic, expected.decompose().epistemic, rtol=1e-12)
    assert moments.count == 9  # the whole is left alone


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(9, 4000, 10), (9, 400, 100), (9, 5, 10)])
def test_a_class_that_only_later_members_exclude(shape, dtype) -> None:
    rng = np.random.default_rng(6)
    logits = (rng.normal(size=shape[1:]) + 0.1 * rng.normal(size=shape)).astype(dtype)
    logits[8, 4, 1] = -np.inf
    expected = demur.decompose(logits=logits)
    found = demur.Moments().update(logits=logits[:8]).update(logits=logits[8:]).decompose()
    np.testing.assert_allclose(found.aleatoric, expected.aleatoric, rtol=6e-6)
    np.testing.assert_allclose(found.epistemic, expected.epistemic, rtol=6e-6)
    assert found.epistemic[4] == np.inf


@pytest.mark.parametrize("kind", ["logits", "log_probs", "probs"])
def test_members_without_weight_may_hold_anything(kind) -> None:
    rng = np.random.default_rng(7)
    p = rng.dirichlet(np.ones(4), (6, 5))
    given = p if kind == "probs" else np.log(p)
    given[2], given[3, 1], given[4, 2] = np.nan, 0.0 if kind == "probs" else -np.inf, np.inf
    weights = np.ones((6, 5))
    weights[2], weights[3, 1], weights[4, 2] = 0.0, 0.0, 0.0
    moments, positional = demur.Moments(), kind == "probs"
    for found in (
        demur.decompose(given, weights=weights)
        if positional
        else demur.decompose(**{kind: given}, weights=weights),
        moments.update(**{kind: given}, weights=weights).decompose(),
    ):
        for b in range(5):
            own = np.log(p[weights[:, b] > 0, b])
            np.testing.assert_allclose(found.epistemic[b], demur.decompose(logits=own).epistemic, rtol=1e-12)


# Of many inputs, the figures of the sums are computed by the compiled loop too.
FEW = [(80, 12, 200), (64, 300, 2), (64, 200, 7), (80, 131, 10)]
MANY = [(64, 20000, 2), (40, 1000, 40), (40, 300, 150)]


@pytest.mark.parametrize("spread", [1e-5, 1e-3, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("shape", FEW + MANY)
def test_float32_members_are_added_in_float32_to_3e_6(shape, spread):
    rng = np.random.default_rng(3)
    logits = (rng.normal(0, 3, shape[1:]) + spread * rng.normal(size=shape)).astype(np.float32)
    single, double = demur.Moments(), demur.Moments()
    for chunk in np.split(logits, 4):
        single.update(logits=chunk)
        double.update(logits=chunk.astype(np.float64))
    for measure in ("pairwise", "average", "reverse"):
        found, exact = single.decompose(measure), double.decompose(measure)
        for part in ("total", "aleatoric", "epistemic"):
            np.testing.assert_allclose(getattr(found, part), getattr(exact, part), rtol=3e-6)
    np.testing.assert_allclose(single.mean, double.mean, rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize("shape", [(64, 300, 10), (40, 60, 150)])
@pytest.mark.parametrize("spreads", [(1e-3, 3.0, 1e-3), (3.0, 1e-3, 3.0)])
def test_float32_members_may_agree_in_one_chunk_and_contradict_in_the_next(spreads, shape, tmp_path):
    """Which loop takes an input follows from the state, so that one that was read goes on to the byte."""
    rng = np.random.default_rng(5)
    base = rng.normal(0, 3, shape[1:])
    single, read, double = demur.Moments(), demur.Moments(), demur.Moments()
    for spread in spreads:
        chunk = (base + spread * rng.normal(size=shape)).astype(np.float32)
        single.update(logits=chunk)
        read.update(logits=chunk).save(tmp_path / "moments.npz")
        read = demur.Moments.load(tmp_path / "moments.npz")
        double.update(logits=chunk.astype(np.float64))
    for measure in ("pairwise", "average", "reverse"):
        found, again, exact = (each.decompose(measure) for each in (single, read, double))
        np.testing.assert_allclose(found.epistemic, exact.epistemic, rtol=3e-6)
        np.testing.assert_array_equal(found.epistemic, again.epistemic)


@pytest.mark.parametrize(("inputs", "classes"), [(8, 100), (100, 10), (200, 6)])
def test_inputs_that_float32_cannot_hold_are_added_in_double(inputs, classes):
    rng = np.random.default_rng(4)
    logits = rng.normal(0, 2, (64, inputs, classes)).astype(np.float32)
    logits[:, 1] = logits[0, 1]  # members that are the same
    logits[::2, 2, 5] = -np.inf  # a class that some exclude
    logits[:, 3, 5] = -np.inf  # one that all exclude
    logits[:, 4] *= 30  # members that contradict each other
    moments, exact = demur.Moments(), demur.Moments()
    weights = rng.uniform(0, 2, (64, inputs))
    weights[:40, 6] = 0
    for some in (slice(0, 32), slice(32, 64)):
        moments.update(logits=logits[some], weights=weights[some])
        exact.update(logits=logits[some].astype(np.float64), weights=weights[some])
    for measure in ("pairwise", "average", "reverse"):
        found, expected = moments.decompose(measure), exact.decompose(measure)
        np.testing.assert_allclose(found.epistemic, expected.epistemic, rtol=2e-6)
        np.testing.assert_allclose(found.aleatoric, expected.aleatoric, rtol=2e-6)
    assert moments.decompose().epistemic[1] == 0
    assert np.isinf(moments.decompose().epistemic[2])
    np.testing.assert_allclose(moments.effective_count, exact.effective_count)


@pytest.mark.parametrize(("inputs", "classes"), [(40, 100), (400, 10)])
def test_a_bad_chunk_of_float32_changes_nothing(inputs, classes):
    rng = np.random.default_rng(5)
    logits = rng.normal(0, 2, (16, inputs, classes)).astype(np.float32)
    moments = demur.Moments().update(logits=logits)
    before = moments.decompose()
    bad = logits.copy()
    bad[7, 33, 2] = np.nan
    with pytest.raises(ValueError, match=r"nan at \[7, 33, 2\]"):
        moments.update(logits=bad)
    assert moments.count == 16
    np.testing.assert_array_equal(moments.decompose().epistemic, before.epistemic)


def test_a_given_model_beside_members_is_that_model() -> None:
    rng = np.random.default_rng(8)
    logits, given = rng.normal(size=(6, 5, 4)), rng.normal(size=(5, 4))
    moments = demur.Moments().update(logits=logits)
    model = demur.predictions.Categorical(logits=given)
    beside = sums_of_given(model, moments)
    for cell in ("A1", "A2", "A3", "B1", "C1"):
        direct, shared = (moments.decompose(demur.measures.cell(cell, side)) for side in (model, beside))
        for part in ("total", "aleatoric", "epistemic"):
            np.testing.assert_array_equal(getattr(shared, part), getattr(direct, part))
    with pytest.raises(ValueError, match="given must be a model for the same inputs and classes"):
        sums_of_given(demur.predictions.Categorical(logits=given[:, :3]), moments)


@pytest.mark.parametrize("shape", [(2, 10, 5), (4, 40, 300), (8, 2000, 4)])
@pytest.mark.parametrize(("growth", "chunks"), [(3.0, 35), (1000.0, 6)])
def test_later_members_may_weigh_far_more_than_all_before(growth, chunks, shape) -> None:
    """The first member, which is unlike the others, does not stay the reference when it has no share left."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(1, *shape[1:])) + 0.01 * rng.normal(size=(chunks, *shape))
    logits[0] += rng.normal(size=shape[1:])
    weights = np.repeat(growth ** np.arange(chunks), shape[0]).reshape(chunks, shape[0])
    moments = demur.Moments()
    for chunk, own in zip(logits, weights, strict=True):
        moments.update(logits=chunk, weights=own)
    for name in loops.NAMES:
        expected = demur.decompose(
            logits=logits.reshape(-1, *shape[1:]), weights=weights.ravel(), measure=name
        )
        np.testing.assert_allclose(moments.decompose(name).epistemic, expected.epistemic, rtol=1e-12)


@pytest.mark.parametrize("weight", [1e-200, 1e200])
def test_weights_whose_squares_are_no_numbers_are_refused(weight) -> None:
    with pytest.raises(ValueError, match=r"0 or from 1e-100 to 1e\+100\. Got 1e[-+]200\. Multiply all"):
        demur.Moments().update(np.array([[0.5, 0.5]]), weights=weight)


@pytest.mark.parametrize("rule", loops.RULES)
def test_the_average_where_members_exclude_classes(rule) -> None:
    """A class that all exclude has no probability, and one that the first excludes has that of the others."""
    p = np.array([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], [[0.25, 0.75, 0.0], [1.0, 0.0, 0.0]]])
    together = demur.Moments(rule=rule).update(p)
    one_by_one = demur.Moments(rule=rule).update(p[0]).update(p[1])
    for moments in (together, one_by_one):
        np.testing.assert_allclose(moments.mean, p.mean(axis=0), rtol=1e-15)
        np.testing.assert_array_equal(moments.mean[:, 2], 0.0)


def test_inputs_without_any_weight_are_told() -> None:
    moments = demur.Moments().update(np.array([[[0.5, 0.5], [0.2, 0.8]]]), weights=[[1.0, 0.0]])
    given = demur.Measure(moments)
    for asked in (lambda: moments.mean, lambda: demur.decompose(np.full((2, 2, 2), 0.5), measure=given)):
        with pytest.raises(ValueError, match=r"positive weight for each input\. Got none for 1"):
            asked()
    np.testing.assert_array_equal(moments.effective_count, [1.0, 0.0])


BROKEN = {
    "count": lambda file: file | {"count": np.zeros(3, np.int64)},
    "sides": lambda file: file | {"excluded": np.zeros((1, 2, 3))},
    "few sides": lambda file: file | {"excluded": np.zeros((1, 1, 1)), "allowed": np.ones((1, 1, 1))},
    "no number": lambda file: file | {"a": np.full((1, 2, 3), np.nan)},
    "text": lambda file: file | {"u": np.full((1, 2, 3), "x")},
    "complex": lambda file: file | {"u": file["u"] * 1j},
    "negative": lambda file: file | {"weight": -file["weight"]},
}


@pytest.mark.parametrize("what", BROKEN)
def test_sums_that_do_not_fit_each_other_are_no_file_of_moments(what, tmp_path) -> None:
    path = tmp_path / "moments.npz"
    demur.Moments().update(logits=np.zeros((2, 3))).save(path)
    np.savez(path, **BROKEN[what](dict(np.load(path))))
    with pytest.raises(ValueError, match=r"Expected a file written by Moments\.save"):
        demur.Moments.load(path)


def test_flags_that_nobody_wrote_are_no_file_of_moments(tmp_path) -> None:
    path = tmp_path / "moments.npz"
    demur.Moments().update(logits=np.zeros((2, 3))).save(path)
    whole = path.read_bytes()
    for flag in (0x01, 0x20):  # encrypted, patched
        at = whole.index(b"PK\x01\x02") + 8
        path.write_bytes(whole[:at] + bytes([whole[at] | flag]) + whole[at + 1 :])
        with pytest.raises(ValueError, match=r"Expected a file written by Moments\.save"):
            demur.Moments.load(path)


# --- copies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [None, 4])
@pytest.mark.parametrize("rule", loops.RULES)
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_the_same_and_go_their_own_way(xp, again, rule, groups) -> None:
    logits = members.ordinary(6, 3, 4)
    logits[1, 0, 2] = -np.inf
    moments = fed(xp.array(logits[:4]), rule=rule, groups=groups)
    before = xp.numpy(moments.decompose().epistemic).copy()
    copied = again(moments)
    found = copied.decompose().epistemic
    np.testing.assert_array_equal(xp.numpy(found), before)
    assert xp.dtype_name(found) == xp.dtype_name(moments.decompose().epistemic)
    assert repr(copied) == repr(moments)
    copied.update(logits=xp.array(logits[4:]))
    np.testing.assert_array_equal(xp.numpy(moments.decompose().epistemic), before)
    moments.update(logits=xp.array(logits[4:]))
    np.testing.assert_array_equal(
        xp.numpy(copied.decompose().epistemic), xp.numpy(moments.decompose().epistemic)
    )


def test_a_copy_shares_no_sums_that_loops_write_to() -> None:
    logits = members.ordinary(24, 64, 100)
    for again in (copy.copy, copy.deepcopy):
        moments = fed(logits[:8])
        before = moments.decompose().epistemic.copy()
        again(moments).update(logits=logits[8:])
        np.testing.assert_array_equal(moments.decompose().epistemic, before)


def test_empty_moments_and_those_of_a_family_pickle() -> None:
    assert pickle.loads(pickle.dumps(demur.Moments(groups=4))).groups == 4
    gaussian = demur.Gaussian(np.arange(6.0).reshape(3, 2), 1.0)
    moments = demur.Moments().update(gaussian)
    again = pickle.loads(pickle.dumps(moments)).update(gaussian)
    np.testing.assert_allclose(again.decompose().epistemic, moments.decompose().epistemic, rtol=1e-12)


def test_sums_with_gradients_pickle_without_them() -> None:
    torch = pytest.importorskip("torch")
    moments = demur.Moments().update(logits=torch.tensor(members.ordinary(4, 3, 5), requires_grad=True))
    assert moments.decompose().epistemic.requires_grad
    again = pickle.loads(pickle.dumps(moments)).decompose().epistemic
    assert not again.requires_grad
    torch.testing.assert_close(again, moments.decompose().epistemic.detach())
    assert copy.deepcopy(moments).decompose().epistemic.requires_grad


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_file_keeps_the_library_and_the_type(xp, dtype, tmp_path) -> None:
    moments = demur.Moments().update(logits=xp.array(members.ordinary(4, 3, 5), dtype))
    moments.save(tmp_path / "moments.npz")
    found, expected = demur.Moments.load(tmp_path / "moments.npz").decompose(), moments.decompose()
    for part in loops.PARTS:
        np.testing.assert_array_equal(xp.numpy(getattr(found, part)), xp.numpy(getattr(expected, part)))
        assert xp.dtype_name(getattr(found, part)) == xp.dtype_name(getattr(expected, part))


def test_a_file_of_a_library_that_is_not_there_is_numpy(tmp_path, monkeypatch) -> None:
    torch = pytest.importorskip("torch")
    moments = demur.Moments().update(logits=torch.tensor(members.ordinary(4, 3, 5)))
    moments.save(tmp_path / "moments.npz")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "torch", None)  # importing it is then an ImportError
        found = demur.Moments.load(tmp_path / "moments.npz").decompose().epistemic
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, moments.decompose().epistemic.numpy())


def test_a_file_from_before_libraries_were_kept_is_numpy(tmp_path) -> None:
    moments = fed(members.ordinary(4, 3, 5))
    moments.save(tmp_path / "new.npz")
    with np.load(tmp_path / "new.npz") as file:
        content = {name: file[name] for name in file.files if name != "library"}
    np.savez(tmp_path / "old.npz", **content)
    same(demur.Moments.load(tmp_path / "old.npz"), moments, rtol=0.0)
