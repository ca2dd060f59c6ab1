"""Figures and pages: they draw what others computed, and compute nothing.

Each ``*_figure`` returns a figure of matplotlib, which ``save`` writes as PDF and PNG; they need the extra
named report.
"""

from demur.report.curves import accuracy_figure, roc_figure
from demur.report.densities import density_figure, scatter_figure
from demur.report.disagreement import convergence_figure, decomposition_figure, divergence_figure
from demur.report.figures import save

__all__ = [
    "accuracy_figure",
    "convergence_figure",
    "decomposition_figure",
    "density_figure",
    "divergence_figure",
    "roc_figure",
    "save",
    "scatter_figure",
]
