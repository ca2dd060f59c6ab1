"""Scores: what is right, columns of one's own, files and back, and how they are printed."""

import html.parser

import numpy as np
import pytest
from typer.testing import CliRunner

import demur
from demur.posteriors import Samples

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(5, 12, 3)) * 2
X = np.zeros((12, 1))
Y = RNG.integers(0, 3, 12)
NAMES = np.array(["ant", "bee", "cat"])
IDS = np.array([f"row {i}" for i in range(12)])
MEASURES = ("pairwise", "average", "reverse")
FORMATS = ["csv", "parquet", "npz", "json"]


def given(logits=LOGITS):
    return Samples(lambda x: logits, kind="logits", members=len(logits))


def prediction_of(logits=LOGITS) -> np.ndarray:
    p = np.exp(logits)
    return (p / p.sum(-1, keepdims=True)).mean(0).argmax(-1)


# --- what is right -------------------------------------------------------------------------------


def test_labels_by_name_take_the_names_of_classes() -> None:
    expected = prediction_of() == Y
    scores = demur.score(given(), [(X, NAMES[Y])], classes=NAMES)
    np.testing.assert_array_equal(scores.correct, expected)
    np.testing.assert_array_equal(scores.predictions, NAMES[prediction_of()])
    assert 0 < expected.sum() < 12
    np.testing.assert_array_equal(demur.score(given(), [(X, Y)]).correct, expected)
    np.testing.assert_array_equal(demur.score(given(), [(X, Y.astype(float))]).correct, expected)
    shifted = demur.score(given(), [(X, Y + 1)], classes=[1, 2, 3], order="member")
    np.testing.assert_array_equal(shifted.correct, expected)
    floats = demur.score(given(), [(X, Y + 0.5)], classes=[0.5, 1.5, 2.5])
    np.testing.assert_array_equal(floats.correct, expected)


def test_classes_are_those_of_the_deployed_model_too() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(1, 3), torch.nn.Dropout(0.5), torch.nn.Linear(3, 3))
    scores = demur.score(demur.posteriors.MCDropout(model, 3), [torch.zeros(4, 1)], classes=NAMES)
    assert scores.deployed is not None and set(scores.deployed) <= set(NAMES)


def test_labels_that_cannot_be_compared_are_refused() -> None:
    wrong = [
        (r"0 to 2. Got text, as '\w+'.*classes=", lambda: demur.score(given(), [(X, NAMES[Y])]).correct),
        ("must be names of classes", lambda: demur.score(given(), [(X, Y)], classes=NAMES).correct),
        ("labels.argmax", lambda: demur.score(given(), [(X, np.eye(3)[Y])]).correct),
        ("NaN at input 0", lambda: demur.score(given(), [(X, np.full(12, np.nan))]).correct),
        ("3 of them. Got 2", lambda: demur.score(given(), [(X, Y)], classes=NAMES[:2])),
        ("different labels", lambda: demur.score(given(), [(X, Y)], classes=["a", "a", "b"])),
    ]
    for message, call in wrong:
        with pytest.raises(ValueError, match=message):
            call()


def test_numbers_are_never_called_right_or_wrong() -> None:
    mean = RNG.normal(size=(5, 12))
    posterior = Samples(lambda x: demur.Gaussian(mean, variance=np.ones((5, 12))))
    scores = demur.score(posterior, [(X, mean.mean(0))])
    assert scores.outcome == "numbers" and scores.predictions.shape == (12,)
    np.testing.assert_allclose(scores.predictions, mean.mean(0))
    assert "prediction" in scores.columns
    with pytest.raises(ValueError, match=r"demur\.tasks\.within\(scores\.predictions, scores\.labels"):
        _ = scores.correct
    with pytest.raises(ValueError, match="one class for each input"):
        demur.score(posterior, [X], classes=NAMES)


