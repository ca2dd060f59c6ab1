"""DeepEnsemble, MCDropout and LastLayer: what each draws, and what it refuses."""

import itertools

import numpy as np
import pytest

import demur
from demur.posteriors import DeepEnsemble, LastLayer, MCDropout

torch = pytest.importorskip("torch")
nn = torch.nn
functional = torch.nn.functional


def logits_of(posterior, x, **options) -> np.ndarray:
    chunks = [c[0] if isinstance(c, tuple) else c for c in posterior.predict(x, **options)]
    return torch.cat(chunks).numpy()


# --- deep ensembles ------------------------------------------------------------------------------


def test_architectures_with_preprocessing_of_their_own() -> None:
    torch.manual_seed(0)
    small = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    large = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2 * 36, 3))
    ensemble = DeepEnsemble([small, large], prepare=[lambda x: x[..., ::2, ::2], None])
    x = torch.rand(5, 1, 8, 8)
    found = logits_of(ensemble, x)
    with torch.no_grad():
        expected = torch.stack([small(x[..., ::2, ::2]), large(x)]).numpy()
    np.testing.assert_array_equal(found, expected)
    assert demur.score(ensemble, [x]).members == 2


def test_networks_that_are_loaded_in_turn() -> None:
    alive: list[int] = []

    def loaded(seed):
        def load():
            alive.append(seed)
            torch.manual_seed(seed)
            return nn.Linear(4, 3)

        return load

    x = torch.rand(10, 4)
    scores = demur.score(DeepEnsemble([loaded(s) for s in range(3)]), [x], order="member")
    assert alive == [0, 1, 2]
    given = [loaded(s)() for s in range(3)]
    np.testing.assert_allclose(
        scores["pairwise"].epistemic, demur.score(DeepEnsemble(given), [x])["pairwise"].epistemic, rtol=1e-6
    )


def test_an_ensemble_is_saved_and_loaded(tmp_path) -> None:
    def models():
        return [nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)) for _ in range(3)]

    ensemble = DeepEnsemble(models())
    ensemble.save(tmp_path / "ensemble.safetensors")
    x = torch.rand(6, 4)
    loaded = DeepEnsemble.load(tmp_path / "ensemble.safetensors", models())
    np.testing.assert_array_equal(logits_of(loaded, x), logits_of(ensemble, x))
    with pytest.raises(ValueError, match=r"holds 3 members. Got 2 models"):
        DeepEnsemble.load(tmp_path / "ensemble.safetensors", models()[:2])
    with pytest.raises(ValueError, match=r"architecture that was saved\. [^\n]+$"):
        DeepEnsemble.load(tmp_path / "ensemble.safetensors", [nn.Linear(4, 3) for _ in range(3)])
    with pytest.raises(ValueError, match=r"written by LastLayer.save"):
        LastLayer.load(tmp_path / "ensemble.safetensors", nn.Linear(4, 3))
    (tmp_path / "other").write_bytes(b"no tensors at all")
    with pytest.raises(ValueError, match=r"written by DeepEnsemble.save"):
        DeepEnsemble.load(tmp_path / "other", models())
    with pytest.raises(FileNotFoundError, match="does not exist"):
        DeepEnsemble.load(tmp_path / "nowhere", models())


@pytest.mark.parametrize("kind", [demur.Points, demur.Draws])
def test_networks_that_predict_numbers_without_a_variance(kind) -> None:
    models = [torch.nn.Linear(4, 3) for _ in range(5)]
    inputs = torch.randn(6, 4)

    def predict(model, batch):  # of draws, three for each input
        found = model(batch)
        return kind(found.T if kind is demur.Draws else found[:, 0])

    scores = demur.score(DeepEnsemble(models, forward=predict), [inputs[:4], inputs[4:]], progress=False)
    whole = kind(torch.stack([predict(model, inputs).values.detach() for model in models]))
    np.testing.assert_allclose(
        scores["pairwise"].epistemic, demur.decompose(whole).epistemic.numpy(), rtol=1e-5, atol=1e-6
    )
    assert "in the unit of the numbers" in repr(scores) and "in the unit of the numbers" in repr(
        scores["pairwise"]
    )


