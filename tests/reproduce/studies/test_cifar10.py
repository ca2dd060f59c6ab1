"""The CIFAR-10 study: figures against loops, resumption to the same bytes, and a small run."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from typer.testing import CliRunner

import demur
from demur.cli import app
from demur.stores import read_columns

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")

from demur.posteriors import DeepEnsemble  # noqa: E402
from demur.posteriors.ensemble_training import Member  # noqa: E402
from demur.reproduce.data import cifar10  # noqa: E402
from demur.reproduce.networks.resnet20_frn import resnet20_frn  # noqa: E402
from demur.reproduce.studies.cifar10 import choose_schedules, judging, methods, section, study  # noqa: E402
from demur.reproduce.studies.cifar10.inputs import Inputs  # noqa: E402
from demur.reproduce.studies.cifar10.methods import EnsembleSchedule  # noqa: E402

TEST = 20


def make_images(folder: Path, train: int = 40) -> None:
    """Images of one colour per class and noise, and a reference that is nearly always right."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 256, (10, 1, 3))

    def write(name: str, labels: np.ndarray) -> None:
        pixels = colours[labels] + rng.normal(0, 20, (len(labels), 1024, 3))
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(folder / name)

    labels, test = rng.integers(0, 10, train), rng.integers(0, 10, TEST)
    for k, part in enumerate(np.split(labels, 5), 1):
        write(f"data_batch_{k}.png", part)
    write("test_batch.png", test)
    (folder / "train_lables.json").write_text(json.dumps(labels.tolist()))
    (folder / "test_lables.json").write_text(json.dumps(test.tolist()))
    probs = rng.dirichlet(np.ones(10), TEST) / 4
    probs[np.arange(TEST), test] += 0.75
    np.savez(folder / "reference.npz", cifar10=probs.astype(np.float32))


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cifar10") / "images"
    make_images(folder)
    return folder


def run(data: Path, *arguments: object):
    given = ["--data", data, "--reference", data / "reference.npz", *arguments]
    return CliRunner().invoke(app, ["reproduce", "cifar10", *(str(each) for each in given)])


# --- figures ---------------------------------------------------------------------------------------


def test_figures_are_those_of_loops() -> None:
    rng = np.random.default_rng(0)
    logits = {"ensemble": rng.normal(size=(3, 200, 10)), "swag": 2 * rng.normal(size=(4, 200, 10))}
    reference, labels = rng.dirichlet(np.ones(10), 200), rng.integers(0, 10, 200)
    found = section.index_rows(judging.judge_methods(logits, reference, labels))
    assert set(found) == {"hmc", "one-network", "ensemble", "swag"}
    for name, given in {**logits, "one-network": logits["ensemble"][:1]}.items():
        average = np.mean([np.exp(m) / np.exp(m).sum(1, keepdims=True) for m in given], axis=0)
        gaps = np.array([0.5 * sum(abs(average[k] - reference[k])) for k in range(200)])
        entropy = np.array([-sum(p * np.log(p)) for p in average])
        expected = {
            "tv": gaps.mean(), "agreement": np.mean(average.argmax(1) == reference.argmax(1)),
            "accuracy": np.mean(average.argmax(1) == labels), "total": entropy.mean(),
            "nll": -np.mean([np.log(average[k, labels[k]]) for k in range(200)]),
            "total|spearman": spearmanr(entropy, [-sum(p * np.log(p)) for p in reference]).statistic,
            "total|gap": spearmanr(entropy, gaps).statistic,
        }  # fmt: skip
        if name != "one-network":
            k = demur.decompose(logits=given, unbiased=True).epistemic
            expected |= {"k": k.mean(), "k|gap": spearmanr(k, gaps).statistic}
        for figure, value in expected.items():
            row = found[name][figure]
            assert row["value"] == pytest.approx(value, rel=1e-9), (name, figure)
            assert row["low"] < row["value"] < row["high"]
    assert "k" not in found["one-network"] and set(found["hmc"]) == {"accuracy", "nll", "total"}


