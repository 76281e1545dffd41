"""Facts that hold for one mechanism, or where its parts meet; promises of all stand in
`test_conformance.py`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.alignments import ALIGNMENTS
from attnlab.attention.alignments.hard import best
from attnlab.attention.mechanisms.latent import Latent
from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.attention.protocol import MAPS
from attnlab.attention.scores import SCORES
from attnlab.attention.scores.protocol import inner
from attnlab.attention.view import CAUSAL, View
from attnlab.layers.dense import Dropout
from tests.attention.cases import TOLERANCE, inputs, make, parameters
from tests.rounding import assert_close


@pytest.mark.quick
def test_the_penalty_of_hops_is_the_distance_of_their_overlap_from_the_identity() -> None:
    """|| A A^T - I ||_F^2 of every query's r x Tk weights; 0 where each hop looks at one key of its
    own.
    """
    hops, (query, source, valid) = make("hops", {"hops": 3, "hidden": 5}), inputs()
    variables = {"params": parameters(hops)}
    look = jax.jit(lambda: hops.apply(variables, query, source, CAUSAL, valid, mutable=[MAPS])[0])
    reading = look()
    maps = np.asarray(reading.weights, np.float64)
    apart = [
        maps[b, :, i] @ maps[b, :, i].T - np.eye(3)
        for b, i in np.ndindex(len(query), query.shape[1])
    ]
    expected = np.reshape([(one**2).sum() for one in apart], (len(query), query.shape[1]))
    assert_close(reading.losses["hops"], expected, eps=8)


def test_talking_heads_start_as_multihead_attention() -> None:
    """Both mixes at the identity, as they are initialised."""
    query, source, valid = inputs()

    @jax.jit
    def contexts() -> list[Any]:
        params = make("talking_heads", {"heads": 3}).init(jax.random.key(0), query, source)
        kept = {name: leaf for name, leaf in params["params"].items() if "mix_" not in name}
        given = (("talking_heads", params), ("multihead", {"params": kept}))
        heads = [(make(name, {"heads": 3}), variables) for name, variables in given]
        return [one.apply(of, query, source, CAUSAL, valid).context for one, of in heads]

    talking, plain = contexts()
    assert_close(talking, plain, eps=8)


@pytest.mark.parametrize("config", [{"heads": 3}, {"heads": 6, "key_heads": 2, "dropout": 0.5}])
def test_the_look_of_the_paper_has_the_bits_of_the_plain_kernel(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, (query, source, valid) = make("multihead", config), inputs()
    key = jax.random.key(1)

    def look(params: Any, query: Any) -> Any:
        given = {"params": params}, query, source, CAUSAL, valid
        reading: Any = module.apply(*given, rngs={"dropout": key}, mutable=[MAPS])[0]
        return (reading.context**2).sum(), (reading.context, reading.weights)

    actual = []
    for plain in (True, False):
        monkeypatch.setattr(MultiHead, "is_plain", lambda *given, plain=plain: plain)
        program = jax.jit(jax.value_and_grad(lambda *given: look(*given), (0, 1), has_aux=True))
        actual.append(program(parameters(module), query))
    for plain, expected in zip(*map(jax.tree.leaves, actual), strict=True):
        np.testing.assert_array_equal(plain, expected)


@pytest.mark.parametrize("rotary", [0, 4])
def test_both_forms_of_latent_attention_are_one(
    rotary: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, source, valid = inputs()
    parts = {"latent": 5, "rotary": rotary, "positions": "rope" if rotary else "none"}
    module = make("latent", {"heads": 3, **parts})
    params, actual = {"params": parameters(module)}, []
    for absorbed in (True, False):
        monkeypatch.setattr(Latent, "absorbs", lambda *_, absorbed=absorbed: absorbed)
        look = jax.jit(lambda: module.apply(params, query, source, CAUSAL, valid, mutable=[MAPS]))
        actual.append(look()[0])
    assert_close(actual[0].context, actual[1].context, eps=8)
    assert_close(actual[0].weights, actual[1].weights, eps=8)


def test_every_entry_is_dropped_on_its_own() -> None:
    """No two rows, columns or leading axes share their draw."""
    rngs = {"dropout": jax.random.key(0)}
    kept = np.asarray(Dropout(0.5).apply({}, jnp.ones((4, 3, 16, 16)), rngs=rngs)) > 0
    for axis in range(4):
        lines = np.moveaxis(kept, axis, 0).reshape(kept.shape[axis], -1)
        assert len(np.unique(lines, axis=0)) == kept.shape[axis]


@pytest.mark.quick
def test_products_of_bfloat16_are_summed_and_kept_in_float32() -> None:
    """Only the inputs are rounded: a score rounded to bfloat16 would be off by 0.4 percent."""
    q, k = (
        jnp.asarray(np.random.default_rng(seed).normal(size=(2, 3, 4, 64)), jnp.bfloat16)
        for seed in (0, 1)
    )
    wide = [np.asarray(x, np.float64) for x in (q, k)]
    expected = np.einsum("bhqa,bhka->bhqk", *wide)  # scores of size 20
    np.testing.assert_allclose(inner(q, k), expected, atol=20 * TOLERANCE["float32"])


@pytest.mark.quick
@pytest.mark.parametrize("name", ["cosine", "qk_norm"])
def test_short_vectors_are_normalised_too(name: str) -> None:
    """Down to the least norm, 1e-6: a ten-thousandth of a vector has its direction."""
    q, k = np.random.default_rng(0).normal(size=(2, 1, 2, 3, 6)).astype(np.float32)
    score = SCORES.resolve(name)()

    def scores(size: float) -> Any:
        q_, k_ = np.float32(size) * q, np.float32(size) * k
        pairs = lambda of, q, k: of.pairs(of.of_query(q, 6), of.of_key(k), jnp.arange(3))
        return score.apply(variables, q_, k_, method=pairs)

    variables = score.init(jax.random.key(0), q, 6, method="of_query")
    off = 20 * TOLERANCE["float32"]  # scores of size 12
    np.testing.assert_allclose(scores(1e-4), scores(1.0), atol=off)


def test_a_row_of_very_low_scores_is_a_distribution() -> None:
    """What is masked must be lower than anything a score can be, or a row of low scores would lose
    its weights to it.
    """
    mask = np.array([[True, True, False, True]])
    scores = np.where(mask, -3e4, 0.0).astype(np.float32)
    third = mask.astype(np.float32) / 3

    @jax.jit
    def weights() -> list[Any]:
        view = View(query=jnp.zeros((1, 1, 1))).among(jnp.arange(1), jnp.arange(4))
        given = jnp.asarray(scores)[None, None], mask[None, None], view
        names = ("softmax", "sparsemax", "entmax", "learned_entmax")
        modules = [ALIGNMENTS.resolve(name)() for name in names]
        return [module.init_with_output(jax.random.key(0), *given)[0][0, 0] for module in modules]

    for actual in weights():
        np.testing.assert_allclose(actual, third, atol=1e-6)
    assert np.asarray(best(jnp.asarray(scores), mask)).tolist() == [[1.0, 0.0, 0.0, 0.0]]


def test_a_bias_is_on_all_four_projections_or_on_none() -> None:
    """An oracle that reads biases where it finds them does not miss one."""
    x = jnp.zeros((1, 2, 12))
    for bias in (True, False):
        init = make("multihead", {"heads": 3, "bias": bias}).init
        shapes = jax.eval_shape(init, jax.random.key(0), x, x)["params"]
        assert all(("bias" in leaf) == bias for leaf in shapes.values())
        assert set(shapes) == {"w_query", "w_key", "w_value", "out"}
