"""What users add: rules, families, measures, tasks and file readers of their own; errors for bad ones."""

from dataclasses import dataclass

import numpy as np
import pytest
from reference import loops, members

import demur
from demur.core.probabilities import softmax
from demur.core.rules import BoundedRule, BrierRule, Rule, Terms
from demur.families import Family
from demur.predictions import Parametric

LOGITS = members.ordinary(6, 4, 3)
PROBS = loops.softmax(LOGITS)
COSTS = (1.0, 1.0, 10.0)


@dataclass(frozen=True)
class CostBrierRule(BoundedRule):
    costs: tuple[float, ...] = COSTS

    def entropy(self, xp, logits):
        p = softmax(xp, logits)
        return xp.sum(xp.asarray(self.costs, dtype=p.dtype) * p * (1 - p), axis=-1)

    def apart(self, xp, a, p, q):
        costs = xp.asarray(self.costs, dtype=a.dtype)
        return Terms(a, 2 * costs * a, costs * a * a)


class GeometricRule(Family):
    def outcome(self, xp, parameters):
        return (1 - parameters) / parameters, (1 - parameters) / parameters**2

    def entropy(self, xp, logits):
        s = logits[..., 0]
        return -(s * xp.log(s) + (1 - s) * xp.log1p(-s)) / s

    def relative(self, xp, p, q):
        u = xp.log1p(-p) - xp.log1p(-q)
        return Terms(1 / p - 1 / q, u, xp.log(p) - xp.log(q) + (1 - p) / p * u)

    def average(self, xp, a, reference):
        return ((1 - reference) / reference + a)[..., 0]

    def halfway(self, xp, p, q):
        return 1 - xp.exp((xp.log1p(-p) + xp.log1p(-q)) / 2)


class Geometric(Parametric):
    def __init__(self, success):
        super().__init__("geometric", success=success)


@pytest.fixture
def cost_brier():
    return demur.register_rule(CostBrierRule("cost brier", separable=True))


@pytest.fixture
def geometric():
    return demur.register_rule(GeometricRule("geometric", separable=False))


# --- rules --------------------------------------------------------------------------------------


def pairs_and_average(weights):
    """K and I of the cost-weighted Brier score by their definitions."""
    share = weights / weights.sum()
    away = np.sum(COSTS * (PROBS[:, None] - PROBS[None, :]) ** 2, axis=-1)
    k = np.einsum("i,j,ijn->n", share, share, away)
    mean = np.einsum("i,inc->nc", share, PROBS)
    i = np.einsum("i,in->n", share, np.sum(COSTS * (PROBS - mean) ** 2, axis=-1))
    return k, i


def test_an_own_rule_is_its_definition(xp, cost_brier) -> None:
    weights = np.arange(1.0, 7.0)
    k, i = pairs_and_average(weights)
    arguments = {"logits": xp.array(LOGITS), "rule": "cost brier", "weights": xp.array(weights)}
    pairwise = demur.decompose(**arguments)
    xp.close(pairwise.epistemic, k)
    entropies = np.sum(np.asarray(COSTS) * PROBS * (1 - PROBS), axis=-1)
    xp.close(pairwise.aleatoric, weights @ entropies / weights.sum())
    xp.close(demur.decompose(**arguments, measure="average").epistemic, i)
    xp.close(demur.decompose(**arguments, measure="reverse").epistemic, k - i)
    xp.close(demur.attribute(**arguments).sum(-1), k)


@pytest.mark.parametrize("groups", [None, 3])
def test_moments_of_an_own_rule_are_saved_and_loaded(tmp_path, cost_brier, groups) -> None:
    moments = demur.Moments(rule="cost brier", groups=groups)
    for member in LOGITS:
        moments.update(logits=member)
    moments.save(tmp_path / "moments.npz")
    loaded = demur.Moments.load(tmp_path / "moments.npz")
    assert loaded.rule is cost_brier
    wanted = demur.decompose(logits=LOGITS, rule="cost brier").epistemic
    np.testing.assert_allclose(loaded.decompose().epistemic, wanted, rtol=1e-12)
    np.testing.assert_allclose(loaded.merge(moments).decompose().epistemic, wanted, rtol=1e-12)


