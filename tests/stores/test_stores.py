"""Files: what can be read, what is refused and with which words, and that memory stays bounded."""

from __future__ import annotations

import builtins
import json
import os
import pickle
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import demur
from demur.scoring.score_files import plan_tiles, score_predictions
from demur.stores import (
    StoreError,
    check_output,
    open_predictions,
    read_columns,
    read_weights,
    write_columns,
)
from demur.stores.names import locate, natural
from demur.stores.tables import parquet_blocks

MEMBERS, INPUTS, CLASSES = 5, 37, 4


@pytest.fixture
def logits() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(MEMBERS, INPUTS, CLASSES)).astype(np.float32)


def read(names, **options) -> np.ndarray:
    """Everything that files hold, through tiles of 10 inputs and chunks of 2 members."""
    if isinstance(names, str | os.PathLike):
        names = [names]
    with open_predictions(names, **options) as predictions:
        rows = []
        for start in range(0, predictions.inputs, 10):
            chunks = list(predictions.chunks(slice(start, start + 10), 2))
            assert [m for chunk in chunks for m in chunk.members] == list(range(predictions.members))
            rows.append(np.concatenate([chunk.values for chunk in chunks]))
        return np.concatenate(rows, axis=1)


def refused(names, *words: str, **options) -> str:
    """The message with which files are refused: one line that has all of `words` in it."""
    with pytest.raises(StoreError) as caught:
        read(names, **options)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message
    return message


def write_safetensors(path: Path, dtype: str, array: np.ndarray, name: str = "z") -> None:
    """Write a safetensors file by hand: the format, not the library, is what is read."""
    header = {name: {"dtype": dtype, "shape": array.shape, "data_offsets": [0, array.nbytes]}}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + array.tobytes())


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """The upper halves of float32 numbers: bfloat16, rounded toward zero."""
    return (values.view(np.uint32) >> 16).astype(np.uint16)


# Formats


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", ">f4", ">f8", "<i4", "u1"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("window", [1, 300, 1 << 20])
def test_npy(tmp_path, logits, dtype, order, window, monkeypatch):
    monkeypatch.setattr("demur.stores.arrays._WINDOW", window)
    array = np.asarray(np.abs(logits) * 10, dtype=dtype, order=order)
    np.save(tmp_path / "z.npy", array)
    values = read(tmp_path / "z.npy")
    assert values.dtype == (array.dtype.newbyteorder("=") if "f" in dtype else np.float64)
    np.testing.assert_array_equal(values, array)


def test_npy_of_two_axes_is_one_member(tmp_path, logits):
    np.save(tmp_path / "z.npy", logits[0])
    np.testing.assert_array_equal(read(tmp_path / "z.npy"), logits[:1])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path, logits, save):
    path = tmp_path / "z.npz"
    save(path, logits)
    np.testing.assert_array_equal(read(path), logits)
    save(path, a=logits[:2], b=logits[2:].astype(np.float64), text=np.array("hello"))
    np.testing.assert_array_equal(read([f"{path}:a", f"{path}:b"]), logits)
    refused(path, "name of one of its 3 arrays (a, b, text)", f"{path}:a")
    refused(f"{path}:c", "'c'", "it has a, b, text")
    refused(f"{path}:text", f"{path}:text", "<U5")


@pytest.mark.parametrize(("code", "dtype"), [("F16", "<f2"), ("F32", "<f4"), ("F64", "<f8")])
def test_safetensors(tmp_path, logits, code, dtype):
    path = tmp_path / "z.safetensors"
    write_safetensors(path, code, logits.astype(dtype))
    values = read(path)
    assert values.dtype == dtype
    np.testing.assert_array_equal(values, logits.astype(dtype))
    np.testing.assert_array_equal(read(f"{path}:z"), logits.astype(dtype))


def test_safetensors_of_the_library(tmp_path, logits):
    from safetensors.numpy import save_file

    path = tmp_path / "z.safetensors"
    save_file({"a": logits, "b": logits[::-1].copy()}, path, metadata={"made": "here"})
    np.testing.assert_array_equal(read(f"{path}:b"), logits[::-1])
    refused(path, "2 arrays")


