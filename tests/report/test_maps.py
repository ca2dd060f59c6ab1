"""Maps of pixels in the report: those of the inputs that it lists, on one scale."""

import base64
import io

import numpy as np
import pytest
from typer.testing import CliRunner

import demur
from demur.cli import app
from demur.report.contents import gather_contents
from demur.report.page import gather_data
from demur.report.run_folder import read_run
from demur.stores import StoreError, read_columns, write_columns

pytest.importorskip("zarr")


@pytest.fixture
def folder(tmp_path):
    scale = np.linspace(0.1, 3, 30)[:, None, None, None]
    logits = np.random.default_rng(0).normal(size=(4, 30, 5, 12, 9)) * scale
    posterior = demur.posteriors.Samples(lambda numbers: logits[:, numbers[:, 0]], kind="logits")
    loader = [(np.arange(30)[:, None], np.zeros((30, 12, 9), int))]
    scores = demur.score(posterior, loader, class_axis=2, maps=tmp_path / "maps-id.zarr")
    scores.save(tmp_path / "id.zarr")
    return tmp_path


def test_each_listed_input_has_its_map(folder):
    run = read_run(folder)
    assert "accuracy" not in run.scores  # it is no uncertainty
    content = gather_data(gather_contents(run), top=3)
    (rows,), sheet = content["rows"][0][:1], content["maps"][0][0]
    assert content["scores"][content["mapped"]]["column"] == "pairwise_epistemic"
    assert sorted(row["map"] for row in rows) == list(range(len(rows))) == list(range(sheet["count"]))
    assert (sheet["width"], sheet["height"], sheet["shown"]) == (9, 12, 96)
    pillow = pytest.importorskip("PIL.Image")
    picture = np.asarray(pillow.open(io.BytesIO(base64.b64decode(sheet["image"].partition(",")[2]))))
    maps = run.methods[0].maps["id"]["pairwise_epistemic"]
    shown = np.stack([maps[row["input"]] for row in rows])
    top = np.quantile(shown, 0.99)
    for row, values in zip(rows, shown, strict=True):
        own = picture[:, 9 * row["map"] : 9 * (row["map"] + 1)]
        share = np.minimum(values / top, 1)[..., None]
        # From a pale grey at 0 to a dark blue at the 99th percentile of all maps shown.
        expected = np.array([245, 247, 249]) + share * (np.array([0, 58, 102]) - np.array([245, 247, 249]))
        np.testing.assert_allclose(own, expected, atol=0.51)


def test_maps_from_files_with_pixels_that_have_no_prediction(folder):
    logits = np.random.default_rng(0).normal(size=(4, 30, 5, 12, 9))
    logits[:, :, :, 0] = np.nan
    logits[:, 7] = np.nan
    np.save(folder / "z.npy", logits)
    asked = ["--logits", "--class-axis", "2", "--maps", folder / "maps-ood.zarr", "--out", folder / "ood.csv"]
    done = CliRunner().invoke(app, ["score", *map(str, [folder / "z.npy", *asked])])
    assert done.exit_code == 0, done.output
    run = read_run(folder)
    assert "missing" not in run.scores  # it is no uncertainty
    content = gather_data(gather_contents(run), top=3)
    sheet = content["maps"][0][1]
    assert all(row["input"] != 7 and "map" in row for row in content["rows"][0][1])
    pillow = pytest.importorskip("PIL.Image")
    picture = np.asarray(pillow.open(io.BytesIO(base64.b64decode(sheet["image"].partition(",")[2]))))
    assert (picture[0] == 255).all() and (picture[1:] < 255).any(axis=-1).all()


def test_maps_that_do_not_fit_are_refused(folder):
    short = {name: values[:20] for name, values in read_columns(folder / "id.zarr").items()}
    write_columns(folder / "id.zarr", short, force=True)
    with pytest.raises(StoreError, match=r"maps-id\.zarr: expected maps of shape \(20, height, width\)"):
        read_run(folder)
