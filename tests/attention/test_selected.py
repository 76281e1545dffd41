"""An indexer that keeps all is multi-head attention, gathered choices equal masked ones, and
decoding with a cache equals the full pass. Values, gradients and promises of each stand in
`test_alignments.py` and `test_conformance.py`.
"""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.kernels import gathered
from attnlab.attention.mechanisms import indexer, native_sparse
from attnlab.attention.needs import Need
from attnlab.attention.protocol import MAPS
from attnlab.attention.view import CAUSAL, View
from attnlab.errors import UserError
from tests.attention.cases import TOLERANCE, WIDTH, make, parameters, wide
from tests.attention.oracles.selected import indexed

pytestmark = pytest.mark.usefixtures("float64")
EXACT = TOLERANCE["float64"]
LENGTH = 12


def assert_close(found: Any, expected: Any, off: float = EXACT) -> None:
    """Equal up to rounding in float64."""
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=off), found, expected)


def attend(name: str, config: dict[str, Any], params: Any, x: Any, valid: Any = None) -> Any:
    """Context, weights and losses of causal self-attention, one program."""
    module = make(name, config)

    @jax.jit
    def run(params: Any, x: Any) -> Any:
        reading = module.apply({"params": params}, x, x, CAUSAL, valid, mutable=[MAPS])[0]
        return reading.context, reading.weights, reading.losses

    return run(params, x)


def sequence(length: int = LENGTH) -> np.ndarray:
    """[2,T,WIDTH] float64."""
    return np.random.default_rng(3).normal(size=(2, length, WIDTH))


def of(name: str, config: dict[str, Any]) -> Any:
    return wide(parameters(make(name, config)))


@pytest.mark.quick
def test_whole_rows_are_refused_by_kernels_of_blocks() -> None:
    need = Need(role="self", direction="causal")
    mechanism = type(make("multihead", {"heads": 3}))
    for kernel in ("blockwise", "xla"):
        chosen = {"positions": "cope", "kernel": kernel}
        with pytest.raises(UserError, match=f"slot.kernel: kernel '{kernel}' never has the whole"):
            need.check(mechanism, "slot", chosen)
    need.check(mechanism, "slot", {"positions": "cope", "kernel": "auto"})


def test_the_blocks_of_paths_change_nothing() -> None:
    config, x = {"heads": 4, "key_heads": 2}, sequence()
    params = of("path", config)
    whole = attend("path", config | {"block": 16}, params, x)[:2]
    for block in (1, 3, 5):
        assert_close(attend("path", config | {"block": block}, params, x)[:2], whole)


def test_an_indexer_that_keeps_all_is_multihead_attention() -> None:
    x, config = sequence(), {"heads": 4, "keep": LENGTH}
    params = of("lightning_indexer", config)
    rest = {name: leaf for name, leaf in params.items() if name != "indexer"}
    expected = attend("multihead", {"heads": 4}, rest, x)[:2]
    assert_close(attend("lightning_indexer", config, params, x)[:2], expected)
    warming = config | {"keep": 2, "selects": False}
    assert_close(attend("lightning_indexer", warming, params, x)[:2], expected)


def test_the_loss_of_an_indexer_is_the_divergence_and_reaches_it_alone() -> None:
    x, config = sequence(), {"heads": 4, "keep": 3}
    params, module = of("lightning_indexer", config), make("lightning_indexer", config)

    def of_loss(params: Any, x: Any) -> Any:
        reading: Any = module.apply({"params": params}, x, x, CAUSAL)
        return reading.losses["indexer"].sum(), reading.losses["indexer"]

    slopes, loss = jax.jit(jax.grad(of_loss, argnums=(0, 1), has_aux=True))(params, x)
    moves = lambda tree: any(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(tree))
    reached = {name for name, slope in slopes[0].items() if moves(slope)}
    assert reached == {"indexer"} and (np.asarray(slopes[1]) == 0.0).all()
    weights = np.asarray(attend("lightning_indexer", config, params, x)[1]).mean(axis=1)
    rated = np.where(weights > 0, indexed(params["indexer"], config, x, x), -np.inf)
    q = np.exp(rated - rated.max(-1, keepdims=True))
    q /= q.sum(-1, keepdims=True)
    p = np.where(weights > 0, weights, 1.0)
    assert_close(
        loss, np.where(weights > 0, p * np.log(p / np.where(weights > 0, q, 1.0)), 0.0).sum(-1)
    )


