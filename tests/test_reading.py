"""Files that may be damaged or hostile: pipes, JSON with keys twice, archives that unpack to too much."""

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from demur import reading


def pack(*entries: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> io.BytesIO:
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", method) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    found.seek(0)
    return found


def npy(values: np.ndarray) -> bytes:
    found = io.BytesIO()
    np.save(found, values, allow_pickle=True)
    return found.getvalue()


def test_pipes_and_devices_are_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("pipe", "link"):
        with pytest.raises(ValueError, match="a pipe or a device: write it to a file first"):
            reading.open_regular(tmp_path / name)
    with pytest.raises(IsADirectoryError):
        reading.open_regular(tmp_path)
    (tmp_path / "file").write_bytes(b"content")
    with reading.open_regular(tmp_path / "file") as file:
        assert file.read() == b"content"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 1}}', "the key 'c' twice"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("1" * 10_000, "digits"),
        ("{", "Expecting"),
    ],
)
def test_json_that_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        reading.parse_json(text)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    "values", [np.arange(6.0), np.zeros((0, 3)), np.array("text"), np.arange(6, dtype=">i2")]
)
def test_arrays_come_back(values: np.ndarray, order: str) -> None:
    values = np.asarray(values, order="F" if order == "F" else "C").reshape(values.shape)
    (found,) = reading.read_arrays(pack(("a.npy", npy(values)))).values()
    assert found.dtype == values.dtype and found.shape == values.shape
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(reading.read_array(io.BytesIO(npy(values))), values)


def test_a_two_dimensional_array_in_fortran_order() -> None:
    values = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(reading.read_arrays(pack(("a.npy", npy(values))))["a"], values)
    np.testing.assert_array_equal(reading.read_array(io.BytesIO(npy(values))), values)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_archives_that_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = npy(np.zeros(100_000))
    for content, words in (
        (pack(("a.npy", zeros), ("a.npy", zeros)), "the array 'a' twice"),
        (pack(("a.npy", zeros), ("notes.txt", b"hello")), "'notes.txt' in it, which is no array"),
        (pack(("a.npy", npy(np.zeros(3)) + bytes(10**7))), "where its header says"),
        (pack(("a.npy", zeros[:-8])), "where its header says"),
        (pack(("a.npy", npy(np.array([{}], object)))), "never unpickled"),
        (pack(("a.npy", b"hello")), "damaged header"),
        (io.BytesIO(b"no archive"), "damaged or foreign"),
    ):
        with pytest.raises(ValueError, match=words):
            reading.read_arrays(content)
    monkeypatch.setattr(reading, "_TRUSTED_BYTES", 500_000)
    with pytest.raises(ValueError, match="that unpack to 800 kB, as in files made to fill"):
        reading.read_arrays(pack(("a.npy", zeros)))
    small = npy(np.zeros(50_000))
    assert len(reading.read_arrays(pack(("a.npy", small)))) == 1
    with pytest.raises(ValueError, match="that unpack to 800 kB"):  # together, though neither by itself
        reading.read_arrays(pack(("a.npy", small), ("b.npy", small)))
    stored = pack(("a.npy", zeros), method=zipfile.ZIP_STORED)
    assert reading.read_arrays(stored)["a"].shape == (100_000,)
    monkeypatch.setattr(reading, "_count_available_memory", lambda: 700_000)
    with pytest.raises(ValueError, match="800 kB to load into the 700 kB of memory that are available"):
        reading.read_arrays(stored)


def test_the_system_tells_how_much_memory_is_available() -> None:
    found = reading._count_available_memory()
    assert found is None or 1 << 20 < found < 1 << 50
    reading.check_memory(1 << 20)


def test_a_shape_with_fewer_numbers_than_there_are_is_refused() -> None:
    """NumPy reads what the shape says and never comes to the checksum."""
    whole = pack(("a.npy", npy(np.arange(5000.0))), method=zipfile.ZIP_STORED).getvalue()
    assert b"(5000,)" in whole
    with pytest.raises(ValueError, match="where its header says"):
        reading.read_arrays(io.BytesIO(whole.replace(b"(5000,)", b"(4000,)")))
    assert np.load(io.BytesIO(whole.replace(b"(5000,)", b"(4000,)")))["a"].shape == (4000,)  # the control
    with pytest.raises(ValueError, match="40 bytes of numbers, where its header says 32"):
        reading.read_array(io.BytesIO(npy(np.arange(5.0)).replace(b"(5,)", b"(4,)")))
