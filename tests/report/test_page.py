"""The data of the report: the library's figures, whatever the folder has, and safe to put in a page."""

import base64
import io
import json
import re

import numpy as np
import pytest
from scipy.stats import spearmanr

import demur
from demur.report import cards
from demur.report.contents import gather_contents
from demur.report.page import build_page, gather_data
from demur.report.page_json import embed_json
from demur.report.run_folder import read_run
from demur.report.score_names import name_of
from demur.report.tables import kinds_of, table_of_scores
from demur.report.thumbnails import encode_png, make_sprite, shrink
from demur.report.verdict import write_accuracies, write_infinities, write_verdict
from demur.stores import StoreError, write_columns


@pytest.fixture(scope="module")
def found(tmp_path_factory, write_run):
    sets = ("id", "ood-far", "adversarial-pgd")
    folder = write_run(tmp_path_factory.mktemp("run"), methods=("one", "two"), sets=sets, images=(8, 6))
    return gather_contents(read_run(folder))


def test_figures_are_those_of_the_tasks(found):
    content = gather_data(found)
    for m, method in enumerate(found.run.methods):
        known = method.sets["id"]
        for s, score in enumerate(found.scores):
            own = content["results"][m][s]
            values = known.scores[score]
            for place, name in enumerate(found.run.sets[1:], start=1):
                expected = demur.tasks.detection(values, method.sets[name].scores[score])
                shown = own["detection"][place]
                for figure in ("auroc", "aupr", "fpr95"):
                    estimate = getattr(expected, figure)
                    ends = [estimate.value, estimate.low, estimate.high]
                    assert shown[figure] == pytest.approx(ends, rel=1e-5), (score, name, figure)
                curve = zip(*expected.curve[:2], strict=True)
                points = {(float(f"{x:.6g}"), float(f"{y:.6g}")) for x, y in curve}
                assert set(zip(*shown["roc"], strict=True)) <= points
            assert own["errors"]["auroc"][0] == pytest.approx(
                float(demur.tasks.misclassification(values, known.correct).auroc), rel=1e-5
            )
            expected = demur.tasks.selective(values, known.correct)
            assert own["kept"]["auc"][0] == pytest.approx(float(expected.auc), rel=1e-5)
            kept = np.array(own["kept"]["at"])
            np.testing.assert_allclose(own["kept"]["accuracy"], expected.curve.accuracy[kept - 1], rtol=1e-5)


def test_the_slider_is_what_a_policy_reports(found):
    content = gather_data(found)
    method = found.run.methods[1]
    known = method.sets["id"]
    for s, score in enumerate(found.scores):
        slider = content["results"][1][s]["slider"]
        ranked = np.sort(known.scores[score])
        for at in range(0, len(slider["threshold"]), 7):
            kept = slider["sets"][0]["kept"][at]
            policy = demur.Deferral.fit(
                known.scores[score], known.correct, coverage=(kept - 0.5) / len(ranked)
            )
            for place, name in enumerate(found.run.sets):
                own = method.sets[name]
                expected = policy.report(own.scores[score], own.correct)
                assert slider["sets"][place]["kept"][at] == expected.kept
                if name.startswith("ood"):
                    assert slider["sets"][place]["right"] is None
                elif expected.accuracy is not None:
                    right = slider["sets"][place]["right"][at]
                    assert right / expected.kept == expected.accuracy.value
                if name == "id":
                    for ends, estimate in (("share", expected.coverage), ("accuracy", expected.accuracy)):
                        shown = [slider[ends][k][at] for k in (0, 1)]
                        assert shown == pytest.approx([estimate.low, estimate.high], rel=1e-5)


def test_promises_are_those_of_the_library(found):
    known = found.run.methods[0].sets["id"]
    content = gather_data(found)
    held = 0
    for s, score in enumerate(found.scores):
        slider = content["results"][0][s]["slider"]
        for promise in slider["promises"]:
            if promise["at"] is None:
                with pytest.raises(demur.NoGuarantee, match=re.escape(promise["text"])):
                    demur.Deferral.fit(known.scores[score], known.correct, accuracy=promise["target"])
                continue
            held += 1
            policy = demur.Deferral.fit(known.scores[score], known.correct, accuracy=promise["target"])
            assert slider["sets"][0]["kept"][promise["at"]] == policy.thresholds[""].kept
            assert f"at least {100 * promise['target']:g} %" in promise["text"]
            value = policy.thresholds[""].value
            if value == np.inf:
                assert promise["text"].startswith("Nothing is deferred:")
                continue
            shown = re.match(r"Scores above (\S+) are deferred:", promise["text"])
            assert shown is not None and shown[1] == slider["written"][promise["at"]]
            assert float(shown[1]) <= value
            assert (known.scores[score] <= float(shown[1])).sum() == policy.thresholds[""].kept
    assert held > 0


