"""A sweep from Python: `attnlab.sweep("experiments/quickstart.py")` runs what the command runs, in a
process of its own, and gives the table and the verdict as records.
"""

import dataclasses
import html
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.api.training import Folder
from attnlab.errors import UserError
from attnlab.experiments.define import default_directory, overridden

_COMMAND = "import sys; from attnlab.commands import main; sys.exit(main())"


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A sweep that has run.

    Attributes:
      directory: its folder.
      verdict: on the claim, with its "sentence"; None without a claim.
      rows: a record for each row of the table: "name", "mean", "interval", "values" by seed,
        "difference" to the baseline, costs; `pandas.DataFrame(sweep.rows)` makes a frame of them.
      trials: a record for each trial, with its "scores" by split.
    """

    directory: Path
    verdict: dict[str, Any] | None
    rows: list[dict[str, Any]] = dataclasses.field(repr=False)
    trials: list[dict[str, Any]] = dataclasses.field(repr=False)

    def _repr_html_(self) -> str:
        """What a notebook shows: the page of the report."""
        page = html.escape((self.directory / "report.html").read_text(encoding="utf-8"))
        return f'<iframe srcdoc="{page}" width="100%" height="600" style="border:0"></iframe>'


def sweep(
    experiment: Folder,
    overrides: Mapping[str, Any] | None = None,
    *,
    directory: Folder | None = None,
    flags: Sequence[str] | str = (),
) -> Sweep:
    """Runs the command `sweep` on an experiment file in another process, or resumes it, and returns
    its report, a `Sweep` (folder, verdict, table rows, trials); prints the command's messages on
    `sys.stderr`, and raises `UserError` if it fails or makes no report.

    Args:
      experiment: "experiments/quickstart.py", with ":ARGUMENT" if it takes one.
      overrides: {"training.steps": 100, ...}, for all variants.
      directory: of the sweep; by default below `runs/`, as the command has it.
      flags: others of the command, as "--seeds=5"; as one text they are read as a shell does.

    Raises:
      UserError: the line that the command ends with, also where trials have failed; a flag as
        `--dry-run`, with which no report is made.
    """
    folder = Path(directory or default_directory(str(experiment)))
    command = [sys.executable, "-c", _COMMAND, "sweep", str(experiment), f"--dir={folder}"]
    flags = shlex.split(flags) if isinstance(flags, str) else flags
    command += [*(f"--config.{change}" for change in overridden(overrides)), *flags]
    line, out = "", tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by the next line
    with out, subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stderr or ():
                print(line, end="", file=sys.stderr, flush=True)
        except BaseException:  # a person's interruption: the same call goes on later
            process.terminate()
            raise
        if not (code := process.wait()):
            out.seek(0)
            line = out.read()
    path = folder / "report.json"
    if code or {"--dry-run", "--help", "-h"} & set(flags) or not path.exists():
        lines = [f"exit code {code}", *line.strip().splitlines()]
        line = re.sub(r"^(-c[\w ]*: )?error: ", "", lines[-1])
        raise UserError(line if code else f"no report was written; the command: {line}")
    report = json.loads(path.read_text(encoding="utf-8"))
    return Sweep(folder, report["verdict"], report["rows"], report["trials"])
