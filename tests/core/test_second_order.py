"""Distributions over predictions: exact against mpmath, the same in every library, strict at the door."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import exact
from reference import second_order as reference

import demur
from demur.core.gamma_function import grow

NAMES = ("pairwise", "average", "reverse")
RNG = np.random.default_rng(7)

SIZES = [(-6, 12), (-1, 1), (0, 2), (9, 12), (-6, -3), (-12, 0), (-30, 30)]
CONCENTRATIONS = [
    *(10.0 ** RNG.uniform(*size, RNG.integers(2, 6)) for size in SIZES for _ in range(6)),
    np.array([1e12, 1e12]), np.array([1e12, 1.0]), np.array([1e12, 1e-6]), np.array([1e-6, 1e-6, 1e-6]),
    np.array([10.0, 10.0 - 1e-9]), np.array([5.0, 5.0]),
]  # fmt: skip

POSTERIORS = {
    "uniform(0,1)": (demur.Uniform(0, 1), [reference.uniform(0, 1)]),
    "uniform(0.3,0.7)": (demur.Uniform(0.3, 0.7), [reference.uniform(0.3, 0.7)]),
    "uniform(0,1e-9)": (demur.Uniform(0, 1e-9), [reference.uniform(0, 1e-9)]),
    "uniform(0.9,1)": (demur.Uniform(0.9, 1), [reference.uniform(0.9, 1)]),
    "beta(5,5)": (demur.Beta(5, 5), [reference.beta(5, 5)]),
    "beta(0.4,0.4)": (demur.Beta(0.4, 0.4), [reference.beta(0.4, 0.4)]),
    "beta(0.7,30)": (demur.Beta(0.7, 30), [reference.beta(0.7, 30)]),
    "deltas": (demur.Deltas([0.1, 0.5, 0.55]), [reference.points([0.1, 0.5, 0.55])]),
    "mixture": (
        demur.Mixture([demur.Uniform(0.2, 0.6), demur.Beta(2, 7), demur.Deltas([0.3, 0.9])], [5, 3, 2]),
        [reference.uniform(0.2, 0.6, 0.5), reference.beta(2, 7, 0.3), reference.points([0.3, 0.9], 0.2)],
    ),
}


def figures(x, **options) -> np.ndarray:
    """Expected entropy, K, I and M."""
    found = {name: demur.decompose(x, measure=name, **options) for name in NAMES}
    for part in found.values():
        np.testing.assert_allclose(part.total, part.aleatoric + part.epistemic, rtol=1e-15)
    return np.array([found["pairwise"].aleatoric, *(found[name].epistemic for name in NAMES)])


@pytest.mark.parametrize("alpha", CONCENTRATIONS, ids=str)
def test_dirichlet_is_exact_at_all_sizes(alpha):
    expected = exact.dirichlet(alpha)
    wanted = [expected[name] for name in ("entropy", *NAMES)]
    np.testing.assert_allclose(figures(demur.Dirichlet(alpha)), wanted, rtol=2e-14)
    # Its own size may pass through 0, so an absolute part of the terms' rounding.
    entropy = demur.Dirichlet(alpha).differential_entropy
    np.testing.assert_allclose(entropy, reference.dirichlet_entropy(alpha), rtol=1e-14, atol=1e-13)


@pytest.mark.parametrize("alpha", [[1, 2, 3], [1e-6, 1e-6], [1e12, 3.0, 7.0, 1e9], [0.5] * 8])
def test_k_of_a_dirichlet_is_classes_but_one_over_precision(alpha):
    k = demur.decompose(demur.Dirichlet(alpha)).epistemic
    assert float(k) == pytest.approx((len(alpha) - 1) / sum(alpha), rel=5e-16)


def test_values_everybody_can_check():
    assert float(demur.decompose(demur.Beta(5, 5)).epistemic) == 0.1
    u = demur.decompose(demur.Uniform(0, 1))
    assert (float(u.total), float(u.aleatoric), float(u.epistemic)) == (1.0, 0.5, 0.5)
    average = demur.decompose(demur.Uniform(0, 1), measure="average")
    assert float(average.epistemic) == pytest.approx(np.log(2) - 0.5, rel=1e-15)
    coin = demur.Deltas([0, 1])
    for name in ("pairwise", "reverse"):
        assert demur.decompose(coin, measure=name).epistemic == np.inf
    assert float(demur.decompose(coin, measure="average").total) == pytest.approx(np.log(2), rel=1e-15)
    assert float(demur.decompose(coin).aleatoric) == 0
    assert float(demur.decompose(demur.Beta(1, 1), base=2).total) == pytest.approx(1 / np.log(2))
    assert float(demur.decompose(demur.Beta(1, 3), measure="bma").epistemic) == 0
    assert figures(demur.Dirichlet([3.0])).tolist() == [0, 0, 0, 0]  # one class: nothing to be unsure of


@pytest.mark.parametrize("name", POSTERIORS)
def test_posteriors_against_their_definitions(name):
    posterior, parts = POSTERIORS[name]
    np.testing.assert_allclose(figures(posterior), reference.integrated(*parts), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(figures(posterior, rule="brier"), reference.brier(*parts), rtol=1e-10)


@pytest.mark.parametrize("width", [1e-1, 1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("lo", [0.0, 1e-12, 0.3, 0.85])
def test_narrow_uniforms_keep_their_digits(lo, width):
    hi = lo + width
    expected = reference.integrated(reference.uniform(lo, hi))
    np.testing.assert_allclose(figures(demur.Uniform(lo, hi)), expected, rtol=1e-9)
    mean, variance = (lo + hi) / 2, (hi - lo) ** 2 / 12
    if width <= 1e-6 and lo > 0.1:  # then K is to leading order the variance times the Fisher information
        k = demur.decompose(demur.Uniform(lo, hi)).epistemic
        assert float(k) == pytest.approx(variance / (mean * (1 - mean)), rel=1e-9)


def test_series_and_closed_form_of_a_uniform_meet():
    ratios = np.array([0.3 * (1 - 1e-12), 0.3 * (1 + 1e-12)])
    for name in NAMES:
        below, above = demur.decompose(
            demur.Uniform(0.25 * (1 - ratios), 0.25 * (1 + ratios)), measure=name
        ).epistemic
        assert above == pytest.approx(below, rel=1e-11)


@given(a=st.floats(1e-300, 1e300), b=st.floats(0, 1e300))
def test_growth_is_of_one_sign_at_any_size(a, b):
    grown = grow(np, np.array(a), np.array(b))
    assert all(np.isfinite(each) and each >= 0 for each in grown)
    np.testing.assert_allclose(grown.log, grown.digamma + grown.excess, rtol=1e-13)


@given(st.lists(st.floats(1e-9, 1e9), min_size=2, max_size=5))
def test_parts_are_not_negative_and_add_up(alpha):
    entropy, k, i, m = figures(demur.Dirichlet(alpha))
    assert min(entropy, k, i, m) >= 0
    assert k == pytest.approx(i + m, rel=1e-14)
    assert i <= m  # holds for every Dirichlet: psi(x) > log x - 1 / x


def test_deltas_are_members():
    points, weights = np.array([0.2, 0.9, 0.4, 1.0]), np.array([1.0, 2.0, 3.0, 4.0])
    probs = np.stack([1 - points, points], axis=-1)
    np.testing.assert_allclose(
        figures(demur.Deltas(points, weights)), figures(probs, weights=weights, rounding=0), rtol=1e-13
    )
    batch = RNG.uniform(size=(5, 2, 3))
    both = np.stack([1 - batch, batch], axis=-1)
    np.testing.assert_allclose(figures(demur.Deltas(batch)), figures(both), rtol=1e-11)
    for rule in ("spherical", "zero_one"):
        mine = demur.decompose(demur.Deltas(batch), rule=rule)
        np.testing.assert_allclose(mine.total, demur.decompose(both, rule=rule).total, rtol=1e-12)
    assert figures(demur.Deltas([0.3, 0.3, 0.3], [1, 2, 0.7]))[1:].tolist() == [0, 0, 0]


def test_the_mean_of_each():
    assert float(demur.Beta(2, 6).mean) == 0.25
    assert float(demur.Uniform(0.25, 0.5).mean) == 0.375
    assert float(demur.Deltas([0.25, 1.0], [2, 1]).mean) == 0.5
    assert float(demur.Mixture([demur.Beta(1, 3), demur.Deltas([0.75])], [1, 3]).mean) == 0.625
    np.testing.assert_allclose(demur.Dirichlet([1.0, 3.0]).mean, [0.25, 0.75])
    assert float(demur.Dirichlet([1.0, 3.0]).precision) == 4 == float(demur.Beta(3, 1).precision)
    assert float(demur.Uniform(0.25, 0.75).differential_entropy) == np.log(0.5)
    assert float(demur.Deltas([0.5]).differential_entropy) == -np.inf
    assert float(demur.Beta(4, 9).differential_entropy) == pytest.approx(reference.dirichlet_entropy([4, 9]))


def test_mixtures_of_points_are_points():
    parts = [demur.Deltas([0.1, 0.4]), demur.Deltas([0.9])]
    mixed = demur.Mixture([demur.Mixture(parts, [2, 1])])
    np.testing.assert_allclose(figures(mixed), figures(demur.Deltas([0.1, 0.4, 0.9])), rtol=1e-13)
    same = demur.Mixture([demur.Beta(2, 3)] * 3, weights=[1, 2, 3])
    np.testing.assert_allclose(figures(same), figures(demur.Beta(2, 3)), rtol=1e-13)
    assert demur.decompose(demur.Mixture([demur.Deltas([0.0]), demur.Uniform(0, 1)])).epistemic == np.inf
    without = demur.Mixture([demur.Beta(2, 3), demur.Deltas([0.0])], weights=[1, 0])
    assert figures(without).tolist() == figures(demur.Mixture([demur.Beta(2, 3)])).tolist()


def test_a_mixture_of_dirichlets_is_what_its_draws_tend_to():
    components = [demur.Dirichlet([4.0, 2.0, 1.0]), demur.Dirichlet([1.0, 1.5, 6.0])]
    rng = np.random.default_rng(3)
    draws = np.concatenate([rng.dirichlet([4, 2, 1], 30_000), rng.dirichlet([1, 1.5, 6], 10_000)])
    mixed = demur.Mixture(components, weights=[3, 1])
    for name in NAMES:
        sampled = demur.decompose(draws[rng.permutation(40_000)], measure=name, stderr=True, groups=40)
        whole = demur.decompose(mixed, measure=name)
        # Five standard errors by 40 groups: one false alarm in 80,000 for each of six figures.
        for part in ("aleatoric", "epistemic"):
            error = getattr(sampled.stderr, part)
            assert abs(getattr(sampled, part) - getattr(whole, part)) < 5 * error
            assert error < 0.01 * getattr(whole, part)


def test_many_inputs_are_worked_on_in_blocks():
    from demur.predictions.dirichlet import CONCENTRATIONS_AT_ONCE

    alpha = np.random.default_rng(2).gamma(1.0, 3.0, size=(CONCENTRATIONS_AT_ONCE // 20, 3, 10))
    for rule in ("log", "brier"):
        whole = demur.decompose(demur.Dirichlet(alpha), measure="average", rule=rule)
        assert whole.total.shape == alpha.shape[:-1]
        for k in (0, len(alpha) // 2, len(alpha) - 1):
            one = demur.decompose(demur.Dirichlet(alpha[k]), measure="average", rule=rule)
            assert whole.epistemic[k].tolist() == one.epistemic.tolist()
            assert whole.aleatoric[k].tolist() == one.aleatoric.tolist()


class TestGiven:
    """A given side: a model, a set of members, their sums, or another distribution."""

    alpha = np.array([[1.5, 0.2, 4.0], [9.0, 30.0, 2.0]])
    q = np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]])

    def expected_log(self):
        from scipy.special import digamma

        return digamma(self.alpha) - digamma(self.alpha.sum(-1, keepdims=True))

    def test_a_given_predictor(self):
        u = demur.decompose(demur.Dirichlet(self.alpha), measure=demur.Measure(self.q, "each"))
        np.testing.assert_allclose(u.total, -(self.q * self.expected_log()).sum(-1), rtol=1e-12)
        np.testing.assert_allclose(u.aleatoric, -(self.q * np.log(self.q)).sum(-1), rtol=1e-13)

    def test_a_given_truth(self):
        mean = self.alpha / self.alpha.sum(-1, keepdims=True)
        for predictor in ("each", "bma"):
            u = demur.decompose(demur.Dirichlet(self.alpha), measure=demur.Measure(predictor, self.q))
            np.testing.assert_allclose(u.total, -(mean * np.log(self.q)).sum(-1), rtol=1e-12)

    def test_both_given(self):
        other = self.q[::-1]
        u = demur.decompose(demur.Dirichlet(self.alpha), measure=demur.Measure(self.q, other))
        np.testing.assert_allclose(u.total, -(self.q * np.log(other)).sum(-1), rtol=1e-13)

    def test_a_distribution_beside_members(self):
        members = np.random.default_rng(0).dirichlet([1, 1, 1], size=(7, 2))
        truth = demur.decompose(members, measure=demur.Measure("each", demur.Dirichlet(self.alpha)))
        np.testing.assert_allclose(truth.total, -(members.mean(0) * self.expected_log()).sum(-1), rtol=1e-12)
        moments = demur.Moments().update(members)
        same = moments.decompose(demur.Measure("each", demur.Dirichlet(self.alpha)))
        np.testing.assert_allclose(same.total, truth.total, rtol=1e-13)
        turned = demur.decompose(demur.Dirichlet(self.alpha), measure=demur.Measure(moments, "each"))
        np.testing.assert_allclose(turned.total, truth.total, rtol=1e-12)

    def test_a_distribution_beside_itself_is_the_pairwise_measure(self):
        one = demur.Dirichlet(self.alpha)
        u = demur.decompose(one, measure=demur.Measure(demur.Dirichlet(self.alpha.copy()), "each"))
        np.testing.assert_allclose(u.epistemic, demur.decompose(one).epistemic, rtol=1e-15)

    def test_a_model_that_excludes_what_the_posterior_allows(self):
        sure = np.array([0.0, 1.0])
        assert demur.decompose(demur.Beta(2, 2), measure=demur.Measure("each", sure)).epistemic == np.inf
        finite = demur.decompose(demur.Beta(2, 2), measure=demur.Measure(sure, "each"))
        assert float(finite.total) == pytest.approx(5 / 6)  # -E log x = psi(4) - psi(2)


@pytest.mark.parametrize("rule", ["log", "brier"])
@pytest.mark.parametrize("name", NAMES)
def test_attribution_sums_to_the_epistemic_part(name, rule):
    for x in (demur.Dirichlet([[3.0, 0.2, 1.0]]), demur.Beta([2.0, 3.0], 1.0), POSTERIORS["mixture"][0]):
        shares = demur.attribute(x, measure=name, rule=rule)
        assert shares.shape == x.shape
        u = demur.decompose(x, measure=name, rule=rule)
        np.testing.assert_allclose(shares.sum(-1), u.epistemic, rtol=1e-14)
        assert (shares >= 0).all()


def test_attribution_of_a_dirichlet():
    alpha = np.array([3.0, 0.2, 1.0])
    mean = alpha / alpha.sum()
    np.testing.assert_allclose(demur.attribute(demur.Dirichlet(alpha)), (1 - mean) / alpha.sum(), rtol=1e-14)
    np.testing.assert_allclose(demur.attribute(demur.Dirichlet(alpha), base=2).sum() * np.log(2), 2 / 4.2)


class TestLibraries:
    def test_every_library_gives_its_own_arrays(self, xp):
        alpha = np.array([[[1.0, 2.0, 3.5]], [[0.1, 40.0, 7.0]]])
        x = demur.Dirichlet(xp.array(alpha))
        for name in NAMES:
            expected = demur.decompose(demur.Dirichlet(alpha), measure=name)
            for part in ("total", "aleatoric", "epistemic"):
                xp.close(getattr(demur.decompose(x, measure=name), part), getattr(expected, part))
        xp.close(x.mean, demur.Dirichlet(alpha).mean)
        xp.close(x.precision, alpha.sum(-1))
        xp.close(x.differential_entropy, demur.Dirichlet(alpha).differential_entropy)
        xp.close(demur.attribute(x), demur.attribute(demur.Dirichlet(alpha)))

    def test_posteriors_in_every_library(self, xp):
        lo, hi = np.array([0.0, 0.25]), np.array([0.5, 0.28])
        pairs = [
            (demur.Beta(xp.array(hi), 2.0), demur.Beta(hi, 2.0)),
            (demur.Uniform(xp.array(lo), xp.array(hi)), demur.Uniform(lo, hi)),
            (demur.Deltas(xp.array([lo, hi])), demur.Deltas([lo, hi])),
        ]
        pairs.append((demur.Mixture([a for a, _ in pairs]), demur.Mixture([b for _, b in pairs])))
        for here, numpy in pairs:
            expected = demur.decompose(numpy, measure="average")
            xp.close(demur.decompose(here, measure="average").epistemic, expected.epistemic)
            xp.close(here.mean, numpy.mean)

    def test_single_precision_in_single_precision_out(self, xp):
        x = demur.Beta(xp.array([1e8, 0.5], "float32"), 3.0)
        u = demur.decompose(x)
        assert xp.dtype_name(u.total) == "float32" == xp.dtype_name(x.mean)
        exactly = [1 / (1e8 + 3), 1 / 3.5]
        np.testing.assert_allclose(xp.numpy(u.epistemic), exactly, rtol=1e-6)
        assert demur.decompose(demur.Beta(np.array([1, 2]), 0.5)).total.dtype == np.float64

    def test_gradients(self):
        torch = pytest.importorskip("torch")
        alpha = torch.tensor([[1.2, 3.0, 0.3], [40.0, 9.0, 11.0]], dtype=torch.float64, requires_grad=True)
        for name in NAMES:

            def total(x, name=name):
                mixed = demur.Mixture([demur.Dirichlet(x), demur.Dirichlet(2 * x + 1)], weights=[1, 2])
                return demur.decompose(mixed, measure=name).total + demur.Dirichlet(x).differential_entropy

            assert torch.autograd.gradcheck(total, (alpha,))
            whole = total(alpha).detach().numpy()
            np.testing.assert_allclose(whole, total(alpha.detach()).numpy(), rtol=1e-13)
        ends = torch.tensor([0.1, 0.45], dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda x: demur.decompose(demur.Uniform(x, 0.5)).total, (ends,))
        assert torch.autograd.gradcheck(
            lambda x: demur.decompose(demur.Uniform(torch.tensor(0.01, dtype=x.dtype), x)).total, (ends,)
        )
        assert torch.autograd.gradcheck(
            lambda x: demur.decompose(demur.Deltas(torch.stack([x, 1 - x]))).total, (ends,)
        )

    def test_gradients_in_one_component_only(self):
        torch = pytest.importorskip("torch")
        a = torch.tensor([1.5, 40.0], dtype=torch.float64, requires_grad=True)
        others = [demur.Beta(torch.tensor([2.0, 3.0], dtype=torch.float64), 1.0)]
        others += [demur.Deltas(torch.tensor([[0.3, 0.2], [0.8, 0.4]], dtype=torch.float64), [1, 2])]
        for other in others:

            def total(x, other=other):
                return demur.decompose(demur.Mixture([other, demur.Beta(x, 2.0)])).total

            assert torch.autograd.gradcheck(total, (a,))
            np.testing.assert_allclose(total(a).detach(), total(a.detach()), rtol=1e-13)

    @pytest.mark.slow
    def test_tracing(self):
        jax = pytest.importorskip("jax")
        with jax.enable_x64(True):
            alpha = jax.numpy.asarray([[1.0, 2.0], [30.0, 4.0]])

            def k(x):
                return demur.decompose(demur.Dirichlet(x)).epistemic.sum()

            assert float(jax.jit(k)(alpha)) == pytest.approx(1 / 3 + 1 / 34)
            np.testing.assert_allclose(jax.jit(jax.grad(k))(alpha), [[-1 / 9] * 2, [-1 / 34**2] * 2])
            points = jax.numpy.asarray([0.0, 0.5])
            assert float(jax.jit(lambda x: demur.decompose(demur.Deltas(x)).total)(points)) == np.inf

    def test_torch_distributions(self):
        torch = pytest.importorskip("torch")
        from torch.distributions import Beta, Dirichlet, Normal, Uniform

        a, b = torch.tensor([2.0, 0.5], dtype=torch.float64), torch.tensor([0.3, 7.0], dtype=torch.float64)
        pairs = [
            (Dirichlet(torch.stack([a, b], -1)), demur.Dirichlet(torch.stack([a, b], -1))),
            (Beta(a, b), demur.Beta(a, b)),
            (Uniform(a / 10, 0.9), demur.Uniform(a / 10, 0.9)),
        ]
        for theirs, ours in pairs:
            assert torch.equal(demur.decompose(theirs).total, demur.decompose(ours).total)
            assert torch.equal(demur.attribute(theirs), demur.attribute(ours))
        np.testing.assert_allclose(pairs[0][0].entropy(), pairs[0][1].differential_entropy, rtol=1e-12)
        mixed = demur.Mixture([Beta(a, b), demur.Beta(b, a)])
        assert demur.decompose(mixed).total.shape == (2,)
        with pytest.raises(TypeError):
            demur.Mixture([Normal(a, b)])


BETA = demur.Beta(1, 1)
MEMBERS_ONLY = {
    "logits": np.zeros((2, 2)),
    "log_probs": np.zeros((2, 2)),
    "weights": [1.0],
    "unbiased": True,
    "stderr": True,
    "groups": 2,
    "axis": 1,
}


@pytest.mark.parametrize("name", MEMBERS_ONLY)
def test_arguments_about_members_are_refused(name):
    functions = [demur.decompose] if name == "stderr" else [demur.decompose, demur.attribute]
    for function in functions:
        with pytest.raises(ValueError, match=rf"^{name} goes with an array of members.*leave {name} out\.$"):
            function(BETA, **{name: MEMBERS_ONLY[name]})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: demur.Dirichlet(3.0), r"must have an axis of classes\. Got a number"),
        (lambda: demur.Dirichlet([[1, 2], [1, 0]]), r"concentration must be above 0\. Got 0 at \[1, 1\]"),
        (lambda: demur.Dirichlet([1, np.nan]), r"concentration must be above 0\. Got nan at \[1\]"),
        (lambda: demur.Dirichlet([1, np.inf]), r"concentration must be finite\. Got inf"),
        (lambda: demur.Dirichlet(np.ones((0, 2))), r"must not be empty\. Got shape \(0, 2\)"),
        (lambda: demur.Beta(1, -2), r"b must be above 0\. Got -2"),
        (lambda: demur.Beta([1, 2], [1, 2, 3]), r"broadcast\. Got a \(2,\) and b \(3,\)"),
        (lambda: demur.Uniform(0.3, 0.3), r"lo must be below hi\. Got 0\.3.*demur\.Deltas"),
        (lambda: demur.Uniform(-0.1, 0.3), r"lo must not be below 0\. Got -0\.1"),
        (lambda: demur.Uniform(0.1, 1.5), r"hi must not be above 1\. Got 1\.5"),
        (lambda: demur.Uniform(np.nan, 0.5), r"lo must not be below 0\. Got nan"),
        (lambda: demur.Deltas(0.5), r"Got a number\. Give a list"),
        (lambda: demur.Deltas([0.5, 1.5]), r"between 0 and 1\. Got 1\.5 at \[1\]"),
        (lambda: demur.Deltas([0.5, 0.1], [1]), r"weights must have shape \(2,\).*Got \(1,\)"),
        (lambda: demur.Deltas([0.5, 0.1], [0, 0]), r"weights must not be all zero"),
        (lambda: demur.Mixture([]), r"at least one distribution.*Got \[\]"),
        (lambda: demur.Mixture(BETA), r"a list of at least one distribution.*Got Beta"),
        (lambda: demur.Mixture([BETA], [1, 2]), r"weights must have shape \(1,\).*Got \(2,\)"),
        (lambda: demur.Mixture([BETA], [np.nan]), r"weights must be finite"),
        (lambda: demur.Mixture([BETA, demur.Dirichlet(np.ones(3))]), r"Got shapes \(2,\), \(3,\)"),
        (lambda: demur.decompose(BETA, rule="spherical"), r"^rule must be 'log' or 'brier' for a Beta"),
        (lambda: demur.attribute(BETA, rule="spherical"), r"^attribute needs a rule"),
        (lambda: demur.decompose(BETA, rule="brier", base=2), r"^base goes with rule 'log'"),
        (lambda: demur.decompose(BETA, measure="pairs"), r"Did you mean 'pairwise'"),
        (lambda: demur.decompose(BETA, measure=demur.Measure([0.1, 0.2, 0.7])), r"shape \(2,\).*Got \(3,\)"),
        (lambda: demur.decompose(BETA, measure=demur.Measure(demur.Dirichlet([1, 1, 1]))), r"Got \(3,\)"),
    ],
)  # fmt: skip
def test_bad_arguments_get_one_clear_line(make, message):
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: demur.Mixture([np.ones((3, 2))]),
        lambda: demur.Beta("1", 1),
        lambda: demur.Dirichlet(np.array([1j, 2])),
        lambda: demur.Dirichlet(np.array([True, True])),
    ],
)
def test_things_of_another_kind_are_refused(make):
    with pytest.raises(TypeError):
        make()


def test_components_of_two_libraries_are_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"one library\. Got numpy and torch"):
        demur.Mixture([BETA, demur.Beta(torch.tensor(1.0), 1.0)])


def test_what_they_look_like():
    assert repr(demur.Beta(5, 0.5)) == "Beta(5.0, 0.5)"
    assert repr(demur.Uniform(0, [0.5, 1])) == "Uniform(shape=(2,), shape=(2,))"
    assert repr(demur.Dirichlet(np.ones((4, 3)))) == "Dirichlet(shape=(4, 3), float64)"
    assert repr(demur.Mixture([BETA])).startswith("Mixture([Beta(")


def test_order_of_components_does_not_matter():
    parts = [demur.Beta(2, 5), demur.Uniform(0.1, 0.3), demur.Deltas([0.4, 0.8])]
    every = [figures(demur.Mixture(list(order))) for order in itertools.permutations(parts)]
    np.testing.assert_allclose(every, np.broadcast_to(every[0], np.shape(every)), rtol=1e-13)
