"""Work by members: a worker has some of them, and a block's sums from several workers are merged in a tree.

The tree depends on the parts alone, not on who was first, so that the same job gives the same bytes. Against
one process, which adds one member after the other, only the order of sums differs.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from demur.cluster.block_files import name_block
from demur.cluster.blocks import Block
from demur.cluster.by_input import BlockJob, Receipt, limit_threads
from demur.cluster.member_parts import find_models
from demur.core.rounding import hold_warnings
from demur.core.state import arrays_of
from demur.moments import Moments
from demur.posteriors.networks import preserve_random_state
from demur.posteriors.posterior import Posterior
from demur.posteriors.shared_pass import share_passes
from demur.scoring.job import check_chunk, check_summable, count_classes
from demur.scoring.scores_so_far import ScoresSoFar

SUM, MERGE, FINISH = "sum", "merge", "finish"
"""The steps of a block."""
_BY_INPUT = ("reference", "heaviest", "count")


@dataclass(frozen=True)
class Sides:
    """What a block has beside its sums, from the worker of its first part.

    Attributes
    ----------
    name
        Of the block's file.
    batches
        The batches, without their inputs.
    deployed
        The deployed model's predictions for each.
    columns
        Scores that need no members, for each.
    """

    name: str
    batches: list[Any]
    deployed: list[Any]
    columns: list[dict[str, np.ndarray]]


@dataclass
class MemberJob(BlockJob):
    """What all workers get: as by inputs, and which members each part has."""

    parts: tuple[range, ...] = ()
    references: tuple[Any, ...] = ()
    _loaded: int | None = field(default=None, init=False)
    _posterior: Posterior | None = field(default=None, init=False)

    def start(self) -> None:
        """Load nothing yet: which members are needed comes with the work."""
        limit_threads(self.cpus)
        find_models(self.job.posterior, self.references)
        self._posterior = self.job.posterior

    def run(self, task: tuple[Any, ...], *held: Any) -> tuple[Any, Any]:
        """Do one step of a block: sum some members, merge two sums, or turn sums into scores."""
        kind, block, *more = task
        if kind == MERGE:
            return {}, merge_sums(*held)
        if kind == FINISH:
            return self._finish(block, held), None
        return self._sum(block, more[0], held)

    def _sum(self, block: Block, part: int, held: tuple[Any, ...]) -> tuple[Receipt, Any]:
        """Return the sums of a part's members; with those of the first part, what a block has beside them."""
        batches = list(block.open(held, self.job.unpack))
        name = name_block(block.number, self.settings, batches) if self.folder else ""
        found = self.find(name)
        if found is not None:
            return {"finished": found}, None
        self._load(part)
        with preserve_random_state():
            sides = self._ask_sides(name, batches) if part == 0 else None
            sums = [self._sum_batch(batch, self.parts[part]) for batch in batches]
        return {}, (sums, sides)

    def _load(self, part: int) -> None:
        """Load the members of a part, in place of those of another."""
        if self._loaded != part and self._posterior is not None:
            self.job.posterior = self._posterior  # frees what was loaded
            self.job.posterior = self._posterior.keep_loaded(self.parts[part])
            self._loaded = part

    def _sum_batch(self, batch: Any, members: range) -> Moments:
        moments = self.job.make_moments()
        for chunk in self.job.posterior.predict(batch.inputs, members=members, position=batch.position):
            prediction, weights = check_chunk(chunk, batch.size)
            check_summable(prediction, "by='members'")
            moments.update(prediction, weights=weights)
        return deal_from(moments, members.start)

    def _ask_sides(self, name: str, batches: list[Any]) -> Sides:
        deployed, columns = [], []
        for batch in batches:
            with share_passes():
                deployed.append(self.job.predict_deployed(batch))
                columns.append(self.job.score_detectors(batch))
        bare = [_Batch(b.ids, b.labels, b.position, b.size, b.mark) for b in batches]
        return Sides(name, bare, deployed, columns)

    def _finish(self, block: Block, held: tuple[Any, ...]) -> Receipt:
        """Turn the merged sums of a block into its scores."""
        sums, sides = held[0]
        so_far, rounded = ScoresSoFar({}), False
        for moments, batch, logits, columns in zip(
            sums, sides.batches, sides.deployed, sides.columns, strict=True
        ):
            with hold_warnings() as found:
                columns = dict(self.job.compute_columns(moments, logits)) | columns
            rounded = rounded or found.any
            so_far.add(
                batch, columns=columns, deployed=self.job.classify(logits),
                members=self.job.posterior.members or 0, classes=count_classes(moments),
            )  # fmt: skip
            so_far.outcome = self.job.outcome
        return self.finish(sides.name, block.position, so_far, rounded)


@dataclass(frozen=True)
class _Batch:
    """What `ScoresSoFar` needs of a batch, without the inputs."""

    ids: np.ndarray | None
    labels: np.ndarray | None
    position: int
    size: int
    mark: int


class MergeTree:
    """Which sums of a block are there, and which come next: (0, 1), (2, 3), ..., then pairs of these.

    Parameters
    ----------
    block
        The block.
    parts
        How many parts its members are in.

    Examples
    --------
    >>> tree = MergeTree(block=None, parts=3)
    >>> tree.add(2, "c"), tree.add(0, "a"), tree.add(1, "b")
    (None, None, ((1, 0), ('a', 'b')))
    >>> tree.add_merged((1, 0), "ab"), tree.add_merged((2, 0), "abc")
    (((2, 0), ('ab', 'c')), ((2, 0), ('abc',)))
    """

    def __init__(self, block: Any, parts: int) -> None:
        self.block, self._counts = block, [parts]
        while self._counts[-1] > 1:
            self._counts.append(-(-self._counts[-1] // 2))
        self._held: dict[tuple[int, int], Any] = {}

    def add(self, part: int, sums: Any) -> tuple[tuple[int, int], tuple[Any, ...]] | None:
        """Add the sums of a part; return what `add_merged` does."""
        return self.add_merged((0, part), sums)

    def add_merged(self, place: tuple[int, int], sums: Any) -> tuple[tuple[int, int], tuple[Any, ...]] | None:
        """Add sums, by level and number; return the place and sums of the next merger.

        A single one at the top is all there is; None where another one is missing.
        """
        level, number = place
        while level + 1 < len(self._counts) and number == self._counts[level] - 1 and number % 2 == 0:
            level, number = level + 1, number // 2  # nothing to merge with: it moves up
        if level + 1 == len(self._counts):
            return (level, 0), (sums,)
        other = self._held.pop((level, number ^ 1), None)
        if other is None:
            self._held[level, number] = sums
            return None
        return (level + 1, number // 2), (other, sums) if number % 2 else (sums, other)


def merge_sums(left: Any, right: Any) -> tuple[list[Moments], Sides | None]:
    """Return the sums of both sides' members, batch by batch."""
    merged = [copy.copy(mine).merge(other) for mine, other in zip(left[0], right[0], strict=True)]
    return merged, left[1]


def deal_from(moments: Moments, first: int) -> Moments:
    """Return sums of members that begin with this one, in the groups that one process deals them to.

    Member k belongs to group k mod G, and sums by themselves begin with group 0.
    """
    shift = first % (moments.groups or 1)
    if not shift or moments.state is None:
        return moments
    found = copy.copy(moments)
    rolled = {
        name: values if values is None or name in _BY_INPUT else np.roll(values, shift, axis=0)
        for name, values in arrays_of(moments.state).items()
    }
    found.state = replace(moments.state, **rolled)
    return found
