"""Generated sources count their examples, keep splits apart, and give the same ones on every machine. Every
one draws equal examples from equal fields, no two splits share one, and what cannot be drawn is
refused in one line.
"""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from attnlab.config.tree import defaults
from attnlab.data import SOURCES, SPLITS
from attnlab.data.dataset import fingerprint_of_texts
from attnlab.data.generated import Sized, split_of
from tests.refusals import check_refused


def test_examples_of_a_split_are_those_whose_hash_says_so() -> None:
    assert [Sized(examples=5).count(split) for split in SPLITS] == [5, 1_000, 1_000]
    numbers = iter(range(10**6))
    source = Sized(valid=10, test=2)
    actual = list(source.apart("valid", lambda: (next(numbers), 1), lambda row: str(row[0])))
    every = [(number, 1) for number in range(actual[-1][0] + 1)]
    assert actual == [row for row in every if split_of(str(row[0])) == "valid"]
    words = "3,000 draws gave 0 texts of the test split; 2 are wanted"
    check_refused(words, list, source.apart("test", lambda: actual[0][0], str))
    twice = iter([(), *actual[:1], *actual])
    text = lambda row: str(row[0])
    assert list(source.apart("valid", lambda: next(twice), text, text)) == actual
    too_few = source.apart("valid", lambda: actual[0], text, text, refusal="too few")
    check_refused("too few", list, too_few)


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


SIZES = {"examples": 60, "valid": 20, "test": 10}
SCENES = {"side": 36, "small": 3, "large": 5}


IDENTITIES: dict[str, Callable[[Any], Any]] = {
    "pairs": lambda pair: pair,
    "texts": lambda text: text,
    "labelled": lambda row: row[0][0],  # the first text: a premise
    "questions": lambda row: row.passage,
    "tagged": lambda sentence: sentence.words,
    "asked": lambda row: row.words,
    "scenes": lambda scene: scene,
}
"""What no two splits share, by the method of a source."""
DRAWN = {
    **dict.fromkeys(("dates", "grammar", "copying", "spelling"), "pairs"),
    **{"associations": "texts", "agreement": "tagged", "deeds": "questions"},
    **dict.fromkeys(("markers", "lookup", "entailment"), "labelled"),
    **dict.fromkeys(("mqar", "associative_recall", "needle", "selective_copying"), "asked"),
    **dict.fromkeys(("induction", "state_tracking", "list_ops"), "asked"),
    **dict.fromkeys(("shapes", "scenes", "sort_of_clevr"), "scenes"),
}


def read(name: str, fields: dict[str, Any], split: str) -> list[Any]:
    rows = getattr(SOURCES.resolve(name)(**fields), DRAWN[name])(split)
    return [*map(IDENTITIES[DRAWN[name]], rows)]


