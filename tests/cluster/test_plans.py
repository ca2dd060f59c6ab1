"""What a job on a cluster decides and writes, without a cluster: parts, trees, batches, files."""

import copy
import itertools
import json
import pickle
import sys

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from typer.testing import CliRunner

import demur
from demur.cli import app
from demur.cluster import Cluster
from demur.cluster.block_files import (
    name_block,
    open_folder,
    read_block,
    read_manifest,
    remove_folder,
    write_block,
    write_manifest,
)
from demur.cluster.by_input import describe_table
from demur.cluster.by_member import MergeTree, deal_from, merge_sums
from demur.cluster.dataset_batches import cut_batches
from demur.cluster.deaths import WorkersDied, is_of_death
from demur.cluster.member_parts import MemberSizes, choose_split, measure_members
from demur.posteriors import DeepEnsemble, Samples
from demur.scoring.batches import open_batch
from demur.stores.parquet_files import write_parquet

MEASURES = ("pairwise", "average", "reverse")


@hypothesis.given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 7))
def test_batches_do_not_depend_on_the_tables_they_come_from(sizes, rows) -> None:
    tables = [(k, (0, size)) for k, size in enumerate(sizes)]
    found = list(cut_batches(tables, rows))
    numbers = [(k, row) for pieces in found for k, (a, b) in pieces for row in range(a, b)]
    assert numbers == [(k, row) for k, size in enumerate(sizes) for row in range(size)]
    lengths = [sum(b - a for _, (a, b) in pieces) for pieces in found]
    assert all(length == rows for length in lengths[:-1]) and all(0 < length <= rows for length in lengths)
    # In two steps, as by blocks: the same batches, if a block is a number of whole batches.
    twice = [each for block in cut_batches(tables, 3 * rows) for each in cut_batches(block, rows)]
    assert twice == found


@hypothesis.given(st.integers(1, 9), st.randoms())
def test_the_tree_is_the_same_whoever_comes_first(parts, random) -> None:
    def grow(order):
        tree, waiting = MergeTree(None, parts), [((0, part), str(part)) for part in order]
        while waiting:
            found = tree.add_merged(*waiting.pop(0))
            if found is not None:
                place, sums = found
                if len(sums) == 1:
                    assert not waiting
                    return sums[0]
                waiting.insert(random.randrange(len(waiting) + 1), (place, f"({sums[0]}{sums[1]})"))
        raise AssertionError("the tree has no top")

    order = list(range(parts))
    first = grow(order)
    random.shuffle(order)
    assert grow(order) == first
    assert "".join(each for each in first if each.isdigit()) == "".join(map(str, range(parts)))


@pytest.mark.parametrize("groups", [None, 3, 7])
@pytest.mark.parametrize("edges", [(0, 7), (0, 2, 5, 7), (0, 1, 2, 3, 4, 5, 6, 7)])
def test_merged_sums_equal_those_of_one_process(groups, edges) -> None:
    logits = np.random.default_rng(0).normal(size=(7, 5, 4)) * 3
    weights = np.arange(1.0, 8.0)
    whole = demur.Moments(groups=groups).update(logits=logits, weights=weights)
    tree, found = MergeTree(None, len(edges) - 1), None
    for part, (a, b) in enumerate(itertools.pairwise(edges)):
        own = demur.Moments(groups=groups).update(logits=logits[a:b], weights=weights[a:b])
        before = copy.deepcopy(own)
        found = tree.add(part, ([deal_from(own, a)], None))
        while found is not None and len(found[1]) == 2:
            found = tree.add_merged(found[0], merge_sums(*found[1]))
        assert (own.state.a == before.state.a).all()  # nothing is changed in place: work is done again
    assert found is not None
    merged = found[1][0][0][0]
    stderr = groups is not None
    for measure in MEASURES:
        mine, ours = (m.decompose(measure, stderr=stderr, unbiased=stderr) for m in (whole, merged))
        for part in ("total", "aleatoric", "epistemic"):
            np.testing.assert_allclose(getattr(ours, part), getattr(mine, part), rtol=1e-12, atol=1e-15)
            if stderr:
                errors = getattr(ours.stderr, part), getattr(mine.stderr, part)
                np.testing.assert_allclose(*errors, rtol=1e-9, atol=1e-14)


