"""Files of answers: JSON Lines with a record per prompt and member, which may be in any order.

Files are read twice: once to learn which records belong together, and once more, prompt by prompt. Between,
only ids and places of records are in memory, about 150 bytes per prompt and 30 per record.
"""

from __future__ import annotations

import contextlib
import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from demur.reading import describe_bytes, parse_json
from demur.stores.errors import StoreError
from demur.stores.paths import open_binary

_LONGEST_RECORD = 256 << 20  # bytes of a line
_EXPECTED = "one JSON object per line, with id and member"


@dataclass(frozen=True)
class AnswerRecord:
    """What one member answered to one prompt.

    Attributes
    ----------
    id, member
        Of the prompt, and of who answered.
    content
        The whole record.
    place
        File and line, for messages.
    """

    id: str
    member: str
    content: dict[str, Any]
    place: str


class AnswerFiles(contextlib.AbstractContextManager["AnswerFiles"]):
    """Open files of answers, sorted by the id of their prompts.

    Parameters
    ----------
    paths
        The files.
    id_field
        The field that names the prompt.
    progress
        Called with the number of bytes that the first reading has done.

    Raises
    ------
    StoreError
        A line is damaged, lacks id or member, or says again what a member answered to a prompt.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        id_field: str = "id",
        progress: Callable[[int], object] = lambda done: None,
    ) -> None:
        self.paths, self.members = list(paths), []
        self._id_field = id_field
        self._open = contextlib.ExitStack()
        self._records: dict[str, array[int]] = {}
        self._files, self._lines, self._offsets, self._codes = (array(kind) for kind in "lqql")
        try:
            self._streams = [self._open.enter_context(open_binary(path)) for path in self.paths]
            self._find_records(progress)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        """How many prompts there are."""
        return len(self._records)

    def __iter__(self) -> Iterator[list[AnswerRecord]]:
        """Yield the records of each prompt, in the order in which prompts and members come first."""
        for name, numbers in self._records.items():
            yield [self._read_again(name, number) for number in numbers]

    def _find_records(self, progress: Callable[[int], object]) -> None:
        codes: dict[str, int] = {}
        begin = 0
        for place, stream in enumerate(self._streams):
            for line, offset, content in self._read_lines(place, stream):
                where = self._describe(place, line)
                name, member = (_read_name(content, field, where) for field in (self._id_field, "member"))
                code = codes.setdefault(member, len(codes))
                numbers = self._records.setdefault(name, array("q"))
                for number in numbers:
                    if self._codes[number] == code:
                        first = self._describe(self._files[number], self._lines[number])
                        raise StoreError(
                            f"{where}: expected one record per prompt and member, got id {name!r} of member "
                            f"{member!r} again, as in {first}"
                        )
                numbers.append(len(self._codes))
                for column, value in zip(
                    (self._files, self._lines, self._offsets, self._codes),
                    (place, line, offset, code),
                    strict=True,
                ):
                    column.append(value)
                progress(begin + offset)
            begin += stream.tell()
        self.members = list(codes)
        if not self._records:
            raise StoreError(f"{self.paths[0]}: expected {_EXPECTED}, got none")

    def _read_lines(self, place: int, stream: IO[bytes]) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Yield number, offset and content of each line that is not blank."""
        line = 0
        while True:
            offset = stream.tell()
            text = stream.readline(_LONGEST_RECORD + 1)
            line += 1
            if not text:
                return
            if text.strip():
                yield line, offset, _parse(text, self._describe(place, line))

    def _read_again(self, name: str, number: int) -> AnswerRecord:
        place, line = self._files[number], self._lines[number]
        where, stream = self._describe(place, line), self._streams[place]
        stream.seek(self._offsets[number])
        content = _parse(stream.readline(_LONGEST_RECORD + 1), where)
        member = _read_name(content, "member", where)
        if _read_name(content, self._id_field, where) != name:
            raise StoreError(f"{where}: expected the record of {name!r}, got another: the file has changed")
        return AnswerRecord(name, member, content, where)

    def _describe(self, place: int, line: int) -> str:
        return f"{self.paths[place]}, line {line}"

    def close(self) -> None:
        """Close the files."""
        self._open.close()

    def __exit__(self, *raised: object) -> None:
        self.close()


def _parse(text: bytes, where: str) -> dict[str, Any]:
    """Return the object of a line."""
    if len(text) > _LONGEST_RECORD:
        raise StoreError(f"{where}: expected {_EXPECTED}, got more than {describe_bytes(_LONGEST_RECORD)}")
    try:
        content = parse_json(text.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise StoreError(f"{where}: expected {_EXPECTED}, got {error.msg} at column {error.colno}") from error
    except ValueError as error:  # of a key that comes twice, of nesting, of UTF-8
        raise StoreError(f"{where}: expected {_EXPECTED}, got {error}") from error
    if not isinstance(content, dict):
        raise StoreError(f"{where}: expected {_EXPECTED}, got {type(content).__name__}")
    return content


def _read_name(content: dict[str, Any], field: str, where: str) -> str:
    """Return an id or a member: text, or a whole number."""
    value = content.get(field)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        came = "none" if field not in content else repr(value)[:40]
        raise StoreError(f"{where}: expected text or a whole number as {field}, got {came}")
    return str(value)
