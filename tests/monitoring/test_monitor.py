"""Monitor: no alarm while the promise holds, one soon after; late labels, groups, merging, refusals."""

import time

import numpy as np
import pytest
from reference import betting as reference

import demur


def feed(monitor, scores, correct, step=500, **options) -> None:
    for begin in range(0, len(scores), step):
        part = slice(begin, begin + step)
        audited = monitor.to_audit(scores[part], **options)
        monitor.observe(scores[part], correct[part], audited=audited, **options)


def test_harm_raises_an_alarm_and_normal_traffic_none(policy, traffic) -> None:
    monitor = demur.Monitor(policy, audit=0.2)
    feed(monitor, *traffic(20_000))
    assert monitor.status.holds and monitor.status.observed == 20_000
    feed(monitor, *traffic(10_000, 1, harm=0.1))
    status = monitor.status
    assert status.alarm and 20_000 < status.alarm_at < 25_000
    assert abs(status.since - 20_000) < 2000
    assert "Alarm" in repr(monitor) and "most likely since" in status.explain()


def test_capital_and_risk_are_those_of_the_kept_and_audited(policy, traffic) -> None:
    scores, correct = traffic(800)
    monitor = demur.Monitor(policy, audit=[(0.3, 0.1), (np.inf, 0.4)])
    audited = monitor.to_audit(scores)
    monitor.observe(scores, correct, audited)
    kept = ~policy.defer(scores)
    assert not (audited & ~kept).any()
    events = [
        (0.1 if s <= 0.3 else 0.4, int(not c)) for s, c in zip(scores[audited], correct[audited], strict=True)
    ]
    assert monitor.status.capital == pytest.approx(reference.capital(events, 0.05, 0.1), rel=1e-9)
    low, high = reference.risk_interval(events, int(kept.sum()), 0.1, 0.95, steps=300)
    assert monitor.status.risk.low == pytest.approx(low, abs=1 / 300)
    assert monitor.status.risk.high == pytest.approx(high, abs=1 / 300)
    assert (monitor.status.kept, monitor.status.audited) == (int(kept.sum()), int(audited.sum()))


@pytest.mark.parametrize("step", [1, 7, 300])
def test_pieces_change_nothing(policy, traffic, step) -> None:
    scores, correct = traffic(300, harm=0.3)
    whole, pieces = demur.Monitor(policy, audit=0.5), demur.Monitor(policy, audit=0.5)
    whole.observe(scores, correct)
    feed(pieces, scores, correct, step)
    for name in ("alarm_at", "capital", "risk", "since", "observed", "audited"):
        assert getattr(pieces.status, name) == getattr(whole.status, name), name


def test_audits_follow_seed_and_id_and_have_their_probability(policy) -> None:
    scores = np.zeros(20_000)
    ids = [f"input {k}" for k in range(20_000)]
    monitor = demur.Monitor(policy, audit=0.1, seed=1)
    by_id = monitor.to_audit(scores, ids=ids)
    np.testing.assert_array_equal(monitor.to_audit(scores[::-1], ids=ids[::-1])[::-1], by_id)
    other = demur.Monitor(policy, audit=0.1, seed=2).to_audit(scores, ids=ids)
    by_place = monitor.to_audit(scores)
    assert (monitor.to_audit(scores) != by_place).any()  # the next 20,000
    np.testing.assert_array_equal(demur.Monitor(policy, audit=0.1, seed=1).to_audit(scores), by_place)
    for found in (by_id, other, by_place, monitor.to_audit(scores, probability=0.1)):
        assert abs(found.mean() - 0.1) < 0.0085  # four standard errors
    assert abs((by_id & other).mean() - 0.01) < 0.0028  # of two seeds, independent