def test_a_file_whose_rule_nobody_registered_says_what_to_do(tmp_path, cost_brier) -> None:
    demur.Moments(rule="cost brier").update(logits=LOGITS).save(tmp_path / "moments.npz")
    from demur.core.rules import RULES

    del RULES["cost brier"]
    with pytest.raises(ValueError, match=r"rule 'cost brier' is not known here.*register_rule"):
        demur.Moments.load(tmp_path / "moments.npz")


def test_scores_under_an_own_rule(cost_brier) -> None:
    posterior = demur.posteriors.Samples(lambda batch: LOGITS[:, batch], kind="logits", members=6)
    loader = [np.arange(3), np.arange(3, 4)]
    scores = demur.score(posterior, loader, rule="cost brier", progress=False)
    wanted = demur.decompose(logits=LOGITS, rule="cost brier").epistemic
    np.testing.assert_allclose(scores["pairwise"].epistemic, wanted, rtol=1e-12)


def test_large_arrays_under_an_own_rule_do_not_go_through_the_log_loops() -> None:
    demur.register_rule(BrierRule("brier again", separable=True))
    logits = np.random.default_rng(0).normal(size=(20, 500, 10)).astype(np.float32)
    again = demur.decompose(logits=logits, rule="brier again")
    np.testing.assert_array_equal(again.epistemic, demur.decompose(logits=logits, rule="brier").epistemic)


def test_registering_the_same_rule_again_changes_nothing(cost_brier) -> None:
    assert demur.register_rule(CostBrierRule("cost brier", separable=True)) == cost_brier


def test_a_registered_rule_is_replaced_only_on_demand(cost_brier) -> None:
    other = CostBrierRule("cost brier", separable=True, costs=(1.0, 2.0, 3.0))
    with pytest.raises(ValueError, match=r"Got 'cost brier', which is taken.*replace=True"):
        demur.register_rule(other)
    demur.register_rule(other, replace=True)
    assert demur.Moments(rule="cost brier").rule is other


@pytest.mark.parametrize("name", ["log", "brier", "spherical", "zero_one", "Gaussian", "multi-label"])
def test_built_in_names_are_taken(name) -> None:
    for replace in (False, True):
        with pytest.raises(ValueError, match=f"Got '{name}', which is taken. Choose another name"):
            demur.register_rule(CostBrierRule(name, separable=True), replace=replace)


def test_bad_rules_are_refused() -> None:
    with pytest.raises(TypeError, match=r"instance of a subclass.*Got the class CostBrierRule"):
        demur.register_rule(CostBrierRule)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="Got str"):
        demur.register_rule("brier")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="name that is not empty"):
        demur.register_rule(CostBrierRule("", separable=True))
    with pytest.raises(ValueError, match="compiled=False"):
        demur.register_rule(CostBrierRule("quick", separable=True, compiled=True))
    with pytest.raises(TypeError, match="abstract"):
        type("Unfinished", (BoundedRule,), {})("unfinished", separable=True)


def test_only_the_log_rule_is_compiled() -> None:
    from demur.core.rules import LOG, RULES
    from demur.families import FAMILIES

    rules: list[Rule] = [*RULES.values(), *FAMILIES.values()]
    assert [rule for rule in rules if rule.compiled] == [LOG]
    assert [rule for rule in rules if rule.excludes] == [LOG]


# --- families -----------------------------------------------------------------------------------


def geometric_kl(p, q):
    return np.log(p / q) + (1 - p) / p * np.log((1 - p) / (1 - q))


