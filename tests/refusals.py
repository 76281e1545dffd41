"""What is refused, and in how many lines."""

from collections.abc import Callable

import pytest

from attnlab.errors import UserError


def check_refused(
    words: str, call: Callable[..., object], *arguments: object, **options: object
) -> None:
    """Checks that a call raises `UserError` with one line in which the regular expression `words`
    is found.
    """
    __tracebackhide__ = True
    with pytest.raises(UserError, match=words) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
