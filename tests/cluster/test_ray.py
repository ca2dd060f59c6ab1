"""Jobs on Ray, on this machine: the scores of one process, whatever comes in and goes out."""

import itertools
import sys

import numpy as np
import pytest
from reference.cluster import assert_same_bytes, batches, heads_with_dropout
from typer.testing import CliRunner

import demur
from demur.cli import app
from demur.cluster import Cluster, score_dataset
from demur.cluster.dataset_batches import DatasetBatches
from demur.posteriors import DeepEnsemble, MCDropout, Samples

pytestmark = pytest.mark.slow

MANY_BLOCKS = Cluster("local", rows=100)


def networks(count=5, features=16, classes=5):
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    return [
        torch.nn.Sequential(torch.nn.Linear(features, 8), torch.nn.ReLU(), torch.nn.Linear(8, classes))
        for _ in range(count)
    ]


def with_dropout():
    torch = pytest.importorskip("torch")
    torch.manual_seed(2)
    layers = torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Dropout(0.4), torch.nn.Linear(32, 5)
    return MCDropout(torch.nn.Sequential(*layers), samples=6)


@pytest.mark.parametrize("make", [heads_with_dropout, with_dropout])
def test_by_inputs_the_bytes_are_those_of_one_process(ray, make) -> None:
    posterior, data = make(), batches()
    options = {"measures": ("pairwise", "average", "C1"), "stderr": True, "progress": False}
    one = demur.score(posterior, data, **options)
    many = demur.score(posterior, data, cluster=MANY_BLOCKS, **options)
    assert_same_bytes(many, one)
    assert many.ids is not None and many.ids[-1] == "input-999"


def test_by_members_only_the_order_of_sums_differs(ray) -> None:
    posterior, data = DeepEnsemble(networks(), weights=range(1, 6)), batches(300)
    cluster = Cluster("local", workers=3, by="members")
    one = demur.score(posterior, data, stderr=True, progress=False)
    many = [demur.score(posterior, data, stderr=True, cluster=cluster, progress=False) for _ in range(2)]
    assert_same_bytes(*many)
    for name, values in one.columns.items():
        if values.dtype.kind == "f":
            tolerance = 1e-9 if name.endswith("stderr") else 1e-12
            np.testing.assert_allclose(
                many[0].columns[name], values, rtol=tolerance, atol=1e-14, err_msg=name
            )
        else:
            assert (many[0].columns[name] == values).all(), name


def test_members_that_do_not_fit_are_dealt_to_workers_and_loaded_once_by_each(ray, tmp_path, capfd) -> None:
    """Functions that load safetensors; memory for two of five networks; two workers take turns with parts."""
    from safetensors.torch import load_file, save_file

    models = networks()
    for k, model in enumerate(models):
        save_file(model.state_dict(), tmp_path / f"{k}.safetensors")
    (tmp_path / "loads").mkdir()

    def loader_of(k):
        def load():
            import uuid

            from torch import nn  # a worker cannot import this file

            (tmp_path / "loads" / uuid.uuid4().hex).touch()
            model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 5))
            model.load_state_dict(load_file(tmp_path / f"{k}.safetensors"))
            return model

        return load

    posterior = DeepEnsemble([loader_of(k) for k in range(5)])
    size = sum(each.numel() * 4 for each in models[0].parameters())
    cluster = Cluster("local", workers=2, memory=2 * size)
    many = demur.score(posterior, batches(600), cluster=cluster)
    assert "By members, in 3 parts: all of them take" in capfd.readouterr().err
    one = demur.score(DeepEnsemble(models), batches(600), progress=False)
    for measure in ("pairwise", "average"):
        np.testing.assert_allclose(many[measure].epistemic, one[measure].epistemic, rtol=1e-12, atol=1e-15)
    loads = len(list((tmp_path / "loads").iterdir())) - 1  # one to measure
    assert 5 <= loads <= 15  # 12 batches of 5 members are 60


