"""Every kernel equals plain, in values and gradients, whatever is asked of it and in what it meets in
use: garbage in padding, room to spare, queries that see nothing.
"""

import functools
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.cudnn import fused_attention_stablehlo

from attnlab.attention import MECHANISMS
from attnlab.attention.kernels import blocks, blockwise, fused
from attnlab.attention.protocol import MAPS
from attnlab.attention.view import CAUSAL, EVERYTHING, View
from attnlab.attention.visibility import PerHead, Segments, Stride, Window
from attnlab.errors import UserError
from attnlab.training.updates import first_params
from tests.attention.cases import TOLERANCE, WIDTH, inputs, make, parameters
from tests.rounding import assert_close
from tests.sampling import rounds

VIEWS = {
    "everything": EVERYTHING,
    "causal": CAUSAL,
    "segments": View(Segments(jnp.array([[0, 0, 0, 1, 1, 1, 2]]))),
    "heads": CAUSAL & PerHead((Window(3), Stride(2))),
    "window": CAUSAL & Window(2),
}
T5 = {"name": "t5", "buckets": 8, "max_distance": 6}
CAPPED = {"name": "soft_capped", "cap": 2.0, "score": {"name": "cosine", "strength": "emitted"}}
SCALED = {"name": "scalable_softmax", "length": 3, "bias": True}
SHAW = {"name": "shaw", "clip": 2}
SHARED = {"heads": 4, "key_heads": 2}
BUCKETS = {"heads": 3, "positions": T5}
BIASED = {"heads": 2, "positions": "alibi"}
GROUPED = {"heads": 2, "key_heads": 1, "positions": "shaw"}
CASES: list[tuple[str, dict[str, Any], str, bool]] = [
    # scores, alignments, positions, head layouts and views, each of them twice; whether there is
    # padding, without which blocks off the diagonal need no mask
    ("multihead", {"heads": 6, "key_heads": 2, "positions": "transformer_xl"}, "causal", False),
    ("multihead", SHARED | {"positions": SHAW, "alignment": "sink"}, "everything", True),
    ("multihead", BUCKETS | {"alignment": "softmax_plus_one"}, "segments", True),
    ("multihead", {"heads": 2, "positions": "rope"}, "heads", True),
    ("multihead", BIASED | {"alignment": "sigmoid"}, "causal", False),
    ("multihead", GROUPED | {"score": CAPPED, "alignment": "sigmoid"}, "segments", True),
    ("multihead", BIASED | {"score": "gaussian", "alignment": "sink"}, "window", True),
    ("single", {"score": {"name": "additive", "hidden": 5}}, "everything", False),
    ("latent", {"heads": 3, "latent": 5, "rotary": 4, "positions": "rope"}, "causal", True),
    ("synthesizer", {"heads": 3, "length": 9, "hidden": 4}, "causal", True),
    ("multihead", GROUPED | {"alignment": SCALED}, "heads", True),
    ("multihead", {"heads": 2, "score": CAPPED, "alignment": SCALED}, "segments", True),
    ("multihead", {"heads": 3, "alignment": SCALED}, "causal", False),
    ("forgetting", SHARED, "causal", True),
    ("forgetting", SHARED | {"alignment": "sigmoid"}, "causal", True),
]
PLATFORMS = ("cpu", "cuda", "tpu")
DRAWS = rounds(1000, 4000)
LATER = (9, 14)  # of these cases, in the full mode
DEAD = np.array([[True] * 7, [False] * 7, [True] * 4 + [False] * 3])


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of three, so that seven positions take several and the last is padded."""
    monkeypatch.setattr(blocks, "LONGEST", 3)


def sloped(module: Any, view: View, valid: Any, rngs: Any = None) -> Any:
    """The context, its product with a fixed direction and the gradients of that with respect to
    parameters, query and source.
    """

    def total(params: Any, query: Any, source: Any) -> tuple[jax.Array, jax.Array]:
        context = module.apply({"params": params}, query, source, view, valid, rngs=rngs).context
        return (context * np.random.default_rng(5).normal(size=context.shape)).sum(), context

    return jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True)


def assert_agree(found: Any, expected: Any, within: float = TOLERANCE["gradient"]) -> None:
    """Two results of `sloped` are one: contexts up to rounding, and every array within this share of
    its largest number.
    """
    (_, context), _ = found
    if within == TOLERANCE["gradient"]:
        assert_close(context, expected[0][1], eps=8)
    arrays = [(context, slopes) for (_, context), slopes in (found, expected)]
    pairs = zip(*map(jax.tree_util.tree_leaves_with_path, arrays), strict=True)
    for (path, array), (_, wanted) in pairs:
        off = float(np.abs(np.asarray(array, np.float32) - wanted).max())
        size = max(1.0, float(np.abs(wanted).max()))
        assert off <= within * size, (jax.tree_util.keystr(path), off, size)


@pytest.mark.parametrize(
    ("name", "config", "view", "padded"),
    [
        pytest.param(*case, id=f"{number}-{case[0]}", marks=[pytest.mark.full] * (number in LATER))
        for number, case in enumerate(CASES)
    ],
)
def test_blockwise_equals_plain_in_values_and_all_gradients(
    name: str, config: dict[str, Any], view: str, padded: bool
) -> None:
    query, source, _ = inputs(queries=7)
    module, valid = make(name, config), DEAD if padded else None
    params = parameters(module)
    actual, expected = (
        jax.jit(sloped(module.clone(kernel=kernel), VIEWS[view], valid))(params, query, source)
        for kernel in ("blockwise", "plain")
    )
    assert_agree(actual, expected)
    if padded:  # the dead row, exactly
        assert (actual[0][1][1] == expected[0][1][1]).all()
        assert all((slope[1] == 0.0).all() for slope in actual[1][1:])
    # zeros would prove nothing
    for path, slope in jax.tree_util.tree_leaves_with_path(expected[1]):
        assert np.abs(slope).max() > 1e-4, jax.tree_util.keystr(path)


@pytest.mark.quick
def test_all_kernels_agree_and_maps_change_nothing() -> None:
    query, source, _ = inputs(queries=7)
    module = make("multihead", {"heads": 6, "key_heads": 2, "positions": "alibi"})
    params = parameters(module)
    plain, xla = (
        jax.jit(sloped(module.clone(kernel=kernel), CAUSAL, DEAD))(params, query, source)
        for kernel in ("plain", "xla")
    )
    assert_agree(xla, plain)
    maps = {}
    for kernel in ("plain", "xla", "blockwise"):
        asked = functools.partial(
            module.clone(kernel=kernel).apply, {"params": params}, query, source, CAUSAL, DEAD
        )
        reading, collected = jax.jit(functools.partial(asked, mutable=[MAPS]))()
        np.testing.assert_array_equal(reading.context, jax.jit(asked)().context)
        maps[kernel] = collected[MAPS]["weights"][0]
        np.testing.assert_allclose(maps[kernel], maps["plain"], atol=TOLERANCE["float32"])


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="cuDNN's attention needs an NVIDIA GPU")
@pytest.mark.parametrize("rule", ["everything", "causal", "segments"])
@pytest.mark.parametrize("padded", [False, True])
def test_cudnn_equals_plain_up_to_half_precision(rule: str, padded: bool) -> None:
    length = 64
    two = View(Segments((jnp.arange(length) > 20)[None].astype(jnp.int32)))
    view = {"everything": EVERYTHING, "causal": CAUSAL, "segments": two & CAUSAL}[rule]
    valid = jnp.arange(length)[None] < jnp.array([[length], [0], [40]]) if padded else None
    x = jax.random.normal(jax.random.key(0), (3, length, 64))
    module = MECHANISMS.resolve("multihead")(width=64, heads=4, key_heads=2)
    params = module.init(jax.random.key(1), x, x)
    exact = jax.jit(sloped(module.clone(kernel="plain"), view, valid))(params["params"], x, x)
    half = jax.tree.map(lambda one: one.astype(jnp.bfloat16), (params["params"], x, x))
    actual = jax.jit(sloped(module.clone(kernel="cudnn"), view, valid))(*half)
    assert_agree(actual, exact, 0.03)
    if padded:  # who sees nothing gets nothing, and no gradient
        assert (actual[0][1][1] == 0).all() and all((g[1] == 0).all() for g in actual[1][1:])


def test_auto_takes_cudnn_in_programs_for_nvidia_gpus_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Forward and backward, without a GPU here; where it needs no mask, and JAX differentiates it."""
    version = SimpleNamespace(cudnn_get_version=lambda: 91000)  # what JAX's plugin has
    monkeypatch.setattr(fused_attention_stablehlo, "cuda_versions", version)
    monkeypatch.setattr("attnlab.attention.kernels.plain.detected", lambda: True)
    module = MECHANISMS.resolve("multihead")(width=64, heads=4)
    for view, length, calls in ((CAUSAL, 8, 2), (CAUSAL & Window(2), 8, 0), (CAUSAL, 7, 0)):
        x = jnp.ones((2, length, 64), jnp.bfloat16)
        params = jax.tree.map(
            lambda one: one.astype("bfloat16"), module.init(jax.random.key(0), x, x)
        )
        traced = jax.jit(sloped(module, view, None)).trace(params["params"], x, x)
        texts = [traced.lower(lowering_platforms=(one,)).as_text() for one in PLATFORMS]
        assert [text.count("__cudnn$fmha") for text in texts] == [0, calls, 0]


