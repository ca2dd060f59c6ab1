"""What lists of the likeliest tokens certify on real models: how far apart the limits are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from demur.reproduce.networks.threads import use_one_thread
from demur.reproduce.records import Records
from demur.sequences import TopLogProbs, decompose
from demur.sequences.model_folders import load_model, load_tokenizer

_PARTS = (
    ("I", "average", "epistemic"), ("mean entropy", "average", "aleatoric"),
    ("total of I", "average", "total"), ("K", "pairwise", "epistemic"), ("M", "reverse", "epistemic"),
)  # fmt: skip
_SLACK = 1e-6
"""Float32 log-probabilities are no more exact than that."""


def measure_limits(
    folders: Sequence[Path], templates: Sequence[str], texts: list[str], tokens: int, tops: list[int]
) -> Records:
    """Return medians over tokens of exact values and limits, a row for each part and length of the lists.

    ``share`` is the lower limit's part of the exact value, and ``decided`` the share of tokens for which the
    limits tell whether the part is above its own median. ``violated`` counts exact values beyond a limit.
    """
    outputs, came = read_logits(folders, templates, texts, tokens)
    logits = np.stack([np.stack([part.numpy() for part in own["logits"]], axis=1) for own in outputs])
    vocabulary = logits.shape[-1]
    exact = {name: decompose(logits=logits, tokens=came, measure=name) for _, name, _ in _PARTS}
    rows: Records = []
    for top in tops:
        if top >= vocabulary:
            continue
        lists = TopLogProbs.from_hf(outputs, top=top)
        found = {name: lists.bounds(vocabulary=vocabulary, measure=name) for name in exact}
        for title, name, part in _PARTS:
            value = np.asarray(getattr(exact[name].tokens, part), float)
            low, high = (np.asarray(getattr(each, part)) for each in (found[name].lower, found[name].upper))
            decided = found[name].decide(float(np.median(value)), part) != "ask for more"  # pyright: ignore
            rows.append({
                "top": top, "part": title, "members": len(logits), "vocabulary": vocabulary,
                "tokens": value.size, "exact": float(np.median(value)), "lower": float(np.median(low)),
                "upper": float(np.median(high)), "width": float(np.median(high - low)),
                "share": float(np.median(low / value)), "decided": float(decided.mean()),
                "violated": int(((low > value + _SLACK) | (high < value - _SLACK)).sum()),
            })  # fmt: skip
    return rows


def read_logits(
    folders: Sequence[Path], templates: Sequence[str], texts: list[str], tokens: int
) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Return what members say of the first tokens of texts, as ``generate`` returns it, and the tokens."""
    import torch

    tokenizer, models = load_tokenizer(folders[0]), [load_model(each) for each in folders]
    members = [(model, template) for model in models for template in templates or ["{}"]]
    rows = [tokenizer(text, add_special_tokens=False)["input_ids"][:tokens] for text in texts]
    if min(map(len, rows)) < tokens:
        raise ValueError(f"limits: expected {tokens} tokens in each text, got {min(map(len, rows))}")
    came, outputs = torch.tensor(rows), []
    with use_one_thread(), torch.no_grad():
        for model, template in members:
            begin = tokenizer(template.replace("{}", ""), add_special_tokens=False)["input_ids"]
            context = torch.tensor([[tokenizer.bos_token_id, *begin]]).expand(len(rows), -1)
            ids = torch.cat([context, came], dim=1)
            logits = model(input_ids=ids, use_cache=False).logits[:, context.shape[1] - 1 : -1]
            outputs.append({"sequences": ids, "logits": logits.unbind(dim=1)})
    return outputs, came.numpy()
