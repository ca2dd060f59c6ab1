"""Loaders of tables and of batches that only their owner can open: names and ids travel along."""

import numpy as np
import pytest

import demur
from demur.posteriors import DeepEnsemble, Samples

HEADS = np.random.default_rng(0).normal(size=(4, 3, 2))
X = np.random.default_rng(1).normal(size=(600, 3))
Y = (X[:, 0] > 0).astype(int)
POSTERIOR = Samples(lambda x: np.asarray(x) @ HEADS, kind="logits", members=4)
K = demur.decompose(logits=X @ HEADS).epistemic


def k_of(scores) -> np.ndarray:
    return scores["pairwise"].epistemic


# --- tables --------------------------------------------------------------------------------------


@pytest.fixture(params=["pandas", "polars"])
def library(request):
    return pytest.importorskip(request.param)


def table(library, **more):
    return library.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], **more})


def test_a_table_is_a_loader(library) -> None:
    ids = [f"drug {i}" for i in range(600)]
    scores = demur.score(POSTERIOR, table(library, id=ids, label=Y))
    np.testing.assert_allclose(k_of(scores), K, rtol=1e-9)
    assert scores.ids is not None and scores.ids.tolist() == ids
    np.testing.assert_array_equal(scores.labels, Y)
    plain = demur.score(POSTERIOR, table(library))
    assert plain.ids is None and plain.labels is None
    np.testing.assert_allclose(k_of(plain), K, rtol=1e-9)


def test_tables_are_batches(library) -> None:
    whole = table(library, id=np.arange(600), target=[f"class {y}" for y in Y])
    scores = demur.score(POSTERIOR, [whole[:250], whole[250:]], classes=["class 0", "class 1"])
    np.testing.assert_allclose(k_of(scores), K, rtol=1e-9)
    np.testing.assert_array_equal(scores.ids, np.arange(600))
    np.testing.assert_array_equal(scores.correct, demur.score(POSTERIOR, [(X, Y)]).correct)
    pairs = demur.score(POSTERIOR, [(table(library), Y)])  # labels given apart: the table is all inputs
    np.testing.assert_allclose(k_of(pairs), K, rtol=1e-9)
    with pytest.raises(ValueError, match="columns of inputs"):
        demur.score(POSTERIOR, library.DataFrame({"id": [1, 2], "label": [0, 1]}))


def test_rows_of_a_table_are_taken_where_inputs_stop_early(library) -> None:
    heads = np.random.default_rng(0).normal(size=(64, 3, 2))
    posterior = Samples(lambda x: np.asarray(x) @ heads, kind="logits", members=64)
    expected = demur.score(posterior, [X[:200]], tolerance=0.02)
    scores = demur.score(posterior, table(library)[:200], tolerance=0.02)
    assert len(np.unique(expected.used)) > 1
    np.testing.assert_array_equal(scores.used, expected.used)
    np.testing.assert_allclose(k_of(scores), k_of(expected), rtol=1e-9)


def test_networks_take_tables(library) -> None:
    torch = pytest.importorskip("torch")
    networks = [torch.nn.Linear(3, 2) for _ in range(3)]
    scores = demur.score(networks, table(library))
    np.testing.assert_allclose(
        k_of(scores), k_of(demur.score(networks, [X.astype(np.float32)])), rtol=1e-4, atol=1e-7
    )


def test_an_index_that_says_something_is_the_ids() -> None:
    pandas = pytest.importorskip("pandas")
    whole = pandas.DataFrame(X)
    named = whole.set_axis([f"row {i}" for i in range(600)])
    found = {
        "names": demur.score(POSTERIOR, named).ids,
        "pairs": demur.score(POSTERIOR, [(named[:300], Y[:300]), (named[300:], Y[300:])]).ids,
        "later rows": demur.score(POSTERIOR, whole[100:]).ids,
        "some rows": demur.score(POSTERIOR, whole[::2]).ids,
        "dates": demur.score(POSTERIOR, whole.set_axis(pandas.date_range("2026-01-01", periods=600))).ids,
        "column first": demur.score(POSTERIOR, named.assign(id=np.arange(600))).ids,
    }
    assert found["names"].tolist() == found["pairs"].tolist() == list(named.index)
    np.testing.assert_array_equal(found["later rows"], np.arange(100, 600))
    np.testing.assert_array_equal(found["some rows"], np.arange(0, 600, 2))
    assert found["dates"][1].startswith("2026-01-02")
    np.testing.assert_array_equal(found["column first"], np.arange(600))
    for loader in (whole, [whole[:300], whole[300:]], [whole[:300], whole[300:].reset_index(drop=True)]):
        assert demur.score(POSTERIOR, loader).ids is None


