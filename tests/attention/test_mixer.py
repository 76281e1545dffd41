"""Every mixer that reads a sequence from left to right gives the whole in pieces, sees no future and
no padding, and is what its oracle says: attention that keeps a cache, and mixers that are none. For one of
your own: `--mechanism=my_file:MyMixer`.
"""

import dataclasses
import functools
import importlib
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.mixer import Mixer
from attnlab.attention.needs import Need
from attnlab.attention.protocol import Attention
from attnlab.attention.view import CAUSAL
from attnlab.errors import UserError
from attnlab.mixers import MIXERS
from tests.attention.cases import (
    CASES,
    NAMES,
    TOLERANCE,
    WIDTH,
    inputs,
    kept,
    make,
    parameters,
    stepwise,
    wide,
)
from tests.mixers.oracles import MIXER_ORACLES
from tests.rounding import assert_close

OWN = "tests.attention.running_mean:RunningMean"
LENGTH = 7
ATTENTION = ('multihead-{"heads": 3}', 'single-{"score": {"name": "coverage"', "multi_step")
ATTENTION += ("linear",)  # a state in place of a memory


def mixes(name: str, config: dict[str, Any]) -> bool:
    """Whether it declares that it reads a text piece by piece."""
    can = make(name, config).capabilities
    return "self" in can.roles and "causal" in can.directions and can.cache and stepwise(config)


OTHERS = [
    ("recurrent", {}),
    ("recurrent", {"cell": "gru", "state": 5}),
    ("recurrent", {"cell": "tanh"}),
    ("convolution", {"kernel": 3}),
    ("convolution", {"kernel": 1}),
    ("performer", {"heads": 3, "features": 7}),
    ("performer", {"heads": 2, "features": 5, "map": "relu"}),
    ("average", {"hidden": 5}),
    ("average", {"hidden": 0}),
    ("reformer", {"heads": 3, "buckets": 4, "chunk": 2, "rounds": 2}),
    ("reformer", {"heads": 2, "buckets": 1, "chunk": 3, "rounds": 1}),
    ("retention", {"heads": 2, "chunk": 3}),
    ("gated_linear", {"heads": 2, "rank": 3, "chunk": 4}),
    ("hgrn", {"heads": 3, "least": 0.2}),
    ("mamba", {"state": 5, "head_width": 8, "kernel": 3}),
    ("delta_net", {"heads": 2, "kernel": 3, "chunk": 3}),
    (
        "gated_delta_net",
        {"heads": 3, "kernel": 2, "activation": "none", "largest": 2.0, "chunk": 4},
    ),
    ("kda", {"heads": 2, "kernel": 3, "chunk": 3}),
    ("delta_product", {"heads": 2, "kernel": 1, "chunk": 4}),
    ("gated_delta_product", {"heads": 3, "kernel": 2, "count": 2, "chunk": 4}),
    ("rwkv7", {"heads": 2, "rank": 3, "chunk": 4}),
    ("mlstm", {"heads": 2, "chunk": 3}),
    ("ttt_linear", {"heads": 2, "mini_batch": 3, "kernel": 2}),
    ("ttt_mlp", {"heads": 3, "mini_batch": 4, "kernel": 3, "expansion": 2, "chunk": 2}),
]
GIVEN = [case for case in zip(CASES, NAMES, strict=True) if mixes(*case[0])]
CHOSEN = any(":" in name for (name, _), _ in GIVEN)  # one of somebody's own alone
if not CHOSEN:  # `mix` is one function for all attention: a few that differ in what they carry
    GIVEN = [case for case in GIVEN if case[1].startswith(ATTENTION)]
EVERY = [pytest.param(*case, id=label) for case, label in GIVEN]
if not CHOSEN:
    EVERY += [pytest.param(*one, id=f"{one[0]}-{json.dumps(one[1])}") for one in OTHERS]
    EVERY += [pytest.param(OWN, {}, id="running_mean")]
