"""The section of the results page: sentences around the numbers of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from demur.reproduce.markdown import format_difference, format_interval, format_table
from demur.reproduce.records import Records, select_records
from demur.reproduce.results_page import write_tally
from demur.reproduce.studies.language.answers import DEPLOYED, ENSEMBLE, SAMPLED
from demur.reproduce.studies.language.config import EnsembleSettings, LanguageConfig
from demur.reproduce.studies.language.detection import PAIRS, TOKEN, judge_difference, list_units
from demur.reproduce.studies.language.promises import CONFIDENCE, DRAWS
from demur.reproduce.studies.language.specialists import NAME as SPECIALISTS
from demur.reproduce.studies.language.specialists_section import format_specialists
from demur.reproduce.studies.language.token_scores import name_score

VERSION = 2
"""Changes with any change of the code that changes tables, figures or text."""
_TALLIED = {"total": ("step|total", "step|entropy"), "epistemic": ("step|k", "step|i")}
"""What the summary of the page counts: the new measure against the current one."""
_SIDE_BY_SIDE = (
    "step|k", "step|i", "step|m", "step|total", "step|entropy", "step|nll", "alone|entropy", "alone|nll",
)  # fmt: skip
Tables = Mapping[str, Records]

_HEAD = """## Language models: {title}

```sh
{command}
```

**Texts.** From each file the first {number} texts of at least {characters} characters, cut there, and read
from their beginning. Which are of the training kind? A text is judged by the mean score of its first tokens,
and a token by its own score, pooled over the first {longest} of each text. Intervals are 95 %, over draws of
texts, also for tokens; differences are paired, and starred where they differ from 0 at 5 % for all
differences of an ensemble together (Holm). They are about other texts of these kinds, for these models.
*By sequence*: members count by how likely they found the tokens before. *Surprise*: minus the
log-probability of the token that came, whose mean is the logarithm of the perplexity.

{ensembles}