@pytest.fixture
def gathering(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`gathering(True)`: whatever may be gathered is, a few queries at a time; False: nothing is."""

    def choose(yes: bool) -> None:
        for module in (gathered, native_sparse, indexer):
            monkeypatch.setattr(module, "SPARSE", 0 if yes else 10**6)
        monkeypatch.setattr(gathered, "NUMBERS", 400)

    yield choose


MOBA = {"name": "moba", "block": 3, "blocks": 2}
SIZES = {"compress": 4, "stride": 2, "block": 2, "blocks": 4, "window": 3}
GATHERED: list[tuple[str, dict[str, Any]]] = [
    ("multihead", {"heads": 6, "key_heads": 2, "positions": "rope", "alignment": MOBA}),
    ("lightning_indexer", {"heads": 4, "key_heads": 2, "keep": 3}),
    ("native_sparse", {"heads": 4, "key_heads": 2} | SIZES),
]


@pytest.mark.product("gathered")
@pytest.mark.parametrize("decodes", [False, True], ids=["slopes", "decoding"])
@pytest.mark.parametrize(("name", "config"), GATHERED, ids=[name for name, _ in GATHERED])
def test_gathered_keys_equal_masked_ones_in_values_gradients_losses_and_decoding(
    name: str, config: dict[str, Any], decodes: bool, gathering: Any
) -> None:
    module, x = make(name, config), sequence()
    params, valid = of(name, config), np.arange(LENGTH) < np.array([[LENGTH], [7]])

    def total(params: Any, x: Any) -> tuple[Any, Any]:
        reading: Any = module.apply({"params": params}, x, x, CAUSAL, valid)
        losses = sum((one * valid).sum() for one in reading.losses.values())
        return ((reading.context * valid[..., None]) ** 2).sum() + losses, reading.context

    def decoded(params: Any, x: Any) -> Any:
        call = functools.partial(module.apply, {"params": params})
        memory = call(x[:, :-2], capacity=LENGTH, method="remember")
        contexts = []
        for t in (LENGTH - 2, LENGTH - 1):
            memory = call(memory, x[:, t : t + 1], method="extend")
            contexts.append(call(x[:, t : t + 1], memory, CAUSAL, method="read").context)
        return jnp.concatenate(contexts, axis=1)

    slopes = jax.value_and_grad(total, argnums=(0, 1), has_aux=True)
    both = []
    for gathers in (True, False):
        gathering(gathers)
        program = jax.jit(lambda *given: (decoded if decodes else slopes)(*given))
        lowered = program.lower(params, x)
        assert decodes or ("while" in lowered.as_text()) == gathers  # some queries at a time
        both.append(lowered.compile()(params, x))
    assert_close(*both)
    if decodes:
        full: Any = jax.jit(lambda p, x: module.apply({"params": p}, x, x, CAUSAL))(params, x)
        assert_close(both[0], full.context[:, -2:])


def test_the_kernel_gathered_refuses_by_name_what_it_cannot_compute() -> None:
    moba = {"heads": 2, "alignment": {"name": "moba", "block": 2}, "kernel": "gathered"}
    x = np.zeros((1, 4, WIDTH))
    for more, view, words in (
        ({"positions": "alibi"}, CAUSAL, "without a bias"),
        ({"positions": "cope"}, CAUSAL, "whole rows"),
        ({}, View(positions=0), "the causal rule only"),
    ):
        with pytest.raises(UserError, match=f"MultiHead: kernel 'gathered' .*{words}"):
            init = functools.partial(make("multihead", moba | more).init, view=view)
            jax.eval_shape(init, jax.random.key(0), x, x)
