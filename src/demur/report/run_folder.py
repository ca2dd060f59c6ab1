"""The folder of a run: scores by method and set, with labels, images and members where they are there.

    DIR/run.json                  title, command, training, methods, seed, versions, classes, sets and sources
    DIR/images/SET.npy            thumbnails, uint8 (inputs, height, width) or (inputs, height, width, 3)
    DIR/METHOD/SET.csv            scores, also .parquet, .npz or .json
    DIR/METHOD/members-SET.npy    log-probabilities (members, inputs, classes)

SET is `id`, `ood-NAME` or `adversarial-NAME`. Score files directly in DIR are those of one method without
a name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from demur.reading import read_array_header, read_json
from demur.report.row_parts import find_ids, split_tasks
from demur.report.score_names import EQUAL_COLUMNS, SCORE_NAMES
from demur.stores import COLUMN_SUFFIXES, StoreError, natural_key, open_binary, pick_numbers, read_columns
from demur.stores.errors import EmptyError
from demur.stores.mapped_arrays import FileArray

_OTHER_COLUMNS = ("input", "id", "label", "prediction", "deployed")
_SET_KINDS = ("id", "ood", "adversarial")


@dataclass(frozen=True)
class SetScores:
    """Scores of one set by one method.

    Attributes
    ----------
    scores
        By column, (inputs,) each, float64.
    label, prediction
        (inputs,) classes, or None.
    ids
        (inputs,) text, or None.
    inputs
        (inputs,) their numbers among those of the pictures; None where they are all.
    left_out
        How many inputs of the file are none of these, since they have no prediction, in one task at least.
    numbers
        Labels and predictions are there, but as numbers that are no classes: those of a regression.
    unit
        Of demur's scores, where the file says so.
    """

    path: Path
    scores: dict[str, np.ndarray]
    label: np.ndarray | None
    prediction: np.ndarray | None
    ids: np.ndarray | None
    inputs: np.ndarray | None = None
    left_out: int = 0
    numbers: bool = False
    unit: str = ""

    @property
    def number(self) -> int:
        """How many inputs."""
        return len(next(iter(self.scores.values())))

    @property
    def correct(self) -> np.ndarray | None:
        """Where the prediction is the label; None where nobody can tell."""
        return None if self.label is None or self.prediction is None else self.label == self.prediction


@dataclass(frozen=True)
class MethodScores:
    """What one method gave: scores and, where they were kept, members' log-probabilities, by set.

    Each task of a method that has several is one of these, and named after both.
    """

    name: str
    sets: dict[str, SetScores]
    members: dict[str, np.ndarray]
    task: str = ""


@dataclass(frozen=True)
class Run:
    """All of a folder. Every method has the same sets, and every file the same score columns.

    `training` says what the models learned from, `made` how each method makes its members, `called` what
    people call a set, `sources` how its inputs came about; each as run.json has it.
    """

    path: Path
    methods: list[MethodScores]
    sets: list[str]
    scores: list[str]
    images: dict[str, np.ndarray]
    title: str = ""
    command: str = ""
    seed: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    classes: list[str] = field(default_factory=list)
    training: str = ""
    made: dict[str, str] = field(default_factory=dict)
    called: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def unit(self) -> str:
        """The unit of demur's scores; nothing where files do not say, or not the same."""
        units = {scored.unit for method in self.methods for scored in method.sets.values()}
        return units.pop() if len(units) == 1 else ""

    @property
    def by_task(self) -> bool:
        """Whether the methods are tasks: different things to predict, which do not compete."""
        return len(self.methods) > 1 and any(method.task for method in self.methods)

    def whose(self, name: str) -> str:
        """Return words that say which method or task something is of; nothing where there is one."""
        if len(self.methods) == 1:
            return ""
        return f" for {name}" if self.by_task else f" of {name}"

    def set_name(self, name: str) -> str:
        """Return what people call a set: as the run says, or by its file."""
        return self.called.get(name) or shown_name(name)

    def name_of(self, label: Any) -> str:
        """Return the name of a class, or its number where it has none."""
        if isinstance(label, int | np.integer) and 0 <= label < len(self.classes):
            return self.classes[int(label)]
        return str(label)


def kind_of(name: str) -> str | None:
    """Return "id", "ood" or "adversarial" for the name of a set; None for another file.

    Examples
    --------
    >>> kind_of("id"), kind_of("ood-svhn"), kind_of("labels")
    ('id', 'ood', None)
    """
    kind, dash, rest = name.partition("-")
    if name == "id" or (kind in ("ood", "adversarial") and (rest or not dash)):
        return kind
    return None


