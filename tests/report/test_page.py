"""The data of the report: the library's figures, whatever the folder has, and safe to put in a page."""

import base64
import io
import json
import re

import numpy as np
import pytest
from scipy.stats import spearmanr

import demur
from demur.report import verdict
from demur.report.choice import choose
from demur.report.findings import find
from demur.report.folder import read_run
from demur.report.page import data, embedded, page
from demur.report.thumbnails import png, shrunk, sprite
from demur.stores import write_columns


@pytest.fixture(scope="module")
def found(tmp_path_factory, write_run):
    sets = ("id", "ood-far", "adversarial-pgd")
    folder = write_run(tmp_path_factory.mktemp("run"), methods=("one", "two"), sets=sets, images=(8, 6))
    return find(read_run(folder))


def test_figures_are_those_of_the_tasks(found):
    content = data(found)
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
    content = data(found)
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
    content = data(found)
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
            rule = "Nothing is" if value == np.inf else f"Scores above {value:.4g} are"
            assert promise["text"].startswith(f"{rule} deferred:")
    assert held > 0


def test_rows_are_the_first_by_each_score_with_the_classes_that_drive_them(found):
    content = data(found, top=5)
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


def test_the_best_is_that_of_the_paired_test(found):
    content = data(found)
    names = [m.name for m in found.run.methods]
    pairs = {
        (m.name, s): (m.sets["id"].scores[s], m.sets["ood-far"].scores[s])
        for m in found.run.methods
        for s in found.scores
    }
    expected = demur.tasks.leading(pairs, "detection")
    shown = next(each for each in content["best"] if each["set"] == found.run.sets.index("ood-far"))
    keys = [(names[m], found.scores[s]) for m, s in [*shown["best"], *shown["ties"]]]
    assert keys == [expected.best, *expected.ties]
    # Each method makes its own mistakes, and attacks fool it more or less.
    places = [each["set"] for each in content["best"]]
    assert places.count(None) == places.count(found.run.sets.index("adversarial-pgd")) == 2


def test_equal_ones_are_all_best_and_named(tmp_path):
    one = np.arange(52.0)[::-1]
    wrong = np.isin(np.arange(52), [3, 7, 20])
    two = one[[0, 1, 3, 2, *range(4, 20), 21, 20, *range(22, 52)]]  # one mistake higher, another lower
    scores = {"one": one, "two": two, "three": np.where(wrong, -one, one)}
    difference = demur.tasks.compare(one, two, "misclassification", correct=~wrong).difference.value
    assert 0 < difference < 1e-15  # rounding alone
    write_columns(tmp_path / "id.csv", {"label": 0 * wrong, "prediction": wrong.astype(int), **scores})
    content = data(find(read_run(tmp_path)))
    assert content["best"] == [{"set": None, "best": [[0, 0], [0, 1]], "ties": []}]
    caption, *sentences = content["cards"][0]["caption"], *content["cards"][0]["sentences"]
    assert caption.endswith("than a right one, by one (equal: two), the best for this task alone.")
    assert sentences[-1].startswith("Better than the rest, of which the nearest is three, lower by")
    assert not any("tied" in sentence for sentence in sentences)


NASTY = "</script><script>alert(1)</script><!-- {{data}} & \u2028\u2029 \" ' \\u003c \ud800"


def test_data_cannot_leave_their_element():
    text = embedded({"a": NASTY})
    assert not set(text) & set("<>&\u2028\u2029") and json.loads(text)["a"] == NASTY
    text.encode()


def test_names_of_files_are_escaped(tmp_path, write_run):
    facts = {"title": NASTY, "command": NASTY, "versions": {NASTY: NASTY}, "classes": [NASTY] * 4}
    sets = ("id", "ood-<script>alert(2)<")
    folder = write_run(
        tmp_path, methods=("<b>m",), sets=sets, facts=facts, number=20, names=lambda i: f"<i>{i}"
    )
    text = page(find(read_run(folder)))
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
    found = find(read_run(write_run(folder, **options)))
    content = data(found)
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


@pytest.mark.parametrize("sets", [("id",), ("ood-far",), ("ood-a", "ood-b")])
def test_nothing_to_measure_against(tmp_path, write_run, sets):
    found, content = shown(tmp_path, write_run, sets=sets, labels=False)
    assert content["cards"] == [] and "nothing to measure" in content["headline"][0] and found.best == {}
    assert content["results"][0][0]["density"]["counts"]


