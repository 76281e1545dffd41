"""Settings of a loaded config with other values."""

from typing import Any

from attnlab import config as configs
from attnlab.config.schema import Node


def changed(settings: Node, **changes: Any) -> Any:
    """The settings with changes by dotted name, "__" for the dot, checked as those of a file."""
    tree = configs.from_dict(configs.to_dict(settings))
    with tree.ignore_type():
        tree.update_from_flattened_dict(
            {name.replace("__", "."): value for name, value in changes.items()}
        )
    return configs.prepare(tree, (), type(settings))
