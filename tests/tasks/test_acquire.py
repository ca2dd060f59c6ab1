"""Which inputs are labelled next: the highest scores, draws by score, draws that differ."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur.tasks import acquire

SCORES = st.lists(st.sampled_from([0.0, 0.1, 0.2, 1.0, 7.0, np.inf]), min_size=1, max_size=12)
FEATURES = np.array([[0.0], [1.0], [3.0], [3.0]])


@given(SCORES, st.data())
def test_the_highest_come_first_and_none_twice(scores, data):
    k = data.draw(st.integers(1, len(scores)))
    found = acquire(scores, k, seed=data.draw(st.integers(0, 5)))
    assert sorted(scores, reverse=True)[:k] == [scores[i] for i in found]
    assert len(set(found.tolist())) == k


@given(SCORES, st.data())
def test_draws_take_each_once_infinities_first_and_zeros_last(scores, data):
    k = data.draw(st.integers(1, len(scores)))
    features = data.draw(st.sampled_from([None, np.arange(len(scores))[:, None]]))
    found = acquire(scores, k, power=2.0, features=features, seed=data.draw(st.integers(0, 5)))
    assert len(set(found.tolist())) == k
    kinds = [0 if scores[i] == np.inf else 2 if scores[i] == 0 else 1 for i in found]
    assert kinds == sorted(kinds)


@pytest.mark.parametrize("options", [{}, {"power": 1.0}, {"features": np.zeros((4, 1))}])
def test_equal_scores_are_ordered_by_the_seed_alone(options):
    counts = Counter(int(acquire([1.0] * 4, 1, seed=seed, **options)[0]) for seed in range(800))
    # 200 each, with a standard deviation of sqrt(800 * 3/16) = 12.2: five of them.
    assert set(counts) == {0, 1, 2, 3} and max(abs(c - 200) for c in counts.values()) < 61
    same = [acquire([1.0] * 4, 3, seed=7, **options).tolist() for _ in range(2)]
    assert same[0] == same[1]


def test_zeros_and_copies_are_ordered_by_the_seed_too():
    last = Counter(int(acquire([5.0, 0.0, 0.0, 0.0], 2, power=1.0, seed=s)[1]) for s in range(600))
    assert set(last) == {1, 2, 3} and max(abs(c - 200) for c in last.values()) < 58
    copies = Counter(
        int(acquire([2.0, 1.0, 1.0], 2, features=np.ones((3, 2)), seed=s)[1]) for s in range(400)
    )
    assert set(copies) == {1, 2} and abs(copies[1] - 200) < 50


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_draws_by_score_have_the_probabilities_of_one_after_the_other(power):
    scores, draws = np.array([1.0, 2.0, 4.0]), 3000
    weights = scores**power
    counts = Counter(tuple(acquire(scores, 2, power=power, seed=seed).tolist()) for seed in range(draws))
    for first, second in permutations(range(3), 2):
        rest = weights.sum() - weights[first]
        expected = weights[first] / weights.sum() * weights[second] / rest
        error = np.sqrt(draws * expected * (1 - expected))
        assert abs(counts[first, second] - draws * expected) < 5 * error


def test_draws_by_features_have_the_probabilities_of_weighted_seeding():
    # The first is that with the highest score; then score times squared distance: 2 * 1, 1 * 9 and 3 * 9.
    scores, draws = [4.0, 2.0, 1.0, 3.0], 3000
    counts = Counter(acquire(scores, 2, features=FEATURES, seed=seed)[1] for seed in range(draws))
    for place, expected in ((1, 2 / 38), (2, 9 / 38), (3, 27 / 38)):
        assert abs(counts[place] - draws * expected) < 5 * np.sqrt(draws * expected * (1 - expected))


def test_what_is_labelled_is_not_taken_and_counts_as_seen():
    scores = [4.0, 2.0, 1.0, 3.0]
    assert acquire(scores, 2, labelled=[0]).tolist() == [3, 1]
    assert acquire(scores, 2, labelled=np.array([True, False, False, True])).tolist() == [1, 2]
    assert acquire(scores, 2, labelled=[]).tolist() == [0, 3]
    # Input 2 is a copy of 3, which is labelled: it is last, whatever the seed.
    for seed in range(20):
        assert acquire(scores, 3, labelled=[3], features=FEATURES, seed=seed).tolist() == [0, 1, 2]


def test_any_array_library(xp):
    scores = np.array([0.5, 2.0, np.inf, 1.0])
    assert acquire(xp.array(scores), 3).tolist() == [2, 1, 3]
    found = acquire(xp.array(scores), 4, features=xp.array(FEATURES))
    assert sorted(found.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([], 1), {}, "scores must be one number per input, shape .inputs,., of at least one input"),
        (([[1.0]], 1), {}, "Got float64 of shape .1, 1."),
        (([1.0, np.nan], 1), {}, "Got NaN for 1 of 2 inputs, first at input 1"),
        (([1.0], 2), {}, "k must be at most the number of inputs without a label, 1 of 1. Got 2"),
        (([1.0, 2.0], 2), {"labelled": [0]}, "without a label, 1 of 2. Got 2"),
        (([1.0], 0), {}, "k must be a positive integer. Got 0"),
        (([1.0], 1.0), {}, "k must be a positive integer. Got 1.0"),
        (([1.0], 1), {"labelled": [1]}, "labelled must be indices from 0 to 0. Got 1"),
        (([1.0], 1), {"labelled": [-1]}, "Got -1"),
        (([1.0], 1), {"labelled": [0.5]}, "a list of indices. Got float64 of shape .1,."),
        (([1.0], 1), {"labelled": [True, False]}, "for each of 1 inputs, or a list of indices. Got bool"),
        (([1.0], 1), {"power": -1.0}, "power must be a number from 0 up, as 1.0. Got -1.0"),
        (([1.0], 1), {"power": np.inf}, "power must be a number from 0 up"),
        (([1.0, -2.0], 1), {"power": 1.0}, "scores must not be negative to draw by. Got -2 at input 1"),
        (([1.0], 1), {"features": [1.0]}, "features must have shape .1, features., a row for each score"),
        (([1.0], 1), {"features": [[1.0], [2.0]]}, "Got float64 of shape .2, 1."),
        (([1.0, 1.0], 1), {"features": [[1.0], [np.nan]]}, "features must be finite.* first at input 1"),
    ],
)
def test_bad_input_is_told_in_one_line(arguments, options, message):
    with pytest.raises(ValueError, match=message) as raised:
        acquire(*arguments, **options)
    assert "\n" not in str(raised.value)
