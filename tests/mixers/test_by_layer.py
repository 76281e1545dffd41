"""A part that is taken out of a Transformer takes its parameters, its norm and its residual
connection with it.
"""

from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import pytest
from ml_collections import ConfigDict

from attnlab.systems.protocol import LanguageModel, Seq2Seq, TokenClassifier
from attnlab.tasks.models import system_factory

SIZES: dict[str, Any] = {
    "width": 8,
    "layers": 2,
    "hidden": 12,
    "positions": {"name": "learned", "length": 5},
}
HEADS = {"name": "multihead", "heads": 2}
SOME = {"name": "by_layer", "one": {"name": "none"}, "other": HEADS}
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


_MIXED = ("attention", "self_", "cross_", "around_attention", "around_self", "around_cross")
