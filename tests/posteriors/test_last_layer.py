"""LastLayer: masks that belong to the input, heads that are drawn, and rows of a batch."""

import numpy as np
import pytest

import demur
from demur.posteriors import LastLayer, last_layer
from demur.posteriors.dropout.masks import Masks
from demur.posteriors.heads import logits

torch = pytest.importorskip("torch")
nn = torch.nn


def let_few_classes_be(count, monkeypatch):
    """Change up to how many classes a product is compiled, or made for all heads at once."""
    for module in (last_layer, logits):
        monkeypatch.setattr(module, "FEW_CLASSES", count)


def model_of(features: int = 8, classes: int = 3):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, features), nn.ReLU(), nn.Linear(features, classes)).double()


def whole(posterior, x, **options) -> np.ndarray:
    return torch.cat([c for c, _ in posterior.predict(x, **options)]).numpy()


# --- masks ---------------------------------------------------------------------------------------

RATES = (0.2, 0.25, 0.5, 0.001, 0.999, 1 / 3)


@pytest.mark.parametrize("rate", RATES)
def test_the_rate_is_exact(rate) -> None:
    """Five standard deviations of a binomial count: each rate fails once in 1.7 million seeds."""
    count = 200 * 50 * 130
    dropped = count - int(Masks(rate, 3, 130).draw_kept(range(200), np.arange(50)).sum(dtype=np.int64))
    assert abs(dropped - rate * count) < 5 * np.sqrt(rate * (1 - rate) * count)


def test_control_a_byte_alone_misses_the_rate() -> None:
    """0.2 is no multiple of 1/256: 51 of 256 is off by 0.0008, which 16 million draws tell."""
    masks = Masks(0.2, 3, 1280)
    masks._below = np.uint64(0)
    count = 64 * 200 * 1280
    dropped = count - int(masks.draw_kept(range(64), np.arange(200)).sum(dtype=np.int64))
    assert abs(dropped - 0.2 * count) > 4 * np.sqrt(0.16 * count)
    assert abs(dropped - 51 / 256 * count) < 5 * np.sqrt(0.16 * count)


def test_ties_are_broken_at_their_share() -> None:
    """A rate of 0.5/256 is decided by ties alone."""
    rate, count = 0.5 / 256, 100 * 100 * 100
    dropped = count - int(Masks(rate, 0, 100).draw_kept(range(100), np.arange(100)).sum(dtype=np.int64))
    assert abs(dropped - rate * count) < 5 * np.sqrt(rate * count)


@pytest.mark.parametrize("features", [1, 7, 8, 130, 1280])
@pytest.mark.parametrize("rate", [0.2, 0.5, 0.5 / 256, 0.999])
def test_compiled_masks_are_those_of_numpy(monkeypatch, features, rate) -> None:
    pytest.importorskip("numba")
    drawn = [Masks(rate, 3, features).draw_kept(range(2, 9), np.arange(40) ** 3)]
    monkeypatch.setenv("DEMUR_COMPILE", "never")
    drawn.append(Masks(rate, 3, features).draw_kept(range(2, 9), np.arange(40) ** 3))
    np.testing.assert_array_equal(*drawn)


def largest_correlation(bits: np.ndarray) -> float:
    """Return the largest correlation between two columns, in standard errors."""
    centred = (bits - bits.mean(0)) / bits.std(0)
    found = centred.T @ centred / len(bits)
    np.fill_diagonal(found, 0)
    return float(np.abs(found).max() * np.sqrt(len(bits)))


def test_features_members_and_inputs_are_independent() -> None:
    """The largest of 780 correlations is beyond 5.5 standard errors once in 30,000 seeds."""
    kept = Masks(0.2, 11, 40).draw_kept(range(40), np.arange(40)).astype(float)
    views = {"features": kept.reshape(-1, 40), "inputs": kept.transpose(0, 2, 1).reshape(-1, 40),
             "members": kept.transpose(1, 2, 0).reshape(-1, 40)}  # fmt: skip
    for name, bits in views.items():
        assert largest_correlation(bits) < 5.5, name
    other = Masks(0.2, 12, 40).draw_kept(range(40), np.arange(40)).astype(float)
    seeds = np.corrcoef(kept.ravel(), other.ravel())[0, 1] * np.sqrt(kept.size)
    assert abs(seeds) < 5
    # A mask that two members share is found.
    views["members"][:, 3] = views["members"][:, 17]
    assert largest_correlation(views["members"]) > 5.5


