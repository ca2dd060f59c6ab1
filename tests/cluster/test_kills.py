"""Workers killed in the middle: the same bytes, nothing lost, nothing twice."""

from pathlib import Path

import numpy as np
import pytest
from reference.cluster import Killer, assert_same_bytes, batches, heads_with_dropout, note_process

import demur
from demur.cluster import Cluster

pytestmark = pytest.mark.slow


def test_twenty_workers_killed_at_random_moments_leave_the_same_bytes(ray, workers) -> None:
    data = batches(8000)
    posterior = heads_with_dropout(note_process(workers, 0.4))
    with Killer(workers, 20, every=0.5) as killer:
        many = demur.score(posterior, data, cluster=Cluster(rows=50), progress=False)
    assert len(killer.killed) == 20
    assert_same_bytes(many, demur.score(heads_with_dropout(), data, progress=False))


def test_workers_with_some_of_the_members_may_be_killed_too(ray, workers) -> None:
    """Their sums die with them where they are large, and are made again."""
    data = batches(1000)
    cluster = Cluster(workers=2, by="members")
    posterior = heads_with_dropout(note_process(workers, 0.2), samples=6)
    with Killer(workers, 4, every=1.5, seed=1) as killer:
        many = demur.score(posterior, data, cluster=cluster, progress=False)
    assert len(killer.killed) == 4
    calm = heads_with_dropout(samples=6)
    assert_same_bytes(many, demur.score(calm, data, cluster=cluster, progress=False))
    one = demur.score(calm, data, progress=False)
    np.testing.assert_allclose(many["K"].epistemic, one["K"].epistemic, rtol=1e-12)


def test_an_interrupted_score_goes_on_and_leaves_no_folder(ray, workers, tmp_path) -> None:
    """A model that fails once, after some blocks; then the rest, and only that, is scored."""
    data, folder = batches(1000), tmp_path / "job"

    def fail_late(model, inputs):
        if len(list(folder.glob("*.npz"))) >= 4:
            raise OSError("the disk of the features is gone")
        return model(inputs)

    cluster = Cluster(rows=100)
    with pytest.raises(OSError, match="the disk of the features is gone"):
        demur.score(heads_with_dropout(fail_late), data, cluster=cluster, checkpoint=folder, progress=False)
    done = len(list(folder.glob("*.npz")))
    assert 4 <= done <= 9
    posterior = heads_with_dropout(note_calls(workers))
    many = demur.score(posterior, data, cluster=cluster, checkpoint=folder, progress=False)
    assert len(list(workers.iterdir())) == 2 * (10 - done)  # of the two batches of each block
    assert not folder.exists()
    assert_same_bytes(many, demur.score(heads_with_dropout(), data, progress=False))


def note_calls(folder: Path):
    """A function of a network and its inputs that notes each call."""

    def forward(model, inputs):
        import uuid

        (folder / uuid.uuid4().hex).touch()
        return model(inputs)

    return forward
