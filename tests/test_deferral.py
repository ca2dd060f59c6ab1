"""Promises of deferral: kept by simulation over thousands of draws, refused where they cannot be made."""

import json
import re

import numpy as np
import pytest
from scipy.stats import binom

import demur
from demur.tasks.guarantees import choose_numbers_kept, lower_bound, promisable_accuracy


def draw(rng, number, informative=True):
    """Accuracy 1 - s / 2 at score s, or 0.9 whatever the score."""
    scores = rng.uniform(size=number)
    return scores, rng.uniform(size=number) > (scores / 2 if informative else 0.1)


def accuracy_of(policy, informative=True) -> float:
    """The true accuracy of what a policy keeps, where scores are uniform."""
    cut = min(policy.thresholds[""].value, 1.0)
    return 1 - cut / 4 if informative else 0.9


@pytest.mark.parametrize(("informative", "target"), [(True, 0.85), (True, 0.9), (False, 0.9 + 1e-9)])
def test_promises_are_broken_no_more_often_than_said(informative, target) -> None:
    # 2000 draws at a rate of 0.05 have a standard error of 0.005: 0.065 is three of them above.
    broken = 0
    for run in range(2000):
        scores, correct = draw(np.random.default_rng(run), 300, informative)
        try:
            policy = demur.Deferral.fit(scores, correct, accuracy=target)
        except demur.NoGuarantee:
            continue
        broken += accuracy_of(policy, informative) < target
    assert broken / 2000 <= 0.065


def test_promises_hold_where_accuracy_is_not_monotone_in_the_score() -> None:
    """Errors bunch in the middle: accuracy falls to 0.84 at half of the inputs and rises to 0.92 at all."""

    def error_rate(scores):
        return np.where((scores > 0.35) & (scores < 0.5), 0.4, 0.04)

    def accuracy_up_to(cut: float) -> float:
        return 1 - (0.04 * cut + 0.36 * np.clip(cut - 0.35, 0, 0.15)) / cut

    target, broken, kept = 0.9, 0, []
    for run in range(2000):
        rng = np.random.default_rng(run)
        scores = rng.uniform(size=400)
        try:
            policy = demur.Deferral.fit(scores, rng.uniform(size=400) > error_rate(scores), accuracy=target)
        except demur.NoGuarantee:
            continue
        cut = min(policy.thresholds[""].value, 1.0)
        kept.append(cut)
        broken += accuracy_up_to(cut) < target
    assert broken / 2000 <= 0.065  # 0.05 and three standard errors
    assert len(kept) > 1000


