"""Features, logits and last layers on disk: right, keyed by content, and the same bytes after a kill."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from demur.reproduce.data.image_folders import open_images
from demur.reproduce.networks import encode_images
from demur.reproduce.networks.encode_images import plan_encoding
from demur.reproduce.stages import Stages

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")

NETWORKS = textwrap.dedent("""
    import os, time
    import numpy as np
    import torch
    from torch import nn

    def prepare(image):
        time.sleep(float(os.environ.get("DEMUR_TEST_PAUSE", "0")))
        values = np.asarray(image.resize((12, 10)), np.float32) / 255
        return torch.from_numpy(values.transpose(2, 0, 1).copy())

    def body(seed=0, head=True):
        torch.manual_seed(seed)
        last = [nn.Linear(5, 4, bias=head)]
        return nn.Sequential(
            nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Dropout(0.5), *last)

    def tiny():
        return body(), prepare

    def other():
        return body(1), prepare

    def no_bias():
        return body(head=False), prepare

    def not_last():
        return nn.Sequential(body(), nn.Softmax(-1)), prepare

    def no_linear():
        return nn.Sequential(nn.Conv2d(3, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()), prepare

    def not_finite():
        return body(), lambda image: prepare(image) / float(image.size[1] != 16)

    def uneven():
        return body(), lambda image: prepare(image)[:, :, : 12 - image.size[1] % 2]

    def no_tensor():
        return body(), lambda image: prepare(image).numpy()

    def too_large():
        return nn.Sequential(nn.Flatten(), nn.Linear(7, 4)), prepare

    def bytes_():
        return body(), lambda image: (prepare(image) * 255).byte()
""")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Twenty-three images, and networks in a module."""
    (tmp_path / "images").mkdir()
    draw = np.random.default_rng(0)
    for number in range(23):
        values = draw.integers(0, 256, (15 + number % 3, 20, 3), dtype=np.uint8)
        Image.fromarray(values).save(tmp_path / "images" / f"{number:02d}.jpg", quality=90)
    (tmp_path / "tiny_networks.py").write_text(NETWORKS)
    (tmp_path / "labels.csv").write_text(
        "file,label\n" + "".join(f"{k:02d}.jpg,{k % 4}\n" for k in range(23))
    )
    monkeypatch.chdir(tmp_path)
    encode_images.measure_network.cache_clear()
    yield tmp_path
    encode_images.measure_network.cache_clear()
    sys.modules.pop("tiny_networks", None)


def the_images(place, **options):
    return open_images(place / "images", labels=place / "labels.csv", **options)


def files_in(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_what_is_written(place):
    from safetensors.numpy import load_file

    images = the_images(place)
    stage = plan_encoding(images, "tiny_networks:tiny", batch=4, progress=False)
    body, prepare = sys.modules["tiny_networks"].body, sys.modules["tiny_networks"].prepare
    assert stage.name == "encode/images/tiny"
    made = Stages(place / "run").complete(stage)
    assert sorted(files_in(made)) == [
        "features.npy", "ids.npy", "labels.npy", "last_layer.safetensors", "logits.npy",
    ]  # fmt: skip
    features, logits, labels, ids = (
        np.load(made / f"{n}.npy") for n in ("features", "logits", "labels", "ids")
    )
    assert features.dtype == logits.dtype == np.float32 and labels.dtype == np.int64 and ids.dtype.kind == "U"
    np.testing.assert_array_equal(labels, np.arange(23) % 4)
    assert ids.tolist() == [f"{number:02d}.jpg" for number in range(23)]
    model = body().eval()
    with torch.no_grad():
        x = torch.stack([prepare(Image.open(path)) for path in images.paths])
        np.testing.assert_allclose(features, model[:-2](x), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(logits, model(x), rtol=1e-5, atol=1e-6)
    layer = load_file(made / "last_layer.safetensors")
    assert set(layer) == {"weight", "bias"} and layer["weight"].shape == (4, 5)
    np.testing.assert_allclose(features @ layer["weight"].T + layer["bias"], logits, rtol=1e-5, atol=1e-6)
    size = sum(map(len, files_in(made).values())) / 1e6
    assert stage.megabytes == pytest.approx(size, abs=0.002)


def test_a_set_without_labels_and_a_layer_without_bias(place):
    from safetensors.numpy import load_file

    stage = plan_encoding(open_images(place / "images"), "tiny_networks:no_bias", progress=False)
    made = Stages(place / "run").complete(stage)
    assert np.load(made / "labels.npy").tolist() == [-1] * 23
    np.testing.assert_array_equal(load_file(made / "last_layer.safetensors")["bias"], np.zeros(4))


def test_the_key_is_that_of_images_network_and_batch(place):
    images = the_images(place)
    key = plan_encoding(images, "tiny_networks:tiny").key
    assert plan_encoding(the_images(place), "tiny_networks:tiny", workers=1, progress=False).key == key
    others = {
        plan_encoding(images, "tiny_networks:other").key,
        plan_encoding(images, "tiny_networks:tiny", batch=5).key,
        plan_encoding(images.take(range(22)), "tiny_networks:tiny").key,
        plan_encoding(open_images(place / "images"), "tiny_networks:tiny").key,
    }
    torch.save(encode_images.open_network("tiny_networks:other").model.state_dict(), place / "w.pth")
    others.add(plan_encoding(images, "tiny_networks:tiny", weights=place / "w.pth").key)
    assert len(others | {key}) == 6
    with (place / "images" / "03.jpg").open("ab") as file:
        file.write(b" ")
    assert plan_encoding(the_images(place), "tiny_networks:tiny").key != key


def test_workers_do_not_change_a_byte(place):
    images = the_images(place)
    first, second = (
        files_in(Stages(place / str(workers)).complete(
            plan_encoding(images, "tiny_networks:tiny", batch=4, workers=workers)))
        for workers in (1, 4)
    )  # fmt: skip
    assert first == second


PROGRAM = """
import sys
from pathlib import Path
from demur.reproduce.networks import encode_images
from demur.reproduce.data.image_folders import open_images
from demur.reproduce.stages import Stages

encode_images.SECONDS_BETWEEN_SAVES = 0.0
images = open_images("images", labels="labels.csv")
stage = encode_images.plan_encoding(images, "tiny_networks:tiny", batch=2, workers=1)
Stages(Path(sys.argv[1])).complete(stage)
"""


def test_after_a_kill_the_files_are_the_same_to_the_byte(place):
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "killed"], cwd=place,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "DEMUR_TEST_PAUSE": "0.05"},
    )  # fmt: skip

    def entered() -> int:
        found = list((place / "killed" / "stages").glob("*.partial/progress.json"))
        return json.loads(found[0].read_text())["batches"] if found else -1

    end = time.monotonic() + 120
    while entered() < 4:
        assert time.monotonic() < end and child.poll() is None
        time.sleep(0.002)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    done = entered()
    assert 4 <= done < 12
    values = np.lib.format.open_memmap(next(place.glob("killed/stages/*.partial/features.npy")), "r+")
    values[done * 2 :] = 7.0  # whatever a kill leaves behind what was entered
    values.flush()
    stage = plan_encoding(the_images(place), "tiny_networks:tiny", batch=2)
    killed, whole = (Stages(place / name).complete(stage) for name in ("killed", "whole"))
    assert '"resumed": true' in (place / "killed" / "timings.jsonl").read_text()
    assert files_in(killed) == files_in(whole)


