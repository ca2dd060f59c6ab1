"""What scores are good for, with intervals; and which inputs to label next."""

from demur.tasks.acquire import acquire
from demur.tasks.bands import Band, accuracy_band, best_accuracy, roc_band
from demur.tasks.batch_bald import Batch, batch_bald
from demur.tasks.calibration import Calibration, calibration
from demur.tasks.compare import Comparison, compare, compare_all
from demur.tasks.contest import Contest, Standing, contest
from demur.tasks.correlation import rank_correlation
from demur.tasks.detection import Detection, detection, misclassification
from demur.tasks.disentanglement import Disentanglement, disentanglement
from demur.tasks.estimate import Estimate
from demur.tasks.figure_limits import Limits
from demur.tasks.limited_results import LimitedDetection, LimitedSelective
from demur.tasks.own_figure import estimate_figure
from demur.tasks.paired_tests import holm
from demur.tasks.regression import Regression, regression, within
from demur.tasks.score_counts import ScoreCounts
from demur.tasks.selective import Selective, selective
from demur.tasks.sparsification import Sparsification, sparsification
from demur.tasks.trend import Trend, trend

__all__ = [
    "Band",
    "Batch",
    "Calibration",
    "Comparison",
    "Contest",
    "Detection",
    "Disentanglement",
    "Estimate",
    "LimitedDetection",
    "LimitedSelective",
    "Limits",
    "Regression",
    "ScoreCounts",
    "Selective",
    "Sparsification",
    "Standing",
    "Trend",
    "accuracy_band",
    "acquire",
    "batch_bald",
    "best_accuracy",
    "calibration",
    "compare",
    "compare_all",
    "contest",
    "detection",
    "disentanglement",
    "estimate_figure",
    "holm",
    "misclassification",
    "rank_correlation",
    "regression",
    "roc_band",
    "selective",
    "sparsification",
    "trend",
    "within",
]