def test_a_score_of_the_user_s_own_and_few_inputs(tmp_path):
    write_columns(tmp_path / "id.csv", {"mine": np.array([0.5])})
    write_columns(tmp_path / "ood.csv", {"mine": np.array([0.25])})
    found = find(read_run(tmp_path))
    assert found.scores == ["mine"] and "one score only" in verdict.headline(found)[0]
    (card,) = data(found)["cards"]
    assert any("No better than chance" in s for s in card["sentences"])
    assert any(
        "Only 1 unknown input to judge by: with so few, even a perfect ranking" in s
        for s in card["sentences"]
    )


@pytest.mark.parametrize("right", [True, False])
def test_no_mistakes_or_nothing_else(tmp_path, right):
    label = np.zeros(50, int)
    columns = {"label": label, "prediction": label + (not right), "mine": np.linspace(0, 1, 50)}
    write_columns(tmp_path / "id.csv", columns)
    content = data(find(read_run(tmp_path)))
    (card,) = content["cards"]
    assert card["title"] == "Accuracy" and ("No prediction is wrong" in card["caption"]) == right
    assert content["results"][0][0]["errors"] is None


def test_infinite_scores_and_ties(tmp_path):
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 80)
    mine = np.round(rng.uniform(size=80), 1)
    mine[:10] = np.inf
    write_columns(tmp_path / "id.csv", {"label": label, "prediction": np.zeros(80, int), "mine": mine})
    write_columns(tmp_path / "ood-a.csv", {"mine": np.full(30, np.inf)})
    content = data(find(read_run(tmp_path)))
    json.dumps(content, allow_nan=False)
    slider = content["results"][0][0]["slider"]
    assert slider["threshold"][-1] == "inf" and slider["sets"][0]["kept"][-2:] == [70, 80]
    assert slider["sets"][1]["kept"][-2:] == [0, 30]
    assert content["results"][0][0]["density"]["infinite"][:2] == [10, 30]


def test_ties_are_called_so(tmp_path):
    rng = np.random.default_rng(0)
    for name, shift in (("id", 0.0), ("ood-a", 1.0)):
        mine = rng.normal(shift, 1, 200)
        write_columns(tmp_path / f"{name}.csv", {"mine": mine, "twice": 2 * mine})
    found = find(read_run(tmp_path))
    assert verdict.headline(found)[0] == (
        "Use mine, though none is shown to be better: each of the 2 measures is the best, or statistically "
        "tied with the best, in this comparison; this one has the highest mean."
    )
    (card,) = verdict.cards(found)
    assert "None is better here: statistically tied with the other one." in card["sentences"][0]


def test_a_winner_is_called_so(tmp_path):
    rng = np.random.default_rng(0)
    for name, shift in (("id", 0.0), ("ood-a", 2.0)):
        columns = {"good": rng.normal(shift, 1, 400), "none": rng.normal(size=400)}
        write_columns(tmp_path / f"{name}.csv", columns)
    found = find(read_run(tmp_path))
    first, second, third = verdict.headline(found)
    assert first == (
        "Use good: it is the best measure, or statistically tied with the best, in this comparison; no "
        "other is."
    )
    area = found.detections["", "good"]["ood-a"].auroc
    assert second == (
        f"AUROC: a {100 * area.value:.1f} % ({100 * area.low:.1f} to {100 * area.high:.1f}); "
        "50 % is a coin toss."
    )
    gap = area.value - found.detections["", "none"]["ood-a"].auroc.value
    assert third == f"Between the best and the worst measure lie up to {100 * gap:.2g} points."
    assert "Better than none, lower by" in verdict.cards(found)[0]["sentences"][0]


def test_no_verdict_is_the_same_for_all(tmp_path):
    rng = np.random.default_rng(0)
    columns = {k: rng.normal(size=300) for k in ("a", "b", "c")}
    write_columns(tmp_path / "id.csv", columns)
    for name, good in (("ood-1", "a"), ("ood-2", "b")):
        own = {k: rng.normal(3.0 if k == good else 0.0, 1, 300) for k in columns}
        write_columns(tmp_path / f"{name}.csv", own)
    found = find(read_run(tmp_path))
    areas = {k: [float(found.detections["", k][name].auroc) for name in ("ood-1", "ood-2")] for k in "ab"}
    first, second = sorted(areas, key=lambda k: -sum(areas[k]))
    behind = max(b - a for a, b in zip(areas[first], areas[second], strict=True))
    assert verdict.headline(found)[0] == (
        f"Use {first}: it is the best measure, or statistically tied with the best, in 1 of 2 comparisons, "
        f"and elsewhere up to {100 * behind:.2g} points below it; as often is {second}, lower on average."
    )


