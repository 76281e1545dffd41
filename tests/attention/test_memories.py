"""Decoding from the memory of every mechanism, in any pieces and through any pause, is the full
pass. A default run draws one of these promises for each value of a setting.
"""

import functools
import inspect
import io
import json
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.api.costs import state_bytes
from attnlab.attention import MECHANISMS
from attnlab.attention.protocol import MAPS, Attention
from attnlab.attention.view import CAUSAL, View
from attnlab.attention.visibility import Causal, Window
from attnlab.decoding.steps import by_row
from tests.attention import cases
from tests.attention.oracles import part
from tests.rounding import assert_close


def decodes(name: str, config: dict[str, Any]) -> bool:
    """Whether a mechanism keeps a cache and may be read while its source grows; slots that decode
    refuse others (test_composition.py).
    """
    return cases.make(name, config).capabilities.cache and cases.stepwise(config)


FIRST = cases.first_settings()
DECODING = [case for case in cases.CASES if decodes(*case)]
# one case of each mechanism, and all whose keys are told where they stand
PLACED = [
    case
    for case in cases.CASES
    if case in FIRST or "positions" in case[1] or part(case[1], "score", "dot")[0] == "location"
]
DRAWN = [
    case for case in cases.CASES if case in PLACED or cases.looks_back(case[1])
]  # no score nor alignment
placed = cases.over([case for case in PLACED if case in DECODING], "decoding")
LENGTH, CAPACITY, WINDOW, PREFILL = 9, 11, 2, 4


@cases.kept
def calls(name: str, config: dict[str, Any]) -> Any:
    """`apply` with parameters."""
    return cases.prepared(name, config)[0]


class Programs(NamedTuple):
    """What decoding runs, compiled: one for each length of a piece; the tests of a case share them."""

    full: Any  # (x, valid) -> contexts of the full pass, memories of no token and of four
    begun: Any  # (x, memory) -> history of the first piece; None if looks do not depend on others
    step: Any  # (memory, history, x, valid) -> memory, history, contexts of a piece more


@cases.kept
def programs(name: str, config: dict[str, Any], compiled: Any = jax.jit) -> Programs:
    call = calls(name, config)

    def full(x: Any, valid: Any) -> Any:
        begun = lambda cut: call(x[:, :cut], valid[:, :cut], CAPACITY, method="remember")
        return call(x, x, CAUSAL, valid).context, begun(0), begun(PREFILL)

    def begun(x: Any, memory: Any) -> Any:
        history = call(memory, method="initial_history")
        return call(x, memory, CAUSAL, history=history, method="read").history

    def step(memory: Any, history: Any, x: Any, valid: Any) -> Any:
        memory = call(memory, x, valid, method="extend")
        reading = call(x, memory, CAUSAL, method="read", history=history)
        return memory, reading.history, reading.context

    return Programs(
        compiled(full),
        compiled(begun) if cases.looks_back(config) else lambda x, memory: None,
        compiled(step),
    )


@cases.over(DECODING, "decoding", drawn=DRAWN)
def test_cached_decoding_and_prefill_equal_the_full_pass(name: str, config: dict[str, Any]) -> None:
    run = programs(name, config)
    x, valid = cases.inputs(queries=LENGTH)[0], np.ones((3, LENGTH), bool)
    full, *memories = jax.tree.map(np.asarray, run.full(x, valid))
    for cut, memory in zip((0, PREFILL), memories, strict=True):
        history = run.begun(x[:, :cut], memory)
        for t in range(cut, LENGTH):
            here = slice(t, t + 1)
            memory, history, context = run.step(memory, history, x[:, here], valid[:, here])
            assert_close(context, full[:, here], eps=16)
    with pytest.raises(ValueError, match="capacity"):
        small = functools.partial(calls(name, config), capacity=LENGTH - 1, method="remember")
        jax.eval_shape(small, x)


@cases.over(DECODING, "decoding", drawn=DRAWN)
def test_pieces_with_padding_a_pause_on_disk_and_garbage_in_the_spare_room_equal_the_full_pass(
    name: str, config: dict[str, Any]
) -> None:
    """The plainest mechanism operation by operation, where lengths are known; the others compiled."""
    run = programs(name, config, not_compiled if (name, config) == cases.PLAINEST else jax.jit)
    x, _, _ = cases.inputs(queries=LENGTH)
    valid = np.random.default_rng(2).random((3, LENGTH)) < 0.7
    valid[:, 0] = True
    full, _, prefilled = jax.tree.map(np.asarray, run.full(x, valid))
    for pieces in ((4, 1), (1, 4)):
        memory, first = prefilled, PREFILL
        history = run.begun(x[:, :first], memory)
        for piece in pieces:
            memory, here = littered(stored(memory), first), slice(first, first + piece)
            memory, history, context = run.step(memory, history, x[:, here], valid[:, here])
            assert_close(context, full[:, here], eps=16)
            first += piece
        littered(memory, first)


