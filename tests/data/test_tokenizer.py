"""Tokenizers from elsewhere: ids as their own library gives them, their own special ids, kept whole."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from attnlab.data import corpus
from attnlab.data.passages import located
from attnlab.data.text import Texts
from attnlab.data.tokenizer import Adopted
from attnlab.data.vocabulary import Special, Vocabulary
from tests.refusals import check_refused

TEXTS = ["A dog, a cat; two dogs!", " it's  the cat's\tbird", "Grüße aus Köln …", "<|end|> is text"]
TEXTS += [""]
START = "decoder_start_token_id"


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
    endless = {"model_max_length": int(1e30)}  # as transformers writes "no limit"
    (folder / "tokenizer_config.json").write_text(json.dumps({**told, **endless}))
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


def test_the_characters_of_pieces_that_are_parts_of_one(tmp_path: Path) -> None:
    """Each piece of a letter of several bytes stands for the whole letter; blanks are counted to the
    piece, as the library does.
    """
    vocabulary = adopted(byte_level(tmp_path))
    text = " the  東 Köln"
    (ids, places), (none, nowhere) = located(vocabulary, [text, ""])
    np.testing.assert_array_equal(ids, vocabulary.encode_all([text])[0])
    assert len(none) == len(nowhere) == 0 and places.shape == (len(ids), 2)
    touched = [text[begin:end] for begin, end in places.tolist()]
    assert touched.count("東") >= 2 and "".join(dict.fromkeys(touched)).count("K") == 1
    assert places[0, 0] == 0 and places[-1, 1] == len(text) and (np.diff(places[:, 0]) >= 0).all()


def test_special_ids_are_those_of_the_model_else_of_the_tokenizer(tmp_path: Path) -> None:
    plain = adopted(byte_level(tmp_path / "plain")).special
    assert (plain.pad, plain.bos, plain.eos, plain.unk) == (-1, 0, 0, None)
    told = {"bos_token_id": 5, "eos_token_id": [7, 8], "pad_token_id": 7, "vocab_size": 300}
    own = adopted(byte_level(tmp_path / "own", **told))
    assert own.special == Special(-1, 5, 7, None, ends=(8,))
    assert own.decode([40, 8, 40]) == own.decode([40])
    own.save(tmp_path / "kept.json")
    again = Vocabulary.load(tmp_path / "kept.json")  # the same, its tokenizer unchanged
    assert (again.special, again.size, again.settings) == (own.special, 300, own.settings)
    assert again.to_json()["content"] == json.loads(
        (tmp_path / "own" / "tokenizer.json").read_text()
    )
    for one, other in zip(own.encode_all(TEXTS), again.encode_all(TEXTS), strict=True):
        assert one.tolist() == other.tolist()
    assert own.size == 300 and own.tokens([299]) == [""] and own.decode([299, 7, 40]) == ""
    padded = adopted(byte_level(tmp_path / "padded", eos_token_id=7, pad_token_id=9))
    assert padded.special.pad == 9


@pytest.mark.parametrize(
    ("told", "generation", "expected"),
    [
        ({"eos_token_id": 7}, {"eos_token_id": [8, 7, 9]}, {"eos": 7, "ends": (8, 9)}),
        ({"eos_token_id": 7}, {"eos_token_id": 8, "pad_token_id": 8}, {"ends": (8,), "pad": -1}),
        ({"pad_token_id": -1, "eos_token_id": 7}, {}, {"pad": -1, "ends": ()}),
        ({"forced_bos_token_id": 5, "eos_token_id": 7}, {}, {"forced": 5}),
        ({"eos_token_id": 7}, {"forced_bos_token_id": 6}, {"forced": 6}),
        ({"is_encoder_decoder": True, "eos_token_id": 7}, {START: 6}, {"eos": 7, "bos": 6}),
        ({"is_encoder_decoder": True, "eos_token_id": 7, START: 5}, {START: 6}, {"bos": 6}),
        ({"eos_token_id": [0, 290]}, {}, r"config.json: eos_token_id=\[0, 290\]; expected ids of"),
        ({"eos_token_id": []}, {}, r"config.json: eos_token_id=\[\]; expected ids"),
        ({"eos_token_id": 7}, {"eos_token_id": 10**6}, "generation_config.json: eos_token_id=1000"),
        ({"bos_token_id": [1, 2]}, {}, r"bos_token_id=\[1, 2\]; expected ids"),
        ({"bos_token_id": True}, {}, "bos_token_id=True; expected ids"),
        ({"pad_token_id": -2}, {}, "pad_token_id=-2; expected ids of the vocabulary, 0 to 289"),
        ({"vocab_size": "290"}, {}, "vocab_size='290'; expected a whole number"),
        ({"vocab_size": 10**12}, {}, "they do not belong together"),
    ],
)
def test_ids_of_config_and_generation_config(
    told: dict[str, Any], generation: dict[str, Any], expected: Any, tmp_path: Path
) -> None:
    """Texts end wherever one of the two files says; ids beyond the vocabulary are refused."""
    folder = byte_level(tmp_path, **told)
    (folder / "generation_config.json").write_text(json.dumps(generation))
    if isinstance(expected, str):
        check_refused(expected, adopted, folder)
        return
    special = adopted(folder).special
    assert {name: getattr(special, name) for name in expected} == expected


NAMES = ["<pad>", "<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>"]
IDS = {name: index for index, name in enumerate(NAMES)}
LETTERS = [*sorted({*"hello user asitnt <>|/_pd\n\u2581"} - {" "}), " "]


def of_kind(kind: str, folder: Path, **told: Any) -> Path:
    """A tokenizer whose model would make "<pad>" of the text "<pad>"."""
    plain = {**IDS, **{letter: len(IDS) + i for i, letter in enumerate(LETTERS)}}
    more = {word: len(plain) + i for i, word in enumerate(("<p", "<pa", "<pad", "##p", "hello"))}
    merges = [("<", "p"), ("<p", "a"), ("<pa", "d"), ("<pad", ">")]
    if kind == "Unigram":
        scores = [(name, 0.0 if name in IDS else -3.0) for name in plain]
        one = Tokenizer(models.Unigram(scores, unk_id=3))
        one.pre_tokenizer, one.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    else:
        given = {"merges": merges} if kind == "BPE" else {}
        one = Tokenizer(getattr(models, kind)({**plain, **more}, **given, unk_token="<unk>"))
        if kind != "BPE":
            one.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    one.add_special_tokens(NAMES)
    words = dict(zip(("pad", "bos", "eos", "unk"), NAMES[:4], strict=True))
    return stored(one, folder, {}, {f"{key}_token": word for key, word in words.items()} | told)


KINDS = ("BPE", "Unigram", "WordLevel", "WordPiece")


@pytest.mark.parametrize("kind", KINDS)
def test_text_that_spells_a_special_token_stays_text(kind: str, tmp_path: Path) -> None:
    """In every kind of tokenizer, unlike what its library makes of it; other texts stay as they are,
    and what a run of before has kept reads as it did.
    """
    vocabulary = adopted(of_kind(kind, tmp_path))
    theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    theirs.encode_special_tokens = True
    unknown = {vocabulary.special.unk}
    for text in (*NAMES, "<pad> hello </s>", "hello<pad>"):
        ids = vocabulary.encode_all([text])[0].tolist()
        assert ids and not {*ids} & ({*IDS.values()} - unknown)
    for text in ("hello user", "hello < p a d >"):
        expected = theirs.encode(text, add_special_tokens=False).ids
        assert vocabulary.encode_all([text])[0].tolist() == expected
    kept = vocabulary.to_json()
    older = {name: one for name, one in kept.items() if name != "guarded"}
    before = Adopted.restored(older, vocabulary.settings)
    assert before.encode_all(["<pad>"])[0].tolist()[-1] == 0
    again = Adopted.restored(kept, vocabulary.settings)
    assert again.encode_all(["<pad>"])[0].tolist() == vocabulary.encode_all(["<pad>"])[0].tolist()


def test_special_tokens_that_are_added_to_a_model_are_text_too(tmp_path: Path) -> None:
    """As those of chats are: its own vocabulary does not have them."""
    one = Tokenizer(models.BPE({letter: index for index, letter in enumerate("</s>")}, []))
    one.add_special_tokens(["</s>"])
    vocabulary = adopted(stored(one, tmp_path, {}, {"eos_token": "</s>"}))
    assert vocabulary.special.eos == 4
    assert vocabulary.encode_all(["</s>"])[0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_by_their_names(kind: str, tmp_path: Path) -> None:
    vocabulary = adopted(of_kind(kind, tmp_path))
    assert isinstance(vocabulary, Adopted)
    theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = "<s>hello <|im_end|>"
    assert vocabulary.named(text) == theirs.encode(text, add_special_tokens=False).ids
    assert vocabulary.named(text)[::-1][0] == 5 and 5 not in vocabulary.encode_all([text])[0]


def test_the_special_ids_of_bert_and_its_mask(tmp_path: Path) -> None:
    """What begins and ends a text, cls and sep; the mask is reserved, and kept."""
    names = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b")
    one = Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    one.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    told = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    actual = adopted(stored(one, tmp_path, {"pad_token_id": 0}, told))
    assert actual.special == Special(0, 2, 3, 1, (4,))
    actual.save(tmp_path / "kept.json")
    assert Vocabulary.load(tmp_path / "kept.json").special == actual.special
    words = "a tokenizer has what it has"
    check_refused(words, Vocabulary.train, [], "tokenizer", file=str(tmp_path), reserved=1)


def test_no_text_is_read_for_its_sake(tmp_path: Path) -> None:
    """Where no split is asked for, the data need not be there."""
    vocabulary = {"kind": "tokenizer", "file": str(byte_level(tmp_path / "in"))}
    nowhere = {"name": "text", "directory": str(tmp_path / "nowhere")}
    actual = Texts.load(nowhere, vocabulary, splits=())
    mine, theirs = (one.packed(["A dog"]) for one in (actual.vocabulary, adopted(tmp_path / "in")))
    assert actual.splits == () and mine.ids[:].tolist() == theirs.ids[:].tolist() != []
    check_refused("nowhere", Texts.load, nowhere, {"kind": "bpe"}, splits=())
    pairs = {"name": "files", "directory": str(tmp_path / "nowhere")}
    both = corpus.Corpus.load(pairs, {**vocabulary, "shared": True}, splits=())
    assert both.learned.source is both.learned.target


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
        tmp_path / "broken.json": "no JSON that can be used",
    }.items():
        check_refused(message, adopted, file)
    check_refused(r"config\.vocabulary\.file is empty", Vocabulary.train, [], "tokenizer")
