"""Predictions of pixels: maps in a store, one score per image, and the memory of one image."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import demur
from demur.posteriors import Samples
from demur.scoring import dense
from demur.stores import StoreError, open_maps

pytest.importorskip("zarr")
MEMBERS, IMAGES, CLASSES, HEIGHT, WIDTH = 4, 7, 5, 6, 3
MEASURES = ("pairwise", "average", "reverse")


@pytest.fixture
def logits() -> np.ndarray:
    return (
        np.random.default_rng(0).normal(size=(MEMBERS, IMAGES, CLASSES, HEIGHT, WIDTH)).astype(np.float32) * 2
    )


@pytest.fixture
def labels() -> np.ndarray:
    found = np.random.default_rng(1).integers(0, CLASSES + 1, size=(IMAGES, HEIGHT, WIDTH))
    found[3] = CLASSES  # an image without a label
    return found


def look_up(logits: np.ndarray, kind: str = "logits") -> Samples:
    """A posterior whose inputs are the numbers of images."""
    return Samples(lambda numbers: logits[:, np.asarray(numbers)[:, 0]], kind=kind, members=len(logits))


def batches(labels: np.ndarray | None = None, size: int = 3):
    for start in range(0, IMAGES, size):
        numbers = np.arange(start, min(start + size, IMAGES))[:, None]
        yield (
            numbers if labels is None else (numbers, labels[numbers[:, 0]], [f"x{k}" for k in numbers[:, 0]])
        )


@pytest.mark.parametrize(
    ("reduce", "how"),
    [
        ("mean", lambda maps: maps.mean(axis=(1, 2), dtype=np.float64)),
        ("max", lambda maps: maps.max(axis=(1, 2))),
        (0.9, lambda maps: np.sort(maps.reshape(len(maps), -1))[:, int(np.ceil(0.9 * HEIGHT * WIDTH)) - 1]),
        (np.median, lambda maps: np.median(maps, axis=(1, 2))),
    ],
)
def test_scores_are_reduced_maps(tmp_path, logits, labels, reduce, how):
    scores = demur.score(
        look_up(logits), batches(labels), class_axis=2, reduce=reduce, maps=tmp_path / "m.zarr"
    )
    maps = open_maps(tmp_path / "m.zarr")
    for measure in MEASURES:
        whole = demur.decompose(logits=logits, measure=measure, class_axis=2)
        for part in ("total", "aleatoric", "epistemic"):
            expected = getattr(whole, part)
            np.testing.assert_allclose(maps[f"{measure}_{part}"][:], expected, rtol=1e-5, atol=1e-7)
            np.testing.assert_allclose(getattr(scores[measure], part), how(expected), rtol=1e-5, atol=1e-7)
    soft = np.exp(logits.astype(float))
    guess = (soft / soft.sum(axis=2, keepdims=True)).mean(axis=0).argmax(axis=1)
    np.testing.assert_array_equal(maps["prediction"][:], guess)
    np.testing.assert_array_equal(maps["label"][:], labels)
    for image in range(IMAGES):
        known = labels[image] < CLASSES
        expected = (guess[image] == labels[image])[known].mean() if known.any() else np.nan
        np.testing.assert_equal(scores.columns["accuracy"][image], expected)
    assert scores.ids is not None and scores.ids.tolist() == [f"x{k}" for k in range(IMAGES)]
    assert scores.labels is None and scores.members == MEMBERS
    with pytest.raises(ValueError, match="column prediction"):
        _ = scores.predictions


@pytest.mark.parametrize("held", [1, 10**9])
@pytest.mark.parametrize("tile", [1, 40, 10**6])
@pytest.mark.parametrize("size", [4, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 7))])
def test_batches_images_and_tiles_do_not_matter(logits, monkeypatch, held, tile, size):
    expected = demur.decompose(logits=logits, class_axis=2).epistemic.mean(axis=(1, 2))
    monkeypatch.setattr(dense, "_HELD_BYTES", held)
    monkeypatch.setattr(dense, "_LOGITS_AT_ONCE", tile)
    scores = demur.score(look_up(logits), batches(size=size), class_axis=2)
    np.testing.assert_allclose(scores["K"].epistemic, expected, rtol=1e-5)


def test_classes_last_volumes_weights_and_other_rules(logits):
    volumes = np.random.default_rng(3).normal(size=(MEMBERS, IMAGES, 2, 3, 4, CLASSES))
    scores = demur.score(look_up(volumes), batches(), class_axis=-1, rule="brier", measures=["pairwise"])
    expected = demur.decompose(logits=volumes, rule="brier").epistemic.mean(axis=(1, 2, 3))
    np.testing.assert_allclose(scores["K"].epistemic, expected, rtol=1e-9)
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    posterior = [lambda numbers, k=k: logits[k, np.asarray(numbers)[:, 0]] for k in range(MEMBERS)]

    class Weighted(demur.posteriors.Posterior):
        members = MEMBERS

        def predict(self, batch, *, members=None, position=0):
            for k, weight in enumerate(weights):
                yield posterior[k](batch)[None], np.array([weight])

    scores = demur.score(Weighted(), batches(), class_axis=2)
    expected = demur.decompose(logits=logits, weights=weights, class_axis=2).epistemic.mean(axis=(1, 2))
    np.testing.assert_allclose(scores["K"].epistemic, expected, rtol=1e-5)


def test_networks_of_pytorch(tmp_path):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    networks = [torch.nn.Conv2d(1, CLASSES, 3, padding=1) for _ in range(3)]
    images = torch.randn(4, 1, 6, 5)
    scores = demur.score(networks, [images[:3], images[3:]], class_axis=2, maps=tmp_path / "m.zarr")
    with torch.no_grad():
        logits = torch.stack([network(images) for network in networks]).numpy()
    expected = demur.decompose(logits=logits, class_axis=2).epistemic
    np.testing.assert_allclose(open_maps(tmp_path / "m.zarr")["pairwise_epistemic"][:], expected, rtol=1e-4)
    dropout = torch.nn.Sequential(networks[0], torch.nn.Dropout(0.5))
    scores = demur.score(demur.posteriors.MCDropout(dropout, samples=5), [images], class_axis=2)
    assert (scores["K"].epistemic > 0).all()
    with pytest.raises(ValueError, match="say on which axis: class_axis=2"):
        demur.score(networks, [images])


def test_infinite_pixels_are_told(tmp_path, logits):
    logits[0, 2, 1, 0, 0] = -np.inf
    scores = demur.score(look_up(logits), batches(), class_axis=2, maps=tmp_path / "m.zarr")
    assert np.isinf(scores["K"].epistemic).tolist() == [k == 2 for k in range(IMAGES)]
    assert np.isinf(open_maps(tmp_path / "m.zarr")["pairwise_epistemic"][:]).sum() == 1
    median = demur.score(look_up(logits), batches(), class_axis=2, reduce=0.5)
    assert np.isfinite(median["K"].epistemic).all()


def test_an_interrupted_run_resumes_to_the_same_maps(tmp_path, logits, labels):
    def score(posterior, name):
        return demur.score(
            posterior, list(batches(labels, 2)), class_axis=2, maps=tmp_path / f"{name}.zarr",
            checkpoint=tmp_path / f"{name}.npz", every=0,
        )  # fmt: skip

    class LookUp(demur.posteriors.Posterior):
        members = MEMBERS
        _fails, _asked = False, ()

        def predict(self, batch, *, members=None, position=0):
            self._asked = (*self._asked, position)
            if self._fails and position == 4:
                raise KeyboardInterrupt
            yield logits[:, batch[:, 0]]

    whole, broken, again = LookUp(), LookUp(), LookUp()
    expected = score(whole, "whole")
    broken._fails = True
    with pytest.raises(KeyboardInterrupt):
        score(broken, "m")
    with pytest.raises(StoreError, match=r"m\.zarr: expected a complete store, got one whose writing"):
        open_maps(tmp_path / "m.zarr")
    found = score(again, "m")
    assert min(again._asked) == 4
    for name, values in expected.columns.items():
        np.testing.assert_array_equal(found.columns[name], values)
    for name, column in open_maps(tmp_path / "whole.zarr").items():
        np.testing.assert_array_equal(open_maps(tmp_path / "m.zarr")[name][:], column[:])
    (tmp_path / "m.zarr/pairwise_total/c/5/0/0").unlink()
    with pytest.raises(StoreError, match="the chunk pairwise_total/c/5/0/0 is missing"):
        open_maps(tmp_path / "m.zarr")["pairwise_total"][5]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"class_axis": 2, "order": "member"}, "Got order='member' too"),
        ({"class_axis": 2, "stderr": True}, "Got stderr too"),
        ({"class_axis": 2, "tolerance": 0.1}, "tolerance"),
        ({"class_axis": 2, "measures": ["A1"]}, "measures of the members alone. Got 'A1'"),
        ({"class_axis": 2, "reduce": "median"}, "reduce must be 'mean', 'max', a quantile"),
        ({"class_axis": 2, "reduce": 1.5}, "reduce must be"),
        ({"class_axis": 2, "reduce": lambda values: values}, "one number for each map. Got shape"),
        ({"class_axis": 1}, "class_axis=1 takes predictions of classes for each pixel"),
        ({"class_axis": 9}, "class_axis=9 takes predictions"),
        ({"class_axis": 2, "maps": "maps.npy"}, "must be a name that ends in .zarr"),
        ({"maps": "maps.zarr"}, "maps is for predictions of pixels"),
        ({"reduce": "max"}, "reduce is for predictions of pixels"),
        ({}, "say on which axis: class_axis=2"),
    ],
)
def test_what_does_not_go_together(tmp_path, monkeypatch, logits, options, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=words):
        demur.score(look_up(logits), list(batches()), **options)


def test_labels_that_do_not_fit(logits, labels):
    with pytest.raises(ValueError, match=r"labels of pixels must be integers of shape \(inputs, 6, 3\)"):
        demur.score(look_up(logits), batches(labels[:, :5]), class_axis=2)


MEASURE = """
import re, sys
import numpy as np, demur
images = int(sys.argv[1])
rng = np.random.default_rng(0)
def members(batch):
    return rng.standard_normal((10, len(batch), 21, 512, 512), dtype=np.float32)
