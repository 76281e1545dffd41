"""The loss, the answers and the scores of extractive question answering are those of loops in NumPy,
with windows and without an answer too.
"""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from attnlab import config as configs
from attnlab.data import passages, questions
from attnlab.data.passages import Question, Windows
from attnlab.tasks.maps import attention_maps
from attnlab.tasks.question_answering import QuestionAnswering, exact, f1
from tests.changed import changed
from tests.refusals import check_refused
from tests.tasks.tiny import applied, fixtures, loader, log_softmax, noisy

FILE = "configs/question_answering.py:transformer"
SMALL = [
    *("data.examples=24", "data.valid=7", "data.test=5", "data.clauses=2", "batch.size=8"),
    *("system.width=8", "system.hidden=12", "system.layers=1", "system.attention.heads=2"),
    "passages.answers=words",
]


load = loader("question_answering.py:transformer", SMALL, ("train", "valid", "test"))
task, params = fixtures(load, 0.5)


def chances(
    task: QuestionAnswering, params: Any, number: int, nowhere: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """log p of both ends [T,2] over the passage of a row of the split "valid", and over the first
    place if the answer may be nowhere; and the words.
    """
    examples = task.of_split("valid")
    ids, types, words = (examples.packed(name)[number] for name in ("source", "types", "words"))
    logits: Any = applied(task)({"params": params}, ids[None], types[None])
    allowed = (words > 0) | ((np.arange(len(words)) == 0) & nowhere)
    inside = np.where(allowed[:, None], np.asarray(logits[0], np.float64), -np.inf)
    return log_softmax(inside.T).T, words


def test_scores_and_answers_are_those_of_loops(task: QuestionAnswering, params: Any) -> None:
    nats, right, hits, shares, texts = 0.0, 0, [], [], []
    rows = task.data.rows["valid"]
    spans = task.of_split("valid")["span"].block(np.arange(len(rows)), 0)
    for number, (one, span) in enumerate(zip(rows, spans, strict=True)):
        log_p, words = chances(task, params, number)
        nats -= (log_p[span[0], 0] + log_p[span[1], 1]) / 2
        right += tuple(log_p.argmax(axis=0)) == tuple(span)
        length = len(log_p)
        pairs = [(i, j) for i in range(length) for j in range(i, min(i + 30, length))]
        i, j = max(pairs, key=lambda pair: log_p[pair[0], 0] + log_p[pair[1], 1])
        places = passages.cut(one.passage)
        texts.append(one.passage[places[words[i] - 1][0] : places[words[j] - 1][1]])
        hits.append(exact(texts[-1], one.answers[0][0]))
        shares.append(f1(texts[-1], one.answers[0][0]))
    expected = {"loss": nats / len(rows), "accuracy": right / len(rows)}
    assert task.evaluate(params, "valid") == pytest.approx(expected, rel=1e-5)
    scores, lines = task.score(params, "valid")
    assert [line.split("\t")[1] for line in lines] == texts
    assert scores == pytest.approx({"exact": np.mean(hits), "f1": np.mean(shares)})
    typed = [f"{one.question}\t{one.passage}" for one in rows]
    assert [best.text for (best,) in task.respond(params, typed)] == texts


CUT = [
    *("data.absent=0.4", "data.clauses=3", "batch.buckets=20", "batch.max_length=20"),
    *("passages.unanswerable=true", "passages.stride=4", "passages.question=6"),
]


def by_window(task: QuestionAnswering, params: Any, number: int) -> tuple[float, bool, Any]:
    """Of a window of the split "valid": nats, both ends right, and (score of "not here", score of
    the best stretch, its words).
    """
    log_p, words = chances(task, params, number, nowhere=True)
    begin, end = task.of_split("valid")["span"].block(np.array([number]), 0)[0]
    pairs = [(i, j) for i in range(1, len(words)) for j in range(i, min(i + 30, len(words)))]
    i, j = max(pairs, key=lambda pair: log_p[pair[0], 0] + log_p[pair[1], 1])
    best = (log_p[0].sum(), log_p[i, 0] + log_p[j, 1], (words[i], words[j]))
    right = tuple(log_p.argmax(axis=0)) == (begin, end)
    return -(log_p[begin, 0] + log_p[end, 1]) / 2, right, best


def test_the_best_of_all_windows_or_no_answer() -> None:
    task = load(*CUT)
    params = noisy(task)
    rows, windows = task.data.rows["valid"], len(task.of_split("valid"))
    assert task.counts("valid") == {"windows": windows} and windows > 2 * len(rows)
    assert f"7 questions in {windows} windows" in task.data.about("valid")
    owners = task.of_split("valid")["question"].block(np.arange(windows), 0)
    sums = [by_window(task, params, number) for number in range(windows)]
    assert task.evaluate(params, "valid") == pytest.approx(
        {"loss": np.mean([row[0] for row in sums]), "accuracy": np.mean([row[1] for row in sums])}
    )
    margins, stretches = [], []
    for number, one in enumerate(rows):
        own = [sums[at][2] for at in np.flatnonzero(owners == number)]
        _, score, (first, last) = max(own, key=lambda each: each[1])
        margins.append(min(each[0] for each in own) - score)
        places = passages.cut(one.passage)
        stretches.append(one.passage[places[first - 1][0] : places[last - 1][1]])
    limit = float(np.mean(sorted(margins)[3:5]))  # three are above
    task = QuestionAnswering(changed(task.config, passages__threshold=limit), task.data)
    texts = ["" if one > limit else text for one, text in zip(margins, stretches, strict=True)]
    assert texts.count("") == 3
    scores, lines = task.score(params, "valid")
    assert [line.split("\t")[1] for line in lines] == texts
    right = [one.answers[0][0] if one.answers else "" for one in rows]
    assert "" in right and len(set(right)) > 1
    for name, how in (("exact", exact), ("f1", f1)):
        assert scores[name] == pytest.approx(np.mean(list(map(how, texts, right))))
    typed = [f"{one.question}\t{one.passage}" for one in rows]
    message = [best.text for (best,) in task.respond(params, typed)]
    assert message == [text or "(no answer)" for text in texts]
    assert task.longer_than(5, typed) == []


@pytest.mark.full
def test_padding_costs_nothing(task: QuestionAnswering, params: Any) -> None:
    batch = task.batches(1)(0)
    wider = {
        name: np.pad(one, ((0, 2), (0, 0 if name == "span" else 5))[: one.ndim])
        for name, one in batch.items()
    }

    @jax.jit
    def losses(one: Any) -> Any:
        actual = jax.value_and_grad(lambda params: task.sums(params, one)["loss"])(params)
        return task.loss(params, one, jax.random.key(0))[0], *actual

    actual = [losses(one) for one in (batch, wider)]
    loss, still = ([float(one[which]) for one in actual] for which in (0, 1))
    assert still[0] == pytest.approx(still[1], rel=1e-5) and np.isfinite(loss).all()
    assert task.weight(wider) == task.weight(batch) == 8
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(actual[1][2]))


