"""Ways to draw members, one method per file; `demur.score` takes them all.

    DeepEnsemble   independently trained networks, also of different architectures
    MCDropout      one network with dropout left on
    EvidentialNetwork  one network that predicts a distribution over predictions; losses in `evidential`
    LastLayer      one network with many last layers, or with dropout before its last
    Laplace        a Gaussian about a trained network, of its last layer or of all parameters
    QUAM           models that disagree with the deployed one, searched for each input
    HMC            samples by Hamiltonian Monte Carlo, exact and slow: the reference for the others
    CyclicalSGHMC  samples along a Markov chain, in cycles; SGHMC and SGLD without cycles
    SWAG           draws from a Gaussian about the average of SGD's iterates
    MultiSWAG      several SWAGs, from independent training runs
    BayesByBackprop  draws from the closest Gaussian that is independent for each parameter
    Forest         a forest of scikit-learn, one member per tree
    Bagging        other ensembles of scikit-learn: bagging, voting, stacking, calibrated
    BoostedTrees   one model of CatBoost, LightGBM or XGBoost at several stages, or several models
    Predictors     a list of objects with predict_proba
    Regressors     a list or an ensemble of regressors, without variances
    Samples        a function that returns predictions
    Posterior      the base class for a method of your own
    features       the input of a last layer, computed once and cached on disk
    one_pass       scores that need no members: feature density, energy, nearest features, ...
    from_laplace   a fitted object of laplace-torch

`demur.score` makes a posterior of networks, estimators and functions by itself where it can.
PyTorch is imported only when a network is given.
"""

# Behind the methods: `adversarial`, `boosting`, `chains`, `curvature`, `dropout`, `evidential`, `heads`,
# `variational` and `weight_averaging` hold what they consist of; `networks` calls PyTorch models,
# `parameter_vectors` joins parameters, `resumable_training` writes the state of a training run,
# `ensemble_training` trains members in parallel, `tensor_files` reads and writes safetensors, `fingerprint`
# recognises models and data, `given_posteriors` what `demur.score` is given, `sklearn_members` what in
# scikit-learn has members, and `compiled_calls` hands tensors to compiled loops.

from demur.posteriors import one_pass
from demur.posteriors.bayes_by_backprop import BayesByBackprop
from demur.posteriors.boosted_trees import BoostedTrees
from demur.posteriors.chains.markov_chain import MarkovChain
from demur.posteriors.cyclical_sghmc import CyclicalSGHMC
from demur.posteriors.deep_ensemble import DeepEnsemble
from demur.posteriors.ensemble_training import Member
from demur.posteriors.evidential_network import EvidentialNetwork
from demur.posteriors.heads.features import Features, features
from demur.posteriors.heads.training import HeadTraining
from demur.posteriors.hmc import HMC, Diagnostics
from demur.posteriors.laplace import Laplace
from demur.posteriors.laplace_torch import from_laplace
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
    "BoostedTrees",
    "CyclicalSGHMC",
    "DeepEnsemble",
    "Diagnostics",
    "EvidentialNetwork",
    "Features",
    "Forest",
    "HeadTraining",
    "Laplace",
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
    "from_laplace",
    "one_pass",
]
