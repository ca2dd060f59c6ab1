"""Small data in the published formats, made from nothing."""

from pathlib import Path

import numpy as np


def features(path: Path, classes: int = 8, width: int = 12) -> Path:
    """Six images a class around its own direction, and textures that belong to none."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(classes, width)) / 2
    labels = np.repeat(np.arange(classes), 6)
    images = 2 * weight[labels] + rng.normal(size=(len(labels), width))
    np.savez(
        path, val=images.astype(np.float16), val_label=labels.astype(np.int16),
        dtd=rng.normal(size=(30, width)).astype(np.float16), fc_weight=weight.astype(np.float16),
        fc_bias=np.zeros(classes, np.float32),
    )  # fmt: skip
    return path


def rows(folder: Path, sets: int = 2, number: int = 80) -> Path:
    """Sets of a number that is harder to tell where the first input is large."""
    folder.mkdir(parents=True)
    for k in range(sets):
        rng = np.random.default_rng(k)
        x = rng.normal(size=(number, 3 + k))
        y = x[:, 0] ** 2 + x[:, 1] + np.exp(x[:, 0] / 2) * rng.normal(size=number)
        test = np.stack([rng.permutation(number)[: number // 10] for _ in range(4)])
        np.savez(folder / f"set-{k}.npz", X=x, y=10 * y + 100, test_index=test.astype(np.int32))
    return folder


def characters(folder: Path, letters: list[str], rng: np.random.Generator) -> None:
    """Three networks of characters, two of which prefer a half of the letters each, and texts of these."""
    import json

    known, halves = ["", "<s>", " ", *letters], (letters[:10], letters[10:])
    shapes = {
        "embedding": (len(known), 3), "weight_ih_l0": (16, 3), "weight_hh_l0": (16, 4), "bias_ih_l0": (16,),
        "weight_ih_l1": (16, 4), "weight_hh_l1": (16, 4), "bias_ih_l1": (16,), "attention": (11,),
        "out_weight": (len(known), 11), "out_bias": (len(known),),
    }  # fmt: skip
    found = {"chars": np.array(known)}
    for name, liked in zip(("plain", "low", "high"), (letters, *halves), strict=True):
        found |= {f"{name}.{part}": rng.normal(size=shape) / 2 for part, shape in shapes.items()}
        found[f"{name}.out_bias"] = 3.0 * np.isin(known, [" ", *liked])
    np.savez(folder / "characters.npz", **found)
    titles = [
        {"set": name, "text": " ".join(rng.choice(half, 8))}
        for name, half in zip(("low", "high"), halves, strict=True)
        for _ in range(12)
    ]
    (folder / "titles.jsonl").write_text("".join(json.dumps(row) + "\n" for row in titles))


def language(folder: Path) -> Path:
    """Tiny models of tokens and of characters, texts, recorded answers; returns the settings."""
    import gzip
    import json

    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = ["<unk>", "<s>", "</s>", *"abcdefghijklmnopqrst"]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    for k in range(2):
        torch.manual_seed(k)
        model = LlamaForCausalLM(LlamaConfig(
            vocab_size=len(words), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
            num_attention_heads=2, max_position_embeddings=64, initializer_range=0.4, bos_token_id=1,
            eos_token_id=2, tie_word_embeddings=True,
        ))  # fmt: skip
        model.save_pretrained(folder / f"model-{k}")
        tokenizer.save_pretrained(folder / f"model-{k}")
    rng = np.random.default_rng(0)

    def write_texts(first: int, last: int) -> str:
        rows = [{"text": " ".join(rng.choice(words[first:last], 40))} for _ in range(12)]
        return "".join(json.dumps(row) + "\n" for row in rows)

    (folder / "known.jsonl").write_text(write_texts(3, 13))
    (folder / "other.jsonl").write_text(write_texts(13, 23))
    (folder / "train.jsonl.gz").write_bytes(gzip.compress(write_texts(3, 13).encode(), mtime=0))
    truth = rng.integers(3, size=80)
    logits = rng.normal(size=(4, 80, 3)) + 2 * (np.arange(3) == truth[:, None])
    np.savez(
        folder / "options.npz", logp=logits.astype(np.float16), model=np.array(["x", "x", "y", "y"]),
        prompt=np.array(["plain", "long"] * 2), shots=np.zeros(4, np.int8), label=truth.astype(np.int8),
        is_demo=np.arange(80) == 0,
    )  # fmt: skip
    characters(folder, words[3:], rng)
    rows = []
    for _ in range(40):
        sure = rng.uniform()
        right = rng.uniform(size=4) < sure
        samples = [str(each) for each in np.where(right, "The Answer.", rng.choice(["one", "two"], 4))]
        rows.append({"samples": samples, "match": "".join(str(int(each)) for each in right)})
    (folder / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = folder / "tiny.toml"
    settings.write_text(
        'title = "tiny"\n'
        '[texts]\nknown = "known.jsonl"\nnumber = 10\ncharacters = 60\nprefixes = [2, 6]\n'
        '[texts.others]\nletters = "other.jsonl"\n'
        '[ensembles.trained]\ntitle = "trained apart"\nlike = "model-0"\ntexts = "train.jsonl.gz"\n'
        "members = 2\nsteps = 6\nbatch = 4\ncontext = 16\n"
        '[ensembles.given]\ntitle = "two models"\nmodels = ["model-0", "model-1"]\n'
        '[ensembles.prompts]\ntitle = "two prompts"\nmodels = ["model-0"]\ntemplates = ["{}", "a b {}"]\n'
        "limits_only = true\n"
        '[specialists]\ntitle = "three networks"\nmodels = "characters.npz"\ntexts = "titles.jsonl"\n'
        "number = 10\nprefixes = [3, 8]\n"
        '[specialists.others]\nletters = "other.jsonl"\n'
        "[limits]\ntexts = 3\ntokens = 5\ntops = [4]\n"
        '[choices]\ntitle = "options"\nfile = "options.npz"\nprompt = "plain"\naccuracy = [0.5]\n'
        '[samples]\ntitle = "answers"\nfile = "answers.jsonl"\naccuracy = [0.3]\n'
    )
    return settings