def test_rows_are_the_first_by_each_score_with_the_classes_that_drive_them(found):
    content = gather_data(found, top=5)
    method = found.run.methods[0]
    for place, name in enumerate(found.run.sets):
        rows = content["rows"][0][place]
        inputs = {row["input"] for row in rows}
        for score in found.scores:
            assert set(np.argsort(-method.sets[name].scores[score], kind="stable")[:5].tolist()) <= inputs
        parts = demur.attribute(log_probs=np.asarray(method.members[name]))
        for row in rows:
            own = parts[row["input"]]
            assert [name for name, _ in row["drivers"]] == [str(c) for c in np.argsort(-own)[:3]]
            assert row["drivers"][0][1] == pytest.approx(own.max(), rel=5e-3)
            average = np.exp(method.members[name][:, row["input"]]).mean(axis=0)
            assert [name for name, _ in row["likely"]] == [str(c) for c in np.argsort(-average)[:3]]
            assert row["likely"][0][1] == pytest.approx(average.max(), rel=5e-3)
        assert ("label" in rows[0]) == (not name.startswith("ood"))
        sheet = content["pictures"][place]
        assert {row["picture"] for row in rows} <= set(range(sheet["count"]))


def marks_of(content):
    """By method, score and task, as places: the mark that the table shows."""
    return {
        (m, s, task): figures["mark"]
        for m, scores in enumerate(content["results"])
        for s, own in enumerate(scores)
        for task, figures in [*enumerate(own["detection"]), ("errors", own["errors"])]
        if figures
    }


def test_marks_are_those_of_the_paired_test_within_a_method(found):
    shown = marks_of(gather_data(found))
    for m, method in enumerate(found.run.methods):
        known = method.sets["id"]
        for place, name in [*enumerate(found.run.sets), ("errors", "")]:
            if name == "id":
                continue
            if name:
                own = {s: (known.scores[s], method.sets[name].scores[s]) for s in found.scores}
                expected = demur.tasks.contest({"": own}, "detection")
            else:
                own = {s: known.scores[s] for s in found.scores}
                right = {"": known.correct}
                expected = demur.tasks.contest({"": own}, "misclassification", correct=right)
            marks = {s: shown[m, k, place] for k, s in enumerate(found.scores)}
            best = expected.best("auroc", "")
            if expected.standings["auroc"][""][best].chance != "above":
                assert set(marks.values()) == {""}  # at chance there is nothing to win
                continue
            assert marks[best] == "best"
            # The page corrects for the other method's measures too: it may have more ties, never fewer.
            standings = expected.standings["auroc"][""]
            ties = {s for s, standing in standings.items() if standing.wins}
            assert {s for s, mark in marks.items() if mark} >= ties
            found_here = found.evaluation.contests[name or "errors"]
            for s in set(found.scores) - {best}:
                tied = found_here.difference("auroc", method.name, best, s).adjusted > 0.05
                assert (marks[s] != "") == (tied and standings[s].chance == "above")


def test_the_page_and_the_tables_of_a_run_mark_the_same_ties(found):
    shown = marks_of(gather_data(found))
    places = {**{name: place for place, name in enumerate(found.run.sets)}, "errors": "errors"}
    differ = 0
    for task, contest in found.evaluation.contests.items():
        table = table_of_scores(contest)
        for row in table.rows:
            m = found.evaluation.methods.index(row.name)
            marks = {
                column.name: "" if not cell.wins else "best" if cell.best else "tie"
                for column, cell in zip(table.columns, row.cells, strict=True)
            }
            assert marks == {s: shown[m, k, places[task]] for k, s in enumerate(found.scores)}
            differ += "" in marks.values()
        # The paper's tables compare within parts, by the same tests.
        for row in table_of_scores(contest.regroup(kinds_of(found.scores))).rows:
            standings = dict(zip(found.scores, row.cells, strict=True))
            for group in kinds_of(found.scores):
                best = next((s for s in group if standings[s].best), None)
                for s in [s for s in group if not standings[s].best and best is not None]:
                    adjusted = contest.difference("auroc", row.name, best, s).adjusted
                    assert standings[s].tied == (adjusted > 0.05)
    assert differ > 0  # some measures are told from the best, so the marks say something


def test_the_verdict_counts_the_marks_of_the_table(found):
    content = gather_data(found)
    shown, tally = marks_of(content), content["tally"]
    found_something = {
        (m, task) for (m, s, task) in shown for own in [content["results"][m][s]]
        if (own["errors"] if task == "errors" else own["detection"][task])["auroc"][1] > 0.5
    }  # fmt: skip
    assert tally["number"] == len(found_something) == 4  # of six: attacks are not told from other inputs
    counts = [sum(mark != "" for (_, s, _), mark in shown.items() if s == k) for k in range(6)]
    assert tally["good"] == counts
    assert counts[found.scores.index(found.recommendation.key[1])] == max(counts)


