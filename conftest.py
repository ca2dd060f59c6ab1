"""Names that every example in a docstring may use."""

import numpy as np
import pytest

import demur


@pytest.fixture(autouse=True)
def _names(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace.update(np=np, demur=demur)