def test_what_was_entered_is_not_done_again(place, monkeypatch):
    images, asked = the_images(place), []
    stage = plan_encoding(images, "tiny_networks:tiny", batch=4, workers=1)
    monkeypatch.setattr(encode_images, "SECONDS_BETWEEN_SAVES", 0.0)

    def failing(path):
        asked.append(path.name)
        if path.name == "17.jpg" and len(asked) < 23:
            raise ValueError("stopped")
        return whole(path)

    whole = encode_images.decode_image
    monkeypatch.setattr(encode_images, "decode_image", failing)
    with pytest.raises(ValueError, match="stopped"):
        Stages(place / "run").complete(stage)
    assert asked[0] == "00.jpg"
    asked[:] = [""] * 23
    Stages(place / "run").complete(stage)
    assert asked[23:] == [f"{number:02d}.jpg" for number in range(16, 23)]


def test_a_kill_behind_the_last_file_costs_nothing(place, monkeypatch):
    stage = plan_encoding(the_images(place), "tiny_networks:tiny")
    (place / "work").mkdir()
    stage.make(place / "work")
    whole = files_in(place / "work")
    monkeypatch.setattr(encode_images, "decode_image", None)
    stage.make(place / "work")
    # And before: all rows are entered, the small files may be half written.
    (place / "work" / "progress.json").write_text('{"batches": 1}\n')
    (place / "work" / "ids.npy").write_bytes(b"half")
    stage.make(place / "work")
    assert files_in(place / "work") == whole


