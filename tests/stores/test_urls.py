"""Files at URLs are those on disk: in memory, over HTTP, and on an S3 server that the tests start."""

from __future__ import annotations

import http.server
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from reference.files import read, refused
from typer.testing import CliRunner

import demur
from demur.cli import app
from demur.stores import (
    StoreError,
    open_maps,
    read_columns,
    read_labels,
    urls,
    write_columns,
    write_predictions,
)

fsspec = pytest.importorskip("fsspec")
zarr = pytest.importorskip("zarr")
pytest.importorskip("pyarrow")


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def memory():
    files = fsspec.filesystem("memory")
    yield "memory://bucket"
    files.store.clear()
    files.pseudo_dirs[:] = [""]


@pytest.fixture(scope="module")
def s3_server():
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(s3_server, monkeypatch):
    """The URL of an empty bucket of its own."""
    import s3fs

    settings = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": s3_server,
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    files = s3fs.S3FileSystem()
    files.mkdir("bucket")
    yield "s3://bucket"
    files.rm("bucket", recursive=True)
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def local(tmp_path_factory) -> str:
    return f"file://{tmp_path_factory.mktemp('bucket')}"


PLACES = ["memory", "local", pytest.param("s3", marks=pytest.mark.slow)]


@pytest.fixture(params=PLACES)
def place(request) -> str:
    return request.getfixturevalue(request.param)


def put(place: str, path: Path) -> str:
    files, inside = fsspec.url_to_fs(f"{place}/{path.name}")
    files.put_file(str(path), inside)
    return f"{place}/{path.name}"


def test_predictions_of_every_format(place, tmp_path, logits):
    np.save(tmp_path / "z.npy", logits)
    np.savez_compressed(tmp_path / "z.npz", a=logits, b=logits + 1)
    assert np.array_equal(read(put(place, tmp_path / "z.npy")), logits)
    assert np.array_equal(read(f"{put(place, tmp_path / 'z.npz')}:b"), logits + 1)
    for member, values in enumerate(logits):
        np.save(tmp_path / f"m_{member}.npy", values)
        demur_columns = {f"c{k}": values[:, k] for k in range(values.shape[1])}
        write_columns(Path(f"{place}/t_{member}.parquet"), demur_columns)
        put(place, tmp_path / f"m_{member}.npy")
    assert np.array_equal(read(f"{place}/m_*.npy"), logits)
    assert np.array_equal(read(f"{place}/t_*.parquet"), logits)


def test_a_store_of_predictions(place, tmp_path, logits):
    write_predictions(
        f"{place}/z.zarr", [(logits, {"id": [f"x{k}" for k in range(logits.shape[1])]})], block=10
    )
    assert np.array_equal(read(f"{place}/z.zarr"), logits)
    assert np.array_equal(read(f"{place}/z.zarr:predictions"), logits)
    with pytest.raises(StoreError, match=rf"{place}/z\.zarr: expected a new store, got one that exists"):
        write_predictions(f"{place}/z.zarr", [logits])
    write_predictions(f"{place}/z.zarr", [logits + 1], block=10, force=True)
    assert np.array_equal(read(f"{place}/z.zarr"), logits + 1)
    files, inside = fsspec.url_to_fs(f"{place}/z.zarr/predictions/c/0/2/0")
    files.rm(inside)
    refused(f"{place}/z.zarr", f"{place}/z.zarr:predictions: the chunk predictions/c/0/2/0 is missing")


@pytest.mark.parametrize(
    "suffix", ["zarr", "parquet", "json", *(pytest.param(s, marks=pytest.mark.slow) for s in ("csv", "npz"))]
)
def test_scores_go_there_and_come_back(place, tmp_path, logits, suffix):
    np.save(tmp_path / "z.npy", logits)
    url = f"{place}/s.{suffix}"
    run("score", tmp_path / "z.npy", "--logits", "--out", tmp_path / f"s.{suffix}")
    assert f"to {url}" in run("score", tmp_path / "z.npy", "--logits", "--out", url)
    here, there = read_columns(tmp_path / f"s.{suffix}"), read_columns(Path(url))
    assert list(here) == list(there)
    assert all(np.array_equal(here[name], there[name]) for name in here)
    refusal = CliRunner().invoke(app, ["score", str(tmp_path / "z.npy"), "--logits", "--out", url])
    assert refusal.exit_code == 2
    assert f"{url}: expected a new" in refusal.stderr and refusal.stderr.count("\n") == 1
    if suffix == "json":
        assert demur.Scores.load(url).unbiased is False
    found = demur.Scores.load(url)
    with pytest.raises(StoreError, match="one that exists"):
        found.save(url)
    found.save(url, force=True)
    np.testing.assert_array_equal(demur.Scores.load(url)["K"].epistemic, found["K"].epistemic)
    assert demur.Scores.load(url).members == len(logits)


def test_evaluating_scores_and_labels_there(place, tmp_path, logits):
    np.save(tmp_path / "y.npy", np.arange(logits.shape[1]) % logits.shape[2])
    np.save(tmp_path / "z.npy", logits)
    run("store", tmp_path / "z.npy", "--out", f"{place}/z.zarr")
    labels = put(place, tmp_path / "y.npy")
    assert read_labels(labels)["label"][:3].tolist() == [0, 1, 2]
    run("score", f"{place}/z.zarr", "--logits", "--labels", labels, "--out", f"{place}/s.zarr")
    assert "AUROC" in run("evaluate", "misclassification", f"{place}/s.zarr", "--score", "K")


