"""`demur reproduce`: studies that others can repeat, one command and one file each."""

from __future__ import annotations

import typer

from demur.cli.reproduce import (
    active_learning,
    bernoulli,
    cifar10,
    inference,
    language,
    precision,
    regression,
    tables,
)

app = typer.Typer(help="Repeat a study, from its data to its tables and figures.")


@app.callback()
def _studies() -> None:
    pass  # a group with a callback keeps the name of the study on the command line


app.command("bernoulli")(bernoulli.bernoulli)
app.command("table1")(tables.table1)
app.command("table2")(tables.table2)
app.command("precision")(precision.precision)
app.command("regression")(regression.regression)
app.command("active-learning")(active_learning.active_learning)
app.command("inference")(inference.inference)
app.command("cifar10")(cifar10.cifar10)
app.command("language")(language.language)
