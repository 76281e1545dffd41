"""`attnlab.mechanism` makes a mechanism for arrays by its name, and names mistakes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnlab
from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.attention.view import CAUSAL, EVERYTHING

X = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 6)), jnp.float32)


@pytest.mark.quick
def test_a_name_and_fields_make_modules_of_any_width() -> None:
    """What it makes is the class with these fields; parts may be names or nodes."""
    score = {"name": "qk_norm", "length": 8}
    made = attnlab.mechanism("multihead", heads=2, score=score, positions="alibi")
    module = made(width=6)
    assert isinstance(module, MultiHead) and (module.heads, module.width) == (2, 6)
    assert made(width=8, name="look").name == "look"
    attended = jax.eval_shape(lambda: module.init_with_output(jax.random.key(0), X, X)[0])
    assert attended.context.shape == (2, 5, 6)
    own = attnlab.mechanism("attnlab.attention.mechanisms.multihead:MultiHead", heads=2)
    assert own(width=6).heads == 2


@pytest.mark.parametrize(
    ("name", "fields", "line"),
    [
        ("multihed", {}, "unknown mechanism 'multihed'; did you mean 'multihead'"),
        ("multihead", {"head": 2}, "no field 'head' to set; did you mean 'heads'"),
        ("multihead", {"heads": "2"}, "mechanism.heads='2' is of type str, expected int"),
        ("single", {"score": {"name": "additive", "hiden": 3}}, "no field 'hiden' to set; did"),
        ("multihead", {"width": 8}, "mechanism: width comes second, mechanism('multihead', ...)"),
        ("multihead", {"score": "concat", "positions": "rope"}, "positions: Rope turns queries"),
        ("multihead", {"direction": "up"}, "direction='up': expected 'causal' or"),
        ("multihead", {"alignment": "moba"}, "choose 'softmax'; or say direction='causal', if no"),
        ("fourier", {}, "unknown mechanism 'fourier'"),
        ("multihead", {"direction": "causal", "alignment": "diagonal"}, "Diagonal looks at the"),
        ("talking_heads", {"kernel": "xla"}, "works on whole maps, which 'xla' never has"),
        ("attnlab.layers.lstm:LSTMState", {}, "LSTMState: expected a class derived from attnlab"),
    ],
)
def test_mistakes_in_the_words_of_commands(name: str, fields: dict[str, object], line: str) -> None:
    with pytest.raises(attnlab.UserError) as raised:
        attnlab.mechanism(name, **fields)
    assert line in str(raised.value)


@pytest.mark.parametrize(
    "fields",
    [*({"alignment": a} for a in ("stick_breaking", "selective", "moba")), {"positions": "cope"}],
    ids=lambda fields: next(iter(fields.values())),
)
def test_parts_that_want_a_causal_view_fit_when_that_is_said(fields: dict[str, str]) -> None:
    with pytest.raises(attnlab.UserError, match="or say direction='causal'"):
        attnlab.mechanism("multihead", heads=2, **fields)
    module = attnlab.mechanism("multihead", heads=2, direction="causal", **fields)(width=6)
    attended = jax.eval_shape(lambda: module.init_with_output(jax.random.key(0), X, X, CAUSAL)[0])
    assert attended.context.shape == X.shape


@pytest.mark.parametrize(("alignment", "view"), [("selective", CAUSAL), ("temporal", None)])
def test_a_look_that_depends_on_earlier_ones_wants_their_state(alignment: str, view: Any) -> None:
    """With it pieces equal the whole; without it `read` would compute something else."""
    fields = {"heads": 2, "alignment": alignment, "direction": "causal" if view else None}
    module = attnlab.mechanism("multihead", **fields)(width=6)
    views = (view or EVERYTHING,)
    context, params = module.init_with_output(jax.random.key(0), X, X, *views)
    bound = module.bind(params)
    memory = bound.remember(X)
    for more in ((), (False, None)):
        with pytest.raises(
            attnlab.UserError, match=r"history=initial_history\(memory\) the first time"
        ):
            bound.read(X, memory, *views, *more)
    memory = bound.remember(X[:, :3], capacity=5) if view else memory
    first = bound.read(X[:, :3], memory, *views, history=bound.initial_history(memory))
    memory = bound.extend(memory, X[:, 3:]) if view else memory
    second = bound.read(X[:, 3:], memory, *views, history=first.history)
    found = jnp.concatenate([first.context, second.context], axis=1)
    np.testing.assert_allclose(found, context.context, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((X[0], X), r"query has the shape \[5, 6\]; expected \[batch, tokens, width\]"),
        ((X, X[0]), r"source has the shape \[5, 6\]"),
        ((jnp.ones((2, 5, 6), jnp.int32), X), "query is of type int32; expected floats"),
        (([[1.0]], X), "query is a list; expected an array"),
        ((X, X, jnp.ones((5, 5), bool)), r"view is an array bool \[5, 5\]; expected .*View"),
        ((X, X, CAUSAL.rule), "view is a Causal; expected .*View"),
        ((X, X, CAUSAL, jnp.ones((2, 5))), r"valid is an array float32 \[2, 5\]; expected bool"),
        ((X, X, CAUSAL, jnp.ones((5, 2), bool)), r"expected bool \[2, 5\], True at real"),
    ],
)
def test_arguments_are_checked_at_the_door(arguments: tuple[Any, ...], line: str) -> None:
    module = attnlab.mechanism("multihead", heads=2)(width=6)
    params = jax.eval_shape(module.init, jax.random.key(0), X, X)
    with pytest.raises(attnlab.UserError, match=line):
        jax.eval_shape(lambda params: module.apply(params, *arguments), params)


def test_a_memory_is_what_remember_returns() -> None:
    module = attnlab.mechanism("multihead", heads=2)(width=6)
    with pytest.raises(attnlab.UserError, match="memory is an array .*what remember"):
        module.init(jax.random.key(0), X, X, method="read")


def test_valid_is_held_against_keys_once_both_are_arrays() -> None:
    """A mask that fits the keys is not blamed for values of another length."""
    module = attnlab.mechanism("multihead", heads=2)(width=6)
    cases = ((3, (2, 7), "values is a int"), (X[:, :4], (2, 5), "values has .*expected .2, 5. and"))
    for values, shape, line in cases:
        given = (X, values, jnp.ones(shape, bool))
        with pytest.raises(attnlab.UserError, match=line):
            module.init(jax.random.key(0), *given, method="remember_pairs")
