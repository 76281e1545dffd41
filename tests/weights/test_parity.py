"""Our decoders compute with the weights of others what `transformers` computes, and write the same
tokens; `golden.py` says how its numbers came about. Nothing here needs torch.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.sampling import full_mode
from tests.weights import comparing, models
from tests.weights.systems import made


def loaded(name: str, path: Path) -> tuple[Any, Any, Any]:
    """System, parameters and lines of names of a golden model."""
    system_of = lambda node, content: made(node, content["vocab_size"])
    return comparing.loaded(name, path, system_of, jnp.zeros((1, 2), jnp.int32))


@comparing.over(models.NAMES)
def test_logits_loss_and_gradients(name: str, tmp_path: Path) -> None:
    system, params, lines = loaded(name, tmp_path)
    ids = models.numbers(name)["ids"]

    def loss(params: Any) -> tuple[jax.Array, jax.Array]:
        logits = system.apply({"params": params}, ids)
        cost = optax.softmax_cross_entropy_with_integer_labels
        return cost(logits[:, :-1], ids[:, 1:]).mean(), logits

    if full_mode() or name in ("gpt2", "llama"):  # others differ from llama in their values
        (value, logits), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
        comparing.assert_gradients(name, gradients, lines)
    else:
        value, logits = jax.jit(loss)(params)
    comparing.assert_numbers(name, loss=value, logits=logits)


@pytest.mark.full
@pytest.mark.parametrize("name", models.NAMES)
def test_a_hundred_greedy_tokens(name: str, tmp_path: Path) -> None:
    """Over a cache that five given tokens begin."""
    system, params, _ = loaded(name, tmp_path)
    golden = models.numbers(name)
    prompt = jnp.asarray(golden["ids"][0, :5])

    @jax.jit
    def written(prompt: jax.Array) -> jax.Array:
        bound = functools.partial(system.apply, {"params": params})

        def step(carry: Any, given: Any) -> tuple[Any, jax.Array]:
            chosen, state = carry
            token = jnp.where(given < 0, chosen, given)
            logits, state = bound(state, token, method="step")
            return (logits.argmax(-1), state), token

        first = jnp.zeros(1, prompt.dtype), bound(1, 105, method="start")
        given = jnp.pad(prompt, (0, 100), constant_values=-1)
        return jax.lax.scan(step, first, given)[1][5:, 0]

    assert np.asarray(written(prompt)).tolist() == golden["greedy"].tolist()
