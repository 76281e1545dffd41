"""Every way of running layers has a row in the table."""

import pytest

from benchmarks import deep_stacks
from benchmarks.deep_stacks import WAYS, measured

pytestmark = (
    pytest.mark.full
)  # that the ways agree: tests/systems/transformers/test_transformers.py


def test_a_row_for_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: WAYS[name] for name in ("written out", "scan")}
    monkeypatch.setattr(deep_stacks, "WAYS", few)
    rows = measured(1, 32, 8, 2, 16, 1)
    assert [row[0] for row in rows] == list(few)
    assert all(figure > 0 for row in rows for figure in row[1:])
