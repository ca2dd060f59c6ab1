"""`Stream`: positions of sequences in chunks, all members at each; memory does not grow with the text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from scipy.special import logsumexp

from demur.core import arrays
from demur.core.arrays import Array, ArrayLike
from demur.core.parts_as_text import Reading
from demur.core.rounding import warn_if_infinite
from demur.core.rules import LOG
from demur.measures import Decomposition, Measure, MeasureName, check_base, from_summary, name_unit, resolve
from demur.moments import Moments
from demur.predictions import Categorical, as_prediction, gather
from demur.sequences.compiled_calls import takes_few
from demur.sequences.prefix_weights import weigh_prefixes
from demur.sequences.sequence_decomposition import SequenceDecomposition
from demur.sequences.step_figures import (
    compute_few_figures,
    compute_prefix_figures,
    compute_step_figures,
    figures_of_sums,
)
from demur.sequences.stream_checks import check_prior, locate_error, refuse_empty
from demur.sequences.token_log_likelihoods import check_mask, check_tokens, look_up_tokens

Average = Literal["step", "sequence"]

_NUMBERS_AT_ONCE = 1 << 24
"""Numbers of a chunk that are looked at together: enough for every thread, and of little memory."""


class Stream:
    """Uncertainty of tokens and sequences from positions that come in chunks.

    Between chunks it keeps a few numbers per token and none per word of the vocabulary, so that a text may be
    as long as you like.

    Parameters
    ----------
    average
        How to average members: ``"step"``, alike at each position, or ``"sequence"``, by how likely each of
        them found the tokens before; needs tokens.
    weights
        Shape (members,), or (members, inputs); None: all the same.

    Examples
    --------
    Two members read two texts of 6 tokens, 3 positions at a time:

    >>> rng = np.random.default_rng(0)
    >>> logits, tokens = rng.normal(size=(2, 2, 6, 50)), rng.integers(50, size=(2, 6))
    >>> stream = demur.sequences.Stream(average="sequence")
    >>> for begin in (0, 3):
    ...     part = slice(begin, begin + 3)
    ...     _ = stream.update(logits=logits[:, :, part], tokens=tokens[:, part])
    >>> stream.decompose("pairwise").sequence.epistemic.shape
    (2,)
    """

    def __init__(self, *, average: Average = "step", weights: ArrayLike | None = None) -> None:
        if average not in ("step", "sequence"):
            raise ValueError(f"average must be 'step' or 'sequence'. Got {average!r}.")
        self.average: Average = average
        self._given_weights = weights
        self._prior: np.ndarray | None = None  # (members, inputs), summing to 1 over members
        self._seen: np.ndarray | None = None  # log-likelihood of the tokens so far, (members, inputs)
        self._masks: list[np.ndarray] = []
        self._figures: list[np.ndarray] = []
        self._likelihoods: list[np.ndarray] = []
        self._averaged: list[np.ndarray] = []
        self._like: Array = np.empty(0)
        self._double = self._from_probs = False

    def update(
        self,
        probs: ArrayLike | None = None,
        *,
        logits: ArrayLike | Iterable[ArrayLike] | None = None,
        log_probs: ArrayLike | Iterable[ArrayLike] | None = None,
        tokens: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        _known: np.ndarray | None = None,  # log-probabilities of the tokens, (members, inputs, positions)
    ) -> Stream:
        """Add some positions, with all members.

        Parameters
        ----------
        probs, logits, log_probs
            Exactly one of them, (members, inputs, positions, vocabulary). Or an iterator that yields the
            members one after the other, each (inputs, positions, vocabulary).
        tokens
            The tokens that came, (inputs, positions): token l is an outcome of the distribution at l.
        mask
            True where a position counts, (inputs, positions); None: everywhere.
        """
        given = {"probs": probs, "logits": logits, "log_probs": log_probs}
        one_by_one = {name: each for name, each in given.items() if hasattr(each, "__next__")}
        if one_by_one and self.average == "step":
            if sum(each is not None for each in given.values()) > 1:
                raise ValueError("Expected exactly one of probs, logits and log_probs. Got several.")
            ((kind, members),) = one_by_one.items()
            self._add_members_one_by_one(kind, members, tokens, mask)
            return self
        given |= {name: list(each) for name, each in one_by_one.items()}
        prediction = as_prediction(given["probs"], given["logits"], given["log_probs"])
        if not isinstance(prediction, Categorical) or len(prediction.shape) != 4:
            raise ValueError(
                "Expected members, inputs, positions and vocabulary, 4 axes. "
                f"Got shape {tuple(prediction.shape)}. For one text add an axis: array[:, None]."
            )
        refuse_empty(prediction.shape)
        members, inputs, positions, vocabulary = prediction.shape
        kept, came = self._check_chunk(members, inputs, positions, vocabulary, tokens, mask)
        step = max(1, _NUMBERS_AT_ONCE // (members * inputs * vocabulary))
        for begin in range(0, positions, step):
            part = slice(begin, begin + step)
            own = prediction.with_values(prediction.values[:, :, part])
            known = None if _known is None else _known[:, :, part]
            try:
                self._add_chunk(own, kept[:, part], None if came is None else came[:, part], known)
            except ValueError as error:
                raise locate_error(error, own, kept[:, part], begin) from error
        self._note_type(prediction)
        return self

    def _check_chunk(
        self, members: int, inputs: int, positions: int, vocabulary: int, tokens: Any, mask: Any
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return mask and tokens of a chunk; raise unless it goes with those before."""
        if self._prior is None:
            self._prior = check_prior(self._given_weights, members, inputs)
            self._seen = np.zeros((members, inputs))
        elif self._prior.shape != (members, inputs):
            raise ValueError(
                f"Expected members and inputs {self._prior.shape}, as before. Got {(members, inputs)}."
            )
        kept = check_mask(mask, (inputs, positions))
        if tokens is None:
            if self.average == "sequence":
                raise ValueError("average='sequence' weighs members by the tokens so far: pass tokens=.")
            if self._likelihoods:
                raise ValueError("Expected tokens, as before. Got none: pass tokens=.")
            return kept, None
        if self._masks and not self._likelihoods:
            raise ValueError(
                "Expected no tokens, as before. Got some: pass them for all positions or for none."
            )
        return kept, check_tokens(tokens, kept, vocabulary)

    def add_together(self, members: list[np.ndarray], tokens: Any, mask: Any) -> bool:
        """Add positions of a few members whose logits lie apart; False, and nothing is added, if not so.

        It is as ``update(logits=np.stack(members))``, without the copy. Each member's logits are float32,
        (inputs, positions, vocabulary).
        """
        inputs, positions, vocabulary = members[0].shape
        rows = [each.reshape((inputs * positions, vocabulary)) for each in members]
        if not takes_few(rows):
            return False
        kept, came = self._check_chunk(len(members), inputs, positions, vocabulary, tokens, mask)
        self._add_few(rows, kept, came)
        self._like = np.empty(0, np.float32)
        return True

    def _add_few(
        self,
        members: list[np.ndarray],
        mask: np.ndarray,
        tokens: np.ndarray | None,
        known: np.ndarray | None = None,
    ) -> None:
        """Add positions of a few members, each (positions of all inputs, vocabulary)."""
        assert self._prior is not None and self._seen is not None
        steps, weights, prior = np.flatnonzero(mask.reshape(-1)), None, None
        came = None if tokens is None else tokens.reshape(-1)[steps]
        likelihoods = None if known is None else np.where(mask, known, 0.0)
        if self.average == "sequence":  # The tokens before a position weigh the members at it.
            if likelihoods is None:
                assert came is not None
                own = (each[None] if mask.all() else each[None, steps] for each in members)
                found = np.concatenate([look_up_tokens(each, "logits", came) for each in own])
                likelihoods = _spread(found, steps, mask.shape)
            weights = weigh_prefixes(self._prior, self._seen, likelihoods, mask).reshape((len(members), -1))
        if weights is not None or self._given_weights is not None:
            prior = _repeat(self._prior, mask.shape[1])
        figures, normalisers = compute_few_figures(
            members, steps, prior if weights is None else weights, prior
        )
        if likelihoods is None and came is not None:
            logits = np.stack([each[steps, came].astype(np.float64) for each in members])
            likelihoods = _spread(logits - normalisers, steps, mask.shape)
        self._keep(mask, _spread(figures, steps, mask.shape), likelihoods)

    def _add_chunk(
        self,
        prediction: Categorical,
        mask: np.ndarray,
        tokens: np.ndarray | None,
        known: np.ndarray | None,
    ) -> None:
        """Add positions that fit in memory."""
        assert self._prior is not None
        members, inputs, positions, vocabulary = prediction.shape
        steps = np.flatnonzero(mask.reshape(-1))
        values = arrays.to_numpy(prediction.values).reshape((members, inputs * positions, vocabulary))
        if prediction.kind == "logits" and takes_few(list(values)):
            self._add_few(list(values), mask, tokens, known)
            return
        if len(steps) < inputs * positions:
            values = values[:, steps]
        own = prediction.with_values(values)
        own.precision = prediction.precision
        likelihoods = None if known is None else np.where(mask, known, 0.0)
        if tokens is not None and likelihoods is None:
            looked_up = look_up_tokens(values, own.kind, tokens.reshape(-1)[steps])
            likelihoods = _spread(looked_up, steps, mask.shape)
        if not len(steps):
            figures = np.empty((4, 0))
        elif self.average == "step":
            prior = None if self._given_weights is None else _repeat(self._prior, positions)[:, steps]
            figures = compute_step_figures(gather(own, prior, 0))
        else:
            assert likelihoods is not None and self._seen is not None
            weighed = weigh_prefixes(self._prior, self._seen, likelihoods, mask)
            prefix = weighed.reshape((members, -1))[:, steps]
            figures = compute_prefix_figures(own, _repeat(self._prior, positions)[:, steps], prefix)
        self._keep(mask, _spread(figures, steps, mask.shape), likelihoods)

    def _add_members_one_by_one(self, kind: str, members: Any, tokens: Any, mask: Any) -> None:
        """Add positions whose members come one after the other, in sums no larger than two members."""
        moments, rows, kept, came, steps = Moments(), [], None, None, np.empty(0, int)
        weights, count = self._given_weights, 0
        weights = None if weights is None else arrays.to_numpy(arrays.as_array(weights))
        prediction = None
        for count, member in enumerate(members, 1):
            prediction = as_prediction(**{kind: member})
            if len(prediction.shape) != 3:
                raise ValueError(
                    "Expected one member, (inputs, positions, vocabulary), at a time. "
                    f"Got shape {tuple(prediction.shape)}."
                )
            refuse_empty(prediction.shape)
            inputs, positions, vocabulary = prediction.shape
            if kept is None:
                kept = check_mask(mask, (inputs, positions))
                came = None if tokens is None else check_tokens(tokens, kept, vocabulary)
                steps = np.flatnonzero(kept.reshape(-1))
            if kept.shape != (inputs, positions):
                raise ValueError(
                    f"Expected inputs and positions {kept.shape} from every member. "
                    f"Got {(inputs, positions)} from member {count - 1}."
                )
            values = arrays.to_numpy(prediction.values).reshape((inputs * positions, vocabulary))[steps][None]
            own = prediction.with_values(values)
            weight = None
            if weights is not None and count > len(weights):
                raise ValueError(f"weights must be one per member. Got {len(weights)}, and more members.")
            if weights is not None:
                mine = np.broadcast_to(weights[count - 1], (inputs,))
                weight = np.repeat(mine, positions)[steps][None]
            if len(steps):
                try:
                    moments.update(own, weights=weight)
                except ValueError as error:
                    whole = prediction.with_values(prediction.values[None])
                    raise locate_error(error, whole, kept, 0, f"Member {count - 1}: ") from error
            if came is not None:
                rows.append(look_up_tokens(values, own.kind, came.reshape(-1)[steps])[0])
        if prediction is None or kept is None:
            raise ValueError("Expected an iterator over members. Got an empty one.")
        inputs, positions, vocabulary = prediction.shape
        self._check_chunk(count, inputs, positions, vocabulary, tokens, mask)
        figures = np.empty((4, 0)) if moments.state is None else figures_of_sums(moments.state)
        likelihoods = _spread(np.stack(rows), steps, kept.shape) if rows else None
        self._keep(kept, _spread(figures, steps, kept.shape), likelihoods)
        self._note_type(prediction)

    def _keep(self, mask: np.ndarray, figures: np.ndarray, likelihoods: np.ndarray | None) -> None:
        """Keep what is known of some positions."""
        assert self._prior is not None and self._seen is not None
        self._masks.append(mask)
        self._figures.append(figures)
        if likelihoods is None:
            return
        with np.errstate(divide="ignore"):
            prior = np.log(self._prior)
        if self.average == "step":
            averaged = np.asarray(logsumexp(likelihoods + prior[..., None], axis=0))
            self._averaged.append(np.where(mask, averaged, 0.0).sum(axis=-1))
        self._seen = self._seen + likelihoods.sum(axis=-1)
        self._likelihoods.append(likelihoods)

    def _note_type(self, prediction: Any) -> None:
        self._like = arrays.sample(prediction.values)
        self._from_probs = self._from_probs or prediction.kind == "probs"
        self._double = self._double or arrays.is_double(prediction.values)

    def decompose(
        self, measure: MeasureName | str | Measure = "pairwise", *, base: float | None = None
    ) -> SequenceDecomposition:
        """Return the decomposition of every token and sequence so far; see ``demur.sequences.decompose``."""
        if self._prior is None or self._seen is None:
            raise ValueError("Expected a Stream that has positions. Got an empty one. Call update first.")
        chosen = resolve(measure)
        if "given" in chosen.sides():
            raise ValueError(
                "measure must be 'pairwise', 'average', 'reverse' or 'bma' for sequences. Got one with "
                "a given model. Use demur.decompose, with an axis of positions in the batch."
            )
        scale = check_base(base, LOG)
        mask, (entropy, k, i, m) = np.concatenate(self._masks, -1), np.concatenate(self._figures, -1)
        lengths = mask.sum(axis=-1)
        if not lengths.all():
            empty = int(np.flatnonzero(lengths == 0)[0])
            raise ValueError(f"mask must keep a position of each input. Got none for input {empty}.")
        parts = from_summary(chosen, entropy, k, i, m)
        if self._from_probs:
            warn_if_infinite(parts.epistemic[mask])
        tokens = np.stack([parts.aleatoric + parts.epistemic, parts.aleatoric, parts.epistemic]) * scale
        sums = tokens.sum(axis=-1)
        reading = Reading(name_unit("log", base))

        def finish(three: np.ndarray) -> Decomposition:
            return Decomposition(*(self._as_given(each) for each in three), _reading=reading)

        likelihoods = np.concatenate(self._likelihoods, -1) if self._likelihoods else None
        return SequenceDecomposition(
            tokens=finish(tokens),
            sequence=finish(sums),
            per_token=finish(sums / lengths),
            lengths=lengths,
            mask=mask,
            log_likelihoods=None if likelihoods is None else self._as_given(self._seen),
            token_log_likelihoods=None if likelihoods is None else self._as_given(likelihoods),
            log_likelihood=None if likelihoods is None else self._as_given(self._average_likelihood()),
            average=self.average,
        )

    @property
    def seen(self) -> np.ndarray:
        """Log-likelihood of the tokens so far under each member, (members, inputs)."""
        if self._seen is None:
            raise ValueError("Expected a Stream that has positions. Got an empty one. Call update first.")
        return self._seen

    def _average_likelihood(self) -> np.ndarray:
        """Return the log-probability of each input's tokens under the average, (inputs,)."""
        assert self._prior is not None and self._seen is not None
        if self.average == "step":
            return np.sum(self._averaged, axis=0)
        with np.errstate(divide="ignore"):
            return np.asarray(logsumexp(np.log(self._prior) + self._seen, axis=0))

    def _as_given(self, part: np.ndarray) -> Array:
        return arrays.like(np.ascontiguousarray(part), self._like, self._double)


