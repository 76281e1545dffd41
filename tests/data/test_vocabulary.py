"""Vocabularies lose no text, are the same in any process, and are whole on disk or refused."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from attnlab.data.json_files import digest_of
from attnlab.data.vocabulary import BOS, EOS, KINDS, PAD, SPECIAL, UNK, Vocabulary
from tests.refusals import check_refused

TEXTS = [
    "A dog, a cat; two dogs!",
    "It's the cat's bird (not a dog's, no dogs, the (cat's)).",
    "“Grüße” aus Köln – l'été à Paris…",
    "the dog sees the cat .",
    "12.5 % of 3,000 cats",
]


def train(kind: str, **settings: object) -> Vocabulary:
    return Vocabulary.train(TEXTS, kind, **{"size": 300, "min_frequency": 1, **settings})  # type: ignore[arg-type]


@pytest.mark.quick
@pytest.mark.parametrize("kind", KINDS)
def test_decode_inverts_encode_up_to_white_space(kind: str) -> None:
    vocabulary = train(kind)
    blanks = ["  the\tdog \u00a0sees  .", "a\u2581dog", ""]
    for text in [*TEXTS, *blanks, "the cat.", "the cat .", "the (cat's) dogs !"]:
        (ids,) = vocabulary.encode_all([text])
        assert ids.dtype == np.int32
        if UNK not in ids:
            assert vocabulary.decode(ids) == vocabulary.normalize(text)
    assert UNK not in np.concatenate(vocabulary.encode_all(TEXTS))


def test_text_that_is_tokenised_already_is_cut_at_blanks_alone() -> None:
    """So that "<unk>" in it is a word like others, and so is what is punctuation elsewhere."""
    vocabulary = Vocabulary.train(["mr. <unk> is n't here", "it 's <unk>"], "spaced", 20, 1)
    ids = vocabulary.encode_all(["it is n't mr. <unk> here.", ""])
    assert vocabulary.tokens(ids[0]) == ["▁it", "▁is", "▁n't", "▁mr.", "▁<unk>", "<unk>"]
    assert len(ids[1]) == 0
    assert vocabulary.decode(ids[0]) == "it is n't mr. <unk> <unk>"


def test_specials_have_their_ids_and_stop_or_vanish_in_decode() -> None:
    vocabulary = train("word")
    assert tuple(vocabulary.tokens([PAD, BOS, EOS, UNK])) == SPECIAL
    (dog,) = vocabulary.encode_all(["the dog"])
    assert vocabulary.decode([BOS, PAD, *dog, EOS, *dog]) == "the dog"
    assert vocabulary.decode([dog[0], UNK, dog[1]]) == "the <unk> dog"


@pytest.mark.parametrize("kind", KINDS)
def test_text_that_spells_a_special_piece_is_text(kind: str) -> None:
    vocabulary = Vocabulary.train(["<s> </s> <pad>"] * 3, kind, 100, 1)
    (ids,) = vocabulary.encode_all(["<s> </s> <pad>"])
    assert ids.min() > UNK
    assert vocabulary.decode(ids) == "<s> </s> <pad>"


def test_lower_case_and_unicode_composition() -> None:
    vocabulary = train("bpe", lowercase=True)
    assert vocabulary.normalize("Été  À") == "été à"
    assert vocabulary.normalize("e\u0301te\u0301") == "été"
    first, second = vocabulary.encode_all(["KÖLN", "ko\u0308ln"])
    assert first.tolist() == second.tolist()


def test_rare_words_are_unknown_and_frequent_ones_kept() -> None:
    vocabulary = Vocabulary.train(["a a b", "a b c"], "word", 100, 2)
    assert vocabulary.size == 6
    assert vocabulary.decode(vocabulary.encode_all(["a c b"])[0]) == "a <unk> b"
    assert Vocabulary.train(TEXTS, "bpe", 80, 1).size == 80
    assert Vocabulary.train(TEXTS, "word", 10, 1).size == 10


def test_word_by_word_encoding_equals_the_library_on_whole_texts() -> None:
    """`encode_stream` hands words to the library; random texts with marks, composed letters and odd
    blanks show it may.
    """
    rng = random.Random(0)
    alphabet = [*"aabcde   .,'-éÉßİΣ字\u00a0\u2028\u0301\t\u2581", "e\u0301", "<s>"]
    texts = ["".join(rng.choices(alphabet, k=rng.randrange(40))) for _ in range(300)]
    for kind in KINDS:
        for lowercase in (False, True):
            vocabulary = Vocabulary.train(texts[:150], kind, 120, 2, lowercase)
            spaced = [" ".join(text.replace("\u2581", " ").split()) for text in texts]
            plain = texts if kind == "char" else spaced
            whole = vocabulary._tokenizer.encode_batch(plain, add_special_tokens=False)
            for ids, encoding in zip(vocabulary.encode_all(texts), whole, strict=True):
                assert ids.tolist() == encoding.ids


def test_end_is_appended_and_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = train("bpe")
    plain = vocabulary.encode_all(TEXTS)
    monkeypatch.setattr("attnlab.data.vocabulary.CHUNK", 2)
    monkeypatch.setattr("attnlab.data.vocabulary._REMEMBERED", 0)
    ended = list(vocabulary.encode_stream(iter(TEXTS), end=(EOS,)))
    assert [ids.tolist() for ids in ended] == [[*ids.tolist(), EOS] for ids in plain]


def test_tokens_are_one_readable_piece_each() -> None:
    assert train("char").tokens(train("char").encode_all(["a c"])[0]) == ["a", "\u2423", "c"]
    expected = ["▁the", "▁cat", "▁", "."]
    assert train("word").tokens(train("word").encode_all(["the cat ."])[0]) == expected


def test_equal_texts_give_equal_bytes_in_any_process(tmp_path: Path) -> None:
    code = (
        "import sys; from attnlab.data.vocabulary import Vocabulary, KINDS\ntexts = [' '.join(str(i"
        " * j % 37) + 'xyzzy'[j % 5:] for j in range(9)) for i in range(200)]\nfor kind in KINDS:"
        " Vocabulary.train(texts, kind, 90, 2).save(f'{sys.argv[1]}/{kind}.json')"
    )
    for seed, threads in (("1", "1"), ("2", "2")):
        kept = {**os.environ, "PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads}
        subprocess.run([sys.executable, "-c", code, str(tmp_path / seed)], env=kept, check=True)
    for kind in KINDS:
        contents = [(tmp_path / seed / f"{kind}.json").read_bytes() for seed in ("1", "2")]
        assert contents[0] == contents[1]


def test_any_damage_to_the_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    train("word").save(path)
    whole = path.read_bytes()
    piece = whole.index("▁dogs".encode()) + 4
    flipped = whole[:piece] + b"m" + whole[piece + 1 :]
    for content in (whole[: len(whole) // 2], b"", b"[]", b"\x00" * 100, b"{}", flipped):
        path.write_bytes(content)
        check_refused("v.json is damaged", Vocabulary.load, path)
    words = r"cannot read .*absent\.json: No such file"
    check_refused(words, Vocabulary.load, tmp_path / "absent.json")


def test_a_failing_write_leaves_the_old_file_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "v.json"
    train("word").save(path)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    check_refused(r"(?i)no space left.*v\.json", train("char").save, path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["v.json"]


def test_a_file_of_another_library_version_is_told(tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    train("word").save(path)
    content = json.loads(path.read_text())
    content["tokenizer"]["model"]["type"] = "Unheard"
    content["sha256"] = digest_of({key: content[key] for key in ("settings", "tokenizer")})
    path.write_text(json.dumps(content))
    check_refused("cannot be read by this version", Vocabulary.load, path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "bpee"}, "did you mean 'bpe'"),
        ({"size": 4}, "leaves no room"),
        ({"size": 8}, r"cannot hold the \d+ characters"),
        ({"kind": "word", "min_frequency": 99}, "min_frequency=99"),
    ],
)
def test_impossible_settings(arguments: dict[str, object], message: str) -> None:
    check_refused(message, Vocabulary.train, TEXTS, **arguments)


@pytest.mark.parametrize("reserved", [{}, {"reserved": 2}], ids=["plain", "reserved"])
@pytest.mark.parametrize("kind", KINDS)
def test_save_and_load_with_reserved_ids_which_are_the_last_and_no_text(
    kind: str, reserved: dict[str, int], tmp_path: Path
) -> None:
    """The others keep their ids."""
    plain, one = (train(kind, lowercase=True, **fields) for fields in ({}, reserved))
    ids = tuple(range(plain.size, plain.size + len(reserved) * 2))
    assert (one.special.reserved, one.size) == (ids, plain.size + len(ids))
    one.save(tmp_path / "new" / "v.json")
    again = Vocabulary.load(tmp_path / "new" / "v.json")
    assert again.special == one.special and again.size == one.size
    settings = {"kind": kind, "size": 300, "min_frequency": 1, "lowercase": True}
    assert again.settings == one.settings == settings | reserved
    assert again.tokens(ids) == ["<reserved 0>", "<reserved 1>"][: len(ids)]
    texts = [*TEXTS, "The DOG </s> sees Köln"]
    for mine, theirs in zip(again.encode_all(texts), plain.encode_all(texts), strict=True):
        assert mine.tolist() == theirs.tolist()
    assert os.listdir(tmp_path / "new") == ["v.json"]
