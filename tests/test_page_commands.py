"""Every command of the README and of the pages in docs is one of ours, with flags and settings that it
has; those of the README, and elsewhere those on our own data, run as typed, with a printed list of
overrides that make them short; experiments of other pages are planned. The pages with data of their
own: test_doc_pages.py, test_extension.py.
"""

import contextlib
import gzip
import importlib.util
import random
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from attnlab import config as configs
from attnlab import processes
from attnlab.commands import COMMANDS, take_overrides
from attnlab.errors import UserError
from tests import sampling
from tests.commands.tiny import SHARED, run_command
from tests.test_doc_pages import gpt2

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
STARTS = re.compile(r"(?:\bpython (?:\$CLONE/)?launch\.py|(?<![`\w/.-])attnlab) (?=[a-z])")
ELSEWHERE = re.compile(
    r"pretrained\.py|my_attention|\.\.\.|--config=runs/"
)  # what only the user has


class Typed(NamedTuple):
    """A command of a page: what a pipe feeds it, and its words behind `launch.py`."""

    stdin: str
    words: list[str]


def typed(page: Path) -> Iterator[Typed]:
    """The commands of a page, in blocks of code, one after another."""
    fenced = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
    text = page.read_text()
    shell = [block for language, block in fenced.findall(text) if language in ("", "bash")]
    shell += re.findall(r"(?:^    .*\n)+", fenced.sub("", text), re.M)
    lines = [one for one in re.sub(r"\\\n", " ", "\n".join(shell)).splitlines() if "`" not in one]
    values = dict(re.findall(r"^ *([A-Z]+)=\"([^\"]*)\"$", "\n".join(lines), re.M))
    for line in lines:
        for part in re.split(r" && |; do ", line):
            if found := STARTS.search(part):
                end = re.split(r" +#| > |\" &", part[found.end() :])[0]
                end = end.rstrip("'") if end.count("'") % 2 else end  # of a command of ssh
                words = shlex.split(re.sub(r"\$(\w+)", lambda one: values.get(one[1], "0"), end))
                pipe = shlex.split(part[: found.start()].rpartition("|")[0])
                yield Typed(pipe[-1].encode().decode("unicode_escape") if pipe else "", words)


GUIDES = ("README.md", "docs/commands.md", "docs/data.md")
README = list({str(one): one for page in GUIDES for one in typed(ROOT / page)}.values())
"""Their commands, in this order."""