def join_streams(streams: list[Stream], order: np.ndarray) -> Stream:
    """Return one stream for the inputs of several, of different lengths, in a new order of inputs."""
    whole = Stream(average=streams[0].average)
    chunks = [
        [np.concatenate(each, -1) for each in (s._masks, s._figures, s._likelihoods) if each] for s in streams
    ]
    longest = max(masks.shape[-1] for masks, *_ in chunks)

    def join(parts: Any, axis: int) -> np.ndarray:
        padded = [np.pad(p, [(0, 0)] * (p.ndim - 1) + [(0, longest - p.shape[-1])]) for p in parts]
        return np.take(np.concatenate(padded, axis), order, axis)

    columns = list(zip(*chunks, strict=True))
    whole._masks, whole._figures = [join(columns[0], 0)], [join(columns[1], 1)]
    whole._likelihoods = [join(columns[2], 1)] if len(columns) > 2 else []
    whole._prior, whole._seen = (
        np.take(np.concatenate([getattr(s, name) for s in streams], 1), order, 1)
        for name in ("_prior", "_seen")
    )
    if streams[0]._averaged:
        whole._averaged = [np.concatenate([np.sum(s._averaged, axis=0) for s in streams])[order]]
    whole._like, whole._double = streams[0]._like, streams[0]._double
    return whole


def _spread(rows: np.ndarray, steps: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return numbers of chosen steps in the shape of inputs and positions, 0 elsewhere."""
    found = np.zeros((len(rows), shape[0] * shape[1]))
    found[:, steps] = rows
    return found.reshape((len(rows), *shape))


def _repeat(weights: np.ndarray, positions: int) -> np.ndarray:
    """Return weights (members, inputs) for each position, (members, inputs times positions)."""
    return np.repeat(weights, positions, axis=1)
