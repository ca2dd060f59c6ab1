"""The precision study: its parts against slow references, and a small run from nothing."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import mpmath
import numpy as np
import pytest
from reference import exact as reference
from typer.testing import CliRunner

from demur.cli import app
from demur.stores import read_columns
from demur.tasks import compare, detection

torch = pytest.importorskip("torch")
pytest.importorskip("matplotlib")

from demur.posteriors import LastLayer  # noqa: E402
from demur.reproduce.studies.precision import feature_file, members  # noqa: E402
from demur.reproduce.studies.precision.formulas import FORMULAS  # noqa: E402
from demur.reproduce.studies.precision.ranking import compute_placements, estimate_mean  # noqa: E402

from .made import features  # noqa: E402

FILES = [
    "check.csv", "curves.csv", "gaps.csv", "members.csv", "posteriors.pdf", "posteriors.png", "section.md",
    "textures.pdf", "textures.png",
]  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return features(tmp_path_factory.mktemp("data") / "features.npz")


def run(*arguments: object):
    return CliRunner().invoke(app, ["reproduce", "precision", *(str(each) for each in arguments)])


@pytest.fixture(scope="module")
def made(source, tmp_path_factory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("precision") / "run"
    result = run("--data", source, "--out", out, "--quick")
    assert result.exit_code == 0, result.output
    return out, result.stdout


# --- parts ---------------------------------------------------------------------------------------


def test_all_arithmetics_are_the_same_formula_where_nothing_is_lost():
    """Members that disagree a lot: all forms are near the values by mpmath, each to its type's digits."""
    logits = np.random.default_rng(0).normal(size=(5, 3, 4)).astype(np.float32)
    expected = reference.measures(logits=logits)
    for formula in FORMULAS:
        i, k = (part.double().numpy() for part in formula(torch.from_numpy(logits)))
        half = "16" in formula.dtype
        tolerance = 0.05 if half else 1e-5
        np.testing.assert_allclose(i, expected.average, atol=tolerance, err_msg=formula.name)
        np.testing.assert_allclose(k, expected.pairwise, atol=tolerance, err_msg=formula.name)


def test_the_usual_formulas_are_those_of_mpmath():
    """In float64, for one input, spelled out."""
    logits = np.random.default_rng(1).normal(size=(3, 1, 4))
    with mpmath.workdps(30):
        p = []
        for member in logits[:, 0]:
            raised = [mpmath.exp(z) for z in member]
            p.append([each / mpmath.fsum(raised) for each in raised])
        mean = [mpmath.fsum(member[c] for member in p) / 3 for c in range(4)]
        aleatoric = -mpmath.fsum(q * mpmath.log(q) for member in p for q in member) / 3
        i = -mpmath.fsum(q * mpmath.log(q) for q in mean) - aleatoric
        pairs = [-mpmath.fsum(a[c] * mpmath.log(b[c]) for c in range(4)) for a in p for b in p]
        k = mpmath.fsum(pairs) / 9 - aleatoric
    usual = {each.name: each for each in FORMULAS}["float64"]
    found = [float(part[0]) for part in usual(torch.from_numpy(logits))]
    assert found == pytest.approx([float(i), float(k)], rel=1e-12)


def test_one_draw_has_the_intervals_of_the_tasks():
    rng = np.random.default_rng(2)
    positive = np.arange(300) >= 200
    first = rng.normal(size=300) + positive
    second = first + rng.normal(size=300)
    places = [compute_placements(each[None], positive) for each in (first, second)]
    found = estimate_mean(places[0], positive)
    assert found.value == pytest.approx(float(detection(first[:200], first[200:]).auroc), rel=1e-12)
    difference = estimate_mean(places[0] - places[1], positive)
    paired = compare((first[:200], first[200:]), (second[:200], second[200:]), "detection").difference
    assert difference.value == pytest.approx(paired.value, rel=1e-12)
    # Student's quantile with 99 degrees of freedom and not the normal one: 1.984 / 1.960.
    assert difference.high - difference.low == pytest.approx((paired.high - paired.low) * 1.0124, rel=1e-3)


def test_intervals_over_draws_hold_the_value_of_all_draws():
    """Scores with noise of their own in each draw: 95 % of the intervals hold the mean over many."""
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(200):
        quality = rng.normal(size=160)
        positive = np.arange(160) >= 80
        shift = rng.normal(1.0, 0.3, size=(4, 1))  # a draw is good or bad for all inputs
        scores = quality + shift * positive + rng.normal(size=(4, 160))
        found = estimate_mean(compute_placements(scores, positive), positive)
        held += found.low <= 0.6903 <= found.high
    # E Phi(s / sqrt(4)) for s ~ N(1, 0.3^2) is 0.6903. 95 % of 200 is 190; a standard error is 3.
    assert held >= 181


def test_members_move_towards_their_centre(source):
    given = feature_file.read_features(source)
    test = torch.from_numpy(given.test)
    places = np.arange(len(test))
    for drawn, centre in (
        (members.perturb_weights(given, 4, 0), members.build_layer(given)(test)),
        (members.ScaledDropout(given, 4, 0), members.build_layer(given)(test)),
    ):
        whole, part = (drawn.scale(level)(test, places, torch.float64) for level in (1.0, 0.25))
        torch.testing.assert_close(part, centre + 0.25 * (whole - centre), rtol=1e-4, atol=1e-5)
        assert whole.shape == (4, len(test), 8) and whole.dtype == torch.float64


