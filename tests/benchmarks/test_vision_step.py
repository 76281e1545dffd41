"""The steps of the benchmark of image classifiers learn, and its networks are of the papers' form."""

import jax
import pytest

from benchmarks import vision_step


@pytest.mark.parametrize("name", ["vit", pytest.param("resnet", marks=pytest.mark.full)])
def test_the_step_learns_its_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a smaller network."""
    monkeypatch.setattr(vision_step, "ROWS", 4)
    small = {"depth": 8, "width": 4} if name == "resnet" else {"layers": 1}
    monkeypatch.setitem(vision_step.SYSTEMS, name, vision_step.SYSTEMS[name] | small)
    step, state, batch = vision_step.training(name)
    losses = []
    for _ in range(12):
        state, sums = step(state, batch)
        losses.append(float(sums["loss"]))
    assert losses[-1] < losses[0] - 0.3


def test_full_sizes_have_the_parameters_of_the_papers_form() -> None:
    """Batch norm has two running averages a channel beside what torch counts as parameters."""
    counted = {}
    for name in vision_step.SYSTEMS:
        params = jax.eval_shape(lambda name=name: vision_step.training(name)[1].params)
        counted[name] = sum(leaf.size for leaf in jax.tree.leaves(params))
    width, grid, classes = 64, 8 * 8, 10
    layer = 2 * 2 * width + 4 * (width + 1) * width + (8 * width + 5) * width
    patches = (3 * 4 * 4 + 1) * width + width + (grid + 1) * width
    assert counted["vit"] == patches + 4 * layer + 2 * width + (width + 1) * classes
    convolutions = 9 * (3 * 16 + 6 * 16 * 16 + 16 * 32 + 5 * 32 * 32 + 32 * 64 + 5 * 64 * 64)
    short = 16 * 32 + 32 * 64
    norms = 4 * (7 * 16 + 6 * 32 + 6 * 64 + 32 + 64)
    assert counted["resnet"] == convolutions + short + norms + 65 * classes
