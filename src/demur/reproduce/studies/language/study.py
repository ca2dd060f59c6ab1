"""The stages of the study, from models and texts to the results page."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from demur.atomic import open_file, write_text
from demur.reproduce.data.npz import open_npz
from demur.reproduce.records import Records, convert_to_columns, convert_to_records
from demur.reproduce.runner import Study
from demur.reproduce.stages import Stage, Stages
from demur.reproduce.studies.language import (
    answers,
    detection,
    figures,
    limits,
    promises,
    section,
    specialists,
    token_scores,
    training,
)
from demur.reproduce.studies.language.character_models import CharacterModels, score_characters
from demur.reproduce.studies.language.config import AnswerSettings, EnsembleSettings, LanguageConfig
from demur.reproduce.studies.language.recorded_answers import (
    Choices,
    SampledAnswers,
    read_choices,
    read_samples,
)
from demur.reproduce.studies.language.text_files import TextSet, mark_model, read_text_set, read_texts
from demur.stores import read_columns, write_columns
from demur.tasks import selective

_VERSION = 1
"""Changes with any change of the code that changes what a stage makes."""
KNOWN = "training kind"
"""The set of texts of the training kind; the others have the names of the configuration."""


@dataclass(frozen=True)
class Ensemble:
    """Where the members of an ensemble are: folders of models, or stages that train them."""

    name: str
    settings: EnsembleSettings
    folders: tuple[Path, ...]
    mark: str
    trained: tuple[Stage, ...] = ()

    def locate(self, stages: Stages) -> list[Path]:
        """Return the folders of the members."""
        return [stages.complete(each) for each in self.trained] or list(self.folders)


def _plan_ensemble(config: LanguageConfig, name: str, data: Path) -> Ensemble:
    """Return an ensemble; check its files, and plan what is to be trained."""
    given = config.ensembles[name]
    if given.models:
        folders = tuple(data / each for each in given.models)
        return Ensemble(name, given, folders, "".join(map(mark_model, folders)))
    shape, texts = data / given.like, read_texts(data / given.texts)
    mark = mark_model(shape, weights=False)
    asked = dataclasses.asdict(given)
    chosen = {key: asked[key] for key in ("steps", "batch", "context", "rate")}
    facts = {"version": _VERSION, "shape": mark, "texts": TextSet("", texts).mark, **chosen}
    trained = tuple(
        Stage(
            f"train/{name}/{k}",
            partial(training.train_member, shape=shape, texts=texts, settings=given, seed=seed),
            facts | {"seed": seed},
            seconds=1.2e-4 * given.steps * given.batch * given.context,
            megabytes=2,
        )
        for k, seed in enumerate(range(config.seed, config.seed + given.members))
    )
    return Ensemble(name, given, (), "", trained)


def describe_study(config: LanguageConfig, data: Path, out: Path, command: str = "") -> Study:
    """Read and check the data; return the study.

    Parameters
    ----------
    config
        The settings.
    data
        The folder that paths in the settings are relative to.
    out
        The folder of the run.
    command
        The command line, for the results page.
    """
    stages = Stages(out)
    texts = _read_text_sets(config, data)
    ensembles = [_plan_ensemble(config, name, data) for name in config.ensembles]
    parts = [
        _plan_detection(config, each, texts, stages) for each in ensembles if not each.settings.limits_only
    ]
    if config.specialists is not None:
        mixture = specialists.read_mixture(config.specialists, data)
        parts.append(_plan_specialists(config.specialists.prefixes, mixture, stages))
    if config.limits is not None:
        parts += [_plan_limits(config, each, texts[0], stages) for each in ensembles]
    if config.choices is not None:
        found = read_choices(data / config.choices.file)
        parts.append(_plan_choices(config.choices, found, config.seed))
    if config.samples is not None:
        parts.append(_plan_samples(config.samples, read_samples(data / config.samples.file), config.seed))
    facts = {"version": section.VERSION, "settings": dataclasses.asdict(config), "command": command}
    make = partial(_write_results, config, stages, parts, command)
    last = Stage("results", make, facts, parts, seconds=5, megabytes=1)
    name = section.name_section(config)
    pictures = {f"{name}.png": "language.png"}
    if config.specialists is not None:
        pictures[f"{name}-specialists.png"] = "specialists.png"
    return Study(name, stages, [last], pictures=pictures, shown="findings.txt")


def _read_text_sets(config: LanguageConfig, data: Path) -> list[TextSet]:
    """Return the texts of the training kind, and then the others."""
    given = config.texts
    named = {KNOWN: given.known, **given.others}
    return [read_text_set(name, data / path, given.number, given.characters) for name, path in named.items()]


def _plan_detection(
    config: LanguageConfig, ensemble: Ensemble, texts: list[TextSet], stages: Stages
) -> Stage:
    """Return the stage that tells texts of the training kind from all others by the scores of an ensemble."""
    positions = max(config.texts.prefixes)
    scored = [_plan_scores(ensemble, each, positions, stages) for each in texts]
    units = detection.list_units(config.texts.prefixes)

    def detect(folder: Path) -> None:
        known, *others = (_read_scores(stages.complete(each)) for each in scored)
        found: Records = []
        differences: Records = []
        for each, scores in zip(texts[1:], others, strict=True):
            where = {"ensemble": ensemble.name, "set": each.name}
            areas, gaps = detection.detect_set(known, scores, units)
            found += [where | row for row in areas]
            differences += [where | row for row in gaps]
        _write_records(folder / "detection.csv", found)
        _write_records(folder / "differences.csv", detection.adjust_differences(differences))

    return Stage(f"detect/{ensemble.name}", detect, {"version": _VERSION, "units": units}, scored, seconds=20)


def _plan_scores(ensemble: Ensemble, texts: TextSet, positions: int, stages: Stages) -> Stage:
    """Return the stage that scores the tokens of a set of texts."""
    asked = ensemble.settings.templates

    def score(folder: Path) -> None:
        found = token_scores.score_texts(ensemble.locate(stages), asked, texts.texts, positions)
        _write_arrays(folder / "scores.npz", found)

    facts = {"version": _VERSION, "models": ensemble.mark, "templates": asked, "texts": texts.mark}
    facts |= {"positions": positions}
    size = 1e-6 * 8 * len(texts.texts) * positions * 14
    name = f"score/{ensemble.name}/{texts.name.replace(' ', '-')}"
    return Stage(name, score, facts, ensemble.trained, seconds=15, megabytes=size)


def _read_scores(folder: Path, name: str = "scores.npz") -> dict[str, np.ndarray]:
    """Return the arrays that a stage wrote, by name."""
    with open_npz(folder / name) as file:
        return {each: file[each] for each in file.files}


def _write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with open_file(path) as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]


def _plan_specialists(prefixes: list[int], mixture: specialists.SpecialistMixture, stages: Stages) -> Stage:
    """Return the stage that tells the texts of specialists apart, and from all others."""
    sets, members = [*mixture.own, *mixture.others], list(mixture.models.parameters)
    scored = [_plan_characters(mixture.models, each) for each in sets]
    units = detection.list_units(prefixes)

    def judge(folder: Path) -> None:
        found: dict[str, Records] = {
            name: [] for name in ("bits", "means", "owners", "detection", "differences")
        }
        done = [stages.complete(each) for each in scored]
        scores = [_read_scores(each) for each in done]
        count = len(mixture.own)
        known = {name: np.concatenate([each[name] for each in scores[:count]]) for name in scores[0]}
        found["means"] += specialists.measure_means(specialists.KNOWN, known, prefixes)
        for k, each in enumerate(sets):
            logs = _read_scores(done[k], "logs.npz")["logs"]
            found["bits"] += specialists.measure_bits(each.name, members, logs, scores[k])
            found["means"] += specialists.measure_means(each.name, scores[k], prefixes)
            if k < count:
                found["owners"] += specialists.attribute_texts(each.name, members, logs, prefixes)
                continue
            where = {"ensemble": specialists.NAME, "set": each.name}
            areas, gaps = detection.detect_set(known, scores[k], units)
            found["detection"] += [where | row for row in areas]
            found["differences"] += [where | row for row in gaps]
        found["differences"] = detection.adjust_differences(found["differences"])
        for name, rows in found.items():
            _write_records(folder / f"specialists-{name}.csv", rows)

    facts = {"version": _VERSION, "prefixes": prefixes}
    return Stage(f"detect/{specialists.NAME}", judge, facts, scored, seconds=20)


def _plan_characters(models: CharacterModels, texts: TextSet) -> Stage:
    """Return the stage that scores the characters of a set of texts."""

    def score(folder: Path) -> None:
        found, logs = score_characters(models, texts.texts)
        _write_arrays(folder / "scores.npz", found)
        _write_arrays(folder / "logs.npz", {"logs": logs})

    facts = {"version": _VERSION, "models": models.mark, "texts": texts.mark}
    count = sum(map(len, texts.texts))
    size = 1e-6 * 8 * count * (14 + len(models.parameters))
    name = f"score/{specialists.NAME}/{texts.name.replace(' ', '-')}"
    return Stage(name, score, facts, seconds=8e-3 * count, megabytes=size)


def _plan_limits(config: LanguageConfig, ensemble: Ensemble, texts: TextSet, stages: Stages) -> Stage:
    """Return the stage that measures what truncated lists of an ensemble certify."""
    given = config.limits
    assert given is not None
    chosen = texts.texts[: given.texts]

    def measure(folder: Path) -> None:
        found = limits.measure_limits(
            ensemble.locate(stages), ensemble.settings.templates, chosen, given.tokens, given.tops
        )
        _write_records(folder / "limits.csv", [{"ensemble": ensemble.name} | row for row in found])

    facts = {"version": _VERSION, "models": ensemble.mark, "templates": ensemble.settings.templates}
    facts |= {"texts": TextSet("", chosen).mark, "tokens": given.tokens, "tops": given.tops}
    return Stage(f"limits/{ensemble.name}", measure, facts, ensemble.trained, seconds=60)


def _plan_choices(given: AnswerSettings, choices: Choices, seed: int) -> Stage:
    """Return the stage that judges scores of recorded options."""

    def judge(folder: Path) -> None:
        label, models = choices.label, choices.select_models(given.prompt, given.shots)[0]
        found: Records = []
        gaps: Records = []
        curves: Records = []
        deployed: Records = []
        promised: Records = []
        for k, (name, logs) in enumerate(answers.list_ensembles(choices, given.prompt, given.shots).items()):
            scores, correct = answers.score_average(logs), answers.average_answers(logs).argmax(-1) == label
            own, differences = answers.judge_scores(scores, correct, "k")
            where = {"ensemble": name, "members": len(logs), "accuracy": float(correct.mean())}
            found += [where | row for row in own]
            gaps += [{"ensemble": name} | row for row in differences]
            promised += [
                {"ensemble": name} | row
                for row in promises.try_promises(scores, correct, given.accuracy, seed)
            ]
            if k == 0:
                curves += _sample_curves(scores, correct)
                for m, model in enumerate(models):
                    mine = answers.score_deployed(logs, m)
                    right = logs[m].argmax(-1) == label
                    own, differences = answers.judge_scores(mine, right, "own_entropy")
                    where = {"ensemble": model, "members": 1, "accuracy": float(right.mean())}
                    deployed += [where | row for row in own]
                    gaps += [{"ensemble": model} | row for row in differences]
        _write_records(folder / "choices.csv", found)
        _write_records(folder / "deployed.csv", deployed)
        _write_records(folder / "choices-differences.csv", detection.adjust_differences(gaps))
        _write_records(folder / "choices-curves.csv", curves)
        _write_records(folder / "choices-promises.csv", promised)

    facts = {"version": [_VERSION, promises.VERSION], "data": choices.mark, "seed": seed}
    facts |= {"settings": dataclasses.asdict(given)}
    return Stage("answers/choices", judge, facts, seconds=120, megabytes=1)


def _plan_samples(given: AnswerSettings, samples: SampledAnswers, seed: int) -> Stage:
    """Return the stage that judges scores of sampled answers."""

    def judge(folder: Path) -> None:
        scores, correct = answers.score_sampled(samples)
        found, gaps = answers.judge_scores(scores, correct, "entropy")
        where = {"questions": len(correct), "accuracy": float(correct.mean())}
        _write_records(folder / "samples.csv", [where | row for row in found])
        _write_records(folder / "samples-differences.csv", detection.adjust_differences(gaps))
        promised = promises.try_promises(scores, correct, given.accuracy, seed)
        _write_records(folder / "samples-promises.csv", promised)

    facts = {"version": [_VERSION, promises.VERSION], "data": samples.mark, "seed": seed}
    facts |= {"settings": dataclasses.asdict(given)}
    return Stage("answers/samples", judge, facts, seconds=20, megabytes=1)


def _sample_curves(scores: dict[str, np.ndarray], correct: np.ndarray) -> Records:
    """Return the accuracy of each score's most certain shares, in steps of a percent."""
    shares = np.arange(1, 101) / 100
    rows: Records = []
    for name, values in scores.items():
        curve = selective(values, correct, interval="asymptotic").curve
        found = np.interp(shares, curve.kept, curve.accuracy)
        rows += [
            {"score": name, "kept": float(k), "accuracy": float(a)}
            for k, a in zip(shares, found, strict=True)
        ]
    return rows


def _write_results(
    config: LanguageConfig, stages: Stages, parts: list[Stage], command: str, folder: Path
) -> None:
    """Write the tables, the figures and the section of the results page."""
    found: dict[str, Records] = {}
    for stage in parts:
        for path in sorted(stages.complete(stage).glob("*.csv")):
            found.setdefault(path.stem, []).extend(convert_to_records(read_columns(path)))
    for name, rows in found.items():
        _write_records(folder / f"{name}.csv", rows)
    figures.write_figures(found, config, folder)
    write_text(folder / "findings.txt", section.list_findings(found, config))
    write_text(folder / "section.md", section.compose_section(found, config, command))


def _write_records(path: Path, rows: Records) -> None:
    write_columns(path, convert_to_columns(rows), force=True)
