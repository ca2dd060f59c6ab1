"""The regression study: whether K ranks the errors of predicted numbers better than I or than variances.

networks   small networks with a Gaussian head, those of all splits trained at once
ranking    scores of the test rows, and how well they rank errors
tables     means over splits, with intervals and paired tests
figures    sparsification curves
section    the section of the results page
study      the stages put together
"""

from demur.reproduce.studies.regression.study import describe_study

__all__ = ["describe_study"]