@pytest.mark.parametrize("runs", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_the_best_threshold_by_itself_would_break_them(runs) -> None:
    """A control: where scores say nothing, the bound at whichever number kept looks best does not hold.

    300 inputs, accuracy 0.8, all numbers kept from 1 to 300, target just above 0.8.
    """
    broken = 0
    for run in range(runs):
        correct = np.random.default_rng(run).uniform(size=300) < 0.8
        kept = np.arange(1, 301)
        broken += (lower_bound(np.cumsum(correct), kept, 0.95) >= 0.8 + 1e-9).any()
    print("pointwise bound at the best threshold breaks", broken / runs)
    assert 0.18 < broken / runs < 0.30


def test_coverage_promises_the_bound_of_its_accuracy() -> None:
    broken = 0
    for run in range(1000):
        scores, correct = draw(np.random.default_rng(run), 200)
        policy = demur.Deferral.fit(scores, correct, coverage=0.5)
        assert policy.thresholds[""].kept == 100
        broken += accuracy_of(policy) < policy.thresholds[""].promise
    assert broken / 1000 <= 0.071  # three standard errors above 0.05


def test_inputs_that_break_the_promise_are_told() -> None:
    scores, correct = draw(np.random.default_rng(0), 1000)
    policy = demur.Deferral.fit(scores, correct, accuracy=0.85)
    assert "less than promised" not in str(policy.report(scores, correct))
    assert "less than promised" in str(policy.report(scores, ~correct))


def test_a_share_of_k_in_n_keeps_k() -> None:
    scores, correct = draw(np.random.default_rng(0), 300)
    for kept in range(1, 301):
        assert demur.Deferral.fit(scores, correct, coverage=kept / 300).thresholds[""].kept == kept
    wrong = np.zeros(99, bool)
    for allowed in range(1, 100):  # of 99 errors, as many are kept as the risk in 100 allows, less one
        policy = demur.Deferral.fit(np.arange(99.0), wrong, risk=allowed / 100)
        assert policy.thresholds[""].kept == allowed - 1


def test_risk_control_bounds_the_expected_share_of_kept_and_wrong() -> None:
    losses = []
    for run in range(1000):
        scores, correct = draw(np.random.default_rng(run), 100)
        cut = min(demur.Deferral.fit(scores, correct, risk=0.1).thresholds[""].value, 1.0)
        losses.append(cut**2 / 4)  # the integral of s / 2
    error = np.std(losses) / np.sqrt(1000)
    assert 0.1 - 1 / 101 - 3 * error <= np.mean(losses) <= 0.1 + 3 * error


def test_cost_takes_the_cheapest_threshold() -> None:
    scores, correct = np.array([1.0, 2, 3, 4, 5]), np.array([1, 1, 0, 0, 0])
    policy = demur.Deferral.fit(scores, correct, cost=0.3)
    np.testing.assert_array_equal(policy.defer(scores), [False, False, True, True, True])
    assert "nothing is promised" in policy.promise()
    all_wrong = demur.Deferral.fit(scores, np.zeros(5), cost=0.5)
    assert all_wrong.defer([-np.inf, 1.0]).all()


def test_tied_inputs_stay_together() -> None:
    scores, correct = np.repeat([0.0, 1.0, np.inf], 100), np.repeat([True, True, False], 100)
    policy = demur.Deferral.fit(scores, correct, accuracy=0.95)
    np.testing.assert_array_equal(policy.defer(scores), np.repeat([False, False, True], 100))
    assert policy.thresholds[""].kept == 200
    everything = demur.Deferral.fit(scores, np.ones(300), accuracy=0.95)
    assert not everything.defer(scores).any()  # infinite scores included


def test_candidates_depend_on_scores_alone_and_tear_no_tie() -> None:
    np.testing.assert_array_equal(choose_numbers_kept(np.array([10, 50, 100]), 100), [50, 100])
    found = choose_numbers_kept(np.arange(1, 1001), 1000)
    assert (found[0], found[-1], len(found)) == (300, 1000, 100)
    assert choose_numbers_kept(np.array([1]), 1).tolist() == [1]


def test_too_few_to_prove_it_pass_while_all_are_right() -> None:
    # 598 right ones prove 0.995, 597 do not: the search goes on from 300 and ends after the errors begin.
    assert 0.995**598 <= 0.05 < 0.995**597
    policy = demur.Deferral.fit(np.arange(1000.0), np.arange(1000) < 900, accuracy=0.995)
    assert 890 < policy.thresholds[""].kept <= 904
    kept = np.array([300, 600, 1000])
    np.testing.assert_allclose(promisable_accuracy(kept, kept, 0.95), 0.05 ** (1 / kept), rtol=1e-15)
    one_early_error = promisable_accuracy(
        kept - 1, kept, 0.95
    )  # the first number kept is the least that can be proved
    np.testing.assert_array_equal(one_early_error, np.full(3, lower_bound(299, 300, 0.95)))


@pytest.mark.parametrize("ties", [None, 10, 3])
@pytest.mark.parametrize("runs", [20, pytest.param(60, marks=pytest.mark.slow)])
def test_a_stricter_promise_never_keeps_more(runs, ties) -> None:
    rng = np.random.default_rng(0)
    targets = [*np.arange(0.02, 0.9, 0.04), *np.arange(0.9, 0.999, 0.001), 0.9995]
    promises = 0
    for run in range(runs):
        number = int(rng.integers(2, 2000))
        scores = rng.uniform(size=number)
        scores = scores if ties is None else np.floor(ties * scores)
        correct = rng.uniform(size=number) > rng.choice([0.3, 0.02, 0.002]) * scores ** rng.choice([0, 2])
        kept = []
        for target in targets:
            try:
                kept.append(demur.Deferral.fit(scores, correct, accuracy=target).thresholds[""].kept)
            except demur.NoGuarantee:
                kept.append(0)
        assert np.all(np.diff(kept) <= 0), (run, kept)
        promises += np.count_nonzero(kept)
    assert promises > 1000 * runs / 60


def test_promises_that_need_many_inputs_are_broken_no_more_often_than_said() -> None:
    """Scores say nothing, and 90 of 300 inputs are too few to prove the target: 199 are needed."""
    target, broken = 0.985 + 1e-9, 0
    for run in range(2000):
        rng = np.random.default_rng(run)
        try:
            demur.Deferral.fit(rng.uniform(size=300), rng.uniform(size=300) < 0.985, accuracy=target)
            broken += 1
        except demur.NoGuarantee:
            pass
    assert 0 < broken / 2000 <= 0.065  # 0.05 and three standard errors


def test_bounds_are_binomial_tails() -> None:
    for right, kept in ((7, 10), (10, 10), (299, 300)):
        assert binom.sf(right - 1, kept, lower_bound(right, kept, 0.95)) == pytest.approx(0.05)
    assert lower_bound(0, 10, 0.95) == 0


def test_no_guarantee_says_what_fit_would_promise() -> None:
    with pytest.raises(
        demur.NoGuarantee, match=r"accuracy of 0.99 .*\. The most .* is 0\.9704, .* 100 of 100 inputs: ask"
    ):
        demur.Deferral.fit(np.arange(100.0), np.ones(100), accuracy=0.99)
    with pytest.raises(demur.NoGuarantee, match=r"risk of 0.001\. The least .* is 1 in 101"):
        demur.Deferral.fit(np.arange(100.0), np.ones(100), risk=0.001)
    assert issubclass(demur.NoGuarantee, ValueError)


@pytest.mark.parametrize("seed", range(20))
def test_what_could_be_promised_is(seed) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.uniform(size=500)
    correct = rng.uniform(size=500) > 0.05 * scores
    with pytest.raises(demur.NoGuarantee) as refused:
        demur.Deferral.fit(scores, correct, accuracy=0.9999)
    found = re.search(r"promised is (0\.\d+), by keeping the most certain (\d+) of 500", str(refused.value))
    assert found is not None
    best = float(found[1])
    assert demur.Deferral.fit(scores, correct, accuracy=best).thresholds[""].kept == int(found[2])
    with pytest.raises(demur.NoGuarantee):
        demur.Deferral.fit(scores, correct, accuracy=best + 1e-4)


def test_where_all_are_wrong_nothing_can_be_promised() -> None:
    with pytest.raises(
        demur.NoGuarantee,
        match=r"Nothing can be promised, with 0 of the most certain 30 predictions right\.$",
    ):
        demur.Deferral.fit(np.arange(100.0), np.zeros(100), accuracy=0.5)


def test_groups_have_thresholds_of_their_own() -> None:
    rng = np.random.default_rng(0)
    scores, correct = draw(rng, 2000)
    groups = np.where(rng.uniform(size=2000) < 0.5, "day", "night")
    policy = demur.Deferral.fit(scores, correct, accuracy=0.85, groups=groups)
    for name in ("day", "night"):
        one = demur.Deferral.fit(scores[groups == name], correct[groups == name], accuracy=0.85)
        assert policy.thresholds[name] == one.thresholds[""]
    assert policy.defer([0.0, 0.0], groups=["day", "dawn"]).tolist() == [False, True]
    assert "all at once with confidence 0.9 " in policy.promise()
    with pytest.raises(ValueError, match="groups must be given"):
        policy.defer([0.1])
    with pytest.raises(demur.NoGuarantee, match="for group day"):
        demur.Deferral.fit(scores, correct, accuracy=0.9999, groups=groups)


@pytest.mark.parametrize("goal", [{"accuracy": 0.85}, {"coverage": 1.0}, {"risk": 0.1}, {"cost": 0.2}])
def test_a_saved_policy_comes_back(goal, tmp_path) -> None:
    policy = demur.Deferral.fit(*draw(np.random.default_rng(0), 500), **goal)
    policy.save(tmp_path / "policy.json")
    assert demur.Deferral.load(tmp_path / "policy.json") == policy
    json.loads((tmp_path / "policy.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "demur deferral 1", "thresholds": {}}'])
def test_another_file_is_refused(text, tmp_path) -> None:
    (tmp_path / "policy.json").write_text(text)
    with pytest.raises(ValueError, match=r"must be a policy written by Deferral\.save"):
        demur.Deferral.load(tmp_path / "policy.json")


@pytest.mark.parametrize(
    "edit",
    [
        {"confidence": -1},
        {"confidence": "high"},
        {"target": "all"},
        {"thresholds": {}},
        {"goal": None},
        {"clusters": -1},
    ],
)
def test_a_policy_that_somebody_edited_is_refused(edit, tmp_path) -> None:
    path = tmp_path / "policy.json"
    demur.Deferral.fit(*draw(np.random.default_rng(0), 500), accuracy=0.85).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | edit))
    with pytest.raises(ValueError, match=r"must be a policy written by Deferral\.save"):
        demur.Deferral.load(path)


WRONG_THRESHOLDS = [
    {"value": True}, {"value": "high"}, {"value": "nan"}, {"value": [1]}, {"kept": 3.5}, {"kept": True},
    {"number": 0}, {"number": -5}, {"right": 10**6}, {"promise": None}, {"promise": 2}, {"promise": True},
    {"promise": "most"}, {"extra": 1},
]  # fmt: skip


@pytest.mark.parametrize("edit", WRONG_THRESHOLDS)
def test_a_threshold_that_somebody_edited_is_refused(edit, tmp_path) -> None:
    path = tmp_path / "policy.json"
    demur.Deferral.fit(*draw(np.random.default_rng(0), 500), accuracy=0.85).save(path)
    content = json.loads(path.read_text())
    content["thresholds"][""] |= edit
    path.write_text(json.dumps(content))
    with pytest.raises(
        ValueError, match=r"must be a policy written by Deferral\.save.*Fit and save"
    ) as caught:
        demur.Deferral.load(path)
    assert next(iter(edit)) in str(caught.value) or next(iter(edit)) in ("right", "number")


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('"confidence": 0.95', '"confidence": NaN', "NaN for confidence"),
        ('"confidence": 0.95', '"confidence": true', "true for confidence"),
        ('"confidence": 0.95', '"confidence": 0.95, "confidence": 0.5', "the key 'confidence' twice"),
        ('"target": 0.85', '"target": Infinity', "Infinity for target"),
        ('"target": 0.85', '"target": 1', "between 0 and 1"),
        ('"target": 0.85,', "", "no entry 'target'"),
        ('"goal": "accuracy"', '"goal": "accuracy", "colour": 1', "the unknown entry 'colour'"),
        ('"goal": "accuracy"', '"goal": "cost"', "a promise for the goal cost"),
        ('"score": null', '"score": 5', "5 for score"),
        ('"format": "demur deferral 1"', '"format": "demur deferral 9"', "another format"),
    ],
)
def test_a_policy_with_a_wrong_entry_says_which(before, after, words, tmp_path) -> None:
    path = tmp_path / "policy.json"
    demur.Deferral.fit(*draw(np.random.default_rng(0), 500), accuracy=0.85).save(path)
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    with pytest.raises(ValueError, match=r"must be a policy written by Deferral\.save") as caught:
        demur.Deferral.load(path)
    assert words in str(caught.value)


