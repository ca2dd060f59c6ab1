"""Files of every format, damaged at random: each command works, or ends with one line and exit code 2."""

from __future__ import annotations

import json
import resource
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import demur
from demur.cli import app
from demur.scoring.checkpoint import Checkpoint
from demur.stores import write_columns

QUICK, LONG = 4, 60
"""Damages of each file, in every run and in the slow one."""
SECONDS = 120
"""After so long a command hangs: each takes less than one."""
MOST_BYTES = 500 << 20
"""Memory that all damages of a file may add to the process."""


class Hanging(BaseException):
    """Raised in a command that does not end; no `except Exception` takes it."""


@contextmanager
def ends() -> Iterator[None]:
    def give_up(*_: object) -> None:
        raise Hanging

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def damage(whole: bytes, rng: np.random.Generator) -> bytes:
    """The bytes of a file with bits flipped, bytes replaced, a piece cut out or doubled, or cut short."""
    found = bytearray(whole)
    # Half of the damages are where headers and tables of contents are.
    ends = [0, min(300, len(whole))], [max(0, len(whole) - 300), len(whole)], [0, len(whole)], [0, len(whole)]
    low, high = ends[rng.integers(4)]
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(low, max(low + 1, high)))
        piece = slice(at, at + int(rng.integers(1, 40)))
        kind = rng.integers(5)
        if kind == 0 and at < len(found):
            found[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            found[piece] = rng.bytes(len(found[piece]))
        elif kind == 2:
            found[piece] = found[piece] * 2
        elif kind == 3:
            del found[piece]
        else:
            del found[at:]
    return bytes(found)


def runs(*arguments: Any) -> Callable[[], None]:
    """A command that must work, or be refused as the contract says."""

    def check() -> None:
        result = CliRunner().invoke(app, [str(each) for each in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code in (0, 2), result.output
        if result.exit_code == 2:
            assert result.stdout == ""
            assert result.stderr.startswith("demur: ") and result.stderr.count("\n") == 1
            assert result.stderr.strip().isprintable()

    return check


def loads(load: Callable[[], object]) -> Callable[[], None]:
    """A function that must work, or raise a ValueError of one line."""

    def check() -> None:
        try:
            load()
        except ValueError as error:
            assert "\n" not in str(error)  # noqa: PT017

    return check


def check_damages(path: Path, number: int, *checks: Callable[[], None]) -> None:
    """Damage a file again and again, and check each time; in the end it is whole again."""
    whole = path.read_bytes()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for check in checks:
        check()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as the command line does
        for seed in range(number):
            path.write_bytes(damage(whole, np.random.default_rng([seed, len(whole)])))
            for check in checks:
                with ends():
                    try:
                        check()
                    except Exception as error:
                        error.add_note(f"{path.name}, damage {seed}")
                        raise
    path.write_bytes(whole)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < MOST_BYTES


MEMBERS, INPUTS, CLASSES = 3, 30, 4


@pytest.fixture
def logits() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(MEMBERS, INPUTS, CLASSES)).astype(np.float32)


def save_npy(path: Path, values: np.ndarray) -> None:
    np.save(path, values)


def save_npz(path: Path, values: np.ndarray) -> None:
    np.savez(path, values)


def save_packed(path: Path, values: np.ndarray) -> None:
    np.savez_compressed(path, values)


def save_safetensors(path: Path, values: np.ndarray) -> None:
    from safetensors.numpy import save_file

    save_file({"z": values}, path)


def save_pt(path: Path, values: np.ndarray) -> None:
    torch = pytest.importorskip("torch")
    torch.save(torch.from_numpy(values), path)


def save_csv(path: Path, values: np.ndarray) -> None:
    np.savetxt(path, values[0], delimiter=",", header="a,b,c,d", comments="")


def save_parquet(path: Path, values: np.ndarray) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({name: values[0, :, k] for k, name in enumerate("abcd")}), path)


PREDICTIONS = {
    "z.npy": save_npy,
    "z.npz": save_npz,
    "packed.npz": save_packed,
    "z.safetensors": save_safetensors,
    "z.pt": save_pt,
    "z.csv": save_csv,
    "z.parquet": save_parquet,
}
TIMES = [QUICK, pytest.param(LONG, marks=pytest.mark.slow)]


@pytest.mark.parametrize("number", TIMES)
@pytest.mark.parametrize("name", PREDICTIONS)
def test_predictions(tmp_path, logits, name, number):
    PREDICTIONS[name](tmp_path / name, logits)
    np.save(tmp_path / "good.npy", logits)
    path, good = tmp_path / name, tmp_path / "good.npy"
    check_damages(
        path,
        number,
        runs("score", path, "--logits", "--top", 3),
        runs("evaluate", "ood", "--logits", "--id", good, "--ood", path, "--resamples", 100),
    )


@pytest.mark.parametrize("number", TIMES)
@pytest.mark.parametrize("name", ["w.npy", "w.csv", "w.json"])
def test_weights(tmp_path, logits, name, number):
    path = tmp_path / name
    np.save(tmp_path / "z.npy", logits)
    if name == "w.npy":
        np.save(path, np.arange(1.0, MEMBERS + 1))
    else:
        path.write_text("[1, 2, 3]" if name == "w.json" else "weight\n1\n2\n3\n")
    check_damages(path, number, runs("score", tmp_path / "z.npy", "--logits", "--weights", path))


@pytest.fixture
def scores(logits) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    found: dict[str, np.ndarray] = {
        "input": np.arange(INPUTS),
        "id": np.array([f"i{k}" for k in range(INPUTS)]),
    }
    found |= {name: rng.integers(CLASSES, size=INPUTS) for name in ("label", "prediction")}
    for measure in ("pairwise", "average"):
        made = demur.decompose(logits=logits, measure=measure)
        parts = {"total": made.total, "aleatoric": made.aleatoric, "epistemic": made.epistemic}
        found |= {f"{measure}_{part}": np.asarray(values) for part, values in parts.items()}
    return found


@pytest.mark.parametrize("number", TIMES)
@pytest.mark.parametrize(
    "suffix", [".csv", pytest.param(".npz", marks=pytest.mark.slow), ".json", ".parquet"]
)
def test_scores_and_reports(tmp_path, scores, suffix, number):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    folder = tmp_path / "run"
    folder.mkdir()
    known, unknown = folder / f"id{suffix}", folder / f"ood-far{suffix}"
    write_columns(known, scores)
    write_columns(unknown, scores)
    demur.Deferral.fit(scores["pairwise_epistemic"], np.ones(INPUTS, bool), coverage=0.5).save(
        tmp_path / "policy.json"
    )
    check_damages(
        known,
        number,
        runs("evaluate", "ood", "--id", known, "--ood", unknown, "--resamples", 100),
        runs("evaluate", "misclassification", known, "--resamples", 100),
        runs("evaluate", "selective", unknown, "--labels", f"{known}:label", "--resamples", 100),
        runs("evaluate", "defer", "apply", tmp_path / "policy.json", known),
        runs("report", folder),
    )


@pytest.mark.parametrize("number", TIMES)
def test_labels(tmp_path, scores, number):
    write_columns(tmp_path / "scores.csv", scores)
    np.save(tmp_path / "labels.npy", scores["label"])
    path, labels = tmp_path / "scores.csv", tmp_path / "labels.npy"
    check_damages(labels, number, runs("evaluate", "selective", path, "--labels", labels, "--resamples", 100))


@pytest.mark.parametrize("number", TIMES)
@pytest.mark.parametrize("name", ["run.json", "images/id.npy", "members-id.npy", "report.html"])
def test_what_is_beside_the_scores_of_a_run(tmp_path, scores, logits, name, number):
    (tmp_path / "images").mkdir()
    write_columns(tmp_path / "id.csv", scores)
    write_columns(tmp_path / "ood.csv", scores)
    np.save(tmp_path / "images" / "id.npy", np.zeros((INPUTS, 5, 5), np.uint8))
    from scipy.special import log_softmax

    np.save(tmp_path / "members-id.npy", log_softmax(logits, -1))
    facts = {
        "title": "T",
        "seed": 3,
        "versions": {"numpy": "2"},
        "classes": list("abcd"),
        "sets": {"id": "known"},
    }
    (tmp_path / "run.json").write_text(json.dumps(facts))
    runs("report", tmp_path)()
    check_damages(tmp_path / name, number, runs("report", tmp_path))


@pytest.mark.parametrize("number", [QUICK * 10, pytest.param(LONG * 10, marks=pytest.mark.slow)])
def test_policies(tmp_path, scores, number):
    path = tmp_path / "policy.json"
    write_columns(tmp_path / "scores.csv", scores)
    groups = np.repeat(["a", "b"], INPUTS // 2)
    demur.Deferral.fit(scores["pairwise_epistemic"], np.ones(INPUTS, bool), coverage=0.5, groups=groups).save(
        path
    )
    apply = runs("evaluate", "defer", "apply", path, tmp_path / "scores.csv", "--groups", "label")
    check_damages(path, number, loads(lambda: demur.Deferral.load(path)), apply)


@pytest.mark.parametrize("number", [QUICK * 10, pytest.param(LONG * 10, marks=pytest.mark.slow)])
@pytest.mark.parametrize("groups", [None, 2])
def test_moments_and_checkpoints(tmp_path, logits, groups, number):
    moments = demur.Moments(groups=groups)
    moments.update(logits=logits)
    moments.save(tmp_path / "moments.npz")
    expected = moments.decompose().epistemic

    def load_moments() -> None:
        # A flipped bit is never a number: the archive has checksums.
        np.testing.assert_array_equal(
            demur.Moments.load(tmp_path / "moments.npz").decompose().epistemic, expected
        )

    check_damages(tmp_path / "moments.npz", number, loads(load_moments))
    file = Checkpoint(tmp_path / "run.checkpoint", {"seed": 0}, 0.0)
    arrays = {"values": np.arange(20.0), "names": np.array(["a", "b"])}
    file.write(arrays)

    def read_checkpoint() -> None:
        found = file.read()
        assert {name: values.tolist() for name, values in found.items()} == {
            name: values.tolist() for name, values in arrays.items()
        }

    check_damages(tmp_path / "run.checkpoint", number, loads(read_checkpoint))


@pytest.mark.parametrize("number", [QUICK * 5, pytest.param(LONG * 5, marks=pytest.mark.slow)])
def test_posteriors(tmp_path, number):
    torch = pytest.importorskip("torch")
    from demur.posteriors import DeepEnsemble

    path = tmp_path / "ensemble.safetensors"
    models = [torch.nn.Linear(3, 2) for _ in range(2)]
    DeepEnsemble(models).save(path)
    expected = [p.tolist() for model in models for p in model.parameters()]

    def load() -> None:
        found = DeepEnsemble.load(path, [torch.nn.Linear(3, 2) for _ in range(2)])
        assert [p.tolist() for model in found.models for p in model.parameters()] == expected

    check_damages(path, number, loads(load))


def test_control_the_check_objects_to_what_is_wrong(tmp_path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(1000))

    def traceback() -> None:
        if path.read_bytes() != bytes(1000):
            raise KeyError("name")

    def two_lines() -> None:
        if path.read_bytes() != bytes(1000):
            raise ValueError("one\ntwo")

    with pytest.raises(KeyError):
        check_damages(path, QUICK, loads(traceback))
    path.write_bytes(bytes(1000))
    with pytest.raises(AssertionError):
        check_damages(path, QUICK, loads(two_lines))


def test_control_damages_differ_and_change_the_file() -> None:
    whole = np.random.default_rng(0).bytes(2000)
    found = {damage(whole, np.random.default_rng(seed)) for seed in range(50)}
    assert len(found) > 45 and whole not in found