batches = (np.zeros((4, 1)) for _ in range(images // 4))
posterior = demur.posteriors.Samples(members, kind="logits")
scores = demur.score(posterior, batches, class_axis=2, maps=sys.argv[2])
assert len(scores) == images
# Not getrusage: its figure begins with that of the process which started this one.
print(int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1]) >> 10)
"""


@pytest.mark.slow
def test_memory_is_that_of_one_image(tmp_path):
    """10 members, 512 x 512 pixels and 21 classes are 220 MB for an image, in whatever batches they come."""
    code = [sys.executable, "-c", MEASURE]
    peaks = [
        int(subprocess.check_output([*code, str(images), str(tmp_path / f"{images}.zarr")], text=True))
        for images in (4, 12)
    ]
    print("peak memory in MB:", peaks)
    assert peaks[1] < peaks[0] + 150  # of 1.8 GB more predictions
    assert peaks[0] < 1000


def test_a_pixel_that_is_no_number_is_named(logits, monkeypatch):
    monkeypatch.setattr(dense, "_LOGITS_AT_ONCE", 4 * CLASSES)
    logits[1, 5, 2, 4, 1] = np.nan
    with pytest.raises(ValueError, match=r"Got nan for member 1 at input 5, pixel \(4, 1\)\. Drop"):
        demur.score(look_up(logits), batches(), class_axis=2, progress=False)


def test_maps_of_images_of_several_sizes_are_refused(tmp_path, logits):
    posterior = Samples(
        lambda numbers: logits[:, numbers[:, 0], :, : 6 - numbers[0, 0] // 3], kind="logits", members=MEMBERS
    )
    assert len(demur.score(posterior, batches(), class_axis=2, progress=False)) == IMAGES
    with pytest.raises(ValueError, match=r"maps takes images of one size\. Got \(6, 3\) before and \(5, 3\)"):
        demur.score(posterior, batches(), class_axis=2, maps=tmp_path / "m.zarr", progress=False)


def test_an_axis_that_is_none_is_refused(logits):
    with pytest.raises(ValueError, match=r"class_axis must be an integer, as 2\. Got 'last'"):
        demur.score(look_up(logits), batches(), class_axis="last", progress=False)  # pyright: ignore
