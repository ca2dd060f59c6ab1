"""Active learning: what each round does, what the comparisons say, and that a kill changes nothing."""

import dataclasses
import gzip
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import demur
from demur.cli import app
from demur.reproduce.data import mnist
from demur.reproduce.results_page import split_sections
from demur.reproduce.stages import order_stages
from demur.reproduce.studies.active_learning import (
    Settings,
    comparisons,
    describe_study,
    pools,
    rounds,
    section,
)
from demur.reproduce.studies.active_learning.comparisons import Curve
from demur.reproduce.studies.active_learning.networks import MemberRecipe
from demur.tasks import Comparison, Estimate

pytest.importorskip("torch")
pytest.importorskip("matplotlib")
datasets = pytest.importorskip("sklearn.datasets")

TRAIN, TEST = 700, 300
SMALL = MemberRecipe("mc-dropout", "MC dropout", networks=1, samples=3, steps=2)


def write_idx(path: Path, array: np.ndarray) -> None:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    path.write_bytes(gzip.compress(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes(), mtime=0))


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    """scikit-learn's digits, enlarged, in the files of MNIST; the other set has their negatives."""
    root = tmp_path_factory.mktemp("images")
    found = datasets.load_digits()
    large = np.pad(np.kron(found.images, np.ones((3, 3))) * 15.9, ((0, 0), (2, 2), (2, 2))).astype(np.uint8)
    for name, pixels in (("mnist", large), ("fashion_mnist", 255 - large)):
        folder = root / name
        folder.mkdir()
        for part, some in (("train", slice(0, TRAIN)), ("test", slice(TRAIN, TRAIN + TEST))):
            write_idx(folder / mnist.FILES[f"{part}_images"], pixels[some])
            write_idx(folder / mnist.FILES[f"{part}_labels"], found.target[some].astype(np.uint8))
    return root


def small_split(data, seed=0):
    return pools.draw_pool(mnist.read_images(data / "mnist"), pool=60, test=40, start=20, seed=seed)


def run(*arguments: object):
    return CliRunner().invoke(app, ["reproduce", "active-learning", *(str(each) for each in arguments)])


# What is labelled


def test_a_pool_starts_with_as_many_of_each_class_and_the_test_images_stay(data):
    one, two = (small_split(data, seed) for seed in (0, 1))
    for each in (one, two):
        assert np.bincount(each.labels[each.start]).tolist() == [2] * 10
        assert each.images.shape == (60, 28, 28) and abs(each.images.mean()) < 1e-5
        assert len(np.unique(each.images.reshape(60, -1), axis=0)) == 60
    assert not np.array_equal(one.labels, two.labels)
    np.testing.assert_array_equal(one.test_labels, two.test_labels)


@pytest.mark.parametrize("acquisition", rounds.ACQUISITIONS)
def test_an_acquisition_asks_for_what_its_name_says(acquisition):
    logits = np.random.default_rng(0).normal(size=(4, 30, 5)).astype(np.float32) * 2
    labelled = np.array([3, 7])
    chosen, told = rounds.choose_inputs(logits, acquisition, 4, labelled, 100, [0, 1])
    assert len(set(chosen.tolist())) == 4 and not set(chosen.tolist()) & {3, 7}
    if acquisition in rounds.SCORES:
        names = {"total new": "total", "total current": "total", "aleatoric": "aleatoric"}
        measures = {"I": "average", "total current": "average", "M": "reverse"}
        found = demur.decompose(logits=logits.astype(float), measure=measures.get(acquisition, "pairwise"))
        scores = getattr(found, names.get(acquisition, "epistemic"))
        scores[labelled] = -1
        assert chosen.tolist() == np.argsort(-scores)[:4].tolist()
    elif acquisition == "random":
        others = {
            tuple(rounds.choose_inputs(logits, "random", 4, labelled, 100, [s, 1])[0]) for s in range(9)
        }
        assert len(others) == 9
    else:
        assert np.isfinite(told).all() and told[-1] > told[0]
        expected = demur.tasks.batch_bald(
            logits=logits.astype(float), k=4, labelled=labelled, configurations=100,
            seed=rounds.combine_seeds(0, 1, 1),
        )  # fmt: skip
        assert chosen.tolist() == expected.indices.tolist()


