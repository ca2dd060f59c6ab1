"""Losses that teach a network a Dirichlet distribution over class probabilities.

Concentrations are made, and losses computed, in float64, whatever the precision of the network. Nothing is
clamped and no epsilon added: concentrations from 1e-30 to 1e30 have losses and gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from demur.core import arrays
from demur.core.gamma_function import gamma_excess

if TYPE_CHECKING:
    from torch import Tensor

_LARGE_PRECISION = 1e4

Evidence = Literal["softplus", "exp", "relu", "prior"]
"""How outputs become concentrations."""


def make_concentration(outputs: Tensor, evidence: Evidence = "softplus") -> Tensor:
    """Return the outputs of a network as concentrations of a Dirichlet distribution, in float64.

    Parameters
    ----------
    outputs
        Real numbers, (..., classes): what would be logits in an ordinary classifier.
    evidence
        ``"softplus"``, ``"exp"`` and ``"relu"``: one plus the evidence, which is that function of the
        outputs, as in evidential networks; Sensoy et al. (2018) have ``"relu"``, under which a class that
        starts without evidence gets no gradient. ``"prior"``: the exponential itself, as in prior networks,
        whose average prediction is the softmax of the outputs.

    Examples
    --------
    >>> import torch
    >>> from demur.posteriors.evidential import make_concentration
    >>> make_concentration(torch.tensor([[0.0, 2.0]]), "exp")
    tensor([[2.0000, 8.3891]], dtype=torch.float64)
    """
    import torch

    # An output of -200 is still evidence, which float32 would round to 0.
    outputs = arrays.widened(outputs)
    if evidence == "prior":
        return torch.exp(outputs)
    functions = {"softplus": torch.nn.functional.softplus, "exp": torch.exp, "relu": torch.relu}
    if evidence not in functions:
        raise ValueError(f"evidence must be 'softplus', 'exp', 'relu' or 'prior'. Got {evidence!r}.")
    return 1 + functions[evidence](outputs)


def dirichlet_divergence(concentration: Tensor, other: Tensor) -> Tensor:
    r"""Return the divergence of one Dirichlet distribution from another, in nats, shape (...).

    .. math:: \mathrm{KL} = \sum_y e(\beta_y, \alpha_y) - e(\beta_0, \alpha_0), \qquad
              e(b, a) = \log \Gamma(b) - \log \Gamma(a) - \psi(a) (b - a) \ge 0

    for concentrations :math:`\alpha` and :math:`\beta` of the other, with sums :math:`\alpha_0` and
    :math:`\beta_0`. The error is about 1e-10 for sums up to 10,000, and 1e-16 of the sum for larger ones.

    Parameters
    ----------
    concentration, other
        Above 0, (..., classes), of shapes that broadcast. 0 where they are equal.

    Examples
    --------
    >>> import torch
    >>> from demur.posteriors.evidential import dirichlet_divergence
    >>> dirichlet_divergence(torch.tensor([9.0, 2.0, 1.0]), torch.ones(3))
    tensor(1.7685)
    """
    import torch

    _check_concentrations(concentration=concentration, other=other)
    alpha, beta = torch.broadcast_tensors(arrays.widened(concentration), arrays.widened(other))
    wholes = alpha.sum(-1), beta.sum(-1)
    if max(float(each.detach().max()) for each in wholes) > _LARGE_PRECISION:
        xp = arrays.namespace(alpha)
        apart, together = gamma_excess(xp, beta, alpha), gamma_excess(xp, wholes[1], wholes[0])
    else:  # fifty times as fast, and nothing large enough to cancel
        apart, together = _compute_excess(beta, alpha), _compute_excess(wholes[1], wholes[0])
    return (apart.sum(-1) - together).to(concentration.dtype)


def _compute_excess(b: Tensor, a: Tensor) -> Tensor:
    """Return ``log Gamma(b) - log Gamma(a) - digamma(a) (b - a)`` of moderate numbers."""
    import torch

    return torch.lgamma(b) - torch.lgamma(a) - torch.digamma(a) * (b - a)


def make_sharp_target(labels: Tensor, classes: int, *, evidence: float = 100.0) -> Tensor:
    """Return target concentrations that are 1 plus the evidence for the label, and 1 for other classes.

    Malinin and Gales (2019), "Reverse KL-divergence training of prior networks", with their evidence for
    in-distribution inputs. Shape (inputs, classes).
    """
    import torch

    _check_positive("evidence", evidence)
    return 1 + evidence * torch.nn.functional.one_hot(_check_labels(labels, classes), classes)


def make_smooth_target(
    labels: Tensor, classes: int, *, precision: float = 1000.0, smoothing: float = 0.01
) -> Tensor:
    """Return target concentrations of a given precision whose mean is the smoothed label.

    Malinin and Gales (2018), "Predictive uncertainty estimation via prior networks": the mean is
    ``smoothing`` for every class but the label, which has the rest. Shape (inputs, classes).
    """
    import torch

    _check_positive("precision", precision)
    if not 0 < smoothing * classes < 1:
        raise ValueError(
            f"smoothing must be between 0 and 1 / {classes}, so that the label stays the likeliest class. "
            f"Got {smoothing!r}."
        )
    hot = torch.nn.functional.one_hot(_check_labels(labels, classes), classes)
    return precision * (smoothing + (1 - classes * smoothing) * hot)


def prior_network_loss(
    concentration: Tensor,
    target: Tensor,
    outside: Tensor | None = None,
    *,
    direction: Literal["reverse", "forward"] = "reverse",
    weight: float = 1.0,
) -> Tensor:
    """Return the loss of a prior network: in-distribution inputs are sharp, others are flat.

    Malinin and Gales (2018), with the forward divergence between prediction and target; and (2019), with the
    reverse one. Forward, inputs that are of several classes ask for a distribution with several peaks, which
    a Dirichlet answers with little precision in all; reverse asks for one peak in between, so that doubt
    about the class is not taken for a strange input.

    Parameters
    ----------
    concentration
        The network's concentrations of in-distribution inputs, (inputs, classes).
    target
        Theirs, from `make_sharp_target` or `make_smooth_target`, say.
    outside
        The network's concentrations of out-of-distribution inputs, (others, classes); their target is flat,
        1 for every class. None: there are none, and nothing teaches the network to be unsure.
    direction
        ``"reverse"``: KL(prediction, target). ``"forward"``: KL(target, prediction).
    weight
        Of the out-of-distribution inputs.

    Returns
    -------
    Tensor
        The average over inputs, plus ``weight`` times that over the others.

    Examples
    --------
    >>> import torch
    >>> from demur.posteriors.evidential import make_sharp_target, prior_network_loss
    >>> target = make_sharp_target(torch.tensor([0, 2]), 3)
    >>> prior_network_loss(target, target, outside=torch.ones(5, 3))
    tensor(0.)
    """
    if direction not in ("reverse", "forward"):
        raise ValueError(f"direction must be 'reverse' or 'forward'. Got {direction!r}.")

    def diverge(found: Any, wanted: Any) -> Any:
        both = (found, wanted) if direction == "reverse" else (wanted, found)
        return dirichlet_divergence(*both).mean().to(concentration.dtype)

    loss = diverge(concentration, target.to(concentration.device, concentration.dtype))
    if outside is None:
        return loss
    return loss + weight * diverge(outside, outside.new_ones(outside.shape[-1]))


def evidential_loss(concentration: Tensor, labels: Tensor, *, weight: float) -> Tensor:
    r"""Return the loss of an evidential network: expected squared error, plus misleading evidence.

    Sensoy, Kaplan and Kandemir (2018), "Evidential deep learning to quantify classification uncertainty",
    equation 5, plus their term for misleading evidence:

    .. math:: \sum_k (y_k - \bar p_k)^2 + \frac{\bar p_k (1 - \bar p_k)}{\alpha_0 + 1}
              + \lambda \, \mathrm{KL}\bigl( \mathrm{Dir}(\tilde\alpha), \mathrm{Dir}(1) \bigr)

    with :math:`\tilde\alpha`, the concentrations without the evidence for the label.

    Parameters
    ----------
    concentration
        (inputs, classes), at least 1 in evidential networks.
    labels
        (inputs,) classes from 0 on.
    weight
        :math:`\lambda`, which the paper raises to 1 over ten epochs: ``weight=min(1.0, epoch / 10)``.

    Returns
    -------
    Tensor
        The average over inputs.

    Examples
    --------
    >>> import torch
    >>> from demur.posteriors.evidential import evidential_loss
    >>> evidential_loss(torch.tensor([[1.0, 1.0]]), torch.tensor([0]), weight=1.0)  # 1/2 + 1/6
    tensor(0.6667)
    """
    import torch

    _check_concentrations(concentration=concentration)
    classes = concentration.shape[-1]
    labels = _check_labels(labels, classes)
    if labels.shape != concentration.shape[:-1]:
        raise ValueError(
            f"labels must be one for each input, shape {tuple(concentration.shape[:-1])}. "
            f"Got shape {tuple(labels.shape)}."
        )
    hot = torch.nn.functional.one_hot(labels, classes).bool().to(concentration.device)
    alpha = arrays.widened(concentration)
    whole = alpha.sum(-1, keepdim=True)
    mean = alpha / whole
    error = torch.where(hot, (whole - alpha) / whole, mean)
    expected = (error**2 + mean * (1 - mean) / (whole + 1)).sum(-1)
    misleading = torch.where(hot, torch.ones_like(alpha), alpha)
    loss = expected + weight * dirichlet_divergence(misleading, torch.ones_like(alpha))
    return loss.mean().to(concentration.dtype)


def _check_labels(labels: Any, classes: int) -> Any:
    """Return labels as integers; raise unless they are classes from 0 on."""
    import torch

    found = torch.as_tensor(labels)
    if found.is_floating_point() or found.ndim != 1:
        raise ValueError(
            f"labels must be classes from 0 to {classes - 1}, (inputs,). "
            f"Got {found.dtype} of shape {tuple(found.shape)}."
        )
    if found.numel() and not 0 <= int(found.min()) <= int(found.max()) < classes:
        raise ValueError(
            f"labels must be classes from 0 to {classes - 1}. Got {int(found.min())} to {int(found.max())}."
        )
    return found.long()


def _check_concentrations(**given: Any) -> None:
    """Raise unless these are tensors of positive numbers with an axis of classes."""
    import torch

    for name, value in given.items():
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.ndim == 0:
            raise TypeError(
                f"{name} must be a tensor of real numbers, (..., classes). Got {type(value).__name__}."
            )
        if not bool((value > 0).all() & (value < float("inf")).all()):
            raise ValueError(
                f"{name} must be above 0 and finite. Got {float(value.detach().min())} to "
                f"{float(value.detach().max())}. Outputs of a network become such by make_concentration."
            )


def _check_positive(name: str, value: float) -> None:
    """Raise unless a number is positive."""
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} must be a positive number. Got {value!r}.")
