"""What is said of Sequence to Sequence: states are all that goes from source to target, and how the
source is read.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from tests.systems.checks import SPECS, VOCABULARY, batch, make, parameters, prepared

SPEC = SPECS["seq2seq"]
PLAIN = {**SPEC, "order": "plain"}


def backwards(source: np.ndarray) -> np.ndarray:
    """Real tokens from last to first, padding last."""
    return np.array([[*row[row != 0][::-1], *row[row == 0]] for row in source])


def test_reversed_reading_is_plain_reading_of_the_real_tokens_backwards() -> None:
    source, target = batch()
    assert (
        backwards(source)[:, 0] == 2
    ).all()  # the end sign comes first, padding stays where it was
    (call, _), (plain, _) = prepared(SPEC), prepared(PLAIN)
    np.testing.assert_allclose(call(source, target), plain(backwards(source), target), atol=1e-6)
    assert np.abs(call(source, target) - plain(source, target))[:2].max() > 1e-3


def test_a_palindrome_reads_alike_both_ways() -> None:
    source = np.array([[5, 9, 7, 9, 5, 0], [4, 4, 0, 0, 0, 0], [8, 0, 0, 0, 0, 0]])
    one, other = (prepared(spec)[0](source, method="encode") for spec in (SPEC, PLAIN))
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=1e-6), one, other)


def test_the_decoder_begins_where_the_encoder_ended_in_every_layer() -> None:
    """Cells too; and nothing else of the source is there to be had."""
    call, _ = prepared(SPEC)
    memory = call(batch()[0], method="encode")
    jax.tree.map(np.testing.assert_array_equal, call(memory, 5, method="start"), memory)
    leaves = jax.tree.leaves(memory)
    assert [leaf.shape for leaf in leaves] == [(3, 5)] * 4  # c and h of two layers

    def loss(memory: Any) -> Any:
        return (call(memory, batch()[1], method="decode") ** 2).sum()

    assert all(np.abs(slope).max() > 1e-3 for slope in jax.tree.leaves(jax.grad(loss)(memory)))


def test_an_empty_source_is_the_state_of_zeros() -> None:
    call, _ = prepared(SPEC)
    source, target = batch()
    source = np.where(np.arange(3)[:, None] == 1, 0, source)
    memory = call(source, method="encode")
    assert all((np.asarray(leaf)[1] == 0.0).all() for leaf in jax.tree.leaves(memory))
    assert np.isfinite(call(source, target)).all()


def test_parameter_count_of_the_published_size() -> None:
    """384 million, as the paper says, with its own two vocabularies: 64 million of them the
    recurrences of both sides.
    """
    from attnlab.systems.recurrent.seq2seq import SequenceToSequence

    system = SequenceToSequence(
        source_vocabulary=160_000, target_vocabulary=80_000, embedding=1000, width=1000, layers=4
    )
    ids = jax.ShapeDtypeStruct((1, 2), np.int32)
    shapes = jax.eval_shape(system.init, jax.random.key(0), ids, ids)["params"]
    count = {
        name: sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(part))
        for name, part in shapes.items()
    }
    assert count["reader"] == count["writer"] == 4 * (8_000_000 + 4000)
    assert 384e6 < sum(count.values()) < 385e6


def test_vocabularies_may_differ() -> None:
    from attnlab.systems.recurrent.seq2seq import SequenceToSequence

    system = SequenceToSequence(
        source_vocabulary=VOCABULARY, target_vocabulary=9, embedding=6, width=5
    )
    source, target = batch()
    params = jax.eval_shape(system.init, jax.random.key(0), source, target % 9)["params"]
    assert params["embed_target"]["embedding"].shape == (9, 6)
    assert parameters(make(SPEC))["embed_source"]["embedding"].shape == (VOCABULARY, 6)