@pytest.mark.parametrize("order", ["batch", "member"])
def test_several_labels_are_predicted_one_by_one(order) -> None:
    p = RNG.uniform(size=(5, 12, 4))
    p[:, 0, 0] = 0.5  # as likely as not is not present

    class Labels(demur.posteriors.Posterior):
        members = 5

        def predict(self, batch, *, members=None, position=0):
            rows = slice(position, position + len(batch))
            for k in members or range(5):
                yield demur.MultiLabel(p[k : k + 1, rows])

    truth = (p.mean(0) > 0.5).astype(int)
    truth[3, 2] = 1 - truth[3, 2]
    batches = [(X[:5], truth[:5]), (X[5:], truth[5:])]
    scores = demur.score(Labels(), batches, order=order)
    np.testing.assert_array_equal(scores.predictions, p.mean(0) > 0.5)
    np.testing.assert_array_equal(scores.correct, np.arange(12) != 3)
    np.testing.assert_array_equal(scores.labels, truth)
    expected = demur.decompose(demur.MultiLabel(p)).epistemic
    np.testing.assert_allclose(scores["pairwise"].epistemic, expected, rtol=1e-9)
    assert scores.table.classes == 4 and scores.outcome == "multilabel"
    names = list(scores.columns)
    assert names[1:9] == [*(f"label_{d}" for d in range(4)), *(f"prediction_{d}" for d in range(4))]
    with pytest.raises(ValueError, match=r"0 or 1 for each input and label, shape \(12, 4\)"):
        _ = demur.score(Labels(), [(X[:5], Y[:5]), (X[5:], Y[5:])]).correct


# --- predictions without members -----------------------------------------------------------------


def test_dirichlet_predictions() -> None:
    alpha = RNG.gamma(2.0, size=(12, 3)) + 0.1
    cases = {
        "callable": lambda x: demur.Dirichlet(alpha),
        "samples": Samples(lambda x: demur.Dirichlet(alpha)),
    }
    for posterior in cases.values():
        scores = demur.score(posterior, [(X, Y)], base=2)
        np.testing.assert_allclose(scores["pairwise"].epistemic, 2 / alpha.sum(1) / np.log(2))
        for measure in MEASURES:
            expected = demur.decompose(demur.Dirichlet(alpha), measure=measure, base=2)
            for part in ("total", "aleatoric", "epistemic"):
                np.testing.assert_allclose(getattr(scores[measure], part), getattr(expected, part))
        np.testing.assert_array_equal(scores.correct, alpha.argmax(1) == Y)
        assert scores.members is None and "member" not in repr(scores)
        with pytest.raises(ValueError, match="known number of members"):
            _ = scores.used
    brier = demur.score(cases["callable"], [X], rule="brier", measures=["average"])
    expected = demur.decompose(demur.Dirichlet(alpha), measure="average", rule="brier")
    np.testing.assert_allclose(brier["average"].epistemic, expected.epistemic)


def test_evidential_networks() -> None:
    torch = pytest.importorskip("torch")
    network = torch.nn.Linear(2, 3)
    x = torch.randn(9, 2, generator=torch.Generator().manual_seed(0))

    def evidence(batch):
        return torch.distributions.Dirichlet(1 + torch.nn.functional.softplus(network(batch)))

    scores = demur.score(evidence, [x[:4], x[4:]])
    alpha = evidence(x).concentration.detach().numpy()
    np.testing.assert_allclose(scores["pairwise"].epistemic, 2 / alpha.sum(1), rtol=1e-5)


def test_beta_predictions_are_two_classes() -> None:
    a, b = RNG.gamma(2.0, size=(2, 12)) + 0.1
    scores = demur.score(lambda x: demur.Beta(a, b), [X])
    np.testing.assert_array_equal(scores.predictions, a > b)
    np.testing.assert_allclose(scores["pairwise"].epistemic, 1 / (a + b))


def test_what_a_distribution_refuses() -> None:
    alpha = np.ones((12, 3))
    wrong = [
        ("which has none", Samples(lambda x: demur.Dirichlet(alpha), members=3), {}),
        ("for each of 12 inputs", lambda x: demur.Dirichlet(alpha[:5]), {}),
        ("for each of 12 inputs", lambda x: demur.Dirichlet(alpha[None]), {}),
        ("how many members", lambda x: demur.Dirichlet(alpha), {"unbiased": True}),
    ]
    for message, posterior, options in wrong:
        with pytest.raises(ValueError, match=message):
            demur.score(posterior, [X], **options)


def test_several_distributions_are_not_one() -> None:
    alpha = RNG.gamma(2.0, size=(2, 12, 3)) + 0.1

    class Evidential(demur.posteriors.Posterior):
        def __init__(self, *chunks) -> None:
            self.chunks = chunks

        def predict(self, batch, *, members=None, position=0):
            yield from self.chunks

    both = [demur.Dirichlet(each) for each in alpha]
    for chunks in (both, [demur.Categorical(logits=LOGITS), both[0]], [(both[0], [2.0])]):
        with pytest.raises(ValueError, match=r"demur\.Mixture"):
            demur.score(Evidential(*chunks), [X])
    scores = demur.score(Evidential(demur.Mixture(both)), [X])
    expected = demur.decompose(demur.Mixture(both)).epistemic
    np.testing.assert_allclose(scores["pairwise"].epistemic, expected)


