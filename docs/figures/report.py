"""Makes a run on handwritten digits, its report, and the pictures of the page "Read the report".

python docs/figures/report.py --run build/digits --out docs/figures

Ten small networks and a forest learn the digits 0 to 7; 8 and 9 are out-of-distribution. The pictures of the
page are taken in Chromium, by playwright.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import demur
from demur.report import page
from demur.report.findings import find
from demur.report.folder import read_run

PARTS = {"verdict": ".verdict", "figures": ".figures", "deferral": "#deferral"}


def write_run(folder: Path) -> Path:
    """Train, score and write the folder of the run."""
    shutil.rmtree(folder, ignore_errors=True)
    images, digits = load_digits(return_X_y=True)
    strange = digits >= 8
    train, test, train_digits, test_digits = train_test_split(
        images[~strange], digits[~strange], test_size=0.5, stratify=digits[~strange], random_state=0
    )
    networks = [MLPClassifier(64, max_iter=500, tol=0.05, random_state=k) for k in range(10)]
    forest = RandomForestClassifier(50, min_samples_leaf=5, random_state=0)
    methods: dict[str, list[Any]] = {
        "networks": [network.fit(train, train_digits) for network in networks],
        "forest": forest.fit(train, train_digits).estimators_,
    }
    sets: dict[str, Any] = {"id": (test, test_digits), "ood-8 and 9": images[strange]}
    (folder / "images").mkdir(parents=True)
    for name, batch in sets.items():
        inputs = batch[0] if name == "id" else batch
        np.save(folder / "images" / f"{name}.npy", (inputs.reshape(-1, 8, 8) * 255 / 16).astype(np.uint8))
        for method, models in methods.items():
            (folder / method).mkdir(exist_ok=True)
            demur.score(models, [batch], progress=False).save(folder / method / f"{name}.csv")
            with np.errstate(divide="ignore"):  # a tree may exclude a class
                log_probs = np.log([member.predict_proba(inputs) for member in models])
            np.save(folder / method / f"members-{name}.npy", log_probs)
    facts = {"title": "Handwritten digits", "command": "python docs/figures/report.py", "seed": 0}
    facts |= {"versions": {"demur": demur.__version__, "numpy": np.__version__}, "classes": list("01234567")}
    (folder / "run.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    return folder


def draw(folder: Path, out: Path) -> None:
    """Draw single inputs and members."""
    networks = next(method for method in read_run(folder).methods if method.name == "networks")
    first = np.argsort(-networks.sets["ood-8 and 9"].scores["pairwise_epistemic"], kind="stable")[:6]
    members = np.asarray(networks.members["ood-8 and 9"][:, first])
    parts = demur.decompose(log_probs=members), demur.attribute(log_probs=members)
    settled = demur.convergence(log_probs=members[:, :3])
    figures = {
        "decomposition": demur.report.decomposition_figure(*parts, names=[f"{n}" for n in first]),
        "divergence": demur.report.divergence_figure(demur.divergences(log_probs=members[:, 0])),
        "convergence": demur.report.convergence_figure(settled, names=[f"input {n}" for n in first[:3]]),
    }
    for name, figure in figures.items():
        figure.savefig(out / f"report-{name}.png", dpi=130)


def take_pictures(address: str, out: Path) -> None:
    """Take pictures of the parts of a page."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = {"executable_path": shutil.which("chromium"), "args": ["--no-sandbox", "--disable-gpu"]}
        browser = playwright.chromium.launch(**options)
        shown = browser.new_page(viewport={"width": 1000, "height": 800}, color_scheme="light")
        shown.goto(address)
        shown.add_style_tag(content="#controls { position: static !important; }")
        shown.select_option("#method", label="networks")
        shown.select_option("#score", "0")
        for name, selector in PARTS.items():
            shown.locator(selector).screenshot(path=out / f"report-{name}.png")
        shown.locator("section:has(#inputs)").screenshot(path=out / "report-inputs.png")
        browser.close()


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", type=Path, required=True, help="folder of the run, written anew")
    parser.add_argument("--out", type=Path, help="folder of the pictures")
    given = parser.parse_args()
    folder = write_run(given.run)
    written = page.write(find(read_run(folder)), folder / "report.html", top=6)
    if given.out is not None:
        draw(folder, given.out)
        take_pictures(written.resolve().as_uri(), given.out)
    print(written)


if __name__ == "__main__":
    main()