def test_equal_ones_are_all_best(tmp_path):
    one = np.arange(52.0)[::-1]
    wrong = np.isin(np.arange(52), [1, 2, 3, 5, 7, 9, 11, 13, 20])
    two = one[[*range(3), 4, 3, *range(5, 19), 20, 19, *range(21, 52)]]  # one mistake higher, another lower
    scores = {"one": one, "two": two, "three": np.where(wrong, -one, one)}
    difference = demur.tasks.compare(one, two, "misclassification", correct=~wrong).difference.value
    assert difference == 0  # pairs that are in order are counted, so nothing is rounded
    write_columns(tmp_path / "id.csv", {"label": 0 * wrong, "prediction": wrong.astype(int), **scores})
    content = gather_data(gather_contents(read_run(tmp_path)))
    assert list(marks_of(content).values()) == ["best", "best", ""]
    assert content["tally"]["good"] == [1, 1, 0] and content["tally"]["loss"][:2] == ["0 points"] * 2
    assert "; just as often: two." in content["headline"][1]
    lowest = content["tally"]["loss"][2]
    assert content["cards"][0]["sentences"][-1] == (
        f"The highest of the 3 measures, but not shown to be better than two. The lowest is {lowest} below "
        "the best."
    )


NASTY = "</script><script>alert(1)</script><!-- {{data}} & \u2028\u2029 \" ' \\u003c \ud800"


def test_data_cannot_leave_their_element():
    text = embed_json({"a": NASTY})
    assert not set(text) & set("<>&\u2028\u2029") and json.loads(text)["a"] == NASTY
    text.encode()


def test_names_of_files_are_escaped(tmp_path, write_run):
    facts = {"title": NASTY, "command": NASTY, "versions": {NASTY: NASTY}, "classes": [NASTY] * 4}
    sets = ("id", "ood-<script>alert(2)<")
    folder = write_run(
        tmp_path, methods=("<b>m",), sets=sets, facts=facts, number=20, names=lambda i: f"<i>{i}"
    )
    text = build_page(gather_contents(read_run(folder)))
    text.encode()
    assert (
        text.count("<script") == 2
        and text.count("</script>") == 2
        and "<b>m" not in text
        and "<i>" not in text
    )
    content = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    assert (
        content["title"] == NASTY
        and content["methods"] == ["<b>m"]
        and content["sets"][1]["name"] == "<script>alert(2)<"
    )


def shown(folder, write_run, **options):
    found = gather_contents(read_run(write_run(folder, **options)))
    content = gather_data(found)
    json.dumps(content, allow_nan=False)
    return found, content


def test_without_labels(tmp_path, write_run):
    _, content = shown(tmp_path, write_run, labels=False)
    own = content["results"][0][0]
    assert own["errors"] is None and own["kept"] is None and "accuracy" not in own["slider"]
    assert len(content["cards"]) == 1 and own["detection"][1]["auroc"][0] > 0.5


def test_only_known_inputs_with_labels(tmp_path, write_run):
    _, content = shown(tmp_path, write_run, sets=("id",))
    assert [card["title"] for card in content["cards"]] == ["Finding the mistakes", "Asking a person"]
    assert content["results"][0][0]["detection"] == [None]


def test_predicted_numbers_are_not_said_to_lack_labels(tmp_path):
    header = "input,label,prediction,pairwise_epistemic"
    rows = [f"{k},{k}.0,{k}.25,{k}.5" for k in range(30)]
    (tmp_path / "id.csv").write_text("\n".join([header, *rows]) + "\n")
    said = " ".join(write_verdict(gather_contents(read_run(tmp_path))))
    assert "The predictions are numbers" in said and "--tolerance" in said
    assert "without labels" not in said and "true classes" not in said


@pytest.mark.parametrize("sets", [("id",), ("ood-far",), ("ood-a", "ood-b")])
def test_nothing_to_measure_against(tmp_path, write_run, sets):
    found, content = shown(tmp_path, write_run, sets=sets, labels=False)
    said = " ".join(content["headline"])
    assert content["cards"] == [] and "nothing to measure" in said and found.evaluation.across == {}
    assert "a column label" in said and "demur score --labels" in said  # what to do about it
    assert ("ood-NAME.csv" in said) == (sets == ("id",)) and ("as id.csv" in said) == (sets != ("id",))
    assert content["results"][0][0]["density"]["counts"]


def test_a_score_of_the_user_s_own_and_few_inputs(tmp_path):
    write_columns(tmp_path / "id.csv", {"mine": np.array([0.5])})
    write_columns(tmp_path / "ood.csv", {"mine": np.array([0.25])})
    found = gather_contents(read_run(tmp_path))
    assert found.scores == ["mine"] and "The measure mine does not find" in write_verdict(found)[0]
    (card,) = gather_data(found)["cards"]
    assert any("No better than chance" in s for s in card["sentences"])
    assert any(
        "Only 1 out-of-distribution input to judge by: with so few, even a perfect ranking" in s
        for s in card["sentences"]
    )


@pytest.mark.parametrize("right", [True, False])
def test_no_mistakes_or_nothing_else(tmp_path, right):
    label = np.zeros(50, int)
    columns = {"label": label, "prediction": label + (not right), "mine": np.linspace(0, 1, 50)}
    write_columns(tmp_path / "id.csv", columns)
    content = gather_data(gather_contents(read_run(tmp_path)))
    (card,) = content["cards"]
    assert card["title"] == "Accuracy" and ("No prediction is wrong" in card["caption"]) == right
    assert content["headline"][0].startswith(
        f"All predictions are {'right' if right else 'wrong'}: there are no mistakes"
    )
    assert content["results"][0][0]["errors"] is None


