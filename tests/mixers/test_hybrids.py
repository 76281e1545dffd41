"""Decoders whose layers differ, a window beside a state, decode with their caches as in one pass, rows
of different lengths together; and a pattern of one kind is the plain system. That a hybrid computes
what its layers are is tested with the systems.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab.errors import UserError
from attnlab.systems.protocol import LanguageModel
from attnlab.tasks.models import system_factory
from tests.systems import tiny

HEADS = {"name": "multihead", "heads": 2}
LINEAR = {"name": "linear", "heads": 2, "chunk": 3}
MAMBA = {"name": "mamba", "state": 3, "head_width": 4, "kernel": 2}
WINDOW = {"name": "by_layer", "one": {"name": "window", "width": 2}, "other": {"name": "full"}}
THIRDS = ("other", "other", "one")
SPEC = {"name": "decoder", "width": 8, "hidden": 6, "layers": 3, "positions": {"name": "none"}}
HYBRIDS: dict[str, dict[str, Any]] = {
    "softmax in one of three": {
        "attention": {"name": "by_layer", "one": HEADS, "other": LINEAR, "pattern": THIRDS}
    },
    "window and state": {
        "attention": {"name": "by_layer", "one": HEADS, "other": MAMBA},
        "visibility": WINDOW,
        "layers": 2,
    },
    "window and a model that learns": {
        "attention": {
            "name": "by_layer",
            "one": HEADS,
            "other": {"name": "ttt_mlp", "heads": 2, "mini_batch": 3, "expansion": 2},
        },
        "visibility": WINDOW,
        "layers": 2,
    },
}
TOKENS = np.random.default_rng(0).integers(1, 9, (3, 7)).astype(np.int32)
TOKENS[1, 4:], TOKENS[2, 1:] = 0, 0


def made(**changes: Any) -> tuple[LanguageModel, Any]:
    """A decoder, and parameters drawn for it."""
    config = ConfigDict({"system": {**SPEC, **changes}})
    system: LanguageModel = system_factory(config, LanguageModel)(vocabulary=9)
    return system, tiny.drawn(system, TOKENS, rule=lambda _, noise: tiny.by_rows(noise))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "window and state" else pytest.mark.full)
        for name in HYBRIDS
    ],
)
def test_decoding_in_pieces_is_the_pass_over_the_whole(name: str) -> None:
    """Of 4, 1, 1 and 1 tokens; where a row has ended there is padding."""
    system, params = made(**HYBRIDS[name])

    @jax.jit
    def begun(params: Any) -> Any:
        apply = functools.partial(system.apply, {"params": params})
        return apply(TOKENS), apply(3, 7, method="start")

    read = jax.jit(lambda params, *a: system.apply({"params": params}, *a, method="read"))
    (whole, state), at = begun(params), 0
    for piece in (4, 1, 1, 1):
        here = slice(at, at + piece)
        logits, state = read(params, state, TOKENS[:, here])
        real = TOKENS[:, here] != 0
        np.testing.assert_allclose(logits[real], whole[:, here][real], atol=5e-6)
        at += piece


@pytest.mark.parametrize("part", [HEADS, LINEAR, MAMBA], ids=lambda part: str(part["name"]))
def test_a_pattern_of_one_kind_is_the_plain_system(part: dict[str, Any]) -> None:
    other = LINEAR if part is HEADS else HEADS
    mixed = {"name": "by_layer", "one": part, "other": other, "pattern": ("one",)}
    (plain, params), (patterned, same) = (made(attention=one, layers=1) for one in (part, mixed))
    jax.tree.map(np.testing.assert_array_equal, params, same)
    programs = [
        jax.make_jaxpr(lambda params, system=system: system.apply({"params": params}, TOKENS))
        for system in (plain, patterned)
    ]
    assert len({str(program(params)) for program in programs}) == 1


def test_a_state_has_no_window() -> None:
    """Nothing is dropped silently: neither by a mixer nor by linear attention."""
    for part in (LINEAR, MAMBA):
        with pytest.raises(UserError, match="a visibility of its own"):
            made(attention=part, visibility={"name": "window", "width": 2})
    system, params = made(attention=LINEAR, layers=1)
    packed = jnp.asarray([[1, 1, 1, 2, 2, 2, 2]])
    row = TOKENS[:1]

    @jax.jit
    def read(params: Any) -> Any:
        apply = functools.partial(system.apply, {"params": params})
        return apply(row, packed), (apply(row[:, :3]), apply(row[:, 3:]))

    both, alone = read(params)
    np.testing.assert_allclose(both, np.concatenate(alone, axis=1), atol=5e-6)