def test_counts_of_a_row_are_binomial() -> None:
    """The variance of the count of kept features, over 40,000 rows, within five of its standard errors."""
    kept = Masks(0.2, 5, 50).draw_kept(range(200), np.arange(200)).sum(-1, dtype=np.int64).ravel()
    assert abs(kept.var() / (50 * 0.16) - 1) < 5 * np.sqrt(2 / kept.size)


def test_a_mask_belongs_to_seed_member_and_input() -> None:
    kept = Masks(0.3, 7, 21).draw_kept(range(12), np.arange(30)).copy()
    masks = Masks(0.3, 7, 21)
    np.testing.assert_array_equal(masks.draw_kept(range(5, 9), [17, 3]), kept[5:9][:, [17, 3]])
    np.testing.assert_array_equal(masks.draw_kept(range(11, 12), np.arange(4, 30)), kept[11:, 4:])
    assert (Masks(0.3, 8, 21).draw_kept(range(12), np.arange(30)) != kept).any()


WAYS = pytest.mark.parametrize("few", [32, 0], ids=["few classes", "many"])


@WAYS
def test_dropout_does_not_depend_on_batches_chunks_or_neighbours(monkeypatch, few) -> None:
    let_few_classes_be(few, monkeypatch)
    posterior, x = LastLayer(model_of(), dropout=0.3, samples=25), torch.rand(30, 4).double()
    expected = whole(posterior, x)
    parts = [whole(posterior, x[i : i + 7], position=i) for i in range(0, 30, 7)]
    np.testing.assert_allclose(np.concatenate(parts, axis=1), expected, rtol=1e-12)
    np.testing.assert_allclose(whole(posterior, x, members=range(3, 20)), expected[3:20], rtol=1e-12)
    rows = np.array([4, 11, 29])
    asked = torch.cat([c for c, _ in posterior.hold(x)(range(5, 25), rows)]).numpy()
    np.testing.assert_allclose(asked, expected[5:][:, rows], rtol=1e-12)
    monkeypatch.setattr(logits, "ROWS_PER_PRODUCT", 8)  # inputs in several parts
    np.testing.assert_allclose(whole(posterior, x), expected, rtol=1e-12)
    assert (whole(posterior, x, position=1) != expected).any()


@WAYS
@pytest.mark.parametrize("features", [1, 6, 32, 77])
@pytest.mark.parametrize("classes", [1, 2, 3, 10])
@pytest.mark.parametrize("bias", [True, False])
def test_dropout_in_single_precision_is_masks_and_a_product(
    monkeypatch, few, features, classes, bias
) -> None:
    let_few_classes_be(few, monkeypatch)
    layer = nn.Linear(features, classes, bias=bias)
    posterior, x = (
        LastLayer(nn.Sequential(nn.Identity(), layer), dropout=0.3, samples=6),
        torch.rand(5, features),
    )
    kept = torch.from_numpy(Masks(0.3, 0, features).draw_kept(range(6), np.arange(5)))
    with torch.no_grad():
        expected = torch.nn.functional.linear(kept * x / 0.7, layer.weight, layer.bias)
    np.testing.assert_allclose(whole(posterior, x), expected.numpy(), rtol=1e-5, atol=1e-6)


@WAYS
def test_features_that_require_gradients_and_none_at_all(monkeypatch, few) -> None:
    let_few_classes_be(few, monkeypatch)
    posterior, x = LastLayer(nn.Linear(6, 3), dropout=0.3, samples=5), torch.rand(4, 6)
    np.testing.assert_array_equal(whole(posterior, x.clone().requires_grad_()), whole(posterior, x))
    assert whole(posterior, x[:0]).shape == (5, 0, 3)


@pytest.mark.parametrize("compiled", ["always", "never"])
def test_dropout_of_an_input_is_the_same_to_the_last_bit_in_any_batch(monkeypatch, compiled) -> None:
    monkeypatch.setenv("DEMUR_COMPILE", compiled)
    model = nn.Sequential(nn.Identity(), nn.Linear(77, 10))
    posterior, x = LastLayer(model, dropout=0.2, samples=23), torch.rand(9, 77)
    expected = whole(posterior, x)
    rows = np.array([7, 2, 8])
    for members in (range(23), range(5, 12), range(3, 20, 4)):
        asked = torch.cat([c for c, _ in posterior.hold(x)(members, rows)]).numpy()
        np.testing.assert_array_equal(asked, expected[list(members)][:, rows])