![{shown}](figures/results/{name}.png)
"""


def name_section(config: LanguageConfig) -> str:
    """Return the name of the section on the page, and of its pictures: one for each configuration."""
    return "language" if config.name == "kit" else f"language-{config.name}"


def compose_section(found: Tables, config: LanguageConfig, command: str) -> str:
    """Return the section."""
    shown = "AUROC by length of the prefix"
    shown += ", and accuracy of the answers kept" if "choices" in found else ""
    head = _HEAD.format(
        title=config.title, shown=shown, name=name_section(config), command=command,
        number=config.texts.number, characters=config.texts.characters,
        longest=max(config.texts.prefixes), ensembles="\n".join(_describe_ensembles(found, config)),
    )  # fmt: skip
    parts = [head, _format_pairs(found, config)]
    for name in _list_ensembles(config):
        parts.append(_format_detection(found, config, name))
    if config.specialists is not None:
        picture = f"{name_section(config)}-specialists.png"
        parts.append(format_specialists(found, config.specialists, picture))
    if "limits" in found:
        parts.append(_format_limits(found["limits"], config))
    if "choices" in found:
        parts.append(_format_choices(found, config))
    if "samples" in found:
        parts.append(_format_samples(found, config))
    return "\n".join([*parts, _count_tally(found)])


def list_findings(found: Tables, config: LanguageConfig) -> str:
    """Return what a terminal shows: AUROCs of the nearest set, and who is ahead."""
    lines = []
    for name in _list_ensembles(config):
        title = f"against the training kind, {config.ensembles[name].title}"
        own = select_records(found["detection"], ensemble=name)
        lines += _list_areas(own, title, config.texts.others, config.texts.prefixes)
    if config.specialists is not None:
        title, given = "against titles, by characters", config.specialists
        lines += _list_areas(found[f"{SPECIALISTS}-detection"], title, given.others, given.prefixes)
    for table, names in (("choices", ENSEMBLE), ("samples", SAMPLED)):
        if table in found:
            lines.append(f"AUROC for wrong answers: {table}")
            lines += [
                f"{row.get('ensemble', ''):24}{names[row['score']]:32}{row['auroc']:8.3f}"
                for row in found[table]
            ]
            lines.append("")
    return "\n".join(lines)


def _list_areas(rows: Records, title: str, others: Mapping[str, str], prefixes: list[int]) -> list[str]:
    """Return lines with the AUROCs of all scores on the nearest set."""
    nearest, units = next(iter(others)), list_units(prefixes)
    lines = [f"AUROC, {nearest} {title}", f"{'':24}" + "".join(f"{unit:>8}" for unit in units)]
    own = select_records(rows, set=nearest)
    for score in dict.fromkeys(row["score"] for row in own):
        cells = [select_records(own, score=score, unit=unit)[0]["auroc"] for unit in units]
        lines.append(f"{name_score(score):24}" + "".join(f"{cell:8.3f}" for cell in cells))
    return [*lines, ""]


def _list_ensembles(config: LanguageConfig) -> list[str]:
    return [name for name, each in config.ensembles.items() if not each.limits_only]


def _describe_ensembles(found: Tables, config: LanguageConfig) -> Iterator[str]:
    """Yield what each ensemble is, and how well it predicts each kind of text."""
    longest = str(max(config.texts.prefixes))
    for name in _list_ensembles(config):
        given = config.ensembles[name]
        own = select_records(found["detection"], ensemble=name, unit=longest)
        losses = {
            score: [select_records(own, score=score)[0]["mean_known"]]
            + [row["mean_other"] for row in select_records(own, score=score)]
            for score in ("step|nll", "sequence|nll", "alone|nll")
        }
        said = ", ".join(
            f"{title} {', '.join(f'{each:.2f}' for each in losses[score])}"
            for score, title in (
                ("step|nll", "average"), ("sequence|nll", "by sequence"), ("alone|nll", "first member alone"),
            )
        )  # fmt: skip
        sets = ", ".join(["training kind", *config.texts.others])
        yield f"- *{given.title}* ({_describe_members(given)}). Surprise in nats per token ({sets}): {said}."


def _describe_members(given: EnsembleSettings) -> str:
    if given.models:
        return ", ".join(each.rpartition("/")[2] for each in given.models)
    return (
        f"{given.members} networks of the shape of {given.like.rpartition('/')[2]}, each trained from new "
        f"weights for {given.steps:,} steps of {given.batch} contexts of {given.context} tokens"
    )


def _format_pairs(found: Tables, config: LanguageConfig) -> str:
    """Return how often the first of two scores is ahead, even and behind."""
    columns = {
        config.ensembles[name].title: select_records(found["differences"], ensemble=name)
        for name in _list_ensembles(config)
    }
    sets, units = len(config.texts.others), len(config.texts.prefixes) + 1
    note = (
        f"How often the first score is ahead, even and behind by AUROC, over {sets * units} tasks: {sets} "
        f"other kinds of text, {units - 1} lengths of prefixes and single tokens."
    )
    if config.specialists is not None:
        columns["specialists"] = found[f"{SPECIALISTS}-differences"]
        sets, units = len(config.specialists.others), len(config.specialists.prefixes) + 1
        note += f" Specialists: {sets * units} tasks, {sets} other kinds of text, {units} units each."
    table = []
    for first, second in PAIRS:
        cells = [f"{name_score(first)} against {name_score(second)}"]
        for rows in columns.values():
            judged = [judge_difference(row) for row in select_records(rows, first=first, second=second)]
            cells.append(", ".join(str(judged.count(each)) for each in ("ahead", "even", "behind")))
        table.append(cells)
    heads = ["scores", *columns]
    return "\n".join(["### Who is ahead\n", format_table(heads, table), "", note, ""])


def _format_detection(found: Tables, config: LanguageConfig, name: str) -> str:
    """Return the tables of an ensemble: all scores on the nearest set, and all sets."""
    units, nearest = list_units(config.texts.prefixes), next(iter(config.texts.others))
    own = select_records(found["detection"], ensemble=name)
    scores = list(dict.fromkeys(row["score"] for row in own))
    near = [
        [name_score(score), *(_write_area(own, nearest, score, unit) for unit in units)] for score in scores
    ]
    heads = [f"{nearest}, first tokens: {units[0]}", *units[1:-1], "single tokens"]
    shown = [(each, unit) for each in config.texts.others for unit in (units[min(1, len(units) - 2)], TOKEN)]
    others = [
        [each, unit, *(_write_area(own, each, score, unit, interval=False) for score in _SIDE_BY_SIDE)]
        for each, unit in shown
    ]
    gaps = select_records(found["differences"], ensemble=name)
    rows = []
    for each, unit in shown:
        cells = [each, unit]
        for first, second in (PAIRS[0], PAIRS[1], PAIRS[3], PAIRS[4]):
            (row,) = select_records(gaps, set=each, unit=unit, first=first, second=second)
            star = "" if judge_difference(row) == "even" else "*"
            cells.append(format_difference(row["difference"], row["low"], row["high"], mark=star))
        rows.append(cells)
    differences = [f"{name_score(a)} − {name_score(b)}" for a, b in (PAIRS[0], PAIRS[1], PAIRS[3], PAIRS[4])]
    return "\n\n".join([
        f"### Texts: {config.ensembles[name].title}", format_table(["score", *heads], near),
        format_table(["texts", "first tokens", *map(name_score, _SIDE_BY_SIDE)], others),
        format_table(["texts", "first tokens", *differences], rows), "",
    ])  # fmt: skip


def _write_area(rows: Records, each: str, score: str, unit: str, *, interval: bool = True) -> str:
    (row,) = select_records(rows, set=each, score=score, unit=unit)
    if not interval:
        return f"{row['auroc']:.3f}"
    return format_interval(row["auroc"], row["low"], row["high"])


def _format_limits(rows: Records, config: LanguageConfig) -> str:
    """Return what truncated lists certify."""
    table = [
        [
            f"{config.ensembles[row['ensemble']].title}, {row['vocabulary']:,} tokens", str(row["top"]),
            row["part"], f"{row['exact']:.3f}", f"{row['lower']:.3f}", f"{row['upper']:.3f}",
            f"{row['width']:.4f}", f"{row['decided']:.0%}", str(row["violated"]),
        ]
        for row in rows
    ]  # fmt: skip
    heads = [
        "members", "listed", "part", "exact", "lower", "upper", "width", "decided", "beyond the limits",
    ]  # fmt: skip
    note = (
        f"Medians over {rows[0]['tokens']:,} tokens, in nats. *Decided*: the share of tokens for which the "
        "limits tell whether the part is above its own median. K and M have no upper limit: a token that "
        "nobody lists may be impossible for one member and possible for another."
    )
    return "\n".join(["### What the likeliest tokens certify\n", format_table(heads, table), "", note, ""])


def _format_choices(found: Tables, config: LanguageConfig) -> str:
    """Return the tables of recorded options."""
    given = config.choices
    assert given is not None
    rows, gaps = found["choices"], found["choices-differences"]
    first = rows[0]["ensemble"]
    table, areas = [], []
    for name in dict.fromkeys(row["ensemble"] for row in rows):
        own = select_records(rows, ensemble=name)
        lead = [name, str(own[0]["members"]), f"{own[0]['accuracy']:.1%}"]
        table.append(lead + [_write_figure(own, gaps, name, "misclassification", s) for s in ENSEMBLE])
        areas.append(lead + [_write_figure(own, gaps, name, "selective", s) for s in ENSEMBLE])
    heads = ["members are", "number", "accuracy", *ENSEMBLE.values()]
    alone = []
    for name in dict.fromkeys(row["ensemble"] for row in found["deployed"]):
        own = select_records(found["deployed"], ensemble=name)
        alone.append(
            [name, f"{own[0]['accuracy']:.1%}"]
            + [_write_figure(own, gaps, name, "misclassification", score) for score in DEPLOYED]
        )
    promised = select_records(found["choices-promises"], ensemble=first)
    return "\n\n".join([
        f"### Recorded options: {given.title}",
        "Log-probabilities of the options from real large models; the answer is the likeliest option of the "
        "members' average. AUROC for wrong answers; every question has a text of its own. Starred: different "
        "from K's at 5 %, all comparisons of this part together (Holm).",
        format_table(heads, table), "Mean accuracy over all shares kept, most certain first:",
        format_table(heads, areas),
        "**One model answers, the others listen.** AUROC for the wrong answers of each model, by what it "
        "says itself, and by the other models: the paper's Eq. 3, with this model as the predictor and each "
        "of the models as the truth. Starred: different from its own entropy's.",
        format_table(["answers", "accuracy", *DEPLOYED.values()], alone),
        f"**Deferral with a promise**, {first}. " + _explain_promises(),
        _format_promises(promised, ENSEMBLE), "",
    ])  # fmt: skip


def _write_figure(rows: Records, gaps: Records, ensemble: str, task: str, score: str) -> str:
    """Return a figure with its interval, starred where it differs from that of the reference."""
    (row,) = select_records(rows, score=score)
    key = "auroc" if task == "misclassification" else "auc"
    compared = [gap for gap in gaps if (gap["task"], gap["second"]) == (task, score)]
    compared = [gap for gap in compared if gap.get("ensemble", "") == ensemble]
    star = "*" if compared and judge_difference(compared[0]) != "even" else ""
    return f"{row[key]:.3f}{star} [{row[f'{key}_low']:.3f}, {row[f'{key}_high']:.3f}]"


def _explain_promises() -> str:
    return (
        f"`Deferral.fit(accuracy=...)`, at a confidence of {CONFIDENCE:.0%}, on half as many questions as "
        f"there are, drawn with replacement, {DRAWS} times; all questions stand for the population, in which "
        "it is known whether the promise holds. *Promised*: how often some threshold could promise it. "
        "*Broken*: how often a promise was made that did not hold, which must be at most "
        f"{1 - CONFIDENCE:.0%}. *Kept*: share of the questions, with its 5th and 95th percentile."
    )


def _format_promises(rows: Records, names: Mapping[str, str]) -> str:
    """Return the table of promises."""
    table = []
    for row in rows:
        cells = [f"{row['accuracy']:.0%}", names[row["score"]], f"{row['promised']:.0%}"]
        if row["promised"]:
            cells += [
                f"{row['broken']:.1%}",
                f"{row['kept']:.1%} [{row['kept_least']:.1%}, {row['kept_most']:.1%}]",
                f"{row['right']:.1%}",
            ]  # fmt: skip
        else:
            cells += ["", "", ""]
        table.append(cells)
    return format_table(["accuracy", "score", "promised", "broken", "kept", "right of these"], table)


def _format_samples(found: Tables, config: LanguageConfig) -> str:
    """Return the tables of sampled answers."""
    given = config.samples
    assert given is not None
    rows = found["samples"]
    table = []
    for score, title in SAMPLED.items():
        gaps = found["samples-differences"]
        table.append(
            [title, *(_write_figure(rows, gaps, "", t, score) for t in ("misclassification", "selective"))]
        )
    return "\n\n".join([
        f"### Sampled answers: {given.title}",
        f"The first of the answers to each of {rows[0]['questions']:,} questions is given, and is right in "
        f"{rows[0]['accuracy']:.1%}; it is judged by the other ones. One model is one member, so that there "
        "is a total and no K. Starred: different from the entropy's.",
        format_table(["score", "AUROC for wrong answers", "mean accuracy over shares kept"], table),
        "**Deferral with a promise.** As above.",
        _format_promises(found["samples-promises"], SAMPLED), "",
    ])  # fmt: skip


def _count_tally(found: Tables) -> str:
    """Return how often the new measure is ahead of the current one, for the summary of the page."""
    counts = {}
    for part, (new, current) in _TALLIED.items():
        rows = [*found["differences"], *found.get(f"{SPECIALISTS}-differences", [])]
        judged = [judge_difference(row) for row in select_records(rows, first=new, second=current)]
        counts[part] = tuple(judged.count(each) for each in ("ahead", "even", "behind"))
    return write_tally(**counts)
