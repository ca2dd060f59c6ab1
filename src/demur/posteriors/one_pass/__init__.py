"""Scores from one pass of one network: no members, and no posterior.

    FeatureDensity      density of the features under one Gaussian per class (DDU)
    NearestFeatures     distance to the k-th nearest features of the training data
    Energy              free energy of the logits
    MaxLogit            the largest logit, negated
    SoftmaxEntropy      entropy of the prediction
    SNGP                a Gaussian process by random features as the last layer; also a posterior
    DUE                 a Gaussian process with inducing points as the last layer; also a posterior
    DUQ                 distance to the closest centroid of a class
    OutlierScore        a detector of pytorch-ood
    Detector            the base class for a score of your own
    NetworkTraining     how SNGP, DUE and DUQ train
    spectral_normalise  bounds the layers of a network, before training

Each is a column of `Scores`: ``demur.score(posterior, loader, columns=[detector, ...])``.
"""

# Behind them: `encoder` has the features of a network, `covariance` estimates covariances that can be
# inverted, `training` trains networks with a head, `random_features` and `gaussian_process` are such heads,
# and `bounded_weight` is the layer's part of `spectral_norm`.

from demur.posteriors.one_pass.detector import Detector
from demur.posteriors.one_pass.due import DUE
from demur.posteriors.one_pass.duq import DUQ
from demur.posteriors.one_pass.energy import Energy
from demur.posteriors.one_pass.feature_density import FeatureDensity
from demur.posteriors.one_pass.max_logit import MaxLogit
from demur.posteriors.one_pass.nearest_features import NearestFeatures
from demur.posteriors.one_pass.outlier_score import OutlierScore
from demur.posteriors.one_pass.sngp import SNGP
from demur.posteriors.one_pass.softmax_entropy import SoftmaxEntropy
from demur.posteriors.one_pass.spectral_norm import spectral_normalise
from demur.posteriors.one_pass.training import NetworkTraining

__all__ = [
    "DUE",
    "DUQ",
    "SNGP",
    "Detector",
    "Energy",
    "FeatureDensity",
    "MaxLogit",
    "NearestFeatures",
    "NetworkTraining",
    "OutlierScore",
    "SoftmaxEntropy",
    "spectral_normalise",
]