@pytest.mark.parametrize("window", [1, 1 << 20])
def test_safetensors_bfloat16(tmp_path, logits, window, monkeypatch):
    monkeypatch.setattr("demur.stores.arrays._WINDOW", window)
    path = tmp_path / "z.safetensors"
    write_safetensors(path, "BF16", to_bfloat16(logits))
    exact = (to_bfloat16(logits).astype(np.uint32) << 16).view(np.float32)
    assert read(path).dtype == np.float32
    np.testing.assert_array_equal(read(path), exact)
    np.testing.assert_allclose(exact, logits, rtol=2**-7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int64"])
def test_pt(tmp_path, logits, dtype):
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(logits * 10).to(getattr(torch, dtype))
    torch.save(tensor, tmp_path / "z.pt")
    np.testing.assert_array_equal(read(tmp_path / "z.pt"), tensor.double().numpy())


def test_pt_with_strides_gradient_or_names(tmp_path, logits):
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(logits).requires_grad_()
    torch.save(tensor.transpose(0, 1), tmp_path / "z.pt")
    np.testing.assert_array_equal(read(tmp_path / "z.pt", axis=1), logits)
    torch.save({"a": tensor[:2], "b": tensor[2:], "c": 5}, tmp_path / "z.pt")
    np.testing.assert_array_equal(read(f"{tmp_path}/z.pt:b"), logits[2:])
    refused(tmp_path / "z.pt", "3 arrays (a, b, c)")
    refused(f"{tmp_path}/z.pt:c", "plain tensor, got int")


@pytest.mark.parametrize("header", ["", "class_0,class_1,class_2,class_3\n", "0,1,2,3\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_csv(tmp_path, logits, header, end, monkeypatch):
    monkeypatch.setattr("demur.stores.tables.BLOCK", 200)  # several blocks
    for member, values in enumerate(logits):
        lines = [",".join(map(repr, row.tolist())) for row in values]
        text = header + "\n".join(lines) + "\n\n"
        (tmp_path / f"m{member}.csv").write_bytes(text.replace("\n", end).encode("utf-8-sig"))
    values = read(tmp_path / "m*.csv")
    np.testing.assert_array_equal(values, logits.astype(np.float64))


def test_csv_and_parquet_of_pandas(tmp_path, logits):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(logits[0])
    frame.to_csv(tmp_path / "z.csv", index=False)
    np.testing.assert_array_equal(read(tmp_path / "z.csv")[0].astype(np.float32), logits[0])
    frame.columns = frame.columns.astype(str)
    frame.to_parquet(tmp_path / "z.parquet")
    values = read(tmp_path / "z.parquet")
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, logits[:1])


def test_csv_infinity(tmp_path):
    (tmp_path / "z.csv").write_text("0.5,-inf\n1e3,-Infinity\n")
    np.testing.assert_array_equal(read(tmp_path / "z.csv")[0], [[0.5, -np.inf], [1000, -np.inf]])


def test_unpacked_files_leave_nothing_behind(tmp_path, logits):
    np.savez_compressed(tmp_path / "z.npz", logits)
    (tmp_path / "spool").mkdir()
    with open_predictions([tmp_path / "z.npz"], directory=tmp_path / "spool") as predictions:
        next(predictions.chunks(slice(0, 3), 2))
        assert list((tmp_path / "spool").iterdir()) == []  # it has no name even now
    refused(tmp_path / "z.npz", "room for a temporary file", directory=tmp_path / "missing")


@pytest.mark.parametrize("suffix", ["npz", "csv"])
def test_no_room_to_unpack_is_told_with_the_place(tmp_path, logits, suffix, monkeypatch):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    np.savez_compressed(tmp_path / "z.npz", logits)
    np.savetxt(tmp_path / "z.csv", logits[0], delimiter=",")
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: open("/dev/full", "w+b"))  # noqa: SIM115
    message = f"{tmp_path}: expected room for a temporary file, got: No space left on device"
    refused(tmp_path / f"z.{suffix}", message, directory=tmp_path)


# Several files, globs, axes


def test_natural_order():
    names = ["m_10", "m_9", "m_09", "m_1", "a2/b10", "a2/b9", "a10/b1"]
    expected = ["a2/b9", "a2/b10", "a10/b1", "m_1", "m_09", "m_9", "m_10"]
    assert sorted(names, key=natural) == expected


def test_glob(tmp_path, logits):
    many = np.concatenate([logits, logits + 1, logits + 2])
    for index, member in enumerate(many):
        np.save(tmp_path / f"member_{index}.npy", member)
    np.testing.assert_array_equal(read(tmp_path / "member_*.npy"), many)
    np.savez(tmp_path / "one.npz", a=logits, b=logits)
    assert locate([f"{tmp_path}/*.npz:b"]) == [(tmp_path / "one.npz", "b")]
    refused(tmp_path / "nothing_*.npy", "nothing_*.npy", "found none")


def test_a_name_with_glob_characters_or_a_colon_is_a_name(tmp_path, logits):
    for name in ("a[1].npy", "b:c.npy"):
        np.save(tmp_path / name, logits)
        np.testing.assert_array_equal(read(tmp_path / name), logits)


@pytest.mark.parametrize("suffix", ["npz", "safetensors", "pt"])
def test_names_of_arrays_may_have_colons(tmp_path, logits, suffix, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("z").mkdir()
    for path in (f"z.{suffix}", f"z:1.{suffix}", f"z/z.{suffix}"):
        arrays = {"c:d": logits, "d": logits[:1], ":": logits[:2], "z/e": logits[:3]}
        if suffix == "npz":
            np.savez(path, **arrays)  # pyright: ignore
        elif suffix == "safetensors":
            pytest.importorskip("safetensors.numpy").save_file(arrays, path)
        else:
            torch = pytest.importorskip("torch")
            torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, path)
        for name, array in arrays.items():
            np.testing.assert_array_equal(read(f"{path}:{name}"), array)
        refused(f"{path}:c:e", f"{path}: expected the name of an array in it, got 'c:e': it has ")
    np.testing.assert_array_equal(read(f"z/*.{suffix}:c:d"), logits)
    refused(f"none.{suffix}:c:d", f"none.{suffix}: cannot be read: No such file")


def test_a_directory_is_not_what_a_colon_splits_off(tmp_path, logits, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("run", "run:1"):
        Path(name).mkdir()
    np.save("run:1/z.npy", logits)
    np.testing.assert_array_equal(read("run:1/*.npy"), logits)
    refused("run:1/y.npy", "run:1/y.npy: cannot be read: No such file")


def test_names_of_tensors_may_be_numbers(tmp_path, logits):
    torch = pytest.importorskip("torch")
    torch.save({0: torch.from_numpy(logits), 1: torch.from_numpy(logits[:1])}, tmp_path / "z.pt")
    np.testing.assert_array_equal(read(f"{tmp_path}/z.pt:0"), logits)
    refused(tmp_path / "z.pt", f"write {tmp_path}/z.pt:0")


def test_files_of_different_rank_and_type_are_counted_through(tmp_path, logits):
    np.save(tmp_path / "a.npy", logits[:2])
    np.save(tmp_path / "b.npy", logits[2].astype(np.float64))
    np.savez_compressed(tmp_path / "c.npz", logits[3:])
    names = [tmp_path / "a.npy", tmp_path / "b.npy", tmp_path / "c.npz"]
    np.testing.assert_array_equal(read(names), logits)
    with open_predictions(names) as predictions:
        chunks = list(predictions.chunks(slice(0, 3), 5))
    assert [chunk.values.dtype for chunk in chunks] == [np.float32, np.float64, np.float32]
    assert [chunk.members for chunk in chunks] == [range(2), range(2, 3), range(3, 5)]


@pytest.mark.parametrize("axis", [1, -2])
def test_axis(tmp_path, logits, axis):
    np.save(tmp_path / "z.npy", logits.swapaxes(0, 1))
    np.testing.assert_array_equal(read(tmp_path / "z.npy", axis=axis), logits)
    refused(tmp_path / "z.npy", "axis", "got 2", axis=2)
    np.save(tmp_path / "z.npy", np.asfortranarray(logits.swapaxes(0, 1)))
    np.testing.assert_array_equal(read(tmp_path / "z.npy", axis=axis), logits)


@pytest.mark.parametrize(("axis", "order"), [(1, "C"), (0, "F")])
def test_members_that_lie_side_by_side_are_read_at_once(tmp_path, axis, order):
    np.save(tmp_path / "z.npy", np.asarray(np.zeros((40, 40, 4)), order=order))
    with open_predictions([tmp_path / "z.npy"], axis=axis) as predictions:
        assert plan_tiles(predictions, groups=1, budget=4000)[1] == 40
    with open_predictions([tmp_path / "z.npy"], axis=1 - axis) as predictions:
        assert plan_tiles(predictions, groups=1, budget=4000)[1] < 40


def test_more_files_than_descriptors(tmp_path, logits):
    resource = pytest.importorskip("resource")
    for index in range(100):
        np.save(tmp_path / f"{index}.npy", logits[0] + index)
        np.savetxt(tmp_path / f"{index}.csv", logits[0] + index, delimiter=",")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 30
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 20, hard))
    try:
        assert read([tmp_path / "*.npy", tmp_path / "*.csv"]).shape == (200, INPUTS, CLASSES)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# What is refused


