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


def test_inside_multihead_a_score_has_one_set_of_parameters_as_wide_as_a_head() -> None:
    sizes = dataclasses.replace(
        layouts.MECHANISMS["multihead"], fields={"heads": 4, "score": "general"}, letters={"D": 6}
    )
    assert "`score/w/kernel` [D, D]" in layouts.mechanism_parameters("multihead", sizes)
