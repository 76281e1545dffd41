"""What a decoder reads in a pass; translations and captions are tested in files of their own."""

import types
from typing import Any

import numpy as np
import pytest

from attnlab.data.vocabulary import BOS, EOS, OURS, PAD
from attnlab.tasks.written import WritingTask


@pytest.mark.parametrize("over_batch", [False, True])
def test_words_behind_an_end_are_padding_to_norms_over_a_batch(over_batch: bool) -> None:
    """BOS first; elsewhere what stands behind the end is never seen, and stays as it is."""
    task: Any = object.__new__(WritingTask)
    task.special, task.system = OURS, types.SimpleNamespace(over_batch=over_batch)
    target = np.array([[5, 6, EOS], [7, EOS, PAD], [PAD, PAD, PAD]])
    last = PAD if over_batch else EOS
    first = PAD if over_batch else BOS
    expected = [[BOS, 5, 6], [BOS, 7, last], [first, PAD, PAD]]
    np.testing.assert_array_equal(task.target_in(target), expected)
    np.testing.assert_array_equal(task.shifted(target)[:, 1:], target[:, :-1])
