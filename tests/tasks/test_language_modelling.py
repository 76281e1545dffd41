"""Language modelling: scores against a loop over tokens in NumPy, truncated back-propagation with
carried states, and every named error.
"""

from __future__ import annotations

import dataclasses
import math
import runpy
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attnlab import config as configs
from attnlab.config import find_file
from attnlab.data.columns import Packed
from attnlab.data.vocabulary import BOS, EOS, PAD, UNK
from attnlab.errors import UserError
from attnlab.tasks.language_modelling import LanguageModelling
from attnlab.training.drawing import first_params
from attnlab.training.run import check_scores
from attnlab.training.step import first_state, make_step
from tests.tasks.tiny import check_items, looked
from tests.tasks.tiny_language import (
    APART,
    JOINED,
    SHARED,
    SIZES,
    apart,
    drawn,
    joined,
    load,
    passed,
)

FILE = "configs/language_modelling.py"


def with_settings(task: LanguageModelling, **changes: Any) -> LanguageModelling:
    """The same data under another config; "__" stands for the dot."""
    config = task.config.copy_and_resolve_references()
    config.update_from_flattened_dict(
        {name.replace("__", "."): value for name, value in changes.items()}
    )
    return LanguageModelling(config, task.data)


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


@pytest.mark.quick
@pytest.mark.parametrize("length", [3, 200])
def test_a_stream_read_in_pieces_is_scored_as_one_long_text(length: int) -> None:
    """Every token once, from all before it; summed over the stream, not averaged over pieces."""
    task, params = joined()
    ids = task.data.ids["valid"].ids.tolist()
    nats, right, tokens = summed(params, [([EOS, *ids[:-1]], ids)])
    found = with_settings(task, batch__max_length=length).evaluate(params, "valid")
    wanted = {
        "loss": nats / tokens,
        "perplexity": math.exp(nats / tokens),
        "accuracy": right / tokens,
    }
    assert found == pytest.approx(
        {**wanted, "bits_per_character": nats / tokens / math.log(2)}, rel=1e-5
    )


