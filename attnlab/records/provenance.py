"""A user's own code as a part of what a run was made from: its files found, hashed, kept beside the
run, and compared later.

Own is the mechanism, task or data source that a config names by a dotted path, and what it imports,
however deep (`own_files.py` finds them). Of the installed packages that attnlab itself uses the
manifest keeps the versions, of others nothing. Nothing is executed here, and nothing imports jax.
"""

import dataclasses
import getpass
import os
import socket
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from attnlab.config.schema import Node
from attnlab.errors import UserError
from attnlab.records import own_files
from attnlab.records.files import timestamp, write_atomic
from attnlab.records.own_files import Source

FLAG = "--accept-changed-code"
FOLDER = "code"
"""Below a run's or a sweep's folder: the copies, so that `PYTHONPATH=FOLDER` finds the modules as they were."""


class _File(TypedDict):
    """A file of the user's; its hash is that of its text."""

    file: str
    sha256: str


class _Module(_File):
    """A module; `copy` is relative to the run's folder."""

    copy: str


class _Hashes(TypedDict):
    """The hashes of a module before and after a change that was accepted; None where it was absent."""

    was: str | None
    now: str | None


class _Accepted(TypedDict):
    """Who went on with other code, when and by which command, and after which step; in a plan, also
    the candidate whose code it is.
    """

    time: NotRequired[str]
    by: str
    command: NotRequired[list[str]]
    step: int | None
    changed: Mapping[str, _Hashes]
    candidate: NotRequired[str]


class Record(TypedDict):
    """What a manifest or a plan keeps as `own_code`: by name the `modules`, the code that computes;
    by copy the `files`, which only said what the settings are, and what they import; and the changes
    that were accepted.
    """

    modules: Mapping[str, _Module]
    files: Mapping[str, _File]
    accepted: list[_Accepted]


class Changed(UserError):
    """Code, data or a vocabulary is not what a run was made from. No fault of the run: it may go on
    once that is put back.
    """


@dataclasses.dataclass(frozen=True)
class Code:
    """The user's code of a config, as it is now.

    Attributes:
      modules: by name: what computes. It decides whether a run may go on.
      files: by copy: what only said the settings. These are compared as the resolved config.
      accept: whether the user wants to go on where modules have changed.
      sought: the names of all that was looked for, found or not.
    """

    modules: Mapping[str, Source]
    files: Mapping[str, Source] = dataclasses.field(default_factory=dict)
    accept: bool = False
    sought: frozenset[str] = frozenset()

    @property
    def digests(self) -> dict[str, str]:
        """Module to hash."""
        return {name: source.sha256 for name, source in self.modules.items()}

    def record(self) -> Record:
        """Returns a `Record` of this code for a manifest: "modules", by name with path, hash and
        place of the copy, "files", by name with path and hash, and an empty list "accepted" of
        accepted changes.
        """
        modules = {
            name: _entry(source, f"{FOLDER}/{source.copy}") for name, source in self.modules.items()
        }
        files: dict[str, _File] = {
            name: {"file": source.file, "sha256": source.sha256}
            for name, source in self.files.items()
        }
        return {"modules": modules, "files": files, "accepted": []}

    def keep(self, folder: Path) -> list[str]:
        """Writes a copy of each of the user's modules and files into `folder`/code, and returns a
        line of text for each that is a symbolic link, whose target is copied.
        """
        sources = [*self.modules.values(), *self.files.values()]
        for source in sources:
            _write(folder / FOLDER / source.copy, source.content)
        return [
            f"{source.file} is a link: a copy of what it leads to, {os.path.realpath(source.file)},"
            " is kept"
            for source in sources
            if os.path.islink(source.file)
        ]


