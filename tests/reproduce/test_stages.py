"""Stages are done once, go on after a kill, and are told apart by what they depend on."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from demur.reproduce.stages import Stage, Stages, order_stages


def writes(text: str, calls: list[str]):
    def make(folder):
        calls.append(text)
        (folder / "text").write_text(text)

    return make


def test_a_stage_is_done_once_and_after_those_it_needs(tmp_path):
    calls: list[str] = []
    first = Stage("first", writes("a", calls))
    second = Stage("second/part", writes("b", calls), {"x": 1}, [first])
    stages = Stages(tmp_path)
    assert [stages.get_state(each) for each in order_stages([second])] == ["to do", "to do"]
    assert (stages.complete(second) / "text").read_text() == "b"
    assert Stages(tmp_path).complete(second) == stages.complete(second)
    assert calls == ["a", "b"]
    assert stages.get_state(second) == "done"
    lines = [json.loads(line) for line in (tmp_path / "timings.jsonl").read_text().splitlines()]
    assert [line["stage"] for line in lines] == ["first", "second/part"]


def test_what_a_stage_depends_on_makes_it_another(tmp_path):
    first, other = (Stage("first", writes("a", []), {"seed": seed}) for seed in (0, 1))
    assert first.key != other.key
    assert (
        Stage("next", writes("b", []), after=[first]).key != Stage("next", writes("b", []), after=[other]).key
    )
    assert first.key == Stage("first", writes("other code", []), {"seed": 0}).key


def test_a_stage_that_fails_is_not_done_and_finds_its_files_again(tmp_path):
    def make(folder):
        if not (folder / "half").exists():
            (folder / "half").write_text("1")
            (folder / ".whole.1-2.tmp").write_text("1")  # as a kill leaves it
            raise RuntimeError("stopped")
        (folder / "whole").write_text((folder / "half").read_text() + "2")

    stage, stages = Stage("long", make), Stages(tmp_path)
    with pytest.raises(RuntimeError, match="stopped"):
        stages.complete(stage)
    assert stages.get_state(stage) == "begun"
    assert (stages.complete(stage) / "whole").read_text() == "12"
    assert sorted(path.name for path in stages.complete(stage).iterdir()) == ["half", "whole"]


def test_a_kill_leaves_nothing_that_looks_done(tmp_path):
    program = textwrap.dedent("""
        import os, signal, sys
        from pathlib import Path
        from demur.reproduce.stages import Stage, Stages

        def make(folder):
            (folder / "half").write_text("1")
            os.kill(os.getpid(), signal.SIGKILL)

        Stages(Path(sys.argv[1])).complete(Stage("long", make))
    """)
    ended = subprocess.run([sys.executable, "-c", program, tmp_path], env=os.environ, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert Stages(tmp_path).get_state(Stage("long", print)) == "begun"


def test_a_finished_stage_that_was_changed_is_noticed_in_the_next_run(tmp_path):
    calls: list[str] = []
    stage = Stage("first", writes("a", calls))
    folder = Stages(tmp_path).complete(stage)
    for change in (lambda: (folder / "text").write_text("b"), lambda: (folder / "text").unlink()):
        change()
        with pytest.raises(
            ValueError, match=rf"{folder.name}/text: expected what the stage wrote.*remove .* to run"
        ):
            Stages(tmp_path).complete(stage)
    (folder / "text").write_text("a")
    Stages(tmp_path).complete(stage)
    known = folder.with_name(f"{folder.name}.json")
    for text in ("[]", "nothing", "[" * 100_000):
        known.write_text(text)
        with pytest.raises(ValueError, match=rf"{known.name}: expected checksums"):
            Stages(tmp_path).complete(stage)
    known.unlink()  # as older runs have it
    Stages(tmp_path).complete(stage)
    assert calls == ["a"]


def test_two_runs_do_not_share_a_folder(tmp_path):
    with Stages(tmp_path).lock(), pytest.raises(ValueError, match="in use"), Stages(tmp_path).lock():
        pass
