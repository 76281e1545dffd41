"""CoNLL files are read word by word, and what is wrong with one is one line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from attnlab.data.conll import Columns, Conllu
from attnlab.data.tagged import ROOT, Sentence
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
    wanted = [Sentence(("EU", "rejects"), ("B-ORG", "O")), Sentence(("Peter",), ("B-PER",))]
    assert source.tagged("train") == wanted
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
