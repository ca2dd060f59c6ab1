"""Array libraries as a fixture, and how hypothesis runs here."""

import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest

# `from reference import loops` works whatever import mode pytest runs in.
sys.path.insert(0, str(Path(__file__).parent))

# What is compiled is tested: elsewhere, small arrays take plain functions unless a loop lies on disk.
os.environ.setdefault("DEMUR_COMPILE", "always")

# Each process of pytest-xdist has a processor: threads of PyTorch that wait for each other would share it.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples in every run: a failure in one run is a failure in the next.
hypothesis.settings.register_profile(
    "demur", derandomize=True, deadline=None, database=None, print_blob=False
)
hypothesis.settings.load_profile("demur")


class Library:
    """One array library: how to make its arrays, and how to read them back.

    `rtol` is for values of order one against float64 loops: those cancel to about 1e-15 absolute,
    so 1e-9 relative leaves room down to values of 1e-6. JAX without float64 goes through the
    reference form in float32, which the contract holds to 1e-5.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.single = name == "jax"
        self.rtol = 1e-5 if self.single else 1e-9
        if name == "numpy":
            self.module: Any = np
            self.array_type: Any = np.ndarray
        elif name == "torch":
            self.module = pytest.importorskip("torch")
            self.array_type = self.module.Tensor
        else:
            self.module = pytest.importorskip("jax.numpy")
            self.array_type = pytest.importorskip("jax").Array

    def array(self, values: Any, dtype: str = "float64") -> Any:
        """An array of this library; JAX without float64 holds float32 instead."""
        values = np.asarray(values)
        if self.single and dtype == "float64":
            dtype = "float32"
        if self.name == "torch":
            return self.module.tensor(values.tolist(), dtype=getattr(self.module, dtype)).reshape(
                values.shape
            )
        return self.module.asarray(values, dtype=getattr(self.module, dtype))

    def numpy(self, array: Any) -> np.ndarray:
        """The values as NumPy, after checking that the array is this library's own."""
        assert isinstance(array, self.array_type) or (
            self.name == "numpy" and isinstance(array, np.generic)
        ), f"expected an array of {self.name}, got {type(array)}"
        if self.name == "torch":
            return array.detach().cpu().to(self.module.float64).numpy()
        return np.asarray(array)

    def dtype_name(self, array: Any) -> str:
        return str(array.dtype).removeprefix("torch.")

    def close(self, actual: Any, expected: Any, *, rtol: float | None = None, atol: float = 1e-13):
        """Same shape, same infinities, same values to `rtol` (this library's own by default).

        `atol` is the cancellation of the float64 loops themselves; in float32 it is the rounding
        of probabilities of order one, 1e-6.
        """
        actual = self.numpy(actual)
        assert actual.shape == np.shape(expected)
        np.testing.assert_allclose(
            actual,
            expected,
            rtol=self.rtol if rtol is None else rtol,
            atol=max(atol, 1e-6) if self.single else atol,
        )


@pytest.fixture(params=["numpy", "torch", "jax", pytest.param("jax-x64", marks=pytest.mark.slow)])
def xp(request: pytest.FixtureRequest) -> Iterator[Library]:
    """Every array library in turn; JAX both with and without float64.

    JAX compiles each step of each shape; with float64 it is quickly tested by what traces it
    (test_gradients.py).
    """
    library = Library(request.param)
    context: Any = nullcontext()
    if request.param == "jax-x64":
        context = pytest.importorskip("jax").enable_x64(True)
    with context:
        yield library


@pytest.fixture
def data_kit() -> Path:
    """The real-data kit, where it is present."""
    root = Path(os.environ.get("DEMUR_DATA", "nowhere"))
    if not root.is_dir():
        pytest.skip("needs ImageNet features; set DEMUR_DATA to the folder that has imagenet_features/")
    return root