def test_decoding_with_a_cache_and_a_traced_place() -> None:
    query, source, valid = inputs(queries=4, keys=5)
    module = make("multihead", {"heads": 3, "positions": "shaw"})
    params = parameters(module)

    @functools.partial(jax.jit, static_argnames="kernel")
    def run(kernel: str, memory: Any, at: Any) -> Any:
        asked = functools.partial(module.clone(kernel=kernel).apply, {"params": params})
        views = CAUSAL, View(CAUSAL.rule, at)
        return [asked(query, memory, view, method="read").context for view in views]

    memory = module.apply({"params": params}, source, valid, 8, method="remember")
    # seven written of eight
    memory = module.apply({"params": params}, memory, source[:, :2], method="extend")
    memory = jax.tree.map(jnp.asarray, memory)
    for actual, expected in zip(run("blockwise", memory, 3), run("plain", memory, 3), strict=True):
        assert_close(actual, expected, eps=8)


@pytest.mark.parametrize(
    "case", ["causal-blockwise", "causal-xla", "window-blockwise", "window-xla"]
)
def test_a_memory_with_room_to_spare_is_read_to_its_length(case: str) -> None:
    """The last query stands on the last slot written, not on the last there is."""
    view, kernel = case.split("-")
    query, source, _ = inputs(queries=4, keys=7)
    module = make("multihead", {"heads": 3})
    params = {"params": parameters(module)}
    memory = module.apply(params, source, None, 12, method="remember")
    actual, expected = (
        module.clone(kernel=name).apply(params, query, memory, VIEWS[view], method="read").context
        for name in (kernel, "plain")
    )
    assert_close(actual, expected, eps=8)


