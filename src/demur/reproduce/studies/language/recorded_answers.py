"""Recorded answers of large language models: log-probabilities of options, and sampled answers."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from demur.reproduce.data.npz import read_arrays
from demur.reproduce.studies.language.text_files import read_lines

_KEYS = {
    "logp": "log-probabilities of the options, (runs, questions, options)",
    "model": "the model of each run", "prompt": "the kind of prompt of each run",
    "shots": "the number of demonstrations of each run", "label": "the right option of each question",
}  # fmt: skip
_LEFT_OUT = ("is_demo", "is_duplicate")
"""Marks of questions to leave out, where a file has them: demonstrations, and texts that come again."""


@dataclass(frozen=True)
class Choices:
    """Log-probabilities of the options of questions.

    Attributes
    ----------
    log_probs
        (runs, questions, options), float64, normalised.
    models, settings
        Of each run: the model, and the prompt and the number of demonstrations as text.
    label
        The right option, (questions,).
    mark
        Sixteen hexadecimal digits that depend on the content of the file.
    """

    log_probs: np.ndarray
    models: list[str]
    settings: list[str]
    label: np.ndarray
    mark: str

    def select_models(self, prompt: str, shots: int) -> tuple[list[str], np.ndarray]:
        """Return the models with a setting, and their log-probabilities, (models, questions, options)."""
        chosen = [k for k, each in enumerate(self.settings) if each == name_setting(prompt, shots)]
        if len(chosen) < 2:
            raise ValueError(
                f"choices: expected 2 models or more with prompt {prompt!r} and {shots} shots, got "
                f"{len(chosen)}: there are {', '.join(sorted(set(self.settings)))}"
            )
        return [self.models[k] for k in chosen], self.log_probs[chosen]

    def select_prompts(self) -> dict[str, np.ndarray]:
        """Return what each model says that has all settings, (settings, questions, options)."""
        every = len(set(self.settings))
        found = {}
        for model in dict.fromkeys(self.models):
            rows = [k for k, each in enumerate(self.models) if each == model]
            if every > 1 and len({self.settings[k] for k in rows}) == every:
                found[model] = self.log_probs[rows]
        return found


def name_setting(prompt: str, shots: int) -> str:
    """Return a setting as text."""
    return f"{prompt}, {shots} shots"


def read_choices(path: Path) -> Choices:
    """Read and check log-probabilities of options."""
    found = read_arrays(path, _KEYS, _LEFT_OUT)
    logs, label = np.asarray(found["logp"], np.float64), found["label"]
    runs = {len(found[key]) for key in ("model", "prompt", "shots")}
    if logs.ndim != 3 or runs != {len(logs)} or label.shape != logs.shape[1:2] or np.isnan(logs).any():
        raise ValueError(
            f"{path}: expected 'logp' of shape (runs, questions, options), with as many models, prompts, "
            f"shots and labels, got {logs.shape}, {sorted(runs)} and {label.shape}"
        )
    if label.dtype.kind not in "iu" or label.min() < 0 or label.max() >= logs.shape[2]:
        raise ValueError(f"{path}: expected labels from 0 to {logs.shape[2] - 1}, got others")
    kept = np.ones(len(label), bool)
    for name in _LEFT_OUT:
        kept &= ~np.asarray(found.get(name, np.zeros(len(label), bool)), bool)
    settings = [
        name_setting(p, s) for p, s in zip(found["prompt"].tolist(), found["shots"].tolist(), strict=True)
    ]
    mark = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    logs = logs - np.logaddexp.reduce(logs, axis=-1, keepdims=True)  # they were rounded
    return Choices(logs[:, kept], found["model"].tolist(), settings, label[kept].astype(np.int64), mark)


@dataclass(frozen=True)
class SampledAnswers:
    """Several answers to each question, and which of them are right.

    Attributes
    ----------
    answers
        By question: the answers, in their plain form; see `simplify_answer`.
    right
        Whether each is right, (questions, answers).
    mark
        Sixteen hexadecimal digits that depend on the content of the file.
    """

    answers: list[list[str]]
    right: np.ndarray
    mark: str


def read_samples(path: Path) -> SampledAnswers:
    """Read sampled answers: on each line ``samples``, texts, and ``match``, a digit 0 or 1 for each."""
    rows = read_lines(path)
    numbers = set()
    for k, row in enumerate(rows):
        samples, match = row.get("samples"), row.get("match")
        if not isinstance(samples, list) or not isinstance(match, str) or len(samples) != len(match):
            raise ValueError(
                f"{path}: expected 'samples' and as many digits in 'match', got others on line {k + 1}"
            )
        numbers.add(len(samples))
    if len(numbers) > 1 or min(numbers) < 3:
        raise ValueError(f"{path}: expected as many samples on each line, 3 or more, got {sorted(numbers)}")
    answers = [[simplify_answer(str(each)) for each in row["samples"]] for row in rows]
    right = np.array([[digit == "1" for digit in row["match"]] for row in rows])
    return SampledAnswers(answers, right, hashlib.sha256(path.read_bytes()).hexdigest()[:16])


def simplify_answer(text: str) -> str:
    """Return an answer without case, accents, articles and punctuation, so that equal ones are equal.

    Examples
    --------
    >>> simplify_answer("The  Beatles."), simplify_answer("beatles")
    ('beatles', 'beatles')
    """
    plain = unicodedata.normalize("NFKD", text.lower())
    plain = "".join(each for each in plain if not unicodedata.combining(each))
    words = re.sub(r"[^\w\s]", " ", plain).split()
    return " ".join(each for each in words if each not in ("a", "an", "the"))
