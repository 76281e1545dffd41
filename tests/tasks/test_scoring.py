"""Scores of texts are those of `transformers` token by token, in windows too, and what the other ways
to a score give; `tests/weights/golden_scores.py` says where the numbers come from.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnlab
from attnlab.errors import UserError
from attnlab.tasks.scoring import Row, pieces, score_rows, scored_texts, window_of
from tests.refusals import check_refused
from tests.tasks.test_language_modelling import summed, texts_read
from tests.tasks.tiny_language import APART, JOINED, apart, joined, load, passed
from tests.weights import models


@pytest.fixture(scope="module", params=models.SCORED)
def golden(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[attnlab.Run, Any]:
    folder = models.tokenized(request.param, tmp_path_factory.mktemp(request.param))
    run = attnlab.load_pretrained(folder, {"decoding.batch": 3})
    return run, json.loads((models.GOLDEN / "scores" / f"{request.param}.json").read_text())


def test_every_token_is_scored_as_by_transformers(golden: tuple[attnlab.Run, Any]) -> None:
    """In windows of several strides, and so are pairs and whole texts by the harness's back end."""
    run, numbers = golden
    for (window, stride), expected in zip(models.WINDOWS, numbers["windows"], strict=True):
        scored = run.score(models.TEXTS, window=window, stride=stride, end=False)
        for score, log_probs in zip(scored, expected, strict=True):
            np.testing.assert_allclose(score.log_probs, log_probs, rtol=0, atol=1e-5)
    vocabulary, begin = run.task.data.vocabulary, run.task.first_id
    rows = []
    for pair in models.PAIRS:
        before, ids = (
            vocabulary.named(text, around=True) for text in (pair[0].rstrip(), "".join(pair))
        )
        before, ids = (before, ids) if pair[0] else ([begin], [begin, *vocabulary.named(pair[1])])
        rows.append(Row(np.array(ids, np.int32), len(ids) - len(before)))
    for (actual, likeliest), (log_prob, greedy) in zip(
        score_rows(run.task, run.params, rows), numbers["pairs"], strict=True
    ):
        assert actual.sum() == pytest.approx(log_prob, abs=1e-5 * len(actual))
        assert likeliest.all() == greedy
    assert window_of(run.task) == 128 < max(map(len, numbers["windows"][0]))


@pytest.mark.parametrize(
    ("length", "scored", "window", "stride"),
    [(9, 8, None, None), (9, 8, 3, 3), (9, 8, 3, 1), (20, 4, 7, 5), (20, 9, 7, 2), (5, 2, 9, 4)],
)
def test_every_token_is_scored_once_with_as_much_before_it_as_there_is_room_for(
    length: int, scored: int, window: int | None, stride: int | None
) -> None:
    parts = list(pieces(length, scored, window, stride))
    every = [id for _, end, first in parts for id in range(first, end + 1)]
    assert every == list(range(length - scored, length))
    for begin, end, first in parts:
        assert begin == max(0, end - (window or length)) and begin < first
        assert first == length - scored or end - first < (stride or window or length)


def test_the_sum_of_a_split_is_what_evaluate_gives() -> None:
    """Of texts that are read apart. A text that continues another is a part of the two; a recurrent
    model of a stream reads each as a whole, from the end of another.
    """
    task, params = apart()
    texts = task.data.rows["valid"][1:]  # the first is blank
    scored = scored_texts(task, params, texts)
    nats = -sum(score.log_prob for score in scored)
    tokens = sum(len(score.log_probs) for score in scored)
    expected, _, _ = summed(params, texts_read(task)[1:])
    assert nats == pytest.approx(expected, rel=1e-5) and tokens == sum(len(x) + 1 for x in texts)
    text = max(texts, key=len)
    (first, whole), (rest,) = (
        scored_texts(task, params, pairs, end=False)
        for pairs in ([text[:3], text], [(text[:3], text[3:])])
    )
    assert first.log_prob + rest.log_prob == pytest.approx(whole.log_prob, rel=1e-5)
    assert [rest.text[a:b] for a, b in rest.offsets] == list(text[3:]) == rest.tokens
    task, params = joined()
    ids = task.data.vocabulary.encode_all([text])[0]
    (alone,) = scored_texts(task, params, [text], end=False)
    log_p, _ = passed(params, [task.special.eos, *ids[:-1]])
    assert alone.log_probs == pytest.approx(log_p[np.arange(len(ids)), ids], rel=1e-5)


