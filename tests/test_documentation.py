"""Runs what the documentation shows: README, pages, commands and example scripts."""

import contextlib
import doctest
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

import demur
import demur.sklearn
from demur.cli import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int  # of the first line inside the fence, from 0


def blocks(text: str) -> list[Block]:
    found = []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start(2))
        found.append(Block(match.group(1), match.group(2), line))
    return found


def run_python(block: Block, namespace: dict, name: str) -> list[str]:
    """Run one block as a doctest in the page's namespace; return what went wrong."""
    test = doctest.DocTestParser().get_doctest(block.text, namespace, name, name, block.line)
    test.globs = namespace  # the parser copies it; later blocks go on where this one stops
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    runner.run(test, out=report.append, clear_globs=False)
    return report


def run_console(block: Block, folder: Path) -> list[str]:
    """Run the block's `$ demur` commands and compare what they print; return what went wrong."""
    wrong = []
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        words = shlex.split(command, comments=True)
        if words[0] != "demur":
            continue
        # In this process: another one takes half a second to start, and there are dozens.
        with contextlib.chdir(folder):
            terminal = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
            done = CliRunner().invoke(app, words[1:], env=terminal, prog_name="demur")
        got = done.stdout + done.stderr
        if done.exit_code != 0:
            wrong.append(f"$ {command}\nexit status {done.exit_code}\n{got}")
        elif expected.strip() and not doctest.OutputChecker().check_output(expected, got, FLAGS):
            wrong.append(f"$ {command}\nexpected:\n{expected}\ngot:\n{got}")
    return wrong


def run_page(text: str, name: str, folder: Path) -> list[str]:
    namespace: dict = {}
    wrong: list[str] = []
    for block in blocks(text):
        if block.language == "python":
            wrong += run_python(block, namespace, name)
        elif block.language == "console":
            wrong += run_console(block, folder)
    return wrong


# Starting Ray takes as long as all other pages together.
SLOW_PAGES = ("scale.md",)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] * (page.name in SLOW_PAGES), id=page.name)
        for page in PAGES
    ],
)
def test_page_prints_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = run_page(page.read_text(encoding="utf-8"), page.name, tmp_path)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_python_block_goes_unchecked(page):
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "python":
            assert ">>> " in block.text, f"{page.name}:{block.line + 1} has nothing to run"


@pytest.mark.parametrize(
    "text",
    [
        "```python\n>>> 1 + 1\n3\n\n```\n",
        "```python\n>>> undefined\n1\n\n```\n",
        "```python\n>>> x = 1\n\n```\nwords\n```python\n>>> x\n2\n\n```\n",
        "```console\n$ demur --no-such-option\n```\n",
        "```console\n$ demur --help\nnothing of the kind\n```\n",
    ],
)
def test_control_wrong_pages_are_found(text, tmp_path):
    assert run_page(text, "control", tmp_path)


def test_control_a_right_page_passes(tmp_path):
    text = "```python\n>>> x = 1\n\n```\nwords\n```python\n>>> x\n1\n\n```\n"
    assert run_page(text, "control", tmp_path) == []


def test_pages_hold_examples():
    counts = {page.name: page.read_text(encoding="utf-8").count("\n>>> ") for page in PAGES}
    for name in ("README.md", "quickstart.md", "mathematics.md", "numbers.md", "regression.md"):
        assert counts[name] >= 5, counts


# Several seconds each; the demo or a page fits these posteriors to the same digits.
SLOW_EXAMPLES = (
    "bayes_by_backprop", "boosted_trees", "cluster", "cyclical_sghmc", "deep_ensemble", "evidential", "hmc",
    "language_models", "laplace", "last_layer", "mc_dropout", "monitor", "one_pass", "quam", "swag", "forest",
    "deferring_classifier", "pixels_in_fixed_memory",
    "digits_ensemble",
)  # fmt: skip