def test_draws_and_several_outputs() -> None:
    draws = RNG.normal(size=(3, 40, 12))
    scores = demur.score(lambda x: demur.Draws(draws), [X])
    np.testing.assert_allclose(
        scores["pairwise"].epistemic, demur.decompose(demur.Draws(draws)).epistemic, atol=1e-12
    )
    np.testing.assert_allclose(scores.predictions, draws.mean((0, 1)))
    both = RNG.normal(size=(3, 12, 2))
    scaled = demur.score(lambda x: demur.Points(both, scale=[1.0, 2.0]), [X])
    expected = demur.decompose(demur.Points(both, scale=[1.0, 2.0])).epistemic
    np.testing.assert_allclose(scaled["pairwise"].epistemic, expected)
    np.testing.assert_allclose(scaled.columns["prediction_1"], both[..., 1].mean(0))
    with pytest.raises(ValueError, match="need scale="):
        demur.score(lambda x: demur.Points(both), [X])


# --- columns of one's own ------------------------------------------------------------------------


def test_columns_of_ones_own_travel(tmp_path) -> None:
    scores = demur.score(given(), [(X, Y, IDS)])
    energy = -np.logaddexp.reduce(LOGITS.mean(0), axis=-1)
    more = scores.with_column("energy", energy).with_column("site", ["a", "b"] * 6)
    np.testing.assert_array_equal(more.columns["energy"], energy)
    assert "energy" not in scores.columns and list(more.columns)[-2:] == ["energy", "site"]
    np.testing.assert_array_equal(more["pairwise"].epistemic, scores["pairwise"].epistemic)
    assert repr(more).endswith("also energy, site")
    for ending in FORMATS:
        path = tmp_path / f"scores.{ending}"
        more.save(path)
        back = demur.Scores.load(path)
        np.testing.assert_allclose(back.columns["energy"], energy, rtol=1e-15)
        assert back.columns["site"].tolist() == ["a", "b"] * 6
    wrong = [
        (ValueError, "no column has. Got 'energy'", lambda: more.with_column("energy", energy)),
        (ValueError, "Got 'pairwise_total'", lambda: scores.with_column("pairwise_total", energy)),
        (ValueError, "Got 'deployed'", lambda: scores.with_column("deployed", energy)),
        (ValueError, r"shape \(12,\). Got \(11,\)", lambda: scores.with_column("energy", energy[1:])),
        (ValueError, r"Got \(12, 3\)", lambda: scores.with_column("energy", LOGITS[0])),
        (TypeError, "name must be", lambda: scores.with_column(3, energy)),
        (TypeError, "Got None", lambda: scores.with_column("energy", None)),
    ]
    for kind, message, call in wrong:
        with pytest.raises(kind, match=message):
            call()


def test_to_pandas() -> None:
    pytest.importorskip("pandas")
    scores = demur.score(given(), [(X, Y, IDS)], stderr=True).with_column("energy", np.arange(12.0))
    table = scores.to_pandas()
    assert list(table.columns) == list(scores.columns) and len(table) == 12
    for name, values in scores.columns.items():
        assert table[name].tolist() == values.tolist()


# --- files and back ------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("options", [{}, {"stderr": True, "base": 2, "unbiased": True}, {"rule": "brier"}])
def test_load_gives_back_what_was_saved(ending, options, tmp_path) -> None:
    excluded = LOGITS.copy()
    excluded[0, :4, 0] = -np.inf  # K is infinite there
    scores = demur.score(given(excluded), [(X, NAMES[Y], IDS)], classes=NAMES, **options)
    assert np.isinf(scores["pairwise"].epistemic).any() == (options != {"rule": "brier"})
    scores.save(tmp_path / f"scores.{ending}")
    back = demur.Scores.load(tmp_path / f"scores.{ending}")
    assert back.table.measures == scores.table.measures and list(back.columns) == list(scores.columns)
    for name, values in scores.columns.items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(back.columns[name], values, rtol=1e-15)
        else:
            assert back.columns[name].tolist() == values.tolist()
    np.testing.assert_array_equal(back.correct, scores.correct)
    assert (back["average"].stderr is None) == (scores["average"].stderr is None)
    asked = ["members", "rule", "base", "outcome", *(["unbiased"] if ending == "json" else [])]
    assert [getattr(back, each) for each in asked] == [getattr(scores, each) for each in asked]
    assert repr(back) == repr(scores)
    back.save(tmp_path / f"again.{ending}")
    same = demur.Scores.load(tmp_path / f"again.{ending}")
    np.testing.assert_array_equal(same["pairwise"].epistemic, back["pairwise"].epistemic)


