"""A scikit-learn classifier that defers, and metrics of its predictions.

Needs scikit-learn 1.6 or later: ``pip install 'demur[sklearn]'``. ``import demur`` does not import it.
"""

from demur.sklearn.deferring_classifier import DeferringClassifier, NothingPromised
from demur.sklearn.kept_metrics import coverage, kept_accuracy

__all__ = ["DeferringClassifier", "NothingPromised", "coverage", "kept_accuracy"]
