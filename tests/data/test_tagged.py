"""Tagged sentences: readers of files, the generated ones, and rows of ids, tags and heads."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from attnlab.data.agreement import Agreement
from attnlab.data.conll import Columns, Conllu
from attnlab.data.labelled import Classes
from attnlab.data.tagged import ROOT, Sentence, encode, load
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError

TREEBANK = """# text = it's no dog
1-2\tit's\t_\t_\t_\t_\t_\t_\t_\t_
1\tit\tit\tPRON\tPRP\t_\t4\tnsubj\t_\t_
2\t's\tbe\tAUX\tVBZ\t_\t4\tcop\t_\t_
3\tno\tno\tDET\tDT\t_\t4\tdet\t_\t_
3.1\tnothing\t_\t_\t_\t_\t_\t_\t_\t_
4\tdog\tdog\tNOUN\tNN\t_\t0\troot\t_\t_

1\tGo\tgo\tVERB\tVB\t_\t0\troot\t_\t_
"""
DOG = Sentence(("it", "'s", "no", "dog"), ("PRON", "AUX", "DET", "NOUN"), (3, 3, 3, ROOT))


def written(folder: Path, text: str, name: str = "train.conllu") -> Path:
    (folder / name).write_text(text)
    return folder


def test_a_treebank_is_read_without_what_is_no_word(tmp_path: Path) -> None:
    found = Conllu(directory=str(written(tmp_path, TREEBANK))).tagged("train")
    assert found == [DOG, Sentence(("Go",), ("VERB",), (ROOT,))]
    with gzip.open(tmp_path / "dev.conllu.gz", "wt") as file:
        file.write(TREEBANK)
    other = Conllu(directory=str(tmp_path), tags="deprel", trees=False).tagged("valid")
    assert other[0] == Sentence(DOG.words, ("nsubj", "cop", "det", "root"), None)


def test_columns_of_shared_tasks_are_read(tmp_path: Path) -> None:
    text = "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\nPeter NNP B-NP B-PER\n"
    source = Columns(directory=str(written(tmp_path, text, "train.txt")))
    assert source.tagged("train") == [
        Sentence(("EU", "rejects"), ("B-ORG", "O")),
        Sentence(("Peter",), ("B-PER",)),
    ]
    assert Columns(directory=str(tmp_path), tag=2).tagged("train")[0].tags == ("NNP", "VBZ")


ROW = "1\tit\tit\tPRON\tPRP\t_\t{head}\tnsubj\t_\t_\n2\tis\tbe\tAUX\tVBZ\t_\t1\tcop\t_\t_\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "train.conllu"),
        ("# nothing\n\n", "train.conllu holds no sentence"),
        ("1\tit\n", r"train.conllu, line 1: 2 column\(s\) with tabs between them, CoNLL-U has 10"),
        (ROW.format(head=7), "line 1: the head of 'it' is '7', expected the ID of another word"),
        (ROW.format(head=1), "line 1: the head of 'it' is '1', expected the ID of another word"),
        (ROW.format(head=2), "is below itself; the heads of a sentence must be a tree"),
    ],
)
def test_a_bad_treebank_is_one_line(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=told) as error:
        Conllu(directory=str(written(tmp_path, text))).tagged("train")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "fields", "told"),
    [
        ("EU\n", {}, r"line 1: 1 column\(s\), expected a word and its tag in column"),
        ("EU X\n", {"tag": 3}, r"line 1: 2 column\(s\), expected a word and its tag in column 3"),
        ("EU X\n", {"word": 0}, "config.data.word=0 and config.data.tag=-1 are two columns"),
    ],
)
def test_bad_columns_are_one_line(
    text: str, fields: dict[str, int], told: str, tmp_path: Path
) -> None:
    written(tmp_path, text, "train.txt")
    with pytest.raises(UserError, match=told):
        Columns(directory=str(tmp_path), **fields).tagged("train")


def test_a_made_up_number_is_that_of_a_noun_that_the_heads_lead_to() -> None:
    hidden = 0
    for one in Agreement(examples=60).tagged("train"):
        assert one.heads is not None and one.heads.count(ROOT) == 1
        kinds = [tag.partition("-")[0] for tag in one.tags]
        assert kinds[one.heads.index(ROOT)] == "VERB"
        for word, (kind, tag) in enumerate(zip(kinds, one.tags, strict=True)):
            if kind in ("DET", "ADJ", "AUX"):
                above = one.tags[one.heads[word]]
                assert above.endswith(tag.partition("-")[2])
                hidden += one.words[word] in ("the", "will")
            if tag == "VERB-one" and "AUX" not in kinds[word - 1]:
                assert one.words[word].endswith("s")
    assert hidden > 30


def test_splits_of_the_made_up_sentences_share_none() -> None:
    source = Agreement(examples=80, valid=20, test=20)
    texts = [{one.words for one in source.tagged(split)} for split in ("train", "valid", "test")]
    assert [len(one) for one in texts] == [80, 20, 20]
    assert not texts[0] & texts[1] and not texts[1] & texts[2] and not texts[0] & texts[2]


def test_the_first_piece_of_a_word_has_its_tag_and_its_head() -> None:
    vocabulary = Vocabulary.train(["it is no dog"], kind="char", min_frequency=1)
    rows = [Sentence(("is", "dog"), ("AUX", "NOUN"), (1, ROOT)), Sentence(("no",), ("X",), (ROOT,))]
    found = encode(vocabulary, Classes(("AUX", "NOUN"), 1), rows)
    source, target, heads = (found.packed(name) for name in ("source", "target", "heads"))
    tokens = vocabulary.tokens(source[0])
    assert [tokens[1:3], tokens[4:7]] == [["i", "s"], ["d", "o", "g"]]  # a blank is the word's
    assert target[0].tolist() == [0, 1, 0, 2, 0, 0, 0, 0]
    assert heads[0].tolist() == [ROOT, 3, 1, ROOT, 3, 3, 3, ROOT]
    assert target[1][1] == 3  # a tag that training does not have


def test_what_is_learned_is_kept_and_read_again(tmp_path: Path) -> None:
    node = {"name": "agreement", "examples": 30, "valid": 5, "test": 5, "seed": 0, "depth": 1}
    words = {"kind": "spaced", "size": 100, "min_frequency": 1, "lowercase": False, "file": ""}
    found = load(node, words)
    found.save(tmp_path)
    again = load(node, words, tmp_path, ("valid",))
    assert again.classes == found.classes and again.splits == ("valid",)
    assert again.fingerprints["valid"] == found.fingerprints["valid"]
    assert "with trees" in found.about("train") and found.size("train") == 30
    with pytest.raises(
        UserError, match=r"a data source for this task needs a method tagged\(split"
    ):
        load({"name": "dates"}, words)
