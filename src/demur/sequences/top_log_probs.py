"""`TopLogProbs`: the likeliest tokens that services return, and what they say for certain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from demur.core.arrays import ArrayLike, as_array, to_numpy
from demur.core.parts_as_text import Reading
from demur.core.rules import LOG
from demur.measures import Decomposition, Measure, MeasureName, check_base, name_unit, resolve
from demur.sequences import service_responses
from demur.sequences.list_bounds import Lists, bound_divergences, bound_entropies, bound_information
from demur.sequences.service_responses import TokenList, count_compared

_STEPS_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class Bounds:
    """Certified limits of a decomposition; the exact values lie between them.

    Attributes
    ----------
    lower, upper
        Each a `Decomposition` of shape (inputs, positions), 0 where there is no position. The upper limit of
        K and M is infinite unless members list the whole vocabulary: a token that nobody lists may be
        impossible for one member and not for another, which no list can rule out.
    mask
        Which positions count, (inputs, positions).
    """

    lower: Decomposition
    upper: Decomposition
    mask: np.ndarray

    def __repr__(self) -> str:
        return f"At least: {self.lower!r}\nAt most: {self.upper!r}"

    @property
    def sequence(self) -> Bounds:
        """The limits of each input's sum over positions, (inputs,)."""
        return Bounds(
            self.lower.map(_sum_positions), self.upper.map(_sum_positions), np.asarray(self.mask.any(axis=-1))
        )

    @property
    def per_token(self) -> Bounds:
        """The limits of each input's average over positions, (inputs,); NaN where it has none."""
        whole = self.sequence
        lengths = np.where(whole.mask, self.mask.sum(axis=-1), np.nan)
        return Bounds(
            whole.lower.map(lambda part: part / lengths),
            whole.upper.map(lambda part: part / lengths),
            whole.mask,
        )

    def decide(
        self, threshold: float, part: Literal["total", "aleatoric", "epistemic"] = "epistemic"
    ) -> np.ndarray:
        """Say what the limits allow: ``"keep"``, ``"defer"`` or ``"ask for more"`` log-probabilities.

        Keep where the part is at most the threshold for certain, defer where it is above it for certain. For
        K and M nothing is ever kept, since they have no upper limit: decide by I, with
        ``measure="average"``, or by the total.

        Examples
        --------
        >>> lists = [[[{"yes": -0.1, "no": -3.0}]], [[{"no": -0.05, "yes": -4.0}]]]
        >>> bounds = demur.sequences.TopLogProbs(lists).bounds(vocabulary=32000, measure="average")
        >>> bounds.lower.epistemic.round(3), bounds.upper.epistemic.round(3)
        (array([[0.524]]), array([[0.549]]))
        >>> [str(bounds.decide(threshold)[0, 0]) for threshold in (0.5, 0.53, 0.55)]
        ['defer', 'ask for more', 'keep']
        """
        if part not in ("total", "aleatoric", "epistemic"):
            raise ValueError(f"part must be 'total', 'aleatoric' or 'epistemic'. Got {part!r}.")
        if isinstance(threshold, str) or np.isnan(threshold).any():
            raise ValueError(f"threshold must be a number. Got {threshold!r}.")
        low, high = getattr(self.lower, part), getattr(self.upper, part)
        unsure = np.full(np.shape(low), "ask for more")
        return np.where(low > threshold, "defer", np.where(high <= threshold, "keep", unsure))


