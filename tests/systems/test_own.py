"""What every system is put through, over the one of `--system`; without it this file is not
read.
"""

import pytest

from tests.systems.own import PROMISES, Promise


@pytest.mark.parametrize("check", [pytest.param(promise, id=name) for name, promise in PROMISES])
def test_promise(check: Promise) -> None:
    check()
