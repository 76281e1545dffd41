"""Config nodes of parts that differ from layer to layer; see `attnlab.layers.by_layer`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def of_layers(system: Mapping[str, Any], field: str) -> list[Mapping[str, Any]]:
    """The complete nodes of a field of a system for its layers, one after another."""
    nodes = []
    for layer in range(system["layers"]):
        node = system[field]
        while node.get("name") == "by_layer":
            node = node[node["pattern"][layer % len(node["pattern"])]]
        nodes.append(node)
    return nodes
