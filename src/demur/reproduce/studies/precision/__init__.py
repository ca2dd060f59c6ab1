"""The precision study: how much of the gap between K and I is mathematics, and how much is rounding.

Where members nearly agree, K tends to 2 I, and both rank inputs alike. The usual closed forms are differences
of nearly equal numbers, whose rounding then hides both, and not equally.

feature_file   features and a last layer, from an .npz file
members        last layers that agree as closely as wanted
formulas       I and K as usually computed, in four dtypes, and without rounding
ranking        AUROC over several draws of the members
tables         the tables
figures        the figures
section        the section of the results page
study          the stages put together
"""

from demur.reproduce.studies.precision.study import describe_study

__all__ = ["describe_study"]