def test_a_plan_is_rough_or_timed(place):
    images = the_images(place)
    # Of 10 x 12 pixels the convolution makes 8 x 10 of 5 channels, of 27 numbers each; then 5 x 4 weights.
    assert encode_images.measure_network("tiny_networks:tiny", None, None).operations == 2 * (
        8 * 10 * 5 * 27 + 5 * 4
    )
    rough = plan_encoding(images, "tiny_networks:tiny", batch=4)
    timed = plan_encoding(images, "tiny_networks:tiny", batch=4, estimate=True)
    assert rough.key == timed.key
    assert 0 < rough.seconds < 60 and 0 < timed.seconds < 60 and rough.seconds != timed.seconds


def test_what_is_refused(place):
    images = open_images("images")

    def refused(line, spec, **options):
        with pytest.raises(ValueError, match=re.escape(line)) as caught:
            Stages(place / "run").complete(plan_encoding(images, f"tiny_networks:{spec}", **options))
        assert "\n" not in str(caught.value)

    refused("not_last: Expected a model that ends with its last linear layer", "not_last")
    refused("no_linear: layer must be a torch.nn.Linear of the model: it has none", "no_linear")
    refused("not_finite: expected finite features of images/01.jpg, got infinite ones or NaN", "not_finite")
    refused("tensors of one shape, got (3, 10, 11) and (3, 10, 12)", "uneven")
    refused("a float tensor (3, height, width) of a grey image, got ndarray", "no_tensor")
    refused("got Tensor torch.uint8 (3, 10, 12)", "bytes_")
    refused("too_large: expected a network that takes images of shape (3, 10, 12), as its p", "too_large")
    refused("batch: expected at least 1 image, got 0", "tiny", batch=0)
    refused("workers: expected at least 1, got 0", "tiny", workers=0)
    (place / "images" / "11.jpg").write_bytes((place / "images" / "11.jpg").read_bytes()[:300])
    refused("11.jpg: expected an image, got a file that cannot be decoded", "tiny")


def test_a_network_that_changes_after_the_plan_is_refused(place):
    stage = plan_encoding(the_images(place), "tiny_networks:tiny")
    sys.modules["tiny_networks"].tiny = sys.modules["tiny_networks"].other
    with pytest.raises(ValueError, match="expected the network that was planned with, got another"):
        Stages(place / "run").complete(stage)


@pytest.mark.parametrize("damage", ["nothing", "[]", '{"batches": -1}', '{"batches": true}', "[" * 100_000])
def test_a_damaged_run_is_told_in_one_line(tmp_path, damage):
    widths = {"features": 3, "logits": 2}
    encode_images._open_arrays(tmp_path, 4, widths)
    (tmp_path / "progress.json").write_text(damage)
    with pytest.raises(ValueError, match=rf"{tmp_path.name}: expected an interrupted run, got .*: remove it"):
        encode_images._open_arrays(tmp_path, 4, widths)
    (tmp_path / "progress.json").write_text('{"batches": 1}')
    assert encode_images._open_arrays(tmp_path, 4, widths)[1] == 1
    (tmp_path / "logits.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(ValueError, match="expected an interrupted run"):
        encode_images._open_arrays(tmp_path, 4, widths)
