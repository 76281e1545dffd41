"""Every parameter of every registered part has a kind, and weight decay reaches matrices alone."""

from typing import Any

import jax.numpy as jnp
import pytest

from attnlab.commands.catalogue import parameter_shapes
from attnlab.config.registry import Table
from attnlab.errors import UserError
from attnlab.systems import SYSTEMS
from attnlab.training.kinds import KINDS, decayed_by_kind, differently_decayed, kind_of
from attnlab.training.trained import leaves_by_path
from tests.tasks.test_configs import LIGHT, load, slots

WIDEST = [
    ("language_modelling", "decoder", "system.layers=1"),
    ("masked_language_modelling", "transformer", "system.layers=1"),
    ("translation", "rnnsearch", "system.encoder=8"),
    ("segmentation", "segmenter", "system.width=8"),
    ("captioning", "transformer", "system.layers=1"),
    ("tagging", "transformer", "system.layers=1"),
]
"""Small configs in whose slots every part fits once."""
BARE = {"by_layer", "identity", "vit"}
"""Without parameters of their own, or a system too."""
NO_MODULES = ("visibility", "initializer", "rope scaling")
MADE: set[str] = set()
TABLES: dict[str, Table] = {}
"""Of what was met in a slot, by kind."""


def _try_parts(file: str, name: str, overrides: list[str]) -> dict[str, Any]:
    """Parameters without a kind, of a config and of it with each part that no config had so far in
    each of its slots, and so on in the slots of these parts.
    """
    config = load(file, name, overrides)
    leaves = leaves_by_path(parameter_shapes(config))
    no_kind = {path: leaf for path, leaf in leaves.items() if kind_of(path) is None}
    for slot, table in slots(config):
        if table.kind in NO_MODULES:
            continue
        for part, path in TABLES.setdefault(table.kind, table).entries.items():
            if path not in MADE:
                MADE.add(path)
                try:
                    no_kind |= _try_parts(file, name, [*overrides, f"{slot}={part}"])
                except UserError:  # it does not fit here
                    MADE.discard(path)
    return no_kind


@pytest.mark.full  # what attention and mixers have, their own tests ask for too
def test_every_parameter_of_every_part_has_a_kind() -> None:
    MADE.clear()
    for file, name, small in WIDEST:
        assert _try_parts(file, name, [small]) == {}
    paths = {part: path for table in TABLES.values() for part, path in table.entries.items()}
    assert {part for part, path in paths.items() if path not in MADE} <= BARE
    assert len(TABLES) >= 11


@pytest.mark.quick
def test_a_kind_is_said_by_the_name_and_never_by_the_rank() -> None:
    expected = {
        "attention/w_query/kernel": "matrix",
        "lora/layer_0/attention/w_query/kernel/a": "matrix",
        "lora/embed/embedding/b": "table",
        "gate/kernel": "matrix",
        "decoder_0/self_attention/positions/w": "bias",
        "attention/column_bias": "bias",
        "attention/bias_0": "bias",
        "attention/decay": "gain",
        "attention/mix_scores": "mix",
        "attention/near": "mix",
        "positions/table": "table",
        "class_token": "table",
        "queries": "table",
        "normalisation/mean": "statistic",
        "own/thing": None,
        "own/unbiased": None,
    }
    assert {path: kind_of(path) for path in expected} == expected
    assert set(expected.values()) == {*KINDS, None}


def test_what_decays_by_rank_alone_is_told_and_what_has_no_kind_is_refused() -> None:
    params = {"w_key": {"kernel": jnp.ones((2, 2))}, "decay": jnp.ones((2, 3)), "b": jnp.ones(2)}
    assert differently_decayed({**params, "decay": jnp.ones(2)}) == []
    assert "otherwise for decay" in differently_decayed(params)[0]
    assert decayed_by_kind(params) == {"w_key": {"kernel": True}, "decay": False, "b": False}
    message = r"the parameter own/thing \[2\] has no kind, .*set config.optimizer.decayed=rank"
    with pytest.raises(UserError, match=message):
        decayed_by_kind({"own": {"thing": jnp.ones(2)}})


def test_every_parameter_of_every_system_has_a_kind() -> None:
    systems = set()
    for file, name in [*LIGHT, ("inference", "lstmn_pair")]:
        config = load(file, name)
        if config.system.name not in systems:
            systems.add(config.system.name)
            paths = leaves_by_path(parameter_shapes(config))
            assert [path for path in paths if kind_of(path) is None] == []
    assert systems == set(SYSTEMS.names())
