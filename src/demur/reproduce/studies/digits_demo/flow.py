"""The whole workflow on handwritten digits: four posteriors, three sets of inputs, the paper's two tables."""

from __future__ import annotations

import functools
import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import demur
from demur.atomic import open_file, write_text
from demur.report import page
from demur.report.contents import ReportContents, gather_contents
from demur.report.run_folder import read_run
from demur.report.table_forms import Table
from demur.report.tables import PAPER, kinds_of, table_of_scores
from demur.report.verdict import write_verdict
from demur.reproduce.networks.attacks import attack_by_projected_gradient
from demur.reproduce.networks.threads import use_one_thread
from demur.reproduce.studies.digits_demo import digits
from demur.reproduce.studies.digits_demo.drifting import WatchedDigits, watch_drifting_digits
from demur.reproduce.studies.digits_demo.figures import write_figures
from demur.tasks import Contest, contest
from demur.tasks.evaluation import ERRORS

_ATTACK_RADIUS = 0.1
"""How far the attack may move a pixel; pixels are from 0 to 1."""
_ATTACK_STEPS = 20
SETS = {"id": "known digits", "ood-unseen": "unseen digits", "adversarial-pgd": "attacked digits"}
METHODS = {
    "deep-ensemble": "10 networks, trained apart",
    "last-layers": "10 last layers on one network",
    "mc-dropout": "100 passes through one network with dropout",
    "cyclical-sghmc": "60 samples of one network's weights, by cyclical SG-HMC",
}
_HEAD_SETTINGS = {"epochs": 100, "batch": 32, "rate": 1e-2}
_CHAIN_SETTINGS = {
    "samples": 60, "cycles": 4, "steps": 3000, "batch_size": 100, "step_size": 0.1, "friction": 0.1,
    "exploration": 0.5, "prior_scale": 0.5,
}  # fmt: skip
_Say = Callable[[str], object]


@dataclass(frozen=True)
class DemoResults:
    """The results.

    Attributes
    ----------
    sets
        Images and digits by set.
    scores
        By method and set.
    detection, errors
        The two tables of the paper: detection of unseen and attacked digits; misclassification and selective
        prediction.
    best, verdict
        The method that the report recommends, and its verdict.
    watched
        What a monitor finds while the digits turn.
    """

    sets: dict[str, tuple[np.ndarray, np.ndarray]]
    scores: dict[str, dict[str, demur.Scores]]
    detection: Table
    errors: Table
    watched: WatchedDigits
    best: str = ""
    verdict: Sequence[str] = ()


def run_demo(out: Path, *, seed: int, command: str, say: _Say) -> DemoResults:
    """Train, score, evaluate and draw, and write everything into an existing folder."""
    data = digits.load_images(seed)
    with use_one_thread():
        say(f"Training on {len(data.train_images)} images of {digits.CLASSES[0]} to {digits.CLASSES[-1]} ...")
        methods = {}
        for name, posterior in _fit_posteriors(data, seed):
            methods[name] = posterior
            say(f"  {name}: {METHODS[name]}")
        network = methods["mc-dropout"].model
        network.eval()
        attacked = attack_by_projected_gradient(
            network, data.images, data.digits, radius=_ATTACK_RADIUS, steps=_ATTACK_STEPS, seed=seed
        )
        sets = {
            "id": (data.images, data.digits),
            "ood-unseen": (data.strange_images, data.strange_digits),
            "adversarial-pgd": (attacked, data.digits),
        }
        say(f"Scoring {sum(len(labels) for _, labels in sets.values())} images by {len(methods)} methods ...")
        scores = {
            name: {which: demur.score(posterior, [given]) for which, given in sets.items()}
            for name, posterior in methods.items()
        }
        _write_scores(out, sets, scores)
        members = {
            name: {which: _predict_log_probs(posterior, images) for which, (images, _) in sets.items()}
            for name, posterior in methods.items()
        }
        for name, by_set in members.items():
            for which, values in by_set.items():
                _save_array(out / name / f"members-{which}.npy", values)
        say("Watching a policy while digits turn ...")
        ensemble = methods["deep-ensemble"], scores["deep-ensemble"]["id"]
        watched = watch_drifting_digits(*ensemble, data.images, data.digits, out, seed=seed)
    training = (
        f"{len(data.train_images)} images of the digits {digits.CLASSES[0]} to {digits.CLASSES[-1]}, of "
        f"scikit-learn's handwritten digits (load_digits, 8 by 8 pixels); {digits.NETWORK_DESCRIPTION}; "
        f"{digits.TRAINING_DESCRIPTION}"
    )
    _write_facts(out / "run.json", seed, command, training, _describe_sets(data))
    say("Evaluating the scores ...")
    measured = gather_contents(read_run(out))
    found = DemoResults(
        sets, scores, *_build_tables(measured, scores), watched, measured.key[0], write_verdict(measured)
    )
    write_text(out / "tables.md", f"{found.detection.markdown()}\n\n{found.errors.markdown()}\n")
    write_text(out / "tables.tex", f"{found.detection.latex()}\n\n{found.errors.latex()}\n")
    say("Drawing the figures ...")
    write_figures(out / "figures", scores, members, SETS, data.strange_digits)
    page.write_page(measured, out / "report.html")
    return found


