"""The character LSTM with attention, against loops over gates."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from demur.reproduce.networks.character_lstm import PARTS, WINDOW, build_character_lstm  # noqa: E402

CHARACTERS, EMBEDDED, WIDTH = 7, 3, 4
SHAPES = {
    "embedding": (CHARACTERS, EMBEDDED), "attention": (EMBEDDED + 2 * WIDTH,),
    "weight_ih_l0": (4 * WIDTH, EMBEDDED), "weight_hh_l0": (4 * WIDTH, WIDTH), "bias_ih_l0": (4 * WIDTH,),
    "weight_ih_l1": (4 * WIDTH, WIDTH), "weight_hh_l1": (4 * WIDTH, WIDTH), "bias_ih_l1": (4 * WIDTH,),
    "out_weight": (CHARACTERS, EMBEDDED + 2 * WIDTH), "out_bias": (CHARACTERS,),
}  # fmt: skip


@pytest.fixture
def parameters():
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def run_layer(parameters, layer: int, rows: np.ndarray) -> np.ndarray:
    """Return the states of a layer; gates in the order input, forget, cell, output."""
    state = cell = np.zeros(WIDTH)
    found = []
    for row in rows:
        gates = (
            parameters[f"weight_ih_l{layer}"] @ row + parameters[f"weight_hh_l{layer}"] @ state
            + parameters[f"bias_ih_l{layer}"]
        )  # fmt: skip
        take, keep, new, show = gates.reshape(4, WIDTH)
        take, keep, show = (1 / (1 + np.exp(-each)) for each in (take, keep, show))
        cell = keep * cell + take * np.tanh(new)
        state = show * np.tanh(cell)
        found.append(state)
    return np.array(found)


def test_logits_are_those_of_loops(parameters):
    windows = np.random.default_rng(1).integers(CHARACTERS, size=(3, WINDOW))
    with torch.no_grad():
        found = build_character_lstm(parameters)(torch.from_numpy(windows)).numpy()
    for window, logits in zip(windows, found, strict=True):
        embedded = parameters["embedding"][window].astype(float)
        first = run_layer(parameters, 0, embedded)
        described = np.concatenate([embedded, first, run_layer(parameters, 1, first)], axis=1)
        shares = np.exp(described @ parameters["attention"])
        average = (shares / shares.sum()) @ described
        expected = parameters["out_weight"] @ average + parameters["out_bias"]
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)


def test_parameters_that_are_missing_are_named(parameters):
    assert set(PARTS) == set(SHAPES)
    del parameters["attention"]
    with pytest.raises(ValueError, match="Got none called attention"):
        build_character_lstm(parameters)
