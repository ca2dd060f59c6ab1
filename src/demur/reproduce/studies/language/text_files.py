"""Texts from files of JSON lines, and folders of models: read and checked before anything runs."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

from demur.reading import open_regular, parse_json

_MODEL_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True)
class TextSet:
    """Some texts.

    Attributes
    ----------
    name, texts
        What they are called, and the texts.
    """

    name: str
    texts: list[str]

    @property
    def mark(self) -> str:
        """Sixteen hexadecimal digits that depend on the texts."""
        return hashlib.sha256("\0".join(self.texts).encode()).hexdigest()[:16]


def read_lines(path: Path) -> list[dict]:
    """Return the objects of a file of JSON lines, gzipped where its name ends in ``.gz``."""
    if not path.is_file():
        raise ValueError(f"{path}: expected a file of JSON lines, got no such file")
    try:
        with open_regular(path) as file:
            content = file.read()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        rows = [parse_json(line) for line in content.decode("utf-8").splitlines() if line.strip()]
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path}: expected JSON lines, got something else: {error}") from error
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path}: expected an object on each line, got something else")
    return rows


def read_texts(path: Path) -> list[str]:
    """Return the texts of a file, whose lines have a field ``text``."""
    rows = read_lines(path)
    if not all(isinstance(row.get("text"), str) for row in rows):
        raise ValueError(f"{path}: expected a field 'text' on each line, got a line without")
    return [row["text"] for row in rows]


def read_text_set(name: str, path: Path, number: int, characters: int) -> TextSet:
    """Return the first texts of a file that are long enough, cut to so many characters."""
    found = [text[:characters] for text in read_texts(path) if len(text) >= characters][:number]
    if len(found) < number:
        raise ValueError(
            f"{path}: expected {number} texts of {characters} characters or more, got {len(found)}: lower "
            "number or characters in the configuration"
        )
    return TextSet(name, found)


def mark_model(folder: Path, *, weights: bool = True) -> str:
    """Return sixteen hexadecimal digits that depend on a model's files; raise where some are missing."""
    digest = hashlib.sha256()
    for name in (*_MODEL_FILES, *(("model.safetensors",) if weights else ())):
        path = folder / name
        if not path.is_file():
            raise ValueError(f"{folder}: expected a folder of a model, with {name}, got none")
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
