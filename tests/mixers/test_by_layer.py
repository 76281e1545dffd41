"""Layers that differ, or have no attention: a part that is taken out of a Transformer takes its
parameters, its norm and its residual connection with it; decoders whose layers differ, a window beside a
state, decode with their caches as in one pass, rows of different lengths together; and a pattern of one
kind is the plain system. That a hybrid computes what its layers are is tested with the systems.
"""

import functools
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab.errors import UserError
from attnlab.systems.protocol import LanguageModel, Seq2Seq, TokenClassifier
from attnlab.tasks.models import system_factory
from tests.systems import tiny

HEADS = {"name": "multihead", "heads": 2}
SIZES: dict[str, Any] = {
    "width": 8,
    "layers": 2,
    "hidden": 12,
    "positions": {"name": "learned", "length": 5},
}
SOME = {"name": "by_layer", "one": {"name": "none"}, "other": HEADS}
_MIXED = ("attention", "self_", "cross_", "around_attention", "around_self", "around_cross")
KINDS: dict[str, tuple[type, tuple[str, ...], dict[str, int], int]] = {
    "decoder": (LanguageModel, ("attention",), {"vocabulary": 7}, 1),
    "encoder": (TokenClassifier, ("attention",), {"vocabulary": 7, "outputs": 2}, 1),
    "transformer": (
        Seq2Seq,
        ("encoder_attention", "decoder_attention", "cross_attention"),
        {"source_vocabulary": 7, "target_vocabulary": 7},
        2,
    ),
}


def paths(name: str, attention: Any = HEADS, **changes: Any) -> set[str]:
    """The parameters of a system by their paths."""
    base, slots, given, read = KINDS[name]
    node = {"name": name, **SIZES, **dict.fromkeys(slots, attention), **changes}
    system = system_factory(ConfigDict({"system": node}), base)(**given)
    ids = [jnp.ones((1, 2), jnp.int32)] * read
    params = jax.eval_shape(system.init, jax.random.key(0), *ids)["params"]
    return set(flax.traverse_util.flatten_dict(params, sep="/"))


@pytest.mark.parametrize(
    "name", ["decoder", pytest.param("encoder", marks=pytest.mark.full), "transformer"]
)
def test_what_is_taken_out_is_gone(name: str) -> None:
    whole = paths(name)
    for changes, words in (
        ({"attention": {"name": "none"}}, ("_attention", "attention/", "around_self", "around_cr")),
        ({"feed_forward": "none"}, ("feed_forward",)),
        ({"normalisation": "none"}, ("normalisation", "top")),
        ({"positions": {"name": "none"}}, ("positions",)),
    ):
        gone = {one for one in whole if any(word in one for word in words)}
        assert gone and paths(name, **changes) == whole - gone
    some = paths(name, attention=SOME)
    assert some == {path for path in whole if not any(f"_0/{word}" in path for word in _MIXED)}
    nothing = {"feed_forward": "none", "attention": {"name": "none"}}
    assert not any("_0/" in one for one in paths(name, **nothing, norm="parallel"))


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