def test_what_an_ensemble_refuses() -> None:
    model, x = nn.Linear(4, 3), torch.rand(2, 4)
    wrong = [
        (ValueError, "at least one network", lambda: DeepEnsemble([])),
        (TypeError, "Got int among them", lambda: DeepEnsemble([3])),
        (ValueError, "1 positive numbers", lambda: DeepEnsemble([model], weights=[0.0])),
        (ValueError, "one for each of 1 models", lambda: DeepEnsemble([model], prepare=[None, None])),
        (TypeError, r"models\[0\] returns must be", lambda: demur.score(DeepEnsemble([lambda: 3]), [x])),
        (TypeError, "Got tuple. Give forward",
         lambda: demur.score(DeepEnsemble([model], forward=lambda m, x: (m(x), 1)), [x])),
        (ValueError, r"Got \(2,\)",
         lambda: demur.score(DeepEnsemble([model], forward=lambda m, x: m(x)[:, 0]), [x])),
        (ValueError, "within 0 to 1", lambda: list(DeepEnsemble([model]).predict(x, members=range(2)))),
    ]  # fmt: skip
    for kind, message, call in wrong:
        with pytest.raises(kind, match=message):
            call()


# --- MC dropout ----------------------------------------------------------------------------------

P = 0.4


def linear_model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Dropout(P), nn.Linear(3, 3)).double()


def exact(model, x, p: float) -> demur.Decomposition:
    """All eight masks of three features, each with its probability."""
    masks = torch.tensor(list(itertools.product([0.0, 1.0], repeat=3))).double()
    with torch.no_grad():
        logits = torch.stack([model[-1](x * mask / (1 - p)) for mask in masks])
    kept = masks.sum(1).numpy()
    return demur.decompose(logits=logits.numpy(), weights=(1 - p) ** kept * p ** (3 - kept))


def within(scores, expected) -> bool:
    """Five standard errors for each of 8 inputs: a right sampler fails once in 200,000 seeds."""
    found = scores["pairwise"]
    return bool((np.abs(found.epistemic - expected.epistemic) < 5 * found.stderr.epistemic).all())


@pytest.mark.parametrize("method", ["MCDropout", "LastLayer"])
def test_k_of_a_linear_model_is_the_exact_expectation(method) -> None:
    model = linear_model()
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(8, 3)))
    posterior = MCDropout(model, 2000) if method == "MCDropout" else LastLayer(model, dropout=P, samples=2000)
    scores = demur.score(posterior, [x[:5], x[5:]], unbiased=True, stderr=True)
    assert within(scores, exact(model, x, P))
    assert (scores["pairwise"].stderr.epistemic < 0.1 * scores["pairwise"].epistemic).all()
    assert not within(scores, exact(model, x, P + 0.05))  # the check can fail


KINDS = {
    "Dropout": (nn.Dropout, (4, 6)),
    "Dropout1d": (nn.Dropout1d, (4, 6, 5)),
    "Dropout2d": (nn.Dropout2d, (4, 6, 3, 3)),
    "Dropout3d": (nn.Dropout3d, (4, 6, 2, 2, 2)),
    "AlphaDropout": (nn.AlphaDropout, (4, 6)),
    "FeatureAlphaDropout": (nn.FeatureAlphaDropout, (4, 6, 3)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_dropout_layer_samples(kind) -> None:
    layer, shape = KINDS[kind]
    model = nn.Sequential(layer(0.5), nn.Flatten(), nn.LazyLinear(3))
    x = torch.rand(shape)
    model(x)
    found = logits_of(MCDropout(model, 4), x)
    assert all((found[0] != found[k]).any() for k in range(1, 4))


def test_batch_norm_stays_in_evaluation_and_the_deployed_model_is_the_model() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 3))
    x = torch.rand(16, 4) + 3
    model.train()(x)
    model.train()
    posterior = MCDropout(model, 5)
    # In evaluation an input does not depend on who is in the batch with it.
    alone, together = (logits_of(posterior, rows) for rows in (x[:1], x[:1].repeat(9, 1)))
    np.testing.assert_allclose(alone, together[:, :1], rtol=1e-5, atol=1e-5)
    scores = demur.score(posterior, [x])
    with torch.no_grad():
        expected = model.eval()(x).argmax(-1).numpy()
    np.testing.assert_array_equal(scores.deployed, expected)


def test_a_seed_fixes_members_and_each_input_has_a_mask_of_its_own() -> None:
    model, x = linear_model(), torch.ones(6, 3).double()
    first = logits_of(MCDropout(model, 40, seed=5), x)
    np.testing.assert_array_equal(first, logits_of(MCDropout(model, 40, seed=5), x))
    np.testing.assert_array_equal(first[7:9], logits_of(MCDropout(model, 40, seed=5), x, members=range(7, 9)))
    assert (first != logits_of(MCDropout(model, 40, seed=6), x)).any()
    assert (first != logits_of(MCDropout(model, 40, seed=5), x, position=6)).any()
    assert (first[:, 0] != first[:, 1]).any()


class Counted(nn.Module):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return x


