"""Memory: any order, stride or size gives the same values, with and without the fused kernel."""

import numpy as np
import pytest
from reference import loops, members

import demur

NAMES = tuple(loops.NAMES)

# Below and above the 32,768 logits from which the kernel takes over; the last two are deep
# (more members than fit a tile) and narrow (few classes, where rows are shorter than a vector).
SHAPES = {
    "generic": (5, 7, 9),
    "kernel": (9, 40, 101),
    "deep": (301, 11, 10),
    "narrow": (40, 500, 2),
    "one-input": (33, 1, 1003),
}


def transposed(logits: np.ndarray, order: tuple[int, int, int]) -> np.ndarray:
    """Equal values in another order of memory."""
    return np.ascontiguousarray(logits.transpose(order)).transpose(np.argsort(order))


def strided(logits: np.ndarray, axis: int, step: int) -> np.ndarray:
    """Equal values with a stride of `step` items along one axis; gaps hold NaN."""
    shape = list(logits.shape)
    shape[axis] *= abs(step)
    wide = np.full(shape, np.nan, dtype=logits.dtype)
    index = [slice(None)] * 3
    index[axis] = slice(None, None, step)
    wide[tuple(index)] = logits
    return wide[tuple(index)]


LAYOUTS = {
    "members-first": lambda z: transposed(z, (0, 1, 2)),
    "inputs-first": lambda z: transposed(z, (1, 0, 2)),
    "classes-second": lambda z: transposed(z, (0, 2, 1)),
    "classes-first": lambda z: transposed(z, (2, 1, 0)),
    "every-other-member": lambda z: strided(z, 0, 2),
    "every-third-input": lambda z: strided(z, 1, 3),
    "every-other-class": lambda z: strided(z, 2, 2),
    "members-backwards": lambda z: strided(z, 0, -1),
    "inputs-backwards": lambda z: strided(z, 1, -1),
    "classes-backwards": lambda z: strided(z, 2, -2),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", ">f4", ">f8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_layout_gives_the_same_values(shape, dtype) -> None:
    # float16 of order 5 on purpose: held exactly by every dtype here, so one reference serves.
    logits = members.ordinary(*SHAPES[shape]).astype(np.float16)
    logits[1, 3 % logits.shape[1], 1] = -np.inf
    expected = demur_free_reference(logits.astype(np.float64))
    rtol = 1e-9 if dtype in ("float64", ">f8") else 3e-6
    for layout, view_of in LAYOUTS.items():
        view = view_of(logits.astype(dtype))
        np.testing.assert_array_equal(view, logits)
        view.flags.writeable = False
        for name in NAMES:
            actual = demur.decompose(logits=view, measure=name)
            for part in loops.PARTS:
                np.testing.assert_allclose(
                    getattr(actual, part),
                    expected[name][part],
                    rtol=rtol,
                    atol=1e-12,
                    err_msg=f"{layout} {name} {part}",
                )


def demur_free_reference(logits: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """Means of p, log p and entropy in float64: checked against the loops on the first inputs."""
    p = loops.softmax(logits)
    with np.errstate(divide="ignore"):
        logs = np.log(p)
    mean = p.mean(0)
    entropy = -np.where(p > 0, p * np.where(p > 0, logs, 0.0), 0.0).sum(-1).mean(0)
    own = -np.where(mean > 0, mean * np.log(np.where(mean > 0, mean, 1.0)), 0.0).sum(-1)
    lost = (mean > 0) & (p == 0).any(0)
    crossed = -np.where(lost, -np.inf, mean * np.where(p > 0, logs, 0.0).mean(0)).sum(-1)
    result = {
        "pairwise": {"total": crossed, "aleatoric": entropy, "epistemic": crossed - entropy},
        "average": {"total": own, "aleatoric": entropy, "epistemic": own - entropy},
        "reverse": {"total": crossed, "aleatoric": own, "epistemic": crossed - own},
    }
    for name, measure in loops.NAMES.items():
        if len(p) > 100:
            continue  # the loops are quadratic in the members
        few = loops.over_batch(loops.decompose_one, p[:, :2], measure=measure)
        for part in loops.PARTS:
            np.testing.assert_allclose(result[name][part][:2], few[part], atol=1e-13)
    return result


@pytest.mark.parametrize("weighted", ["members", "inputs"])
@pytest.mark.parametrize("layout", ["members-first", "inputs-first", "every-other-class"])
@pytest.mark.parametrize("shape", ["kernel", "narrow"])
def test_weights_in_every_layout(shape, layout, weighted) -> None:
    logits = members.ordinary(*SHAPES[shape])
    logits[2, ::5, 1] = -np.inf
    weights = members.weights(*SHAPES[shape][: 1 if weighted == "members" else 2])
    weights[0] = 0.0  # the reference is the first member of positive weight
    weights[2] = 0.0  # the only one that excludes a class
    if weighted == "inputs":
        weights[1, ::2] = 0.0
        weights[2, 5] = 1.0  # input 5: the class stays excluded by one, K is infinite
    shown = slice(0, 12)
    own = weights if weighted == "members" else weights[:, shown]
    for name, measure in loops.NAMES.items():
        actual = demur.decompose(logits=LAYOUTS[layout](logits), weights=weights, measure=name)
        expected = loops.over_batch(
            loops.decompose_one, loops.softmax(logits[:, shown]), own, measure=measure
        )
        for part in loops.PARTS:
            np.testing.assert_allclose(getattr(actual, part)[shown], expected[part], rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_torch_views(shape, dtype) -> None:
    torch = pytest.importorskip("torch")
    plain = torch.tensor(members.ordinary(*SHAPES[shape]), dtype=getattr(torch, dtype))
    expected = demur_free_reference(plain.double().numpy())
    views = {
        "members-first": plain,
        "inputs-first": plain.transpose(0, 1).contiguous().transpose(0, 1),
        "classes-first": plain.permute(2, 1, 0).contiguous().permute(2, 1, 0),
        "strided": torch.stack([plain, plain * torch.nan], dim=-1)[..., 0],
        "expanded": plain[:1].expand(4, -1, -1),
    }
    for layout, view in views.items():
        for name in NAMES:
            actual = demur.decompose(logits=view, measure=name).epistemic
            assert actual.dtype == (torch.float64 if dtype == "float64" else torch.float32)
            if layout == "expanded":  # four times the same memory: no disagreement at all
                assert (actual == 0.0).all()
                continue
            np.testing.assert_allclose(
                actual, expected[name]["epistemic"], rtol=3e-6, atol=1e-12, err_msg=layout
            )


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_member_axis_of_a_large_input(axis) -> None:
    logits = members.ordinary(8, 6, 10, 90)
    moved = np.ascontiguousarray(np.moveaxis(logits, 0, axis))
    expected = demur_free_reference(logits.reshape(8, 60, 90))
    for name in NAMES:
        actual = demur.decompose(logits=moved, axis=axis, measure=name).epistemic
        np.testing.assert_allclose(actual, expected[name]["epistemic"].reshape(6, 10), rtol=1e-9, atol=1e-13)


def test_probabilities_of_a_large_input(xp) -> None:
    logits = members.ordinary(8, 64, 100)
    expected = demur_free_reference(logits)
    for name in NAMES:
        by_probs = demur.decompose(xp.array(loops.softmax(logits)), measure=name)
        by_logs = demur.decompose(log_probs=xp.array(np.log(loops.softmax(logits))), measure=name)
        xp.close(by_probs.epistemic, expected[name]["epistemic"])
        xp.close(by_logs.epistemic, expected[name]["epistemic"])


@pytest.mark.parametrize("rule", ["brier", "spherical", "zero_one"])
def test_other_rules_of_a_large_input(xp, rule) -> None:
    logits = members.ordinary(8, 64, 100)
    for name, measure in loops.NAMES.items():
        actual = demur.decompose(logits=xp.array(logits), measure=name, rule=rule).epistemic
        expected = loops.over_batch(
            loops.decompose_one, loops.softmax(logits[:, :5]), measure=measure, rule=rule
        )
        xp.close(actual[:5], expected["epistemic"])


def test_one_and_two_threads_agree() -> None:
    numba = pytest.importorskip("numba")
    logits = members.ordinary(8, 64, 100)
    before = numba.get_num_threads()
    found = []
    try:
        for threads in {1, min(2, numba.config.NUMBA_NUM_THREADS)}:
            numba.set_num_threads(threads)
            found.append(demur.decompose(logits=logits).epistemic)
    finally:
        numba.set_num_threads(before)
    for other in found[1:]:
        np.testing.assert_allclose(found[0], other, rtol=1e-13)


def test_the_same_call_twice_gives_the_same_bytes() -> None:
    for shape in SHAPES.values():
        logits = members.ordinary(*shape).astype(np.float32)
        first, second = (demur.decompose(logits=logits).epistemic for _ in range(2))
        assert first.tobytes() == second.tobytes()