def shown_name(name: str) -> str:
    """Return what people call a set.

    Examples
    --------
    >>> shown_name("ood-svhn"), shown_name("ood"), shown_name("id")
    ('svhn', 'out-of-distribution inputs', 'in-distribution inputs')
    """
    kind, _, rest = name.partition("-")
    return (
        rest
        or {
            "id": "in-distribution inputs",
            "ood": "out-of-distribution inputs",
            "adversarial": "adversarial inputs",
        }[kind]
    )


def correct_of(run: Run, method: MethodScores, name: str) -> np.ndarray | None:
    """Return where predictions of a set are right; None where nobody can tell.

    No prediction for an out-of-distribution input is right if its label is none of the known classes. Labels
    that are known ones too may number other classes, and say nothing.
    """
    scored, source = method.sets[name], method.sets.get("id")
    if kind_of(name) != "ood" or scored.correct is None or scored.label is None:
        return scored.correct
    # All that the files tell of the classes that the model knows.
    given = [scored.prediction, *((source.label, source.prediction) if source else ())]
    known = {each for column in given if column is not None for each in column.tolist()}
    labels = set(scored.label.tolist())
    if len({isinstance(each, str) for each in known | labels}) > 1:
        return None  # numbers here and names there
    known |= {*range(len(run.classes)), *run.classes}
    return scored.correct if known.isdisjoint(labels) else None


def _order_of(name: str) -> tuple[int, Any]:
    """Return a sort key: in-distribution inputs first, then by kind and name."""
    return _SET_KINDS.index(name.partition("-")[0]), natural_key(name)


def read_run(path: Path) -> Run:
    """Read a folder; a `StoreError` of one line says what is wrong with it."""
    if not path.is_dir():
        came = "a file" if path.exists() else "nothing"
        raise StoreError(f"{path}: expected the folder of a run, got {came}: check the path")
    methods = _read_method("", path) if score_files(path) else []
    alone = len(methods)
    for folder in sorted(
        (each for each in path.iterdir() if each.is_dir()), key=lambda f: natural_key(f.name)
    ):
        if folder.name != "images" and not folder.name.startswith(".") and score_files(folder):
            methods += _read_method(folder.name, folder)
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
    return Run(
        path, methods, sets, scores, {k: v for k, v in images.items() if v is not None}, **_read_facts(path)
    )


def score_files(folder: Path) -> list[Path]:
    """Return the files of a folder that hold scores."""
    # Pipes and devices too: reading them says what is wrong, where leaving them out would say nothing.
    found = (
        f
        for f in folder.iterdir()
        if f.suffix.lower() in COLUMN_SUFFIXES and kind_of(f.stem) and not f.is_dir()
    )
    return sorted(found, key=lambda f: _order_of(f.stem))


def _read_method(name: str, folder: Path) -> list[MethodScores]:
    """Return scores and members of a method, by set; each task as a method of its own."""
    tasks: dict[str, dict[str, SetScores]] = {}
    members = {}
    seen: dict[str, Path] = {}
    for file in score_files(folder):
        if file.stem in seen:
            other = seen[file.stem].name
            raise StoreError(f"{file}: expected one file of scores for a set, got {other} too: remove one")
        seen[file.stem] = file
        columns = read_columns(file)
        for task, own in split_tasks(columns).items():
            tasks.setdefault(task, {})[file.stem] = _read_scored(file, own)
        found = folder / f"members-{file.stem}.npy"
        if found.exists() and "task" not in columns:
            members[file.stem] = _read_members(found, tasks[""][file.stem])
    return [MethodScores(f"{name} {task}".strip(), sets, members, task) for task, sets in tasks.items()]


def _read_scored(path: Path, whole: dict[str, np.ndarray]) -> SetScores:
    """Return the scores of a set, checked, without inputs that have no prediction."""
    rows = np.ones(len(next(iter(whole.values()))), bool)
    if "status" in whole:
        rows = whole["status"] == "ok"
    if not rows.any():
        raise StoreError(f"{path}: expected inputs with a prediction, got none: score others")
    columns = {name: values[rows] for name, values in whole.items()}
    scores = {}
    for name, values in columns.items():
        if name in _OTHER_COLUMNS or name.endswith("_stderr") or name.startswith("prediction_"):
            continue
        if name in SCORE_NAMES or name in EQUAL_COLUMNS:
            pick_numbers(columns, name, path)  # one bad cell makes text of a column
        if values.dtype.kind == "f":
            missing = np.isnan(values)
            if missing.any():
                raise StoreError(
                    f"{path}: expected numbers in {name}, got NaN for {missing.sum()} of {len(values)} "
                    f"inputs, first at input {missing.argmax()}: leave these inputs out"
                )
            scores[name] = values.astype(np.float64)
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
    return SetScores(path, scores, label, prediction, ids, inputs, len(rows) - int(rows.sum()), numbers, unit)


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