def test_the_verdict_of_several_methods_names_one_score(found):
    first, second, third, *rest = content = verdict.headline(found)
    tasks = [*found.run.sets[1:], "errors"]
    assert set(found.within) == {(m.name, task) for m in found.run.methods for task in tasks}
    choice = choose(found)
    method, score = choice.key
    for m in found.run.methods:
        own = {s: (m.sets["id"].scores[s], m.sets["ood-far"].scores[s]) for s in found.scores}
        told = demur.tasks.leading(own, "detection")
        within = found.within[m.name, "ood-far"]
        assert [told.best, *told.ties] == [s for _, s in (within.best, *within.ties)]
    good = {
        s: sum(any(s == k for _, k in (w.best, *w.ties)) for w in found.within.values()) for s in found.scores
    }
    assert good[score] == max(good.values()) == choice.good and choice.number == 6
    assert (
        first.startswith("Use ")
        and f"(column {score})" in first
        and "(one for each method and task)" in first
    )
    assert (
        f"AUROC with {method}, where {verdict.name_of(score).short} is highest on unknown inputs: far "
        in second
    )
    assert "pgd " in second and "mistakes " in second
    areas = {m.name: float(found.detections[m.name, score]["ood-far"].auroc) for m in found.run.methods}
    assert areas[method] == max(areas.values())
    short = verdict.name_of(score).short
    assert third.startswith("On unknown inputs the method matters ")
    assert f"by {short} up to {100 * np.ptp(list(areas.values())):.2g} points lie between methods" in third
    own = [
        np.ptp([float(found.detections[m.name, s]["ood-far"].auroc) for s in found.scores])
        for m in found.run.methods
    ]
    assert third.endswith(f"up to {100 * max(own):.2g} points between measures of one method.")
    wrong = [found.errors[m.name, score].positives for m in found.run.methods]
    few = f"Only {min(wrong)} to {max(wrong)} mistakes were made by each method"
    assert min(wrong) < 30 and len(rest) == 1 and rest[0].startswith(few)
    assert not any("one of the methods" in sentence for sentence in content)


def attacked_run(folder, *, unknown):
    """By the same score "a" finds unknown inputs, "b" attacked ones, which fool it more often."""
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
    return find(read_run(folder))


def test_methods_are_compared_on_unknown_inputs_only(tmp_path):
    found = attacked_run(tmp_path, unknown=True)
    score = "pairwise_aleatoric"
    areas = {key: {t: float(d.auroc) for t, d in own.items()} for key, own in found.detections.items()}
    assert areas["b", score]["adversarial-x"] - areas["a", score]["adversarial-x"] > 0.3  # b is fooled more
    assert choose(found).key == ("a", score)
    _, worth, surprise, matter, *_ = verdict.headline(found)
    assert worth.startswith("AUROC with a, where aleatoric is highest on unknown inputs: ")
    assert "with a both rise together" in surprise
    gap = areas["a", score]["ood-far"] - areas["b", score]["ood-far"]
    assert f"up to {100 * gap:.2g} points lie between methods" in matter
    assert verdict.accuracies(found) == (
        "Accuracy on in-distribution and x: a 98.0 % and 90.0 %; b 98.0 % and 40.0 %."
    )
    assert set(found.best) == {"ood-far"}
    unknown, attacked, *_ = verdict.cards(found)
    assert "by aleatoric of a, the best" in attacked["caption"] and attacked["sentences"][-1] == verdict.OWN
    assert attacked["bounds"][0] == areas["a", score]["adversarial-x"]
    assert not any(" of b" in sentence for sentence in attacked["sentences"])
    assert verdict.OWN not in unknown["sentences"]


def test_without_unknown_inputs_methods_are_not_compared(tmp_path):
    found = attacked_run(tmp_path, unknown=False)
    said = verdict.headline(found)
    assert choose(found).by_method is None and not any("between methods" in sentence for sentence in said)
    assert said[1].startswith("AUROC with a, the most accurate method: ")  # as accurate as b, and the first
    assert any(s.startswith("Between the best and the worst measure of one method lie") for s in said)


def test_accuracy_is_said_where_labels_tell(tmp_path, write_run):
    found, content = shown(tmp_path / "one", write_run)
    share = found.run.methods[0].sets["id"].correct.mean()
    assert content["accuracies"] == f"Accuracy on in-distribution: {100 * share:.1f} %."
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
    found = find(read_run(tmp_path))
    assert choose(found).key[1] == "pairwise_aleatoric"
    (said,) = [sentence for sentence in verdict.headline(found) if "no mistake" in sentence]
    expected = spearmanr(*(np.concatenate(parts) for parts in both.values())).statistic
    assert f"(rank correlation of aleatoric with K: {expected:.2f})" in said
    assert ("in this run both rise together" in said) == together == (expected >= 0.5)


