"""The tables' pipeline from nothing: every source of inputs, every method, and a kill in every stage."""

import gzip
import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import demur
from demur.cli import app
from demur.reproduce.runner import run_study
from demur.reproduce.studies.paper_tables import TablesPipeline, list_configs, read_config
from demur.reproduce.studies.paper_tables.evaluation import list_tasks
from demur.reproduce.studies.paper_tables.section import compose_section
from demur.reproduce.studies.paper_tables.trained_networks import build_network
from demur.stores import read_columns

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
Image = pytest.importorskip("PIL.Image")

METHODS = """
[methods.chain]
kind = "cyclical-sghmc"
samples = 12
cycles = 2
steps = 60
batch_size = 50
step_size = 0.1
exploration = 0.5
discard = 0.2

[methods.laplace]
kind = "laplace"
samples = 8

[methods.swag]
kind = "swag"
samples = 8
epochs = 4

[methods.dropout]
kind = "dropout"
paper = "MCD"
rate = 0.2
samples = 30

[methods.heads]
kind = "last-layers"
members = 4
epochs = 3
"""

COMPARED = """
[methods.quam]
kind = "quam"
layers = ["3"]
targets = 2
steps = 4
keep_every = 2
batch_size = 50
loss_inputs = 100
temperature = 1e-2
inputs = 30
sets = ["id", "adversarial-pgd"]
whole_train = true

[methods.once]
kind = "one-pass"
scores = ["feature_density", "nearest_features", "energy", "max_logit", "softmax_entropy"]
covariance = "shared"
k = 5
"""

TRAINED = """
[methods.sngp]
kind = "one-pass-network"
method = "sngp"
epochs = 5
batch = 50
rate = 0.02
features = 32
samples = 7

[methods.duq]
kind = "one-pass-network"
method = "duq"
epochs = 5
batch = 50
rate = 0.02
size = 8
length_scale = 0.5
penalty = 0.05

[methods.due]
kind = "one-pass-network"
method = "due"
epochs = 2
batch = 50
optimizer = "adam"
rate = 0.02
inducing = 8
draws = 4
samples = 9
"""

NETWORKS = f"""
title = "Digits"
reference = "dropout"
[network]
make = "small_digits:network"
members = 2
scale = 16
training = {{ epochs = 2, batch = 50, rate = 1e-2 }}
[sets.train]
idx = "train-images.gz"
labels = "train-labels.gz"
[sets.id]
npz = "known.npz"
key = "images"
labels = "labels"
[sets.ood-held-out]
npz = "strange.npz"
key = "images"
called = "8 and 9"
paper = "ImageNet-O"
[sets.adversarial-pgd]
attack = "pgd"
radius = 0.1
steps = 3
[sets.adversarial-hard]
of = "id"
mask = "known.npz"
mask_key = "hard"
stand_in_for = "ImageNet-A"
[people]
file = "known.npz"
counts = "votes"
[methods.ensemble]
kind = "ensemble"
{METHODS}
{COMPARED}
{TRAINED}
"""

FEATURES = f"""
title = "Digits, as features"
reference = "heads"
[network]
features = "features.npz"
weight = "weight"
bias = "bias"
[sets.train]
key = "known"
labels = "labels"
modulo = 3
remainders = [0]
[sets.id]
key = "known"
labels = "labels"
modulo = 3
remainders = [1, 2]
[sets.ood-held-out]
key = "strange"
{METHODS}
[methods.quam]
kind = "quam"
targets = 2
steps = 4
keep_every = 2
batch_size = 50
inputs = 25
{TRAINED}
"""


IMAGES = """
title = "Digits, as pictures"
[network]
models = ["small_digits:pictured", "small_digits:pictured_again"]
[sets.id]
images = "known"
labels = "name"
each = 2
[sets.train]
images = "known"
labels = "name"
without = "id"
[sets.ood-held-out]
images = "strange"
[sets.adversarial-hard]
of = "id"
mask = "masks.npz"
mask_key = "hard"
[methods.heads]
kind = "last-layers"
members = 3
epochs = 2
[methods.ensemble]
kind = "ensemble"
"""


