"""Detectors as columns of Scores: one pass, any order, checkpoints, files, tables and the report."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import demur
from demur.cli import app
from demur.posteriors import LastLayer, MCDropout
from demur.posteriors.one_pass import (
    Detector,
    Energy,
    FeatureDensity,
    MaxLogit,
    NearestFeatures,
    SoftmaxEntropy,
)

from .made import check_direction, digits, train_network

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def made():
    """A network, training data, detectors fitted to it, and test and noise inputs."""
    x, y, noise = digits()
    model = train_network(x[:600], y[:600])
    train = [(x[:600], y[:600])]
    detectors = [
        Energy(model),
        FeatureDensity.fit(model, train),
        NearestFeatures.fit(model, train, k=10),
        MaxLogit(model),
        SoftmaxEntropy(model),
    ]
    return model, detectors, (x[600:], y[600:]), noise


def batches(x, y, size: int = 64):
    return [(x[i : i + size], y[i : i + size]) for i in range(0, len(x), size)]


@pytest.mark.parametrize("options", [{}, {"order": "member"}, {"tolerance": 0.1}], ids=str)
def test_columns_are_those_of_the_detectors_alone(made, options) -> None:
    model, detectors, (x, y), _ = made
    loader = batches(x, y)
    posterior = LastLayer(model, dropout=0.2, samples=70)
    scores = demur.score(posterior, loader, columns=detectors, progress=False, **options)
    assert list(scores.columns)[-5:] == [each.name for each in detectors]
    for each in detectors:
        np.testing.assert_array_equal(scores.columns[each.name], each.score(loader, progress=False))
    without = demur.score(posterior, loader, progress=False, **options)
    for name, values in without.columns.items():
        np.testing.assert_array_equal(scores.columns[name], values)


def test_the_network_runs_once_for_all(made) -> None:
    model, detectors, (x, y), _ = made
    runs = []
    hook = model.register_forward_hook(lambda *_: runs.append(1))
    try:
        posterior = LastLayer(model, dropout=0.2, samples=4)
        demur.score(posterior, batches(x, y, 100), columns=detectors, progress=False)
        assert len(runs) == -(-len(x) // 100)
        runs.clear()
        demur.score(
            MCDropout(add_dropout(model), samples=4), batches(x, y, 100), columns=detectors, progress=False
        )
        assert len(runs) == -(-len(x) // 100)  # MC dropout runs another network
    finally:
        hook.remove()


def add_dropout(model):
    return torch.nn.Sequential(model[0], torch.nn.Dropout(0.2), model[1:])


class Stop(Exception):
    pass


@pytest.mark.parametrize("order", ["batch", "member"])
def test_an_interrupted_run_resumes_to_the_same_columns(made, order, tmp_path) -> None:
    model, detectors, (x, y), _ = made
    posterior = MCDropout(add_dropout(model), samples=3)
    whole = demur.score(posterior, batches(x, y), columns=detectors, order=order, progress=False)

    class Breaking(list):
        passes = 0

        def __iter__(self):
            self.passes += 1
            for k, batch in enumerate(super().__iter__()):
                if (order == "batch" and k == 3) or (order == "member" and self.passes == 2):
                    raise Stop
                yield batch

    options = {
        "columns": detectors,
        "order": order,
        "checkpoint": tmp_path / "run",
        "every": 0,
        "progress": False,
    }
    with pytest.raises(Stop):
        demur.score(posterior, Breaking(batches(x, y)), **options)
    assert (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="other settings: columns"):
        demur.score(posterior, batches(x, y), **options | {"columns": detectors[:2]})
    resumed = demur.score(posterior, batches(x, y), **options)
    for name, values in whole.columns.items():
        np.testing.assert_array_equal(resumed.columns[name], values)


def test_each_is_higher_out_of_distribution(made) -> None:
    _, detectors, (x, _), noise = made
    for each in detectors:
        check_direction(each.score([x]), each.score([noise]), 0.6)


def test_bad_columns(made) -> None:
    model, _, (x, _), _ = made
    posterior = MCDropout(add_dropout(model), samples=2)
    with pytest.raises(TypeError, match="columns must be a list of detectors"):
        demur.score(posterior, [x], columns=[np.zeros(3)])
    with pytest.raises(ValueError, match=r"names of their own\. Got 'energy' twice"):
        demur.score(posterior, [x], columns=[Energy(model), Energy(model, temperature=2)])

    class Wrong(Detector):
        name = "wrong"

        def score_batch(self, batch):
            return np.zeros((len(batch), 2))

    with pytest.raises(
        ValueError, match=r"wrong: expected a number for each of 10 inputs. Got float64 of shape"
    ):
        demur.score(posterior, [x[:10]], columns=[Wrong()])
    Wrong.name = "pairwise_total"
    with pytest.raises(ValueError, match="names of their own"):
        demur.score(posterior, [x[:10]], columns=[Wrong()])


def test_they_stand_in_files_evaluations_deferral_and_the_report(made, tmp_path) -> None:
    """Higher is less certain everywhere: a column with the wrong sign would come out below 0.5."""
    model, detectors, (x, y), noise = made
    posterior = MCDropout(add_dropout(model), samples=5)
    folder = tmp_path / "run" / "network"
    folder.mkdir(parents=True)
    known = demur.score(posterior, batches(x, y), columns=detectors, progress=False)
    known.save(folder / "id.csv")
    demur.score(posterior, [noise], columns=detectors, progress=False).save(folder / "ood-noise.csv")
    back = demur.Scores.load(folder / "id.csv")
    np.testing.assert_allclose(back.columns["feature_density"], known.columns["feature_density"])
    arguments = ["--id", str(folder / "id.csv"), "--ood", str(folder / "ood-noise.csv"), "--json"]
    for each in detectors:
        done = CliRunner().invoke(app, ["evaluate", "ood", *arguments, "--score", each.name])
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        assert each.name in done.stdout
        assert found["auroc"]["value"] > 0.6, found
    policy = demur.Deferral.fit(known.columns["nearest_features"], known.correct, coverage=0.8)
    assert policy.defer(noise_scores := detectors[2].score([noise])).mean() > 0.5, noise_scores
    done = CliRunner().invoke(app, ["report", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    page = next((tmp_path / "run").glob("*.html")).read_text()
    for name in ("feature density", "nearest features", "free energy", "largest logit", "entropy of one"):
        assert name in page, name
