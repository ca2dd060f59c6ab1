"""Language models as members: against their own forward passes and transformers' own generation."""

from pathlib import Path

import numpy as np
import pytest
import torch

import demur
from demur.sequences import LanguageModels, decompose, language_models

transformers = pytest.importorskip("transformers")

WORDS = [
    "<pad>", "<s>", "</s>", "<unk>", "a", "cat", "dog", "sat", "on", "the", "mat", "ran", "big", "red",
    "ate", "it",
]  # fmt: skip
TEXTS = ["the cat sat on the mat", "a dog ran", "the big red dog ate it on the mat"]


@pytest.fixture(scope="module")
def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>"
    )


def make_llama(seed, **options):
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=16, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, initializer_range=0.5, bos_token_id=1, eos_token_id=2, pad_token_id=0,
        **options,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


@pytest.fixture(scope="module")
def llamas():
    return [make_llama(seed) for seed in range(3)]


def score_directly(models, tokenizer, text, prompt=""):
    """One text, without padding, batches or caches."""
    context = tokenizer(prompt)["input_ids"] if prompt else [1]
    own = tokenizer(text, add_special_tokens=False)["input_ids"]
    ids = torch.tensor([[*context, *own]])
    with torch.no_grad():
        logits = [m.eval()(ids).logits[:, len(context) - 1 : -1].numpy() for m in models]
    return decompose(logits=np.stack(logits), tokens=[own])


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("prompts", [None, ["the dog", "a", "it ran on"]])
def test_scores_are_those_of_plain_forward_passes(llamas, tokenizer, batch_size, prompts) -> None:
    members = LanguageModels(llamas, tokenizer)
    found = members.score(TEXTS, prompts=prompts, batch_size=batch_size)
    for measure in ("pairwise", "average"):
        parts = found.decompose(measure)
        for n, text in enumerate(TEXTS):
            expected = score_directly(llamas, tokenizer, text, prompts[n] if prompts else "")
            direct = expected.sequence.epistemic if measure == "pairwise" else None
            if direct is not None:
                np.testing.assert_allclose(parts.sequence.epistemic[n], direct[0], rtol=2e-4)
            np.testing.assert_allclose(parts.log_likelihoods[:, n], expected.log_likelihoods[:, 0], rtol=1e-4)
    assert found.tokens[1] == ["a", " dog", " ran"] and len(found) == 3
    assert [piece for piece, _ in found.list_tokens()[1]] == found.tokens[1]


