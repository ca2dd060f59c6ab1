"""Compiled loops for a linear layer with few classes: logits under dropout, and the gradient of labels."""

from __future__ import annotations

# numba, not Python, calls these functions.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import math

import numpy as np
from numba import njit
from numba.extending import intrinsic

from demur.kernels import vectors
from demur.kernels.compiling import AS_WRITTEN, COMPILED, cached, cached_as_written
from demur.kernels.vectors import LANES
from demur.posteriors.dropout.compiled_masks import allocate, apply_mask, pad_features, start_sequence

_SUMMED = {**COMPILED, "fastmath": {"contract", "reassoc"}}
"""Sums of products may be reordered."""

_ROWS_TOGETHER = 4
"""Rows multiplied at a time: their sums for two classes fit in the processor's registers."""


@njit(**_SUMMED)
def _multiply(rows, weight, bias, out):
    """Write the logits of ``_ROWS_TOGETHER`` rows of features, each independent of the others."""
    a, b, c, d = rows
    for one in range(0, bias.size, 2):
        other = min(one + 1, bias.size - 1)
        v, w = weight[one], weight[other]
        av = bv = cv = dv = aw = bw = cw = dw = bias.dtype.type(0)
        for k in range(v.size):
            av += a[k] * v[k]
            bv += b[k] * v[k]
            cv += c[k] * v[k]
            dv += d[k] * v[k]
            aw += a[k] * w[k]
            bw += b[k] * w[k]
            cw += c[k] * w[k]
            dw += d[k] * w[k]
        own, its = bias[one], bias[other]
        out[0, one], out[1, one], out[2, one], out[3, one] = av + own, bv + own, cv + own, dv + own
        out[0, other], out[1, other], out[2, other], out[3, other] = aw + its, bw + its, cw + its, dw + its


@intrinsic
def _add_product(typing_context, total, left, right):
    """Return ``total + left right``, rounded twice: NumPy cannot round such a sum once."""
    return total(total, total, total), lambda context, builder, signature, arguments: builder.fadd(
        arguments[0], builder.fmul(*arguments[1:])
    )


@njit(**AS_WRITTEN)
def _multiply_in_lanes(rows, weight, bias, out):
    """Write the logits of ``_ROWS_TOGETHER`` rows as ``plain_products.multiply_in_lanes`` does."""
    a, b, c, d = rows
    for one in range(0, bias.size, 2):
        other = min(one + 1, bias.size - 1)
        v, w, own, its = weight[one], weight[other], bias[one], bias[other]
        none = vectors.spread(bias.dtype.type(0))
        av, bv, cv, dv, aw, bw, cw, dw = none, none, none, none, none, none, none, none
        for k in range(0, v.size, LANES):
            of_v, of_w = vectors.load(v, k), vectors.load(w, k)
            row = vectors.load(a, k)
            av, aw = _add_product(av, row, of_v), _add_product(aw, row, of_w)
            row = vectors.load(b, k)
            bv, bw = _add_product(bv, row, of_v), _add_product(bw, row, of_w)
            row = vectors.load(c, k)
            cv, cw = _add_product(cv, row, of_v), _add_product(cw, row, of_w)
            row = vectors.load(d, k)
            dv, dw = _add_product(dv, row, of_v), _add_product(dw, row, of_w)
        out[0, one], out[0, other] = vectors.add_up(av) + own, vectors.add_up(aw) + its
        out[1, one], out[1, other] = vectors.add_up(bv) + own, vectors.add_up(bw) + its
        out[2, one], out[2, other] = vectors.add_up(cv) + own, vectors.add_up(cw) + its
        out[3, one], out[3, other] = vectors.add_up(dv) + own, vectors.add_up(dw) + its


@njit(**COMPILED)
def _add_outer(factors, rows, out):
    """Add the products of ``_ROWS_TOGETHER`` factors per class with as many rows."""
    a, b, c, d = rows
    for one in range(out.shape[0]):
        own = out[one]
        of_a, of_b, of_c, of_d = factors[0, one], factors[1, one], factors[2, one], factors[3, one]
        for k in range(own.size):
            own[k] += (of_a * a[k] + of_b * b[k]) + (of_c * c[k] + of_d * d[k])


@cached_as_written
def multiply_masked(seed, members, places, whole, below, values, weight, bias, out):
    """Write the logits of masked features, as ``compiled_masks.apply_masks`` and a product would.

    ``values`` are (inputs, features), ``out`` is (members, inputs, classes).
    """
    inputs, features = values.shape
    classes, padded, kind = bias.size, pad_features(values.shape[1]), values.dtype
    own, logits = allocate(features), np.empty((_ROWS_TOGETHER, classes), kind)
    wide, layer = np.zeros(padded, kind), np.zeros((classes, padded), kind)
    for k in range(classes):
        for feature in range(features):
            layer[k, feature] = weight[k, feature]
    rows = (np.zeros(padded, kind), np.zeros(padded, kind), np.zeros(padded, kind), np.zeros(padded, kind))
    for b in range(inputs):
        for feature in range(features):
            wide[feature] = values[b, feature]
        for first in range(0, members.size, _ROWS_TOGETHER):
            some = min(_ROWS_TOGETHER, members.size - first)
            for m in range(some):
                start = start_sequence(seed, members[first + m], places[b])
                apply_mask(start, whole, below, own, wide, features, rows[m])
            _multiply_in_lanes(rows, layer, bias, logits)
            for m in range(some):
                for k in range(classes):
                    out[first + m, b, k] = logits[m, k]


@cached
def compute_gradient(inputs, labels, batch, weight, bias, by_weight, by_bias):
    """Return the average log-likelihood of the labels of a batch, and write its gradient.

    ``batch`` holds the numbers of its rows in ``inputs`` and ``labels``. Weights and their gradient are flat.
    """
    classes, features, kind = bias.size, inputs.shape[1], weight.dtype.type
    layer, by_layer = weight.reshape((classes, features)), by_weight.reshape((classes, features))
    missing, share, total = np.empty((_ROWS_TOGETHER, classes), weight.dtype), kind(1 / batch.size), 0.0
    by_weight[:] = kind(0)
    sums = np.zeros(classes)  # float64: a sum over many rows, one after the other
    last = batch.size - 1
    for first in range(0, batch.size, _ROWS_TOGETHER):
        rows = (
            inputs[batch[first]],
            inputs[batch[min(first + 1, last)]],
            inputs[batch[min(first + 2, last)]],
            inputs[batch[min(first + 3, last)]],
        )
        _multiply(rows, layer, bias, missing)
        for row in range(_ROWS_TOGETHER):
            own = missing[row]
            if first + row > last:
                own[:] = kind(0)
                continue
            label, largest, whole = labels[batch[first + row]], own.max(), kind(0)
            total += own[label] - largest
            for k in range(classes):
                own[k] = math.exp(own[k] - largest)
                whole += own[k]
            total -= math.log(whole)
            # One for the label's class, less the probabilities.
            scale = -share / whole
            for k in range(classes):
                own[k] *= scale
            own[label] += share
            for k in range(classes):
                sums[k] += own[k]
        _add_outer(missing, rows, by_layer)
    for k in range(classes):
        by_bias[k] = kind(sums[k])
    return total / batch.size
