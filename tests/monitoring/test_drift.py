"""Drift: ranks as defined, false alarms as rare as said, changes found, state kept."""

import numpy as np
import pytest
from scipy.stats import beta, kstest

import demur
from demur.monitoring import drift as module
from demur.monitoring.audits import TIES, toss_by_place


def test_ranks_are_their_definition_and_uniform_also_with_ties() -> None:
    rng = np.random.default_rng(0)
    calibration, new = rng.integers(0, 9, 200).astype(float), rng.integers(0, 9, 1500).astype(float)
    tosses = rng.uniform(size=1500)
    found = module._rank_each(np.sort(calibration), new, tosses)
    for index in (0, 1, 700, 1499):
        earlier = np.concatenate([calibration, new[:index]])
        slow = (np.sum(earlier > new[index]) + tosses[index] * (np.sum(earlier == new[index]) + 1)) / (
            len(earlier) + 1
        )
        assert found[index] == pytest.approx(slow)
    assert kstest(found, "uniform").pvalue > 0.01


def test_every_bet_is_a_density() -> None:
    ranks = (np.arange(100_000) + 0.5) / 100_000
    factors = module._bet_factors(ranks)
    np.testing.assert_allclose(factors.mean(axis=0), 1, atol=0.003)
    for (a, b), own in zip(module._SHAPES, factors.T, strict=True):
        np.testing.assert_allclose(own[::5000], beta(a, b).pdf(ranks[::5000]), rtol=1e-9)


def test_alarms_without_drift_are_rare() -> None:
    """100 streams: 0.05 and three standard errors is 0.115. The control knows the calibration alone."""
    alarms, control = 0, 0
    for run in range(100):
        rng = np.random.default_rng(run)
        calibration, new = rng.normal(size=50), rng.normal(size=400)
        drift = demur.Drift(calibration, seed=run)
        drift.observe(new)
        alarms += drift.status.alarm
        ranks = (np.searchsorted(-np.sort(-calibration)[::-1] * -1, -new) + rng.uniform(size=400)) / 51
        bettors = module.Bettors(np.zeros(len(module._SHAPES)))
        control += max(bettors.bet(each) for each in module._bet_factors(ranks)) >= 20
    assert alarms / 100 <= 0.115
    assert control / 100 > 0.2  # ranks among a fixed calibration set are not independent


@pytest.mark.parametrize(("mean", "spread"), [(0.4, 1.0), (-0.4, 1.0), (0.0, 1.7), (0.0, 0.6)])
def test_a_change_is_found_with_its_time_and_its_column(mean, spread) -> None:
    rng = np.random.default_rng(1)
    drift = demur.Drift({"size": rng.normal(size=1000), "score": rng.normal(size=1000)})
    drift.observe({"score": rng.normal(size=1000), "size": rng.normal(size=1000)})
    assert not drift.status.alarm
    drift.observe({"size": rng.normal(size=1500), "score": rng.normal(mean, spread, size=1500)})
    status = drift.status
    assert status.columns["score"].alarm and not status.columns["size"].alarm and status.alarm
    assert abs(status.columns["score"].since - 1000) < 300
    assert status.columns["score"].needed == pytest.approx(40)
    auroc = status.columns["score"].auroc
    assert auroc is not None and ((auroc.low > 0.5) if mean > 0 else (auroc.high < 0.5) if mean < 0 else True)
    assert "not harm" in repr(status) and "<table>" in drift._repr_html_()


def test_pieces_and_a_restart_change_nothing(tmp_path) -> None:
    rng = np.random.default_rng(0)
    calibration, new = rng.integers(0, 5, 300), np.append(rng.integers(0, 5, 499), np.inf)
    whole, pieces = demur.Drift(calibration), demur.Drift(calibration)
    whole.observe(new)
    for begin in range(0, 500, 50):
        pieces.observe(new[begin : begin + 50])
        pieces.save(tmp_path / "drift.json")
        pieces = demur.Drift.load(tmp_path / "drift.json")
    assert repr(pieces) == repr(whole)
    content = (tmp_path / "drift.json").read_text()
    (tmp_path / "drift.json").write_text(content.replace("3.0", "2.0", 1))
    with pytest.raises(ValueError, match="changed since"):
        demur.Drift.load(tmp_path / "drift.json")


def test_bad_columns_are_refused() -> None:
    drift = demur.Drift({"a": [1.0, 2.0], "b": [1.0, 2.0]})
    with pytest.raises(ValueError, match="columns a, b"):
        drift.observe({"a": [1.0]})
    with pytest.raises(ValueError, match="one length"):
        drift.observe({"a": [1.0], "b": [1.0, 2.0]})
    with pytest.raises(ValueError, match="NaN"):
        drift.observe({"a": [np.nan], "b": [1.0]})
    assert drift.status.observed == 0


def test_the_order_of_ties_tells_nothing_of_who_is_audited() -> None:
    """Audits whose probability follows the drift would not be random if both came from the same numbers."""
    ties = toss_by_place(0, 0, 2000, purpose=TIES)
    assert abs(np.corrcoef(ties, toss_by_place(0, 0, 2000))[0, 1]) < 4 / np.sqrt(2000)


def test_tables_are_columns_by_name() -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    columns = {"a": rng.normal(size=200), "b": rng.normal(size=200)}
    one, other = module.Drift(columns), module.Drift(pandas.DataFrame(columns))
    one.observe(columns)
    other.observe(pandas.DataFrame(columns, index=range(500, 700)))
    assert str(one.status) == str(other.status)