def test_a_round_depends_on_labelled_images_seed_and_number_alone(data):
    split = small_split(data)
    first, again, other = (rounds.fit_and_predict(split, SMALL, split.start, 0, n)[0] for n in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.slow
def test_networks_learn(data):
    split = pools.draw_pool(mnist.read_images(data / "mnist"), pool=400, test=200, start=20, seed=0)
    ensemble = MemberRecipe("deep-ensemble", "deep ensemble", networks=2, samples=0, steps=40)
    _, few = rounds.fit_and_predict(split, ensemble, split.start, 0, 0)
    _, many = rounds.fit_and_predict(split, ensemble, np.arange(400), 0, 0)
    assert 0.4 < few.mean() < many.mean() and many.mean() > 0.85


def test_a_curve_that_is_stopped_goes_on_to_the_same_bytes(data, tmp_path, monkeypatch):
    split, begin = small_split(data), tmp_path / "begin"
    begin.mkdir()
    rounds.run_first_round(begin, split, SMALL, 0)
    options = {"seed": 0, "rounds": 3, "batch": 4, "configurations": 20}
    for name in ("whole", "stopped"):
        (tmp_path / name).mkdir()
    rounds.run_curve(tmp_path / "whole", begin, split, SMALL, "BatchBALD", **options)
    fitted, calls = rounds.fit_and_predict, []

    def stopping(*arguments):
        calls.append(arguments[-1])
        if len(calls) in (2, 4):
            raise RuntimeError("stopped")
        return fitted(*arguments)

    monkeypatch.setattr(rounds, "fit_and_predict", stopping)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="stopped"):
            rounds.run_curve(tmp_path / "stopped", begin, split, SMALL, "BatchBALD", **options)
    rounds.run_curve(tmp_path / "stopped", begin, split, SMALL, "BatchBALD", **options)
    assert calls == [1, 2, 2, 3, 3]  # no round that was done is done again
    assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")
    correct, picked = (np.load(tmp_path / "whole" / f"{name}.npy") for name in ("correct", "picked"))
    np.testing.assert_array_equal(correct[0], np.load(begin / "correct.npy")[0])
    assert correct.shape == (4, 40) and len(set(picked.ravel().tolist()) - set(split.start.tolist())) == 12


# What is said of it


def test_a_damaged_state_is_told_in_one_line(tmp_path):
    path = tmp_path / "state.npz"
    arrays = {name: np.arange(5) for name in ("picked", "correct", "information", "logits")}
    rounds._save_state(path, **arrays)
    assert set(rounds._read_state(path)) == set(arrays)
    whole = path.read_bytes()
    for content in (whole[:-30], b"", whole.replace(b"picked", b"packed")):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"state\.npz: expected the rounds so far, got .*: remove it"):
            rounds._read_state(path)


def test_areas_are_those_of_the_trapezoid_rule():
    correct = np.random.default_rng(0).random((6, 50)) < 0.7
    expected = np.trapezoid(correct.mean(axis=1), np.linspace(0, 1, 6))
    assert comparisons.compute_area(correct).mean() == pytest.approx(expected, rel=1e-14)


def test_students_test_is_that_of_one_group_and_pools_several():
    rng = np.random.default_rng(1)
    one, two = rng.normal(0.5, 1, 5), rng.normal(0.5, 1, 5)
    found, known = comparisons.compare_over_seeds([one]), stats.ttest_1samp(one, 0)
    assert found.p_value == pytest.approx(known.pvalue, rel=1e-10)
    interval = known.confidence_interval(0.95)
    assert (found.difference.low, found.difference.high) == pytest.approx(tuple(interval), rel=1e-10)
    # The mean of both groups' means is half their difference once the second has its sign turned.
    both, known = comparisons.compare_over_seeds([one, two]), stats.ttest_ind(one, -two)
    assert both.p_value == pytest.approx(known.pvalue, rel=1e-10)
    assert both.difference.value == pytest.approx((one.mean() + two.mean()) / 2)
    assert comparisons.compare_over_seeds([np.zeros(3)]).p_value == 1.0


def some_areas(seed, shift=0.0, images=400, seeds=3):
    """Areas of test images in which K is ahead of all others by a shift."""
    rng = np.random.default_rng(seed)
    base = {(d, s): rng.random(images) for d in "ab" for s in range(seeds)}
    return {
        Curve(d, p, a, s): base[d, s] + rng.normal(0.0, 0.1, images) + shift * (a == "K")
        for s in range(seeds)
        for d in "ab"
        for p in "xy"
        for a in rounds.ACQUISITIONS
    }


