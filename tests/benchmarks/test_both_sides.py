"""Benchmarks beside torch: both sides have the same sizes and texts (the other one is read, not
imported: torch need not be installed here); the programs of ours are what one would write by hand,
learn, and have the parameters of the papers' form; tables say what was measured.
"""

import ast
import collections
import math
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

from benchmarks import generation, kernels, recurrence, transformer_step, vision_step
from benchmarks.step_profile import matmul_operations

VIT = vision_step.SYSTEMS["vit"]


def beside(file: str) -> str:
    """The text of a file beside the benchmarks."""
    return Path(generation.__file__).with_name(file).read_text()


def constants(file: str) -> dict[str, Any]:
    """The constants of the other side, by name."""
    found: dict[str, Any] = {}
    for node in ast.parse(beside(file)).body:
        if isinstance(node, ast.Assign):
            value = ast.literal_eval(node.value)
            names = ast.unparse(node.targets[0]).strip("()").split(", ")
            found |= dict(zip(names, value if len(names) > 1 else (value,), strict=True))
    return found


def trained(step: Any, state: Any, batch: Any, number: int) -> tuple[Any, list[float]]:
    """The state after so many steps with one batch, and the loss of each."""
    losses = []
    for _ in range(number):
        state, sums = step(state, batch)
        losses.append(float(sums["loss"]))
    return state, losses


@pytest.mark.parametrize(
    ("ours", "file", "named"),
    [
        (generation, "torch_decoding.py", "BATCHES PROMPT NEW PLACES SHORT AROUND"),
        (kernels, "torch_attention.py", "SHAPES"),
        (recurrence, "torch_recurrence.py", "SIZES"),
        (transformer_step, "torch_transformer.py", "SHAPES HEADS VOCABULARY"),
        (vision_step, "torch_vision.py", "ROWS SIDE CLASSES"),
    ],
)
def test_both_sides_have_the_same_sizes(ours: ModuleType, file: str, named: str) -> None:
    expected = {name: getattr(ours, name) for name in named.split()}
    if ours is vision_step:
        sizes = {name.upper(): VIT[name] for name in ("width", "layers", "patch")}
        expected |= {**sizes, "HEADS": VIT["attention"]["heads"]}
        assert VIT["hidden"] == 4 * VIT["width"]
    assert constants(file) == expected


