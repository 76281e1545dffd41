"""The choice of one class: rows of padding, labels that training does not have, and the table of
labels and answers.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.records.items import Items
from attnlab.tasks.choices import choice_rows, choice_sums, confusion, likeliest

LOGITS = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]], np.float32))


@pytest.mark.quick
def test_sums_and_rows_leave_padding_and_labels_not_known_out() -> None:
    """The first row is right, the second padding, the third of a class that training lacks."""
    sums = choice_sums(jnp.asarray(LOGITS), jnp.array([1, 0, 4]), 0.0)
    expected = {"loss": np.log(2), "known": 1, "rows": 2, "correct": 1}
    assert {name: float(value) for name, value in sums.items()} == pytest.approx(expected)
    classes = np.array([0, 3])
    items = Items.of(choice_rows(LOGITS[[0, 2]], classes, classes < 3))
    assert items.score("loss") == pytest.approx(np.log(2)) and items.score("accuracy") == 0.5


def test_the_table_has_labels_that_nobody_can_answer_and_the_likeliest_its_log_probability() -> (
    None
):
    table = confusion([("a", "a"), ("a", "b"), ("z", "b"), ("a", "b")], ["a", "b"])
    assert table == {"a": {"a": 1, "b": 2}, "b": {"a": 0, "b": 0}, "z": {"a": 0, "b": 1}}
    best = likeliest(LOGITS[1], "xyz")
    assert best.text == "y" and best.score == pytest.approx(np.log(0.8))


@pytest.mark.quick
def test_counting_answers_takes_no_look_at_every_pair_for_every_cell() -> None:
    class Name(str):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Name.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    names = [Name(number) for number in range(20)]
    table = confusion(((names[n % 20], names[n % 7]) for n in range(200)), names)
    assert sum(map(sum, (row.values() for row in table.values()))) == 200
    assert Name.compared < 20 * 200
