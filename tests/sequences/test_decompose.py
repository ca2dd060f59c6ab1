"""Measures of tokens and sequences, against plain loops and against sums over every possible sequence."""

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import torch
from reference.sequences import Chain, parts_along, step_parts

import demur
from demur.predictions import as_prediction
from demur.sequences import Stream, attribute, decompose, step_figures

MEASURES = {"pairwise": "K", "average": "I", "reverse": "M"}


def random_case(seed=0, members=3, inputs=4, positions=6, vocabulary=7):
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(members, inputs, positions, vocabulary))
    tokens = rng.integers(vocabulary, size=(inputs, positions))
    lengths = np.array([6, 3, 1, 5])
    mask = np.arange(positions) < lengths[:, None]
    mask[1] = mask[1, ::-1]  # padding on the left
    return logits, tokens, mask


def softmax(logits):
    raw = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return raw / raw.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("average", ["step", "sequence"])
@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("weights", [None, [1.0, 3.0, 0.5]])
def test_sums_are_those_of_plain_loops(average, measure, weights) -> None:
    logits, tokens, mask = random_case()
    found = decompose(
        logits=logits, tokens=tokens, mask=mask, average=average, measure=measure, weights=weights
    )
    probs, own = softmax(logits), np.ones(3) if weights is None else np.array(weights)
    for n in range(4):
        expected = parts_along(probs[:, n], tokens[n], mask[n], own, average)
        np.testing.assert_allclose(found.sequence.epistemic[n], expected[MEASURES[measure]], rtol=1e-10)
        aleatoric = expected["entropy"] + (expected["I"] if measure == "reverse" else 0)
        np.testing.assert_allclose(found.sequence.aleatoric[n], aleatoric, rtol=1e-10)
    np.testing.assert_allclose(found.sequence.total, found.sequence.aleatoric + found.sequence.epistemic)
    np.testing.assert_allclose(found.per_token.total, found.sequence.total / mask.sum(-1))
    assert (found.tokens.total[~mask] == 0).all() and (found.tokens.total[mask] > 0).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("weights", [[0.5, 0.5, 0.5], [0.2, 0.5, 0.3]])
def test_averaged_over_all_sequences_they_are_the_measures_of_whole_sequences(seed, weights) -> None:
    chain, own = Chain(3, 3, 4, seed), np.array(weights) / np.sum(weights)
    sequences, joint = chain.sequences(), chain.joint()
    probs = np.stack([chain.along(s) for s in sequences], axis=1)
    likelihood = own @ joint
    whole = step_parts(joint, own, own)
    for measure, name in MEASURES.items():
        found = decompose(probs, tokens=sequences, average="sequence", measure=measure, weights=weights)
        np.testing.assert_allclose(likelihood @ found.sequence.epistemic, whole[name], rtol=1e-11)
        np.testing.assert_allclose(np.exp(found.log_likelihood), likelihood, rtol=1e-11)
        np.testing.assert_allclose(np.exp(found.log_likelihoods), joint, rtol=1e-11)
    total = decompose(
        probs, tokens=sequences, average="sequence", measure="average", weights=weights
    ).sequence
    np.testing.assert_allclose(likelihood @ total.total, -likelihood @ np.log(likelihood), rtol=1e-11)
    np.testing.assert_allclose(likelihood @ total.aleatoric, whole["entropy"], rtol=1e-11)


def test_weights_of_the_prefix_on_both_sides_would_not_be_the_divergence_of_whole_sequences() -> None:
    chain, own = Chain(3, 3, 4, seed=0), np.full(3, 1 / 3)
    whole = step_parts(chain.joint(), own, own)["K"]
    wrong = 0.0
    for sequence, likelihood in zip(chain.sequences(), own @ chain.joint(), strict=True):
        prefix = own
        for position, members in enumerate(chain.along(sequence).swapaxes(0, 1)):
            wrong += likelihood * step_parts(members, prefix, prefix)["K"]
            prefix = prefix * members[:, sequence[position]]
            prefix = prefix / prefix.sum()
    assert abs(wrong - whole) > 0.01 * whole


