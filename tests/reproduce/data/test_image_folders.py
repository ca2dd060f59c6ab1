"""Folders of images as they are published: opened, labelled and checked, each complaint one line."""

import re
import sys

import numpy as np
import pytest

from demur.reproduce.data.image_folders import check_images, open_images
from demur.reproduce.data.imagenet import COUNTS, check_published, open_published
from demur.reproduce.data.imagenet_labels import read_class_indices, read_labels

Image = pytest.importorskip("PIL.Image")

WNIDS = [f"n{number:08d}" for number in range(1_440_764, 1_440_764 + 7 * 1000, 7)]


def picture(path, colour: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), (colour % 256, 40, 90)).save(path, "JPEG")


def validation(folder, count: int = 4) -> list[str]:
    names = [f"ILSVRC2012_val_{number:08d}.JPEG" for number in range(1, count + 1)]
    for number, name in enumerate(names):
        picture(folder / name, number)
    return names


def all_wnids(path) -> None:
    path.write_text("".join(f"{wnid} some, name\n" for wnid in WNIDS))


def refused(line: str, call) -> None:
    """The call raises one line that holds this text."""
    with pytest.raises(ValueError, match=re.escape(line)) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_any_folder_is_a_set_in_sorted_order(tmp_path):
    for name in ("b/2.png", "b/10.jpg", "a.JPEG", ".hidden.jpg", "c.WEBP"):
        path = tmp_path / "some" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4)).save(path, {"png": "PNG", "WEBP": "WEBP"}.get(path.suffix[1:], "JPEG"))
    (tmp_path / "some" / "README.txt").write_text("no image")
    images = open_images(tmp_path / "some")
    assert images.ids == ("a.JPEG", "b/10.jpg", "b/2.png", "c.WEBP")
    assert images.name == "some" and images.labels is None and len(images) == 4
    assert [path.is_file() for path in images.paths] == [True] * 4
    assert check_images(images) == f"some: 4 images, no labels, 4 decoded, {tmp_path / 'some'}"


def test_the_mark_changes_with_names_sizes_and_labels(tmp_path):
    for number in range(3):
        picture(tmp_path / "a" / f"{number}.jpg", number)
    first = open_images(tmp_path / "a")
    assert open_images(tmp_path / "a", "other name").mark == first.mark
    assert first.take([1, 0]).mark != first.take([0, 1]).mark
    table = tmp_path / "labels.csv"
    table.write_text("file,label\n0.jpg,0\n1.jpg,1\n2.jpg,2\n")
    assert open_images(tmp_path / "a", labels=table).mark != first.mark
    with (tmp_path / "a" / "1.jpg").open("ab") as file:
        file.write(b"more")
    assert open_images(tmp_path / "a").mark != first.mark


def test_labels_of_flat_validation_images(tmp_path):
    names = validation(tmp_path / "val")
    own = [WNIDS[3], WNIDS[0], WNIDS[999], WNIDS[3]]
    files = {
        "val.txt": "".join(f"{name} {WNIDS.index(w)}\n" for name, w in zip(names, own, strict=True)),
        "LOC_val_solution.csv": "ImageId,PredictionString\n"
        + "".join(f"{name[:-5]},{w} 1 2 30 40 {w} 5 6 7 8 \n" for name, w in zip(names, own, strict=True)),
        "labels.csv": "label,file\n"
        + "".join(f"{WNIDS.index(w)},{name}\n" for name, w in zip(names, own, strict=True)),
    }
    all_wnids(tmp_path / "LOC_synset_mapping.txt")
    for name, text in files.items():
        path = tmp_path / name
        path.write_text(text)
        images = open_published(tmp_path, "imagenet-val")
        assert images.labels.tolist() == [3, 0, 999, 3] and images.labels.dtype == np.int64, name
        path.unlink()
    kaggle = tmp_path / "kaggle"
    validation(kaggle / "ILSVRC" / "Data" / "CLS-LOC" / "val")
    (kaggle / "LOC_val_solution.csv").write_text(files["LOC_val_solution.csv"])
    all_wnids(kaggle / "LOC_synset_mapping.txt")
    assert open_published(kaggle, "imagenet-val").labels.tolist() == [3, 0, 999, 3]
    elsewhere = tmp_path / "wnids.csv"
    elsewhere.write_text("file,label\n" + "".join(f"{n},{w}\n" for n, w in zip(names, own, strict=True)))
    assert open_published(tmp_path, "imagenet-val", labels=elsewhere).labels.tolist() == [3, 0, 999, 3]