def test_lanes_of_a_split_begin_with_nothing() -> None:
    """Three lanes of 10, 10 and 9 tokens, say: each is a text of its own, but for the token
    before it.
    """
    task, params = joined()
    ids = task.data.ids["valid"].ids.tolist()
    columns = -(-len(ids) // 3)
    before = [EOS, *ids[:-1]]
    lanes = [
        (before[begin : begin + columns], ids[begin : begin + columns])
        for begin in range(0, len(ids), columns)
    ]
    nats, _, tokens = summed(params, lanes)
    assert with_settings(task, decoding__batch=3).evaluate(params, "valid")[
        "loss"
    ] == pytest.approx(nats / tokens, rel=1e-5)


def test_texts_apart_are_read_from_their_beginning() -> None:
    """Also the blank one, which is nothing but its end; batches of four are filled up with
    padding.
    """
    task, params = apart()
    texts = [([BOS, *ids[:-1]], ids) for ids in (ids.tolist() for ids in task.data.ids["valid"])]
    assert ([BOS], [EOS]) in texts
    nats, right, tokens = summed(params, texts)
    found = task.evaluate(params, "valid")
    assert (found["loss"], found["accuracy"]) == pytest.approx(
        (nats / tokens, right / tokens), rel=1e-5
    )


@pytest.mark.parametrize("rows", [1, 3])
def test_texts_in_turn_are_scored_as_texts_apart_however_long(rows: int) -> None:
    """Three tokens at a time, in any number of lanes; none is left out, and none knows of
    another.
    """
    task, params = apart()
    found = with_settings(
        task, batch__texts="in_turn", batch__max_length=3, decoding__batch=rows
    ).evaluate(params, "valid")
    assert found == pytest.approx(task.evaluate(params, "valid"), rel=1e-5)


def test_bits_per_character_of_words() -> None:
    """Nats of words over the characters of the text, ends counted; not where a word is unknown, for
    it would cost less than its letters.
    """
    task = load(*JOINED, "vocabulary.kind=word")
    found = task.evaluate(drawn(task), "train")
    tokens = len(task.data.ids["train"].ids)
    characters = sum(len(text) + 1 for text in task.data.texts["train"])
    assert characters > tokens and found["bits_per_character"] == pytest.approx(
        found["loss"] * tokens / characters / math.log(2)
    )
    unknown = task.score(drawn(task), "valid")[0]["unknown"]
    assert unknown == (task.data.ids["valid"].ids == UNK).mean() > 0
    assert "bits_per_character" not in task.evaluate(drawn(task), "valid")
    assert "bits_per_character" not in task.measures
    assert "bits_per_character" in joined()[0].measures


def test_a_measure_that_the_data_cannot_give_is_none_of_the_task() -> None:
    recalled = load(
        *APART,
        "data=associations",
        "data.examples=9",
        "data.valid=7",
        "data.test=1",
        "vocabulary.kind=word",
    )
    assert "recall" in recalled.measures and "recall" not in apart()[0].measures


def test_a_checkpoint_cannot_be_chosen_by_it() -> None:
    with pytest.raises(
        UserError,
        match=(
            r"^config.checkpoint.by='recall': this data has no such score; choose from: accuracy,"
            r" .*loss"
        ),
    ):
        check_scores(load(*APART, "checkpoint.by=recall"))


def test_recall_is_counted_where_it_can_be_known() -> None:
    """Against a loop: the share of right guesses at values whose key has occurred, texts apart and
    joined.
    """
    sizes = [
        "data=associations",
        "data.examples=9",
        "data.valid=7",
        "data.test=1",
        "data.length=12",
        "data.keys=3",
    ]
    sizes += ["data.values=2", "vocabulary.kind=word"]
    for how in (APART, JOINED):
        task = load(*how, *sizes, "batch.max_length=13")
        params, right, asked, before = drawn(task), 0, 0, []
        for ids, marks in zip(task.data.ids["valid"], task.data.recalled["valid"], strict=True):
            source = [*before, BOS if how is APART else EOS, *ids[:-1]]
            guesses = passed(params, source)[0].argmax(axis=1)[len(before) :]
            right = right + int(((guesses == ids) & (marks == 1)).sum())
            asked = asked + int(marks.sum())
            before = source if how is JOINED else []
        assert 0 < right < asked
        assert task.evaluate(params, "valid")["recall"] == pytest.approx(right / asked)
    assert "recall" not in joined()[0].evaluate(joined()[1], "valid")


@pytest.mark.parametrize(
    "how",
    [
        JOINED,
        [*JOINED, "decoding.batch=3"],
        APART,
        [*APART, "batch.texts=in_turn", "batch.max_length=3"],
    ],
)
def test_scores_are_made_of_their_texts(how: list[str]) -> None:
    """However they are read: of a text all tokens and its end, which text by which its tokens
    belong to.
    """
    task = load(*how)
    items = check_items(
        task, drawn(task), "valid", {"loss", "perplexity", "accuracy", "bits_per_character"}
    )
    assert items.rows["loss"][:, 1].tolist() == [len(one) + 1 for one in task.data.texts["valid"]]
    if how is APART:
        for number, ids in enumerate(task.data.ids["valid"]):
            nats, right, _ = summed(drawn(task), [([BOS, *ids[:-1].tolist()], ids.tolist())])
            assert (
                items.rows["loss"][number, 0],
                items.rows["accuracy"][number, 0],
            ) == pytest.approx((nats, right), rel=1e-5)


def test_a_single_text_is_not_drawn_from_and_recall_is() -> None:
    task = load(*JOINED)
    alone = dataclasses.replace(
        task.data, texts={"valid": ["abc"]}, ids={"valid": Packed([task.data.ids["valid"][1]])}
    )
    assert LanguageModelling(task.config, alone).items(None, "valid", []) is None
    sizes = [
        "data=associations",
        "data.examples=9",
        "data.valid=7",
        "data.test=1",
        "vocabulary.kind=word",
    ]
    recalled = load(*APART, *sizes, "batch.max_length=33")
    check_items(
        recalled,
        drawn(recalled),
        "valid",
        {"loss", "perplexity", "accuracy", "bits_per_character", "recall"},
    )


@pytest.mark.parametrize("of", [joined, apart])
def test_several_models_are_scored_at_once(of: Any) -> None:
    task, params = of()
    other = jax.tree.map(lambda leaf: 0.5 * leaf, params)
    found = task.evaluate_stacked(
        jax.tree.map(lambda *leaves: jnp.stack(leaves), params, other), "test"
    )
    for one, wanted in zip(
        found, (task.evaluate(params, "test"), task.evaluate(other, "test")), strict=True
    ):
        assert one == pytest.approx(wanted, rel=1e-5)
        assert one.keys() == set(task.measures) - {"recall"}


@pytest.mark.parametrize("of", [joined, apart])
def test_evaluation_is_never_smoothed(of: Any) -> None:
    """Alone, and of several models at once."""
    task, params = of()
    smoothed = with_settings(task, training__label_smoothing=0.4)
    hard = task.evaluate(params, "test")
    assert smoothed.evaluate(params, "test") == hard
    assert smoothed.evaluate_stacked(jax.tree.map(lambda leaf: leaf[None], params), "test")[
        0
    ] == pytest.approx(hard, rel=1e-5)


def test_texts_apart_remember_nothing_and_learn() -> None:
    task, _ = apart()
    assert task.remembered() is None and task.carried() is None
    optimizer = optax.adam(1e-2)
    state = first_state(first_params(task.init, jax.random.key(0)), optimizer, 0.0)
    step, batches = jax.jit(make_step(task.loss, task.weight, optimizer)), task.batches(1)
    losses = []
    for number in range(120):
        state, metrics = step(state, batches(number))
        losses.append(float(metrics["loss"]))
    assert np.mean(losses[-12:]) < 0.8 * np.mean(losses[:12]) and np.isfinite(losses).all()


def test_label_smoothing_weight_and_a_batch_of_nothing() -> None:
    task, params = joined()
    batch, key = task.batches(1)(0), jax.random.key(0)
    hard, sums = task.loss(params, batch, key, remembered=task.remembered())
    soft, _ = task.loss(
        params, batch, key, smoothing=jnp.float32(0.2), remembered=task.remembered()
    )
    logits, _ = task.system.apply(
        {"params": params},
        task.system.apply({"params": params}, 8, 0, method="start"),
        batch["source"],
        method="read",
    )
    uniform = -jnp.where(
        batch["target"] != PAD, jax.nn.log_softmax(logits).mean(axis=-1), 0.0
    ).sum()
    assert float(soft) == pytest.approx(0.8 * float(hard) + 0.2 * float(uniform), rel=1e-5)
    assert int(sums["tokens"]) == 40 == float(task.weight(batch))
    assert float(with_settings(task, training__per="sentence").weight(batch)) == 8
    nothing = {**{name: 0 * ids for name, ids in batch.items()}}
    before = {"h": jnp.full((8, 6), 0.5), "count": jnp.full(8, 3)}
    loss, sums = task.loss(params, nothing, key, remembered=before)
    assert float(loss) == 0.0 == float(sums["tokens"])
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
    assert (
        not load(*JOINED, "training.output_bias=zeros").init(jax.random.key(0))["out"]["bias"].any()
    )
    assert (
        LanguageModelling(task.config, task.data.__class__({}, {}, task.data.vocabulary))
        .init(jax.random.key(0))
        .keys()
        == params.keys()
    )


def test_lines_are_continued_as_the_model_would(tmp_path: Path) -> None:
    """Each answer begins with its line, whatever other lines are beside it, and its score is the
    log probability of what was added.
    """
    task, params = apart()
    lines = ["abc", "b", "eabcd"]
    for method in ("greedy", "beam"):
        how = with_settings(
            task,
            decoding__method=method,
            decoding__max_ratio=0.0,
            decoding__max_extra=6,
            decoding__length_penalty=0.0,
        )
        answers = how.respond(params, lines)
        for line, (best, *_) in zip(lines, answers, strict=True):
            assert best.text.startswith(line)
            ids = task.data.vocabulary.encode_all([best.text])[0].tolist()
            log_p, _ = passed(params, [BOS, *ids])
            log_p[:, [PAD, BOS]] = -np.inf  # what is never written
            log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
            added = [*ids[len(line) :], *([EOS] if len(ids) < len(line) + 6 else [])]
            assert best.score == pytest.approx(
                log_p[np.arange(len(line), len(line) + len(added)), added].sum(), abs=1e-4
            )
        assert [how.respond(params, [line])[0] for line in lines] == answers
    assert task.respond(params, []) == []


@pytest.mark.parametrize(("kind", "blank"), [("word", ""), ("word", "  "), ("char", "")])
def test_a_line_stays_as_it_was_written(kind: str, blank: str) -> None:
    """Also where a word is unknown, and with one blank before the next word."""
    task = load(
        *APART,
        f"vocabulary.kind={kind}",
        "decoding.method=greedy",
        "decoding.max_ratio=0.0",
        "decoding.max_extra=4",
    )
    params = drawn(task)
    params["out"]["bias"] = params["out"]["bias"].at[EOS].set(-50.0)
    line = "Zebra  abc"
    (answer,), *_ = task.respond(params, [line + blank])
    assert answer.text.startswith(line) and len(answer.text) > len(line)
    assert kind == "char" or (answer.text[len(line)] == " " and answer.text[len(line) + 1] != " ")


def test_limits_and_what_is_drawn() -> None:
    task, params = apart()
    assert task.longer_than(4, ["abc", "abcd", ""]) == [1]
    assert joined()[0].longer_than(1, ["abc"]) == []
    pictured = task.pictured("test", 2)
    assert len(pictured) == 2
    assert all(first.strip() and second is None for first, second in pictured)
    assert task.size("test") == SIZES["test"] and task.score(params, "test") == (
        {"unknown": 0.0},
        [],
    )
    assert task.completed(params, pictured) == pictured
    with pytest.raises(UserError, match="reads one text; leave out the second, 'abc'"):
        task.completed(params, [("a", "abc")])
    maps, tokens = looked(task, params, "abc")
    assert maps == {} and tokens == {
        "source": ["<s>", "a", "b", "c"],
        "target": ["a", "b", "c", "</s>"],
    }


def test_the_map_of_a_text_onto_itself() -> None:
    """Each row is a token that is read, and sees the outputs at earlier ones."""
    settings = [
        "system=attention_lm",
        "system.attention=single",
        "system.state=6",
        "system.width=6",
        "system.embedding=4",
        "system.window=2",
    ]
    task = load(*APART, *settings)
    maps, tokens = looked(task, first_params(task.init, jax.random.key(0)), "abcde")
    ((name, one),) = maps.items()
    assert one.weights.shape == (1, 6, 6)
    assert tokens[one.query] == tokens[one.key] == ["<s>", *"abcde"]
    assert name
    np.testing.assert_allclose(one.weights[0].sum(axis=-1), [0, 1, 1, 1, 1, 1], atol=1e-5)
    assert not np.triu(one.weights[0]).any() and not np.tril(one.weights[0], -3).any()


def test_notes() -> None:
    task, _ = joined()
    letters = {split: sum(len(text) + 1 for text in task.data.texts[split]) for split in SIZES}
    notes = task.notes(task.batches(1))
    assert notes[0] == f"train: 40 texts, {letters['train']} tokens (0.0% unknown)"
    assert notes[3:] == [
        "train: one stream in 8 lanes, 5 tokens of each at a time,"
        f" {task.batches(1).batches_per_epoch} steps an epoch"
    ]
    turns = with_settings(task, batch__texts="in_turn")
    steps = turns.batches(1).batches_per_epoch
    assert turns.notes(turns.batches(1))[3:] == [
        f"train: texts in turn in 8 lanes, 5 tokens of each at a time, {steps} steps an epoch"
    ]
    short = with_settings(apart()[0], batch__max_length=4)
    longer = sum(len(text) > 3 for text in task.data.texts["train"])
    assert short.notes(short.batches(1))[3:] == [
        f"train: {longer} texts longer than batch.max_length=4 tokens are left out, none is cut"
    ]
    assert len(apart()[0].notes(apart()[0].batches(1))) == 3


def test_the_run_keeps_its_vocabulary(tmp_path: Path) -> None:
    task, _ = joined()
    with pytest.raises(UserError, match="has lost its vocabulary"):
        LanguageModelling.load(task.config, tmp_path, ("valid",))
    task.save(tmp_path)
    assert LanguageModelling.saved(tmp_path)
    again = LanguageModelling.load(task.config, tmp_path, ("valid",))
    assert again.data.vocabulary.size == task.data.vocabulary.size
    assert list(again.data.ids) == ["valid"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["system=rnn_encoder_decoder"],
            (
                "system=rnn_encoder_decoder: expected a class derived from"
                " attnlab.systems.protocol.LanguageModel"
            ),
        ),
        (["batch.texts=in_turns"], "config.batch.texts='in_turns'; did you mean 'in_turn'"),
        (["batch.texts=jined"], "config.batch.texts='jined'; did you mean 'joined'"),
        (["batch.size=0"], "config.batch.size=0: expected a whole number"),
        (
            ["training.output_bias=unigrams"],
            "config.training.output_bias='unigrams'; did you mean 'unigram'",
        ),
        (
            ["decoding.method=beam", "decoding.beam=2", "decoding.coverage=0.1"],
            "needs attention weights",
        ),
        (["data=dates"], "config.data=dates: language modelling needs a source with texts"),
        (
            ["system=attention_lm", "system.attention=single", "batch.max_length=9"],
            "system.window=10: .*batch.max_length=9 tokens; take 9 or less",
        ),
        (
            ["system=attention_lm", "system.attention=hops", "system.window=4"],
            (
                "system=attention_lm: its attention hands out the loss 'hops'; set"
                " config.auxiliary.hops to its weight, or to None to train without it"
            ),
        ),
        (
            ["system=lstmn_lm", "system.attention=single", "system.span=50"],
            "system.span=50: .*or less",
        ),
        (
            ["system=attention_lm", "system.attention=single", "system.carry=state", *JOINED],
            "system.window=10: .*batch.max_length=5 tokens; take 5 or less",
        ),
    ],
)
def test_mistakes_are_named(overrides: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        task = configs.load("configs/language_modelling.py:lstm", [*SHARED, *overrides])
        LanguageModelling.check(task)
        LanguageModelling.load(task, None, ("train",))


@pytest.mark.parametrize("name", runpy.run_path(str(find_file(FILE, "config file")))["_SYSTEMS"])
def test_the_config_file(name: str) -> None:
    """Both ways of reading, complete and checked; published settings read a stream."""
    config = configs.load(f"{FILE}:{name}")
    LanguageModelling.check(config)
    assert config.task == "language_modelling" and config.batch.texts in (
        "joined",
        "apart",
        "crops",
    )
    assert config.batch.texts == "apart" or name.endswith("_paper")


def test_an_unknown_system_is_named() -> None:
    with pytest.raises(
        UserError, match="language_modelling.py has no system 'lstn'; did you mean .*'lstm'"
    ):
        configs.load(f"{FILE}:lstn")


def test_a_window_may_be_longer_than_a_piece_if_it_is_carried() -> None:
    overrides = [
        "system=attention_lm",
        "system.attention=single",
        "system.attention.score=additive",
        *JOINED,
    ]
    LanguageModelling.check(
        configs.load("configs/language_modelling.py:lstm", [*SHARED, *overrides])
    )
