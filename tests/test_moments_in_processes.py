"""Moments of several processes: each ends with what one process that merges them would have."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import demur

torch = pytest.importorskip("torch")
from processes import run_processes  # noqa: E402

SHARES = {0: slice(0, 5), 1: slice(5, 12)}


def draw(seed: int = 0, shape: tuple[int, ...] = (12, 20, 4)) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(size=shape)
    logits[2, :5, 1] = -np.inf
    return logits


def make(rank: int, case: str) -> demur.Moments:
    """Return what a process has seen by itself."""
    logits = draw()[SHARES.get(rank, slice(0, 0))]
    if case == "tensors":
        return demur.Moments().update(logits=torch.from_numpy(logits).float())
    if case == "groups":
        return demur.Moments(groups=3).update(logits=logits)
    if case == "family":
        found = demur.Moments()
        return found if rank == 0 else found.update(demur.Poisson(np.exp(logits[:, :, 0])))
    if case == "nothing came":
        return demur.Moments() if rank != 1 else demur.Moments().update(logits=logits)
    if case == "weights":
        return demur.Moments().update(logits=logits, weights=np.arange(1.0, 1 + len(logits)))
    return demur.Moments(rule="brier" if case == "brier" else "log").update(logits=logits)


def reduce_several(rank: int, cases: list[str]) -> dict[str, Any]:
    found = {}
    for case in cases:
        moments = make(rank, case)
        assert moments.all_reduce() is moments
        if case == "updated later":
            moments.update(logits=np.zeros((20, 4)))
        parts = moments.decompose(stderr=case == "groups")
        found[case] = (moments.count, parts.to_dict(), type(parts.epistemic).__name__, moments.state.a)
    return found


CASES = ["plain", "tensors", "groups", "family", "nothing came", "weights", "brier", "updated later"]


def do_all(rank: int) -> tuple[dict[str, Any], list[str]]:
    return reduce_several(rank, CASES), reduce_unlike(rank)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What two processes found: results by case, and messages."""
    return run_processes(2, tmp_path_factory.mktemp("processes"), do_all)


def test_two_processes_give_the_result_of_one(both) -> None:
    """The same bytes as merging in one process, in both; whatever the rule, groups and weights."""
    for case in CASES:
        expected = make(0, case).merge(make(1, case))
        if case == "updated later":
            expected.update(logits=np.zeros((20, 4)))
        parts = expected.decompose(stderr=case == "groups")
        for rank in (0, 1):
            count, found, library, sums = both[rank][0][case]
            assert count == expected.count, case
            for name, values in parts.to_dict().items():
                np.testing.assert_array_equal(np.asarray(found[name]), np.asarray(values), err_msg=case)
            assert library == ("Tensor" if case == "tensors" else "ndarray"), case
            np.testing.assert_array_equal(np.asarray(sums), np.asarray(expected.state.a))


def test_they_give_what_one_process_that_saw_all_members_gives(both) -> None:
    found = both[0][0]["plain"][1]
    whole = demur.decompose(logits=draw())
    for part in ("total", "aleatoric", "epistemic"):
        np.testing.assert_allclose(found[part], getattr(whole, part), rtol=1e-12)


def reduce_unlike(rank: int) -> list[str]:
    """Each is an error in every process, and none waits for another."""
    one, other = np.zeros((2, 5, 3)), np.zeros((2, 6, 3))
    pairs = [
        (demur.Moments().update(logits=one), demur.Moments().update(logits=other)),
        (demur.Moments().update(logits=one), demur.Moments(rule="brier").update(logits=one)),
        (demur.Moments(rule="brier"), demur.Moments().update(logits=one)),
        (demur.Moments(groups=2).update(logits=one), demur.Moments(groups=3)),
    ]
    found = []
    for pair in pairs:
        with pytest.raises(ValueError, match="in all processes") as caught:
            pair[rank].all_reduce()
        found.append(str(caught.value))
    empty = demur.Moments()
    assert empty.all_reduce().state is None
    return found


def test_moments_that_do_not_fit_are_an_error_in_every_process(both) -> None:
    (_, first), (_, second) = both
    assert first == second
    assert first == [
        "Expected the same inputs and classes in all processes. "
        "Got (5, 3) in that of rank 0 and (6, 3) in that of rank 1.",
        "Expected the same rule in all processes. Got log in that of rank 0 and brier in that of rank 1.",
        "Expected the same rule in all processes. Got brier in that of rank 0 and log in that of rank 1.",
        "Expected the same groups of members in all processes. "
        "Got 2 in that of rank 0 and 3 in that of rank 1.",
    ]


def reduce_in_group(rank: int) -> Any:
    pair = torch.distributed.new_group([1, 2])
    moments = demur.Moments().update(logits=draw()[4 * rank : 4 * rank + 4])
    if rank == 0:
        with pytest.raises(ValueError, match="outside"):
            moments.all_reduce(pair)
    else:
        moments.all_reduce(pair)
    return moments.decompose().epistemic


@pytest.mark.slow
def test_a_group_is_some_of_the_processes(tmp_path: Path) -> None:
    found = run_processes(3, tmp_path, reduce_in_group)
    np.testing.assert_allclose(found[0], demur.decompose(logits=draw()[:4]).epistemic, rtol=1e-12)
    for rank in (1, 2):
        np.testing.assert_allclose(found[rank], demur.decompose(logits=draw()[4:]).epistemic, rtol=1e-12)


def test_a_process_of_no_group_is_told_what_to_do() -> None:
    with pytest.raises(ValueError, match="init_process_group first"):
        demur.Moments().update(logits=draw()).all_reduce()