def test_a_single_member_is_said_to_rank_nothing_by_disagreement(tmp_path):
    rng = np.random.default_rng(0)
    total = rng.uniform(size=200)
    label = (rng.uniform(size=200) < total).astype(int)
    columns = {
        "label": label,
        "prediction": 0 * label,
        "pairwise_total": total,
        "pairwise_epistemic": 0 * total,
    }
    said = "Epistemic scores are 0 for all inputs, as those of a single member are: they rank nothing."
    for epistemic, single in ((0 * total, True), (total, False)):
        write_columns(tmp_path / "id.csv", columns | {"pairwise_epistemic": epistemic}, force=True)
        assert (said in write_verdict(gather_contents(read_run(tmp_path)))) == single


@pytest.mark.parametrize("column", [np.array(["True", "False"] * 100), np.array([1.0, 0.0] * 100)])
def test_a_column_correct_as_pandas_writes_it(tmp_path, column):
    scores = np.random.default_rng(0).uniform(size=200)
    write_columns(tmp_path / "id.csv", {"correct": column, "mine": scores})
    found = gather_contents(read_run(tmp_path))
    assert list(found.scores) == ["mine"]
    assert found.evaluation.accuracy[""].value == 0.5
    column = column.copy()
    column[3] = "" if column.dtype.kind == "U" else np.nan
    write_columns(tmp_path / "id.csv", {"correct": column, "mine": scores}, force=True)
    with pytest.raises(
        StoreError, match="expected true or false in correct for each input, got none at input 3"
    ):
        read_run(tmp_path)


def test_infinite_scores_and_ties(tmp_path):
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 80)
    mine = np.round(rng.uniform(size=80), 1)
    mine[:10] = np.inf
    write_columns(tmp_path / "id.csv", {"label": label, "prediction": np.zeros(80, int), "mine": mine})
    write_columns(tmp_path / "ood-a.csv", {"mine": np.full(30, np.inf)})
    content = gather_data(gather_contents(read_run(tmp_path)))
    json.dumps(content, allow_nan=False)
    slider = content["results"][0][0]["slider"]
    assert slider["threshold"][-1] == "inf" and slider["sets"][0]["kept"][-2:] == [70, 80]
    assert slider["sets"][1]["kept"][-2:] == [0, 30]
    assert content["results"][0][0]["density"]["infinite"][:2] == [10, 30]


def test_inputs_with_an_infinite_k_are_counted(tmp_path):
    rng = np.random.default_rng(0)
    k = rng.uniform(size=80)
    k[:3] = np.inf
    write_columns(tmp_path / "id.csv", {"pairwise_epistemic": k, "pairwise_total": k + 1})
    write_columns(tmp_path / "ood-a.csv", {"pairwise_epistemic": k[3:], "pairwise_total": k[3:]})
    found = gather_contents(read_run(tmp_path))
    said = gather_data(found)["accuracies"]
    assert said == write_infinities(found)
    assert said.startswith("Infinite: K for 3 of 80 in-distribution inputs. ") and "--rounding" in said
    write_columns(tmp_path / "id.csv", {"pairwise_epistemic": k[3:], "pairwise_total": k[3:]}, force=True)
    assert gather_data(gather_contents(read_run(tmp_path)))["accuracies"] == ""


def test_ties_are_called_so(tmp_path):
    rng = np.random.default_rng(0)
    for name, shift in (("id", 0.0), ("ood-a", 1.0)):
        mine = rng.normal(shift, 1, 200)
        write_columns(tmp_path / f"{name}.csv", {"mine": mine, "twice": 2 * mine})
    found = gather_contents(read_run(tmp_path))
    first, second, third, *_ = write_verdict(found)
    assert first == "Use mine." and third == "The measure mine is always the highest."
    assert second == (
        "None of the 2 measures is shown to be better: each is the best, or statistically tied with the "
        "best, in this comparison."
    )
    (card,) = cards.make_cards(found)
    assert card["sentences"][0].startswith(
        "The highest of the 2 measures, but not shown to be better than the other."
    )


def test_a_winner_is_called_so(tmp_path):
    rng = np.random.default_rng(0)
    for name, shift in (("id", 0.0), ("ood-a", 2.0)):
        columns = {"good": rng.normal(shift, 1, 400), "none": rng.normal(size=400)}
        write_columns(tmp_path / f"{name}.csv", columns)
    found = gather_contents(read_run(tmp_path))
    first, second, third, fourth = write_verdict(found)
    assert first == "Use good."
    assert second == (
        "The measure good is the best, or statistically tied with the best, in this comparison; no other "
        "measure is."
    )
    area = found.evaluation.result(("", "good"), "ood-a").auroc
    assert third == (
        f"AUROC of this choice (50 % is a coin toss): a {100 * area.value:.1f} % "
        f"({100 * area.low:.1f} to {100 * area.high:.1f}). The ranges are 95 % confidence "
        "intervals over draws of inputs; another training run may differ by more."
    )
    gap = area.value - found.evaluation.result(("", "none"), "ood-a").auroc.value
    assert fourth == f"Measures differ by up to {100 * gap:.2g} points."
    assert cards.make_cards(found)[0]["sentences"] == [
        f"The best of the 2 measures. The lowest is {100 * gap:.2g} points below the best."
    ]


