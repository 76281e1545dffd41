"""`import --from=FOLDER --workdir=DIR`: a run that begins with the weights in a folder as
`transformers` writes it, saved before its first step.
"""

import argparse
import shlex
import time
from pathlib import Path

from attnlab.api.training import Training, existing_run
from attnlab.errors import UserError
from attnlab.flags import add_flags
from attnlab.records.files import check_folder
from attnlab.records.sealed import check_no_trial


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `import` to its parser: `--from`, the model folder to read, and
    `--workdir`, the run to write.
    """
    meaning = "config.json, safetensors and tokenizer.json, as save_pretrained writes them"
    add_flags(parser, {"--from=FOLDER": meaning}, dest="folder", type=Path, required=True)
    meaning = "where the run is kept; must be new or empty"
    add_flags(parser, {"--workdir=FOLDER": meaning}, type=Path, required=True)


def run(arguments: argparse.Namespace) -> int:
    """Converts a transformers folder into a new run at step 0 in `--workdir`, saved but not
    trained, prints how to use and train it, and returns 0.

    Returns:
      0.

    Raises:
      UserError: a folder that is not such a one, a workdir that is in use, a setting that is wrong.
    """
    from attnlab import weights

    began, workdir = time.perf_counter(), arguments.workdir
    check_folder("--workdir", workdir)
    check_no_trial(workdir)
    folder = arguments.folder.expanduser().absolute()
    stated = weights.run_config(folder)
    if existing_run(workdir) is not None:
        raise UserError(f"--workdir={workdir} holds a run already; name another")
    training = Training.of(stated, arguments.overrides, workdir, ())
    with training.trained(began, until=0):
        config = training.run.config
    uses = "generate, inspect and export take it as it is, evaluate with data"
    print(f"imported {folder} into {workdir}: {uses};")
    flags = [f"--config=configs/pretrained.py:{folder}", f"--workdir={workdir}"]
    if config.data.name == "none":  # data is part of a run that is trained, so it is another one
        flags[-1] += "-tuned"
        flags += ["--config.data=text", "--config.data.directory=FOLDER"]
    flags += [f"--config.{override}" for override in arguments.overrides]
    print(f"to train it: train {shlex.join(flags)}")
    return 0
