"""A run without data says what to add."""

import pytest

from attnlab.data import SOURCES
from tests.refusals import check_refused


@pytest.mark.parametrize(("asked", "name"), [("texts", "text"), ("pairs", "table")])
def test_what_reads_it_is_told_what_to_add(asked: str, name: str) -> None:
    source = SOURCES.resolve("none")()
    check_refused(f"no test split; add .*--config.data={name}", getattr(source, asked), "test")
