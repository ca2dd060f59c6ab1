"""Tables of predictions: columns are matched by name, and what stands beside them goes along."""

from __future__ import annotations

import numpy as np
import pytest
from reference.files import read, refused

from demur.stores import open_predictions

pd = pytest.importorskip("pandas")
NAMES = ["cat", "dog", "owl", "fox"]


def write(path, frame) -> None:
    getattr(frame, f"to_{path.suffix[1:]}")(path, index=False)


@pytest.fixture(params=["csv", "parquet"])
def suffix(request) -> str:
    return request.param


def test_columns_are_matched_by_name(tmp_path, logits, suffix):
    """Members with their columns in another order are those with the columns in order."""
    for member, values in enumerate(logits):
        order = np.random.default_rng(member).permutation(4)
        frame = pd.DataFrame(values.astype(float), columns=NAMES)
        write(tmp_path / f"m{member}.{suffix}", frame if member == 0 else frame.iloc[:, order])
    np.testing.assert_array_equal(read(tmp_path / f"m*.{suffix}"), logits.astype(float))


def test_columns_with_other_names_are_refused(tmp_path, logits, suffix):
    write(tmp_path / f"a.{suffix}", pd.DataFrame(logits[0], columns=NAMES))
    write(tmp_path / f"b.{suffix}", pd.DataFrame(logits[1], columns=[*NAMES[:3], "wolf"]))
    files = [tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"]
    refused(
        files, f"b.{suffix}", "expected the columns cat, dog, owl, fox, as in", f"a.{suffix}", "wolf", "alike"
    )


def test_other_columns_go_along(tmp_path, logits, suffix):
    for member, values in enumerate(logits):
        frame = pd.DataFrame(values.astype(float), columns=NAMES)
        frame.insert(0, "ID", [f"{row:04}" for row in range(len(frame))])  # zeros in front stay
        frame.insert(2, "smiles", ["C" * row + ',"N"' for row in range(len(frame))])
        frame["Labels"] = np.arange(len(frame)) % 4
        frame["model"] = f"net{member}"  # says nothing of the input
        frame["mass"] = np.arange(len(frame)) / 8
        write(tmp_path / f"m{member}.{suffix}", frame)
    with open_predictions([tmp_path / f"m*.{suffix}"], keep=["mass"]) as predictions:
        found = predictions.columns
        assert predictions.names == tuple(NAMES)
    assert list(found) == ["id", "smiles", "label", "mass"]
    assert found["id"][:2].tolist() == ["0000", "0001"]
    assert found["smiles"][2] == 'CC,"N"'
    np.testing.assert_array_equal(found["label"], np.arange(37) % 4)
    np.testing.assert_array_equal(found["mass"], np.arange(37) / 8)
    np.testing.assert_array_equal(read(tmp_path / f"m*.{suffix}", keep=["mass"]), logits.astype(float))
    with open_predictions([tmp_path / f"m*.{suffix}"], keep=["mass"], id_column="smiles") as predictions:
        assert list(predictions.columns) == ["id", "ID", "label", "mass"]
    refused(tmp_path / f"m0.{suffix}", "expected a column weight beside", "got ID, smiles", keep=["weight"])


def test_rows_in_another_order_are_refused(tmp_path, logits, suffix):
    frame = pd.DataFrame(logits[0], columns=NAMES).assign(id=[f"x{row}" for row in range(37)])
    write(tmp_path / f"a.{suffix}", frame)
    write(tmp_path / f"b.{suffix}", frame.iloc[[0, 2, 1, *range(3, 37)]])
    files = [tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"]
    refused(files, f"b.{suffix}", "same order", "another id at input 1", "sort")


def test_row_names_of_pandas_are_ids(tmp_path, logits, suffix):
    frame = pd.DataFrame(logits[0].astype(float), columns=NAMES, index=[f"x{row}" for row in range(37)])
    getattr(frame, f"to_{suffix}")(tmp_path / f"a.{suffix}")
    with open_predictions([tmp_path / f"a.{suffix}"]) as predictions:
        assert predictions.columns["id"].tolist() == list(frame.index)
    np.testing.assert_array_equal(read(tmp_path / f"a.{suffix}")[0], logits[0].astype(float))


def test_a_name_that_scores_have_is_refused(tmp_path, logits, suffix):
    frame = pd.DataFrame(logits[0], columns=NAMES).assign(prediction="cat")
    write(tmp_path / f"a.{suffix}", frame)
    refused(tmp_path / f"a.{suffix}", "another name for the column prediction")


def test_inputs_without_a_prediction_are_nan(tmp_path, logits, suffix, monkeypatch):
    monkeypatch.setattr("demur.stores.csv_files._CELLS_AT_ONCE", 12)
    for beside in ({}, {"id": [f"x{row}" for row in range(37)]}):
        frame = pd.DataFrame(logits[0].astype(float), columns=NAMES).assign(**beside)
        frame.loc[5, NAMES] = np.nan
        write(tmp_path / f"a.{suffix}", frame)
        expected = logits[0].astype(float)
        expected[5] = np.nan
        np.testing.assert_array_equal(read(tmp_path / f"a.{suffix}")[0], expected)


def test_single_gaps_are_nan_only_where_each_number_is_a_prediction(tmp_path):
    (tmp_path / "a.csv").write_text("toxic,soluble\n0.1,\n,0.3\n0.4,0.5\n")
    values = read(tmp_path / "a.csv", outcome="binary")
    np.testing.assert_array_equal(values[0, :, 0], [0.1, np.nan, np.nan, 0.3, 0.4, 0.5])
    refused(tmp_path / "a.csv", "an empty cell", "line 2")


def test_hundreds_of_classes(tmp_path, suffix):
    values = np.random.default_rng(0).normal(size=(30, 700))
    frame = pd.DataFrame(values, columns=[f"word {column}" for column in range(700)]).assign(id="x")
    write(tmp_path / f"a.{suffix}", frame)
    np.testing.assert_array_equal(read(tmp_path / f"a.{suffix}")[0], values)
