"""What counts as an array: lists of arrays, tables, masks; and what is refused."""

import numpy as np
import pytest
from reference import loops, members

import demur
from demur.core import arrays

PROBS = loops.softmax(members.ordinary(4, 3, 5))


class Frame:
    """What pandas and polars have in common: `to_numpy`."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def to_numpy(self) -> np.ndarray:
        return self.values


def test_a_list_of_arrays_is_an_array_of_members(xp) -> None:
    expected = demur.decompose(xp.array(PROBS)).epistemic
    parts = [xp.array(member) for member in PROBS]
    for given in (parts, tuple(parts), [list(member) for member in parts]):
        found = demur.decompose(given).epistemic
        np.testing.assert_array_equal(xp.numpy(found), xp.numpy(expected))  # in the library of the parts
        assert xp.dtype_name(found) == xp.dtype_name(expected)


def test_rows_of_tables_are_matched_by_index() -> None:
    pandas = pytest.importorskip("pandas")
    names, rows = list("abcde"), ["x", "y", "z"]
    frames = [pandas.DataFrame(member, columns=names, index=rows) for member in PROBS]
    expected = demur.decompose(PROBS).epistemic
    mixed = [frames[0], frames[1].iloc[[2, 0, 1]], frames[2].iloc[::-1, ::-1], frames[3]]
    np.testing.assert_array_equal(demur.decompose(mixed).epistemic, expected)
    columns = [frame["a"] for frame in mixed]
    np.testing.assert_array_equal(
        demur.decompose(demur.Bernoulli(columns)).epistemic,
        demur.decompose(demur.Bernoulli(PROBS[..., 0])).epistemic,
    )
    moments = demur.Moments()
    for frame in mixed:
        moments.update(frame)
    one_by_one = demur.Moments()
    for member in PROBS:
        one_by_one.update(member)
    np.testing.assert_array_equal(moments.decompose().epistemic, one_by_one.decompose().epistemic)
    others = [frames[1].rename(index={"x": "w"}), frames[1].rename(index={"x": "y"})]
    for other, message in zip(others, ("'w', which is not in the first", "a row twice"), strict=True):
        with pytest.raises(ValueError, match=f"same index.* at 1, {message}.*reset_index"):
            demur.decompose([frames[0], other])
        with pytest.raises(ValueError, match=f"same index.* {message}"):
            moments.update(other)
    with pytest.raises(ValueError, match="same columns"):
        moments.update(frames[0].rename(columns={"a": "f"}))
    assert moments.count == 4  # what is refused changes nothing
    with pytest.raises(ValueError, match="in the same order"):
        moments.merge(demur.Moments().update(mixed[1]))
    assert demur.Moments().merge(moments).count == 4
    plain = demur.Moments().update(frames[0]).update(PROBS[1])  # arrays have no names to compare
    assert plain.count == 2


def test_advice_for_one_model_is_good_for_tables_too() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(PROBS[0])
    assert "give a list of one: [array]" in repr(demur.decompose(table))
    assert demur.decompose([table]).epistemic.tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(ValueError, match=r"give \[array\], a list of one member"):
        demur.decompose(table.iloc[0])


def test_gradients_pass_through_a_list() -> None:
    torch = pytest.importorskip("torch")
    whole = torch.tensor(np.log(PROBS), requires_grad=True)
    demur.decompose(logits=whole).epistemic.sum().backward()
    parts = [torch.tensor(np.log(member), requires_grad=True) for member in PROBS]
    demur.decompose(logits=parts).epistemic.sum().backward()
    for part, expected in zip(parts, whole.grad, strict=True):
        torch.testing.assert_close(part.grad, expected)


def test_a_list_of_several_kinds_takes_the_library_and_the_wider_type() -> None:
    torch = pytest.importorskip("torch")
    mixed = [PROBS[0], torch.tensor(PROBS[1]), torch.tensor(PROBS[2], dtype=torch.float32), PROBS[3].tolist()]
    found = demur.decompose(mixed)
    assert isinstance(found.epistemic, torch.Tensor) and found.epistemic.dtype == torch.float64
    # One member is rounded to float32, by 6e-8 at most.
    np.testing.assert_allclose(found.epistemic, demur.decompose(PROBS).epistemic, rtol=1e-5)


def test_tables_of_pandas(tmp_path) -> None:
    pandas = pytest.importorskip("pandas")
    frames = [pandas.DataFrame(member, columns=list("abcde")) for member in PROBS]
    weights = pandas.Series([1.0, 2.0, 0.0, 3.0], index=list("wxyz"))
    expected = demur.decompose(PROBS, weights=weights.to_numpy()).epistemic
    np.testing.assert_array_equal(demur.decompose(frames, weights=weights).epistemic, expected)
    nullable = [frame.convert_dtypes() for frame in frames]
    np.testing.assert_array_equal(demur.decompose(nullable, weights=weights).epistemic, expected)
    moments = demur.Moments()
    for frame, weight in zip(frames, weights, strict=True):
        moments.update(frame, weights=weight)
    np.testing.assert_allclose(moments.decompose().epistemic, expected, rtol=1e-12)
    nullable[1].iloc[2, 3] = pandas.NA
    with pytest.raises(ValueError, match=r"probs must be numbers\. Got nan at \[1, 2, 3\]"):
        demur.decompose(nullable)
    with pytest.raises(TypeError, match="DataFrame that also holds something else"):
        demur.decompose([frame.assign(id="drug") for frame in frames])


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_columns_of_tables_are_matched_by_name(package) -> None:
    library = pytest.importorskip(package)
    names = list("abcde")
    frames = [library.DataFrame(dict(zip(names, member.T, strict=True))) for member in PROBS]
    frames[1] = frames[1][names[::-1]]
    found = demur.decompose(frames).epistemic
    np.testing.assert_array_equal(found, demur.decompose(PROBS).epistemic)
    frames[2] = library.DataFrame(dict(zip("abcdx", PROBS[2].T, strict=True)))
    with pytest.raises(ValueError, match=r"same columns, one table per member\. Got .* at 2, .* Rename them"):
        demur.decompose(frames)


def test_a_column_of_names_is_left_as_it_is() -> None:
    pandas = pytest.importorskip("pandas")
    assert arrays.as_array(pandas.Series(["a", "b"])).tolist() == ["a", "b"]
    with pytest.raises(TypeError, match="weights must hold real numbers"):
        demur.decompose(PROBS, weights=pandas.Series(list("abcd")))


def test_anything_with_to_numpy_is_a_table() -> None:
    found = demur.decompose([Frame(member) for member in PROBS], weights=Frame(np.array([1, 2, 3, 4])))
    expected = demur.decompose(PROBS, weights=[1, 2, 3, 4])
    np.testing.assert_array_equal(found.epistemic, expected.epistemic)
    np.testing.assert_array_equal(
        demur.Moments().update(Frame(PROBS[0])).decompose().total,
        demur.Moments().update(PROBS[0]).decompose().total,
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([PROBS[0], PROBS[1, :2]], r"arrays of one shape.*Got shape \(3, 5\) at 0 and \(2, 5\) at 1"),
        (
            [[[0.5, 0.5], [1.0]], [[0.5, 0.5], [0.5, 0.5]]],
            r"a list of 2 and, at \[0, 1\], one of 1",
        ),
        ([[[0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]]], r"equal length.*a list of 1 and, at \[1\], one of 2"),
        ([[[0.5, 0.5], 0.5]], r"equal length.*lists and numbers side by side, at \[0, 1\]"),
    ],
    ids=["arrays", "rows", "members", "mixed"],
)
def test_ragged_lists(given, message) -> None:
    with pytest.raises(ValueError, match=message):
        demur.decompose(given)


@pytest.mark.parametrize("thing", [{"a": 1}, object(), {0.5}])
def test_lists_of_things_that_are_no_arrays(thing) -> None:
    with pytest.raises(TypeError, match="Expected an array of NumPy, PyTorch or JAX"):
        demur.decompose([thing, thing])


# --- masks --------------------------------------------------------------------------------------


def test_masked_numbers_are_not_used() -> None:
    masked = np.ma.masked_array(PROBS, mask=np.zeros(PROBS.shape, bool))
    np.testing.assert_array_equal(demur.decompose(masked).total, demur.decompose(PROBS).total)
    assert type(arrays.as_array(masked)) is np.ndarray
    masked[1, 2] = np.ma.masked
    for given in (masked, list(masked)):
        with pytest.raises(ValueError, match=r"without a mask\. Got one that masks 5 of .* weight 0"):
            demur.decompose(given)
    with pytest.raises(ValueError, match="without a mask"):
        demur.Moments().update(masked)
    with pytest.raises(ValueError, match="without a mask"):
        demur.decompose(PROBS, weights=np.ma.masked_equal([1, 1, 0, 1], 0))


# --- weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [np.array([1, 1j, 1, 1]), [1, 2, 3, 1 + 1j], np.array(["1"] * 4)])
def test_weights_that_are_not_real(weights) -> None:
    with pytest.raises(TypeError, match="weights must hold real numbers"):
        demur.decompose(PROBS, weights=weights)
    with pytest.raises(TypeError, match="weights must hold real numbers"):
        demur.Moments().update(PROBS, weights=weights)
    with pytest.raises(TypeError, match="weights must hold real numbers"):
        demur.Mixture([demur.Beta(1, 1)] * 4, weights=weights)
    with pytest.raises(TypeError, match="weights must hold real numbers"):
        demur.Deltas([0.1, 0.2, 0.3, 0.4], weights=weights)


@pytest.mark.parametrize("weight", [1j, np.complex128(2 + 1j), np.array(1j), "1"])
def test_a_weight_of_one_member_that_is_not_real(weight) -> None:
    with pytest.raises(TypeError, match=r"weights must hold real numbers|Expected an array"):
        demur.Moments().update(PROBS[0], weights=weight)


@pytest.mark.parametrize(
    ("argument", "advice"),
    [
        ("predictions.npy", "Read the file first"),
        ({"a": PROBS[0], "b": PROBS[1]}, r"give list\(members\.values\(\)\)"),
        (
            (member for member in PROBS),
            r"Give list\(members\), or pass one member at a time to demur\.Moments",
        ),
        (demur.decompose(PROBS), "Pass one of its parts, as .total or .epistemic"),
        (object(), "Convert it first"),
    ],
    ids=["a path", "a mapping", "a generator", "a decomposition", "something else"],
)
def test_what_is_no_array_is_told_how_to_become_one(argument, advice) -> None:
    with pytest.raises(TypeError, match=advice):
        demur.decompose(argument)


def test_columns_that_are_no_numbers_are_named() -> None:
    pandas = pytest.importorskip("pandas")
    frames = [pandas.DataFrame(member, columns=list("abcde")).assign(photo="x", note="y") for member in PROBS]
    with pytest.raises(TypeError, match=r"holds something else, in 'photo', 'note'\. Leave out columns"):
        demur.decompose(frames)