# What each script must have printed, as patterns.
PRINTED = {
    "object_store.py": [r"^20000 inputs, 10 members$", r"^image-\d+: K \d\.\d+, I [01]\.\d+ nats$"],
    "pixels_in_fixed_memory.py": [
        r"certain limits; intervals over draws of 60 clusters\n  auroc  0\.\d+ to 0\.\d+ \[",
        r"; exact; .*\n  auroc  0\.\d+ \[",
        r"^Selective: 245,760 inputs",
    ],
    "streaming_moments.py": [r"^256 members", r"all at once: equal$"],
    "cyclical_sghmc.py": [r"^accuracy on known digits: 0\.9\d+$", r"by K: AUROC 0\.\d+", r"all cycles: \d"],
    "deep_ensemble.py": [
        r"^DeepEnsemble\(5 models\).*accuracy 0\.9\d+$",
        r"by K: 0\.[89]\d+ \[",
        r"by I: 0\.[89]",
    ],
    "language_models.py": [
        r"^K \d\.\d+ per token, perplexity +\d.*implicit\.$",
        r"warm soup\.$",
        r"^answer '.+', K \d",
    ],
    "last_layer.py": [
        r"^Features\(1000 inputs, 64 features",
        r"^LastLayer\(10 heads\): accuracy 0\.9",
        r"by K 0\.[89]",
    ],
    "laplace.py": [
        r"^Laplace\(kronecker, last layer, 100 samples\): prior precision \d",
        r"^Laplace\(diagonal, all layers, .* accuracy 0\.9",
        r"by K 0\.[89]",
    ],
    "mc_dropout.py": [r"dropout off: 0\.9\d+$", r"by K: 0\.[89]\d+ \[", r"^most doubtful: input \d+, K \d"],
    "hmc.py": [
        r"^log posterior    R-hat \d\.\d+, effective size \d+",
        r"^HMC +accuracy 0\.[89]",
        r"^MC dropout +acc",
    ],
    "quam.py": [
        r"^QUAM +median known 0\.00.* AUROC 0\.[89]",
        r"^MC dropout +median known",
        r"^temperature 0\.01: median known",
    ],
    "swag.py": [
        r"^SWAG +accuracy 0\.9",
        r"^own loop +accuracy 0\.9.*K 0\.[89]",
        r"^MultiSWAG +accuracy 0\.9",
    ],
    "bayes_by_backprop.py": [
        r"^Bayes by backprop +accuracy 0\.[89]",
        r"^HMC +acc",
        r"deviations from 0\.\d+",
    ],
    "one_pass.py": [
        r"^FeatureDensity\(8 classes, 64 features, class covariance, shrinkage 0\.\d",
        r"^accuracy 0\.9",
        r"^feature_density +0\.[89]",
        r"^sngp +0\.[789]",
        r"^duq +0\.[789]",
    ],
    "cluster.py": [r"^[3-9] workers took part", r"^The same bytes as in one process\.$", r"AUROC 0\.[89]"],
    "meaning.py": [
        r"^similarity: cosine of",
        r"^most contradictory: When did the ship sink\?$",
        r"first member alone: \[0\.",
    ],
    "deferring_classifier.py": [
        r"accuracy of the kept is at least 0\.98, with confidence 0\.95",
        r"^Accuracy of the kept: 0\.9",
        r"^2 defer 2 6 ",
    ],
    "forest.py": [r"^prior 0\.0: .* K infinite for [89]\d% of", r"^prior 1\.0: .* K infinite for 0% of"],
    "own_posterior.py": [
        r"^20 members, accuracy 0\.9",
        r"by K: 0\.[89]",
        r"^member by member: the same scores$",
    ],
    "evidential.py": [
        r"^evidential network: accuracy 0\.9",
        r"^prior network: accuracy 0\.9",
        r"by K: 0\.[89]\d+ \[",
    ],
    "boosted_trees.py": [
        r"^BoostedTrees\(10 stages of LGBMClassifier\): accuracy 0\.9",
        r"^BoostedTrees\(5 models\): accuracy 0\.9",
        r"epistemic part: 0\.[89]",
    ],
    "monitor.py": [
        r"^Alarm on day 27\d, \d days after",
        r"^Defer scores above 0\.[34]\d*\. On inputs like the",
        r"^Drift over",
    ],
    "digits_ensemble.py": [r"^accuracy on all of them: 0\.\d+$", r"to a person first:\n  input"],
}


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(path, marks=[pytest.mark.slow] * (path.stem in SLOW_EXAMPLES), id=path.name)
        for path in EXAMPLES
    ],
)
def test_example_runs(script, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for pattern in PRINTED[script.name]:
        assert re.search(pattern, done.stdout, re.MULTILINE), done.stdout


def test_reference_lists_every_public_name():
    reference = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\.\. auto\w+:: ([\w.]+)", reference, re.MULTILINE))
    parts = {
        "cluster": demur.cluster, "posteriors": demur.posteriors,
        "posteriors.evidential": demur.posteriors.evidential,
        "posteriors.one_pass": demur.posteriors.one_pass, "report": demur.report,
        "sequences": demur.sequences, "sklearn": demur.sklearn, "tasks": demur.tasks,
        "torchmetrics": demur.torchmetrics,
    }  # fmt: skip
    for_users = {f"demur.stores.{name}" for name in ("open_maps", "register_reader", "write_predictions")}
    public = set(demur.__all__) - set(parts)
    inside = {f"demur.{name}.{own}" for name, part in parts.items() for own in part.__all__}
    modules = {f"demur.{name}" for name in parts} & listed
    # What a monitor returns is there to be read, not to be made.
    modules |= {name for name in listed if name.startswith("demur.monitoring.")}
    inside -= {"demur.posteriors.one_pass", "demur.posteriors.evidential"}
    assert listed - modules == public | inside | for_users


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\d+\.\d+\.\d+)", changelog, re.MULTILINE)
    assert newest is not None
    assert demur.__version__ == project["version"] == newest.group(1)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
