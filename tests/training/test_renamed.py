"""Modules of earlier checkouts draw their random numbers under today's names."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from flax.core.scope import Scope

from tests.training.renamed import draw_by_new_names, renamed, rules


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("search/fit", "attention/score"),
        ("layer_0/self_attention/look/align", "layer_0/self_attention/looks/alignment"),
        ("encoder/around_attention/scale", "encoder/around_attention/normalisation"),
        ("readers/layer_1/search", "readers/layer_1/inter_attention"),
        ("places_source", "positions_source"),
        ("decoder/w_query", "decoder/w_query"),
    ],
)
def test_an_old_path_has_its_new_names_and_a_new_one_keeps_its_own(old: str, new: str) -> None:
    assert renamed(tuple(old.split("/")), rules()) == tuple(new.split("/"))
    assert renamed(tuple(new.split("/")), rules()) == tuple(new.split("/"))


class Noisy(nn.Module):
    """A dense layer with dropout inside a scan, under names that are given."""

    names: tuple[str, str]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        outer, inner = self.names

        class Inside(nn.Module):
            @nn.compact
            def __call__(self, carry: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
                y = nn.Dropout(0.5, deterministic=False)(nn.Dense(4, name=inner)(carry + x))
                return y, y

        scan = nn.scan(
            Inside, variable_broadcast="params", split_rngs={"params": False, "dropout": True}
        )
        return scan(name=outer)(jnp.zeros(x.shape[1:]), x)[1]


def drawn(*names: str) -> tuple[list[jax.Array], jax.Array]:
    """First values and outputs of a module with dropout."""
    module, x = Noisy((names[0], names[1])), jnp.ones((3, 2, 4))
    params = module.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, x)
    y = module.apply(params, x, rngs={"dropout": jax.random.key(2)})
    assert isinstance(y, jax.Array)
    return jax.tree.leaves(params), y


def same(one: object, other: object) -> bool:
    return jax.tree.all(jax.tree.map(jnp.array_equal, one, other))


@pytest.mark.full
def test_first_values_and_dropout_are_those_of_the_new_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    today, before = drawn("attention", "score"), drawn("search", "fit")
    assert not same(today, before)
    monkeypatch.setattr(Scope, "push", Scope.push)  # undone after the test
    draw_by_new_names()
    assert same(today, drawn("search", "fit"))
    assert same(today, drawn("attention", "score"))
