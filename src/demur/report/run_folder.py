"""The folder of a run: scores by method and set, with labels, images and members where they are there.

    DIR/run.json                  title, command, training, methods, seed, versions, classes, sets and sources
    DIR/images/SET.npy            thumbnails, uint8 (inputs, height, width) or (inputs, height, width, 3)
    DIR/METHOD/SET.csv            scores, also .parquet, .npz, .json or .zarr
    DIR/METHOD/members-SET.npy    log-probabilities (members, inputs, classes)
    DIR/METHOD/tokens-SET.csv     scores of the tokens of answers, in any of these formats
    DIR/METHOD/maps-SET.zarr      maps of scores (inputs, height, width), as demur.score(maps=) writes them

SET is `id`, `ood-NAME` or `adversarial-NAME`. Score files directly in DIR are those of one method without
a name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from demur.reading import read_array_header, read_json
from demur.report.answers import AnswerTokens, read_tokens
from demur.report.row_parts import find_ids, split_tasks
from demur.report.run_sets import MethodScores, Run, SetScores, kind_of
from demur.report.score_names import EQUAL_COLUMNS, SCORE_NAMES
from demur.stores import (
    COLUMN_SUFFIXES,
    StoreError,
    natural_key,
    open_binary,
    open_maps,
    parse_correct,
    pick_column,
    pick_numbers,
    read_columns,
)
from demur.stores.errors import EmptyError
from demur.stores.mapped_arrays import FileArray
from demur.stores.zarr_arrays import ZarrColumn

_OTHER_COLUMNS = (
    "input",
    "id",
    "label",
    "correct",
    "prediction",
    "deployed",
    "members",
    "accuracy",
    "missing",
)
_SET_KINDS = ("id", "ood", "adversarial")


def _order_of(name: str) -> tuple[int, Any]:
    """Return a sort key: in-distribution inputs first, then by kind and name."""
    return _SET_KINDS.index(name.partition("-")[0]), natural_key(name)


def read_run(path: Path, *, task: str | None = None, clusters: str | None = None) -> Run:
    """Read a folder; a `StoreError` of one line says what is wrong with it.

    Parameters
    ----------
    path
        The folder.
    task
        The only task that is wanted of scores that have several; None: each.
    clusters
        The column that says which inputs belong together; None: each stands alone.
    """
    if not path.is_dir():
        came = "a file" if path.exists() else "nothing"
        raise StoreError(f"{path}: expected the folder of a run, got {came}: check the path")
    methods = _read_method("", path, task, clusters) if score_files(path) else []
    alone = len(methods)
    for folder in sorted(
        (each for each in path.iterdir() if each.is_dir()), key=lambda f: natural_key(f.name)
    ):
        if folder.name != "images" and not folder.name.startswith(".") and score_files(folder):
            methods += _read_method(folder.name, folder, task, clusters)
    if not methods:
        raise StoreError(
            f"{path}: expected scores, as id.csv and ood-NAME.csv, in it or in a folder for each method, "
            "found none: write them with demur score --out"
        )
    if alone and len(methods) > alone:
        raise StoreError(
            f"{path}: expected scores in it or in folders for each method, got both: move "
            f"{score_files(path)[0].name} to a folder"
        )
    sets = sorted({name for method in methods for name in method.sets}, key=_order_of)
    _check_alike(methods, sets)
    scores = _common_scores(methods)
    images = {name: _read_images(path, name, methods[0].sets[name]) for name in sets}
    facts: dict[str, Any] = _read_facts(path) | {"clusters": clusters or ""}
    return Run(path, methods, sets, scores, {k: v for k, v in images.items() if v is not None}, **facts)


def score_files(folder: Path) -> list[Path]:
    """Return the files of a folder that hold scores."""
    # Pipes and devices too: reading them says what is wrong, where leaving them out would say nothing.
    found = (
        f
        for f in folder.iterdir()
        if f.suffix.lower() in COLUMN_SUFFIXES
        and kind_of(f.stem)
        and (f.suffix.lower() == ".zarr" or not f.is_dir())
    )
    return sorted(found, key=lambda f: _order_of(f.stem))


def _read_method(name: str, folder: Path, wanted: str | None, clusters: str | None) -> list[MethodScores]:
    """Return scores and members of a method, by set; each task as a method of its own, or the wanted one."""
    tasks: dict[str, dict[str, SetScores]] = {}
    members: dict[str, np.ndarray] = {}
    tokens: dict[str, AnswerTokens] = {}
    maps = {}
    seen: dict[str, Path] = {}
    for file in score_files(folder):
        if file.stem in seen:
            other = seen[file.stem].name
            raise StoreError(f"{file}: expected one file of scores for a set, got {other} too: remove one")
        seen[file.stem] = file
        columns = read_columns(file)
        parts = split_tasks(columns)
        if wanted is not None and wanted not in parts:
            known = ", ".join(parts) if "task" in columns else "no column task"
            raise StoreError(f"{file}: expected the task {wanted}, got {known}: check --task")
        for task, own in parts.items():
            if wanted in (None, task):
                tasks.setdefault(task, {})[file.stem] = _read_scored(file, own, clusters)
        found = folder / f"members-{file.stem}.npy"
        if found.exists() and "task" not in columns:
            members[file.stem] = _read_members(found, tasks[""][file.stem])
        of_answers = read_tokens(folder, file.stem, len(next(iter(columns.values()))))
        if of_answers is not None:
            tokens[file.stem] = of_answers
        pixels = folder / f"maps-{file.stem}.zarr"
        if pixels.exists() and "task" not in columns:
            maps[file.stem] = _open_maps(pixels, tasks[""][file.stem])
    return [
        MethodScores(f"{name} {task}".strip(), sets, members, task, tokens, maps)
        if wanted is None
        else MethodScores(name, sets, members, tokens=tokens, maps=maps)
        for task, sets in tasks.items()
    ]


def _read_scored(path: Path, whole: dict[str, np.ndarray], clusters: str | None) -> SetScores:
    """Return the scores of a set, checked, without inputs that have no prediction."""
    rows = np.ones(len(next(iter(whole.values()))), bool)
    if "status" in whole:
        rows = whole["status"] == "ok"
    if not rows.any():
        raise StoreError(f"{path}: expected inputs with a prediction, got none: score others")
    columns = {name: values[rows] for name, values in whole.items()}
    scores = {}
    for name, values in columns.items():
        if (
            name in (*_OTHER_COLUMNS, clusters)
            or name.endswith(("_stderr", "_upper"))
            or name.startswith("prediction_")
        ):
            continue
        if name in SCORE_NAMES or name in EQUAL_COLUMNS or name == "reference":
            pick_numbers(columns, name, path)  # one bad cell makes text of a column
        if values.dtype.kind == "f" or name == "reference":
            missing = np.isnan(values)
            if missing.any():
                raise StoreError(
                    f"{path}: expected numbers in {name}, got NaN for {missing.sum()} of {len(values)} "
                    f"inputs, first at input {missing.argmax()}: leave these inputs out"
                )
            scores[name] = values.astype(np.float64)
    reference = scores.pop("reference", None)
    if not scores:
        raise StoreError(
            f"{path}: expected columns of scores, as pairwise_epistemic, got {', '.join(columns) or 'none'}: "
            "write it with demur score --out"
        )
    label, prediction = (_as_classes(columns.get(name)) for name in ("label", "prediction"))
    numbers = {"label", "prediction"} <= set(columns) and prediction is None
    if label is not None and label.dtype.kind == "U":
        prediction = columns.get("prediction_name", prediction)
    kinds = {column.dtype.kind == "U" for column in (label, prediction) if column is not None}
    if len(kinds) == 2:
        raise StoreError(
            f"{path}: expected label and prediction both as numbers or both as names of classes, "
            "got one of each"
        )
    inputs = None if rows.all() else np.flatnonzero(rows)
    ids = find_ids(columns, inputs)
    unit = str(columns["unit"][0]) if "unit" in columns else ""
    together = None if clusters is None else pick_column(columns, clusters, path)
    left_out = len(rows) - int(rows.sum())
    texts = columns["text"].astype(str) if "text" in columns else None
    marked = _read_marks(path, columns) if label is None and "correct" in columns else None
    return SetScores(
        path, scores, label, prediction, ids, inputs, left_out, numbers, unit, together, reference,
        marked, texts,
    )  # fmt: skip


def _read_marks(path: Path, columns: dict[str, np.ndarray]) -> np.ndarray:
    """Return which answers are right, as the column correct says with 0 and 1."""
    marks = parse_correct(columns["correct"], path)
    if np.isnan(marks).any():
        row = int(np.isnan(marks).argmax())
        raise StoreError(f"{path}: expected true or false in correct for each input, got none at input {row}")
    return marks.astype(bool)


def _as_classes(values: np.ndarray | None) -> np.ndarray | None:
    """Return a column as classes; None where it has other numbers, as those of a regression."""
    if values is None or values.dtype.kind in "iuU":
        return values
    if values.dtype.kind == "f" and np.all(values == np.rint(values)) and np.all(np.isfinite(values)):
        return values.astype(np.int64)
    return None


def _read_array(path: Path, expected: str) -> np.ndarray:
    """Map an array; nothing that would run code."""
    with open_binary(path) as file:
        try:
            shape, fortran, dtype = read_array_header(file)
            return FileArray(str(path), path, shape, dtype, fortran, file.tell()).map()
        except EmptyError as error:
            raise StoreError(f"{path}: expected {expected}, got an array without numbers") from error
        except ValueError as error:
            why = str(error).removeprefix(f"{path}: ")
            raise StoreError(f"{path}: expected {expected}, got a damaged or foreign file: {why}") from error


def _read_members(path: Path, scored: SetScores) -> np.ndarray:
    """Return log-probabilities of members, mapped where all inputs count."""
    number = scored.number + scored.left_out
    expected = f"log-probabilities of shape (members, {number}, classes)"
    values = _read_array(path, expected)
    if values.ndim != 3 or values.shape[1] != number or values.dtype.kind != "f" or 0 in values.shape:
        raise StoreError(f"{path}: expected {expected}, got {values.dtype} of shape {values.shape}")
    return values if scored.inputs is None else values[:, scored.inputs]


def _open_maps(path: Path, scored: SetScores) -> dict[str, ZarrColumn]:
    """Open the maps of a set, by name, without reading them."""
    number = scored.number + scored.left_out
    found = open_maps(path)
    for name, values in found.items():
        if len(values) != number or len(values.shape) != 3 or 0 in values.shape:
            raise StoreError(
                f"{path}: expected maps of shape ({number}, height, width), got {name} of {values.shape}"
            )
    return found


def _read_images(folder: Path, name: str, scored: SetScores) -> np.ndarray | None:
    """Return the images of a set, mapped where all inputs count; None where there are none."""
    path, number = folder / "images" / f"{name}.npy", scored.number + scored.left_out
    if not path.exists():
        return None
    expected = f"uint8 images of shape ({number}, height, width) or ({number}, height, width, 3)"
    values = _read_array(path, expected)
    coloured = values.ndim == 4 and values.shape[3] == 3
    if (
        values.dtype != np.uint8
        or not (values.ndim == 3 or coloured)
        or values.shape[0] != number
        or 0 in values.shape
    ):
        raise StoreError(f"{path}: expected {expected}, got {values.dtype} of shape {values.shape}")
    return values if scored.inputs is None else values[scored.inputs]


def _read_facts(folder: Path) -> dict[str, Any]:
    """Return what run.json says, as text."""
    path = folder / "run.json"
    if not path.exists():
        return {}
    expected = (
        f"{path}: expected a JSON object with title, command, training, methods, seed, versions, classes, "
        "sets and sources"
    )
    try:
        content = read_json(path)
        texts = ("title", "command", "training", "seed")
        facts = {name: _as_text(content[name]) for name in texts if name in content}
        versions, made, called, sources = (
            {str(name): _as_text(value) for name, value in content.get(key, {}).items()}
            for key in ("versions", "methods", "sets", "sources")
        )
        classes = content.get("classes", [])
        if not isinstance(classes, list):
            raise TypeError
        named = [_as_text(name) for name in classes]
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise StoreError(f"{expected}, got something else ({error})") from error
    except (TypeError, AttributeError, RecursionError) as error:
        raise StoreError(f"{expected}, got something else") from error
    return {
        **facts,
        "versions": versions,
        "made": made,
        "called": called,
        "sources": sources,
        "classes": named,
    }


def _as_text(value: Any) -> str:
    """Return a fact as text; lists and objects as JSON."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _check_alike(methods: list[MethodScores], sets: list[str]) -> None:
    """Raise unless all methods scored the same sets of the same inputs."""
    for method in methods:
        for name in sets:
            if name not in method.sets:
                having = next(m for m in methods if name in m.sets)
                raise StoreError(
                    f"{having.sets[name].path}: expected every method to have the same sets, got none of "
                    f"{name} for {method.name}: score it too or remove the file"
                )
            first, own = methods[0].sets[name], method.sets[name]
            if own.number != first.number:
                raise StoreError(
                    f"{own.path}: expected scores of {first.number} inputs, as in {first.path}, got "
                    f"{own.number}: score the same inputs by every method"
                )


def _common_scores(methods: list[MethodScores]) -> list[str]:
    """Return the score columns that all files have, in the order of the first."""
    every = [scored for method in methods for scored in method.sets.values()]
    names = [name for name in every[0].scores if all(name in scored.scores for scored in every)]
    if not names:
        raise StoreError(
            f"{every[0].path}: expected a score that all files have, found none: "
            "score all sets with the same measures"
        )
    return names
