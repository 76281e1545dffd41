"""Questions and the stretches of passages that answer them: read, cut and as ids."""

import itertools
import json
from pathlib import Path
from typing import Any

from attnlab.data import questions
from attnlab.data.passages import Question
from attnlab.data.questions import Deeds, Squad
from tests.refusals import check_refused

PASSAGE = "It's a big, old dog\nfrom Köln."


def squad(
    folder: Path,
    answers: list[dict[str, Any]],
    context: Any = PASSAGE,
    question: Any = "Which dog?",
) -> Squad:
    qas = [{"id": "1", "question": question, "answers": answers}]
    qas.append({"id": "2", "question": "Which cat?", "answers": []})
    content = {"data": [{"paragraphs": [{"context": context, "qas": qas}]}]}
    (folder / "train.json").write_text(json.dumps(content, indent=1))
    return Squad(str(folder))


def test_the_form_of_squad(tmp_path: Path) -> None:
    """Those without an answer have none; characters are counted in the passage as it is."""
    begin = PASSAGE.index("dog")
    source = squad(tmp_path, [{"text": "dog\nfrom Köln", "answer_start": begin}])
    assert source.questions("train") == [
        Question("Which dog?", PASSAGE, (("dog\nfrom Köln", begin),)),
        Question("Which cat?", PASSAGE, ()),
    ]
    data = {"name": "squad", "directory": str(tmp_path)}
    words = {"kind": "word", "size": 100, "min_frequency": 1, "lowercase": True}
    for unanswerable, count in ((False, 1), (True, 2)):
        actual = questions.Questions.load(data, words, splits=("train",), unanswerable=unanswerable)
        assert actual.size("train") == count
    for answers, message in (
        ([{"text": "dog", "answer_start": 3}], "'dog' does not stand at character 3"),
        ([{"text": ".", "answer_start": -1}], "'.' does not stand at character -1"),
        ([{"text": "dog"}], "not in the form of SQuAD .KeyError"),
        ([{"text": 3, "answer_start": 3}], "form of SQuAD .TypeError: text is '3'"),
        ([{"text": "a", "answer_start": 5.0}], "form of SQuAD .TypeError: answer_start is '5.0'"),
        ([{"text": "a", "answer_start": True}], "form of SQuAD .TypeError: answer_start is 'True'"),
        ([{"text": "\ud83d", "answer_start": 0}], "no JSON that can be used .*surrogates"),
    ):
        check_refused(message, squad(tmp_path, answers).questions, "train")
    for value, field in itertools.product((None, 5, ["a"], {"a": "b"}), ("context", "question")):
        message = f"form of SQuAD .TypeError: {field} is"
        check_refused(message, squad(tmp_path, [], **{field: value}).questions, "train")
    (tmp_path / "train.json").write_text("{")
    check_refused(r"train.json: no JSON", source.questions, "train")
    squad(tmp_path, [])
    message = r"no question of the split 'train' .*unanswerable=true"
    check_refused(message, questions.Questions.load, data, words, splits=("train",))


def test_made_up_passages_have_one_answer() -> None:
    """It is the other one of the clause of whom is asked."""
    for one in Deeds(60).questions("train"):
        ((text, begin),) = one.answers
        assert one.passage[begin : begin + len(text)] == text
        clauses = one.passage.split(" . ")
        name = one.question.split()[3]
        (clause,) = [clause for clause in clauses if clause.split()[2] == name]
        assert clause.removesuffix(" .").endswith(text)
    words = "expected 1 to 10 clauses, one fewer"
    check_refused(words, Deeds(clauses=10, absent=0.5).questions, "train")


def test_a_share_of_made_up_questions_is_about_somebody_absent() -> None:
    rows = Deeds(200, 10, 10, absent=0.3).questions("train")
    absent = [one for one in rows if not one.answers]
    assert 40 <= len(absent) <= 80
    for one in rows:
        present = [clause.split()[2] for clause in one.passage.removesuffix(" .").split(" . ")]
        assert (one.question.split()[3] in present) == bool(one.answers)
