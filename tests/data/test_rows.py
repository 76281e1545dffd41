"""Every task of texts reads named columns; splits by file, column and share."""

import json
from pathlib import Path
from typing import Any

import pytest

from attnlab.data import SPLITS
from attnlab.data.passages import Question
from attnlab.data.rows import NAMES, TAKES, Rows
from attnlab.data.tagged import Sentence
from tests.refusals import check_refused

ROWS: dict[str, tuple[dict[str, Any], Any]] = {
    "texts": ({"text": " so so "}, " so so "),
    "pairs": ({"source": " ja  ja", "target": "yes"}, ("ja ja", "yes")),
    "labelled": ({"text": "fine ", "label": 4}, (("fine",), "4")),
    "tagged": ({"tokens": ["a", "b"], "tags": "X Y"}, Sentence(("a", "b"), ("X", "Y"))),
    "questions": (
        {"context": "a cat", "question": "who?", "answers": {"text": ["cat"], "answer_start": [2]}},
        Question("who?", "a cat", (("cat", 2),)),
    ),
}


ASKED = {"context": "a", "question": "?"}


def lines(path: Path, *rows: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.quick
@pytest.mark.parametrize("method", ROWS)
def test_every_task_takes_its_columns(method: str, tmp_path: Path) -> None:
    """By their usual names, or others; blank rows are left out, a missing column is one line."""
    row, expected = ROWS[method]
    lines(tmp_path / "train.jsonl", row, dict.fromkeys(row, ""))
    assert getattr(Rows(str(tmp_path)), method)("train") == [expected]
    lines(tmp_path / "dev.jsonl", {f"my {name}": value for name, value in row.items()})
    called = {column: f"my {NAMES[column]}" for column in TAKES[method] if NAMES[column]}
    assert getattr(Rows(str(tmp_path), columns=called), method)("valid") == [expected]
    words = rf"dev.jsonl, line 1: no column '{next(iter(row))}'"
    check_refused(words, getattr(Rows(str(tmp_path)), method), "valid")


@pytest.mark.parametrize(
    ("row", "method", "message"),
    [
        ({"text": "a", "other": " ", "label": 1}, "labelled", "column 'other' is blank"),
        ({"text": "a", "other": "b", "label": None}, "labelled", "column 'label' is blank"),
        ({"text": ["a"]}, "texts", "line 1: column 'text' is list, not a text"),
        ({"source": "a", "target": None}, "pairs", "line 1: column 'target' is blank"),
        ({"text": ""}, "texts", "no row of the train split has anything in text"),
        ({"tokens": "a b", "tags": "X"}, "tagged", "line 1: 2 words and 1 tags"),
        ({"tokens": ["a", ""], "tags": "X Y"}, "tagged", "none may be blank"),
        ({"tokens": ["a\tb"], "tags": "X"}, "tagged", "or have white space in it"),
        ({"tokens": ["a", ["b"]], "tags": "X Y"}, "tagged", "column 'tokens' is list, not a text"),
        ({**ASKED, "answers": "b"}, "questions", "'b' does not stand at"),
        ({**ASKED, "answers": [1]}, "questions", r"answers are \[1\]; expected"),
        ({**ASKED, "answers": {"text": [1], "answer_start": [0]}}, "questions", "expected a text,"),
    ],
)
def test_values_that_are_no_examples(
    row: dict[str, Any], method: str, message: str, tmp_path: Path
) -> None:
    source = Rows(str(tmp_path), columns={"second": "other"})
    lines(tmp_path / "train.jsonl", row)
    check_refused(message, getattr(source, method), "train")


def test_values_that_are_read_as_texts(tmp_path: Path) -> None:
    """Numbers, true and false; the first place of an answer, and no answer."""
    source = Rows(str(tmp_path), columns={"second": "other"})
    labels = {True: "true", 2.0: "2", "a\tb\n": "a b", -0.5: "-0.5", 1e300: "1e+300"}
    lines(tmp_path / "train.jsonl", *({"text": 1.5, "other": "b", "label": x} for x in labels))
    expected = [(("1.5", "b"), label) for label in labels.values()]
    assert source.labelled("train") == expected and source.sentences == 2
    questions = [{"context": "a b b", "question": "?", "answers": answer} for answer in ("b", None)]
    lines(tmp_path / "train.jsonl", *questions)
    assert [row.answers for row in source.questions("train")] == [(("b", 2),), ()]


def test_a_number_that_is_none_is_blank(tmp_path: Path) -> None:
    """NaN, which pandas writes for nothing, is no class."""
    import pyarrow
    from pyarrow import parquet

    rows = pyarrow.table({"text": ["a", "b"], "label": [1.0, float("nan")]})
    parquet.write_table(rows, tmp_path / "train.parquet")
    words = r"train.parquet, row 2: column 'label' is blank"
    check_refused(words, Rows(str(tmp_path)).labelled, "train")


def test_a_share_is_seeded_and_keeps_equal_texts_together(tmp_path: Path) -> None:
    """Of several files; more rows move none, another seed does."""
    rows = [{"text": f"t{n % 100}", "label": n % 2} for n in range(200)]
    lines(tmp_path / "a-1.jsonl", *rows[:150])
    lines(tmp_path / "a-2.jsonl", *rows[150:])
    source = Rows(str(tmp_path), files="a-*.jsonl")
    texts = {split: {text for (text,), _ in source.labelled(split)} for split in SPLITS}
    assert sum(map(len, texts.values())) == 100 == len(set().union(*texts.values()))
    assert 65 < len(texts["train"]) < 95 and 3 < len(texts["valid"]) < 20
    few = Rows(str(tmp_path), train="a-1[:80%]", valid="a-1[80%:90%]")
    assert {text for (text,), _ in few.labelled("valid")} == texts["valid"]
    other = Rows(str(tmp_path), files="a-*.jsonl", seed=1)
    assert {text for (text,), _ in other.labelled("valid")} != texts["valid"]
    spaced = [{"text": f" t{n}" + " \n" * (n % 2), "label": 0} for n in range(100)]
    lines(tmp_path / "spaced.jsonl", *spaced)
    valid = Rows(str(tmp_path), files="spaced").labelled("valid")
    assert {text for (text,), _ in valid} == texts["valid"]
    words = "the part begins at 90 % and ends at 80 %"
    check_refused(words, Rows(str(tmp_path), train="a-1[90%:80%]").labelled, "train")
    for files in ("a-1[:50%]", "a-1[label=1]", "a-[]1]"):
        words = "share or values belong to data.train, data.valid"
        check_refused(words, Rows, str(tmp_path), files=files)


def test_a_split_by_a_column(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By the names of splits, or values; of those that are not there one hears which are, and how
    many rows are of no split.
    """
    (tmp_path / "all.csv").write_text("text;fold\na;0\nb;1\nc;2\nd;dev\n")
    fields = {"directory": str(tmp_path), "separator": ";"}
    source = Rows(**fields, files="all[fold]", train="all[fold=0,2]")
    assert source.texts("train") == ["a", "c"] and source.texts("valid") == ["d"]
    check_refused("in text and 'test' in fold; choose from: 0, 1, 2, dev", source.texts, "test")
    assert "1 rows are of no split: fold has '1'" in caplog.text
    lines(tmp_path / "n.jsonl", *({"text": str(n), "n": n} for n in (0.0, 1, " 1 ", "2.0")))
    actual = Rows(str(tmp_path), train="n[n=0, 1.0,2,3]").texts("train")
    assert actual == ["0.0", "1", " 1 ", "2.0"]
    assert "data.train: no row has 3 in n" in caplog.text and len(caplog.records) == 2
    (tmp_path / "n.jsonl").unlink()  # without a name all files of the folder are meant
    assert Rows(**fields, train="[fold=2]").texts("train") == ["c"]
    words = r"no column 'folds'; did you mean 'fold'"
    check_refused(words, Rows(**fields, files="all[folds]").texts, "train")
    check_refused("separator='||' must be one sign", Rows, separator="||")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    """A name has one form; the parts of one that is cut are read together."""
    names = ("train.csv", "train.jsonl", "train.txt", "b/1.csv", "b/2.json", "c/a.csv")
    for name in (*names, "c/a.csv.gz", "d/a.csv", "d.csv", "e/a.png", "e.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text\na\n")
    for name in ("train.csv", "d/", "d.csv", "e"):  # there are images in e
        assert Rows(str(tmp_path), train=name).texts("train") == ["a"]
    for expected, message in (
        ("", "has train.csv and train.jsonl; name the one that is meant"),
        ("b", "has b/1.csv and b/2.json; name the one that is meant"),
        ("c/", "has c/a.csv and c/a.csv.gz; name the one that is meant"),
        ("c", "has c/a.csv and c/a.csv.gz; name the one that is meant"),
        ("d", "has d/a.csv and d.csv; name the one that is meant"),
        ("train.txt", r"config.data.train: .*train.txt is no table \(.csv, .tsv, .*\)"),
        ("trian.csv", "config.data.train: no table .* 'trian.csv' .*did you mean 'train.csv'"),
        ("c*.csv", r"no table .* 'c\*.csv'"),
    ):
        check_refused(message, Rows(str(tmp_path), train=expected).texts, "train")
    words = "no table .* 'valid' or 'validation' or 'dev'"
    check_refused(words, Rows(str(tmp_path)).texts, "valid")
    for name in ("validation.csv", "dev.csv"):
        (tmp_path / name).write_text("text\na\n")
    words = "has validation.csv and dev.csv; name the one"
    check_refused(words, Rows(str(tmp_path)).texts, "valid")
    for number in range(2):
        (tmp_path / f"test-0000{number}-of-00002.csv").write_text(f"text\na{number}\n")
    assert Rows(str(tmp_path)).texts("test") == ["a0", "a1"]
    (tmp_path / "[x]" / "train").mkdir(parents=True)
    (tmp_path / "[x]" / "train" / "a.csv").write_text("text\nb\n")
    assert Rows(str(tmp_path / "[x]")).texts("train") == ["b"]
    assert Rows(train=str(tmp_path / "test-*")).texts("train") == ["a0", "a1"]
