"""What the memory of every mechanism promises: decoding with a cache, in any pieces and through any
pause, is the full pass.
"""

from __future__ import annotations

import functools
import inspect
import io
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.protocol import MAPS, Attention, asking
from attnlab.attention.view import CAUSAL, View
from attnlab.attention.visibility import Causal
from tests.attention.cases import (
    CASES,
    NAMES,
    TOLERANCE,
    WIDTH,
    causally,
    first_settings,
    inputs,
    looks_back,
    make,
    over_all,
    parameters,
    stepwise,
)
from tests.attention.oracles import part

every, essential = over_all(), over_all(quick=True)
FIRST = first_settings()
EAGER = [case for case in FIRST if case[0] in ("single", "multihead")]
PLACED = [
    case
    for case in CASES
    if case in FIRST or "positions" in case[1] or part(case[1], "score", "dot")[0] == "location"
]  # one case of each mechanism, and all whose keys are told where they stand
placed = pytest.mark.parametrize(
    ("name", "config"), PLACED, ids=[NAMES[CASES.index(case)] for case in PLACED]
)
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
    full = jax.jit(lambda x: call(x, x, CAUSAL).context)(x)
    remember = jax.jit(lambda x: call(x, capacity=CAPACITY, method="remember"))

    @jax.jit
    def step(memory: Any, so_far: Any, token: Any) -> Any:
        memory = call(memory, token, method="extend")
        reading = call(token, memory, CAUSAL, method="read", **asking(False, so_far))
        return memory, reading.so_far, reading.context[:, 0]

    for cut in (0, 1, 4):
        memory = remember(x[:, :cut])
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
    """Two mechanisms operation by operation, where lengths are known; the others compiled."""
    call, compiled = calls(name, config), not_compiled if (name, config) in EAGER else jax.jit
    x, _, _ = inputs(queries=LENGTH)
    valid = np.random.default_rng(2).random((3, LENGTH)) < 0.7
    valid[:, 0] = True
    full = compiled(lambda x, valid: call(x, x, CAUSAL, valid).context)(x, valid)
    remember = compiled(lambda x, valid: call(x, valid, CAPACITY, method="remember"))
    extend = compiled(lambda memory, x, valid: call(memory, x, valid, method="extend"))

    @compiled
    def read(x: Any, memory: Any, so_far: Any) -> Any:
        reading = call(x, memory, CAUSAL, method="read", **asking(False, so_far))
        return reading.context, reading.so_far

    for pieces in ((4, 4, 1), (1, 4, 4)):
        first, so_far = pieces[0], None
        memory = remember(x[:, :first], valid[:, :first])
        if looks_back(config):
            so_far = read(x[:, :first], memory, None)[1]
        for piece in pieces[1:]:
            memory = littered(stored(memory), first)
            here = slice(first, first + piece)
            memory = littered(extend(memory, x[:, here], valid[:, here]), first + piece)
            context, so_far = read(x[:, here], memory, so_far)
            np.testing.assert_allclose(context, full[:, here], atol=TOLERANCE["reordered"])
            first += piece


@placed
def test_rows_of_different_lengths_decode_together_each_as_alone(
    name: str, config: dict[str, Any]
) -> None:
    """Prompts of any length, padded behind, pieces into a cache that has no room for their padding,
    then one token for each row.
    """
    call = calls(name, config)
    x, _, _ = inputs(queries=LENGTH)
    expected = np.asarray(jax.jit(lambda x: call(x, x, CAUSAL).context)(x))

    @jax.jit
    def look(memory: Any, piece: Any, valid: Any, view: View) -> Any:
        grown = (
            call(piece, valid, 6, method="remember").by_row()
            if memory is None
            else call(memory, piece, valid, method="extend")
        )
        return grown, call(piece, grown, view, method="read").context

    memory, fed = None, np.zeros(3, np.int32)
    for counts, view in (
        ((4, 1, 2), View(Causal(), positions=0)),
        ((1, 0, 3), View(Causal(), positions=np.array((4, 1, 2)))),
        ((1, 1, 1), CAUSAL),
    ):
        width, more = max(counts), np.array(counts)
        valid = np.arange(width) < more[:, None]
        rows, at = np.arange(3)[:, None], fed[:, None] + np.arange(width)
        piece = np.where(valid[..., None], x[rows, at], np.float32(1e4))
        memory, found = look(memory, piece, valid, view)
        np.testing.assert_allclose(
            np.asarray(found)[valid], expected[rows, at][valid], atol=TOLERANCE["reordered"]
        )
        fed = fed + more
        np.testing.assert_array_equal(memory.length, fed)


@placed
def test_a_part_of_a_sequence_says_where_it_stands(name: str, config: dict[str, Any]) -> None:
    """As a shard of it does: the end of a source, from its position on or each token with its own,
    is the source whose beginning may not be seen.
    """
    module = make(name, config)
    if "positions" not in inspect.signature(module.remember).parameters:
        pytest.skip("remembers what begins at 0 only")
    call = functools.partial(module.apply, {"params": parameters(module)})
    x, _, _ = inputs(queries=LENGTH)
    order = np.array([2, 0, 4, 1, 3])
    hidden = np.broadcast_to(np.arange(LENGTH) >= 4, (3, LENGTH))
    view = causally(module)
    placed = View(view.rule, positions=4)

    @jax.jit
    def looks(x: Any) -> list[Any]:
        end, found = x[:, 4:], [call(x[:, 4:], x, view, hidden).context]
        for source, where, seen in (
            (end, 4, view),
            (end, jnp.full(3, 4, jnp.int32), placed),
            (end[:, order], 4 + order[None], placed),
        ):
            memory = call(source, positions=where, method="remember")
            found.append(call(end, memory, seen, method="read").context)
        if module.capabilities.cache:
            grown = call(end[:, :2], None, 5, 4, method="remember")
            grown = call(grown, end[:, 2:], method="extend")
            found.append(call(end, grown, CAUSAL, method="read").context)
            with pytest.raises(ValueError, match="cannot grow"):
                call(memory, end, method="extend")
        return found

    expected, *others = looks(x)
    for found in others:
        np.testing.assert_allclose(found, expected, atol=TOLERANCE["reordered"])


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


def not_compiled(function: Any) -> Any:
    """The function, in place of `jax.jit`."""
    return function


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
            view = View(causally(mechanism).rule, positions=i)
            context = mechanism.read(token[:, None], memory, view).context
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
    scanned = jax.jit(functools.partial(Scanned(module).apply, first=2))
    found = scanned({"params": {"mechanism": params}}, query, source, valid)
    view = View(causally(module).rule, positions=2)
    at_once = jax.jit(functools.partial(module.apply, view=view))
    expected = at_once({"params": params}, query, source, valid=valid).context
    np.testing.assert_allclose(found, expected, atol=TOLERANCE["reordered"])
    assert found.shape == (2, 5, WIDTH)
