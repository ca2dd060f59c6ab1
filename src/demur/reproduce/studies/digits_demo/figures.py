"""The figures of the demo."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

import demur
from demur.reproduce.studies.digits_demo.digits import CLASSES

Members = Mapping[str, Mapping[str, np.ndarray]]
"""Log-probabilities (members, inputs, classes) by method and set."""


def write_figures(
    folder: Path,
    scores: Mapping[str, Mapping[str, demur.Scores]],
    members: Members,
    titles_of_sets: Mapping[str, str],
    unseen_digits: np.ndarray,
) -> None:
    """Draw the figures, each as .pdf and .png.

    Parameters
    ----------
    folder
        Where to write them.
    scores, members
        By method and set.
    titles_of_sets
        What each set is called.
    unseen_digits
        The digits of the set "ood-unseen".
    """
    folder.mkdir(exist_ok=True)
    report = demur.report
    by_set = scores["deep-ensemble"]
    pairwise = {titles_of_sets[which]: each["pairwise"].epistemic for which, each in by_set.items()}
    both = {
        titles_of_sets[which]: (each["average"].epistemic, each["pairwise"].epistemic)
        for which, each in by_set.items()
    }
    rocs = {
        name: demur.tasks.detection(
            each["id"]["pairwise"].epistemic, each["ood-unseen"]["pairwise"].epistemic
        )
        for name, each in scores.items()
    }
    kept = {
        name: demur.tasks.selective(each["id"]["pairwise"].epistemic, each["id"].correct)
        for name, each in scores.items()
    }
    strangest = np.argsort(-by_set["ood-unseen"]["pairwise"].epistemic, kind="stable")[:6]
    chosen = members["deep-ensemble"]["ood-unseen"][:, strangest]
    dropout = members["mc-dropout"]["ood-unseen"][:, :4]
    names = [f"an {unseen_digits[index]}, input {index}" for index in strangest]
    names = [name.replace("an 9", "a 9") for name in names]
    figures = {
        "densities": report.density_figure(pairwise, label="K of the deep ensemble (nats)"),
        "k-against-i": report.scatter_figure(both),
        "roc-unseen": report.roc_figure(rocs, bands=False),
        "accuracy-kept": report.accuracy_figure(kept, band=False),
        "most-uncertain": report.decomposition_figure(
            demur.decompose(log_probs=chosen), demur.attribute(log_probs=chosen), names=names,
            classes=CLASSES,
        ),
        "divergences": report.divergence_figure(demur.divergences(log_probs=chosen)[..., 0]),
        "convergence": report.convergence_figure(demur.convergence(log_probs=dropout)),
    }  # fmt: skip
    titles = {
        "densities": "K of the deep ensemble, by set",
        "k-against-i": "K against I of the deep ensemble, by set",
        "roc-unseen": "Unseen against known digits, by K",
        "accuracy-kept": "Accuracy on known digits, lowest K kept first",
        "most-uncertain": "Deep ensemble: the unseen digits with the largest K",
        "divergences": f"Deep ensemble, {names[0]}: divergence of its networks",
        "convergence": "K of four unseen digits, by MC dropout",
    }
    for name, figure in figures.items():
        figure.suptitle(titles[name], fontsize=9)
        report.save(figure, folder, name)
