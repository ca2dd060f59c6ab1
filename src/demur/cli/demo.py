"""`demur demo`: the whole flow on real images that ship with scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demur.cli.printing import (
    bad_input_exits,
    new_table,
    number,
    print_table,
    print_top,
)
from demur.progress import progress_bar

if TYPE_CHECKING:
    import numpy as np

    from demur.cli.digits import Digits
    from demur.stores import ScoreTable


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write everything.")],
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same numbers.")] = 0,
    force: Annotated[
        bool, typer.Option("--force", help="Write into a directory that has files in it.")
    ] = False,
) -> None:
    """Train ten small networks on the digits 0 to 7, score unseen digits, and 8 and 9, and draw it.

    Takes less than a minute and needs the extra named report.
    """
    with bad_input_exits():
        require_report()
        files = prepare(out, force=force)
        from demur.cli import digits
        from demur.cli.score import score_files
        from demur.stores import write_columns

        data = digits.load(seed)
        train(data, files, seed)
        write_labels(out / "labels.csv", data, force=force)
        scores = score_files(
            [str(file) for file in files],
            "log_probs",
            options={"rule": "log", "base": None, "unbiased": False, "stderr": False},
        )
        write_columns(out / "scores.csv", scores.columns, force=force)
        from demur.cli.figure import draw

        draw(out / "demo.png", scores.columns, data.held_out)
    report(out, scores, data)


def require_report() -> None:
    """Raise a `ValueError` unless scikit-learn and matplotlib are there."""
    try:
        import matplotlib  # noqa: F401
        import sklearn  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"expected {error.name}, which the demo trains or draws with, found none: "
            "pip install 'demur[report]'"
        ) from error


def prepare(out: Path, *, force: bool) -> list[Path]:
    """Make the directory; return where the members' predictions go."""
    from demur.cli.digits import MEMBERS
    from demur.stores import make_directory

    make_directory(out, force=force)
    (out / "members").mkdir(exist_ok=True)
    return [out / "members" / f"member_{index}.npy" for index in range(MEMBERS)]


def train(data: Digits, files: list[Path], seed: int) -> None:
    """Train a member for each file and write its log-probabilities there."""
    import numpy as np

    from demur.cli.digits import predict

    with progress_bar(len(files), "members trained") as progress:
        for index, file in enumerate(files):
            np.save(file, predict(data, seed=1000 * seed + index))
            progress(index + 1)


def write_labels(path: Path, data: Digits, *, force: bool) -> None:
    """Write what each input really is, in the order of the scores."""
    import numpy as np

    from demur.stores import write_columns

    columns = {
        "input": np.arange(len(data.digits)),
        "digit": data.digits,
        "held_out": data.held_out.astype(int),
    }
    write_columns(path, columns, force=force)


def report(out: Path, scores: ScoreTable, data: Digits) -> None:
    """Print what came out, and where everything is."""
    import numpy as np
    from sklearn.metrics import roc_auc_score

    known = ~data.held_out
    right: np.ndarray = scores.columns["prediction"][known] == data.digits[known]
    print(
        f"{scores.members} networks, trained on the digits 0 to 7. "
        f"Accuracy of their average on {known.sum()} test images: {right.mean():.3f}"
    )
    table = new_table("measure", "mean, known", "mean, held out", "AUROC", texts=1)
    for measure in scores.measures:
        values = scores.columns[f"{measure}_epistemic"]
        # A ranking needs no infinity, and scikit-learn takes none.
        area = roc_auc_score(data.held_out, np.minimum(values, np.finfo(values.dtype).max))
        table.add_row(measure, number(values[known].mean()), number(values[~known].mean()), f"{area:.4f}")
    print_table(
        f"Epistemic uncertainty in nats: {known.sum()} known digits (0 to 7), "
        f"{data.held_out.sum()} held-out ones (8, 9)",
        table,
    )
    print("AUROC: how often a held-out digit is more uncertain than a known one.")
    print("The measures rank these images almost alike; here none is better than another.")
    print_top(scores, 5, "nats", {"digit": data.digits})
    print(f"\nPredictions  {out / 'members'}/member_*.npy")
    print(f"Scores       {out / 'scores.csv'}")
    print(f"True digits  {out / 'labels.csv'}")
    print(f"Figure       {out / 'demo.png'}")
    print(f"Again        demur score '{out / 'members'}/*.npy' --log-probs --top 5")
