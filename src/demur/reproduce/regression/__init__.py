"""The regression study: whether K ranks errors of predicted numbers better than I, or than variances.

data       the UCI sets with their published splits
networks   small networks with a Gaussian head, those of all splits trained at once
ranking    scores of the test rows, and how well they rank errors
tables     means over splits, with intervals and paired tests
figure     sparsification curves
text       the section of the page of results
study      the stages of all this
"""

from demur.reproduce.regression.study import add_to_page, study

__all__ = ["add_to_page", "study"]
