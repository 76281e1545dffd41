"""`--score=my_file:MyScore`, `--alignment` and `--positions`: what every registered part of its kind
is put through, for one that is not registered. SETTINGS of its module is a list of configs, [{}]
without; `oracle` of its module, or `--oracle`, is the float64 reference:

    score       oracle(params, fields, q, k, j) to a number, of one query [dq] and one key [dk] at j
    alignment   oracle(row) to weights [Tk], of an `alignment_oracles.Row`
    positions   oracle(params, fields, h, q, k, i, j) to what head h adds to the score
"""

import importlib
from typing import Any

import pytest

from attnlab.attention.alignments import ALIGNMENTS
from attnlab.attention.positions import POSITIONS
from attnlab.attention.scores import SCORES
from attnlab.config.registry import Table
from tests.attention import alignment_oracles, position_oracles, score_oracles

KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "score": (SCORES, score_oracles.SCORES),
    "alignment": (ALIGNMENTS, alignment_oracles.ALIGNMENTS),
    "positions": (POSITIONS, position_oracles.POSITIONS),
}
CHOSEN: dict[str, tuple[str, list[Any]]] = {}
"""By kind: the dotted path of the one that is tested, and its settings."""


def only(kind: str, path: str, oracle: str | None) -> None:
    """Test the part at `path` in place of those that are registered; `UserError` without an oracle
    or such a class.
    """
    table, oracles = KINDS[kind]
    beside = importlib.import_module(table.resolve(path).__module__)
    oracles[path] = Table[Any]("oracle", {}).find(oracle or f"{beside.__name__}:oracle")
    if kind == "positions":
        given = oracles[path]

        class Own(position_oracles.Nothing):
            def bias(self, *at: Any) -> Any:
                return given(self.params, self.fields, *at)

        oracles[path] = Own
    CHOSEN[kind] = path, getattr(beside, "SETTINGS", [{}])


def settings(kind: str, registered: list[Any]) -> list[Any]:
    """What tests of a kind run over: name and fields of each."""
    if kind not in CHOSEN:
        return registered
    path, own = CHOSEN[kind]
    return [(path, fields) for fields in own]


def runs_over_chosen(item: pytest.Item) -> bool:
    """Whether a test runs over what was chosen."""
    (kind, (path, _)), given = *CHOSEN.items(), getattr(item, "callspec", None)
    if given is None:
        return False
    of_case = kind == "positions" and item.path.stem == "test_positions"
    return given.params.get("name") == path or (of_case and "case" in given.params)
