"""The uncertainty about whole answers: exact where all can be listed, unbiased where it says so."""

import numpy as np
import pytest
from reference.sequences import Chain, step_parts

from demur.sequences import decompose, hypotheses

MEASURES = {"pairwise": "K", "average": "I", "reverse": "M"}


@pytest.mark.parametrize("measure", MEASURES)
def test_a_list_of_all_answers_is_exact(measure) -> None:
    chain, weights = Chain(3, 3, 4, seed=0), np.array([0.2, 0.5, 0.3])
    joint = chain.joint()
    whole = step_parts(joint, weights, weights)
    found = hypotheses(np.log(joint)[:, None], measure=measure, weights=weights)
    np.testing.assert_allclose(found.sequence.epistemic, whole[MEASURES[measure]], rtol=1e-11)
    aleatoric = whole["entropy"] + (whole["I"] if measure == "reverse" else 0)
    np.testing.assert_allclose(found.sequence.aleatoric, aleatoric, rtol=1e-11)
    np.testing.assert_allclose(found.covered, 1.0)
    assert found.sequence.stderr is None and found.per_token is None


def test_a_beam_misses_what_it_does_not_list() -> None:
    joint = Chain(3, 3, 4, seed=1).joint()
    best = np.argsort(-joint.mean(0))[:20]
    found, whole = (hypotheses(np.log(each)[:, None], measure="average") for each in (joint[:, best], joint))
    assert found.sequence.total < whole.sequence.total
    np.testing.assert_allclose(found.covered, joint.mean(0)[best].sum())


@pytest.mark.parametrize("proposal", ["average", pytest.param("other", marks=pytest.mark.slow)])
def test_draws_are_right_on_average_and_their_errors_too(proposal) -> None:
    chain = Chain(3, 3, 4, seed=2)
    joint, rng = chain.joint(), np.random.default_rng(0)
    mean = joint.mean(axis=0)
    source = mean if proposal == "average" else (q := mean**0.7) / q.sum()
    drawn = rng.choice(len(mean), size=(4000, 40), p=source)
    given = "average" if proposal == "average" else np.log(source)[drawn]
    whole = step_parts(joint, np.full(3, 1 / 3), np.full(3, 1 / 3))
    for measure, name in MEASURES.items():
        found = hypotheses(np.log(joint)[:, drawn], drawn_from=given, measure=measure).sequence
        value, error = found.epistemic, found.stderr.epistemic
        # Five standard errors of the mean of 4000; normalising weights by their sum biases by about 1 / 40.
        slack = 0.0 if proposal == "average" else 0.02 * whole[name]
        assert abs(value.mean() - whole[name]) < 5 * value.std() / np.sqrt(len(value)) + slack
        # Errors are unbiased in their squares, up to what skewed terms do to 40 draws.
        assert np.sqrt((error**2).mean()) == pytest.approx(value.std(), rel=0.1)
    # The control: equal weights for draws from elsewhere are off by far more.
    wrong = hypotheses(np.log(joint)[:, rng.choice(len(mean), size=(4000, 40), p=(q := mean**0.3) / q.sum())],
                       drawn_from="average", measure="average").sequence.total  # fmt: skip
    truth = -mean @ np.log(mean)
    assert abs(wrong.mean() - truth) > 20 * wrong.std() / np.sqrt(len(wrong))


def test_temperature_and_lengths() -> None:
    logs = np.log([[[0.6, 0.3, 0.1]], [[0.2, 0.3, 0.5]]])
    hot = hypotheses(logs, temperature=1e6)
    np.testing.assert_allclose(hot.weights, 1 / 3, rtol=1e-5)
    np.testing.assert_allclose(hot.effective_count, 3, rtol=1e-5)
    found = hypotheses(logs, lengths=[[1, 2, 4]], measure="bma")
    mean = np.exp(logs).mean(axis=0)[0]
    np.testing.assert_allclose(found.per_token.total, -(mean * np.log(mean) / [1, 2, 4]).sum())
    np.testing.assert_allclose(found.weights[0], mean)


