"""The table of the benchmark of greedy search says what was found."""

import math
from pathlib import Path

import numpy as np

from benchmarks import generation


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