def test_both_sides_write_after_the_same_texts() -> None:
    drawn = "np.random.RandomState(0).randint(vocabulary, size=(rows, length))"
    assert drawn in beside("torch_decoding.py") and drawn in beside("generation.py")
    assert all(place % (generation.AROUND // 2) == 0 for place in generation.PLACES)


def test_the_table_of_decoding_takes_the_least_of_all_rounds() -> None:
    names = [f"batch_{rows}" for rows in generation.BATCHES]
    names += [f"token_{place}" for place in generation.PLACES]
    found = {
        "attnlab": {name: [1.28, 2.56] for name in names},
        "transformers": {name: [2.56, 3.0] for name in names[1:]},
    }
    one, eight, *tokens = generation.rows(found)
    assert one[:3] == ("1 rows", 100.0, 10.0) and math.isnan(one[-1])
    assert eight == ("8 rows", 800.0, 10.0, 20.0, 2.0)
    assert tokens[0][:3] == ("token 10", 0.78, 1280.0)


def test_tokens_agree_up_to_the_first_difference(tmp_path: Path) -> None:
    np.save(tmp_path / "attnlab_2.npy", np.array([[1, 2, 3], [4, 5, 6]]))
    np.save(tmp_path / "torch_2.npy", np.array([[1, 9, 3], [4, 5, 6]]))
    assert generation.agreeing(tmp_path, 2) == [1, 3]


LAYER = (2, 8, 2, 4)


def test_the_plain_kernel_compiles_to_what_one_would_write_by_hand() -> None:
    """The same function, the same operations, FLOPs and bytes: the framework costs nothing at
    run time.
    """
    function, params, x = kernels.layer(LAYER, "plain")
    by_hand = kernels.by_hand(LAYER)
    np.testing.assert_array_equal(jax.jit(function)(params, x), jax.jit(by_hand)(params, x))
    ours, hand = kernels.compiled(function, params, x), kernels.compiled(by_hand, params, x)
    one, other = (
        collections.Counter(re.findall(r"= (\S+ [a-z-]+)\(", program.as_text()))
        for program in (ours, hand)
    )  # "f32[2,8]{1,0} dot"
    assert one == other and len(one) > 5
    for figure in ("flops", "bytes accessed"):
        assert ours.cost_analysis()[figure] == hand.cost_analysis()[figure] > 0


def test_programs_take_turns() -> None:
    ran: list[str] = []
    programs = {name: (lambda name=name: ran.append(name), ()) for name in ("a", "b")}
    found = kernels.turns(programs, least=3, enough=0.0)
    assert ran == list("ababbaab") and set(found) == {"a", "b"}  # the first to warm up


LSTM = {"width": 8, "layers": 1, "rows": 3, "steps": 5, "vocabulary": 20}


def test_the_step_multiplies_what_is_said_and_learns() -> None:
    step, state, batch = recurrence.training(LSTM)
    jaxpr = jax.make_jaxpr(step)(state, batch).jaxpr
    assert matmul_operations(jaxpr) == recurrence.products(LSTM)
    state, losses = trained(step, state, batch, 20)
    assert losses[-1] < 0.9 * losses[0]
    assert [leaf.shape for leaf in jax.tree.leaves(state.remembered)] == [(3, 8)] * 2


def test_the_table_says_how_many_times_faster() -> None:
    found = {
        "attnlab": {"seconds_per_step": [0.2, 0.3, 0.1], "flops_per_second": [1e12] * 3},
        "versus": {"seconds_per_step": [0.4] * 3},
    }
    step, share = recurrence.table(recurrence.SIZES, found)
    assert step[1:] == ("200", "torch's nn.LSTM: 400", "2.00 times the speed")
    words = f"{100 * recurrence.products(recurrence.SIZES) / 0.2 / 1e12:.0f} % of the peak"
    assert share[3] == words
    assert recurrence.products(recurrence.SIZES) == pytest.approx(
        3 * 2 * 700 * (2 * 8 * 650**2 + 650 * 10000)
    )
    assert len(recurrence.table(recurrence.SIZES, {"attnlab": found["attnlab"]})) == 2


DECODER = (2, 8, 6, 3)


def test_the_step_learns_its_batch_and_has_the_parameters_of_gpt2s_form() -> None:
    """Embeddings; in each block two norms, four projections and two layers, with biases; a norm."""
    layers, width, length, _ = DECODER
    step, state, batch = transformer_step.training(DECODER)
    block = 2 * 2 * width + 4 * (width + 1) * width + (8 * width + 5) * width
    expected = (transformer_step.VOCABULARY + length + 2) * width + layers * block
    assert sum(leaf.size for leaf in jax.tree.leaves(state.params)) == expected
    _, losses = trained(step, state, batch, 30)
    assert abs(losses[0] - math.log(transformer_step.VOCABULARY)) < 0.5
    assert losses[-1] < losses[0] - 0.3


def test_the_table_of_steps_takes_the_least_of_all_rounds() -> None:
    names = ["_".join(map(str, shape)) for shape in transformer_step.SHAPES]
    found = {
        "attnlab": {f"step_{name}": [0.002, 0.001] for name in names},
        "torch": {f"eager_{name}": [0.004, 0.003] for name in names},
    }
    first = transformer_step.rows(found)[0]
    assert first[:4] == ("2, 64, 64, 32", 1.0, 3.0, 3.0)
    assert math.isnan(first[5])


@pytest.mark.parametrize("name", ["vit", pytest.param("resnet", marks=pytest.mark.full)])
def test_the_step_of_an_image_classifier_learns_its_batch(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a smaller network."""
    monkeypatch.setattr(vision_step, "ROWS", 4)
    small = {"depth": 8, "width": 4} if name == "resnet" else {"layers": 1}
    monkeypatch.setitem(vision_step.SYSTEMS, name, vision_step.SYSTEMS[name] | small)
    step, state, batch = vision_step.training(name)
    _, losses = trained(step, state, batch, 12)
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