def test_the_numbering_of_the_development_kit_needs_its_table(tmp_path):
    from scipy.io import savemat

    validation(tmp_path / "val")
    kit = tmp_path / "ILSVRC2012_devkit_t12" / "data"
    kit.mkdir(parents=True)
    (kit / "ILSVRC2012_validation_ground_truth.txt").write_text("490\n1\n1000\n490\n")
    refused("only numbers, the development kit's numbering", lambda: open_published(tmp_path, "imagenet-val"))
    # The kit's own order, reversed here, and synsets with children behind the thousand, as in the real one.
    table = [(k, w, 0) for k, w in enumerate(reversed(WNIDS), 1)] + [(1001, "n00001740", 3)]
    kinds = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("num_children", "O")]
    savemat(kit / "meta.mat", {"synsets": np.array(table, dtype=kinds)})
    images = open_published(tmp_path, "imagenet-val")
    assert images.labels.tolist() == [1000 - 490, 999, 0, 1000 - 490]
    savemat(kit / "meta.mat", {"synsets": np.array(table[:5], dtype=kinds)})
    refused("expected 1000 classes without children, got 5", lambda: open_published(tmp_path, "imagenet-val"))
    (kit / "meta.mat").write_bytes(b"nothing of the kind")
    refused("expected the table of classes", lambda: open_published(tmp_path, "imagenet-val"))


def test_one_folder_a_class(tmp_path):
    for wnid in (WNIDS[5], WNIDS[2]):
        picture(tmp_path / "val" / wnid / "x.JPEG")
    refused("expected 1000 folders, one per class, got 2", lambda: open_published(tmp_path, "imagenet-val"))
    all_wnids(tmp_path / "synsets.txt")
    assert open_published(tmp_path, "imagenet-val").labels.tolist() == [2, 5]
    (tmp_path / "synsets.txt").unlink()
    for wnid in WNIDS:
        (tmp_path / "val" / wnid).mkdir(exist_ok=True)
    images = open_published(tmp_path, "imagenet-val")
    assert images.labels.tolist() == [2, 5] and images.ids[0] == f"{WNIDS[2]}/x.JPEG"
    picture(tmp_path / "val" / "stray.JPEG")
    refused("in folders named after classes", lambda: open_published(tmp_path, "imagenet-val"))


def test_imagenet_o_and_a(tmp_path):
    for name in ("imagenet-o", "imagenet-a"):
        for index in (7, 4):
            picture(tmp_path / name / WNIDS[index] / "0.jpg")
        (tmp_path / name / "README.txt").write_text("about")
    assert open_published(tmp_path, "imagenet-a").labels is None
    all_wnids(tmp_path / "synset_words.txt")
    assert open_published(tmp_path, "imagenet-a").labels.tolist() == [4, 7]
    assert open_published(tmp_path, "imagenet-o").labels is None  # none of its images shows a class


