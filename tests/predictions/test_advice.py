"""What errors advise follows what the numbers look like, and names of measures have the field's aliases."""

import numpy as np
import pytest
from reference import loops, members

import demur

PROBS = loops.softmax(members.ordinary(4, 3, 5))
RNG = np.random.default_rng(0)
LABELS = RNG.uniform(0.3, 0.9, (4, 3, 5))  # every row sums to more than 1


@pytest.mark.parametrize(
    ("values", "named", "unnamed"),
    [
        (LABELS, "demur.MultiLabel", "demur.Points"),
        (LABELS[..., :1], "demur.Bernoulli", "demur.MultiLabel"),
        (PROBS[..., :3], "use demur.sequences.TopLogProbs", "pass logits="),
        (10 * LABELS, "demur.Points", "demur.MultiLabel"),
        (np.log(PROBS), "pass log_probs=", "demur.MultiLabel"),
        (members.ordinary(4, 3, 5), "demur.Points", "pass log_probs="),
        (np.concatenate([LABELS, LABELS / 100]), "demur.MultiLabel", "truncated"),
        (100 * PROBS, "Divide percentages by 100", "Normalise counts"),
        ((100 * PROBS).round(), "Divide percentages by 100", "Normalise counts"),
        (PROBS.round(2), "pass rounding=, half of the last decimal", "demur.MultiLabel"),
        (np.floor(PROBS * 1000) / 1000, "pass rounding=, half of the last decimal", "demur.MultiLabel"),
    ],
    ids=[
        "labels", "one column", "truncated", "above 1", "logs", "logits", "rare labels", "percent",
        "whole percent", "rounded", "cut off",
    ],
)  # fmt: skip
def test_the_advice_fits_the_numbers(xp, values, named, unnamed) -> None:
    with pytest.raises(ValueError, match="probs must") as caught:
        demur.decompose(xp.array(values))
    assert named in str(caught.value) and unnamed not in str(caught.value)


def test_a_truncated_list_of_log_probabilities() -> None:
    with pytest.raises(ValueError, match=r"log_probs must sum to 1.*truncated list"):
        demur.decompose(log_probs=np.log(PROBS[..., :3]))


def test_classes_on_another_axis_are_noticed() -> None:
    images = np.moveaxis(loops.softmax(members.ordinary(4, 3, 6, 7, 5)), -1, 2)
    with pytest.raises(ValueError, match=r"They do along axis 2.*class_axis=2"):
        demur.decompose(images)
    np.testing.assert_allclose(demur.decompose(images, class_axis=2).total.shape, (3, 6, 7))
    images[0, 0, :, 0, 0] *= 0.5  # then it is not the axis alone
    with pytest.raises(ValueError, match="must sum to 1") as caught:
        demur.decompose(images)
    assert "They do along" not in str(caught.value)


def test_members_without_weight_have_no_say_in_the_advice() -> None:
    probs, weights = PROBS[..., :3].copy(), np.ones((4, 3))
    probs[1, 2] = [7.0, -3.0, 5.0]
    weights[1, 2] = 0
    with pytest.raises(ValueError, match="truncated list"):
        demur.decompose(probs, weights=weights)


# --- names of measures --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("K", "pairwise"),
        ("epkl", "pairwise"),
        ("I", "average"),
        ("mutual_information", "average"),
        ("mi", "average"),
        ("bald", "average"),
        ("M", "reverse"),
    ],
)
def test_aliases(alias, name) -> None:
    expected = demur.decompose(PROBS, measure=name)
    moments = demur.Moments().update(PROBS)
    for part in loops.PARTS:
        np.testing.assert_array_equal(
            getattr(demur.decompose(PROBS, measure=alias), part), getattr(expected, part)
        )
        np.testing.assert_array_equal(
            getattr(moments.decompose(alias), part), getattr(moments.decompose(name), part)
        )
    np.testing.assert_array_equal(demur.attribute(PROBS, measure=alias), demur.attribute(PROBS, measure=name))
    beta = demur.Beta(2.0, 3.0)
    assert demur.decompose(beta, measure=alias).epistemic == demur.decompose(beta, measure=name).epistemic


def test_the_type_of_names_lists_every_name() -> None:
    import typing

    from demur.core.rules import RULES
    from demur.measures import _ALIASES, MEASURES

    assert set(typing.get_args(demur.MeasureName)) == {*MEASURES, *_ALIASES}
    assert set(typing.get_args(demur.RuleName)) == set(RULES)


@pytest.mark.parametrize("name", ["xyz", "energy", "margin", "ensemble", "bayes", "mean"])
def test_nothing_is_suggested_that_is_far_off(name) -> None:
    with pytest.raises(ValueError, match="measure must be one of 'pairwise'") as caught:
        demur.decompose(PROBS, measure=name)
    assert "Did you mean" not in str(caught.value)


def test_what_is_near_is_suggested_whatever_its_case() -> None:
    for written, meant in (("PAIRWISE", "pairwise"), ("mutual_info", "mutual_information"), ("k", "K")):
        with pytest.raises(ValueError, match=rf"Did you mean '{meant}'\?"):
            demur.decompose(PROBS, measure=written)


def test_scores_keep_the_canonical_names() -> None:
    posterior = demur.posteriors.Samples(lambda x: PROBS, kind="probs")

    def score(measures):
        return demur.score(posterior, [np.zeros((3, 2))], measures=measures, progress=False)

    scores = score(("K", "bald", "pairwise", "M"))
    assert scores.table.measures == ("pairwise", "average", "reverse")
    assert "pairwise_epistemic" in scores.table.columns
    np.testing.assert_array_equal(scores["K"].epistemic, scores["pairwise"].epistemic)
    own = score({"K": demur.Measure("each", "bma")})  # a name of the user's own stays
    assert own.table.measures == ("K",)
    np.testing.assert_allclose(own["K"].epistemic, scores["I"].epistemic, rtol=1e-12)
