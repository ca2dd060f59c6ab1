"""How far each prediction can be trusted, and when to defer it.

The way of the data: predictions of members are checked at the door (``predictions``), summed relative to a
reference (``kernels``, ``state``), kept in a stream where they come one by one (``moments``), and read off as
total, aleatoric and epistemic uncertainty under a chosen measure (``measures``, ``decompose``). Where there
are models and no predictions yet, ``posteriors`` draws them and ``score`` runs a data set through. What the
scores are good for is measured by ``tasks``; ``deferral`` makes decisions of them, ``report`` draws them.

>>> p = np.array([[[0.7, 0.3]], [[0.5, 0.5]]])     # two members, one input, two classes
>>> u = demur.decompose(p)
>>> u.total, u.aleatoric, u.epistemic
(array([0.69437063]), array([0.65200574]), array([0.04236489]))
"""

from demur import posteriors, report, tasks
from demur.credal import Credal, credal
from demur.decompose import attribute, decompose
from demur.deferral import Deferral, NoGuarantee
from demur.divergences import Convergence, convergence, divergences
from demur.measures import Decomposition, Measure
from demur.moments import Moments
from demur.posteriors.score import score
from demur.posteriors.scored import Scores
from demur.predictions import (
    Bernoulli,
    Beta,
    Categorical,
    Deltas,
    Dirichlet,
    Exponential,
    Gamma,
    Gaussian,
    Mixture,
    MultiLabel,
    MultivariateGaussian,
    Poisson,
    Uniform,
)
from demur.regression import information, information_bounds, variance
from demur.scores import label_variance, margin, max_probability, softmax_variance, variation_ratio

__version__ = "0.1.0"

__all__ = [
    "Bernoulli",
    "Beta",
    "Categorical",
    "Convergence",
    "Credal",
    "Decomposition",
    "Deferral",
    "Deltas",
    "Dirichlet",
    "Exponential",
    "Gamma",
    "Gaussian",
    "Measure",
    "Mixture",
    "Moments",
    "MultiLabel",
    "MultivariateGaussian",
    "NoGuarantee",
    "Poisson",
    "Scores",
    "Uniform",
    "attribute",
    "convergence",
    "credal",
    "decompose",
    "divergences",
    "information",
    "information_bounds",
    "label_variance",
    "margin",
    "max_probability",
    "posteriors",
    "report",
    "score",
    "softmax_variance",
    "tasks",
    "variance",
    "variation_ratio",
]
