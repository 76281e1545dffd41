"""What is known after one piece is what the next begins with, unless a text begins; logits in
pieces give the same losses and gradients. With truncated back-propagation a step goes on where the
one before ended, and without a gradient between (on any devices and after a stop:
tests/training/test_parallel.py and test_loop.py). Texts that share a row are modelled as if each
stood alone.
"""

import functools
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attnlab.attention.mechanisms.indexer import LightningIndexer
from attnlab.attention.positions.protocol import PositionScheme
from attnlab.config.registry import made
from attnlab.data.blocks import Blocks
from attnlab.data.vocabulary import EOS, PAD
from attnlab.errors import UserError
from attnlab.systems import SYSTEMS
from attnlab.systems.transformers.decoder import Decoder
from attnlab.tasks.models import shapes_of
from attnlab.tasks.reading import check_pieces, of_tokens, penalised, penalties, state_before
from attnlab.training.step import first_state, make_step
from tests.refusals import check_refused
from tests.tasks.tiny import loader, noise, noisy
from tests.tasks.tiny_language import SHARED, SIZES, apart, joined, passed


def test_pieces_are_what_the_whole_text_is_and_a_fresh_row_knows_nothing() -> None:
    task, params = apart()
    source = np.array([[1, 4, 5, 6, 7, 4], [1, 5, 5, 4, 6, 7]], np.int32)
    target = np.roll(source, -1, axis=1)
    read = jax.jit(functools.partial(of_tokens, task.system, params))
    whole, after = read({"source": source, "target": target}, None)
    assert after is None
    state = state_before(task.system, jax.eval_shape(lambda: params), 2)
    assert all(not np.asarray(leaf).any() for leaf in jax.tree.leaves(state))
    actual = []
    for piece, fresh in ((slice(0, 3), [1, 1]), (slice(3, 6), [0, 1])):
        batch = {"source": source[:, piece], "target": target[:, piece], "fresh": np.array(fresh)}
        each, state = read(batch, state)
        actual.append(np.asarray(each["loss"]))
    np.testing.assert_allclose(np.concatenate(actual, axis=1)[0], whole["loss"][0], atol=1e-5)
    np.testing.assert_allclose(actual[0][1], whole["loss"][1, :3], atol=1e-5)
    anew = passed(params, source[1, 3:])[0]
    expected = [-anew[place, token] for place, token in enumerate(target[1, 3:])]
    np.testing.assert_allclose(actual[1][1], expected, atol=1e-5)
    assert abs(np.asarray(expected) - np.asarray(whole["loss"])[1, 3:]).max() > 1e-2


def _decoder(vocabulary: int) -> Any:
    fields = {"attention": {"name": "multihead", "heads": 2}, "positions": "sinusoidal"}
    sizes = {"width": 8, "hidden": 8, "layers": 1, "dropout": 0.0, "logit_cap": 3.0}
    made_of = made(SYSTEMS, {"name": "decoder", **fields, **sizes})
    return made_of(vocabulary=vocabulary, pad_id=PAD)


@pytest.mark.parametrize(
    "at_once", [3, *(pytest.param(number, marks=pytest.mark.full) for number in (1, 7, 16))]
)
def test_logits_in_pieces_give_the_same_losses_and_gradients(at_once: int) -> None:
    system = _decoder(9)
    rng = np.random.default_rng(0)
    source = rng.integers(4, 9, (2, 7)).astype(np.int32)
    source[1, 5:] = PAD
    batch = {"source": source, "target": np.roll(source, -1, axis=1)}
    params = noise(jax.eval_shape(system.init, jax.random.key(0), source)["params"], 5.0)

    def loss(params: Any, at_once: int) -> Any:
        each, _ = of_tokens(system, params, batch, None, smoothing=0.1, at_once=at_once)
        return each["loss"].sum(), each

    both = jax.jit(lambda p: [jax.value_and_grad(loss, has_aux=True)(p, n) for n in (0, at_once)])
    ((whole, each), grads), ((total, pieces), others) = both(params)
    assert float(total) == pytest.approx(float(whole), rel=1e-6)
    for name, one in each.items():
        np.testing.assert_allclose(pieces[name], one, rtol=2e-6, atol=1e-6, err_msg=name)
    for one, other in zip(jax.tree.leaves(grads), jax.tree.leaves(others), strict=True):
        np.testing.assert_allclose(other, one, atol=2e-6 * max(1.0, float(abs(one).max())))