def test_a_text_that_follows_another_has_the_score_of_its_part(
    golden: tuple[attnlab.Run, Any],
) -> None:
    run, _ = golden
    log_probs = run.score(["A dog"], end=False)[0].log_probs
    (rest,) = run.score([("A", " dog")])
    assert rest.log_probs[:-1] == pytest.approx(log_probs[1:], abs=1e-5) and rest.ended
    half = attnlab.load_pretrained(run.workdir, {"decoding.compute": "bfloat16"})
    assert half.params["embed"]["embedding"].dtype == "bfloat16"
    (rough,) = half.score([("A", " dog")])
    assert rough.log_prob != rest.log_prob and abs(rough.log_prob / rest.log_prob - 1) < 0.05
    with pytest.raises(UserError, match="has rounded the weights; load the run without it"):
        attnlab.save_pretrained(half, run.workdir / "out")


def test_what_cannot_be_scored(golden: tuple[attnlab.Run, Any]) -> None:
    run, _ = golden
    for texts, options, words in [
        (["a", ""], {}, "the text '' has no tokens to score"),
        ([("a", "")], {}, "the text '' has no tokens to score"),
        ([("a", "b", "c")], {}, "pair 1: expected a source and a target"),
        (["a"], {"window": 4, "stride": 5}, "a stride of at most a window"),
        (["a"], {"window": 0}, "window=0, stride=None: expected at least one token"),
        (["a"], {"stride": 0}, r"window=\d+, stride=0: expected at least one token"),
        (["a", 5], {}, "text 2 is int; expected str, or a pair of them"),
        ([None], {}, "text 1 is NoneType; expected str"),
        ([b"ab"], {}, "text 1 is bytes; expected str"),
        ([("a", 5)], {}, "pair 1: expected a source and a target"),
        (["a", "b\ud83d"], {}, "text 2 is not UTF-8"),
        ([("\udcff", "b")], {}, "text 1 is not UTF-8"),
        ("a", {}, r"not one: write score\(\['a'\]\)"),
    ]:
        check_refused(words, run.score, texts, **options)


def test_nothing_has_no_scores(golden: tuple[attnlab.Run, Any]) -> None:
    run, _ = golden
    assert score_rows(run.task, run.params, []) == []
    ((log_probs, likeliest),) = score_rows(run.task, run.params, [Row(np.zeros(1, np.int32), 0)])
    assert log_probs.shape == likeliest.shape == (0,)


@pytest.mark.parametrize("texts", ["joined", "apart"])
def test_a_run_of_a_tokenizer_reads_first_what_its_training_does(
    tmp_path: Path, texts: str
) -> None:
    """Its end where texts are a stream, though the tokenizer has another BOS."""
    file = models.tokenized("llama", tmp_path)
    options = JOINED if texts == "joined" else APART
    task = load(*options, "vocabulary.kind=tokenizer", f"vocabulary.file={file}")
    special = task.special
    assert special.bos != special.eos
    first = {"joined": special.eos, "apart": special.bos}[texts]
    (ids,) = task.examples_from_lines(["abc"]).packed("source")
    batch = next(task._in_turn("train"))
    assert task.first_id == first == ids[0] == batch["source"][0, 0]


@pytest.mark.parametrize(
    ("given_as", "keywords"),
    [
        ([], {"source": "A dog,", "target": " a cat"}),
        (["A dog,"], {"target": " a cat"}),
        (["A dog,", " a cat"], {}),
    ],
)
def test_a_source_and_its_target_by_keyword(
    golden: tuple[attnlab.Run, Any], given_as: list[str], keywords: dict[str, str]
) -> None:
    """As in the version before, with options too."""
    run, _ = golden
    (pair,) = run.score([("A dog,", " a cat")], end=False)
    assert run.score(*given_as, **keywords, end=False) == pair.log_prob