def test_a_part_of_a_set(tmp_path):
    for number in range(6):
        picture(tmp_path / "a" / f"{number}.jpg")
    listing = tmp_path / "rows.txt"
    listing.write_text("4.jpg\n\n1\n")
    assert open_images(tmp_path / "a", only=listing).ids == ("4.jpg", "1.jpg")
    some = open_images(tmp_path / "a", only=3, seed=1)
    assert len(some) == 3 and list(some.ids) == sorted(some.ids)
    assert some.ids == open_images(tmp_path / "a", only=3, seed=1).ids
    assert len({open_images(tmp_path / "a", only=3, seed=seed).ids for seed in range(9)}) > 1
    refused("expected 1 to 6 images of a, got 7", lambda: open_images(tmp_path / "a", only=7))
    for text, got in (("9.jpg", "got '9.jpg'"), ("", "got no line"), ("1\n1.jpg", "got a name twice")):
        listing.write_text(text)
        refused(got, lambda: open_images(tmp_path / "a", only=listing))


def test_what_check_refuses(tmp_path):
    for number in range(20):
        picture(tmp_path / "imagenet-o" / WNIDS[0] / f"{number}.jpg")
    images = open_published(tmp_path, "imagenet-o")
    refused("expected the 2,000 images of imagenet-o, got 20: unpack", lambda: check_published(images))
    refused("expected a label for each image of imagenet-o, got none",
            lambda: check_images(images, labelled=True))  # fmt: skip
    assert "20 images, no labels, 16 decoded" in check_images(images)
    assert COUNTS == {"imagenet-val": 50_000, "imagenet-o": 2_000, "imagenet-a": 7_500}
    bad = tmp_path / "imagenet-o" / WNIDS[0] / "3.jpg"
    bad.write_bytes(bad.read_bytes()[:60])
    refused(f"{bad}: expected an image, got a file that cannot be decoded",
            lambda: check_images(images, sample=20))  # fmt: skip
    bad.write_text("text")
    refused("cannot be decoded", lambda: check_images(images, sample=20))


def test_pillow_is_asked_for_where_it_is_missing(tmp_path, monkeypatch):
    picture(tmp_path / "a.jpg")
    monkeypatch.setitem(sys.modules, "PIL", None)
    refused("pip install 'demur[report]'", lambda: check_images(open_images(tmp_path)))


def test_what_is_missing_is_said(tmp_path):
    refused("found none of these", lambda: open_published(tmp_path, "imagenet-o"))
    refused("in folders named by wnids, as in imagenet-a.tar", lambda: open_published(tmp_path, "imagenet-a"))
    refused("or one folder per class", lambda: open_published(tmp_path, "imagenet-val"))
    refused("expected imagenet-val, imagenet-o, imagenet-a, got 'mnist'",
            lambda: open_published(tmp_path, "mnist"))  # fmt: skip
    refused("expected a folder of images, found none", lambda: open_images(tmp_path / "no"))
    refused("expected images, files with a suffix of .jpeg", lambda: open_images(tmp_path))
    names = validation(tmp_path / "val")
    refused("expected labels of the validation images", lambda: open_published(tmp_path, "imagenet-val"))
    path = tmp_path / "val.txt"
    wrong = {
        "": "expected labels, got an empty file",
        "a b c\n": "expected lines like 'ILSVRC2012_val_00000001.JPEG 65'",
        f"{names[0]} 3\n": "expected a label for each of 4 images, got none for 3, such as ILSVRC2012_val",
        "".join(f"{name} cat\n" for name in names): "numbers from 0 or wnids, got 'cat'",
        "".join(f"{name} 1000\n" for name in names): "expected labels from 0 to 999, got 1000",
        "".join(
            f"{name} {WNIDS[1]}\n" for name in names
        ): "expected the wnids of 1000 classes, such as n01440764, got 1",
    }
    for text, line in wrong.items():
        path.write_text(text)
        refused(line, lambda: open_published(tmp_path, "imagenet-val"))
    refused("expected wnids of the 1 classes", lambda: read_labels(path, names, {WNIDS[0]: 0}))
    kit = tmp_path / "numbers.txt"
    kit.write_text("1\n2\n")
    (tmp_path / "meta.mat").write_bytes(b"")
    refused("up to 2, got ILSVRC2012_val_00000001", lambda: read_labels(kit, names))
    refused("expected the wnids of 1000 classes", lambda: read_class_indices(kit))
