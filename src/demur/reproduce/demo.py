"""The whole flow on handwritten digits: four posteriors, three sets of inputs, the paper's two tables."""

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
from demur.report import page
from demur.report.contents import ReportContents, gather_contents
from demur.report.run_folder import read_run
from demur.report.tables import PAPER, Table, kinds_of, table_of_scores
from demur.report.verdict import write_verdict
from demur.reproduce import digits
from demur.reproduce.attacks import projected_gradient
from demur.reproduce.threads import one_thread
from demur.tasks import Contest, contest
from demur.tasks.evaluation import ERRORS

_RADIUS = 0.1
"""How far the attack may move a pixel, of 1."""
_STEPS = 20
"""Of the attack."""
SETS = {"id": "known digits", "ood-unseen": "unseen digits", "adversarial-pgd": "attacked digits"}
METHODS = {
    "deep-ensemble": "10 networks, trained apart",
    "last-layers": "10 last layers on one network",
    "mc-dropout": "100 passes through one network with dropout",
    "cyclical-sghmc": "60 samples of one network's weights, by cyclical SG-HMC",
}
_HEADS = {"epochs": 100, "batch": 32, "rate": 1e-2}
_CHAIN = {
    "samples": 60, "cycles": 4, "steps": 3000, "batch_size": 100, "step_size": 0.1, "friction": 0.1,
    "exploration": 0.5, "prior_scale": 0.5,
}  # fmt: skip
_Say = Callable[[str], object]


@dataclass(frozen=True)
class Demo:
    """What came out.

    Attributes
    ----------
    sets
        Images and digits by set.
    scores
        By method and set.
    detection, errors
        The tables of the paper: inputs that are not known digits; mistakes and selective prediction.
    best, verdict
        The method that the report tells to use, and its verdict.
    """

    sets: dict[str, tuple[np.ndarray, np.ndarray]]
    scores: dict[str, dict[str, demur.Scores]]
    detection: Table
    errors: Table
    best: str = ""
    verdict: Sequence[str] = ()


def run(out: Path, *, seed: int, command: str, say: _Say) -> Demo:
    """Do all of it, and write it into a folder that is there."""
    data = digits.load(seed)
    with one_thread():
        say(f"Training on {len(data.train_images)} images of {digits.CLASSES[0]} to {digits.CLASSES[-1]} ...")
        methods = {}
        for name, posterior in _fitted(data, seed):
            methods[name] = posterior
            say(f"  {name}: {METHODS[name]}")
        network = methods["mc-dropout"].model
        network.eval()
        attacked = projected_gradient(
            network, data.images, data.digits, radius=_RADIUS, steps=_STEPS, seed=seed
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
            name: {which: _log_probabilities(posterior, images) for which, (images, _) in sets.items()}
            for name, posterior in methods.items()
        }
        for name, by_set in members.items():
            for which, values in by_set.items():
                np.save(out / name / f"members-{which}.npy", values)
    training = (
        f"{len(data.train_images)} images of the digits {digits.CLASSES[0]} to {digits.CLASSES[-1]}, of "
        f"scikit-learn's handwritten digits (load_digits, 8 by 8 pixels); {digits.NETWORK}; {digits.TRAINING}"
    )
    _write_facts(out / "run.json", seed, command, training, _sources(data))
    say("Measuring what the scores are good for ...")
    measured = gather_contents(read_run(out))
    found = Demo(sets, scores, *tables(measured, scores), measured.key[0], write_verdict(measured))
    (out / "tables.md").write_text(f"{found.detection.markdown()}\n\n{found.errors.markdown()}\n", "utf-8")
    (out / "tables.tex").write_text(f"{found.detection.latex()}\n\n{found.errors.latex()}\n", "utf-8")
    say("Drawing ...")
    draw(out / "figures", found, members)
    page.write_page(measured, out / "report.html")
    return found


def _fitted(data: digits.Digits, seed: int) -> Iterator[tuple[str, Any]]:
    """Yield the four posteriors of the paper, each as it is fitted."""
    import torch

    given = {"images": data.train_images, "digits": data.train_digits}
    pair = torch.from_numpy(data.train_images), torch.from_numpy(data.train_digits)
    ensemble = demur.posteriors.DeepEnsemble.fit(
        digits.network, functools.partial(digits.train, **given), 10, seed=seed
    )
    yield "deep-ensemble", ensemble
    network = ensemble.models[0]
    training = demur.posteriors.HeadTraining(**_HEADS)
    yield "last-layers", demur.posteriors.LastLayer.fit(network, [pair], 10, training=training, seed=seed)
    yield "mc-dropout", demur.posteriors.MCDropout(network, samples=100, seed=seed)
    yield "cyclical-sghmc", demur.posteriors.CyclicalSGHMC(network, pair, seed=seed, **_CHAIN).fit()