def test_logits_in_pieces_take_the_memory_of_a_piece() -> None:
    system, length, vocabulary = _decoder(16384), 128, 16384
    source = jax.ShapeDtypeStruct((1, length), jnp.int32)
    params = jax.eval_shape(lambda: system.init(jax.random.key(0), jnp.zeros((1, 4), jnp.int32)))

    def memory(at_once: int) -> int:
        def loss(params: Any, text: jax.Array) -> jax.Array:
            batch = {"source": text, "target": text}
            return of_tokens(system, params, batch, None, at_once=at_once)[0]["loss"].sum()

        program = jax.jit(jax.grad(loss)).lower(params["params"], source).compile()
        return int(program.memory_analysis().temp_size_in_bytes)

    whole, pieces = memory(0), memory(16)
    assert whole > 4 * length * vocabulary and whole > 2 * pieces


def test_a_system_without_hidden_states_is_refused() -> None:
    task, _ = apart()
    check_pieces(task.system, 0)
    with pytest.raises(UserError, match="logits_at_once=8: .* does not say what stands before"):
        check_pieces(task.system, 8)


@pytest.mark.parametrize("scan", [False, pytest.param(True, marks=pytest.mark.full)])
def test_losses_of_attention_are_added_by_their_weights_at_real_tokens(scan: bool) -> None:
    """Those of an indexer, of both layers; they alone teach it."""
    mixer = functools.partial(LightningIndexer, heads=2, keep=2, index_heads=2, index_width=3)
    sizes = {"vocabulary": 8, "pad_id": PAD, "width": 8, "hidden": 8, "scan": scan}
    system = Decoder(**sizes, attention=mixer, positions=PositionScheme)  # type: ignore[arg-type]
    source = np.array([[1, 4, 5, 6, 7], [1, 5, 4, PAD, PAD]], np.int32)
    target = np.array([[4, 5, 6, 7, 2], [5, 4, 2, PAD, PAD]], np.int32)
    batch = {"source": source, "target": target}
    params = noise(jax.eval_shape(system.init, jax.random.key(0), source)["params"], 0.4)

    def loss(params: Any, weight: float) -> Any:
        each, _ = of_tokens(system, params, batch, None, losses=("indexer",) if weight else ())
        sums = {name: one.sum() for name, one in each.items()}
        total, rest = penalised(sums, {"indexer": weight} if weight else {})
        return total, (each, rest)

    ways = jax.jit(lambda p: [jax.value_and_grad(loss, has_aux=True)(p, n) for n in (0.0, 0.5)])
    ((plain, (_, rest)), without), ((total, (each, sums)), slopes) = ways(params)
    assert "cross_entropy" not in rest and sums["cross_entropy"] == pytest.approx(float(plain))
    assert total == pytest.approx(float(plain + 0.5 * sums["indexer"]), rel=1e-6)
    here = np.asarray(each["indexer"])
    assert (here[1, 3:] == 0.0).all() and (here[0, 3:] > 0.0).all()
    for path, leaf in jax.tree_util.tree_leaves_with_path(slopes):
        taught = "indexer" in jax.tree_util.keystr(path)
        before = functools.reduce(lambda tree, key: tree[key.key], path, without)
        assert np.abs(leaf - before).max() < 1e-6 or taught
        assert not taught or (np.abs(before).max() == 0.0)
    made = shapes_of(system, jax.ShapeDtypeStruct((1, 5), jnp.int32))
    assert penalties(node({"indexer": 0.5}), made) == {"indexer": 0.5}
    assert penalties(node({"indexer": None}), made) == {}
    for weights, words in (({}, "hands out the loss"), ({"indexer": 1.0, "hop": 1.0}, "hop=1.0")):
        check_refused(words, penalties, node(weights), made)


def node(weights: dict[str, Any]) -> Any:
    """A config with these weights."""
    system = types.SimpleNamespace(name="decoder")
    return types.SimpleNamespace(loss_weights=weights, system=system, task="mine")