def ended(words: list[str], stdin: str = "") -> None:
    """Runs a command, which must end well."""
    if "--help" in words:
        with pytest.raises(SystemExit, match="^0$"):
            run_command(words)
        return
    done = run_command(words, stdin)
    assert done.code == 0, (words, done.err)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_have_their_flags_and_settings(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those for clusters, accelerators and networks too; nothing runs."""
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "examples"))
    monkeypatch.setattr(processes, "run", lambda words, work: work())
    for command in COMMANDS.values():
        monkeypatch.setattr(
            importlib.import_module(command.module, "attnlab.commands"), "run", lambda arguments: 0
        )
    for _, words in typed(page):
        ended(words)
        overrides, rest = take_overrides(words[1:])
        (path,) = [one.split("=", 1)[1] for one in rest if one.startswith("--config=")] or [""]
        if path and not ELSEWHERE.search(" ".join(words)):
            configs.load(path, overrides)
        if words[0] == "sweep" and words[1].startswith("experiments/"):
            assert (ROOT / words[1].partition(":")[0]).is_file(), words
    for module in re.findall(r"python -m ([\w.]+)", page.read_text()):
        assert importlib.util.find_spec(module), module
    for line in re.findall(r"`(?:python launch\.py|attnlab) ([a-z][^`.|>]*)`", page.read_text()):
        ended(shlex.split(line))


def given(folder: Path) -> None:
    """What the README says is the user's: texts, tables, a pretrained model, a mechanism."""
    texts = [
        f"a {one} dog sees the {two} cat" for one in ("big", "old", "wise") for two in "abcdef"
    ]
    files = {f"TEXTS/{split}.txt": texts for split in ("train", "valid", "test")}
    files["MINE.txt"] = texts * 10
    for split in ("train", "valid", "test"):
        files |= {f"FOLDER/{split}.{side}": texts for side in ("de", "en")}
        rows = [f"{one},{number % 2}" for number, one in enumerate(texts)]
        files[f"REVIEWS/{split}.csv"] = ["review,stars", *rows]
        files[f"TABLES/{split}.tsv"] = [f"x\t{one}\t{one.split()[1]}" for one in texts]
    own = re.search(
        r"^# my_attention\.py\n.*?(?=^```)", (ROOT / "README.md").read_text(), re.M | re.S
    )
    files["my_attention.py"] = own[0].splitlines() if own else []
    for name, lines in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("\n".join(lines) + "\n")
    (folder / "text").mkdir()
    with gzip.open(folder / "text" / "a.txt.gz", "wt") as file:
        file.write("\n".join(texts * 3))
    gpt2(folder / "FOLDER")


SHORT = [
    *(one for one in SHARED if "method" not in one),
    *("training.steps=4", "training.evaluate_every=2", "batch.size=4", "decoding.max_extra=2"),
    *("system.width=16", "system.hidden=16", "system.layers=1"),
]
OWN = re.compile(r"data=(files|text|table|rows|shards)$")  # data that is short already
FLAGS = {
    "verify": ["--steps=4"],
    "cost": ["--lengths=16,32", "--rows=1", "--width=16"],
    "sweep": [
        *("--seeds=1", "--config.data.examples=200", "--config.data.valid=16"),
        *("--config.data.test=16", "--config.schedule.warmup=2", "--config.training.steps=8"),
        *("--config.training.evaluate_every=4", "--config.decoding.batch=16"),
    ],
}
BESIDE = [  # what a comment of the README says
    Typed("", f"prepare --to=corpus/{one} --from=TEXTS/{one}.txt --vocabulary=corpus/train".split())
    for one in ("valid", "test")
]


def shortened(words: list[str]) -> list[str]:
    """The overrides that make a command short, of those that its config has."""
    overrides, rest = take_overrides(words[1:])
    if words[0] == "prepare" and any(one.startswith("--size=") for one in words):
        return ["--size=40"]
    if words[0] not in ("train", "import") or "--help" in words:
        return FLAGS.get(words[0], [])
    found: list[str] = []
    path = next((one[9:] for one in rest if one.startswith("--config=")), "")
    path = path or "configs/pretrained.py:FOLDER"
    for one in SHORT:
        theirs = "data" if any(map(OWN.match, overrides)) else "-"
        if one.startswith((theirs, "system" if "FOLDER" in path else "-")):
            continue
        with contextlib.suppress(UserError):  # a setting of other tasks and systems
            configs.load(path, [*overrides, *found, one])
            found.append(one)
    return [f"--config.{one}" for one in found]


def needed(words: list[str], at: int) -> list[int]:
    """Which commands above make the folders that these words name."""
    named = {Path(word.rpartition("=")[2]) for word in words[1:]}
    found = []
    for number, (_, before) in enumerate(README[:at]):
        made = [Path(w.partition("=")[2]) for w in before if re.match("--(workdir|to|dir)=", w)]
        makes = before[0] in ("train", "import", "prepare", "sweep")
        if makes and any(one in named or one.parent in named for one in made):
            found += [*needed(before, number), number]
    return list(dict.fromkeys(found))


def sweeps(words: list[str]) -> bool:
    """Whether a command is about a whole experiment, which takes minutes even if it is short."""
    return words[0] in ("sweep", "status", "compare") or "runs/quickstart" in words


QUICK = ("list", "show", "prepare", "preview")
CASES = [
    pytest.param(
        {"long": words[0] not in QUICK and "--help" not in words, "number": number + 2},
        marks=[pytest.mark.full] * sweeps(words),
        id=f"{number}-{words[0]}",
    )
    for number, (_, words) in enumerate(README)
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with our configs and experiments, where the test stands."""
    monkeypatch.chdir(tmp_path)
    for name in ("configs", "experiments"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.mark.parametrize("case", CASES)
def test_a_command_of_the_readme_runs(
    case: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    at = case["number"] - 2
    monkeypatch.syspath_prepend(str(folder))
    given(folder)
    steps = [*needed(README[at].words, at), at]
    commands = [README[number] for number in steps]
    if any("corpus/train" in " ".join(one.words) for one in commands[:-1]):
        commands[1:1] = BESIDE
    for stdin, words in commands:
        check_runs(words, shortened(words), capsys, stdin)


def check_runs(words: list[str], short: list[str], capsys: Any, stdin: str = "") -> None:
    """Runs a command with what makes it short, which is printed."""
    with capsys.disabled():
        print(f"\n$ launch.py {shlex.join(words)}\n  short: {shlex.join(short)}")
    ended([*words, *short], stdin)


OURS = {  # commands of results on data that we generate
    shlex.join(words): words
    for page in PAGES
    if page.parent.name == "results" or page.name == "python.md"
    for _, words in typed(page)
    if words[0] in ("train", "cost", "sweep")
    and not re.search(r"directory=|:[A-Z]", " ".join(words))
}
DRAWN = random.Random(sampling.seed()).choice([one for one in OURS if one[:5] != "sweep"])


@pytest.mark.parametrize(
    "line", [pytest.param(one, marks=[pytest.mark.full] * (one != DRAWN)) for one in OURS]
)
def test_a_command_of_another_page_runs(line: str, folder: Path, capsys: Any) -> None:
    short = ["--dry-run"] if OURS[line][0] == "sweep" else shortened(OURS[line])
    named = [key for key in ("batch.buckets=", "batch.max_length=") if key in line]
    short = [one for one in short if not any(key in one for key in named)]
    check_runs(OURS[line], short, capsys)
    assert "NOT MATCHED" not in capsys.readouterr().out
