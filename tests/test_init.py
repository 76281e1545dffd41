"""`import attnlab`: a few names, and nothing heavy before one of them is used."""

import pytest

import attnlab
from tests.commands.tiny import alone


@pytest.mark.quick
def test_importing_it_loads_nothing_heavy() -> None:
    code = (
        "import sys, attnlab; dir(attnlab); print([one for one in ('jax', 'flax', 'numpy',"
        " 'ml_collections') if one in sys.modules])"
    )
    assert alone(code) == "[]\n"


def test_its_names_are_there_when_asked_for() -> None:
    assert {"UserError", "load", "mechanism", "Run"} <= set(attnlab.__all__) <= set(dir(attnlab))
    assert all(getattr(attnlab, name) is not None for name in attnlab.__all__)
    with pytest.raises(AttributeError, match="module 'attnlab' has no attribute 'lod'"):
        attnlab.lod  # noqa: B018
