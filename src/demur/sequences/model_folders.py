"""Language models of transformers from folders."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
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


def load_model(folder: str | os.PathLike[str], dtype: Any = "float32") -> Any:
    """Return the model of a folder, causal or encoder-decoder, for evaluation."""
    import transformers

    with hide_transformers_bars():
        config = transformers.AutoConfig.from_pretrained(_check_folder(folder))
        encodes = bool(getattr(config, "is_encoder_decoder", False))
        kind = transformers.AutoModelForSeq2SeqLM if encodes else transformers.AutoModelForCausalLM
        return kind.from_pretrained(folder, dtype=dtype).eval()


def load_tokenizer(folder: str | os.PathLike[str]) -> Any:
    """Return the tokenizer of a model."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(_check_folder(folder))


def _check_folder(folder: str | os.PathLike[str]) -> str:
    """Return a folder that has a model; transformers would look for another name on the internet."""
    if not (Path(folder) / "config.json").is_file():
        raise ValueError(
            f"Expected a folder of a model of transformers, with config.json. Got {os.fspath(folder)!r}. "
            "Download the model first, or load it yourself and pass models and a tokenizer."
        )
    return os.fspath(folder)
