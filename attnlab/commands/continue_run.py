"""`continue`: a run goes on in a new folder with parameters, optimizer, averages and step; the same
command again resumes it.
"""

import argparse
import time
from pathlib import Path

from attnlab.api.training import existing_run
from attnlab.commands import train
from attnlab.errors import UserError
from attnlab.experiments.define import text
from attnlab.flags import add_number
from attnlab.records.manifest import Manifest
from attnlab.training.parent import parse_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the run, `--from-step` and the flags of `train` to a parser."""
    parser.add_argument("run", metavar="RUN", help="the folder of the run that goes on")
    meaning = "go on from this one of its saved steps (default: the newest)"
    add_number(parser, "--from-step", 1, 2**32, meaning)
    train.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Trains a new run in `--workdir` that begins with the last saved state of RUN, or that of
    `--from-step`, and has its config with all overrides; resumes it if it has begun; returns the
    exit code of `train`.

    Returns:
      As `train`.

    Raises:
      UserError: no RUN or step, `--workdir` missing or in use, a setting that may not change, a name
        of RUN that `training.after` would read otherwise.
    """
    began = time.perf_counter()
    if not arguments.workdir:
        raise UserError("no --workdir given; name the new folder in which the run goes on")
    if arguments.config:
        raise UserError("--config: the config is that of RUN; change it by --config.a.b=value")
    workdir, parent, step = Path(arguments.workdir), Path(arguments.run), arguments.from_step
    manifest = existing_run(workdir) or Manifest.of_run(parent)  # RUN may have gone, or gone on
    named = None if step else parse_run(str(parent))[1]
    if str(parent).startswith("~") or "{seed}" in str(parent) or named is not None:
        raise UserError(
            f"{parent}: training.after reads such a name otherwise (~, {{seed}}, @STEP); rename the"
            " folder, or give --from-step with an @"
        )
    after = text(f"{parent}@{step}" if step else str(parent))
    arguments.overrides = [*arguments.overrides, f"training.after={after}"]
    return train.fit(manifest.config, arguments, began)
