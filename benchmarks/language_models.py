"""How much longer scoring and writing texts takes than the forward passes of the language models alone.

python -m benchmarks.language_models [--model DIR] [--members 3] [--texts 32] [--tokens 128]

Members are one model with noise on its weights: a folder of transformers, or without one a Llama of 6 layers,
width 288 and 32,000 tokens with random weights, the shape of a published model of 15 million parameters, and
so a hard case: the larger a model, the smaller the share of all else. Processor time of one thread, which
other processes change little, is measured several times, after a first time that compiles loops; the median
of the rounds is printed.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from demur.sequences import LanguageModels

os.environ["DEMUR_COMPILE"] = "always"
os.environ["DEMUR_THREADS"] = "1"
_NOISE = 0.1
"""Of the standard deviation of each array of weights."""


class Numbers:
    """A tokenizer of texts that are written as numbers of tokens."""

    bos_token_id, eos_token_id = 1, None

    def __call__(self, text: str, *, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [1] * add_special_tokens + [int(each) for each in text.split()]}

    def decode(self, ids: list[int], **options: Any) -> str:
        return " ".join(map(str, ids))


def make_members(folder: Path | None, count: int, vocabulary: int = 32_000) -> list[Any]:
    """Return the model of a folder, or one with random weights, with other noise on its weights each time."""
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    if folder is not None:
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    else:
        model = LlamaForCausalLM(LlamaConfig(
            vocab_size=vocabulary, hidden_size=288, intermediate_size=768, num_hidden_layers=6,
            num_attention_heads=6, max_position_embeddings=256, tie_word_embeddings=True, eos_token_id=None,
        ))  # fmt: skip
    members = [copy.deepcopy(model) for _ in range(count)]
    with torch.no_grad():
        for member in members:
            for each in member.parameters():
                each.add_(each.std() * torch.randn_like(each), alpha=_NOISE)
    return members


class ForwardTime:
    """Processor time inside the models, and in all."""

    def __init__(self, models: list[Any]) -> None:
        self.inside, self._begun = 0.0, 0.0
        for model in models:
            model.register_forward_pre_hook(self._begin)
            model.register_forward_hook(self._end)

    def _begin(self, *_: Any) -> None:
        self._begun = time.process_time()

    def _end(self, *_: Any) -> None:
        self.inside += time.process_time() - self._begun

    def measure(self, run: Callable[[], Any]) -> tuple[float, float]:
        """Return the seconds inside the models and in all."""
        self.inside, begun = 0.0, time.process_time()
        run()
        return self.inside, time.process_time() - begun


def measure_ways(
    members: LanguageModels, clock: ForwardTime, texts: list[str], tokens: int, rounds: int
) -> dict[str, list[tuple[float, float]]]:
    """Return the seconds inside the models and in all, of every way and round."""
    prompts = [" ".join(text.split()[:8]) for text in texts[:8]]
    ways: dict[str, Any] = {
        "score": lambda: members.score(texts, progress=False).decompose(),
        "generate, greedy": lambda: members.generate(prompts, max_new_tokens=tokens // 4, progress=False),
        "generate, sampled": lambda: members.generate(
            prompts, max_new_tokens=tokens // 4, do_sample=True, progress=False
        ),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, run in ways.items():
            spent = clock.measure(run)
            if turn:
                found[name].append(spent)
    return found


def main() -> None:
    """Print the overhead of each way over the forward passes alone."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path)
    for name, default in (("members", 3), ("texts", 32), ("tokens", 128), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    torch.set_num_threads(1)
    models = make_members(given.model, given.members)
    vocabulary = int(models[0].config.vocab_size)
    rng = np.random.default_rng(0)
    rows = rng.integers(3, vocabulary, size=(given.texts, given.tokens))
    texts = [" ".join(map(str, row)) for row in rows]
    clock = ForwardTime(models)
    for average in ("step", "sequence"):
        members = LanguageModels(models, Numbers(), average=average)
        for name, spent in measure_ways(members, clock, texts, given.tokens, given.rounds).items():
            overhead = statistics.median(seconds / inside - 1 for inside, seconds in spent)
            seconds = statistics.median(seconds for _, seconds in spent)
            print(
                f"average={average!r:<11} {name:<18} {overhead:6.1%} over the forward passes alone "
                f"({seconds:.2f} s; {given.members} members, vocabulary {vocabulary:,})", flush=True,
            )  # fmt: skip


if __name__ == "__main__":
    main()
