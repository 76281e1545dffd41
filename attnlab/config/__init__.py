"""Configs: files, overrides, checks, the tables of names. The way into this room; imports no
jax.
"""

from attnlab.config.checks import read_settings, schema_of, validate
from attnlab.config.files import (
    SHIPPED,
    call_file,
    choose,
    config_name,
    find_file,
    merge,
    read_config_file,
)
from attnlab.config.off import off_value
from attnlab.config.resolve import as_stored, load, prepare
from attnlab.config.tree import config_hash, flat, from_dict, is_below, to_dict

__all__ = [
    "SHIPPED",
    "as_stored",
    "call_file",
    "choose",
    "config_hash",
    "config_name",
    "find_file",
    "flat",
    "from_dict",
    "is_below",
    "load",
    "merge",
    "off_value",
    "prepare",
    "read_config_file",
    "read_settings",
    "schema_of",
    "to_dict",
    "validate",
]
