"""The precision study: how much of what K and I tell apart is mathematics, and how much is rounding.

Where members nearly agree, K tends to 2 I: both rank inputs alike. The usual closed forms are differences of
nearly equal numbers, whose rounding then hides both, and not equally.

    data         features and a last layer, from an .npz
    members      last layers that agree as closely as wanted
    arithmetic   I and K as they are usually written, in four types, and without rounding
    ranking      AUROC over several draws of the members, and what gaps between AUROCs are made of
    tables       the numbers
    figure       the pictures
    text         the section of the page of results
    study        the stages of all this
"""

from demur.reproduce.precision.study import add_to_page, study

__all__ = ["add_to_page", "study"]
