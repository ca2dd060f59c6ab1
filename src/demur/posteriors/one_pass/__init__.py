"""Scores from one pass of one network: no members, and no posterior.

    FeatureDensity   density of the features under one Gaussian per class (DDU)
    NearestFeatures  distance to the k-th nearest features of the training data
    Energy           free energy of the logits
    MaxLogit         the largest logit, negated
    SoftmaxEntropy   entropy of the prediction
    Detector         the base class for a score of your own

Each is a column of `Scores`: ``demur.score(posterior, loader, columns=[detector, ...])``.
"""

# `encoder` has the features of a network, `covariance` estimates covariances that can be inverted.

from demur.posteriors.one_pass.detector import Detector
from demur.posteriors.one_pass.energy import Energy
from demur.posteriors.one_pass.feature_density import FeatureDensity
from demur.posteriors.one_pass.max_logit import MaxLogit
from demur.posteriors.one_pass.nearest_features import NearestFeatures
from demur.posteriors.one_pass.softmax_entropy import SoftmaxEntropy

__all__ = ["Detector", "Energy", "FeatureDensity", "MaxLogit", "NearestFeatures", "SoftmaxEntropy"]