@placed
def test_rows_of_different_lengths_decode_together_each_as_alone(
    name: str, config: dict[str, Any]
) -> None:
    """Prompts of any length, padded behind, pieces into a cache that has no room for their padding,
    then one token for each row.
    """
    call = calls(name, config)
    x, _, _ = cases.inputs(queries=LENGTH)
    fed, given, places = np.zeros(3, np.int32), [], []
    for counts in ((4, 1, 2), (1, 0, 3), (1, 1, 1)):
        width, more = max(counts), np.array(counts)
        valid = np.arange(width) < more[:, None]
        at = np.arange(3)[:, None], fed[:, None] + np.arange(width)
        given.append((np.where(valid[..., None], x[at], np.float32(1e4)), valid))
        places.append((valid, at, fed + more))
        fed = fed + more

    @jax.jit
    def looks(x: Any, *given: Any) -> Any:
        memory, actual = None, []
        for piece, view in given:
            grown = lambda *piece: call(memory, *piece, method="extend")  # noqa: B023
            first = lambda *piece: call(*piece, 6, method="remember").by_row()
            memory = (grown if actual else first)(*piece)
            context = call(piece[0], memory, view, method="read").context
            actual.append((context, memory.length))
        return call(x, x, CAUSAL).context, actual

    views = View(Causal(), positions=0), View(Causal(), positions=np.array((4, 1, 2))), CAUSAL
    pieces = *given[:2], given[2][:1]  # the last one does not say that all of it is real
    expected, actual = jax.tree.map(np.asarray, looks(x, *zip(pieces, views, strict=True)))
    for (context, length), (valid, at, fed) in zip(actual, places, strict=True):
        assert_close(context[valid], expected[at][valid], eps=16)
        np.testing.assert_array_equal(length, fed)


PIECES = ((4, 1, 2), (1, 0, 1), (4, 3, 3), (0, 4, 2), (0, 1, 1))


@placed
def test_under_a_window_the_last_keys_in_a_ring_are_enough(
    name: str, config: dict[str, Any]
) -> None:
    """Pieces of any length, longer than the ring too, over four rounds of it and more; rows of
    different lengths, then of one length with padding inside. The state does not grow.
    """
    call, module = calls(name, config), cases.make(name, config)
    if module.capabilities.state == "constant":  # there is nothing to forget
        assert not module.forgets()
        return
    x, _, _ = cases.inputs(queries=LENGTH)
    begun, longer, short = (
        jax.eval_shape(functools.partial(begin, call, room))
        for room in (LENGTH, 10 * LENGTH, WINDOW)
    )
    sizes = [jax.tree.map(lambda one: one.shape, state) for state in (begun, longer)]
    if not module.forgets():
        assert sizes[0] != sizes[1] or not jax.tree.leaves(sizes[0])
        return
    assert sizes[0] == sizes[1] and begun.memory.ring == WINDOW
    assert short.memory.ring == 0
    rule = Causal() & Window(WINDOW)
    hole = np.ones((3, LENGTH), bool)
    hole[:, 2], hole[0, 5:7] = False, False

    given, views, fed = [], [], np.zeros(3, np.int32)
    for counts in PIECES:
        width, more = max(counts), np.array(counts)
        valid = np.arange(width) < more[:, None]
        rows, at = np.arange(3)[:, None], np.minimum(fed[:, None] + np.arange(width), LENGTH - 1)
        given.append(np.where(valid[..., None], x[rows, at], np.float32(1e4)))
        views.append(View(rule, positions=fed, valid=valid))
        fed = fed + more

    mix = jax.jit(functools.partial(call, method="mix"))  # pieces of one length are compiled once

    @jax.jit
    def begun_and_whole(x: Any, valid: Any) -> Any:
        state = begin(call, LENGTH)
        return state, by_row(state, 3), call(x, x, View(rule), valid).context

    assert (fed == LENGTH).all()
    even, ragged, full = jax.tree.map(np.asarray, begun_and_whole(x, np.ones((3, LENGTH), bool)))
    for piece, view in zip(given, views, strict=True):
        context, ragged = mix(piece, view, ragged)
        rows, columns = np.nonzero(view.valid)
        wanted = full[rows, np.asarray(view.positions)[rows] + columns]
        assert_close(np.asarray(context)[rows, columns], wanted, eps=8)
    full = np.asarray(begun_and_whole(x, hole)[2])
    for first, last in ((0, 4), (4, 5), (5, 9)):
        here = slice(first, last)
        context, even = mix(x[:, here], View(rule, valid=hole[:, here]), even)
        expected = full[:, here][hole[:, here]]
        assert_close(np.asarray(context)[hole[:, here]], expected, eps=16)


def begin(call: Any, room: int) -> Any:
    """The state of three rows before the first of `room` tokens, under a window."""
    return call(3, room, np.float32, window=WINDOW, method="begin")


def test_a_ring_takes_the_bytes_of_its_keys_and_the_position_of_each_slot() -> None:
    config = {"heads": 4, "key_heads": 2}
    module, call = cases.make("multihead", config), calls("multihead", config)
    state = jax.eval_shape(lambda: begin(call, 10 * LENGTH))
    taken = sum(one.size * one.dtype.itemsize for one in jax.tree.leaves(state))
    kept = state_bytes(module, WINDOW) - 4  # the length is one for all
    assert taken == 3 * (kept + 4 * WINDOW) + 4


