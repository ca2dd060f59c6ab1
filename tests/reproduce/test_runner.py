"""One runner for all studies: it plans, resumes, lays out the results and writes the page."""

import pytest

from demur.reproduce.results_page import split_sections
from demur.reproduce.runner import Study, plan_study, run_study, write_page
from demur.reproduce.stages import Stage, Stages


def study(folder, calls: list[str], fails: tuple[str, ...] = (), parts: int = 2) -> Study:
    """Some parts, and a last stage that writes two files and a section."""

    def work(name):
        def make(place):
            calls.append(name)
            if name in fails:
                raise RuntimeError("stopped")
            (place / "part.txt").write_text(name)

        return make

    stages = Stages(folder)
    made = [Stage(f"part/{k}", work(f"part/{k}"), {"k": k}, seconds=60, megabytes=2) for k in range(parts)]

    def finish(place):
        calls.append("last")
        (place / "section.md").write_text("## Parts")
        (place / "figures").mkdir()
        (place / "figures" / "a.png").write_bytes(b"png")

    last = Stage("results", finish, {}, made, seconds=120)
    return Study("parts", stages, [last], pictures={"parts-a.png": "figures/a.png"})


def test_a_run_does_every_stage_once_and_tells_how_far_it_is(tmp_path):
    calls: list[str] = []
    lines: list[str] = []
    files = run_study(study(tmp_path, calls), lines.append)
    assert calls == ["part/0", "part/1", "last"]
    assert lines == [
        "1 of 3, about 4 min left: part/0",
        "2 of 3, about 3 min left: part/1",
        "3 of 3, about 2 min left: results",
    ]
    assert files == [tmp_path / "figures" / "a.png", tmp_path / "section.md"]
    assert (tmp_path / "figures" / "a.png").read_bytes() == b"png"
    assert run_study(study(tmp_path, calls), lines.append) == files
    assert len(calls) == len(lines) == 3


def test_a_run_that_was_stopped_resumes(tmp_path):
    calls: list[str] = []
    lines: list[str] = []
    with pytest.raises(RuntimeError, match="stopped"):
        run_study(study(tmp_path, calls, fails=("part/1",)))
    run_study(study(tmp_path, calls), lines.append)
    assert calls == ["part/0", "part/1", "part/1", "last"]
    assert lines[0] == "2 of 3, about 3 min left: part/1, resumed"


def test_a_plan_says_what_is_left_and_joins_many_stages_of_a_kind(tmp_path):
    few = study(tmp_path, [])
    assert [(line.name, line.state, line.minutes, line.megabytes) for line in plan_study(few)] == [
        ("part/0", "to do", 1, 2), ("part/1", "to do", 1, 2), ("results", "to do", 2, 0),
    ]  # fmt: skip
    assert not (tmp_path / "stages").exists()
    few.stages.folder.mkdir(exist_ok=True)
    few.stages.complete(few.last[0].after[0])
    many = plan_study(study(tmp_path, [], parts=9))
    assert [(line.name, line.state, line.minutes) for line in many] == [
        ("part", "8 of 9 to do", 8), ("results", "to do", 2),
    ]  # fmt: skip
    assert plan_study(few)[0].minutes is None


def test_the_page_gets_the_section_and_its_pictures(tmp_path):
    found = study(tmp_path / "run", [])
    run_study(found)
    write_page(found, tmp_path / "docs" / "results.md")
    assert split_sections((tmp_path / "docs" / "results.md").read_text()) == {"parts": "## Parts"}
    assert (tmp_path / "docs" / "figures" / "results" / "parts-a.png").read_bytes() == b"png"
