"""Evidential and prior networks: losses against draws, mpmath and scipy, gradients, scores."""

import itertools

import mpmath as mp
import numpy as np
import pytest
import torch
from scipy import stats

import demur
from demur.posteriors import EvidentialNetwork
from demur.posteriors.evidential import (
    dirichlet_divergence,
    evidential_loss,
    evidential_regression_loss,
    make_concentration,
    make_normal_inverse_gamma,
    make_sharp_target,
    make_smooth_target,
    prior_network_loss,
    student_loss,
)

PAIRS = [
    ([9.0, 2.0, 1.0], [1.0, 1.0, 1.0]),
    ([0.3, 0.01, 5.0], [4.0, 0.2, 0.7]),
    ([7000.0, 2000.0, 30.0], [7001.0, 1990.0, 30.0]),
    ([1e6, 2e6, 3.0], [1e6 + 1, 2e6, 3.5]),
    ([1e-20, 1.0, 1e-3], [1.0, 1e-20, 1.0]),
    ([1e-30, 1e30, 1.0], [1.0, 1e30, 1e-30]),
]


def tensor(values, **options):
    return torch.tensor(values, dtype=torch.float64, **options)


def exact_divergence(alpha, beta) -> float:
    """KL of two Dirichlets by the textbook, at 120 digits."""
    with mp.workdps(120):
        a, b = [mp.mpf(x) for x in alpha], [mp.mpf(x) for x in beta]
        a0, b0 = sum(a), sum(b)
        found = mp.loggamma(a0) - mp.loggamma(b0)
        for x, y in zip(a, b, strict=True):
            found += mp.loggamma(y) - mp.loggamma(x) + (x - y) * (mp.psi(0, x) - mp.psi(0, a0))
        return float(found)


@pytest.mark.parametrize(("alpha", "beta"), PAIRS + [(b, a) for a, b in PAIRS])
def test_divergence_agrees_with_many_digits(alpha, beta):
    found = float(dirichlet_divergence(tensor(alpha), tensor(beta)))
    wanted = exact_divergence(alpha, beta)
    # What is left of the precisions' digits.
    atol = max(1e-10, 4e-16 * max(sum(alpha), sum(beta)))
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=atol)


def test_divergence_is_a_mean_over_draws():
    alpha, beta = np.array([3.0, 1.5, 0.8]), np.array([1.0, 2.0, 2.0])
    draws = stats.dirichlet.rvs(alpha, 100_000, random_state=0)
    ratio = stats.dirichlet.logpdf(draws.T, alpha) - stats.dirichlet.logpdf(draws.T, beta)
    found = float(dirichlet_divergence(tensor(alpha), tensor(beta)))
    error = ratio.std() / np.sqrt(len(ratio))
    assert abs(ratio.mean() - found) < 4 * error
    assert abs(ratio.mean() - float(dirichlet_divergence(tensor(beta), tensor(alpha)))) > 4 * error


def test_divergence_is_zero_for_equals_and_keeps_the_dtype():
    alpha = torch.rand(5, 3) + 0.1
    assert not dirichlet_divergence(alpha, alpha).any()
    assert dirichlet_divergence(alpha, alpha).dtype == torch.float32


def test_evidential_loss_is_expected_squared_error_over_draws():
    alpha, label = np.array([4.0, 1.2, 2.0]), 1
    draws = stats.dirichlet.rvs(alpha, 200_000, random_state=0)
    squared = ((np.eye(3)[label] - draws) ** 2).sum(1)
    found = float(evidential_loss(tensor(alpha)[None], torch.tensor([label]), weight=0.0))
    error = squared.std() / np.sqrt(len(squared))
    assert abs(squared.mean() - found) < 4 * error
    without_variance = float(((np.eye(3)[label] - alpha / alpha.sum()) ** 2).sum())
    assert abs(squared.mean() - without_variance) > 4 * error


def test_misleading_evidence_is_what_is_not_for_the_label():
    alpha = tensor([[4.0, 1.2, 2.0]])
    loss = [float(evidential_loss(alpha, torch.tensor([1]), weight=weight)) for weight in (0.0, 0.5)]
    wanted = exact_divergence([4.0, 1.0, 2.0], [1.0, 1.0, 1.0])
    np.testing.assert_allclose((loss[1] - loss[0]) / 0.5, wanted, rtol=1e-12)
    right = tensor([[1.0, 50.0, 1.0]])  # evidence for the label alone costs nothing
    assert evidential_loss(right, torch.tensor([1]), weight=1.0) == evidential_loss(
        right, torch.tensor([1]), weight=0.0
    )


def test_targets_are_those_of_the_papers():
    labels = torch.tensor([2, 0])
    assert make_sharp_target(labels, 3).tolist() == [[1, 1, 101], [101, 1, 1]]
    smooth = make_smooth_target(labels, 3, precision=1000, smoothing=0.01)
    torch.testing.assert_close(smooth, torch.tensor([[10.0, 10, 980], [980, 10, 10]]))


