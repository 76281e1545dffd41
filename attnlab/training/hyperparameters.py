"""Which settings of a config are only numbers in a training step, so that trials that differ in
nothing else can share one program.

These are the seed, every fraction among the fields of `optimizer` and `schedule` (not the whole
numbers: a length of warm-up shapes the program), and three of `training`. If 0 removes a part of
the program, whether the setting is 0 changes the program. A user's component
("package.module:name") may use its fields in any way, so none of them counts. Needs no jax, since
the launcher groups trials.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.config.schema import Node
from attnlab.records.manifest import plain

SMOOTHING = "training.label_smoothing"
SWITCHES = (
    "training.clip",
    "training.ema",
    SMOOTHING,
    "optimizer.momentum",
)  # 0 leaves a part of the program out


def numbers(config: Mapping[str, Any] | Node) -> dict[str, float]:
    """The settings that may differ besides the seed, by dotted name."""
    tree = plain(config)
    found = {
        f"training.{name}": value
        for name, value in tree["training"].items()
        if f"training.{name}" in SWITCHES
    }
    for node in ("optimizer", "schedule"):
        own = ":" in tree[node]["name"]
        found |= {
            f"{node}.{name}": value
            for name, value in tree[node].items()
            if type(value) is float and not own
        }
    return found


def signature(config: Mapping[str, Any] | Node) -> str:
    """Everything that determines the program and its data, as canonical text: equal for trials that
    can be stacked.

    Args:
      config: settings, or nested mappings of JSON values.
    """
    rest = plain(config)
    free = numbers(rest)
    for name in free:
        node, _, field = name.partition(".")
        del rest[node][field]
    del rest["seed"]
    return json.dumps(
        [rest, sorted(name for name, value in free.items() if name in SWITCHES and value)],
        sort_keys=True,
    )


def differing(configs: Sequence[Mapping[str, Any] | Node]) -> dict[str, list[float]]:
    """Those of the `numbers` in which the configs differ, one value for each config."""
    columns = {name: [numbers(config)[name] for config in configs] for name in numbers(configs[0])}
    return {name: values for name, values in columns.items() if len(set(values)) > 1}
