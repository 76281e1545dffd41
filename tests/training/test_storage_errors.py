"""What tensorstore only writes as text is understood as what it is."""

from __future__ import annotations

import errno

import pytest

from attnlab.training.storage_errors import disk_full, refusal, short_reason


def raised_from(cause: Exception) -> Exception:
    error = ValueError("the array layer_0/kernel\n could not be written" + 200 * "!")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("cause", "full", "number"),
    [
        (OSError(errno.ENOSPC, "no room"), True, errno.ENOSPC),
        (ValueError("RESOURCE_EXHAUSTED: Error writing [os_error_code='28']"), True, 28),
        (ValueError("PERMISSION_DENIED: [os_error_code='13']"), False, 13),
        (ValueError("a checksum differs"), False, None),
    ],
)
def test_the_cause_is_found_behind_other_errors(
    cause: Exception, full: bool, number: int | None
) -> None:
    error = raised_from(cause)
    assert disk_full(error) == full
    refused = refusal(error)
    assert (refused and refused.errno) == number


def test_a_reason_is_one_short_line_of_what_it_was_raised_from() -> None:
    assert short_reason(raised_from(KeyError("a\nb"))) == r"KeyError: 'a\nb'"
    long = short_reason(ValueError("x" * 500))
    assert long == "ValueError: " + "x" * 160 + "..."