def test_layers_before_the_first_dropout_run_once() -> None:
    before, after = Counted(), Counted()
    inner = nn.Sequential(before, nn.Linear(4, 8), nn.Dropout(inplace=True), nn.ReLU(inplace=True))
    model = nn.Sequential(inner, after, nn.Linear(8, 3))
    x = torch.rand(5, 4)
    posterior = MCDropout(model, 6)
    found = logits_of(posterior, x)
    # Once more in the very first pass, a whole one, which the others are compared with.
    assert (before.calls, after.calls) == (2, 7)
    np.testing.assert_array_equal(logits_of(posterior, x), found)
    assert (before.calls, after.calls) == (3, 13)

    whole = MCDropout(model, 6, forward=lambda model, x: model(x))
    np.testing.assert_array_equal(logits_of(whole, x), found)
    assert before.calls == 9


class Functional(nn.Module):
    def __init__(self, layer: bool) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)
        self.drop = nn.Dropout() if layer else nn.Identity()

    def forward(self, x):
        return self.inner(functional.dropout(self.drop(x), 0.5, self.training))


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.drop = nn.Linear(4, 3), nn.Dropout()

    def forward(self, x):
        return self.inner(x)


def test_dropout_that_would_not_sample_is_refused() -> None:
    x = torch.rand(2, 4)
    both = Functional(layer=True)
    wrong = [
        ("Functional dropout is no layer", lambda: MCDropout(nn.Linear(4, 3))),
        ("Functional dropout is no layer", lambda: MCDropout(Functional(layer=False))),
        ("1 with p = 0", lambda: MCDropout(nn.Sequential(nn.Dropout(0.0), nn.Linear(4, 3)))),
        (r"torch.nn.functional.dropout", lambda: demur.score(MCDropout(both, 3), [x])),
        ("all members would be identical", lambda: demur.score(MCDropout(Unused(), 3), [x])),
        ("samples must be a positive integer", lambda: MCDropout(both, 0)),
        ("'drop'. Got 'drop'", lambda: MCDropout(both, layers="drop")),
        (r"'drop'. Got \['other'\]", lambda: MCDropout(both, layers=["other"])),
    ]
    for message, call in wrong:
        with pytest.raises(ValueError, match=message):
            call()
    assert (demur.score(MCDropout(both, 3, layers=["drop"]), [x])["pairwise"].epistemic > 0).all()


def test_a_dropout_layer_that_is_never_called_is_a_warning() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Linear(4, 4), Unused())
    model[2].inner = nn.Linear(4, 3)
    with pytest.warns(UserWarning, match=r"never called, and so do not sample: 2\.drop"):
        demur.score(MCDropout(model, 3), [torch.rand(2, 4)])


def test_transformer_layers_sample_though_evaluation_fuses_them() -> None:
    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.layer(x)[:, 0])

    model, x = Transformer(), torch.rand(3, 5, 8)
    assert (demur.score(MCDropout(model, 4), [x])["pairwise"].epistemic > 0).all()
    attention = MCDropout(model, 4, layers=["layer.self_attn"])
    assert (demur.score(attention, [x])["pairwise"].epistemic > 0).all()


# --- last layer ----------------------------------------------------------------------------------


def backbone():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).double()


def test_heads_are_models_that_share_a_backbone(tmp_path) -> None:
    model, x = backbone(), torch.rand(7, 4).double()
    heads = [nn.Linear(8, 3, bias=k != 1).double() for k in range(5)]
    posterior = LastLayer(model, heads)
    with torch.no_grad():
        expected = torch.stack([nn.Sequential(model[0], model[1], head)(x) for head in heads]).numpy()
    np.testing.assert_allclose(logits_of(posterior, x), expected, rtol=1e-12)
    np.testing.assert_allclose(logits_of(posterior, x, members=range(2, 4)), expected[2:4], rtol=1e-12)
    posterior.save(tmp_path / "heads.safetensors")
    loaded = LastLayer.load(tmp_path / "heads.safetensors", model)
    np.testing.assert_allclose(logits_of(loaded, x), logits_of(posterior, x), rtol=1e-12)
    with torch.no_grad():
        np.testing.assert_array_equal(demur.score(posterior, [x]).deployed, model(x).argmax(-1).numpy())


def test_many_heads_come_in_chunks_of_bounded_size(monkeypatch) -> None:
    from demur.posteriors import posterior as module

    model, x = backbone(), torch.rand(10, 4).double()
    whole = logits_of(LastLayer(model, dropout=0.5, samples=50), x)
    monkeypatch.setattr(module, "LOGITS_PER_CHUNK", 300)
    chunks = [c for c, _ in LastLayer(model, dropout=0.5, samples=50).predict(x)]
    assert [len(c) for c in chunks] == [10] * 5
    np.testing.assert_allclose(torch.cat(chunks).numpy(), whole, rtol=1e-12)


