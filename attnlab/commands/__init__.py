"""The command line: `launch.py COMMAND [flags]` and the same as the console script `attnlab`.

Each command is a module with two functions: `add_arguments(parser)`, which must import nothing
heavy (it runs for `--help`), and `run(arguments) -> int`, the exit code. Commands that work on a
run get `--config`, `--workdir` and all `--config.a.b=value` overrides: `arguments.config` and
`arguments.workdir` (None unless given; a command may set its own default with
`parser.set_defaults`) and `arguments.overrides`, a list of "a.b=value" for `attnlab.config.load`.
"""

import argparse
import dataclasses
import difflib
import functools
import importlib
import os
import pathlib
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Literal, NoReturn

from attnlab import processes
from attnlab.commands import streams
from attnlab.errors import UserError, nearest, one_line, show_traceback, users_code
from attnlab.flags import add_flags


@dataclasses.dataclass(frozen=True)
class Command:
    """One subcommand.

    Attributes:
      module: with its `add_arguments` and `run`; ours by its name after a dot.
      help: one line for `--help`.
      takes: what it takes beside its own flags: "run", a config, overrides `--config.a.b=value` and
        a work folder; "overrides" alone; or "nothing".
      several: whether several processes may run it together.
    """

    module: str
    help: str
    takes: Literal["run", "overrides", "nothing"] = "run"
    several: bool = False


_ABOUT = {
    "train": "train a model; the same command again resumes it",
    "continue": "a run goes on in a new folder, longer or otherwise",
    "evaluate": "score a trained model: perplexity, accuracy, BLEU, whatever its task measures",
    "generate": "translate, label or continue lines from stdin or a file",
    "score": "how likely texts are, token by token; which candidate is likelier; lm-eval's tasks",
    "inspect": "the attention maps of given texts: one interactive page, and pictures",
    "analyse": "what the heads of a run look at, and what each layer and head is worth",
    "sweep": "run an experiment, from trials to a report; resumes too",
    "status": "how far a sweep is",
    "stop": "stop one trial of a sweep for good",
    "work": "take trials of a sweep, on any machine that sees its folder",
    "report": "what a sweep has shown: tables, intervals, verdict, one HTML page",
    "compare": "two sweeps side by side, and what differs between them",
    "preview": "what is in tables of data",
    "diff": "two runs: the settings that differ, then the results",
    "prepare": "a large corpus as shards of ids, which training reads from disk",
    "import": "a run from a folder of transformers (GPT-2, Llama, ...), not yet trained here",
    "export": "a run for transformers, peft or NumPy, or its card; a sweep's trials for a tracker",
    "prune": "what the states of finished runs take on the disk, and take it",
    "verify": "repeat a recorded run and say whether it comes out the same",
    "show": "print a config: every setting, its value and what it means",
    "cost": "what mixers cost over the length of a text: counted, compiled and measured",
    "list": "what there is: mechanisms, systems, data, configs, ...",
}
_SEVERAL = ("train", "continue", "evaluate")
_ON_RUNS = (*_SEVERAL, "generate", "score", "inspect", "analyse")
_WITH_OVERRIDES = ("sweep", "preview", "import", "show")
_MODULES = {
    "continue": "continue_run",
    "import": "import_model",
    "inspect": "inspect_maps",
    "list": "listing",
}
"""The modules of commands by whose names no module can be called: a word of Python, or a builtin that
it would hide in this package."""
COMMANDS: Mapping[str, Command] = {
    name: Command(
        f".{_MODULES.get(name, name)}",
        about,
        "run" if name in _ON_RUNS else "overrides" if name in _WITH_OVERRIDES else "nothing",
        several=name in _SEVERAL,
    )
    for name, about in _ABOUT.items()
}
"""All commands."""

CONFIGS = """\
configs:
  --config=configs/translation.py:rnnsearch takes the config that the function get_config of that file returns for the
  argument 'rnnsearch'. The files live in configs/; '{program} list configs' shows them, and yours may lie anywhere.
  The folder of a run is a config too, the one it was made from: --config=runs/first.

overrides:
  --config.a.b=value (or --config.a.b value) changes one setting; its type is that of the value it replaces:
    --config.training.steps=500   --config.schedule.peak=1e-3   --config.batch.buckets=16,32,64   --config.vocabulary.lowercase=true
  A name put on a component replaces it, with its own default settings, before all other overrides:
    --config.system.attention=multihead --config.system.attention.heads=8
    --config.system.attention=my_package.my_file:MyAttention      a file of your own, no registration needed
  '{program} show --config=...' prints every setting, its value, what it means and its bounds; so does --help after a
  --config. No number is beyond 2^32, or what float32 holds (3.4e38).
  A misspelt name or a wrong value is one line on stderr, with the near names, and exit code 2. So is an error in a file of your own,
  with the file and the line; with ATTNLAB_TRACEBACK=1 in the environment its traceback stands above it."""

