"""What scores are good for, with intervals: detection, errors, what is kept, calibration."""

from demur.tasks.bands import Band, accuracy_band, best_accuracy, roc_band
from demur.tasks.calibration import Calibration, calibration
from demur.tasks.compare import Comparison, compare, compare_all, holm
from demur.tasks.contest import Contest, Standing, contest
from demur.tasks.detection import Detection, detection, misclassification
from demur.tasks.estimate import Estimate
from demur.tasks.leading import Leading, leading
from demur.tasks.selective import Selective, selective
from demur.tasks.sparsification import Sparsification, sparsification

__all__ = [
    "Band",
    "Calibration",
    "Comparison",
    "Contest",
    "Detection",
    "Estimate",
    "Leading",
    "Selective",
    "Sparsification",
    "Standing",
    "accuracy_band",
    "best_accuracy",
    "calibration",
    "compare",
    "compare_all",
    "contest",
    "detection",
    "holm",
    "leading",
    "misclassification",
    "roc_band",
    "selective",
    "sparsification",
]