def test_what_a_last_layer_refuses() -> None:
    model, x = backbone(), torch.rand(2, 4).double()
    no_end = nn.Sequential(model, nn.Softmax(-1))
    head = nn.Linear(8, 3).double()
    wrong = [
        (ValueError, "Got none of them", lambda: LastLayer(model)),
        (ValueError, "Got both of them", lambda: LastLayer(model, [head], dropout=0.5)),
        (ValueError, "dropout must be above 0", lambda: LastLayer(model, dropout=1.0)),
        (ValueError, "'0', '2'. Got '1'", lambda: LastLayer(model, dropout=0.5, layer="1")),
        (ValueError, "it has none", lambda: LastLayer(nn.ReLU(), dropout=0.5)),
        (ValueError, "3 classes and 8 features", lambda: LastLayer(model, [nn.Linear(8, 2)])),
        (TypeError, "Got others", lambda: LastLayer(model, [3])),
        (ValueError, "number for each head", lambda: LastLayer(model, [head], weights=[1, 2])),
        (ValueError, "ends with its last linear layer",
         lambda: demur.score(LastLayer(no_end, dropout=0.5), [x])),
        (ValueError, "ends with its last linear layer",
         lambda: demur.score(LastLayer(model, dropout=0.5, layer="0"), [x])),
    ]  # fmt: skip
    for kind, message, call in wrong:
        with pytest.raises(kind, match=message):
            call()


def test_features_are_computed_once_a_batch() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    calls = []
    model[0].register_forward_hook(lambda *_: calls.append(1))
    scores = demur.score(
        LastLayer(model, dropout=0.5, samples=20), [torch.rand(5, 4), torch.rand(5, 4)], progress=False
    )
    assert len(calls) == 2
    assert scores.deployed.shape == (10,)


def test_the_deployed_prediction_follows_the_model() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    posterior, x = LastLayer(model, dropout=0.5, samples=2), torch.rand(5, 4)
    before = posterior.deployed(x)
    list(posterior.predict(x))
    torch.testing.assert_close(posterior.deployed(x), before)
    with torch.no_grad():
        model[2].bias += 1.0
    torch.testing.assert_close(posterior.deployed(x), before + 1.0)


# --- files of every method -----------------------------------------------------------------------


def saved(method: str):
    def model():
        return nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3), nn.Dropout()
        )

    def last():
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))

    makers = {
        "ensemble": lambda: (DeepEnsemble([last(), last()], weights=[1.0, 3.0]), [last(), last()]),
        "dropout": lambda: (MCDropout(model(), 7, seed=5), model()),
        "one layer": lambda: (MCDropout(model(), 7, seed=5, layers=["2"]), model()),
        "heads": lambda: (LastLayer(last(), [nn.Linear(8, 3)] * 2, weights=[1.0, 3.0]), None),
        "last dropout": lambda: (LastLayer(last(), dropout=0.3, samples=7, seed=5), None),
    }
    posterior, other = makers[method]()
    return posterior, posterior.model if other is None else other


@pytest.mark.parametrize("method", ["ensemble", "dropout", "one layer", "heads", "last dropout"])
def test_every_method_is_saved_and_loaded(method, tmp_path) -> None:
    posterior, model = saved(method)
    path = tmp_path / "posterior.safetensors"
    posterior.save(path)
    loaded = type(posterior).load(path, model)
    batch = [torch.rand(9, 4)]
    scores, expected = demur.score(loaded, batch), demur.score(posterior, batch)
    for name, values in expected.columns.items():
        np.testing.assert_array_equal(scores.columns[name], values)
    assert loaded.fingerprint() == posterior.fingerprint()
    others = {DeepEnsemble, MCDropout, LastLayer} - {type(posterior)}
    for other in others:
        with pytest.raises(
            ValueError, match=rf"written by {other.__name__}.save.*, of {type(posterior).__name__}"
        ):
            other.load(path, model)


def test_what_loading_refuses(tmp_path) -> None:
    path = tmp_path / "posterior.safetensors"
    model = nn.Sequential(nn.Dropout(), nn.Linear(8, 3))
    MCDropout(model).save(path)
    with pytest.raises(ValueError, match="model must have the architecture that was saved"):
        MCDropout.load(path, nn.Sequential(nn.Dropout(), nn.Linear(8, 4)))
    LastLayer(model, dropout=0.2).save(path)
    assert LastLayer.load(path, model, samples=5).members == 5
    with torch.no_grad():
        model[1].bias += 1
    with pytest.raises(ValueError, match=r"last layer that .* holds. Got another"):
        LastLayer.load(path, model)