def begins_anywhere(name: str) -> bool:
    """Whether a mechanism remembers what does not begin at 0."""
    remember = getattr(MECHANISMS.resolve(name), "remember", None)
    return remember is not None and "positions" in inspect.signature(remember).parameters


@cases.over(
    [case for case in PLACED if begins_anywhere(case[0])],
    "parts",
    drawn=[
        (name, config)
        for name, config in PLACED
        if name == "forgetting"
        or (name, config) == cases.PLAINEST
        or any(part in json.dumps(config) for part in ("rope", "stick_breaking"))
    ],
)
def test_a_part_of_a_sequence_says_where_it_stands(name: str, config: dict[str, Any]) -> None:
    """As a shard of it does: the end of a source, from its position on or each token with its own,
    is the source whose beginning may not be seen.
    """
    module, call = cases.make(name, config), calls(name, config)
    x, _, _ = cases.inputs(queries=LENGTH)
    order = np.array([2, 0, 4, 1, 3])
    hidden = np.broadcast_to(np.arange(LENGTH) >= 4, (3, LENGTH))
    view = cases.causally(module)
    placed = View(view.rule, positions=4)

    @jax.jit
    def looks(x: Any) -> list[Any]:
        end, actual = x[:, 4:], [call(x[:, 4:], x, view, hidden).context]
        for source, where, seen in (
            (end, 4, view),
            (end, jnp.full(3, 4, jnp.int32), placed),
            (end[:, order], 4 + order[None], placed),
        ):
            memory = call(source, positions=where, method="remember")
            actual.append(call(end, memory, seen, method="read").context)
        if module.capabilities.cache:
            grown = call(end[:, :2], None, 5, 4, method="remember")
            grown = call(grown, end[:, 2:], method="extend")
            actual.append(call(end, grown, CAUSAL, method="read").context)
            with pytest.raises(ValueError, match="cannot grow"):
                call(memory, end, method="extend")
        return actual

    expected, *others = looks(x)
    for actual in others:
        assert_close(actual, expected, eps=8)


@cases.over([case for case in PLACED if case in DECODING], "spare room")
def test_spare_room_is_left_out_of_maps(name: str, config: dict[str, Any]) -> None:
    """Where the length is known; in a program that takes the memory as an argument it is not, and
    whoever holds the map cuts it.
    """
    call = calls(name, config)
    x, _, _ = cases.inputs(queries=LENGTH)

    def grown(x: Any) -> Any:
        return call(call(x[:, :4], capacity=CAPACITY, method="remember"), x[:, 4:], method="extend")

    def look(x: Any, memory: Any) -> Any:
        reading, collected = call(x, memory, CAUSAL, method="read", mutable=[MAPS])
        assert cases.recorded(collected).shape == reading.weights.shape
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

    def __call__(self, query: Any, source: Any, valid: Any, first: int) -> tuple[jax.Array, Any]:
        """Contexts [B,Tq,d] of queries [B,Tq,dq], the first of which stands at position `first`, and
        the last history.
        """
        memory = self.mechanism.remember(source, valid)

        def step(mechanism: Attention, carry: Any, token: Any) -> tuple[Any, jax.Array]:
            i, history = carry
            view = View(cases.causally(mechanism).rule, positions=i)
            reading = mechanism.read(token[:, None], memory, view, history=history)
            return (i + 1, reading.history), reading.context[:, 0]

        how = {"variable_broadcast": "params", "split_rngs": {"params": False}}
        scan = nn.scan(step, **how, in_axes=1, out_axes=1)
        begun = np.int32(first), self.mechanism.initial_history(memory)
        (_, history), contexts = scan(self.mechanism, begun, query)
        return contexts, history


@cases.over(
    [case for case in cases.CASES if case in FIRST or cases.looks_back(case[1])], "decoding"
)
def test_reading_inside_a_scan_equals_reading_at_once(name: str, config: dict[str, Any]) -> None:
    """In contexts and in the history for further looks, which has a row for each of the batch and is
    there exactly where a look depends on the looks before.
    """
    module = cases.make(name, config)
    params = cases.parameters(module)
    query, source, valid = cases.inputs(batch=2, keys=LENGTH)

    @jax.jit
    def both(query: Any, source: Any, valid: Any) -> Any:
        within = {"params": {"mechanism": params}}
        view = View(cases.causally(module).rule, positions=2)
        at_once = module.apply({"params": params}, query, source, view, valid)
        return Scanned(module).apply(within, query, source, valid, first=2), at_once

    (actual, history), expected = both(query, source, valid)
    assert_close(actual, expected.context, eps=8)
    assert actual.shape == (2, 5, cases.WIDTH)
    jax.tree.map(lambda a, b: assert_close(a, b, eps=16), history, expected.history)
    assert (history is not None) == cases.looks_back(config)
    assert all(len(leaf) == 2 for leaf in jax.tree.leaves(history))
