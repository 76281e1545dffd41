"""A state that is a model and learns has the values and gradients of a model for every token in NumPy,
in all forms; without norm and residual it is a delta rule or linear attention.
"""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.layers.recurrence import Examples, begun, descend, recur
from attnlab.layers.recurrence.descent import Learner
from tests.layers.recurrence.learning import taught
from tests.sampling import full_mode

B, H, T, D, COUNT = 3, 2, 13, 4, 6
HIDDEN = {"linear": (), "mlp": (5,)}
EXAMPLES = ("q", "k", "v", "eta")
both = pytest.mark.parametrize("kind", HIDDEN)
# whose layers are linear models
larger = pytest.mark.parametrize("kind", [pytest.param("linear", marks=pytest.mark.full), "mlp"])


def drawn(kind: str, seed: int = 0) -> dict[str, Any]:
    """Arrays by name; a state in the middle of a text, weights "w0" and "b0", sums "s0" and "t0"."""
    rng = np.random.default_rng(seed)
    widths = (D, *HIDDEN[kind], D)
    actual = {name: rng.normal(size=(B, H, T, D)) for name in "qkv"}
    actual |= {"eta": rng.random((B, H, T, 1)) / D, "shares": rng.random(COUNT)}
    actual |= {name: 1 + rng.normal(size=(H, 1, D)) / 4 for name in ("gamma", "beta")}
    for l, (m, n) in enumerate(itertools.pairwise(widths)):
        for name, size in (("w", 0.5), ("s", 0.2)):
            actual[f"{name}{l}"] = size * rng.normal(size=(B, H, m, n))
        for name, size in (("b", 0.5), ("t", 0.2)):
            actual[f"{name}{l}"] = size * rng.normal(size=(B, H, 1, n))
    return actual


def layers(data: Any, names: str) -> Any:
    count = 1 + ("w1" in data)
    return tuple(tuple(data[f"{name}{l}"] for name in names) for l in range(count))


def run(data: Any, state: Learner | None = None, **fields: Any) -> Any:
    """`descend` of arrays by name."""
    state = Learner(layers(data, "wb"), layers(data, "st")) if state is None else state

    def norm(x: jax.Array) -> jax.Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = jnp.square(centred).mean(axis=-1, keepdims=True)
        return data["gamma"] * centred / jnp.sqrt(variance + 1e-6) + data["beta"]

    examples = Examples(*(data[name] for name in EXAMPLES))
    return descend(examples, state, norm, data["shares"], **fields)


