"""`demur monitor`: watch the promise of a policy in service, from log files; made for cron."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from demur.cli.method_files import DEFAULT_SCORE
from demur.cli.monitor_drift import load_drift, remove_other_drift, save_drift
from demur.cli.options import Confidence, Json
from demur.cli.printing import bad_input_exits, complain, count_things, print_object, say

if TYPE_CHECKING:
    import numpy as np

    from demur.monitoring import Drift, Monitor
    from demur.monitoring.advice import Recommendation

app = typer.Typer(
    help="Watch whether a policy's promise still holds, from a few audited inputs. Exit code 3 is an alarm."
)

ALARM = 3
"""Exit code of an alarm."""

_Folder = Annotated[
    Path, typer.Argument(metavar="DIR", show_default=False, help="The folder that the monitor lives in.")
]


@app.command()
def start(
    folder: _Folder,
    policy: Annotated[
        Path, typer.Option(metavar="FILE", show_default=False, help="The policy that defer fit wrote.")
    ],
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", show_default=False, help="Which policy of a file of several, as accuracy=0.95."
        ),
    ] = None,
    audit: Annotated[
        float, typer.Option(metavar="SHARE", help="The probability that a kept input is audited.")
    ] = 0.1,
    confidence: Confidence = 0.95,
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="The scores that the policy was fitted on: then drift is watched, too, without labels.",
        ),
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            show_default=False,
            help="The score in --calibration, as for observe. Default: that of the policy.",
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            show_default=False,
            help="A column of numbers to watch for drift, besides the score. Repeat it for several.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the audits: another one on each server.")] = 0,
) -> None:
    """Start a monitor in a new folder.

    demur monitor start watch --policy policy.json --calibration calibration.csv
    """
    with bad_input_exits():
        from demur.cli.defer import read_policy
        from demur.monitoring import Drift, Monitor
        from demur.stores import pick_numbers, read_log

        rule = read_policy(policy, target)
        if (folder / "monitor.json").exists():
            raise ValueError(f"{folder}: expected a new folder, got one with a monitor: choose another name")
        columns = None
        if calibration is not None:
            found = read_log(calibration)
            names = dict.fromkeys([score or rule.score or DEFAULT_SCORE, *(column or ())])
            columns = {name: pick_numbers(found, name, calibration) for name in names}
        elif column:
            raise ValueError("expected --calibration FILE with --column, got none: drift is measured from it")
        options: dict[str, Any] = {"confidence": confidence, "audit": audit, "seed": seed}
        Monitor(rule, **options)  # Refuses bad options before anything is written.
        if columns is not None:
            # Before the monitor: a kill in between leaves a folder to start in, and not one without drift.
            drift = Drift(columns, confidence=confidence, seed=seed)
            folder.mkdir(parents=True, exist_ok=True)
            save_drift(folder, drift, 0)
        Monitor.open(folder, rule, **options).close()
    say(rule.promise())
    if rule.clusters is not None:
        say("Give it one input of each cluster, drawn at random: errors within a cluster raise false alarms.")
    say(f"Audits each kept input with probability {audit:g}.")
    say(
        f"If the promise holds, the probability that an alarm is ever raised is at most {1 - confidence:.4g}."
    )
    say(f"Started in {folder}")


@app.command()
def observe(
    folder: _Folder,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            show_default=False,
            help="Logs in .csv, .parquet or .jsonl with a column id. With the score they are new inputs; "
            "without it, labels that came later: correct, or label and prediction.",
        ),
    ],
    score: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", show_default=False, help="The score. Default: that of the policy."),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", show_default=False, help="Column of group names, if the policy has any."
        ),
    ] = None,
    to_audit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", show_default=False, help="Write the ids that are audited and have no label yet."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing --to-audit file.")] = False,
    json: Json = False,
) -> None:
    """Take new inputs, and labels of earlier ones; exit with 3 on an alarm.

    An input that was observed before is not counted again, so a file may be given twice.

    demur monitor observe watch today.csv --to-audit audit.csv
    """
    with bad_input_exits():
        from demur.monitoring import Monitor
        from demur.stores import check_output, read_log

        if to_audit is not None:
            check_output(to_audit, force=force)
        logs = [(path, read_log(path)) for path in files]
        with Monitor.open(folder) as monitor:
            remove_other_drift(folder, _count_observed(monitor))
            drift = load_drift(folder, _count_observed(monitor))
            for path, columns in logs:
                _take_log(folder, monitor, drift, path, columns, score, groups)
            missing = monitor.list_missing()
        if to_audit is not None:
            _write_ids(to_audit, missing, force=force)
    _print(monitor, drift, json=json, asked=len(missing) if to_audit is not None else None, out=to_audit)


@app.command()
def status(folder: _Folder, json: Json = False) -> None:
    """Print what was found, and what to do; exit with 3 on an alarm.

    demur monitor status watch
    """
    with bad_input_exits():
        monitor, drift = _open(folder)
    _print(monitor, drift, json=json)


@app.command()
def report(
    folder: _Folder,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", show_default=False, help="Where to write the page. Default: DIR/report.html."
        ),
    ] = None,
) -> None:
    """Write a page: evidence over time, the risk with its band, audits, and drift by column.

    demur monitor report watch
    """
    with bad_input_exits():
        from demur.cli.report import check_target
        from demur.report.monitor_page import write_monitor_page

        target = check_target(out or folder / "report.html", folder)
        monitor, drift = _open(folder)
        write_monitor_page(monitor, drift, target)
    say(target)


def _open(folder: Path) -> tuple[Monitor, Drift | None]:
    """Return a monitor to look at, and drift where it is watched."""
    from demur.monitoring import Monitor

    with Monitor.open(folder) as monitor:
        return monitor, load_drift(folder, _count_observed(monitor))


def _count_observed(monitor: Monitor) -> int:
    """Return how many inputs were observed in this folder, without those of merged monitors."""
    return monitor.streams[0].observed


def _take_log(
    folder: Path,
    monitor: Monitor,
    drift: Drift | None,
    path: Path,
    columns: dict[str, np.ndarray],
    score: str | None,
    groups: str | None,
) -> None:
    """Observe the inputs of a log, or take its labels."""
    import numpy as np

    from demur.stores import pick_column, pick_numbers

    ids = pick_column(columns, "id", path).astype(str)
    correct = _read_correct(path, columns)
    name = score or str(monitor.policy.score or DEFAULT_SCORE)
    if name not in columns and correct is not None:
        known = np.array([monitor.is_audited(each) for each in ids])
        if not known.all():
            complain(
                f"{path}: ignored {count_things(int((~known).sum()), 'label')} of inputs not audited "
                f"(without a column {name}, it holds labels)"
            )
        if known.any():
            monitor.label(ids[known], correct[known])
        return
    values = pick_numbers(columns, name, path)
    names = None if groups is None else pick_column(columns, groups, path)
    new = np.array([not monitor.has_seen(each) for each in ids])
    new &= np.isin(np.arange(len(ids)), np.unique(ids, return_index=True)[1])  # the first of equal ids
    if drift is not None and new.any():
        drift.observe({each: pick_numbers(columns, each, path)[new] for each in drift.names})
        save_drift(folder, drift, _count_observed(monitor) + int(new.sum()))
    monitor.observe(values, correct, ids=ids, groups=names)
    remove_other_drift(folder, _count_observed(monitor))


def _read_correct(path: Path, columns: dict[str, np.ndarray]) -> np.ndarray | None:
    """Return 1 for right, 0 for wrong, nan for unknown; None where the log tells nothing of it."""
    import numpy as np

    from demur.stores import parse_correct

    if "correct" in columns:
        return parse_correct(columns["correct"], path)
    if "label" in columns and "prediction" in columns:
        from demur.stores import find_unlabelled, parse_cells

        label, prediction = columns["label"], columns["prediction"]
        known = label != "" if label.dtype.kind == "U" else ~find_unlabelled(label)
        # Beside empty cells, numbers were read as text, and pandas writes the class 2 as 2.0 there.
        sides = [each[known] for each in (label, prediction)]
        sides = [parse_cells(each.tolist()) if each.dtype.kind == "U" else each for each in sides]
        if "U" in (sides[0].dtype.kind, sides[1].dtype.kind):
            sides = [each.astype(str) for each in sides]
        found = np.full(len(label), math.nan)
        found[known] = sides[0] == sides[1]
        return found
    return None


def _write_ids(path: Path, ids: list[str], *, force: bool) -> None:
    """Write the inputs to audit; an empty file of one heading where there are none."""
    import numpy as np

    from demur import atomic
    from demur.stores import write_columns

    if ids:
        write_columns(path, {"id": np.array(ids)}, force=force)
    else:
        atomic.write_text(path, "id\n")


def _print(
    monitor: Monitor,
    drift: Drift | None,
    *,
    json: bool,
    asked: int | None = None,
    out: Path | None = None,
) -> None:
    """Print what was found, and exit with 3 on an alarm."""
    found, advice = monitor.status, _advise(monitor)
    drifts = None if drift is None else drift.status
    if json:
        print_object(_describe(monitor) | ({} if drifts is None else {"drift": _describe_drift(drifts)}))
    else:
        say(found)
        if drifts is not None:
            say(drifts)
        if found.alarm and advice is not None:
            say(advice)
        if asked is not None:
            say(f"Wrote {count_things(asked, 'id')} to audit to {out}")
    if found.alarm:
        raise typer.Exit(ALARM)


def _advise(monitor: Monitor) -> Recommendation | None:
    """Return what to do; None for several servers, each of which has advice of its own."""
    return monitor.recommend() if len(monitor.streams) == 1 else None


def _describe(monitor: Monitor) -> dict[str, Any]:
    """Return what was found as JSON can hold it."""
    found, advice = monitor.status, _advise(monitor)
    return {
        "alarm": found.alarm,
        "alarm_at": found.alarm_at,
        "since": found.since,
        "observed": found.observed,
        "kept": found.kept,
        "audited": found.audited,
        "missing": found.missing,
        "capital": found.capital,
        "risk": _plain(found.risk.to_dict()),
        "groups": {
            name: {
                "alarm": group.alarm,
                "accuracy": group.accuracy,
                "capital": group.capital,
                "needed": group.needed,
                "risk": _plain(group.risk.to_dict()),
                "kept": group.kept,
                "audited": group.audited,
                "missing": group.missing,
            }
            for name, group in found.groups.items()
        },
        "recommend": None if advice is None else {"action": advice.action, "text": advice.text},
    }


def _describe_drift(found: Any) -> dict[str, Any]:
    return {
        name: {
            "alarm": column.alarm,
            "alarm_at": column.alarm_at,
            "since": column.since,
            "capital": column.capital,
            "auroc": None if column.auroc is None else _plain(column.auroc.to_dict()),
            "distance": column.distance,
        }
        for name, column in found.columns.items()
    }


def _plain(values: dict[str, float]) -> dict[str, float | None]:
    return {name: None if math.isnan(value) else value for name, value in values.items()}
