"""Language models from folders, without transformers' own progress bars."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def hide_transformers_bars() -> Iterator[None]:
    """Keep transformers from drawing bars for files that load within a second."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def load_models(folders: Sequence[Path]) -> list[Any]:
    """Return causal models in single precision, for evaluation."""
    import torch
    from transformers import AutoModelForCausalLM

    with hide_transformers_bars():
        return [AutoModelForCausalLM.from_pretrained(each, dtype=torch.float32).eval() for each in folders]


def load_tokenizer(folder: Path) -> Any:
    """Return the tokenizer of a model."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)