def code(*configs: Mapping[str, Any] | Node, accept: bool = False, **files: Path | None) -> Code:
    """Returns a `Code` with the content of the user's own modules that `configs` name, of the files
    from which the settings were read (JSON left out), and of all own modules that either imports;
    `accept`, whether the user accepts changes, is stored in it.

    Args:
      configs: resolved, as nested mappings.
      accept: see `Code`.
      files: what the settings were read from: `config_file=Path(...)`; its copy lies in
        "config-file/". None is left out.
    """
    copies: dict[str, Source] = {}
    for kind, path in files.items():
        is_code = path is not None and path.suffix != ".json"  # the manifest of a run is none
        source = own_files.read(path, "") if path is not None and is_code else None
        if source is None:
            continue
        folder = kind.replace("_", "-")  # no module is called so
        imported, _ = own_files.closure(own_files.imports(source.content, "", False))
        for part in (source, *imported.values()):
            copy = f"{folder}/{part.copy}"
            copies[copy] = dataclasses.replace(part, copy=copy)
    modules, sought = own_files.closure(
        module for config in configs for module in own_files.module_names(config)
    )
    return Code(modules, copies, accept, sought)


@dataclasses.dataclass(frozen=True)
class Change:
    """A module that is not what it was; a hash is None if there is, or was, none."""

    module: str
    was: str | None
    now: str | None
    file: str

    @property
    def text(self) -> str:
        """Returns the file and what happened to it in words, such as "hopfield.py has changed", "is
        gone" or "is new".
        """
        path = Path(self.file)
        file = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        if self.now is None and path.exists():
            state = "cannot be imported from here" if self.elsewhere else "is no longer imported"
            return f"{file} {state}"
        state = "is gone" if self.now is None else "is new" if self.was is None else "has changed"
        return f"{file} {state}"

    @property
    def elsewhere(self) -> bool:
        """Whether its file is there, but not where Python looks for modules now."""
        present = self.now is None and Path(self.file).exists()
        return present and own_files.locate(self.module) == (None, None)


def digests(record: Record | None) -> dict[str, str]:
    """Module to hash, of a record; {} where nothing is known."""
    return {name: entry["sha256"] for name, entry in record["modules"].items()} if record else {}


def accepted_changes(record: Record | None) -> list[_Accepted]:
    """Returns the changes of code that were accepted, of a record; [] of None."""
    return record["accepted"] if record else []


def changes(record: Record | None, code: Code) -> list[Change]:
    """Returns a `Change` for each module whose hash differs between the record of a run and the
    code now, or that only one of the two has; [] if the record is None.
    """
    if record is None:
        return []
    before, after = digests(record), code.digests
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    files = {
        name: code.modules[name].file if name in after else record["modules"][name]["file"]
        for name in names
    }
    return [Change(name, before.get(name), after.get(name), files[name]) for name in names]


def without_unread(record: Record | None, code: Code) -> Record | None:
    """Returns a copy of a record without the modules that `code`, read for a part of its config,
    has not looked up, or None for None. What was accepted is kept.
    """
    if record is None:
        return None
    modules = {name: entry for name, entry in record["modules"].items() if name in code.sought}
    return {**record, "modules": modules}


def describe(changed: Iterable[Change], record: Record, folder: Path) -> str:
    """Returns changes in words, joined by commas, each with the path of the module's earlier copy
    in `folder` if that exists: "hopfield.py has changed (as it was: runs/a/code/hopfield.py)".
    """
    parts = []
    for change in changed:
        copy = folder / record["modules"][change.module]["copy"] if change.was else None
        as_it_was = f" (as it was: {copy})" if copy and copy.exists() else ""
        parts.append(f"{change.text}{as_it_was}")
    return ", ".join(parts)


def check(record: Record | None, code: Code, folder: Path) -> None:
    """Raises `Changed` if the user's code differs from the record of the run or sweep in `folder`
    and the user has not accepted that (`code.accept`); a record of None passes.
    """
    changed = changes(record, code)
    if changed and record is not None and not code.accept:
        elsewhere = any(change.elsewhere for change in changed)
        remedy = "change to its folder or add it to PYTHONPATH" if elsewhere else "put that back"
        raise Changed(
            f"{folder} was made with other code: {describe(changed, record, folder)}; {remedy}, or accept"
            f" it with {FLAG}"
        )


