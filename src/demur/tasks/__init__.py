"""What scores are good for: detection, misclassification, selective prediction; each with intervals."""

from demur.tasks.compare import Comparison, compare, compare_all, holm
from demur.tasks.detection import Detection, detection, misclassification
from demur.tasks.estimate import Estimate
from demur.tasks.selective import Selective, selective

__all__ = [
    "Comparison",
    "Detection",
    "Estimate",
    "Selective",
    "compare",
    "compare_all",
    "detection",
    "holm",
    "misclassification",
    "selective",
]