def test_ids_of_a_table_are_in_files(tmp_path) -> None:
    pandas = pytest.importorskip("pandas")
    named = pandas.DataFrame(X, index=[f"drug {i}" for i in range(600)])
    for ending in ("csv", "npz", "json", "parquet"):
        scores = demur.score(POSTERIOR, named)
        scores.save(tmp_path / f"scores.{ending}")
        back = demur.Scores.load(tmp_path / f"scores.{ending}")
        assert back.ids is not None and back.ids.tolist() == list(named.index)


def test_numbers_in_objects_stay_numbers() -> None:
    pandas = pytest.importorskip("pandas")
    mixed = pandas.DataFrame({"x": X[:, 0], "label": Y}).astype(object)
    scores = demur.score(Samples(lambda x: np.zeros((2, len(x), 2)), kind="logits"), [(X, mixed["label"])])
    assert scores.labels.dtype.kind == "i" and scores.correct.mean() == (Y == 0).mean()
    missing = pandas.Series([*Y[:-1], None])
    with pytest.raises(ValueError, match="NaN at input 599"):
        _ = demur.score(POSTERIOR, [(X, missing)]).correct


# --- batches that only their owner can open ------------------------------------------------------


class Graphs:
    """As PyTorch Geometric has them: nodes of all graphs in one array, and to which graph each belongs."""

    def __init__(self, x, graph, y, names=None) -> None:
        self.x, self.graph, self.y, self.names = x, graph, y, names

    @property
    def num_graphs(self) -> int:
        return len(self.y)

    def __len__(self) -> int:  # the number of fields, as there
        return 3

    def __getitem__(self, key):
        raise AssertionError("a batch of graphs has no rows")

    def to(self, device):
        return Graphs(self.x.to(device), self.graph.to(device), self.y, self.names)


def graphs(torch, count: int = 40, size: int = 7) -> list:
    """Batches of graphs with 1 to 4 nodes each."""
    rng = np.random.default_rng(0)
    nodes = rng.integers(1, 5, count)
    found = []
    for start in range(0, count, size):
        own = nodes[start : start + size]
        x = torch.from_numpy(rng.normal(size=(own.sum(), 3)))
        graph = torch.from_numpy(np.repeat(np.arange(len(own)), own))
        y = torch.from_numpy(rng.integers(0, 2, len(own)))
        found.append(Graphs(x, graph, y, [f"molecule {start + i}" for i in range(len(own))]))
    return found


def graph_network(torch):
    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = torch.nn.Linear(3, 2).double()
            self.drop = torch.nn.Dropout(0.3)

        def forward(self, batch):
            pooled = torch.zeros(batch.num_graphs, 3).double().index_add(0, batch.graph, batch.x)
            return self.last(self.drop(pooled))

    return Network()


@pytest.mark.parametrize("order", ["batch", "member"])
def test_batches_of_graphs(order, tmp_path) -> None:
    torch = pytest.importorskip("torch")
    loader, networks = graphs(torch), [graph_network(torch) for _ in range(4)]
    with torch.no_grad():
        logits = np.stack([torch.cat([each.eval()(b) for b in loader]).numpy() for each in networks])
    named = {"labels": "y", "ids": "names", "size": "num_graphs"}
    for unpack in (named, lambda batch: (batch, batch.y, batch.names, batch.num_graphs)):
        scores = demur.score(
            networks, loader, unpack=unpack, order=order, checkpoint=tmp_path / "run", every=0.0
        )
        np.testing.assert_allclose(k_of(scores), demur.decompose(logits=logits).epistemic, rtol=1e-9)
        np.testing.assert_array_equal(scores.labels, np.concatenate([each.y for each in loader]))
        assert scores.ids is not None and scores.ids[-1] == "molecule 39"
    with pytest.raises(TypeError, match=r"unpack=\{'labels': 'y', 'size': 'num_graphs'\}"):
        demur.score(networks, loader)


