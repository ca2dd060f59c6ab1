"""What scores are good for, with intervals: detection, misclassification, selective, calibration."""

from demur.tasks.calibration import Calibration, calibration
from demur.tasks.compare import Comparison, compare, compare_all, holm
from demur.tasks.detection import Detection, detection, misclassification
from demur.tasks.estimate import Estimate
from demur.tasks.selective import Selective, selective

__all__ = [
    "Calibration",
    "Comparison",
    "Detection",
    "Estimate",
    "Selective",
    "calibration",
    "compare",
    "compare_all",
    "detection",
    "holm",
    "misclassification",
    "selective",
]
