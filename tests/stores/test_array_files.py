"""Files of arrays: what is read, what is refused and with which words; no code in them is run."""

from __future__ import annotations

import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from reference.files import read, refused

from demur.stores import StoreError, open_predictions


def write_safetensors(path: Path, dtype: str, array: np.ndarray, name: str = "z") -> None:
    """Write a safetensors file by hand: the format, not the library, is what is read."""
    header = {name: {"dtype": dtype, "shape": array.shape, "data_offsets": [0, array.nbytes]}}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + array.tobytes())


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """The upper halves of float32 numbers: bfloat16, rounded toward zero."""
    return (values.view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", ">f4", ">f8", "<i4", "u1"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("window", [1, 300, 1 << 20])
def test_npy(tmp_path, logits, dtype, order, window, monkeypatch):
    monkeypatch.setattr("demur.stores.mapped_arrays._WINDOW_BYTES", window)
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
    monkeypatch.setattr("demur.stores.mapped_arrays._WINDOW_BYTES", window)
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