OF_RUN = {
    "--config=FILE.py:ARGUMENT": (
        "the config file and the argument for its get_config; or the folder of a run"
    ),
    "--workdir=RUN": (
        "where the run is kept: checkpoints, metrics, manifest, pictures; also as RUN, without a flag"
    ),
}

HELP = """\
usage: {program} COMMAND [--config=FILE.py:ARGUMENT] [--config.a.b=value ...] [--workdir=FOLDER] [flags]

attnlab: train, measure and look into attention models, every mechanism behind one signature.

commands:
{commands}

examples:
  {program} sweep experiments/quickstart.py --dir=runs/quickstart
  {program} train --config=configs/translation.py:rnnsearch --workdir=runs/first
  {program} evaluate --workdir=runs/first
  {program} train --config=configs/translation.py:rnnsearch --config.system.attention=multihead --workdir=runs/second
  {program} show --config=configs/translation.py:rnnsearch
  {program} list mechanisms

{configs}

'{program} COMMAND --help' explains the flags of one command.
"""


class Parser(argparse.ArgumentParser):
    """A parser without abbreviations that raises `UserError` instead of printing a usage text."""

    def error(self, message: str) -> NoReturn:
        """Raise `UserError` with argparse's message."""
        raise UserError(message)

    def flags(self) -> list[str]:
        """Returns all long flags of the parser."""
        return [
            flag for flag in self._option_string_actions if flag.startswith("--")
        ]  # argparse has no public list


def main(argv: Sequence[str] | None = None, commands: Mapping[str, Command] = COMMANDS) -> int:
    """Runs the one of `commands` that `argv` (by default `sys.argv[1:]`) names and returns its exit
    code; or 2 after a user's or system's error and 130 after Ctrl-C, each with one line on stderr,
    or 141 if the reader of a pipe has gone.

    Returns:
      The command's exit code; 2 after a `UserError`, a missing package or an `OSError`, 130 after
      Ctrl-C, both with one line on stderr; 141, in silence, where the reader of a pipe has gone.
    """
    program = pathlib.Path(sys.argv[0]).name or "attnlab"
    try:
        streams.prepare()
        _import_from_current_folder()
        code = _dispatch(list(sys.argv[1:] if argv is None else argv), commands, program)
        sys.stdout.flush()
        return code
    except UserError as error:
        show_traceback(error)
        message, code = f"{program}: error: {error}", 2
    except KeyboardInterrupt:
        message, code = f"{program}: interrupted", 130
    except BrokenPipeError:
        message, code = "", 141
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == __package__.partition(".")[0]:
            raise  # a slip of ours
        advice = "'pip install -e .' installs what attnlab needs"
        message, code = f"{program}: error: {error} for {sys.executable}; {advice}", 2
    except OSError as error:
        message, code = f"{program}: error: {one_line(error)}", 2
    streams.finish(message)
    return code


def _import_from_current_folder() -> None:
    """Appends the current folder to `sys.path`, so that a config can name a user's own modules.

    Raises:
      UserError: that folder was deleted.
    """
    try:
        folder = os.getcwd()
    except OSError as error:
        raise UserError(
            "the folder that you are in was deleted or cannot be read; change to another one"
        ) from error
    if folder not in sys.path:
        sys.path.append(folder)


def _dispatch(argv: list[str], commands: Mapping[str, Command], program: str) -> int:
    """Runs the command that `argv[0]` names, alone or as one of several processes; without one
    prints the general help; returns the exit code; raises `UserError` for an unknown command.
    """
    if not argv or argv[0] in ("--help", "-h", "help"):
        lines = "\n".join(f"  {name:10}{command.help}" for name, command in commands.items())
        configs = CONFIGS.format(program=program)
        print(HELP.format(program=program, commands=lines, configs=configs), end="")
        return 0
    name, *arguments = argv
    if name.startswith("-"):
        raise UserError(
            f"{name.partition('=')[0]}: the command comes first, '{program} COMMAND {name}';"
            f" commands: {', '.join(commands)}"
        )
    if name not in commands:
        raise UserError(f"unknown command {name!r}; {nearest(name, commands)}")
    command = commands[name]
    work = functools.partial(_run, command, name, arguments, program)
    return processes.run(arguments, work) if command.several else work()


