"""Configs: files, overrides, checks, the tables of names. The way into this room; imports no
jax.
"""

from attnlab.config.checks import read, schema_of, validate
from attnlab.config.files import SHIPPED, call_file, choose, find_file, merge, stated
from attnlab.config.resolve import as_stored, load, prepare
from attnlab.config.tree import config_hash, flat, from_dict, is_below, to_dict

__all__ = [
    "SHIPPED",
    "as_stored",
    "call_file",
    "choose",
    "config_hash",
    "find_file",
    "flat",
    "from_dict",
    "is_below",
    "load",
    "merge",
    "prepare",
    "read",
    "schema_of",
    "stated",
    "to_dict",
    "validate",
]
