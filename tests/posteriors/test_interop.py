"""Models, loaders and files of other libraries: Hugging Face, torch.compile, workers, tables."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import demur
from demur.posteriors import DeepEnsemble, LastLayer, MCDropout, features

torch = pytest.importorskip("torch")
nn = torch.nn


def network(seed: int):
    torch.manual_seed(seed)
    layers = (nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
    return nn.Sequential(*layers)


X = torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
Y = torch.arange(20) % 3


# --- Hugging Face --------------------------------------------------------------------------------

TEXTS = [
    "the film was good", "a very dull film", "not bad", "the plot is slow and dull", "warm and good",
    "bad", "the plot was not very good and the film is slow", "a warm film",
]  # fmt: skip
WORDS = ["[PAD]", "[UNK]", *sorted({word for text in TEXTS for word in text.split()})]


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def loader(transformers):
    """Texts of different lengths, padded batch by batch by a collator, as a Trainer has them."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
    rows = [{**tokenizer(text), "label": i % 3} for i, text in enumerate(TEXTS)]
    collator = transformers.DataCollatorWithPadding(tokenizer)
    return torch.utils.data.DataLoader(rows, batch_size=3, collate_fn=collator)


def classifier(transformers, seed: int = 0, attention: str = "sdpa"):
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=32, num_labels=3, attn_implementation=attention,
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config)
    with torch.no_grad():
        model.classifier.weight *= 50  # as if it were trained
    return model


def test_hugging_face_ensembles(transformers, loader) -> None:
    models = [classifier(transformers, seed) for seed in range(3)]
    scores = demur.score(DeepEnsemble(models), loader)
    np.testing.assert_array_equal(scores.labels, np.arange(len(TEXTS)) % 3)
    with torch.no_grad():
        logits = [
            torch.cat([m.eval()(**{k: v for k, v in b.items() if k != "labels"}).logits for b in loader])
            for m in models
        ]
    expected = demur.decompose(logits=torch.stack(logits).numpy())
    np.testing.assert_allclose(scores["pairwise"].epistemic, expected.epistemic, rtol=1e-5)


@pytest.mark.parametrize("attention", ["sdpa", pytest.param("eager", marks=pytest.mark.slow)])
def test_hugging_face_dropout_also_in_attention(transformers, loader, attention) -> None:
    """Attention reads the rate of the layer that it holds, and never calls it."""
    model = classifier(transformers, attention=attention)
    scores = demur.score(MCDropout(model, 5), loader)
    assert (scores["pairwise"].epistemic > 0).all()
    inside = [f"bert.encoder.layer.{k}.attention.self.dropout" for k in range(2)]
    only = demur.score(MCDropout(model, 5, layers=inside), loader)
    assert (only["pairwise"].epistemic > 0).all()
    others = demur.score(MCDropout(model, 5, layers=["dropout"]), loader)
    assert (others["pairwise"].epistemic != scores["pairwise"].epistemic).all()
    assert model.training and all(module.training for module in model.modules())


def test_hugging_face_layers_before_dropout_run_once(transformers, loader) -> None:
    model, calls = classifier(transformers), []
    model.bert.pooler.register_forward_hook(lambda *_: calls.append(1))

    def scored(**options):
        calls.clear()
        posterior = MCDropout(model, 6, layers=["dropout"], **options)
        return demur.score(posterior, loader)["pairwise"].epistemic, len(calls)

    whole, count = scored(forward=lambda model, inputs: model(**inputs).logits)
    assert count == (6 + 1) * len(loader)  # the deployed model's pass is one more
    for options in ({}, {"after": "bert"}):
        found, count = scored(**options)
        np.testing.assert_array_equal(found, whole)
        assert count == 2 * len(loader) + 1  # and the very first pass


def test_hugging_face_last_layer(transformers, loader, tmp_path) -> None:
    model = classifier(transformers)
    dropped = demur.score(LastLayer(model, dropout=0.2, samples=5), loader)
    assert (dropped["pairwise"].epistemic > 0).all()
    heads = LastLayer.fit(model, loader, 3, cache=tmp_path)
    scores = demur.score(heads, loader)
    assert scores.members == 3 and (scores["pairwise"].epistemic > 0).all()
    kept = features(model, loader, cache=tmp_path)
    assert kept.layer is model.classifier
    again = demur.score(LastLayer(kept.layer, heads.heads), kept)
    np.testing.assert_allclose(again["pairwise"].epistemic, scores["pairwise"].epistemic, rtol=1e-3)


