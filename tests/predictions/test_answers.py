"""Answers that are no numbers: against loops over pairs, closed forms, simulation, and what is refused."""

import itertools

import numpy as np
import pytest
from reference import kernels, loops

import demur
from demur import Draws, Measure, Points, decompose

PARTS = loops.PARTS
MEASURES = {"pairwise": ("each", "each"), "average": ("each", "bma"), "reverse": ("bma", "each"),
            "bma": ("bma", "bma")}  # fmt: skip
RNG = np.random.default_rng(0)
WORDS = ["a cat", "a dog", "the cat", "a black cat", "no animal", "Paris", "in Paris", ""]
ANSWERS = RNG.choice(WORDS, (3, 4, 5)).astype(object)  # (members, draws, questions)
WEIGHTS = np.array([0.5, 2.0, 1.0])


def share_words(x: str, y: str) -> float:
    """Cosine of counts of letters and words: positive definite."""
    one, two = (np.array([t.count(c) for c in "abcdeghiklmnoprst "]) + 1.0 for t in (x, y))
    return float(one @ two / np.linalg.norm(one) / np.linalg.norm(two))


def loop(answers, weights=None, measure=("each", "each"), kernel=share_words):
    own = None if weights is None else weights.tolist()
    found = []
    for place in range(answers.shape[-1]):
        sides = tuple(s if isinstance(s, str) else [m[..., place].tolist() for m in s] for s in measure)
        members = [np.atleast_1d(m[..., place]).tolist() for m in answers]
        found.append(kernels.decompose_one(members, own, measure=sides, kernel=kernel))
    return {part: np.array([f[part] for f in found]) for part in PARTS}


def assert_parts(found, wanted, atol=1e-13) -> None:
    for part in PARTS:
        np.testing.assert_allclose(getattr(found, part), wanted[part], rtol=1e-12, atol=atol, err_msg=part)


def matrices_of(answers) -> np.ndarray:
    """Similarities of all answers to each question, member by member."""
    flat = answers.reshape(-1, answers.shape[-1]).T
    return np.array([[[share_words(x, y) for y in own] for x in own] for own in flat])


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("form", ["function", "matrix", "lists", "members last"])
def test_every_measure_against_loops(measure, weights, form) -> None:
    kernel = matrices_of(ANSWERS) if form == "matrix" else share_words
    axis = -1 if form == "members last" else 0
    answers = ANSWERS.tolist() if form == "lists" else np.moveaxis(ANSWERS, 0, axis)
    found = decompose(Draws(answers, kernel=kernel), measure=measure, weights=weights, axis=axis)
    assert_parts(found, loop(ANSWERS, weights, MEASURES[measure]))


def test_one_answer_per_member_is_a_point() -> None:
    found = decompose(Points(ANSWERS[:, 0], kernel=share_words))
    assert_parts(found, loop(ANSWERS[:, 0]))
    np.testing.assert_array_equal(found.aleatoric, 0)


@pytest.mark.parametrize("draws", [4, 6])
def test_a_given_model_against_loops(draws) -> None:
    given = RNG.choice(WORDS, (draws, ANSWERS.shape[-1])).astype(object)
    chosen = Measure(predictor=Draws(given, kernel=share_words), truth="each")
    found = decompose(Draws(ANSWERS, kernel=share_words), measure=chosen)
    assert_parts(found, loop(ANSWERS, None, ([given], "each")))
    with pytest.raises(ValueError, match=r"Give kernel as a function k\(x, y\)"):
        decompose(Draws(ANSWERS, kernel=matrices_of(ANSWERS)), measure=chosen)


def test_one_question_has_no_batch() -> None:
    one = ANSWERS[:, :, 0]
    by_function = decompose(Draws(one, kernel=share_words))
    by_matrix = decompose(Draws(one, kernel=matrices_of(ANSWERS)[0]))
    assert by_function.total.shape == () and float(by_matrix.total) == pytest.approx(float(by_function.total))
    assert_parts(decompose(Draws(ANSWERS[..., :1], kernel=share_words)), loop(ANSWERS[..., :1]))


def test_answers_to_many_questions_in_blocks() -> None:
    answers = RNG.choice(WORDS, (3, 60, 40)).astype(object)  # more pairs than fit one block
    found = decompose(Draws(answers, kernel=share_words))
    for place in (0, 17, 39):
        alone = decompose(Draws(answers[..., place], kernel=share_words))
        assert float(alone.epistemic) == pytest.approx(found.epistemic[place], rel=1e-12)


def test_members_with_the_same_answers_do_not_disagree() -> None:
    same = np.broadcast_to(ANSWERS[:1], ANSWERS.shape)
    np.testing.assert_allclose(decompose(Draws(same, kernel=share_words)).epistemic, 0, atol=1e-15)
    alone = decompose(Draws(ANSWERS[:1], kernel=share_words))  # one member: its own spread is all there is
    np.testing.assert_array_equal(alone.epistemic, 0)
    np.testing.assert_array_equal(alone.total, alone.aleatoric)
    with pytest.raises(ValueError, match="at least 2 members"):
        decompose(Draws(ANSWERS[:1], kernel=share_words), stderr=True)


