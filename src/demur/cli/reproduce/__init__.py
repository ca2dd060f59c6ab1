"""`demur reproduce`: studies that others can repeat, each one command, each a file here."""

from __future__ import annotations

import typer

from demur.cli.reproduce import active_learning, bernoulli, precision, regression, tables

app = typer.Typer(help="Run a study again, from nothing to its tables and figures.")


@app.callback()
def _studies() -> None:
    pass  # with it, a study is named even while there is one only


app.command("bernoulli")(bernoulli.bernoulli)
app.command("table1")(tables.table1)
app.command("table2")(tables.table2)
app.command("precision")(precision.precision)
app.command("regression")(regression.regression)
app.command("active-learning")(active_learning.active_learning)
