"""What our systems compute with the weights of others, against numbers of `transformers`.

`golden.py` says how these came about. Nothing here needs torch.
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

from attnlab import weights
from attnlab.config.registry import build
from attnlab.systems import SYSTEMS
from attnlab.weights import folder as folders
from attnlab.weights.names import flat, nested
from tests.weights import models, rule


@functools.cache
def loaded(name: str, path: Path) -> tuple[Any, Any, Any]:
    """System, parameters and lines of names of a golden model."""
    folder = models.folder(name, path / name)
    content = folders.settings(folder)
    node = weights.system(folder)
    system = build(SYSTEMS, node, "system")(vocabulary=content["vocab_size"], pad_id=-1)
    ids = jnp.zeros((1, 2), jnp.int32)
    params = jax.eval_shape(lambda: system.init(jax.random.key(0), ids))["params"]
    shapes = {key: one.shape for key, one in flat(params).items()}
    names = weights.names_of(content["model_type"])
    read = names.read(folders.files(folder), shapes)
    return system, nested(read), list(names.lines(shapes))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.mark.parametrize("name", models.NAMES)
def test_logits_loss_and_gradients(name: str, path: Path) -> None:
    """Logits within 5e-5; of every tensor the gradient's norm, and its product with a vector drawn
    for it, within 1e-4 of the norm.
    """
    system, params, lines = loaded(name, path)
    golden = models.numbers(name)
    ids = jnp.asarray(golden["ids"])

    def loss(params: Any) -> tuple[jax.Array, jax.Array]:
        logits = system.apply({"params": params}, ids)
        return optax.softmax_cross_entropy_with_integer_labels(
            logits[:, :-1], ids[:, 1:]
        ).mean(), logits

    (value, logits), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    off = np.abs(np.asarray(logits) - golden["logits"]).max()
    assert off <= 5e-5, off
    assert abs(float(value) - golden["loss"]) <= 1e-5
    theirs = flat(gradients)
    found = {
        line.theirs: line.back([np.asarray(theirs[one]) for one in line.paths]) for line in lines
    }
    names = list(models.described(name)["shapes"])
    assert sorted(found) == sorted(names)
    worst = 0.0
    for key, norm, along in zip(names, golden["grad_norm"], golden["grad_along"], strict=True):
        g = found[key].astype(np.float64)
        worst = max(worst, abs(np.sqrt((g**2).sum()) - norm) / norm)
        worst = max(worst, abs((g * rule.uniform(f"along {key}", g.shape)).sum() - along) / norm)
    print(
        f"{name}: logits {off:.1e}, loss {abs(float(value) - golden['loss']):.1e}, gradients {worst:.1e}"
    )
    assert worst <= 1e-4, worst


@pytest.mark.parametrize("name", models.NAMES)
def test_a_hundred_greedy_tokens(name: str, path: Path) -> None:
    """Over a cache that five given tokens begin."""
    system, params, _ = loaded(name, path)
    golden = models.numbers(name)
    prompt = jnp.asarray(golden["ids"][0, :5])

    @jax.jit
    def written(prompt: jax.Array) -> jax.Array:
        bound = functools.partial(system.apply, {"params": params})

        def one(carry: Any, given: Any) -> tuple[Any, jax.Array]:
            chosen, state = carry
            token = jnp.where(given < 0, chosen, given)
            logits, state = bound(state, token, method="step")
            return (logits.argmax(-1), state), token

        first = jnp.zeros(1, prompt.dtype), bound(1, 105, method="start")
        given = jnp.pad(prompt, (0, 100), constant_values=-1)
        return jax.lax.scan(one, first, given)[1][5:, 0]

    assert np.asarray(written(prompt)).tolist() == golden["greedy"].tolist()
