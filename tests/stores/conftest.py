"""Predictions that the tests of files write."""

import numpy as np
import pytest
from reference.files import CLASSES, INPUTS, MEMBERS


@pytest.fixture
def logits() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(MEMBERS, INPUTS, CLASSES)).astype(np.float32)