def test_an_input_counts_once_and_its_label_may_come_later(policy, traffic) -> None:
    scores, correct = traffic(2000, harm=0.2)
    ids = np.arange(2000)
    now, later = demur.Monitor(policy), demur.Monitor(policy)
    audited = now.to_audit(scores, ids=ids)
    now.observe(scores, correct, audited, ids=ids)
    assert now.status.alarm
    later.observe(scores, np.where(np.arange(2000) % 2, correct, np.nan), audited, ids=ids)
    half = later.status
    assert half.missing > 10 and half.capital < now.status.capital
    assert half.risk.low <= now.status.risk.low and half.risk.high >= now.status.risk.high
    later.observe(scores, correct, audited, ids=ids)  # all again: the labels are taken, nothing counts twice
    assert later.status.capital == pytest.approx(now.status.capital, rel=1e-12)
    assert later.status.risk == now.status.risk and later.status.missing == 0
    assert later.status.observed == 2000 and later.status.alarm
    before = later.status
    later.label(ids[audited][:5], correct[audited][:5])
    assert later.status == before
    with pytest.raises(ValueError, match="must not change"):
        later.label(ids[audited][:1], ~correct[audited][:1])
    with pytest.raises(ValueError, match="never observed"):
        later.label(["x"], [True])
    with pytest.raises(ValueError, match="not audited"):
        later.label(ids[~audited][:1], [True])


def test_labels_that_come_for_errors_alone_raise_no_alarm(policy) -> None:
    """Complaints come, praise does not: errors are known at once, the rest never. Risk is at the limit."""
    false = 0
    for run in range(20):
        rng = np.random.default_rng(run)
        monitor = demur.Monitor(policy, audit=0.5, seed=run)
        wrong = rng.uniform(size=2000) < 0.05
        monitor.observe(np.zeros(2000), np.where(wrong, 0, np.nan))
        false += monitor.status.alarm
        assert monitor.status.risk.low <= 0.05 <= monitor.status.risk.high
    assert false <= 4  # 0.05 * 20 = 1, and three standard errors


def test_false_alarms_are_rare_at_the_bound_whatever_the_audits(policy) -> None:
    """100 streams of 1,500 kept inputs; 0.05 and three standard errors is 0.115."""
    false = 0
    for run in range(100):
        rng = np.random.default_rng(run)
        scores, monitor = (
            rng.uniform(0, 0.6, 1500),
            demur.Monitor(policy, audit=[(0.3, 0.05), (np.inf, 0.5)], seed=run),
        )
        # All errors where audits are frequent: half of the inputs, at twice the limit.
        monitor.observe(scores, rng.uniform(size=1500) > 0.1 * (scores > 0.3))
        false += monitor.status.alarm
    assert false / 100 <= 0.115


def count_alarms_of_patients(policy, one_each: bool) -> float:
    """How often there is an alarm where all images of a patient are right, or all wrong, at the limit."""
    alarms = 0
    for run in range(60):
        rng = np.random.default_rng(run)
        wrong = np.repeat(rng.uniform(size=400) < 0.05, 4)
        seen = 4 * np.arange(400) + rng.integers(4, size=400) if one_each else np.arange(1600)
        monitor = demur.Monitor(policy, audit=1, seed=run)
        monitor.observe(np.zeros(len(seen)), ~wrong[seen], np.ones(len(seen), bool))
        alarms += monitor.status.alarm
    return alarms / 60


def test_one_input_of_each_cluster_keeps_the_promise(policy) -> None:
    """0.05 and three standard errors is 0.134."""
    assert count_alarms_of_patients(policy, one_each=True) <= 0.134


def test_control_all_inputs_of_a_cluster_raise_alarms(policy) -> None:
    assert count_alarms_of_patients(policy, one_each=False) > 0.5


def test_control_audits_by_score_taken_for_constant_ones_raise_false_alarms(policy) -> None:
    false = 0
    for run in range(20):
        rng = np.random.default_rng(run)
        scores = rng.uniform(0, 0.6, 2000)
        plan = demur.Monitor(policy, audit=[(0.3, 0.05), (np.inf, 0.5)], seed=run)
        wrong = demur.Monitor(policy, audit=0.275, seed=run)
        wrong.observe(scores, rng.uniform(size=2000) > 0.1 * (scores > 0.3), plan.to_audit(scores))
        false += wrong.status.alarm
    assert false >= 10


def test_groups_share_the_confidence(traffic) -> None:
    scores, correct = traffic(8000)
    groups = np.where(np.arange(8000) % 2, "day", "night")
    grouped = demur.Deferral.fit(scores, correct, accuracy=0.95, groups=groups)
    monitor = demur.Monitor(grouped, audit=0.3)
    new, right = traffic(8000, 1)
    right &= (groups == "day") | (np.random.default_rng(0).uniform(size=8000) > 0.2)
    monitor.observe(new, right, groups=groups)
    status = monitor.status
    assert status.groups["night"].alarm and not status.groups["day"].alarm and status.alarm
    assert status.groups["day"].needed == pytest.approx(40)
    assert status.groups["day"].risk.confidence == pytest.approx(0.975)
    assert "0.025" in status.explain() and "night" in status.explain()
    assert status.capital == pytest.approx(np.mean([g.capital for g in status.groups.values()]))


