"""The number of threads that PyTorch uses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def use_one_thread() -> Iterator[None]:
    """Restrict PyTorch to one thread: small products are faster, and sums have the same order everywhere."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
