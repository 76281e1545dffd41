"""Weights start as `Initial` says: Glorot uniform, orthogonal, or all within a width."""

import jax
import numpy as np
import pytest

from attnlab.errors import UserError
from attnlab.layers.initial import Initial

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