# --- torch.compile -------------------------------------------------------------------------------

BACKENDS = ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]


@pytest.fixture
def compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled_modules(backend) -> None:
    models = [torch.compile(network(seed), backend=backend) for seed in range(2)]
    scores = demur.score(DeepEnsemble(models), [(X, Y)])
    expected = demur.score(DeepEnsemble([network(seed) for seed in range(2)]), [(X, Y)])
    np.testing.assert_allclose(scores["pairwise"].epistemic, expected["pairwise"].epistemic, rtol=1e-3)
    first = demur.score(MCDropout(models[0], 8), [(X, Y)])
    assert (first["pairwise"].epistemic > 0).all() and models[0].training
    again = demur.score(MCDropout(models[0], 8), [(X, Y)])
    np.testing.assert_array_equal(again["pairwise"].epistemic, first["pairwise"].epistemic)
    last = demur.score(LastLayer(models[0], dropout=0.3, samples=8), [(X, Y)])
    plain = demur.score(LastLayer(network(0), dropout=0.3, samples=8), [(X, Y)])
    np.testing.assert_allclose(last["pairwise"].epistemic, plain["pairwise"].epistemic, rtol=1e-3)


# --- workers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["batch", pytest.param("member", marks=pytest.mark.slow)])
def test_loaders_with_workers(order, tmp_path) -> None:
    dataset = torch.utils.data.TensorDataset(X, Y)
    loaders = [
        torch.utils.data.DataLoader(dataset, batch_size=6, num_workers=workers, shuffle=True)
        for workers in (0, 2)
    ]
    ensemble = DeepEnsemble([network(seed) for seed in range(3)])
    torch.manual_seed(5)
    one, two = (demur.score(ensemble, loader, order=order) for loader in loaders)
    np.testing.assert_array_equal(one.labels, two.labels)
    np.testing.assert_array_equal(one["pairwise"].epistemic, two["pairwise"].epistemic)
    straight = torch.utils.data.DataLoader(dataset, batch_size=6, num_workers=2)
    path = tmp_path / "run.checkpoint"
    np.testing.assert_array_equal(
        demur.score(ensemble, straight, order=order, checkpoint=path, every=0.0)["pairwise"].epistemic,
        demur.score(ensemble, straight, order=order)["pairwise"].epistemic,
    )


# --- files ---------------------------------------------------------------------------------------


def read(path) -> dict[str, np.ndarray]:
    if path.suffix == ".npz":
        with np.load(path) as file:
            return {name: file[name] for name in file.files}
    if path.suffix == ".json":
        return {name: np.array(values) for name, values in json.loads(path.read_text())["scores"].items()}
    pandas = pytest.importorskip("pandas")
    table = pandas.read_csv(path) if path.suffix == ".csv" else pandas.read_parquet(path)
    return {name: table[name].to_numpy() for name in table.columns}


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz", "json"])
def test_files_are_those_of_the_command_in_every_format(ending, tmp_path) -> None:
    from demur.cli import app

    ensemble = DeepEnsemble([network(seed).double() for seed in range(4)])
    x = X.double()
    np.save(tmp_path / "logits.npy", torch.cat([c for c, _ in ensemble.predict(x)]).numpy())
    command = tmp_path / f"command.{ending}"
    done = CliRunner().invoke(app, ["score", str(tmp_path / "logits.npy"), "--logits", "--out", str(command)])
    assert done.exit_code == 0, done.output
    own = tmp_path / f"own.{ending}"
    demur.score(ensemble, [x]).save(own)
    expected, found = read(command), read(own)
    assert list(found) == list(expected)
    for name, values in expected.items():
        assert found[name].dtype == values.dtype, name
        np.testing.assert_allclose(found[name], values, rtol=1e-9, atol=1e-14, err_msg=name)
    named = tmp_path / f"named.{ending}"
    ids = [f"row {i}" for i in range(len(x))]
    scores = demur.score(ensemble, [(x, Y, ids)])
    scores.save(named)
    back = read(named)
    assert back["id"].tolist() == ids and back["label"].tolist() == Y.tolist()
    np.testing.assert_allclose(back["pairwise_epistemic"], scores["pairwise"].epistemic, rtol=1e-12)
    if ending == "json":
        facts, others = (json.loads(path.read_text()) for path in (own, command))
        assert others.keys() - facts.keys() == {"files", "kind"} and facts.keys() <= others.keys()
        assert facts["members"] == others["members"] == 4
