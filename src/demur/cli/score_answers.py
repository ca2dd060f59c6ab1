"""`demur score --logprobs`: scores of answers from the log-probabilities that services return."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from demur.cli.printing import (
    bad_input_exits,
    complain,
    count_things,
    format_number,
    new_table,
    print_object,
    print_summary,
    print_table,
    say,
)
from demur.cli.scored_files import refuse_to_replace

if TYPE_CHECKING:
    from demur.scoring.score_table import ScoreTable
    from demur.sequences.answer_scores import AnswerScores

_MEASURES = ("pairwise", "average", "reverse")
_LONGEST_TEXT = 60  # letters of an answer in a table


def score_answer_files(
    files: list[str],
    service: str | None,
    *,
    others: list[str],
    vocabulary: int | None,
    tokens: bool,
    id_field: str | None,
    keep: list[str],
    measures: list[str] | None,
    base: float | None,
    rounding: str | None,
    top: int | None,
    out: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Score the answers in files, and print or write the scores."""
    with bad_input_exits():
        from demur.scoring.saved_scores import write_scores
        from demur.sequences.answer_records import SERVICES
        from demur.stores import check_output

        if service not in SERVICES:
            known, came = " or ".join(SERVICES), service or "none"
            raise ValueError(f"--logprobs: expected {known}, got {came}: say who returned them")
        if others:
            raise ValueError(f"expected --logprobs without {others[0]}, which is for other files")
        beside = None if out is None or not tokens else out.with_name(f"tokens-{out.name}")
        for path in (out, beside):
            if path is not None:
                check_output(path, force=force)
        options: dict[str, Any] = {
            "measures": tuple(measures or _MEASURES),
            "vocabulary": vocabulary,
            "base": base,
            "rounding": _parse_width(rounding),
            "keep": keep,
            "per_token": tokens,
        }
        found, members = _score(files, service, id_field or "id", out, beside, options)
        scores = _make_table(found, options["measures"], len(members))
        facts = _describe(scores, files, service, options)
        if beside is not None and found.token_columns is not None:
            write_scores(beside, found.token_columns, facts, force=force)
        if out is not None:
            write_scores(out, scores.columns, facts, force=force)
    _complain_about(scores, members)
    if as_json:
        _print_json(scores, found, facts, out, beside)
        return
    if out is None:
        print_summary(scores, facts["unit"])
    else:
        more = f", and of their tokens to {beside}" if beside is not None else ""
        say(f"Wrote the scores of {count_things(scores.inputs, 'answer')} to {out}{more}")
    if top is not None or (tokens and out is None):
        _print_top(scores, found, top or 10, facts["unit"])
    say(_explain_limits(scores.measures, vocabulary))


def _score(
    files: list[str],
    service: str,
    id_field: str,
    out: Path | None,
    beside: Path | None,
    options: dict[str, Any],
) -> tuple[AnswerScores, list[str]]:
    """Return the scores of answers in files and the names of their members; show progress."""
    from demur.progress import progress_bar
    from demur.sequences.answer_records import Service
    from demur.sequences.answer_scores import score_answers
    from demur.stores import AnswerFiles, StoreError, find_files

    named = find_files(files)
    for path, name in named:
        if name is not None:
            raise StoreError(f"{path}: expected a file of answers, JSON Lines, got {path}:{name}")
    paths = [path for path, _ in named]
    for target in (out, beside):
        refuse_to_replace([path for path in paths if path.exists()], target)
    size = sum(path.stat().st_size for path in paths if path.exists())
    with progress_bar(size, "bytes") as progress:
        answers = AnswerFiles(paths, id_field=id_field, progress=progress)
    with answers, progress_bar(len(answers), "answers") as progress:
        return score_answers(answers, cast("Service", service), progress=progress, **options), answers.members


def _make_table(found: AnswerScores, measures: tuple[str, ...], members: int) -> ScoreTable:
    from demur.measures import canonical_name
    from demur.scoring.score_table import ScoreTable

    return ScoreTable(found.columns, tuple(map(canonical_name, measures)), members, 0, outcome="answers")