# the tests of a case come together
every = pytest.mark.parametrize(("name", "config"), EVERY, scope="module")


@kept
def prepared(name: str, config: dict[str, Any]) -> tuple[Mixer, Any, Any, np.ndarray]:
    """Mixer, parameters, compiled (params, x, valid, state) to y and state, and x [3,7,d]."""
    module = make(name, config)
    x, _, _ = inputs(queries=LENGTH)

    @jax.jit
    def mix(params: Any, x: Any, valid: Any = None, state: Any = None) -> Any:
        view = dataclasses.replace(CAUSAL, valid=valid)
        return module.apply({"params": params}, x, view, state, method="mix")

    return module, parameters(module), mix, x


@every
@pytest.mark.product("promises")
def test_pieces_give_what_the_whole_gives(name: str, config: dict[str, Any]) -> None:
    """From the beginning, token by token, and with padding in between."""
    module, params, mix, x = prepared(name, config)
    valid = np.random.default_rng(2).random((3, LENGTH)) < 0.7
    valid[:, 0] = True
    whole = mix(params, x, valid)[0]
    begun = module.apply({"params": params}, 3, 9, x.dtype, method="begin")
    for pieces in ((3, 3, 1), (1,) * LENGTH):
        state, first = begun, 0
        for piece in pieces:
            here = slice(first, first + piece)
            y, state = mix(params, x[:, here], valid[:, here], state)
            assert_close(y, whole[:, here], eps=8)
            first += piece


@every
@pytest.mark.product("promises")
def test_no_token_sees_a_later_one(name: str, config: dict[str, Any]) -> None:
    _, params, mix, x = prepared(name, config)
    t = 4

    @jax.jit
    def sloped(x: Any) -> Any:
        total = lambda x: (y := mix(params, x)[0], y[:, :t].sum())[::-1]
        return jax.grad(total, has_aux=True)(x)

    slope, before = map(np.asarray, sloped(x))
    changed = x.copy()
    changed[:, t:] = np.random.default_rng(5).normal(size=x[:, t:].shape)
    after = np.asarray(sloped(changed)[1])
    np.testing.assert_allclose(after[:, :t], before[:, :t], atol=TOLERANCE["float32"])
    assert np.abs(after[:, t:] - before[:, t:]).max() > 1e-3
    assert (slope[:, t:] == 0.0).all() and np.abs(slope).max() > 0.0


@every
@pytest.mark.product("promises")
def test_padding_and_other_rows_change_nothing(name: str, config: dict[str, Any]) -> None:
    _, params, mix, x = prepared(name, config)
    valid = np.arange(LENGTH)[None] < np.array([LENGTH, 2, 4])[:, None]
    together = mix(params, x, valid)[0]
    dirty = np.where(valid[..., None], x, np.float32(1e4))
    actual = mix(params, dirty, valid)[0]
    alone = mix(params, x[2:, :4])[0]
    assert_close(together[2:, :4], alone, eps=8)
    other = np.random.default_rng(5).normal(size=x.shape).astype(np.float32)
    for row, n in enumerate((LENGTH, 2, 4)):
        np.testing.assert_allclose(actual[row, :n], together[row, :n], atol=TOLERANCE["float32"])
        mine = mix(params, np.where(np.arange(3)[:, None, None] == row, x, other), valid)[0]
        np.testing.assert_allclose(mine[row, :n], together[row, :n], atol=TOLERANCE["float32"])


@every
@pytest.mark.product("shapes")
def test_a_state_is_as_large_as_it_is_declared(name: str, config: dict[str, Any]) -> None:
    """As large for any room and after any number of tokens if it is "constant"; else it has room
    for a thousand. Its arrays lead with the rows, and mixing keeps their kinds.
    """
    module, params, mix, x = prepared(name, config)

    def begun(room: int) -> Any:
        return jax.eval_shape(
            lambda: module.apply({"params": params}, 3, room, jnp.float32, method="begin")
        )

    kinds = [jax.tree.map(lambda one: (one.shape, str(one.dtype)), begun(n)) for n in (9, 1000)]
    assert (kinds[0] == kinds[1]) == (module.capabilities.state == "constant")
    after = jax.eval_shape(functools.partial(mix, params), x, None, begun(9))[1]
    assert jax.tree.map(lambda one: (one.shape, str(one.dtype)), after) == kinds[0]
    assert all(one.ndim == 0 or one.shape[0] == 3 for one in jax.tree.leaves(after))


