"""The section of the results page: sentences around the numbers of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from demur.reproduce.data.uci import UciDataset
from demur.reproduce.markdown import format_difference, format_table
from demur.reproduce.records import Records, select_records
from demur.reproduce.studies.regression.networks import METHODS
from demur.reproduce.studies.regression.ranking import SCORES
from demur.reproduce.studies.regression.tables import PAIRS

VERSION = 1
"""Changes with any change of the code that changes tables, figures or text."""
_METHOD_TITLES = {"deep-ensemble": "deep ensemble", "mc-dropout": "MC dropout"}
_SIGNIFICANCE = 0.05

_HEAD = """## Regression: which score ranks errors

```sh
demur reproduce regression --data DIR --out DIR
```

Does K rank the errors of predicted numbers better than mutual information I, or than the variances of the law
of total variance? {sets} UCI data sets with their published splits, {splits} splits in all. Networks have one
hidden layer of 50 units and a Gaussian head. A deep ensemble has {ensemble} of them, MC dropout {dropout}
masks of one, at a rate of {rate:g}. Each network is taken at the step with the
lowest loss on a held-out tenth of the training rows.
K and I are `demur.decompose` and `demur.information`, variances `demur.variance`.

Two figures for each score: Spearman's correlation with the absolute error, where higher is better, and the
area between its sparsification curve and the oracle's (AUSE, as a share of the RMSE of all rows), where lower
is better. Each is a mean over splits. Splits of one data set share training rows, for which the 95 %
intervals and the tests correct approximately (Nadeau and Bengio, 2003). P-values are corrected for all data
sets of a question (Holm).

K and I measure disagreement relative to the noise that members predict: where the noise is large, and errors
with it, the same disagreement counts less. Variances are in the units of the outcome, as errors are.

![Sparsification curves of the deep ensemble](figures/results/regression-sparsification.png)

Deep ensemble, mean over splits.
"""


def compose_section(found: Mapping[str, Records], sets: Mapping[str, UciDataset]) -> str:
    """Return the section."""
    head = _HEAD.format(
        sets=len(sets), splits=sum(len(rows.test) for rows in sets.values()),
        ensemble=METHODS["deep-ensemble"].members, dropout=METHODS["mc-dropout"].members,
        rate=METHODS["mc-dropout"].dropout,
    )  # fmt: skip
    parts = [head, "### Findings\n", _summarise_differences(found["differences"])]
    for method, title in _METHOD_TITLES.items():
        parts += [f"### {title[0].upper()}{title[1:]}\n", _format_rankings(found["scores"], method)]
        parts.append(_format_differences(found["differences"], method))
    parts += ["### How well the networks predict\n", _format_fits(found["fits"])]
    return "\n".join(parts)


def _summarise_differences(rows: Records) -> str:
    """Return sentences on K, and a table of how often each score is better, worse or undecided."""
    lines, table = [], []
    for first, second in PAIRS:
        for method, title in _METHOD_TITLES.items():
            for figure, name in (("spearman", "Spearman"), ("ause", "AUSE")):
                own = select_records(rows, first=first, second=second, method=method, figure=figure)
                better, worse = _list_decided(own, figure == "spearman"), _list_decided(own, figure == "ause")
                open_ = len(own) - len(better) - len(worse)
                counts = [str(number) for number in (len(better), len(worse), open_)]
                table.append([f"{SCORES[first]} against {SCORES[second]}", title, name, *counts])
                if first == "k" and figure == "ause":
                    lines.append(
                        f"- {title}: by AUSE K ranks errors better than {SCORES[second]} on "
                        f"{_count_names(better)} of {len(own)} data sets, worse on "
                        f"{_count_names(worse)}, and {open_} are undecided."
                    )
    head = ["comparison", "posterior", "figure", "better", "worse", "undecided"]
    return "\n".join([*lines, "", format_table(head, table)]) + "\n"


def _list_decided(rows: Records, above: bool) -> list[str]:
    """Return the data sets whose difference is above (or below) 0 after correction."""
    return [row["data"] for row in rows if row["adjusted"] < _SIGNIFICANCE and (row["mean"] > 0) == above]


def _format_rankings(rows: Records, method: str) -> str:
    """Return the table of all scores: Spearman / AUSE."""
    table = []
    own = select_records(rows, method=method)
    for data in dict.fromkeys(row["data"] for row in own):
        cells = [data]
        for score in SCORES:
            rank, area = (
                select_records(own, data=data, score=score, figure=f)[0] for f in ("spearman", "ause")
            )
            cells.append(f"{rank['mean']:.2f} / {area['mean']:.2f}")
        table.append(cells)
    head = ["data", *SCORES.values()]
    return (
        "\n".join(
            [format_table(head, table), "", "Spearman / AUSE; intervals are in `scores.csv` of the run."]
        )
        + "\n"
    )


def _format_differences(rows: Records, method: str) -> str:
    """Return the table of differences in AUSE, with intervals; a star where the sign is decided."""
    own = select_records(rows, method=method, figure="ause")
    heads = [f"{SCORES[first]} − {SCORES[second]}" for first, second in PAIRS]
    table = [
        [data, *(_format_row(select_records(own, data=data, first=a, second=b)[0]) for a, b in PAIRS)]
        for data in dict.fromkeys(row["data"] for row in own)
    ]
    note = "Differences in AUSE, below 0 where the first is better; * where p < 0.05 after correction."
    return "\n".join([format_table(["data", *heads], table), "", note]) + "\n"


def _format_fits(rows: Records) -> str:
    """Return the table of RMSE and NLL beside what is published."""
    heads = [f"{title}, {figure.upper()}" for figure in ("rmse", "nll") for title in _METHOD_TITLES.values()]
    heads[2:2], heads[5:] = ["published, RMSE"], ["published, NLL"]
    table = []
    for data in dict.fromkeys(row["data"] for row in rows):
        cells = [data]
        for figure in ("rmse", "nll"):
            own = select_records(rows, data=data, figure=figure)
            cells += [f"{row['mean']:.3g} [{row['low']:.3g}, {row['high']:.3g}]" for row in own]
            known = own[0]["published"]
            cells.append("" if math.isnan(known) else f"{known:.3g}")
        table.append(cells)
    note = (
        "RMSE in the units of the outcome; NLL in nats, of the mixture of the members. Published: MC dropout "
        "of Gal and Ghahramani (2016) on the same splits, with one noise level for all rows and a dropout "
        "rate, both tuned; the rate here is the same for all data sets."
    )
    return "\n".join([format_table(["data", *heads], table), "", note]) + "\n"


def _count_names(names: list[str]) -> str:
    """Return the number of names, with the names."""
    return f"{len(names)} ({', '.join(names)})" if names else "0"


def _format_row(row: Mapping[str, Any]) -> str:
    """Return a difference with its interval; a star if its sign is decided."""
    star = "*" if row["adjusted"] < _SIGNIFICANCE else ""
    return format_difference(row["mean"], row["low"], row["high"], mark=star)
