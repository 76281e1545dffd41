"""Recurrent systems that write a text for a text, beyond their formulas: what decoders have read when they
look, where windows that follow the target lie (Luong et al. 2015), that states are all that goes from
source to target in Sequence to Sequence; of RCTM I that sentences of any length are read whole, and are the
only way from source to target; of the pointer-generator coverage, its loss, and the mixture.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.protocol import LOSSES, MAPS
from attnlab.errors import UserError
from attnlab.systems.recurrent.pointer_generator import mixture, scattered
from attnlab.systems.recurrent.rctm import SentenceModel
from attnlab.training.updates import first_params
from tests.systems.checks import COMPARED, SPECS, VOCABULARY, batch, make, parameters, prepared
from tests.systems.oracles.recurrent import copying_looks
from tests.systems.tiny import seldom, wide

POINTER = SPECS["pointer_generator"]
WIDTH, WIDEST = 3, 3


@pytest.mark.parametrize(
    ("name", "knows", "further"),
    seldom(
        (
            ("cgru", True, 1),
            ("rnnsearch-released", True, 6),
            ("rnnsearch", False, 6),
            ("gnmt", False, 3),
            ("gnmt-current", True, 3),
        ),
        *(("cgru", True, 1), ("rnnsearch", False, 6)),
    ),
)
def test_who_has_read_the_last_word_when_it_looks(name: str, knows: bool, further: int) -> None:
    """The weights of step i change with the word read at step i; where RNNsearch and GNMT are as
    printed they do not.
    """
    call, system = prepared({**COMPARED, **SPECS}[name])
    source, target = batch()
    other = target.copy()
    other[:, 2] = 4 + (other[:, 2] - 4 + further) % (VOCABULARY - 4)
    before, after = (
        np.asarray(system.alignment(system.maps(call(source, ids, mutable=[MAPS])[1][MAPS])))
        for ids in (target, other)
    )
    change = np.abs(after - before).max(axis=2)[:2]  # the third source has one word, which gets all
    assert (change[:, :2] == 0.0).all() and (change[:, 3] > 1e-6).all()
    assert (change[:, 2] > 1e-6).all() if knows else (change[:, 2] == 0.0).all()


@pytest.mark.parametrize("order", ["reversed", "plain"])
@pytest.mark.parametrize("feeding", ["input", "none"])
def test_windows_lie_by_the_words_of_the_source_whichever_way_it_was_read(
    order: str, feeding: str
) -> None:
    """Of one word: the first target word looks at the first source word, the t-th at the t-th, past
    the end at the last real one.
    """
    window = {"alignment": {"name": "local_m", "reach": 0}}
    spec = {**SPECS["luong"], "layers": 1, "order": order, "feeding": feeding}
    call, system = prepared({**spec, "attention": {**spec["attention"], **window}})
    _, left = call(*batch(), mutable=[MAPS])
    weights = np.asarray(system.alignment(system.maps(left[MAPS])))
    seen = np.minimum(np.arange(5), np.array([6, 3, 1])[:, None] - 1)
    np.testing.assert_array_equal(weights, np.arange(6) == seen[..., None])


def test_the_decoder_begins_where_the_encoder_ended_in_every_layer() -> None:
    """Cells too; and nothing else of the source is there to be had."""
    call, _ = prepared(SPECS["seq2seq"])
    memory = call(batch()[0], method="encode")
    jax.tree.map(np.testing.assert_array_equal, call(memory, 5, method="start"), memory)
    leaves = jax.tree.leaves(memory)
    assert [leaf.shape for leaf in leaves] == [(3, 5)] * 4  # c and h of two layers

    def loss(memory: Any) -> Any:
        return (call(memory, batch()[1], method="decode") ** 2).sum()

    assert all(np.abs(slope).max() > 1e-3 for slope in jax.tree.leaves(jax.grad(loss)(memory)))


@pytest.mark.quick
def test_one_table_wants_one_vocabulary() -> None:
    system = make({**SPECS["transformer"], "share": "all"}, target_vocabulary=VOCABULARY + 1)
    with pytest.raises(UserError, match="share='all'"):
        jax.eval_shape(system.init, jax.random.key(0), *batch())


@functools.cache
def sentence_model() -> Any:
    """`(columns, valid) -> [B,3]` of a sentence model with windows of 2 and 3, compiled once for
    each length.
    """
    module = SentenceModel(WIDTH, WIDEST)
    given = jnp.zeros((1, 4, WIDTH)), jnp.ones((1, 4), bool)
    params = first_params(module.init, jax.random.key(0), *given)
    return jax.jit(functools.partial(module.apply, params))


def words(length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(1, length, WIDTH)).astype(np.float32)


@pytest.mark.parametrize("length", seldom((2, 3, 5, 6, 7, 9, 10), 3, 7))
def test_every_length_is_read_whole_in_its_order_and_padding_not_at_all(length: int) -> None:
    """Also lengths beyond the 6 that two windows of 2 and 3 are laid out for."""
    x = words(length)
    padded = np.concatenate([x, 1e3 * words(12 - length, 1)], axis=1)
    valid = np.arange(12)[None] < length
    actual = sentence_model()(padded, valid)
    np.testing.assert_allclose(actual, sentence_model()(x, np.ones((1, length), bool)), atol=1e-6)
    reverse = np.concatenate([x[:, ::-1], padded[:, length:]], axis=1)
    assert np.abs(sentence_model()(reverse, valid) - actual).max() > 1e-4
    slope = np.abs(jax.jacrev(lambda padded: sentence_model()(padded, valid)[0])(padded))[:, 0]
    assert (slope[:, length:] == 0.0).all()
    assert (slope.max(axis=(0, 2))[:length] > 1e-7).all()


@pytest.mark.quick
def test_without_the_sentence_it_is_a_language_model_of_the_target() -> None:
    system, (source, target) = make(SPECS["rctm"]), batch()
    params = parameters(system)
    params["of_sentence"] = {"kernel": np.zeros_like(params["of_sentence"]["kernel"])}
    apply = jax.jit(lambda source: system.apply({"params": params}, source, target))
    np.testing.assert_array_equal(apply(source), apply(np.flip(source, axis=0)))
    call, _ = prepared(SPECS["rctm"])
    assert np.abs(call(source, target) - call(np.flip(source, axis=0), target)).max() > 1e-3


def test_coverage_its_loss_and_the_weights_are_the_papers() -> None:
    call, system = prepared(POINTER)
    (sources, targets), params = batch(), wide(parameters(system))
    log_probs, left = call(sources, targets, mutable=[LOSSES, MAPS])
    (losses,) = left[LOSSES]["looks"]
    assert set(losses) == {"coverage"}
    looks = np.asarray(system.alignment(system.maps(left[MAPS])))
    overlaps = losses["coverage"].reshape(targets.shape)
    for row, source in enumerate(sources):
        _, weights, again = copying_looks(params, POINTER, source[source != 0], targets[row])
        np.testing.assert_allclose(looks[row, :, source != 0].T, weights, atol=1e-6)
        assert not looks[row, :, source == 0].any()
        np.testing.assert_allclose(overlaps[row], again, atol=1e-6)
        assert again[0] == 0.0 and (again[1:] > 0.05).all() and (again <= 1.0 + 1e-9).all()
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=-1), 1.0, atol=2e-6)


def test_of_several_heads_the_mean_is_copied() -> None:
    """With the gate shut, of a mechanism with two heads."""
    system = make({**POINTER, "attention": {"name": "multihead", "heads": 2}, "coverage": "none"})
    (source, target), params = batch(), parameters(system)
    shut = {**params, "gate": {"kernel": 0 * params["gate"]["kernel"], "bias": np.full(1, -60.0)}}
    apply = jax.jit(lambda params: system.apply({"params": params}, source, target, mutable=[MAPS]))
    log_probs, collected = apply(shut)
    (actual,) = system.maps(collected[MAPS]).values()  # type: ignore[union-attr]
    assert actual.weights.shape[1] == 2
    assert float(jnp.abs(actual.weights[:, 0] - actual.weights[:, 1]).max()) > 1e-3
    np.testing.assert_allclose(
        np.exp(log_probs), scattered(actual.weights.mean(axis=1), source, VOCABULARY), atol=1e-6
    )


def test_words_that_stand_twice_are_copied_by_both_weights() -> None:
    weights = np.array([[[0.5, 0.25, 0.25], [0.0, 0.0, 1.0]]], np.float32)
    source = np.array([[4, 5, 4]])
    np.testing.assert_array_equal(
        scattered(jnp.asarray(weights), source, 6),
        [[[0, 0, 0, 0, 0.75, 0.25], [0, 0, 0, 0, 1.0, 0]]],
    )


def test_words_that_no_weight_copies_have_the_slope_that_would_copy_them() -> None:
    """d log P / d copied = (1 - g) / P for all words, where a hard alignment chose one; finite
    where P is 0 to float32.
    """
    scores = np.array([2.0, 0.0, -1.0, -300.0], np.float32)
    copied = np.array([0.0, 1.0, 0.0, 0.0], np.float32)
    for gate in (-1.5, 0.5):
        g = 1 / (1 + np.exp(-gate))
        expected = (
            g * np.exp(scores, dtype=np.float64) / np.exp(scores, dtype=np.float64).sum()
            + (1 - g) * copied
        )
        actual, slopes = jax.value_and_grad(
            lambda copied, gate=gate: mixture(scores, jnp.full(1, gate), copied)[:3].sum()
        )(copied)
        np.testing.assert_allclose(actual, np.log(expected[:3]).sum(), rtol=1e-6)
        np.testing.assert_allclose(slopes, [*((1 - g) / expected[:3]), 0.0], rtol=1e-5)
    every = jax.grad(lambda *given: mixture(*given).sum(), argnums=(0, 1, 2))(
        scores, jnp.zeros(1), copied
    )
    assert all(np.isfinite(one).all() for one in every)