def test_a_method_that_is_the_reference_agrees_with_it() -> None:
    rng = np.random.default_rng(0)
    reference = rng.dirichlet(np.ones(10), 50)
    twice = np.log(np.stack([reference, reference]))
    rows = judging.judge_methods({"ensemble": twice}, reference, rng.integers(0, 10, 50))
    found = section.index_rows(rows)["one-network"]
    assert found["agreement"]["value"] == 1 and found["tv"]["value"] == pytest.approx(0, abs=1e-12)
    assert found["total|spearman"]["value"] == pytest.approx(1)


def test_the_rate_rises_and_falls_to_nothing() -> None:
    schedule = EnsembleSchedule(rate=0.1, warm_up=0.2)
    rates = [schedule.find_rate(step, 1000) for step in range(1000)]
    assert np.argmax(rates) in (199, 200) and max(rates) == pytest.approx(0.1, rel=1e-2)
    assert (np.diff(rates[:200]) > 0).all() and (np.diff(rates[200:]) < 0).all() and rates[-1] < 1e-6


def test_images_are_predicted_from_0_to_1_in_their_order() -> None:
    images = np.arange(250 * 12, dtype=np.uint8).reshape(250, 3, 2, 2)
    found = study.predict_images(DeepEnsemble([torch.nn.Flatten(), torch.nn.Flatten()]), images)
    np.testing.assert_allclose(found, np.stack([images.reshape(250, 12) / 255] * 2), rtol=1e-6)


# --- data ------------------------------------------------------------------------------------------


def test_images_are_read_in_their_order(data) -> None:
    found = cifar10.read_images(data)
    assert found.train_images.shape == (40, 3, 32, 32) and found.test_images.shape == (TEST, 3, 32, 32)
    sheet = np.asarray(Image.open(data / "data_batch_2.png"))  # images 8 to 15
    assert found.train_images[9, 1, 3, 5] == sheet[1, 3 * 32 + 5, 1]
    assert found.train_labels.tolist() == json.loads((data / "train_lables.json").read_text())


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("data_batch_3.png", None, "expected CIFAR-10 with one image per row"),
        ("data_batch_3.png", b"no image", "expected an image"),
        ("test_lables.json", b"[0, 10]", "expected a list of labels from 0 to 9"),
        ("test_lables.json", b"[0.5]", "expected a list of labels from 0 to 9"),
        ("test_lables.json", b"[0, 1]", "expected a label for each of 20 images, got 2"),
    ],
)
def test_other_files_are_refused(file, content, message, data, tmp_path) -> None:
    folder = tmp_path / "images"
    shutil.copytree(data, folder)
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    read = cifar10.check_files if content is None else cifar10.read_images
    with pytest.raises(ValueError, match=message):
        read(folder)


def test_a_reference_in_another_order_is_refused(data, tmp_path) -> None:
    probs = np.load(data / "reference.npz")["cifar10"]
    for given, message in ((probs[::-1], "rows in the order of the test images"), (probs[:5], "shape")):
        np.savez(tmp_path / "other.npz", cifar10=given)
        result = run(data, "--reference", tmp_path / "other.npz", "--out", tmp_path / "run", "--dry-run")
        assert result.exit_code == 2 and message in " ".join(result.output.split())


# --- fits ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_training_resumes_to_the_same_bytes(data, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(methods, "_SECONDS_BETWEEN_WRITES", 0.0)
    inputs = Inputs(data, data / "reference.npz", cifar10.check_files(data))
    schedule, found = EnsembleSchedule(epochs=1, batch=10), []

    class Stopped(Exception):
        pass

    def stop(self, step, steps):
        if step == 2:
            raise Stopped
        return whole(self, step, steps)

    whole = EnsembleSchedule.find_rate
    for name in ("at once", "in two"):
        folder = tmp_path / name
        folder.mkdir()
        train = methods._MemberTraining(inputs, schedule, folder)
        if name == "in two":
            monkeypatch.setattr(EnsembleSchedule, "find_rate", stop)
            with pytest.raises(Stopped):
                train(make_network(), Member(0, 5))
            monkeypatch.setattr(EnsembleSchedule, "find_rate", whole)
        model = make_network()
        train(model, Member(0, 5))
        found.append(model.state_dict())
    assert all(torch.equal(value, found[1][name]) for name, value in found[0].items())