def test_shapes(tmp_path, logits):
    path = tmp_path / "z.npy"
    for shape in [(CLASSES,), (2, 3, 4, 5), ()]:
        np.save(path, np.ones(shape))
        refused(path, str(path), str(shape), "(inputs, classes)")
    np.save(path, np.ones((3, 0, 4)))
    refused(path, str(path), "(3, 0, 4)")
    np.save(path, logits)
    np.save(tmp_path / "y.npy", logits[:, 1:])
    refused([path, tmp_path / "y.npy"], "y.npy", "37 inputs and 4 classes, as in", "36 inputs")
    refused([path, path], "twice")


def test_one_file_under_two_spellings_is_one(tmp_path, logits, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("one.npz", logits)
    np.savez("two.npz", a=logits[:2], b=logits[2:])
    Path("link.npz").symlink_to("one.npz")
    for other in (tmp_path / "one.npz", "./one.npz", "link.npz", "one.npz:arr_0"):
        refused(["one.npz", other], "twice")
        refused([other, "one.npz"], "twice")
    refused(["two.npz:a", f"{tmp_path}/two.npz:a"], "twice")
    np.testing.assert_array_equal(read(["two.npz:a", "two.npz:b"]), logits)


def test_a_pipe_is_not_waited_for(tmp_path):
    if not hasattr(os, "mkfifo"):
        pytest.skip("needs named pipes")
    for suffix in ("npy", "npz", "safetensors", "pt", "csv", "parquet"):
        os.mkfifo(tmp_path / f"z.{suffix}")
        refused(tmp_path / f"z.{suffix}", f"z.{suffix}: expected a file, got a pipe")


def test_missing_files(tmp_path):
    for suffix in ("npy", "npz", "safetensors", "pt", "csv", "parquet"):
        refused(tmp_path / f"none.{suffix}", f"none.{suffix}", "No such file")
    refused(tmp_path, "directory", "*.npy")
    (tmp_path / "z.txt").write_text("1")
    refused(tmp_path / "z.txt", ".safetensors", "'.txt'")
    refused([], "at least one")
    np.save(tmp_path / "z.npy", np.ones((2, 2)))
    refused(f"{tmp_path}/z.npy:a", "':a'", "holds one array")


@pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors", "pt", "parquet"])
@pytest.mark.parametrize("damage", ["empty", "foreign", "truncated", "header"])
def test_damaged_files(tmp_path, logits, suffix, damage):
    path = tmp_path / f"z.{suffix}"
    if suffix == "npy":
        np.save(path, logits)
    elif suffix == "npz":
        np.savez_compressed(path, logits)
    elif suffix == "safetensors":
        write_safetensors(path, "F32", logits)
    elif suffix == "pt":
        pytest.importorskip("torch").save(pytest.importorskip("torch").from_numpy(logits), path)
    else:
        pq = pytest.importorskip("pyarrow.parquet")
        pa = pytest.importorskip("pyarrow")
        pq.write_table(pa.table({"a": logits[0, :, 0]}), path)
    whole = path.read_bytes()
    path.write_bytes(
        {
            "empty": b"",
            "foreign": b"GIF89a and then something else, for quite some bytes" * 10,
            "truncated": whole[: len(whole) * 2 // 3],
            "header": whole[:6] + b"\xff" * 40 + whole[46:],
        }[damage]
    )
    refused(path, str(path))


def test_every_truncation_and_flip_of_a_header_is_refused_or_read(tmp_path, logits):
    """Nothing but `StoreError` may come out of a damaged file."""
    rng = np.random.default_rng(1)
    np.save(tmp_path / "z.npy", logits)
    np.savez(tmp_path / "z.npz", logits)
    np.savez_compressed(tmp_path / "y.npz", logits)
    write_safetensors(tmp_path / "z.safetensors", "F32", logits)
    for name in ("z.npy", "z.npz", "y.npz", "z.safetensors"):
        whole = (tmp_path / name).read_bytes()
        for _ in range(200):
            damaged = bytearray(whole)
            damaged[rng.integers(min(len(whole), 200))] = rng.integers(256)
            damaged = damaged[: rng.integers(len(whole)) if rng.random() < 0.5 else None]
            (tmp_path / name).write_bytes(damaged)
            try:
                read(tmp_path / name)
            except StoreError as error:
                assert "\n" not in str(error)  # noqa: PT017


def test_npz_whose_entry_is_damaged(tmp_path, logits):
    path = tmp_path / "z.npz"
    np.savez_compressed(path, logits)
    damaged = bytearray(path.read_bytes())
    damaged[200:260] = bytes(60)
    path.write_bytes(damaged)
    refused(path, str(path), "damaged")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "no array here")
    refused(path, "holds none")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("where", [300, -400])
def test_npz_with_another_checksum(tmp_path, logits, save, where):
    path = tmp_path / "z.npz"
    save(path, a=logits, b=logits)
    damaged = bytearray(path.read_bytes())
    damaged[where] ^= 1
    path.write_bytes(damaged)
    good, bad = ("b", "a") if where > 0 else ("a", "b")
    np.testing.assert_array_equal(read(f"{path}:{good}"), logits)
    refused(f"{path}:{bad}", f"{path}: expected a NumPy archive, got a damaged or foreign file")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_npz_packed_otherwise_and_damaged(tmp_path, logits, method):
    path = tmp_path / "z.npz"
    np.savez(tmp_path / "plain.npz", logits)
    with zipfile.ZipFile(tmp_path / "plain.npz") as plain, zipfile.ZipFile(path, "w", method) as packed:
        packed.writestr("z.npy", plain.read("arr_0.npy"))
    np.testing.assert_array_equal(read(path), logits)
    damaged = bytearray(path.read_bytes())
    damaged[60:90] = b"\xff" * 30
    path.write_bytes(damaged)
    refused(path, str(path), "damaged")


def test_npz_whose_header_claims_its_neighbour(tmp_path, logits):
    path = tmp_path / "z.npz"
    np.savez(path, a=logits, b=logits)
    before = b"(%d, %d, %d), " % logits.shape
    assert before in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(before, before.replace(b"37", b"38"), 1))
    refused(f"{path}:a", "z.npz:a", "damaged")
    np.testing.assert_array_equal(read(f"{path}:b"), logits)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': (), 'fortran_order': False, 'shape': (2, 2), }",
        "{'descr': ('a',), 'fortran_order': False, 'shape': (2, 2), }",
        "{'descr': [('a', ('<f8',))], 'fortran_order': False, 'shape': (2, 2), }",
        "-" * 9000 + "1",
        "1+" * 3000 + "1",
    ],
)
def test_headers_that_break_the_parser(tmp_path, header):
    text = header.encode() + b"\n"
    (tmp_path / "z.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(32))
    refused(tmp_path / "z.npy", "z.npy: expected a NumPy file")


@pytest.mark.parametrize("pickled", [b"\x80\x02.", b"\x80\x02K\x01Q."])
def test_tensors_that_break_the_unpickler(tmp_path, pickled):
    pytest.importorskip("torch")
    with zipfile.ZipFile(tmp_path / "z.pt", "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", "3\n")
    refused(tmp_path / "z.pt", "z.pt: expected a tensor of torch.save")


def test_an_array_appended_to_another_is_not_dropped_silently(tmp_path, logits):
    with (tmp_path / "z.npy").open("wb") as file:
        np.save(file, logits[0])
        np.save(file, logits[1])
    refused(tmp_path / "z.npy", "one array in a file")


class Malicious:
    """Runs code when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return (os.mkdir, (str(self.trace),))


def test_no_code_is_run(tmp_path, logits):
    trace = tmp_path / "it_ran"
    objects = np.array([[Malicious(trace)]], dtype=object)
    np.save(tmp_path / "z.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "z.npz", objects, allow_pickle=True)
    (tmp_path / "raw.npy").write_bytes(pickle.dumps(Malicious(trace)))
    for name in ("z.npy", "z.npz"):
        refused(tmp_path / name, "never unpickled")
    refused(tmp_path / "raw.npy", "NumPy file")
    torch = pytest.importorskip("torch")
    torch.save(Malicious(trace), tmp_path / "z.pt")
    refused(tmp_path / "z.pt", "could run code", "not loaded")
    torch.save({"a": torch.from_numpy(logits), "b": Malicious(trace)}, tmp_path / "y.pt")
    refused(f"{tmp_path}/y.pt:a", "could run code")
    (tmp_path / "x.pt").write_bytes(pickle.dumps(Malicious(trace)))
    refused(tmp_path / "x.pt", "damaged or foreign")
    assert not trace.exists()
    with pytest.raises(FileExistsError):  # the control: loaded without care it does run
        pickle.loads(pickle.dumps(Malicious(tmp_path)))


def test_types(tmp_path):
    np.save(tmp_path / "z.npy", np.ones((2, 3), complex))
    refused(tmp_path / "z.npy", "complex128")
    np.save(tmp_path / "z.npy", np.array([["a", "b"]]))
    refused(tmp_path / "z.npy", "<U1")
    np.save(tmp_path / "z.npy", np.zeros((2, 3), "V2"))
    refused(tmp_path / "z.npy", "bfloat16", ".safetensors")
    write_safetensors(tmp_path / "z.safetensors", "F8_E4M3", np.ones((2, 3), np.uint8))
    refused(tmp_path / "z.safetensors", "F8_E4M3")
    torch = pytest.importorskip("torch")
    for tensor in (torch.ones(2, 3).to_sparse(), torch.ones(2, 3).to(torch.float8_e4m3fn)):
        torch.save(tensor, tmp_path / "z.pt")
        refused(tmp_path / "z.pt", "z.pt", "expected")
    torch.save(torch.ones(2, 3), tmp_path / "z.pt", _use_new_zipfile_serialization=False)
    refused(tmp_path / "z.pt", "torch.save(tensor, path)")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["(0, 0)"]),
        ("a,b\n", ["(0, 2)"]),
        ("0.1,0.9\n0.1,x\n", ["'x'", "line 2"]),
        ("a,b\n0.1,0.9\n\n0.1\n", ["2 numbers", "got 1", "line 4"]),
        ("a,b\n0.1,0.9,0.0\n", ["2 numbers", "got 3", "line 2"]),
        ("a,b\n0.1,\n", ["''", "line 2"]),
        ("a;b\n0.1;0.9\n", ["'0.1;0.9'", "line 2", "commas"]),
        (",a,b\n0,0.1,0.9\n", ["index=False"]),
        ("0,1\n1,0\n", ["either", "class_0", "0.0 for 0"]),
        ("1,2,3\n0.1,0.2,0.7\n", ["line 1", "got 1,2,3", "either", "class_0", "1.0 for 1"]),
        ("0.1,0.9\n0.1,1_0\n", ["'1_0'", "line 2"]),
        (",0,1\n0,0.1,0.9\n", ["index=False"]),
        ("0.2,,0.8\n0.2,0.3,0.5\n", ["''", "line 1"]),
        (",0.2,0.8\n0.2,0.3,0.5\n", ["''", "line 1"]),
        ("0.2,NA,0.8\n0.2,0.3,0.5\n", ["'NA'", "line 1"]),
        ("NA,NA\n0.2,0.8\n", ["'NA'", "line 1"]),
        ("\n0.2,0.5x\n0.2,0.8\n", ["'0.5x'", "line 2"]),
        ("id,c0,c1\n1,0.1,0.9\n", ["'id'", "leave it out"]),
        ("index,0,1\n0,0.1,0.9\n", ["'index'", "leave it out"]),
        ("c0,c1,Label\n0.1,0.9,1\n", ["'Label'", "leave it out"]),
    ],
)
def test_bad_csv(tmp_path, text, words):
    (tmp_path / "z.csv").write_text(text)
    refused(tmp_path / "z.csv", "z.csv", *words)


def test_blank_lines_of_a_csv_do_not_count(tmp_path):
    for text in ("\n\na,b\n\n0.1,0.9\n", "\n0.1,0.9\n\n", " \n0,1\n\n0.1,0.9\n"):
        (tmp_path / "z.csv").write_text(text)
        np.testing.assert_array_equal(read(tmp_path / "z.csv"), [[[0.1, 0.9]]])


def test_foreign_csv(tmp_path):
    (tmp_path / "z.csv").write_bytes(bytes(range(256)) * 10)
    refused(tmp_path / "z.csv", "z.csv")
    (tmp_path / "z.csv").write_bytes(b"\x00\x01" * 100)
    refused(tmp_path / "z.csv", "z.csv")


def test_bad_parquet(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [0.1, 0.9], "name": ["x", "y"]})
    frame.to_parquet(tmp_path / "z.parquet")
    refused(tmp_path / "z.parquet", "'name'", "leave it out")
    frame.set_index("name").to_parquet(tmp_path / "z.parquet")
    refused(tmp_path / "z.parquet", "name", "index=False")
    pd.DataFrame({"Input": [0, 1], "a": [0.1, 0.9]}).to_parquet(tmp_path / "z.parquet")
    refused(tmp_path / "z.parquet", "'Input'", "leave it out")


@pytest.mark.parametrize(
    "metadata", [b"[1]", b"[" * 100_000, b"\xff\xfe", b"{", b'{"index_columns": 5}'], ids=range(5)
)
def test_parquet_with_damaged_metadata(tmp_path, metadata):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({"a": [0.1, 0.9]}).replace_schema_metadata({"pandas": metadata})
    pq.write_table(table, tmp_path / "z.parquet")
    refused(tmp_path / "z.parquet", "z.parquet", "damaged metadata")


@pytest.mark.parametrize("rows", [1000, 200_000])
def test_parquet_is_read_in_pieces(tmp_path, rows, monkeypatch):
    """In row groups of any size, Arrow holds a small part of the file."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("demur.stores.tables.BLOCK", 1 << 20)
    values = np.random.default_rng(0).random((200_000, 10))
    table = pa.table({f"c{column}": values[:, column] for column in range(10)})
    pq.write_table(table, tmp_path / "z.parquet", row_group_size=rows, use_dictionary=False)
    del table
    before, found = pa.total_allocated_bytes(), []
    for block in parquet_blocks(tmp_path / "z.parquet"):
        found.append(len(block))
        assert pa.total_allocated_bytes() - before < values.nbytes / 2
    assert sum(found) == len(values)


@pytest.mark.parametrize(
    ("suffix", "module", "extra"),
    [("pt", "torch", "demur[torch]"), ("parquet", "pyarrow", "[tables]")],
)
def test_a_missing_extra_is_named(tmp_path, monkeypatch, suffix, module, extra):
    plain = builtins.__import__

    def without(name, *rest, **named):
        if name.split(".")[0] == module:
            raise ImportError(f"No module named {module!r}", name=module)
        return plain(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    (tmp_path / f"z.{suffix}").write_bytes(b"x")
    refused(tmp_path / f"z.{suffix}", "pip install", extra)
    if suffix == "parquet":
        with pytest.raises(StoreError, match="pip install"):
            check_output(tmp_path / "out.parquet")


def test_a_file_that_changes_meanwhile(tmp_path, logits):
    np.save(tmp_path / "z.npy", logits)
    with open_predictions([tmp_path / "z.npy"]) as predictions:
        np.save(tmp_path / "z.npy", logits[:1])
        with pytest.raises(StoreError, match="changed while it was read"):
            next(predictions.chunks(slice(0, 3), 2))


# Columns


def test_names_that_python_takes_for_numbers(tmp_path):
    (tmp_path / "s.csv").write_text("group,x\n1_0,1\n10,2\n")
    columns = read_columns(tmp_path / "s.csv")
    assert columns["group"].tolist() == ["1_0", "10"] and columns["x"].tolist() == [1, 2]


@pytest.mark.parametrize("values", [[[0.1, 0.9], [0.2, 0.8]], [{"a": 1}, {"a": 2}]])
def test_columns_of_lists_are_named(tmp_path, values):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"x": [0.1, 0.2], "y": values}), tmp_path / "s.parquet")
    with pytest.raises(StoreError, match=r"s\.parquet: expected numbers or text, got y of (list|struct)<"):
        read_columns(tmp_path / "s.parquet")


