"""Loops over time: with one look per step for systems, and with a tape that grows.

`over_time` is `flax.linen.scan` with the common settings. `taped` is a loop that writes a tape and
attends to it at every step, with a derivative that stores the tape once:

    state_t, tape_t = step(state_{t-1}, tape_{t-1}, inputs_t)              tape_t is tape_{t-1} with one more slot

Automatic differentiation stores the tape of every step and the results of its look: O(T N) numbers
for each feature. But slots are only added, so the last tape has all of them, and a look uses only
valid slots. The backward pass here computes every step again with the last tape and the slots that
were valid then: O(T + N) numbers, and fewer passes over memory, which dominate the time.

Axis letters: B batch, T steps, H heads, N slots, or what else is looked at.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import SAMPLES
from attnlab.attention.protocol import LOSSES, MAPS, Memory

Step = Callable[[Any, Any, Any, Any, Any], tuple[Any, Any]]


def over_time(step: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
    """Converts step(module, state, inputs [B,...], constant) to a loop over time (`nn.scan`), a
    function of (module, first state, inputs [B,T,...], constant) that returns the last state and
    the outputs [B,T,...].

    Parameters are shared, every step has its own random draws, and what its looks sow is stacked
    along the query axis: maps [B,H,1,N] to [B,H,T,1,N], and so on.
    """
    return nn.scan(  # type: ignore[no-any-return]
        step,
        variable_broadcast="params",
        variable_axes={MAPS: 2, SAMPLES: 2, LOSSES: 1},
        split_rngs={"params": False, "dropout": True, "sample": True},
        in_axes=(1, nn.broadcast),
        out_axes=1,
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def taped(
    step: Step, params: Any, state: Any, tape: Memory, inputs: Any, constant: Any
) -> tuple[Any, Any, Memory]:
    """Runs all steps of a loop that writes a tape, and returns three things: the states after every
    step [T,...], the last state, and the last tape; for its gradients the tape is kept once and
    every step is computed again.

    Reverse mode only: forward-mode derivatives do not work through it, JAX refuses with a
    TypeError.

    Args:
      step: (params, state, tape, inputs of the step, constant) to the next state, and the tape with
        one more slot; it must use no slot that is not valid.
      params, state, tape: trees of arrays; the tape has room for all steps.
      inputs: a tree of arrays [T,...].
      constant: a tree of arrays, for every step.
    """
    states, (last, tape) = _forward(step, params, state, tape, inputs, constant)
    return states, last, tape


def _forward(
    step: Step, params: Any, state: Any, tape: Memory, inputs: Any, constant: Any
) -> tuple[Any, tuple[Any, Memory]]:
    """Runs `step` over `inputs` [T,...] from `state` and `tape` in a plain scan, with `params` and
    `constant` the same in every step; returns the states of all steps [T,...], and a pair of the
    last state and the last tape.
    """

    def body(carry: tuple[Any, Memory], step_inputs: Any) -> tuple[tuple[Any, Memory], Any]:
        """One step, whose state is also kept."""
        following = step(params, *carry, step_inputs, constant)
        return following, following[0]

    carry, states = jax.lax.scan(body, (state, tape), inputs)
    return states, carry


def _forward_with_residuals(
    step: Step, params: Any, state: Any, tape: Memory, inputs: Any, constant: Any
) -> tuple[tuple[Any, Any, Memory], Any]:
    """Returns the result of `taped`, and what `_backward` needs of it."""
    states, (last, written) = _forward(step, params, state, tape, inputs, constant)
    return (states, last, written), (params, state, tape.length, written, states, inputs, constant)


def _backward(step: Step, residuals: Any, slopes: tuple[Any, Any, Memory]) -> tuple[Any, ...]:
    """Computes the gradients of `taped` by params, first state, first tape, inputs and constant, a
    tuple, from the `residuals` of its forward pass and from `slopes`, the gradients of its outputs;
    every `step` runs again with the last tape. Lists hold those of numbers that have one.
    """
    params, start, first_length, written, states, inputs, constant = residuals
    lengths = first_length + jnp.arange(len(jax.tree.leaves(inputs)[0]))
    states_before = jax.tree.map(
        lambda first, later: jnp.concatenate([first[None], later[:-1]]), start, states
    )

    def body(carry: tuple[Any, ...], step_data: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
        """Computes the gradients before one step from those after it (`carry`); `step_data` are the
        gradient of the step's output, the state before it, its inputs and the length of the tape.
        The last step comes first.
        """
        d_state, d_tape, d_params, d_constant = carry
        d_output, state, inputs, length = step_data

        def repeat_step(
            d_params: Any, d_constant: Any, d_tape: Any, d_state: Any, d_inputs: Any
        ) -> Any:
            """Computes the step again as a function of the floating-point numbers alone, and
            returns those of its outputs.
            """
            shared, previous = _put_reals(params, d_params), _put_reals(state, d_state)
            tape = _at_length(_put_reals(written, d_tape), length)
            read, fixed = _put_reals(inputs, d_inputs), _put_reals(constant, d_constant)
            return tuple(map(_reals, step(shared, previous, tape, read, fixed)))

        _, pull = jax.vjp(repeat_step, *map(_reals, (params, constant, written, state, inputs)))
        params_term, constant_term, d_tape, d_state, d_inputs = pull(
            (_sum(d_state, d_output), d_tape)
        )
        return (
            d_state,
            d_tape,
            _sum(d_params, params_term),
            _sum(d_constant, constant_term),
        ), d_inputs

    nothing = (jax.tree.map(jnp.zeros_like, _reals(tree)) for tree in (params, constant))
    carry = (*map(_reals, slopes[1:]), *nothing)
    (d_state, d_tape, d_params, d_constant), d_inputs = jax.lax.scan(
        body, carry, (_reals(slopes[0]), states_before, inputs, lengths), reverse=True
    )
    pairs = (
        (params, d_params),
        (start, d_state),
        (written, d_tape),
        (inputs, d_inputs),
        (constant, d_constant),
    )
    return tuple(_put_reals(tree, reals, keep_others=False) for tree, reals in pairs)


def _at_length(tape: Memory, length: jax.Array) -> Memory:
    """Returns the tape as it was when `length` slots were written: those behind are not cleared,
    they are just not valid.
    """
    return dataclasses.replace(
        tape, valid=tape.valid & (jnp.arange(tape.valid.shape[1]) < length), length=length
    )


def _is_real(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.inexact)


def _reals(tree: Any) -> list[Any]:
    """Those leaves that are no counts, masks or random keys."""
    return [leaf for leaf in jax.tree.leaves(tree) if _is_real(leaf)]


def _put_reals(tree: Any, reals: list[Any], keep_others: bool = True) -> Any:
    """Returns the tree with `reals` in place of its leaves that are no counts, masks or random
    keys; the other leaves stay, or become None unless `keep_others`.
    """
    following = iter(reals)
    return jax.tree.map(
        lambda leaf: next(following) if _is_real(leaf) else leaf if keep_others else None, tree
    )


def _sum(first: list[Any], second: list[Any]) -> list[Any]:
    return [a + b for a, b in zip(first, second, strict=True)]


taped.defvjp(_forward_with_residuals, _backward)