@pytest.mark.parametrize("ending", FORMATS)
def test_several_labels_numbers_and_used_members_are_loaded(ending, tmp_path) -> None:
    p = RNG.uniform(size=(5, 12, 3))
    labels = demur.score(Samples(lambda x: demur.MultiLabel(p)), [(X, (p[0] > 0.5).astype(int))])
    numbers = demur.score(Samples(lambda x: demur.Gaussian(p[..., 0], variance=p[..., 1])), [(X, p[0, :, 0])])
    many = RNG.normal(size=(40, 12, 3)) * np.linspace(0.1, 3, 12)[:, None]
    rows = Samples(lambda x: many[:, x[:, 0]], kind="logits", members=40)
    early = demur.score(rows, [(np.arange(12)[:, None], Y)], tolerance=0.2)
    assert early.used.min() < 40
    for k, scores in enumerate((labels, numbers, early)):
        scores.save(tmp_path / f"{k}.{ending}")
        back = demur.Scores.load(tmp_path / f"{k}.{ending}")
        assert back.outcome == scores.outcome
        np.testing.assert_allclose(back.predictions, scores.predictions, rtol=1e-15)
        np.testing.assert_allclose(back.labels, scores.labels, rtol=1e-15)
    np.testing.assert_array_equal(demur.Scores.load(tmp_path / f"0.{ending}").correct, labels.correct)
    loaded = demur.Scores.load(tmp_path / f"2.{ending}")
    np.testing.assert_array_equal(loaded.used, early.used)
    assert "nats" in repr(loaded) and loaded.members is not None and loaded.members >= early.used.max()
    with pytest.raises(ValueError, match="within"):
        _ = demur.Scores.load(tmp_path / f"1.{ending}").correct


@pytest.mark.parametrize("ending", FORMATS)
def test_a_unit_of_the_users_own_is_left_alone(ending, tmp_path) -> None:
    scores = demur.score(given(LOGITS), [X]).with_column("unit", np.array(["kg"] * len(X)))
    scores.save(tmp_path / f"scores.{ending}")
    back = demur.Scores.load(tmp_path / f"scores.{ending}")
    assert set(back.columns["unit"]) == {"kg"} and back.members == len(LOGITS)
    assert back.rule == ("log" if ending == "json" else None)


@pytest.mark.parametrize("ending", FORMATS)
def test_load_reads_what_the_command_writes(ending, tmp_path) -> None:
    from demur.cli import app

    np.save(tmp_path / "logits.npy", LOGITS)
    np.save(tmp_path / "labels.npy", Y)
    files = [str(tmp_path / "logits.npy"), "--labels", str(tmp_path / "labels.npy")]
    out = tmp_path / f"scores.{ending}"
    done = CliRunner().invoke(app, ["score", *files, "--logits", "--stderr", "--out", str(out)])
    assert done.exit_code == 0, done.output
    back = demur.Scores.load(out)
    expected = demur.score(given(), [(X, Y)], stderr=True)
    for measure in MEASURES:
        np.testing.assert_allclose(back[measure].epistemic, expected[measure].epistemic, rtol=1e-9)
        np.testing.assert_allclose(
            back[measure].stderr.epistemic, expected[measure].stderr.epistemic, rtol=1e-9
        )
    np.testing.assert_array_equal(back.correct, expected.correct)


def test_names_of_predicted_classes_in_a_file_are_compared_with_labels(tmp_path) -> None:
    scores = demur.score(given(), [(X, NAMES[Y])]).with_column("prediction_name", NAMES[prediction_of()])
    scores.save(tmp_path / "scores.csv")
    np.testing.assert_array_equal(demur.Scores.load(tmp_path / "scores.csv").correct, prediction_of() == Y)