class TopLogProbs:
    """The likeliest tokens of each member at each position, with their log-probabilities.

    Parameters
    ----------
    lists
        ``lists[member][input][position]`` is a mapping from tokens, as text or numbers, to log-probabilities:
        the likeliest ones, so that no other token is likelier than the least of them. All members must have
        read the same text up to a position.
    weights
        Shape (members,); None: all the same.

    Examples
    --------
    Two members list their two likeliest tokens of 32,000, at two positions of one answer:

    >>> lists = [
    ...     [[{"Paris": -0.05, "Lyon": -4.0}, {".": -0.2, "!": -2.0}]],
    ...     [[{"Paris": -0.9, "Rome": -0.7}, {".": -0.2, ",": -2.5}]],
    ... ]
    >>> bounds = demur.sequences.TopLogProbs(lists).bounds(vocabulary=32000, measure="average")
    >>> bounds.lower.epistemic.round(2), bounds.upper.epistemic.round(2)
    (array([[0.2 , 0.01]]), array([[0.28, 0.13]]))
    """

    def __init__(self, lists: Sequence[Any], *, weights: ArrayLike | None = None) -> None:
        _check_nesting(lists)
        self.lists = [[list(positions) for positions in member] for member in lists]
        if not self.lists or not self.lists[0]:
            raise ValueError("lists must have a member and an input: lists[member][input][position].")
        counts = [len(member) for member in self.lists]
        if len(set(counts)) > 1:
            raise ValueError(f"Expected the same inputs from every member. Got {counts} of them.")
        for n in range(counts[0]):
            lengths = [len(member[n]) for member in self.lists]
            if len(set(lengths)) > 1:
                raise ValueError(
                    f"Expected the same positions from every member. Got {lengths} for input {n}. "
                    "Cut answers where they begin to differ, or let from_openai and the like do it."
                )
        self.weights = _check_weights(weights, len(self.lists))

    @classmethod
    def from_openai(cls, responses: Sequence[Any], *, weights: ArrayLike | None = None) -> TopLogProbs:
        """Read chat completions (``logprobs=True, top_logprobs=20``) or completions (``logprobs=5``).

        Parameters
        ----------
        responses
            ``responses[member][input]``: response objects, or the dictionaries of their JSON. Members are
            compared as long as their answers agree, and at the first token where they do not.
        weights
            As for the class.
        """
        return cls(*_compare_prefixes(responses, service_responses.read_openai), weights=weights)

    @classmethod
    def from_vllm(
        cls, outputs: Sequence[Any], *, prompt: bool = False, weights: ArrayLike | None = None
    ) -> TopLogProbs:
        """Read ``RequestOutput`` objects of vLLM, ``outputs[member][input]``, or their dictionaries.

        Parameters
        ----------
        outputs
            From ``SamplingParams(logprobs=20)``; tokens are compared by their ids.
        prompt
            Take ``prompt_logprobs``: the text was given, and every member read all of it.
        weights
            As for the class.
        """
        read = service_responses.read_vllm_prompt if prompt else service_responses.read_vllm
        return cls(*_compare_prefixes(outputs, read), weights=weights)

    @classmethod
    def from_hf(
        cls,
        outputs: Sequence[Any],
        *,
        top: int = 20,
        end: int | Sequence[int] | None = None,
        weights: ArrayLike | None = None,
    ) -> TopLogProbs:
        """Read outputs of ``generate(output_logits=True, return_dict_in_generate=True)`` of transformers.

        Parameters
        ----------
        outputs
            One output per member, each of the same batch of prompts.
        top
            How many log-probabilities to keep.
        end
            The token or tokens that end an answer, as ``model.generation_config.eos_token_id``: what comes
            after it in a batch is padding. None: every position counts.
        weights
            As for the class.
        """
        if not isinstance(top, int) or top < 1:
            raise ValueError(f"top must be a positive integer. Got {top!r}.")
        ends = () if end is None else (end,) if isinstance(end, int) else tuple(end)
        per_member = [service_responses.read_generate_output(each, top, ends) for each in outputs]
        return cls(*_compare_prefixes(per_member, lambda pair: pair), weights=weights)

    def __repr__(self) -> str:
        positions = sum(len(each) for each in self.lists[0])
        return f"TopLogProbs({len(self.lists)} members, {len(self.lists[0])} inputs, {positions} positions)"

    def bounds(
        self,
        *,
        vocabulary: int | None = None,
        measure: MeasureName | str | Measure = "pairwise",
        base: float | None = None,
        rounding: float = 1e-6,
    ) -> Bounds:
        """Return certified limits of the decomposition of each token.

        Parameters
        ----------
        vocabulary
            How many tokens there are; None: not known, and entropies have no upper limit.
        measure
            ``"pairwise"`` (K), ``"average"`` (I) or ``"reverse"`` (M).
        base
            None for nats, 2 for bits.
        rounding
            How far the sum of listed probabilities may be off, since they were rounded.
        """
        (found,) = self.bounds_of([measure], vocabulary=vocabulary, base=base, rounding=rounding)
        return found

    def bounds_of(
        self,
        measures: Sequence[MeasureName | str | Measure],
        *,
        vocabulary: int | None = None,
        base: float | None = None,
        rounding: float = 1e-6,
    ) -> list[Bounds]:
        """Return what `bounds` does for several measures, in the time that one of them takes."""
        chosen, scale = check_bound_options(measures, vocabulary, base, rounding)
        places = [(n, at) for n, row in enumerate(self.lists[0]) for at in range(len(row))]
        longest = max(len(row) for row in self.lists[0])
        found = np.zeros((len(chosen), 2, 3, len(self.lists[0]), longest))
        mask = np.zeros(found.shape[3:], bool)
        for begin in range(0, len(places), _STEPS_AT_ONCE):
            some = places[begin : begin + _STEPS_AT_ONCE]
            limits = _bound_steps(self._gather(some, vocabulary, rounding), chosen)
            rows, columns = np.array(some).T
            found[..., rows, columns] = limits * scale
            mask[rows, columns] = True
        reading = Reading(name_unit("log", base))
        ends = [[Decomposition(*three, _reading=reading) for three in each] for each in found]
        return [Bounds(lower, upper, mask) for lower, upper in ends]

    def _gather(self, places: list[tuple[int, int]], vocabulary: int | None, rounding: float) -> Lists:
        """Return the lists of some positions as arrays, with a column for each token that a member lists."""
        columns = [list(dict.fromkeys(t for m in self.lists for t in m[n][at])) for n, at in places]
        widest = max(len(each) for each in columns)
        shape = (len(places), len(self.lists), widest)
        probs, listed, real = np.zeros(shape), np.zeros(shape, bool), np.zeros((shape[0], widest), bool)
        largest = np.zeros(shape[:2])
        for s, (n, at) in enumerate(places):
            number = {token: c for c, token in enumerate(columns[s])}
            real[s, : len(number)] = True
            for m, member in enumerate(self.lists):
                own = member[n][at]
                if not own and not isinstance(own, TokenList):
                    raise ValueError(f"Expected log-probabilities. Got none from member {m} at {[n, at]}.")
                beyond = own.beyond if isinstance(own, TokenList) else min(own.values())
                largest[s, m] = _read_probability(beyond, (m, n, at))
                for token, log in own.items():
                    probs[s, m, number[token]] = _read_probability(log, (m, n, at))
                    listed[s, m, number[token]] = True
        sums = probs.sum(axis=-1)
        if (sums > 1 + max(rounding, 1e-9)).any():
            s, m = np.argwhere(sums > 1 + max(rounding, 1e-9))[0]
            raise ValueError(
                f"Listed probabilities must not sum to more than 1. Got {sums[s, m]:.9g} from member {m} at "
                f"{list(places[s])}. If they were rounded, say so: rounding=1e-3."
            )
        size = math.inf if vocabulary is None else float(vocabulary)
        if size < real.sum(axis=-1).max():
            raise ValueError(
                f"vocabulary must be at least the number of tokens listed, {real.sum(axis=-1).max()}. "
                f"Got {vocabulary!r}."
            )
        return Lists(probs, listed, real, largest, self.weights, size, rounding)