@pytest.mark.parametrize(
    ("of", "config"),
    [
        ("row", {"heads": 3, "positions": "shaw"}),
        ("token", {"heads": 3, "positions": "shaw"}),
        ("token", BIASED | {"alignment": "sigmoid"}),
        ("row", {"heads": 2, "positions": "transformer_xl"}),
    ],
    ids=["row-shaw", "token-shaw", "token-alibi-sigmoid", "row-transformer_xl"],
)
def test_rows_that_stand_elsewhere(of: str, config: dict[str, Any]) -> None:
    """Queries and keys of each row begin somewhere else, or each has a position of its own."""
    query, source, valid = inputs(queries=7)
    module, rng = make("multihead", config), np.random.default_rng(3)
    first, start = np.array([2, 0, 5]), np.array([1, 3, 0])
    if of == "token":
        first, start = (one[:, None] + rng.permutation(7) for one in (first, start))

    def total(kernel: str, params: Any, query: Any, source: Any) -> tuple[jax.Array, jax.Array]:
        call = functools.partial(module.clone(kernel=kernel).apply, {"params": params})
        memory = call(source, valid, positions=start, method="remember")
        view = View(CAUSAL.rule, positions=first)
        context = call(query, memory, view, method="read").context
        return (context * np.cos(np.arange(context.size)).reshape(context.shape)).sum(), context

    slope = jax.jit(jax.value_and_grad(total, argnums=(1, 2, 3), has_aux=True), static_argnums=0)
    given = parameters(module), query, source
    blocks, plain = slope("blockwise", *given), slope("plain", *given)
    assert np.isfinite(plain[0][0])
    assert_agree(blocks, plain)


