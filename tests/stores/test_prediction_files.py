"""The members of several files: counted through, read in tiles, and refused where they do not fit."""

from __future__ import annotations

import os

import numpy as np
import pytest
from reference.files import CLASSES, INPUTS, read, refused

from demur.scoring.file_tiles import plan_tiles
from demur.stores import StoreError, open_predictions


def test_files_of_different_rank_and_type_are_counted_through(tmp_path, logits):
    np.save(tmp_path / "a.npy", logits[:2])
    np.save(tmp_path / "b.npy", logits[2].astype(np.float64))
    np.savez_compressed(tmp_path / "c.npz", logits[3:])
    names = [tmp_path / "a.npy", tmp_path / "b.npy", tmp_path / "c.npz"]
    np.testing.assert_array_equal(read(names), logits)
    with open_predictions(names) as predictions:
        chunks = list(predictions.chunks(slice(0, 3), 5))
    assert [chunk.values.dtype for chunk in chunks] == [np.float32, np.float64, np.float32]
    assert [chunk.members for chunk in chunks] == [range(2), range(2, 3), range(3, 5)]


@pytest.mark.parametrize("axis", [1, -2])
def test_axis(tmp_path, logits, axis):
    np.save(tmp_path / "z.npy", logits.swapaxes(0, 1))
    np.testing.assert_array_equal(read(tmp_path / "z.npy", axis=axis), logits)
    refused(tmp_path / "z.npy", "axis", "got 2", axis=2)
    np.save(tmp_path / "z.npy", np.asfortranarray(logits.swapaxes(0, 1)))
    np.testing.assert_array_equal(read(tmp_path / "z.npy", axis=axis), logits)


@pytest.mark.parametrize(("axis", "order"), [(1, "C"), (0, "F")])
def test_members_that_lie_side_by_side_are_read_at_once(tmp_path, axis, order):
    np.save(tmp_path / "z.npy", np.asarray(np.zeros((40, 40, 4)), order=order))
    with open_predictions([tmp_path / "z.npy"], axis=axis) as predictions:
        assert plan_tiles(predictions, groups=1, budget=4000)[1] == 40
    with open_predictions([tmp_path / "z.npy"], axis=1 - axis) as predictions:
        assert plan_tiles(predictions, groups=1, budget=4000)[1] < 40


def test_more_files_than_descriptors(tmp_path, logits):
    resource = pytest.importorskip("resource")
    for index in range(100):
        np.save(tmp_path / f"{index}.npy", logits[0] + index)
        np.savetxt(tmp_path / f"{index}.csv", logits[0] + index, delimiter=",")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 30
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 20, hard))
    try:
        assert read([tmp_path / "*.npy", tmp_path / "*.csv"]).shape == (200, INPUTS, CLASSES)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_shapes(tmp_path, logits):
    path = tmp_path / "z.npy"
    for shape in [(CLASSES,), ()]:
        np.save(path, np.ones(shape))
        refused(path, str(path), str(shape), "(inputs, classes)")
    np.save(path, np.ones((5, 1)))
    refused(path, str(path), "at least 2 classes, got 1", "--binary", "--points")
    np.save(path, np.ones((3, 0, 4)))
    refused(path, str(path), "(3, 0, 4)")
    np.save(path, logits)
    np.save(tmp_path / "y.npy", logits[:, 1:])
    refused([path, tmp_path / "y.npy"], "y.npy", "37 inputs and 4 classes, as in", "36 inputs")
    refused([path, path], "twice")


def test_a_file_that_changes_meanwhile(tmp_path, logits):
    np.save(tmp_path / "z.npy", logits)
    with open_predictions([tmp_path / "z.npy"]) as predictions:
        np.save(tmp_path / "z.npy", logits[:1])
        with pytest.raises(StoreError, match="changed while it was read"):
            next(predictions.chunks(slice(0, 3), 2))


