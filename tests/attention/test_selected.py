"""Selected and reshaped softmax equal plainer attention where they should, gathered choices equal
masked ones, and decoding with a cache equals the full pass. Values, gradients and promises of each stand in
`test_alignments.py` and `test_conformance.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.alignments import ALIGNMENTS
from attnlab.attention.kernels import gathered
from attnlab.attention.mechanisms import indexer, native_sparse
from attnlab.attention.needs import Need
from attnlab.attention.positions import POSITIONS
from attnlab.attention.protocol import MAPS
from attnlab.attention.view import CAUSAL, View
from attnlab.errors import UserError
from tests.attention.cases import TOLERANCE, WIDTH, inputs, make, parameters, wide
from tests.attention.oracles.selected import indexed

derived = pytest.mark.full  # follows from the oracles, which a default run asks

pytestmark = pytest.mark.usefixtures("float64")
EXACT = TOLERANCE["float64"]
LENGTH = 12


def aligned(name: str, scores: np.ndarray, params: Any = None, **fields: Any) -> np.ndarray:
    """Weights of scores [B,H,T,T] in a causal sequence."""
    steps = jnp.arange(scores.shape[-1])
    view = CAUSAL.among(steps, steps)
    module = ALIGNMENTS.resolve(name)(**fields)
    run = jax.jit(
        lambda s: module.apply({"params": params or {}}, s, view.allows(steps, steps), view)
    )
    return np.asarray(run(scores))


def scores(seed: int = 0) -> np.ndarray:
    """Unit normal, [2,3,7,7]."""
    return np.random.default_rng(seed).normal(size=(2, 3, 7, 7))


def assert_close(found: Any, expected: Any, off: float = EXACT) -> None:
    """Equal up to rounding in float64."""
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=off), found, expected)


SOFTMAX = [
    ("top_k", {"keep": 7}, None, 0.0),
    ("top_k", {"keep": 9}, None, 0.0),
    ("moba", {"block": 2, "blocks": 4}, None, 0.0),
    ("selective", {}, None, -40.0),
    ("softpick", {}, None, 40.0),
]


@derived
@pytest.mark.quick
@pytest.mark.parametrize(("name", "fields", "params", "shift"), SOFTMAX)
def test_alignments_that_are_softmax(name: str, fields: Any, params: Any, shift: float) -> None:
    """All keys or blocks are taken; no score of the first head is above zero; all scores are large."""
    given = scores() + shift
    assert_close(aligned(name, given, params, **fields), aligned("softmax", given))


@derived
def test_scalable_softmax_is_softmax_where_its_factor_is_one() -> None:
    found = aligned("scalable_softmax", scores(), {"s": np.full(3, 1 / np.log(5))})
    assert_close(found[:, :, 4], aligned("softmax", scores())[:, :, 4])  # query 4 sees five keys
    assert np.abs(found - aligned("softmax", scores()))[:, :, 6].max() > 1e-3


@derived
def test_the_best_key_alone_is_hard_attention_and_the_own_block_alone_is_local() -> None:
    assert_close(aligned("top_k", scores(), keep=1), aligned("hard", scores()))
    steps = np.arange(7)
    outside = steps[:, None] // 2 != steps // 2
    local = aligned("softmax", np.where(outside, -1e9, scores()))
    assert_close(aligned("moba", scores(), block=2, blocks=1), local)


@derived
def test_sticks_of_equal_shares_halve_and_what_is_left_completes_a_row() -> None:
    apart = np.arange(7)[:, None] - np.arange(7)
    halves = np.where(apart > 0, 0.5 ** np.abs(apart), 0.0)
    assert_close(aligned("stick_breaking", 0 * scores())[0, 0], halves)
    rest = np.where(apart > 0, 1 / (1 + np.exp(scores())), 1.0).prod(axis=-1)
    assert_close(aligned("stick_breaking", scores()).sum(axis=-1) + rest, np.ones((2, 3, 7)))


@derived
def test_softpick_gives_nothing_below_zero_and_is_no_function_of_differences() -> None:
    below = -np.abs(scores())
    assert (aligned("softpick", below) == 0.0).all()
    assert np.abs(aligned("softpick", scores() + 1) - aligned("softpick", scores())).max() > 1e-2


@derived
def test_selective_attention_never_takes_the_last_two_tokens_nor_the_first() -> None:
    loud = np.abs(scores()) * 20
    loud[:, 1:] = 0.0  # the other heads would look evenly at all keys
    found = aligned("selective", loud)[:, 1]
    for i in range(3, 7):
        kept = found[:, i, [0, i - 1, i]]
        assert_close(kept, np.broadcast_to(kept[:, :1], kept.shape))
        assert (found[:, i, 1 : i - 1] < kept[:, :1]).all()


def attend(name: str, config: dict[str, Any], params: Any, x: Any, valid: Any = None) -> Any:
    """Context, weights and losses of causal self-attention, one program."""
    module = make(name, config)

    @jax.jit
    def run(params: Any, x: Any) -> Any:
        reading = module.apply({"params": params}, x, x, CAUSAL, valid, mutable=[MAPS])[0]
        return reading.context, reading.weights, reading.losses

    return run(params, x)


def sequence(length: int = LENGTH) -> np.ndarray:
    """[2,T,WIDTH] float64, the first channel 1 for parameters that are constants."""
    x = np.random.default_rng(3).normal(size=(2, length, WIDTH))
    x[..., 0] = 1.0
    return x


def of(name: str, config: dict[str, Any]) -> Any:
    return wide(parameters(make(name, config)))


@derived
def test_forget_gates_that_are_open_or_constant() -> None:
    """No positions, and ALiBi with f = exp(-slope)."""
    config, x = {"heads": 4, "key_heads": 2}, sequence()
    params = of("forgetting", config)
    rest = {name: leaf for name, leaf in params.items() if name != "w_forget"}
    still = {"kernel": np.zeros((WIDTH, 4)), "bias": np.full(4, 50.0)}
    assert_close(
        attend("forgetting", config, rest | {"w_forget": still}, x)[:2],
        attend("multihead", config, rest, x)[:2],
    )
    slopes = 2.0 ** (-2.0 * np.arange(1, 5))
    constant = still | {"bias": -np.log(np.expm1(slopes))}
    assert_close(
        attend("forgetting", config, rest | {"w_forget": constant}, x)[:2],
        attend("multihead", config | {"positions": "alibi"}, rest, x)[:2],
    )


@derived
def test_counts_of_every_key_are_shaw_distances_and_an_empty_table_is_nothing() -> None:
    scheme = POSITIONS.resolve("cope")(count=4)
    rng, steps = np.random.default_rng(0), jnp.arange(6)
    q, table = rng.normal(size=(2, 3, 6, 5)), rng.normal(size=(4, 5))
    certain = np.full((2, 3, 6, 6), 60.0)  # gates of 1 to the last bit
    mask = CAUSAL.allows(steps, steps)
    row = np.clip(np.arange(6)[:, None] - np.arange(6) + 1, 0, 3)
    for one in (table, 0 * table):
        given = q, certain, mask, CAUSAL.among(steps, steps), 0.5
        found = scheme.apply({"params": {"table": one}}, *given, method="of_rows")
        expected = certain + 0.5 * np.einsum("bhid,ijd->bhij", q, one[row])
        assert_close(np.where(mask, found, 0.0), np.where(mask, expected, 0.0))


@pytest.mark.quick
def test_whole_rows_are_refused_by_kernels_of_blocks() -> None:
    need = Need(role="self", direction="causal")
    mechanism = type(make("multihead", {"heads": 3}))
    for kernel in ("blockwise", "xla"):
        chosen = {"positions": "cope", "kernel": kernel}
        with pytest.raises(UserError, match=f"slot.kernel: kernel '{kernel}' never has the whole"):
            need.check(mechanism, "slot", chosen)
    need.check(mechanism, "slot", {"positions": "cope", "kernel": "auto"})


@derived
def test_paths_of_nothing_are_no_positions_and_blocks_change_nothing() -> None:
    config, x = {"heads": 4, "key_heads": 2}, sequence()
    params = of("path", config)
    still = params | {
        "w_beta": {"kernel": 0 * params["w_beta"]["kernel"], "bias": np.full(2, -800.0)}
    }
    rest = {name: params[name] for name in ("w_query", "w_key", "w_value", "out")}
    assert_close(attend("path", config, still, x)[:2], attend("multihead", config, rest, x)[:2])
    whole = attend("path", config | {"block": 16}, params, x)[:2]
    for block in (1, 3, 5):
        assert_close(attend("path", config | {"block": block}, params, x)[:2], whole)


@derived
@pytest.mark.parametrize("shared", [1, 2, 4])
def test_constant_factors_are_grouped_heads(shared: int) -> None:
    """a one at one head of each group, times the rank."""
    heads, size, x = 4, WIDTH // 4, sequence()
    plain = of("multihead", {"heads": heads, "key_heads": shared})
    params = {"w_query": plain["w_query"], "out": plain["out"]}
    for side in ("w_key", "w_value"):
        of_heads = np.zeros((WIDTH, shared, heads))
        for head in range(heads):
            of_heads[0, head * shared // heads, head] = shared
        params[side] = {
            "of_heads": {"kernel": of_heads.reshape(WIDTH, -1)},
            "of_widths": {"kernel": plain[side]["kernel"].reshape(WIDTH, shared * size)},
        }
    config = {"heads": heads, "query_rank": 0, "key_rank": shared, "value_rank": shared}
    assert_close(
        attend("tensor_product", config, params, x)[:2],
        attend("multihead", {"heads": heads, "key_heads": shared}, plain, x)[:2],
    )


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


def opened(branch: int, heads: int) -> np.ndarray:
    """Kernel of gates that open one branch, by the constant channel."""
    kernel = np.full((WIDTH, 3, heads), 0.0)
    kernel[0] = -800.0
    kernel[0, branch] = 800.0
    return kernel.reshape(WIDTH, 3 * heads)


@derived
@pytest.mark.parametrize("branch", [0, 1, 2])
def test_each_branch_alone_is_grouped_attention_of_its_own_projections(branch: int) -> None:
    """Means of single tokens, all blocks selected, a window over everything."""
    heads, shared, x = 6, 2, sequence()
    sizes = {"compress": 1, "stride": 1, "block": 4, "blocks": 3, "window": LENGTH}
    config = {"heads": heads, "key_heads": shared, "positions": "rope"} | sizes
    params = of("native_sparse", config)
    params["w_gate"] = {"kernel": opened(branch, heads)}
    width = shared * WIDTH // heads
    mine = slice(branch * width, (branch + 1) * width)
    plain = {"w_query": params["w_query"], "out": params["out"]} | {
        side: {"kernel": params[side]["kernel"][:, mine]} for side in ("w_key", "w_value")
    }
    grouped = {"heads": heads, "key_heads": shared, "positions": "rope"}
    context, weights, _ = attend("native_sparse", config, params, x)
    expected = attend("multihead", grouped, plain, x)
    assert_close(context, expected[0])
    assert_close(weights[:, branch * heads : (branch + 1) * heads], expected[1])


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


DECODED = [
    pytest.param({"name": "scalable_softmax", "length": 5}, marks=pytest.mark.full),
    pytest.param({"name": "softpick"}, marks=pytest.mark.full),
    {"name": "stick_breaking"},
    pytest.param({"name": "top_k", "keep": 3}, marks=pytest.mark.full),
    {"name": "moba", "block": 2, "blocks": 2},
]  # in the full mode those whose weights are a function of one row of scores


@pytest.mark.parametrize("alignment", DECODED, ids=lambda alignment: alignment["name"])
def test_decoding_with_a_cache_in_pieces_is_the_full_pass(alignment: dict[str, Any]) -> None:
    config = {"heads": 3, "alignment": alignment}
    module, params = make("multihead", config), of("multihead", config)
    call, x = functools.partial(module.apply, {"params": params}), wide(inputs(queries=9)[0])

    @jax.jit
    def run(x: Any) -> Any:
        memory, found = call(x[:, :0], capacity=11, method="remember"), []
        for first, last in ((0, 4), (4, 5), (5, 9)):
            memory = call(memory, x[:, first:last], method="extend")
            found.append(call(x[:, first:last], memory, CAUSAL, method="read").context)
        order = np.array([3, 1, 4, 0, 2])  # each token with a position of its own
        moved = call(x[:, order], positions=order[None], method="remember")
        last = call(x[:, 4:5], moved, View(CAUSAL.rule, positions=4), method="read").context
        return call(x, x, CAUSAL).context, jnp.concatenate(found, axis=1), last  # type: ignore[arg-type]

    full, pieces, moved = run(x)
    assert_close(pieces, full)
    assert_close(moved, full[:, 4:5])
