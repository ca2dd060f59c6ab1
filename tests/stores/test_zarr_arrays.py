"""Predictions in zarr stores are read as arrays are, and nothing that is missing is taken for zeros."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from reference.files import CLASSES, INPUTS, MEMBERS, read, refused

from demur.stores import StoreError, spool, write_predictions
from demur.stores.prediction_stores import convert_predictions

zarr = pytest.importorskip("zarr")
SLOW = pytest.mark.slow


def write(path, values: np.ndarray, chunks: tuple[int, ...], **options) -> None:
    array = zarr.create_array(
        path, shape=values.shape, chunks=chunks, dtype=values.dtype,
        config={"write_empty_chunks": True}, **options,
    )  # fmt: skip
    array[...] = values


@pytest.mark.parametrize("chunks", [(5, 37, 4), (1, 10, 4), (2, 7, 3), (5, 1, 4)])
@pytest.mark.parametrize("held", [0, 1 << 20])
def test_chunks_do_not_matter(tmp_path, logits, chunks, held, monkeypatch):
    monkeypatch.setattr(spool, "HELD_BYTES", held)  # 0: unpacked to a file
    write(tmp_path / "z.zarr", logits, chunks)
    np.testing.assert_array_equal(read(tmp_path / "z.zarr"), logits)


def test_other_layouts_are_those_of_arrays(tmp_path, logits):
    write(tmp_path / "first.zarr", logits.swapaxes(0, 1), (7, 2, 4))
    np.testing.assert_array_equal(read(tmp_path / "first.zarr", axis=1), logits)
    images = np.random.default_rng(1).normal(size=(3, 5, 4, 6, 7)).astype(np.float32)
    write(tmp_path / "images.zarr", images, (1, 2, 4, 6, 3))
    rows = np.moveaxis(images, 2, -1).reshape(3, -1, 4)
    np.testing.assert_array_equal(read(tmp_path / "images.zarr", class_axis=2), rows)
    for member in range(MEMBERS):
        write(tmp_path / f"member_{member}.zarr", logits[member], (10, 4))
    np.testing.assert_array_equal(read(tmp_path / "member_*.zarr"), logits)


@pytest.mark.parametrize("dtype", ["<f2", ">f4", "<f8", "<i2"])
def test_types(tmp_path, logits, dtype):
    values = (logits * 10).astype(dtype)
    write(tmp_path / "z.zarr", values, (2, 10, 4))
    np.testing.assert_array_equal(read(tmp_path / "z.zarr"), values)


def test_an_array_is_named_or_the_only_wide_one(tmp_path, logits):
    group = zarr.create_group(tmp_path / "g.zarr")
    group.create_array("logits", data=logits)
    group.create_array("label", data=np.arange(INPUTS))
    group.create_array("time", data=np.arange(3))
    np.testing.assert_array_equal(read(tmp_path / "g.zarr"), logits)
    np.testing.assert_array_equal(read(f"{tmp_path}/g.zarr:logits"), logits)
    group.create_array("others", data=logits)
    refused(
        tmp_path / "g.zarr", "g.zarr: expected an array named predictions", "got label, logits, others, time"
    )
    refused(f"{tmp_path}/g.zarr:none", "g.zarr:none: expected a zarr store of version 3, got nothing there")


@pytest.mark.parametrize("missing", ["c/0/0/0", "c/1/3/0"])
def test_a_missing_chunk_is_an_error_and_not_zeros(tmp_path, logits, missing):
    write(tmp_path / "z.zarr", logits, (3, 10, 4))
    (tmp_path / "z.zarr" / missing).unlink()
    seen = zarr.open_array(tmp_path / "z.zarr", mode="r")[:]
    assert not np.array_equal(seen, logits)  # zarr alone says nothing
    refused(tmp_path / "z.zarr", f"z.zarr: the chunk {missing} is missing: copy or write the store again")


@pytest.mark.parametrize("held", [0, 1 << 20])
def test_every_byte_of_a_chunk_of_ours_counts(tmp_path, logits, held, monkeypatch):
    monkeypatch.setattr(spool, "HELD_BYTES", held)
    write_predictions(tmp_path / "z.zarr", [logits], block=10)
    chunk = tmp_path / "z.zarr/predictions/c/0/2/0"
    content = bytearray(chunk.read_bytes())
    for place in (0, len(content) // 2, len(content) - 1):
        content[place] ^= 1
        chunk.write_bytes(content)
        refused(tmp_path / "z.zarr", "z.zarr:predictions: cannot be read")
        content[place] ^= 1
    chunk.write_bytes(content[:-3])
    refused(tmp_path / "z.zarr", "z.zarr:predictions: cannot be read")
    chunk.write_bytes(content)
    np.testing.assert_array_equal(read(tmp_path / "z.zarr"), logits)


INNER = {"name": "sharding_indexed", "configuration": {"codecs": ["x"]}}
HUGE = {"name": "regular", "configuration": {"chunk_shape": [5, 10**9, 10**6]}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"codecs": [{"name": "numcodecs.pickle"}]}, "expected codecs bytes, blosc"),
        ({"codecs": [{"name": "bytes"}, INNER]}, "'x'"),
        ({"codecs": None}, "expected codecs"),
        ({"shape": [5, -37, 4]}, "expected the shape of an array"),
        ({"shape": [5, 37, "4"]}, "expected the shape of an array"),
        ({"shape": [5, 0, 4]}, "none of them 0"),
        ({"chunk_grid": HUGE}, "of memory"),
        ({"data_type": "complex64", "fill_value": [0, 0]}, "expected float16"),
        ({"data_type": "unheard of"}, "cannot be read"),
        ({"node_type": "x"}, "got other metadata"),
        ({"zarr_format": 2}, "cannot be read"),
    ],
)  # fmt: skip
def test_damaged_and_hostile_metadata_is_refused(tmp_path, logits, change, words):
    write(tmp_path / "z.zarr", logits, (5, 10, 4))
    held = json.loads((tmp_path / "z.zarr/zarr.json").read_text())
    (tmp_path / "z.zarr/zarr.json").write_text(json.dumps(held | change))
    refused(tmp_path / "z.zarr", "z.zarr", words)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"a":1,"a":2}', b"[" * 100_000])
def test_metadata_that_is_none_is_refused(tmp_path, logits, content):
    write(tmp_path / "z.zarr", logits, (5, 10, 4))
    (tmp_path / "z.zarr/zarr.json").write_bytes(content)
    refused(tmp_path / "z.zarr", "z.zarr")


def test_no_store_and_a_store_of_version_2(tmp_path, logits):
    refused(tmp_path / "z.zarr", "z.zarr: cannot be read: No such file or directory")
    zarr.create_array(tmp_path / "old.zarr", data=logits, zarr_format=2)
    refused(tmp_path / "old.zarr", "old.zarr: expected a zarr store of version 3, got one of version 2")


def split(logits: np.ndarray, *sizes: int):
    """Batches of these sizes, again and again, with an id and a label for each input."""
    start, number = 0, 0
    while start < logits.shape[1]:
        stop = min(start + sizes[number % len(sizes)], logits.shape[1])
        ids = [f"input {k}" for k in range(start, stop)]
        yield logits[:, start:stop], {"id": ids, "label": np.arange(start, stop) % CLASSES}
        start, number = stop, number + 1


@pytest.mark.parametrize(
    ("sizes", "block"),
    [
        *(((5, 13), block) for block in (8, 37, None)),
        *(pytest.param(sizes, block, marks=SLOW)
          for sizes in ((1,), (5, 13), (37,), (100,)) for block in (1, 8, 37, 1000, None)),
    ],
)  # fmt: skip
def test_batches_of_any_size_make_the_same_store(tmp_path, logits, sizes, block):
    write_predictions(tmp_path / "z.zarr", split(logits, *sizes), block=block)
    np.testing.assert_array_equal(read(tmp_path / "z.zarr"), logits)
    from demur.stores import open_predictions

    with open_predictions([tmp_path / "z.zarr"]) as predictions:
        assert predictions.columns["id"].tolist() == [f"input {k}" for k in range(INPUTS)]
        assert predictions.columns["label"].tolist() == [k % CLASSES for k in range(INPUTS)]
        part = predictions.window(10, 12)
        assert part.columns["id"].tolist() == ["input 10", "input 11"]
        assert part.inputs == 2 and part.is_window


def test_a_writer_that_stops_leaves_no_store_that_is_read(tmp_path, logits):
    def breaks():
        yield logits
        yield logits
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_predictions(tmp_path / "z.zarr", breaks(), block=5)
    refused(tmp_path / "z.zarr", "z.zarr: expected a complete store, got one whose writing was interrupted")
    write_predictions(tmp_path / "z.zarr", [logits[:, :30]], block=5)  # replaced, without force
    np.testing.assert_array_equal(read(tmp_path / "z.zarr"), logits[:, :30])
    with pytest.raises(StoreError, match=r"z\.zarr: expected a new store, got one that exists"):
        write_predictions(tmp_path / "z.zarr", [logits])
    write_predictions(tmp_path / "z.zarr", [logits], force=True)
    np.testing.assert_array_equal(read(tmp_path / "z.zarr"), logits)


def test_what_is_no_store_is_never_removed(tmp_path, logits):
    folder = tmp_path / "mine.zarr"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    for force in (False, True):
        with pytest.raises(StoreError, match=r"mine\.zarr: expected a new store, got something else"):
            write_predictions(folder, [logits], force=force)
    assert (folder / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ([], "Got none"),
        ([np.zeros((3, 4))], r"Got float64 of \(3, 4\) at input 0"),
        ([np.zeros((3, 4, 2)), np.zeros((3, 4, 5))], "at input 4"),
        ([np.zeros((3, 4, 2)), np.zeros((2, 4, 2))], "at input 4"),
        ([(np.zeros((3, 4, 2)), {"id": [1, 2]})], "id must be one value per input"),
        ([np.zeros((3, 4, 2)), (np.zeros((3, 4, 2)), {"id": [1, 2, 3, 4]})], "same members"),
    ],
)
def test_batches_that_do_not_fit(tmp_path, batches, words):
    with pytest.raises(ValueError, match=words):
        write_predictions(tmp_path / "z.zarr", batches)


def test_converting_resumes_and_keeps_names_and_columns(tmp_path, logits):
    names = ["cat", "dog", "owl", "yak"]
    for member in range(MEMBERS):
        with open(tmp_path / f"m_{member}.csv", "w") as file:
            print("photo", *names, sep=",", file=file)
            for row, cells in enumerate(logits[member]):
                print(f"IMG_{row}", *map(repr, cells.astype(float).tolist()), sep=",", file=file)
    target = tmp_path / "z.zarr"

    def stop_after_two(_):
        def count(done):
            if done == 20:
                raise KeyboardInterrupt

        return count

    with pytest.raises(KeyboardInterrupt):
        convert_predictions([str(tmp_path / "m_*.csv")], target, block=10, progress=stop_after_two)
    first = target / "predictions/c/0/0/0"
    before = os.stat(first).st_mtime_ns
    convert_predictions([str(tmp_path / "m_*.csv")], target, block=10)
    assert os.stat(first).st_mtime_ns == before  # not written again
    np.testing.assert_array_equal(read(target), logits.astype(float))
    from demur.stores import open_predictions

    with open_predictions([target]) as predictions:
        assert predictions.names == tuple(names)
        assert predictions.columns["photo"].tolist() == [f"IMG_{row}" for row in range(INPUTS)]
        assert predictions.sources[0].stored.precision == "float32"  # of text, as it was in the files


def test_a_store_that_lost_inputs_is_refused(tmp_path, logits):
    """An array that was cut, or a manifest of another store."""
    write_predictions(tmp_path / "z.zarr", [logits], block=5)
    path = tmp_path / "z.zarr" / "predictions" / "zarr.json"
    metadata = json.loads(path.read_text())
    metadata["shape"][1] -= 5
    path.write_text(json.dumps(metadata))
    refused(tmp_path / "z.zarr", f"expected the {INPUTS} inputs that the store was written with, got shape")
