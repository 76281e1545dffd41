"""`export DIR --to=TRACKER`: the trials of a sweep as runs of Weights & Biases, MLflow or
TensorBoard, on this disk; reads records only. `export RUN --to=MODEL`: a trained run as a folder that
`transformers` or `peft` loads, as safetensors or NumPy by our names, or its model card.
"""

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from attnlab.api.stored import Stored, write_card
from attnlab.commands import session
from attnlab.errors import UserError
from attnlab.flags import add_flags

TRACKERS = ("wandb", "mlflow", "trackio", "tensorboard")
MODELS = "transformers"
OURS = ("safetensors", "npz", "peft", "card")
DTYPES = ("float32", "bfloat16", "float16")
OF_DIR = "a sweep or run, finished or not (a run for a model or its card); also without the flag"
OF_TYPE = (
    "as what kind of model, for --to=transformers: gpt2, llama, ... (default: the first that the"
    " run is)"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `export` to its parser: the folder to export, the target format, the
    output folder, and dtype and type of an exported model.
    """
    add_flags(parser, {"--workdir=DIR": OF_DIR})
    meaning = "who shall read it; tensorboard's HParams page needs nothing else"
    choices = (*TRACKERS, MODELS, *OURS)
    parser.add_argument("--to", choices=choices, required=True, help=meaning)
    add_flags(parser, {"--out=FOLDER": "where to write (default: DIR/exports)"}, type=Path)
    meaning = "of the tensors, for --to=transformers (default: float32)"
    parser.add_argument("--dtype", choices=DTYPES, help=meaning)
    add_flags(parser, {"--model-type=NAME": OF_TYPE})


def run(arguments: argparse.Namespace) -> int:
    """Exports a sweep's trials in a tracker's format (only those that are new or have changed), or
    one run as a model folder, an adapter, a file of parameters or a model card, as `--to` says;
    prints what was written and returns 0.

    Returns:
      0.

    Raises:
      UserError: the folder holds no sweep, a damaged record; the tracker's package is not
        installed; no run, or one that no model of transformers is; a
        sweep where a run is wanted.
    """
    arguments.directory = session.folder_of(arguments)
    if arguments.to not in TRACKERS and (arguments.directory / "plan.json").exists():
        session.manifest_of(arguments.directory)  # says where the runs of a sweep are
    if arguments.to != MODELS and (arguments.dtype or arguments.model_type):
        raise UserError(
            f"export: --dtype and --model-type go with --to={MODELS}, not --to={arguments.to}"
        )
    out = (arguments.out or arguments.directory / "exports").expanduser()
    if arguments.to == "card":
        print(f"export: {write_card(arguments.directory, out if arguments.out else out / 'card')}")
        return 0
    if arguments.to not in TRACKERS:
        return _model(arguments)
    from attnlab.experiments import report

    exported = report.export(arguments.directory, arguments.to, out)
    changed = f"{exported.replaced} replaced because their records have changed"
    print(
        f"export: {exported.written} run{'s' * (exported.written != 1)} written, {changed},"
        f" {exported.unchanged} left as they were"
    )
    print(f"look:   {exported.hint}")
    return 0


def _model(arguments: argparse.Namespace) -> int:
    """Writes a run in the format of `--to` (a model of transformers, an adapter of PEFT, or a file
    of parameters), prints its tensors, the files and how to load them, and returns 0.
    """
    run = session.open_run(Stored.find(arguments.directory))
    from attnlab.api import exported
    from attnlab.api.pretrained import save_pretrained
    from attnlab.weights import folder

    out = (arguments.out or arguments.directory / "exports" / arguments.to).expanduser()
    if arguments.to == MODELS:
        files = save_pretrained(run, out, arguments.dtype or "float32", arguments.model_type)
    elif arguments.to == "peft":
        files = exported.save_adapter(run, out)
    else:
        files = exported.save_parameters(run, out, arguments.to)
    _print_tensors(files)
    names = ", ".join(file.name for file in files)
    print(f"export: step {run.step} of {arguments.directory} in {out}: {names}")
    settings = folder.settings(out) if arguments.to == MODELS else {}
    for name in settings.get("architectures", ()):
        print(f"look:   transformers.{name}.from_pretrained('{out}')")
    if "architecture" in settings:  # no config is needed for a state dict of torchvision
        print(
            f"look:   torchvision.models.{settings['architecture']}(num_classes={settings['num_classes']})"
            f".load_state_dict(safetensors.torch.load_file('{out / folder.WEIGHTS}'))"
        )
    return 0


def _print_tensors(files: Sequence[Path]) -> None:
    """Prints a table of names and shapes of the tensors in `.npz` and `.safetensors` files; names
    that differ only in their digits share one row, with their count.
    """
    import numpy as np
    from safetensors.numpy import load_file

    from attnlab.progress import table

    rows = Counter[tuple[str, str]]()
    for file in [file for file in files if file.suffix in (".npz", ".safetensors")]:
        for name, tensor in (np.load if file.suffix == ".npz" else load_file)(file).items():
            rows[re.sub(r"\d+", "*", name), " x ".join(map(str, tensor.shape)) or "number"] += 1
    table("tensors", ("name", "shape", "of them"), [(*row, count) for row, count in rows.items()])