MODULE = """
import numpy as np
import torch
from torch import nn


def network():
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 8))


def prepared(picture):
    small = np.asarray(picture.convert("RGB").resize((8, 8)), np.float32)
    return torch.from_numpy(small / 240).permute(2, 0, 1)


def pictured(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, 8)), prepared


def pictured_again():
    return pictured(1)
"""


def idx(path: Path, values: np.ndarray) -> None:
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    path.write_bytes(gzip.compress(header + values.astype(np.uint8).tobytes()))


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Digits of scikit-learn in the formats that are read, 8 and 9 apart."""
    from sklearn.datasets import load_digits

    place = tmp_path_factory.mktemp("data")
    images, digits = load_digits(return_X_y=True)
    known, rng = digits < 8, np.random.default_rng(0)
    x, y, strange = images[known], digits[known], images[~known]
    idx(place / "train-images.gz", x[:300])
    idx(place / "train-labels.gz", y[:300])
    test = slice(300, 700)
    votes = np.eye(8)[y[test]] * 5 + rng.integers(0, 3, (400, 8))
    hard = rng.uniform(size=400) < 0.3
    np.savez(place / "known.npz", images=x[test].astype(np.uint8), labels=y[test], votes=votes, hard=hard)
    np.savez(place / "strange.npz", images=strange[:150].astype(np.uint8))
    weight = rng.normal(0, 0.3, (8, 64)).astype(np.float32)
    scaled = {"known": (x / 16).astype(np.float16), "strange": (strange / 16).astype(np.float16)}
    layer = {"weight": np.asfortranarray(weight), "bias": rng.normal(size=8).astype(np.float32)}
    np.savez(place / "features.npz", labels=y, **layer, **scaled)
    (place / "networks.toml").write_text(NETWORKS)
    (place / "features.toml").write_text(FEATURES)
    (place / "images.toml").write_text(IMAGES.replace("each = 2", "each = 2\ntake = 60"))
    for name, some, labels in (("known", x[:90], y), ("strange", strange[:40], [8] * 40)):
        (place / name).mkdir()
        for k, picture in enumerate(some):
            grey = Image.fromarray((picture.reshape(8, 8) * 15).astype(np.uint8))
            grey.save(place / name / f"{labels[k]:03}_{k:05}.png")
    np.savez(place / "masks.npz", hard=np.arange(180) % 4 == 0)
    (place / "small_digits.py").write_text(MODULE)
    return place


@pytest.fixture(scope="module", autouse=True)
def importable(data):
    sys.path.insert(0, str(data))
    yield
    sys.path.remove(str(data))


@pytest.fixture(scope="module", autouse=True)
def formulas():
    """Intervals by formulas, as of many inputs: resampling takes half the time of a run."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("demur.tasks.estimate.RESAMPLED_UP_TO", 0)
        yield


def pipeline(data: Path, out: Path, name: str) -> TablesPipeline:
    return TablesPipeline(read_config(str(data / f"{name}.toml")), data, out, command="demur reproduce ...")