def make_network():
    torch.manual_seed(0)
    return resnet20_frn()


def test_schedules_of_the_command_line() -> None:
    found = choose_schedules(members=4, epochs=5, swag_epochs=2, cycles=3, cycle_epochs=6)
    assert found.passes == 4 * 5 + 2 + 3 * 6
    assert [found.count_passes(name) for name in ("one-network", "ensemble", "swag", "csg-hmc")] == [
        5,
        20,
        7,
        18,
    ]
    assert found.chain.samples == 9 and choose_schedules(swag_epochs=0).swag is None


@pytest.mark.slow
def test_a_small_run(data, tmp_path) -> None:
    whole = tmp_path / "images"
    make_images(whole, train=640)
    arguments = ["--members", 2, "--epochs", 1, "--cycles", 1, "--cycle-epochs", 4, "--out", tmp_path / "run"]
    page = tmp_path / "results.md"
    result = run(whole, *arguments, "--docs", page)
    assert result.exit_code == 0, result.output
    assert "deep ensemble" in result.output
    figures = read_columns(tmp_path / "run" / "figures.csv")
    assert set(figures["method"]) == {"hmc", "one-network", "ensemble", "swag", "csg-hmc"}
    text = page.read_text()
    assert "<!-- section cifar10 -->" in text and "2 networks, 1 pass each" in text
    assert "demur reproduce cifar10 --data DIR --reference FILE --members 2 --epochs 1" in text
    before = (tmp_path / "run" / "figures.csv").read_bytes()
    shutil.rmtree(next((tmp_path / "run" / "stages").glob("csg-hmc*[!n]")))
    assert run(whole, *arguments).exit_code == 0
    assert (tmp_path / "run" / "figures.csv").read_bytes() == before
    without = run(whole, *arguments, "--swag-epochs", 0)
    assert without.exit_code == 0 and "SWAG" not in (tmp_path / "run" / "section.md").read_text()


DRIVER = """
import sys

from demur.cli import main
from demur.reproduce.studies.cifar10 import methods

methods._SECONDS_BETWEEN_WRITES = 0.0
main()
"""
SMALL = ["--members", "2", "--epochs", "1", "--cycles", "1", "--cycle-epochs", "3"]


def start(images: Path, out: Path) -> "subprocess.Popen[bytes]":
    given = ["--data", images, "--reference", images / "reference.npz", *SMALL, "--out", out]
    command = [sys.executable, "-c", DRIVER, "reproduce", "cifar10", *map(str, given)]
    return subprocess.Popen(command, start_new_session=True)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    """A folder with images, and a run that nothing stopped."""
    place = tmp_path_factory.mktemp("cifar10-run")
    make_images(place / "images", train=640)
    assert start(place / "images", place / "run").wait() == 0
    return place


@pytest.mark.slow
@pytest.mark.parametrize(
    "begun",
    [
        "ensemble--*/members/member-0000.safetensors",
        "swag--*/training.safetensors",
        "csg-hmc--*/chain/state-*",
    ],
)
def test_one_command_resumes_after_a_kill_to_the_same_bytes(begun, uninterrupted, tmp_path) -> None:
    """Killed, with the processes it started, as soon as a stage has saved something."""
    out, stages = tmp_path / "run", tmp_path / "run" / "stages"
    process = start(uninterrupted / "images", out)
    while not any(stages.glob(begun)):
        assert process.poll() is None
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    stopped = next(stages.glob(begun.partition("/")[0] + ".partial"))
    done = {path: path.stat().st_mtime_ns for path in stages.glob("*/logits.npy")}
    assert start(uninterrupted / "images", out).wait() == 0
    assert not stopped.exists()
    for name in ("figures.csv", "section.md", "table.txt"):
        assert (out / name).read_bytes() == (uninterrupted / "run" / name).read_bytes()
    # What was done is not done again.
    assert all(path.stat().st_mtime_ns == before for path, before in done.items())
    resumed = [json.loads(line) for line in (out / "timings.jsonl").read_text().splitlines()]
    assert [line["stage"] for line in resumed if line["resumed"]] == [begun.partition("--")[0] + "/0"]
