"""Disentanglement: whether the aleatoric and the epistemic part measure two things, and the right ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur.tasks.correlation import rank_correlation
from demur.tasks.display import Displayed, Rows
from demur.tasks.estimate import Estimate, check_scores
from demur.tasks.trend import Trend, pick_part, trend


@dataclass(frozen=True, repr=False)
class Disentanglement(Displayed):
    """How far two parts of uncertainty are apart.

    Attributes
    ----------
    parts : Estimate
        Rank correlation of the aleatoric with the epistemic part. Near 1 they order inputs alike, and one of
        them tells nothing that the other does not.
    reference, epistemic_reference : Estimate or None
        Rank correlations of the aleatoric and of the epistemic part with a reference for the first, such as
        the entropy of people's labels. The first should be high, and above the second.
    sizes, noise : Trend or None
        How the epistemic part moves as training data grow, and as labels get noisier.
    number
        How many inputs.
    """

    parts: Estimate
    reference: Estimate | None
    epistemic_reference: Estimate | None
    sizes: Trend | None
    noise: Trend | None
    number: int

    @property
    def failures(self) -> list[str]:
        """What is shown to be wrong, a sentence each; empty where nothing is."""
        found = []
        if self.sizes is not None and self.sizes.rises:
            ratio = self.sizes.ratio
            though = ", though its mean falls" if ratio is not None and ratio.high < 1 else ""
            found.append(
                "With more training data, the epistemic part rises for more inputs than it falls "
                f"for{though}: it should fall."
            )
        elif self.sizes is not None and not self.sizes.falls:
            found.append("The epistemic part is not shown to fall with more training data.")
        if self.noise is not None and self.noise.rises:
            found.append(
                "With more label noise, the epistemic part rises for more inputs than it falls for: noise is "
                "not ignorance."
            )
        return found

    def _display(self) -> tuple[str, Rows, Sequence[str]]:
        rows = [["aleatoric with epistemic", str(self.parts), "rank correlation"]]
        if self.reference is not None and self.epistemic_reference is not None:
            rows.append(["aleatoric with reference", str(self.reference), "rank correlation"])
            rows.append(["epistemic with reference", str(self.epistemic_reference), "rank correlation"])
        for name, found in (("with more data", self.sizes), ("with more noise", self.noise)):
            if found is not None:
                mean = "" if found.ratio is None else f"; mean times {found.ratio}"
                rows.append([f"epistemic {name}", str(found.tau), f"tau: {found.direction}{mean}"])
        return f"Disentanglement of {self.number:,} inputs", rows, self.failures


def disentanglement(
    aleatoric: Any,
    epistemic: Any = None,
    *,
    reference: Any = None,
    sizes: Mapping[float, Any] | None = None,
    noise: Mapping[float, Any] | None = None,
    measure: str = "pairwise",
    confidence: float = 0.95,
    interval: str = "auto",
    resamples: int = 1000,
    seed: int = 0,
    clusters: Any = None,
) -> Disentanglement:
    """Return how far the aleatoric and the epistemic part of the same inputs are apart.

    Questions of Mucsányi, Kirchhof and Oh (2024), "Benchmarking uncertainty disentanglement". A rank
    correlation of the parts is no error by itself: inputs that are hard to label are often rare, too. What
    settles it is whether each part answers to what it should: the aleatoric one to the noise of labels, the
    epistemic one to the amount of data.

    Parameters
    ----------
    aleatoric, epistemic : (inputs,) array
        The two parts. Or one `Scores`, which has both.
    reference : (inputs,) array, optional
        What the aleatoric part should follow, such as the entropy of the labels that people gave.
    sizes, noise : mapping, optional
        The epistemic part, or `Scores`, by size of the training set, and by share of wrong training labels;
        see `trend`. The first must fall, the second must not rise.
    measure
        What is taken of `Scores`.
    confidence, interval, resamples, seed, clusters
        As for `rank_correlation`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> noise, rarity = rng.gamma(1.0, size=500), rng.gamma(1.0, size=500)
    >>> demur.tasks.disentanglement(noise, rarity + 0.3 * noise, reference=noise > 1)
    Disentanglement of 500 inputs
      aleatoric with epistemic  0.3824 [0.3041, 0.4525]  rank correlation
      aleatoric with reference  0.8531 [0.8372, 0.8624]  rank correlation
      epistemic with reference  0.3085 [0.2289, 0.3867]  rank correlation
    """
    given = aleatoric
    first = pick_part(given, measure, "aleatoric", "aleatoric")
    if epistemic is None and not hasattr(given, "table"):
        raise ValueError("epistemic must be given unless the first argument is Scores. Got None.")
    second = pick_part(given if epistemic is None else epistemic, measure, "epistemic", "epistemic")
    options = {
        "confidence": confidence, "interval": interval, "resamples": resamples, "seed": seed,
        "clusters": clusters,
    }  # fmt: skip
    target = None if reference is None else check_scores("reference", reference)
    for name, values in (("aleatoric", first), ("epistemic", second), ("reference", target)):
        if values is not None and len(values) != len(first):
            raise ValueError(f"{name} must be of the same {len(first)} inputs. Got {len(values)}.")
        if values is not None and np.all(values == values[0]):
            raise ValueError(
                f"{name} must have two different values at least. Got {values[0]:g} for every input: there "
                "is no order to compare."
            )

    def follow(runs: Mapping[float, Any] | None) -> Trend | None:
        if runs is None:
            return None
        return trend(runs, measure=measure, confidence=confidence, clusters=clusters)

    return Disentanglement(
        rank_correlation(first, second, **options),
        None if target is None else rank_correlation(first, target, **options),
        None if target is None else rank_correlation(second, target, **options),
        follow(sizes),
        follow(noise),
        len(first),
    )
