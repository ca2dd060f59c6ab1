"""Tensors that stay on their device: float32 there, beside float64 here. No accelerator: CPU tensors."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

import demur
from demur.core import arrays, on_device

torch = pytest.importorskip("torch")
from torch.overrides import TorchFunctionMode  # noqa: E402

MEASURES = ("pairwise", "average", "reverse")
SLOW = pytest.mark.slow


@pytest.fixture
def tensors_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every tensor as one on an accelerator."""
    monkeypatch.setattr(arrays, "stays", lambda array: arrays.library(array) == "torch")


class Moved(TorchFunctionMode):
    """Counts the bytes that leave tensors for the processor, by what asks for them."""

    ASKING = ("cpu", "numpy", "item", "tolist", "__bool__", "__float__", "__int__", "__array__", "nonzero")

    def __init__(self) -> None:
        super().__init__()
        self.bytes: Counter[str] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in self.ASKING:
            self.bytes[name] += args[0].numel() * args[0].element_size()
        return func(*args, **(kwargs or {}))


def agreeing(rng, shape, spread, scale, moved) -> np.ndarray:
    common = scale * rng.normal(size=(1, *shape[1:]))
    own = spread * rng.normal(size=shape) + moved * rng.normal(size=(shape[0], 1, 1))
    return (common + own).astype(np.float32)


def compare(logits: np.ndarray, rtol: float = 1e-5, **options: Any) -> None:
    """Hold float32 on the device to the float64 of the same numbers."""
    for measure in MEASURES:
        exact = demur.decompose(logits=logits.astype(np.float64), measure=measure, **options)
        found = demur.decompose(logits=torch.from_numpy(logits), measure=measure, **options)
        for part in ("total", "aleatoric", "epistemic"):
            own = getattr(found, part)
            assert own.dtype == torch.float32
            np.testing.assert_allclose(
                own.numpy(), getattr(exact, part), rtol=rtol, err_msg=f"{measure} {part}"
            )


@pytest.mark.usefixtures("tensors_stay")
@pytest.mark.parametrize("moved", [pytest.param(0.0, marks=SLOW), 5.0])
@pytest.mark.parametrize("scale", [*(pytest.param(each, marks=SLOW) for each in (0.5, 3.0)), 8.0])
@pytest.mark.parametrize("spread", [3.0, 0.5, 0.1, 1e-2, 1e-4])
@pytest.mark.parametrize("classes", [2, 10, pytest.param(300, marks=SLOW)])
def test_float32_there_agrees_with_float64_here(classes, spread, scale, moved) -> None:
    """The sweep of tests/kernels/test_loops.py."""
    rng = np.random.default_rng(5)
    logits = agreeing(rng, (30, 40, classes), spread, scale, moved)
    compare(logits)
    compare(logits, rule="brier")
    weights = rng.exponential(size=(30, 40)) * 10.0 ** rng.integers(-3, 4, size=(30, 40))
    weights[::7] = 0.0
    compare(logits, weights=weights)


@pytest.mark.usefixtures("tensors_stay")
@pytest.mark.parametrize("rule", ["log", "brier"])
def test_identical_members_give_exactly_0(rule) -> None:
    one = 5 * np.random.default_rng(1).normal(size=(1, 50, 10)).astype(np.float32)
    one[0, 7, 3] = -np.inf
    for weights in (None, np.random.default_rng(2).exponential(size=7), [0.0, 1, 2, 3, 4, 5, 6]):
        for measure in MEASURES:
            same = torch.from_numpy(np.repeat(one, 7, axis=0))
            found = demur.decompose(logits=same, weights=weights, measure=measure, rule=rule)
            assert not found.epistemic.any()


