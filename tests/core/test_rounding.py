"""The warning where probabilities make K infinite: once per call, with the count, and only then."""

import warnings

import numpy as np
import pytest

import demur

ZEROS = np.array([[[1.0, 0.0], [0.5, 0.5], [1.0, 0.0]], [[0.9, 0.1], [0.4, 0.6], [1.0, 0.0]]])


def warned(call) -> list[str]:
    """What a call warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert all(each.category is demur.RoundingWarning for each in caught)
    assert all(each.filename == __file__ for each in caught)
    return [str(each.message) for each in caught]


def test_the_category_is_a_user_warning() -> None:
    assert issubclass(demur.RoundingWarning, UserWarning)


@pytest.mark.parametrize("measure", ["pairwise", "reverse"])
def test_one_warning_says_how_many_inputs_and_what_to_do(xp, measure) -> None:
    (said,) = warned(lambda: demur.decompose(xp.array(ZEROS), measure=measure))
    for words in ("infinite for 1 of 3 inputs", "Rounding may be the cause", "Pass logits=", "rounding="):
        assert words in said
    assert "measure='average'" in said
    (said,) = warned(lambda: demur.attribute(xp.array(ZEROS), measure=measure))
    assert "infinite for 1 of 3 inputs" in said


def test_large_arrays_warn_once() -> None:
    many = np.repeat(ZEROS, 20000, axis=1)
    (said,) = warned(lambda: demur.decompose(many))
    assert "infinite for 20000 of 60000 inputs" in said
    assert len(warned(lambda: demur.decompose(many, stderr=True))) == 1


def test_functions_that_decompose_many_times_warn_once() -> None:
    assert len(warned(lambda: demur.divergences(ZEROS))) == 1
    three = np.concatenate([ZEROS, ZEROS])
    (said,) = warned(lambda: demur.convergence(three))
    assert "infinite for 1 of 3 inputs" in said


def test_nothing_to_say() -> None:
    with np.errstate(divide="ignore"):
        logs = np.log(ZEROS)
    assert warned(lambda: demur.decompose(ZEROS, measure="average")) == []
    assert warned(lambda: demur.decompose(ZEROS, rule="brier")) == []
    assert warned(lambda: demur.decompose(ZEROS[:, 1:])) == []
    assert warned(lambda: demur.decompose(logits=logs)) == []
    assert warned(lambda: demur.decompose(log_probs=logs)) == []
    assert warned(lambda: demur.decompose(ZEROS, rounding=0)) == []
    assert warned(lambda: demur.decompose(ZEROS, rounding="dtype")) == []
    assert warned(lambda: demur.decompose(np.array([[[1, 0]], [[0, 1]]]))) == []  # integers are exact


def test_given_models_that_came_as_probabilities() -> None:
    with np.errstate(divide="ignore"):
        logs = np.log(ZEROS)
    for given in (ZEROS[0], demur.Moments().update(ZEROS)):
        measure = demur.Measure("each", given)
        assert len(warned(lambda measure=measure: demur.decompose(logits=logs, measure=measure))) == 1
        moments = demur.Moments().update(logits=logs)
        assert len(warned(lambda measure=measure, own=moments: own.decompose(measure))) == 1
    given = demur.Categorical(log_probs=logs[0])
    assert warned(lambda: demur.decompose(logits=logs, measure=demur.Measure("each", given))) == []


def test_moments_know_what_came(tmp_path) -> None:
    with np.errstate(divide="ignore"):
        logs = np.log(ZEROS)
    plain = demur.Moments().update(logits=logs)
    assert warned(lambda: plain.decompose()) == []
    rounded = demur.Moments().update(ZEROS)
    (said,) = warned(lambda: rounded.decompose())
    assert "infinite for 1 of 3 inputs" in said and "demur.decompose(..., rounding=...)" in said
    assert warned(lambda: rounded.decompose("average")) == []
    assert len(warned(lambda: rounded.only(slice(0, 1)).decompose())) == 1
    assert len(warned(lambda: demur.Moments().merge(rounded).decompose())) == 1
    assert len(warned(lambda: plain.merge(rounded).decompose())) == 1
    rounded.save(tmp_path / "moments.npz")
    assert len(warned(lambda: demur.Moments.load(tmp_path / "moments.npz").decompose())) == 1


def test_moments_of_older_files_still_load(tmp_path) -> None:
    demur.Moments().update(ZEROS).save(tmp_path / "new.npz")
    with np.load(tmp_path / "new.npz") as file:
        content = {name: file[name] for name in file.files if name != "from_probs"}
    np.savez(tmp_path / "old.npz", **content)
    old = demur.Moments.load(tmp_path / "old.npz")
    assert warned(lambda: old.decompose()) == []
    np.testing.assert_array_equal(old.decompose().epistemic, [np.inf, *old.decompose().epistemic[1:]])


def test_a_stream_cannot_find_the_least_value() -> None:
    with pytest.raises(ValueError, match="rounding needs all members at once"):
        demur.Moments().update(demur.Bernoulli(ZEROS[..., 0], rounding=1e-6))
    assert demur.Moments().update(demur.Bernoulli(ZEROS[..., 0], rounding=0)).count == 2
    saturated = demur.Moments().update(demur.MultiLabel(ZEROS))
    assert len(warned(lambda: saturated.decompose())) == 1


class _Model:
    """A classifier that returns probabilities, of which float16 made some 0."""

    classes_ = np.arange(2)

    def __init__(self, slope) -> None:
        self.slope = slope

    def predict_proba(self, x):
        p = (1 / (1 + np.exp(-self.slope * x[:, :1]))).astype(np.float16).astype(np.float64)
        return np.hstack([1 - p, p])


@pytest.mark.parametrize("order", ["batch", "member"])
def test_a_run_of_many_batches_warns_once(order) -> None:
    x = np.linspace(0.0, 12.0, 40)[:, None]
    batches = [x[i : i + 8] for i in range(0, 40, 8)]
    scores = []

    def run(models) -> None:
        scores.append(demur.score(models, batches, order=order, progress=False))

    (said,) = warned(lambda: run([_Model(1.0), _Model(0.5)]))
    infinite = int(np.isinf(scores[0]["pairwise"].epistemic).sum())
    assert 0 < infinite < 40 and f"infinite for {infinite} of 40 inputs" in said
    assert "posterior" in said
    assert warned(lambda: run([_Model(0.1), _Model(0.2)])) == []
