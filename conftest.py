"""Names that every example in a docstring may use, and registries that forget what an example adds."""

from collections.abc import Iterator

import numpy as np
import pytest

import demur
from demur.core.rules import RULES
from demur.families import FAMILIES


@pytest.fixture(autouse=True)
def _names(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace.update(np=np, demur=demur)


@pytest.fixture(autouse=True)
def _registries() -> Iterator[None]:
    before = [(registry, dict(registry)) for registry in (RULES, FAMILIES)]
    yield
    for registry, content in before:
        if registry != content:
            registry.clear()
            registry.update(content)