def test_differences_are_paired_and_corrected_within_their_families():
    areas = some_areas(0, shift=0.05)
    found = comparisons.compare_acquisitions(areas, rounds.ACQUISITIONS)
    every = [each for each in found if each.data == "all"]
    assert len(every) == 14 and len(found) == 5 * 14
    for each in every:
        assert each.seeds.difference.value == pytest.approx(0.05 * (each.first == "K"), abs=0.01)
        assert (each.seeds.adjusted < 0.05) == (each.first == "K") == (each.images.adjusted < 0.05)
    raw = [each.seeds.p_value for each in every]
    np.testing.assert_allclose([each.seeds.adjusted for each in every], demur.tasks.holm(raw))
    (one,) = (each for each in found if each[:4] == ("a", "y", "K", "I"))
    means = [float((areas["a", "y", "K", s] - areas["a", "y", "I", s]).mean()) for s in range(3)]  # type: ignore[index]
    assert one.seeds.difference.value == pytest.approx(np.mean(means), rel=1e-12)
    assert one.seeds.p_value == pytest.approx(stats.ttest_1samp(means, 0).pvalue, rel=1e-9)
    # By images: the interval of a mean of 400 differences, each the mean of three seeds.
    each_image = np.mean([areas["a", "y", "K", s] - areas["a", "y", "I", s] for s in range(3)], axis=0)  # type: ignore[index]
    half = 1.96 * each_image.std(ddof=1) / 20
    ends = one.images.difference
    assert (ends.high - ends.low) / 2 == pytest.approx(half, rel=0.1)


def test_no_difference_is_rarely_told(monkeypatch):
    # Of 40 draws without any difference at most 5 % may have one of 14 pairs told, by each test: 2, and
    # three standard deviations of 1.4.
    monkeypatch.setattr(comparisons, "RESAMPLES", 1000)
    told = [0, 0]
    for seed in range(40):
        found = comparisons.compare_acquisitions(some_areas(seed, images=100), rounds.ACQUISITIONS)
        every = [each for each in found if each.data == "all"]
        told[0] += min(each.seeds.adjusted for each in every) < 0.05
        told[1] += min(each.images.adjusted for each in every) < 0.05
    assert max(told) <= 6


def test_the_text_says_how_it_came_out():
    def one(value, adjusted, second):
        made = Comparison(Estimate(value, value - 0.01, value + 0.01), adjusted, adjusted)
        return comparisons.Difference("all", "all", "K", second, made, made)

    text = section.summarise_k([one(0.1, 0.01, "I"), one(-0.1, 0.01, "M"), one(0.1, 0.2, "random")])
    assert text == (
        "Over seeds, K is better than I. Over seeds, K is worse than M. "
        "Over seeds, no difference between K and random is significant."
    )
    assert section.summarise_comparison(one(-0.1, 0.2, "I")).endswith(
        "-10.00 [-11.00, -9.00] points, significant by neither test."
    )
    assert "significant over seeds and over test images" in section.summarise_comparison(one(0.1, 0.01, "I"))


# The command


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a run but timings and lock."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("timings.jsonl", ".lock")
    }


def test_a_dry_run_prints_the_plan_and_writes_nothing(data, tmp_path):
    found = run("--data", data, "--out", tmp_path / "run", "--quick", "--dry-run")
    assert found.exit_code == 0, found.output
    assert "curve" in found.stdout and "64 of 64 to do" in found.stdout
    assert not (tmp_path / "run").exists()