def test_a_nested_policy_is_refused(tmp_path) -> None:
    (tmp_path / "policy.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="nested too deeply"):
        demur.Deferral.load(tmp_path / "policy.json")


def test_report_counts_what_is_kept() -> None:
    rng = np.random.default_rng(0)
    policy = demur.Deferral.fit(*draw(rng, 1000), accuracy=0.85)
    scores, correct = draw(rng, 1000)
    report = policy.report(scores, correct)
    kept = ~policy.defer(scores)
    assert report.kept == kept.sum()
    assert report.accuracy is not None and float(report.accuracy) == correct[kept].mean()
    first = str(report).splitlines()[0]
    assert first.index("for inputs from the source that it was fitted on") < first.index("is at least 0.85")
    assert policy.report(scores).accuracy is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one of accuracy, coverage, risk and cost. Got none"),
        ({"accuracy": 0.9, "cost": 0.1}, "Got accuracy, cost"),
        ({"accuracy": 99}, "accuracy must be between 0 and 1, as 0.95. Got 99. Write 0.99."),
        ({"accuracy": 0.9, "confidence": 1}, "confidence must be between 0 and 1"),
        ({"accuracy": 0.9, "groups": ["a"]}, r"groups must have shape \(3,\)"),
    ],
)
def test_bad_input_is_told(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        demur.Deferral.fit([1.0, 2.0, 3.0], [True, True, False], **options)
    with pytest.raises(ValueError, match="Got NaN"):
        demur.Deferral.fit([1.0, np.nan], [True, True], coverage=0.5)


def test_an_accuracy_of_0_is_no_promise() -> None:
    predicted, truth = np.linspace(0, 1, 50), np.linspace(0.01, 1, 50)  # numbers are never quite equal
    with pytest.raises(demur.NoGuarantee, match=r"None of the 45 predictions.*near enough, as correct=abs"):
        demur.Deferral.fit(predicted, predicted == truth + 1, coverage=0.9)
    policy = demur.Deferral.fit(predicted, np.abs(predicted - truth) < 0.1, coverage=0.9)
    assert policy.thresholds[""].promise > 0.9
