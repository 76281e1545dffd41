"""A sweep from Python: `attnlab.sweep("experiments/quickstart.py")` runs what the command runs, in a
process of its own, and gives the table and the verdict as records.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.api.trained import Folder
from attnlab.errors import UserError
from attnlab.experiments.define import default_directory, flattened, text
from attnlab.pages.html import table
from attnlab.pages.tables import Table

_COMMAND = "import sys; from attnlab.commands import main; sys.exit(main())"


@dataclasses.dataclass(frozen=True, repr=False)
class Sweep:
    """A sweep that has run.

    Attributes:
      directory: its folder.
      rows: a record for each row of the table: "name", "mean", "interval", "values" by seed,
        "difference" to the baseline, costs.
      verdict: on the claim, with its "sentence"; None without a claim.
      trials: a record for each trial, with its "scores" by split.
    """

    directory: Path
    rows: list[dict[str, Any]]
    verdict: dict[str, Any] | None
    trials: list[dict[str, Any]]

    def frame(self) -> Any:
        """The rows as a `pandas.DataFrame`; `UserError` where pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            raise UserError("frame() needs pandas: pip install pandas") from error
        return pandas.DataFrame(self.rows)

    def _table(self) -> Table:
        """The rows with mean and interval."""
        columns = ("variant", "seeds", "mean", "95 % interval")
        rows = [
            (row["name"], str(row["n"]), _numbers(row["mean"]), _numbers(*row["interval"] or ()))
            for row in self.rows
        ]
        sentence = () if self.verdict is None else (str(self.verdict["sentence"]),)
        return Table(
            str(self.directory), columns, tuple(rows), frozenset({1, 2, 3}), notes=sentence
        )

    def __repr__(self) -> str:
        lines = [", ".join(filter(None, row)) for row in self._table().rows]
        return "\n".join([f"Sweep({str(self.directory)!r})", *lines, *self._table().notes])

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return table(self._table())


def sweep(
    experiment: Folder,
    overrides: Mapping[str, Any] | None = None,
    *,
    directory: Folder | None = None,
    flags: Sequence[str] = (),
) -> Sweep:
    """Run an experiment file, or go on with it, and read its report.

    Args:
      experiment: "experiments/quickstart.py", with ":ARGUMENT" if it takes one.
      overrides: {"training.steps": 100, ...}, for all variants.
      directory: of the sweep; by default below `runs/`, as the command has it.
      flags: others of the command, as "--seeds=5".

    Raises:
      UserError: the line that the command ends with, also where trials have failed.
    """
    folder = Path(directory or default_directory(str(experiment)))
    changes = [
        f"--config.{key}={text(value)}"
        for key, value in flattened(overrides or {}, "overrides").items()
    ]
    words = ["sweep", os.fspath(experiment), f"--dir={folder}", *changes, *flags]
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise UserError(lines[-1].partition("error: ")[2] or lines[-1])
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return Sweep(folder, report["rows"], report["verdict"], report["trials"])


def _numbers(*values: float | None) -> str:
    """Numbers for a table; "" for none."""
    return " to ".join(f"{value:.4g}" for value in values if value is not None)
