"""The vocabulary of a model from elsewhere: a `tokenizer.json` as it stands, with its own special
ids.

Nothing is learned here, and nothing changed: texts are cut as the model's own library cuts them
(without the special tokens that it puts around them; those come from the task), and come back as it
writes them. A text that spells a special token is ordinary text in every kind of tokenizer: the
pieces of special ids have names in the encoder that no text spells. Ids beyond the tokenizer's own,
with which some models fill up their tables, are pieces without text.

    file                      what is read of it
    tokenizer.json            all
    config.json               vocab_size, ids of special tokens, is_encoder_decoder
    generation_config.json    more ends, the forced first id, the first id of a decoder
    tokenizer_config.json     special tokens by name, the chat template
    chat_template.jinja       the chat template; refused beside another in tokenizer_config.json
"""

import dataclasses
import functools
import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from attnlab.data.json_files import read_json
from attnlab.data.vocabulary import CHUNK, Special, Vocabulary
from attnlab.errors import UserError

FILE = "tokenizer.json"
CONFIG, GENERATION, NAMES = "config.json", "generation_config.json", "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
MOST = 2**24  # ids of a vocabulary
_NO_ID = -1  # of padding, where a tokenizer has none
_SENTINEL = re.compile(r"<extra_id_\d+>")  # T5's, of which the last id is the first sentinel
_TOKENS = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


class Prompt(str):
    """A line that is read by ids of its own, nothing put before them.

    Attributes:
      ids: [length].
      context: what stands before the answer.
    """

    ids: list[int]
    context: str

    def __new__(cls, line: str, ids: list[int], context: str) -> "Prompt":
        """Makes a str of the line and stores its ids and the context before the answer."""
        prompt = super().__new__(cls, line)
        prompt.ids, prompt.context = ids, context
        return prompt


