"""The page of scores of several tasks, of predicted numbers, and of inputs that belong together."""

import numpy as np
import pytest
from typer.testing import CliRunner

import demur
from demur.cli import app
from demur.report import cards
from demur.report.contents import gather_contents
from demur.report.page import gather_data, write_page
from demur.report.run_folder import read_run
from demur.report.tables import column_of
from demur.report.verdict import write_verdict
from demur.stores import read_columns, write_columns

RIVALS = ("Use toxic", "of the 2 methods", "better than soluble", "method", "Methods")


@pytest.fixture
def by_task(tmp_path, monkeypatch):
    """Yes or no for two tasks, of which one is much harder: scores of known and unknown inputs."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(200, 2))
    np.save("id.npy", 2 * truth + 0.8 * rng.normal(size=(6, 200, 2)))
    np.save("labels.npy", (truth + rng.normal(size=(200, 2)) * [0.3, 1.5] > 0).astype(int))
    np.save("ood.npy", 2 * rng.normal(size=(6, 150, 2)))
    for method in ("one", "two"):
        (tmp_path / "run" / method).mkdir(parents=True)
    invoke("score", "id.npy", "--logits", "--binary", "--labels", "labels.npy", "--out", "run/one/id.csv")
    invoke("score", "ood.npy", "--logits", "--binary", "--out", "run/one/ood-far.csv")
    for path in list((tmp_path / "run" / "one").glob("*.csv")):
        columns = read_columns(path)
        columns["task"] = np.where(columns["task"] == "task_0", "toxic", "soluble")
        write_columns(path, columns, force=True)
        write_columns(tmp_path / "run" / "two" / path.name, columns)
    return tmp_path / "run"


def invoke(*arguments):
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_tasks_are_no_rival_methods(by_task):
    found = gather_contents(read_run(by_task / "one"))
    said = write_verdict(found)
    assert said[0].startswith("Use ") and "toxic" not in said[0]
    assert any(
        "toxic and soluble) are different things to predict, not rival methods" in each for each in said
    )
    told = [
        *said,
        *(text for card in cards.make_cards(found) for text in (card["title"], *card["sentences"])),
    ]
    assert not any(word in each.replace("not rival methods", "") for word in RIVALS for each in told)
    figures = next(each for each in said if each.startswith("AUROC of"))
    assert "; soluble: far" in figures and figures.count("mistakes") == 2
    assert found.evaluation.across == {} and found.recommendation is not None
    assert found.recommendation.by_method is None and found.recommendation.rivals == []
    titles = [card["title"] for card in cards.make_cards(found)]
    assert titles.count("Finding the mistakes: toxic") == titles.count("Finding the mistakes: soluble") == 1
    page = gather_data(found)
    assert page["byTask"] and page["methods"] == ["toxic", "soluble"]


def test_methods_are_compared_within_one_task(by_task):
    said = write_verdict(gather_contents(read_run(by_task)))
    assert any("choose one task: demur report --task toxic" in each for each in said)
    one = read_run(by_task, task="soluble")
    assert [method.name for method in one.methods] == ["one", "two"] and not one.by_task
    assert write_verdict(gather_contents(one))[0].startswith("Use one with ")
    result = CliRunner().invoke(app, ["report", str(by_task), "--task", "salty"])
    assert result.exit_code == 2 and "expected the task salty, got toxic, soluble" in result.stderr


def test_tasks_that_no_measure_finds_are_named(by_task):
    for path in list((by_task / "one").glob("*.csv")):
        columns = read_columns(path)
        hard = columns["task"] == "soluble"
        for name in (name for name in columns if name.endswith(("total", "aleatoric", "epistemic"))):
            columns[name][hard] = 1.0
        write_columns(path, columns, force=True)
    said = write_verdict(gather_contents(read_run(by_task / "one")))
    assert any(each.startswith("For soluble, none of these measures finds") for each in said)
    assert not any(each.startswith("For toxic, none") for each in said)


def test_tables_of_tasks_say_so(by_task):
    printed = invoke("evaluate", "misclassification", by_task / "one" / "id.csv", "--markdown")
    assert printed.startswith("| Task | ")


@pytest.mark.browser
def test_the_page_speaks_of_tasks(by_task, open_page):
    path = write_page(gather_contents(read_run(by_task / "one")), by_task / "report.html")
    page = open_page(path.resolve().as_uri())
    assert page.locator("#lead").inner_text().startswith("2 tasks.")
    assert page.locator("#method-label").inner_text().startswith("Task")
    words = page.locator("#glossary").inner_text()
    assert "no rivals" in words and "A way to get several predictions" not in words
    assert "members-" not in page.locator("#inputs-why").inner_text()


@pytest.fixture
def numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    rng = np.random.default_rng(1)
    for name, spread in (("id", 0.3), ("ood-far", 2.0)):
        np.save(f"{name}.npy", spread * rng.normal(size=(5, 120, 1)))
        invoke("score", f"{name}.npy", "--points", "--out", f"run/{name}.csv")
    return tmp_path / "run"


def test_distances_are_no_divergences(numbers):
    page = gather_data(gather_contents(read_run(numbers)))
    shown = {each["column"]: each["long"] for each in page["scores"]}
    assert shown["pairwise_epistemic"] == "K: epistemic, mean distance between members"
    assert set(shown) == {"pairwise_epistemic", "pairwise_aleatoric"}  # I, M and the totals order alike
    assert not any("KL" in each["about"] or "KL" in each["long"] for each in page["scores"])
    assert page["unit"] == "the unit of the numbers" and page["points"] == [[None, None]]
    printed = invoke("evaluate", "ood", "--id", numbers / "id.csv", "--ood", numbers / "ood-far.csv")
    assert "mean distance" in printed and "KL" not in printed


@pytest.mark.parametrize("rule", ["brier", "log"])
def test_only_the_log_loss_has_kl_divergences(tmp_path, rule):
    logits = np.random.default_rng(2).normal(size=(4, 30, 3))
    scores = demur.score(lambda x: demur.Categorical(logits=logits), [np.zeros((30, 1))], rule=rule)
    scores.save(tmp_path / "id.csv")
    page = gather_data(gather_contents(read_run(tmp_path)))
    (long,) = [each["long"] for each in page["scores"] if each["column"] == "pairwise_epistemic"]
    assert long == f"K: epistemic, pairwise {'KL' if rule == 'log' else 'brier divergence'}"
    names = ["average_epistemic", "pairwise_epistemic"]
    assert ("KL" in column_of(names[1], names, unit=page["unit"]).heading) == (rule == "log")


@pytest.fixture
def clustered(tmp_path):
    """Twelve patients with ten visits each, whose scores and errors go together."""
    rng = np.random.default_rng(3)
    for name, shift in (("id", 0.0), ("ood-far", 1.0)):
        patients = np.repeat(np.arange(12), 10) + (100 if shift else 0)
        common = np.repeat(rng.normal(size=12), 10)
        scores = shift + 0.9 * common + 0.3 * rng.normal(size=120)
        columns = {"input": np.arange(120), "patient": patients, "pairwise_epistemic": scores}
        if name == "id":
            wrong = np.repeat(rng.normal(size=12), 10) + scores > 1
            columns |= {"label": np.zeros(120, int), "prediction": wrong.astype(int)}
        write_columns(tmp_path / f"{name}.csv", columns)
    return tmp_path


def test_intervals_of_the_page_are_over_whole_clusters(clustered):
    alone, together = (gather_contents(read_run(clustered, clusters=each)) for each in (None, "patient"))
    key = ("", "pairwise_epistemic")
    expected = demur.tasks.detection(
        *(read_columns(clustered / f"{name}.csv")["pairwise_epistemic"] for name in ("id", "ood-far")),
        clusters=tuple(read_columns(clustered / f"{name}.csv")["patient"] for name in ("id", "ood-far")),
    )
    found = together.evaluation.result(key, "ood-far")
    assert found.auroc == expected.auroc

    def width(estimate):
        return estimate.high - estimate.low

    for task in ("ood-far", "errors"):
        wide, narrow = (each.evaluation.result(key, task).auroc for each in (together, alone))
        assert width(wide) > 1.3 * width(narrow)
    assert width(together.evaluation.accuracy[""]) > 1.3 * width(alone.evaluation.accuracy[""])
    assert width(together.evaluation.kept[key].auc) > 1.3 * width(alone.evaluation.kept[key].auc)
    pages = [gather_data(each) for each in (together, alone)]
    assert [page["clusters"] for page in pages] == ["patient", ""]
    sliders = [page["results"][0][0]["slider"] for page in pages]
    low, high = (np.array(slider["share"]) for slider in sliders)
    assert (low[1] - low[0]).mean() > 1.3 * (high[1] - high[0]).mean()
    assert any("whole clusters of inputs (column patient)" in each for each in pages[0]["headline"])
    assert together.run.scores == ["pairwise_epistemic"]  # the clusters are no score


def test_clusters_on_the_command_line(clustered):
    invoke("report", clustered, "--clusters", "patient")
    assert "demur evaluate defer fit" in (clustered / "report.html").read_text()
    scores, policy = clustered / "id.csv", clustered / "policy.json"
    invoke("evaluate", "defer", "fit", scores, "--clusters", "patient", "--coverage", 0.8, "--out", policy)
    assert demur.Deferral.load(policy).clusters == 12
    wide = invoke("evaluate", "defer", "apply", policy, scores, "--clusters", "patient")
    assert wide != invoke("evaluate", "defer", "apply", policy, scores)
    result = CliRunner().invoke(app, ["report", str(clustered), "--clusters", "doctor"])
    assert result.exit_code == 2 and "expected a column doctor" in result.stderr
