"""Files made to fill a disk or the memory, or to be read in two ways: one line that says what to do."""

import io
import json
import mmap
import struct
import zipfile

import numpy as np
import pytest
from reference.files import read, refused

from demur import reading
from demur.stores import StoreError, read_columns, read_labels


def pack(path, values: np.ndarray, more: bytes = b"") -> None:
    buffer = io.BytesIO()
    np.save(buffer, values)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("z.npy", buffer.getvalue() + more)


@pytest.fixture
def little_room(monkeypatch):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(reading.shutil, "disk_usage", lambda _: usage)


def test_a_bomb_behind_a_small_array_is_not_unpacked(tmp_path, monkeypatch):
    pack(tmp_path / "z.npz", np.zeros((2, 3, 4)), bytes(20_000_000))
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: pytest.fail("was unpacked"))
    refused(tmp_path / "z.npz", "z.npz:z: expected 320 bytes", "20000320 bytes in 'z.npy'", "write it again")


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_what_would_fill_the_disk_is_not_unpacked(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: pytest.fail("was unpacked"))
    path = tmp_path / f"z.{suffix}"
    if suffix == "npz":
        pack(path, np.zeros((10, 20, 10)))
    else:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table({"a": np.zeros(1000), "b": np.zeros(1000)}), path)
    refused(path, "16 kB to unpack into", "which has 1 kB left: write the file without compression")


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_few_bytes_do_not_unpack_to_very_many(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(reading, "_TRUSTED_BYTES", 1 << 20)
    path = tmp_path / f"z.{suffix}"
    if suffix == "npz":
        pack(path, np.zeros((10, 20_000, 10)))
    else:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table({"a": np.zeros(10**6), "b": np.zeros(10**6)}), path)
        with pytest.raises(StoreError, match=r"z\.parquet: expected .* that unpack to 16 MB"):
            read_columns(path)
    refused(path, "kB that unpack to 16 MB, as in files made to fill", "write it without compression")


def test_columns_that_do_not_fit_into_memory(tmp_path, monkeypatch):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"a": np.zeros(1000)}), tmp_path / "z.parquet")
    np.savez(tmp_path / "z.npz", a=np.zeros(1000))
    np.save(tmp_path / "z.npy", np.zeros(1000))
    monkeypatch.setattr(reading, "_count_available_memory", lambda: 1000)
    for name, function in (("z.parquet", read_columns), ("z.npz", read_columns), ("z.npy", read_labels)):
        given = tmp_path / name if function is read_columns else str(tmp_path / name)
        with pytest.raises(StoreError, match=rf"{name}.* 8(\.13)? kB to load into the 1 kB of memory"):
            function(given)


def test_tensors_that_unpack_or_repeat(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save(torch.zeros(1).expand(10**4, 10**4, 10), tmp_path / "z.pt")
    refused(tmp_path / "z.pt", "z.pt: expected a tensor with all of its numbers in the file", "contiguous()")
    torch.save(torch.zeros(2, 3, 4), tmp_path / "y.pt")
    with zipfile.ZipFile(tmp_path / "y.pt") as plain:
        entries = {info.filename: plain.read(info) for info in plain.infolist()}
    with zipfile.ZipFile(tmp_path / "x.pt", "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in entries.items():
            packed.writestr(name, content)
    refused(tmp_path / "x.pt", "x.pt: expected a tensor of torch.save, got a compressed archive")


def test_a_tensor_that_comes_twice_in_safetensors(tmp_path):
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    entry = json.dumps({"dtype": "F32", "shape": [2, 3, 4], "data_offsets": [0, 96]})
    other = json.dumps({"dtype": "F32", "shape": [2, 4, 3], "data_offsets": [0, 96]})
    text = f'{{"z": {other}, "z": {entry}}}'.encode()
    (tmp_path / "z.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + values.tobytes())
    refused(tmp_path / "z.safetensors", "z.safetensors: expected each tensor once, got the key 'z' twice")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_that_come_twice(tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((2, 3, 4)))
    with zipfile.ZipFile(tmp_path / "z.npz", "w") as archive:
        archive.writestr("z.npy", buffer.getvalue())
        archive.writestr("z.npy", buffer.getvalue())
    refused(tmp_path / "z.npz", "z.npz: expected a NumPy archive, got the array 'z' twice")
    (tmp_path / "z.json").write_text('{"pairwise_epistemic": [1, 2], "pairwise_epistemic": [2, 1]}')
    with pytest.raises(StoreError, match=r"z\.json: .*the key 'pairwise_epistemic' twice"):
        read_columns(tmp_path / "z.json")


def test_numbers_that_no_column_can_hold(tmp_path):
    (tmp_path / "z.json").write_text('{"a": [1.5, 1' + "0" * 400 + "]}")
    with pytest.raises(StoreError, match=r"z\.json: expected"):
        read_columns(tmp_path / "z.json")


def test_a_map_that_the_system_refuses_names_the_file_and_its_size(tmp_path, monkeypatch):
    np.save(tmp_path / "z.npy", np.zeros((2, 300, 4)))

    class Refused(mmap.mmap):
        def __new__(cls, *_, **__):
            raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("demur.stores.mapped_arrays.mmap.mmap", Refused)
    refused(tmp_path / "z.npy", "z.npy (19.3 kB): cannot be mapped: Cannot allocate memory", "ulimit -v")


@pytest.mark.parametrize("name", ["z.csv", "z.json", "z.npz"])
def test_columns_for_which_there_is_no_memory_name_the_file(tmp_path, monkeypatch, name):
    def fail(*_, **__):
        raise MemoryError

    (tmp_path / name).write_bytes(b"a\n1\n")
    monkeypatch.setattr("demur.stores.column_files.read_csv_columns", fail)
    monkeypatch.setattr("demur.stores.column_files.parse_json", fail)
    monkeypatch.setattr("demur.stores.column_files.read_arrays", fail)
    with pytest.raises(StoreError, match=rf"{name} \(4 bytes\): expected as much memory.*split the file"):
        read_columns(tmp_path / name)


def test_ordinary_files_are_read(tmp_path):
    """The control: what is refused above is refused for its own sake."""
    values = np.random.default_rng(0).normal(size=(2, 3, 4))
    pack(tmp_path / "z.npz", values)
    np.testing.assert_array_equal(read(tmp_path / "z.npz"), values)
    torch = pytest.importorskip("torch")
    torch.save(torch.from_numpy(values[:1]).expand(5, 3, 4), tmp_path / "z.pt")
    assert read(tmp_path / "z.pt").shape == (5, 3, 4)