def test_a_run_resumes_there(place, tmp_path, logits, monkeypatch):
    from demur.scoring import block_scores
    from demur.stores import open_predictions

    np.save(tmp_path / "z.npy", logits)
    real, out = block_scores.score_predictions, Path(f"{place}/s.zarr")

    def stop_at_20(predictions, *arguments, **options):
        if predictions.first == 20:
            raise KeyboardInterrupt
        return real(predictions, *arguments, **options)

    with open_predictions([tmp_path / "z.npy"]) as predictions:
        monkeypatch.setattr(block_scores, "score_predictions", stop_at_20)
        with pytest.raises(KeyboardInterrupt):
            block_scores.score_in_blocks(predictions, "logits", out, block=10)
        scored = []
        monkeypatch.setattr(
            block_scores, "score_predictions", lambda p, *a, **o: scored.append(p.first) or real(p, *a, **o)
        )
        block_scores.score_in_blocks(predictions, "logits", out, block=10)
        assert scored == [20, 30]
        whole = real(predictions, "logits")
    np.testing.assert_array_equal(read_columns(out)["average_epistemic"], whole.columns["average_epistemic"])


def test_maps_go_there(place, tmp_path):
    np.save(tmp_path / "z.npy", np.random.default_rng(0).normal(size=(3, 2, 4, 5, 6)))
    np.save(tmp_path / "y.npy", np.zeros((2, 5, 6), np.uint8))
    url, labels = f"{place}/m.zarr", put(place, tmp_path / "y.npy")
    asked = ["score", put(place, tmp_path / "z.npy"), "--logits", "--class-axis", 2, "--labels", labels]
    run(*asked, "--maps", url, "--out", f"{place}/s.parquet")
    run(*asked, "--maps", tmp_path / "m.zarr", "--out", tmp_path / "s.parquet")
    here, there = open_maps(tmp_path / "m.zarr"), open_maps(url)
    assert all(np.array_equal(here[name][:], there[name][:]) for name in here)
    scores = [read_columns(Path(each)) for each in (f"{place}/s.parquet", tmp_path / "s.parquet")]
    assert all(np.array_equal(scores[0][name], scores[1][name]) for name in scores[0])


@pytest.mark.parametrize("command", [("score", "--logits"), ("store",)])
def test_what_is_read_is_never_replaced(place, tmp_path, logits, command):
    for store in (f"{place}/z.zarr", tmp_path / "z.zarr"):
        write_predictions(store, [logits])
        asked = [*command, str(store), "--out", str(store), "--force"]
        refusal = CliRunner().invoke(app, asked)
        assert refusal.exit_code == 2 and refusal.stderr.startswith(f"demur: {store}: expected a ")
        assert "read from" in refusal.stderr and refusal.stderr.count("\n") == 1
        assert np.array_equal(read(store), logits)


def test_over_http(tmp_path, logits):
    np.save(tmp_path / "z.npy", logits)
    write_predictions(tmp_path / "z.zarr", [logits], block=10)
    pytest.importorskip("aiohttp")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            root = f"http://127.0.0.1:{server.server_port}"
            assert np.array_equal(read(f"{root}/z.npy"), logits)
            assert np.array_equal(read(f"{root}/z.zarr"), logits)
            refused(f"{root}/none.npy", f"{root}/none.npy: cannot be read")
            (tmp_path / "z.zarr/predictions/c/0/3/0").unlink()
            refused(f"{root}/z.zarr", "the chunk predictions/c/0/3/0 is missing")
        finally:
            server.shutdown()
            thread.join()


def test_what_is_wrong_there_is_told_of_the_url(memory, tmp_path):
    (tmp_path / "z.npy").write_bytes(b"no array")
    url = put(memory, tmp_path / "z.npy")
    refused(url, f"{url}: expected a NumPy file")
    refused(f"{memory}/none.npy", f"{memory}/none.npy: cannot be read: No such file")
    refused(f"{memory}/m_*.npy", f"{memory}/m_*.npy: expected files that match, found none")
    refused("unheard-of://bucket/z.npy", "unheard-of://bucket/z.npy: cannot be read: Protocol not known")
    (tmp_path / "s.csv").write_text("a,b\n1\n")
    url = put(memory, tmp_path / "s.csv")
    with pytest.raises(StoreError, match=rf"^{url}: expected"):
        read_columns(Path(url))
    with pytest.raises(StoreError, match=rf"^{memory}/s\.txt: expected an output file that ends in"):
        write_columns(Path(f"{memory}/s.txt"), {"a": np.zeros(3)})


@pytest.mark.parametrize("missing", ["zarr", "fsspec", "s3fs"])
def test_a_missing_package_is_named(missing, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    if missing == "s3fs":  # another test may have had it
        monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)
    name = {"zarr": tmp_path / "z.zarr", "fsspec": "memory://z.npy", "s3fs": "s3://bucket/z.npy"}[missing]
    how = "s3fs" if missing == "s3fs" else "'demur[cluster]'"
    refused(name, f"expected {missing} to be installed, found none: pip install {how}")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("s3://b/k", "s3://b/k"),
        ("s3:/b/k", "s3://b/k"),
        ("https://x.org:8080/a?b=c", "https://x.org:8080/a?b=c"),
        ("file:///tmp/x.npy", "file:///tmp/x.npy"),
        ("file:/tmp/x.npy", "file:///tmp/x.npy"),
        ("C:/data/x.npy", None),
        ("run.npz:logits", None),
        ("a/b.npy", None),
    ],
)
def test_what_a_url_is(written, meant):
    assert urls.find_url(written) == urls.find_url(Path(written)) == meant
