"""Ways to draw members, one a file; `demur.score` takes them all.

    DeepEnsemble   networks trained apart, also of different architectures
    MCDropout      one network, dropout left on
    LastLayer      one network, many last layers, or dropout before the last
    CyclicalSGHMC  samples along a Markov chain, in cycles; SGHMC and SGLD without
    Forest         a forest of scikit-learn, each tree a member
    Bagging        other ensembles of scikit-learn
    Predictors     a list of objects with predict_proba
    Samples        a function that returns predictions
    Posterior      what a method of your own derives from
    features       what comes into a last layer, computed once and kept on disk

PyTorch is imported when a network comes, and not before.
"""

from demur.posteriors.chains.markov_chain import MarkovChain
from demur.posteriors.cyclical_sghmc import CyclicalSGHMC
from demur.posteriors.deep_ensemble import DeepEnsemble
from demur.posteriors.ensemble_training import Member
from demur.posteriors.heads.features import Features, features
from demur.posteriors.heads.training import HeadTraining
from demur.posteriors.last_layer import LastLayer
from demur.posteriors.mc_dropout import MCDropout
from demur.posteriors.posterior import Posterior
from demur.posteriors.samples import Samples
from demur.posteriors.sghmc import SGHMC
from demur.posteriors.sgld import SGLD
from demur.posteriors.sklearn_ensembles import Bagging, Forest, Predictors

__all__ = [
    "SGHMC",
    "SGLD",
    "Bagging",
    "CyclicalSGHMC",
    "DeepEnsemble",
    "Features",
    "Forest",
    "HeadTraining",
    "LastLayer",
    "MCDropout",
    "MarkovChain",
    "Member",
    "Posterior",
    "Predictors",
    "Samples",
    "features",
]