# Weights


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("w.txt", "0.5 1\n2\n"),
        ("w.csv", "0.5,1,2\n"),
        ("w.csv", "weight\n0.5\n1\n2\n"),
        ("w.json", "[0.5, 1, 2]"),
    ],
)
def test_weights(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    np.testing.assert_array_equal(read_weights(tmp_path / name, members=3, inputs=7), [0.5, 1, 2])


def test_weights_in_arrays(tmp_path):
    for array in (np.array([1, 2, 3]), np.arange(21.0).reshape(3, 7)):
        np.save(tmp_path / "w.npy", array)
        weights = read_weights(tmp_path / "w.npy", members=3, inputs=7)
        assert weights.dtype == np.float64
        np.testing.assert_array_equal(weights, array)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("w.txt", "1 2", ["3 members", "(2,)"]),
        ("w.txt", "1 2 x", ["'x'"]),
        ("w.json", '{"a": 1}', ["dict"]),
        ("w.json", "[1, 2, null]", ["null"]),
        ("w.json", "[1, 2", ["w.json"]),
        ("w.npz", "", [".npy", "'.npz'"]),
        ("w.npy", "foreign", ["NumPy file"]),
        ("w.json", "[1, 2, " + "9" * 400 + "]", ["3 numbers", "too large"]),
        ("w.json", "[" * 100_000, ["3 numbers", "recursion"]),
    ],
)
def test_bad_weights(tmp_path, name, content, words):
    (tmp_path / name).write_text(content)
    with pytest.raises(StoreError) as caught:
        read_weights(tmp_path / name, members=3, inputs=7)
    for word in ["w.", *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
def test_weights_that_are_none(tmp_path, shape):
    np.save(tmp_path / "w.npy", np.ones(shape))
    with pytest.raises(StoreError, match=r"w\.npy: expected a weight for each of the 3 members"):
        read_weights(tmp_path / "w.npy", members=3, inputs=7)


# Output

COLUMNS = {
    "input": np.arange(3),
    "pairwise_epistemic": np.array([0.1, np.inf, np.nan], np.float32),
    "average_epistemic": np.array([1 / 3, 0.0, 1e-20]),
}


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz", "json"])
def test_written_columns_read_back(tmp_path, suffix):
    path = tmp_path / f"scores.{suffix}"
    write_columns(path, COLUMNS, facts={"members": 3})
    if suffix == "npz":
        with np.load(path) as file:
            back = dict(file)
    elif suffix == "json":
        whole = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
        assert whole["members"] == 3
        assert whole["scores"]["pairwise_epistemic"] == [0.1, "inf", "nan"]
        back = {name: np.array(values, float) for name, values in whole["scores"].items()}
    else:
        pd = pytest.importorskip("pandas")
        back = pd.read_csv(path) if suffix == "csv" else pd.read_parquet(path)
    assert list(back) == list(COLUMNS)
    for name, values in COLUMNS.items():
        np.testing.assert_array_equal(np.asarray(back[name]).astype(values.dtype), values)
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_same_columns_same_bytes(tmp_path):
    for suffix in ("csv", "parquet", "npz", "json"):
        for name in ("a", "b"):
            write_columns(tmp_path / f"{name}.{suffix}", COLUMNS)
        first, second = ((tmp_path / f"{name}.{suffix}").read_bytes() for name in ("a", "b"))
        assert first == second


def test_an_existing_file_is_kept(tmp_path, monkeypatch):
    path = tmp_path / "scores.csv"
    path.write_text("precious")
    with pytest.raises(StoreError, match="--force"):
        write_columns(path, COLUMNS)
    # Also where it comes to exist after the check.
    monkeypatch.setattr("demur.stores.output.check_output", lambda path, force: None)
    with pytest.raises(StoreError, match="--force"):
        write_columns(path, COLUMNS)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]
    write_columns(path, COLUMNS, force=True)
    assert path.read_text().startswith("input,")


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    path = tmp_path / "scores.csv"
    path.write_text("precious")

    def fail(file, *rest):
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("demur.stores.output._write", fail)
    with pytest.raises(StoreError, match="No space left on device"):
        write_columns(path, COLUMNS, force=True)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_a_link(tmp_path, exists):
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "link.csv", tmp_path / "there" / "target.csv"
    link.symlink_to(target)
    if exists:
        target.write_text("precious")
        with pytest.raises(StoreError, match="--force"):
            write_columns(link, COLUMNS)
    write_columns(link, COLUMNS, force=exists)
    assert link.is_symlink()
    assert target.read_text().startswith("input,")
    assert list(target.parent.iterdir()) == [target]


