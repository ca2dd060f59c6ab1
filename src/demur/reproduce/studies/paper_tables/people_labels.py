"""How far people agree on the label of an input: the entropy of their answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from demur.reproduce.studies.paper_tables.input_sets import InputSets, read_array


def compute_label_entropy(inputs: InputSets, given: dict[str, Any]) -> np.ndarray:
    """Return the entropy of the labels from people for each input of `id`; NaN where there are none.

    Parameters
    ----------
    inputs
        Of the study.
    given
        `file`, and either `counts`, the name of an array (inputs, classes) of how many people chose each
        class; or `pairs`, the names of three arrays (image, label, votes for no, maybe and yes) from people
        who were asked whether a label fits. A yes counts 1 and a maybe 1/2; the votes of an image are divided
        by their sum.
    """
    path = inputs.find_path(given["file"])
    if "counts" in given:
        counts = read_array(path, given["counts"]).astype(float)
    else:
        image, label, votes = (read_array(path, name) for name in given["pairs"])
        number = int(given["images"])
        counts = np.zeros((number, int(label.max()) + 1))
        np.add.at(counts, (image, label), votes @ np.array([0, 0.5, 1]))
    total = counts.sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = counts / total[:, None]
        found = -np.where(counts > 0, shares * np.log(shares), 0).sum(1)
    found[total == 0] = np.nan
    return found[inputs.get_original_rows("id")]
