"""The section of the page of results: sentences around the numbers of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from demur.reproduce.regression.data import Rows
from demur.reproduce.regression.networks import METHODS
from demur.reproduce.regression.ranking import SCORES
from demur.reproduce.regression.tables import PAIRS

_Table = list[dict[str, Any]]
_NAMES = {"deep-ensemble": "deep ensemble", "mc-dropout": "MC dropout"}
_LEVEL = 0.05

_HEAD = """## Regression: which score ranks errors

```sh
demur reproduce regression --data DIR --out DIR
```

Does K rank the errors of predicted numbers better than mutual information I, or than the variances of the law
of total variance? {sets} UCI sets with their published splits, {splits} splits in all. Networks have one
hidden layer of 50 units and a Gaussian head. A deep ensemble has {ensemble} of them, MC dropout {dropout}
masks of one, at a rate of {rate:g}. Networks stop where a tenth of the training rows likes them best.
K and I are `demur.decompose` and `demur.information`, variances `demur.variance`.

Two figures for each score: Spearman's correlation with the absolute error, where higher is better, and the
area between its sparsification curve and the oracle's (AUSE, as a share of the RMSE of all rows), where lower
is better. Each is a mean over splits. Splits of one set share training rows. The 95 % intervals and the tests
allow for that (Nadeau and Bengio, 2003), which is an approximation. P-values are corrected for all sets of a
question (Holm).

K and I count a disagreement in units of the noise that members expect: where that is large, and errors with
it, the same disagreement counts for less. Variances count in the unit of the outcome, as errors do.

![Sparsification curves of the deep ensemble](figures/results/regression-sparsification.png)

Deep ensemble, mean over splits.
"""


def section(found: Mapping[str, _Table], sets: Mapping[str, Rows]) -> str:
    """Return the section."""
    head = _HEAD.format(
        sets=len(sets), splits=sum(len(rows.test) for rows in sets.values()),
        ensemble=METHODS["deep-ensemble"].members, dropout=METHODS["mc-dropout"].members,
        rate=METHODS["mc-dropout"].dropout,
    )  # fmt: skip
    parts = [head, "### What came out\n", _verdicts(found["differences"])]
    for method, title in _NAMES.items():
        parts += [f"### {title[0].upper()}{title[1:]}\n", _ranking_text(found["scores"], method)]
        parts.append(_difference_text(found["differences"], method))
    parts += ["### How well the networks predict\n", _fit_text(found["fits"])]
    return "\n".join(parts)


def _verdicts(rows: _Table) -> str:
    """Return an answer in words for K, and on how many sets each first score is better, worse, or neither."""
    lines = []
    table = [
        "| comparison | posterior | figure | better | worse | undecided |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for first, second in PAIRS:
        for method, title in _NAMES.items():
            for figure, name in (("spearman", "Spearman"), ("ause", "AUSE")):
                own = some(rows, first=first, second=second, method=method, figure=figure)
                better, worse = _decided(own, figure == "spearman"), _decided(own, figure == "ause")
                open_ = len(own) - len(better) - len(worse)
                table.append(
                    f"| {SCORES[first]} against {SCORES[second]} | {title} | {name} | {len(better)} | "
                    f"{len(worse)} | {open_} |"
                )
                if first == "k" and figure == "ause":
                    lines.append(
                        f"- {title}: by AUSE K ranks errors better than {SCORES[second]} on {_listed(better)}"
                        f" of {len(own)} sets, worse on {_listed(worse)}, and {open_} are undecided."
                    )
    return "\n".join([*lines, "", *table]) + "\n"


def _decided(rows: _Table, above: bool) -> list[str]:
    """Return the sets whose difference is above (or below) 0 after correction."""
    return [row["data"] for row in rows if row["adjusted"] < _LEVEL and (row["mean"] > 0) == above]


def _ranking_text(rows: _Table, method: str) -> str:
    """Return the table of all scores: Spearman / AUSE."""
    lines = [f"| data | {' | '.join(SCORES.values())} |", "|---|" + "---|" * len(SCORES)]
    own = some(rows, method=method)
    for data in dict.fromkeys(row["data"] for row in own):
        cells = []
        for score in SCORES:
            rank, area = (some(own, data=data, score=score, figure=f)[0] for f in ("spearman", "ause"))
            cells.append(f"{rank['mean']:.2f} / {area['mean']:.2f}")
        lines.append(f"| {data} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", "Spearman / AUSE; intervals are in `scores.csv` of the run."]) + "\n"


def _difference_text(rows: _Table, method: str) -> str:
    """Return the table of differences in AUSE, with intervals; a star where the sign is decided."""
    own = some(rows, method=method, figure="ause")
    heads = [f"{SCORES[first]} − {SCORES[second]}" for first, second in PAIRS]
    lines = [f"| data | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    for data in dict.fromkeys(row["data"] for row in own):
        cells = [_ends(some(own, data=data, first=a, second=b)[0]) for a, b in PAIRS]
        lines.append(f"| {data} | {' | '.join(cells)} |")
    note = "Differences in AUSE, below 0 where the first is better; * where p < 0.05 after correction."
    return "\n".join([*lines, "", note]) + "\n"


def _fit_text(rows: _Table) -> str:
    """Return the table of RMSE and NLL beside what is published."""
    heads = [f"{title}, {figure.upper()}" for figure in ("rmse", "nll") for title in _NAMES.values()]
    heads[2:2], heads[5:] = ["published, RMSE"], ["published, NLL"]
    lines = [f"| data | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    for data in dict.fromkeys(row["data"] for row in rows):
        cells = []
        for figure in ("rmse", "nll"):
            own = some(rows, data=data, figure=figure)
            cells += [f"{row['mean']:.3g} [{row['low']:.3g}, {row['high']:.3g}]" for row in own]
            known = own[0]["published"]
            cells.append("" if math.isnan(known) else f"{known:.3g}")
        lines.append(f"| {data} | {' | '.join(cells)} |")
    note = (
        "In the unit of the outcome; NLL in nats, of the mixture of the members. Published: MC dropout of "
        "Gal and Ghahramani (2016) on the same splits, with one noise level for all rows and a rate of "
        "dropout, both found by search; the rate here is the same for all sets."
    )
    return "\n".join([*lines, "", note]) + "\n"


def some(rows: _Table, **facts: Any) -> _Table:
    """Return the rows with these facts."""
    return [row for row in rows if all(row[name] == value for name, value in facts.items())]


def _listed(names: list[str]) -> str:
    """Write how many, and which."""
    return f"{len(names)} ({', '.join(names)})" if names else "0"


def _ends(row: Mapping[str, Any]) -> str:
    """Write a difference with its interval."""
    star = "*" if row["adjusted"] < _LEVEL else ""
    return f"{row['mean']:+.3f}{star} [{row['low']:.3f}, {row['high']:.3f}]"