def test_bad_output(tmp_path):
    for path, words in [
        (tmp_path / "scores.txt", "'.txt'"),
        (tmp_path / "none" / "scores.csv", "create"),
    ]:
        with pytest.raises(StoreError, match=words):
            check_output(path)
    (tmp_path / "dir.csv").mkdir()
    with pytest.raises(StoreError, match="directory"):
        check_output(tmp_path / "dir.csv")


# Scoring


def whole(kind: str, values: np.ndarray, **options) -> dict[str, np.ndarray]:
    """Columns by `demur.decompose` on the whole array."""
    columns = {}
    for measure in ("pairwise", "average", "reverse"):
        prediction = demur.Categorical(**{kind: values})
        parts = demur.decompose(prediction, measure=measure, **options)
        for part in ("total", "aleatoric", "epistemic"):
            columns[f"{measure}_{part}"] = getattr(parts, part)
            if options.get("stderr"):
                columns[f"{measure}_{part}_stderr"] = getattr(parts.stderr, part)
    return columns


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("budget", [1, 3000, 64 << 20])
@pytest.mark.parametrize("options", [{}, {"stderr": True, "unbiased": True}, {"base": 2.0}])
def test_tiles_and_chunks_do_not_matter(tmp_path, axis, budget, options):
    logits = np.random.default_rng(3).normal(size=(20, 50, 6)) * 3
    np.save(tmp_path / "z.npy", np.moveaxis(logits, 0, axis))
    with open_predictions([tmp_path / "z.npy"], axis=axis) as predictions:
        scores = score_predictions(predictions, "logits", budget=budget, **options)
    expected = whole("logits", logits, **options)
    assert set(scores.columns) == {"input", "prediction", *expected}
    for name, values in expected.items():
        np.testing.assert_allclose(scores.columns[name], values, rtol=1e-9, atol=1e-14)
    soft = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_array_equal(scores.columns["prediction"], soft.mean(0).argmax(-1))
    np.testing.assert_array_equal(scores.columns["input"], np.arange(50))


