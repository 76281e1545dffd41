"""Questions and the stretches of passages that answer them: read, cut and as ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlab.data import questions
from attnlab.data.questions import Deeds, Question, Squad
from attnlab.data.vocabulary import BOS, EOS, Vocabulary
from attnlab.errors import UserError

PASSAGE = "It's a big, old dog\nfrom Köln."


def squad(folder: Path, answers: list[dict[str, Any]], context: str = PASSAGE) -> Squad:
    qas = [{"id": "1", "question": "Which dog?", "answers": answers}]
    qas.append({"id": "2", "question": "Which cat?", "answers": []})
    content = {"data": [{"paragraphs": [{"context": context, "qas": qas}]}]}
    (folder / "train.json").write_text(json.dumps(content, indent=1))
    return Squad(str(folder))


def test_the_form_of_squad(tmp_path: Path) -> None:
    """Questions without an answer are left out; characters are counted in the passage as it is."""
    begin = PASSAGE.index("dog")
    source = squad(tmp_path, [{"text": "dog\nfrom Köln", "answer_start": begin}])
    assert source.questions("train") == [
        Question("Which dog?", PASSAGE, (("dog\nfrom Köln", begin),))
    ]
    for answers, message in (
        ([{"text": "dog", "answer_start": 3}], "'dog' does not stand at character 3"),
        ([], "has no question with an answer"),
        ([{"text": "dog"}], "not in the form of SQuAD .KeyError"),
    ):
        with pytest.raises(UserError, match=message):
            squad(tmp_path, answers).questions("train")
    (tmp_path / "train.json").write_text("{")
    with pytest.raises(UserError, match="not in the form of SQuAD"):
        source.questions("train")


def test_rows_types_words_and_spans() -> None:
    """The pieces of the span are those of the words that the answer touches, whole or in part."""
    begin = PASSAGE.index("old")
    asked = [
        Question("Which dog?", PASSAGE, (("old dog", begin), ("It", 0))),
        Question("It", "It", (("I", 0),)),
    ]
    words = Vocabulary.train([PASSAGE, "Which dog?"], "char", 100, 1)
    examples = questions.encode(words, asked)
    source, types, numbers = (examples.packed(name)[0] for name in ("source", "types", "words"))
    (first, last), (one, other) = examples["span"].block(np.arange(2), 0)
    assert words.decode(source[first : last + 1]).split() == ["old", "dog"]
    assert source[0] == BOS and source[-1] == EOS and (source == EOS).sum() == 2
    assert types.tolist() == [0] * int((types == 0).sum()) + [1] * int(types.sum())
    assert source[types == 0][-1] == EOS and numbers[types == 0].max() == 0 == numbers[-1]
    cut = [PASSAGE[i:j] for i, j in questions.cut(PASSAGE)]
    assert cut == ["It", "'", "s", "a", "big", ",", "old", "dog", "from", "Köln", "."]
    assert numbers[first] == cut.index("old") + 1 and numbers[last] == cut.index("dog") + 1
    assert examples.packed("words")[1][[one, other]].tolist() == [1, 1] and other == one + 1


def test_made_up_passages_have_one_answer() -> None:
    """It is the other one of the clause of whom is asked, and no split has a passage of another."""
    rows = {split: Deeds(60, 10, 10).questions(split) for split in ("train", "valid", "test")}
    assert [len(each) for each in rows.values()] == [60, 10, 10]
    assert rows == {split: Deeds(60, 10, 10).questions(split) for split in rows}
    for one in rows["train"]:
        ((text, begin),) = one.answers
        assert one.passage[begin : begin + len(text)] == text
        clauses = one.passage.split(" . ")
        name = one.question.split()[3]
        (clause,) = [clause for clause in clauses if clause.split()[2] == name]
        assert clause.removesuffix(" .").endswith(text)
    passages = [{one.passage for one in each} for each in rows.values()]
    assert not passages[0] & passages[1] and not passages[0] & passages[2]
