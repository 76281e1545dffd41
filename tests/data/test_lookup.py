"""The label is the value of the key that is asked for; its place tells nothing."""

from collections import Counter

import pytest

from attnlab.data.lookup import Lookup


@pytest.mark.quick
def test_the_label_is_the_value_of_the_key_that_is_asked_for() -> None:
    rows = Lookup(examples=400).labelled("train")
    assert len(rows) == 400
    places: Counter[int] = Counter()
    for (text,), label in rows:
        *pairs, key = text.split()
        values = {pair[0]: pair[1:] for pair in pairs}
        assert len(pairs) == len(values) == 16 and len(key) == 1 and values[key] == label
        places[pairs.index(key + label)] += 1
    counts = Counter(label for _, label in rows)
    assert set(counts) == set("0123456789")
    assert min(counts.values()) > 20
    assert set(places) == set(range(16))
