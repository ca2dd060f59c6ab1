"""The bets: equal to their definition, fair, and the interval of the risk holds at all times."""

import math

import numpy as np
import pytest
from reference import betting as reference

from demur.monitoring.running_risk import enclose_risk
from demur.tasks.betting import Bettors, error_factors, list_stakes, locate_start, start_capital


def draw_events(rng, number, risk, probabilities=(0.1, 0.3, 1.0)):
    return [(float(rng.choice(probabilities)), int(rng.uniform() < risk)) for _ in range(number)]


def bet_on(events, limit, least) -> Bettors:
    bettors = Bettors(np.zeros(len(list_stakes())))
    for probability, wrong in events:
        bettors.bet(error_factors(limit, least, probability)[wrong])
    return bettors


@pytest.mark.parametrize("risk", [0.02, 0.3])
def test_capital_is_its_definition(risk) -> None:
    events = draw_events(np.random.default_rng(0), 60, risk)
    assert bet_on(events, 0.05, 0.1).total == pytest.approx(reference.capital(events, 0.05, 0.1), rel=1e-10)


def test_the_mean_of_every_bet_is_one_at_the_limit_and_below_it_under_less_risk() -> None:
    """In closed form: over whether an input is audited, and over its truth."""
    for probability in (0.1, 0.5, 1.0):
        right, wrong = error_factors(0.05, 0.1, probability)
        for risk in (0.0, 0.03, 0.05, 0.06):
            mean = 1 - probability + probability * ((1 - risk) * right + risk * wrong)
            expected = 1 + list_stakes() * 0.1 / 0.05 * (risk - 0.05)
            np.testing.assert_allclose(mean, expected, rtol=1e-12)
        assert (right > 0).all()


def test_all_starts_together_cost_no_more_than_there_is() -> None:
    """A sum over 2^24 terms by Euler and Maclaurin, whose error is below 1e-16 from 1,000 on."""
    first = math.fsum(start_capital(k) for k in range(1, 1001))
    last = (1 << 24) - 1
    rest = math.log(last / 1000) + (1 / last - 1 / 1000) / 2 + (1 / 1000**2 - 1 / last**2) / 12
    assert 0.999999 < first + rest * start_capital(1) <= 1
    assert start_capital(1 << 24) == 0


def test_capital_stays_finite_where_everything_is_wrong() -> None:
    assert bet_on([(0.1, 1)] * 1000, 0.01, 0.1).total == 1e300


def test_the_start_of_a_change_is_located() -> None:
    rng = np.random.default_rng(0)
    events = draw_events(rng, 400, 0.03, (0.1,)) + draw_events(rng, 200, 0.3, (0.1,))
    factors = np.stack([error_factors(0.05, 0.1, p)[wrong] for p, wrong in events])
    assert abs(locate_start(factors) - 400) < 30


@pytest.mark.parametrize("missing", [0, 3])
def test_the_interval_is_its_definition(missing) -> None:
    events = draw_events(np.random.default_rng(1), 80, 0.1)
    counts = {
        p: (events.count((p, 0)), events.count((p, 1)), missing if p == 1 else 0) for p in (0.1, 0.3, 1.0)
    }
    found = enclose_risk(counts, 300, 0.1, 0.9)
    low, _ = reference.risk_interval(events + missing * [(1.0, 0)], 300, 0.1, 0.9, steps=400)
    _, high = reference.risk_interval(events + missing * [(1.0, 1)], 300, 0.1, 0.9, steps=400)
    assert found.low == pytest.approx(low, abs=1 / 400)
    assert found.high == pytest.approx(high, abs=1 / 400)


def run_intervals(runs: int, risk, probability, seed=0, length=3000) -> float:
    """How often the interval misses the mean risk so far, at any of 20 times."""
    missed = 0
    times = np.unique(np.geomspace(10, length, 20).astype(int))
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        risks = np.array([risk(t) for t in range(length)])
        chances = np.array([probability(t) for t in range(length)])
        audited = rng.uniform(size=length) < chances
        wrong = rng.uniform(size=length) < risks
        for time in times:
            counts = {}
            for p in np.unique(chances):
                own = audited[:time] & (chances[:time] == p)
                counts[float(p)] = (int((own & ~wrong[:time]).sum()), int((own & wrong[:time]).sum()), 0)
            found = enclose_risk(counts, int(time), float(chances.min()), 0.8)
            if not found.low <= risks[:time].mean() <= found.high:
                missed += 1
                break
    return missed / runs


@pytest.mark.slow
def test_the_interval_holds_the_mean_risk_at_all_times_while_it_moves() -> None:
    """At confidence 0.8, misses at any time are at most 0.2: 50 runs, three standard errors are 0.17."""
    moving = run_intervals(50, lambda t: 0.05 + 0.3 * (t // 500 % 2), lambda t: 0.2 if t % 3 else 0.6)
    assert moving <= 0.37


def test_control_an_interval_without_weights_misses_it() -> None:
    """Audits follow the risk; their plain share of errors is no estimate of the mean risk."""
    rng = np.random.default_rng(0)
    risks = np.where(np.arange(4000) % 2, 0.4, 0.0)
    audited = rng.uniform(size=4000) < np.where(risks > 0, 1.0, 0.1)
    wrong = (rng.uniform(size=4000) < risks) & audited
    plain = enclose_risk(
        {1.0: (int((audited & ~wrong).sum()), int(wrong.sum()), 0)}, int(audited.sum()), 1.0, 0.95
    )
    assert not plain.low <= 0.2 <= plain.high
    own = wrong & (risks > 0)
    counts = {
        1.0: (2000 - int(own.sum()), int(own.sum()), 0),
        0.1: (int((audited & (risks == 0)).sum()), 0, 0),
    }
    fair = enclose_risk(counts, 4000, 0.1, 0.95)
    assert fair.low <= 0.2 <= fair.high
