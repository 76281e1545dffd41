"""The configs of tasks that answer at tokens of a text or tell what it lacks, see
`attnlab.config.nodes`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from attnlab.config.decoding import Decoding
from attnlab.config.nodes import (
    LONGER,
    LONGEST,
    Batch,
    Buckets,
    PairAuxiliary,
    Reinforce,
    Run,
    TokenTraining,
)
from attnlab.config.schema import COUNT, SHARE, Node, Range, between, setting, whole
from attnlab.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows(Batch):
    """Batches of texts that are read at once."""

    longer: Literal["score", "windows", "refuse"] = setting(LONGER, "score")
    texts: Literal["apart", "packed", "pairs"] = setting(
        "'apart': each text is a row;"
        " 'packed': rows of max_length tokens, filled with texts that do not see each other;"
        " 'pairs': two segments a row, the second of which follows the first or does not, which"
        " system.next_sentence learns to tell (texts are sentences, a blank one ends a document)",
        "apart",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Whole(Buckets):
    """Batches of rows in which an answer may stand anywhere, so that none is cut."""

    longer: Literal["score", "refuse"] = setting(LONGER, "score")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Masking(Node):
    """What is hidden of a text, to be told from the rest."""

    rate: float = setting("share of the tokens that are to be told", 0.15, within=SHARE)
    most: int = setting("no more than so many in a row; 0: any number", 0, within=whole(0, LONGEST))
    hidden: float = setting(
        "share of these that are replaced by the mask", 0.8, within=between(0, 1)
    )
    random: float = setting(
        "share that are replaced by any token; the others stay as they are",
        0.1,
        within=between(0, 1),
    )

    def check(self) -> None:
        """The two shares are no more than everything."""
        if self.hidden + self.random > 1.0:
            raise UserError(
                f"config.masking.hidden={self.hidden} and random={self.random}: together they are"
                " shares of the tokens that are to be told, at most 1"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedLanguageModelling(Run):
    """Texts, with some of their tokens hidden."""

    batch: Rows
    masking: Masking
    training: TokenTraining


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tagging(Run):
    """Sentences, with a tag for each word."""

    batch: Buckets
    training: TokenTraining


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corruption(Node):
    """What is taken out of a text, to be told."""

    density: float = setting("share of the tokens", 0.15, within=between(0.001, 0.999))
    span: float = setting("mean length of a span of these", 3.0, within=between(1, 10**4))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanCorruption(Run):
    """Texts, with spans of their tokens taken out."""

    corruption: Corruption
    training: TokenTraining
    auxiliary: PairAuxiliary
    reinforce: Reinforce
    decoding: Decoding


@dataclasses.dataclass(frozen=True, kw_only=True)
class Passages(Node):
    """How passages are read, and whether they may have no answer."""

    stride: int = setting(
        "passages are cut into windows, each so many tokens after the one before, so that no row is"
        " longer than batch.max_length; 0: they are not cut, and batch.longer says what becomes of"
        " longer rows",
        0,
        within=whole(0, LONGEST),
    )
    answers: Literal["words", "pieces"] = setting(
        "what an answer begins and ends with: 'pieces' of the vocabulary, or 'words',"
        " which in a text without blanks are whole clauses",
        "words",
    )
    unreachable: float = setting(
        "largest share of answers of training or validation that are no stretch of these",
        1.0,
        within=between(0, 1),
    )
    question: int = setting("with windows, tokens of a question that are read", 64, within=COUNT)
    unanswerable: bool = setting(
        "whether questions without an answer count, and 'no answer' is an answer; else they are"
        " left out",
        False,
    )
    threshold: float = setting(
        "'no answer' is given where its log probability is larger than the best answer's by more",
        0.0,
        within=Range("a finite number", math.isfinite),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionAnswering(Run):
    """Questions, whose answers are stretches of a passage."""

    batch: Whole
    passages: Passages


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagnostics(Run):
    """Texts that ask for answers at some of their words."""

    batch: Whole
    training: TokenTraining
