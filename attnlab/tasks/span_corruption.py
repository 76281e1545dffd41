"""Span corruption, on which T5 is pretrained: spans of a text are replaced by sentinels, and told.

What is taken out and how says `attnlab.data.denoising`. All texts are one stream, which is cut into
rows of as many tokens as give a source of `batch.max_length`; ends of texts are left out of them. In
training a row is corrupted anew in every step, by (seed, step, row); a split that is scored always
in the same way.

Source: C. Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer", JMLR 2020, section 3.1.4.

Axis letters: B batch, S source length, T target length.
"""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from attnlab.data import text
from attnlab.data.batching import Batches, evaluation_batches
from attnlab.data.blocks import Blocks
from attnlab.data.columns import Batch as HostBatch
from attnlab.data.columns import Examples, Packed
from attnlab.data.corpus import Pair
from attnlab.data.denoising import Corrupted, Spans
from attnlab.data.learned import VocabularySettings
from attnlab.data.vocabulary import Special, Vocabulary
from attnlab.errors import UserError
from attnlab.records.items import Items
from attnlab.records.measures import Measure
from attnlab.tasks import schemas
from attnlab.tasks.decoders import check_room
from attnlab.tasks.pairs import PairTask, build_system
from attnlab.tasks.protocol import Params, TextExample
from attnlab.tasks.tokens import target_ids, teacher_forced

SENTINEL = re.compile(r"<extra_id_(\d+)>")  # what a person reads and types for one
_FIXED = 2**32 - 1  # in place of a seed, for what is scored: seeds of training are smaller