@WAYS
@pytest.mark.parametrize("members", [range(7), range(2, 5), range(0, 7, 3), range(6, -1, -2)])
def test_heads_are_linear_layers_with_weights_of_their_own(monkeypatch, few, members) -> None:
    let_few_classes_be(few, monkeypatch)
    heads, x = [nn.Linear(8, 3).double() for _ in range(7)], torch.rand(5, 4).double()
    model, weights = model_of(), np.arange(1.0, 8.0)
    posterior = LastLayer(model, heads, weights=weights)
    found = list(posterior.predict(x, members=members))
    with torch.no_grad():
        expected = [heads[k](model[:2](x)).numpy() for k in members]
    np.testing.assert_allclose(torch.cat([logits for logits, _ in found]).numpy(), expected, rtol=1e-12)
    np.testing.assert_array_equal(np.concatenate([own for _, own in found]), weights[list(members)])


# --- heads that are drawn ------------------------------------------------------------------------


class Chain:
    """Heads of a chain: asked for in order, once each."""

    members = 10

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.weight, self.bias = rng.normal(size=(10, 3, 8)), rng.normal(size=(10, 3))
        self.asked: list[range] = []

    def parameters(self, members: range) -> dict:
        assert members.start == (self.asked[-1].stop if self.asked else 0), "not in order"
        self.asked.append(members)
        own = slice(members.start, members.stop)
        return {"weight": torch.from_numpy(self.weight[own]), "bias": torch.from_numpy(self.bias[own])}


@WAYS
def test_drawn_heads_are_asked_for_once_and_in_order(monkeypatch, few) -> None:
    let_few_classes_be(few, monkeypatch)
    monkeypatch.setattr(last_layer, "DRAWN_WEIGHTS", 3 * 8 * 3)  # three heads at a time
    x, chain = torch.rand(20, 4).double(), Chain()
    loader = [x[:7], x[7:14], x[14:]]
    found = demur.score(LastLayer(model_of(), chain), loader, order="member", progress=False)
    blocks = [range(k, min(k + 3, 10)) for k in range(0, 10, 3)]
    assert chain.asked == (blocks if few else [range(k, k + 1) for k in range(10)])
    held = LastLayer(model_of(), (torch.from_numpy(chain.weight), torch.from_numpy(chain.bias)))
    for name, values in demur.score(held, loader, progress=False).columns.items():
        np.testing.assert_allclose(found.columns[name], values, rtol=1e-9, err_msg=name)


def test_what_drawn_heads_must_return() -> None:
    class Wrong(Chain):
        def parameters(self, members):
            return {"weight": torch.zeros(self.shape), "bias": torch.zeros(self.shape[:2])}

    x, wrong = torch.rand(2, 4).double(), Wrong()
    cases = [
        ((1, 3, 7), "3 classes and 8 features"),
        ((2, 3, 8), "heads as it is asked for, 10. Got 2"),
    ]
    for shape, message in cases:
        wrong.shape = shape
        with pytest.raises(ValueError, match=message):
            demur.score(LastLayer(model_of(), wrong), [x], progress=False)
    with pytest.raises(ValueError, match="whose heads are drawn"):
        LastLayer(model_of(), Chain()).save("nowhere")
    wrong.members = 0
    with pytest.raises(ValueError, match=r"heads\.members must be a positive integer"):
        LastLayer(model_of(), wrong)


@pytest.mark.parametrize("dropout", [True, False])
def test_a_batch_is_summed_in_tiles_to_the_same_scores(monkeypatch, dropout) -> None:
    model, x = model_of(), torch.randn(23, 4).double()
    heads = None if dropout else [model_of()[2] for _ in range(5)] + [nn.Linear(8, 3).double()]
    posterior = LastLayer(model, heads, dropout=0.3 if dropout else None, samples=20)
    options = {"measures": ["pairwise", "A3"], "progress": False, "stderr": True}
    expected = demur.score(posterior, [x], **options)
    assert posterior.tile is not None and posterior.tile > 23
    monkeypatch.setattr(posterior, "tile", 7)
    asked = []
    original = posterior._predict_features
    monkeypatch.setattr(
        posterior,
        "_predict_features",
        lambda features, *rest: asked.append(len(features)) or original(features, *rest),
    )
    found = demur.score(posterior, [x], **options)
    assert asked == [7, 7, 7, 2]
    for name, values in expected.columns.items():
        np.testing.assert_allclose(found.columns[name], values, rtol=1e-9, atol=1e-15, err_msg=name)