def test_adaptive_audits_by_given_probabilities(policy, traffic) -> None:
    scores, correct = traffic(4000, harm=0.1)
    monitor = demur.Monitor(policy, audit=0.1, least=0.05)
    for begin in range(0, 4000, 100):
        part, chance = slice(begin, begin + 100), 0.05 if monitor.status.capital < 2 else 0.8
        audited = monitor.to_audit(scores[part], probability=chance)
        monitor.observe(scores[part], correct[part], audited, probability=chance)
    assert monitor.status.alarm
    with pytest.raises(ValueError, match=r"from 0\.05"):
        monitor.to_audit(scores, probability=0.01)


def test_merging_averages_capital_and_pools_the_risk(policy, traffic) -> None:
    parts = [demur.Monitor(policy, seed=k, audit=0.3) for k in range(3)]
    for k, part in enumerate(parts):
        part.observe(*traffic(1500, k, harm=0.06 * k))
    mean = np.mean([part.status.capital for part in parts])
    forward, backward = demur.Monitor(policy, audit=0.3), demur.Monitor(policy, audit=0.3)
    for part in parts:
        forward.merge(part)
    for part in reversed(parts):
        backward.merge(part).merge(part)
    for whole in (forward, backward):
        assert whole.status.capital == pytest.approx(mean) and whole.status.observed == 4500
        assert whole.status.audited == sum(part.status.audited for part in parts)
        assert whole.status.alarm == (mean >= 20)
    assert forward.status.risk == backward.status.risk
    assert forward.status.risk.high - forward.status.risk.low < min(
        part.status.risk.high - part.status.risk.low for part in parts
    )
    parts[0].observe(*traffic(500, 9))  # a newer state takes the place of the older one
    assert forward.merge(parts[0]).status.observed == 5000


def test_an_earlier_capital_is_not_averaged_with_what_another_server_has_now(policy) -> None:
    """Late labels tell of errors long ago, when the other server had not won yet."""
    other = demur.Monitor(policy, audit=1, seed=1)
    other.observe(np.zeros(10), np.repeat([0, 1], 5), np.ones(10, bool))
    own, right = demur.Monitor(policy, audit=1), np.ones(600)
    ids = [f"own {k}" for k in range(600)]
    early = demur.Monitor(policy, audit=1)
    early.observe(np.zeros(3), np.zeros(3), np.ones(3, bool))
    right[:3] = np.nan
    own.observe(np.zeros(600), right, np.ones(600, bool), ids=ids)
    own.merge(other)
    own.label(ids[:3], np.zeros(3))
    present = own.streams[0].bets[""].current.total + other.status.capital
    assert early.status.capital + other.status.capital > 40 > present
    assert not own.status.alarm and own.status.capital == pytest.approx(present / 2)


def test_servers_with_the_same_scores_are_told_apart_by_their_ids(policy) -> None:
    a, b = demur.Monitor(policy, audit=1.0), demur.Monitor(policy, audit=1.0)
    a.observe(np.zeros(100), np.ones(100), ids=[f"a{k}" for k in range(100)])
    b.observe(np.zeros(150), np.ones(150), ids=[f"b{k}" for k in range(150)])
    assert a.merge(b).status.observed == 250


