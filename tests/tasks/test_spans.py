"""Spans in tags, and their scores."""

from __future__ import annotations

import pytest

from attnlab.tasks.spans import counts, in_spans, scores, spans


@pytest.mark.quick
def test_spans_begin_and_end_as_conlleval_has_it() -> None:
    tags = ["B-X", "I-X", "I-Y", "I-Y", "O", "I-X", "B-X", "O", "B-Y"]
    assert spans(tags) == {("X", 0, 2), ("Y", 2, 4), ("X", 5, 6), ("X", 6, 7), ("Y", 8, 9)}
    assert spans([]) == spans(["O", "O"]) == set()
    assert counts(["B-X", "I-X", "O"], ["B-X", "O", "B-X"]) == (0, 2, 1)
    assert counts(["B-X", "I-X", "O"], ["I-X", "I-X", "B-X"]) == (1, 2, 1)
    assert scores(1, 2, 1) == {"precision": 0.5, "recall": 1.0, "f1": 2 / 3}
    assert scores(0, 0, 0) == {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert in_spans(["O", "B-X"]) and not in_spans(["O"]) and not in_spans(["NOUN", "B-X"])