def test_members_that_nearly_agree_keep_their_digits() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(1, 2, 3, 11)) + 1e-5 * rng.normal(size=(3, 2, 3, 11))
    tokens = rng.integers(11, size=(2, 3))
    with mpmath.workdps(40):
        expected = []
        for n in range(2):
            total = mpmath.mpf(0)
            for position in range(3):
                members = []
                for m in range(3):
                    raw = [mpmath.exp(mpmath.mpf(float(x))) for x in logits[m, n, position]]
                    members.append([x / mpmath.fsum(raw) for x in raw])
                for p in members:
                    for q in members:
                        total += mpmath.fsum(a * mpmath.log(a / b) for a, b in zip(p, q, strict=True)) / 9
            expected.append(float(total))
    by_step = decompose(logits=logits, tokens=tokens).sequence.epistemic
    np.testing.assert_allclose(by_step, expected, rtol=1e-8)
    # By sequence the weights differ from equal ones by 1e-5 of them, and so does K.
    by_sequence = decompose(logits=logits, tokens=tokens, average="sequence").sequence.epistemic
    np.testing.assert_allclose(by_sequence, expected, rtol=1e-3)


def test_identical_members_have_exactly_no_epistemic_part() -> None:
    logits = np.repeat(np.random.default_rng(0).normal(size=(1, 2, 5, 9)), 3, axis=0)
    for average in ("step", "sequence"):
        for measure in MEASURES:
            found = decompose(
                logits=logits,
                tokens=np.zeros((2, 5), int),
                average=average,
                measure=measure,
                weights=[1, 2, 3],
            )
            assert (found.tokens.epistemic == 0).all()


@pytest.mark.parametrize("average", ["step", "sequence"])
@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_a_stream_is_the_whole(average, chunk) -> None:
    logits, tokens, mask = random_case(1)
    whole = decompose(logits=logits, tokens=tokens, mask=mask, average=average, weights=[1, 2, 3])
    stream = Stream(average=average, weights=[1, 2, 3])
    for begin in range(0, 6, chunk):
        part = slice(begin, begin + chunk)
        stream.update(logits=logits[:, :, part], tokens=tokens[:, part], mask=mask[:, part])
    found = stream.decompose()
    np.testing.assert_allclose(found.tokens.epistemic, whole.tokens.epistemic, rtol=1e-12)
    np.testing.assert_allclose(found.log_likelihood, whole.log_likelihood, rtol=1e-12)
    np.testing.assert_array_equal(found.lengths, mask.sum(-1))


@pytest.mark.parametrize("average", ["step", "sequence"])
def test_members_may_come_one_after_the_other(average) -> None:
    logits, tokens, mask = random_case(2)
    whole = decompose(logits=logits, tokens=tokens, mask=mask, average=average, weights=[1, 2, 3])
    found = Stream(average=average, weights=[1, 2, 3])
    found.update(logits=iter(logits), tokens=tokens, mask=mask)
    for measure in MEASURES:
        expected = decompose(
            logits=logits, tokens=tokens, mask=mask, average=average, measure=measure, weights=[1, 2, 3]
        )
        one = found.decompose(measure)
        np.testing.assert_allclose(one.tokens.epistemic, expected.tokens.epistemic, rtol=1e-11)
        np.testing.assert_allclose(one.log_likelihoods, whole.log_likelihoods, rtol=1e-12)


@pytest.mark.parametrize("average", ["step", "sequence"])
@pytest.mark.parametrize("weights", [None, [0.2, 0.5, 0.3]])
def test_few_members_with_a_large_vocabulary_are_the_same(average, weights, monkeypatch) -> None:
    """The compiled loop for them against float64, with padding on either side, whole and in parts."""
    monkeypatch.setenv("DEMUR_COMPILE", "always")
    rng = np.random.default_rng(1)
    logits = 3 * rng.normal(size=(1, 2, 6, 2000)) + 0.3 * rng.normal(size=(3, 2, 6, 2000))
    logits[0, 1, 4, 5] = -np.inf  # a row that the loop leaves to others
    logits, tokens = logits.astype(np.float32), rng.integers(6, 2000, size=(2, 6))
    mask = np.array([[0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0]], bool)
    given = {"tokens": tokens, "mask": mask}
    plain = decompose(logits=logits.astype(np.float64), average=average, weights=weights, **given)
    found = decompose(logits=logits, average=average, weights=weights, **given)
    apart = demur.sequences.Stream(average=average, weights=weights)
    for part in (slice(0, 3), slice(3, 6)):
        members = [np.ascontiguousarray(each[:, part]) for each in logits]
        assert apart.add_together(members, tokens[:, part], mask[:, part])
    for own in (found, apart.decompose()):
        for part in ("total", "aleatoric", "epistemic"):
            expected = getattr(plain.tokens, part)
            np.testing.assert_allclose(getattr(own.tokens, part), expected, rtol=2e-5)
        np.testing.assert_allclose(own.token_log_likelihoods, plain.token_log_likelihoods, rtol=2e-6)


