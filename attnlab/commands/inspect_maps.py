"""`inspect`: the attention maps of a trained run for texts, pairs of texts, or images, as one interactive
page and as pictures.
"""

import argparse
import re
from pathlib import Path

from attnlab.commands import session
from attnlab.commands.generate import read_lines
from attnlab.errors import UserError, nearest
from attnlab.flags import add_flags

KINDS = ("png", "svg", "pdf")
FLAGS = {
    "--layers=N,...": "only maps of these layers, from 0",
    "--heads=N,...": "only these heads of each map",
    "--maps=PATTERN,...": "only maps of these names, as 'decoder_*/self*'",
    "--compare=RUN": "a second run on the same texts, beside it on the page",
    "--format=KIND": "of the pictures: png (default), svg or pdf",
    "--output=FOLDER": "where page, pictures and arrays go (default: <workdir>/maps; with --compare"
    " <workdir>/maps-beside-<the name of the other run; of a trial also its candidate's>)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `inspect` to its parser: `--source`, `--target`, `--pairs`, `--layers`,
    `--heads`, `--maps`, `--compare`, `--format`, `--output`, `--accept-changed-code`.
    """
    meaning = "a text, or the file of an image"
    parser.add_argument("--source", "--text", "--image", metavar="TEXT", help=meaning)
    meaning = "the second text of a pair; in translation by default the system's own"
    add_flags(parser, {"--target=TEXT": meaning})
    meaning = "instead: a file with 'source' or 'source TAB target' on each line ('-' for stdin)"
    parser.add_argument("--pairs", "--file", metavar="FILE", help=meaning)
    add_flags(parser, FLAGS)
    session.add_acceptance(parser)


def run(arguments: argparse.Namespace) -> int:
    """Writes the attention maps of the given texts or images as `atlas.html` with `maps.npz`, and
    those of each example as `<number>.npz` and as pictures (maps too large to read are not drawn);
    prints each example and the paths of all these files, and returns 0. A second run is on the
    page alone.
    """
    stored = session.stored_run(arguments)
    kind = arguments.format or "png"
    if kind not in KINDS:
        raise UserError(f"inspect: --format={kind}; {nearest(kind, KINDS)}")
    named = [stored]
    if arguments.compare:
        from attnlab.api.stored import Stored

        accepted = arguments.accept_changed_code
        named.append(Stored.find(Path(arguments.compare), accept_changed_code=accepted))
    beside = "".join(f"-beside-{_run_name(other.workdir)}" for other in named[1:])
    folder = Path(arguments.output or stored.workdir / f"maps{beside}")
    session.check_folder("--output", folder)
    typed = _examples(arguments)
    numbers = {name: _numbers(name, getattr(arguments, name)) for name in ("layers", "heads")}
    if arguments.maps and numbers["layers"] is not None:
        raise UserError("inspect: give either --layers or --maps")
    runs = [session.open_run(run) for run in named]
    from attnlab.analysis.results import draw
    from attnlab.api.maps import MEANINGS, atlas_example
    from attnlab.pages.atlas import ARRAYS, write_atlas
    from attnlab.tasks.maps import Chosen, attention_maps, map_shapes

    patterns = [f"*_{layer}/*" for layer in numbers["layers"] or ()]
    chosen = Chosen(patterns or (arguments.maps or "*").split(","), numbers["heads"])
    for run in runs:
        map_shapes(run.task, chosen)  # a wrong choice ends here, before the system writes a target
    read = []
    for run in runs:
        of_run = run.examples_from_text(typed)
        read.append([(x, attention_maps(run.task, run.params, x, chosen)) for x in of_run])
    note = f"Only heads {arguments.heads} of the layer, in this order." if arguments.heads else ""
    examples = [
        atlas_example(run.task, example, maps, str(run.workdir), note)
        for of_runs in zip(*read, strict=True)
        for run, (example, maps) in zip(runs, of_runs, strict=True)
    ]
    write_atlas(folder / "atlas.html", f"Attention of {stored.workdir}", examples, MEANINGS)
    print(folder / "atlas.html", folder / ARRAYS, sep="\n")
    for number, (example, maps) in enumerate(read[0]):
        print(example.shown())
        task, params = runs[0].task, runs[0].params
        pictures = draw(task, params, example, folder / f"{number}", kind, computed=maps)
        for path in pictures.values():
            print(f"  {path}")
    return 0


def _run_name(workdir: Path) -> str:
    """Returns the name of a run's folder, of a trial (seed0, seed1, ...) after that of its candidate:
    "first", "dot-1a2b3c4d-seed0".
    """
    parts = workdir.resolve().parts
    return "-".join(parts[-2:] if re.fullmatch(r"seed\d+", parts[-1]) else parts[-1:])


def _numbers(name: str, typed: str | None) -> list[int] | None:
    """Returns the whole numbers in the text `typed` of the flag --`name`, separated by commas, or
    None if the flag is not given; raises `UserError` for anything else.
    """
    if typed is None:
        return None
    if not all(word.strip().isdecimal() for word in typed.split(",")):
        raise UserError(f"inspect: --{name}={typed}: expected numbers with commas between them")
    return [int(word) for word in typed.split(",")]


def _examples(arguments: argparse.Namespace) -> list[tuple[str, str | None]]:
    """Returns the (source, target or None) texts of `--source` and `--target`, or of the lines of
    `--pairs`; raises `UserError` for empty texts, no pairs, or flags that conflict.
    """
    if (arguments.source is None) == (arguments.pairs is None):
        raise UserError(
            "inspect: give either --text=TEXT (and --target), --image=FILE or --file=FILE"
        )
    if arguments.target is not None and arguments.source is None:
        raise UserError(
            "inspect: --target goes with --text; in the file of --file it stands after a tab"
        )
    for flag, text in (("--source", arguments.source), ("--target", arguments.target)):
        # bytes of the command line that are no UTF-8 are lone surrogates in the text
        if text is not None and (not text.strip() or re.search("[\ud800-\udfff]", text)):
            raise UserError(f"inspect: {flag}={text!r}: expected a sentence in UTF-8")
    if arguments.source is not None:
        return [(arguments.source, arguments.target)]
    examples: list[tuple[str, str | None]] = []
    lines = read_lines(None if arguments.pairs == "-" else arguments.pairs)
    for number, line in enumerate(lines, start=1):
        source, tab, target = line.partition("\t")
        if not source.strip() or (tab and not target.strip()):
            raise UserError(
                f"{arguments.pairs}, line {number}: expected 'source' or 'source TAB target', both"
                " not empty"
            )
        examples.append((source, target if tab else None))
    if not examples:
        raise UserError(f"{arguments.pairs} holds no pairs")
    return examples
