"""Character-level models with one vocabulary: read from a file, and the scores of texts by them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from demur.reproduce.data.npz import open_npz, read_arrays
from demur.reproduce.networks.character_lstm import PARTS, WINDOW, build_character_lstm
from demur.reproduce.networks.threads import use_one_thread
from demur.reproduce.studies.language.text_files import TextSet
from demur.reproduce.studies.language.token_scores import AVERAGES, collect_alone, collect_figures
from demur.sequences import Stream

_BEGIN = "<s>"
"""What begins a text, in the vocabulary."""
_CHARACTERS = {"chars": "the vocabulary, whose first entry is padding"}
_BATCH = 512


@dataclass(frozen=True)
class CharacterModels:
    """Members with one vocabulary of characters.

    Attributes
    ----------
    parameters
        By member: its parameters, by name.
    places
        Of each character in the vocabulary.
    mark
        Sixteen hexadecimal digits that depend on the content of the file.
    """

    parameters: dict[str, dict[str, np.ndarray]]
    places: dict[str, int]
    mark: str

    def select_texts(self, name: str, texts: list[str], number: int, length: int, source: Path) -> TextSet:
        """Return the first texts that are long enough and spelt in the vocabulary, cut to a length.

        A line break, or several spaces, count as one space: titles have a single line.
        """
        found = [" ".join(each.split())[:length] for each in texts]
        found = [each for each in found if len(each) == length and self.places.keys() >= set(each)][:number]
        if len(found) < number:
            raise ValueError(
                f"{source}: expected {number} texts of {name} with {length} characters or more that the "
                f"models know, got {len(found)}: lower number or prefixes in the configuration"
            )
        return TextSet(name, found)


def read_character_models(path: Path) -> CharacterModels:
    """Read and check models: arrays ``MEMBER.PART`` and ``chars``, in an .npz file."""
    characters = read_arrays(path, _CHARACTERS)["chars"].tolist()
    parameters: dict[str, dict[str, np.ndarray]] = {}
    with open_npz(path) as file:
        for key in file.files:
            member, _, part = key.rpartition(".")
            if member:
                parameters.setdefault(member, {})[part] = file[key]
    for member, own in parameters.items():
        missing = [part for part in PARTS if part not in own]
        if missing or len(own["embedding"]) != len(characters):
            got = f"no {member}.{missing[0]}" if missing else f"{len(own['embedding'])} embeddings"
            raise ValueError(f"{path}: expected a network of {len(characters)} characters, got {got}")
    if len(parameters) < 2 or _BEGIN not in characters:
        raise ValueError(
            f"{path}: expected 2 members or more and {_BEGIN!r} among the characters, got members "
            f"{', '.join(parameters) or 'none'}"
        )
    places = {each: k for k, each in enumerate(characters) if k}  # the first one is no character
    return CharacterModels(parameters, places, hashlib.sha256(path.read_bytes()).hexdigest()[:16])


def score_characters(models: CharacterModels, texts: list[str]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the scores of the characters of texts of one length, and each member's log-probabilities.

    The scores are (texts, positions), by average and name, as of `token_scores.score_texts`; the
    log-probabilities are (members, texts, positions).
    """
    came = np.array([[models.places[each] for each in text] for text in texts])
    with use_one_thread():
        logits = np.stack([_predict(own, came, models.places[_BEGIN]) for own in models.parameters.values()])
    found: dict[str, np.ndarray] = {}
    logs = np.empty(0)
    for average in AVERAGES:
        stream = Stream(average=average).update(logits=logits, tokens=came)
        figures, logs = collect_figures(stream.decompose, average)
        found |= figures
    return found | collect_alone(Stream().update(logits=logits[:1], tokens=came).decompose), logs


def _predict(parameters: dict[str, np.ndarray], came: np.ndarray, begin: int) -> np.ndarray:
    """Return what a member says of each character of texts, (texts, positions, characters)."""
    import torch

    network = build_character_lstm(parameters)
    texts, positions = came.shape
    lead = np.zeros((texts, WINDOW), np.int64)
    lead[:, -1] = begin
    whole = np.concatenate([lead, came[:, :-1]], axis=1)
    windows = np.lib.stride_tricks.sliding_window_view(whole, WINDOW, axis=1).reshape((-1, WINDOW))
    with torch.no_grad():
        parts = [
            network(torch.from_numpy(windows[k : k + _BATCH].copy())).numpy()
            for k in range(0, len(windows), _BATCH)
        ]
    return np.concatenate(parts).reshape((texts, positions, -1))
