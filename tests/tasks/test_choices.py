"""The choice of one class: rows of padding, labels that training does not have, and the table of
labels and answers.
"""

import pytest

from attnlab.tasks.choices import confusion


def test_the_table_has_labels_that_nobody_can_answer() -> None:
    """Sums, rows and the likeliest answer: test_classification.py and test_visual_questions.py."""
    table = confusion([("a", "a"), ("a", "b"), ("z", "b"), ("a", "b")], ["a", "b"])
    assert table == {"a": {"a": 1, "b": 2}, "b": {"a": 0, "b": 0}, "z": {"a": 0, "b": 1}}


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
