"""Tokenizers from elsewhere: ids as their own library gives them, their own special ids, kept whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from attnlab.data import corpus
from attnlab.data.text import load as load_texts
from attnlab.data.tokenizer import Adopted
from attnlab.data.vocabulary import Special, Vocabulary
from attnlab.errors import UserError

TEXTS = [
    "A dog, a cat; two dogs!",
    " it's  the cat's\tbird",
    "Grüße aus Köln …",
    "<|end|> is text",
    "",
]


def byte_level(folder: Path, **config: Any) -> Path:
    """A tokenizer as GPT-2 has it: bytes, blanks in front of words, one special token."""
    one = Tokenizer(models.BPE())
    one.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    one.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    one.train_from_iterator(TEXTS, trainer)
    return stored(one, folder, config, {"eos_token": {"content": "<|end|>"}})


def stored(one: Tokenizer, folder: Path, config: Any, told: Any) -> Path:
    """A folder with a tokenizer and what stands beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    one.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def adopted(file: Path) -> Vocabulary:
    """As a config with kind=tokenizer comes to it."""
    return Vocabulary.train([], "tokenizer", file=str(file))


def test_ids_are_those_of_the_library_and_texts_come_back(tmp_path: Path) -> None:
    folder = byte_level(tmp_path)
    vocabulary = adopted(folder)
    theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
    theirs.encode_special_tokens = True
    for text, ids in zip(TEXTS, vocabulary.encode_all(TEXTS), strict=True):
        assert ids.dtype == np.int32
        assert ids.tolist() == theirs.encode(text, add_special_tokens=False).ids
        assert vocabulary.decode(ids) == text and vocabulary.special.eos not in ids
    assert vocabulary.packed(["a"])[0][-1] == vocabulary.special.eos == 0


def test_special_ids_are_those_of_the_model_else_of_the_tokenizer(tmp_path: Path) -> None:
    plain = adopted(byte_level(tmp_path / "plain")).special
    assert (plain.pad, plain.bos, plain.eos, plain.unk) == (-1, 0, 0, None)
    told = {"bos_token_id": 5, "eos_token_id": [7, 8], "pad_token_id": 7, "vocab_size": 300}
    own = adopted(byte_level(tmp_path / "own", **told))
    assert (own.special.pad, own.special.bos, own.special.eos) == (-1, 5, 7)
    assert own.size == 300 and own.tokens([299]) == [""] and own.decode([299, 7, 40]) == ""
    padded = adopted(byte_level(tmp_path / "padded", eos_token_id=7, pad_token_id=9))
    assert padded.special.pad == 9


def test_the_special_ids_of_bert_and_its_mask(tmp_path: Path) -> None:
    """What begins and ends a text, cls and sep; the mask is reserved, and kept."""
    names = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b")
    one = Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    one.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    told = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    found = adopted(stored(one, tmp_path, {"pad_token_id": 0}, told))
    assert found.special == Special(0, 2, 3, 1, (4,))
    found.save(tmp_path / "kept.json")
    assert Vocabulary.load(tmp_path / "kept.json").special == found.special
    with pytest.raises(UserError, match="a tokenizer has what it has"):
        Vocabulary.train([], "tokenizer", file=str(tmp_path), reserved=1)


def test_a_saved_one_is_the_same_and_its_tokenizer_unchanged(tmp_path: Path) -> None:
    folder = byte_level(tmp_path, eos_token_id=7, vocab_size=400)
    first = adopted(folder)
    first.save(tmp_path / "kept.json")
    again = Vocabulary.load(tmp_path / "kept.json")
    assert isinstance(again, Adopted) and again.special == first.special and again.size == 400
    assert again.settings == first.settings
    assert again.content == json.loads((folder / "tokenizer.json").read_text())
    for one, other in zip(first.encode_all(TEXTS), again.encode_all(TEXTS), strict=True):
        assert one.tolist() == other.tolist()


def test_no_text_is_read_for_its_sake(tmp_path: Path) -> None:
    """Where no split is asked for, the data need not be there."""
    vocabulary = {"kind": "tokenizer", "file": str(byte_level(tmp_path / "in"))}
    nowhere = {"name": "text", "directory": str(tmp_path / "nowhere")}
    found = load_texts(nowhere, vocabulary, splits=())
    mine, theirs = (one.packed(["A dog"]) for one in (found.vocabulary, adopted(tmp_path / "in")))
    assert found.splits == () and mine.ids[:].tolist() == theirs.ids[:].tolist() != []
    with pytest.raises(UserError, match="nowhere"):
        load_texts(nowhere, {"kind": "bpe"}, splits=())
    pairs = {"name": "files", "directory": str(tmp_path / "nowhere")}
    both = corpus.load(pairs, {**vocabulary, "shared": True}, splits=())
    assert both.source_vocabulary is both.target_vocabulary


def test_a_text_goes_on_without_a_blank_of_ours(tmp_path: Path) -> None:
    vocabulary = adopted(byte_level(tmp_path))
    known, whole = (vocabulary.encode_all([text])[0] for text in ("two", "two dogs"))
    assert whole[: len(known)].tolist() == known.tolist()
    assert vocabulary.continued("two", known, whole[len(known) :]) == "two dogs"
    assert "\u2423dog" in "".join(vocabulary.tokens(whole))


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    folder = byte_level(tmp_path / "one", vocab_size=10)
    silent = stored(Tokenizer.from_file(str(folder / "tokenizer.json")), tmp_path / "two", {}, {})
    (tmp_path / "broken.json").write_text("{")
    for file, message in {
        folder: "the tokenizer has 290 ids and the model 10: they do not belong together",
        silent: 'nothing says which token ends a text; put "eos_token"',
        tmp_path / "none": "there is no tokenizer .*; transformers writes one",
        tmp_path / "broken.json": "is not JSON",
    }.items():
        with pytest.raises(UserError, match=message):
            adopted(file)
    with pytest.raises(UserError, match=r"config\.vocabulary\.file is empty"):
        Vocabulary.train([], "tokenizer")
