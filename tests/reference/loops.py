"""The measures by plain Python loops over float64 numbers, straight from their definitions.

Total is the double loop over predictor and truth, never the product of two means; epistemic is the
difference of two sums. So it is slow, cancels where members nearly agree, and is easy to believe.
Shapes: members are first, classes last, any batch in between.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

RULES = ("log", "brier", "spherical", "zero_one")
NAMES = {
    "pairwise": ("each", "each"),
    "average": ("each", "bma"),
    "reverse": ("bma", "each"),
}
PARTS = ("total", "aleatoric", "epistemic")

Distribution = list[float]
Side = str | list[Distribution]
Parts = dict[str, float]


def loss(rule: str, p: Distribution) -> list[float]:
    """What is charged to the prediction `p` for each outcome."""
    if rule == "log":
        return [-math.log(value) if value > 0 else math.inf for value in p]
    if rule == "brier":
        classes = range(len(p))
        return [sum((p[k] - (1.0 if k == y else 0.0)) ** 2 for k in classes) for y in classes]
    if rule == "spherical":
        norm = math.sqrt(sum(value * value for value in p))
        return [1.0 - value / norm for value in p]
    if rule == "zero_one":
        top = max(p)
        ties = sum(1 for value in p if value == top)
        return [1.0 - (1.0 / ties if value == top else 0.0) for value in p]
    raise AssertionError(rule)


def expected(p: Distribution, losses: list[float]) -> float:
    """The loss averaged under `p`; an outcome of probability zero costs nothing."""
    return math.fsum(a * b for a, b in zip(p, losses, strict=True) if a > 0)


def average(members: list[Distribution], weights: list[float]) -> Distribution:
    """The model average of the members."""
    whole = math.fsum(weights)
    return [
        math.fsum(w * p[y] for w, p in zip(weights, members, strict=True)) / whole
        for y in range(len(members[0]))
    ]


def decompose_one(
    members: list[Distribution],
    weights: list[float] | None = None,
    *,
    measure: tuple[Side, Side] = ("each", "each"),
    rule: str = "log",
    base: float | None = None,
) -> Parts:
    """Total, aleatoric and epistemic part of one input."""
    weights = [1.0] * len(members) if weights is None else weights
    kept = [(w, p) for w, p in zip(weights, members, strict=True) if w > 0]
    weights, members = [w for w, _ in kept], [p for _, p in kept]

    def side(choice: Side) -> tuple[list[float], list[Distribution]]:
        if choice == "each":
            return weights, members
        if choice == "bma":
            return [1.0], [average(members, weights)]
        assert not isinstance(choice, str)
        return [1.0] * len(choice), choice

    predictor_weights, predictors = side(measure[0])
    truth_weights, truths = side(measure[1])
    total = aleatoric = 0.0
    for w, p in zip(predictor_weights, predictors, strict=True):
        aleatoric += w / sum(predictor_weights) * expected(p, loss(rule, p))
        for v, t in zip(truth_weights, truths, strict=True):
            share = w / sum(predictor_weights) * v / sum(truth_weights)
            total += share * expected(p, loss(rule, t))
    unit = 1.0 if base is None else math.log(base)
    return {
        "total": total / unit,
        "aleatoric": aleatoric / unit,
        "epistemic": (total - aleatoric) / unit,
    }


def group_of(weights: list[float], groups: int | None) -> list[list[int]]:
    """Members of each group: the k-th member of positive weight goes to group k mod G."""
    positive = [i for i, w in enumerate(weights) if w > 0]
    count = len(positive) if groups is None else min(groups, len(positive))
    return [positive[g::count] for g in range(count)]


def without(
    members: list[Distribution], weights: list[float], dropped: list[int]
) -> tuple[list[Distribution], list[float]]:
    """The members that are not in `dropped`."""
    kept = [i for i in range(len(members)) if i not in dropped]
    return [members[i] for i in kept], [weights[i] for i in kept]


def unbiased_one(
    members: list[Distribution],
    weights: list[float] | None = None,
    *,
    measure: tuple[Side, Side] = ("each", "each"),
    rule: str = "log",
    groups: int | None = None,
) -> Parts:
    """The parts with the corrections of the contract; both sides are "each" or "bma"."""
    weights = [1.0] * len(members) if weights is None else weights
    whole = math.fsum(weights)

    def epistemic(name: str, kept: tuple[list[Distribution], list[float]]) -> float:
        return decompose_one(*kept, measure=NAMES[name], rule=rule)["epistemic"]

    everyone = (members, weights)
    pairwise = epistemic("pairwise", everyone)
    pairwise /= 1.0 - math.fsum(w * w for w in weights) / whole**2
    parts_of = group_of(weights, groups)
    information = len(parts_of) * epistemic("average", everyone) - math.fsum(
        (1.0 - math.fsum(weights[i] for i in part) / whole)
        * epistemic("average", without(members, weights, part))
        for part in parts_of
    )
    entropy = decompose_one(members, weights, rule=rule)["aleatoric"]
    value = {
        ("each", "each"): pairwise,
        ("each", "bma"): information,
        ("bma", "each"): pairwise - information,
        ("bma", "bma"): 0.0,
    }[measure]  # type: ignore[index]
    aleatoric = entropy if measure[0] == "each" else entropy + information
    return {"total": aleatoric + value, "aleatoric": aleatoric, "epistemic": value}


def stderr_one(
    members: list[Distribution],
    weights: list[float] | None = None,
    *,
    groups: int | None = None,
    statistic: Callable[..., Parts] = decompose_one,
    **options: object,
) -> Parts:
    """The weighted delete-a-group jackknife standard error of each part."""
    weights = [1.0] * len(members) if weights is None else weights
    whole = math.fsum(weights)
    full = statistic(members, weights, **options)
    inverse_shares: list[float] = []
    pseudo_values: list[Parts] = []
    for part in group_of(weights, groups):
        h = whole / math.fsum(weights[i] for i in part)
        left = statistic(*without(members, weights, part), **options)
        inverse_shares.append(h)
        pseudo_values.append({name: h * full[name] - (h - 1.0) * left[name] for name in PARTS})
    result = {}
    for name in PARTS:
        centre = math.fsum(p[name] / h for p, h in zip(pseudo_values, inverse_shares, strict=True))
        result[name] = math.sqrt(
            math.fsum(
                (pseudo[name] - centre) ** 2 / (h - 1.0)
                for pseudo, h in zip(pseudo_values, inverse_shares, strict=True)
            )
            / len(pseudo_values)
        )
    return result


def over_batch(
    function: Callable[..., Parts],
    probs: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64] | None = None,
    *,
    measure: tuple[object, object] = ("each", "each"),
    **options: object,
) -> dict[str, npt.NDArray[np.float64]]:
    """One of the functions above for every input of (members, *batch, classes).

    A given side is an array (*batch, classes), or (given members, *batch, classes).
    """
    members, batch = probs.shape[0], probs.shape[1:-1]
    result = {name: np.empty(batch) for name in PARTS}

    def given(side: object, index: tuple[int, ...]) -> object:
        if isinstance(side, str):
            return side
        array = np.asarray(side, dtype=np.float64)
        array = array[None] if array.ndim == len(batch) + 1 else array
        return [array[(i, *index)].tolist() for i in range(array.shape[0])]

    for index in np.ndindex(*batch):
        sides = (given(measure[0], index), given(measure[1], index))
        own = None
        if weights is not None:
            own = (weights if weights.ndim == 1 else weights[(slice(None), *index)]).tolist()
        parts = function([probs[(i, *index)].tolist() for i in range(members)], own, measure=sides, **options)
        for name in PARTS:
            result[name][index] = parts[name]
    return result


def softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Probabilities of the logits, in float64; a logit of -inf has probability zero."""
    logits = np.asarray(logits, dtype=np.float64)
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)
