"""Limits from truncated lists: never violated, exact where lists are whole; what services return is read."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import demur
from demur.sequences import TopLogProbs, list_bounds

MEASURES = ("pairwise", "average", "reverse")


def draw_members(seed, members, vocabulary, spread, scale, positions=2):
    rng = np.random.default_rng(seed)
    logits = scale * rng.normal(size=(1, 1, positions, vocabulary))
    logits = logits + spread * rng.normal(size=(members, 1, positions, vocabulary))
    logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return logs, rng


def truncate(logs, counts):
    """The likeliest tokens of each member, as mappings."""
    return [
        [
            [{int(t): float(row[t]) for t in np.argsort(-row)[:count]} for row in positions]
            for positions in member
        ]
        for member, count in zip(logs, counts, strict=True)
    ]


def find_violations(bounds, exact, slack=1e-9):
    """How many limits the exact values are beyond."""
    count = 0
    for part in ("total", "aleatoric", "epistemic"):
        value = getattr(exact, part)
        count += int((getattr(bounds.lower, part) > value + slack).sum())
        count += int((getattr(bounds.upper, part) < value - slack).sum())
        assert not np.isnan(getattr(bounds.lower, part)).any()
        assert not np.isnan(getattr(bounds.upper, part)).any()
    return count


CASES = given(
    seed=st.integers(0, 10**6), members=st.integers(1, 5), vocabulary=st.integers(2, 40),
    spread=st.sampled_from([0.0, 0.01, 0.5, 3.0]), scale=st.sampled_from([0.1, 1.0, 4.0]), data=st.data(),
)  # fmt: skip
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]  # shrinking such a case takes minutes


@settings(max_examples=8, deadline=None, phases=PHASES)
@CASES
def test_exact_values_are_never_beyond_the_limits(seed, members, vocabulary, spread, scale, data) -> None:
    check_limits(seed, members, vocabulary, spread, scale, data)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, phases=PHASES)
@CASES
def test_exact_values_are_beyond_no_limit_in_many_cases(
    seed, members, vocabulary, spread, scale, data
) -> None:
    check_limits(seed, members, vocabulary, spread, scale, data)


def check_limits(seed, members, vocabulary, spread, scale, data) -> None:
    logs, rng = draw_members(seed, members, vocabulary, spread, scale)
    counts = [data.draw(st.integers(1, vocabulary)) for _ in range(members)]
    weights = rng.random(members) + 0.1
    lists = TopLogProbs(truncate(logs, counts), weights=weights)
    for measure in MEASURES:
        bounds = lists.bounds(
            vocabulary=vocabulary, measure=measure, rounding=data.draw(st.sampled_from([0, 1e-6]))
        )
        exact = demur.decompose(log_probs=logs, measure=measure, weights=weights)
        assert find_violations(bounds, exact) == 0
        unknown = lists.bounds(measure=measure)
        assert find_violations(unknown, exact) == 0


def test_the_check_objects_to_the_values_of_truncated_lists_as_if_they_were_whole() -> None:
    logs, _ = draw_members(0, 3, 40, 1.0, 1.0)
    lists = TopLogProbs(truncate(logs, [8, 8, 8]))
    bounds = lists.bounds(vocabulary=8 * 3, measure="pairwise")  # too small a vocabulary
    assert find_violations(bounds, demur.decompose(log_probs=logs)) > 0


def test_whole_lists_are_exact() -> None:
    logs, _ = draw_members(1, 3, 6, 1.0, 1.0)
    lists = TopLogProbs(truncate(logs, [6, 6, 6]))
    for measure in MEASURES:
        bounds, exact = (
            lists.bounds(vocabulary=6, measure=measure),
            demur.decompose(log_probs=logs, measure=measure),
        )
        for part in ("total", "aleatoric", "epistemic"):
            np.testing.assert_allclose(getattr(bounds.lower, part), getattr(exact, part), atol=2e-5)
            np.testing.assert_allclose(getattr(bounds.upper, part), getattr(exact, part), atol=2e-5)


def test_tokens_that_only_some_members_list_tighten_the_limit() -> None:
    one = {"a": math.log(0.6), "b": math.log(0.35)}
    other = {"a": math.log(0.6), "c": math.log(0.35)}
    found = TopLogProbs([[[one]], [[other]]]).bounds(vocabulary=1000).lower.epistemic
    # Merged, what both do not list has 0.4 on either side: no difference is seen.
    np.testing.assert_allclose(found, 0.5 * 0.3 * math.log(0.35 / 0.05), rtol=1e-4)


def test_the_least_value_is_nearly_reached() -> None:
    """The limit is close to what some probabilities that fit the lists have, found by plain search."""
    from scipy.optimize import minimize

    one, other = np.array([0.5, 0.3]), np.array([0.45, 0.25])  # tokens 0, 1 and 0, 2 of 4

    def divergence(x):
        p = np.array([one[0], one[1], x[0], 0.2 - x[0]])
        q = np.array([other[0], x[1], other[1], 0.3 - x[1]])
        return 0.25 * ((p * np.log(p / q)).sum() + (q * np.log(q / p)).sum())

    # What is not listed is at most 0.3 and 0.25, and the tails are 0.2 and 0.3.
    best = minimize(divergence, [0.1, 0.1], bounds=[(1e-9, 0.2 - 1e-9), (0.05, 0.25)]).fun
    lists = [[[{0: math.log(0.5), 1: math.log(0.3)}]], [[{0: math.log(0.45), 2: math.log(0.25)}]]]
    found = float(TopLogProbs(lists).bounds(vocabulary=4, rounding=0).lower.epistemic[0, 0])
    assert 0.9 * best < found <= best + 1e-9


def test_bounds_of_sequences_and_decisions() -> None:
    logs, _ = draw_members(2, 3, 30, 0.5, 2.0, positions=5)
    bounds = TopLogProbs(truncate(logs, [10, 10, 10])).bounds(vocabulary=30, measure="average")
    np.testing.assert_allclose(bounds.sequence.upper.total, bounds.upper.total.sum(axis=-1))
    np.testing.assert_allclose(bounds.per_token.lower.total, bounds.lower.total.mean(axis=-1))
    low, high = bounds.sequence.lower.epistemic[0], bounds.sequence.upper.epistemic[0]
    assert bounds.sequence.decide(low - 1e-6)[0] == "defer"
    assert bounds.sequence.decide(high + 1e-6)[0] == "keep"
    assert bounds.sequence.decide((low + high) / 2)[0] == "ask for more"
    pairwise = TopLogProbs(truncate(logs, [10, 10, 10])).bounds(vocabulary=30)
    assert np.isinf(pairwise.upper.epistemic).all() and pairwise.sequence.decide(1e9)[0] == "ask for more"


def chat(*positions):
    """A chat completion as JSON; each position: the token that came, its log-probability, the likeliest."""
    content = [
        {
            "token": token, "logprob": log, "bytes": list(token.encode()),
            "top_logprobs": [{"token": t, "logprob": p, "bytes": list(t.encode())} for t, p in top.items()],
        }
        for token, log, top in positions
    ]  # fmt: skip
    return {"choices": [{"logprobs": {"content": content}}]}


def as_objects(value):
    if isinstance(value, dict):
        return SimpleNamespace(**{name: as_objects(each) for name, each in value.items()})
    return [as_objects(each) for each in value] if isinstance(value, list) else value


def test_openai_chat_as_json_and_as_objects() -> None:
    one = chat(("Paris", -0.1, {"Paris": -0.1, "Rome": -3.0}), (".", -0.2, {".": -0.2, "!": -2.0}))
    two = chat(
        ("Paris", -0.4, {"Paris": -0.4, "Lyon": -2.0}), ("!", -0.5, {"!": -0.5, ".": -1.5}), ("?", 0.0, {})
    )
    found = TopLogProbs.from_openai([[one], [two]])
    # They differ at the second token: it is compared, what follows is not.
    assert repr(found) == "TopLogProbs(2 members, 1 inputs, 2 positions)"
    assert found.lists[0][0][0] == {b"Paris": -0.1, b"Rome": -3.0}
    assert TopLogProbs.from_openai([[as_objects(one)], [as_objects(two)]]).lists == found.lists
    with pytest.raises(ValueError, match="Ask for them: logprobs=True"):
        TopLogProbs.from_openai([[{"choices": [{"logprobs": None}]}]])


def test_a_token_that_came_from_far_down_the_list_limits_nothing_else() -> None:
    rare = chat(("odd", -9.0, {"a": -0.7, "b": -0.9}))
    (own,) = TopLogProbs.from_openai([[rare]]).lists[0][0]
    assert own[b"odd"] == -9.0 and own.beyond == -0.9
    rng = np.random.default_rng(0)
    logs = np.log(rng.dirichlet(np.full(50, 0.5), size=(2, 1, 1)))
    lists = []
    for member in logs:
        order = np.argsort(-member[0, 0])
        likeliest = {str(t): float(member[0, 0, t]) for t in order[:3]}
        token = str(order[30])
        lists.append([chat((token, float(member[0, 0, order[30]]), likeliest))])
    for measure in MEASURES:
        bounds = TopLogProbs.from_openai(lists).bounds(vocabulary=50, measure=measure)
        assert find_violations(bounds, demur.decompose(log_probs=logs, measure=measure)) == 0


def test_openai_completions_with_an_echoed_prompt() -> None:
    echoed = {
        "choices": [{"logprobs": {
            "tokens": ["The", " cat"], "token_logprobs": [None, -1.0],
            "top_logprobs": [None, {" dog": -0.5, " cow": -2.0}],
        }}]
    }  # fmt: skip
    (own,) = TopLogProbs.from_openai([[echoed]]).lists[0][0]
    assert own == {" dog": -0.5, " cow": -2.0, " cat": -1.0} and own.beyond == -2.0


def test_vllm_outputs_and_prompts() -> None:
    def logprob(value, rank):
        return SimpleNamespace(logprob=value, rank=rank, decoded_token="?")

    lists = [
        {7: logprob(-0.1, 1), 9: logprob(-3.0, 2)},
        {4: logprob(-0.5, 1), 5: logprob(-1.0, 2), 8: logprob(-6.0, 90)},
    ]
    output = SimpleNamespace(
        outputs=[SimpleNamespace(token_ids=[7, 8], logprobs=lists)],
        prompt_token_ids=[1, 7, 8], prompt_logprobs=[None, *lists],
    )  # fmt: skip
    for found in (TopLogProbs.from_vllm([[output]]), TopLogProbs.from_vllm([[output]], prompt=True)):
        first, second = found.lists[0][0]
        assert first == {7: -0.1, 9: -3.0} and first.beyond == -3.0
        assert second == {4: -0.5, 5: -1.0, 8: -6.0} and second.beyond == -1.0
    with pytest.raises(ValueError, match=r"SamplingParams\(logprobs=20\)"):
        TopLogProbs.from_vllm([[{"outputs": [{"token_ids": [1], "logprobs": None}]}]])


def test_outputs_of_generate() -> None:
    torch.manual_seed(0)
    outputs = []
    for _ in range(2):
        logits = tuple(torch.randn(3, 40) for _ in range(4))
        new = torch.stack([each.argmax(dim=-1) for each in logits], dim=1)
        outputs.append(
            {"sequences": torch.cat([torch.ones(3, 2, dtype=torch.long), new], dim=1), "logits": logits}
        )
    found = TopLogProbs.from_hf(outputs, top=5)
    first = torch.log_softmax(outputs[1]["logits"][0][2], dim=-1)
    for token, log in found.lists[1][2][0].items():
        assert log == pytest.approx(float(first[token]), abs=1e-6)
    assert len(found.lists[0][0][0]) == 5
    with pytest.raises(ValueError, match="output_logits=True"):
        TopLogProbs.from_hf([{"sequences": outputs[0]["sequences"]}])


def test_outputs_of_generate_end_where_answers_do() -> None:
    logits = tuple(torch.randn(2, 9, generator=torch.Generator().manual_seed(k)) for k in range(3))
    output = {"sequences": torch.tensor([[1, 4, 2, 0], [1, 5, 6, 2]]), "logits": logits}
    for end in (2, [2, 8]):
        assert [len(each) for each in TopLogProbs.from_hf([output], end=end).lists[0]] == [2, 3]
    with pytest.raises(ValueError, match="num_beams=1"):
        TopLogProbs.from_hf([output | {"sequences": output["sequences"][:1]}])
    with pytest.raises(ValueError, match="num_beams=1"):
        TopLogProbs.from_hf([output | {"beam_indices": torch.zeros(2, 3)}])


@pytest.mark.slow
def test_transformers_generate_output() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=40, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    outputs, logits = [], []
    for seed in range(2):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).eval()
        prompt = torch.tensor([[1, 5, 6], [1, 7, 8]])
        out = model.generate(
            prompt, max_new_tokens=4, do_sample=False, output_logits=True, return_dict_in_generate=True,
            pad_token_id=0,
        )  # fmt: skip
        outputs.append(out)
        logits.append(torch.stack(out.logits, dim=1).numpy())
    found = TopLogProbs.from_hf(outputs, top=10)
    bounds = found.bounds(vocabulary=40, measure="average")
    exact = demur.decompose(logits=np.stack(logits).astype(float), measure="average")
    kept = bounds.mask
    assert kept[:, 0].all()
    assert (bounds.lower.epistemic[kept] <= exact.epistemic[:, : kept.shape[1]][kept] + 1e-6).all()
    assert (bounds.upper.epistemic[kept] >= exact.epistemic[:, : kept.shape[1]][kept] - 1e-6).all()


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([], "a member and an input"),
        ([[[{"a": -1.0}]], [[{"a": -1.0}], [{"a": -1.0}]]], r"same inputs from every member. Got \[1, 2\]"),
        ([[[{"a": -1.0}]], [[]]], r"same positions from every member. Got \[1, 0\] for input 0"),
        ([[[{"a": 0.5}]]], r"at most 0. Got 0.5 from member 0 at \[0, 0\]"),
        ([[[{"a": -0.1, "b": -0.1}]]], r"sum to more than 1. Got 1.8\d+ from member 0 at \[0, 0\]"),
        ([[[{}]]], r"Got none from member 0 at \[0, 0\]"),
    ],
)
def test_bad_lists_get_one_clear_line(lists, message) -> None:
    with pytest.raises(ValueError, match=message):
        TopLogProbs(lists).bounds(vocabulary=10)


def test_bad_arguments_get_one_clear_line() -> None:
    lists = TopLogProbs([[[{"a": -1.0, "b": -2.0}]]])
    with pytest.raises(ValueError, match="vocabulary must be at least the number of tokens listed, 2"):
        lists.bounds(vocabulary=1)
    with pytest.raises(ValueError, match="measure must be"):
        lists.bounds(vocabulary=5, measure="bma")
    with pytest.raises(ValueError, match="vocabulary must be the number of tokens"):
        lists.bounds(vocabulary=float("nan"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="part must be 'total', 'aleatoric' or 'epistemic'"):
        lists.bounds(vocabulary=5).decide(0.1, "doubt")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="threshold must be a number"):
        lists.bounds(vocabulary=5).decide(float("nan"))
    with pytest.raises(ValueError, match="rounding must be"):
        lists.bounds(vocabulary=5, rounding=-1)
    with pytest.raises(ValueError, match="weights must be 1 positive numbers"):
        TopLogProbs([[[{"a": -1.0}]]], weights=[0.0])


def test_every_point_gives_a_valid_limit(monkeypatch) -> None:
    logs, _ = draw_members(3, 3, 20, 1.0, 1.0)
    lists = TopLogProbs(truncate(logs, [5, 5, 5]))
    exact = demur.decompose(log_probs=logs)
    limits = []
    for descents in (1, 5, 60):
        monkeypatch.setattr(list_bounds, "_DESCENTS", descents)
        bounds = lists.bounds(vocabulary=20)
        assert find_violations(bounds, exact) == 0
        limits.append(bounds.lower.epistemic.sum())
    assert limits == sorted(limits) and limits[-1] > limits[0]


@pytest.mark.parametrize("lists", [[{"Paris": -0.1}], [[{"Paris": -0.1}]], {"Paris": -0.1}, ["Paris"]])
def test_a_level_of_lists_that_is_missing_is_told(lists) -> None:
    with pytest.raises(
        ValueError, match=r"lists must be lists\[member\]\[input\]\[position\].*in place of a list"
    ):
        TopLogProbs(lists)


def test_bounds_print_both_ends() -> None:
    bounds = TopLogProbs([[[{"a": -0.1}]], [[{"a": -0.2}]]]).bounds(vocabulary=10, measure="average")
    assert repr(bounds) == f"At least: {bounds.lower!r}\nAt most: {bounds.upper!r}"