def test_equal_answers_alone_alike_are_the_brier_score_and_unbiased() -> None:
    # Mean over 4,000 questions with the same truth, against the closed form of the Brier rule.
    probs = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]])
    rng = np.random.default_rng(1)
    answers = np.stack([rng.choice(np.array(list("xyz"), object), (3, 4000), p=own) for own in probs])
    for measure in ("pairwise", "average"):
        found = decompose(Draws(answers, kernel=lambda x, y: float(x == y)), measure=measure)
        wanted = decompose(probs[:, None], rule="brier", measure=measure)
        for part in PARTS:
            # The kernel score is half the Brier score.
            values = getattr(found, part)
            error = values.std(ddof=1) / np.sqrt(len(values))
            assert abs(values.mean() - wanted.to_dict()[part][0] / 2) < 4 * error
    biased = np.mean([[(own == c).mean(axis=0) ** 2 for c in "xyz"] for own in answers]) * 3
    assert abs((1 - biased) / 2 - found.aleatoric.mean()) > 0.05  # the control: pairs of a draw with itself


def test_standard_errors_are_those_of_leaving_a_member_out() -> None:
    found = decompose(Draws(ANSWERS, kernel=share_words), stderr=True, unbiased=True)
    left = np.array(
        [
            decompose(Draws(np.delete(ANSWERS, m, 0), kernel=share_words), unbiased=True).epistemic
            for m in range(3)
        ]
    )
    wanted = np.sqrt(2 / 3 * ((left - left.mean(axis=0)) ** 2).sum(axis=0))
    assert found.stderr is not None
    np.testing.assert_allclose(found.stderr.epistemic, wanted, rtol=1e-9)


def test_answers_may_be_anything() -> None:
    things = [[{"a": 1}, {"b": 2}], [{"a": 3}, {"c": 4}]]
    found = decompose(Draws(things, kernel=lambda x, y: float(x.keys() == y.keys())))
    assert float(found.aleatoric) == 0.5
    assert repr(Draws(things, kernel=share_words)) == "Draws(shape=(2, 2), answers)"
    ids = np.arange(12).reshape(3, 4)  # numbers that stand for something
    by_matrix = decompose(Draws(ids, kernel=matrices_of(ANSWERS)[1])).epistemic
    assert float(by_matrix) == pytest.approx(loop(ANSWERS)["epistemic"][1])


def test_each_pair_is_compared_once_in_both_orders() -> None:
    calls: list[tuple[str, str]] = []

    def count(x, y):
        calls.append((x, y))
        return share_words(x, y)

    decompose(Draws(ANSWERS, kernel=count))
    different = [set(ANSWERS[..., n].ravel()) for n in range(ANSWERS.shape[-1])]
    wanted = {pair for own in different for pair in itertools.product(own, repeat=2)}
    assert set(calls) == wanted and len(calls) == len(wanted)


G = matrices_of(ANSWERS)
WRONG = {
    "shape": (lambda: Draws(ANSWERS, kernel=G[:, :3, :3]), r"row and a column .*\(5, 12, 12\)"),
    "one for many": (lambda: Draws(ANSWERS, kernel=G[0]), r"Got \(12, 12\)"),
    "not square": (lambda: Draws(ANSWERS, kernel=G[..., :3]), "square matrix"),
    "text": (lambda: Draws(ANSWERS, kernel="energy"), "answers are no numbers"),
    "nothing": (lambda: Draws(ANSWERS), "answers are no numbers"),
    "not symmetric": (
        lambda: Draws(ANSWERS, kernel=G + np.triu(np.ones((12, 12)), 1) / 9),
        r"kernel must be symmetric. Got .* at \[.*\] and .* at \[.*\]\.",
    ),
    "nan": (lambda: Draws(ANSWERS, kernel=G * np.nan), "finite"),
    "distances": (lambda: Draws(ANSWERS, kernel=1 - G), "of distances, give the negatives"),
    "indefinite": (lambda: Draws(ANSWERS, kernel=np.sign(np.sin(10 * G))), "positive definite"),
    "asymmetric function": (
        lambda: Draws(ANSWERS, kernel=lambda x, y: float(x <= y)), "symmetric. Got .* the other way"
    ),
    "indefinite function": (lambda: Draws(ANSWERS, kernel=lambda x, y: float(x != y)), "positive definite"),
    "no number": (lambda: Draws(ANSWERS, kernel=lambda x, y: "much"), "finite number for two answers"),
    "infinite": (lambda: Draws(ANSWERS, kernel=lambda x, y: np.inf), "finite number for two answers"),
    "ragged": (
        lambda: Draws([["a", "b"], ["a"]], kernel=share_words),
        r"as many answers from every member, 2 as first. Got 1 at \[1\]",
    ),
    "depths": (lambda: Draws([["a", "b"], ["a", ["b"]]], kernel=share_words), "nested to one depth"),
    "one draw": (lambda: Draws([["a"], ["b"]], kernel=share_words), "one answer per member use demur.Points"),
    "scale": (lambda: Draws(ANSWERS, kernel=share_words, scale=2.0), "scale goes with numbers"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_one_line(case) -> None:
    build, message = WRONG[case]
    with pytest.raises(ValueError, match=message) as found:
        decompose(build())
    assert "\n" not in str(found.value)


def test_distances_with_a_minus_are_a_kernel() -> None:
    apart = decompose(Draws(ANSWERS, kernel=G - 1))
    np.testing.assert_allclose(apart.epistemic, loop(ANSWERS)["epistemic"], rtol=1e-9)
    rounded = decompose(Draws(ANSWERS, kernel=G.round(3)))  # rounding leaves small negative eigenvalues
    np.testing.assert_allclose(rounded.epistemic, apart.epistemic, atol=2e-3)


@pytest.mark.parametrize("name", ["mean", "variance", "quantiles"])
def test_answers_have_no_mean(name) -> None:
    more = (0.5,) if name == "quantiles" else ()
    with pytest.raises(ValueError, match="no mean, variance or quantiles"):
        getattr(demur, name)(Draws(ANSWERS, kernel=share_words), *more)