def test_merging_refuses_what_would_count_twice_or_is_of_another_promise(policy, traffic) -> None:
    a, b = demur.Monitor(policy, seed=1), demur.Monitor(policy, seed=2)
    a.observe(*traffic(100), ids=[f"a{k}" for k in range(100)])
    b.observe(*traffic(100), ids=["a7", *(f"b{k}" for k in range(99))])
    with pytest.raises(ValueError, match=r"'a7'.*twice"):
        a.merge(b)
    assert a.status.observed == 100
    with pytest.raises(ValueError, match="another confidence"):
        a.merge(demur.Monitor(policy, confidence=0.9))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"audit": 0}, "never audited"),
        ({"audit": [(0.5, 0.1)]}, "pairs"),
        ({"audit": [(0.5, 0.1), (0.2, 0.1), (np.inf, 1)]}, "rising"),
        ({"confidence": 95}, "Write 0.95"),
        ({"least": 0.5}, "smallest probability"),
        ({"audit": "x"}, "pairs"),
        ({"audit": (0.2, 0.5)}, "pairs"),
        ({"seed": -1}, "whole number"),
    ],
)
def test_bad_settings_are_refused(policy, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        demur.Monitor(policy, **options)


def test_an_id_twice_in_one_batch_has_one_label(policy) -> None:
    monitor = demur.Monitor(policy, audit=np.float32(1))
    monitor.observe([0.1, 0.1, 0.2], [np.nan, 0, 1], ids=["a", "a", "b"])
    assert (monitor.status.observed, monitor.status.missing) == (2, 0)
    assert monitor.audits()["correct"].tolist() == [0, 1]
    with pytest.raises(ValueError, match="right and wrong for 'c'"):
        monitor.observe([0.1, 0.1], [1, 0], ids=["c", "c"])
    with pytest.raises(ValueError, match="right and wrong for 'a'"):
        monitor.label(["a", "a"], [1, 0])
    assert monitor.status.observed == 2


def test_a_late_label_that_comes_twice_counts_once(policy) -> None:
    monitor = demur.Monitor(policy, audit=1.0)
    monitor.observe([0.1, 0.1, 0.2], None, ids=["a", "b", "c"])
    monitor.label(["a", "a"], [0, 0])
    monitor.observe([0.1, 0.1], [1, 1], ids=["b", "b"])
    assert monitor.status.missing == 1 and monitor.streams[0].known == 2
    assert monitor.audits()["correct"][:2].tolist() == [0, 1]


def test_many_late_labels_are_taken_in_one_pass(policy) -> None:
    """A label that never comes is in front of them, so that each pass begins at the first input."""
    monitor, whole = demur.Monitor(policy, audit=1.0), demur.Monitor(policy, audit=1.0)
    ids, correct = np.arange(5000), np.random.default_rng(0).uniform(size=5000) > 0.05
    monitor.observe(np.zeros(5000), None, ids=ids)
    begin = time.perf_counter()
    monitor.label(ids[1:], correct[1:])
    assert time.perf_counter() - begin < 2  # one pass takes a twentieth of it, and one for each error 15 s
    correct[0] = True  # as a missing label counts
    whole.observe(np.zeros(5000), correct)
    assert monitor.status.capital == whole.status.capital and monitor.status.missing == 1


@pytest.mark.parametrize("missing", [None, np.nan, "", float("nan")])
def test_an_input_without_an_id_is_refused(policy, missing) -> None:
    """Two of them would be taken for the same input."""
    with pytest.raises(ValueError, match="ids must not be empty"):
        demur.Monitor(policy).observe([0.1, 0.2], [1, 1], ids=[missing, missing])


def test_what_is_no_policy_no_monitor_and_no_input_is_told(policy, traffic) -> None:
    with pytest.raises(TypeError, match=r"must be a Deferral; .* Got Deferrals\."):
        demur.Monitor(demur.Deferrals({"one": policy}))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a Monitor"):
        demur.Monitor(policy).merge(policy)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="since must be the number of an input"):
        demur.Monitor(policy).recommend(since=-1)


def test_bad_input_is_refused(policy, traffic) -> None:
    scores, correct = traffic(500)
    monitor = demur.Monitor(policy)
    with pytest.raises(ValueError, match=r"about 31 of 308 kept inputs\. Got 308"):
        monitor.observe(scores, correct, np.ones(500, bool))  # all labels, as if each had been drawn
    with pytest.raises(ValueError, match="must be booleans"):
        monitor.observe(scores, correct, np.ones(500))
    with pytest.raises(ValueError, match="one per score"):
        monitor.observe(scores, correct[:5])
    with pytest.raises(ValueError, match="Got 2 at input"):
        monitor.observe(scores, np.full(500, 2))
    assert monitor.status.observed == 0
    with pytest.raises(ValueError, match="promises nothing"):
        demur.Monitor(demur.Deferral.fit(scores, correct, cost=0.3))
    with pytest.raises(ValueError, match="expectation"):
        demur.Monitor(demur.Deferral.fit(scores, correct, risk=0.3))


def test_before_the_first_audit_nothing_is_known(policy) -> None:
    status = demur.Monitor(policy).status
    assert status.holds and (status.risk.low, status.risk.high) == (0, 1) and np.isnan(status.risk.value)
    assert "no proof" in repr(status)
