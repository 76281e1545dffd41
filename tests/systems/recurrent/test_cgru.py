"""What decoders have read when they look."""

import numpy as np
import pytest

from attnlab.attention.protocol import MAPS
from tests.systems.checks import COMPARED, SPECS, VOCABULARY, batch, prepared
from tests.systems.tiny import seldom


@pytest.mark.parametrize(
    ("name", "knows", "further"),
    seldom(
        (
            ("cgru", True, 1),
            ("rnnsearch-released", True, 6),
            ("rnnsearch", False, 6),
            ("gnmt", False, 3),
            ("gnmt-current", True, 3),
        ),
        *(("cgru", True, 1), ("rnnsearch", False, 6)),
    ),
)
def test_who_has_read_the_last_word_when_it_looks(name: str, knows: bool, further: int) -> None:
    """The weights of step i change with the word read at step i; where RNNsearch and GNMT are as
    printed they do not.
    """
    call, system = prepared({**COMPARED, **SPECS}[name])
    source, target = batch()
    other = target.copy()
    other[:, 2] = 4 + (other[:, 2] - 4 + further) % (VOCABULARY - 4)
    before, after = (
        np.asarray(system.alignment(system.maps(call(source, ids, mutable=[MAPS])[1][MAPS])))
        for ids in (target, other)
    )
    change = np.abs(after - before).max(axis=2)[:2]  # the third source has one word, which gets all
    assert (change[:, :2] == 0.0).all() and (change[:, 3] > 1e-6).all()
    assert (change[:, 2] > 1e-6).all() if knows else (change[:, 2] == 0.0).all()