def test_parts_that_begin_with_group_0_would_give_other_standard_errors() -> None:
    """A control: without `deal_from`, members 2 and 3 of 4 would join the groups of 0 and 1."""
    logits = np.random.default_rng(1).normal(size=(4, 3, 3))
    whole = demur.Moments(groups=4).update(logits=logits).decompose(stderr=True)
    parts = [demur.Moments(groups=4).update(logits=logits[k : k + 2]) for k in (0, 2)]
    wrong = copy.copy(parts[0]).merge(parts[1]).decompose(stderr=True)
    right = copy.copy(parts[0]).merge(deal_from(parts[1], 2)).decompose(stderr=True)
    np.testing.assert_allclose(right.stderr.epistemic, whole.stderr.epistemic, rtol=1e-9)
    assert not np.allclose(wrong.stderr.epistemic, whole.stderr.epistemic, rtol=0.1)


def split(each, memory, *, workers=2, by="memory"):
    sizes = MemberSizes(sum(each), tuple(each))
    return choose_split(Samples(lambda x: x, members=len(each)), sizes, memory, workers, by)


def test_the_split_is_chosen_by_memory_and_said() -> None:
    assert split([10, 10], 20).parts == (None,)
    assert split([10, 10], 20).why == "By inputs: all members take 20 bytes, a worker has 20 bytes for them."
    found = split([10] * 10, 35)
    assert all(10 * len(part) <= 35 for part in found.parts)
    assert [k for part in found.parts for k in part] == list(range(10)) and len(found.parts) == 4
    assert "in 4 parts: all of them take 100 bytes, a worker has 35 bytes" in found.why
    assert [len(part) for part in split([10] * 10, 100, by="members").parts] == [5, 5]
    assert split([10] * 10, 1, by="inputs").why.endswith("(more than it should hold).")
    with pytest.raises(ValueError, match=r"Member 1 takes 50 bytes, and a worker has 20 bytes"):
        split([10, 50], 20)
    with pytest.raises(ValueError, match=r"share 5\.0 MB, and a worker has 1\.0 MB"):
        choose_split(Samples(abs, members=3), MemberSizes(5_000_000, None), 1_000_000, 2, "memory")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"address": "remote"}, "cluster must be 'local', 'auto', 'ray://host:port'"),
        ({"workers": 0}, "workers must be a positive integer"),
        ({"memory": 1.5}, "memory must be a positive integer"),
        ({"by": "rows"}, "by must be 'memory', 'inputs' or 'members'"),
        ({"cpus": -1}, "cpus must be a number that is not negative"),
    ],
)
def test_wrong_settings_are_named(wrong, message) -> None:
    with pytest.raises(ValueError, match=message):
        Cluster(**wrong)


def test_what_cannot_run_on_a_cluster_says_so_before_any_ray_is_looked_for() -> None:
    posterior = Samples(lambda x: np.zeros((20, len(x), 2)), members=20)
    with pytest.raises(ValueError, match="tolerance compares inputs with those before"):
        demur.score(posterior, [np.zeros((3, 1))], tolerance=0.1, cluster="local")
    with pytest.raises(ValueError, match="cluster must be 'local'"):
        demur.score(posterior, [np.zeros((3, 1))], cluster="nowhere")


def test_a_block_is_known_by_its_inputs_labels_ids_place_and_settings() -> None:
    x, y, ids = np.arange(6.0).reshape(3, 2), np.arange(3), np.array(list("abc"))

    def name(inputs=x, labels=y, of=ids, position=0, number=0, settings=None):
        return name_block(number, settings or {"a": 1}, [open_batch((inputs, labels, of), position)])

    other = x.copy()
    other[1, 1] = 9  # a checksum of the first and last input would not see it
    names = {
        name(), name(other), name(labels=y[::-1]), name(of=ids[::-1]), name(position=3), name(number=1),
        name(settings={"a": 2}),
    }  # fmt: skip
    assert len(names) == 7 and name() == name(x.copy(), y.copy(), ids.copy())


def test_a_block_written_half_is_never_read(tmp_path) -> None:
    path = tmp_path / "00000000-abc.npz"
    arrays = {"marks": np.arange(3), "column x": np.linspace(0, 1, 1000)}
    write_block(path, arrays)
    whole = path.read_bytes()
    assert all((read_block(path)[name] == arrays[name]).all() for name in arrays)
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert read_block(path) is None, length
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 1
    path.write_bytes(changed)
    assert read_block(path) is None
    write_block(path, arrays)
    assert path.read_bytes() == whole  # the same bytes again
    path.rename(tmp_path / "00000001-abc.npz")  # another block's name
    assert read_block(tmp_path / "00000001-abc.npz") is None


