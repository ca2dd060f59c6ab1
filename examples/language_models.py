"""Language models: three tiny ones trained apart, which words they disagree about, and an answer.

Run it with: python examples/language_models.py
"""

import codecs
import contextlib
import io

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import demur

with contextlib.redirect_stdout(io.StringIO()):
    import this  # the Zen of Python, which prints itself

text = codecs.decode(this.s, "rot13")
letters = ["<unk>", "<s>", *sorted(set(text) | set("abcdefghijklmnopqrstuvwxyz"))]
inner = Tokenizer(models.WordLevel({letter: i for i, letter in enumerate(letters)}, unk_token="<unk>"))
inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
inner.decoder = decoders.Fuse()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", unk_token="<unk>")

torch.set_num_threads(1)  # faster for networks this small
ids = torch.tensor(tokenizer(text)["input_ids"])
members = []
for seed in range(3):
    torch.manual_seed(seed)
    member = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(letters), hidden_size=48, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, max_position_embeddings=64, bos_token_id=1, eos_token_id=None,
        )
    )  # fmt: skip
    optimizer = torch.optim.Adam(member.parameters(), lr=3e-3)
    for _ in range(150):
        begins = torch.randint(len(ids) - 49, (16, 1))
        batch = ids[begins + torch.arange(49)]
        batch[:, 0] = 1  # every context begins like a text
        optimizer.zero_grad()
        member(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
    members.append(member)

ensemble = demur.sequences.LanguageModels(members, tokenizer)
scores = ensemble.score(
    ["Explicit is better than implicit.", "Explicit is better than warm soup."], progress=False
)
found = scores.decompose()
for line, k, perplexity in zip(scores.texts, found.per_token.epistemic, found.perplexity, strict=True):
    print(f"K {k:.2f} per token, perplexity {perplexity:5.1f}  {line}")
print("the most doubtful letters:", *sorted(scores.list_tokens()[1], key=lambda piece: -piece[1])[:3])

answers = ensemble.generate(["Beautiful is better"], max_new_tokens=20, progress=False)
print(f"answer {answers.texts[0]!r}, K {answers.decompose().per_token.epistemic[0]:.2f} per token")
