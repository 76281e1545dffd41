"""How weights start."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from attnlab.errors import UserError
from attnlab.layers.initial import Initial

KEY, SHAPE = jax.random.key(0), (64, 64)


def drawn(initial: Initial) -> dict[str, np.ndarray]:
    initializers = {
        "kernel": initial.kernel(),
        "gates": initial.kernel(4),
        "output": initial.output(),
        "recurrent": initial.recurrent(),
        "embedding": initial.embedding(64),
        "word": initial.word(1.0),
        "bias": initial.bias(),
    }
    return {
        name: np.asarray(initializer(KEY, SHAPE, np.float32))
        for name, initializer in initializers.items()
    }


def test_usually_glorot_orthogonal_and_zero() -> None:
    found = drawn(Initial())
    assert 0.21 < np.abs(found["kernel"]).max() <= (6 / 128) ** 0.5
    np.testing.assert_allclose(found["recurrent"].T @ found["recurrent"], np.eye(64), atol=1e-5)
    assert (
        found["embedding"].std() == pytest.approx(64**-0.5, rel=0.05)
        and (found["bias"] == 0.0).all()
    )
    assert found["word"].std() == pytest.approx(1.0, rel=0.05)


def test_blocks_start_as_if_alone() -> None:
    """Four blocks side by side start as one does; the whole drawn at once would be narrower."""
    shape, bound = (64, 256), (6 / 128) ** 0.5
    found = np.asarray(Initial().kernel(4)(KEY, shape, np.float32))
    for block in np.split(found, 4, axis=1):
        assert 0.98 * bound < np.abs(block).max() <= bound
    assert not np.array_equal(found[:, :64], found[:, 64:128])
    assert np.abs(np.asarray(Initial().kernel()(KEY, shape, np.float32))).max() <= (6 / 320) ** 0.5


@pytest.mark.parametrize("outputs", [16, 4096])
def test_an_output_layer_counts_its_inputs_alone(outputs: int) -> None:
    """Scores of unit inputs have variance 1, however many words there are."""
    found = np.asarray(Initial().output()(KEY, (64, outputs), np.float32))
    assert (
        found.std() == pytest.approx(64**-0.5, rel=0.05)
        and 0.98 * (3 / 64) ** 0.5 < np.abs(found).max() <= (3 / 64) ** 0.5
    )


def test_uniform_is_of_all() -> None:
    for name, array in drawn(Initial(uniform=0.08)).items():
        assert (
            0.079 < array.max() <= 0.08
            and -0.08 <= array.min() < -0.079
            and abs(array.mean()) < 0.003
        ), name


def test_normal_is_of_all_but_recurrences_and_biases() -> None:
    found = drawn(Initial(normal=0.01))
    assert all(
        found[name].std() == pytest.approx(0.01, rel=0.05)
        for name in ("kernel", "gates", "output", "embedding", "word")
    )
    np.testing.assert_allclose(found["recurrent"].T @ found["recurrent"], np.eye(64), atol=1e-5)
    assert (found["bias"] == 0.0).all()


@pytest.mark.parametrize(
    "given", [{"uniform": -1.0}, {"normal": float("nan")}, {"uniform": float("inf")}]
)
def test_what_is_no_width_is_refused(given: dict[str, float]) -> None:
    with pytest.raises(UserError, match=f"{next(iter(given))}=.*expected a number of at least 0"):
        Initial(**given)


@pytest.mark.parametrize("given", [-1.0, float("nan"), float("inf")])
def test_embeddings_of_no_width_are_refused(given: float) -> None:
    with pytest.raises(UserError, match=r"^deviation=.*: expected a number above 0$"):
        Initial().word(given)
