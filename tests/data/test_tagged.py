"""Tagged sentences as rows of ids, tags and heads. CoNLL files are read word by word, and what is wrong with
one is one line.
"""

import gzip
import logging
from pathlib import Path
from typing import Any

import pytest

from attnlab.data.learned import Learned
from attnlab.data.tagged import ROOT, Columns, Conllu, Sentence, encode
from attnlab.data.vocabulary import Vocabulary
from tests.refusals import check_refused


def test_the_first_piece_of_a_word_has_its_tag_and_its_head() -> None:
    vocabulary = Vocabulary.train(["it is no dog"], kind="char", min_frequency=1)
    rows = [Sentence(("is", "dog"), ("AUX", "NOUN"), (1, ROOT)), Sentence(("no",), ("X",), (ROOT,))]
    actual = encode(Learned.of_vocabulary(vocabulary, classes=("AUX", "NOUN")), rows)
    source, target, heads = (actual.packed(name) for name in ("source", "target", "heads"))
    tokens = vocabulary.tokens(source[0])
    assert [tokens[1:3], tokens[4:7]] == [["i", "s"], ["d", "o", "g"]]  # a blank is the word's
    assert target[0].tolist() == [0, 1, 0, 2, 0, 0, 0, 0]
    assert heads[0].tolist() == [ROOT, 3, 1, ROOT, 3, 3, 3, ROOT]
    assert target[1][1] == 3  # a tag that training does not have


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
    actual = Conllu(directory=str(written(tmp_path, TREEBANK))).tagged("train")
    assert actual == [DOG, Sentence(("Go",), ("VERB",), (ROOT,))]
    with gzip.open(tmp_path / "dev.conllu.gz", "wt") as file:
        file.write(TREEBANK)
    other = Conllu(directory=str(tmp_path), tags="deprel", trees=False).tagged("valid")
    assert other[0] == Sentence(DOG.words, ("nsubj", "cop", "det", "root"), None)


def test_columns_of_shared_tasks_are_read(tmp_path: Path) -> None:
    text = "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\nPeter NNP B-NP B-PER\n"
    source = Columns(directory=str(written(tmp_path, text, "train.txt")))
    expected = [Sentence(("EU", "rejects"), ("B-ORG", "O")), Sentence(("Peter",), ("B-PER",))]
    assert source.tagged("train") == expected
    assert Columns(directory=str(tmp_path), tag=2).tagged("train")[0].tags == ("NNP", "VBZ")


WIKI = "# http://a.org\t[2009]\n"  # as in GermEval 2014, of another number of columns
SEPARATED: list[tuple[str, dict[str, Any], list[list[str]], str]] = [
    ("San\u00a0Marino\tB-LOC\nNew York\tI-LOC\n", {}, [["San\u00a0Marino", "New York"]], "B-LOC"),
    ("San\u00a0Marino  x B-LOC\nist \u3000 O\n", {}, [["San\u00a0Marino", "ist"]], "B-LOC"),
    (f"{WIKI}1\tAuf\tO\tO\n\n{WIKI}1\tdem\tO\tO\n", {"word": 2, "tag": 3}, [["Auf"], ["dem"]], "O"),
    ("# http://a.org\nAuf O\n\n# text = O\ndem O\n", {}, [["Auf"], ["dem"]], "O"),
    ("# http://a.org\n#wnut\tO\n#\tO\nis\tO\n\nO\tO\n", {}, [["#wnut", "#", "is"], ["O"]], "O"),
    ("a\tO\n\t\n \nb\tO\r\n", {}, [["a"], ["b"]], "O"),
    ("New York|B-LOC\nis | O\n", {"separator": "|"}, [["New York", "is"]], "B-LOC"),
    ("a\tb X\nc X\n", {"separator": "blanks"}, [["a\tb", "c"]], "X"),
    ("# X\nSan\u00a0Marino Y X\n", {"separator": "any"}, [["#", "San"]], "X"),
]


@pytest.mark.parametrize(("text", "fields", "words", "tag"), SEPARATED)
def test_what_stands_between_columns(
    text: str, fields: dict[str, Any], words: list[list[str]], tag: str, tmp_path: Path
) -> None:
    """A no-break space is no separator, and neither is a blank where there are tabs."""
    actual = Columns(str(written(tmp_path, text, "train.txt")), **fields).tagged("train")
    assert [list(one.words) for one in actual] == words
    assert actual[0].tags[0] == tag


def test_comments_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = f"a\tO\n\n{WIKI}b\tO\n\n# one\n# two\nc\tO\n"
    with caplog.at_level(logging.WARNING):
        assert len(Columns(str(written(tmp_path, text, "train.txt"))).tagged("train")) == 3
    assert "left out 3 comments of" in caplog.text and "line 3 the first" in caplog.text


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
    check_refused(told, Conllu(directory=str(written(tmp_path, text))).tagged, "train")


@pytest.mark.parametrize(
    ("text", "fields", "told"),
    [
        ("EU\n", {}, r"line 1: 1 column\(s\), expected a word and its tag in column"),
        ("EU X\n", {"tag": 3}, r"line 1: 2 column\(s\), expected a word and its tag in column 3"),
        ("a O\nb\tO\n", {}, r"line 2: 2 column\(s\), line 1 has 1; mend the line, or say what"),
        ("a x O\nb O\n", {}, r"line 2: 2 column\(s\), line 1 has 3"),
        ("a\tO\n# b\tx\ty\n", {}, r"line 2: 3 column\(s\), line 1 has 2"),
        ("a\tO\n\tO\n", {}, "line 2: column 1 is empty"),
        ("a\tO\t\n", {}, "line 1: column -1 is empty"),
        ("# a\n# b\n", {}, "holds no sentence"),
        ("a O\n", {"separator": "tabs"}, "config.data.separator='tabs': .* did you mean 'tab'"),
        ("a O\n", {"separator": ""}, "config.data.separator='': expected a sign"),
        ("EU X\n", {"word": 0}, "config.data.word=0 and config.data.tag=-1 are two columns"),
    ],
)
def test_bad_columns_are_told(text: str, fields: dict[str, Any], told: str, tmp_path: Path) -> None:
    written(tmp_path, text, "train.txt")
    check_refused(told, Columns(directory=str(tmp_path), **fields).tagged, "train")
