"""The settings of data: how texts are cut into pieces, what goes into a batch, and what is hidden,
taken out or changed in it. Importing this module loads no jax.
"""

import dataclasses
import math
from typing import Any, Literal

from attnlab.config.schema import COUNT, LONGEST, SHARE, Node, Range, between, setting, whole
from attnlab.errors import UserError

LONGER = (
    "what becomes of rows longer than max_length, in every split: 'cut'; 'leave_out'; 'windows': a"
    " text is several rows; 'refuse'; 'score': left out of training, scored whole"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vocabulary(Node):
    """What texts are cut into."""

    kind: Literal["bpe", "word", "spaced", "char", "tokenizer"] = setting(
        "the pieces: learned by byte-pair encoding, words and signs, what stands between spaces,"
        " characters, or those of the tokenizer in `file`",
        "bpe",
    )
    file: str = setting(
        "for kind=tokenizer: a tokenizer.json, or the folder of a pretrained model that has one",
        "",
    )
    size: int = setting("most pieces, with special ones", 8000, within=whole(1, 10**7))
    min_frequency: int = setting("pieces seen less often are left out", 2, within=COUNT)
    lowercase: bool = setting("whether all texts are lower-cased first", False)
    reserved: int = setting(
        "ids that are no text, beyond `size`, for tasks that need some: the first is the mask of"
        " masked language modelling",
        0,
        within=whole(0, 2**16),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairVocabulary(Vocabulary):
    """What the texts of both sides are cut into."""

    shared: bool = setting("one vocabulary for both sides, or one of this size for each", True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoVocabularies(PairVocabulary):
    """What the texts of both sides are cut into, each in its own way."""

    target_kind: Literal["", "bpe", "word", "spaced", "char"] = setting(
        "the pieces of the target; '' for those of the source", ""
    )

    def check(self) -> None:
        """Raises `UserError` if one vocabulary is shared but the target has another kind of
        pieces.
        """
        if self.shared and self.target_kind not in ("", self.kind):
            raise UserError(
                f"config.vocabulary.kind={self.kind!r} and target_kind={self.target_kind!r}: a"
                " shared vocabulary has one kind; set vocabulary.shared=false"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnyBatch(Node):
    """What goes into an update."""

    size: int = setting("rows of a batch, or its tokens", 64, within=whole(1, 2**24))

    def positions(self, parts: int) -> int:
        """The most positions of a batch, rows x width, that is taken in so many parts."""
        return self.size

    def described(self) -> str:
        """The settings that decide `positions`."""
        return f"size={self.size} rows"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch(AnyBatch):
    """What goes into an update, of tasks of texts."""

    max_length: int = setting("tokens of the longest text, or of a piece", within=whole(1, LONGEST))

    def positions(self, parts: int) -> int:
        """See `AnyBatch`."""
        return self.size * self.max_length

    def described(self) -> str:
        """See `AnyBatch`."""
        return f"size={self.size} sentences of up to batch.max_length={self.max_length} tokens"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Buckets(Batch):
    """Batches of texts of about one length."""

    longer: Literal["score", "cut", "leave_out", "refuse"] = setting(LONGER, "score")
    unit: Literal["sentences", "tokens"] = setting("what batch.size counts", "sentences")
    buckets: tuple[int, ...] = setting("the widths of batches in tokens, increasing")

    def positions(self, parts: int) -> int:
        """Returns the largest number of positions (rows x width) of a batch; of a size in tokens at
        least one row for each part. See `AnyBatch`.
        """
        if self.unit == "tokens":
            return max(self.size, parts * self.max_length)
        return super().positions(parts)

    def described(self) -> str:
        """See `AnyBatch`."""
        return super().described().replace("sentences", self.unit)

    @property
    def arguments(self) -> dict[str, Any]:
        """Returns size, unit, buckets and max_length by name, as arguments of
        `batching.TrainBatches`.
        """
        names = ("size", "unit", "buckets", "max_length")
        return {name: getattr(self, name) for name in names}

    def check(self) -> None:
        """Raises `UserError` unless the bucket widths are strictly increasing whole numbers from 1
        to `LONGEST`, and not empty.
        """
        counts = self.buckets and all(
            type(length) is int and 1 <= length <= LONGEST for length in self.buckets
        )
        if not counts or list(self.buckets) != sorted(set(self.buckets)):
            raise UserError(
                f"config.batch.buckets={self.buckets!r}: expected increasing whole numbers of at"
                " least 1, such as 16,32,64"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lanes(Batch):
    """Batches of running text: rows are texts, or lanes of one stream."""

    longer: Literal["score", "windows", "refuse"] = setting(LONGER, "score")
    texts: Literal["joined", "in_turn", "apart", "packed", "crops"] = setting(
        "'apart': each text is a row; 'joined': lanes of one stream, read piece by piece;"
        " 'in_turn': the same, but nothing is known at the beginning of a text; 'packed': rows of"
        " max_length tokens, filled with texts that do not see each other; 'crops': rows of"
        " max_length tokens that begin anywhere in the stream",
        "apart",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CaptionBuckets(Buckets):
    """Batches of texts beside images."""

    longer: Literal["score", "cut", "refuse"] = setting(LONGER, "score")


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionBuckets(CaptionBuckets):
    """Batches of questions about images."""

    questions: int = setting(
        "questions about one image that stand in a row, so that the image is read once for all of"
        " them; the size then counts such rows",
        1,
        within=whole(1, 2**16),
    )


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
class UncutBuckets(Buckets):
    """Batches of rows in which an answer may stand anywhere, so that none is cut."""

    longer: Literal["score", "refuse"] = setting(LONGER, "score")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Augmentation(Node):
    """How images are changed in training; never in evaluation."""

    crop: int = setting(
        "pixels of an edge of zeros, put around an image before one of its own size is cut out"
        " anywhere",
        0,
        within=whole(0, 2**10),
    )
    flip: bool = setting("whether every second image, on average, is turned left to right", False)
    anywhere: bool = setting(
        "whether all that is not 0 in an image is moved as one piece, to anywhere within it", False
    )


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
        """Raises `UserError` if `hidden` and `random`, the shares of masked and of random tokens,
        add up to more than 1.
        """
        if self.hidden + self.random > 1.0:
            raise UserError(
                f"config.masking.hidden={self.hidden} and random={self.random}: together they are"
                " shares of the tokens that are to be told, at most 1"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corruption(Node):
    """What is taken out of a text, to be told."""

    density: float = setting("share of the tokens", 0.15, within=between(0.001, 0.999))
    span: float = setting("mean length of a span of these", 3.0, within=between(1, 10**4))


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