def test_whole_networks_travel_only_to_the_workers_that_need_them(ray) -> None:
    models = networks(4)
    cluster = Cluster("local", workers=2, memory=2 * sum(each.numel() * 4 for each in models[0].parameters()))
    many = demur.score(models, batches(200), cluster=cluster, progress=False)
    one = demur.score(models, batches(200), progress=False)
    np.testing.assert_allclose(many["K"].epistemic, one["K"].epistemic, rtol=1e-12, atol=1e-15)


def as_dataset(folder, inputs=1000):
    """A Dataset of tensors, labels and ids, in Parquet files of odd sizes; and its columns."""
    import ray.data

    held = [np.concatenate(each) for each in zip(*batches(inputs), strict=True)]
    rows = [{"features": x, "label": int(y), "id": str(i)} for x, y, i in zip(*held, strict=True)]
    edges = [0, 170, 171, 640, inputs]
    for k, (a, b) in enumerate(itertools.pairwise(edges)):
        ray.data.from_items(rows[a:b], override_num_blocks=1).write_parquet(str(folder / f"{k}"))
    dataset = ray.data.read_parquet([str(folder / f"{k}") for k in range(4)])
    return dataset, dict(zip(("features", "label", "id"), held, strict=True))


def test_any_dataset_goes_in_and_scores_come_out_with_ids_and_labels(ray, tmp_path) -> None:
    dataset, columns = as_dataset(tmp_path / "data")
    posterior = heads_with_dropout()
    cluster = Cluster("local", batch=64, rows=128)
    many = demur.score(posterior, dataset, cluster=cluster, progress=False)
    one = demur.score(posterior, DatasetBatches(dataset, 64), progress=False)
    assert_same_bytes(many, one)
    assert (many.ids == columns["id"]).all() and (many.labels == columns["label"]).all()
    # The same as from arrays: where a batch begins does not depend on the files.
    arrays = [
        {"features": columns["features"][k : k + 64], "label": columns["label"][k : k + 64],
         "id": columns["id"][k : k + 64]}
        for k in range(0, 1000, 64)
    ]  # fmt: skip
    assert_same_bytes(many, demur.score(posterior, arrays, progress=False))


def test_reading_goes_on_where_it_was_when_ray_cannot_go_on(ray) -> None:
    """Tables may be cut otherwise the second time; an error of the data's own is raised at once."""
    from types import SimpleNamespace

    def bundles(sizes, error):
        facts = [SimpleNamespace(num_rows=size, size_bytes=8 * size) for size in sizes]
        yield from (SimpleNamespace(block_refs=[size.num_rows], metadata=[size]) for size in facts)
        if error is not None:
            raise error

    def read(*passes):
        passes = iter(passes)
        dataset = SimpleNamespace(context=None, iter_internal_ref_bundles=lambda: bundles(*next(passes)))
        return list(DatasetBatches(dataset, 10).iterate_tables())

    died = ray.exceptions.ActorDiedError()
    told = ray.exceptions.RayError("... ray.exceptions.NodeDiedError: the node is gone")
    found = read(((10, 0, 5), died), ((), died), ((4, 8, 8), told), ((30,), None))
    assert found == [(10, (0, 10)), (5, (0, 5)), (8, (3, 8)), (30, (20, 30))]
    with pytest.raises(ray.exceptions.ActorDiedError):
        read(*[((10,), died)] * 6)
    own = ray.exceptions.RayTaskError("f", "trace", ValueError("bad row"))
    with pytest.raises(ray.exceptions.RayTaskError):
        read(((10,), own))