def check_bound_options(
    measures: Sequence[MeasureName | str | Measure],
    vocabulary: int | None,
    base: float | None,
    rounding: float,
) -> tuple[list[Measure], float]:
    """Return measures and the factor of the unit; raise unless they have limits."""
    chosen, scale = [resolve(each) for each in measures], check_base(base, LOG)
    for each, measure in zip(chosen, measures, strict=True):
        if "given" in each.sides() or each.sides() == ("bma", "bma"):
            raise ValueError(f"measure must be 'pairwise', 'average' or 'reverse'. Got {measure!r}.")
    if vocabulary is not None and (isinstance(vocabulary, str) or not vocabulary >= 1):
        raise ValueError(f"vocabulary must be the number of tokens that there are. Got {vocabulary!r}.")
    if not 0 <= rounding < 0.1:
        raise ValueError(f"rounding must be a small number, 0 or above. Got {rounding!r}.")
    return chosen, scale


def _bound_steps(lists: Lists, measures: Sequence[Measure]) -> np.ndarray:
    """Return lower and upper limits of total, aleatoric and epistemic part, (measures, 2, 3, steps)."""
    entropy = bound_entropies(lists)
    k, i, m = bound_divergences(lists)
    most = np.maximum(bound_information(lists), i)
    # Where everybody lists everything, K and M are what their lower limits say.
    known = lists.whole.all(axis=-1)
    found = []
    for predictor, truth in (measure.sides() for measure in measures):
        if predictor == "bma":
            aleatoric = entropy[0] + i, entropy[1] + most
            epistemic = m, np.where(known, m, np.inf)
        else:
            aleatoric = entropy
            epistemic = (k, np.where(known, k, np.inf)) if truth == "each" else (i, most)
        found.append([np.stack([a + e, a, e]) for a, e in zip(aleatoric, epistemic, strict=True)])
    return np.array(found)


