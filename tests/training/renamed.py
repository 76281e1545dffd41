"""A script run in an earlier checkout, whose random numbers are drawn under today's names.

    cd EARLIER && python .../tests/training/renamed.py launch.py train --config=... --workdir=...

Flax derives the random numbers of a module (first values, dropout, samples) from the names of the
modules around it. Here a module of the checkout in the current folder draws under the name that
`renames.txt` gives it, so that what it computes can be compared with today's code to the last digit.
"""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

from flax.core.scope import LazyRng, Scope

RENAMES = Path(__file__).with_name("renames.txt")


def rules() -> list[tuple[str, str]]:
    """The regular expression of every old name, and the new name."""
    lines = RENAMES.read_text().splitlines()
    pairs = (line.split() for line in lines if not line.startswith("#"))
    return [(old, new) for old, new in pairs]


def renamed(path: tuple[str, ...], renames: list[tuple[str, str]]) -> tuple[str, ...]:
    """The path of a module under today's names."""
    text = "/".join(path) + "/"
    for old, new in renames:
        text = re.sub(old, new, text)
    return tuple(text.rstrip("/").split("/"))


def draw_by_new_names() -> None:
    """Let every new scope of flax fold its new name, not its old one, into its random numbers."""
    renames, push = rules(), Scope.push

    def push_renamed(self: Scope, *args: Any, **options: Any) -> Scope:
        scope = push(self, *args, **options)
        name = renamed(scope.path, renames)[-1]
        scope.rngs = {kind: LazyRng.create(key, name) for kind, key in self.rngs.items()}
        return scope

    Scope.push = push_renamed  # type: ignore[method-assign]


if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0] = str(Path.cwd())
    draw_by_new_names()
    runpy.run_path(sys.argv[0], run_name="__main__")
