"""Benchmarks of programs: on an accelerator (whole on a processor, which they say in one line is
none), operations of matrix products, ways of running layers, mixers with a state, the tape.
"""

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import accelerator, deep_stacks, states, tape
from benchmarks.step_profile import matmul_operations
from tests.refusals import check_refused

ALL = pytest.param(list(accelerator.PARTS), marks=pytest.mark.full)


@pytest.mark.parametrize("parts", [["precision", "mixers"], ALL])
def test_every_part_leaves_its_table(
    parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the error of what cannot be measured: a mixer that nobody knows, and cuDNN."""
    monkeypatch.setattr(accelerator, "MIXERS", ("multihead", "nothing"))
    monkeypatch.setattr(
        sys, "argv", ["", "--tiny", f"--out={tmp_path}", "--seconds=900", "--parts", *parts]
    )
    accelerator.main()
    tables = json.loads((tmp_path / "accelerator.json").read_text())["tables"]
    wrong = [row for table in tables.values() for row in table["rows"] if "Error" in str(row)]
    assert list(tables) == parts and len(wrong) == len({"mixers", "attention"} & {*parts})
    assert (tmp_path / "accelerator.md").read_text().count("### ") == len(parts)
    monkeypatch.setattr(sys, "argv", [""])
    check_refused("no accelerator: JAX computes on the processor alone", accelerator.main)


def count(function: object, *shapes: tuple[int, ...]) -> float:
    """Operations of a function of arrays of these shapes."""
    return matmul_operations(jax.make_jaxpr(function)(*(jnp.ones(shape) for shape in shapes)).jaxpr)  # type: ignore[arg-type]


def test_a_product_is_2mnk_and_its_gradient_two_more() -> None:
    product = lambda a, b: jnp.tanh(a @ b) + 1.0
    batched = lambda a, b: jnp.einsum("bij,bjk->bik", a, b)
    slopes = jax.grad(lambda a, b: jnp.tanh(a @ b).sum(), (0, 1))
    assert count(product, (3, 4), (4, 5)) == 2 * 3 * 4 * 5
    assert count(batched, (7, 3, 4), (7, 4, 5)) == 7 * 2 * 3 * 4 * 5
    assert count(slopes, (3, 4), (4, 5)) == 3 * 2 * 3 * 4 * 5


def test_products_in_loops_and_called_functions_count_as_often_as_they_run() -> None:
    def loop(a: jax.Array) -> jax.Array:
        return jax.lax.scan(
            lambda carry, _: (jax.jit(jnp.matmul)(carry, a), None), a, None, length=6
        )[0]

    assert count(loop, (3, 3)) == 6 * 2 * 27
    assert count(jax.checkpoint(loop), (3, 3)) == 6 * 2 * 27
    with pytest.raises(ValueError, match="while"):
        count(lambda a: jax.lax.while_loop(lambda x: x.sum() < 5, lambda x: x @ a, a), (3, 3))


# that the ways agree: tests/systems/transformers/test_transformers.py
@pytest.mark.full
def test_a_row_for_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: deep_stacks.WAYS[name] for name in ("written out", "scan")}
    monkeypatch.setattr(deep_stacks, "WAYS", few)
    rows = deep_stacks.measured(1, 32, 8, 2, 16, 1)
    assert [row[0] for row in rows] == list(few)
    assert all(figure > 0 for row in rows for figure in row[1:])


def test_the_products_are_those_of_one_chunk() -> None:
    q, k, v = np.random.default_rng(0).normal(size=(3, 1, 1, 64, 4)).astype(np.float32)
    whole = (q @ k.swapaxes(-1, -2)) @ v
    np.testing.assert_allclose(states.products(q, k, v), 2 * whole, rtol=1e-3, atol=1e-3)
    linear = jax.jit(states.recurrence("linear"))(q, k, v)
    np.testing.assert_allclose(linear, np.tril(q @ k.swapaxes(-1, -2)) @ v, atol=1e-4)


@pytest.mark.full
def test_a_step_goes_on_from_what_was_read() -> None:
    program, given = states.steps("linear", 3)
    assert program(*given).shape == (4, 1, 256) and (np.asarray(given[2].read) == 3).all()


@pytest.mark.full
def test_keeping_every_tape_takes_more_room() -> None:
    steps, every, once, ratio, lstm, *room = tape.measure(8, 48, 8, enough=0.0)
    assert steps == 48 and min(every, once, lstm) > 0 and ratio > 0
    assert room[0] > 4 * room[1] > 0