class Adopted(Vocabulary):
    """A tokenizer that somebody else has trained; kept whole with a run, and written back as it is.

    Args:
      content: of `tokenizer.json`.
      settings: see `Vocabulary`.
      special: the ids that are no text.
      size: the rows of the model's table, at least as many as the tokenizer has ids.
      chat: "template" and "tokens" (special tokens by name) for chats; {} where there is no
        template.
      guarded: whether texts that spell special tokens stay texts in every kind of tokenizer; not
        in runs that have begun before they did.
    """

    def __init__(
        self,
        content: Mapping[str, Any],
        settings: dict[str, Any],
        special: Special,
        size: int,
        chat: Mapping[str, Any],
        guarded: bool = True,
    ) -> None:
        """Builds the tokenizer of a tokenizer.json (`content`, parsed) and stores the other
        arguments; raises `UserError` if it has more ids than `size`, or `size` is above `MOST`.
        """
        self.content, self.chat, self.guarded = dict(content), dict(chat), guarded
        tokenizer = _build_tokenizer(json.dumps(self.content))
        super().__init__(tokenizer, settings)
        last = _ids(tokenizer)
        if not last <= size <= MOST:
            raise UserError(
                f"the tokenizer has {last} ids and the model {size}: they do not belong together"
            )
        self._pieces = [tokenizer.id_to_token(index) or "" for index in range(size)]
        self.size, self.special = size, special

    @classmethod
    def adopt(cls, file: str | Path, settings: dict[str, Any]) -> "Adopted":
        """Reads a tokenizer.json, given by its path or its folder, with the special ids, size and
        chat template that the files beside it name; raises `UserError` if these do not fit.

        Special ids are those that the files beside it say; the size is the model's, where there is
        one.

        Raises:
          UserError: no such file, one that the library cannot read, a tokenizer without an end of
            text, special ids beyond the vocabulary, or one that does not fit the model beside it.
        """
        path = Path(file).expanduser()
        path = path / FILE if path.is_dir() else path
        if not str(file):
            raise UserError(
                "config.vocabulary.file is empty: name a tokenizer.json, or the folder of a"
                " pretrained model, for config.vocabulary.kind=tokenizer"
            )
        if not path.is_file():
            raise UserError(
                f"there is no tokenizer {path}; transformers writes one of vocab.json and the like:"
                " AutoTokenizer.from_pretrained(...).save_pretrained(...)"
            )
        content, model = read_json(path), _read_beside(path, CONFIG)
        tokenizer = _build_tokenizer(json.dumps(content))
        size = model.get("vocab_size") or _ids(tokenizer)
        if type(size) is not int:
            raise UserError(f"{path.parent / CONFIG}: vocab_size={size!r}; expected a whole number")
        names = _read_beside(path, NAMES)
        special = _special(path, tokenizer, model, names, size)
        try:
            return cls(content, settings, special, size, _chat(path, names))
        except UserError as error:
            raise UserError(f"{path}: {error}") from error

    @classmethod
    def restored(cls, saved: Mapping[str, Any], settings: dict[str, Any]) -> "Adopted":
        """Rebuilds the tokenizer from what `to_json` returned, as a run has saved it."""
        special: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in saved["special"].items()
        }
        options = saved.get("chat", {}), saved.get("guarded", False)
        return cls(saved["content"], settings, Special(**special), saved["size"], *options)

    def to_json(self) -> dict[str, Any]:
        """Returns content, special ids, size, and, if set, chat and `guarded` as a JSON dict."""
        names = ("pad", "bos", "eos", "unk")
        special = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in dataclasses.asdict(self.special).items()
            if name in names or value not in ((), None)
        }
        extras = {"chat": self.chat, "guarded": self.guarded}
        extras = {name: value for name, value in extras.items() if value}
        return {"content": self.content, "special": special, "size": self.size, **extras}

    def normalize(self, text: str) -> str:
        """Returns a text as the tokenizer's normalizer changes it, or unchanged if it has none."""
        normalizer = self._tokenizer.normalizer
        return text if normalizer is None else str(normalizer.normalize_str(text))

    def encode_stream(
        self,
        texts: Iterable[str],
        end: Iterable[int] = (),
        cache: dict[str, list[int]] | None = None,
    ) -> Iterator[np.ndarray]:
        """Yields the ids of each text, [length] int32, encoded as a whole, and `end` after them; a
        `Prompt` keeps its ids, `cache` is ignored. See `Vocabulary.encode_stream`.
        """
        remaining, end = iter(texts), list(end)
        while chunk := list(islice(remaining, CHUNK)):
            encodings = self._encoder.encode_batch_fast(chunk, add_special_tokens=False)
            for text, encoding in zip(chunk, encodings, strict=True):
                ids = text.ids if isinstance(text, Prompt) else encoding.ids
                yield np.array([*ids, *end], np.int32)

    def named(self, text: str, around: bool = False) -> list[int]:
        """Returns the ids of a text in which names such as "</s>" are special tokens, and, if
        `around`, with the ids that the tokenizer puts before and behind a text.
        """
        self._tokenizer.encode_special_tokens = False
        try:
            return list(self._tokenizer.encode(text, add_special_tokens=around).ids)
        finally:
            self._tokenizer.encode_special_tokens = True

    def spelt(self, rendered: str, mark: str) -> list[int]:
        """Returns the ids of a rendered chat, in which names of special tokens mean these tokens,
        except between two marks, where they are ordinary text; drops a mark without its partner.

        What stands behind a mark is cut as if it stood behind the end of a line, so that no blank
        is put before it, as `transformers` does it.
        """
        ids_so_far: list[int] = []
        line = self.named("\n")
        for number, part in enumerate(re.split(f"{mark}({self._names()}){mark}|{mark}", rendered)):
            encode = self._plain if number % 2 else self.named
            ids = encode(f"\n{part}") if part and number else []
            following = ids[len(line) :] if ids[: len(line)] == line else encode(part or "")
            ids_so_far += following if number else encode(part)
        return ids_so_far

    def marked(self, text: str, mark: str) -> str:
        """A text of JSON with marks around all that spells special tokens."""
        return re.sub(self._names(json.dumps), lambda match: f"{mark}{match[0]}{mark}", text)

    def encodings(self, units: Sequence[str]) -> Sequence[Any]:
        """See `Vocabulary.encodings`; special tokens that texts spell stay text."""
        return list(self._encoder.encode_batch(units, add_special_tokens=False))

    def decode(self, ids: Iterable[int]) -> str:
        """See `Vocabulary.decode`; stops at the first id that ends a text."""
        return str(self._tokenizer.decode(self._written(ids), skip_special_tokens=False))

    def continued(self, text: str, prompt: Iterable[int], added: Iterable[int]) -> str:
        """Returns `text` and behind it the text of the ids `added`, decoded after `prompt`."""
        before, after = list(map(int, prompt)), self._written(added)
        full, part = (
            str(self._tokenizer.decode(ids, skip_special_tokens=False))
            for ids in ([*before, *after], before)
        )
        return text + full[len(part) :]

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Returns a readable piece per id, as stored if no whole character; `Vocabulary.tokens`."""
        return [self._readable(int(index)) for index in ids]

    def _written(self, ids: Iterable[int]) -> list[int]:
        """Returns the ids before the first that ends a text, without padding and opening ids."""
        silent = {self.special.pad, self.special.bos, *self.special.front}
        text = takewhile(lambda index: index not in self.special.ending, map(int, ids))
        return [index for index in text if index not in silent]

    def _plain(self, text: str) -> list[int]:
        """The ids of an ordinary text."""
        return list(self._encoder.encode(text, add_special_tokens=False).ids)

    @functools.cached_property
    def _specials(self) -> dict[int, str]:
        """Returns the pieces of all special ids, by id, without ids that have no piece."""
        special = self.special
        ids = {special.pad, special.bos, special.unk, special.forced, *special.ending}
        ids |= {*special.reserved, *special.front}
        added = self.content.get("added_tokens") or ()
        ids |= {token["id"] for token in added if token.get("special")}
        indices = [index for index in ids if index is not None and 0 <= index < self.size]
        return {index: self._pieces[index] for index in indices if self._pieces[index]}

    def _names(self, written: Callable[[str], str] = '"{}"'.format) -> str:
        """Returns a regular expression for the texts of special tokens, each as `written`."""
        names = sorted(self._specials.values(), key=len, reverse=True)
        return "|".join(re.escape(written(name)[1:-1]) for name in names) or "(?!)"

    @functools.cached_property
    def _encoder(self) -> Tokenizer:
        """Returns the tokenizer for ordinary text: if `guarded` and its special pieces are also in
        the vocabulary as text, a copy with these renamed, so that no text can spell one; else the
        tokenizer itself.
        """
        vocabulary, pieces = self.content["model"].get("vocab", {}), {*self._specials.values()}
        texts = {*vocabulary} if isinstance(vocabulary, dict) else {word for word, _ in vocabulary}
        added = self.content.get("added_tokens") or ()
        texts |= {token["content"] for token in added if not token.get("special")}
        if not self.guarded or not pieces & texts:
            return self._tokenizer
        model = dict(self.content["model"])
        if "merges" in model:  # none makes one of these pieces
            pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
            model["merges"] = [pair for pair in pairs if not {"".join(pair), *pair} & pieces]
        text, key = json.dumps({**self.content, "model": model}), secrets.token_hex(16)
        for piece in pieces:
            text = text.replace(json.dumps(piece), json.dumps(key + piece))
        return _build_tokenizer(text)

    def _readable(self, index: int) -> str:
        """Returns the text of an id, blanks visible; its piece if it is no whole character."""
        piece = self._pieces[index] if 0 <= index < self.size else ""
        text = str(self._tokenizer.decode([index], skip_special_tokens=False)) if piece else ""
        is_text = text and "\ufffd" not in text and "\u2581" not in piece
        return text.replace(" ", "\u2423") if is_text else piece


def _build_tokenizer(text: str) -> Tokenizer:
    """Builds a tokenizer from its file's text, without truncation and padding, that encodes names
    of special tokens as ordinary text; `UserError` if the library cannot read it.
    """
    try:
        tokenizer = Tokenizer.from_str(text)
    # the library raises a bare Exception where it cannot read another version's file
    except Exception as error:
        raise UserError(f"{FILE} cannot be read by this version of tokenizers: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def _ids(tokenizer: Tokenizer) -> int:
    """How many ids there are, up to the last one that is used."""
    return 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)


def _read_beside(path: Path, name: str) -> dict[str, Any]:
    """Reads the JSON object in the file `name` beside another file; returns {} for none."""
    node: dict[str, Any] = read_json(path.parent / name) if (path.parent / name).is_file() else {}
    return node


def _chat(path: Path, names: Mapping[str, Any]) -> dict[str, Any]:
    """Returns {"template": text, "tokens": special tokens by name} of the files beside a tokenizer,
    {} for no template; raises `UserError` for two different templates or one that is no text.
    """
    template, file = names.get("chat_template"), path.parent / TEMPLATE
    if isinstance(template, list):  # one for each purpose
        defaults = [entry.get("template") for entry in template if entry.get("name") == "default"]
        template = defaults[0] if defaults else template
    if file.is_file():
        text = file.read_bytes().decode(errors="replace")
        if template not in (None, text):
            raise UserError(f"{NAMES} has another chat_template than {TEMPLATE}; remove one")
        template = text
    if not isinstance(template, str | None):
        raise UserError(f"{NAMES}: chat_template is no text, nor has it a default one")
    tokens = {f"{name}_token": token for name in _TOKENS if (token := _token(names, name))}
    return {} if template is None else {"template": template, "tokens": tokens}


def _token(names: Mapping[str, Any], name: str) -> str | None:
    """Returns the text of a special token, such as "eos", in `names`; None if it has none."""
    token = names.get(f"{name}_token")
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else None


def _ids_at(size: int, key: str, *places: tuple[Path, Mapping[str, Any]]) -> list[int]:
    """Returns the ids at `key` in the first of the given files that has it, [] if none has it or if
    the padding id is -1; raises `UserError` for a value that is no id below `size`.
    """
    for name, content in places:
        if (value := content.get(key)) is None:
            continue
        listed = value if isinstance(value, list) and key == "eos_token_id" else [value]
        if key == "pad_token_id" and value == _NO_ID:
            return []
        if not listed or any(type(index) is not int or not 0 <= index < size for index in listed):
            ids = f"ids of the vocabulary, 0 to {size - 1}"
            raise UserError(f"{name}: {key}={value!r}; expected {ids}")
        return list(listed)
    return []


def _special(
    path: Path, tokenizer: Tokenizer, model: Mapping[str, Any], names: Mapping[str, Any], size: int
) -> Special:
    """Returns the special ids of a tokenizer, from the model's config files where they say, else
    from the tokenizer's; raises `UserError` if nothing says which id ends a text.

    What begins a text is what ends it, where nothing else does (GPT-2, Qwen); BERT calls the two
    "cls" and "sep". Its mask is reserved, as are T5's sentinels. An end that pads too would be taken
    for padding where it is to be predicted, so padding has no id then. The decoder of a model of
    pairs reads `decoder_start_token_id` first, which may be padding: no text begins with it. A text
    that is written ends where config or generation config say, whichever of their ids comes.
    """
    ids_at = functools.partial(_ids_at, size)
    first = (path.parent / CONFIG, model)
    second = (path.parent / GENERATION, _read_beside(path, GENERATION))

    def find(name: str) -> int | None:
        """Returns the id of a special token, from these files or by its name; None for none."""
        if ids := ids_at(f"{name}_token_id", first, second):
            return ids[0]
        token = _token(names, name)
        return None if token is None else tokenizer.token_to_id(token)

    eos = find("sep") if find("eos") is None else find("eos")
    if eos is None:
        raise UserError(
            f'{path}: nothing says which token ends a text; put "eos_token" into {NAMES} beside it'
        )
    end_ids = [*ids_at("eos_token_id", first), *ids_at("eos_token_id", second)]
    ends = tuple(index for index in dict.fromkeys(end_ids) if index != eos)
    bos, pad, mask = find("cls") if find("bos") is None else find("bos"), find("pad"), find("mask")
    bos, pairs = eos if bos is None else bos, bool(model.get("is_encoder_decoder"))
    start = ids_at("decoder_start_token_id", second, first)
    bos = start[0] if pairs and start else bos
    forced = ids_at("forced_bos_token_id", second, first)
    kind = json.loads(tokenizer.to_str())["model"]
    unknown = kind.get("unk_token")
    unk = tokenizer.token_to_id(unknown) if isinstance(unknown, str) else kind.get("unk_id")
    ends_with_padding = pad in (eos, *ends) or (pad == bos and not pairs)
    pieces = tokenizer.get_vocab(with_added_tokens=True)
    reserved = sorted(index for piece, index in pieces.items() if _SENTINEL.fullmatch(piece))
    if not reserved and mask is not None:
        reserved = [mask]
    around = tokenizer.encode("").ids if pairs else []
    front = around[:-1] if around[-1:] == [eos] else []
    padding = _NO_ID if pad is None or ends_with_padding else pad
    return Special(padding, bos, eos, unk, tuple(reserved), tuple(front), ends, *forced)
