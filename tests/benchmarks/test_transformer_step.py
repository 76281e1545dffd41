"""What the decoder's benchmark compares is comparable, and its step learns."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import jax

from benchmarks import transformer_step

SMALL = (2, 8, 6, 3)


def test_both_sides_have_the_same_sizes() -> None:
    """Read, not imported: torch need not be installed here."""
    other = ast.parse(Path(transformer_step.__file__).with_name("torch_transformer.py").read_text())
    found = {
        ast.unparse(node.targets[0]): ast.literal_eval(node.value)
        for node in other.body
        if isinstance(node, ast.Assign)
    }
    ours = transformer_step
    assert found == {
        "SHAPES": ours.SHAPES,
        "(HEADS, VOCABULARY)": (ours.HEADS, ours.VOCABULARY),
    }


def test_the_model_has_the_parameters_of_gpt2s_form() -> None:
    """Embeddings; in each block two norms, four projections and two layers, with biases; a norm."""
    layers, width, length, _ = SMALL
    _, state, _ = transformer_step.training(SMALL)
    block = 2 * 2 * width + 4 * (width + 1) * width + (8 * width + 5) * width
    expected = (transformer_step.VOCABULARY + length + 2) * width + layers * block
    assert sum(one.size for one in jax.tree.leaves(state.params)) == expected


def test_the_step_learns_its_batch() -> None:
    step, state, batch = transformer_step.training(SMALL)
    losses = []
    for _ in range(30):
        state, sums = step(state, batch)
        losses.append(float(sums["loss"]))
    assert abs(losses[0] - math.log(transformer_step.VOCABULARY)) < 0.5
    assert losses[-1] < losses[0] - 0.3


def test_the_table_takes_the_least_of_all_rounds() -> None:
    names = ["_".join(map(str, shape)) for shape in transformer_step.SHAPES]
    found = {
        "attnlab": {f"step_{name}": [0.002, 0.001] for name in names},
        "torch": {f"eager_{name}": [0.004, 0.003] for name in names},
    }
    first = transformer_step.rows(found)[0]
    assert first[:4] == ("2, 64, 64, 32", 1.0, 3.0, 3.0)
    assert math.isnan(first[5])
