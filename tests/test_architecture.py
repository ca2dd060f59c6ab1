"""Imports go one way, and importing demur imports nothing heavy."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import demur

SOURCE = Path(demur.__file__).parent
ORDER = [
    "progress", "atomic", "reading", "checksums", "control_characters", "run_settings",
    "core.table_alignment", "core.arrays", "core.rounding", "core.logarithms", "core.probabilities",
    "core.least_divergence",
    "core.joint_information", "core.gamma_function", "core.class_terms", "core.rules", "core.parts_as_text",
    "families", "predictions", "core.state", "core.plain_arrays", "core.on_device", "measures",
    "core.rounded_members", "kernels",
    "core.jackknife", "core.kernel_distances", "core.kernel_score",
    "core.second_order_state", "core.processes", "core.given", "moments", "derived_moments",
    "core.gaussian_integral", "core.gaussian_estimates",
    "core.bounds", "core.predictive", "core.second_order_measures", "decompose", "divergences", "regression",
    "averages", "credal", "adhoc",
    "tasks", "torchmetrics", "policy_json", "deferral", "deferrals", "monitoring", "stores",
    "scoring.batch_parts", "scoring.batches", "scoring.checkpoint", "scoring.logit_spread", "posteriors",
    "scoring", "cluster", "scoring.score", "sklearn", "sequences", "report", "reproduce", "cli",
]  # fmt: skip


def imports_of(path: Path) -> set[str]:
    """The parts of demur that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "demur":
            found |= {part_of(f"{node.module}.{a.name}") for a in node.names}
        elif isinstance(node, ast.Import):
            found |= {part_of(a.name) for a in node.names if a.name.startswith("demur.")}
    return {name for name in found if not name.startswith("__")}


def part_of(module: str) -> str:
    """The entry of the order that a module belongs to, or a name in a module."""
    names = module.split(".")[1:]
    return ".".join(names[:2]) if ".".join(names[:2]) in ORDER else names[0]


def violations(part: str, imported: set[str]) -> set[str]:
    """What a part must not import: itself is fine, and what comes before it."""
    return {name for name in imported if ORDER.index(name) > ORDER.index(part)}


def test_imports_go_one_way() -> None:
    checked = set()
    for path in SOURCE.rglob("*.py"):
        if path in (SOURCE / "__init__.py", SOURCE / "core" / "__init__.py"):
            continue
        part = part_of(".".join(("demur", *path.relative_to(SOURCE).with_suffix("").parts)))
        checked.add(part)
        assert violations(part, imports_of(path)) == set(), path
    assert checked == set(ORDER)


def test_the_check_objects_to_an_import_that_goes_back(tmp_path) -> None:
    wrong = tmp_path / "rules.py"
    wrong.write_text("def late():\n    from demur.moments import Moments\n    return Moments\n")
    assert violations("core.rules", imports_of(wrong)) == {"moments"}


def test_importing_demur_imports_nothing_heavy() -> None:
    code = "import demur, sys; print([m for m in HEAVY if m in sys.modules])"
    heavy = (
        "torch", "numba", "jax", "pandas", "matplotlib", "sklearn", "scipy.stats", "typer", "zarr", "fsspec",
        "ray",
    )  # fmt: skip
    printed = subprocess.check_output([sys.executable, "-c", f"HEAVY = {heavy!r}; {code}"], text=True)
    assert printed.strip() == "[]"


def test_every_public_name_is_there_and_no_module_hides_it() -> None:
    code = (
        "import pkgutil, demur\n"
        "for module in pkgutil.iter_modules(demur.__path__):\n"
        "    __import__(f'demur.{module.name}')\n"
        "modules = sorted(n for n in demur.__all__ if type(getattr(demur, n)).__name__ == 'module')\n"
        "print(modules, set(demur.__all__) - set(dir(demur)))"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert printed.strip() == "['cluster', 'posteriors', 'report', 'sequences', 'tasks'] set()"


def test_an_unknown_name_is_an_attribute_error() -> None:
    wrong = "decompos"
    with pytest.raises(AttributeError, match="no attribute 'decompos'"):
        getattr(demur, wrong)


def test_dir_lists_the_public_names_and_nothing_else() -> None:
    code = "import demur, demur.cli, demur.moments; print(dir(demur) == sorted(demur.__all__))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "True"


MEMBERS = {"kind", "on_host", "precision", "shape", "values", "with_values"}
PARAMETRIC = MEMBERS | {"names", "rule"}
DENSITY = {"differential_entropy", "mean", "shape"}
PUBLIC = {
    "Bernoulli": MEMBERS | {"tolerance"},
    "Categorical": MEMBERS | {"tolerance"},
    "Draws": {"kernel", "scale", "shape", "values"},
    "Exponential": PARAMETRIC,
    "Gamma": PARAMETRIC,
    "Gaussian": PARAMETRIC,
    "MultiLabel": PARAMETRIC,
    "MultivariateGaussian": PARAMETRIC,
    "Points": {"kernel", "scale", "shape", "values"},
    "Poisson": PARAMETRIC,
    "Beta": DENSITY | {"a", "b", "precision"},
    "Deltas": DENSITY | {"points", "weights"},
    "Dirichlet": DENSITY | {"concentration", "precision"},
    "Mixture": {"components", "mean", "shape", "weights"},
    "Uniform": DENSITY | {"hi", "lo"},
    "Moments": {
        "all_reduce", "count", "decompose", "effective_count", "load", "mean", "merge", "only", "save",
        "shape", "update",
    },
    "Decomposition": {"map", "stderr", "to_dict", "to_pandas"},
    "Measure": {"predictor", "sides", "truth"},
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC)
def test_help_shows_what_users_may_call_and_nothing_else(name) -> None:
    assert {each for each in dir(getattr(demur, name)) if not each.startswith("_")} == PUBLIC[name]
