"""Headless Chromium for the pages, and folders of runs.

Where there is no Chromium the tests are skipped and say so; with DEMUR_BROWSER=required they fail instead.
"""

import json
import os
import shutil

import numpy as np
import pytest

import demur
from demur.stores import write_columns

ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
    "--disable-dev-shm-usage",
]  # fmt: skip


@pytest.fixture(scope="session")
def browser():
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        message = "needs Chromium on the path: apt-get install chromium"
        if os.environ.get("DEMUR_BROWSER") == "required":
            pytest.fail(message)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, request):
    """Open a page, by default the module's `address`; it must ask for nothing else and not complain."""
    asked, complaints, contexts, addresses = set(), [], [], {"data:,"}

    def opened(address=None, **options):
        address = address or request.getfixturevalue("address")
        addresses.add(address)
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: asked.add(request.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda line: complaints.append(line.text) if line.type != "log" else None)
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert {url for url in asked if not url.startswith("data:image/png")} <= addresses
    assert complaints == []


@pytest.fixture(scope="session")
def contrast():
    """Contrast of two colours of a page by the formula of WCAG 2."""

    def of(page, front, back):
        levels = []
        for name in (front, back):
            colour = page.evaluate(
                "name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()", name
            )
            shares = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
            linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in shares]
            levels.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
        return (max(levels) + 0.05) / (min(levels) + 0.05)

    return of


@pytest.fixture(scope="session")
def write_run():
    """Write the folder of a run: members with logits of given size, scored by the library."""

    def written(folder, *, methods=("",), sets=("id", "ood-far"), number=300, labels=True, images=None,
                members=True, classes=4, seed=0, suffix=".npz", facts=None, names=None):  # fmt: skip
        rng = np.random.default_rng(seed)
        for place, method in enumerate(methods):
            own = folder / method
            own.mkdir(parents=True, exist_ok=True)
            for name in sets:
                known = not name.startswith("ood")
                centre = rng.normal(size=(number, classes)) * (3 if known else 1)
                logits = centre + rng.normal(size=(5, number, classes)) * (0.7 if known else 2 - 0.3 * place)
                log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
                prediction = np.exp(log_probs).mean(0).argmax(-1)
                columns = {"input": np.arange(number)}
                if names is not None:
                    columns["id"] = np.array([names(i) for i in range(number)])
                if labels:
                    noise = np.argmax(3 * centre + rng.gumbel(size=centre.shape), axis=-1)
                    columns["label"] = noise
                columns["prediction"] = prediction
                for measure in ("pairwise", "average", "reverse"):
                    parts = demur.decompose(log_probs=log_probs, measure=measure).to_dict()
                    columns |= {f"{measure}_{part}": values for part, values in parts.items()}
                write_columns(own / f"{name}{suffix}", columns)
                if members:
                    np.save(own / f"members-{name}.npy", log_probs)
                if images is not None:
                    (folder / "images").mkdir(exist_ok=True)
                    np.save(
                        folder / "images" / f"{name}.npy", rng.integers(0, 256, (number, *images), np.uint8)
                    )
        if facts is not None:
            (folder / "run.json").write_text(json.dumps(facts), encoding="utf-8")
        return folder

    return written
