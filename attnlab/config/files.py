"""Files that a user may name: search, execution, and the contents of config files; and the warm-up of
a schedule where the user gives other steps than the file has.

A config file defines `get_config(argument: str)`, which returns a mapping or a `ConfigDict`;
`configs/translation.py:rnnsearch` calls it with "rnnsearch". It says only what differs from the
defaults, in layers that `merge` lays over one another.
"""

import inspect
import json
import os
import pathlib
import runpy
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard, TypeVar

from ml_collections import ConfigDict

from attnlab.config.patterns import covers
from attnlab.config.schema import Node
from attnlab.config.tree import from_dict
from attnlab.errors import UserError, nearest, note, own_file, reason, short, users_line

_INSIDE = pathlib.Path(__file__).parents[1] / "_shipped"
SHIPPED = _INSIDE if _INSIDE.is_dir() else pathlib.Path(__file__).parents[2]
"""Where attnlab's own `configs/` and `experiments/` are: inside an installed package, beside it in a clone."""

MANIFEST = "manifest.json"
WARMUP, STEPS, DECAYING = "schedule.warmup", "training.steps", ("cosine", "linear")

Choice = TypeVar("Choice")


def read_config_file(path_and_argument: str) -> ConfigDict:
    """Returns the config that `get_config` of a config file gives, or the stored config of a run
    (named by its folder or manifest), as a `ConfigDict` without added defaults; raises `UserError`.

    Args:
      path_and_argument: "configs/translation.py:rnnsearch"; a path that is not below the current
        folder is looked for among attnlab's own files too. Without a colon `get_config` gets its
        own default, or "". Or the folder of a run, or its manifest.

    Raises:
      UserError: no such file, no `get_config`, an error inside it (with its line), or it returns
        something else.
    """
    path, colon, argument = path_and_argument.partition(":")
    file = find_file(path, "config file")
    if file.suffix == ".json":
        if colon:
            raise UserError(f"{path} is a run, which takes no argument; leave out ':{argument}'")
        return _recorded_config(file)
    config = call_file(path_and_argument, "get_config", "config file")
    config = config.to_dict() if isinstance(config, Node) else config  # of another file, loaded
    if not isinstance(config, (Mapping, ConfigDict)):
        raise UserError(
            f"{path}: get_config returned {type(config).__name__}, expected a dict or"
            " ml_collections.ConfigDict"
        )
    if strangers := [key for key in _keys(config) if not isinstance(key, str)]:
        raise UserError(f"{path}: get_config returned the key {strangers[0]!r}, expected a text")
    return config if isinstance(config, ConfigDict) else ConfigDict(config)


