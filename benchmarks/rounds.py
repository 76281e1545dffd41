"""What the scripts here share: commands that print figures, run in alternation, their medians and
ratio.

A measured command prints its figures as lines `name value` on stdout, whatever else it prints. In
alternation two commands take turns, and who begins changes with every round, so that a drift of the
machine's speed meets both alike.
"""

import json
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.errors import UserError
from attnlab.progress import table
from attnlab.records.files import timestamp, write_atomic

Figures = dict[str, list[float]]


def figures(text: str) -> dict[str, float]:
    """The lines `name value` of a text; the last one of each name counts."""
    return {
        name: float(value)
        for name, value in re.findall(r"^([a-z]\w*) ([-+.\deE]+)$", text, re.MULTILINE)
    }


def run(command: str, wanted: str) -> dict[str, float]:
    """The figures of a shell command, whose stderr is passed on.

    Raises:
      UserError: it fails, or prints no line `wanted value`.
    """
    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise UserError(f"exit code {done.returncode} of: {command}")
    printed = figures(done.stdout)
    if wanted not in printed:
        raise UserError(f"no line '{wanted} NUMBER' in what this printed: {command}")
    return printed


def alternate(commands: Mapping[str, str], wanted: str, rounds: int) -> dict[str, Figures]:
    """All figures of each command over the rounds, as lists; prints `wanted` as it comes."""
    collected: dict[str, Figures] = {name: {} for name in commands}
    for number in range(rounds):
        order = list(commands) if number % 2 == 0 else list(commands)[::-1]
        for name in order:
            printed = run(commands[name], wanted)
            print(
                f"round {number + 1}: {name} {wanted} {printed[wanted]:.4g}",
                file=sys.stderr,
                flush=True,
            )
            for key, value in printed.items():
                collected[name].setdefault(key, []).append(value)
    return collected


def compare(
    title: str,
    commands: Mapping[str, str],
    wanted: Sequence[str],
    rounds: int,
    path: str | None,
    *,
    less_is_better: bool,
) -> None:
    """Run two commands, the first being ours, in alternation; print medians, all values and how
    many times better ours is.

    Args:
      title: of the table.
      commands: name to shell command.
      wanted: the figures to compare. All commands print the first; where one does not print
        another, its first is taken.
      rounds: runs of each.
      path: also write everything as JSON there.
      less_is_better: seconds, say; else a rate.
    """
    about = machine()
    collected = alternate(commands, wanted[0], rounds)
    ours, theirs = collected.values()
    rows, ratios = [], {}
    for name in wanted:
        mine, other = ours[name], theirs.get(name, theirs[wanted[0]])
        a, b = statistics.median(mine), statistics.median(other)
        ratios[name] = b / a if less_is_better else a / b
        rows.append((name, a, b, ratios[name], _values(mine), _values(other)))
    first, second = commands
    columns = ("median of", first, second, "times better", f"all {first}", f"all {second}")
    table(f"{title}; {rounds} rounds in alternation, {_machine_line(about)}", columns, rows)
    save(
        path,
        {
            "title": title,
            "commands": dict(commands),
            "figures": collected,
            "times_better": ratios,
            **about,
        },
    )


def machine() -> dict[str, Any]:
    """Where and when this runs, and how busy the machine is before it; a busy one is told on
    stderr.
    """
    load = os.getloadavg()[0]
    if load > 0.3:
        print(
            f"note: the machine is not idle (load {load:.1f}); figures will be low and ratios"
            " unsure",
            file=sys.stderr,
        )
    about = {
        "cores": (
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        ),
        "load_before": round(load, 2),
    }
    return {
        **about,
        "processor": _processor(),
        "python": platform.python_version(),
        "time": timestamp(),
    }


def save(path: str | None, content: Mapping[str, Any]) -> None:
    """Write results as JSON, if a path is given."""
    if path:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(content, indent=1) + "\n")
        print(f"all figures: {path}")


def main(function: Callable[[], None]) -> None:
    """Run a script; what its user can mend is one line on stderr and exit code 2."""
    try:
        function()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def _values(values: Sequence[float]) -> str:
    return " ".join(f"{value:.4g}" for value in values)


def _machine_line(about: Mapping[str, Any]) -> str:
    return f"{about['cores']} cores ({about['processor']}), load before {about['load_before']}"


def _processor() -> str:
    """The processor's name, as well as the system tells it."""
    try:
        match = re.search(
            r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE
        )
    except OSError:
        match = None
    return match[1] if match else platform.processor() or platform.machine()
