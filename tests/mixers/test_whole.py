"""Every mixer of whole texts keeps its promises, beside float64 loops; and approximate attention has the
values and gradients of other people's implementations, the numbers of `golden.npz`.
"""

import dataclasses
import functools
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import unflatten_dict

from attnlab.api.costs import cost
from attnlab.attention.mechanisms.linformer import Linformer
from attnlab.attention.needs import Need
from attnlab.attention.view import CAUSAL, EVERYTHING, View
from attnlab.attention.visibility import Window
from attnlab.errors import UserError
from attnlab.mixers import MIXERS
from attnlab.mixers.longformer import Longformer
from attnlab.mixers.performer import Performer
from attnlab.mixers.reformer import Reformer
from attnlab.mixers.whole import Nystrom
from tests.attention.cases import TOLERANCE, WIDTH, committed, inputs, kept, make, parameters, wide
from tests.attention.slopes import assert_slopes, inner
from tests.mixers import golden
from tests.mixers.oracles import WHOLE_ORACLES

LENGTH = 9
CASES: list[tuple[str, dict[str, Any]]] = [
    ("fourier", {}),
    ("longformer", {"heads": 3, "window": 2, "tokens": (0, 5, 40)}),
    ("longformer", {"heads": 2, "window": 4, "tokens": ()}),
    ("nystrom", {"heads": 3, "landmarks": 3, "steps": 4, "taps": 3}),
    ("nystrom", {"heads": 2, "landmarks": 6, "steps": 6, "taps": 0}),
    ("reformer", {"heads": 3, "buckets": 4, "chunk": 2, "rounds": 2}),
    ("reformer", {"heads": 2, "buckets": 6, "chunk": 3, "rounds": 1, "seed": 5}),
    ("performer", {"heads": 3, "features": 7, "map": "positive"}),
    ("performer", {"heads": 2, "features": 5, "map": "relu", "orthogonal": False, "seed": 3}),
]
NAMES = [f"{name}-{json.dumps(config)}" for name, config in CASES]
# the tests of a case come together
every = pytest.mark.parametrize(("name", "config"), CASES, ids=NAMES, scope="module")
promise = pytest.mark.product("promises")
ENTRIES = ("fourier", "longformer", "nystrom")


@kept
def prepared(name: str, config: dict[str, Any]) -> tuple[Any, Any, Any, np.ndarray, np.ndarray]:
    """Mixer, parameters, compiled (params, x, valid) to y, x [3,9,d], and a `valid` with holes."""
    config = {field: tuple(one) if isinstance(one, list) else one for field, one in config.items()}
    module = make(name, config)
    x, _, _ = inputs(queries=LENGTH)
    valid = np.random.default_rng(2).random((3, LENGTH)) < 0.7
    valid[2] = np.arange(LENGTH) < 1

    @jax.jit
    def mix(params: Any, x: Any, valid: Any = None) -> Any:
        return module.apply({"params": params}, x, View(valid=valid), method="mix")[0]

    return module, parameters(module), mix, x, valid


@functools.lru_cache(maxsize=1)
def slope_of(mix: Any) -> Any:
    """Compiled (params, x, valid) to the slope of the sum of squares of y, for x."""
    loss = lambda params, x, valid: (mix(params, x, valid) ** 2).sum()
    return jax.jit(jax.grad(loss, argnums=1))


def assert_near(found: Any, expected: Any, bound: float) -> None:
    """Equal within a bound, which is relative where the largest entry is above 1."""
    size = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=bound * size)


@every
@promise
@pytest.mark.quick
def test_values_equal_the_oracle(name: str, config: dict[str, Any]) -> None:
    _, params, mix, x, valid = prepared(name, config)
    for known in (valid, np.ones_like(valid)):
        expected = WHOLE_ORACLES[name](wide(params), config, wide(x), known)
        assert_near(mix(params, x, known), expected, TOLERANCE["float32"])
    assert_near(mix(params, x), expected, TOLERANCE["float32"])


@every
def test_float64_equals_the_oracle_and_both_modes_of_differentiation_hold(
    name: str, config: dict[str, Any], float64: None
) -> None:
    _, params, mix, x, valid = prepared(name, config)
    params, x = wide(params), wide(x)
    rng, given = np.random.default_rng(0), (params, x)
    weights = rng.normal(size=x.shape)
    toward = jax.tree.map(lambda one: rng.normal(size=one.shape), given)

    @jax.jit
    def both(given: Any, toward: Any, weights: Any) -> Any:
        run = lambda *given: mix(*given, valid)
        y, back = jax.vjp(run, *given)
        return y, jax.jvp(run, given, toward)[1], back(weights)

    y, forward, back = both(given, toward, weights)
    oracle = lambda params, x: WHOLE_ORACLES[name](params, config, x, valid)
    assert_near(y, oracle(*given), TOLERANCE["float64"])
    assert_slopes(back, given, lambda *given: inner(oracle(*given), weights))
    moved = lambda by: oracle(*jax.tree.map(lambda leaf, way: leaf + by * way, given, toward))
    slope, bound = (moved(1e-6) - moved(-1e-6)) / 2e-6, TOLERANCE["gradient"]
    np.testing.assert_allclose(forward, slope, rtol=bound, atol=bound)
    np.testing.assert_allclose(inner(forward, weights), inner(back, toward), rtol=1e-9, atol=1e-9)


