"""`demur score --maps`: one row per image and maps in a store, as `demur.score` has them, from files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import demur
from demur.cli import app
from demur.posteriors import Samples
from demur.scoring import file_maps, saved_scores
from demur.stores import StoreError, open_maps, read_columns, write_predictions

pytest.importorskip("zarr")
MEMBERS, IMAGES, CLASSES, HEIGHT, WIDTH = 4, 7, 5, 6, 3


@pytest.fixture
def logits(tmp_path, monkeypatch) -> np.ndarray:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    values = 2 * rng.normal(size=(MEMBERS, IMAGES, CLASSES, HEIGHT, WIDTH))
    np.save("z.npy", values)
    labels = rng.integers(0, CLASSES + 1, size=(IMAGES, HEIGHT, WIDTH))
    labels[3] = CLASSES  # an image without a label
    np.save("y.npy", labels)
    return values


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["score", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout + result.stderr


def fails(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["score", *map(str, arguments)])
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1
    return result.stderr


def score_here(logits: np.ndarray, **options) -> demur.Scores:
    """What `demur.score` makes of the same predictions, with the labels of y.npy."""
    posterior = Samples(lambda numbers: logits[:, numbers[:, 0]], kind="logits", members=len(logits))
    numbers, labels = np.arange(logits.shape[1])[:, None], np.load("y.npy")
    return demur.score(posterior, [(numbers, labels)], class_axis=2, **options)


def assert_same(out: Path | str, maps: str, scores: demur.Scores, wanted: str, rtol: float) -> None:
    found = read_columns(Path(out))
    for name, values in scores.columns.items():
        np.testing.assert_allclose(found[name], values, rtol=rtol, err_msg=name)
    assert len(found["input"]) == len(scores)
    ours, theirs = open_maps(maps), open_maps(wanted)
    assert ours.keys() == theirs.keys()
    for name, column in theirs.items():
        np.testing.assert_allclose(ours[name][:], column[:], rtol=1e-5, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("layout", "reduce"),
    [("one file", "mean"), ("file per member", "max"), ("store", 0.9), ("classes last", "mean")],
)
def test_maps_are_those_of_python(logits, layout, reduce, dtype):
    logits = logits.astype(dtype)
    options, files = ["--class-axis", "2"], ["z.npy"]
    if layout == "file per member":
        for member in range(MEMBERS):
            np.save(f"m{member}.npy", logits[member])
        options, files = ["--axis", "none", "--class-axis", "1"], ["m*.npy"]
    elif layout == "store":
        columns = {"id": [f"x{k}" for k in range(IMAGES)]}
        write_predictions("z.zarr", [(logits, columns)], block=3)
        files = ["z.zarr"]
    elif layout == "classes last":
        np.save("z.npy", np.moveaxis(logits, 2, -1))
        options = []
    else:
        np.save("z.npy", logits)
    said = run(
        *files, "--logits", *options, "--maps", "m.zarr", "--reduce", reduce, "--labels", "y.npy", "--out",
        "s.csv",
    )  # fmt: skip
    assert said == "Wrote the scores of 7 inputs to s.csv\nWrote their maps to m.zarr\n"
    scores = score_here(logits, reduce=reduce, maps="wanted.zarr")
    assert_same("s.csv", "m.zarr", scores, "wanted.zarr", 1e-5 if dtype == np.float32 else 1e-12)
    assert np.isnan(read_columns(Path("s.csv"))["accuracy"][3])
    if layout == "store":
        assert read_columns(Path("s.csv"))["id"].tolist() == [f"x{k}" for k in range(IMAGES)]
    again = demur.Scores.load("s.csv")
    np.testing.assert_array_equal(again["K"].epistemic, read_columns(Path("s.csv"))["pairwise_epistemic"])


@pytest.mark.parametrize("out", ["s.csv", "s.parquet", "s.zarr", "s.json"])
def test_an_interrupted_run_resumes_to_the_same_bytes(logits, out, monkeypatch):
    asked = ("z.npy", "--logits", "--class-axis", 2, "--labels", "y.npy", "--reduce", "0.5")
    run(*asked, "--maps", "whole.zarr", "--out", f"whole-{out}")
    real, scored = file_maps.score_predictions, []

    def break_at_the_fourth(predictions, *arguments, **options):
        scored.append(predictions.first)
        if len(scored) == 4:
            raise KeyboardInterrupt
        return real(predictions, *arguments, **options)

    monkeypatch.setattr(file_maps, "score_predictions", break_at_the_fourth)
    resumed = (*asked, "--maps", "m.zarr", "--out", out)
    assert CliRunner().invoke(app, ["score", *map(str, resumed)]).exit_code != 0
    with pytest.raises(StoreError, match="expected a complete store, got one whose writing was interr"):
        open_maps("m.zarr")
    assert "reduce was 0.5 and is 'mean'" in fails(*asked[:-2], "--maps", "m.zarr", "--out", out)
    assert scored == [0, 1, 2, 3]
    run(*resumed)
    assert scored == [0, 1, 2, 3, 3, 4, 5, 6]
    whole = read_columns(Path(f"whole-{out}"))
    for name, values in read_columns(Path(out)).items():
        np.testing.assert_array_equal(values, whole[name])
    for name, column in open_maps("whole.zarr").items():
        np.testing.assert_array_equal(open_maps("m.zarr")[name][:], column[:])


@pytest.mark.usefixtures("logits")
def test_scores_that_cannot_be_written_cost_no_second_run(monkeypatch):
    def fail(*arguments, **options):
        raise StoreError("s.csv: cannot be written: No space left on device")

    asked = ("z.npy", "--logits", "--class-axis", 2, "--maps", "m.zarr", "--out", "s.csv")
    with monkeypatch.context() as patch:
        patch.setattr(saved_scores, "write_columns", fail)
        assert "No space left" in fails(*asked)
    monkeypatch.setattr(file_maps, "score_predictions", lambda *a, **o: pytest.fail("scored twice"))
    run(*asked)
    assert len(open_maps("m.zarr")["pairwise_total"]) == IMAGES
    assert len(read_columns(Path("s.csv"))["input"]) == IMAGES


def test_pixels_without_predictions_do_not_count(logits):
    logits[:, 2, :, 0, :2] = np.nan
    logits[:, 5] = np.nan
    np.save("z.npy", logits)
    said = run(
        "z.npy", "--logits", "--class-axis", 2, "--maps", "m.zarr", "--labels", "y.npy", "--out", "s.npz"
    )
    assert "no prediction for 1 of 7 rows" in said and "no prediction for 20 pixels" in said
    found, maps = read_columns(Path("s.npz")), open_maps("m.zarr")
    assert found["missing"].tolist() == [0, 0, 2, 0, 0, 18, 0]
    assert (found["status"] != "ok").tolist() == [k == 5 for k in range(IMAGES)]
    assert np.isnan(found["average_total"][5]) and np.isnan(found["accuracy"][5])
    known = demur.decompose(logits=logits[:, 2].reshape(MEMBERS, CLASSES, -1)[..., 2:], class_axis=1)
    assert found["pairwise_epistemic"][2] == pytest.approx(np.asarray(known.epistemic).mean(), rel=1e-6)
    assert np.isnan(maps["pairwise_total"][2]).sum() == 2 and np.isnan(maps["pairwise_total"][5]).all()
    np.testing.assert_array_equal(maps["prediction"][2][0, :2], [-1, -1])
    logits[:] = np.nan
    np.save("z.npy", logits)
    assert "NaN in all members for every input" in fails(
        "z.npy", "--logits", "--class-axis", 2, "--maps", "none.zarr"
    )


def test_weights_binary_and_what_is_shown(logits):
    weights = np.random.default_rng(1).random((MEMBERS, IMAGES))
    np.save("w.npy", weights)
    asked = ("--logits", "--measure", "K", "--json", "--top", 2)
    shown = json.loads(
        run("z.npy", *asked, "--class-axis", 2, "--weights", "w.npy", "--maps", "m.zarr", "--reduce", "max")
    )
    whole = np.stack([
        np.asarray(demur.decompose(logits=logits[:, k], weights=weights[:, k], class_axis=1).epistemic)
        for k in range(IMAGES)
    ])  # fmt: skip
    np.testing.assert_allclose(shown["scores"]["pairwise_epistemic"], whole.max(axis=(1, 2)), rtol=1e-9)
    assert (shown["maps"], shown["reduce"], shown["inputs"]) == ("m.zarr", "max", IMAGES)
    assert shown["top"][0]["input"] == whole.max(axis=(1, 2)).argmax()
    yes = logits[:, :, 0]
    np.save("yes.npy", yes)
    np.save("mask.npy", np.load("y.npy") == 1)
    run("yes.npy", "--logits", "--binary", "--labels", "mask.npy", "--maps", "b.zarr", "--out", "b.csv")
    expected = np.asarray(demur.decompose(demur.Bernoulli(logits=yes)).epistemic)
    np.testing.assert_allclose(open_maps("b.zarr")["pairwise_epistemic"][:], expected, rtol=1e-5)
    guess = (1 / (1 + np.exp(-yes))).mean(axis=0) > 0.5
    right = (guess == np.load("mask.npy")).mean(axis=(1, 2))
    np.testing.assert_allclose(read_columns(Path("b.csv"))["accuracy"], right)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("z.npy", "--reduce", "max"), "expected --maps STORE with --reduce, got --reduce max alone"),
        (("z.npy", "--maps", "m.zarr", "--reduce", "median"), "--reduce: expected mean, max or a quantile"),
        (("z.npy", "--maps", "m.zarr", "--reduce", "1.5"), "got '1.5'"),
        (("z.npy", "--maps", "m.zarr", "--reduce", "nan"), "got 'nan'"),
        (("z.npy", "--maps", "m.npy"), "m.npy: expected a store of maps whose name ends in .zarr"),
        (("z.npy", "--maps", "m.zarr", "--stderr"), "expected maps or standard errors, got both"),
        (("z.npy", "--maps", "m.zarr", "--cluster", "local"), "--maps without --cluster, got both"),
        (("z.npy", "--maps", "m.zarr", "--out", "m.zarr"), "expected two names for --out and --maps"),
        (("z.npy", "--maps", "done.zarr"), "done.zarr: expected a new store, got one that exists"),
        (
            ("z.npy", "--maps", "m.zarr", "--multilabel"),
            "classes or --binary for maps of pixels, got --multi",
        ),
        (("z.npy", "--maps", "m.zarr", "--labels", "flat.npy"), "integers of shape (7, 6, 3), got int64 of"),
        (("flat.zarr", "--maps", "flat.zarr", "--force"), "flat.zarr: expected a file that is not read from"),
        (("flat.zarr", "--maps", "m.zarr"), "expected predictions of pixels for maps"),
    ],
)
def test_refused(logits, arguments, words):
    np.save("flat.npy", np.zeros(IMAGES, int))
    write_predictions("flat.zarr", [np.moveaxis(logits, 2, -1)[:, :, 0, 0]])
    axes = ("--class-axis", 2) if arguments[0] == "z.npy" else ()
    run("z.npy", "--logits", "--class-axis", 2, "--maps", "done.zarr")
    assert words in fails(*arguments, "--logits", *axes)
    assert not Path("m.zarr").exists()
    assert len(open_maps("done.zarr")["pairwise_total"]) == IMAGES


def test_a_file_per_member_is_not_mistaken_for_members(logits):
    np.save("m0.npy", logits[0])
    assert "say --axis none --class-axis 1" in fails(
        "m0.npy", "--logits", "--class-axis", 1, "--maps", "m.zarr"
    )
    assert "--axis" in fails("m0.npy", "--logits", "--axis", "nobody")


MEASURE = """
import re, sys
from pathlib import Path
from demur.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
# Not getrusage: its figure begins with that of the process which started this one.
print(int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1]) >> 10)
"""


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["npy", "zarr"])
def test_memory_is_that_of_one_image(tmp_path, suffix):
    """10 members, 256 x 256 pixels and 21 classes are 55 MB for an image."""
    peaks = []
    for images in (4, 14):
        path = tmp_path / f"z{images}.{suffix}"
        rng, shape = np.random.default_rng(0), (10, 1, 21, 256, 256)
        if suffix == "zarr":
            write_predictions(path, (rng.standard_normal(shape, np.float32) for _ in range(images)), block=1)
        else:
            whole = np.lib.format.open_memmap(path, "w+", np.float32, (10, images, *shape[2:]))
            for image in range(images):
                whole[:, image] = rng.standard_normal(shape, np.float32)[:, 0]
            del whole
        np.save(tmp_path / "y.npy", np.zeros((images, 256, 256), np.uint8))
        said = subprocess.check_output(
            [sys.executable, "-c", MEASURE, "score", path, "--logits", "--class-axis", "2", "--labels",
             tmp_path / "y.npy", "--maps", tmp_path / f"m{images}.zarr"],
            text=True,
        )  # fmt: skip
        peaks.append(int(said.split()[-1]))
    print("peak memory in MB:", peaks)
    assert peaks[1] < peaks[0] + 60  # of 550 MB more predictions, and 30 MB more maps
    assert peaks[0] < 600