@pytest.mark.parametrize("per_input", [False, True])
def test_weights_go_with_their_members_and_inputs(tmp_path, logits, per_input):
    weights = np.random.default_rng(4).random((MEMBERS, INPUTS) if per_input else MEMBERS)
    weights[:3] = 0  # whole chunks without any weight
    if per_input:
        weights[3, :5] = 0
    np.save(tmp_path / "z.npy", logits)
    with open_predictions([tmp_path / "z.npy"]) as predictions:
        for budget in (1, 1 << 20):
            scores = score_predictions(predictions, "logits", weights=weights, budget=budget)
            expected = whole("logits", logits, weights=weights)
            for name, values in expected.items():
                np.testing.assert_allclose(scores.columns[name], values, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e200, 2.0**1023])
@pytest.mark.parametrize("per_input", [False, True])
def test_weights_of_any_scale(tmp_path, logits, scale, per_input):
    weights = np.array([1.0, 0.0, 1.0, 1.0, 1.0])
    if per_input:
        weights = np.repeat(weights[:, None], INPUTS, axis=1)
    np.save(tmp_path / "z.npy", logits)
    with open_predictions([tmp_path / "z.npy"]) as predictions:
        expected = score_predictions(predictions, "logits", weights=weights)
        found = score_predictions(predictions, "logits", weights=weights * scale)
    for name, values in expected.columns.items():
        np.testing.assert_allclose(found.columns[name], values, rtol=1e-12)