def test_a_folder_of_another_job_is_refused(tmp_path) -> None:
    folder = tmp_path / "job"
    open_folder(folder, {"rule": "log", "posterior": "a" * 40})
    open_folder(folder, {"rule": "log", "posterior": "a" * 40})
    with pytest.raises(ValueError, match="of a job with other settings: rule was 'log' and is 'brier'"):
        open_folder(folder, {"rule": "brier", "posterior": "a" * 40})
    with pytest.raises(ValueError, match="other settings: posterior changed"):
        open_folder(folder, {"rule": "log", "posterior": "b" * 40})
    (folder / "job.json").write_text("{}")
    with pytest.raises(ValueError, match="which is something else"):
        open_folder(folder, {})
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "photo.jpg").touch()
    with pytest.raises(ValueError, match="which holds other files"):
        open_folder(tmp_path / "own", {})


def test_a_folder_is_removed_but_not_what_is_not_the_jobs(tmp_path) -> None:
    open_folder(tmp_path / "job", {})
    write_block(tmp_path / "job" / "00000000-abc.npz", {"marks": np.arange(1)})
    remove_folder(tmp_path / "job")
    assert not (tmp_path / "job").exists()
    open_folder(tmp_path / "job", {})
    (tmp_path / "job" / "notes.txt").touch()
    remove_folder(tmp_path / "job")
    assert [each.name for each in (tmp_path / "job").iterdir()] == ["notes.txt"]


def test_a_manifest_lists_files_in_order_and_a_missing_one_is_an_error(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="Expected the folder of a finished job"):
        read_manifest(tmp_path)
    for name in ("b.parquet", "a.parquet"):
        (tmp_path / name).touch()
    write_manifest(tmp_path, {"b.parquet": 3, "a.parquet": 2})
    assert [path.name for path in read_manifest(tmp_path)] == ["b.parquet", "a.parquet"]
    assert json.loads((tmp_path / "manifest.json").read_text())["inputs"] == 5
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"a\.parquet.*run the job again"):
        read_manifest(tmp_path)


def test_an_address_where_nobody_listens_is_refused_at_once() -> None:
    pytest.importorskip("ray")
    with pytest.raises(ConnectionError, match=r"Got '127.0.0.1:1': .*refused. Start one with"):
        demur.score(lambda x: x, [np.zeros((3, 1))], cluster="127.0.0.1:1", progress=False)


def test_the_command_line_says_in_a_line_that_ray_is_missing(tmp_path, monkeypatch) -> None:
    np.save(tmp_path / "members.npy", np.zeros((2, 3, 2)))
    monkeypatch.setitem(sys.modules, "ray", None)
    found = CliRunner().invoke(
        app, ["score", str(tmp_path / "members.npy"), "--logits", "--cluster", "local"]
    )
    assert found.exit_code == 2
    assert found.stderr == "demur: cluster= needs Ray. Install it with: pip install 'demur[cluster]'\n"


def test_a_table_whose_pages_are_damaged_is_not_taken_for_finished(tmp_path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "block.parquet"
    values = np.random.default_rng(0).random(1000)
    with path.open("wb") as file:
        write_parquet(file, {"pairwise_total": values})
    assert describe_table(path) == {"file": "block.parquet", "inputs": 1000}
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 255
    path.write_bytes(damaged)
    assert describe_table(path) is None


def test_a_dataset_without_a_cluster_is_refused() -> None:
    Dataset = type("Dataset", (), {"__module__": "ray.data.dataset"})
    with pytest.raises(ValueError, match="Got no cluster="):
        demur.score(lambda x: x, Dataset(), progress=False)  # pyright: ignore[reportArgumentType]


def test_an_error_of_a_function_of_a_dataset_is_no_death() -> None:
    errors = pytest.importorskip("ray.exceptions")
    raised = errors.RayTaskError("map", "traceback", errors.UserCodeException("boom"))
    died = errors.RayTaskError("map", "traceback", errors.ObjectLostError("00", "", ""))
    assert not is_of_death(raised) and is_of_death(died)


def test_a_network_that_no_worker_has_room_for_is_not_loaded_for_ever() -> None:
    errors = pytest.importorskip("ray.exceptions")
    calls = []

    class Ray:
        exceptions = errors
        cloudpickle = pickle

        def remote(self, function):
            return self

        def options(self, *, max_retries, **options):
            assert max_retries == 0
            self.remote = lambda packed: packed
            return self

        def get(self, packed):
            calls.append(packed)
            raise errors.OutOfMemoryError("a worker was killed")

    with pytest.raises(WorkersDied, match="Ray ended 3 workers at loading the first network for want"):
        measure_members(Ray(), DeepEnsemble([dict, dict]), {})
    assert len(calls) == 3