@pytest.mark.parametrize("name", DRAWN)
def test_splits_share_nothing_and_equal_fields_give_equal_examples(name: str) -> None:
    """Whatever the seeds of the splits are; fewer examples are the first of more."""
    fields = {**SIZES, **(SCENES if name in ("shapes", "scenes") else {})}

    def drawn(split: str, **changes: int) -> list[Any]:
        return read(name, fields | changes, split)

    every = [drawn(split, seed=seed) for split in SPLITS for seed in (0, 1)]
    assert [len(examples) for examples in every] == [60, 60, 20, 20, 10, 10]
    assert all(one != other for one, other in itertools.pairwise(every))
    splits = [{*one, *other} for one, other in zip(every[::2], every[1::2], strict=True)]
    assert not any(one & other for one, other in itertools.combinations(splits, 2))
    assert drawn("valid") == every[2] and drawn("valid", valid=5) == every[2][:5]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("dates", {"examples": 0}, "config.data.examples=0 must be"),
    ("dates", {"valid": -1}, "config.data.valid=-1 must be"),
    ("grammar", {"test": 0}, "config.data.test=0 must be"),
    ("copying", {"seed": -3}, "config.data.seed=-3 must be"),
    ("copying", {"tested": 20}, "tested=20 must be 0 or above config.data.longest=20"),
    ("copying", {"shortest": 0}, "data.shortest=0 .* expected 1 <= shortest <= longest"),
    ("copying", {"shortest": 5, "longest": 4}, "shortest=5 and config.data.longest=4"),
    ("copying", {"symbols": 1}, r"config.data.symbols=1 must be in 2 \.\.\. 26"),
    ("copying", {"symbols": 27}, "config.data.symbols=27"),
    ("copying", {"longest": 2}, r"config.data.longest=2: 20\^2 different texts are too few"),
    ("associations", {"length": 7}, "config.data.length=7 must be"),
    ("associations", {"length": 0}, "config.data.length=0 must be"),
    ("associations", {"tested": 3}, "config.data.tested=3 must be"),
    ("associations", {"keys": 0}, "config.data.keys=0 must be"),
    ("associations", {"keys": 27}, "config.data.keys=27 must be"),
    ("associations", {"values": 11}, "config.data.values=11 must be"),
    ("lookup", {"pairs": 0}, "pairs=0 and config.data.keys=20: expected 1 <= pairs <= keys"),
    ("lookup", {"pairs": 21}, "pairs=21 and config.data.keys=20"),
    ("lookup", {"keys": 27}, "keys=27: expected 1 <= pairs <= keys <= 26"),
    ("lookup", {"values": 1}, r"values=1 must be in 2 \.\.\. 10"),
    ("lookup", {"pairs": 1, "keys": 9}, "pairs=1: 90 texts are too few"),
    ("lookup", {"pairs": 2, "keys": 2, "values": 2}, "pairs=2: 16 texts are too few"),
    ("markers", {"shortest": 3}, "shortest=3 and config.data.longest=60"),
    ("markers", {"shortest": 70}, "4 <= shortest <= longest"),
    ("markers", {"numbers": 1}, r"numbers=1 must be in 2 \.\.\. 100"),
    ("markers", {"words": 81}, r"words=81 must be in 2 \.\.\. 80"),
    ("entailment", {"clauses": 1}, r"config.data.clauses=1 must be in 2 \.\.\. 5"),
    ("entailment", {"clauses": 6}, r"config.data.clauses=6 must be in 2 \.\.\. 5"),
    ("mqar", {"length": 16, "pairs": 5}, r"pairs=5 must be in 1 \.\.\. 4"),
    ("mqar", {"fewest": 5}, r"fewest=5 must be in 0 \.\.\. 4"),
    ("mqar", {"length": 17}, "data.length=17 must be even"),
    ("mqar", {"tested_length": 8}, r"tested_pairs=4 must be in 1 \.\.\. 2"),
    ("needle", {"tested": 5}, "data.tested=5 must be even"),
    ("mqar", {"power": 0.0}, "power=0.0 must be above 0"),
    ("mqar", {"symbols": 6}, "symbols=6 must be at least 8"),
    ("associative_recall", {"pairs": 10, "distance": 2}, "keys=9 must be at least 10"),
    ("associative_recall", {"pairs": 5, "distance": 5}, r"distance=5 must be in -1 \.\.\. 4"),
    ("associative_recall", {"pairs": 1, "keys": 2, "values": 2, "test": 1}, "too few different"),
    ("needle", {"length": 40, "hay": "pairs", "keys": 19}, "keys=19 must be at least 20"),
    ("selective_copying", {"symbols": 1}, "symbols=1 must be at least 2"),
    ("induction", {"length": 1}, "length=1 must be at least 2"),
    ("induction", {"length": 2, "symbols": 2, "test": 1}, "too few different texts"),
    ("state_tracking", {"of": "symmetric", "order": 7}, r"order=7 must be in 2 \.\.\. 6"),
    ("state_tracking", {"length": 0}, "length=0 must be at least 1"),
    ("list_ops", {"shortest": 30, "longest": 20}, "expected 4 <= shortest <= longest"),
    ("list_ops", {"depth": 1, "most": 2, "shortest": 30, "longest": 40}, "none of 100,000 trees"),
    ("shapes", {"small": 2}, "config.data.small=2 must be at least 3"),
    ("shapes", {"large": 2}, "config.data.large=2"),
    ("shapes", {"side": 11, "small": 3, "large": 5}, "config.data.side=11 must be in 12"),
    ("shapes", {"noise": 200}, "config.data.noise=200"),
    ("shapes", {"side": 1024, "test": 10**6}, "1,000,000 images of 1024 x 1024 x 3 take 2,930"),
    ("scenes", {"grid": 17}, "config.data.grid=17"),
    ("scenes", {"most": 10}, r"config.data.most=10 must be in 1 \.\.\. 9"),
    ("scenes", {"fewest": 5}, r"config.data.fewest=5 must be in 1 \.\.\. 4"),
    ("scenes", {"jitter": 6}, r"config.data.jitter=6 must be in 0 \.\.\. 5"),
    ("scenes", {"large": 9}, "large=9: such objects are not whole in the outer cells"),
    ("scenes", {"held_out": ("red stra",)}, "no pair 'red stra'; did you mean 'red star'"),
    ("sort_of_clevr", {"radius": 1}, "config.data.radius=1 must be in 2"),
    ("sort_of_clevr", {"side": 19, "radius": 2}, "config.data.side=19 must be in 20"),
    ("sort_of_clevr", {"relational": 19}, r"config.data.relational=19 must be in 0 \.\.\. 18"),
    ("sort_of_clevr", {"relational": 0, "non_relational": 0}, "nothing is asked"),
    ("sort_of_clevr", {"side": 1024, "test": 10**6}, "1,000,000 images of .* take 2,930 GiB"),
]
OF_SCENES = {"side": 36, "grid": 3, "small": 3, "large": 5, "jitter": 2}


@pytest.mark.parametrize(("name", "fields", "words"), REFUSED)
def test_what_cannot_be_drawn_is_refused(name: str, fields: dict[str, Any], words: str) -> None:
    given = {**(OF_SCENES if name == "scenes" else {}), **fields}
    check_refused(words, read, name, given, "test")
