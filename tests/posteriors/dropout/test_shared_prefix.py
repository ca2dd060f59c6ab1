"""MCDropout cut in two gives what whole passes give, bit by bit, with fewer calls; or does not cut."""

import numpy as np
import pytest

import demur
from demur.posteriors import MCDropout
from demur.posteriors.dropout import shared_prefix

torch = pytest.importorskip("torch")
nn = torch.nn
functional = nn.functional


class Counted(nn.Module):
    def __init__(self, inner) -> None:
        super().__init__()
        self.inner, self.calls = inner, 0

    def forward(self, *arguments, **named):
        self.calls += 1
        return self.inner(*arguments, **named)


class Base(nn.Module):
    """Something expensive, dropout, and a last layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.backbone = Counted(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8)))
        self.block, self.drop, self.head = nn.Linear(8, 8), nn.Dropout(0.4), nn.Linear(8, 3)


class Plain(Base):
    def forward(self, x):
        return self.head(self.drop(functional.relu(self.backbone(x))))


class Residual(Base):
    """The cut goes through two values: the skip, and what dropout takes."""

    def forward(self, x):
        x = self.backbone(x)
        inner = torch.relu(self.block(x))
        return self.head(x + self.drop(inner) * inner.mean())


class InPlace(Base):
    """What is shared is written into after the cut, and a view of it sees that."""

    def forward(self, x):
        x = self.backbone(x)
        view = x[:, :4]
        y = self.drop(x)
        x.add_(y).relu_()
        return self.head(torch.cat([view, y[:, 4:]], 1) + x)


class Misread(Base):
    """A tracer reads ``+=`` as ``+``, and the view stays behind: noticed by comparison."""

    def forward(self, x):
        x = self.backbone(x)
        view = x[:, :4]
        x += self.drop(x)
        return self.head(torch.cat([view, x[:, 4:]], 1))


class Late(Base):
    """Written into after dropout took it, by an operation that does not depend on dropout."""

    def forward(self, x):
        x = self.backbone(x)
        y = self.drop(x)
        x.mul_(2)
        return self.head(x + y)


class Twice(Base):
    def forward(self, x):
        x = self.backbone(x)
        return self.head(self.drop(self.block(self.drop(x))) + self.drop(self.block(x)))


class Defaults(Base):
    """A tracer that sees an object in place of None takes the wrong way."""

    def forward(self, x, scale=None, *, shift=None):
        x = self.backbone(x if scale is None else x * scale)
        return {"logits": self.head(self.drop(x if shift is None else x + shift)), "other": 1}


class Attention(Base):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)

    def forward(self, x):
        return self.head(self.drop(self.layer(self.backbone(x)[:, None])[:, 0]))


class Branching(Base):
    """Cannot be traced: which way it takes depends on numbers."""

    def forward(self, x):
        x = self.backbone(x)
        if x.mean() > 1000:
            return x
        return self.head(self.drop(functional.relu(x)))


class Noisy(Base):
    """Draws before dropout does: nothing can be shared."""

    def forward(self, x):
        return self.head(self.drop(self.backbone(x) + torch.randn(8)))


class Remembers(Base):
    seen = None

    def forward(self, x):
        self.seen = self.backbone(x)
        return self.head(self.drop(self.seen))


class First(Base):
    """Dropout comes first."""

    def forward(self, x):
        return self.head(self.backbone(self.drop(x)))


X = torch.from_numpy(np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32))
NAMED = {"x": X, "shift": torch.ones(8)}
SAMPLES = 6


def logits(posterior, inputs, **options) -> np.ndarray:
    return torch.cat(list(posterior.predict(inputs, **options))).numpy()


def whole(model, inputs) -> np.ndarray:
    from demur.posteriors import networks

    forward = lambda model, given: networks.call_model(model, given)  # noqa: E731
    return logits(MCDropout(model, SAMPLES, seed=3, forward=forward), inputs)


CUT = [
    (Plain, X), (Residual, X), (InPlace, X), (Late, X), (Twice, X), (Defaults, X), (Defaults, NAMED),
    (Attention, X), (Remembers, X),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "inputs"), CUT, ids=lambda each: getattr(each, "__name__", "inputs"))
def test_a_traced_model_gives_what_whole_passes_give(kind, inputs) -> None:
    model = kind().eval()
    with torch.no_grad():
        model.backbone.inner[1].running_mean += 0.3
    expected = whole(model, inputs)
    model.backbone.calls = 0
    before = {name: t.clone() for name, t in model.state_dict().items()}
    posterior = MCDropout(model, SAMPLES, seed=3)
    np.testing.assert_array_equal(logits(posterior, inputs), expected)
    assert isinstance(posterior._splits[tuple(inputs) if inputs is NAMED else None], shared_prefix.GraphSplit)
    assert model.backbone.calls == 2  # in the very first pass, and once for the batch
    np.testing.assert_array_equal(logits(posterior, inputs), expected)
    np.testing.assert_array_equal(logits(posterior, inputs, members=range(2, 4)), expected[2:4])
    assert model.backbone.calls == 4
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert (expected[0] != expected[1]).any()
    assert model.seen is None or isinstance(model.seen, torch.Tensor) if kind is Remembers else True


@pytest.mark.parametrize("kind", [Branching, Noisy, First, Misread])
def test_a_model_that_cannot_be_cut_runs_whole_passes(kind) -> None:
    model = kind().eval()
    if kind is First:
        model.drop.p = 0.2
    expected = whole(model, X)
    model.backbone.calls = 0
    posterior = MCDropout(model, SAMPLES, seed=3)
    np.testing.assert_array_equal(logits(posterior, X), expected)
    assert isinstance(posterior._splits[None], shared_prefix.NoSplit)
    assert model.backbone.calls >= SAMPLES


def test_noise_before_dropout_in_a_sequence_is_each_members_own() -> None:
    class Noise(nn.Module):
        def forward(self, x):
            return x + torch.randn(x.shape)

    model = nn.Sequential(Noise(), nn.Dropout(0.4), nn.Linear(6, 3))
    np.testing.assert_array_equal(logits(MCDropout(model, SAMPLES, seed=3), X), whole(model, X))


def test_hooks_on_a_layer_that_is_looked_into_are_heard() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Plain()

        def forward(self, x):
            return self.inner(x)

    model, heard = Outer(), []
    model.inner.register_forward_hook(lambda *_: heard.append(1))
    logits(MCDropout(model, SAMPLES), X)
    assert len(heard) == SAMPLES


@pytest.mark.parametrize("kind", [Plain, Residual, InPlace, Twice, Branching, Attention])
@pytest.mark.parametrize("with_forward", [False, True])
def test_a_named_layer_runs_once(kind, with_forward) -> None:
    model = kind().eval()
    expected = whole(model, X)
    model.backbone.calls = 0
    forward = (lambda model, x: model(x)) if with_forward else None
    posterior = MCDropout(model, SAMPLES, seed=3, after="backbone", forward=forward)
    np.testing.assert_array_equal(logits(posterior, X), expected)
    assert model.backbone.calls == 2
    np.testing.assert_array_equal(logits(posterior, X), expected)
    assert model.backbone.calls == 3
    assert "forward" not in vars(model.backbone) and not model.backbone._forward_hooks


def test_what_is_done_before_a_named_layer_runs_once_too() -> None:
    class Deep(Base):
        def __init__(self) -> None:
            super().__init__()
            self.early, self.shared = Counted(nn.Linear(6, 6)), Counted(nn.Linear(6, 6))

        def forward(self, x):
            if x.mean() > 1000:
                return x
            x = self.shared(self.shared(self.early(x)))  # a layer that is called twice
            x = self.backbone(x.relu_() + self.shared(x))
            return self.head(self.drop(x) + self.block(x))

    model = Deep().eval()
    expected = whole(model, X)
    for each in (model.early, model.shared, model.backbone):
        each.calls = 0
    np.testing.assert_array_equal(logits(MCDropout(model, SAMPLES, seed=3, after="backbone"), X), expected)
    assert (model.early.calls, model.shared.calls, model.backbone.calls) == (2, 6, 2)


def test_a_name_that_makes_no_sense_is_refused() -> None:
    class Stateful(Base):
        """What later layers need does not only come through the named layer."""

        def forward(self, x):
            if x.mean() > 1000:
                return x
            self.kept = []
            x = self.backbone(self.keeper(x))
            return self.head(self.drop(x) + sum(self.kept))

        def __init__(self) -> None:
            super().__init__()
            self.keeper = nn.Identity()
            self.keeper.forward = lambda x: self.kept.append(x[:, :1]) or x

    late = Plain()
    wrong = [
        ("'backbone', 'block', 'drop', 'head'. Got 'nothing'", lambda: MCDropout(late, after="nothing")),
        ("without dropout inside. Got 'drop', with 'drop'", lambda: MCDropout(late, after="drop")),
        ("Got 'head', and 'drop' samples before it",
         lambda: demur.score(MCDropout(late, 3, after="head"), [X])),
        ("Got 'block', and 'drop' samples before it",  # it is never called at all
         lambda: demur.score(MCDropout(late, 3, after="block"), [X])),
        ("'backbone' members are not those of whole passes",
         lambda: demur.score(MCDropout(Stateful(), 3, after="backbone"), [X])),
        ("that is not compiled",
         lambda: MCDropout(torch.compile(late, backend="eager"), after="_orig_mod.backbone")),
    ]  # fmt: skip
    for message, call in wrong:
        with pytest.raises(ValueError, match=message):
            call()
    assert not late.head._forward_hooks and not late.drop._forward_pre_hooks


def test_functional_dropout_before_the_first_layer_is_refused_too() -> None:
    class Hidden(nn.Module):
        def forward(self, x):
            return functional.dropout(x, 0.5, self.training)

    for model in (nn.Sequential(Hidden(), nn.Dropout(), nn.Linear(6, 3)), Plain()):
        if isinstance(model, Plain):
            model.backbone.inner.add_module("hidden", Hidden())
        with pytest.raises(ValueError, match=r"torch.nn.functional.dropout"):
            demur.score(MCDropout(model, 3), [X])