@pytest.mark.parametrize("direction", ["reverse", "forward"])
def test_prior_loss_adds_divergences_of_both_kinds_of_inputs(direction):
    known, target = tensor([[5.0, 2.0], [1.0, 9.0]]), tensor([[101.0, 1.0], [1.0, 101.0]])
    outside = tensor([[3.0, 4.0]])

    def one(a, b):
        return exact_divergence(*((a, b) if direction == "reverse" else (b, a)))

    wanted = np.mean([one(a, b) for a, b in zip(known.tolist(), target.tolist(), strict=True)])
    wanted += 2 * one([3.0, 4.0], [1.0, 1.0])
    found = prior_network_loss(known, target, outside, direction=direction, weight=2.0)
    np.testing.assert_allclose(float(found), wanted, rtol=1e-12)


def test_reverse_takes_doubt_for_doubt_and_forward_takes_it_for_ignorance():
    """An input that is of two classes, half the time each: only the reverse divergence stays sharp."""
    targets = make_sharp_target(torch.tensor([0, 1]), 2).double()
    best = {}
    for direction in ("reverse", "forward"):
        outputs = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS([outputs], max_iter=40, line_search_fn="strong_wolfe")

        def closure(outputs=outputs, optimizer=optimizer, direction=direction):
            optimizer.zero_grad()
            alpha = make_concentration(outputs, "prior").expand(2, 2)
            loss = prior_network_loss(alpha, targets, direction=direction)
            loss.backward()
            return loss

        optimizer.step(closure)
        best[direction] = float(make_concentration(outputs, "prior").sum().detach())
    assert best["reverse"] > 50 > 5 > best["forward"]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_gradients_are_right_at_every_size(scale):
    torch.manual_seed(0)
    alpha = (scale * (0.5 + torch.rand(2, 3))).double().requires_grad_()
    labels, target = torch.tensor([0, 2]), 0.5 + torch.rand(2, 3).double()
    losses = [
        lambda a: evidential_loss(a, labels, weight=0.3),
        lambda a: prior_network_loss(a, target, a[:1]),
        lambda a: prior_network_loss(a, target, a[:1], direction="forward"),
    ]
    for loss in losses:
        assert torch.autograd.gradcheck(loss, alpha, eps=1e-6 * scale, atol=1e-6 * max(1, 1 / scale))


def test_losses_of_extreme_concentrations_are_finite_with_gradients():
    alpha = tensor([[1e-30, 1e30, 1.0], [1e-12, 1e-12, 1e-12]], requires_grad=True)
    for loss in (
        evidential_loss(alpha, torch.tensor([0, 2]), weight=1.0),
        prior_network_loss(alpha, make_sharp_target(torch.tensor([0, 2]), 3)),
        prior_network_loss(alpha, make_sharp_target(torch.tensor([0, 2]), 3), direction="forward"),
    ):
        (gradient,) = torch.autograd.grad(loss, alpha)
        assert torch.isfinite(loss) and torch.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("mean", "nu", "alpha", "beta"),
    [*itertools.product([0.0, 3.0], [1e-6, 1.0, 1e6], [1.01, 3.0, 1e5], [1e-3, 10.0])],
)
def test_student_loss_agrees_with_scipy(mean, nu, alpha, beta):
    target = np.array([-2.0, 0.1, 40.0])
    prediction = demur.NormalInverseGamma(*(tensor([each] * 3) for each in (mean, nu, alpha, beta)))
    scale = np.sqrt(beta * (1 + nu) / (nu * alpha))
    wanted = -stats.t.logpdf(target, 2 * alpha, mean, scale)
    np.testing.assert_allclose(student_loss(prediction, tensor(target)), wanted, rtol=1e-9)


def test_regression_loss_adds_evidence_times_error_and_has_gradients():
    outputs = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    target = torch.randn(4, dtype=torch.float64)

    def loss(given, weight=0.01):
        return evidential_regression_loss(make_normal_inverse_gamma(given), target, weight=weight)

    assert torch.autograd.gradcheck(loss, outputs)
    made = make_normal_inverse_gamma(outputs)
    wanted = (abs(target - made.mean) * (2 * made.nu + made.alpha)).mean()
    torch.testing.assert_close((loss(outputs, 1.0) - loss(outputs, 0.0)), wanted)


def test_the_likelihood_cannot_tell_how_much_evidence_there_is():
    """The warning of Meinert et al. (2023): nu and beta along one curve have the same likelihood."""
    target = tensor([0.3, -1.0])
    losses, k = [], []
    for nu in (0.1, 10.0):
        beta = 2.0 * nu / (1 + nu)
        prediction = demur.NormalInverseGamma(tensor([0.0, 0.0]), nu, 3.0, beta)
        losses.append(student_loss(prediction, target))
        k.append(float(demur.decompose(prediction).epistemic[0]))
    torch.testing.assert_close(*losses)
    assert k[0] > 10 * k[1]


