"""Generated sources count their examples, keep splits apart, and give the same ones on every machine."""

import pytest

from attnlab.config.tree import defaults
from attnlab.data import SOURCES, SPLITS
from attnlab.data.dataset import fingerprint_of_texts
from attnlab.data.generated import Sized, split_of
from attnlab.errors import UserError


def test_examples_of_a_split_are_those_whose_hash_says_so() -> None:
    assert [Sized(examples=5).count(split) for split in SPLITS] == [5, 1_000, 1_000]
    numbers = iter(range(10**6))
    source = Sized(valid=10, test=2)
    actual = list(source.apart("valid", lambda: (next(numbers), 1), lambda row: str(row[0])))
    every = [(number, 1) for number in range(actual[-1][0] + 1)]
    assert actual == [row for row in every if split_of(str(row[0])) == "valid"]
    with pytest.raises(UserError, match="3,000 draws gave 0 texts of the test split; 2 are wanted"):
        list(source.apart("test", lambda: actual[0][0], str))
    twice = iter([(), *actual[:1], *actual])
    text = lambda row: str(row[0])
    assert list(source.apart("valid", lambda: next(twice), text, text)) == actual
    with pytest.raises(UserError, match="too few"):
        list(source.apart("valid", lambda: actual[0], text, text, refusal="too few"))


def test_the_pairs_are_the_same_on_every_machine() -> None:
    """A number measured on generated data means something elsewhere only as long as these hold."""
    actual = {
        name: fingerprint_of_texts(SOURCES.resolve(name)(examples=500).pairs("train"))[:12]
        for name in ("dates", "grammar", "copying", "spelling")
    }
    expected = {"dates": "45fefdca87af", "grammar": "e83733ae9e36", "copying": "b3a2f43c733b"}
    assert actual == expected | {"spelling": "40875344cd19"}


def test_every_source_in_the_table_has_only_defaults() -> None:
    for name in SOURCES.names():
        source = SOURCES.resolve(name)
        assert source(**defaults(source)) == source()
