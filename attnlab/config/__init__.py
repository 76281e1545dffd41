"""Configs: files, overrides, checks, the tables of names. The way into this room; imports no
jax.
"""

from attnlab.config.checks import read_settings as read_settings
from attnlab.config.checks import schema_of as schema_of
from attnlab.config.checks import validate as validate
from attnlab.config.files import SHIPPED as SHIPPED
from attnlab.config.files import call_file as call_file
from attnlab.config.files import choose as choose
from attnlab.config.files import config_name as config_name
from attnlab.config.files import find_file as find_file
from attnlab.config.files import merge as merge
from attnlab.config.files import read_config_file as read_config_file
from attnlab.config.resolve import as_stored as as_stored
from attnlab.config.resolve import load as load
from attnlab.config.resolve import off_value as off_value
from attnlab.config.resolve import prepare as prepare
from attnlab.config.tree import config_hash as config_hash
from attnlab.config.tree import flat as flat
from attnlab.config.tree import from_dict as from_dict
from attnlab.config.tree import is_below as is_below
from attnlab.config.tree import to_dict as to_dict
