"""The command line teaches by its help, and answers every mistake with one line. Every number that a
command takes has two bounds, which its help says; nothing empty is taken.
"""

import argparse
import errno
import importlib
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from attnlab import config as configs
from attnlab import processes
from attnlab.commands import COMMANDS, Command, Parser, main, take_overrides
from attnlab.commands.show import setting_rows
from attnlab.errors import UserError
from attnlab.flags import add_number
from tests.commands.tiny import refused

LAUNCH = Path(__file__).parents[1] / "launch.py"


def launch(*argv: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(LAUNCH), *argv], capture_output=True, text=True, cwd=cwd, check=False
    )


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """`main` with one stand-in command `toy`, whose `run` is the given function."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def call(run: Callable[[argparse.Namespace], int], *argv: str) -> int:
        module = types.ModuleType("toy_command")
        module.run = run  # type: ignore[attr-defined]
        module.add_arguments = lambda parser: parser.add_argument("--beam", type=int, default=5)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "toy_command", module)
        return main(["toy", *argv], {"toy": Command("toy_command", "a stand-in")})

    return call


@pytest.mark.quick
def test_help_teaches_without_importing_jax(tmp_path: Path) -> None:
    done = launch("--help", cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    words = ["--config.a.b=value", "configs/translation.py:rnnsearch"]
    for word in (*COMMANDS, *words, "--config.system.attention=multihead"):
        assert word in done.stdout
    code = (
        f"import sys; sys.path.insert(0, {str(LAUNCH.parent)!r}); from attnlab.commands import"
        " main; main(['--help']);sys.exit('jax' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["lst"], "unknown command 'lst'; did you mean 'list'?"),
        (["list", "--hepl"], "list: unknown flag --hepl; did you mean '--help'?"),
        (["list", "mechanism"], "list: unknown kind 'mechanism'; did you mean 'mechanisms'?"),
    ],
)
def test_a_mistake_is_one_line(argv: list[str], line: str, tmp_path: Path) -> None:
    done = launch(*argv, cwd=tmp_path)
    said = f"launch.py: error: {line}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--confg=x"], "unknown flag --confg; did you mean '--config'?"),
        (["--bea", "3"], "unknown flag --bea; did you mean '--beam'?"),
        (["--confg.system.hidden=3"], "flag --confg.system.hidden; did you mean '--config.system."),
        (["--system.hidden=3"], "did you mean '--config.system.hidden'?"),
        (["--beam=x"], "argument --beam: invalid int value: 'x'"),
        (["--workdir"], "argument --workdir: expected one argument"),
        (["run", "stray"], "toy: unexpected argument 'stray'"),
        (["--config.a.b"], "--config.a.b: no value given, write --config.a.b=VALUE"),
        (["--config.a.b", "--beam=3"], "--config.a.b: no value given"),
    ],
)
def test_bad_flags(
    toy: Callable[..., int], argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert toy(lambda arguments: 0, *argv) == 2
    out, err = capsys.readouterr()
    assert words in err and err.count("\n") == 1 and out == ""


def test_a_command_gets_its_flags_config_and_overrides(toy: Callable[..., int]) -> None:
    seen: list[argparse.Namespace] = []

    def run(arguments: argparse.Namespace) -> int:
        seen.append(arguments)
        return 7

    flags = ["--config=a.py:b", "--config.x.y=1", "--beam", "3", "--config.z", "-1e-3"]
    assert toy(run, *flags, "--workdir", "runs/a", "--config.t=a=b") == 7
    given = {"config": "a.py:b", "workdir": "runs/a", "beam": 3}
    assert vars(seen[0]) == {**given, "overrides": ["x.y=1", "z=-1e-3", "t=a=b"]}
    assert toy(run) == 7
    assert vars(seen[1]) == {"config": None, "workdir": None, "beam": 5, "overrides": []}


def test_overrides_stop_at_a_double_dash() -> None:
    rest = ["--", "--config.b=2"]
    assert take_overrides(["--config.a=1", *rest]) == (["a=1"], rest)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (UserError("two\nlines"), "error: two lines\n"),
        (KeyboardInterrupt(), ": interrupted\n"),
        (OSError(errno.ENOSPC, "No space left on device", "a/b"), "No space left on device: a/b"),
        (OSError(errno.EFBIG, "File too large", "a/b"), "File too large: a/b; raise the limit"),
        (PermissionError(errno.EACCES, "Denied", "runs\n/a"), "error: Denied: runs /a\n"),
        (OSError("no socket"), "error: no socket\n"),
        (ModuleNotFoundError("No module named 'flax'", name="flax"), "'flax' for"),
    ],
)
def test_how_a_command_ends(
    toy: Callable[..., int], error: BaseException, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = 130 if isinstance(error, KeyboardInterrupt) else 2
    assert toy(lambda arguments: raised(error)) == code
    err = capsys.readouterr().err
    assert words in err and err.count("\n") == 1


def raised(error: BaseException) -> int:
    raise error


def test_an_error_of_our_own_keeps_its_traceback(toy: Callable[..., int]) -> None:
    with pytest.raises(ZeroDivisionError):
        toy(lambda arguments: 1 // 0)
    lost = ModuleNotFoundError("No module named 'attnlab.lost'", name="attnlab.lost")
    with pytest.raises(ModuleNotFoundError):
        toy(lambda arguments: raised(lost))


@pytest.mark.parametrize("name", COMMANDS)
def test_bounds_of_all_flags(name: str) -> None:
    parser = Parser(prog=name)
    importlib.import_module(COMMANDS[name].module, "attnlab.commands").add_arguments(parser)
    if COMMANDS[name].several:
        processes.add_arguments(parser)
    for action in parser._actions:
        if action.type in (None, str, Path):
            listed = action.metavar in ("N", "N,N")  # the command says what is wrong with a list
            assert not listed or re.search(r"\d to [\d,]+", str(action.help)), action.option_strings
            continue
        assert getattr(action.type, "__name__", "") == "bounded", action.option_strings
        flag = action.option_strings[0]
        assert re.search(r"\d to [\d,.e+]+\d", str(action.help)), flag
        for value in ("-2", "1000000000000", "nan"):
            with pytest.raises(UserError, match=rf"{flag}: '{value}' is no .* to \d"):
                parser.parse_args([f"{flag}={value}"])


@pytest.mark.parametrize(
    "config", ["translation.py:rnnsearch", "classification.py:lstmn_classifier"]
)
def test_bounds_of_all_settings(config: str) -> None:
    """`show` prints what is refused beyond: of every whole number its bounds."""
    path = f"configs/{config}"
    for setting, value, _, meaning in setting_rows(configs.load(path)):
        if re.fullmatch(r"-?\d+", value) and "one of: " not in meaning:
            bound = re.search(r"a whole number of at least (-?\d+) and at most ([\d,]+)", meaning)
            assert bound, (setting, meaning)
            most = int(bound[2].replace(",", ""))
            with pytest.raises(UserError, match=rf"config\.{setting}={most + 1}: expected"):
                configs.load(path, [f"{setting}={most + 1}"])


def test_both_bounds_are_included() -> None:
    parser = Parser()
    add_number(parser, "--of", 1, 3, "things")
    add_number(parser, "--share", 0.0, 1.0, "of them", default=0.5)
    assert vars(parser.parse_args(["--of=3"])) == {"of": 3, "share": 0.5}
    for flag in ("--of=1.5", "--of=4", "--share=1.1", "--share=-inf", "--share=x"):
        with pytest.raises(UserError, match="is no (whole )?number from"):
            parser.parse_args([flag])


EMPTY = "= is empty; write a value, or leave it out"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("prepare --from=a.txt --to=", f"--to{EMPTY}"),
        ("prepare --from=a.txt --to=\N{NO-BREAK SPACE}\t", f"--to{EMPTY}"),
        ("work \N{NO-BREAK SPACE}", EMPTY.replace("=", "an argument")),
        ("train --config=configs/translation.py:rnnsearch --workdir=", f"--workdir{EMPTY}"),
        (f"cost --mechanisms=single --dir={__file__}/x", f"{__file__} is not a folder; name"),
        (
            "show --config=configs/translation.py:transformer --config.system.normalisation.epsilon=-1.0",
            "at least 0",
        ),
    ],
)
def test_what_is_refused_before_any_work(line: str, told: str) -> None:
    assert told in refused(*line.split(" "))
