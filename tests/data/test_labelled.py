"""Tables of one text or two become labelled ids; what training learned is kept, and mistakes are
named.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlab.data.files import TabFiles
from attnlab.data.labelled import LabelledTexts, encode
from attnlab.data.vocabulary import EOS
from tests.refusals import check_refused

WORDS = {"kind": "word", "size": 100, "min_frequency": 1}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One table for all splits: a number, two texts, a label, below a row of names; a blank line
    among them.
    """
    table = (
        "id\tone\tother\tsays\n1\ta dog\tit barks\tyes\n\n2\ta cat sleeps\tit barks\tno\n3\ta"
        " cow\tit moos\tyes\n"
    )
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.tsv").write_text(table)
    return tmp_path


def node(folder: Path, **fields: Any) -> dict[str, Any]:
    columns = {"source": 2, "target": 3, "label": 4, "header": 1}
    return {"name": "table", "directory": str(folder), **columns, **fields}


@pytest.mark.quick
def test_a_table_of_pairs_and_of_single_texts(folder: Path) -> None:
    pairs = LabelledTexts.load(node(folder), WORDS)
    assert pairs.rows["train"] == [
        (("a dog", "it barks"), "yes"),
        (("a cat sleeps", "it barks"), "no"),
        (("a cow", "it moos"), "yes"),
    ]
    assert (pairs.learned.classes, pairs.learned.sentences) == (("no", "yes"), 2)
    batch = pairs.examples["train"].batch(np.array([1, -1, 0]), 5)
    assert batch["label"].tolist() == [1, 0, 2] and batch["label"].dtype == np.int32
    decode = pairs.vocabulary.decode
    assert [decode(batch[side][0]) for side in ("source", "target")] == ["a cat sleeps", "it barks"]
    assert batch["source"][2].tolist()[2:] == [EOS, 0, 0] and not batch["source"][1].any()
    one = LabelledTexts.load(node(folder, target=0), WORDS)
    assert one.rows["valid"][0] == (("a dog",), "yes") and one.learned.sentences == 1
    assert set(one.examples["valid"].batch(np.array([0]), 4)) == {"source", "label"}
    assert one.examples["valid"].lengths.tolist() == [3, 4, 3]
    assert pairs.examples["valid"].lengths.tolist() == [3, 4, 3]
    numbered = LabelledTexts.load(node(folder, label=1), WORDS)
    assert len({data.fingerprints["train"] for data in (one, pairs, numbered)}) == 3
    assert pairs.about("train") == "3 pairs, 19 tokens (0 unknown); no 1, yes 2"


@pytest.mark.parametrize(
    ("columns", "row", "words"),
    [
        ({"label": 0}, "", "source=2, target=3 and label=0 are different columns, counted from 1"),
        ({"label": 3}, "", "are different columns"),
        ({"label": 9}, "", "line 2: 4 columns, but column 9 is asked for"),
        ({"header": -1}, "", "config.data.header=-1 is a number of lines"),
        ({"header": 4}, "\n\n\n1\ta\tb\tyes", "the training split has no label but 'yes'"),
        ({}, "1\ta\tb\tmaybe", "the valid split has the label 'maybe', which"),
        ({}, "1\ta\t\tyes", "valid.tsv, line 2: column 3 is blank"),
        ({}, "1\ta\tb\t ", "valid.tsv, line 2: column 4 is blank"),
        ({}, "", "valid.tsv holds nothing but blank lines"),
    ],
)
def test_columns_and_rows_that_are_none_are_named(
    columns: dict[str, Any], row: str, words: str, folder: Path
) -> None:
    (folder / "valid.tsv").write_text(f"-\t-\t-\t-\n{row}\n")
    check_refused(words, LabelledTexts.load, node(folder, **columns), WORDS)


def test_a_label_that_only_another_split_has_is_a_class_of_its_own(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Never of the training split; and a split without any known label is of another task."""
    message = enumerate(("maybe", "no", "yes", "perhaps"), 1)
    lines = ["-\t-\t-\t-", *(f"{number}\ta\tb\t{label}" for number, label in message)]
    (folder / "test.tsv").write_text("\n".join(lines) + "\n")
    data = LabelledTexts.load(node(folder), WORDS, splits=("train", "test"))
    assert data.examples["test"]["label"].values.tolist() == [3, 1, 2, 3]  # type: ignore[union-attr]
    assert data.learned.classes == ("no", "yes")
    words = (
        "2 of 4 examples of the test split have a label that the training split does not have"
        " (maybe, perhaps): wrong whatever"
    )
    assert words in caplog.text and "train split have" not in caplog.text
    assert data.about("test").endswith("; no 1, yes 1, maybe 1, perhaps 1")
    for split in ("train", "valid"):
        rows = [*data.rows["test"]] if split == "train" else data.rows["test"][:1]
        expected = "the label 'maybe', which the training split does not have; choose"
        words = f"the {split} split has {expected}"
        check_refused(words, encode, data.learned, rows, split)


@pytest.mark.parametrize("texts", [1, 2])
def test_another_number_of_texts_is_refused(texts: int, folder: Path, tmp_path: Path) -> None:
    """`evaluate` with another column asked for: neither dropped nor missed."""
    fields = [{"target": 0}, {"target": 3}]
    LabelledTexts.load(node(folder, **fields[texts - 1]), WORDS).save(tmp_path / "run")
    words = (
        rf"the test split has an example with {3 - texts} text\(s\), training had {texts}; name as"
        r" many"
    )
    other = node(folder, **fields[2 - texts])
    check_refused(words, LabelledTexts.load, other, WORDS, tmp_path / "run", ("test",))


def test_a_header_is_left_out_of_pairs_too(folder: Path) -> None:
    pairs = TabFiles(directory=str(folder), source=2, target=3, header=1).pairs("train")
    assert pairs[0] == ("a dog", "it barks") and len(pairs) == 3
    (folder / "train.tsv").write_text("-\t-\na\t\n")
    check_refused("line 2: blank", TabFiles(directory=str(folder), header=1).pairs, "train")


def test_several_vocabularies_and_numbers_of_texts_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = {**WORDS, "shared": False}
    words = "config.vocabulary.shared=False"
    check_refused(words, LabelledTexts.load, node(folder), apart)
    monkeypatch.setattr(TabFiles, "labelled", lambda self, _: [(("a",), "x"), (("a", "b"), "y")])
    words = r"every example must have one text, or every one two; the training split has \[1, 2\]"
    check_refused(words, LabelledTexts.load, node(folder), WORDS)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda label: [1.0] * len(label), r"2 .* of shape \(2,\), 'yes' of example 1 \(3,"),
        (lambda label: {"yes": 1.0, "no": 1e39}[label], r"2 of the train split: .* 1e\+39, expec"),
        (lambda label: [[1.0], [1.0, 2.0]], r"1 .*: label 'yes' means \[\[1.0\], .*, expected"),
    ],
    ids=["shapes", "infinite", "ragged"],
)
def test_answers_are_finite_numbers_of_one_shape(folder: Path, answer: Any, words: str) -> None:
    check_refused(f"example {words}", LabelledTexts.load, node(folder), WORDS, answer=answer)