def _describe(scores: ScoreTable, files: list[str], service: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return what the JSON object says about a run besides the scores."""
    from demur.measures import name_unit

    return {
        "inputs": scores.inputs,
        "members": scores.members,
        "files": files,
        "kind": "logprobs",
        "service": service,
        "vocabulary": options["vocabulary"],
        "rule": "log",
        "unit": f"{name_unit('log', options['base'])} per token",
        "limits": "lower",
        "summary": scores.summary(),
    } | ({"failed": int(scores.failed.sum())} if scores.failed.any() else {})


def _complain_about(scores: ScoreTable, members: list[str]) -> None:
    """Say what was scored by fewer members than others, or not at all."""
    found = scores.columns["members"]
    if scores.failed.any():
        complain(
            f"no log-probabilities for {scores.failed.sum()} of {count_things(scores.inputs, 'answer')}: "
            "kept in the table, marked in the column status, and left out of the summary"
        )
    if len(members) == 1:
        complain("one member: a single member cannot disagree, so the epistemic parts are 0")
    elif (found < len(members)).any():
        fewer = int((found < len(members)).sum())
        complain(
            f"{fewer} of {count_things(scores.inputs, 'answer')} have records of fewer than all "
            f"{len(members)} members: the column members says how many"
        )


def _explain_limits(measures: tuple[str, ...], vocabulary: int | None) -> str:
    """Return what the numbers are limits of."""
    lines = "Scores are lower limits: the least that fits the lists of likeliest tokens."
    if "average" in measures:
        lines += " Columns that end in _upper are upper limits."
        lines += "" if vocabulary else " Those of entropies are infinite without --vocabulary."
    if set(measures) & {"pairwise", "reverse"}:
        lines += (
            " K and M have no upper limit: a token that no list names may be impossible for one member and "
            "possible for another."
        )
    return lines


def _print_top(scores: ScoreTable, found: AnswerScores, count: int, unit: str) -> None:
    """Print the most uncertain answers, with their most doubtful token where tokens were scored."""
    first, *others = scores.measures
    names = [f"{first}_{part}" for part in ("total", "aleatoric", "epistemic")]
    names += [f"{measure}_epistemic" for measure in others]
    worst = _find_worst_tokens(found, scores.ranking)
    texts = ["id", "answer", *(["worst token"] if worst else [])]
    table = new_table(*texts, *(name.replace("_", "\n") for name in names), texts=len(texts))
    chosen = scores.top(count)
    for index in chosen.tolist():
        cells = [_cut(scores.columns["id"][index], 24), _cut(scores.columns["text"][index], _LONGEST_TEXT)]
        cells += [_cut(worst[index], 20)] if worst else []
        table.add_row(*cells, *(format_number(scores.columns[name][index]) for name in names))
    what = "most uncertain answer" if len(chosen) == 1 else f"{len(chosen)} most uncertain answers"
    print_table(f"The {what}, by {scores.ranking}, in {unit}", table)


def _find_worst_tokens(found: AnswerScores, name: str) -> dict[int, str]:
    """Return the token of each answer with the highest score."""
    if found.token_columns is None:
        return {}
    best: dict[int, tuple[float, str]] = {}
    columns = (found.token_columns[each] for each in ("input", "token", name))
    for row, token, value in zip(*columns, strict=True):
        if int(row) not in best or value > best[int(row)][0]:
            best[int(row)] = float(value), str(token)
    return {row: token for row, (_, token) in best.items()}


def _cut(text: Any, longest: int) -> str:
    """Return text on one line, cut to a number of letters."""
    line = " ".join(str(text).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _parse_width(text: str | None) -> float:
    """Return how far sums of probabilities may be off."""
    if text is None:
        return 1e-6
    try:
        return float(text)
    except ValueError:
        raise ValueError(
            f"--rounding: expected how far sums of listed probabilities may be off, as 1e-3, got {text!r}"
        ) from None


def _print_json(
    scores: ScoreTable, found: AnswerScores, facts: dict[str, Any], out: Path | None, beside: Path | None
) -> None:
    """Print one JSON object; the scores are in it unless they are in a file."""
    from demur.stores import json_columns

    if out is not None:
        files = {"out": str(out)} | ({} if beside is None else {"tokens": str(beside)})
        print_object(facts | files)
        return
    rest: dict[str, Any] = {"scores": json_columns(scores.columns)}
    if found.token_columns is not None:
        rest["tokens"] = json_columns(found.token_columns)
    print_object(facts | rest)
