"""The step of the decoder's benchmark learns; its table takes the least of all rounds."""

import math

import jax

from benchmarks import transformer_step

SMALL = (2, 8, 6, 3)


def test_the_step_learns_its_batch_and_has_the_parameters_of_gpt2s_form() -> None:
    """Embeddings; in each block two norms, four projections and two layers, with biases; a norm."""
    layers, width, length, _ = SMALL
    step, state, batch = transformer_step.training(SMALL)
    block = 2 * 2 * width + 4 * (width + 1) * width + (8 * width + 5) * width
    expected = (transformer_step.VOCABULARY + length + 2) * width + layers * block
    assert sum(leaf.size for leaf in jax.tree.leaves(state.params)) == expected
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
