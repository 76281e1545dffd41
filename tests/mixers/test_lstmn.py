"""The layer of Long Short-Term Memory-Networks is an LSTM under the weights that make it so, reads no
padding, and has the gradients of a plain loop, with a second sequence too. Its values, and all else
that follows from them, are those of the oracles of systems (`tests/systems/oracles/lstmn.py`).
"""

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.alignments.entmax import Entmax
from attnlab.attention.alignments.relatives import Sigmoid
from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.attention.mechanisms.single import Single
from attnlab.attention.positions.relative import Shaw
from attnlab.attention.positions.rope import Rope
from attnlab.attention.protocol import LOSSES, MAPS, Reading
from attnlab.attention.scores.linear import General
from attnlab.attention.scores.perceptrons import Additive, Coverage
from attnlab.attention.view import EVERYTHING
from attnlab.layers.initial import Initial
from attnlab.layers.lstm import LSTMLayer, LSTMState
from attnlab.mixers.lstmn import FusedLSTMNLayer, LSTMNLayer, Slots
from tests.layers.test_recurrent import draw, numbered
from tests.systems.language_models import parameters

B, T, E, H = 3, 6, 5, 4


class Previous(Single):
    """All the weight on the last slot."""

    def read(self, query: jax.Array, memory: Any, visibility: Any = EVERYTHING) -> Reading:
        return Reading(
            jax.lax.dynamic_slice_in_dim(memory.values[:, 0], memory.length - 1, 1, axis=1)
        )


ADDITIVE = functools.partial(Single, score=functools.partial(Additive, hidden=4))
GENERAL = functools.partial(Single, score=General)


def layer(attention: Any = ADDITIVE, *, inter: Any = None, **fields: Any) -> LSTMNLayer:
    """A tiny one; the paper's unless told otherwise."""
    paper = {"span": None, "origin": "zeros", "question": "word and summary"}
    settings = {"attention": attention, "width": H, "initial": Initial(), **paper, **fields}
    if inter is None:
        return LSTMNLayer(**settings)
    return FusedLSTMNLayer(inter_attention=inter, **settings)


X, VALID = draw(B, T, E), np.arange(T) < np.array([6, 3, 0])[:, None]


@pytest.mark.quick
def test_looking_at_the_last_slot_it_is_an_lstm() -> None:
    module = layer(Previous)
    params = parameters(module, X, VALID)
    slots, reader = jax.jit(lambda: module.apply({"params": params}, X, VALID))()
    lstm = {name: params[name] for name in ("of_input", "cell")}
    expected, last = jax.jit(LSTMLayer(H).apply)({"params": lstm}, X, VALID)
    np.testing.assert_allclose(slots.hidden[VALID], expected[VALID], atol=1e-6)
    np.testing.assert_allclose(reader.last.h, last.h, atol=1e-6)
    np.testing.assert_allclose(reader.last.c, last.c, atol=1e-6)


def test_weights_are_of_what_was_written_and_sum_to_one() -> None:
    """No later word has a gradient."""
    module = layer(span=2)
    params, direction = parameters(module, X, VALID), draw(H, seed=4)

    @jax.jit
    def looked(x: Any) -> Any:
        def third(x: Any) -> Any:
            (slots, _), collected = module.apply({"params": params}, x, VALID, mutable=[MAPS])
            return (slots.hidden[0, 2] * direction).sum(), collected

        return jax.grad(third, has_aux=True)(x)

    slope, collected = jax.device_get(looked(X))
    # [B,T,1+T]; slot j + 1: step j
    weights = collected[MAPS]["attention"]["weights"][0][:, 0, :, 0]
    i, j = np.indices((T, T))
    for row, length in enumerate((6, 3)):
        np.testing.assert_allclose(weights[row].sum(axis=1), 1.0, atol=1e-6)
        near = ((j < i) & (i - j <= 2))[:length]
        np.testing.assert_array_equal(weights[row, :length, 1:] > 0, near)
        assert (weights[row, :, 0] > 0).all()
    assert (slope[0, 3:] == 0.0).all() and (np.abs(slope[0, :3]).max(axis=1) > 1e-4).all()


def test_padding_gets_exactly_no_gradient() -> None:
    params = parameters(layer(), X, VALID)
    total = lambda x: (layer().apply({"params": params}, x, VALID)[0].hidden ** 2).sum()  # type: ignore[index, union-attr]
    slope = np.asarray(jax.jit(jax.grad(total))(X))
    assert (slope[~VALID] == 0.0).all() and (np.abs(slope[VALID]).max(axis=-1) > 0).all()


OTHER = Slots(
    draw(B, 5, H, seed=2), draw(B, 5, H, seed=3), np.arange(5) < np.array([5, 2, 0])[:, None]
)


def fused(inter: Any) -> Any:
    """Parameters of a layer that looks at another sequence."""
    module = layer(inter=inter)

    def run(module: Any) -> jax.Array:
        return module(X, VALID, other=module.remember(OTHER))[0].hidden  # type: ignore[no-any-return]

    variables = jax.eval_shape(lambda: module.init(jax.random.key(0), method=run))
    assert set(variables) == {"params"}  # no losses, no maps
    return numbered(variables["params"])


