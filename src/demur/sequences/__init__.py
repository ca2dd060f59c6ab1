"""Tokens and sequences: which answers of language models, and which words in them, not to trust.

    decompose   total, aleatoric and epistemic uncertainty of each token and of each sequence, from an array
    Stream      the same from positions that come in chunks: memory does not grow with the vocabulary's text
    attribute   the tokens of the vocabulary that members disagree about
    hypotheses  the uncertainty of whole answers, from several of them and their log-likelihoods
    semantic_entropy  the entropy of meaning, from answers in clusters of one meaning
    LanguageModels  models of transformers as members: score texts, write answers with a score for each token
    TopLogProbs what services return, the likeliest tokens only: certified limits of the same parts

The distribution at position l is that of token l, given the tokens before it. Members are weighted alike at
every step (``average="step"``), or by how likely each of them found the tokens so far
(``average="sequence"``): the two averages of Malinin and Gales (2021), "Uncertainty estimation in
autoregressive structured prediction".
"""

from demur.sequences.decompose import attribute, decompose
from demur.sequences.hypotheses import HypothesisDecomposition, hypotheses
from demur.sequences.language_models import LanguageModels
from demur.sequences.semantic_clusters import semantic_entropy
from demur.sequences.sequence_decomposition import SequenceDecomposition
from demur.sequences.stream import Stream
from demur.sequences.text_scores import TextScores
from demur.sequences.top_log_probs import Bounds, TopLogProbs

__all__ = [
    "Bounds",
    "HypothesisDecomposition",
    "LanguageModels",
    "SequenceDecomposition",
    "Stream",
    "TextScores",
    "TopLogProbs",
    "attribute",
    "decompose",
    "hypotheses",
    "semantic_entropy",
]