def test_graphs_that_stop_early_and_dropout() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    loader, network = graphs(torch, 60, 30), graph_network(torch)
    unpack = {"labels": "y", "size": "num_graphs"}
    posterior = demur.posteriors.MCDropout(network, samples=64)
    scores = demur.score(posterior, loader, unpack=unpack, tolerance=0.03)
    assert scores.used.min() < scores.used.max() == 64
    whole = demur.score(posterior, loader, unpack=unpack, unbiased=True)
    done = scores.used == 64
    np.testing.assert_allclose(k_of(scores)[done], k_of(whole)[done], rtol=1e-9)


def test_other_batches_are_noticed_after_an_interruption(tmp_path) -> None:
    torch = pytest.importorskip("torch")
    loader, networks = graphs(torch), [graph_network(torch) for _ in range(2)]
    unpack = {"labels": "y", "size": "num_graphs"}
    options = {"unpack": unpack, "checkpoint": tmp_path / "run", "every": 0.0}
    with pytest.raises(ValueError, match="unpack must name what each batch has"):
        demur.score(networks, [*loader[:2], {"y": 3}], **options)
    loader[0].x[0] += 1
    with pytest.raises(ValueError, match="same batches as before"):
        demur.score(networks, loader, **options)


def test_a_batch_axis_that_is_not_the_first() -> None:
    times = np.moveaxis(np.random.default_rng(2).normal(size=(10, 6, 3)), 0, 1)  # (time, inputs, features)
    posterior = Samples(lambda x: x.mean(0) @ HEADS, kind="logits")
    batch = {"series": times, "outcome": np.zeros(10, int), "name": [f"s{i}" for i in range(10)]}
    unpack = {"inputs": "series", "labels": "outcome", "ids": "name", "axis": 1}
    scores = demur.score(posterior, [batch], unpack=unpack)
    np.testing.assert_allclose(k_of(scores), demur.decompose(logits=times.mean(0) @ HEADS).epistemic)
    assert len(scores) == 10 and scores.ids is not None and scores.ids[3] == "s3"
    by_place = demur.score(posterior, [(times, np.zeros(10))], unpack={"inputs": 0, "labels": 1, "axis": 1})
    np.testing.assert_array_equal(k_of(by_place), k_of(scores))


def test_what_unpack_refuses() -> None:
    wrong = [
        (TypeError, "unpack must be a function", 3),
        (ValueError, "Got 'label'", {"label": "y"}),
        (ValueError, "size or axis", {"size": "n", "axis": 0}),
        (ValueError, "Got 2 parts", lambda batch: (batch, None)),
        (ValueError, "Got ndarray", lambda batch: batch),
        (ValueError, "at least 1 input. Got 0", lambda batch: (batch, None, None, 0)),
        (ValueError, "at least 1 input. Got None", lambda batch: (batch, None, None, None)),
        (ValueError, "which ndarray has not", {"labels": "y"}),
        (ValueError, "an axis of the inputs", {"axis": 2}),
        (ValueError, "of 500 inputs", lambda batch: (batch, None, None, 500)),
    ]
    for kind, message, unpack in wrong:
        with pytest.raises(kind, match=message):
            demur.score(POSTERIOR, [X], unpack=unpack)
    with pytest.raises(ValueError, match="unpack must give size"):
        demur.score(POSTERIOR, [{"x": X}], unpack={"labels": None})
    with pytest.raises(ValueError, match="a batch of 'x'"):
        demur.score(POSTERIOR, [{"x": X}], unpack={"inputs": "z"})


def test_what_loaders_had_before_is_unchanged() -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    ensemble = DeepEnsemble([torch.nn.Linear(3, 2).double() for _ in range(2)])
    expected = k_of(demur.score(ensemble, [(x, y)]))
    for loader in (
        [x],
        X,
        [{"anything": X}],
        [[x, y]],
        torch.utils.data.DataLoader(list(zip(x, y, strict=True)), 100),
    ):
        np.testing.assert_allclose(k_of(demur.score(ensemble, loader)), expected, rtol=1e-9)