def test_files_that_hold_no_scores_are_refused(tmp_path) -> None:
    np.savez(tmp_path / "other.npz", density=np.zeros(3))
    (tmp_path / "broken.json").write_text("{")
    wrong = [
        ("columns of a measure", "other.npz"),
        ("JSON object", "broken.json"),
        ("there.csv", "there.csv"),
    ]
    for message, name in wrong:
        with pytest.raises(ValueError, match=message):
            demur.Scores.load(tmp_path / name)


# --- how they are printed ------------------------------------------------------------------------


def test_scores_print_a_table_of_their_measures() -> None:
    scores = demur.score(given(), [(X, Y)])
    heading, header, *rows = repr(scores).splitlines()
    assert heading == "Scores(12 inputs, 5 members, nats)" and str(scores) == repr(scores)
    assert header.split() == ["mean", "of", "total", "aleatoric", "epistemic", "largest"]
    for measure, row in zip(MEASURES, rows, strict=True):
        parts = scores[measure]
        numbers = [parts.total.mean(), parts.aleatoric.mean(), parts.epistemic.mean(), parts.epistemic.max()]
        assert row.split() == [measure, *(f"{each:.4g}" for each in numbers)]
    excluded = LOGITS.copy()
    excluded[0, :4, 0] = -np.inf
    first = repr(demur.score(given(excluded), [X], base=2)).splitlines()
    assert first[0].endswith("5 members, bits)") and first[1].endswith("infinite")
    assert first[2].split()[-2:] == ["inf", "4"] and first[3].split()[0] == "average"
    assert repr(demur.score(given(LOGITS[:1, :1]), [X[:1]])).startswith("Scores(1 input, 1 member, nats)")


class Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags, self.words = [], []

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)

    def handle_data(self, data) -> None:
        self.words.append(data)


def test_the_html_form_is_a_table_with_escaped_names() -> None:
    scores = demur.score(given(), [X], measures={"<script>x</script>": demur.Measure()})
    page = Tags()
    page.feed(scores.with_column("<b>mine</b>", np.arange(12))._repr_html_())
    assert set(page.tags) == {"p", "table", "thead", "tbody", "tr", "th", "td"}
    assert "<script>x</script>" in page.words and "also <b>mine</b>" in page.words
    assert page.words[0] == "Scores(12 inputs, 5 members, nats)"


# --- rounded probabilities -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["classes", "labels", "yes or no"])
def test_rounding_is_that_of_decompose_whatever_the_batches(kind) -> None:
    if kind == "classes":
        p = RNG.dirichlet(np.full(3, 0.05), size=(5, 12)).round(3)  # rows that need not quite sum to 1
        make, rounding = demur.Categorical, 5e-4
    else:
        p = np.float32(1 / (1 + np.exp(-40 * RNG.normal(size=(5, 12, 2)))))  # many are 0 or 1
        p = p if kind == "labels" else p[..., 0]
        make, rounding = (demur.MultiLabel if kind == "labels" else demur.Bernoulli), "dtype"
    rows = np.arange(12)
    posterior = Samples(lambda x: make(p[:, x]), members=5)
    scores = demur.score(posterior, [rows[:5], rows[5:]], rounding=rounding, progress=False)
    for measure in MEASURES:
        expected = demur.decompose(make(p), measure=measure, rounding=rounding)
        for part in ("total", "aleatoric", "epistemic"):
            found = getattr(scores[measure], part)
            assert np.isfinite(found).all()
            np.testing.assert_allclose(found, getattr(expected, part), rtol=1e-5)
    exact = demur.Categorical(probs=np.array([[[1.0, 0.0]], [[0.5, 0.5]]]))
    with pytest.warns(demur.RoundingWarning, match="rounding='dtype'"):
        demur.score(lambda x: exact, [np.zeros((1, 1))], progress=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "member"}, "rounding needs all members of an input at once, and order='member'"),
        ({"tolerance": 0.1}, "rounding needs all members of an input at once, and tolerance"),
        ({"rounding": "six"}, "rounding must be a half-width"),
        ({"rule": "brier"}, "rounding finds the least K, I or M that fits. Got rule 'brier'"),
    ],
)
def test_rounding_is_refused_where_members_are_not_held(options, message) -> None:
    p = np.full((40, 12, 3), 1 / 3)
    posterior = Samples(lambda x: p, kind="probs", members=40)
    with pytest.raises(ValueError, match=message):
        demur.score(posterior, [X], **{"rounding": 1e-3, "progress": False} | options)
    with pytest.raises(ValueError, match="rounding goes with probabilities"):
        demur.score(given(), [X], rounding=1e-3, progress=False)
