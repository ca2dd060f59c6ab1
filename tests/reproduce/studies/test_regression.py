"""The regression study: its parts against slow references, and a small run from nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr, ttest_1samp
from typer.testing import CliRunner

import demur
from demur.cli import app
from demur.stores import read_columns

torch = pytest.importorskip("torch")
pytest.importorskip("matplotlib")

from demur.reproduce.data import uci  # noqa: E402
from demur.reproduce.studies.regression import networks, ranking, tables  # noqa: E402

from .made import rows  # noqa: E402

FILES = [
    "curves.csv", "differences.csv", "fits.csv", "scores.csv", "section.md", "sparsification.pdf",
    "sparsification.png", "splits.csv",
]  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return rows(tmp_path_factory.mktemp("data") / "uci").parent


def run(*arguments: object):
    return CliRunner().invoke(app, ["reproduce", "regression", *(str(each) for each in arguments)])


@pytest.fixture(scope="module")
def made(source, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("regression") / "run"
    result = run("--data", source, "--out", out, "--quick")
    assert result.exit_code == 0, result.output
    return out


# --- parts ---------------------------------------------------------------------------------------


def test_networks_trained_together_are_those_of_plain_torch():
    """One step of Adam on each of three networks, against torch.nn layers one by one."""
    draws = torch.Generator().manual_seed(0)
    x, y = torch.randn(3, 7, 4, generator=draws), torch.randn(3, 7, generator=draws)
    parts = networks.init_parameters(3, 4, 5, draws)
    expected = []
    for k in range(3):
        first, second = torch.nn.Linear(4, 5), torch.nn.Linear(5, 2)
        for layer, weight, bias in ((first, parts[0][k], parts[1][k]), (second, parts[2][k], parts[3][k])):
            layer.weight.data, layer.bias.data = weight.T.clone(), bias[0].clone()
        optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
        out = second(first(x[k]).relu())
        variance = torch.nn.functional.softplus(out[:, 1]) + networks.VARIANCE_FLOOR
        torch.nn.functional.gaussian_nll_loss(out[:, 0], y[k], variance, eps=1e-9).backward()
        optimizer.step()
        expected.append(second(first(x[k]).relu()))
    for part in parts:
        part.requires_grad_(True)
    optimizer = torch.optim.Adam(parts, lr=0.01)
    networks.compute_nll(*networks.run_networks(parts, x), y).mean(1).sum().backward()
    optimizer.step()
    mean, variance = networks.run_networks(parts, x)
    torch.testing.assert_close(mean, torch.stack(expected)[..., 0])
    torch.testing.assert_close(
        variance, torch.nn.functional.softplus(torch.stack(expected)[..., 1]) + networks.VARIANCE_FLOOR
    )


@pytest.mark.slow
def test_networks_learn_mean_and_spread(tmp_path):
    """Against what the data were made from, on rows that no network saw."""
    given = uci.read_dataset(next(iter(sorted(rows(tmp_path / "uci", 1, 600).glob("*.npz")))))
    training = networks.TrainingSettings(fewest=400, most=400)
    for method in networks.METHODS.values():
        found = networks.predict_test_rows(given, method, training, 0)
        assert found["mean"].shape == (method.members, 4, 60)
        x = given.x[given.test]
        truth = 10 * (x[..., 0] ** 2 + x[..., 1]) + 100
        noise = 10 * np.exp(x[..., 0] / 2)
        assert np.corrcoef(found["mean"].mean(0).ravel(), truth.ravel())[0, 1] > 0.8
        assert spearmanr(found["variance"].mean(0).ravel(), noise.ravel()).statistic > 0.6
        assert found["variance"].min() > 0 and (np.ptp(found["mean"], axis=0) > 0).all()


def test_test_rows_play_no_part_in_training(tmp_path):
    """Outcomes of the test rows are changed, and the predictions of that split stay."""
    given = uci.read_dataset(next(iter(rows(tmp_path / "uci", 1).glob("*.npz"))))
    method, training = networks.METHODS["deep-ensemble"], networks.TrainingSettings(fewest=20, most=20)
    first = networks.predict_test_rows(given, method, training, 0)
    given.y[given.test[0]] += 1e3
    second = networks.predict_test_rows(given, method, training, 0)
    np.testing.assert_array_equal(first["mean"][:, 0], second["mean"][:, 0])
    assert not np.array_equal(first["mean"][:, 1], second["mean"][:, 1])


def test_figures_of_a_split_are_those_of_loops():
    rng = np.random.default_rng(0)
    mean, variance, y = rng.normal(size=(4, 30)), rng.uniform(0.5, 2, (4, 30)), rng.normal(size=30)
    figures, curves = ranking.evaluate_split(mean, variance, y)
    errors = mean.mean(0) - y
    densities = np.exp(-((y - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
    assert figures["nll"] == pytest.approx(-np.log(densities.mean(0)).mean(), rel=1e-12)
    assert figures["rmse"] == pytest.approx(np.sqrt((errors**2).mean()), rel=1e-12)
    members = demur.Gaussian(mean, variance=variance)
    expected = {
        "k": demur.decompose(members).epistemic,
        "i": demur.decompose(members, measure="average").epistemic,
        "k-total": demur.decompose(members).total,
        "i-total": demur.decompose(members, measure="average").total,
        "epistemic-variance": mean.var(0),
        "total-variance": mean.var(0) + variance.mean(0),
    }
    for name, values in expected.items():
        assert figures[f"{name}|spearman"] == pytest.approx(spearmanr(values, np.abs(errors)).statistic)
        found = demur.tasks.sparsification(values, errors, resamples=100)
        assert figures[f"{name}|ause"] == pytest.approx(float(found.ause), rel=1e-12)
        assert curves[name][-1] == 1 and len(curves[name]) == len(ranking.KEPT_FRACTIONS)


def test_intervals_over_splits_are_students_with_a_larger_variance(source):
    given = uci.read_datasets(source)[0]
    values = np.array([0.3, 0.1, 0.4, 0.15])
    found, p_value = tables.average_splits(values, given)
    # 8 of 80 rows are for the test: (1/4 + 8/72) s^2 in place of s^2 / 4.
    plain = ttest_1samp(values, 0)
    wider = np.sqrt((1 / 4 + 8 / 72) * 4)
    low, high = plain.confidence_interval(0.95)
    assert found.high - found.low == pytest.approx((high - low) * wider, rel=1e-9)
    assert p_value > plain.pvalue
    shifted, _ = tables.average_splits(values - found.low, given)
    assert tables.average_splits(values - found.low, given)[1] == pytest.approx(0.05, rel=1e-9)
    assert shifted.low == pytest.approx(0, abs=1e-12)


# --- the study -----------------------------------------------------------------------------------


def test_what_is_written(made):
    found = sorted(path.name for path in made.iterdir() if path.is_file() and path.name[0] != ".")
    assert found == sorted([*FILES, "timings.jsonl"])
    splits = read_columns(made / "splits.csv")
    assert len(splits["split"]) == 2 * 2 * 3 and set(splits["data"]) == {"set-0", "set-1"}


def test_differences_are_paired_and_corrected_for_all_sets(made):
    splits, found = (read_columns(made / f"{name}.csv") for name in ("splits", "differences"))
    for k in range(len(found["data"])):
        own = (splits["data"] == found["data"][k]) & (splits["method"] == found["method"][k])
        a, b = (splits[f"{found[side][k]}|{found['figure'][k]}"][own] for side in ("first", "second"))
        assert found["mean"][k] == pytest.approx(np.mean(a - b), abs=1e-12)
        assert found["low"][k] <= found["mean"][k] <= found["high"][k]
        assert found["p_value"][k] <= found["adjusted"][k] <= min(1, 2 * found["p_value"][k]) + 1e-12


def test_the_section_says_what_the_tables_say(made, source, tmp_path):
    page = tmp_path / "results.md"
    result = run("--data", source, "--out", made, "--quick", "--docs", page)
    assert result.exit_code == 0, result.output
    text = page.read_text("utf-8")
    found = read_columns(made / "differences.csv")
    for k in np.flatnonzero(found["figure"] == "ause"):
        assert f"[{found['low'][k]:.3f}, {found['high'][k]:.3f}]" in text
    assert "- deep ensemble: by AUSE K ranks errors better than I on " in text
    for k in range(2):  # of each comparison, method and figure: all sets are better, worse or undecided
        own = [line for line in text.splitlines() if line.startswith("| K against I | ")]
        assert len(own) == 4 and sum(int(cell) for cell in own[k].split("|")[4:7]) == 2
    assert (tmp_path / "figures" / "results" / "regression-sparsification.png").exists()


def test_the_plan_does_nothing(source, tmp_path):
    result = run("--data", source, "--out", tmp_path / "run", "--dry-run")
    assert result.exit_code == 0 and "predict/set-1/mc-dropout" in result.stdout
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test_index": None}, "expected 'test_index', rows of each split's test"),
        ({"y": np.ones(79)}, "expected 'y' to be outcomes"),
        ({"X": np.full((80, 3), np.nan)}, "expected 'X' to be inputs"),
        ({"test_index": np.array([[0, 80], [1, 2]])}, "different rows from 0 to 79"),
        ({"test_index": np.array([[3, 3], [1, 2]])}, "some twice"),
    ],
)
def test_bad_data_is_told_before_the_start(source, tmp_path, change, message):
    found = dict(np.load(source / "uci" / "set-0.npz")) | change
    np.savez(tmp_path / "bad.npz", **{key: value for key, value in found.items() if value is not None})
    result = run("--data", tmp_path, "--out", tmp_path / "run")
    assert result.exit_code == 2 and message in result.stderr and result.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_folder_without_data_is_told(tmp_path):
    result = run("--data", tmp_path, "--out", tmp_path / "run")
    assert result.exit_code == 2 and "expected a folder with an .npz for each data set" in result.stderr
    (tmp_path / "bad.npz").write_bytes(b"not a zip")
    result = run("--data", tmp_path, "--out", tmp_path / "run")
    assert result.exit_code == 2 and "got a file that is not one" in result.stderr


@pytest.mark.slow
def test_killed_in_each_stage_it_comes_to_the_same_bytes(made, source, tmp_path):
    out = tmp_path / "run"
    command = [sys.executable, "-m", "demur.cli", "reproduce", "regression", "--data", str(source)]
    command += ["--out", str(out), "--quick"]
    for stage in (
        "predict/set-0/deep-ensemble",
        "rank/set-0/mc-dropout",
        "predict/set-1/mc-dropout",
        "results",
    ):
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=os.environ
        ) as process:
            assert process.stderr is not None
            for line in process.stderr:
                if f": {stage}" in line:
                    process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL, stage
    assert subprocess.run(command, check=False, env=os.environ, capture_output=True).returncode == 0
    for name in FILES:
        assert (out / name).read_bytes() == (made / name).read_bytes(), name
