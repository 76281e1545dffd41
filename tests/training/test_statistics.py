"""The step moves the running averages of batch norm, the same over several devices; what batch norm
cannot do is refused.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attnlab.tasks.classification import Classification
from attnlab.training.parallel import backend
from attnlab.training.settings import Parallel
from attnlab.training.step import TrainState, first_state, make_step
from attnlab.training.trained import Trained
from attnlab.training.updates import first_params
from tests.refusals import check_refused
from tests.tasks import tiny, tiny_labelled
from tests.training.toy import steps_on

NORM = ["system.normalisation=batch_norm", "system.normalisation.momentum=0.75"]
SMALL = [*NORM, "system.width=8", "system.hidden=8", "system.layers=1", "system.dropout=0.0"]
SGD = optax.sgd(0.1)
NAMES = ("mean", "variance")


@functools.cache
def classification(*overrides: str) -> Classification:
    """Words by their last letter, with an encoder around batch norm."""
    small = [*SMALL, "system.attention.heads=2", *tiny_labelled.SHARED]
    load = tiny.loader("classification.py:transformer", small, tuple(tiny_labelled.SIZES))
    return load(*overrides)  # type: ignore[no-any-return]


def translation() -> Any:
    """Words and their mirror images, with an encoder and a decoder around batch norm."""
    sizes = [line for line in SMALL if "layers" not in line] + ["system.layers=1"]
    return tiny.load("transformer", *sizes)


@functools.cache
def stepped(task: Any) -> Callable[..., Any]:
    """The step of a task, one program for each shape of a batch."""
    return jax.jit(make_step(task.loss, task.weight, SGD, ema=0.9))


def begun(task: Any, seed: int = 0) -> TrainState:
    return first_state(first_params(task.init, jax.random.key(seed)), SGD, 0.9)


def statistics(params: Any) -> dict[str, np.ndarray]:
    """The running averages by path."""
    flat = jax.tree_util.tree_leaves_with_path(params)
    named = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in flat}
    return {name: leaf for name, leaf in named.items() if name.rsplit("/")[-1] in NAMES}


def assert_close(one: Any, other: Any) -> None:
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-6), one, other)


def test_the_step_moves_running_averages_and_the_optimizer_does_not() -> None:
    """Of the first norm, whose input is the embeddings: m' = c m + (1 - c) m of the real tokens,
    even with an optimizer that decays everything; evaluation reads it and leaves it alone.
    """
    task = classification()
    decaying = optax.chain(optax.add_decayed_weights(0.5), SGD)
    state = first_state(first_params(task.init, jax.random.key(0)), decaying, 0.5)
    batch = tiny_labelled.batch_of(task)
    step = jax.jit(make_step(task.loss, task.weight, decaying, ema=0.5))
    after, metrics = step(state, batch)
    assert "statistics" not in metrics
    tokens, p = np.asarray(batch["source"]), jax.device_get(state.params)
    tokens = np.concatenate([np.full((len(tokens), 1), task.special.bos), tokens], axis=1)
    embedded = p["embed"]["embedding"][tokens] + p["positions"]["table"][: tokens.shape[1]]
    real = embedded[(tokens != task.special.pad) & (tokens[:, 1:].any(axis=1))[:, None]]
    moments = {"mean": real.mean(axis=0), "variance": real.var(axis=0, ddof=1)}
    actual = after.params["layer_0"]["around_attention"]["normalisation"]
    for name, start in (("mean", 0.0), ("variance", 1.0)):
        expected = 0.75 * start + 0.25 * moments[name]
        np.testing.assert_allclose(actual[name], expected, rtol=1e-4, atol=1e-6)
    before, paths = statistics(state.params), statistics(after.params)
    assert len(paths) == 2 * 3  # two norms of a layer and one on top
    for path, leaf in statistics(after.ema).items():
        np.testing.assert_allclose(leaf, 0.5 * before[path] + 0.5 * paths[path], rtol=1e-6)
    once = task.evaluate(after.params, "valid")
    moved = jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf + (0.5 if path[-1].key == "mean" else 0.0), after.params
    )
    assert task.evaluate(after.params, "valid") == once != task.evaluate(moved, "valid")


@pytest.mark.parametrize(
    ("make", "others"),
    [
        (classification, (("mesh", 4), ("pmap", 4))),
        pytest.param(translation, (("pmap", 4),), marks=pytest.mark.full),
    ],
    ids=["classification", "translation"],
)
def test_several_devices_see_one_batch(make: Any, others: tuple[tuple[str, int], ...]) -> None:
    """Rows of padding lie on the last device, so that means of means would show; one process,
    `pmap` and `mesh`.
    """
    task = make()
    batch = (tiny_labelled if make is classification else tiny).batch_of(task)
    batch = {name: np.asarray(rows) for name, rows in batch.items()}
    actual = {}
    for name, devices in (("mesh", 1), *others):
        place = backend(Parallel(backend=name, devices=devices))
        step = make_step(task.loss, task.weight, SGD, ema=0.9)
        *_, (state, metrics) = steps_on(place, step, jax.device_get(begun(task)), [batch] * 2)
        actual[name, devices] = place.fetch((state.params, metrics))
    for one in actual.values():
        assert_close(one, actual["mesh", 1])


@pytest.mark.parametrize(
    "make", [classification, pytest.param(translation, marks=pytest.mark.full)]
)
def test_padding_is_inert_in_training(make: Any) -> None:
    """Rows and columns of padding change neither the loss nor the averages."""
    task = make()
    batch = (tiny_labelled if make is classification else tiny).batch_of(task)
    wider = {
        name: np.pad(rows, ((0, 3), *[(0, 2)] * (np.ndim(rows) - 1)), constant_values=0)
        for name, rows in batch.items()
    }
    step = stepped(task)
    (one, sums), (other, again) = (step(begun(task), rows) for rows in (batch, wider))
    assert_close(one.params, other.params)
    np.testing.assert_allclose(sums["loss"], again["loss"], rtol=1e-5)


def test_bfloat16_keeps_averages_in_float32() -> None:
    task = classification()
    batch, state = tiny_labelled.batch_of(task), begun(task)
    in_bfloat16 = jax.jit(make_step(task.loss, task.weight, SGD, compute="bfloat16"))
    low, high = (step(state, batch)[0].params for step in (in_bfloat16, stepped(task)))
    for path, leaf in statistics(low).items():
        assert leaf.dtype == jnp.float32
        np.testing.assert_allclose(leaf, statistics(high)[path], atol=0.02)
        assert np.any(np.asarray(leaf) != np.asarray(leaf.astype(jnp.bfloat16), np.float32))


def test_stacked_models_have_averages_of_their_own() -> None:
    task = classification()
    batch = tiny_labelled.batch_of(task)
    step = make_step(task.loss, task.weight, SGD, ema=0.9)
    states = [begun(task, seed) for seed in (0, 1)]
    stack = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    together = jax.jit(jax.vmap(step, in_axes=(0, None)))(stack, batch)[0].params
    for number, state in enumerate(states):
        alone = stepped(task)(state, batch)[0].params
        assert_close(jax.tree.map(lambda leaf, at=number: leaf[at], together), alone)


def test_frozen_averages_stay() -> None:
    task = classification()
    which = Trained(freeze=("around_attention",))
    state = first_state(first_params(task.init, jax.random.key(0)), SGD, 0.0, trained=which)
    step = jax.jit(make_step(task.loss, task.weight, SGD, trained=which))
    after, _ = step(state, tiny_labelled.batch_of(task))
    for path, leaf in statistics(after.params).items():
        same = np.array_equal(leaf, statistics(state.params)[path])
        assert same == ("around_attention" in path), path


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["training.accumulate=2"], "accumulate=2: the statistics of system.normalisation=batch_"),
        (["system.scan=true"], "normalisation=batch_norm: layers that are looped over.*scan=false"),
        (["system.remat=true"], "normalisation=batch_norm: layers that are looped over"),
    ],
)
def test_what_batch_norm_cannot_do_is_refused_before_data_is_read(
    overrides: list[str], words: str
) -> None:
    check_refused(words, classification, *overrides)


def test_a_step_with_statistics_takes_no_microbatches() -> None:
    task = classification()
    step = make_step(task.loss, task.weight, SGD, accumulate=2)
    with pytest.raises(ValueError, match="statistics of the batch takes no microbatches"):
        jax.eval_shape(step, begun(task), tiny_labelled.batch_of(task))
