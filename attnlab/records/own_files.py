"""The files of a user's own code: which modules a config names by dotted paths, and what these import,
found and read as text without running any.

Own is every module whose file lies neither in this package nor in the standard library nor in
`site-packages`. Installed code is not looked at. Files are found by the finders of the import
system, so that a launcher can look too. Nothing here imports jax.
"""

import ast
import contextlib
import dataclasses
import functools
import hashlib
import importlib.machinery
import re
import sys
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.config.schema import TABLES

_NAMES = {"name", "task", *TABLES}  # the keys of a config whose text names a component


_PATH = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*)")


@dataclasses.dataclass(frozen=True)
class Source:
    """A file of the user's as it was read.

    Attributes:
      file: its absolute path.
      sha256: of its text, in which every kind of line end counts as the same, as it does for
        Python.
      copy: the name of its copy in the folder `FOLDER`.
      content: its bytes.
    """

    file: str
    sha256: str
    copy: str
    content: bytes = dataclasses.field(default=b"", repr=False, compare=False)


def module_names(config: Any) -> Iterator[str]:
    """Yields the names of the modules that texts `module:Attribute` in a config name, at any depth:
    below a key such as "name" all of them, elsewhere only the user's own modules with that word in
    their source; repeats stay.

    Below a key of `_NAMES` every `module:Attribute` is one, for its package may only hand it on;
    elsewhere it must be a word of that module's text too, for a setting may only look like one.
    """
    if isinstance(config, Mapping) or hasattr(config, "items"):
        for key, value in config.items():
            path = _PATH.fullmatch(value) if key in _NAMES and isinstance(value, str) else None
            if path:
                yield path[1]
            else:
                yield from module_names(value)
    elif isinstance(config, (list, tuple)):
        for value in config:
            yield from module_names(value)
    elif isinstance(config, str):
        yield from _quoted_module(config)


def _quoted_module(text: str) -> Iterator[str]:
    """Yields the module of a text `module:word` if that is a module of the user's with this word in
    its source; nothing otherwise.
    """
    path = _PATH.fullmatch(text)
    file = locate(path[1])[0] if path else None
    if path and file is not None and _is_own(file):
        with contextlib.suppress(OSError):
            if re.search(rb"\b%s\b" % path[2].encode(), file.read_bytes()):
                yield path[1]


def closure(names: Iterable[str]) -> tuple[dict[str, Source], frozenset[str]]:
    """Returns a pair: a dictionary from module name to `Source` of the user's own modules among
    `names`, their packages and all own modules that these import, and the set of all names looked
    up; imports nothing.
    """
    sources: dict[str, Source] = {}
    foreign: set[str] = set()
    visited: set[str] = set()
    waiting = deque(names)
    while waiting:
        parts = waiting.popleft().split(".")
        # importing a module runs its packages
        for name in (".".join(parts[:end]) for end in range(1, len(parts) + 1)):
            if name in visited or parts[0] in foreign:
                continue
            visited.add(name)
            file, folders = locate(name)
            if file is not None and _is_own(file):
                package = folders is not None and file.stem == "__init__"
                source = read(file, name, package)
                if source is not None:
                    sources[name] = source
                    waiting += imports(source.content, name, package)
            elif "." not in name and not (file is None and folders):
                foreign.add(name)  # but a package without a file of its own may hold the user's
    return dict(sorted(sources.items())), frozenset(visited)


def locate(name: str) -> tuple[Path | None, Sequence[str] | None]:
    """Returns the path of a module's file and, for a package, its folders, each None where it has
    none, and both None where no such module exists; imports nothing.
    """
    loaded = sys.modules.get(name)
    if loaded is not None:
        file, folders = getattr(loaded, "__file__", None), getattr(loaded, "__path__", None)
        return Path(file) if file else None, None if folders is None else list(folders)
    parent = name.rpartition(".")[0]
    search_path = locate(parent)[1] if parent else None
    if parent and search_path is None:
        return None, None
    for finder in sys.meta_path:
        try:
            spec: importlib.machinery.ModuleSpec | None = finder.find_spec(name, search_path)
        except KeyError:  # a folder without `__init__.py` in another: Python wants that imported
            portions = [Path(part) / name.rpartition(".")[2] for part in search_path or ()]
            return None, [str(folder) for folder in portions if folder.is_dir()]
        if spec is not None:
            file = spec.origin if spec.has_location else None
            folders = spec.submodule_search_locations
            return Path(file) if file else None, None if folders is None else list(folders)
    return None, None


def imports(content: bytes, name: str, package: bool) -> Iterator[str]:
    """Yields the dotted names that the source `content` of the module `name` (a `package` or not)
    imports ("a.b" for `from a import b`): by statements anywhere in it, by `import_module` or
    `__import__` calls with a quoted name, and by quoted paths `module:word`; nothing if it is not
    valid Python.
    """
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):  # not Python, or broken: its import will say so
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = name.split(".")
            above = parts[: len(parts) - node.level + package] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}".strip(".") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            function = getattr(node.func, "attr", getattr(node.func, "id", ""))
            first = getattr(node.args[0], "value", None)
            if function in ("import_module", "__import__") and isinstance(first, str):
                yield first
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _quoted_module(node.value)


def _is_own(file: Path) -> bool:
    """Returns whether a file is the user's: neither of this package nor of Python nor installed."""
    where = file.resolve()
    return not {"site-packages", "dist-packages"} & {*where.parts} and not any(
        map(where.is_relative_to, _foreign_folders())
    )


@functools.cache
def _foreign_folders() -> tuple[Path, ...]:
    """Returns the folders whose modules are not the user's: this package, the standard library and
    installed packages.
    """
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return (
        Path(__file__).resolve().parents[1],
        *(Path(sysconfig.get_path(name)).resolve() for name in names),
    )


def read(file: Path, name: str, package: bool = False) -> Source | None:
    """Reads a file of the user's and returns it as a `Source` (absolute path, SHA-256 that does not
    depend on the kind of line ends, path for its copy, bytes), or None if it cannot be read. The
    `name` is that of its module, "" for a file that is none.
    """
    try:
        content = file.read_bytes()
    except OSError:
        return None
    text = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    folders = name.split(".") if package else name.split(".")[:-1]
    return Source(
        str(file.absolute()),
        hashlib.sha256(text).hexdigest(),
        "/".join([*folders, file.name]),
        content,
    )