def test_an_own_family_is_its_definition(xp, tmp_path, geometric) -> None:
    success = np.random.default_rng(0).uniform(0.1, 0.9, size=(5, 3))
    found = demur.decompose(Geometric(xp.array(success)))
    wanted = geometric_kl(success[:, None], success[None, :]).mean(axis=(0, 1))
    xp.close(found.epistemic, wanted)
    mean = (1 - success) / success
    xp.close(demur.variance(Geometric(xp.array(success))).epistemic, mean.var(axis=0))
    lower, upper = demur.information_bounds(Geometric(xp.array(success)))
    assert bool((lower <= upper).all())
    assert bool((lower > 0).all())
    moments = demur.Moments().update(Geometric(success))
    moments.save(tmp_path / "moments.npz")
    np.testing.assert_allclose(
        demur.Moments.load(tmp_path / "moments.npz").decompose().epistemic, wanted, rtol=1e-9
    )
    np.testing.assert_allclose(moments.mean, mean.mean(axis=0), rtol=1e-12)


def test_an_own_family_checks_its_parameters(geometric) -> None:
    with pytest.raises(ValueError, match=r"success must be above 0. Got -0.5 at \[0, 1\]"):
        demur.decompose(Geometric(np.array([[0.5, -0.5]])))
    with pytest.raises(ValueError, match="rule 'log' only"):
        demur.decompose(Geometric(np.array([[0.5, 0.5]])), rule="brier")


# --- measures in score --------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["batch", "member"])
def test_own_measures_in_score(order) -> None:
    given = np.random.default_rng(3).normal(size=(4, 3))
    several = np.random.default_rng(4).normal(size=(2, 4, 3))
    posterior = demur.posteriors.Samples(lambda batch: LOGITS[:, batch], kind="logits", members=6)
    if order == "member":
        posterior = Listed(LOGITS)
    measures = {
        "mine": demur.Measure(lambda batch: given[batch], "each"),
        "theirs": demur.Measure("bma", lambda batch: several[:, batch]),
        "K": "pairwise",
    }
    loader = [np.arange(3), np.arange(3, 4)]
    scores = demur.score(posterior, loader, measures=measures, order=order, progress=False)
    one, many = demur.Categorical(logits=given), demur.Categorical(logits=several)
    for name, measure in (
        ("mine", demur.Measure(one, "each")),
        ("theirs", demur.Measure("bma", many)),
        ("K", "pairwise"),
    ):
        wanted = demur.decompose(logits=LOGITS, measure=measure)
        np.testing.assert_allclose(scores[name].epistemic, wanted.epistemic, rtol=1e-9)
        np.testing.assert_allclose(scores[name].total, wanted.total, rtol=1e-9)


class Listed(demur.posteriors.Posterior):
    """Members whose logits are listed; a tile of two inputs, so that a batch comes in parts."""

    tile = 2

    def __init__(self, logits):
        self.logits, self.members = logits, len(logits)

    def predict(self, batch, *, members=None, position=0):
        chosen = range(self.members) if members is None else members
        yield self.logits[chosen.start : chosen.stop][:, batch]


def test_own_measures_of_batches_that_come_in_parts() -> None:
    given = np.random.default_rng(3).normal(size=(4, 3))
    measures = {"mine": demur.Measure(lambda batch: given[batch], "each")}
    scores = demur.score(Listed(LOGITS), [np.arange(4)], measures=measures, progress=False)
    wanted = demur.decompose(
        logits=LOGITS, measure=demur.Measure(demur.Categorical(logits=given), "each")
    ).epistemic
    np.testing.assert_allclose(scores["mine"].epistemic, wanted, rtol=1e-9)


def test_a_given_array_in_score_is_refused() -> None:
    measures = {"mine": demur.Measure(PROBS[0], "each")}
    with pytest.raises(TypeError, match=r"measures\['mine'\].*function.*Got ndarray"):
        demur.score(Listed(LOGITS), [np.arange(4)], measures=measures, progress=False)


# --- tasks --------------------------------------------------------------------------------------


def accuracy_of_surest_half(scores, correct):
    return correct[scores <= np.median(scores)].mean()


def drawn(inputs=400):
    rng = np.random.default_rng(0)
    correct = rng.uniform(size=inputs) < 0.8
    return rng.normal(~correct * 1.5), rng.normal(size=inputs), correct


