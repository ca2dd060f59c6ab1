"""Several policies in one file: each as by itself, and read with the same checks."""

import json

import numpy as np
import pytest

import demur

GOALS = {"accuracy": [0.85, 0.9], "coverage": 1.0, "risk": 0.1, "cost": (0.2,)}
NAMES = ["accuracy=0.85", "accuracy=0.9", "coverage=1.0", "risk=0.1", "cost=0.2"]


def draw(number: int = 500):
    rng = np.random.default_rng(0)
    scores = rng.uniform(size=number)
    return scores, rng.uniform(size=number) > scores / 3


@pytest.fixture
def policies() -> demur.Deferrals:
    return demur.Deferrals.fit(*draw(), **GOALS)


def test_each_policy_is_that_of_its_own_fit(policies) -> None:
    assert list(policies) == NAMES and len(policies) == 5
    for name, policy in policies.items():
        goal, target = name.split("=")
        assert policy == demur.Deferral.fit(*draw(), **{goal: float(target)})
    scores, correct = draw(50)
    decided, reports = policies.defer(scores), policies.report(scores, correct)
    for name in NAMES:
        np.testing.assert_array_equal(decided[name], policies[name].defer(scores))
        assert reports[name] == policies[name].report(scores, correct)


def test_options_reach_every_policy() -> None:
    scores, correct = draw(1000)
    groups = np.where(np.arange(1000) % 2, "even", "odd")
    found = demur.Deferrals.fit(scores, correct, accuracy=[0.8, 0.85], confidence=0.9, groups=groups)
    assert all(each.confidence == 0.9 and set(each.thresholds) == {"even", "odd"} for each in found.values())
    # Four promises, each with 0.9.
    assert (
        "all at once, and so whichever is chosen by what they keep, with confidence 0.6 " in found.promise()
    )
    assert found["accuracy=0.8"].promise().splitlines()[0] in found.promise()


def test_what_holds_at_once_is_bounded_by_all_promises(policies) -> None:
    # The accuracies and the coverage have 0.95 each; a risk is an expectation, and a cost no promise.
    assert "with confidence 0.85 at least" in policies.promise()
    many = demur.Deferrals.fit(*draw(), accuracy=[0.7, 0.75, 0.8], confidence=0.6)
    assert "with confidence 0 at least" in many.promise()  # not -0.2
    assert "all at once" not in demur.Deferrals.fit(*draw(), accuracy=0.8, risk=0.1).promise()


def test_policies_come_back(policies, tmp_path) -> None:
    path = tmp_path / "policies.json"
    policies.save(path)
    again = demur.Deferrals.load(path)
    assert again == policies and list(again) == NAMES
    assert again != demur.Deferrals({"other": policies["risk=0.1"]})
    json.loads(path.read_text(), parse_constant=pytest.fail)
    with pytest.raises(ValueError, match=r"several policies, which demur\.Deferrals\.load reads"):
        demur.Deferral.load(path)


def test_a_file_of_one_policy_is_read(policies, tmp_path) -> None:
    path = tmp_path / "policy.json"
    policies["accuracy=0.9"].save(path)
    assert demur.Deferrals.load(path) == demur.Deferrals({"accuracy=0.9": policies["accuracy=0.9"]})
    content = json.loads(path.read_text())
    del content["clusters"]  # as files were before
    path.write_text(json.dumps(content))
    assert list(demur.Deferrals.load(path)) == ["accuracy=0.9"]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('"demur deferrals 1"', '"demur deferrals 2"', "no entry"),
        ('"policies": {', '"colour": 1, "policies": {', "the unknown entry 'colour'"),
        ('"policies": {', '"others": {', "the unknown entry 'others'"),
        ('"risk=0.1": {', '"": {', "names"),
        ('"risk=0.1": {', '"cost=0.2": {', "the key 'cost=0.2' twice"),
        ('"goal": "risk"', '"goal": "cost"', "policy 'risk=0.1': a promise for the goal cost"),
        ('"confidence": 0.95', '"confidence": true', "policy 'accuracy=0.85': true for confidence"),
        ('"format": "demur deferral 1"', '"format": "demur deferrals 1"', "policy 'accuracy=0.85'"),
    ],
)
def test_an_edited_file_is_refused(before, after, words, policies, tmp_path) -> None:
    path = tmp_path / "policies.json"
    policies.save(path)
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after, 1))
    with pytest.raises(ValueError, match=r"must be a policy written by Deferral\.save, or several") as caught:
        demur.Deferrals.load(path)
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "demur deferrals 1", "policies": {}}'])
def test_another_file_is_refused(text, tmp_path) -> None:
    (tmp_path / "policies.json").write_text(text)
    with pytest.raises(ValueError, match=r"must be a policy written by Deferral\.save, or several"):
        demur.Deferrals.load(tmp_path / "policies.json")


def test_a_target_that_cannot_be_promised_is_named() -> None:
    with pytest.raises(demur.NoGuarantee, match=r"^accuracy=0\.9999: No threshold can promise"):
        demur.Deferrals.fit(*draw(), accuracy=[0.85, 0.9999])
    with pytest.raises(demur.NoGuarantee, match=r"^No threshold can promise"):
        demur.Deferrals.fit(*draw(), accuracy=0.9999)


def test_bad_input_is_told(policies) -> None:
    with pytest.raises(ValueError, match="a target of accuracy"):
        demur.Deferrals.fit(*draw())
    with pytest.raises(ValueError, match="twice"):
        demur.Deferrals.fit(*draw(), accuracy=[0.9, 0.9])
    with pytest.raises(ValueError, match="between 0 and 1"):
        demur.Deferrals.fit(*draw(), accuracy=[0.9, 2])
    with pytest.raises(KeyError, match=r"Expected one of accuracy=0\.85"):
        policies["accuracy=0.5"]
    with pytest.raises(ValueError, match="one policy at least"):
        demur.Deferrals({})
    with pytest.raises(ValueError, match="must have names"):
        demur.Deferrals({"": policies["risk=0.1"]})
    with pytest.raises(TypeError, match="must be Deferrals"):
        demur.Deferrals({"one": 1})  # pyright: ignore[reportArgumentType]


def test_they_are_shown(policies) -> None:
    text = repr(policies)
    assert text.startswith("Deferrals: 5 policies") and "accuracy=0.85" in text
    assert repr(demur.Deferrals({"a": policies["cost=0.2"]})).startswith("Deferrals: 1 policy\n")
    assert "<table>" in policies._repr_html_()