@pytest.fixture(scope="module")
def done(data, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "networks"
    run_study(pipeline(data, out, "networks").describe())
    return out


def results(out: Path) -> dict[str, bytes]:
    """All files that are results, with their bytes; timings are none."""
    left = ("timings.jsonl", ".lock")
    found = sorted(path for path in out.rglob("*") if path.is_file() and path.name not in left)
    return {str(path.relative_to(out)): path.read_bytes() for path in found}


def test_every_method_scores_every_set(done):
    sets = {"id": 400, "ood-held-out": 150, "adversarial-pgd": 400}
    for method, members in {"ensemble": 2, "chain": 12, "dropout": 30, "heads": 4}.items():
        for name, size in sets.items():
            columns = read_columns(done / method / f"{name}.npz")
            assert len(columns["pairwise_epistemic"]) == size, (method, members)
            assert (columns["pairwise_epistemic"] > 0).all()
            np.testing.assert_allclose(
                columns["pairwise_epistemic"],
                columns["average_epistemic"] + columns["reverse_epistemic"],
                rtol=1e-5,
            )
    assert (done / "report.html").stat().st_size > 10_000
    assert (done / "adversarial-hard" / "report.html").exists()


def test_the_ensemble_is_that_of_its_networks(done, data):
    found = pipeline(data, done, "networks")
    logits = np.stack(
        [np.load(found.stages.complete(found.encoding.plan_encoding(k, "id")) / "logits.npy") for k in (0, 1)]
    )
    images = np.load(data / "known.npz")["images"].astype(np.float32) / 16
    for k in (0, 1):
        with torch.no_grad():
            direct = found.encoding.read_network(k)(torch.from_numpy(images)).numpy()
        np.testing.assert_allclose(logits[k], direct, rtol=1e-4, atol=1e-5)
    columns = read_columns(found.stages.complete(found.scoring.plan_scores("ensemble")) / "id.npz")
    expected = demur.decompose(logits=logits)
    np.testing.assert_allclose(columns["pairwise_epistemic"], expected.epistemic, rtol=1e-6)
    given = torch.softmax(torch.from_numpy(logits[0]).double(), -1).numpy()
    cell = demur.decompose(logits=logits, measure=demur.Measure(given, "each"))
    np.testing.assert_allclose(columns["A3_epistemic"], cell.epistemic, rtol=1e-4, atol=1e-7)


def test_what_is_in_the_tables(done):
    for name, sections in (("table1", ["8 and 9", "pgd", "hard"]), ("table2", ["errors", "kept"])):
        text = (done / f"{name}.md").read_text()
        assert all(section in text for section in sections)
        assert all(method in text for method in ("ensemble", "chain", "laplace", "swag", "dropout", "heads"))
        assert "tabular" in (done / f"{name}.tex").read_text()
    assert "stand-in for ImageNet-A" in (done / "table1.md").read_text()
    header, *rows = (done / "people.csv").read_text().splitlines()
    assert header == "method,rule,inputs,correlation,low,high"
    assert len(rows) == 6 * 4
    cells = (done / "table1-cells.csv").read_text()
    assert all(f",{cell}," in cells for cell in ("A2", "A3", "B1", "C1", "pairwise", "average", "reverse"))
    assert ",A1,epistemic" not in cells  # nothing to rank by


def test_the_figures_of_a_table_are_those_of_the_tasks(done, data):
    found = pipeline(data, done, "networks")
    task = found.tasks["table1"][0]
    columns = {
        name: read_columns(done / "dropout" / f"{name}.npz")["pairwise_epistemic"]
        for name in ("id", "ood-held-out")
    }
    areas = [
        demur.tasks.detection(columns["id"][rows], columns["ood-held-out"]).auroc.value for rows in task.known
    ]
    line = next(
        line for line in (done / "table1-figures.csv").read_text().splitlines()
        if line.startswith("8 and 9,dropout,pairwise_epistemic,auroc")
    )  # fmt: skip
    *_, mean, spread = line.split(",")
    assert float(mean) == pytest.approx(np.mean(areas), abs=1e-12)
    assert float(spread) == pytest.approx(np.std(areas, ddof=1), abs=1e-12)


def read_comparison(out: Path) -> dict[tuple[str, ...], dict[str, str]]:
    """The rows of methods.csv by task, method, score and what it is compared with."""
    header, *lines = (out / "methods.csv").read_text().splitlines()
    rows = [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]
    return {tuple(row[name] for name in ("task", "method", "score", "against")): row for row in rows}


def test_methods_are_compared_on_the_inputs_that_both_scored(done, data):
    found, rows = pipeline(data, done, "networks"), read_comparison(done)
    folders = {
        each: found.stages.complete(found.scoring.plan_scores(each)) for each in ("quam", "once", "dropout")
    }
    known, attacked = (read_columns(folders["quam"] / f"{name}.npz") for name in ("id", "adversarial-pgd"))
    assert len(known["input"]) == len(attacked["input"]) == 30
    assert not (folders["quam"] / "ood-held-out.npz").exists()
    task = found.tasks["table1"][1]
    used = np.isin(known["input"], np.concatenate(task.known))
    row = rows[task.name, "quam", "A3_epistemic", "A3_epistemic"]
    assert (row["known"], row["positive"]) == (str(used.sum()), "30")
    assert (task.name, "quam", "A3_epistemic", "pairwise_epistemic") in rows
    theirs = [read_columns(folders["dropout"] / f"{name}.npz") for name in ("id", "adversarial-pgd")]
    pairs = [
        (known["A3_epistemic"][used], attacked["A3_epistemic"]),
        tuple(
            each["A3_epistemic"][own["input"]]
            for each, own in zip(theirs, ({"input": known["input"][used]}, attacked), strict=True)
        ),
    ]
    own = [demur.tasks.detection(*pair, interval="asymptotic").auroc for pair in pairs]
    assert float(row["value"]) == pytest.approx(own[0].value, abs=1e-12)
    assert float(row["reference"]) == pytest.approx(own[1].value, abs=1e-12)
    expected = demur.tasks.compare(*pairs, "detection")
    assert float(row["p_value"]) == pytest.approx(expected.p_value, abs=1e-12)
    assert float(row["difference_low"]) == pytest.approx(expected.difference.low, abs=1e-12)
    family = [float(each["p_value"]) for key, each in rows.items() if key[0] == task.name]
    assert float(row["adjusted"]) >= float(row["p_value"])
    assert float(row["adjusted"]) <= len(family) * float(row["p_value"]) + 1e-12
    # Scores of one pass are compared with K, on all inputs.
    assert rows[task.name, "once", "nearest_features", "pairwise_epistemic"]["positive"] == "400"
    # Errors are those of the first network; those of another ensemble would not be.
    row = rows["errors", "once", "max_logit", "pairwise_epistemic"]
    columns = read_columns(folders["once"] / "id.npz")
    wrong = (columns["deployed"] != columns["label"])[np.concatenate(found.tasks["table2"][0].known)]
    assert int(row["positive"]) == wrong.sum()
    # Of 30 inputs, those of one kind are fewer than 20.
    assert not any(key[:2] == ("errors", "quam") for key in rows)


def test_quam_searches_the_network_and_its_whole_training_data(done, data):
    from demur.posteriors import QUAM

    found = pipeline(data, done, "networks")
    columns = read_columns(found.stages.complete(found.scoring.plan_scores("quam")) / "adversarial-pgd.npz")
    images = torch.from_numpy(found.encoding.read_network_inputs("adversarial-pgd"))
    clean = found.inputs.read_inputs("id")
    assert np.abs(images.numpy() - clean).max() == pytest.approx(0.1, rel=1e-3)
    train = torch.from_numpy(found.inputs.read_inputs("train")), found.inputs.read_labels("train")
    options = {"layers": ["3"], "targets": 2, "steps": 4, "keep_every": 2, "batch_size": 50}
    posterior = QUAM(found.encoding.read_network(0), train, loss_inputs=100, temperature=1e-2, **options)
    expected = demur.score(posterior, [images[columns["input"][:3]]], progress=False)
    np.testing.assert_allclose(columns["A3_epistemic"][:3], expected["A3"].epistemic, rtol=1e-4)


def test_methods_of_one_pass_train_the_network_on_the_images_of_the_study(done, data):
    from demur.posteriors.one_pass import DUQ, NetworkTraining

    found, rows = pipeline(data, done, "networks"), read_comparison(done)
    images, labels = (getattr(found.inputs, f"read_{each}")("train") for each in ("inputs", "labels"))
    extractor = build_network("small_digits:network", 0, 0)
    extractor[3] = torch.nn.Identity()
    training = NetworkTraining(epochs=5, batch=50, rate=0.02)
    expected = DUQ.fit(
        extractor, (torch.from_numpy(images), labels), classes=8, training=training, size=8,
        length_scale=0.5, penalty=0.05, progress=False,
    )  # fmt: skip
    for name, size in {"id": 400, "ood-held-out": 150, "adversarial-pgd": 400}.items():
        inputs = torch.from_numpy(found.encoding.read_network_inputs(name))
        for method, score in (("sngp", "sngp"), ("due", "due"), ("duq", "duq")):
            columns = read_columns(found.stages.complete(found.scoring.plan_scores(method)) / f"{name}.npz")
            assert len(columns[score]) == size
            assert ("pairwise_epistemic" in columns) == (method != "duq")
        # The last one is DUQ's.
        np.testing.assert_allclose(columns["duq"], expected.score([inputs], progress=False), rtol=1e-4)
        np.testing.assert_array_equal(columns["deployed"], expected.classify(inputs))
    # Each has its score, and its own K where it has members; its errors are not those of the reference.
    task = found.tasks["table1"][0].name
    judged = {key[1:] for key in rows if key[1] in ("sngp", "duq", "due")}
    scores = {("sngp", "sngp"), ("due", "due"), ("duq", "duq")}
    scores |= {(method, "pairwise_epistemic") for method in ("sngp", "due")}
    assert judged == {(*each, "pairwise_epistemic") for each in scores}
    assert rows[task, "duq", "duq", "pairwise_epistemic"]["positive"] == "150"
    assert not any(key[0] == "errors" and key[1] == "duq" for key in rows)
    accuracy = read_columns(done / "networks.csv")
    assert accuracy["method"].tolist() == ["sngp", "duq", "due"]
    assert accuracy["accuracy"][1] == np.mean(
        expected.classify(torch.from_numpy(found.inputs.read_inputs("id"))) == found.inputs.read_labels("id")
    )


def test_splits_and_halves_do_not_overlap(data, tmp_path):
    config = read_config(str(data / "networks.toml"))
    mask = np.arange(400) % 3 == 0
    sizes = {"id": 400, "ood-held-out": 150, "adversarial-pgd": 400}
    found = list_tasks(config, sizes, {"adversarial-hard": mask})
    for task in [*found["table1"], *found["table2"]]:
        rows = np.concatenate(task.known)
        assert len(np.unique(rows)) == len(rows)
        assert len(task.known) == 3
    hard = found["table1"][2]
    known = np.concatenate(hard.known)
    assert hard.positive is not None
    assert mask[hard.positive].all()
    assert not set(known) & set(hard.positive)
    assert 0.2 < mask[known].mean() < 0.5  # drawn whether they qualify or not


def test_a_second_run_does_nothing_and_changes_nothing(done, data):
    before = results(done)
    notes = (done / "timings.jsonl").read_text()
    run_study(pipeline(data, done, "networks").describe())
    assert results(done) == before
    assert (done / "timings.jsonl").read_text() == notes


def test_the_section_is_made_of_the_files(done):
    text = compose_section(done)
    assert text.startswith("## Digits")
    assert "`demur reproduce ...`" in text
    rows = [line for line in text.splitlines() if line.startswith("| 8 and 9 | dropout | epistemic")]
    assert len(rows) == 1
    assert ".682, .720" in rows[0]  # the paper's own, for MCD on ImageNet-O
    assert "By the epistemic part the new measure is ahead in" in text
    assert "**Every method against dropout**" in text
    assert "| pgd | quam | A3 |" in text
    assert "sngp, duq and due train a network of their own, of the same architecture, on the 300" in text


def test_pictures_through_networks(data, tmp_path):
    found = pipeline(data, tmp_path / "run", "images")
    described = found.describe()
    assert [len(found.inputs.get_rows(name)) for name in ("id", "train", "ood-held-out")] == [60, 30, 40]
    assert not set(found.inputs.get_rows("id")) & set(found.inputs.get_rows("train"))
    np.testing.assert_array_equal(found.inputs.get_original_rows("id"), 2 * found.inputs.get_rows("id"))
    run_study(described)
    logits = [
        np.load(found.stages.complete(found.encoding.plan_encoding(k, "id")) / "logits.npy") for k in (0, 1)
    ]
    columns = read_columns(tmp_path / "run" / "ensemble" / "id.npz")
    expected = demur.decompose(logits=np.stack(logits)).epistemic
    np.testing.assert_allclose(columns["pairwise_epistemic"], expected, rtol=1e-5)
    labels = [int(found.inputs.image_sets["id"].ids[row][:3]) for row in found.inputs.get_rows("id")]
    np.testing.assert_array_equal(columns["label"], labels)


def test_features_from_the_command_line(data, tmp_path):
    out = tmp_path / "run"
    common = ["--config", str(data / "features.toml"), "--data", str(data), "--out", str(out)]
    planned = CliRunner().invoke(app, ["reproduce", "table1", *common, "--dry-run"])
    assert planned.exit_code == 0, planned.output
    assert "fit/heads" in planned.output
    assert not (out / "stages").exists()
    page = tmp_path / "results.md"
    ran = CliRunner().invoke(app, ["reproduce", "table2", *common, "--docs", str(page)])
    assert ran.exit_code == 0, ran.output
    assert "errors, AUROC" in ran.output
    assert "## Digits, as features" in page.read_text()
    assert "due train a last layer only, on the 481 inputs of train" in page.read_text()
    with np.load(data / "features.npz") as file:
        given = dict(file)
    rows = np.arange(len(given["known"])) % 3 > 0
    logits = given["known"][rows].astype(np.float32) @ given["weight"].T + given["bias"]
    for method in ("chain", "dropout", "heads"):
        deployed = read_columns(out / method / "id.npz")["deployed"]
        np.testing.assert_array_equal(deployed, logits.argmax(1))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("[sets.id]", "[sets.other]"), "train, id, ood-NAME or adversarial-NAME"),
        (('kind = "dropout"', 'kind = "magic"'), "kind: expected one of ensemble"),
        (("rate = 0.2", "rat = 0.2"), "got 'rat'"),
        (('features = "features.npz"', 'features = "none.npz"'), "none.npz: expected a file or folder"),
        (('key = "strange"', 'key = "nobody"'), "expected an array 'nobody', found"),
        (('labels = "labels"\nmodulo = 3\nremainders = [1', "modulo = 3\nremainders = [1"), "labels"),
        (("title =", "titel ="), "got 'titel'"),
        (('reference = "heads"', 'reference = "quam"'), "reference: expected one of chain"),
        (('reference = "heads"', ""), "since quam is only compared with it, got None"),
        (("inputs = 25", 'sets = ["train"]'), "sets: expected scored sets, got 'train'"),
        (("inputs = 25", 'layers = "all"'), "expected a network that is built here"),
        (('method = "duq"', 'method = "ddu"'), "method: expected one of sngp, duq, due, got 'ddu'"),
        (("size = 8", "features = 8"), "got 'features'"),
        (("[network]", "[network"), "expected TOML"),
        (("remainders = [1, 2]", "remainders = [7]"), "expected inputs, got none"),
    ],
)  # fmt: skip
def test_wrong_settings_are_one_line(data, tmp_path, change, complaint):
    path = tmp_path / "wrong.toml"
    assert change[0] in FEATURES
    path.write_text(FEATURES.replace(*change))
    arguments = ["--config", str(path), "--data", str(data), "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, ["reproduce", "table1", *arguments])
    assert result.exit_code == 2, result.output
    assert complaint in result.stderr
    assert result.stderr.count("\n") == 1


def test_unknown_settings_name_those_that_are_there(tmp_path):
    with pytest.raises(ValueError, match="expected one of imagenet, kit-cifar10"):
        read_config("imagnet")


@pytest.mark.parametrize("name", list_configs())
def test_settings_that_come_with_the_package_are_well_formed(name):
    config = read_config(name)
    assert config.title
    assert "id" in config.sets


DRIVER = """
import os, signal, sys
from pathlib import Path

import torch
from demur import atomic
from demur.posteriors.chains.checkpoint import ChainCheckpoint
from demur.posteriors.heads.training import FitFile
from demur.posteriors.resumable_training import TrainingFile
from demur.reproduce import stages
from demur.reproduce.runner import run_study
from demur.reproduce.studies.paper_tables import TablesPipeline, methods, one_pass_networks, read_config
from demur.reproduce.studies.paper_tables import scoring_stages
from demur.scoring import checkpoint

data, out, event, count = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
sys.path.insert(0, str(data))
for module in (methods, one_pass_networks, scoring_stages):
    module.SECONDS_BETWEEN_SAVES = 0.0


def killing(owner, name, after, where=lambda *args: True):
    original = getattr(owner, name)

    def counted(*args, **kwargs):
        global count
        found = original(*args, **kwargs) if after else None
        count -= where(*args)
        if count == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return found if after else original(*args, **kwargs)

    setattr(owner, name, counted)


if event == "named":
    killing(stages.os, "rename", after=False)
elif event == "epoch":
    killing(torch, "save", after=True)
elif event == "heads":
    killing(FitFile, "write", after=True)
elif event == "one-pass":
    killing(TrainingFile, "write", after=True)
elif event == "chain":
    killing(ChainCheckpoint, "write_state", after=True)
elif event == "scoring":
    killing(checkpoint.Checkpoint, "write", after=True)
elif event == "table":
    killing(atomic.os, "replace", after=False, where=lambda _, to: Path(to).name.startswith("table"))
elif event == "checksums":
    killing(atomic.os, "replace", after=False, where=lambda _, to: Path(to).parent.name == "stages")
config = read_config(str(data / "networks.toml"))
run_study(TablesPipeline(config, data, out, command="demur reproduce ...").describe())
"""


def drive(data: Path, out: Path, event: str = "none", count: int = 0) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-c", DRIVER, data, out, event, str(count)]
    return subprocess.run(command, env=os.environ, capture_output=True, check=False)


@pytest.fixture(scope="module")
def uninterrupted(data, tmp_path_factory) -> Path:
    """A run by the same driver, not ``done``: another process resamples, as users' do."""
    out = tmp_path_factory.mktemp("runs") / "uninterrupted"
    ran = drive(data, out)
    assert ran.returncode == 0, ran.stderr.decode()
    return out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("event", "count"),
    [("named", k) for k in (1, 8, 15, 22, 29, 37)]  # of 37 stages
    + [("epoch", 3), ("heads", 2), ("chain", 20), ("one-pass", 40)]
    + [("scoring", 1), ("scoring", 3), ("checksums", 6)]
    + [("table", 3), ("table", 12), ("table", 15)],  # six files of each table, first in its stage
)  # fmt: skip
def test_killed_anywhere_it_ends_with_the_same_bytes(data, uninterrupted, tmp_path, event, count):
    killed = drive(data, tmp_path / "run", event, count)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    again = drive(data, tmp_path / "run")
    assert again.returncode == 0, again.stderr.decode()
    found, expected = results(tmp_path / "run"), results(uninterrupted)
    assert found.keys() == expected.keys()
    assert [name for name in found if found[name] != expected[name]] == []
    lines = [json.loads(line) for line in (tmp_path / "run" / "timings.jsonl").read_text().splitlines()]
    keys = [line["key"] for line in lines if "key" in line]
    assert len(keys) == len(set(keys))  # nothing that was done is done again