def test_an_own_figure_has_an_interval() -> None:
    good, _, correct = drawn()
    found = demur.tasks.estimate_figure(accuracy_of_surest_half, good, correct, resamples=500)
    assert isinstance(found, demur.tasks.Estimate)
    assert found.value == accuracy_of_surest_half(good, correct)
    # A binomial proportion of 200 inputs has about this interval; the resampled median adds little.
    half = 1.96 * np.sqrt(found.value * (1 - found.value) / 200)
    assert 0.6 * half < found.value - found.low < 1.6 * half
    assert found == demur.tasks.estimate_figure(accuracy_of_surest_half, good, correct, resamples=500)


def test_own_figures_are_compared() -> None:
    good, noise, correct = drawn()
    asked = {"correct": correct, "resamples": 300}
    told = demur.tasks.compare(good, noise, accuracy_of_surest_half, **asked)
    assert told.p_value < 0.02
    assert told.difference.low > 0
    same = demur.tasks.compare(good, good, accuracy_of_surest_half, **asked)
    assert same.p_value == 1.0
    assert same.difference.value == 0.0
    every = demur.tasks.compare_all({"a": good, "b": noise}, accuracy_of_surest_half, **asked)
    assert every["a", "b"].difference == told.difference
    found = demur.tasks.contest(
        {"ensemble": {"good": good, "noise": noise}},
        accuracy_of_surest_half,
        correct={"ensemble": correct},
        resamples=300,
    )
    standings = found.standings["accuracy_of_surest_half"]["ensemble"]
    assert standings["good"].best
    assert not standings["noise"].best
    assert not standings["noise"].tied


def test_bad_own_figures_are_refused() -> None:
    good, noise, correct = drawn(20)
    with pytest.raises(ValueError, match=r"same inputs. Got shapes \(20,\) and \(19,\)"):
        demur.tasks.estimate_figure(accuracy_of_surest_half, good, correct[:-1])
    with pytest.raises(ValueError, match="correct must be given"):
        demur.tasks.compare(good, noise, accuracy_of_surest_half)
    with pytest.raises(ValueError, match="figure must return finite numbers"):
        demur.tasks.estimate_figure(lambda scores, correct: float("nan"), good, correct, resamples=100)


def test_a_figure_of_your_own_that_is_no_number_is_named() -> None:
    scores, correct = np.arange(9.0), np.arange(9) % 2 == 0
    for found, got in ((np.ones(3), r"an array of shape \(3,\)"), (None, "NoneType"), ("high", "str")):
        with pytest.raises(TypeError, match=f"figure must return one number.*Got {got}"):
            demur.tasks.estimate_figure(lambda s, c, found=found: found, scores, correct)


# --- file readers -------------------------------------------------------------------------------


def test_an_own_reader(tmp_path) -> None:
    from demur.stores import open_predictions, register_reader

    register_reader(".semi", lambda path: np.loadtxt(path, delimiter=";"))
    for index, member in enumerate(LOGITS):
        np.savetxt(tmp_path / f"member{index}.semi", member, delimiter=";")
    with open_predictions([tmp_path / "*.semi"]) as predictions:
        assert (predictions.members, predictions.inputs, predictions.classes) == LOGITS.shape
        found = [source.read(range(6), slice(None)) for source in predictions.sources]
    np.testing.assert_allclose(np.concatenate(found), LOGITS, rtol=1e-12)


def test_what_an_own_reader_fails_of_is_one_line(tmp_path) -> None:
    from demur.stores import StoreError, open_predictions, register_reader

    register_reader(".semi", lambda path: np.loadtxt(path, delimiter=";"))
    (tmp_path / "bad.semi").write_text("no numbers")
    with pytest.raises(StoreError, match=r"bad.semi: the reader registered for .semi failed: could not"):
        open_predictions([tmp_path / "bad.semi"])


@pytest.mark.parametrize(
    ("suffix", "read", "message"),
    [
        ("dat", np.load, "begins with a dot"),
        (".npy", np.load, "does not read itself"),
        (".dat", 3, "function"),
    ],
)
def test_bad_readers_are_refused(suffix, read, message) -> None:
    from demur.stores import register_reader

    with pytest.raises((ValueError, TypeError), match=message):
        register_reader(suffix, read)