def test_a_verdict_on_another_measure_needs_no_excuse(tmp_path):
    for name, shift in (("id", 0.0), ("ood-a", 3.0)):
        rng = np.random.default_rng(1)
        columns = {
            "pairwise_epistemic": rng.normal(shift, 1, 300),
            "pairwise_aleatoric": rng.normal(size=300),
        }
        write_columns(tmp_path / f"{name}.csv", columns)
    assert not any("no mistake" in sentence for sentence in verdict.headline(find(read_run(tmp_path))))


def test_cards_say_that_each_is_the_best_for_its_task_alone(found):
    cards = verdict.cards(found)
    assert all("the best for this task alone." in card["caption"] for card in cards[:-1])
    assert cards[-1]["sentences"][-1] == (
        "Measured on these inputs. What can be promised for new ones stands below: When to ask a person."
    )


def test_sets_and_methods_are_called_as_the_run_says(tmp_path, write_run):
    facts = {
        "sets": {"ood-far": "eights and nines"}, "methods": {"one": "ten networks"}, "command": "make it",
        "training": "on 400 images", "sources": {"ood-far": "from elsewhere"},
    }  # fmt: skip
    _, content = shown(tmp_path, write_run, methods=("one", "two"), facts=facts, number=40)
    assert [each["name"] for each in content["sets"]] == ["in-distribution", "eights and nines"]
    assert content["cards"][0]["title"] == "Telling eights and nines from in-distribution"
    assert "eights and nines" in content["headline"][1]
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
    content = data(find(read_run(tmp_path)))
    slider = content["results"][0][0]["slider"]
    right = slider["sets"][1]["right"]
    assert right == ([0] * len(slider["threshold"]) if told else None)
    assert {row.get("label") for row in content["rows"][0][1]} == {str(label) if told else None}


def test_many_ties_are_counted_and_the_nearest_is_the_nearest(found):
    for task, card in zip(found.best, verdict.cards(found), strict=False):
        best, text = found.best[task], " ".join(card["sentences"])
        lower = {k: c.difference.value for k, c in best.comparisons.items() if k not in best.ties}
        if len(best.ties) > 3 and lower:
            assert f"tied with {len(best.ties)} of the {len(best.comparisons)} others" in text
        if lower:
            method, score = min(lower, key=lower.get)
            assert f"the nearest is {verdict.called(found, (method, score))}, lower by" in text
    said = [card for card in verdict.cards(found) if verdict.SHARPER in card["sentences"]]
    assert len(said) <= 1


def test_large_sets_make_a_small_page(tmp_path):
    rng = np.random.default_rng(0)
    number = 100_000
    for name, shift in (("id", 0.0), ("ood-a", 1.0)):
        k = rng.lognormal(shift, 2, number)
        columns = {"pairwise_epistemic": k, "average_epistemic": k * rng.uniform(0.3, 0.5, number)}
        label = rng.integers(0, 10, number)
        prediction = np.where(rng.uniform(size=number) < np.exp(-k / 30), label, (label + 1) % 10)
        write_columns(tmp_path / f"{name}.npz", {"label": label, "prediction": prediction, **columns})
    assert len(page(find(read_run(tmp_path)))) < 150_000


@pytest.mark.parametrize("shape", [(9, 7), (9, 7, 3), (1, 1), (100, 60, 3)])
def test_thumbnails_are_pictures(shape):
    from PIL import Image

    images = np.random.default_rng(0).integers(0, 256, (5, *shape), np.uint8)
    sheet = sprite(images, 100_000)
    opened = Image.open(io.BytesIO(base64.b64decode(sheet["image"].partition(",")[2])))
    assert opened.size == (5 * sheet["width"], sheet["height"]) and max(sheet["width"], sheet["height"]) <= 48
    if max(shape[:2]) <= 48:
        tiles = np.asarray(opened).reshape(shape[0], 5, *shape[1:])
        np.testing.assert_array_equal(np.moveaxis(tiles, 1, 0), images)


def test_thumbnails_shrink_to_their_budget_by_means():
    images = np.random.default_rng(0).integers(0, 256, (300, 64, 64, 3), np.uint8)
    sheet = sprite(images, 400_000)
    assert 16 <= sheet["width"] < 48 and 300 * 3 * sheet["width"] * sheet["height"] <= 400_000
    blocks = shrunk(np.arange(16, dtype=np.uint8).reshape(1, 4, 4, 1), 2)
    assert blocks[0, :, :, 0].tolist() == [[2, 4], [10, 12]]
    assert png(np.zeros((1, 1, 1), np.uint8)) == png(np.zeros((1, 1, 1), np.uint8))
