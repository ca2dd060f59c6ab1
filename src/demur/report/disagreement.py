"""Figures of disagreement: which members disagree, about which classes, and how K settles with more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from demur.core.arrays import to_numpy
from demur.divergences import Convergence
from demur.measures import Decomposition
from demur.report.figures import COLOURS, INFINITY, LINES, MARKERS, drawing, write_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MEMBERS_LABELLED = 12  # members up to which the values of a matrix are written into it
_CLASSES_SHOWN = 8  # those that contribute most to the epistemic part


def divergence_figure(matrix: Any, *, names: Sequence[str] | None = None, unit: str = "nats") -> Figure:
    """Draw the divergence of each member from each other.

    Parameters
    ----------
    matrix : array
        Square, as ``demur.divergences`` returns it for one input, or its mean over inputs.
    names : list of str, optional
        Names of the members; their numbers by default.
    unit : str
        Unit of the divergences.

    Examples
    --------
    >>> p = np.random.default_rng(0).dirichlet(np.ones(4), 5)
    >>> figure = demur.report.divergence_figure(demur.divergences(p))
    """
    values = np.asarray(matrix, dtype=float)
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise ValueError(f"matrix must have shape (members, members), of one input. Got {values.shape}.")
    count = len(values)
    shown = np.where(np.isfinite(values), values, np.nan)
    top = float(np.nanmax(shown)) or 1.0  # the diagonal is always finite
    side = min(6.0, max(2.6, 0.42 * count + 0.6))
    with drawing(side + 1.0, side) as (figure, axes):
        image = axes.imshow(shown, cmap="cividis", vmin=0, vmax=top)
        for i, j in np.argwhere(~np.isfinite(values)):
            axes.add_patch(_infinity_patch(float(j), float(i)))
        if count <= _MEMBERS_LABELLED:
            for (i, j), value in np.ndenumerate(values):
                light = not np.isfinite(value) or value > 0.6 * top
                text = write_number(value, 2 if top < 10 else 1) if i != j else ""
                axes.text(
                    j, i, text, ha="center", va="center", fontsize=6, color="black" if light else "white"
                )
        places = (
            np.arange(count)
            if count <= 2 * _MEMBERS_LABELLED
            else np.arange(0, count, -(-count // _MEMBERS_LABELLED))
        )
        labels = [str(names[i]) if names is not None else str(i) for i in places.tolist()]
        upright = max(map(len, labels)) > 3
        axes.set_xticks(places, labels, rotation=90 if upright else 0)
        axes.set_yticks(places, labels)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        axes.set(xlabel="from member", ylabel="of member")
        figure.colorbar(image, ax=axes, shrink=0.8, label=f"KL divergence ({unit})").outline.set_visible(
            False
        )
    return figure


def _infinity_patch(x: float, y: float) -> Any:
    """Return a hatched square, for an infinite value."""
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor="white", edgecolor="#999999", hatch="////", lw=0)


def decomposition_figure(
    found: Decomposition,
    shares: Any,
    *,
    names: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    unit: str = "nats",
) -> Figure:
    """Draw single inputs: aleatoric and epistemic uncertainty, and the classes that drive the epistemic part.

    Parameters
    ----------
    found : Decomposition
        The parts of a few inputs, (inputs,) each.
    shares : (inputs, classes) array
        What ``demur.attribute`` returns for the same inputs and measure.
    names, classes : list of str, optional
        Names of inputs and classes; their numbers by default.
    unit : str
        Unit of the uncertainties.

    Examples
    --------
    >>> p = np.random.default_rng(0).dirichlet(np.ones(4), (5, 3))
    >>> figure = demur.report.decomposition_figure(demur.decompose(p), demur.attribute(p))
    """
    aleatoric, epistemic, shares = (
        to_numpy(part) for part in (found.aleatoric, found.epistemic, np.asarray(shares))
    )
    if aleatoric.ndim != 1 or shares.ndim != 2 or len(shares) != len(aleatoric):
        raise ValueError(
            "Expected parts of shape (inputs,) and shares of shape (inputs, classes). "
            f"Got {aleatoric.shape} and {shares.shape}."
        )
    inputs = len(aleatoric)
    some = np.sort(np.argsort(-shares.max(axis=0), kind="stable")[:_CLASSES_SHOWN])
    finite = np.concatenate([aleatoric, (aleatoric + epistemic)[np.isfinite(epistemic)]])
    end = 1.15 * max(float(finite.max()), 1e-12)
    with drawing(6.6, 0.9 + 0.34 * inputs, columns=2) as (figure, (left, right)):
        rows = np.arange(inputs)
        left.barh(rows, aleatoric, 0.7, color=COLOURS[0], label="aleatoric")
        ends = np.where(np.isfinite(epistemic), epistemic, end - aleatoric)
        style: dict[str, Any] = {"edgecolor": "white", "linewidth": 0}
        bars = left.barh(rows, ends, 0.7, left=aleatoric, color=COLOURS[1], label="epistemic", **style)
        for row, (bar, value) in enumerate(zip(bars, epistemic, strict=True)):
            if not np.isfinite(value):
                bar.set_hatch("////")
                left.text(end, row, f" {INFINITY}", va="center", ha="left", fontsize=9, clip_on=False)
        left.set_yticks(rows, [str(n) for n in names] if names is not None else [str(r) for r in rows])
        left.invert_yaxis()
        left.set(xlim=(0, end), xlabel=f"uncertainty ({unit})", ylabel="input")
        left.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0)
        values = shares[:, some]
        shown = np.where(np.isfinite(values), values, np.nan)
        top = float(np.nanmax(shown)) if np.isfinite(values).any() else 0.0
        image = right.imshow(shown, cmap="cividis", vmin=0, vmax=top or 1.0, aspect="auto")
        for i, j in np.argwhere(~np.isfinite(values)):
            right.add_patch(_infinity_patch(float(j), float(i)))
            right.text(j, i, INFINITY, ha="center", va="center", fontsize=8)
        labels = [str(classes[c]) if classes is not None else str(c) for c in some.tolist()]
        right.set_xticks(np.arange(len(some)), labels, rotation=90 if max(map(len, labels)) > 3 else 0)
        right.set_yticks([])
        right.spines[:].set_visible(False)
        right.tick_params(length=0)
        right.set(
            xlabel="class"
            if len(some) == shares.shape[1]
            else f"class (the {len(some)} with the largest parts)"
        )
        figure.colorbar(image, ax=right, label=f"epistemic part ({unit})").outline.set_visible(False)
    return figure


def convergence_figure(
    found: Convergence, *, names: Sequence[str] | None = None, label: str = "epistemic part (nats)"
) -> Figure:
    """Draw how the epistemic part of inputs settles as members come, with standard errors.

    Parameters
    ----------
    found : Convergence
        What ``demur.convergence`` returned for up to six inputs. Infinite values are left out.
    names : list of str, optional
        Names of the inputs; their numbers by default.
    label : str
        Label of the axis.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(50, 2, 3))
    >>> figure = demur.report.convergence_figure(demur.convergence(logits=z))
    """
    sizes = len(found.members)
    values, errors = (
        np.asarray(part, dtype=float).reshape(sizes, -1) for part in (found.value, found.stderr)
    )
    if values.shape[1] > len(COLOURS):
        raise ValueError(
            f"Expected at most {len(COLOURS)} inputs, to tell them apart. Got {values.shape[1]}."
        )
    with drawing(4.6, 3.0) as (figure, axes):
        for index, (value, error) in enumerate(zip(values.T, errors.T, strict=True)):
            there = np.isfinite(value)
            name = str(names[index]) if names is not None else f"input {index}"
            # Inputs a little aside of each other, so that their bars can be told apart.
            at = found.members[there] * 1.012 ** (index - (values.shape[1] - 1) / 2)
            style: dict[str, Any] = {"marker": MARKERS[index], "markersize": 3.5, "capsize": 2, "lw": 1.1}
            axes.errorbar(
                at, value[there], np.nan_to_num(error[there]), color=COLOURS[index],
                ls=LINES[index % len(LINES)], elinewidth=0.8, label=name, **style,
            )  # fmt: skip
        ticks = found.members if sizes <= 6 else found.members[:: -(sizes // 5)]
        axes.set(xscale="log", xlabel="members", ylabel=label)
        axes.set_xticks(ticks, [str(t) for t in ticks])
        axes.set_xticks([], minor=True)
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        if values.shape[1] > 1 or names is not None:
            axes.legend(frameon=False, title="± one standard error", alignment="left")
    return figure