def test_no_verdict_is_the_same_for_all(tmp_path):
    rng = np.random.default_rng(0)
    columns = {k: rng.normal(size=300) for k in ("a", "b", "c")}
    write_columns(tmp_path / "id.csv", columns)
    for name, good in (("ood-1", "a"), ("ood-2", "b")):
        own = {k: rng.normal(3.0 if k == good else 0.0, 1, 300) for k in columns}
        write_columns(tmp_path / f"{name}.csv", own)
    found = gather_contents(read_run(tmp_path))
    areas = {
        k: [float(found.evaluation.result(("", k), name).auroc) for name in ("ood-1", "ood-2")] for k in "ab"
    }
    losses = {
        k: max(max(best) - a for a, best in zip(areas[k], zip(*areas.values(), strict=True), strict=True))
        for k in areas
    }
    first, second = sorted(losses, key=losses.get)
    assert found.recommendation.key[1] == first
    assert write_verdict(found)[1] == (
        f"The measure {first} is the best, or statistically tied with the best, in 1 of 2 comparisons (one "
        f"for each task) and never more than {100 * losses[first]:.2g} points below it; just as often: "
        f"{second} (up to {100 * losses[second]:.2g} points below it)."
    )


def test_measures_that_each_win_once_are_not_called_tied(tmp_path):
    rng = np.random.default_rng(0)
    write_columns(tmp_path / "id.csv", {k: rng.normal(size=300) for k in "ab"})
    for name, good in (("ood-1", "a"), ("ood-2", "b")):
        write_columns(tmp_path / f"{name}.csv", {k: rng.normal(3.0 * (k == good), 1, 300) for k in "ab"})
    found = gather_contents(read_run(tmp_path))
    assert found.recommendation.good == {"a": 1, "b": 1}
    assert "in 1 of 2 comparisons" in write_verdict(found)[1] and "None of" not in write_verdict(found)[1]


def test_a_method_without_mistakes_is_the_more_accurate_one(tmp_path):
    for method, wrong in (("a", 5), ("b", 0)):
        (tmp_path / method).mkdir()
        prediction = (np.arange(100) < wrong).astype(int)
        columns = {"x": np.arange(100.0), "y": -np.arange(100.0)}
        write_columns(
            tmp_path / method / "id.csv", {"label": np.zeros(100, int), "prediction": prediction, **columns}
        )
    found = gather_contents(read_run(tmp_path))
    assert found.recommendation.key[0] == "a"  # b has nothing to find
    assert "No method that makes mistakes is more accurate than a." in write_verdict(found)


def test_a_measure_that_keeps_closer_to_the_best_is_named(tmp_path):
    # "often" is the best on two sets and far behind on a third; "close" is a little behind on each.
    rng = np.random.default_rng(0)
    write_columns(tmp_path / "id.csv", {k: rng.normal(size=2000) for k in ("often", "close")})
    for name, shifts in (("ood-1", (3.0, 2.5)), ("ood-2", (3.0, 2.5)), ("ood-3", (1.0, 2.5))):
        own = {k: rng.normal(s, 1, 2000) for k, s in zip(("often", "close"), shifts, strict=True)}
        write_columns(tmp_path / f"{name}.csv", own)
    found = gather_contents(read_run(tmp_path))
    choice = found.recommendation
    assert choice.key[1] == "often" and choice.good == {"often": 2, "close": 1}
    assert write_verdict(found)[2] == (
        "The measure that stays closest to the best is close (best or tied in 1): never more than "
        f"{100 * choice.losses['close']:.2g} points below it."
    )


def test_the_verdict_of_several_methods_names_one_score(found):
    content = write_verdict(found)
    tasks = [*found.run.sets[1:], "errors"]
    contests = found.evaluation.contests
    assert {task: set(each.results) for task, each in contests.items()} == {
        task: {m.name for m in found.run.methods} for task in tasks
    }
    choice = found.recommendation
    method, score = choice.key
    standings = [each for task in tasks for each in contests[task].standings["auroc"].values()]
    good = {s: sum(each[s].wins for each in standings) for s in found.scores}
    assert good == choice.good and good[score] == max(good.values()) and choice.number == 4
    short = name_of(score).short
    assert content[0] == f"Use {method} with {short} (column {score})."
    assert "(one for each method and task)" in content[1]
    (by,) = [sentence for sentence in content if sentence.startswith(f"By {short}, {method} finds out-of")]
    areas = {
        m.name: float(found.evaluation.result((m.name, score), "ood-far").auroc) for m in found.run.methods
    }
    assert areas[method] == max(areas.values())
    pairs = [(m.sets["id"].scores[score], m.sets["ood-far"].scores[score]) for m in found.run.methods]
    told = demur.tasks.compare(*pairs, "detection").p_value < 0.05
    assert ("but is not shown to be better than" in by) == (not told) == bool(choice.rivals)
    (worth,) = [sentence for sentence in content if sentence.startswith("AUROC of this choice")]
    assert "far " in worth and "pgd " in worth and "mistakes " in worth
    (matter,) = [
        sentence
        for sentence in content
        if sentence.startswith("On out-of-distribution inputs the method matters")
    ]
    assert f"methods differ by up to {100 * np.ptp(list(areas.values())):.2g} points (by {short})" in matter
    own = [
        np.ptp([float(found.evaluation.result((m.name, s), "ood-far").auroc) for s in found.scores])
        for m in found.run.methods
    ]
    assert matter.endswith(f"measures of one method by up to {100 * max(own):.2g} points.")
    wrong = [found.evaluation.result((m.name, score), "errors").positives for m in found.run.methods]
    few = f"Only {min(wrong)} to {max(wrong)} mistakes were made by each method"
    assert min(wrong) < 30 and content[-1].startswith(few)


