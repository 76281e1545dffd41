"""Configs: files, overrides, checks, the tables of names. The way into this room; imports no
jax.
"""

from attnlab.config.resolve import (
    SHIPPED,
    TABLES,
    call_file,
    config_hash,
    find_file,
    flat,
    from_dict,
    load,
    prepare,
    to_dict,
    validate,
)

__all__ = [
    "SHIPPED",
    "TABLES",
    "call_file",
    "config_hash",
    "find_file",
    "flat",
    "from_dict",
    "load",
    "prepare",
    "to_dict",
    "validate",
]