@users_code()
def _run(command: Command, name: str, argv: Sequence[str], program: str) -> int:
    """Parses the flags and `--config.` overrides of a command, runs it and returns its exit code;
    only prints help if that is wanted; raises `UserError` for an empty or unknown argument, and for
    an error in a user's file, whose line it names.
    """
    overrides, argv = take_overrides(argv) if command.takes != "nothing" else ([], argv)
    module = importlib.import_module(command.module, __package__)
    parser = Parser(
        prog=f"{program} {name}",
        description=command.help[0].upper() + command.help[1:] + ".",
        epilog=CONFIGS.format(program=program) if command.takes == "run" else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    if command.takes == "run":
        add_flags(parser, OF_RUN)
    module.add_arguments(parser)
    if command.several:
        processes.add_arguments(parser)
    if _print_settings(parser, argv, overrides):
        return 0
    for word in map(str.strip, argv):
        if re.fullmatch(r"(--[\w.-]+=)?", word):  # an empty path would be the folder one is in
            raise UserError(f"{word or 'an argument'} is empty; write a value, or leave it out")
    arguments, unknown = parser.parse_known_args(argv)
    if unknown and hasattr(arguments, "workdir") and not unknown[0].startswith("-"):
        run = unknown.pop(0)
        if arguments.workdir not in (None, run):
            raise UserError(f"two runs are named, {run} and {arguments.workdir}; take one")
        arguments.workdir = run
    if unknown:
        raise UserError(_unknown_argument(unknown[0], parser, name, command.takes == "run"))
    arguments.overrides = overrides
    return int(module.run(arguments))


def _print_settings(parser: Parser, arguments: Sequence[str], overrides: Sequence[str]) -> bool:
    """If `arguments` have both `--help` and a `--config`, prints the help of the parser and all
    settings of that config and returns True; else prints nothing and returns False.
    """
    flags = [word for word in arguments if word not in ("-h", "--help")]
    has_config = any(word.partition("=")[0] == "--config" for word in flags)
    if len(flags) == len(arguments) or not has_config or "--config" not in parser.flags():
        return False
    config = parser.parse_known_args(flags)[0].config
    parser.print_help()
    print()
    importlib.import_module(".show", __package__).print_settings(config, overrides)
    return True


def take_overrides(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits a command line into two lists: its overrides `--config.a.b=value` (or `--config.a.b
    value`), "a.b=value" each, and its other arguments; raises `UserError` for an override without a
    value.

    Returns:
      The overrides, "a.b=value" each, and the other arguments, with all that follow a bare `--`.

    Raises:
      UserError: an override without a value.
    """
    overrides: list[str] = []
    others: list[str] = []
    arguments = iter(argv)
    for argument in arguments:
        if argument == "--":
            return overrides, [*others, argument, *arguments]
        if not argument.startswith("--config."):
            others.append(argument)
            continue
        if "=" not in argument:
            value = next(arguments, None)
            if value is None or value.startswith("--"):
                raise UserError(f"{argument}: no value given, write {argument}=VALUE")
            argument = f"{argument}={value}"
        overrides.append(argument.removeprefix("--config."))
    return overrides, others


def _unknown_argument(word: str, parser: Parser, command: str, takes_run: bool) -> str:
    """Returns the error message for an argument that no flag of the parser takes, with the most
    similar flag; with the setting `--config.KEY` if it has a dot and the command takes a run; with
    neither for a word without a dash.
    """
    if not word.startswith("-"):
        return f"{command}: unexpected argument {word!r}"
    flag = word.partition("=")[0]
    if takes_run and "." in flag:
        head, _, key = flag.lstrip("-").partition(".")
        if not difflib.get_close_matches(head, ["config"], cutoff=0.6):
            key = f"{head}.{key}"
        return f"{command}: unknown flag {flag}; did you mean '--config.{key}'?"
    return f"{command}: unknown flag {flag}; {nearest(flag, parser.flags())}"
