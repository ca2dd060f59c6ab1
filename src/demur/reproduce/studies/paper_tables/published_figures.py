"""The tables of Schweighofer et al. (2023): AUROC, for selective prediction AUC, means over three splits."""

from __future__ import annotations

_SCORES = ("average_total", "pairwise_total", "pairwise_aleatoric", "average_epistemic", "pairwise_epistemic")

_FIGURES: dict[str, dict[str, tuple[float, float, float, float, float]]] = {
    "ImageNet-O": {
        "cSG-HMC": (0.609, 0.611, 0.606, 0.675, 0.689),
        "MCD": (0.631, 0.633, 0.629, 0.682, 0.720),
        "DE (LL)": (0.600, 0.600, 0.600, 0.561, 0.605),
        "DE (all)": (0.703, 0.709, 0.696, 0.717, 0.718),
    },
    "ImageNet-A": {
        "cSG-HMC": (0.677, 0.687, 0.666, 0.785, 0.792),
        "MCD": (0.795, 0.797, 0.794, 0.829, 0.860),
        "DE (LL)": (0.819, 0.819, 0.818, 0.694, 0.813),
        "DE (all)": (0.887, 0.892, 0.879, 0.890, 0.880),
    },
    "errors": {
        "cSG-HMC": (0.700, 0.705, 0.693, 0.758, 0.767),
        "MCD": (0.867, 0.867, 0.866, 0.791, 0.831),
        "DE (LL)": (0.910, 0.910, 0.910, 0.661, 0.824),
        "DE (all)": (0.879, 0.869, 0.883, 0.808, 0.795),
    },
    "kept": {
        "cSG-HMC": (0.911, 0.913, 0.910, 0.926, 0.926),
        "MCD": (0.959, 0.959, 0.958, 0.934, 0.945),
        "DE (LL)": (0.971, 0.971, 0.971, 0.892, 0.926),
        "DE (all)": (0.968, 0.966, 0.969, 0.953, 0.950),
    },
}
"""By task and method, in the order of `_SCORES`; "errors" and "kept" are its table 2."""


def get_figure(task: str, method: str, score: str) -> float | None:
    """Return a figure of the paper, or None if it has none.

    Examples
    --------
    >>> get_figure("ImageNet-O", "MCD", "pairwise_epistemic"), get_figure("DTD", "MCD", "pairwise_epistemic")
    (0.72, None)
    """
    found = _FIGURES.get(task, {}).get(method)
    return None if found is None else found[_SCORES.index(score)]
