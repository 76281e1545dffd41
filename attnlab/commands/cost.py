"""`cost`: the costs of mixers over the length of a text: counted, compiled, measured."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.errors import UserError, nearest
from attnlab.flags import add_flags, add_number
from attnlab.progress import Progress, table
from attnlab.records.files import check_folder

if TYPE_CHECKING:
    from attnlab.attention.mixer import Mixer

LONGEST = 2**20  # tokens
LENGTHS = "256,512,1024,2048,4096,8192,16384"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `cost` to its parser: the mixers to measure, the conditions of the
    measurement, the output folder.
    """
    meaning = "of 'list mixers' or 'list mechanisms', or MODULE:CLASS; or 'all'"
    add_flags(parser, {"--mechanisms=NAME,NAME": meaning}, required=True)
    add_flags(parser, {"--baseline=NAME": "what they are compared with"}, default="multihead")
    add_flags(parser, {"--lengths=N,N": f"tokens of a text; 1 to {LONGEST:,}"}, default=LENGTHS)
    add_number(parser, "--width", 1, 2**16, "of the model", default=64)
    add_number(parser, "--rows", 1, 2**16, "texts at a time", default=1)
    directions = ("causal", "bidirectional")
    parser.add_argument("--direction", choices=directions, default="causal", help="who sees whom")
    add_flags(parser, {"--forward": "a forward pass, without its gradients"})
    meaning = "a field of one of them, such as multihead.heads=1; again for more"
    add_flags(parser, {"--set=NAME.FIELD=VALUE": meaning}, action="append", default=[])
    meaning = "one whose run has taken longer is not measured at greater lengths"
    add_number(parser, "--patience", 0.0, 86400.0, meaning, default=10.0, metavar="SECONDS")
    meaning = "a program of more is not run"
    add_number(parser, "--memory", 0.0, 1e6, meaning, default=8.0, metavar="GB")
    add_flags(parser, {"--dir=DIR": "for the files"}, type=Path, default=Path("runs/cost"))


def run(arguments: argparse.Namespace) -> int:
    """Measures each mixer at every length (one that is too slow or too large no further), prints
    the table, writes `costs.csv`, `costs.json` and `costs.png` into `--dir`, and returns 0.

    Returns:
      0.

    Raises:
      UserError: no such mixer or field, a direction that one does not have (with "all" those are
        left out), a number out of range.
    """
    from attnlab.training.devices import keep_freed

    check_folder("--dir", arguments.dir)
    keep_freed()  # as in training; else large programs pay for their pages in every run
    from attnlab.analysis import costs
    from attnlab.api.costs import measured
    from attnlab.commands.listing import card_cells

    lengths = _lengths(arguments)
    modules = _mixers(arguments)
    cards = {name: card_cells(type(module)) for name, module in modules.items()}
    arguments.dir.mkdir(parents=True, exist_ok=True)  # before the work, which takes long
    points: dict[str, list[costs.Point]] = {name: [] for name in modules}
    cases = [(length, name) for length in lengths for name in modules]
    with Progress(len(cases), unit="program") as progress:
        for number, (length, name) in enumerate(cases, start=1):
            if not any(x.why or x.seconds > arguments.patience for x in points[name]):
                point = measured(
                    name,
                    modules[name],
                    length,
                    rows=arguments.rows,
                    direction=arguments.direction,
                    backward=not arguments.forward,
                    memory=1e9 * arguments.memory,
                )
                points[name].append(point)
            progress.update(number)
    about = _about(arguments)
    table(str(about["title"]), costs.COLUMNS, costs.rows(points, arguments.baseline, cards))
    for point in (series[-1] for series in points.values()):
        if point.why:
            print(f"{point.name}: not run with {point.length:,} tokens: {point.why}")
    files = costs.write(points, about, arguments.dir)
    print(f"files:    {', '.join(map(str, files))}")
    return 0


def _lengths(arguments: argparse.Namespace) -> list[int]:
    """Returns the numbers of `--lengths` without repetitions, in ascending order; raises
    `UserError` unless they are whole and from 1 to `LONGEST`.
    """
    try:
        lengths = sorted({int(length) for length in arguments.lengths.split(",")})
    except ValueError:
        lengths = [0]
    if lengths[0] < 1 or lengths[-1] > LONGEST:
        raise UserError(
            f"--lengths={arguments.lengths}: expected whole numbers of 1 to {LONGEST:,}, such as"
            " 256,1024,4096"
        )
    return lengths


def _mixers(arguments: argparse.Namespace) -> "dict[str, Mixer]":
    """Builds the mixers of `--baseline` and `--mechanisms` with the fields of `--set` and returns
    them by name, the baseline first; raises `UserError` for one that cannot be built (with "all"
    leaves it out, unless it is the baseline) or a wrong `--set`.
    """
    from attnlab.api.costs import mixer
    from attnlab.mixers import MIXERS

    all_mixers = arguments.mechanisms == "all"
    names = list(MIXERS.names()) if all_mixers else arguments.mechanisms.split(",")
    names = list(dict.fromkeys([arguments.baseline, *names]))
    fields: dict[str, dict[str, object]] = {name: {} for name in names}
    for assignment in arguments.set:
        path, equals, value = assignment.partition("=")
        name, dotted, field = path.rpartition(".")
        if not (equals and dotted and name in fields):
            raise UserError(
                f"--set={assignment}: expected NAME.FIELD=VALUE of a mixer that is measured;"
                f" {nearest(name or path, names)}"
            )
        fields[name][field] = _value(value)
    modules = {}
    for name in names:
        try:
            modules[name] = mixer(name, fields[name], arguments.direction, arguments.width)
        except UserError:
            if not all_mixers or name == arguments.baseline:
                raise
    return modules


def _value(text: str) -> object:
    """Returns the JSON value of a text (number, true, false, ...), or the text itself if it is no
    JSON.
    """
    from attnlab.data.json_files import parse_json

    try:
        return parse_json(text, "--set")
    except UserError:
        return text


def _about(arguments: argparse.Namespace) -> dict[str, object]:
    """Returns the conditions of the measurement as a dict: a title with device and passes, the
    version of jax, whether gradients are taken, and the flags `width`, `rows`, `direction`, `set`
    and `baseline`.
    """
    import os

    import jax

    device = jax.devices()[0]
    passes = "forward" if arguments.forward else "forward and backward"
    cores = f", {len(os.sched_getaffinity(0))} cores" if device.platform == "cpu" else ""
    return {
        "title": f"{passes}, {arguments.direction}, width {arguments.width}, batch"
        f" {arguments.rows}, {device.device_kind}{cores}, float32",
        "jax": jax.__version__,
        **{name: getattr(arguments, name) for name in ("width", "rows", "direction")},
        "backward": not arguments.forward,
        **{name: getattr(arguments, name) for name in ("set", "baseline")},
    }
