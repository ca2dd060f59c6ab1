"""How much longer scoring and writing texts takes than the forward passes of the language models alone.

python -m benchmarks.language_models [--model DIR] [--members 3] [--texts 32] [--tokens 128]

Members are copies of one model with their own memory: a folder of transformers, or without one a Llama of
6 layers, width 288 and 32,000 tokens with random weights, the shape of a published model of 15 million
parameters. Numbers do not change the time. Every way is measured several times, after a first time that
compiles loops; the median of the rounds is printed.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.forward_share import measure_forward_share
from demur.sequences import LanguageModels

os.environ["DEMUR_COMPILE"] = "always"


class Numbers:
    """A tokenizer of texts that are written as numbers of tokens."""

    bos_token_id, eos_token_id = 1, None

    def __call__(self, text: str, *, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [1] * add_special_tokens + [int(each) for each in text.split()]}

    def decode(self, ids: list[int], **options: Any) -> str:
        return " ".join(map(str, ids))


def make_model(folder: Path | None, vocabulary: int = 32_000) -> Any:
    """Return the model of a folder, or one with random weights."""
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    if folder is not None:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=vocabulary, hidden_size=288, intermediate_size=768, num_hidden_layers=6,
        num_attention_heads=6, max_position_embeddings=256, tie_word_embeddings=True, eos_token_id=None,
    ))  # fmt: skip


def measure_ways(members: LanguageModels, texts: list[str], tokens: int, rounds: int) -> dict[str, list[Any]]:
    """Return the forward share of every way and round."""
    prompts = [" ".join(text.split()[:8]) for text in texts[:8]]
    ways: dict[str, Any] = {
        "score": lambda: members.score(texts, progress=False).decompose(),
        "generate, greedy": lambda: members.generate(prompts, max_new_tokens=tokens // 4, progress=False),
        "generate, sampled": lambda: members.generate(
            prompts, max_new_tokens=tokens // 4, do_sample=True, progress=False
        ),
    }
    found: dict[str, list[Any]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, run in ways.items():
            with measure_forward_share() as spent:
                run()
            if turn:
                found[name].append(spent)
    return found


def main() -> None:
    """Print the overhead of each way over the forward passes alone."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path)
    for name, default in (("members", 3), ("texts", 32), ("tokens", 128), ("rounds", 3), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    model = make_model(given.model)
    models = [copy.deepcopy(model) for _ in range(given.members)]
    vocabulary = int(model.config.vocab_size)
    rng = np.random.default_rng(0)
    rows = rng.integers(3, vocabulary, size=(given.texts, given.tokens))
    texts = [" ".join(map(str, row)) for row in rows]
    for average in ("step", "sequence"):
        members = LanguageModels(models, Numbers(), average=average)
        for name, spent in measure_ways(members, texts, given.tokens, given.rounds).items():
            overhead = statistics.median(each.seconds / each.inside - 1 for each in spent)
            seconds = statistics.median(each.seconds for each in spent)
            print(
                f"average={average!r:<11} {name:<18} {overhead:6.1%} over the forward passes alone "
                f"({seconds:.2f} s; {given.members} members, vocabulary {vocabulary:,})", flush=True,
            )  # fmt: skip


if __name__ == "__main__":
    main()
