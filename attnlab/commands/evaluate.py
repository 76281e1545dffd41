"""`evaluate`: score a trained run on a split."""

from __future__ import annotations

import argparse
import json

from attnlab import processes
from attnlab.commands import session


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--split`, `--json` and `--ensemble`."""
    parser.add_argument("--split", choices=("train", "valid", "test"), default="test", help="which part of the data (default: test)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    session.add_ensemble(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the scores of the run in `--workdir`; writes nothing. Of several processes the first does all of it."""
    if processes.index() > 0:
        import jax

        jax.devices()  # the first one's JAX begins only when those of all processes are known
        return 0
    task, params, step, workdir = session.trained_task(arguments, (arguments.split,))
    from attnlab.analysis.results import scores, show

    results, _ = scores(task, params, arguments.split)
    results["step"] = step
    if arguments.json:
        print(json.dumps(results))
    else:
        show(f"{workdir}, {arguments.split} split", results, task.units)
    return 0