def attacked_run(folder, *, unknown):
    """By the same score "a" finds out-of-distribution inputs, "b" attacked ones, which fool it more often."""
    for method, far, near, fooled in (("a", 3.0, 0.5, 10), ("b", 2.0, 3.0, 60)):
        (folder / method).mkdir()
        rng = np.random.default_rng(0)
        sets = [("id", 0.0, 2), ("adversarial-x", near, fooled)]
        for name, shift, wrong in [*sets, ("ood-far", far, 0)] if unknown else sets:
            base = rng.normal(shift, 1, 100)
            columns = {
                "pairwise_aleatoric": base, "pairwise_epistemic": base + 2 * rng.normal(size=100),
                "label": np.zeros(100, int), "prediction": (np.arange(100) < wrong).astype(int),
            }  # fmt: skip
            write_columns(folder / method / f"{name}.npz", columns)
    return gather_contents(read_run(folder))


def test_methods_are_compared_on_unknown_inputs_only(tmp_path):
    found = attacked_run(tmp_path, unknown=True)
    score = "pairwise_aleatoric"
    areas = {
        (method, column): {
            name: float(found.evaluation.result((method, column), name).auroc)
            for name in ("ood-far", "adversarial-x")
        }
        for method in "ab"
        for column in found.scores
    }
    assert areas["b", score]["adversarial-x"] - areas["a", score]["adversarial-x"] > 0.3  # b is fooled more
    assert found.recommendation.key == ("a", score)
    said = " ".join(write_verdict(found))
    assert said.startswith("Use a with aleatoric (column pairwise_aleatoric). ")
    assert "By aleatoric, a finds out-of-distribution inputs best of the 2 methods. " in said
    assert "with a aleatoric and K rise together" in said
    gap = areas["a", score]["ood-far"] - areas["b", score]["ood-far"]
    assert f"methods differ by up to {100 * gap:.2g} points (by aleatoric)" in said
    assert write_accuracies(found) == (
        "Accuracy on in-distribution inputs and x: a 98.0 % and 90.0 %; b 98.0 % and 40.0 %."
    )
    assert set(found.evaluation.across) == {"ood-far"}
    unknown, attacked, *_ = cards.make_cards(found)
    assert (
        attacked["caption"].endswith(" by aleatoric of a.")
        and attacked["sentences"][-1] == cards._NO_COMPARISON
    )
    assert attacked["bounds"][0] == areas["a", score]["adversarial-x"]
    assert not any(" of b" in sentence for sentence in attacked["sentences"])
    assert unknown["sentences"][-1] == "No measure of another method is higher."


def test_without_unknown_inputs_methods_are_not_compared(tmp_path):
    found = attacked_run(tmp_path, unknown=False)
    said = write_verdict(found)
    assert found.recommendation.by_method is None and not any(
        "methods differ" in sentence for sentence in said
    )
    assert "No method is more accurate than a." in said  # as accurate as b, and the first
    assert any(s.startswith("Measures of one method differ by up to ") for s in said)


def test_the_best_of_another_method_is_named(tmp_path):
    # "x" is the measure of the verdict; "y" is better with the method "b" alone.
    for method, shifts in (("a", (2.0, 0.5)), ("c", (1.9, 0.4)), ("b", (1.0, 3.0))):
        (tmp_path / method).mkdir()
        for name, at in (("id", (0.0, 0.0)), ("ood-far", shifts)):
            rng = np.random.default_rng(len(name))
            columns = {k: rng.normal(shift, 1, 400) for k, shift in zip("xy", at, strict=True)}
            write_columns(tmp_path / method / f"{name}.npz", columns)
    found = gather_contents(read_run(tmp_path))
    assert found.recommendation.key == ("a", "x")
    (card,) = cards.make_cards(found)
    across = found.evaluation.across["ood-far"]
    difference = across.difference("auroc", "", ("b", "y"), ("a", "x")).difference
    top = 100 * float(found.evaluation.result(("b", "y"), "ood-far").auroc)
    assert card["sentences"][-1] == (
        f"The highest of all methods is y of b, {top:.1f} %: better by {100 * difference.value:.2g} points "
        f"({100 * difference.low:.2g} to {100 * difference.high:.2g})."
    )


