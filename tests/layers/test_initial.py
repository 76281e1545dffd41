"""Weights start as `Initial` says: Glorot uniform, orthogonal, or all within a width; and the matrices of
whole Transformers with the deviations that their papers say.
"""

from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab.config.registry import build
from attnlab.errors import UserError
from attnlab.layers import INITIALIZERS
from attnlab.layers.initial import Initial, Where
from attnlab.systems import SYSTEMS
from attnlab.training.updates import first_params

SHAPE = (64, 64)


def drawn(initial: Initial) -> dict[str, np.ndarray]:
    """A matrix of each kind; gates are four blocks side by side, outputs to few words and many."""

    @jax.jit
    def draw(key: jax.Array) -> dict[str, jax.Array]:
        return {
            "kernel": initial.kernel()(key, SHAPE, np.float32),
            "gates": initial.kernel(4)(key, (64, 256), np.float32),
            "output": initial.output()(key, (64, 16), np.float32),
            "words": initial.output()(key, (64, 4096), np.float32),
            "recurrent": initial.recurrent()(key, SHAPE, np.float32),
            "embedding": initial.embedding(64)(key, SHAPE, np.float32),
            "word": initial.word(1.0)(key, SHAPE, np.float32),
            "bias": initial.bias()(key, SHAPE, np.float32),
        }

    actual: dict[str, np.ndarray] = jax.device_get(draw(jax.random.key(0)))
    return actual


def test_usually_glorot_orthogonal_and_zero() -> None:
    """Four blocks side by side start as one does; the whole drawn at once would be narrower. An
    output layer counts its inputs alone: scores of unit inputs have variance 1, however many words.
    """
    actual, bound = drawn(Initial()), (6 / 128) ** 0.5
    for block in (actual["kernel"], *np.split(actual["gates"], 4, axis=1)):
        assert 0.98 * bound < np.abs(block).max() <= bound
    assert not np.array_equal(actual["gates"][:, :64], actual["gates"][:, 64:128])
    for output in (actual["output"], actual["words"]):
        assert output.std() == pytest.approx(64**-0.5, rel=0.05)
        assert 0.98 * (3 / 64) ** 0.5 < np.abs(output).max() <= (3 / 64) ** 0.5
    np.testing.assert_allclose(actual["recurrent"].T @ actual["recurrent"], np.eye(64), atol=1e-5)
    assert actual["embedding"].std() == pytest.approx(64**-0.5, rel=0.05)
    assert actual["word"].std() == pytest.approx(1.0, rel=0.05) and (actual["bias"] == 0.0).all()


def test_uniform_is_of_all() -> None:
    for name, array in drawn(Initial(uniform=0.08)).items():
        assert 0.078 < array.max() <= 0.08 and -0.08 <= array.min() < -0.078, name
        assert abs(array.mean()) < 0.003, name


def test_normal_is_of_all_but_recurrences_and_biases() -> None:
    actual = drawn(Initial(normal=0.01))
    for name in ("kernel", "gates", "output", "words", "embedding", "word"):
        assert actual[name].std() == pytest.approx(0.01, rel=0.05), name
    np.testing.assert_allclose(actual["recurrent"].T @ actual["recurrent"], np.eye(64), atol=1e-5)
    assert (actual["bias"] == 0.0).all()


@pytest.mark.parametrize(
    "fields", [{"uniform": -1.0}, {"normal": float("nan")}, {"uniform": float("inf")}]
)
def test_what_is_no_width_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(UserError, match=f"{next(iter(fields))}=.*expected a number of at least 0"):
        Initial(**fields)


@pytest.mark.parametrize("deviation", [-1.0, float("nan"), float("inf")])
def test_embeddings_of_no_width_are_refused(deviation: float) -> None:
    with pytest.raises(UserError, match=r"^deviation=.*: expected a number above 0$"):
        Initial().word(deviation)


D, F, HEADS, L, V = 64, 96, 4, 2, 50
SIDES = ("encoder", "decoder", "cross")
T5 = {"name": "multihead", "heads": HEADS, "positions": {"name": "t5"}, "score": {"name": "dot"}}
SIZES: dict[str, Any] = {"width": D, "layers": L, "hidden": F}
SIZES["positions"] = {"name": "learned", "length": 40}