def _compare_prefixes(responses: Sequence[Any], read: Any) -> tuple[list[list[list[TokenList]]]]:
    """Return lists of members at the positions that can be compared: all have read the same tokens before."""
    found = [[read(each) for each in member] for member in responses]
    if not found or len({len(member) for member in found}) > 1:
        counts = [len(member) for member in found]
        raise ValueError(f"Expected responses[member][input], the same inputs for all. Got {counts} inputs.")
    lists: list[list[list[TokenList]]] = [[] for _ in found]
    for n in range(len(found[0])):
        answers = [member[n] for member in found]
        length = count_compared(answers)
        for own, (_, positions) in zip(lists, answers, strict=True):
            own.append(positions[:length])
    return (lists,)


def _read_probability(log: Any, place: tuple[int, int, int]) -> float:
    """Return a probability; raise unless its logarithm is one."""
    value = float(log)
    if math.isnan(value) or value > 1e-6:
        raise ValueError(
            f"Log-probabilities must be at most 0. Got {value} from member {place[0]} at {list(place[1:])}."
        )
    return math.exp(min(value, 0.0))


def _check_nesting(lists: Any) -> None:
    """Raise unless there are lists of members, of inputs and of positions around the first tokens."""
    level: Any = lists
    for _ in range(3):
        if isinstance(level, (Mapping, str)):
            raise ValueError(
                "lists must be lists[member][input][position], each a mapping from tokens to "
                f"log-probabilities. Got {type(level).__name__} in place of a list. Put "
                "one member, or one input, into a list."
            )
        level = next(iter(level), ()) if isinstance(level, Sequence) else ()


def _check_weights(weights: Any, members: int) -> np.ndarray:
    if weights is None:
        return np.full(members, 1 / members)
    found = to_numpy(as_array(weights)).astype(np.float64)
    if found.shape != (members,) or not np.isfinite(found).all() or not (found > 0).all():
        raise ValueError(f"weights must be {members} positive numbers, one per member. Got {weights!r}.")
    return found / found.sum()


def _sum_positions(part: np.ndarray) -> np.ndarray:
    return part.sum(axis=-1)
