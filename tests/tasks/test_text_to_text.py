"""Text to text has ROUGE, the mean over its texts, beside the scores of a translation."""

import pytest

from attnlab.decoding.rouge import NAMES, rouge
from attnlab.tasks import TASKS
from attnlab.tasks.text_to_text import TextToText
from tests.tasks.tiny import check_items, load, noisy


def test_rouge_is_the_mean_of_the_texts_and_stands_beside_the_scores_of_a_translation() -> None:
    plain = load("transformer", "decoding.method=greedy")
    task = TASKS.resolve("text_to_text")(plain.config, plain.data)
    assert isinstance(task, TextToText)
    params = noisy(plain)
    scores, answers = task.score(params, "test")
    theirs, same = plain.score(params, "test")
    assert answers == same and theirs.items() <= scores.items()
    for name in NAMES:
        each = [
            rouge(answer, reference)[name]
            for answer, reference in zip(answers, task.references("test"), strict=True)
        ]
        assert scores[name] == pytest.approx(sum(each) / len(each))
    check_items(task, params, "test", {*plain.measures, *NAMES})
