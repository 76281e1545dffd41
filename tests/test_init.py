"""`import attnlab`: a few names. That it loads nothing heavy: test_layout.py."""

import pytest

import attnlab


def test_its_names_are_there_when_asked_for() -> None:
    assert {"UserError", "load", "mechanism", "Run"} <= set(attnlab.__all__) <= set(dir(attnlab))
    assert all(getattr(attnlab, name) is not None for name in attnlab.__all__)
    with pytest.raises(AttributeError, match="module 'attnlab' has no attribute 'lod'"):
        attnlab.lod  # noqa: B018