def test_a_dataset_comes_out_in_parquet_and_is_not_done_again(ray, tmp_path) -> None:
    dataset, columns = as_dataset(tmp_path / "data")
    posterior = heads_with_dropout()
    cluster = Cluster("local", batch=64, rows=128)
    found = score_dataset(posterior, dataset, tmp_path / "out", cluster=cluster, progress=False)
    one = demur.score(posterior, DatasetBatches(dataset, 64), progress=False)
    table = found.to_pandas()
    assert list(table["id"]) == list(columns["id"]) and list(table["label"]) == list(columns["label"])
    assert list(table["input"]) == list(range(1000))
    for name, values in one.columns.items():
        assert np.asarray(table[name].tolist(), values.dtype).tobytes() == values.tobytes(), name
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.parquet")}
    assert len(files) == 8
    first = demur.Scores.load(min(files))
    assert len(first) == 128 and first.members == 8
    victim = max(files)
    whole = victim.read_bytes()
    victim.write_bytes(whole[: len(whole) // 2])
    score_dataset(posterior, dataset, tmp_path / "out", cluster=cluster, progress=False)
    assert victim.read_bytes() == whole
    changed = [path for path, when in files.items() if path.stat().st_mtime_ns != when]
    assert changed == [victim]


def test_columns_of_numbers_are_a_table(ray) -> None:
    """As a forest takes it, with the names of columns; from pandas, which has two blocks."""
    import pandas
    import ray.data
    from sklearn.ensemble import RandomForestClassifier

    rng = np.random.default_rng(0)
    table = pandas.DataFrame(rng.normal(size=(300, 4)), columns=list("abcd"))
    label = (table["a"] + table["b"] > 0).to_numpy()
    forest = RandomForestClassifier(20, random_state=0).fit(table, label)
    dataset = ray.data.from_pandas(
        [table[:110].assign(label=label[:110]), table[110:].assign(label=label[110:])]
    )
    options = {"measures": ["average"], "progress": False}
    many = demur.score(forest, dataset, cluster=Cluster("local", rows=100, batch=50), **options)
    whole = table.assign(label=label)
    one = demur.score(forest, [whole[k : k + 50] for k in range(0, 300, 50)], **options)
    for name in ("average_total", "average_epistemic", "prediction", "label"):
        assert many.columns[name].tobytes() == one.columns[name].tobytes()


def test_errors_are_those_of_one_process(ray) -> None:
    posterior = Samples(lambda x: np.zeros((3, len(x) + 1, 2)), members=3, kind="logits")
    with pytest.raises(
        ValueError, match="must predict \\(members, inputs, classes\\), of 4 inputs"
    ) as caught:
        demur.score(posterior, [np.zeros((4, 1))], cluster="local", progress=False)
    assert type(caught.value) is ValueError
    with pytest.raises(ValueError, match="must have inputs"):
        demur.score(posterior, [], cluster="local", progress=False)
    with pytest.raises(ValueError, match="cpus must be what a machine of the cluster has"):
        demur.score(posterior, [np.zeros((4, 1))], cluster=Cluster(cpus=64), progress=False)


def test_a_warning_about_rounding_comes_once(ray) -> None:
    def predict(x):
        found = np.full((2, len(x), 2), 0.5)
        found[0, :, 0], found[0, :, 1] = 0.0, 1.0
        return demur.Categorical(probs=found)

    with pytest.warns(demur.RoundingWarning, match="infinite for 60 of 60 inputs"):
        demur.score(predict, [np.zeros((20, 1))] * 3, cluster=Cluster(rows=20), progress=False)


def test_the_command_line_writes_the_same_file(ray, tmp_path, monkeypatch) -> None:
    import demur.scoring.file_tiles as file_tiles

    logits = np.random.default_rng(0).normal(size=(7, 2000, 40)).astype(np.float32) * 3
    logits[:, 1234] = np.nan  # no prediction: the reason has to come back too
    np.save(tmp_path / "members.npy", logits)
    monkeypatch.setattr(file_tiles, "plan_tiles", lambda *_, **__: (150, 7))
    texts = []
    for name, more in (("one", []), ("many", ["--cluster", "local"])):
        out = str(tmp_path / f"{name}.csv")
        asked = ["score", str(tmp_path / "members.npy"), "--logits", "--stderr", "--out", out, *more]
        found = CliRunner().invoke(app, asked)
        assert found.exit_code == 0, found.output
        texts.append((tmp_path / f"{name}.csv").read_bytes())
    assert texts[0] == texts[1] and b"no prediction: NaN in all members" in texts[1]


def test_ray_is_not_imported_unless_it_is_asked_for() -> None:
    import subprocess

    code = (
        "import sys, numpy as np, demur, demur.cluster\n"
        "demur.score(lambda x: demur.Categorical(logits=np.zeros((2, len(x), 2))), [np.zeros((3, 1))])\n"
        "print('ray' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