class Shifted(torch.nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(2, outputs), torch.nn.BatchNorm1d(outputs)

    def forward(self, x):
        return self.norm(self.linear(x))


@pytest.mark.parametrize("head", ["softplus", "exp", "relu", "prior"])
def test_scores_are_closed_forms_of_the_outputs(head):
    torch.manual_seed(0)
    model, x = Shifted(3), torch.randn(7, 2)
    model.train()
    scores = demur.score(EvidentialNetwork(model, head), [(x[:4], [0, 1, 2, 0]), (x[4:], [0, 1, 2])])
    assert model.training and model.norm.num_batches_tracked == 0
    alpha = make_concentration(model.eval()(x).double(), head).detach()
    np.testing.assert_allclose(scores["pairwise"].epistemic, 2 / alpha.sum(1), rtol=1e-12)
    u = demur.decompose(demur.Dirichlet(alpha), measure="average")
    np.testing.assert_allclose(scores["average"].epistemic, u.epistemic, rtol=1e-12)
    assert scores.predictions.tolist() == alpha.argmax(1).tolist()
    assert scores.correct.shape == (7,)


def test_scores_of_predicted_numbers():
    torch.manual_seed(0)
    model, x = Shifted(4).eval(), torch.randn(7, 2)
    scores = demur.score(EvidentialNetwork(model, "regression"), [(x, torch.zeros(7))])
    made = make_normal_inverse_gamma(model(x).double().detach())
    for name in ("pairwise", "average", "reverse"):
        np.testing.assert_allclose(
            scores[name].epistemic, demur.decompose(made, measure=name).epistemic, rtol=1e-12
        )
    np.testing.assert_allclose(scores.predictions, made.mean)


def test_large_outputs_of_a_small_type_do_not_overflow():
    model = torch.nn.Linear(1, 3, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[200.0], [0.0], [-200.0]]))
    scores = demur.score(EvidentialNetwork(model, "prior"), [torch.ones(1, 1)])
    assert 0 < scores["pairwise"].epistemic[0] < 1e-80


def test_training_survives_outputs_that_float32_would_round_to_no_evidence():
    outputs = torch.tensor([[-200.0, 3.0, -200.0, -200.0]], requires_grad=True)
    concentration = make_concentration(outputs, "prior")
    # The reverse divergence itself is e**200 here, with a gradient that float32 cannot hold.
    target = make_sharp_target(torch.tensor([1]), 4)
    prior_network_loss(concentration, target, direction="forward").backward()
    assert torch.isfinite(outputs.grad).all() and outputs.grad.dtype == torch.float32
    outputs.grad = None
    evidential_regression_loss(make_normal_inverse_gamma(outputs), torch.tensor([-199.0])).backward()
    assert torch.isfinite(outputs.grad).all() and outputs.grad.any()


def test_a_function_of_the_outputs_is_a_head_and_files_bring_the_network_back(tmp_path):
    torch.manual_seed(0)
    model, x = torch.nn.Linear(2, 3), torch.randn(5, 2)
    own = EvidentialNetwork(model, lambda outputs: demur.Dirichlet(2 + outputs**2))
    assert demur.score(own, [x])["pairwise"].epistemic.max() < 2 / 6
    with pytest.raises(ValueError, match="head must be a name"):
        own.save(tmp_path / "own.safetensors")
    posterior = EvidentialNetwork(model, "exp")
    posterior.save(tmp_path / "network.safetensors")
    again = EvidentialNetwork.load(tmp_path / "network.safetensors", torch.nn.Linear(2, 3))
    a, b = (demur.score(each, [x])["pairwise"].epistemic for each in (posterior, again))
    assert again.head == "exp" and a.tobytes() == b.tobytes()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: make_concentration(torch.ones(1, 2), "tanh"), "evidence must be"),
        (lambda: evidential_loss(torch.zeros(1, 2), torch.tensor([0]), weight=1.0), "must be above 0"),
        (lambda: evidential_loss(torch.ones(1, 2), torch.tensor([2]), weight=1.0), "from 0 to 1. Got 2"),
        (lambda: evidential_loss(torch.ones(3, 2), torch.tensor([0]), weight=1.0), "one for each input"),
        (lambda: evidential_loss(torch.ones(1, 2), torch.tensor([0.5]), weight=1.0), "labels must be"),
        (lambda: make_smooth_target(torch.tensor([0]), 3, smoothing=0.5), "smoothing must be between"),
        (lambda: make_sharp_target(torch.tensor([0]), 3, evidence=-1), "evidence must be a positive"),
        (lambda: prior_network_loss(torch.ones(1, 2), torch.ones(1, 2), direction="up"), "direction must be"),
        (lambda: make_normal_inverse_gamma(torch.ones(3, 3)), "four for each input"),
        (
            lambda: student_loss(make_normal_inverse_gamma(torch.ones(3, 4)), torch.ones(3, 1)),
            "target must have the shape",
        ),
        (lambda: EvidentialNetwork(torch.nn.Linear(1, 1), "tanh"), "head must be"),
        (
            lambda: demur.score(EvidentialNetwork(torch.nn.Linear(1, 3), "regression"), [torch.ones(2, 1)]),
            "four for each input",
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_line(call, words):
    with pytest.raises(ValueError, match=words):
        call()