def _recorded_config(manifest: pathlib.Path) -> ConfigDict:
    """Returns the config that a manifest records; raises `UserError` where it records none."""
    try:
        return from_dict(json.loads(manifest.read_bytes())["config"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UserError(f"{manifest} is no manifest of a run, or is damaged") from None


def call_file(path_and_argument: str, function: str, kind: str) -> object:
    """Runs the Python file of "FILE:ARGUMENT" and returns what its function named `function`
    returns, called with ARGUMENT (without a colon with nothing, or "" where it needs one); any
    error but Ctrl-C becomes a `UserError`.

    Args:
      path_and_argument: see `read_config_file`.
      function: its name; it takes one argument, or none.
      kind: the word for such a file in messages.

    Raises:
      UserError: no such file, no such function, or an error inside it (with its line).
    """
    path, colon, argument = path_and_argument.partition(":")
    file = find_file(path, kind)
    own_file(file)
    try:
        call = runpy.run_path(str(file)).get(function)
        if not callable(call):
            raise UserError(f"{path}: no function {function}(argument) in this file")
        parameters = inspect.signature(call).parameters.values()
        if argument and not parameters:
            raise UserError(f"{path_and_argument}: it takes no argument, leave out ':{argument}'")
        given = parameters and (colon or any(p.default is p.empty for p in parameters))
        return call(*([argument] if given else []))
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a user's file may raise anything, and leave
        raise UserError(f"{path}{_line(error, file)}: {reason(error)}") from error


def _keys(config: Mapping[str, object] | ConfigDict) -> Iterator[object]:
    """Yields all keys of a config, those of the nodes below too."""
    for key, value in _items(config):
        yield key
        if isinstance(value, (Mapping, ConfigDict)):
            yield from _keys(value)


def merge(*layers: Mapping[str, object] | ConfigDict) -> ConfigDict:
    """Returns one `ConfigDict` of all layers of settings, each laid over those before it: groups
    are merged at any depth, but one that names another component replaces the old one whole, and
    any other value replaces what stood there.

    Groups of settings are merged, at any depth; any other value replaces what stood there. A group
    that names another component ("name") replaces it with all of its settings, and one that names
    none adds settings to it: {"schedule": {"name": "cosine", "warmup": 50}} and
    {"schedule": {"peak": 1e-3}} are one schedule, {"schedule": {"name": "constant"}} is another.

    >>> merge({"training": {"steps": 100, "clip": 1.0}}, {"training": {"steps": 200}}).training.clip
    1.0
    """
    return ConfigDict(_merge(*layers))


def _merge(*layers: Mapping[str, object] | ConfigDict) -> dict[str, object]:
    """Returns nested configs merged into a single dictionary: later values replace earlier values,
    and groups of the same component are merged in turn.
    """
    merged: dict[str, object] = {}
    for layer in layers:
        for key, value in _items(layer):
            if isinstance(value, (Mapping, ConfigDict)):
                old = merged.get(key)
                old = {"name": old} if isinstance(old, str) else old
                value = _merge(old, value) if _extends(old, value) else _merge(value)
            merged[key] = value
    return merged


def _extends(old: object, new: Mapping[str, object] | ConfigDict) -> TypeGuard[dict[str, object]]:
    """Returns whether the group `new` adds to `old`: if that is a group, and not another component."""
    return isinstance(old, dict) and new.get("name", old.get("name")) == old.get("name")


def _items(layer: Mapping[str, object] | ConfigDict) -> Iterable[tuple[str, object]]:
    if isinstance(layer, ConfigDict):
        return layer.items(preserve_field_references=True)
    return layer.items()


def choose(name: str, table: Mapping[str, Choice], file: str, kind: str = "system") -> Choice:
    """Returns the entry `name` of the `table` of a `file`, whose argument names it; raises
    `UserError`, with similar names, if there is none; `kind` is the word for such entries in
    messages.

    Raises:
      UserError: there is none, with the near names.
    """
    if name not in table:
        raise UserError(f"{file} has no {kind} {name!r}; {nearest(name, table)}")
    return table[name]


def find_file(path: str, kind: str) -> pathlib.Path:
    """Returns the existing file `path`, looked for as given and then among the files shipped with
    attnlab; of a folder of a run, if `kind` is "config file", its manifest; raises `UserError`,
    with similar names, if there is none.

    Raises:
      UserError: there is none, with the near names.
    """
    tried = [pathlib.Path(path), SHIPPED / path]
    for file in tried:
        if file.is_file():
            return file
        if kind == "config file" and path and (file / MANIFEST).is_file():
            return file / MANIFEST
    folders = [file for file in tried if path and file.is_dir()]
    if folders:
        raise UserError(
            f"{kind} {path!r} is a folder;"
            f" {nearest(path, {f'{path}/{file.name}' for file in folders[0].glob('*.py')})}"
        )
    folders = [file.parent for file in tried if file.parent.is_dir()]
    if not folders:
        raise UserError(f"{kind} {path!r}: no such folder {str(tried[0].parent)!r}")
    names = {
        str(pathlib.Path(path).parent / file.name)
        for folder in folders
        for file in folder.glob("*.py")
    }
    raise UserError(f"no {kind} {path!r}; {nearest(path, names)}")


def config_name(path: str) -> str:
    """Returns the name of a config: that of its file or, made from a run, of the run's folder."""
    file = pathlib.Path(os.path.abspath(path))
    file = file.parent if file.name == MANIFEST else file
    return file.name if file.is_dir() else file.stem


def _line(error: BaseException, path: pathlib.Path) -> str:
    """Returns, for a message, the line of the file at `path` in which an exception arose, as ":12",
    followed by the line of another file of the user if it arose there; "" if neither.
    """
    inner = users_line(error)
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f":{error.lineno}"
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path)
    ]
    elsewhere = f": {inner}" if inner and inner.rpartition(":")[0] != short(str(path)) else ""
    return f":{lines[-1]}{elsewhere}" if lines else elsewhere


def fitting_warmup(
    before: Mapping[str, Any], now: Mapping[str, Any], given: Iterable[str]
) -> int | None:
    """Returns the config file's `schedule.warmup` (steps), shortened in proportion and noted to the
    user, if the user's `training.steps` are fewer than this warm-up, the file's are not, the
    schedule decays and the user has not set the warm-up; else returns None.

    Args:
      before: settings by full names, as the file has them.
      now: the same with those of the user.
      given: the names of the user's, or patterns of names.
    """
    numbers: list[Any] = [now.get(WARMUP), now.get(STEPS), before.get(STEPS)]
    warmup, steps, most = numbers
    decays = now.get("schedule", now.get("schedule.name")) in DECAYING
    chosen = any(covers(name, "schedule.warmup") for name in given)
    if chosen or not decays or {*map(type, numbers)} != {int}:
        return None
    if not 0 < steps < warmup <= most:
        return None
    shorter: int = warmup * steps // most
    note(f"training.steps={steps}: the file's schedule.warmup={warmup} gives way, it is {shorter}")
    return shorter


def note_kept_warmup(
    run: str, before: Mapping[str, Any], now: Mapping[str, Any], overrides: Iterable[str]
) -> None:
    """Notes to the user that a run with more steps than the run `run`, whose config it takes, has
    the same warm-up, unless an override sets it or the schedule does not decay; `before` and `now`
    are the settings of the two by full names.
    """
    warmup, steps, most = now.get(WARMUP), now[STEPS], before[STEPS]
    chosen = any(covers(text.partition("=")[0], WARMUP) for text in overrides)
    same = warmup and warmup == before.get(WARMUP) and now["schedule.name"] in DECAYING
    if same and not chosen and steps > most:
        note(f"{STEPS}={steps}: {WARMUP}={warmup} is that of {run}, which had {most} steps")


def other_config(path: str, config: ConfigDict, overrides: Sequence[str]) -> str:
    """Returns the end of an error message: which config to begin with, if an override changes the
    task that the config read from `path` has; else "".
    """
    old = task = config.get("task")
    for name, _, value in (text.partition("=") for text in overrides):
        task = value if name == "task" else task
    if task == old:
        return ""
    of_folder = config.get("pretrained", {}).get("folder")
    way = f"configs/pretrained.py:FOLDER:{task}" if of_folder else "'list configs'"
    return f"; {path} is for task={old}: begin with a config for {task} ({way})"