@pytest.mark.parametrize(("axis", "class_axis"), [(0, 2), (0, -1), (1, 0), (-1, 2)])
def test_images_are_read_pixel_by_pixel(tmp_path, axis, class_axis):
    """Tiles of 10 pixels begin and end within rows of 7 and images of 3 by 7."""
    values = np.random.default_rng(0).normal(size=(5, 4, 3, 7, 6))  # members, inputs, rows, columns, classes
    np.save(tmp_path / "z.npy", np.moveaxis(values, (0, -1), (axis, class_axis)))
    found = read(tmp_path / "z.npy", axis=axis, class_axis=class_axis)
    np.testing.assert_array_equal(found, values.reshape(5, 84, 6))
    with open_predictions([tmp_path / "z.npy"], axis=axis, class_axis=class_axis) as predictions:
        assert predictions.batch == (4, 3, 7) and predictions.inputs == 84 and predictions.tasks is None


@pytest.mark.parametrize("outcome", ["binary", "points"])
def test_each_number_is_a_prediction_of_its_own(tmp_path, outcome):
    values = np.random.default_rng(0).normal(size=(5, 37, 3))
    np.save(tmp_path / "z.npy", values)
    np.testing.assert_array_equal(read(tmp_path / "z.npy", outcome=outcome), values.reshape(5, 111, 1))
    np.save(tmp_path / "z.npy", values[0])
    np.save(tmp_path / "y.npy", values[1])
    with open_predictions([tmp_path / "z.npy", tmp_path / "y.npy"], outcome=outcome) as predictions:
        assert (predictions.members, predictions.batch) == (2, (37, 3))
        assert predictions.tasks == ("task_0", "task_1", "task_2")
    np.save(tmp_path / "z.npy", values[0, :, 0])  # one task, with and without an axis for it
    np.save(tmp_path / "y.npy", values[1, :, :1])
    with open_predictions([tmp_path / "z.npy", tmp_path / "y.npy"], outcome=outcome) as predictions:
        assert (predictions.members, predictions.batch, predictions.tasks) == (2, (37,), None)
    np.save(tmp_path / "y.npy", values[0])
    words = ("expected 37 inputs, as in", "got 37 inputs, each of 3 tasks")
    refused([tmp_path / "z.npy", tmp_path / "y.npy"], *words, outcome=outcome)


@pytest.mark.parametrize("suffix", ["npz", "safetensors", "npy", "csv", "parquet"])
def test_mean_and_variance(tmp_path, suffix):
    pytest.importorskip("pandas" if suffix == "parquet" else "numpy")
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(size=(5, 37)), rng.random((5, 37)).astype(np.float32)
    both = np.stack([mean, variance], axis=-1)
    if suffix == "npz":
        np.savez(tmp_path / "g.npz", mean=mean, variance=variance)
    elif suffix == "npy":
        np.save(tmp_path / "g.npy", both)
    elif suffix == "safetensors":
        from safetensors.numpy import save_file

        save_file({"mean": mean, "variance": variance}, tmp_path / "g.safetensors")
    else:
        import pandas as pd

        for member, values in enumerate(both):
            frame = pd.DataFrame(values[:, ::-1], columns=["variance", "mean"])
            getattr(frame, f"to_{suffix}")(tmp_path / f"g{member}.{suffix}", index=False)
    np.testing.assert_array_equal(read(tmp_path / f"g*.{suffix}", outcome="gaussian"), both)


def test_mean_and_variance_that_are_not_there(tmp_path):
    np.savez(tmp_path / "g.npz", mean=np.zeros((2, 3)), spread=np.ones((2, 3)))
    refused(tmp_path / "g.npz", "'variance'", "mean, spread", outcome="gaussian")
    np.savez(tmp_path / "g.npz", mean=np.zeros((2, 3)), variance=np.ones(3))
    refused(tmp_path / "g.npz", "one shape", "(2, 3) and (3,)", outcome="gaussian")
    np.save(tmp_path / "g.npy", np.zeros((2, 3)))
    refused(tmp_path / "g.npy", "2 numbers, on the last axis, got 3", outcome="gaussian")
    (tmp_path / "g.csv").write_text("mu,variance\n0.1,1\n")
    refused(tmp_path / "g.csv", "columns mean and variance", "got mu, variance", outcome="gaussian")
    (tmp_path / "s.csv").write_text("mean,std\n0.5,2\n")
    refused(tmp_path / "s.csv", "got mean, std", "the square of a standard deviation", outcome="gaussian")
