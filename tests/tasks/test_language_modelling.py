"""A language model is scored as a loop over tokens in NumPy scores it, however its texts are read; it
continues lines, and mistakes are named.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.api.changed import changed_system
from attnlab.attention.interventions import Change
from attnlab.data.columns import Examples, Packed
from attnlab.data.vocabulary import BOS, EOS, PAD, UNK
from attnlab.errors import UserError
from attnlab.tasks.language_modelling import LanguageModelling
from attnlab.training.hyperparameters import SMOOTHING
from attnlab.training.run import check_scores
from attnlab.training.updates import first_params
from tests.refusals import check_refused
from tests.tasks.tiny import changed, check_items, looked, noisy
from tests.tasks.tiny_language import APART, JOINED, SIZES, apart, drawn, joined, load, passed


def summed(params: Any, texts: list[tuple[list[int], list[int]]]) -> tuple[float, int, int]:
    """Nats, right guesses and tokens of texts, each (what is read, what is predicted), by the loop
    in float64.
    """
    nats, right, tokens = 0.0, 0, 0
    for source, target in texts:
        log_p, _ = passed(params, source)
        nats -= log_p[np.arange(len(target)), target].sum()
        right += int((log_p.argmax(axis=1) == target).sum())
        tokens += len(target)
    return nats, right, tokens


def texts_read(task: LanguageModelling) -> list[tuple[list[int], list[int]]]:
    """The split "valid" as its config reads it: lanes of one stream, each of which begins with the
    token before it, or texts from their beginning.
    """
    ids = task.data.ids["valid"]
    if task.config.batch.texts != "joined":
        return [([BOS, *text[:-1]], text) for text in (each.tolist() for each in ids)]
    stream = ids.ids.tolist()
    before, columns = [EOS, *stream[:-1]], -(-len(stream) // task.config.decoding.batch)
    begins = range(0, len(stream), columns)
    return [(before[at : at + columns], stream[at : at + columns]) for at in begins]


IN_TURN = [*APART, "batch.texts=in_turn", "batch.max_length=3"]
WAYS = [
    pytest.param([*JOINED, "batch.max_length=3"], id="joined"),
    pytest.param([*JOINED, "batch.max_length=200"], id="joined at once", marks=pytest.mark.full),
    pytest.param([*JOINED, "decoding.batch=3"], id="three lanes", marks=pytest.mark.full),
    pytest.param(APART, id="apart"),
    pytest.param([*IN_TURN, "decoding.batch=1"], id="in turn", marks=pytest.mark.full),
    pytest.param([*IN_TURN, "decoding.batch=3"], id="in turn, three lanes"),
]


@pytest.mark.quick
@pytest.mark.parametrize("how", WAYS)
def test_scores_are_those_of_a_loop_over_tokens(how: list[str]) -> None:
    """Every token once, from all before it, never smoothed; alone, of several models at once, and by
    what each text adds. A blank text is nothing but its end.
    """
    task = load(*how, "training.label_smoothing=0.4")
    params, texts = drawn(task), texts_read(task)
    nats, right, tokens = summed(params, texts)
    loss = nats / tokens
    expected = {"loss": loss, "perplexity": math.exp(loss), "accuracy": right / tokens}
    expected["bits_per_character"] = loss / math.log(2)
    assert task.evaluate(params, "valid") == pytest.approx(expected, rel=1e-5)
    both = jax.tree.map(lambda leaf: np.stack([0.5 * leaf, leaf]), params)
    other, scores = task.evaluate_stacked(both, "valid")
    assert scores == pytest.approx(expected, rel=1e-5) and other["loss"] != scores["loss"]
    items = check_items(task, params, "valid", {*expected})
    assert items.rows["loss"][:, 1].tolist() == [len(text) + 1 for text in task.data.rows["valid"]]
    if task.config.batch.texts != "joined":
        assert ([BOS], [EOS]) in texts
        rows = np.stack([items.rows[name][:, 0] for name in ("loss", "accuracy")], axis=1)
        np.testing.assert_allclose(rows, [summed(params, [text])[:2] for text in texts], rtol=1e-5)


def test_bits_per_character_of_words() -> None:
    """Nats of words over the characters of the text, ends counted; not where a word is unknown, for
    it would cost less than its letters.
    """
    task = load(*JOINED, "vocabulary.kind=word")
    actual = task.evaluate(drawn(task), "train")
    tokens = len(task.data.ids["train"].ids)
    characters = sum(len(text) + 1 for text in task.data.rows["train"])
    assert characters > tokens and actual["bits_per_character"] == pytest.approx(
        actual["loss"] * tokens / characters / math.log(2)
    )
    unknown = task.score(drawn(task), "valid")[0]["unknown"]
    assert unknown == (task.data.ids["valid"].ids == UNK).mean() > 0
    assert "bits_per_character" not in task.evaluate(drawn(task), "valid")
    assert "bits_per_character" not in task.measures
    assert "bits_per_character" in joined()[0].measures


RECALLED = [
    *("data=associations", "data.examples=9", "data.valid=7", "data.test=1", "data.length=12"),
    *("data.keys=3", "data.values=2", "vocabulary.kind=word", "batch.max_length=13"),
]


@pytest.mark.parametrize("how", [APART, JOINED], ids=["apart", "joined"])
def test_recall_is_counted_where_it_can_be_known(how: list[str]) -> None:
    """The share of right guesses at values whose key has occurred is that of a loop; where the data
    does not say, there is no such measure, and no checkpoint can be chosen by it.
    """
    task = load(*how, *RECALLED)
    params, right, asked, before = drawn(task), 0, 0, []
    params["out"]["bias"][task.data.vocabulary.encode_all(["0 1"])[0]] += 5.0  # the values
    for ids, marks in zip(task.data.ids["valid"], task.data.recalled["valid"], strict=True):
        source = [*before, BOS if how is APART else EOS, *ids[:-1]]
        guesses = passed(params, source)[0].argmax(axis=1)[len(before) :]
        right = right + int(((guesses == ids) & (marks == 1)).sum())
        asked = asked + int(marks.sum())
        before = source if how is JOINED else []
    assert 0 < right < asked
    assert task.evaluate(params, "valid")["recall"] == pytest.approx(right / asked)
    names = {"loss", "perplexity", "accuracy", "bits_per_character", "recall"}
    check_items(task, params, "valid", names)
    assert "recall" in task.measures and "recall" not in apart()[0].measures
    words = r"^config.checkpoint.by='recall': this data has no such score; .*: accuracy, .*loss"
    check_refused(words, check_scores, load(*how, "checkpoint.by=recall"))


def test_long_texts_are_read_in_windows_that_predict_each_token_once() -> None:
    """A window begins with the id before it and knows nothing else of what was before; the rows of
    a text are one item.
    """
    task = load(*APART, "batch.max_length=3")
    params, nats, each = drawn(task), 0.0, []
    for ids in task.data.ids["valid"]:
        source = [BOS, *ids[:-1]]
        pieces = [slice(i, i + 3) for i in range(0, len(ids), 3)]
        log_p = np.concatenate([passed(params, source[piece])[0] for piece in pieces])
        each.append(-log_p[np.arange(len(ids)), ids].sum())
        nats += each[-1]
    tokens = len(task.data.ids["valid"].ids)
    assert task.evaluate(params, "valid")["loss"] == pytest.approx(nats / tokens, rel=1e-5)
    items = task.items(params, "valid", [])
    assert items is not None
    np.testing.assert_allclose(items.rows["loss"][:, 0], each, rtol=1e-4)
    assert items.rows["loss"][:, 1].sum() == tokens
    batches = task.batches(1)
    epoch = [batches(step)["target"] for step in range(batches.batches_per_epoch)]
    read = np.concatenate([one[one != PAD] for one in epoch])
    assert np.array_equal(np.sort(read), np.sort(task.data.ids["train"].ids))


def test_a_single_text_is_not_drawn_from() -> None:
    task = load(*JOINED)
    examples = {"valid": Examples(ids=Packed([task.data.ids["valid"][1]]))}
    alone = dataclasses.replace(task.data, rows={"valid": ["abc"]}, examples=examples)
    assert LanguageModelling(task.config, alone).items(None, "valid", []) is None


def test_label_smoothing_weight_and_a_batch_of_nothing() -> None:
    task, params = joined()
    batch, key = task.batches(1)(0), jax.random.key(0)
    loss = jax.jit(functools.partial(task.loss, params))
    hard, sums = loss(batch, key, remembered=task.remembered())
    soft, _ = loss(batch, key, numbers={SMOOTHING: jnp.float32(0.2)}, remembered=task.remembered())
    every = (passed(params, row)[0] for row in batch["source"])
    uniform = -sum(
        log_p[row != PAD].mean(axis=1).sum()
        for row, log_p in zip(batch["target"], every, strict=True)
    )
    assert float(soft) == pytest.approx(0.8 * float(hard) + 0.2 * uniform, rel=1e-5)
    assert int(sums["tokens"]) == 40 == float(task.weight(batch))
    assert float(changed(task, training__per="sentence").weight(batch)) == 8
    nothing = {name: 0 * ids for name, ids in batch.items()}
    before = {"h": jnp.full((8, 6), 0.5), "count": jnp.full(8, 3)}
    total, sums = loss(nothing, key, remembered=before)
    assert float(total) == 0.0 == float(sums["tokens"])
    np.testing.assert_array_equal(sums["remembered"]["h"], before["h"])


@pytest.mark.quick
def test_the_output_bias_begins_at_the_frequencies() -> None:
    """log((count + 1) / (N + V)), ends of texts counted; switched off it is zero."""
    task, _ = joined()
    params = first_params(task.init, jax.random.key(0))
    ids = task.data.ids["train"].ids
    counts = np.array([(ids == one).sum() + 1 for one in range(task.data.vocabulary.size)])
    np.testing.assert_allclose(params["out"]["bias"], np.log(counts / counts.sum()), rtol=1e-6)
    assert counts[EOS] == SIZES["train"] + 1 and counts[PAD] == 1
    zeros = load(*JOINED, "training.output_bias=zeros")
    assert not zeros.init(jax.random.key(0))["out"]["bias"].any()
    bare = LanguageModelling(task.config, type(task.data)({}, {}, task.data.learned))
    assert bare.init(jax.random.key(0)).keys() == params.keys()


SHORT = ["decoding.max_ratio=0.0", "decoding.max_extra=6", "decoding.length_penalty=0.0"]


@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_lines_are_continued_as_the_model_would(method: str) -> None:
    """Each answer begins with its line, whatever other lines are beside it, and its score is the
    log probability of what was added.
    """
    task, lines = load(*APART, *SHORT, f"decoding.method={method}"), ["abc", "b", "eabcd"]
    params = drawn(task)
    answers = task.respond(params, lines)
    for line, (best, *_) in zip(lines, answers, strict=True):
        assert best.text.startswith(line)
        ids = task.data.vocabulary.encode_all([best.text])[0].tolist()
        log_p, _ = passed(params, [BOS, *ids])
        added = [*ids[len(line) :], *([EOS] if len(ids) < len(line) + 6 else [])]
        chances = log_p[np.arange(len(line), len(line) + len(added)), added]
        assert best.score == pytest.approx(chances.sum(), abs=1e-4)
    assert [task.respond(params, [line])[0] for line in lines] == answers
    assert task.respond(params, []) == []


@pytest.mark.parametrize(("kind", "blank"), [("word", ""), ("word", "  "), ("char", "")])
def test_a_line_stays_as_it_was_written(kind: str, blank: str) -> None:
    """Also where a word is unknown, and with one blank before the next word."""
    task = load(*APART, *SHORT, f"vocabulary.kind={kind}", "decoding.method=greedy")
    params = drawn(task)
    params["out"]["bias"][EOS] = -50.0
    line = "Zebra  abc"
    (answer,), *_ = task.respond(params, [line + blank])
    assert answer.text.startswith(line) and len(answer.text) > len(line)
    assert kind == "char" or (answer.text[len(line)] == " " and answer.text[len(line) + 1] != " ")


def test_limits_and_what_is_drawn() -> None:
    task, params = apart()
    assert task.longer_than(4, ["abc", "abcd", ""]) == [1]
    assert joined()[0].longer_than(1, ["abc"]) == []
    shown = task.map_examples("test", 2)
    assert len(shown) == 2
    assert all(first.strip() and second is None for first, second in shown)
    assert task.size("test") == SIZES["test"]
    assert task.score(params, "test") == ({"unknown": 0.0}, [])
    assert task.examples_from_text(params, shown) == shown
    with pytest.raises(UserError, match="reads one text; leave out the second, 'abc'"):
        task.examples_from_text(params, [("a", "abc")])
    tokens = {"source": ["<s>", "a", "b", "c"], "target": ["a", "b", "c", "</s>"]}
    maps, labels = looked(task, params, "abc")
    assert labels == tokens and [map_.kind for map_ in maps.values()] == ["sensitivity"]


def test_the_map_of_a_text_onto_itself() -> None:
    """Each row is a token that is read, and sees the outputs at earlier ones."""
    sizes = ("system.state=6", "system.width=6", "system.embedding=4", "system.window=2")
    task = load(*APART, "system=attention_lm", "system.attention=single", *sizes)
    maps, tokens = looked(task, noisy(task), "abcde")
    ((name, one),) = maps.items()
    assert one.weights.shape == (1, 6, 6)
    assert tokens["source"] == one.rows == one.columns == ["<s>", *"abcde"]
    assert name
    np.testing.assert_allclose(one.weights[0].sum(axis=-1), [0, 1, 1, 1, 1, 1], atol=1e-5)
    assert not np.triu(one.weights[0]).any() and not np.tril(one.weights[0], -3).any()


def test_notes() -> None:
    task, _ = joined()
    assert task.notes(task.batches(1))[3:] == [
        "train: one stream in 8 lanes, 5 tokens of each at a time,"
        f" {task.batches(1).batches_per_epoch} steps an epoch"
    ]
    turns = changed(task, batch__texts="in_turn")
    steps = turns.batches(1).batches_per_epoch
    assert turns.notes(turns.batches(1))[3:] == [
        f"train: texts in turn in 8 lanes, 5 tokens of each at a time, {steps} steps an epoch"
    ]
    assert len(apart()[0].notes(apart()[0].batches(1))) == 3


def test_a_window_may_be_longer_than_a_piece_if_it_is_carried() -> None:
    system = ["system=attention_lm", "system.attention=single", "system.attention.score=additive"]
    LanguageModelling.check(load(*system, *JOINED).config)


def test_scores_are_of_the_system_that_the_task_has() -> None:
    """Also of one that is put in its place once the task is made, as a run without a layer does."""
    sizes = (
        "system.width=8",
        "system.hidden=8",
        "system.layers=1",
        "system.attention=multihead",
        "system.positions=none",
        "training.output_bias=zeros",
    )
    task = load(*APART, "system=decoder", *sizes)
    params = jax.device_get(noisy(task))
    whole = task.evaluate(params, "test")["loss"]
    cut = load(*APART, "system=decoder", *sizes)
    cut.system = changed_system(task.system, {"layer_0/attention/layer": Change(0.0)})
    without = cut.evaluate(params, "test")["loss"]
    params["layer_0"]["attention"]["out"]["kernel"][:] = 0
    assert without == pytest.approx(task.evaluate(params, "test")["loss"], rel=1e-5)
    assert without != pytest.approx(whole, rel=1e-4)
