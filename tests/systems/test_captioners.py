"""Systems that write a text for an image look at content, whatever the order of what is seen."""

import numpy as np
import pytest

from tests.rounding import assert_close
from tests.systems.captioners import SPECS, made, regions, words
from tests.systems.tiny import seldom


@pytest.mark.parametrize(
    "name", seldom(("show_attend_tell", "top_down", "captioning_transformer"), "top_down")
)
def test_more_padding_changes_nothing_and_the_order_of_regions_neither(name: str) -> None:
    """A mean, and weights by what is there, know no order."""
    call, _, _ = made(SPECS[name], "regions")
    before = call(regions(), words())
    longer = np.pad(regions(), ((0, 0), (0, 2), (0, 0)))
    assert_close(call(longer, words()), before, eps=8)
    assert_close(call(regions()[:, ::-1], words()), before, eps=8)
