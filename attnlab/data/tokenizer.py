"""The vocabulary of a model from elsewhere: a `tokenizer.json` as it stands, with its own special
ids.

Nothing is learned here, and nothing changed: texts are cut as the model's own library cuts them
(without the special tokens that it puts around them; those come from the task), and come back as it
writes them. A text that spells a special token is ordinary text. Ids beyond the tokenizer's own,
with which some models fill up their tables, are pieces without text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from attnlab.data.vocabulary import CHUNK, Special, Vocabulary
from attnlab.errors import UserError

FILE = "tokenizer.json"
_NO_ID = -1  # of padding, where a tokenizer has none
_SENTINEL = re.compile(r"<extra_id_\d+>")  # T5's, of which the last id is the first sentinel


class Adopted(Vocabulary):
    """A tokenizer that somebody else has trained; kept whole with a run, and written back as it is.

    Args:
      content: of `tokenizer.json`.
      settings: see `Vocabulary`.
      special: the ids that are no text.
      size: the rows of the model's table, at least as many as the tokenizer has ids.
    """

    def __init__(
        self, content: Mapping[str, Any], settings: dict[str, Any], special: Special, size: int
    ) -> None:
        self.content = dict(content)
        tokenizer = _made(self.content)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        super().__init__(tokenizer, settings)
        last = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        if size < last:
            raise UserError(
                f"the tokenizer has {last} ids and the model {size}: they do not belong together"
            )
        self._pieces = [tokenizer.id_to_token(index) or "" for index in range(size)]
        self.size, self.special = size, special

    @classmethod
    def adopt(cls, file: str | Path, settings: dict[str, Any]) -> Adopted:
        """The tokenizer in a file, or in the folder of a pretrained model.

        Special ids are those that `config.json` and `tokenizer_config.json` beside it say; the size
        is the model's, where there is one.

        Raises:
          UserError: no such file, one that the library cannot read, a tokenizer without an end of
            text, or one that does not fit the model beside it.
        """
        path = Path(file).expanduser()
        path = path / FILE if path.is_dir() else path
        if not str(file):
            raise UserError(
                "config.vocabulary.file is empty: name a tokenizer.json, or the folder of a"
                " pretrained model, for config.vocabulary.kind=tokenizer"
            )
        content = _json(path, must=True)
        model = _json(path.parent / "config.json")
        tokenizer = _made(content)
        special = _special(path, tokenizer, model, _json(path.parent / "tokenizer_config.json"))
        last = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        try:
            return cls(content, settings, special, int(model.get("vocab_size") or last))
        except UserError as error:
            raise UserError(f"{path}: {error}") from error

    @classmethod
    def restored(cls, saved: Mapping[str, Any], settings: dict[str, Any]) -> Adopted:
        """What `kept` has given."""
        lists = {name: tuple(saved["special"].get(name, ())) for name in ("reserved", "front")}
        special = {**saved["special"], **lists}
        return cls(saved["content"], settings, Special(**special), saved["size"])

    def kept(self) -> dict[str, Any]:
        """See `Vocabulary.kept`."""
        names = ("pad", "bos", "eos", "unk")
        special = {name: getattr(self.special, name) for name in names}
        for name in ("reserved", "front"):
            if several := getattr(self.special, name):
                special[name] = list(several)
        return {"content": self.content, "special": special, "size": self.size}

    def normalize(self, text: str) -> str:
        """`text` as the tokenizer sees it."""
        normalizer = self._tokenizer.normalizer
        return text if normalizer is None else str(normalizer.normalize_str(text))

    def encode_stream(
        self,
        texts: Iterable[str],
        end: Iterable[int] = (),
        known: dict[str, list[int]] | None = None,
    ) -> Iterator[np.ndarray]:
        """See `Vocabulary.encode_stream`; each text as a whole, for pieces may reach over blanks."""
        remaining, end = iter(texts), list(end)
        while chunk := list(islice(remaining, CHUNK)):
            for found in self._tokenizer.encode_batch_fast(chunk, add_special_tokens=False):
                yield np.array([*found.ids, *end], np.int32)

    def decode(self, ids: Iterable[int]) -> str:
        """See `Vocabulary.decode`."""
        read: list[int] = []
        silent = {self.special.pad, self.special.bos, *self.special.front}
        for index in map(int, ids):
            if index == self.special.eos:
                break
            if index not in silent:
                read.append(index)
        return str(self._tokenizer.decode(read, skip_special_tokens=False))

    def continued(self, text: str, known: Iterable[int], more: Iterable[int]) -> str:
        """See `Vocabulary.continued`; blanks are the tokenizer's own."""
        known = list(known)
        return text + self.decode([*known, *more])[len(self.decode(known)) :]

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """See `Vocabulary.tokens`; a piece that is no whole character by itself is shown as the
        tokenizer stores it.
        """
        return [self._shown(int(index)) for index in ids]

    def _shown(self, index: int) -> str:
        piece = self._pieces[index] if 0 <= index < self.size else ""
        text = str(self._tokenizer.decode([index], skip_special_tokens=False)) if piece else ""
        whole = text and "\ufffd" not in text and "\u2581" not in piece
        return text.replace(" ", "\u2423") if whole else piece