def test_the_key_of_a_stage_tells_what_it_depends_on(data, tmp_path):
    usual = Settings(pool=200, test=100).shrink()
    changed = {
        "pool": dataclasses.replace(usual, pool=150),
        "rounds": dataclasses.replace(usual, rounds=3),
        "seed": dataclasses.replace(usual, seed=1),
        "posteriors": dataclasses.replace(usual, posteriors=usual.posteriors[::-1]),
        "configurations": dataclasses.replace(usual, configurations=60),
    }

    def keys(settings):
        whole = describe_study(settings, data, tmp_path)
        return {stage.name: stage.key for stage in order_stages(whole.last)}

    before = keys(usual)
    for name, settings in changed.items():
        after = keys(settings)
        assert after["tables"] != before["tables"], name
    # BatchBALD alone depends on its combinations.
    after = keys(changed["configurations"])
    assert {name for name in before if before[name] != after[name]} == {
        "tables", *(name for name in before if "BatchBALD" in name)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": "nowhere"}, "expected the gzipped IDX file of this name as first published, found none"),
        ({"pool": 60}, "pool must have at least 120 images, as many as 10 rounds label. Got 60."),
        ({"pool": 701}, "expected at least 701 training images, got 700: ask for fewer"),
        ({"pool": 300}, "expected at least 2000 test images, got 300"),
        ({"seeds": 1}, "seeds must be at least 2"),
        ({"rounds": 0}, "rounds must be at least 1"),
    ],
)
def test_bad_options_are_told_in_one_line(data, tmp_path, options, message):
    options = {"data": data, "out": tmp_path / "run"} | options
    found = run(*(word for name, value in options.items() for word in (f"--{name}", value)))
    assert found.exit_code == 2 and message in found.stderr and found.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("train_images", b"no gzip", "expected an IDX file of unsigned bytes"),
        ("train_images", gzip.compress(b"\0\0\x08\x01", mtime=0), "got something else or a part of one"),
        ("train_images", gzip.compress(b"", mtime=0), "got something else or a part of one"),
        ("train_images", np.zeros((4, 2, 2), np.uint8), "expected images of 28 by 28 pixels, got shape (4,"),
        ("train_labels", np.zeros(4, np.uint8), "expected a label for each of 700 images, got 4"),
        ("test_labels", np.full(TEST, 11, np.uint8), "expected labels 0 to 9, got [11]"),
    ],
)  # fmt: skip
def test_bad_files_are_told_in_one_line(data, tmp_path, file, content, message):
    folder = tmp_path / "mnist"
    folder.mkdir()
    for each in mnist.FILES.values():
        (folder / each).write_bytes((data / "mnist" / each).read_bytes())
    if isinstance(content, bytes):
        (folder / mnist.FILES[file]).write_bytes(content)
    else:
        write_idx(folder / mnist.FILES[file], content)
    found = run("--data", tmp_path, "--out", tmp_path / "run", "--quick")
    assert found.exit_code == 2 and found.stderr.count("\n") == 1
    assert message in found.stderr and str(folder / mnist.FILES[file]) in found.stderr


# A kill at the n-th call of a function, then the command as it is.
KILLED = textwrap.dedent("""
    import importlib, os, signal, sys
    module, name, calls = sys.argv.pop(1), sys.argv.pop(1), int(sys.argv.pop(1))
    if calls:
        module = importlib.import_module(module)
        function = getattr(module, name)
        def killing(*arguments, **options):
            global calls
            calls -= 1
            if not calls:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)
        setattr(module, name, killing)
    from demur.cli import main
    main()
""")


@pytest.mark.slow
def test_a_run_killed_in_every_kind_of_stage_ends_in_the_same_bytes(data, tmp_path):
    def command(out, module="rounds", name="none", calls=0):
        words = ["reproduce", "active-learning", "--data", data, "--out", out, "--quick"]
        words += ["--docs", out / "docs" / "results.md"]
        place = f"demur.reproduce.studies.active_learning.{module}"
        program = [sys.executable, "-c", KILLED, place, name, str(calls), *map(str, words)]
        return subprocess.run(program, env=os.environ, capture_output=True, check=False)

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert command(whole).returncode == 0
    for kill in (
        ("rounds", "fit_and_predict", 1),  # the first round of all
        ("rounds", "fit_and_predict", 7),  # in a curve
        ("rounds", "_save_state", 20),  # a round done and not kept
        ("comparisons", "resample_images", 1),  # the tables: before any file
        ("section", "compose_section", 1),  # the tables: all files but the text
    ):
        assert command(killed, *kill).returncode == -signal.SIGKILL, kill
    ended = command(killed)
    assert ended.returncode == 0, ended.stderr
    assert contents(killed) == contents(whole)
    assert not list(killed.rglob("*.partial")) and not list(killed.rglob("state.npz"))
    page = (whole / "docs" / "results.md").read_text()
    assert set(split_sections(page)) == {"active-learning"} and "--quick" in page
    for picture in ("accuracy", "areas"):
        assert (
            whole / "docs" / "figures" / "results" / f"active-learning-{picture}.png"
        ).stat().st_size > 1000
    first = {path.read_bytes() for path in whole.rglob("areas.csv")}
    assert len(first) == 1 and first.pop().count(b"\n") == 1 + 2 * 2 * 8 * 2
    # A run that is done only writes its files again.
    before = contents(whole)
    lines = (whole / "timings.jsonl").read_text()
    assert command(whole).returncode == 0
    assert contents(whole) == before and (whole / "timings.jsonl").read_text() == lines