def test_log_probs_probs_and_other_libraries_agree() -> None:
    logits, tokens, mask = random_case(3)
    whole = decompose(logits=logits, tokens=tokens, mask=mask)
    for other in (
        decompose(softmax(logits), tokens=tokens, mask=mask),
        decompose(log_probs=np.log(softmax(logits)), tokens=tokens, mask=mask),
        decompose(
            logits=torch.from_numpy(logits), tokens=torch.from_numpy(tokens), mask=torch.from_numpy(mask)
        ),
        decompose(logits=jnp.asarray(logits), tokens=jnp.asarray(tokens), mask=jnp.asarray(mask)),
    ):
        np.testing.assert_allclose(np.asarray(other.tokens.epistemic), whole.tokens.epistemic, rtol=1e-5)
        np.testing.assert_allclose(np.asarray(other.perplexity), whole.perplexity, rtol=1e-5)
    assert isinstance(
        decompose(logits=torch.from_numpy(logits).float(), tokens=tokens).sequence.total, torch.Tensor
    )


def test_a_member_that_excludes_the_token_that_came_has_no_say_afterwards() -> None:
    probs = np.array([[[[0.5, 0.5], [0.9, 0.1]]], [[[1.0, 0.0], [0.2, 0.8]]]])
    found = decompose(probs, tokens=[[1, 0]], average="sequence", measure="average")
    with pytest.warns(demur.RoundingWarning):
        assert np.isinf(decompose(probs, tokens=[[1, 0]], average="sequence").sequence.epistemic)
    expected = [demur.decompose(probs[:, 0, 0], measure="average").epistemic, 0.0]
    np.testing.assert_allclose(found.tokens.epistemic[0], expected, atol=1e-15)
    with pytest.raises(ValueError, match="Every member excludes a token of input 0"):
        decompose(probs[1:], tokens=[[1, 0]], average="sequence", measure="average")


def test_padding_after_a_token_that_all_members_exclude_needs_no_weights() -> None:
    probs = np.array([[[[0.5, 0.5, 0.0], [0.2, 0.8, 0.0]]], [[[0.9, 0.1, 0.0], [0.3, 0.7, 0.0]]]])
    tokens, mask = [[2, 0]], [[True, False]]
    found = decompose(probs, tokens=tokens, mask=mask, average="sequence")
    np.testing.assert_allclose(found.sequence.epistemic, decompose(probs[:, :, :1]).sequence.epistemic)
    assert found.log_likelihood == -np.inf
    with pytest.raises(ValueError, match="Every member excludes"):
        decompose(probs, tokens=tokens, average="sequence")


def test_members_one_after_the_other_at_positions_that_are_all_padding() -> None:
    logits, tokens, _ = random_case(positions=4)
    mask = np.arange(4) + np.zeros((4, 1)) > 0
    stream = Stream()
    for part in (slice(0, 1), slice(1, 4)):
        stream.update(logits=iter(logits[:, :, part]), tokens=tokens[:, part], mask=mask[:, part])
    found = stream.decompose()
    np.testing.assert_allclose(
        found.tokens.epistemic, decompose(logits=logits, mask=mask).tokens.epistemic, rtol=1e-9
    )
    assert (found.lengths == 3).all()


def test_attribute_finds_the_words_that_members_disagree_about() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3, 2, 4, 30))
    tokens, shares = attribute(logits=logits, top=30)
    expected = demur.attribute(logits=logits)
    np.testing.assert_allclose(np.take_along_axis(expected, tokens, -1), shares)
    assert (np.diff(shares, axis=-1) <= 0).all()
    np.testing.assert_allclose(shares.sum(-1), decompose(logits=logits).tokens.epistemic)
    few, _ = attribute(logits=logits, top=3, weights=np.ones((3, 2)))
    np.testing.assert_array_equal(few, tokens[..., :3])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": np.zeros((2, 3, 4))}, r"4 axes. Got shape \(2, 3, 4\)"),
        ({"tokens": np.full((2, 3), -100)}, r"from 0 to 4. Got -100 at \[0, 0\]. Mask what is no token"),
        ({"tokens": np.full((2, 3), 5)}, r"from 0 to 4. Got 5 at \[0, 0\]"),
        ({"tokens": np.zeros((2, 2), int)}, r"tokens must have shape \(2, 3\)"),
        ({"tokens": np.zeros((2, 3))}, "tokens must be integers"),
        ({"mask": np.zeros((2, 3), bool)}, "keep a position of each input. Got none for input 0"),
        ({"mask": np.full((2, 3), 0.5)}, "mask must be true"),
        ({"mask": np.ones((3, 3))}, r"mask must have shape \(2, 3\)"),
        ({"average": "words"}, "average must be 'step' or 'sequence'"),
        ({"average": "sequence"}, "pass tokens="),
        ({"weights": [1, 2, 3]}, r"weights must have shape \(2,\)"),
        ({"measure": demur.Measure(np.ones((2, 3, 5)) / 5, "each")}, "given model"),
    ],
)
def test_bad_arguments_get_one_clear_line(change, message) -> None:
    arguments = {"logits": np.zeros((2, 2, 3, 5))} | change
    with pytest.raises((ValueError, TypeError), match=message):
        decompose(**arguments)