def test_bfloat16_keeps_its_softmax_in_float32() -> None:
    query, source, valid = inputs(queries=7)
    module = make("multihead", {"heads": 3, "kernel": "blockwise"})
    low = jax.tree.map(lambda a: jnp.asarray(a, jnp.bfloat16), (parameters(module), query, source))
    rounded = jax.tree.map(lambda a: a.astype(jnp.float32), low)
    actual = jax.jit(sloped(module, CAUSAL, valid))(*low)
    expected = jax.jit(sloped(module.clone(kernel="plain"), CAUSAL, valid))(*rounded)
    assert actual[0][1].dtype == jnp.bfloat16
    assert_agree(actual, expected, 2 * TOLERANCE["bfloat16"])
    look = lambda params, *given: module.apply({"params": params}, *given, CAUSAL, valid).context
    text = str(jax.make_jaxpr(look)(*low))
    raised = [line.partition("=")[0] for line in text.splitlines() if " = exp " in line]
    assert raised and not any("bf16" in kind for kind in raised)


def test_jit_vmap_remat_and_scan() -> None:
    query, source, valid = inputs(queries=7)
    module = make("multihead", {"heads": 3, "positions": T5, "kernel": "blockwise"})
    params = parameters(module)

    def attend(q: Any, s: Any, v: Any) -> jax.Array:
        return module.apply({"params": params}, q, s, CAUSAL, v).context

    def one(q: Any, s: Any, v: Any) -> jax.Array:
        return attend(q[None], s[None], v[None])[0]

    def total(f: Any) -> Any:
        return jax.jit(jax.value_and_grad(lambda q: (f(q) ** 2).sum() / 100))

    step = lambda carry, x: (carry, jax.checkpoint(one)(*x))
    forms = {
        "vmap": lambda q: jax.vmap(one)(q, source, valid),
        "remat of scan": lambda q: jax.lax.scan(step, 0, (q, source, valid))[1],
    }
    value, slope = total(lambda q: attend(q, source, valid))(query)
    for name, form in forms.items():
        actual, grad = total(form)(query)
        np.testing.assert_allclose(actual, value, rtol=TOLERANCE["float32"], err_msg=name)
        np.testing.assert_allclose(grad, slope, atol=TOLERANCE["float32"], err_msg=name)


@pytest.mark.parametrize("parts", [{"positions": "shaw"}, {"alignment": "sigmoid"}], ids=str)
def test_dropout_is_unbiased_and_the_same_on_the_way_back(parts: dict[str, Any]) -> None:
    query, source, valid = inputs(batch=2, queries=5, keys=4)
    config = {"heads": 3, "dropout": 0.25, "kernel": "blockwise", **parts}
    module = make("multihead", config)
    params, plain = parameters(module), module.clone(kernel="plain")
    off = plain.apply({"params": params}, query, source, valid=valid).context

    def drawn(module: Any, key: int) -> np.ndarray:
        attend = functools.partial(module.apply, {"params": params}, query, source, valid=valid)
        draw = jax.vmap(lambda key: attend(rngs={"dropout": key}).context)
        return np.asarray(jax.jit(draw)(jax.random.split(jax.random.key(key), DRAWS)))

    actual, usual = drawn(module, 0), drawn(plain, 1)
    errors = 5 * actual.std(0).max() / DRAWS**0.5  # five standard errors
    np.testing.assert_allclose(actual.mean(0), off, atol=errors)
    # as many are dropped, and each on its own
    np.testing.assert_allclose(actual.std(0), usual.std(0), atol=0.1 * usual.std(0).max())

    run = jax.jit(sloped(module, EVERYTHING, valid, {"dropout": jax.random.key(3)}))
    grads = run(params, query, source)[1]
    given = (params, query, source)
    for number, grad in enumerate(grads):  # central difference along the gradient itself
        norm = sum(float((np.asarray(g) ** 2).sum()) for g in jax.tree.leaves(grad)) ** 0.5
        ends = []
        for step in (1e-2 / norm, -1e-2 / norm):
            moved = jax.tree.map(lambda a, g, step=step: a + step * g, given[number], grad)
            ends.append(float(run(*given[:number], moved, *given[number + 1 :])[0][0]))
        assert abs((ends[0] - ends[1]) / 2e-2 - norm) < 3e-3 * norm