def test_the_average_by_step() -> None:
    chain = Chain(3, 3, 3, seed=3)
    sequences = chain.sequences()
    probs = np.stack([chain.along(s) for s in sequences], axis=1)
    steps = decompose(probs, tokens=sequences)
    found = hypotheses(
        steps.log_likelihoods[:, None], log_likelihood=steps.log_likelihood[None], measure="reverse"
    )
    # The product of averages over members is a distribution over sequences, too.
    product = np.exp(steps.log_likelihood)
    np.testing.assert_allclose(product.sum(), 1)
    np.testing.assert_allclose(found.sequence.aleatoric, -product @ np.log(product))
    np.testing.assert_allclose(
        found.sequence.epistemic, product @ (np.log(product) - np.log(chain.joint()).mean(axis=0)), rtol=1e-10
    )
    with pytest.raises(ValueError, match="only total and M are known"):
        hypotheses(steps.log_likelihoods[:, None], log_likelihood=steps.log_likelihood[None])


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_a_beam_averaged_by_step_has_the_published_sums(temperature) -> None:
    chain = Chain(3, 3, 3, seed=3)
    sequences = chain.sequences()
    steps = decompose(np.stack([chain.along(s) for s in sequences], axis=1), tokens=sequences)
    best = np.argsort(-steps.log_likelihood)[:5]
    members, average = steps.log_likelihoods[:, best], steps.log_likelihood[best]
    found = hypotheses(
        members[:, None], log_likelihood=average[None], measure="reverse", temperature=temperature
    )
    shares = np.exp(average / temperature) / np.exp(average / temperature).sum()
    np.testing.assert_allclose(found.sequence.aleatoric, -shares @ average)
    np.testing.assert_allclose(found.sequence.epistemic, shares @ (average - members.mean(axis=0)))


def test_an_answer_that_a_member_excludes() -> None:
    logs = np.array([[[np.log(0.5), np.log(0.5)]], [[0.0, -np.inf]]])
    assert np.isinf(hypotheses(logs).sequence.epistemic).all()
    found = hypotheses(logs, measure="average")
    expected = step_parts(np.array([[0.5, 0.5], [1.0, 0.0]]), np.full(2, 0.5), np.full(2, 0.5))
    np.testing.assert_allclose(found.sequence.epistemic, expected["I"], rtol=1e-12)


def test_identical_members_and_a_mask() -> None:
    logs = np.repeat(np.log([[[0.5, 0.3, 0.2], [0.7, 0.3, 1.0]]]), 2, axis=0)
    mask = [[True, True, True], [True, True, False]]
    found = hypotheses(logs, mask=mask)
    assert (found.sequence.epistemic == 0).all() and found.weights[1, 2] == 0
    with pytest.raises(ValueError, match="Got none for input 1"):
        hypotheses(logs, mask=[[True] * 3, [False] * 3])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"log_likelihoods": np.zeros((2, 2))}, "3 axes"),
        ({"log_likelihoods": np.ones((2, 1, 2))}, r"at most 0, .* Got 1.0 at \[0, 0, 0\]"),
        ({"log_likelihoods": np.full((2, 1, 2), np.nan)}, "at most 0"),
        ({"temperature": 0}, "temperature must be"),
        ({"drawn_from": "beam"}, "drawn_from must be"),
        ({"weights": [1.0]}, r"weights must have shape \(2,\)"),
        ({"drawn_from": [[-np.inf, -1.0]]}, "drawn_from must be finite"),
        ({"drawn_from": [[0.5, -1.0]]}, "drawn_from must be at most 0"),
        ({"log_likelihood": [[np.nan, -1.0]], "measure": "M"}, "log_likelihood must be at most 0"),
        ({"lengths": [[0, 1]]}, "lengths must be positive"),
        ({"lengths": [[np.nan, 1]]}, "lengths must be positive"),
        ({"log_likelihoods": np.full((2, 1, 2), -np.inf)}, "some member finds possible"),
    ],
)
def test_bad_arguments_get_one_clear_line(change, message) -> None:
    arguments = {"log_likelihoods": np.log([[[0.5, 0.5]], [[0.1, 0.9]]])} | change
    with pytest.raises(ValueError, match=message):
        hypotheses(**arguments)
