"""`attnlab.mechanism` makes a mechanism for arrays by its name, and names mistakes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnlab
from attnlab.attention.mechanisms.multihead import MultiHead


@pytest.mark.quick
def test_a_name_and_fields_make_modules_of_any_width() -> None:
    """What it makes is the class with these fields; parts may be names or nodes."""
    score = {"name": "qk_norm", "length": 8}
    made = attnlab.mechanism("multihead", heads=2, score=score, positions="alibi")
    module = made(width=6)
    assert isinstance(module, MultiHead) and (module.heads, module.width) == (2, 6)
    assert made(width=8, name="look").name == "look"
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 6)), jnp.float32)
    attended = jax.eval_shape(lambda: module.init_with_output(jax.random.key(0), x, x)[0])
    assert attended.context.shape == (2, 5, 6)
    own = attnlab.mechanism("attnlab.attention.mechanisms.multihead:MultiHead", heads=2)
    assert own(width=6).heads == 2


@pytest.mark.parametrize(
    ("name", "fields", "line"),
    [
        ("multihed", {}, "unknown mechanism 'multihed'; did you mean 'multihead'"),
        ("multihead", {"head": 2}, "no field 'head' to set; did you mean 'heads'"),
        ("multihead", {"heads": "2"}, "mechanism.heads='2' is of type str, expected int"),
        (
            "single",
            {"score": {"name": "additive", "hiden": 3}},
            "mechanism.score: additive has no field 'hiden' to set; did you mean 'hidden'?",
        ),
        (
            "multihead",
            {"width": 8},
            "mechanism: width comes second, mechanism('multihead', ...)(width=8)",
        ),
        (
            "multihead",
            {"score": "concat", "positions": "rope"},
            "mechanism.positions: Rope turns queries and keys, Concat does not allow it",
        ),
        ("talking_heads", {"kernel": "xla"}, "works on whole maps, which 'xla' never has"),
        (
            "attnlab.layers.lstm:LSTMState",
            {},
            (
                "mechanism=attnlab.layers.lstm:LSTMState: expected a class derived from"
                " attnlab.attention"
            ),
        ),
    ],
)
def test_mistakes_have_the_words_of_the_command_line(
    name: str, fields: dict[str, object], line: str
) -> None:
    with pytest.raises(attnlab.UserError) as raised:
        attnlab.mechanism(name, **fields)
    assert line in str(raised.value)