def _fit_posteriors(data: digits.DigitImages, seed: int) -> Iterator[tuple[str, Any]]:
    """Yield the four posteriors of the paper, each once it is fitted."""
    import torch

    given = {"images": data.train_images, "digits": data.train_digits}
    pair = torch.from_numpy(data.train_images), torch.from_numpy(data.train_digits)
    ensemble = demur.posteriors.DeepEnsemble.fit(
        digits.build_network, functools.partial(digits.train_network, **given), 10, seed=seed
    )
    yield "deep-ensemble", ensemble
    network = ensemble.models[0]
    training = demur.posteriors.HeadTraining(**_HEAD_SETTINGS)
    yield "last-layers", demur.posteriors.LastLayer.fit(network, [pair], 10, training=training, seed=seed)
    yield "mc-dropout", demur.posteriors.MCDropout(network, samples=100, seed=seed)
    yield "cyclical-sghmc", demur.posteriors.CyclicalSGHMC(network, pair, seed=seed, **_CHAIN_SETTINGS).fit()


def _predict_log_probs(posterior: demur.posteriors.Posterior, images: np.ndarray) -> np.ndarray:
    """Return the log-probabilities of each member, (members, inputs, classes)."""
    import torch

    logits = torch.cat(
        [chunk[0] if isinstance(chunk, tuple) else chunk for chunk in posterior.predict(images)]
    )
    return torch.log_softmax(logits.double(), -1).numpy()


def _write_scores(
    out: Path,
    sets: Mapping[str, tuple[np.ndarray, np.ndarray]],
    scores: Mapping[str, Mapping[str, demur.Scores]],
) -> None:
    """Write scores by method and set, and the images beside them."""
    (out / "images").mkdir(exist_ok=True)
    for which, (images, _) in sets.items():
        pictures = 255 - (images.reshape(-1, 8, 8) * 255).round()  # dark on light
        _save_array(out / "images" / f"{which}.npy", pictures.astype(np.uint8))
    for name, by_set in scores.items():
        (out / name).mkdir(exist_ok=True)
        for which, found in by_set.items():
            found.save(out / name / f"{which}.csv", force=True)


def _save_array(path: Path, values: np.ndarray) -> None:
    """Write an array as .npy."""
    with open_file(path) as file:
        np.save(file, values)


def _build_tables(
    measured: ReportContents, scores: Mapping[str, Mapping[str, demur.Scores]]
) -> tuple[Table, Table]:
    """Return the two tables of the paper for these data, with best figures and ties by the report's tests."""
    known = {name: by_set["id"] for name, by_set in scores.items()}
    correct = {name: found.correct for name, found in known.items()}
    kinds = kinds_of(PAPER)
    tested = {task: each.regroup(kinds) for task, each in measured.evaluation.contests.items()}
    contests = {f"{SETS[which]}, AUROC": tested[which] for which in SETS if which != "id"}
    own = {name: {each: found.columns[each] for each in PAPER} for name, found in known.items()}
    errors = {
        "mistakes, AUROC": tested[ERRORS],
        "kept, AUC": contest(own, "selective", correct=correct, groups=kinds),
    }
    return _join_contests(contests), replace(_join_contests(errors), rare="mistakes")


def _join_contests(contests: Mapping[str, Contest]) -> Table:
    """Return one table with a section for each contest."""
    parts = {section: table_of_scores(found, PAPER) for section, found in contests.items()}
    order = list(METHODS)
    rows = [
        replace(row, section=section)
        for section, part in parts.items()
        for row in sorted(part.rows, key=lambda row: order.index(row.name))
    ]
    return replace(next(iter(parts.values())), rows=rows)


def _describe_sets(data: digits.DigitImages) -> dict[str, str]:
    """Return where the inputs of each set come from."""
    known = f"{len(data.images)} other images of the digits {digits.CLASSES[0]} to {digits.CLASSES[-1]}"
    strange = " and ".join(map(str, np.unique(data.strange_digits)))
    return {
        "id": known,
        "ood-unseen": f"{len(data.strange_images)} images of the digits {strange}, which no network learned",
        "adversarial-pgd": f"the {known}, changed so that a network errs: projected gradient descent, "
        f"{_ATTACK_STEPS} steps, each pixel within {_ATTACK_RADIUS:g} of its value (0 is white, 1 is black), "
        "against the first network of the deep ensemble, without dropout; the other methods start from that "
        "network too",
    }


def _write_facts(path: Path, seed: int, command: str, training: str, origins: Mapping[str, str]) -> None:
    """Write the provenance of the run."""
    import sklearn
    import torch

    versions = {
        "demur": demur.__version__, "python": platform.python_version(), "numpy": np.__version__,
        "torch": torch.__version__, "scikit-learn": sklearn.__version__,
    }  # fmt: skip
    settings = {"last-layers": _HEAD_SETTINGS, "cyclical-sghmc": _CHAIN_SETTINGS}
    methods = {
        name: "; ".join([what, *(f"{each} {value:g}" for each, value in settings.get(name, {}).items())])
        for name, what in METHODS.items()
    }
    facts = {
        "title": "Handwritten digits: 0 to 7 learned, 8 and 9 unseen", "command": command,
        "training": training, "methods": methods, "seed": seed, "versions": versions,
        "classes": digits.CLASSES,
        "sets": SETS,
        "sources": origins,
    }  # fmt: skip
    write_text(path, json.dumps(facts, indent=1) + "\n")