@dataclasses.dataclass(frozen=True)
class Dense:
    """Passages without blanks, and answers within a word."""

    def questions(self, split: str) -> list[Question]:
        rows = [
            ("首都は？", "東京は日本の首都です。", "東京"),
            ("いつ？", "1990年代に、Café Möhreで。", "Café"),
            ("when?", "in the 1990s, on\u00a0May 3", "1990"),
            ("what?", " e\u0301a   e\u0301bc", "e\u0301b"),
        ]
        return [
            Question(question, passage, ((answer, passage.index(answer)),))
            for question, passage, answer in rows
        ]


@pytest.mark.parametrize(("kind", "reached"), [("char", 4), ("bpe", 4), ("word", 1)])
def test_answers_are_stretches_of_pieces(kind: str, reached: int) -> None:
    """What is said where the learned ends are the likeliest is the answer, character by character;
    words without a blank are clauses, which are no answer.
    """
    given = [*SMALL[5:], f"data={__name__}:Dense", f"vocabulary.kind={kind}"]
    given += ["batch.max_length=64", "batch.buckets=64", "vocabulary.lowercase=true"]
    given += ["vocabulary.min_frequency=5"] if kind == "bpe" else []  # no piece of several letters
    for units, count in (("pieces", reached), ("words", 1)):
        config = configs.load(FILE, [*given, f"passages.answers={units}"])
        if count == 4:
            task = QuestionAnswering.load(config, None, ("train", "valid"))
        else:
            words = (
                rf"{1 - count / 4:.1%} of the answers of the train split are not whole {units} of"
            )
            check_refused(words, QuestionAnswering.load, config, None, ("train", "valid"))
            config = changed(config, passages__unreachable=1.0)
            task = QuestionAnswering.load(config, None, ("train", "valid"))
        assert task.data.about("valid").endswith(
            f"{1 - count / 4:.1%} of the answers cannot be reached"
        )
        task._best = lambda params, batch: (
            batch["span"][:, 0],
            batch["span"][:, 1],
            np.zeros(len(batch["span"])),
            np.full(len(batch["span"]), -9.0),
        )
        assert task.score(None, "valid")[0]["exact"] == count / 4


LETTERS = "a b c d e f g h i j " * 4


@dataclasses.dataclass(frozen=True)
class Given:
    """Answers of 30 and 31 words, one in the first window, one across the ends of windows."""

    def questions(self, split: str) -> list[Question]:
        stretches = ((0, 59), (0, 61), (2, 9), (14, 21))
        rows = [Question("q", LETTERS, ((LETTERS[i:j], i),)) for i, j in stretches]
        return [*rows, Question("q", LETTERS, ())]


@pytest.mark.parametrize("units", ["words", "pieces"])
def test_answers_that_are_too_long_or_cut_by_every_window_cannot_be_reached(units: Any) -> None:
    data = {"name": f"{__name__}:Given"}
    words = {"kind": "word", "size": 100, "min_frequency": 1}
    for windows, share in ((None, 0.25), (Windows(13, 9, 2), 0.75), (Windows(13, 4, 2), 0.5)):
        options: dict[str, Any] = {"unanswerable": True, "windows": windows, "units": units}
        actual = questions.Questions.load(data, words, None, ("train",), **options)
        assert actual.extra == {"train": share}


def test_texts_are_compared_as_squad_compares_them() -> None:
    assert exact("The Dog!", "a dog") and not exact("dogs", "dog")
    assert f1("the big dog", "dog") == pytest.approx(2 / 3)
    assert f1("dog dog", "dog cat") == pytest.approx(1 / 2)
    assert (f1("the", "an"), f1("the", "dog")) == (1.0, 0.0)
    assert (exact("", ""), exact("dog", ""), f1("", ""), f1("", "dog")) == (True, False, 1.0, 0.0)


def test_lines_and_maps(task: QuestionAnswering, params: Any) -> None:
    typed = ("whom does the king meet ?", "the king sees the fox .")
    (example,) = task.examples_from_text(params, [typed])
    (one,) = attention_maps(task, params, example).values()
    labels = list(one.rows)
    assert one.weights.shape == (2, len(labels), len(labels))
    assert labels[0] == "<s>" and labels.count("</s>") == 2 and labels[-1] == "</s>"
    for line in ("no tab", "\tpassage", "question\t "):
        check_refused("expected a question and a passage", task.respond, params, [line])
