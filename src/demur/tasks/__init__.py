"""What scores are good for, with intervals: detection, misclassification, selective, calibration."""

from demur.tasks.calibration import Calibration, calibration
from demur.tasks.compare import Comparison, compare, compare_all, holm
from demur.tasks.contest import Contest, Standing, contest
from demur.tasks.detection import Detection, detection, misclassification
from demur.tasks.estimate import Estimate
from demur.tasks.selective import Selective, selective

__all__ = [
    "Calibration",
    "Comparison",
    "Contest",
    "Detection",
    "Estimate",
    "Selective",
    "Standing",
    "calibration",
    "compare",
    "compare_all",
    "contest",
    "detection",
    "holm",
    "misclassification",
    "selective",
]
