"""The inference study: its parts against slow references, controls that must fail, and a small run."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm, spearmanr, ttest_1samp
from typer.testing import CliRunner

import demur
from demur.cli import app
from demur.stores import read_columns

torch = pytest.importorskip("torch")
pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")

from demur.reproduce.studies.inference import (  # noqa: E402
    config,
    fidelity,
    methods,
    networks,
    predictions,
    problems,
    section,
    study,
    tables,
)

FILES = [
    "diabetes.tex", "digits.tex", "figures.csv", "k.pdf", "k.png", "k.txt", "section.md", "seeds.csv",
]  # fmt: skip


def run(*arguments: object):
    return CliRunner().invoke(app, ["reproduce", "inference", *(str(each) for each in arguments)])


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("inference") / "run"
    result = run("--out", out, "--quick")
    assert result.exit_code == 0, result.output
    return out


# --- figures of merit ----------------------------------------------------------------------------


def make_logits(members: int = 20, inputs: int = 40, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(1, inputs, 3)) + rng.normal(size=(members, inputs, 3)) * rng.uniform(
        0.2, 2, (1, inputs, 1)
    )


def test_figures_of_classes_are_those_of_loops():
    a, b = make_logits(), make_logits(seed=1)
    own, reference = (predictions.summarise_members(each, None, None) for each in (a, b))
    found = fidelity.compare_predictions(own, reference, None)
    gaps, same, near = [], [], []
    for k in range(a.shape[1]):
        probs = [np.mean([np.exp(m[k]) / np.exp(m[k]).sum() for m in each], axis=0) for each in (a, b)]
        gaps.append(0.5 * sum(abs(probs[0][c] - probs[1][c]) for c in range(3)))
        same.append(probs[0].argmax() == probs[1].argmax())
        near.append(0.5 <= own["k"][k] / reference["k"][k] <= 2)
    assert found["tv"] == pytest.approx(np.mean(gaps), rel=1e-12)
    assert found["agreement"] == np.mean(same) and found["k|within"] == np.mean(near)
    for part, measure in predictions.MEASURES.items():
        expected = [demur.decompose(logits=each, measure=measure, unbiased=True).epistemic for each in (a, b)]
        assert found[f"{part}|ratio"] == pytest.approx(expected[0].mean() / expected[1].mean(), rel=1e-9)
        assert found[f"{part}|spearman"] == pytest.approx(spearmanr(*expected).statistic)


def test_mixtures_of_numbers_are_compared_by_their_densities():
    rng, noise = np.random.default_rng(0), 0.4
    weights = rng.uniform(0.5, 2, 5)
    own, reference = (
        {"means": rng.normal(size=(5, 3)), "weights": weights},
        {"means": rng.normal(size=(7, 3))},
    )
    found = fidelity.measure_mixture_distances(own, reference, noise)
    for k in range(3):

        def gap(y: float, k: int = k) -> float:
            left = np.average(norm.pdf(y, own["means"][:, k], noise), weights=weights)
            return abs(left - norm.pdf(y, reference["means"][:, k], noise).mean()) / 2

        assert found[k] == pytest.approx(quad(gap, -6, 6, limit=500)[0], abs=2e-4)
    far = {"means": own["means"] + 100}
    np.testing.assert_allclose(fidelity.measure_mixture_distances(own, far, noise), 1, rtol=1e-3)


def test_k_of_numbers_with_one_noise_is_the_variance_of_the_means():
    """K = E (f_i - f_j)^2 / (2 s^2) over pairs of different members."""
    means = np.random.default_rng(0).normal(size=(6, 4, 1))
    found = predictions.summarise_members(means, None, 0.5)
    np.testing.assert_allclose(found["k"], means[..., 0].var(axis=0, ddof=1) / 0.25, rtol=1e-10)
    loss = fidelity.judge_average(found, np.zeros(4), 0.5)
    density = norm.pdf(0, means[..., 0], 0.5).mean(axis=0)
    assert loss["nll"] == pytest.approx(-np.log(density).mean(), rel=1e-12)


def test_weights_of_members_count_for_each_input():
    logits = make_logits(4, 6)
    weights = np.random.default_rng(2).uniform(0.5, 2, (4, 6))
    found = predictions.summarise_members(logits, weights, None)
    probs = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    for k in range(6):
        np.testing.assert_allclose(
            found["average"][k], np.average(probs[:, k], axis=0, weights=weights[:, k])
        )


def test_a_wrong_k_is_flagged():
    """Controls: K scaled by 3 keeps its order and loses its value; shuffled, the other way round."""
    logits = make_logits(30, 200)
    reference = predictions.summarise_members(logits, None, None)
    rng = np.random.default_rng(0)

    def judge(k: np.ndarray) -> str:
        found = fidelity.compare_predictions(reference | {"k": k}, reference, None)
        row = {"mean": found["k|ratio"]}, {"mean": found["k|spearman"]}
        return section.judge_method([row, row])

    assert judge(reference["k"]) == "value and order"
    assert judge(3 * reference["k"]) == "order only"
    assert judge(rng.permutation(reference["k"])) == "value only"
    assert judge(9 * rng.permutation(reference["k"])) == "neither"
    score = fidelity.compare_predictions({"score": np.log(reference["k"])}, reference, None)
    assert score == {"k|spearman": 1.0}
    assert section.judge_method([(None, {"mean": 1.0})]) == "order only"


def test_one_network_has_no_order():
    """K of a single member is 0 for all inputs: a ratio of 0, and no rank correlation."""
    reference = predictions.summarise_members(make_logits(), None, None)
    one = predictions.summarise_members(make_logits()[:1], None, None)
    found = fidelity.compare_predictions(one, reference, None)
    assert found["k|ratio"] == 0 and np.isnan(found["k|spearman"])
    assert tables.average_values(np.zeros(3), "k|ratio") == (0, 0, 0)


# --- intervals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figure", "there", "back"),
    [("tv", np.asarray, float), ("k|ratio", np.log, np.exp), ("k|spearman", np.arctanh, np.tanh)],
)
def test_intervals_over_seeds_are_students_on_the_scale_of_the_figure(figure, there, back):
    values = np.array([0.3, 0.5, 0.45, 0.6])
    mean, low, high = tables.average_values(values, figure)
    expected = ttest_1samp(there(values), 0).confidence_interval(0.95)
    assert (low, high) == pytest.approx((back(expected.low), back(expected.high)), rel=1e-9)
    assert mean == pytest.approx(back(there(values).mean()))


# --- problems, networks and methods --------------------------------------------------------------


def test_rows_out_of_the_distribution_lie_beyond_all_others():
    source = problems.read_source({"kind": "diabetes"}, None)
    first, second = source.draw(0), source.draw(1)
    assert not np.array_equal(first.x, second.x)
    assert [len(first.x), *map(len, first.sets.values())] == list(source.sizes)
    both = np.concatenate([first.x, first.sets["in"]])
    direction = np.linalg.svd(both - both.mean(0), full_matrices=False)[2][0]
    far = np.abs(first.sets["out"] @ direction).min()
    assert far > np.quantile(np.abs(both @ direction), 0.7)
    np.testing.assert_allclose(first.x.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose([first.y.mean(), first.y.std()], [0, 1], atol=1e-12)


@pytest.fixture(scope="module")
def small() -> networks.Task:
    source = problems.read_source({"kind": "digits", "train": 80, "test": 20, "features": 5}, None)
    task = networks.Task(source.draw(0), networks.Design(hidden=4, steps=400), 0)
    network = task.make_network(0)
    networks.train_network(task, network, 0)
    return networks.Task(task.problem, task.design, 0, None, network.state_dict())


def test_training_ends_near_the_maximum_of_the_posterior_that_hmc_samples(small):
    from demur.posteriors.chains.log_posterior import LogPosterior

    network = small.make_trained()
    density = LogPosterior(network, small.data, 1000, prior_scale=small.design.prior_scale)
    energy, _ = density(density.start)
    optimizer = torch.optim.LBFGS(network.parameters(), max_iter=300, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(small.data[0]), small.data[1], reduction="sum")
        loss = loss + sum((p**2).sum() for p in network.parameters()) / (2 * small.design.prior_scale**2)
        loss.backward()
        return loss

    optimizer.step(closure)
    best, gradient = density(torch.cat([p.detach().flatten() for p in network.parameters()]))
    assert float(gradient.norm()) < 0.1
    start, _ = density(torch.cat([p.detach().flatten() for p in small.make_network(0).parameters()]))
    assert energy - best < 0.02 * (start - best)


QUICK_SETTINGS = {
    "hmc": {"chains": 2, "samples": 8, "burn_in": 2}, "sghmc": {"samples": 4, "steps": 20},
    "csg-hmc": {"samples": 5, "steps": 50}, "sgld": {"samples": 4, "steps": 20},
    "deep-ensemble": {"members": 2},
    "multi-swag": {"swags": 2, "samples": 3, "epochs": 3}, "swag": {"samples": 4, "epochs": 3},
    "bayes-by-backprop": {"samples": 4, "steps": 6}, "quam": {"steps": 10}, "last-layers": {"epochs": 2},
}  # fmt: skip


QUICK_ENOUGH = ("hmc", "deep-ensemble", "swag", "laplace-full", "quam")


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[pytest.mark.slow] * (each not in QUICK_ENOUGH)) for each in methods.METHODS],
)
def test_every_method_of_the_table_fits_and_its_seed_fixes_it(small, name):
    design = networks.Design(hidden=4, steps=5)
    task = networks.Task(small.problem, design, 0, None, small.trained)
    inputs = small.problem.sets["in"]
    fits = [methods.METHODS[name].fit(task, **QUICK_SETTINGS.get(name, {})) for _ in range(2)]
    kept = [each.summarise(inputs, None) for each in fits]
    for key, values in kept[0].items():
        assert len(values) == len(inputs) and np.isfinite(values).all()
        np.testing.assert_array_equal(values, kept[1][key])
    assert fits[0].passes >= 0 and (fits[0].passes > 0 or methods.METHODS[name].uses_trained)


@pytest.mark.parametrize("name", [name for name, each in methods.METHODS.items() if not each.classes_only])
def test_methods_for_numbers_share_the_noise(name):
    source = problems.read_source({"kind": "diabetes", "train": 50}, None)
    task = networks.Task(source.draw(0), networks.Design(hidden=4, steps=5), 0, 0.7)
    network = task.make_network(0)
    networks.train_network(task, network, 0)
    task = networks.Task(task.problem, task.design, 0, 0.7, network.state_dict())
    fitted = methods.METHODS[name].fit(task, **QUICK_SETTINGS.get(name, {}))
    kept = fitted.summarise(task.problem.sets["out"], 0.7)
    if "score" not in kept:
        np.testing.assert_allclose(kept["aleatoric"], np.log(0.7 * np.sqrt(2 * np.pi * np.e)), rtol=1e-9)


# --- the study -----------------------------------------------------------------------------------


def test_what_is_written(made):
    found = sorted(path.name for path in made.iterdir() if path.is_file() and path.name[0] != ".")
    assert found == sorted([*FILES, "timings.jsonl"])
    rows = tables.index_figures(tables.average_seeds(read_columns(made / "seeds.csv")))
    floor = rows["digits", tables.FLOOR, "in", "k|spearman"]
    assert -1 <= floor["low"] <= floor["mean"] <= floor["high"] <= 1 and floor["seeds"] == 2
    assert ("diabetes", "last-layers", "in", "tv") not in rows  # classes only
    assert ("digits", "last-layers", "out", "tv") in rows


def test_the_floor_is_one_half_of_the_chains_against_the_other(made):
    for path in sorted((made / "stages").glob("fit--digits--hmc--0-*/kept.npz")):
        kept = study.read_kept(path)
        found = fidelity.compare_predictions(kept["half-0|in"], kept["half-1|in"], None)
        rows = read_columns(made / "seeds.csv")
        own = (rows["problem"] == "digits") & (rows["seed"] == 0) & (rows["method"] == tables.FLOOR)
        own &= (rows["set"] == "in") & (rows["figure"] == "k|ratio")
        assert rows["value"][own] == pytest.approx([found["k|ratio"]])
        whole = (kept["half-0|in"]["average"] + kept["half-1|in"]["average"]) / 2
        np.testing.assert_allclose(whole, kept["in"]["average"], rtol=1e-9)


def test_interrupted_and_resumed_it_comes_to_the_same_files(made, tmp_path):
    """A fit and a comparison are lost, and made again: the same figures, but for seconds."""
    out = tmp_path / "run"
    shutil.copytree(made, out)
    for lost in ("fit--digits--sghmc--1-*", "compare--digits--1-*", "results-*"):
        for path in sorted((out / "stages").glob(lost)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    partial = next((made / "stages").glob("fit--digits--sghmc--1-*/"))
    (out / "stages" / f"{partial.name}.partial").mkdir()
    result = run("--out", out, "--quick")
    assert result.exit_code == 0, result.output
    assert "fit/digits/sghmc/1, resumed" in result.stderr and "fit/digits/hmc/1" not in result.stderr
    for name in FILES:
        if name not in ("section.md", "seeds.csv", "figures.csv"):  # they have seconds
            assert (out / name).read_bytes() == (made / name).read_bytes(), name
    before, after = (read_columns(each / "seeds.csv") for each in (made, out))
    timed = np.array([str(each).endswith(("seconds", "per_1000")) for each in before["figure"]])
    np.testing.assert_array_equal(before["value"][~timed], after["value"][~timed])


def test_the_section_says_what_the_tables_say(made, tmp_path):
    page = tmp_path / "results.md"
    result = run("--out", made, "--quick", "--docs", page)
    assert result.exit_code == 0, result.output
    text, rows = page.read_text("utf-8"), read_columns(made / "figures.csv")
    own = (rows["figure"] == "k|ratio") & (rows["mean"] >= 0.1)
    for k in np.flatnonzero(own):
        assert f"{rows['mean'][k]:.2f} [{rows['low'][k]:.2f}, {rows['high'][k]:.2f}]" in text
    assert "demur reproduce inference --quick --out DIR" in text
    assert (tmp_path / "figures" / "results" / "inference-k.png").exists()


@pytest.mark.parametrize("name", config.list_configs())
def test_configurations_that_come_with_demur_are_right(name):
    found = config.read_config(name)
    assert set(found.methods) <= set(methods.METHODS) and found.seeds >= 2
    if name != "quick":
        assert set(found.methods) == set(methods.METHODS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[problems.a]\nkind = 'rocks'\n[methods.hmc]", "kind: expected one of images, rows"),
        ("[problems.a]\nkind = 'rows'\n[methods.hmc]", "expected file, found none"),
        ("[problems.a]\nkind = 'digits'\n[methods.sgld]", "expected [methods.hmc]"),
        ("[problems.a]\nkind = 'digits'\n[methods.hmc]\nspeed = 1", "expected one of burn_in, chains"),
        ("[problems.a]\nkind = 'digits'\n[methods.magic]", "got 'magic'"),
        ("seeds = 1\n[problems.a]\nkind = 'digits'\n[methods.hmc]", "seeds must be at least 2"),
        ("[problems.a]\nkind = 'rows'\nfile = 'a.npz'\n[methods.hmc]", "give --data"),
        ("[problems.a]\nkind = 'digits'\ntrain = 5000\n[methods.hmc]", "training and"),
    ],
)
def test_bad_settings_are_told_before_the_start(tmp_path, text, message):
    path = tmp_path / "own.toml"
    path.write_text(text)
    result = run("--out", tmp_path / "run", "--config", path)
    assert result.exit_code == 2 and message in result.stderr and result.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_the_plan_does_nothing(tmp_path):
    result = run("--out", tmp_path / "run", "--dry-run")
    assert result.exit_code == 0 and "compare" in result.stdout
    assert not (tmp_path / "run").exists()
    assert json.loads(json.dumps(config.read_config("quick").methods)) == config.read_config("quick").methods
