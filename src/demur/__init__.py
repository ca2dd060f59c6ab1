"""How far each prediction can be trusted, and when to defer it.

How data flows: predictions of members are checked on arrival (``predictions``), summed relative to a
reference (``kernels``, ``core``), accumulated in a stream if they come one by one (``moments``), and turned
into total, aleatoric and epistemic uncertainty under a chosen measure (``measures``, ``decompose``). If you
have models but no predictions yet, ``posteriors`` draws members and ``score`` runs a data set through them.
``tasks`` measures what the scores are good for, ``deferral`` turns them into decisions, ``monitoring``
watches these in service, and ``report`` draws them. ``register_rule`` and the page "Extend demur" show how
to add what is missing.

>>> p = np.array([[[0.7, 0.3]], [[0.5, 0.5]]])     # two members, one input, two classes
>>> u = demur.decompose(p)
>>> u.total, u.aleatoric, u.epistemic
(array([0.69437063]), array([0.65200574]), array([0.04236489]))
"""

from typing import TYPE_CHECKING, Any

from demur.core.rounding import RoundingWarning
from demur.core.rules import RuleName
from demur.credal import Credal, credal
from demur.decompose import attribute, decompose
from demur.divergences import Convergence, convergence, divergences
from demur.families import register_rule
from demur.measures import Decomposition, Measure, MeasureName
from demur.moments import Moments
from demur.predictions import (
    Bernoulli,
    Beta,
    Categorical,
    Deltas,
    Dirichlet,
    Draws,
    Exponential,
    Gamma,
    Gaussian,
    Mixture,
    MultiLabel,
    MultivariateGaussian,
    NormalInverseGamma,
    Points,
    Poisson,
    Uniform,
)

if TYPE_CHECKING:
    from demur import cluster, posteriors, report, sequences, tasks
    from demur.adhoc import label_variance, margin, max_probability, softmax_variance, variation_ratio
    from demur.averages import interval, mean, quantiles
    from demur.deferral import Deferral
    from demur.deferrals import Deferrals
    from demur.monitoring import Drift, Monitor, shift_weights
    from demur.regression import information, information_bounds, variance
    from demur.scoring.score import score
    from demur.scoring.scores import Scores
    from demur.tasks.guarantees import NoGuarantee

__version__ = "0.1.0"

__all__ = [
    "Bernoulli",
    "Beta",
    "Categorical",
    "Convergence",
    "Credal",
    "Decomposition",
    "Deferral",
    "Deferrals",
    "Deltas",
    "Dirichlet",
    "Draws",
    "Drift",
    "Exponential",
    "Gamma",
    "Gaussian",
    "Measure",
    "MeasureName",
    "Mixture",
    "Moments",
    "Monitor",
    "MultiLabel",
    "MultivariateGaussian",
    "NoGuarantee",
    "NormalInverseGamma",
    "Points",
    "Poisson",
    "RoundingWarning",
    "RuleName",
    "Scores",
    "Uniform",
    "attribute",
    "cluster",
    "convergence",
    "credal",
    "decompose",
    "divergences",
    "information",
    "information_bounds",
    "interval",
    "label_variance",
    "margin",
    "max_probability",
    "mean",
    "posteriors",
    "quantiles",
    "register_rule",
    "report",
    "score",
    "sequences",
    "shift_weights",
    "softmax_variance",
    "tasks",
    "variance",
    "variation_ratio",
]

_LATER = {
    "Deferral": "deferral",
    "Drift": "monitoring",
    "Monitor": "monitoring",
    "Deferrals": "deferrals",
    "NoGuarantee": "tasks.guarantees",
    "Scores": "scoring.scores",
    "cluster": "",
    "information": "regression",
    "information_bounds": "regression",
    "interval": "averages",
    "label_variance": "adhoc",
    "margin": "adhoc",
    "max_probability": "adhoc",
    "mean": "averages",
    "posteriors": "",
    "quantiles": "averages",
    "report": "",
    "score": "scoring.score",
    "sequences": "",
    "shift_weights": "monitoring",
    "sklearn": "",
    "softmax_variance": "adhoc",
    "stores": "",
    "tasks": "",
    "torchmetrics": "",
    "variance": "regression",
    "variation_ratio": "adhoc",
}
"""The modules of names that few programs need; imported on first use, so that `import demur` is quick.

Those that need a further package are not in ``__all__``. No function may share its name with a module of this
package, which would hide it once imported."""


if not TYPE_CHECKING:  # a checker would take every misspelt name for one of these

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module 'demur' has no attribute {name!r}")
        import importlib

        module = importlib.import_module(f"demur.{_LATER[name] or name}")
        found = getattr(module, name) if _LATER[name] else module
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