def test_one_measure_of_several_methods(tmp_path):
    for method, shift in (("a", 1.0), ("b", 2.0)):
        (tmp_path / method).mkdir()
        rng = np.random.default_rng(0)
        for name, at in (("id", 0.0), ("ood-far", shift)):
            write_columns(tmp_path / method / f"{name}.csv", {"mine": rng.normal(at, 1, 300)})
    found = gather_contents(read_run(tmp_path))
    first, second, *rest = write_verdict(found)
    assert first == "Use b with mine."
    assert second == "By mine, b finds out-of-distribution inputs best of the 2 methods."
    assert (
        rest[-1].startswith("On out-of-distribution inputs methods differ by up to")
        and gather_data(found)["tally"] is None
    )


def test_accuracy_is_said_where_labels_tell(tmp_path, write_run):
    found, content = shown(tmp_path / "one", write_run)
    share = found.run.methods[0].sets["id"].correct.mean()
    assert content["accuracies"] == f"Accuracy on in-distribution inputs: {100 * share:.1f} %."
    assert shown(tmp_path / "two", write_run, labels=False)[1]["accuracies"] == ""


@pytest.mark.parametrize("together", [True, False])
def test_that_the_aleatoric_part_finds_unknown_inputs_is_explained(tmp_path, together):
    rng = np.random.default_rng(0)
    both = {"pairwise_aleatoric": [], "pairwise_epistemic": []}
    for name, shift in (("id", 0.0), ("ood-a", 3.0)):
        aleatoric = rng.normal(shift, 1, 300)
        epistemic = aleatoric + rng.normal(0, 1, 300) if together else rng.normal(size=300)
        for column, values in zip(both, (aleatoric, epistemic), strict=True):
            both[column].append(values)
        columns = {"pairwise_aleatoric": aleatoric, "pairwise_epistemic": epistemic}
        write_columns(tmp_path / f"{name}.csv", columns)
    found = gather_contents(read_run(tmp_path))
    assert found.recommendation.key[1] == "pairwise_aleatoric"
    (said,) = [sentence for sentence in write_verdict(found) if "no mistake" in sentence]
    expected = spearmanr(*(np.concatenate(parts) for parts in both.values())).statistic
    assert f"(rank correlation {expected:.2f})" in said
    assert ("here aleatoric and K rise together" in said) == together == (expected >= 0.5)


def test_a_verdict_on_another_measure_needs_no_excuse(tmp_path):
    for name, shift in (("id", 0.0), ("ood-a", 3.0)):
        rng = np.random.default_rng(1)
        columns = {
            "pairwise_epistemic": rng.normal(shift, 1, 300),
            "pairwise_aleatoric": rng.normal(size=300),
        }
        write_columns(tmp_path / f"{name}.csv", columns)
    assert not any(
        "no mistake" in sentence for sentence in write_verdict(gather_contents(read_run(tmp_path)))
    )


def test_cards_are_about_the_choice_of_the_verdict(found):
    method, score = found.recommendation.key
    all_cards = cards.make_cards(found)
    by = f"{name_of(score).short} of {method}"
    assert len(all_cards) == 4 and all(card["caption"].endswith(f"by {by}.") for card in all_cards)
    for card, task in zip(all_cards, ("ood-far", "adversarial-pgd"), strict=False):
        assert card["bounds"][0] == float(found.evaluation.result((method, score), task).auroc)
    assert all_cards[2]["bounds"][0] == float(found.evaluation.result((method, score), "errors").auroc)
    assert all_cards[-1]["sentences"][-1] == (
        "Measured on these inputs. What can be promised for new ones is below, under When to ask a person."
    )


@pytest.mark.parametrize("method", ["one", "two"])
def test_a_card_says_how_the_measure_stands_among_those_of_its_method(found, method):
    for score in found.scores:
        for task in (*found.run.sets[1:], "errors"):
            contest = found.evaluation.contests[task]
            (said,) = cards._compare_within(found, (method, score), task)
            top = contest.best("auroc", method)
            best = name_of(top).short
            below = {s: contest.difference("auroc", method, top, s) for s in found.scores if s != top}
            ties = [s for s, each in below.items() if each.adjusted > 0.05]
            if contest.standings["auroc"][method][top].chance != "above":
                assert said.startswith(
                    f"None of {method}'s 6 measures is shown to be better than a coin toss"
                )
                continue
            if top == score:
                assert said.startswith(f"The {'highest' if ties else 'best'} of {method}'s 6 measures")
                assert ("not shown to be better" in said) == bool(ties)
            elif score in ties:
                assert said.startswith(
                    f"Not shown to be worse than the best of {method}'s 6 measures, {best} ("
                )
            else:
                gap = 100 * below[score].difference.value
                assert said.startswith(f"Below the best of {method}'s 6 measures, {best}, by {gap:.2g} point")
            furthest = 100 * max(each.difference.value for each in below.values())
            assert said.endswith(f"The lowest is {furthest:.2g} points below the best.")


