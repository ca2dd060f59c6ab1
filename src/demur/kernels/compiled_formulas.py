"""The formulas of ``formulas`` for compiled loops."""

from __future__ import annotations

from numba import njit

from demur.kernels import formulas
from demur.kernels.arithmetic import INLINED

class_terms = njit(**INLINED)(formulas.class_terms)
settled = njit(**INLINED)(formulas.settled)
mean_phi = njit(**INLINED)(formulas.mean_phi)
phi_of_average = njit(**INLINED)(formulas.phi_of_average)
noise = njit(**INLINED)(formulas.noise)


@njit(**INLINED)
def where(condition, then, otherwise):
    """Do as in NumPy."""
    return then if condition else otherwise
