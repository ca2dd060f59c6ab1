"""Seeds, and the data that checkpoints recognise, are the same matter for every method."""

import numpy as np
import pytest

import demur
from demur.posteriors import (
    HMC,
    QUAM,
    SGLD,
    SWAG,
    BayesByBackprop,
    CyclicalSGHMC,
    DeepEnsemble,
    Laplace,
    LastLayer,
    MCDropout,
)
from demur.posteriors.one_pass import DUE, DUQ, SNGP, NetworkTraining

torch = pytest.importorskip("torch")

X, Y = torch.randn(40, 4, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3
SHORT = {"training": NetworkTraining(epochs=1), "classes": 3, "progress": False}


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Dropout(0.3), torch.nn.Linear(5, 3))


METHODS = {
    "BayesByBackprop": lambda **o: BayesByBackprop(network(), (X, Y), samples=3, steps=3, **o),
    "CyclicalSGHMC": lambda **o: CyclicalSGHMC(network(), (X, Y), samples=2, cycles=1, steps=60, **o),
    "DeepEnsemble": lambda **o: DeepEnsemble.fit(network, lambda *_: None, 2, processes=0, **o),
    "DUE": lambda **o: DUE.fit(network()[:1], (X, Y), inducing=4, samples=3, **SHORT, **o),
    "HMC": lambda **o: HMC(network(), (X, Y), samples=8, chains=2, burn_in=2, **o),
    "Laplace": lambda **o: Laplace.fit(network(), [(X, Y)], samples=3, **o),
    "LastLayer": lambda **o: LastLayer(network(), dropout=0.2, samples=3, **o),
    "LastLayer.fit": lambda **o: LastLayer.fit(network(), [(X, Y)], 3, **o),
    "MCDropout": lambda **o: MCDropout(network(), samples=3, **o),
    "QUAM": lambda **o: QUAM(network(), (X, Y), steps=5, **o),
    "SGLD": lambda **o: SGLD(network(), (X, Y), samples=2, steps=20, step_size=0.01, **o),
    "SNGP": lambda **o: SNGP.fit(network()[:1], (X, Y), features=8, samples=3, **SHORT, **o),
    "SWAG": lambda **o: SWAG.fit(network(), (X, Y), samples=3, epochs=3, **o),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_seed_is_an_integer_of_any_kind(name, tmp_path) -> None:
    plain, numpys = (METHODS[name](seed=seed) for seed in (3, np.int64(3)))
    found = [demur.score(each, [X], progress=False)["pairwise"].epistemic for each in (plain, numpys)]
    np.testing.assert_array_equal(*found)
    numpys.save(tmp_path / "posterior")
    for wrong in (-1, None, 1.5, True, "3"):
        with pytest.raises(ValueError, match=r"seed must be an integer, 0 or more\. Got"):
            METHODS[name](seed=wrong)


CHECKPOINTS = {
    "BayesByBackprop": lambda y, path: BayesByBackprop(
        network(), (X, y), samples=2, steps=4, batch_size=10, checkpoint=path
    ).fit(progress=False),
    "SGLD": lambda y, path: SGLD(
        network(), (X, y), samples=2, steps=8, batch_size=10, step_size=0.01, checkpoint=path
    ).fit(progress=False),
    "SWAG": lambda y, path: SWAG.fit(
        network(), (X, y), samples=2, epochs=2, batch_size=10, checkpoint=path, progress=False
    ),
    "DUQ": lambda y, path: DUQ.fit(network()[:1], (X, y), size=3, checkpoint=path, **SHORT),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_notices_any_label_that_changed(name, tmp_path) -> None:
    CHECKPOINTS[name](Y, tmp_path / "run")
    CHECKPOINTS[name](Y.clone(), tmp_path / "run")
    for row in (0, 13, 26, 39):  # whichever batch comes first, some of these are not in it
        changed = Y.clone()
        changed[row] = (changed[row] + 1) % 3
        with pytest.raises(ValueError, match=r"of another: data|of one with another data"):
            CHECKPOINTS[name](changed, tmp_path / "run")