def test_dropout_as_it_is_is_that_of_the_last_layer(source):
    given = feature_file.read_features(source)
    test = torch.from_numpy(given.test)
    found = members.ScaledDropout(given, 5, 3).scale(1.0)(test, np.arange(len(test)), torch.float32)
    posterior = LastLayer(members.build_layer(given), dropout=members.DROPOUT_RATE, samples=5, seed=3)
    torch.testing.assert_close(found, torch.cat([chunk[0] for chunk in posterior.predict(test)]))


def test_fitted_images_are_none_of_the_test(source):
    given = feature_file.read_features(source)
    assert np.array_equal(np.bincount(given.fit_label), [3] * 8)
    assert np.array_equal(np.bincount(given.known_label), [3] * 8)
    assert not (given.fit[:, None] == given.known[None]).all(-1).any()


# --- the study -----------------------------------------------------------------------------------


def test_what_is_written(made):
    out, printed = made
    assert sorted(path.name for path in out.iterdir() if path.is_file() and path.name[0] != ".") == sorted(
        [*FILES, "timings.jsonl"]
    )
    assert [Path(line).name for line in printed.splitlines()[-len(FILES) :]] == FILES


def test_exact_curves_of_k_and_i_meet_where_members_agree_and_gaps_add_up(made):
    curves = read_columns(made[0] / "curves.csv")
    assert set(curves["posterior"]) == {"perturbed", "last-layer-ensemble", "mc-dropout", "csg-hmc"}
    near = (curves["level"] == 1e-3) & (curves["arithmetic"] == "exact")
    i, k = (curves["auroc"][near & (curves["measure"] == measure)] for measure in "IK")
    np.testing.assert_allclose(i, k, atol=0.01)
    assert np.all(curves["low"][near] <= curves["auroc"][near])
    assert not curves["below_zero"][curves["arithmetic"] == "exact"].any()
    gaps = read_columns(made[0] / "gaps.csv")
    np.testing.assert_allclose(gaps["gap"], gaps["mathematics"] + gaps["rounding"], atol=1e-12)
    exact = gaps["arithmetic"] == "exact"
    assert not gaps["rounding"][exact].any() and not gaps["rounding_high"][exact].any()


def test_the_section_says_what_the_tables_say(made, source, tmp_path):
    page = tmp_path / "results.md"
    result = run("--data", source, "--out", made[0], "--quick", "--docs", page)
    assert result.exit_code == 0, result.output
    text = page.read_text("utf-8")
    gaps = read_columns(made[0] / "gaps.csv")
    rows = np.flatnonzero((gaps["arithmetic"] == "float32") & (gaps["posterior"] == "csg-hmc"))
    for row in rows:
        said = f"{gaps['gap'][row]:+.4f} [{gaps['gap_low'][row]:.4f}, {gaps['gap_high'][row]:.4f}]"
        assert re.sub(r"[+-](?=0\.0000)", "", said) in text
    assert (tmp_path / "figures" / "results" / "precision-textures.png").read_bytes()[1:4] == b"PNG"
    # Everything was done before: nothing is done again.
    lines = [json.loads(line) for line in (made[0] / "timings.jsonl").read_text().splitlines()]
    assert len({line["key"] for line in lines}) == len(lines)


def test_the_plan_does_nothing(source, tmp_path):
    result = run("--data", source, "--out", tmp_path / "run", "--dry-run")
    assert result.exit_code == 0 and "14 of 14 to do" in result.stdout and "MB to go" in result.stdout
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtd": None}, "expected 'dtd', features of textures"),
        ({"val": np.ones((48, 5))}, "expected 'val' to be features of in-distribution images"),
        ({"fc_bias": np.full(8, np.nan)}, "expected finite numbers in 'fc_bias'"),
        ({"val_label": np.repeat(np.arange(1, 9), 6)}, "expected 'val_label' from 0 to 7"),
        ({"val_label": np.arange(8), "val": np.ones((8, 12))}, "more than 3 images of some class"),
    ],
)
def test_bad_data_is_told_before_the_start(source, tmp_path, change, message):
    found = dict(np.load(source)) | change
    np.savez(tmp_path / "bad.npz", **{key: value for key, value in found.items() if value is not None})
    result = run("--data", tmp_path / "bad.npz", "--out", tmp_path / "run")
    assert result.exit_code == 2 and message in result.stderr and result.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_missing_or_broken_file_is_told(tmp_path):
    result = run("--data", tmp_path, "--out", tmp_path / "run")
    assert result.exit_code == 2 and "got no such file" in result.stderr
    (tmp_path / "bad.npz").write_bytes(b"not a zip")
    result = run("--data", tmp_path / "bad.npz", "--out", tmp_path / "run")
    assert result.exit_code == 2 and "expected an .npz with val, " in result.stderr


@pytest.mark.slow
def test_killed_in_each_stage_it_comes_to_the_same_bytes(made, source, tmp_path):
    out = tmp_path / "run"
    command = [sys.executable, "-m", "demur.cli", "reproduce", "precision", "--data", str(source)]
    command += ["--out", str(out), "--quick"]
    for stage in (
        "score/perturbed/1",
        "fit/last-layer-ensemble/0",
        "fit/csg-hmc/0",
        "score/csg-hmc/1",
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
        assert (out / name).read_bytes() == (made[0] / name).read_bytes(), name
