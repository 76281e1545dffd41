"""Where the windows of Luong et al. 2015 lie that follow the target; the rest is held by the
oracle.
"""

import numpy as np
import pytest

from attnlab.attention.protocol import MAPS
from tests.systems.checks import SPECS, batch, prepared


@pytest.mark.parametrize("order", ["reversed", "plain"])
@pytest.mark.parametrize("feeding", ["input", "none"])
def test_windows_lie_by_the_words_of_the_source_whichever_way_it_was_read(
    order: str, feeding: str
) -> None:
    """Of one word: the first target word looks at the first source word, the t-th at the t-th, past
    the end at the last real one.
    """
    window = {"alignment": {"name": "local_m", "reach": 0}}
    spec = {**SPECS["luong"], "layers": 1, "order": order, "feeding": feeding}
    call, system = prepared({**spec, "attention": {**spec["attention"], **window}})
    _, left = call(*batch(), mutable=[MAPS])
    weights = np.asarray(system.alignment(system.maps(left[MAPS])))
    seen = np.minimum(np.arange(5), np.array([6, 3, 1])[:, None] - 1)
    np.testing.assert_array_equal(weights, np.arange(6) == seen[..., None])
