"""BatchBALD against a list of every combination of labels."""

import math
import tracemalloc

import numpy as np
import pytest
from reference.acquisition import greedy, joint_information

import demur
from demur.tasks import acquire, batch_bald
from demur.tasks.batch_bald import Joint


def some_probs(seed, members=4, inputs=8, classes=3, concentration=0.5):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(classes, concentration), size=(members, inputs))


@pytest.mark.parametrize("seed", range(6))
def test_the_batch_is_that_of_the_whole_joint_distribution(seed):
    probs = some_probs(seed)
    picked, told = greedy(probs, 4)
    found = batch_bald(probs, k=4)
    assert found.indices.tolist() == picked
    np.testing.assert_allclose(found.information, told, rtol=1e-12)


def test_weights_are_those_of_members_and_none_is_no_member():
    probs, weights = some_probs(1), np.array([3.0, 0.0, 1.0, 2.0])
    picked, told = greedy(probs, 3, weights)
    found = batch_bald(probs, k=3, weights=weights)
    assert found.indices.tolist() == picked
    np.testing.assert_allclose(found.information, told, rtol=1e-12)
    without = batch_bald(probs[[0, 2, 3]], k=3, weights=weights[[0, 2, 3]])
    assert without.indices.tolist() == picked


def test_classes_that_are_excluded():
    probs = some_probs(2)
    probs[0, :, 0] = 0.0
    probs[1, 3] = [1.0, 0.0, 0.0]
    probs /= probs.sum(-1, keepdims=True)
    picked, told = greedy(probs, 4)
    found = batch_bald(probs, k=4)
    assert found.indices.tolist() == picked
    np.testing.assert_allclose(found.information, told, rtol=1e-12)
    with np.errstate(divide="ignore"):
        assert batch_bald(log_probs=np.log(probs), k=4).indices.tolist() == picked


@pytest.mark.parametrize("seed", range(10))
def test_one_input_is_that_with_the_largest_mutual_information(seed):
    probs = some_probs(seed, members=6, inputs=200, classes=10)
    information = demur.decompose(probs, measure="average").epistemic
    found = batch_bald(probs, k=1)
    assert found.indices.tolist() == [information.argmax()]
    assert found.information[0] == information.max()


def test_members_that_are_the_same_tell_nothing_and_chance_decides():
    probs = np.broadcast_to(some_probs(0, members=1, inputs=6), (3, 6, 3))
    found = [batch_bald(probs, k=3, seed=seed) for seed in range(30)]
    assert all((each.information == 0).all() for each in found)
    assert {int(each.indices[0]) for each in found} == set(range(6))


def test_copies_are_left_where_single_scores_take_them():
    probs = np.concatenate([some_probs(3, inputs=1, concentration=0.2)] * 5 + [some_probs(4)], axis=1)
    scores = demur.decompose(probs, measure="average").epistemic
    copies = set(range(5))
    top = copies if scores[0] == scores.max() else set()
    assert top and len(top & set(acquire(scores, 3).tolist())) == 3
    assert len(copies & set(batch_bald(probs, k=3).indices.tolist())) == 1


def test_what_members_tell_has_an_end():
    probs = some_probs(5, members=3, inputs=40, classes=4, concentration=0.1)
    found = batch_bald(probs, k=20, configurations=2000)
    assert math.log(3) - 0.01 < found.information[-1] < math.log(3) + 0.02


def test_drawn_combinations_estimate_the_sum_over_all_without_bias():
    probs, picked = some_probs(6, concentration=1.0), [0, 3, 5]
    logits, weights = np.log(probs), np.array([0.4, 0.3, 0.2, 0.1])
    exact = [
        joint_information(probs, [*picked, x], weights) - joint_information(probs, picked, weights)
        for x in range(8)
    ]
    found = []
    for seed in range(300):
        joint = Joint.of(logits, weights, 20, np.random.default_rng(seed))
        for place in picked:
            joint.add(place)
        assert joint.drawn is not None and joint.logs.shape == (20, 4)
        gains = np.ones(8)  # above all, so that each is looked at
        joint.refresh(gains, np.ones(8, dtype=bool))
        found.append(gains)
    error = np.std(found, axis=0, ddof=1) / math.sqrt(len(found))
    free = [x for x in range(8) if x not in picked]
    # Five standard errors each: 5 false alarms in a million for five inputs.
    assert (np.abs(np.mean(found, axis=0) - exact)[free] < 5 * error[free]).all()
    assert (error < 0.01 * np.array(exact))[free].all()  # a bias of a twentieth would show


def test_a_batch_from_draws_is_nearly_as_good_as_one_from_the_sum():
    probs = some_probs(7, inputs=12)
    _, told = greedy(probs, 5)
    drawn = batch_bald(probs, k=5, configurations=80)  # 81 combinations of four labels are too many
    assert joint_information(probs, drawn.indices.tolist()) > 0.97 * told[-1]


def test_labelled_inputs_and_seeds():
    probs = some_probs(8)
    first = batch_bald(probs, k=1).indices[0]
    others = batch_bald(probs, k=7, labelled=[first]).indices
    assert sorted([first, *others]) == list(range(8))
    same = [batch_bald(probs, k=6, configurations=50, seed=3) for _ in range(2)]
    np.testing.assert_array_equal(same[0].indices, same[1].indices)
    np.testing.assert_array_equal(same[0].information, same[1].information)


def test_memory_does_not_grow_with_combinations_times_inputs():
    probs = some_probs(9, members=5, inputs=400, classes=10, concentration=1.0)
    batch_bald(probs, k=1)  # what the first call compiles and imports
    tracemalloc.start()
    batch_bald(probs, k=6)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4096 * 400 * 10 * 8 / 5


def test_any_array_library(xp):
    probs = some_probs(10)
    assert batch_bald(xp.array(probs), k=3).indices.tolist() == batch_bald(probs, k=3).indices.tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"probs": np.full((3, 2), 0.5)}, "probs must have shape .members, inputs, classes.. Got .3, 2."),
        ({"probs": np.full((3, 2, 2), 0.4)}, "probs must sum to 1"),
        ({"probs": np.full((3, 2, 2), np.nan)}, "probs must be numbers"),
        ({"probs": np.empty((3, 0, 2))}, "at least one member, input and class"),
        ({"k": 3}, "k must be at most the number of inputs without a label, 2 of 2. Got 3"),
        ({"k": 0}, "k must be a positive integer. Got 0"),
        ({"weights": np.ones((3, 2))}, "weights must have shape .3,., one a member. Got .3, 2."),
        ({"weights": np.zeros(3)}, "weights must not be all zero"),
        ({"configurations": 0}, "configurations must be a positive integer. Got 0"),
    ],
)
def test_bad_input_is_told_in_one_line(options, message):
    options = {"probs": np.full((3, 2, 2), 0.5), "k": 1} | options
    with pytest.raises(ValueError, match=message) as raised:
        batch_bald(options.pop("probs"), **options)
    assert "\n" not in str(raised.value)
