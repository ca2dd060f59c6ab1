"""The members of several files: counted through, read in tiles, and refused where they do not fit."""

from __future__ import annotations

import os

import numpy as np
import pytest
from reference.files import CLASSES, INPUTS, read, refused

from demur.scoring.score_files import plan_tiles
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
    for shape in [(CLASSES,), (2, 3, 4, 5), ()]:
        np.save(path, np.ones(shape))
        refused(path, str(path), str(shape), "(inputs, classes)")
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
