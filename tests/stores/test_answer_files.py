"""Files of answers: records in any order are found again, and damaged lines are told by their number."""

import json
import os
import tracemalloc

import numpy as np
import pytest

from demur.stores import AnswerFiles, StoreError, answer_files


def write(path, records, end="\n"):
    path.write_text("".join(json.dumps(each) + end for each in records), encoding="utf-8")
    return path


def list_records(*paths, **options):
    with AnswerFiles(paths, **options) as files:
        return [[(r.id, r.member, r.content.get("x")) for r in records] for records in files]


def test_records_of_a_prompt_are_together_whatever_their_order(tmp_path) -> None:
    records = [{"id": f"q{n}", "member": m, "x": 10 * n + m} for n in range(7) for m in range(3)]
    by_member = sorted(records, key=lambda each: each["member"])
    shuffled = [records[i] for i in np.random.default_rng(0).permutation(len(records))]
    wanted = {f"q{n}": {(f"q{n}", str(m), 10 * n + m) for m in range(3)} for n in range(7)}
    for own in (records, by_member, shuffled):
        found = list_records(write(tmp_path / "a.jsonl", own))
        assert [each[0][0] for each in found] == list(dict.fromkeys(each["id"] for each in own))
        assert {each[0][0]: set(each) for each in found} == wanted
    parts = [
        write(tmp_path / f"{m}.jsonl", [each for each in records if each["member"] == m]) for m in range(3)
    ]
    assert {each[0][0]: set(each) for each in list_records(*parts)} == wanted


def test_blank_lines_marks_and_ends_of_lines(tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": 1, "member": "a"}\r\n\n   \n{"id": 1, "member": "b"}')
    assert list_records(path) == [[("1", "a", None), ("1", "b", None)]]
    assert list_records(write(path, [{"name": "x", "member": 0, "id": 3}]), id_field="name")[0][0][0] == "x"


GOOD = b'{"id": "a", "member": 0}\n'
DAMAGED = {
    "cut off": (GOOD + b'{"id": "b", "mem', "line 2: expected one JSON object per line"),
    "no JSON": (GOOD + b"\n" + b"id,member\n", "line 3: expected one JSON object per line.* at column 1"),
    "a list": (b"[1, 2]\n", "line 1: expected one JSON object per line.*got list"),
    "not UTF-8": (GOOD + b'{"id": "\xff", "member": 0}\n', "line 2: .*utf-8"),
    "no id": (GOOD + b'{"member": 1}\n', "line 2: expected text or a whole number as id, got none"),
    "no member": (b'{"id": 1}\n', "line 1: expected text or a whole number as member, got none"),
    "odd id": (b'{"id": [1], "member": 0}\n', r"as id, got \[1\]"),
    "empty id": (b'{"id": "", "member": 0}\n', "as id, got ''"),
    "yes as member": (b'{"id": 1, "member": true}\n', "as member, got True"),
    "twice": (GOOD * 2, "line 2: expected one record per prompt and member.* line 1"),
    "key twice": (b'{"id": 1, "id": 2, "member": 0}\n', "line 1: .*the key 'id' twice"),
    "nested": (b'{"id": ' + b"[" * 100_000 + b"\n", "line 1: .*nested too deeply"),
    "empty": (b"\n\n", "got none"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_lines_are_told_by_number(tmp_path, case) -> None:
    content, message = DAMAGED[case]
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=message) as found:
        AnswerFiles([path])
    assert "\n" not in str(found.value) and str(path) in str(found.value)


def test_pipes_and_long_lines_are_refused(tmp_path, monkeypatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="a pipe or a device"):
        AnswerFiles([tmp_path / "pipe"])
    monkeypatch.setattr(answer_files, "_LONGEST_RECORD", 100)
    with pytest.raises(StoreError, match=r"line 1: .* more than 100 bytes"):
        AnswerFiles([write(tmp_path / "a.jsonl", [{"id": 1, "member": 0, "text": "x" * 200}])])


def test_a_file_that_changes_is_noticed(tmp_path) -> None:
    # The second prompt is between the records of the first, so that nothing of it is read ahead.
    records = [{"id": n, "member": m, "x": "x" * 500_000} for n, m in ((0, 0), (1, 0), (0, 1))]
    path = write(tmp_path / "a.jsonl", records)
    with AnswerFiles([path]) as files:
        rows = iter(files)
        assert len(next(rows)) == 2
        write(path, [each | {"id": each["id"] + 5} for each in records])
        with pytest.raises(StoreError, match="the file has changed"):
            next(rows)


def test_memory_is_that_of_one_prompt(tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    with open(path, "w") as file:
        for member in range(2):
            for n in range(400):
                file.write(json.dumps({"id": n, "member": member, "text": f"{n}" * 10_000}) + "\n")
    assert path.stat().st_size > 20_000_000
    tracemalloc.start()
    with AnswerFiles([path]) as files:
        assert sum(len(records) for records in files) == 800
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000
