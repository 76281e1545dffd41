"""Masked language modelling is scored as a loop over rows scores it, and both of its losses are
trained; hidden tokens are answered, maps shown, and the mask kept.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attnlab.data.denoising import Masking
from attnlab.data.vocabulary import BOS, EOS, PAD
from attnlab.errors import UserError
from attnlab.tasks.maps import attention_maps
from attnlab.tasks.masked_language_modelling import MaskedLanguageModelling
from attnlab.training.hyperparameters import SMOOTHING
from attnlab.training.step import first_state, make_step
from attnlab.training.updates import first_params
from tests.refusals import check_refused
from tests.tasks.tiny import check_items, loader, log_softmax, noisy
from tests.tasks.tiny_language import SIZES

SMALL = [
    *("data=tests.tasks.tiny_language:Letters", "vocabulary.kind=char", "batch.size=8"),
    *("batch.max_length=12", "system.width=8", "system.hidden=16", "system.layers=1"),
    "system.attention.heads=2",
]


load = loader("masked_language_modelling.py:transformer", SMALL, tuple(SIZES))


def expected(task: MaskedLanguageModelling, params: Any, rows: list[list[int]]) -> dict[str, float]:
    """Scores of rows that are masked and read one by one, all of a length by padding."""
    nats, right, count, apply = 0.0, 0, 0, jax.jit(task.system.apply)
    longest = max(map(len, rows))
    for number, row in enumerate(rows):
        tokens = np.array([row], np.int32)
        batch = task.masking(tokens, (), np.array([number]))
        source = np.pad(batch["source"], ((0, 0), (0, longest - batch["source"].shape[1])))
        log_p = log_softmax(apply({"params": params}, source)[0])
        there = batch["target"][0] != PAD
        hidden, target = batch["places"][0, there], batch["target"][0, there]
        nats -= log_p[hidden, target].sum()
        right += int((log_p[hidden].argmax(axis=1) == target).sum())
        count += len(hidden)
    loss = nats / count
    return {"loss": loss, "perplexity": np.exp(loss), "accuracy": right / count}


def test_scores_are_those_of_every_text_by_itself() -> None:
    """Whatever the batches are; and every text counts in the rows of the items."""
    task = load("masking.rate=0.4")
    params = noisy(task)
    ids = task.data.ids["valid"]
    wanted = expected(task, params, [[BOS, *one.tolist()] for one in ids])
    assert task.evaluate(params, "valid") == pytest.approx(wanted, rel=2e-6)
    check_items(task, params, "valid", {"loss", "perplexity", "accuracy"})
    task.at_once = 3
    assert task.evaluate(params, "valid") == pytest.approx(wanted, rel=2e-6)
    masked = sum(int((batch["target"] != PAD).sum()) for _, batch in task.split_batches("valid"))
    assert task.counts("valid") == {"hidden tokens": masked}
    again = task.evaluate_stacked(jax.tree.map(lambda x: np.stack([x, x]), params), "valid")
    assert again[1] == pytest.approx(wanted, rel=2e-6)


@pytest.mark.full
def test_packed_texts_do_not_see_each_other() -> None:
    """The gradient of what is hidden in one text sees no token of another."""
    task = load("batch.texts=packed", "masking.rate=0.5")
    batch, params = task.batches(1)(0), noisy(task)
    assert batch["source"].shape == (8, 12) and batch["segments"].max() > 0
    row = {name: one[:1] for name, one in batch.items()}
    first = row["segments"] == 0

    @jax.jit
    def slope(row: Any) -> Any:
        how = {"numbers": {SMOOTHING: 0.0}}
        return jax.grad(lambda p: task.loss(p, row, jax.random.key(1), **how)[0])(params)

    def told(row: dict[str, Any]) -> Any:
        here = np.take_along_axis(first, row["places"], axis=1)
        return slope({**row, "target": np.where(here, row["target"], PAD)})["layer_0"]

    other = {**row, "source": np.where(first, row["source"], 5).astype(np.int32)}
    for one, two in zip(jax.tree.leaves(told(row)), jax.tree.leaves(told(other)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-8)
    scores = task.evaluate(params, "test")
    check_items(task, params, "test", {"loss", "perplexity", "accuracy"})
    assert scores["loss"] > 0


def test_the_loss_is_per_hidden_token() -> None:
    task = load("masking.rate=0.4")
    batch, params, key = task.batches(1)(0), noisy(task), jax.random.key(0)
    total, sums = jax.jit(task.loss)(params, batch, key, numbers={SMOOTHING: 0.1})
    hidden = (batch["target"] != PAD).sum()
    assert sums["hidden"] == task.weight(batch) == hidden
    assert sums["tokens"] == (batch["source"] != PAD).sum()
    logits: Any = jax.jit(task.system.apply)(
        {"params": params}, batch["source"], rngs=task.rngs(key)
    )
    log_p = np.take_along_axis(log_softmax(logits), batch["places"][..., None], axis=1)
    each = -0.9 * np.take_along_axis(log_p, batch["target"][..., None], -1)[..., 0]
    each = np.where(batch["target"] != PAD, each - 0.1 * log_p.mean(axis=-1), 0.0)
    assert float(total) == pytest.approx(each.sum(), rel=1e-5)


def test_hidden_tokens_of_a_line_are_told() -> None:
    """The likeliest token at each; never one that is no text."""
    task = load()
    params = noisy(task)
    lines = ["ab[MASK]d", "[MASK][MASK]", "a[MASK]"]
    mask = task.data.vocabulary.special.reserved[0]
    bias = jnp.asarray(params["out"]["bias"]).at[jnp.array([BOS, EOS, mask])].add(9.0)
    params = {**params, "out": {**params["out"], "bias": bias}}
    answers, apply = task.respond(params, lines), jax.jit(task.system.apply)
    for line, (best,) in zip(lines, answers, strict=True):
        ids = [mask if one == "?" else None for one in line.replace("[MASK]", "?")]
        letters = [
            mask if one else task.data.vocabulary.encode_all([letter])[0][0]
            for one, letter in zip(ids, line.replace("[MASK]", "?"), strict=True)
        ]
        read = np.array([[BOS, *letters, EOS]], np.int32)
        logits: Any = apply({"params": params}, read)
        log_p = log_softmax(logits[0, 1:-1])[:, 3:mask]
        told = [3 + log_p[at].argmax() if one == mask else one for at, one in enumerate(letters)]
        score = sum(log_p[at].max() for at, one in enumerate(letters) if one == mask)
        assert best.text == task.data.vocabulary.decode(told)
        assert best.score == pytest.approx(score, rel=1e-5)
    check_refused(r"nothing is hidden; write \[MASK\]", task.respond, params, ["abc"])


def test_maps_have_the_tokens_of_a_text() -> None:
    task = load()
    params = noisy(task)
    (example,) = task.examples_from_text(params, [("ab[MASK]", None)])
    (one,) = attention_maps(task, params, example).values()
    assert list(one.rows) == ["<s>", "a", "b", "<reserved 0>", "</s>"]
    assert one.weights.shape == (2, 5, 5)
    np.testing.assert_allclose(one.weights.sum(axis=-1), 1.0, atol=1e-6)
    assert len(task.map_examples("valid", 3)) == 3
    with pytest.raises(UserError, match="reads one text; leave out the second, 'b'"):
        task.examples_from_text(params, [("a", "b")])


def test_every_id_is_an_output_and_the_mask_is_kept(tmp_path: Path) -> None:
    """The vocabulary of a run has its mask when it is read again."""
    task = load(system="bert")
    task.save(tmp_path)
    again = MaskedLanguageModelling.load(task.config, tmp_path, ("valid",))
    assert again.data.vocabulary.special == task.special and task.special.reserved
    assert task.special.reserved[0] == task.data.vocabulary.size - 1
    params = jax.eval_shape(again.init, jax.random.key(0))
    assert params["out"]["bias"].shape == (again.data.vocabulary.size,)
    counted = first_params(task.init, jax.random.key(0))["out"]["bias"]  # log of how often each is
    assert float(jnp.exp(counted).sum()) == pytest.approx(1.0, rel=1e-5)


@dataclasses.dataclass(frozen=True)
class Stories:
    """Documents whose sentences are of one letter of eight each, so that a pair tells whether it is
    one, but for an eighth of those that are not.
    """

    def texts(self, split: str) -> list[str]:
        rng = np.random.default_rng(list(SIZES).index(split))
        actual = []
        for _ in range(12 * SIZES[split]):
            letter = str(rng.choice(list("abcdefgh")))
            actual += [letter * int(rng.integers(2, 5)) for _ in range(rng.integers(2, 4))] + [""]
        return actual


PAIRS = [
    "data=tests.tasks.test_masked_language_modelling:Stories",
    "batch.texts=pairs",
    "system.next_sentence=true",
]


def test_pairs_are_scored_row_by_row_and_both_losses_are_trained() -> None:
    """Scores against a loop over rows; the objective is the sum over hidden tokens, and of each row
    the loss of its relation times its hidden tokens.
    """
    task = load(*PAIRS, "masking.rate=0.3", "system.dropout=0.0", system="bert")
    params = noisy(task)
    batch, key = task.batches(1)(1), jax.random.key(0)
    nats, counted, second, right = 0.0, 0, 0.0, 0

    @jax.jit
    def read(source: Any, types: Any) -> Any:
        tokens: Any = task.system.apply({"params": params}, source, types)
        related: Any = task.system.apply({"params": params}, source, types, method="follows")
        return tokens[0], related[0]

    def told(row: Any) -> tuple[np.ndarray, np.ndarray]:
        log_p, related = map(log_softmax, read(row["source"], row["types"]))
        there = row["target"][0] != PAD
        picked = log_p[row["places"][0, there], row["target"][0, there]]
        return picked, related

    for number in range(len(batch["source"])):
        row = {name: one[number : number + 1] for name, one in batch.items()}
        picked, related = told(row)
        nats -= picked.sum()
        counted += len(picked)
        second -= len(picked) * related[row["relation"][0]]
    total, sums = jax.jit(task.loss)(params, batch, key, numbers={SMOOTHING: 0.0})
    assert float(total) == pytest.approx(nats + second, rel=1e-5)
    assert float(task.weight(batch)) == counted == sums["hidden"]
    nats, counted, pairs = 0.0, 0, 0
    for _, batch in task.split_batches("valid"):
        for number in np.flatnonzero((batch["source"] != PAD).any(axis=1)):
            row = {name: one[number : number + 1] for name, one in batch.items()}
            picked, related = told(row)
            nats, counted, pairs = nats - picked.sum(), counted + len(picked), pairs + 1
            right += int(related.argmax() == row["relation"][0])
    actual = task.evaluate(params, "valid")
    assert actual["loss"] == pytest.approx(nats / counted, rel=1e-5)
    assert actual["next_sentence"] == pytest.approx(right / pairs)
    assert task.counts("valid") == {"hidden tokens": counted, "pairs": pairs}
    check_items(task, params, "valid", {"loss", "perplexity", "accuracy", "next_sentence"})


@pytest.mark.full
def test_what_follows_is_learned() -> None:
    """No more than 15/16 can be told, 84 pairs; chance is a half."""
    sizes = ["batch.size=32", "system.width=32", "system.hidden=32", "system.attention.heads=4"]
    task = load(*PAIRS, *sizes, "system.dropout=0.0", system="bert")
    optimizer = optax.adam(3e-3)
    step = jax.jit(make_step(task.loss, task.weight, optimizer), donate_argnums=0)
    state = first_state(first_params(task.init, jax.random.key(0)), optimizer, 0.0)
    batches = task.batches(1)
    before = task.evaluate(state.params, "valid")["next_sentence"]
    for number in range(240):
        state, _ = step(state, batches(number))
    after = task.evaluate(state.params, "valid")
    assert after["next_sentence"] > 0.8 > 0.7 > before
    assert after["accuracy"] > 0.9


def test_pairs_need_a_system_that_tells_and_others_have_no_such_score() -> None:
    for overrides, system in (([*PAIRS[:2]], "bert"), ([*PAIRS[:2]], "transformer")):
        check_refused(r"texts=pairs.*system.next_sentence=true", load, *overrides, system=system)
    assert "next_sentence" not in load().measures
    with pytest.raises(UserError, match="max_length=4: a pair takes"):
        load(*PAIRS, "batch.max_length=4", system="bert").batches(1)


def test_masking_takes_the_settings_of_the_config() -> None:
    task = load("masking.rate=0.3", "masking.most=2", "masking.hidden=0.5", "masking.random=0.2")
    assert task.masking == Masking(task.special, task.data.vocabulary.size, 0.3, 2, 0.5, 0.2)