@pytest.mark.usefixtures("tensors_stay")
def test_excluded_classes_are_exact() -> None:
    """K and M are infinite where one member allows what another excludes, and finite else; I always is."""
    rng = np.random.default_rng(3)
    logits = agreeing(rng, (6, 40, 5), 1.0, 2.0, 1.0)
    logits[2, :10, 1] = -np.inf
    logits[:, 10:20, 4] = -np.inf
    logits[0, 20:30, 0] = -np.inf
    logits[3, 30:, 1:] = -np.inf
    compare(logits)
    found = demur.decompose(logits=torch.from_numpy(logits))
    assert (torch.isinf(found.epistemic).numpy() == np.repeat([True, False, True, True], 10)).all()
    compare(logits, rule="brier")
    weights = np.ones((6, 40))
    weights[2, :10], weights[0, 20:30] = 0.0, 0.0
    compare(logits, weights=weights)


@pytest.mark.usefixtures("tensors_stay")
@pytest.mark.parametrize("fill", [-1e4, -1e9, float(np.finfo(np.float32).min)])
def test_classes_that_are_filled_with_very_low_logits(fill) -> None:
    logits = agreeing(np.random.default_rng(4), (5, 30, 6), 1.0, 2.0, 0.0)
    logits[:, :10, 2] = fill
    logits[1, 10:20, 2] = fill
    logits[0, 20:, 2:] = fill
    for measure in MEASURES:
        exact = demur.decompose(logits=logits.astype(np.float64), measure=measure)
        found = demur.decompose(logits=torch.from_numpy(logits), measure=measure)
        with np.errstate(over="ignore"):
            expected = np.asarray(exact.epistemic, np.float32)
        np.testing.assert_allclose(found.epistemic.numpy(), expected, rtol=1e-5)
        np.testing.assert_allclose(found.aleatoric.numpy(), exact.aleatoric, rtol=1e-5)


@pytest.mark.usefixtures("tensors_stay")
def test_members_without_weight_may_hold_anything() -> None:
    logits = agreeing(np.random.default_rng(5), (6, 20, 4), 0.3, 2.0, 1.0)
    odd, weights = logits.copy(), np.array([0.0, 1, 2, 0, 3, 4])
    odd[0], odd[3, :10], odd[3, 10:] = np.nan, 1e30, np.inf
    clean = demur.decompose(logits=torch.from_numpy(logits), weights=weights)
    found = demur.decompose(logits=torch.from_numpy(odd), weights=weights)
    np.testing.assert_array_equal(found.epistemic.numpy(), clean.epistemic.numpy())


@pytest.mark.usefixtures("tensors_stay")
def test_what_is_no_number_is_an_error_that_says_where() -> None:
    logits = np.zeros((3, 8, 4), np.float32)
    for value, message in ((np.nan, "must be numbers. Got nan"), (np.inf, "below infinity. Got inf")):
        logits[1, 6, 2] = value
        with pytest.raises(ValueError, match=rf"{message} at \[1, 6, 2\]"):
            demur.decompose(logits=torch.from_numpy(logits))


@pytest.mark.usefixtures("tensors_stay")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_the_numbers_that_they_are(dtype) -> None:
    z = torch.from_numpy(agreeing(np.random.default_rng(6), (9, 30, 7), 0.5, 2.0, 0.0))
    half = z.to(getattr(torch, dtype))
    found = demur.decompose(logits=half)
    exact = demur.decompose(logits=half.double().numpy())
    assert found.epistemic.dtype == torch.float32
    np.testing.assert_allclose(found.epistemic.numpy(), exact.epistemic, rtol=1e-5)


@pytest.mark.usefixtures("tensors_stay")
def test_log_probabilities_are_checked_and_taken() -> None:
    z = torch.from_numpy(agreeing(np.random.default_rng(7), (9, 30, 7), 0.5, 2.0, 0.0))
    log_probs = torch.log_softmax(z, dim=-1)
    exact = demur.decompose(log_probs=log_probs.double().numpy(), measure="K")
    found = demur.decompose(log_probs=log_probs, measure="K")
    np.testing.assert_allclose(found.epistemic.numpy(), exact.epistemic, rtol=1e-5)
    with pytest.raises(ValueError, match="log_probs must sum to 1"):
        demur.decompose(log_probs=log_probs - 0.1)


