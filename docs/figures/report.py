"""Makes the pictures of the page "Read the report", and that of the README, from the run of the demo.

demur demo --out build/demo
python docs/figures/report.py --run build/demo --out docs/figures --readme docs/_static/demo.png

The pictures of the page are taken in Chromium, by playwright.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import demur
from demur.report import page
from demur.report.contents import gather_contents
from demur.report.run_folder import read_run
from demur.report.run_sets import Run

METHOD, SET = "deep-ensemble", "ood-unseen"
PARTS = {
    "verdict": ".verdict", "figures": ".figures", "deferral": "#deferral", "inputs": "section:has(#inputs)",
}  # fmt: skip


def draw(run: Run, out: Path) -> None:
    """Draw single inputs and members."""
    method = next(method for method in run.methods if method.name == METHOD)
    first = np.argsort(-method.sets[SET].scores["pairwise_epistemic"], kind="stable")[:6]
    members = np.asarray(method.members[SET][:, first])
    parts = demur.decompose(log_probs=members), demur.attribute(log_probs=members)
    settled = demur.convergence(log_probs=members[:, :3])
    figures = {
        "decomposition": demur.report.decomposition_figure(*parts, names=[f"{n}" for n in first]),
        "divergence": demur.report.divergence_figure(demur.divergences(log_probs=members[:, 0])),
        "convergence": demur.report.convergence_figure(settled, names=[f"input {n}" for n in first[:3]]),
    }
    for name, figure in figures.items():
        figure.savefig(out / f"report-{name}.png", dpi=130)


def take_pictures(address: str, out: Path, readme: Path) -> None:
    """Take pictures of the page's beginning, and of its parts."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = {"executable_path": shutil.which("chromium"), "args": ["--no-sandbox", "--disable-gpu"]}
        browser = playwright.chromium.launch(**options)
        shown = browser.new_page(viewport={"width": 1000, "height": 800}, color_scheme="light")
        shown.goto(address)
        shown.add_style_tag(content="#controls { position: static !important; }")
        pictures = {out / f"report-{name}.png": shown.locator(where) for name, where in PARTS.items()}
        for path, part in pictures.items():
            part.screenshot(path=path)
        shown.set_viewport_size({"width": 1280, "height": 1500})
        shown.evaluate("scrollTo(0, 0)")
        shown.screenshot(path=readme)
        browser.close()
    for path in (*pictures, readme):  # a page has few colours
        Image.open(path).convert("RGB").quantize(256, Image.Quantize.FASTOCTREE).save(path, optimize=True)


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", type=Path, required=True, help="folder that demur demo wrote")
    parser.add_argument("--out", type=Path, required=True, help="folder of the pictures")
    parser.add_argument("--readme", type=Path, required=True, help="picture of the page's beginning")
    given = parser.parse_args()
    run = read_run(given.run)
    draw(run, given.out)
    with tempfile.TemporaryDirectory() as folder:
        written = page.write_page(gather_contents(run), Path(folder) / "report.html", top=6)
        take_pictures(written.resolve().as_uri(), given.out, given.readme)


if __name__ == "__main__":
    main()