@pytest.mark.parametrize("average", ["step", "sequence"])
def test_wrong_predictions_are_named_by_input_and_position(average) -> None:
    logits, tokens, mask = random_case()
    logits[2, 0, 4, 3] = np.nan
    place = r"Input 0, position 4: logits must be numbers\. Got nan at \[2, 3\]"
    with pytest.raises(ValueError, match=place):
        decompose(logits=logits, tokens=tokens, mask=mask, average=average)
    mask[0, 4] = False
    decompose(logits=logits, tokens=tokens, mask=mask, average=average)
    with pytest.raises(ValueError, match=r"Member 2: Input 0, position 4: .* nan at \[0, 3\]"):
        Stream().update(logits=iter(logits))


@pytest.mark.parametrize("axis", range(4))
def test_empty_axes_are_refused(axis) -> None:
    logits = np.take(random_case()[0], [], axis=axis)
    with pytest.raises(ValueError, match="Expected at least one member, input, position and token"):
        decompose(logits=logits)


def test_members_one_after_the_other_have_one_shape_and_a_weight_each() -> None:
    logits, _, _ = random_case()
    with pytest.raises(ValueError, match=r"Got \(4, 2\) from member 1"):
        Stream().update(logits=iter([logits[0], logits[1, :, :2]]))
    with pytest.raises(ValueError, match=r"one per member\. Got 2, and more members"):
        Stream(weights=[1, 2]).update(logits=iter(logits))


def test_chunks_that_do_not_go_together_are_refused() -> None:
    stream = Stream().update(logits=np.zeros((2, 2, 3, 5)))
    with pytest.raises(ValueError, match=r"members and inputs \(2, 2\), as before. Got \(3, 2\)"):
        stream.update(logits=np.zeros((3, 2, 3, 5)))
    with pytest.raises(ValueError, match="no tokens, as before"):
        stream.update(logits=np.zeros((2, 2, 3, 5)), tokens=np.zeros((2, 3), int))
    with pytest.raises(ValueError, match="empty one"):
        Stream().decompose()
    with pytest.raises(ValueError, match="perplexity needs the tokens"):
        _ = stream.decompose().perplexity


@pytest.mark.parametrize("scale", [1e-7, 1e-3, 1.0, 30.0])
@pytest.mark.parametrize("kind", ["logits", "log_probs"])
def test_m_by_prefix_is_that_of_the_sums_over_members(scale, kind) -> None:
    """Against ``Moments``, the way that is taken where members exclude tokens."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(1, 5, 40)) + scale * rng.normal(size=(3, 5, 40))
    if kind == "log_probs":
        logits = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    prior, prefix = rng.random((3, 5)) + 0.1, rng.random((3, 5)) ** 4
    prefix[0, 0] = 0.0
    given = {"probs": None, "logits": None, "log_probs": None, kind: logits}
    prediction = as_prediction(**given)
    found = step_figures.compute_prefix_figures(prediction, prior, prefix)
    truth = demur.Moments().update(prediction, weights=prior)
    expected = demur.decompose(prediction, measure=demur.Measure("bma", truth), weights=prefix).epistemic
    np.testing.assert_allclose(found[3], expected, rtol=1e-5 if scale < 1e-6 else 1e-8)
    assert (found[3] > 0).all()


def test_m_by_prefix_of_equal_members_is_exactly_0() -> None:
    rng = np.random.default_rng(0)
    logits = np.broadcast_to(rng.normal(size=(1, 5, 40)), (3, 5, 40)).astype(np.float32)
    prediction = as_prediction(None, logits, None)
    prefix = rng.random((3, 5))
    assert (step_figures.compute_prefix_figures(prediction, np.ones((3, 5)), prefix)[1:] == 0).all()