def _made(content: Mapping[str, Any]) -> Tokenizer:
    try:
        return Tokenizer.from_str(json.dumps(content))
    # the library raises a bare Exception where it cannot read another version's file
    except Exception as error:
        raise UserError(f"{FILE} cannot be read by this version of tokenizers: {error}") from error


def _json(path: Path, must: bool = False) -> dict[str, Any]:
    """The object in a file; {} where there is none and need not be one."""
    if not path.is_file() and not must:
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(
            f"there is no tokenizer {path}; transformers writes one of vocab.json and the like:"
            " AutoTokenizer.from_pretrained(...).save_pretrained(...)"
        ) from error
    except OSError as error:
        raise UserError(f"cannot read the tokenizer {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}); put back a good copy") from error
    if not isinstance(found, dict):
        raise UserError(f"{path} holds no JSON object; put back a good copy")
    return found


def _special(
    path: Path, tokenizer: Tokenizer, model: Mapping[str, Any], told: Mapping[str, Any]
) -> Special:
    """The ids that are no text: the model's word counts, else the tokenizer's.

    What begins a text is what ends it, where nothing else does (GPT-2, Qwen); BERT calls the two
    "cls" and "sep". Its mask is reserved, as are T5's sentinels. An end that pads too would be taken
    for padding where it is to be predicted, so padding has no id then. The decoder of a model of
    pairs reads `decoder_start_token_id` first, which may be padding: no text begins with it.
    """

    def of(name: str) -> int | None:
        index = model.get(f"{name}_token_id")
        index = index[0] if isinstance(index, list) and index else index
        if isinstance(index, int) and not isinstance(index, bool):
            return index
        token = told.get(f"{name}_token")
        token = token.get("content") if isinstance(token, dict) else token
        return tokenizer.token_to_id(token) if isinstance(token, str) else None

    eos = of("sep") if of("eos") is None else of("eos")
    if eos is None:
        raise UserError(
            f'{path}: nothing says which token ends a text; put "eos_token" into'
            " tokenizer_config.json beside it"
        )
    bos, pad, mask = of("cls") if of("bos") is None else of("bos"), of("pad"), of("mask")
    bos, pairs = eos if bos is None else bos, bool(model.get("is_encoder_decoder"))
    if pairs:
        start = of("decoder_start")
        bos = bos if start is None else start
    own = json.loads(tokenizer.to_str())["model"].get("unk_token")
    unk = tokenizer.token_to_id(own) if isinstance(own, str) else None
    pad = _NO_ID if pad is None or pad == eos or (pad == bos and not pairs) else pad
    pieces = tokenizer.get_vocab(with_added_tokens=True)
    reserved = sorted(index for piece, index in pieces.items() if _SENTINEL.fullmatch(piece))
    if not reserved and mask is not None:
        reserved = [mask]
    around = tokenizer.encode("").ids if pairs else []
    front = around[:-1] if around[-1:] == [eos] else []
    return Special(pad, bos, eos, unk, tuple(reserved), tuple(front))