def test_sets_and_methods_are_called_as_the_run_says(tmp_path, write_run):
    facts = {
        "sets": {"ood-far": "eights and nines"}, "methods": {"one": "ten networks"}, "command": "make it",
        "training": "on 400 images", "sources": {"ood-far": "from elsewhere"},
    }  # fmt: skip
    _, content = shown(tmp_path, write_run, methods=("one", "two"), facts=facts, number=40)
    assert [each["name"] for each in content["sets"]] == ["in-distribution inputs", "eights and nines"]
    assert content["cards"][0]["title"] == "Telling eights and nines from in-distribution inputs"
    assert "eights and nines" in " ".join(content["headline"])
    lines = [["Command", "make it"], ["Training", "on 400 images"], ["one", "ten networks"]]
    assert content["provenance"][:3] == lines and "two" not in dict(content["provenance"])
    assert content["provenance"][3] == ["eights and nines", "from elsewhere"]


def test_totals_that_are_one_measure_are_shown_once(found):
    assert "reverse_total" in found.run.scores and "reverse_total" not in found.scores
    assert not {"average_aleatoric", "reverse_aleatoric"} & set(found.scores)


@pytest.mark.parametrize(("label", "told"), [(4, True), (3, False), (7, True)])
def test_an_unknown_input_with_a_label_of_no_known_class_is_never_right(tmp_path, write_run, label, told):
    write_run(tmp_path, number=40)
    columns = dict(np.load(tmp_path / "ood-far.npz"))
    columns["label"] = np.full(40, label)
    write_columns(tmp_path / "ood-far.npz", columns, force=True)
    content = gather_data(gather_contents(read_run(tmp_path)))
    slider = content["results"][0][0]["slider"]
    right = slider["sets"][1]["right"]
    assert right == ([0] * len(slider["threshold"]) if told else None)
    assert {row.get("label") for row in content["rows"][0][1]} == {str(label) if told else None}
    assert {row.get("right") for row in content["rows"][0][1]} == {False if told else None}  # marked as wrong


def test_mistakes_are_listed(found):
    content = gather_data(found, top=5)
    for m, method in enumerate(found.run.methods):
        known = method.sets["id"]
        wrong = np.flatnonzero(~known.correct)
        rows = content["rows"][m][len(found.run.sets)]
        inputs = {row["input"] for row in rows}
        assert inputs <= set(wrong.tolist()) and not any(row["right"] for row in rows)
        for score in found.scores:
            first = wrong[np.argsort(-known.scores[score][wrong], kind="stable")[:5]]
            assert set(first.tolist()) <= inputs
        assert {row["picture"] for row in rows} <= set(range(content["pictures"][0]["count"]))
    assert content["files"][0] == ["one/id.npz", "one/ood-far.npz", "one/adversarial-pgd.npz"]


def test_without_labels_nobody_knows_mistakes(tmp_path, write_run):
    _, content = shown(tmp_path, write_run, labels=False)
    assert content["rows"][0][2] is None


def test_large_sets_make_a_small_page(tmp_path):
    rng = np.random.default_rng(0)
    number = 100_000
    for name, shift in (("id", 0.0), ("ood-a", 1.0)):
        k = rng.lognormal(shift, 2, number)
        columns = {"pairwise_epistemic": k, "average_epistemic": k * rng.uniform(0.3, 0.5, number)}
        label = rng.integers(0, 10, number)
        prediction = np.where(rng.uniform(size=number) < np.exp(-k / 30), label, (label + 1) % 10)
        write_columns(tmp_path / f"{name}.npz", {"label": label, "prediction": prediction, **columns})
    assert len(build_page(gather_contents(read_run(tmp_path)))) < 150_000


@pytest.mark.parametrize("shape", [(9, 7), (9, 7, 3), (1, 1), (100, 60, 3)])
def test_thumbnails_are_pictures(shape):
    from PIL import Image

    images = np.random.default_rng(0).integers(0, 256, (5, *shape), np.uint8)
    sheet = make_sprite(images, 100_000)
    opened = Image.open(io.BytesIO(base64.b64decode(sheet["image"].partition(",")[2])))
    assert opened.size == (5 * sheet["width"], sheet["height"]) and max(sheet["width"], sheet["height"]) <= 48
    if max(shape[:2]) <= 48:
        tiles = np.asarray(opened).reshape(shape[0], 5, *shape[1:])
        np.testing.assert_array_equal(np.moveaxis(tiles, 1, 0), images)


def test_thumbnails_shrink_to_their_budget_by_means():
    images = np.random.default_rng(0).integers(0, 256, (300, 64, 64, 3), np.uint8)
    sheet = make_sprite(images, 400_000)
    assert 16 <= sheet["width"] < 48 and 300 * 3 * sheet["width"] * sheet["height"] <= 400_000
    blocks = shrink(np.arange(16, dtype=np.uint8).reshape(1, 4, 4, 1), 2)
    assert blocks[0, :, :, 0].tolist() == [[2, 4], [10, 12]]
    assert encode_png(np.zeros((1, 1, 1), np.uint8)) == encode_png(np.zeros((1, 1, 1), np.uint8))