@pytest.mark.quick
@pytest.mark.parametrize(
    ("name", "config", "kernel", "words"),
    [
        ("multihead", {"alignment": "sparsemax"}, "blockwise", "whole rows.*Sparsemax needs"),
        ("talking_heads", {}, "blockwise", "never has the whole maps.*kernel='plain' has"),
        ("differential", {}, "blockwise", "never has the whole maps"),
        ("multihead", {"score": "additive"}, "xla", "'plain' and kernel='blockwise' do"),
        ("forgetting", {}, "xla", "takes inner products"),
        ("multihead", {"alignment": "sink"}, "xla", "no alignment but softmax"),
        ("multihead", {"positions": "shaw"}, "xla", "adds nothing to values"),
        ("multihead", {"dropout": 0.5}, "xla", "cannot drop weights; .*dropout=0"),
        ("latent", {"latent": 5, "rotary": 2}, "xla", "as wide as values"),
        pytest.param(
            *("multihead", {}, "cudnn", "needs an NVIDIA GPU, and JAX finds no cuDNN here"),
            marks=pytest.mark.skipif(jax.default_backend() == "gpu", reason="there is one"),
        ),
    ],
)
def test_what_a_kernel_cannot_honour_is_refused_by_name(
    name: str, config: dict[str, Any], kernel: str, words: str
) -> None:
    module = MECHANISMS.resolve(name)(width=WIDTH, kernel=kernel, **config)
    x = jnp.zeros((1, 3, WIDTH))
    rngs = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    with pytest.raises(UserError, match=f"{type(module).__name__}: kernel '{kernel}' .*{words}"):
        jax.eval_shape(lambda: module.init(rngs, x, x))


@pytest.mark.quick
def test_parameters_are_made_whatever_the_kernel() -> None:
    """Those of a score are made where it is first called, which must not be inside a loop."""
    x = jnp.zeros((1, 7, WIDTH))
    inits = [make("multihead", BUCKETS | {"kernel": one}).init for one in ("blockwise", "plain")]
    made = [first_params(init, jax.random.key(0), x, x)["params"] for init in inits]
    assert "positions" in made[0]
    jax.tree.map(np.testing.assert_array_equal, *made)


def read(config: dict[str, Any], kernel: str, query: Any, source: Any, *rest: Any) -> Any:
    """The context by one kernel, nothing of it traced, so that what is known may be used."""
    module = make("multihead", {"heads": 3, **config, "kernel": kernel})
    return module.apply({"params": parameters(module)}, query, source, *rest).context


@pytest.mark.parametrize(
    "case", ["xla-softmax", "blockwise-softmax", "blockwise-sigmoid", "blockwise-scalable_softmax"]
)
def test_garbage_in_padding_changes_nothing_and_queries_that_see_nothing_get_nothing(
    case: str,
) -> None:
    kernel, alignment = case.split("-")
    config, (query, source, _) = {"alignment": alignment}, inputs(queries=8, keys=5)
    valid = np.array([[True] * 5, [False] * 5, [False] * 3 + [True] * 2])
    dirty = np.where(valid[..., None], source, np.float32(1e4))
    for view in (EVERYTHING, CAUSAL):
        actual = read(config, kernel, query, dirty, view, valid)
        assert_close(actual, read(config, "plain", query, source, view, valid), eps=8)
        assert not actual[1].any()
    # of eight queries on five keys the first three stand before the first key
    assert not (actual[:, :3].any() or actual[2, :6].any())


def test_the_kernel_of_a_config_is_the_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name falls back to another in silence."""
    x = jnp.zeros((1, 3, WIDTH))
    for kernel, owner in (("blockwise", blockwise.Blockwise), ("xla", fused.Xla)):
        ran: list[str] = []
        plain = owner.__call__
        called = lambda self, look, plain=plain, ran=ran: ran.append("yes") or plain(self, look)
        monkeypatch.setattr(owner, "__call__", called)
        jax.eval_shape(lambda x, kernel=kernel: read({}, kernel, x, x), x)
        assert ran == ["yes"]