def _log_probabilities(posterior: demur.posteriors.Posterior, images: np.ndarray) -> np.ndarray:
    """Return what each member predicts, (members, inputs, classes)."""
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
        pictures = 255 - (images.reshape(-1, 8, 8) * 255).round()  # ink on paper
        np.save(out / "images" / f"{which}.npy", pictures.astype(np.uint8))
    for name, by_set in scores.items():
        (out / name).mkdir(exist_ok=True)
        for which, found in by_set.items():
            found.save(out / name / f"{which}.csv", force=True)


def tables(measured: ReportContents, scores: Mapping[str, Mapping[str, demur.Scores]]) -> tuple[Table, Table]:
    """Return the tables of the paper for this data; best figures and ties by the tests of the report."""
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
    return _joined(contests), replace(_joined(errors), rare="mistakes")


def _joined(contests: Mapping[str, Contest]) -> Table:
    """Return one table with a section for each contest."""
    parts = {section: table_of_scores(found, PAPER) for section, found in contests.items()}
    order = list(METHODS)
    rows = [
        replace(row, section=section)
        for section, part in parts.items()
        for row in sorted(part.rows, key=lambda row: order.index(row.name))
    ]
    return replace(next(iter(parts.values())), rows=rows)


def draw(where: Path, found: Demo, members: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Write the figures."""
    where.mkdir(exist_ok=True)
    report = demur.report
    by_set = found.scores["deep-ensemble"]
    pairwise = {SETS[which]: scores["pairwise"].epistemic for which, scores in by_set.items()}
    both = {
        SETS[which]: (scores["average"].epistemic, scores["pairwise"].epistemic)
        for which, scores in by_set.items()
    }
    rocs = {
        name: demur.tasks.detection(
            scores["id"]["pairwise"].epistemic, scores["ood-unseen"]["pairwise"].epistemic
        )
        for name, scores in found.scores.items()
    }
    kept = {
        name: demur.tasks.selective(scores["id"]["pairwise"].epistemic, scores["id"].correct)
        for name, scores in found.scores.items()
    }
    strangest = np.argsort(-by_set["ood-unseen"]["pairwise"].epistemic, kind="stable")[:6]
    chosen = members["deep-ensemble"]["ood-unseen"][:, strangest]
    dropout = members["mc-dropout"]["ood-unseen"][:, :4]
    names = [f"an {found.sets['ood-unseen'][1][index]}, input {index}" for index in strangest]
    names = [name.replace("an 9", "a 9") for name in names]
    figures = {
        "densities": report.density_figure(pairwise, label="K of the deep ensemble (nats)"),
        "k-against-i": report.scatter_figure(both),
        "roc-unseen": report.roc_figure(rocs, bands=False),
        "accuracy-kept": report.accuracy_figure(kept, band=False),
        "most-uncertain": report.decomposition_figure(
            demur.decompose(log_probs=chosen), demur.attribute(log_probs=chosen), names=names,
            classes=digits.CLASSES,
        ),
        "divergences": report.divergence_figure(demur.divergences(log_probs=chosen)[..., 0]),
        "convergence": report.convergence_figure(demur.convergence(log_probs=dropout)),
    }  # fmt: skip
    titles = {
        "densities": "K of the deep ensemble, by set",
        "k-against-i": "K against I of the deep ensemble, by set",
        "roc-unseen": "Unseen against known digits, by K",
        "accuracy-kept": "Accuracy on known digits, the lowest K kept first",
        "most-uncertain": "Deep ensemble: the unseen digits with the largest K",
        "divergences": f"Deep ensemble, {names[0]}: divergence of its networks",
        "convergence": "K of four unseen digits, by MC dropout",
    }
    for name, figure in figures.items():
        figure.suptitle(titles[name], fontsize=9)
        report.save(figure, where, name)


def _sources(data: digits.Digits) -> dict[str, str]:
    """Return how the inputs of each set came about."""
    known = f"{len(data.images)} other images of the digits {digits.CLASSES[0]} to {digits.CLASSES[-1]}"
    strange = " and ".join(map(str, np.unique(data.strange_digits)))
    return {
        "id": known,
        "ood-unseen": f"{len(data.strange_images)} images of the digits {strange}, which no network learned",
        "adversarial-pgd": f"the {known}, changed so that a network errs: projected gradient descent, "
        f"{_STEPS} steps, each pixel within {_RADIUS:g} of its value (0 is white, 1 is black), against the "
        "first network of the deep ensemble, without dropout; the other methods start from that network too",
    }


def _write_facts(path: Path, seed: int, command: str, training: str, origins: Mapping[str, str]) -> None:
    """Write where all of it comes from."""
    import sklearn
    import torch

    versions = {
        "demur": demur.__version__, "python": platform.python_version(), "numpy": np.__version__,
        "torch": torch.__version__, "scikit-learn": sklearn.__version__,
    }  # fmt: skip
    settings = {"last-layers": _HEADS, "cyclical-sghmc": _CHAIN}
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
    path.write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