@every
@promise
def test_padding_and_other_rows_change_nothing(name: str, config: dict[str, Any]) -> None:
    _, params, mix, x, _ = prepared(name, config)
    counts = (LENGTH, 1, 4)
    valid = np.arange(LENGTH)[None] < np.array(counts)[:, None]
    together = mix(params, x, valid)
    dirty = np.where(valid[..., None], x, np.float32(1e4))
    assert_near(mix(params, dirty, valid), together, TOLERANCE["float32"])
    longer = np.concatenate([dirty, np.full((3, 4, WIDTH), 1e4, np.float32)], axis=1)
    padded = mix(params, longer, np.pad(valid, ((0, 0), (0, 4))))
    assert_near(padded[:, :LENGTH], together, TOLERANCE["float32"])
    assert_near(together[2:, :4], mix(params, x[2:, :4]), TOLERANCE["float32"])
    assert (np.asarray(together)[~valid] == 0).all()
    slope = slope_of(mix)(params, dirty, valid)
    assert (np.asarray(slope)[~valid] == 0.0).all() and np.isfinite(slope).all()


@every
@promise
def test_without_tokens_it_is_zeros(name: str, config: dict[str, Any]) -> None:
    _, params, mix, x, _ = prepared(name, config)
    dead = np.zeros((3, LENGTH), bool)
    slope = slope_of(mix)(params, x, dead)
    assert (np.asarray(mix(params, x, dead)) == 0).all() and (np.asarray(slope) == 0).all()
    for rows, tokens in ((2, 0), (0, 3)):
        none = jnp.zeros((rows, tokens, WIDTH))
        known = jnp.ones((rows, tokens), bool)
        assert jax.eval_shape(mix, params, none, known).shape == none.shape


@every
@promise
def test_bfloat16_stays_close(name: str, config: dict[str, Any]) -> None:
    _, params, mix, x, valid = prepared(name, config)
    low = jax.tree.map(lambda one: one.astype(jnp.bfloat16), (params, x))
    actual = mix(*low, valid)
    exact = mix(*jax.tree.map(lambda one: one.astype(np.float32), low), valid)
    assert actual.dtype == jnp.bfloat16
    if name != "reformer":  # a rounded query may fall into another bucket
        assert_near(np.asarray(actual, np.float32), exact, TOLERANCE["bfloat16"])


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.quick
def test_other_slots_and_views_are_refused_by_name(name: str) -> None:
    mechanism: Any = MIXERS.resolve(name)
    label = mechanism.__name__
    Need(role="self", mixes=True, maps=False).check(mechanism, "slot")
    for need, said in (
        (Need(role="self", direction="causal", mixes=True, maps=False), "direction 'causal'"),
        (Need(role="self", mixes=True, maps=False, dense=True), "a visibility of its own"),
        (Need(role="cross", maps=False), "cannot attend to another"),
    ):
        with pytest.raises(UserError, match=f"slot: {label} .*{said}"):
            need.check(mechanism, "slot")
    module, x = mechanism(width=WIDTH), jnp.zeros((2, 4, WIDTH))
    packed = dataclasses.replace(EVERYTHING, segments=jnp.zeros((2, 4), jnp.int32))
    for view in (CAUSAL, View(Window(2)), packed):
        with pytest.raises(UserError, match=f"{label} mixes all real tokens"):
            module.init(jax.random.key(0), x, view, method="mix")
    with pytest.raises(UserError, match=f"{label} mixes whole texts"):
        module.init(jax.random.key(0), 2, 4, jnp.float32, method="begin")


@pytest.mark.parametrize("name", [*ENTRIES, "reformer", "average", "performer"])
@pytest.mark.quick
def test_its_work_grows_with_the_length(name: str) -> None:
    mixer: Any = MIXERS.resolve(name)
    given: Any = {"direction": min(mixer.capabilities.directions)}
    long = [cost(mixer(width=64), t, **given).flops for t in (2**14, 2**15)]
    assert 2.0 * 0.9 < long[1] / long[0] < 2.0 * 1.1  # linear in T


class DrawnPerformer(Performer):
    """With the features of the case."""

    def draw_directions(self) -> Any:
        """See `Performer.draw_directions`."""
        return committed(golden.FILE)["performer-causal" if self.seed else "performer"][
            "params/turns"
        ]


class DrawnReformer(Reformer):
    """With the hashes of the case."""

    def turns(self) -> Any:
        """See `Reformer.turns`."""
        return committed(golden.FILE)["reformer"]["params/turns"]


MODULES: dict[str, Any] = {
    "performer": DrawnPerformer(golden.D, heads=golden.H, features=5),
    "performer-causal": DrawnPerformer(golden.D, heads=golden.H, features=5, seed=1),
    "linformer": Linformer(golden.D, heads=golden.H, rank=5, length=golden.T + 3),
    "nystrom": Nystrom(golden.D, heads=golden.H, landmarks=4, taps=5),
    "longformer": Longformer(golden.D, heads=golden.H, window=4, tokens=(0,)),
    "reformer": DrawnReformer(golden.D, heads=1, buckets=4, chunk=4, rounds=2),
}


DEFAULT = ("longformer", "performer-causal")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in DEFAULT else pytest.mark.full) for name in MODULES],
)
def test_values_and_gradients_are_those_of_others(name: str, float64: None) -> None:
    case = committed(golden.FILE)[name]
    params = unflatten_dict(case, sep="/")["params"]
    params = {part: leaf for part, leaf in params.items() if part not in ("turns", "valid")}
    view = CAUSAL if name.endswith("causal") else EVERYTHING
    if "params/valid" in case:
        view = View(valid=jnp.asarray(case["params/valid"]))

    def found(x: Any) -> Any:
        y = MODULES[name].apply({"params": params}, x, view, method="mix")[0]
        return (y * case["direction"]).sum(), y

    grad, y = jax.jit(jax.grad(found, has_aux=True))(case["x"])
    np.testing.assert_allclose(y, case["y"], rtol=0, atol=TOLERANCE["float64"])
    np.testing.assert_allclose(grad, case["grad"], rtol=0, atol=TOLERANCE["float64"])