@pytest.mark.full
def test_looks_that_look_back_have_the_same_gradients_on_the_tape() -> None:
    """What each look leaves to the next goes backward through the tape as through the plain loop,
    which runs while losses are collected; and padding leaves it alone.
    """
    inter = functools.partial(Single, score=functools.partial(Coverage, hidden=4, fertility=0.0))
    one, params = layer(inter=inter), fused(inter)

    def total(params: Any, mutable: Any) -> tuple[jax.Array, Any]:
        def run(module: Any) -> Any:
            slots, reader = module(X, VALID, other=module.remember(OTHER))
            return (slots.hidden**2).sum(), reader.looks

        actual = one.apply({"params": params}, method=run, mutable=mutable)
        loss, looks = actual[0] if mutable else actual
        return loss, looks

    slopes = jax.jit(jax.grad(total, has_aux=True), static_argnums=1)
    (taped, looks), (plain, again) = slopes(params, False), slopes(params, (LOSSES,))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), taped, plain)
    jax.tree.map(np.testing.assert_array_equal, looks, again)
    assert np.abs(taped["inter_attention"]["score"]["of_covered"]).max() > 1e-4
    np.testing.assert_allclose(looks.score.sum(axis=(1, 2)), VALID.sum(axis=1), atol=1e-5)


HEADS = functools.partial(MultiHead, heads=2)
TAPES: dict[str, tuple[Any, dict[str, Any]]] = {
    "additive": (ADDITIVE, {}),
    "the word asks in a span": (ADDITIVE, {"question": "word", "span": 2, "origin": "none"}),
    "turned keys": (functools.partial(HEADS, positions=Rope), {"origin": "none"}),
    "distances and sigmoid": (
        functools.partial(HEADS, positions=Shaw, alignment=Sigmoid),
        {"origin": "none"},
    ),
    "entmax": (functools.partial(GENERAL, alignment=Entmax), {}),
    "deep fusion": (ADDITIVE, {"inter": GENERAL}),
}
DEFAULT = ("deep fusion",)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in DEFAULT else pytest.mark.full) for name in TAPES],
)
def test_gradients_are_those_of_a_loop_that_keeps_every_tape(name: str) -> None:
    """Who watches the looks gets a loop that JAX differentiates by itself. Two slots and a summary
    of an earlier text stand before.
    """
    attention, fields = TAPES[name]
    one = layer(attention, **fields)
    before = LSTMState(draw(B, H, seed=5), draw(B, H, seed=6))
    real = np.array([[True, True], [False, True], [True, True]])
    earlier = Slots(draw(B, 2, H, seed=7), draw(B, 2, H, seed=8), real)
    given = {
        "x": X,
        "hidden": earlier.hidden,
        "summary": draw(B, H, seed=4),
        "first": None if fields.get("origin") == "none" else before,
        "other": OTHER.hidden,
    }
    weights = draw(B, T, H, seed=9)

    def run(module: Any, x: Any, hidden: Any, summary: Any, first: Any, other: Any) -> jax.Array:
        actual = module.remember(OTHER.replace(hidden=other)) if "inter" in fields else None  # type: ignore[attr-defined]
        begun = earlier.replace(hidden=hidden)  # type: ignore[attr-defined]
        slots, reader = module(x, jnp.asarray(VALID), begun, summary, first, actual)
        of_reader = (reader.summary**2).sum() + (reader.memory.values**2 * 0.1).sum()
        return ((slots.hidden + slots.cells) * weights).sum() + of_reader

    def total(params: Any, given: Any, watched: bool) -> jax.Array:
        mutable = [MAPS] if watched else False
        result = one.apply({"params": params}, **given, method=run, mutable=mutable)
        return result[0] if watched else result  # type: ignore[index, return-value]

    shapes = jax.eval_shape(lambda: one.init(jax.random.key(0), **given, method=run))["params"]
    params = numbered(shapes, 0.4)
    slopes = jax.jit(jax.value_and_grad(total, (0, 1)), static_argnums=2)
    (value, taped), (expected, plain) = (
        slopes(params, given, watched) for watched in (False, True)
    )
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    pairs = zip(jax.tree.leaves_with_path(taped), jax.tree.leaves(plain), strict=True)
    for (path, actual), wanted in pairs:
        name = jax.tree_util.keystr(path)
        most = np.abs(wanted).max()  # over a dozen steps the sums are taken in another order
        bound = 1e-5 * max(1.0, most)
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=bound, err_msg=name)
        assert most > 1e-3 or ("other" in name and "inter" not in fields)


@pytest.mark.quick
def test_no_tape_is_kept_for_a_step() -> None:
    """What gradients keep grows with the text, not with its square: no array of the program holds a
    tape, or a look at one, per step.
    """
    one, rows, steps = layer(), 3, 37

    def total(params: Any, x: jax.Array) -> jax.Array:
        return one.apply({"params": params}, x, jnp.ones((rows, steps), bool))[0].hidden.sum()  # type: ignore[index, union-attr]

    x = jnp.ones((rows, steps, E))
    params = parameters(one, x, np.ones((rows, steps), bool))
    text = str(jax.make_jaxpr(jax.grad(total))(params, x))
    assert f"[{steps},{rows},{H}]" in text.replace("f32", "")
    assert not re.search(rf"\[{steps},{rows},(1,)*{steps + 1}", text)
