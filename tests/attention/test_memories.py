"""What the memory of every mechanism promises: decoding with a cache, in any pieces and through any
pause, is the full pass.
"""

from __future__ import annotations

import functools
import io
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import pytest

from attnlab.attention.protocol import MAPS, Attention, asking
from attnlab.attention.view import CAUSAL, View
from tests.attention.cases import (
    TOLERANCE,
    WIDTH,
    first_settings,
    inputs,
    looks_back,
    make,
    over_all,
    parameters,
    stepwise,
)

every, essential = over_all(), over_all(quick=True)
FIRST = first_settings()
LENGTH, CAPACITY = 9, 11


def calls(name: str, config: dict[str, Any]) -> Any:
    """`apply` with parameters, of a mechanism that keeps a cache and may be read while its source
    grows.
    """
    module = make(name, config)
    if not module.capabilities.cache:
        pytest.skip("declares no cache")
    if not stepwise(config):
        pytest.skip(
            "its alignment looks at queries or keys that are not there yet; slots that decode"
            " refuse it (test_composition.py)"
        )
    return functools.partial(module.apply, {"params": parameters(module)})


@essential
def test_cached_decoding_and_prefill_equal_the_full_pass(name: str, config: dict[str, Any]) -> None:
    call = calls(name, config)
    x, _, _ = inputs(queries=LENGTH)
    full = call(x, x, CAUSAL).context

    @jax.jit
    def step(memory: Any, so_far: Any, token: Any) -> Any:
        memory = call(memory, token, method="extend")
        reading = call(token, memory, CAUSAL, method="read", **asking(False, so_far))
        return memory, reading.so_far, reading.context[:, 0]

    for cut in (0, 1, 4):
        memory = call(x[:, :cut], capacity=CAPACITY, method="remember")
        so_far = call(memory, method="no_looks")
        if looks_back(config):
            so_far = call(x[:, :cut], memory, CAUSAL, so_far=so_far, method="read").so_far
        for t in range(cut, LENGTH):
            memory, so_far, context = step(memory, so_far, x[:, t : t + 1])
            np.testing.assert_allclose(context, full[:, t], atol=TOLERANCE["reordered"])
    with pytest.raises(ValueError, match="capacity"):
        call(x, capacity=LENGTH - 1, method="remember")


@every
def test_pieces_with_padding_a_pause_on_disk_and_garbage_in_the_spare_room_equal_the_full_pass(
    name: str, config: dict[str, Any]
) -> None:
    call = calls(name, config)
    x, _, _ = inputs(queries=LENGTH)
    valid = np.random.default_rng(2).random((3, LENGTH)) < 0.7
    valid[:, 0] = True
    full = call(x, x, CAUSAL, valid).context
    for pieces in ((4, 4, 1), (1, 4, 4)):
        memory, first = (
            call(x[:, : pieces[0]], valid[:, : pieces[0]], CAPACITY, method="remember"),
            pieces[0],
        )
        so_far = None
        if looks_back(config):
            so_far = call(x[:, :first], memory, CAUSAL, method="read").so_far
        for piece in pieces[1:]:
            memory = littered(stored(memory), first)
            here = slice(first, first + piece)
            memory = littered(
                call(memory, x[:, here], valid[:, here], method="extend"), first + piece
            )
            reading = call(x[:, here], memory, CAUSAL, method="read", **asking(False, so_far))
            so_far, context = reading.so_far, reading.context
            np.testing.assert_allclose(context, full[:, here], atol=TOLERANCE["reordered"])
            first += piece


@every
def test_spare_room_is_left_out_of_maps(name: str, config: dict[str, Any]) -> None:
    """Where the length is known; in a program that takes the memory as an argument it is not, and
    whoever holds the map cuts it.
    """
    call = calls(name, config)
    x, _, _ = inputs(queries=LENGTH)

    def grown(x: Any) -> Any:
        return call(call(x[:, :4], capacity=CAPACITY, method="remember"), x[:, 4:], method="extend")

    def look(x: Any, memory: Any) -> Any:
        reading, collected = call(x, memory, CAUSAL, method="read", mutable=[MAPS])
        assert (
            len(collected[MAPS]["weights"]) == 1
            and collected[MAPS]["weights"][0].shape == reading.weights.shape
        )
        return reading.weights

    assert jax.eval_shape(lambda x: look(x, grown(x)), x).shape[2:] == (LENGTH, LENGTH)
    assert jax.eval_shape(look, x, jax.eval_shape(grown, x)).shape[2:] == (LENGTH, CAPACITY)


def stored(memory: Any) -> Any:
    """The memory after a while as a file of arrays."""
    leaves, tree = jax.tree.flatten(memory)
    file = io.BytesIO()
    np.savez(file, *leaves)
    file.seek(0)
    return jax.tree.unflatten(tree, list(np.load(file).values()))


def littered(memory: Any, length: int) -> Any:
    """The memory with 1e4 in every slot that is not written: an axis as long as the capacity is one
    of slots.
    """

    def litter(x: Any) -> Any:
        x = np.array(x)
        for axis in (
            axis for axis, size in enumerate(x.shape) if size == CAPACITY and x.dtype != bool
        ):
            np.moveaxis(x, axis, 0)[length:] = 1e4
        return x

    assert int(memory.length) == length and not np.asarray(memory.valid)[:, length:].any()
    return jax.tree.map(litter, memory)


class Scanned(nn.Module):
    """A mechanism read one query at a time inside `nn.scan`, as recurrent decoders read it."""

    mechanism: Attention

    def __call__(self, query: Any, source: Any, valid: Any, first: int) -> jax.Array:
        """Contexts [B,Tq,d] of queries [B,Tq,dq], the first of which stands at position `first`."""
        memory = self.mechanism.remember(source, valid)

        def step(
            mechanism: Attention, i: jax.Array, token: jax.Array
        ) -> tuple[jax.Array, jax.Array]:
            context = mechanism.read(token[:, None], memory, View(CAUSAL.rule, positions=i)).context
            return i + 1, context[:, 0]

        scan = nn.scan(
            step, variable_broadcast="params", split_rngs={"params": False}, in_axes=1, out_axes=1
        )
        return scan(self.mechanism, np.int32(first), query)[1]


@pytest.mark.parametrize(("name", "config"), FIRST, ids=[name for name, _ in FIRST])
def test_reading_inside_a_scan_equals_reading_at_once(name: str, config: dict[str, Any]) -> None:
    module = make(name, config)
    params = parameters(module)
    query, source, valid = inputs(batch=2, keys=LENGTH)
    found = Scanned(module).apply({"params": {"mechanism": params}}, query, source, valid, 2)
    expected = module.apply(
        {"params": params}, query, source, View(CAUSAL.rule, positions=2), valid
    ).context
    np.testing.assert_allclose(found, expected, atol=TOLERANCE["reordered"])
    assert found.shape == (2, 5, WIDTH)