def begun(name: str, initial: Any, seed: int = 0, **changes: Any) -> dict[str, np.ndarray]:
    """First parameters by path."""
    slots = ["attention"] if name == "decoder" else [f"{side}_attention" for side in SIDES]
    heads = {slot: {"name": "multihead", "heads": HEADS, "bias": True} for slot in slots}
    node = ConfigDict({"name": name, **SIZES, **heads, "initial": initial, **changes})
    sides = ("",) if name == "decoder" else ("source_", "target_")
    sizes = {f"{side}vocabulary": V for side in sides}
    ids = [jnp.ones((1, 2), jnp.int32)] * (1 if name == "decoder" else 2)
    system = build(SYSTEMS, node, "system")(**sizes)
    params = first_params(system.init, jax.random.key(seed), *ids)["params"]
    return {path: np.asarray(leaf) for path, leaf in _flat(params).items()}


def _flat(params: Any) -> dict[str, Any]:
    return flax.traverse_util.flatten_dict(params, sep="/")


def test_gpt2_is_narrower_before_residual_connections() -> None:
    params = begun("decoder", "gpt2")
    matrices = {path for path, leaf in params.items() if leaf.ndim == 2}
    for path in matrices:
        last = path.endswith(("attention/out/kernel", "outer/kernel"))
        expected = 0.02 / np.sqrt(2 * L) if last else 0.02
        assert np.isclose(params[path].std(), expected, rtol=0.1), path
    assert sum("out" in path.split("/")[-2] for path in matrices) == 2 * L
    for path in set(params) - matrices:
        np.testing.assert_array_equal(params[path], float(path.endswith("scale")))
    across = begun("transformer", {"name": "gpt2", "stddev": 0.1})
    for stack, connections in (("encoder", 2 * L), ("decoder", 3 * L)):
        actual = across[f"{stack}_1/self_attention/out/kernel"].std()
        assert np.isclose(actual, 0.1 / np.sqrt(connections), rtol=0.1)


def test_bert_is_cut_at_two_deviations() -> None:
    params = begun("decoder", "bert")
    for path, leaf in params.items():
        if leaf.ndim == 2:
            assert 0.035 < np.abs(leaf).max() <= 0.04, path
            assert np.isclose(leaf.std(), 0.02 * 0.8796, rtol=0.1), path


def test_t5_starts_as_its_table_says() -> None:
    params = begun(
        "transformer",
        {"name": "t5", "factor": 0.5},
        encoder_attention=T5,
        decoder_attention=T5,
        cross_attention={**T5, "positions": {"name": "none"}, "head_width": 8},
        share_positions=True,
        positions={"name": "none"},
        share="none",
        feed_forward={"name": "geglu_tanh"},
    )
    expected = {
        "embed_source/embedding": 1.0,
        "out/kernel": D**-0.5,
        "encoder_1/self_attention/w_query/kernel": (D * D / HEADS) ** -0.5,
        "decoder_1/cross_attention/w_query/kernel": (D * 8) ** -0.5,
        "decoder_1/self_attention/w_value/kernel": D**-0.5,
        "decoder_1/cross_attention/out/kernel": (HEADS * 8) ** -0.5,
        "encoder_0/feed_forward/gate/kernel": D**-0.5,
        "encoder_0/feed_forward/inner/kernel": D**-0.5,
        "encoder_0/feed_forward/outer/kernel": F**-0.5,
        "decoder_positions/table": D**-0.5,
    }
    for path, deviation in expected.items():
        assert np.isclose(params[path].std(), 0.5 * deviation, rtol=0.15), path


def test_seeds_and_matrices_differ_and_own_is_what_it_was() -> None:
    first, other = begun("decoder", "gpt2"), begun("decoder", "gpt2", 1)
    kernel = "layer_0/attention/w_query/kernel"
    assert (first[kernel] != other[kernel]).mean() > 0.9
    assert (first[kernel] != first["layer_1/attention/w_query/kernel"]).mean() > 0.9
    np.testing.assert_array_equal(begun("decoder", "gpt2")[kernel], first[kernel])
    params = begun("decoder", "own")
    bound = np.sqrt(3 / D)  # Glorot uniform of a square matrix
    assert bound * 0.95 < np.abs(params[kernel]).max() < bound


@pytest.mark.quick
def test_what_is_no_initializer_is_told() -> None:
    for name, field in (("gpt2", "stddev"), ("bert", "stddev"), ("t5", "factor")):
        with pytest.raises(UserError, match=rf"initial.{field}=0.0: expected a number above 0"):
            INITIALIZERS.resolve(name)(0.0)
    assert INITIALIZERS.resolve("own")().deviation(Where(("a", "kernel"), (2, 2), 2)) is None
