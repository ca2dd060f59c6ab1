"""`TextScores`: texts with the uncertainty of each token and of the whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from demur.measures import Measure, MeasureName, canonical_name
from demur.sequences.sequence_decomposition import SequenceDecomposition
from demur.sequences.stream import Stream

if TYPE_CHECKING:
    import pandas

_SHOWN = 3


@dataclass(frozen=True, eq=False)
class TextScores:
    """Texts, their tokens, and how uncertain language models are about each.

    Attributes
    ----------
    texts
        The texts that were scored, or the answers that were generated.
    tokens
        The pieces of each text that have a score, as text.
    token_ids
        The same as places in the vocabulary.
    """

    texts: list[str]
    tokens: list[list[str]]
    token_ids: list[list[int]]
    _stream: Stream

    def decompose(
        self, measure: MeasureName | str | Measure = "pairwise", *, base: float | None = None
    ) -> SequenceDecomposition:
        """Return total, aleatoric and epistemic part of each token and of each text."""
        return self._stream.decompose(measure, base=base)

    def list_tokens(
        self, measure: MeasureName | str | Measure = "pairwise", part: str = "epistemic"
    ) -> list[list[tuple[str, float]]]:
        """Return each text as pieces with their scores, in the order of the text.

        Examples
        --------
        ``max(pieces, key=lambda piece: piece[1])`` is the most doubtful word of a text.
        """
        numbers = np.asarray(getattr(self.decompose(measure).tokens, part), float)
        return [
            [(token, float(score)) for token, score in zip(own, row, strict=False)]
            for own, row in zip(self.tokens, numbers, strict=True)
        ]

    def to_columns(
        self,
        measures: tuple[MeasureName | str, ...] = ("pairwise", "average", "reverse"),
        *,
        per_token: bool = True,
    ) -> dict[str, np.ndarray]:
        """Return scores of whole texts by name, as ``pairwise_epistemic``, and their perplexity."""
        columns: dict[str, Any] = {}
        for name in measures:
            found = self.decompose(name)
            parts = found.per_token if per_token else found.sequence
            columns |= {
                f"{canonical_name(name)}_{p}": np.asarray(v, float) for p, v in parts.to_dict().items()
            }
            columns["perplexity"] = np.asarray(found.perplexity, float)
            columns["tokens"] = found.lengths
        return columns

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """Return ``to_columns`` as a table with the texts; needs pandas, in ``demur[tables]``."""
        try:
            import pandas
        except ImportError:
            raise ImportError(
                "to_pandas needs pandas. Install it with: pip install 'demur[tables]'"
            ) from None
        return pandas.DataFrame({"text": self.texts, **self.to_columns(**options)})

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        rate = np.asarray(self.decompose().per_token.epistemic, float)
        lines = [f"TextScores({len(self.texts)} texts); K per token in nats, worst first:"]
        for n in np.argsort(-rate, kind="stable")[:_SHOWN]:
            text = self.texts[n] if len(self.texts[n]) <= 60 else self.texts[n][:57] + "..."
            lines.append(f"  {rate[n]:8.4f}  {text!r}")
        return "\n".join([*lines, *(["  ..."] if len(self.texts) > _SHOWN else [])])