def test_positions_in_chunks_are_the_same(llamas, tokenizer, monkeypatch) -> None:
    for average in ("step", "sequence"):
        members = LanguageModels(llamas, tokenizer, average=average, weights=[1, 2, 1])
        whole = members.score(TEXTS).decompose()
        monkeypatch.setattr(language_models, "_LOGITS_AT_ONCE", 3 * 3 * 16 * 2)
        chunks = members.score(TEXTS).decompose()
        monkeypatch.undo()
        np.testing.assert_allclose(chunks.tokens.epistemic, whole.tokens.epistemic, rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(chunks.log_likelihood, whole.log_likelihood, rtol=1e-5)


def test_greedy_answers_and_beams_are_those_of_transformers(llamas, tokenizer) -> None:
    model = llamas[0].eval()
    for beams in (1, 3):
        found = LanguageModels(model, tokenizer).generate(
            ["the cat", "a big red dog"], max_new_tokens=6, num_beams=beams
        )
        for n, prompt in enumerate(["the cat", "a big red dog"]):
            ids = tokenizer(prompt, return_tensors="pt")
            out = model.generate(
                input_ids=ids["input_ids"], attention_mask=ids["attention_mask"], max_new_tokens=6,
                do_sample=False, num_beams=beams, length_penalty=0.0, early_stopping=False,
            )  # fmt: skip
            new = out[0, ids["input_ids"].shape[1] :].tolist()
            assert found.token_ids[n] == new[: len(found.token_ids[n])]


def test_answers_have_the_scores_of_their_text(llamas, tokenizer) -> None:
    members = LanguageModels(llamas, tokenizer, average="sequence")
    for options in ({}, {"do_sample": True}, {"num_beams": 2}, {"decode": 1}):
        answers = members.generate(["the cat", "it"], max_new_tokens=5, **options)
        again = members.generate(["the cat", "it"], max_new_tokens=5, **options)
        assert answers.token_ids == again.token_ids
        for n, prompt in enumerate(["the cat", "it"]):
            own = answers.token_ids[n]
            ids = torch.tensor([[*tokenizer(prompt)["input_ids"], *own]])
            begin = ids.shape[1] - len(own)
            with torch.no_grad():
                logits = np.stack([m.eval()(ids).logits[:, begin - 1 : -1].numpy() for m in llamas])
            expected = decompose(logits=logits, tokens=[own], average="sequence").sequence.epistemic[0]
            assert answers.decompose().sequence.epistemic[n] == pytest.approx(expected, rel=1e-3)


def test_who_writes(llamas, tokenizer) -> None:
    alone = LanguageModels(llamas[1], tokenizer).generate(["the cat"], max_new_tokens=6)
    deployed = LanguageModels(llamas, tokenizer).generate(["the cat"], max_new_tokens=6, decode=1)
    assert alone.token_ids == deployed.token_ids
    assert (alone.decompose().tokens.epistemic == 0).all()
    assert (deployed.decompose().tokens.epistemic > 0).all()


def test_sampled_answers_follow_the_average(llamas, tokenizer) -> None:
    members = LanguageModels(llamas, tokenizer, seed=3)
    answers = members.generate(["the cat"] * 400, max_new_tokens=1, do_sample=True, batch_size=400)
    counts = np.bincount([own[0] for own in answers.token_ids], minlength=16)
    with torch.no_grad():
        ids = tokenizer("the cat", return_tensors="pt")["input_ids"]
        probs = np.mean([torch.softmax(m.eval()(ids).logits[0, -1], -1).numpy() for m in llamas], axis=0)
    # Pearson's statistic over the tokens expected at least five times; its 99.99 % point at 15 is 44.
    often = probs * 400 >= 5
    assert ((counts - 400 * probs)[often] ** 2 / (400 * probs[often])).sum() < 44


def test_templates_are_members(llamas, tokenizer) -> None:
    members = LanguageModels(llamas[0], tokenizer, templates=["the {}", "a red {}"])
    found = members.score(["sat on it"], prompts=["cat"]).decompose()
    expected = [
        score_directly(llamas[:1], tokenizer, "sat on it", prompt).log_likelihoods[0, 0]
        for prompt in ("the cat", "a red cat")
    ]
    np.testing.assert_allclose(found.log_likelihoods[:, 0], expected, rtol=1e-4)


def test_dropout_members_differ_and_come_again(tokenizer) -> None:
    model = make_llama(0, attention_dropout=0.3)
    with pytest.raises(ValueError, match="all members would be identical"):
        LanguageModels(model, tokenizer, dropout=4)
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=16, n_positions=64, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=2
    )
    model = transformers.GPT2LMHeadModel(config).train()
    members = LanguageModels(model, tokenizer, dropout=4)
    one, two = (members.score(TEXTS).decompose().tokens.epistemic for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert (one[0, :6] > 0).all() and model.training


def test_adapters_are_members(llamas, tokenizer) -> None:
    class Adapted(torch.nn.Module):
        """What PEFT's models have: several models by name, one of them switched on."""

        def __init__(self) -> None:
            super().__init__()
            self.all = torch.nn.ModuleDict({"x": llamas[0], "y": llamas[1]})
            self.peft_config = dict.fromkeys(("x", "y"))
            self.config, self.now = llamas[0].config, "x"

        def set_adapter(self, name: str) -> None:
            self.now = name

        def forward(self, **options):
            return self.all[self.now](**options)

    found = LanguageModels(Adapted(), tokenizer, adapters=["x", "y"]).score(TEXTS).decompose()
    expected = LanguageModels(llamas[:2], tokenizer).score(TEXTS).decompose()
    np.testing.assert_allclose(found.tokens.epistemic, expected.tokens.epistemic, rtol=1e-5)
    with pytest.raises(ValueError, match=r"adapters must be among \['x', 'y'\]. Got 'z'"):
        LanguageModels(Adapted(), tokenizer, adapters=["z"])


def test_encoder_decoder_models(tokenizer) -> None:
    config = transformers.T5Config(
        vocab_size=16, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0,
        eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    models = []
    for seed in range(2):
        torch.manual_seed(seed)
        models.append(transformers.T5ForConditionalGeneration(config).eval())
    members = LanguageModels(models, tokenizer)
    found = members.score(["cat sat", "it ran on"], prompts=["the dog", "a big red mat"]).decompose()
    for n, (text, prompt) in enumerate([("cat sat", "the dog"), ("it ran on", "a big red mat")]):
        own = tokenizer(text)["input_ids"]
        with torch.no_grad():
            logits = [
                m(
                    input_ids=tokenizer(prompt, return_tensors="pt")["input_ids"], labels=torch.tensor([own])
                ).logits
                for m in models
            ]
        expected = decompose(logits=torch.stack(logits).numpy(), tokens=[own])
        np.testing.assert_allclose(found.sequence.epistemic[n], expected.sequence.epistemic[0], rtol=1e-3)
    assert len(members.generate(["the dog"], max_new_tokens=4, num_beams=2).token_ids[0]) <= 4
    with pytest.raises(ValueError, match="prompts must say what the encoder reads"):
        members.score(["cat"])


@pytest.mark.parametrize("kind", ["T5", "Bart"])
def test_encoder_decoders_write_what_transformers_writes(tokenizer, kind) -> None:
    """In batches of prompts of different lengths; Bart's positions are absolute."""
    torch.manual_seed(1)
    if kind == "T5":
        config = transformers.T5Config(
            vocab_size=16, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0,
            eos_token_id=2, pad_token_id=0, initializer_factor=3.0,
        )  # fmt: skip
        model = transformers.T5ForConditionalGeneration(config).eval()
    else:
        config = transformers.BartConfig(
            vocab_size=16, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=64,
            init_std=0.5, decoder_start_token_id=2, eos_token_id=15, pad_token_id=0, bos_token_id=1,
            forced_eos_token_id=None,
        )  # fmt: skip
        model = transformers.BartForConditionalGeneration(config).eval()
    prompts = ["the cat", "a big red dog ate it", "it"]
    members = LanguageModels(model, tokenizer)
    answers = members.generate(prompts, max_new_tokens=6)
    for n, prompt in enumerate(prompts):
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        out = model.generate(input_ids=ids, max_new_tokens=6, do_sample=False)[0, 1:].tolist()
        assert answers.token_ids[n] == out[: len(answers.token_ids[n])] and len(out) >= 1
        own = answers.token_ids[n]
        with torch.no_grad():
            logits = model(input_ids=ids, labels=torch.tensor([own])).logits.numpy()
        expected = decompose(logits=logits[None], tokens=[own]).log_likelihood[0]
        assert answers.decompose().log_likelihood[n] == pytest.approx(expected, rel=1e-4)


def test_tables(llamas, tokenizer) -> None:
    table = LanguageModels(llamas, tokenizer).score(TEXTS).to_pandas()
    assert list(table.columns[:2]) == ["text", "pairwise_total"] and (table["tokens"] == [6, 3, 9]).all()
    assert "worst first" in repr(LanguageModels(llamas, tokenizer).score(TEXTS))


class Bare(torch.nn.Module):
    """A model that knows nothing of adapters."""


def test_bad_arguments_get_one_clear_line(llamas, tokenizer) -> None:
    members = LanguageModels(llamas, tokenizer)
    for call, message in (
        (lambda: members.score("a cat"), "put it in a list"),
        (lambda: members.score([]), "must be a list of texts. Got none"),
        (lambda: members.score(["a"], prompts=["a", "b"]), "prompts must be as many as texts, 1. Got 2"),
        (lambda: members.score([""]), "must have a token to score"),
        (lambda: members.generate(["a"], decode=3), "0 to 2. Got 3"),
        (lambda: members.generate(["a"], num_beams=2, do_sample=True), "do not go together"),
        (lambda: members.score(["a"], batch_size=0), "batch_size must be a positive integer. Got 0"),
        (lambda: members.generate(["a"], batch_size=0), "batch_size must be a positive integer. Got 0"),
        (
            lambda: LanguageModels(llamas, tokenizer, weights=np.ones((3, 2))),
            r"weights must have shape \(3,\)",
        ),
        (lambda: LanguageModels(llamas[0], tokenizer, templates=[]), r"list of templates.* Got \[\]"),
        (
            lambda: LanguageModels(llamas[0], tokenizer, dropout=0),
            "dropout must be a positive integer",
        ),
        (lambda: LanguageModels([], tokenizer), "Got an empty list"),
        (lambda: LanguageModels("gpt2", tokenizer), "from_pretrained"),
        (lambda: LanguageModels(llamas, "gpt2"), "tokenizer must be"),
        (lambda: LanguageModels(llamas, tokenizer, templates=["{}"]), "as many as there are members, 3"),
        (lambda: LanguageModels(llamas[0], tokenizer, templates=["x", "{}"]), "where the prompt goes"),
        (lambda: LanguageModels(Bare(), tokenizer, adapters=["x"]), "needs a model with set_adapter"),
        (lambda: LanguageModels(llamas, tokenizer, average="x"), "average must be"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            call()


@pytest.mark.parametrize("kind", ["Mamba", "Rwkv"])
def test_recurrent_models_read_as_others_do(tokenizer, kind) -> None:
    options = {"vocab_size": 16, "hidden_size": 8, "num_hidden_layers": 2, "initializer_range": 0.5}
    models = []
    for seed in range(2):
        torch.manual_seed(seed)
        config = getattr(transformers, f"{kind}Config")(**options)
        models.append(getattr(transformers, f"{kind}ForCausalLM")(config).eval())
    members, prompts = LanguageModels(models, tokenizer), ["the dog", "a", "it ran on"]
    found = members.score(TEXTS, prompts=prompts).decompose()
    for n, text in enumerate(TEXTS):
        expected = score_directly(models, tokenizer, text, prompts[n])
        np.testing.assert_allclose(
            found.sequence.epistemic[n], expected.sequence.epistemic[0], rtol=1e-4, atol=1e-6
        )
    options = {"max_new_tokens": 4, "num_beams": 2}
    alone = [members.generate([each], **options).texts[0] for each in prompts]
    assert members.generate(prompts, **options).texts == alone


def test_a_text_longer_than_the_model_takes(tokenizer) -> None:
    config = transformers.GPT2Config(vocab_size=16, n_embd=8, n_layer=1, n_head=1, n_positions=8)
    members = LanguageModels([transformers.GPT2LMHeadModel(config)], tokenizer)
    with pytest.raises(ValueError, match=r"at most 8 tokens, as the model takes\. Got 12"):
        members.score(["a " * 12])


def test_models_without_a_common_vocabulary_are_refused(llamas, tokenizer) -> None:
    torch.manual_seed(0)
    other = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=20, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2
        )
    )
    with pytest.raises(ValueError, match=r"one vocabulary. Got \[16, 20\]"):
        LanguageModels([llamas[0], other], tokenizer).score(["a cat"])
    assert demur.sequences.LanguageModels is LanguageModels


def test_folders_and_the_first_example_of_the_page(llamas, tokenizer, tmp_path, monkeypatch, capsys) -> None:
    for model, name in zip(llamas, ("model-a", "model-b"), strict=False):
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "language-models.md").read_text("utf-8")
    first = page.split("```py\n")[1].partition("```")[0]
    names: dict = {}
    exec(first, names)
    printed = capsys.readouterr().out.splitlines()
    expected = LanguageModels(llamas[:2], tokenizer).score(names["scores"].texts, progress=False)
    assert len(printed) == len(expected.tokens[0]) > 5
    for line, (token, k) in zip(printed, expected.list_tokens()[0], strict=True):
        assert line == f"{token!r:12} {k:.2f}"
    alone = LanguageModels.load(tmp_path / "model-a", dtype="float16")
    assert (alone.score(["a cat"]).decompose().tokens.epistemic == 0).all()
    with pytest.raises(ValueError, match=r"with config\.json\. Got 'model-c'"):
        LanguageModels.load(["model-a", "model-c"])
    with pytest.raises(ValueError, match="Got an empty list"):
        LanguageModels.load([])
