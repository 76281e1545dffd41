"""Texts to token ids and back: vocabularies of pieces, words and characters, by `tokenizers`.

All kinds are lossless up to white space. For all but `char` a blank becomes the mark U+2581 at the
front of the word it precedes ("a dog." -> "▁a", "▁dog", "."), so that joining the pieces and
turning marks into blanks restores the text, whatever stood next to the punctuation.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from attnlab.data.columns import Packed
from attnlab.data.json_files import FORMAT, digest_of, read_sealed
from attnlab.errors import UserError, nearest
from attnlab.records.files import write_atomic

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")  # at their ids, in a vocabulary of ours
KINDS = ("bpe", "word", "spaced", "char")
TOKENIZER = "tokenizer"  # the kind of one from elsewhere, see `attnlab.data.tokenizer`
CHUNK = 8192  # texts encoded at once
MARK = "\u2581"
_REMEDY = (
    "put back a good copy, or delete it and run the 'train' command of this workdir again, which"
    " learns it from the same data"
)
_REMEMBERED = 200_000  # different words whose ids are kept, some 50 MB


@dataclasses.dataclass(frozen=True)
class Special:
    """The ids of a vocabulary that are no text; a tokenizer from elsewhere has its own.

    Attributes:
      pad: fills up what is shorter than the batch; one that is no id of the vocabulary, such as -1,
        where it has none.
      bos: what a decoder reads first.
      eos: ends a text.
      unk: stands for what the vocabulary lacks; None if it lacks nothing.
      reserved: what tasks use for their own purposes; masked language modelling hides tokens behind
        the first, span corruption spans behind the last ones.
      front: what stands before every text of a pair; the tokenizers of some models have it so.
      ends: what ends a text that is written, beside `eos`, with which texts that are read end.
      forced: what every text that is written begins with; None where it may begin with anything.
    """

    pad: int = PAD
    bos: int = BOS
    eos: int = EOS
    unk: int | None = UNK
    reserved: tuple[int, ...] = ()
    front: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    forced: int | None = None

    @property
    def ending(self) -> tuple[int, ...]:
        """Every id that ends a text that is written."""
        return (self.eos, *self.ends)

    @property
    def unsayable(self) -> tuple[int, ...]:
        """What is never written: padding and what is read first, unless that is an end too."""
        return tuple(sorted({self.pad, self.bos} - {*self.ending, self.forced}))

    def unknown(self, ids: np.ndarray) -> int:
        """How many of the ids stand for what the vocabulary lacks."""
        return 0 if self.unk is None else int((ids == self.unk).sum())


class Marks(NamedTuple):
    """How `Vocabulary.tokens` shows the special ids.

    Attributes:
      silent: the pieces of ids that are no text.
      unknown: the piece of what the vocabulary lacks; None if it lacks nothing.
    """

    silent: frozenset[str]
    unknown: str | None


OURS = Special()
"""The special ids of the vocabularies that are learned here."""


class _Saved(TypedDict):
    """What `Vocabulary.save` writes."""

    format: str
    sha256: str
    settings: dict[str, Any]
    tokenizer: dict[str, Any]


class Vocabulary:
    """A closed list of pieces, the rule that cuts a text into them, and the way back.

    Kinds:
      bpe: byte-pair merges learned inside words, punctuation always apart (Sennrich et al., 2016,
        "Neural Machine Translation of Rare Words with Subword Units").
      word: whole words and single punctuation marks; what is rarer than `min_frequency` is `UNK`.
      spaced: the same, but cut at blanks and nowhere else: for text that is tokenised already.
      char: single code points, blanks included.
      tokenizer: that of a model from elsewhere, see `attnlab.data.tokenizer`.
    Texts are brought to NFC, and lower-cased if so trained. Ids 0..3 are PAD, BOS, EOS, UNK; a text
    that spells "</s>" is ordinary text.

    Attributes:
      settings: `{"kind", "size", "min_frequency", "lowercase"}` as asked for in training, and
        "reserved" if there are any.
      size: of pieces, specials included (at most `settings["size"]`), and reserved ids, the last.
      special: the ids that are no text.
    """

    special = OURS

    def __init__(self, tokenizer: Tokenizer, settings: dict[str, Any]) -> None:
        """Stores the tokenizer, settings and pieces, and adds the reserved ids after the pieces."""
        tokenizer.encode_special_tokens = True  # not part of the library's own file, hence set here
        self._tokenizer = tokenizer
        self.settings = settings
        pieces, reserved = tokenizer.get_vocab_size(), settings.get("reserved", 0)
        self.size: int = pieces + reserved
        self._pieces = [tokenizer.id_to_token(index) or "" for index in range(pieces)]
        self._pieces += [f"<reserved {number}>" for number in range(reserved)]
        if reserved:
            self.special = Special(reserved=tuple(range(pieces, self.size)))

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        kind: str = "bpe",
        size: int = 8000,
        min_frequency: int = 2,
        lowercase: bool = False,
        file: str = "",
        reserved: int = 0,
    ) -> "Vocabulary":
        """Learns from `texts` a vocabulary of at most `size` pieces (of kind "bpe" all characters
        and what occurs `min_frequency` times or more, else only the latter), or for kind
        "tokenizer" reads the one in `file`. `reserved` ids that are no text come on top.

        Deterministic: equal texts in equal order give equal files, byte for byte.

        Raises:
          UserError: unknown kind, a size that cannot hold the alphabet, or texts that leave no
            piece at all.
        """
        settings: dict[str, Any] = {"kind": kind, "size": size, "min_frequency": min_frequency}
        settings |= {"lowercase": lowercase, **({"reserved": reserved} if reserved else {})}
        if kind == TOKENIZER:
            from attnlab.data.tokenizer import Adopted

            if reserved:
                raise UserError(
                    "config.vocabulary.reserved is for vocabularies that are learned; a tokenizer"
                    " has what it has, leave it 0"
                )
            return Adopted.adopt(file, {**settings, "file": file})
        if kind not in KINDS:
            raise UserError(
                f"config.vocabulary.kind={kind!r} is unknown; {nearest(str(kind), (*KINDS, TOKENIZER))}"
            )
        if size <= len(SPECIAL):
            raise UserError(
                f"config.vocabulary.size={size} leaves no room beside the {len(SPECIAL)} special"
                " pieces; it must be larger"
            )
        return cls(_train_tokenizer(texts, kind, size, min_frequency, lowercase), settings)

    def normalize(self, text: str) -> str:
        """Returns a text as the vocabulary reads it: NFC, lower-cased if so trained, white space as
        single blanks (all kinds but char).
        """
        return str(self._tokenizer.normalizer.normalize_str(_spaced(text, self.settings["kind"])))

    def encode_stream(
        self,
        texts: Iterable[str],
        end: Sequence[int] = (),
        cache: dict[str, list[int]] | None = None,
    ) -> Iterator[np.ndarray]:
        """Encodes texts in chunks and yields the ids of each, [length] int32, with the ids `end`
        appended, without storing all of them. A caller with more texts to come may pass the same
        `cache`, {} at first, in which the ids of words are kept.

        No piece reaches over a blank, so a word has the same ids wherever it stands: the library
        sees each word once, which is several times faster than handing it every text. Characters
        are looked up the same way.
        """
        remaining = iter(texts)
        cache = {} if cache is None else cache
        while chunk := [self._units(text) for text in islice(remaining, CHUNK)]:
            if len(cache) > _REMEMBERED:
                cache.clear()
            missing = list(set(chain.from_iterable(chunk)) - cache.keys())
            encodings = self._tokenizer.encode_batch_fast(missing, add_special_tokens=False)
            cache |= zip(missing, (encoding.ids for encoding in encodings), strict=True)
            for units in chunk:
                ids = chain.from_iterable(map(cache.__getitem__, units))
                yield np.array([*ids, *end], np.int32)

    def encodings(self, units: Sequence[str]) -> Sequence[Any]:
        """What the library makes of words, or of texts of kinds that encode them as a whole."""
        return list(self._tokenizer.encode_batch(units, add_special_tokens=False))

    def _units(self, text: str) -> list[str]:
        """Splits a text into the units that are encoded separately: words, or for kind "char" the
        characters of the normalized text.
        """
        char = self.settings["kind"] == "char"
        return list(self.normalize(text)) if char else _spaced(text, "word").split()

    def packed(self, texts: Iterable[str], front: Sequence[int] = ()) -> Packed:
        """Encodes texts as one column of examples (`Packed`), each text with the ids `front` before
        it and EOS at its end.
        """
        begin, ids = np.array(front, np.int32), self.encode_stream(texts, end=(self.special.eos,))
        rows = (np.concatenate([begin, text_ids]) for text_ids in ids) if len(begin) else ids
        return Packed(rows, pad=self.special.pad)

    def encode_words(self, texts: Iterable[Sequence[str]]) -> list[list[np.ndarray]]:
        """Encodes every word of every text on its own and returns for each text a list with the ids
        of each word, an array each; a word without a piece gets the unknown id.
        """
        texts, unknown = list(texts), np.array([self.special.unk or 0], np.int32)
        encoded = self.encode_stream(chain.from_iterable(texts))
        word_ids = iter([ids if len(ids) else unknown for ids in encoded])
        return [list(islice(word_ids, len(words))) for words in texts]

    def encode_all(self, texts: Iterable[str]) -> list[np.ndarray]:
        """The ids of each text, [length] int32, without BOS and EOS."""
        return list(self.encode_stream(texts))

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text that the ids spell up to the first EOS, without PAD and BOS, and with
        "<unk>" for an unknown piece.
        """
        word, special = self.settings["kind"] in ("word", "spaced"), self.special
        pieces = []
        for index in map(int, ids):
            if index == special.eos:
                break
            if index == special.unk and word:
                pieces.append(MARK + SPECIAL[UNK])  # the mark was lost with the word
            elif index not in (special.pad, special.bos):
                pieces.append(self._pieces[index])
        return _spaced("".join(pieces), self.settings["kind"])

    def continued(self, text: str, prompt: Iterable[int], added: Iterable[int]) -> str:
        """Returns a text, whose ids are `prompt`, followed by the text of the ids `added`, with a
        blank between words.
        """
        text = text if self.settings["kind"] == "char" else text.rstrip()
        return text + self.decode([*prompt, *added])[len(self.decode(prompt)) :]

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Returns one readable piece per id, specials included, for the axes of a picture (a blank
        character is shown as U+2423).
        """
        pieces = (self._pieces[int(index)] for index in ids)
        return ["\u2423" if piece == " " else piece for piece in pieces]

    @property
    def marks(self) -> Marks:
        """Returns the pieces of the special ids, those without text and the unknown one, as
        `tokens` shows them.
        """
        special = self.special
        ids = {special.pad, special.bos, *special.ending} & set(range(self.size))
        unknown = None if special.unk is None else self.tokens([special.unk])[0]
        return Marks(frozenset(self.tokens(sorted(ids))), unknown)

    def to_json(self) -> dict[str, Any]:
        """Returns the tokenizer as a dict for JSON, which `save` writes beside the settings."""
        content: dict[str, Any] = json.loads(self._tokenizer.to_str())
        return content

    def save(self, path: str | Path) -> None:
        """Writes the vocabulary atomically as one JSON file with its SHA-256, from which `load`
        restores it.

        Raises:
          UserError: the folder cannot be written.
        """
        body = {"settings": self.settings, "tokenizer": self.to_json()}
        text = json.dumps({"format": FORMAT, "sha256": digest_of(body), **body}, ensure_ascii=False)
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, text)
        except OSError as error:
            raise UserError(
                f"cannot write the vocabulary {path}: {error.strerror or error}"
            ) from error

    @classmethod
    def load(cls, path: str | Path) -> "Vocabulary":
        """Loads the vocabulary saved at `path` and returns it; raises `UserError` if the file is
        missing, damaged (its SHA-256 does not match), or not readable by this version of
        `tokenizers`.

        Raises:
          UserError: no such file, or one that is not what `save` wrote (truncated, edited, flipped
            bits).
        """
        body = read_sealed(Path(path), _Saved, f"the vocabulary {path}", remedy=_REMEDY)
        if body["settings"].get("kind") == TOKENIZER:
            from attnlab.data.tokenizer import Adopted

            return Adopted.restored(body["tokenizer"], body["settings"])
        try:
            return cls(Tokenizer.from_str(json.dumps(body["tokenizer"])), body["settings"])
        # the library raises a bare Exception where it cannot read another version's file
        except Exception as error:
            raise UserError(
                f"the vocabulary {path} cannot be read by this version of tokenizers: {error}"
            ) from error


def _train_tokenizer(
    texts: Iterable[str], kind: str, size: int, min_frequency: int, lowercase: bool
) -> Tokenizer:
    """Trains a tokenizer of this kind on texts and returns it: at most `size` pieces, seen
    `min_frequency` times or more (single characters of kind "bpe" in any case), lower-cased if
    `lowercase`. Raises `UserError` if `size` cannot hold all characters or no piece is frequent
    enough.
    """
    tokenizer = _untrained(kind, lowercase)
    trainer = (trainers.BpeTrainer if kind == "bpe" else trainers.WordLevelTrainer)(
        vocab_size=size,
        min_frequency=min_frequency,
        special_tokens=list(SPECIAL),
        show_progress=False,
    )
    tokenizer.train_from_iterator((_spaced(text, kind) for text in texts), trainer)
    count = tokenizer.get_vocab_size()
    if count > size:  # byte-pair training keeps every character, also beyond the size asked for
        characters = count - len(SPECIAL)
        raise UserError(
            f"config.vocabulary.size={size} cannot hold the {characters} characters of the texts;"
            f" ask for {count} or more"
        )
    if count == len(SPECIAL):
        raise UserError(
            f"nothing in the texts occurs config.vocabulary.min_frequency={min_frequency} times, so"
            " there is no vocabulary"
        )
    return tokenizer


def _untrained(kind: str, lowercase: bool) -> Tokenizer:
    """Returns a tokenizer of this kind ("bpe", "word", "spaced", "char") without pieces, with its
    normalization, lower-casing if `lowercase`, its cutting into words or characters, and its
    decoder set.
    """
    tokenizer = Tokenizer(
        (models.BPE if kind == "bpe" else models.WordLevel)(unk_token=SPECIAL[UNK])
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC()] + [normalizers.Lowercase()] * lowercase
    )
    if kind == "char":
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        tokenizer.decoder = decoders.Fuse()
        return tokenizer
    blanks = pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme="always", split=True)
    punctuation = [] if kind == "spaced" else [pre_tokenizers.Punctuation("isolated")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([blanks, *punctuation])
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def _spaced(text: str, kind: str) -> str:
    """Returns a text with white space, and the mark itself, as single blanks, which the mark then
    stands for; for kind "char" unchanged.
    """
    return text if kind == "char" else " ".join(text.replace(MARK, " ").split())
