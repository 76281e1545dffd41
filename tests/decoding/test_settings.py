"""The config node `decoding` has defaults, and one clear line for everything that cannot work."""

from typing import Any

import pytest

from attnlab.decoding.settings import METHODS, Decoding, validate
from attnlab.errors import UserError


def test_values_arrive_and_defaults_fit_every_method() -> None:
    """There is always room for one token."""
    for method in METHODS:
        assert validate({"method": method}) == Decoding(method=method)
    given = {"beam": 12, "n_best": 12, "length_penalty": 1.0, "max_ratio": 1.5, "max_extra": 3}
    chosen = validate({"method": "beam", **given})
    assert given.items() <= chosen.to_dict().items()
    assert [chosen.limit(length) for length in (0, 1, 10)] == [3, 5, 18]
    assert validate({"max_ratio": 0.0, "max_extra": 0}).limit(9) == 1


REFUSED = [
    ({"method": "beem"}, "config.decoding.method='beem'; did you mean 'beam'"),
    ({"method": "viterbi"}, "choose from: beam, greedy, sample"),
    ({"bean": 3}, "config.decoding.bean: no such key; did you mean 'beam'"),
    ({"beam": 0}, "decoding.beam=0: expected a whole number of at least 1 and at most 4,096"),
    ({"beam": 2.5}, "decoding.beam=2.5 is of type float"),
    ({"temperature": -0.1}, "decoding.temperature=-0.1"),
    ({"temperature": float("nan")}, "decoding.temperature=nan"),
    ({"top_p": 0.0}, "decoding.top_p=0.0: expected a number above 0 and at most 1"),
    ({"top_p": 1.01}, "decoding.top_p=1.01"),
    ({"top_k": -1}, "decoding.top_k=-1"),
    ({"max_ratio": float("inf")}, "decoding.max_ratio=inf"),
    ({"length_penalty": -1.0}, "decoding.length_penalty=-1.0"),
    ({"seed": 2**32}, "decoding.seed=4294967296: expected a whole number below 2^32"),
    ({"n_best": 6}, "decoding.n_best=6 is more than decoding.beam=5"),
    ({"method": "greedy", "n_best": 2}, "greedy search finds one"),
    ({"stop": ("",)}, "decoding.stop: an empty text"),
    ({"repetition_penalty": 1.5}, "repetition_penalty=1.5 goes with method"),
]


@pytest.mark.parametrize(("node", "message"), REFUSED)
def test_what_cannot_work_is_one_line(node: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        validate(node)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_coverage_needs_weights() -> None:
    assert validate({"coverage": 0.2}).coverage == 0.2
    assert validate({"method": "greedy", "coverage": 0.2}, weights=False).method == "greedy"
    with pytest.raises(UserError, match="needs attention weights"):
        validate({"coverage": 0.2}, weights=False)