@every
@pytest.mark.product("shapes")
def test_dtypes_are_kept(name: str, config: dict[str, Any]) -> None:
    _, params, mix, x = prepared(name, config)
    low = jax.tree.map(lambda one: jnp.asarray(one, jnp.bfloat16), (params, x))
    actual = jax.eval_shape(mix, *low)[0]
    assert actual.dtype == jnp.bfloat16 and actual.shape == (3, LENGTH, WIDTH)


@every
def test_values_equal_the_oracle_in_float64(
    name: str, config: dict[str, Any], float64: None
) -> None:
    """Of a mixer that is no attention; those that are have theirs in test_conformance.py."""
    module, params, _, x = prepared(name, config)
    if isinstance(module, Attention) and name not in MIXER_ORACLES:
        call = functools.partial(module.apply, {"params": wide(params)})
        both = jax.jit(lambda x: (call(x, x, CAUSAL).context, call(x, method="mix")[0]))
        whole, actual = both(wide(x))  # type: ignore[union-attr]
        np.testing.assert_array_equal(actual, whole)
        return
    beside = importlib.import_module(type(module).__module__)
    oracle = MIXER_ORACLES.get(name, getattr(beside, "oracle", None))
    if oracle is None:
        pytest.skip("compared with no oracle: put a function `oracle` beside the mixer")
    valid = np.random.default_rng(2).random((3, LENGTH)) < 0.7
    view = dataclasses.replace(CAUSAL, valid=valid)
    look = lambda params, x: module.apply({"params": params}, x, view, method="mix")[0]
    actual = np.asarray(jax.jit(look)(wide(params), wide(x)))
    expected = oracle(wide(params), config, wide(x), valid)
    real = ~np.isnan(expected)  # an oracle may leave out padding
    assert real[valid].all()
    np.testing.assert_allclose(actual[real], expected[real], rtol=0, atol=TOLERANCE["float64"])


@every
@pytest.mark.product("shapes")
def test_a_slot_that_reads_takes_attention_alone(name: str, config: dict[str, Any]) -> None:
    mechanism: Any = MIXERS.resolve(name)
    slot = Need(
        role="self", direction="causal", cache=True, stepwise=True, history=True, maps=False
    )
    dataclasses.replace(slot, mixes=True).check(mechanism, "slot", config)
    if issubclass(mechanism, Attention):  # what is declared of it is true
        verbs = ("extend", "extend_pairs", "arrays")
        extends = any(getattr(mechanism, one) is not getattr(Attention, one) for one in verbs)
        assert mechanism.capabilities.grows == extends
    if issubclass(mechanism, Attention) and not mechanism.capabilities.grows:
        with pytest.raises(UserError, match=f"{mechanism.__name__} .*while it grows"):
            slot.check(mechanism, "slot", config)
    elif issubclass(mechanism, Attention):
        slot.check(mechanism, "slot", config)
    else:
        with pytest.raises(UserError, match=f"slot: {mechanism.__name__} mixes a sequence"):
            slot.check(mechanism, "slot", config)


def test_texts_that_share_a_row_are_refused() -> None:
    x, _, _ = inputs(queries=LENGTH)
    view = dataclasses.replace(CAUSAL, segments=jnp.zeros((3, LENGTH), jnp.int32))
    for name, config in OTHERS:
        module = make(name, config)
        init = functools.partial(module.init, jax.random.key(0), method="mix")
        with pytest.raises(UserError, match="would share its state"):
            jax.eval_shape(lambda init=init: init(x, view))