def reference(data: Any, read: np.ndarray, valid: np.ndarray) -> Any:
    """o, 0 at padding, and the state, row by row and head by head."""
    o, leaves = np.zeros((B, H, T, D)), jax.tree.leaves((layers(data, "wb"), layers(data, "st")))
    after = [np.zeros(leaf.shape) for leaf in leaves]
    for b, h in np.ndindex(B, H):
        head = [leaf[b, h] if i % 2 == 0 else leaf[b, h, 0] for i, leaf in enumerate(leaves)]
        model, sums, place = head[: len(head) // 2], head[len(head) // 2 :], int(read[b])
        for t in np.flatnonzero(valid[b]):
            token = *(data[n][b, h, t] for n in "qkv"), data["eta"][b, h, t, 0]
            o[b, h, t], model, sums = taught(
                model,
                sums,
                place % COUNT,
                data["shares"],
                token,
                data["gamma"][h, 0],
                data["beta"][h, 0],
            )
            place += 1
        for into, leaf in zip(after, [*model, *sums], strict=True):
            into[b, h] = leaf
    return o, after


READ = np.array([0, 4, 11])
VALID = np.random.default_rng(3).random((B, T)) < 0.7
EVERY = np.ones((B, T), bool)


def furthest(actual: Any, expected: Any) -> float:
    actual, expected = jax.tree.leaves(actual), jax.tree.leaves(expected)
    return max(np.abs(a - b).max() for a, b in zip(actual, expected, strict=True))


def _program(data: Any, read: Any, valid: Any, chunk: int) -> Any:
    return jax.jit(lambda *a: run(a[0], read=a[1], valid=a[2], chunk=chunk))(data, read, valid)


@both
@pytest.mark.parametrize("chunk", [0, 1, 3])
@pytest.mark.parametrize("fresh", [False, True])
def test_every_form_equals_a_model_for_every_token(
    kind: str, chunk: int, fresh: bool, float64: None
) -> None:
    """In the middle of mini-batches with padding, and from the beginning without."""
    data = drawn(kind)
    if fresh:
        data = {n: 0 * x if n[0] in "st" and n != "shares" else x for n, x in data.items()}
        expected = reference(data, 0 * READ, EVERY)
        assert furthest(_program(data, None, None, chunk), expected) < 1e-10
    else:
        expected = reference(data, READ, VALID)
        assert furthest(_program(data, READ, VALID, chunk), expected) < 1e-10


@larger
def test_float32_is_near_and_padding_leaves_the_state_alone_to_the_last_bit(kind: str) -> None:
    """Whatever stands in the padding, in chunks of any length."""
    data = drawn(kind)
    low = {name: x.astype(np.float32) for name, x in data.items()}
    o, after = _program(low, READ, VALID, 3)
    assert furthest((o, after), reference(data, READ, VALID)) < 1e-5 and o.dtype == jnp.float32
    dirty = {**low, **{name: low[name] * np.float32(np.nan) for name in EXAMPLES}}
    before = Learner(layers(low, "wb"), layers(low, "st"))
    for chunk in (1, 3, 6) if full_mode() else (6,):
        o, after = _program(dirty, READ, np.zeros((B, T), bool), chunk)
        jax.tree.map(np.testing.assert_array_equal, after, before)
        assert not o.any()


@larger
def test_pieces_of_any_length_give_what_the_whole_gives(kind: str, float64: None) -> None:
    """Each row in its own place of a mini-batch; rows that have ended stay as they are."""
    data = drawn(kind)
    valid = np.arange(T) < np.array([13, 2, 7])[:, None]
    step = jax.jit(lambda data, state, read, valid: run(data, state, read=read, valid=valid))
    state, read, begin, actual = Learner(layers(data, "wb"), layers(data, "st")), READ, 0, []
    for length in (5, 1, 1, 1, 5):
        here = slice(begin, begin + length)
        piece = data | {name: data[name][:, :, here] for name in EXAMPLES}
        o, state = step(piece, state, read, valid[:, here])
        read, begin = read + valid[:, here].sum(axis=1), begin + length
        actual.append(o)
    expected = reference(data, READ, valid)
    assert furthest((np.concatenate(actual, axis=2), state), expected) < 1e-10


@larger
def test_gradients_are_those_of_the_loop(kind: str, float64: None) -> None:
    """Along a random direction in all arrays at once, against differences of the reference; those
    of each array are alike in mini-batches and token by token.
    """
    data, rng = drawn(kind), np.random.default_rng(4)
    weights = jax.tree.map(lambda x: rng.normal(size=x.shape), reference(data, READ, VALID))

    def total(actual: Any) -> Any:
        pairs = zip(jax.tree.leaves(actual), jax.tree.leaves(weights), strict=True)
        return sum((a * b).sum() for a, b in pairs)

    @jax.jit
    def slopes(data: Any) -> Any:
        loss = lambda chunk, data: total(run(data, read=READ, valid=VALID, chunk=chunk))
        chunks = (COUNT, 1) if full_mode() else (COUNT,)
        return [jax.grad(functools.partial(loss, chunk))(data) for chunk in chunks]

    of_batches, *others = slopes(data)
    small, direction = 1e-5, {name: rng.normal(size=x.shape) for name, x in data.items()}
    ends = [
        total(reference({n: x + e * direction[n] for n, x in data.items()}, READ, VALID))
        for e in (small, -small)
    ]
    along = sum((of_batches[name] * direction[name]).sum() for name in data)
    np.testing.assert_allclose(along, (ends[0] - ends[1]) / (2 * small), rtol=1e-6)
    for name, slope in of_batches.items():
        scale = np.abs(slope).max()
        assert scale > 1e-3
        for of_tokens in others:
            np.testing.assert_allclose(of_tokens[name], slope, rtol=0, atol=1e-10 * scale)


@pytest.mark.quick
def test_without_norm_and_residual_it_is_a_delta_rule_or_linear_attention(float64: None) -> None:
    """A linear model, whose b is one more row of W under keys (k, 1). Mini-batches of one token: the
    delta rule with beta = eta and keys as long as they are. All of the text in one, from W = 0, all
    of eta alike: linear attention, eta times.
    """
    data = drawn("linear")
    q, k, v, eta = (data[name] for name in EXAMPLES)
    query, keys = (np.concatenate([x, np.ones((B, H, T, 1))], axis=-1) for x in (q, k))
    first = np.concatenate([data["w0"], data["b0"]], axis=2)

    def learnt(eta: Any, state: Any, shares: Any) -> Any:  # v + k: the target is v - k
        return descend(Examples(q, k, v + k, eta), state, lambda x: x, shares, chunk=0)[0] - q

    @jax.jit
    def found() -> Any:
        model = ((data["w0"][0], data["b0"][0]),)
        equal = jnp.broadcast_to(first[:1], first.shape)
        nothing = jax.tree.map(jnp.zeros_like, model)
        return (
            (
                learnt(eta, begun(model, B), jnp.ones(1)),
                recur(query, keys, eta * v, None, eta * keys, state=equal)[0],
            ),
            (learnt(0.1 + 0 * eta, begun(nothing, B), jnp.ones(T)), 0.1 * recur(query, keys, v)[0]),
        )

    for one, other in found():
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
