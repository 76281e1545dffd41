"""Tasks of pairs of texts keep their vocabularies and say what is left out of their data."""

import pytest

from attnlab.tasks.translation import Translation
from tests.tasks.tiny import APART, load, looked, noisy


@pytest.fixture(scope="module")
def plain() -> Translation:
    """A task that nobody trains."""
    return load("rnnsearch")


def test_notes_tell_what_is_unknown(plain: Translation) -> None:
    notes = plain.notes(plain.batches(1))
    letters = sum(len(source) + 1 for source, _ in plain.data.rows["train"])
    each = f"{letters} tokens (0 unknown)"
    assert notes[0] == f"train: 64 pairs, source {each}, target {each}"
    assert [note.split(":")[0] for note in notes] == ["train", "valid", "test"]
    assert plain.longer_than(5, ["abcd", "abcde", "", "abcdea"]) == [1, 3]


def test_each_side_has_its_vocabulary() -> None:
    """Lower case to upper case, nothing shared: the same ids read otherwise on the two sides."""
    task = load("transformer", *APART, "system.share=output")
    params = noisy(task)
    _, tokens = looked(task, params, "abc", "CBA")
    labels = {"source": [*"abc", "</s>"], "target": [*"CBA", "</s>"], "target_in": ["<s>", *"CBA"]}
    assert tokens == labels
    written = [task.text(best[0]) for best in task.translate(params, ["abcde", "e"])]
    assert not {*"".join(written)} & {*"abcde"}