class SpanCorruption(PairTask[schemas.SpanCorruption]):
    """Span corruption: what was taken out of a text, from the rest; see `attnlab.tasks.base.Task`.

    Attributes:
      config: see `configs/span_corruption.py`.
      data: the texts and their ids.
      system: the model.
    """

    schema: ClassVar[type[schemas.Settings]] = schemas.SpanCorruption
    loads = text.Texts  # type: ignore[assignment]
    data: text.Texts  # type: ignore[assignment]
    measures: Mapping[str, Measure | str] = teacher_forced(
        "nats per target token, sentinels counted", "next token, teacher-forced"
    )
    examples = "rows"

    def __init__(self, config: schemas.SpanCorruption, data: text.Texts) -> None:
        """Builds the task and the corruption of spans, for rows that give sources of
        `batch.max_length`; raises `UserError` for too few sentinels.
        """
        super().__init__(config, data)  # type: ignore[arg-type]
        self.spans = config.corruption.call(Spans, self.special)
        self.raw = self.spans.raw(config.batch.max_length)
        self.spans.check(self.raw)
        self.sentinels = self.special.reserved[::-1]

    @classmethod
    def check(cls, config: schemas.SpanCorruption) -> None:
        """Builds system and corruption with stand-in vocabularies, so that a bad config raises
        `UserError` before data is read; too few sentinels do so too, but not for a vocabulary of
        the kind "tokenizer".
        """
        settings = VocabularySettings.read(config.vocabulary)
        special = Special(reserved=tuple(range(settings.reserved)))
        spans = config.corruption.call(Spans, special)
        raw = spans.raw(config.batch.max_length)
        if settings.kind != "tokenizer":
            spans.check(raw)
        check_room(build_system(config, 8, 8)[0], config)

    # --- the texts, corrupted ---

    def target_ids(self) -> tuple[np.ndarray, int] | None:
        """The tokens of all texts, which are equally likely to be taken out."""
        return target_ids(self.data)

    def ordered(self, seed: int, shared: Mapping[str, Any]) -> Batches:
        """Returns the corrupted training batches of this process (`shared` has its index and the
        number of processes); the order of rows, and what is taken out of them, follow from the
        seed.
        """
        size = self.config.batch.size
        blocks = Blocks(
            self.data.ids["train"].ids,
            size=size,
            length=self.raw,
            seed=seed,
            special=self.special,
            **shared,
        )
        first = shared["process_index"] * (size // shared["process_count"])
        return Corrupted(blocks, self.spans, self.raw, seed, first)

    @functools.cache  # noqa: B019 - the task lives as long as the run
    def of_split(self, split: str) -> Examples:
        """Returns the rows of a split as `Examples` with "source" and "target", corrupted in the
        same way every time; rows of fewer than two tokens are left out.
        """
        size, pad = self.at_once, self.special.pad
        blocks = Blocks(self.data.ids[split].ids, size=size, length=self.raw, special=self.special)
        columns: dict[str, list[np.ndarray]] = {"source": [], "target": []}
        for step in range(blocks.batches_per_epoch):
            keys = [(_FIXED, step * size + row) for row in range(size)]
            batch = self.spans.columns(blocks(step)["target"], keys, self.raw)
            for name, rows in columns.items():
                rows += [row[row != pad] for row in batch[name] if (row != pad).any()]
        return Examples(**{name: Packed(rows, pad) for name, rows in columns.items()})

    def in_order(self, examples: Examples) -> list[tuple[np.ndarray, HostBatch]]:
        """See `Task.in_order`; all batches have one width."""
        longest = max(self.config.batch.max_length, int(examples.lengths.max(initial=1)))
        return evaluation_batches(examples, size=self.at_once, buckets=(longest,))

    def size(self, split: str) -> int:
        """The number of rows."""
        return len(self.of_split(split))

    def counts(self, split: str) -> dict[str, int]:
        """The number of target tokens, sentinels and EOS counted."""
        return {"tokens": len(self.of_split(split).packed("target").ids)}

    def items(self, params: Params, split: str, outputs: Sequence[str]) -> Items:
        """A line for every row."""
        return Items.of(self.teacher_forced(params, split))

    # --- text ---

    def encoded(self, pairs: Sequence[Pair]) -> Examples:
        """The ids of both texts of each pair, in which <extra_id_0> is the first sentinel."""
        pad = self.special.pad
        source, target = (Packed([self._ids(pair[side]) for pair in pairs], pad) for side in (0, 1))
        return Examples(source=source, target=target)

    def examples_from_lines(self, lines: Sequence[str]) -> Examples:
        """Encodes lines with sentinels as `Examples`, sources with empty targets; raises
        `UserError` for a line without a sentinel. See `PairTask.examples_from_lines`.

        Raises:
          UserError: a line from which nothing is taken out.
        """
        for line in lines:
            if not SENTINEL.search(line):
                raise UserError(
                    f"{line!r}: nothing is taken out; write <extra_id_0>, <extra_id_1>, ... where"
                    " text is to be told"
                )
        return super().examples_from_lines(lines)

    def spelt(self, ids: Iterable[int]) -> str:
        """Decodes ids up to the first EOS to text, sentinels as <extra_id_0> and so on."""
        parts: list[str] = []
        run: list[int] = []
        for index in [*map(int, ids), self.special.eos]:
            if index in self.sentinels or index == self.special.eos:
                parts.append(self.vocabulary.decode(run))
                run = []
            else:
                run.append(index)
            if index == self.special.eos:
                break
            if index in self.sentinels:
                parts.append(f"<extra_id_{self.sentinels.index(index)}>")
        return " ".join(part for part in parts if part)

    def map_examples(self, split: str, number: int) -> list[TextExample]:
        """Returns the first `number` corrupted rows of a split as a list of `TextExample`, source
        and target as texts.
        """
        examples = self.of_split(split)
        sides = [examples.packed(side) for side in ("source", "target")]
        return [
            TextExample(*(self.spelt(side[row]) for side in sides))
            for row in range(min(number, len(examples)))
        ]

    @property
    def vocabulary(self) -> Vocabulary:
        """That of both sides."""
        return self.vocabularies[0]

    def _ids(self, line: str) -> np.ndarray:
        """Encodes a line, in which <extra_id_0> is the first sentinel, and appends an EOS; raises
        `UserError` for a sentinel that the vocabulary lacks.

        Raises:
          UserError: a sentinel that the vocabulary does not have.
        """
        pieces = []
        for place, part in enumerate(SENTINEL.split(line)):
            if place % 2 == 0:
                pieces.append(self.vocabulary.encode_all([part.strip()])[0])
            elif int(part) < len(self.sentinels):
                pieces.append(np.array([self.sentinels[int(part)]], np.int32))
            else:
                raise UserError(
                    f"<extra_id_{part}>: the vocabulary has {len(self.sentinels)} sentinels, from"
                    " <extra_id_0> on"
                )
        return np.concatenate([*pieces, [self.special.eos]]).astype(np.int32)
