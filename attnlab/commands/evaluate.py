"""`evaluate`: score a trained run on a split."""

import argparse
import json

from attnlab import processes
from attnlab.commands import session
from attnlab.data import SPLITS
from attnlab.flags import add_flags


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `evaluate` to its parser: `--split`, `--json`, `--ensemble`,
    `--accept-changed-code`.
    """
    meaning = "which part of the data (default: test)"
    parser.add_argument("--split", choices=SPLITS, default="test", help=meaning)
    add_flags(parser, {"--json": "print one JSON object instead of a table"})
    session.add_ensemble(parser)
    session.add_acceptance(parser)


def run(arguments: argparse.Namespace) -> int:
    """Evaluates the run in `--workdir` on `--split`, prints its scores as a table or JSON, and
    returns 0; writes no file; of several processes the first does all of it.
    """
    if processes.index() > 0:
        import jax

        jax.devices()  # the first one's JAX begins only when those of all processes are known
        return 0
    trained = session.open_run(session.stored_run(arguments), (arguments.split,))
    results = trained.evaluate(arguments.split)
    if arguments.json:
        print(json.dumps(results))
    else:
        from attnlab.analysis.results import show
        from attnlab.records.measures import units

        show(f"{trained.workdir}, {arguments.split} split", results, units(trained.task))
    return 0