@pytest.mark.usefixtures("tensors_stay")
def test_parts_of_the_inputs_give_what_all_of_them_give(monkeypatch) -> None:
    z = torch.from_numpy(agreeing(np.random.default_rng(8), (9, 31, 7), 0.5, 2.0, 0.0)).reshape(9, 31, 7)
    whole = demur.decompose(logits=z)
    monkeypatch.setattr(on_device, "_AT_ONCE", 9 * 4 * 7)
    parts = demur.decompose(logits=z)
    np.testing.assert_allclose(parts.epistemic.numpy(), whole.epistemic.numpy(), rtol=1e-6)


def test_only_columns_leave_the_device(monkeypatch) -> None:
    """Some flags of a byte that say whether numbers are fine, and nothing else; not even columns yet."""
    z = torch.from_numpy(agreeing(np.random.default_rng(9), (20, 1000, 10), 0.5, 2.0, 0.0))
    with Moved() as here:  # control: a tensor of the processor is read as a whole
        demur.decompose(logits=z)
    assert here.bytes["cpu"] >= z.numel() * z.element_size()
    monkeypatch.setattr(arrays, "stays", lambda array: arrays.library(array) == "torch")
    with Moved() as there:
        found = demur.decompose(logits=z)
    assert sum(there.bytes.values()) < 100, there.bytes
    with Moved() as columns:
        found.epistemic.numpy()
    assert columns.bytes == {"numpy": 4 * 1000}


def test_scores_of_a_network_leave_the_device_as_columns(monkeypatch) -> None:
    """A batch's sums over members stay there, too; what comes back are its columns."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 40), torch.nn.Dropout(0.3), torch.nn.Linear(40, 100))
    inputs = torch.randn(64, 5)
    given: dict[str, Any] = {"measures": ["pairwise", "average", "A3"], "progress": False}

    def score() -> Any:
        posterior = demur.posteriors.MCDropout(model, samples=10, seed=1)
        with Moved() as moved:
            found = demur.score(posterior, [inputs], **given)
        return found, sum(moved.bytes.values())

    (here, all_logits), logits = score(), 10 * 64 * 100 * 4
    assert all_logits >= logits
    monkeypatch.setattr(arrays, "stays", lambda array: arrays.library(array) == "torch")
    there, moved = score()
    columns = 64 * (8 + 8 + 3 * 3 * 4)  # what members and the deployed model predict, parts of three measures
    # A tensor counts twice, when it is copied and when it is read; the checksum takes two rows of the inputs.
    assert moved < 2 * (columns + 2 * 5 * 4) + 100
    for name in given["measures"]:
        np.testing.assert_allclose(there[name].epistemic, here[name].epistemic, rtol=1e-5)
    np.testing.assert_array_equal(there.predictions, here.predictions)


@pytest.mark.usefixtures("tensors_stay")
def test_moments_keep_their_sums_there() -> None:
    z = agreeing(np.random.default_rng(10), (12, 30, 6), 0.5, 2.0, 0.0)
    moments, expected = demur.Moments(), demur.Moments()
    for chunk in np.split(z, 4):
        moments.update(logits=torch.from_numpy(chunk))
        expected.update(logits=chunk)
    assert isinstance(moments.state.reference, torch.Tensor)
    for measure in MEASURES:
        found, exact = moments.decompose(measure), expected.decompose(measure)
        assert isinstance(found.epistemic, torch.Tensor)
        np.testing.assert_allclose(found.epistemic.numpy(), exact.epistemic, rtol=1e-5)


def test_gradients_float64_and_probabilities_take_the_general_way() -> None:
    """Control: the float32 way takes what it is for, and nothing else."""
    z = torch.zeros(2, 3, 4)

    def taken(prediction: Any, rule: str = "log") -> bool:
        members = demur.predictions.gather(prediction, None, 0)
        members.kept = True
        return on_device.takes(members, demur.core.rules.RULES[rule])

    assert taken(demur.Categorical(logits=z)) and taken(demur.Categorical(logits=z), "brier")
    assert not taken(demur.Categorical(logits=z), "spherical")
    assert not taken(demur.Categorical(logits=z.double()))
    assert not taken(demur.Categorical(logits=z.clone().requires_grad_()))
    assert not taken(demur.Categorical(z + 0.25))
    assert not taken(demur.Categorical(logits=z.numpy()))
