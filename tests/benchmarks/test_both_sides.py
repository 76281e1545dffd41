"""Both sides of a comparison with torch have the same sizes and texts. The other side is read, not
imported: torch need not be installed here.
"""

import ast
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks import generation, kernels, recurrence, transformer_step, vision_step

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
