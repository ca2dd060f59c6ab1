"""Ways to draw members, one method per file; `demur.score` takes them all.

    DeepEnsemble   independently trained networks, also of different architectures
    MCDropout      one network with dropout left on
    LastLayer      one network with many last layers, or with dropout before its last
    QUAM           models that disagree with the deployed one, searched for each input
    HMC            samples by Hamiltonian Monte Carlo, exact and slow: the reference for the others
    CyclicalSGHMC  samples along a Markov chain, in cycles; SGHMC and SGLD without cycles
    SWAG           draws from a Gaussian about the average of SGD's iterates
    MultiSWAG      several SWAGs, from independent training runs
    BayesByBackprop  draws from the closest Gaussian that is independent for each parameter
    Forest         a forest of scikit-learn, one member per tree
    Bagging        other ensembles of scikit-learn: bagging, voting, stacking, calibrated
    Predictors     a list of objects with predict_proba
    Regressors     a list or an ensemble of regressors, without variances
    Samples        a function that returns predictions
    Posterior      the base class for a method of your own
    features       the input of a last layer, computed once and cached on disk

`demur.score` makes a posterior of networks, estimators and functions by itself where it can.
PyTorch is imported only when a network is given.
"""

# Behind the methods: `chains`, `heads` and `dropout` hold what several of them share, `weight_averaging`,
# `variational` and `adversarial` the parts of SWAG, BayesByBackprop and QUAM; `networks` calls PyTorch
# models, `parameter_vectors` joins parameters, `resumable_training` writes the state of a training run,
# `ensemble_training` trains members in parallel, `tensor_files` reads and writes safetensors, `fingerprint`
# recognises models and data, `given_posteriors` what `demur.score` is given, `sklearn_members` what in
# scikit-learn has members, and `compiled_calls` hands tensors to compiled loops.

from demur.posteriors.bayes_by_backprop import BayesByBackprop
from demur.posteriors.chains.markov_chain import MarkovChain
from demur.posteriors.cyclical_sghmc import CyclicalSGHMC
from demur.posteriors.deep_ensemble import DeepEnsemble
from demur.posteriors.ensemble_training import Member
from demur.posteriors.heads.features import Features, features
from demur.posteriors.heads.training import HeadTraining
from demur.posteriors.hmc import HMC, Diagnostics
from demur.posteriors.last_layer import LastLayer
from demur.posteriors.mc_dropout import MCDropout
from demur.posteriors.multi_swag import MultiSWAG
from demur.posteriors.posterior import Posterior
from demur.posteriors.quam import QUAM
from demur.posteriors.samples import Samples
from demur.posteriors.sghmc import SGHMC
from demur.posteriors.sgld import SGLD
from demur.posteriors.sklearn_ensembles import Bagging, Forest, Predictors
from demur.posteriors.sklearn_regressors import Regressors
from demur.posteriors.swag import SWAG

__all__ = [
    "HMC",
    "QUAM",
    "SGHMC",
    "SGLD",
    "SWAG",
    "Bagging",
    "BayesByBackprop",
    "CyclicalSGHMC",
    "DeepEnsemble",
    "Diagnostics",
    "Features",
    "Forest",
    "HeadTraining",
    "LastLayer",
    "MCDropout",
    "MarkovChain",
    "Member",
    "MultiSWAG",
    "Posterior",
    "Predictors",
    "Regressors",
    "Samples",
    "features",
]
