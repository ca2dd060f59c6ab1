"""The card on the page about aleatoric and epistemic parts: what the task computed, and no more."""

import numpy as np
import pytest

from demur.report.contents import gather_contents
from demur.report.page import gather_data
from demur.report.run_folder import read_run
from demur.stores import StoreError, write_columns
from demur.tasks import disentanglement


def write_run(folder, measure="pairwise", alike=0.5, **columns):
    rng = np.random.default_rng(0)
    noise, rarity = rng.gamma(1.0, size=(2, 300))
    own = {
        f"{measure}_aleatoric": noise,
        f"{measure}_epistemic": (1 - alike) * rarity + alike * noise,
        **{name: values(noise) for name, values in columns.items()},
    }
    write_columns(folder / "id.csv", own)
    return own


def test_the_card_is_what_the_task_says(tmp_path):
    own = write_run(tmp_path, reference=lambda noise: noise**2)
    run = read_run(tmp_path)
    assert "reference" not in run.scores  # it is no score of the model
    content = gather_data(gather_contents(run))
    wanted = disentanglement(
        own["pairwise_aleatoric"], own["pairwise_epistemic"], reference=own["reference"],
        interval="asymptotic",
    )  # fmt: skip
    card = content["parts"]
    assert card["bounds"] == pytest.approx([wanted.parts.value, wanted.parts.low, wanted.parts.high])
    assert card["figure"] == f"{wanted.parts.value:.2f}" and card["unit"] == "rank correlation"
    (sentence,) = card["sentences"]
    assert f"aleatoric part has {wanted.reference.value:.2f}" in sentence
    assert f"K {wanted.epistemic_reference.value:.2f}" in sentence
    assert content["cards"] == []  # nothing can be detected here


def test_parts_that_order_alike_are_said_to_and_any_measure_will_do(tmp_path):
    write_run(tmp_path, "average", alike=0.95)
    card = gather_data(gather_contents(read_run(tmp_path)))["parts"]
    assert (
        "one tells little that the other does not" in card["sentences"][0]
        and "and I order" in card["caption"]
    )


@pytest.mark.parametrize("gone", ["pairwise_aleatoric", "pairwise_epistemic"])
def test_without_two_parts_that_vary_there_is_no_card(tmp_path, gone):
    own = write_run(tmp_path)
    write_columns(tmp_path / "id.csv", {**own, gone: np.zeros(300)}, force=True)
    assert gather_data(gather_contents(read_run(tmp_path)))["parts"] is None
    left = {name: values for name, values in own.items() if name != gone}
    write_columns(tmp_path / "id.csv", left, force=True)
    assert gather_data(gather_contents(read_run(tmp_path)))["parts"] is None


def test_a_reference_with_gaps_is_refused(tmp_path):
    write_run(tmp_path, reference=lambda noise: np.where(noise > 1, np.nan, noise))
    with pytest.raises(StoreError, match="expected numbers in reference, got NaN"):
        read_run(tmp_path)


ROWS = """number => {
    const cards = document.getElementById("cards"), [one] = cards.children;
    cards.replaceChildren(...Array.from({ length: number }, () => one.cloneNode(true)));
    const rows = {}, right = cards.getBoundingClientRect().right;
    for (const card of cards.children) {
        const place = card.getBoundingClientRect();
        (rows[Math.round(place.top)] ??= []).push(right - place.right);
    }
    return Object.values(rows);
}"""


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 800, 1000, 1156, 1280, 1920])
def test_cards_fill_every_row_and_five_leave_none_alone(tmp_path, open_page, width):
    from demur.report.page import write_page

    write_run(tmp_path)
    path = write_page(gather_contents(read_run(tmp_path)), tmp_path / "report.html")
    page = open_page(path.resolve().as_uri(), viewport={"width": width, "height": 900})
    for number in range(1, 10):
        rows = page.evaluate(ROWS, number)
        assert sum(map(len, rows)) == number and max(row[-1] for row in rows) < 1, (number, rows)
        if width >= 1000 and number in (5, 9):
            assert min(map(len, rows)) > 1, (number, rows)
