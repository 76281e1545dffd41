"""Text to text: its scores beside those of translation, and its systems."""

from __future__ import annotations

import pytest
from ml_collections import ConfigDict

from attnlab import config as configs
from attnlab.decoding.rouge import NAMES, rouge
from attnlab.tasks import TASKS
from attnlab.tasks.text_to_text import TextToText
from tests.tasks.tiny import check_items, load, trained


def test_rouge_is_the_mean_of_the_texts_and_stands_beside_the_scores_of_a_translation() -> None:
    plain = load("transformer", "decoding.method=greedy")
    task = TextToText(plain.config, plain.data)
    params = trained(plain)
    scores, answers = task.score(params, "test")
    theirs, same = plain.score(params, "test")
    assert answers == same and theirs.items() <= scores.items()
    for name in NAMES:
        each = [
            rouge(answer, reference)[name]
            for answer, reference in zip(answers, task.references("test"), strict=True)
        ]
        assert scores[name] == pytest.approx(sum(each) / len(each))
    check_items(
        task, params, "test", {"loss", "perplexity", "accuracy", "bleu", "chrf", "exact", *NAMES}
    )


@pytest.mark.parametrize("system", ["t5", "t5_gated", "bart", "t5_small", "bart_base"])
def test_every_system_of_the_file_builds(system: str) -> None:
    config = configs.load(f"configs/text_to_text.py:{system}")
    assert TASKS.resolve("text_to_text") is TextToText and config.task == "text_to_text"
    TextToText.check(config)
    assert isinstance(config, ConfigDict)
