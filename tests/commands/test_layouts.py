"""Names and layouts of parameters, as the page docs/mechanisms.md lists them."""

import dataclasses
import re

import pytest

from attnlab.attention import MECHANISMS
from attnlab.commands import layouts


@pytest.mark.parametrize("name", MECHANISMS.names())
def test_every_axis_of_every_mechanism_has_a_letter(name: str) -> None:
    """A new mechanism needs its sizes in `layouts.MECHANISMS`; no two of its letters may stand for
    one size.
    """
    listed = layouts.mechanism_parameters(name)
    assert listed and not re.findall(r"\[[^\]]*\b\d\d+\b", listed), listed
    sizes = layouts.MECHANISMS[name]
    values = [*sizes.letters.values(), *sizes.widths.values()]
    assert len(set(values)) == len(values)


def test_layouts_are_those_of_the_arrays() -> None:
    words = "`out/kernel` [d, d], `w_key/kernel` [ds, K D], `w_query/kernel` [dq, d]"
    assert layouts.mechanism_parameters("multihead") == f"{words}, `w_value/kernel` [ds, K D]"
    assert layouts.part_parameters("score", "general") == "`score/w/kernel` [dq, d]"
    words = "`score/v` [A], `score/w_a/kernel` [2 d, A]"
    assert layouts.part_parameters("score", "concat") == words
    assert layouts.part_parameters("alignment", "sink") == "`alignment/logit` [H]"
    assert layouts.part_parameters("alignment", "softmax") == ""
    words = "`positions/keys` [2 k + 1, D], `positions/values` [2 k + 1, D]"
    assert layouts.part_parameters("positions", "shaw") == words
    assert layouts.part_parameters("positions", "learned") == ""


def test_inside_multihead_a_score_has_one_set_of_parameters_as_wide_as_a_head() -> None:
    sizes = dataclasses.replace(
        layouts.MECHANISMS["multihead"], fields={"heads": 4, "score": "general"}, letters={"D": 6}
    )
    assert "`score/w/kernel` [D, D]" in layouts.mechanism_parameters("multihead", sizes)