@pytest.mark.quick
def test_what_a_step_leaves_is_where_the_next_goes_on() -> None:
    """With parameters that stay as they are: losses and states of an epoch are those of every lane
    read at once, then all is fresh.
    """
    task, params = joined()
    batches = task.batches(1)
    ids, n = task.data.ids["train"].ids, batches.batches_per_epoch
    columns = -(-len(ids) // 8)
    before = np.append([EOS], ids[:-1])
    state = first_state(params, optax.sgd(0.0), 0.0, remembered=task.remembered())
    step = jax.jit(make_step(task.loss, task.weight, optax.sgd(0.0)))
    for number in range(n + 1):
        batch = batches(number)
        state, metrics = step(state, batch)
        begin, end = (0, min((number + 1) * 5, columns)) if number < n else (0, 5)
        nats = 0.0
        for row in range(8):
            lane = slice(row * columns + begin, min(row * columns + end, (row + 1) * columns))
            log_p, h = passed(params, before[lane])
            nats -= log_p[np.arange(len(log_p)), ids[lane]][number * 5 if number < n else 0 :].sum()
            np.testing.assert_allclose(state.remembered["h"][row], h, atol=1e-5)
            assert state.remembered["count"][row] == len(log_p)
        assert float(metrics["loss"]) == pytest.approx(
            nats / (batch["target"] != PAD).sum(), rel=1e-5
        )


def test_no_gradient_goes_back_into_the_step_before() -> None:
    """The gradient of the second step is that of a loss that begins with a constant state."""
    task, params = joined()
    batches, sgd = task.batches(1), optax.sgd(1.0)
    step = jax.jit(make_step(task.loss, task.weight, sgd))
    start = first_state(params, optax.sgd(0.0), 0.0, remembered=task.remembered())
    first, _ = jax.jit(make_step(task.loss, task.weight, optax.sgd(0.0)))(start, batches(0))
    second, _ = step(first.replace(opt_state=sgd.init(params)), batches(1))
    h = jax.device_get(first.remembered["h"])

    def loss(params: Any) -> jax.Array:
        batch = batches(1)
        state = {"h": jnp.asarray(h), "count": jnp.zeros(8, jnp.int32)}
        logits, _ = task.system.apply({"params": params}, state, batch["source"], method="read")
        real = batch["target"] != PAD
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["target"])
        return jnp.where(real, losses, 0.0).sum() / real.sum()

    for before, after, grad in zip(
        *map(jax.tree.leaves, (params, second.params, jax.jit(jax.grad(loss))(params))), strict=True
    ):
        np.testing.assert_allclose(before - after, grad, atol=1e-6)


SMALL = [
    *(*SHARED[1:], "system.width=8", "system.hidden=16"),
    *("system.attention.heads=2", "decoding.batch=4"),
]
SCHEMES = {
    "learned": [],
    "sinusoidal": ["system.positions=sinusoidal"],
    "rope": ["system.positions=none", "system.attention.positions=rope"],
    "alibi": ["system.positions=none", "system.attention.positions=alibi"],
    "t5": ["system.positions=none", "system.attention.positions=t5"],
    "window": ["system.visibility=window", "system.visibility.width=3"],
}


load = loader("language_modelling.py:decoder", SMALL, tuple(SIZES))
full = pytest.mark.full  # mechanisms and positions are tested on packed rows where they are at home


@pytest.mark.parametrize(
    "scheme", ["learned", *(pytest.param(name, marks=full) for name in [*SCHEMES][1:])]
)
def test_texts_of_a_row_are_scored_as_texts_apart(scheme: str) -> None:
    """A row that holds the whole split cuts no text."""
    packed = load("batch.texts=packed", "batch.max_length=150", *SCHEMES[scheme])
    apart = load("batch.texts=apart", "batch.max_length=150", *SCHEMES[scheme])
    params = noisy(apart, 0.3)
    assert len(packed.data.ids["valid"].ids) < 150
    one, other = (task.evaluate(params, "valid") for task in (packed, apart))
    assert one == pytest.approx(other, rel=2e-6)
    rows = [task.items(params, "valid", []) for task in (packed, apart)]
    assert rows[0] is not None and rows[1] is not None
    for name in ("loss", "accuracy"):
        np.testing.assert_allclose(*(one.rows[name] for one in rows), rtol=1e-5, atol=1e-6)


def test_training_reads_shuffled_rows() -> None:
    task = load("batch.texts=packed", "batch.max_length=12")
    batches = task.batches(1)
    assert isinstance(batches, Blocks) and "shuffled" in batches.note
    assert task.remembered() is None
    batch = batches(0)
    assert batch["source"].shape == (8, 12) and batch["segments"].max() > 0


def test_crops_are_trained_on_anywhere_and_scored_in_turn_from_nothing() -> None:
    task = load("batch.texts=crops", "batch.max_length=12")
    batch, stream = task.batches(1)(0), task.data.ids["train"].ids
    for source, target in zip(batch["source"], batch["target"], strict=True):
        np.testing.assert_array_equal(source[1:], target[:-1])
        assert any((stream[at : at + 12] == target).all() for at in range(1, len(stream) - 11))
    params = noisy(task, 0.3)
    actual = task.evaluate(params, "valid")
    totals = task.totals(task.batch_sums(params, "valid"), "valid")
    assert totals["tokens"] == len(task.data.ids["valid"].ids)
    joined = load("batch.texts=joined", "batch.max_length=12")
    assert actual == joined.evaluate(params, "valid")  # a decoder carries nothing on
