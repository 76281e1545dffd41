"""What the benchmark of greedy search compares is comparable, and its table says what was found."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import numpy as np

from benchmarks import generation


def test_both_sides_have_the_same_sizes_and_texts() -> None:
    """Read, not imported: torch need not be installed here."""
    path = Path(generation.__file__).with_name("torch_decoding.py")
    other = ast.parse(path.read_text())
    found = {
        ast.unparse(node.targets[0]): ast.literal_eval(node.value)
        for node in other.body
        if isinstance(node, ast.Assign)
    }
    ours = generation
    assert found == {
        "(BATCHES, PROMPT, NEW)": (ours.BATCHES, ours.PROMPT, ours.NEW),
        "(PLACES, SHORT, AROUND)": (ours.PLACES, ours.SHORT, ours.AROUND),
    }
    drawn = "np.random.RandomState(0).randint(vocabulary, size=(rows, length))"
    assert drawn in path.read_text() and drawn in Path(generation.__file__).read_text()
    assert all(place % (generation.AROUND // 2) == 0 for place in generation.PLACES)


def test_the_table_takes_the_least_of_all_rounds() -> None:
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