def notes(record: Record | None, code: Code, folder: Path) -> list[str]:
    """Returns lines of text to print before a run is used with this code, on changes that were or
    are accepted, on edited settings files, or that the run has no record of its code; [] for none.
    """
    if record is None:
        named = ", ".join(code.modules)
        unknown = f"so nobody knows whether {named} is the same"
        line = f"{folder} does not say what code it was made with, {unknown}"
        return [line] * bool(named)
    changed = changes(record, code)
    lines = [
        f"{folder} went on after step {word['step']} with other code ({', '.join(word['changed'])})"
        for word in record["accepted"]
    ]
    if changed:
        description = describe(changed, record, folder)
        lines.append(f"going on with other code, accepted by {FLAG}: {description}")
    edited = [
        source.file
        for name, source in code.files.items()
        if name in record["files"] and record["files"][name]["sha256"] != source.sha256
    ]
    return lines + [
        f"{file} has changed since {folder} was begun, but its settings have not" for file in edited
    ]


def summary(record: Record | None, code: Code) -> dict[str, dict[str, Any]]:
    """Returns a mapping from each module of the user's that changed since a run's first step to a
    mapping with its first and last hash ("was", "now", first digits) and the list of steps after
    which changes were accepted ("after_steps"); {} without changes.

    Module to "was" and "now", the first digits of its first and its last hash, and "after_steps":
    the last one before each change that was accepted for training; without any it was trained with
    one text and is used with another.
    """
    modules: dict[str, dict[str, Any]] = {}
    for word in accepted_changes(record):
        for name, hashes in word["changed"].items():
            entry = modules.setdefault(
                name, {"was": _short(hashes["was"]), "now": "", "after_steps": []}
            )
            entry["now"] = _short(hashes["now"])
            entry["after_steps"] = [*entry["after_steps"], word["step"]]
    for change in changes(record, code):
        modules.setdefault(
            change.module, {"was": _short(change.was), "now": "", "after_steps": []}
        )["now"] = _short(change.now)
    return modules


def accept(record: Record, code: Code, folder: Path, step: int | None = None) -> Record:
    """Writes copies of the changed modules below `folder`/code, and returns a new record (not
    written to disk), updated to this code, with an entry on who accepted the change after which
    `step`.

    Args:
      record: of what is in `folder`.
      code: differs from it.
      folder: of a run or a sweep.
      step: the last one that was done with the code before.
    """
    changed = changes(record, code)
    below = f"{FOLDER}/accepted-{len(record['accepted']) + 1}"
    modules = {name: entry for name, entry in record["modules"].items() if name in code.modules}
    for change in changed:
        if change.now is not None:
            source = code.modules[change.module]
            _write(folder / below / source.copy, source.content)
            modules[change.module] = _entry(source, f"{below}/{source.copy}")
    words = [*record["accepted"], edit(digests(record), code.digests, step)]
    return {**record, "modules": modules, "accepted": words}


def _short(digest: str | None) -> str:
    return (digest or "absent")[:12]


def edit(was: Mapping[str, str], now: Mapping[str, str], step: int | None = None) -> _Accepted:
    """Returns the entry on an accepted change: time, person, command, `step` (the last one done
    before), and the old and new hash of each module that differs between `was` and `now`.
    """
    return {
        "time": timestamp(),
        "by": _person(),
        "command": list(sys.argv),
        "step": step,
        "changed": {
            name: {"was": was.get(name), "now": now.get(name)}
            for name in {**was, **now}
            if was.get(name) != now.get(name)
        },
    }


def saved_step(workdir: Path) -> int | None:
    """Returns the newest step of which a run has a checkpoint, or None if there is none, so that no
    code has left a trace in it.
    """
    return max(saved_steps(workdir / "checkpoints"), default=None)


def saved_steps(folder: Path) -> list[int]:
    """Returns the numbers of the committed steps in a folder of states, in rising order."""
    if not folder.is_dir():
        return []
    numbered = (path for path in folder.iterdir() if path.is_dir() and path.name.isdecimal())
    return sorted(int(path.name) for path in numbered if any(path.iterdir()))


# --- records ---


def _entry(source: Source, copy: str) -> _Module:
    return {"file": source.file, "sha256": source.sha256, "copy": copy}


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, content)


def _person() -> str:
    """Returns the user and the machine as "name@host", the user's number if there is no name."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a number without an entry in the list of users
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"