@pytest.mark.parametrize("kind", ["probs", "log_probs"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_probabilities_of_every_precision(tmp_path, logits, kind, dtype):
    """What is as exact as its type is accepted, and its values are those of the type."""
    torch = pytest.importorskip("torch")
    exact = torch.from_numpy(logits).double().log_softmax(-1)
    tensor = (exact.exp() if kind == "probs" else exact).to(getattr(torch, dtype))
    torch.save(tensor, tmp_path / "z.pt")
    with open_predictions([tmp_path / "z.pt"]) as predictions:
        scores = score_predictions(predictions, kind)
    expected = whole(kind, tensor)
    for name, values in expected.items():
        np.testing.assert_allclose(scores.columns[name], values, rtol=1e-5, atol=1e-7)


def test_float32_probabilities_in_text(tmp_path, logits):
    """Text of float32 numbers sums to one as exactly as float32 does."""
    probs = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    for member, values in enumerate(probs):
        np.savetxt(tmp_path / f"m{member}.csv", values, delimiter=",", fmt="%.9g")
    with open_predictions([tmp_path / "*.csv"]) as predictions:
        scores = score_predictions(predictions, "probs")
    for name, values in whole("probs", probs).items():
        np.testing.assert_allclose(scores.columns[name], values, rtol=1e-4, atol=1e-7)


def test_infinity_and_top(tmp_path):
    probs = np.array([[[1, 0], [0.5, 0.5], [0.2, 0.8]], [[0, 1], [0.5, 0.5], [0.8, 0.2]]], float)
    np.save(tmp_path / "p.npy", probs)
    with open_predictions([tmp_path / "p.npy"]) as predictions:
        scores = score_predictions(predictions, "probs")
    np.testing.assert_array_equal(scores.top(2), [0, 2])
    np.testing.assert_array_equal(scores.top(9), [0, 2, 1])
    summary = scores.summary()
    assert summary["pairwise"]["epistemic"]["infinite"] == 1
    assert summary["pairwise"]["epistemic"]["max"] == "inf"
    assert summary["average"]["epistemic"]["infinite"] == 0
    assert summary["average"]["epistemic"]["max"] == pytest.approx(np.log(2))


def test_the_bad_value_is_located(tmp_path, logits):
    logits[3, 29, 1] = np.nan
    logits[3, 31, 1] = np.nan
    np.save(tmp_path / "a.npy", logits[:2])
    np.save(tmp_path / "b.npy", logits[2:])
    with open_predictions([tmp_path / "a.npy", tmp_path / "b.npy"]) as predictions:
        for budget in (1, 2000, 1 << 20):
            with pytest.raises(StoreError, match=r"b\.npy: member 1, input 29: .*nan"):
                score_predictions(predictions, "logits", budget=budget)


def test_a_plan_keeps_to_its_budget(tmp_path):
    class Sizes:
        members_together = False

        def __init__(self, members, inputs, classes, itemsize=4):
            self.members, self.inputs, self.classes = members, inputs, classes
            self.itemsize = itemsize

    for shape in [(1000, 1000, 2), (10, 10**6, 1000), (8, 64, 128_000), (10**5, 10, 1000)]:
        for groups in (1, 64):
            sizes = Sizes(*shape)
            tile, members = plan_tiles(sizes, groups=groups, budget=64 << 20)  # pyright: ignore
            assert 1 <= tile <= sizes.inputs
            assert 1 <= members <= sizes.members
            values = tile * members * sizes.classes * 4
            state = tile * sizes.classes * (80 * groups + 160)
            assert values <= 32 << 20
            assert state <= 32 << 20 or tile == 1


def test_stores_import_nothing_heavy():
    import subprocess

    code = (
        "import sys, demur.stores; "
        "print([m for m in ('torch', 'pandas', 'pyarrow', 'jax', 'numba', 'rich', 'matplotlib') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_checker_objects():
    """The control of `refused`: a message without the words does not pass."""
    with pytest.raises(AssertionError):
        refused("none.npy", "no such words")
