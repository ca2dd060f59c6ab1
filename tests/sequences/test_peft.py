"""Real adapters: LoRA by the package `peft`, and by transformers' own methods, as members."""

import numpy as np
import pytest
import torch

from demur.sequences import LanguageModels

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:(peft|transformers|accelerate)(\\..*)?"),
]

TEXTS = ["5 6 7 8 9", "4 4", "11 3 9 5 12 7 8"]


class Numbers:
    bos_token_id, eos_token_id = 1, 2

    def __call__(self, text, *, add_special_tokens=True):
        return {"input_ids": [1] * add_special_tokens + [int(each) for each in text.split()]}

    def decode(self, ids, **options):
        return " ".join(map(str, ids))


def make_llama():
    config = transformers.LlamaConfig(
        vocab_size=16, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, initializer_range=0.5, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config), ["q_proj", "v_proj"]


def make_gpt2():
    """Absolute positions: a batch with padding has to be told of them."""
    config = transformers.GPT2Config(
        vocab_size=16, n_positions=64, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=2,
        initializer_range=0.5,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config), ["c_attn"]


def make_lora(modules):
    return peft.LoraConfig(
        r=4, target_modules=modules, init_lora_weights=False, task_type="CAUSAL_LM", fan_in_fan_out=False
    )


def add_adapters(make):
    """A base model with two random adapters, and a text's logits by each: merged into a copy of its own."""
    torch.manual_seed(0)
    base, modules = make()
    model = peft.get_peft_model(base, make_lora(modules), adapter_name="first")
    model.add_adapter("second", make_lora(modules))
    return model.eval()


@pytest.mark.parametrize("make", [make_llama, make_gpt2])
@pytest.mark.filterwarnings("ignore:fan_in_fan_out")
def test_lora_adapters_are_members(make, tmp_path) -> None:
    model = add_adapters(make)
    model.save_pretrained(tmp_path)
    trainable = [each.requires_grad for each in model.parameters()]
    members = LanguageModels(model, Numbers(), adapters=["first", "second"])
    found = members.score(TEXTS, prompts=["3 4 5", "6", "7 7"], progress=False)
    parts = found.decompose()
    assert model.active_adapter == "first"
    assert [each.requires_grad for each in model.parameters()] == trainable
    for k, name in enumerate(("first", "second")):
        torch.manual_seed(0)
        merged = peft.PeftModel.from_pretrained(make()[0], tmp_path / name).merge_and_unload().eval()
        alone = LanguageModels(merged, Numbers())
        for n, (text, prompt) in enumerate(zip(TEXTS, ["3 4 5", "6", "7 7"], strict=True)):
            # One text at a time: no padding.
            expected = alone.score([text], prompts=[prompt], progress=False).decompose()
            np.testing.assert_allclose(parts.log_likelihoods[k, n], expected.log_likelihoods[0, 0], rtol=1e-4)
    assert (parts.sequence.epistemic > 0.01).all()
    answers = members.generate(["3 4 5", "6"], max_new_tokens=4, progress=False)
    assert (answers.decompose().sequence.epistemic > 0).all()


@pytest.mark.filterwarnings("ignore:Already found a `peft_config`")
def test_adapters_by_transformers_own_methods(tmp_path) -> None:
    wrapped = add_adapters(make_llama)
    wrapped.save_pretrained(tmp_path)
    torch.manual_seed(0)
    model = make_llama()[0]
    for name in ("first", "second"):
        model.load_adapter(str(tmp_path / name), adapter_name=name)
    found = LanguageModels(model, Numbers(), adapters=["first", "second"]).score(TEXTS, progress=False)
    expected = LanguageModels(wrapped, Numbers(), adapters=["first", "second"]).score(TEXTS, progress=False)
    np.testing.assert_allclose(
        found.decompose().tokens.epistemic, expected.decompose().tokens.epistemic, rtol=1e-4, atol=1e-7
    )
