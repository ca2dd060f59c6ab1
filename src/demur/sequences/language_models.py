"""`LanguageModels`: models of transformers as members, which score texts and write answers with scores."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from demur.core import arrays
from demur.core.arrays import ArrayLike
from demur.progress import progress_bar
from demur.sequences.decoding import Beams, Decoding, average_next, choose_tokens
from demur.sequences.language_members import LanguageMember, LogitBuffer, TokenReader, list_members
from demur.sequences.model_folders import load_model, load_tokenizer
from demur.sequences.stream import Average, Stream, join_streams
from demur.sequences.text_scores import TextScores
from demur.sequences.token_log_likelihoods import find_normalisers

_LOGITS_AT_ONCE = 1 << 27
"""Logits of all members for a chunk of positions, at most: half a gigabyte."""


class LanguageModels:
    """Language models with one tokenizer, as members.

    Parameters
    ----------
    models
        A list of models of transformers, causal or encoder-decoder, or a single one that ``adapters``,
        ``templates`` or ``dropout`` makes several members of.
    tokenizer
        Their tokenizer.
    adapters
        Names of adapters, as of LoRA, that one model has loaded; each is a member.
    templates
        Ways to ask: texts with ``{}`` where the prompt goes; each is a member.
    dropout
        So many members per model, by leaving dropout on.
    average
        How members are averaged: see ``demur.sequences.decompose``.
    weights
        Of members, (members,); None: all the same.
    seed
        Of dropout, and of sampled answers.

    Examples
    --------
    ``docs/language-models.md`` runs this on real models:

    .. code-block:: python

        members = demur.sequences.LanguageModels.load(["model-a", "model-b"])
        scores = members.score(["Once upon a time there was a little girl."])
        scores.list_tokens()[0]                     # each word with its K
        answers = members.generate(["The capital of France is"], max_new_tokens=5)
        answers.texts, answers.decompose().per_token.epistemic
    """

    def __init__(
        self,
        models: Any,
        tokenizer: Any,
        *,
        adapters: Sequence[str] | None = None,
        templates: Sequence[str] | None = None,
        dropout: int | None = None,
        average: Average = "step",
        weights: ArrayLike | None = None,
        seed: int = 0,
    ) -> None:
        if not callable(tokenizer):
            raise TypeError(
                f"tokenizer must be a tokenizer of transformers. Got {type(tokenizer).__name__}. "
                "Load it first: AutoTokenizer.from_pretrained(...)."
            )
        self.members = list_members(models, adapters, templates, dropout, seed)
        self.tokenizer: Any = tokenizer
        self.average: Average = average
        self.weights, self.seed = weights, seed
        self._encodes = bool(getattr(self.members[0].model.config, "is_encoder_decoder", False))
        Stream(average=average)  # raises early where it is wrong
        if weights is not None:
            came, expected = arrays.to_numpy(arrays.as_array(weights)).shape, (len(self.members),)
            if came != expected:
                raise ValueError(f"weights must have shape {expected}, one per member. Got {came}.")

    @classmethod
    def load(
        cls,
        folders: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        dtype: Any = "float32",
        **options: Any,
    ) -> LanguageModels:
        """Return models from folders of transformers, with the tokenizer of the first.

        Parameters
        ----------
        folders
            One folder, or a list of them.
        dtype
            Of the weights in memory: half precision takes half of it.
        options
            As for the class: ``templates``, ``dropout``, ``average``, ``weights``, ``seed``.
        """
        paths = [folders] if isinstance(folders, str | os.PathLike) else list(folders)
        if not paths:
            raise ValueError("folders must be a folder of a model or a list of them. Got an empty list.")
        models = [load_model(path, dtype) for path in paths]
        return cls(models, load_tokenizer(paths[0]), **options)

    def __repr__(self) -> str:
        return f"LanguageModels({len(self.members)} members, average={self.average!r})"

    def score(
        self,
        texts: Sequence[str],
        *,
        prompts: Sequence[str] | None = None,
        batch_size: int = 8,
        progress: bool = True,
    ) -> TextScores:
        """Say how uncertain members are about each token of given texts (teacher forcing).

        Parameters
        ----------
        texts
            The texts. Without a prompt and a token that begins texts, the first token has no score.
        prompts
            What came before each text, which is read and not scored; for encoder-decoder models, what the
            encoder reads. Prompts and texts are tokenised apart.
        batch_size
            Texts that are read together.
        progress
            Show a progress bar, on a terminal.
        """
        _check_batch_size(batch_size)
        given = _check_texts("texts", texts)
        asked = self._check_prompts(prompts, given)
        rows = [self._encode_text(text, prompt) for text, prompt in zip(given, asked, strict=True)]
        order = np.argsort([-len(ids) for _, ids in rows], kind="stable")
        streams: list[Stream] = []
        buffer = LogitBuffer()
        with progress_bar(len(given), "texts", hidden=not progress) as show:
            for begin in range(0, len(order), batch_size):
                chosen = order[begin : begin + batch_size]
                streams.append(
                    self._score_batch([rows[n] for n in chosen], [asked[n] for n in chosen], begin, buffer)
                )
                show(begin + len(chosen))
        whole = join_streams(streams, np.argsort(order))
        ids = [own for _, own in rows]
        return TextScores(given, [self._decode_pieces(own) for own in ids], ids, whole)

    def _score_batch(
        self, rows: list[tuple[list[int], list[int]]], prompts: list[str], first: int, buffer: LogitBuffer
    ) -> Stream:
        """Return the scores of one batch: all members read a few positions, then the next ones."""
        tokens, mask = _pad([ids for _, ids in rows], left=False)
        readers = self._open_readers(prompts, [lead for lead, _ in rows], first)
        stream = Stream(average=self.average, weights=self.weights)
        config = self.members[0].model.config.get_text_config()
        step = max(1, _LOGITS_AT_ONCE // (len(readers) * len(rows) * config.vocab_size))
        for begin in range(0, tokens.shape[1], step):
            part = slice(begin, begin + step)
            own, kept = tokens[:, part], mask[:, part]
            read = buffer.check(each.read(own, kept) for each in readers)
            if stream.add_together(read, own.numpy(), kept.numpy()):
                continue
            for some, logits in buffer.split(read):
                stream.update(logits=logits, tokens=own[:, some].numpy(), mask=kept[:, some].numpy())
        return stream

    def generate(
        self,
        prompts: Sequence[str],
        *,
        max_new_tokens: int = 64,
        decode: Literal["average"] | int = "average",
        do_sample: bool = False,
        temperature: float = 1.0,
        num_beams: int = 1,
        batch_size: int = 8,
        progress: bool = True,
    ) -> TextScores:
        """Write answers, all members in lock-step, with a score for each token.

        Parameters
        ----------
        prompts
            What to answer.
        max_new_tokens
            Tokens of an answer, at most; it ends before where the end-of-text token comes.
        decode
            Who writes: ``"average"``, the members' average, or the number of the deployed member. The other
            members read along.
        do_sample, temperature
            Draw tokens, at this temperature, instead of taking the likeliest one.
        num_beams
            Answers that are followed at a time; the likeliest is returned. Not with ``do_sample``.
        batch_size, progress
            As for ``score``.
        """
        decoding = Decoding(decode, do_sample, temperature, num_beams, max_new_tokens, len(self.members))
        _check_batch_size(batch_size)
        prompts = _check_texts("prompts", prompts)
        streams, ids = [], []
        with progress_bar(len(prompts), "prompts", hidden=not progress) as show:
            for begin in range(0, len(prompts), batch_size):
                own = prompts[begin : begin + batch_size]
                if num_beams > 1:
                    # Beams end at different times; one prompt's are a batch of their own.
                    parts = [self._generate_beams(p, decoding, begin + i) for i, p in enumerate(own)]
                else:
                    parts = [self._generate_batch(own, decoding, begin)]
                for stream, answers in parts:
                    streams.append(stream)
                    ids += answers
                show(begin + len(own))
        texts = [self.tokenizer.decode(own, skip_special_tokens=True) for own in ids]
        whole = join_streams(streams, np.arange(len(prompts)))
        return TextScores(texts, [self._decode_pieces(own) for own in ids], ids, whole)

    def _generate_batch(
        self, prompts: list[str], decoding: Decoding, first: int
    ) -> tuple[Stream, list[list[int]]]:
        """Write one answer for each prompt of a batch, token by token."""
        import torch

        readers = self._open_readers(prompts, [[] for _ in prompts], first)
        stream, ends = Stream(average=self.average, weights=self.weights), self._list_ends()
        rng, buffer = np.random.default_rng((self.seed, first)), LogitBuffer()
        alive, answers = np.ones(len(prompts), bool), [[] for _ in prompts]
        seen = np.zeros((len(readers), len(prompts)))
        for _ in range(decoding.most):
            logits = buffer.join(each.look_ahead() for each in readers)
            normal = find_normalisers(logits)
            probs = average_next(logits, normal, seen, self._prior(), self.average, decoding.writer)
            tokens = choose_tokens(probs, decoding, rng)
            known = np.take_along_axis(logits, tokens[None, :, None], axis=-1)[..., 0] - normal
            stream.update(
                logits=logits[:, :, None],
                tokens=tokens[:, None],
                mask=alive[:, None],
                _known=known[..., None],
            )
            seen = stream.seen
            for n in np.flatnonzero(alive):
                answers[n].append(int(tokens[n]))
            alive &= ~np.isin(tokens, ends)
            if not alive.any():
                break
            for each in readers:
                each.append(torch.from_numpy(tokens))
        return stream, answers

    def _generate_beams(self, prompt: str, decoding: Decoding, first: int) -> tuple[Stream, list[list[int]]]:
        """Write the likeliest answer among several that are followed; then score it as a text."""
        import torch

        readers = self._open_readers([prompt], [[]], first)
        beams, buffer = Beams(decoding.beams, self._list_ends()), LogitBuffer()
        seen = np.zeros((len(readers), 1))
        for _ in range(decoding.most):
            logits = buffer.join(each.look_ahead() for each in readers)
            normal = find_normalisers(logits)
            probs = average_next(logits, normal, seen, self._prior(), self.average, decoding.writer)
            with np.errstate(divide="ignore"):
                rows, tokens = beams.extend(np.log(probs))
            if not len(rows):
                break
            seen = seen[:, rows] + logits[:, rows, tokens] - normal[:, rows]
            for each in readers:
                each.keep(torch.from_numpy(rows))
                each.append(torch.from_numpy(tokens))
        answer = beams.best()
        return self._score_batch([([], answer)], [prompt], first, buffer), [answer]

    def _prior(self) -> np.ndarray:
        count = len(self.members)
        given = np.ones(count) if self.weights is None else np.asarray(self.weights, float)
        return given / given.sum(axis=0)

    def _open_readers(self, prompts: list[str], leads: list[list[int]], first: int) -> list[TokenReader]:
        """Return members that have read prompts and the tokens that lead a text."""
        return [self._open_reader(each, prompts, leads, first) for each in self.members]

    def _open_reader(
        self, member: LanguageMember, prompts: list[str], leads: list[list[int]], first: int
    ) -> TokenReader:
        asked = [member.template.replace("{}", prompt) for prompt in prompts]
        if self._encodes:
            source = _pad([self._tokenize(each) for each in asked], left=False)
            start = member.model.config.decoder_start_token_id
            context = _pad([[start] for _ in prompts], left=True)
            return TokenReader(member, *context, *source, first=first)
        contexts = [
            [*(self._tokenize(ask) if ask else self._list_beginning()), *lead]
            for ask, lead in zip(asked, leads, strict=True)
        ]
        empty = next((n for n, each in enumerate(contexts) if not each), None)
        if empty is not None:
            raise ValueError(
                f"Expected a prompt. Got an empty one, number {first + empty}, and a tokenizer without a "
                "token that begins texts. Give a prompt."
            )
        return TokenReader(member, *_pad(contexts, left=True), first=first)

    def _encode_text(self, text: str, prompt: str) -> tuple[list[int], list[int]]:
        """Return the tokens that a text begins with but that have no score, and the others."""
        if self._encodes:
            own = self._tokenize(text, target=True)
            return self._refuse_empty([], own, text)
        own = self._tokenize(text, special=False)
        if prompt or self._list_beginning() or any(m.template != "{}" for m in self.members):
            return self._refuse_empty([], own, text)
        return self._refuse_empty(own[:1], own[1:], text)

    def _refuse_empty(self, lead: list[int], own: list[int], text: str) -> tuple[list[int], list[int]]:
        if not own:
            raise ValueError(f"texts must have a token to score. Got {text!r}.")
        return lead, own

    def _tokenize(self, text: str, *, special: bool = True, target: bool = False) -> list[int]:
        given = {"text_target": text} if target else {"text": text}
        return list(self.tokenizer(**given, add_special_tokens=special)["input_ids"])

    def _list_beginning(self) -> list[int]:
        begin = self.tokenizer.bos_token_id
        return [] if begin is None else [begin]

    def _list_ends(self) -> list[int]:
        """Return the tokens that end an answer."""
        config = getattr(self.members[0].model, "generation_config", None)
        found = getattr(config, "eos_token_id", None)
        found = self.tokenizer.eos_token_id if found is None else found
        return [] if found is None else list(found) if isinstance(found, list | tuple) else [found]

    def _decode_pieces(self, ids: list[int]) -> list[str]:
        """Return the text of each token: what it adds to the text of the tokens before it.

        Only the tokens of the last piece are looked at, too: whether a word begins with a space depends on
        them.
        """
        pieces, first, done = [], 0, 0
        for end in range(1, len(ids) + 1):
            before, now = self.tokenizer.decode(ids[first:done]), self.tokenizer.decode(ids[first:end])
            if now.endswith("\ufffd"):  # a character of several tokens shows only with the last of them
                pieces.append("")
                continue
            if now.startswith(before):
                pieces.append(now[len(before) :])
            else:
                pieces.append(self.tokenizer.decode(ids[end - 1 : end]))
            first, done = done, end
        return pieces

    def _check_prompts(self, prompts: Sequence[str] | None, texts: list[str]) -> list[str]:
        if prompts is None:
            if self._encodes:
                raise ValueError("prompts must say what the encoder reads, one for each text. Got none.")
            return [""] * len(texts)
        found = _check_texts("prompts", prompts)
        if len(found) != len(texts):
            raise ValueError(f"prompts must be as many as texts, {len(texts)}. Got {len(found)}.")
        return found


def _check_texts(name: str, texts: Any) -> list[str]:
    if isinstance(texts, str):
        raise TypeError(f"{name} must be a list of texts. Got one text: put it in a list.")
    found = list(texts)
    wrong = next((each for each in found if not isinstance(each, str)), None)
    if wrong is not None or not found:
        raise TypeError(
            f"{name} must be a list of texts. Got {'none' if not found else type(wrong).__name__}."
        )
    return found


def _check_batch_size(value: Any) -> None:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"batch_size must be a positive integer. Got {value!r}.")


def _pad(rows: list[list[int]], *, left: bool) -> tuple[Any, Any]:
    """Return rows as one tensor, and where they are tokens."""
    import torch

    longest = max(len(row) for row in rows)
    tokens = torch.zeros((len(rows), longest), dtype=torch.long)
    mask = torch.zeros_like(tokens)
    for n, row in enumerate(rows):
        place = slice(longest - len(row), longest) if left else slice(0, len(row))
        tokens[n, place], mask[n, place] = torch.tensor(row, dtype=torch.long), 1
    return tokens, mask
